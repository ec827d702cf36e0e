//! Objects that this version cannot read.

use super::make::*;
use crate::announce::*;

#[test]
fn an_object_that_cannot_be_read_counts_as_it_was_also_after_a_list() {
    let all = [
        (Kind::Advertisement, Name::Advertisement("all".into())),
        (Kind::Peer, Name::Peer("tor".into())),
        (Kind::Address, Name::Address(ip("192.0.2.7"))),
    ];
    let world = || {
        let objects = [told(by_bgp("all")), router(peer("tor")), service("web")];
        let more = [alone("192.0.2.7", "web"), slice("web", &["b"])];
        World::new(objects.into_iter().chain(more))
    };
    for (kind, name) in all {
        let mut world = world();
        assert_eq!(world.network.prefixes("tor"), ["192.0.2.7/32"]);
        world.machine.handle(Event::Begin(kind));
        world.machine.handle(Event::Unreadable(name));
        assert_eq!(world.after(Event::Done(kind)), [], "{kind:?}");
        assert_eq!(world.after(Event::Unreadable(Name::Peer("other".into()))), [], "never known");
        world.machine.handle(Event::Begin(kind));
        assert_ne!(world.after(Event::Done(kind)), [], "{kind:?} is gone");
    }
}
