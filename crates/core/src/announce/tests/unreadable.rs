//! Objects that this version cannot read.

use super::make::*;
use crate::announce::*;

#[test]
fn an_object_that_cannot_be_read_counts_as_it_was_also_after_a_list() {
    let objects = [told(by_bgp("all")), router(peer("tor")), service("web")];
    let mut world = World::new(objects.into_iter().chain([behind("192.0.2.7", "web", "edge")]));
    assert_eq!(world.agent("edge", "192.0.2.7", true).len(), 2, "held and told");
    let all = [
        (Kind::Advertisement, Name::Advertisement("all".into())),
        (Kind::Peer, Name::Peer("tor".into())),
        (Kind::Address, Name::Address(ip("192.0.2.7"))),
    ];
    for (kind, name) in all.clone() {
        world.machine.handle(Event::Begin(kind));
        world.machine.handle(Event::Unreadable(name));
        assert_eq!(world.after(Event::Done(kind)), [], "{kind:?}");
    }
    assert_eq!(world.after(Event::Unreadable(Name::Peer("other".into()))), [], "never known");
    for (kind, _) in all {
        world.machine.handle(Event::Begin(kind));
        assert_ne!(world.after(Event::Done(kind)), [], "{kind:?} is gone");
    }
}
