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
fn addresses_of_other_load_balancers_stay_refused_while_their_plans_are_held() {
    let other = Object::Elsewhere("edge-0".into(), vec![IpAddr::from([192, 0, 2, 9])]);
    let delete = || Event::Delete(Kind::Elsewhere, ObjectKey::new("", "edge-0"));
    let refuses =
        |resolver: &Resolver| resolver.guard.refuse(([192, 0, 2, 9], 80).into()).is_some();
    let mut resolver = resolver(two());
    resolver.handle(Event::Apply(other.clone()));
    resolver.handle(Event::Hold(true));
    resolver.handle(delete());
    resolver.handle(Event::Begin(Kind::Elsewhere));
    resolver.handle(Event::Done(Kind::Elsewhere));
    assert!(refuses(&resolver));
    // The leader writes it again, and deletes it later.
    resolver.handle(Event::Apply(other.clone()));
    resolver.handle(Event::Hold(false));
    assert!(refuses(&resolver));
    resolver.handle(delete());
    assert!(!refuses(&resolver));
    // The leader does not write it again.
    resolver.handle(Event::Apply(other));
    resolver.handle(Event::Hold(true));
    resolver.handle(delete());
    resolver.handle(Event::Hold(false));
    assert!(!refuses(&resolver));
}

#[test]
fn plans_that_vanish_while_nothing_is_held_are_not_served_any_more() {
    let mut resolver = resolver(two());
    resolver.take();
    gone(&mut resolver);
    resolver.take();
    assert_eq!(resolver.snapshot().listeners, []);
}
