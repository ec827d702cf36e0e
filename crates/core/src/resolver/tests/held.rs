//! Tests of Plans that are gone and served as before.

use super::*;
use crate::plan::Backends;

fn two() -> Vec<Object> {
    vec![
        shard("s1", vec![fragment("a", 80, Backends::Pods)]),
        shard("s2", vec![fragment("b", 81, Backends::Pods)]),
    ]
}

fn gone(resolver: &mut Resolver) {
    for name in ["s1", "s2"] {
        resolver.handle(Event::Delete(Kind::Shard, ObjectKey::new("", name)));
    }
    resolver.handle(Event::Begin(Kind::Shard));
    resolver.handle(Event::Done(Kind::Shard));
}

#[test]
fn plans_that_vanish_while_they_are_held_are_served_until_they_come_again_or_are_not_held_any_more()
{
    let mut resolver = resolver(two());
    let all = resolver.take().unwrap();
    resolver.handle(Event::Hold(true));
    gone(&mut resolver);
    assert_eq!(resolver.take(), None);
    assert_eq!(resolver.snapshot(), all);
    // The leader writes one of them again, and not the other.
    resolver.handle(Event::Apply(shard("s1", vec![fragment("a", 80, Backends::Pods)])));
    assert_eq!(resolver.take(), None);
    resolver.handle(Event::Hold(false));
    let update = resolver.take().unwrap();
    let listeners: Vec<_> = resolver.snapshot().listeners;
    assert_eq!((update.listeners.len(), listeners.len()), (1, 1));
    assert_eq!(update.hash, PlanHash::of(&fragment("a", 80, Backends::Pods)));
}

#[test]
fn plans_that_vanish_while_nothing_is_held_are_not_served_any_more() {
    let mut resolver = resolver(two());
    resolver.take();
    gone(&mut resolver);
    resolver.take();
    assert_eq!(resolver.snapshot().listeners, []);
}
