//! Tests of Plans that the agent refuses as a whole.

use super::*;
use crate::plan::Backends;

const WHY: &str = "the agent runs --driver nginx";

fn served(name: &str, port: u16) -> Event {
    Event::Apply(shard(name, vec![fragment(name, port, Backends::Pods)]))
}

fn refused(name: &str) -> Event {
    Event::Apply(Object::Refused(name.into(), WHY.into()))
}

fn deleted(name: &str) -> Event {
    Event::Delete(Kind::Shard, ObjectKey::new("", name))
}

/// How many listeners are open, and why a Plan is refused, after these events.
fn after(
    resolver: &mut Resolver,
    events: impl IntoIterator<Item = Event>,
) -> (usize, Option<&str>) {
    events.into_iter().for_each(|event| resolver.handle(event));
    resolver.take();
    (resolver.snapshot().listeners.len(), resolver.refused())
}

#[test]
fn a_refusal_lasts_until_its_own_plan_is_accepted() {
    let mut resolver = resolver(vec![]);
    assert_eq!(after(&mut resolver, [served("a", 80), served("b", 81)]), (2, None));
    assert_eq!(after(&mut resolver, [refused("a"), refused("b")]), (0, Some(WHY)));
    assert_eq!(after(&mut resolver, [served("a", 80)]), (1, Some(WHY)));
    assert_eq!(after(&mut resolver, [served("b", 81)]), (2, None));
}

#[test]
fn a_refusal_ends_when_its_plan_is_deleted_also_unseen() {
    let mut resolver = resolver(vec![]);
    assert_eq!(after(&mut resolver, [refused("a"), deleted("a")]), (0, None));
    let relist = [Event::Begin(Kind::Shard), refused("b"), Event::Done(Kind::Shard)];
    assert_eq!(after(&mut resolver, [refused("a")].into_iter().chain(relist)), (0, Some(WHY)));
    assert_eq!(after(&mut resolver, [deleted("b")]), (0, None));
}

#[test]
fn a_refused_plan_is_not_served_while_deleted_plans_are() {
    let mut resolver = resolver(vec![]);
    after(&mut resolver, [served("a", 80), served("b", 81), Event::Hold(true)]);
    assert_eq!(after(&mut resolver, [deleted("a"), refused("a")]), (1, Some(WHY)));
    assert_eq!(after(&mut resolver, [deleted("b")]), (1, Some(WHY)));
    assert_eq!(after(&mut resolver, [deleted("a"), Event::Hold(false)]), (0, None));
}
