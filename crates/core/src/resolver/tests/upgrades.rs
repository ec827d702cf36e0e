//! Tests of Plans that a leader of another version has written.

use super::*;
use crate::hash::PlanHash;
use crate::key::ConsumerKind;
use crate::plan::{Backends, Fragment};
use crate::update::Change;

/// A shard with these readable fragments, and with unreadable ones of these consumers.
fn newer(name: &str, index: u32, readable: Vec<Fragment>, unread: &[&str], hash: u8) -> Object {
    let unread = unread.iter().map(|name| (consumer(ConsumerKind::Service, name), 0)).collect();
    Object::Shard(
        name.into(),
        index,
        Written { fragments: readable, unread, hash: Some(named(hash)) },
    )
}

fn named(hash: u8) -> PlanHash {
    format!("{hash:064x}").parse().unwrap()
}

fn service(name: &str, port: u16) -> Fragment {
    fragment(name, port, Backends::Pods)
}

fn ports(update: &Update) -> Vec<(bool, u16)> {
    let ports = update.listeners.iter().map(|change| match change {
        Change::Put(key, _) => (true, key.port),
        Change::Remove(key) => (false, key.port),
    });
    ports.collect()
}

fn told(resolver: &Resolver) -> Vec<(String, Reason, Extent)> {
    let told = resolver.left_out();
    told.map(|it| (it.consumer.name.to_string(), it.problem.reason, it.extent)).collect()
}

/// The consumers that a leader plans anew if it cannot read their fragments either.
fn planned_anew(resolver: &Resolver) -> Vec<String> {
    let all: Vec<_> = resolver.left_out().collect();
    all.iter().filter_map(Refusal::unread).map(|it| it.name.to_string()).collect()
}

fn unread(name: &str, extent: Extent) -> (String, Reason, Extent) {
    (name.to_owned(), Reason::PlanUnread, extent)
}

#[test]
fn what_cannot_be_read_leaves_its_consumer_as_it_was_and_everybody_else_goes_on() {
    let mut resolver = Resolver::new();
    resolver.handle(Event::Apply(shard("a", vec![service("web", 80), service("api", 81)])));
    assert_eq!(ports(&resolver.take().unwrap()), [(true, 80), (true, 81)]);
    assert_eq!(told(&resolver), []);
    let changed = newer("a", 97, vec![service("api", 82)], &["web"], 7);
    resolver.handle(Event::Apply(changed));
    let update = resolver.take().unwrap();
    assert_eq!(ports(&update), [(false, 81), (true, 82)]);
    assert_eq!(update.hash, named(7), "the leader knows the agent by its own hash");
    assert_eq!(told(&resolver), [unread("web", Extent::Part)]);
    assert!(resolver.take_left_out_changed());
    // The fragment can be read again, and changed.
    resolver.handle(Event::Apply(shard("a", vec![service("api", 82), service("web", 8080)])));
    let update = resolver.take().unwrap();
    assert_eq!(ports(&update), [(false, 80), (true, 8080)]);
    assert_eq!(
        update.hash,
        PlanHash::of(&service("api", 82)).plus(PlanHash::of(&service("web", 8080)))
    );
    assert_eq!(told(&resolver), []);
    assert!(resolver.take_left_out_changed());
}

#[test]
fn what_cannot_be_read_may_move_to_another_shard_first() {
    let mut resolver = Resolver::new();
    resolver.handle(Event::Apply(shard("a1", vec![service("web", 80)])));
    resolver.handle(Event::Apply(shard("b2", vec![service("api", 81)])));
    resolver.take().unwrap();
    resolver.handle(Event::Apply(newer("b2", 2, vec![service("api", 81)], &["web"], 3)));
    resolver.handle(Event::Apply(shard("a1", Vec::new())));
    assert_eq!(resolver.take().map(|update| ports(&update)), Some(vec![]));
    assert_eq!(told(&resolver), [unread("web", Extent::Part)]);
    resolver.handle(Event::Delete(Kind::Shard, ObjectKey::new("", "a1")));
    assert!(resolver.take().is_none_or(|update| ports(&update).is_empty()));
    assert_eq!(told(&resolver), [unread("web", Extent::Part)]);
}

#[test]
fn an_agent_that_never_could_read_it_serves_the_rest_and_says_so() {
    let mut resolver = Resolver::new();
    resolver.handle(Event::Apply(newer("a", 97, vec![service("api", 81)], &["web"], 7)));
    let update = resolver.take().unwrap();
    assert_eq!((ports(&update), update.hash), (vec![(true, 81)], named(7)));
    assert_eq!(told(&resolver), [unread("web", Extent::All)]);
    // A list of all Plans changes nothing.
    resolver.handle(Event::Begin(Kind::Shard));
    resolver.handle(Event::Apply(newer("a", 97, vec![service("api", 81)], &["web"], 7)));
    resolver.handle(Event::Done(Kind::Shard));
    assert_eq!(resolver.take(), None);
    assert!(resolver.take_left_out_changed());
    // The consumer leaves the plan.
    resolver.handle(Event::Apply(shard("a", vec![service("api", 81)])));
    assert_eq!(resolver.take().unwrap().hash, PlanHash::of(&service("api", 81)));
    assert_eq!(told(&resolver), []);
    assert!(resolver.take_left_out_changed() && !resolver.take_left_out_changed());
}

#[test]
fn only_an_agent_that_serves_nothing_of_a_consumer_has_it_planned_anew() {
    let later = || newer("a", 97, vec![service("api", 81)], &["web"], 7);
    // The agent had the fragment before the newer leader wrote: it stays.
    let mut resolver = Resolver::new();
    resolver.handle(Event::Apply(shard("a", vec![service("web", 80), service("api", 81)])));
    resolver.handle(Event::Apply(later()));
    assert_eq!((told(&resolver).len(), planned_anew(&resolver)), (1, vec![]));
    // The agent started after the newer leader wrote.
    let mut resolver = Resolver::new();
    resolver.handle(Event::Apply(later()));
    assert_eq!(planned_anew(&resolver), ["web"]);
    // The older leader has planned the consumer anew, and the newer one leads again.
    resolver.handle(Event::Apply(shard("a", vec![service("web", 80), service("api", 81)])));
    assert_eq!(ports(&resolver.take().unwrap()), [(true, 80), (true, 81)]);
    resolver.handle(Event::Apply(later()));
    assert_eq!(resolver.take().map(|update| ports(&update)), Some(vec![]));
    assert_eq!(planned_anew(&resolver), Vec::<String>::new());
}

#[test]
fn a_consumer_that_leaves_is_gone_although_it_could_not_be_read() {
    let mut resolver = Resolver::new();
    resolver.handle(Event::Apply(shard("a", vec![service("web", 80)])));
    resolver.take().unwrap();
    resolver.handle(Event::Apply(newer("a", 97, Vec::new(), &["web"], 7)));
    assert_eq!(ports(&resolver.take().unwrap()), []);
    resolver.handle(Event::Delete(Kind::Shard, ObjectKey::new("", "a")));
    let update = resolver.take().unwrap();
    assert_eq!((ports(&update), update.hash), (vec![(false, 80)], PlanHash::default()));
    assert_eq!(told(&resolver), []);
    assert!(resolver.is_empty());
}

#[test]
fn a_field_that_an_agent_passes_over_does_not_keep_it_from_saying_what_it_applied() {
    let mut resolver = Resolver::new();
    resolver.handle(Event::Apply(newer("a", 97, vec![service("api", 81)], &[], 9)));
    assert_eq!(resolver.take().unwrap().hash, named(9));
    assert_eq!(told(&resolver), []);
}
