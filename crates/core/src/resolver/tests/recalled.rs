//! Tests of what a restarted agent takes over from what it served.

use super::*;
use crate::plan::{Backends, Fragment};

/// The fragments of two consumers, both with the same port and host. The second one is in another namespace.
fn contested() -> [Vec<Fragment>; 2] {
    let of = |name: &str, namespace: &str| {
        let mut service = fragment(name, 80, Backends::Pods);
        let mut ingress = web(name, vec![site("h.example", None, vec![rule("/", name)])]);
        service.consumer.namespace = namespace.into();
        ingress.consumer.namespace = namespace.into();
        vec![service, ingress]
    };
    [of("a", "evil"), of("b", "shop")]
}

fn holders(update: &Update) -> (Vec<Arc<str>>, Vec<Arc<str>>) {
    let listeners = update.listeners.iter().filter_map(|change| match change {
        Change::Put(_, listener) => Some(listener.consumer.namespace.clone()),
        Change::Remove(_) => None,
    });
    let sites = update.sites.iter().filter_map(|change| match change {
        Change::Put(_, site) => Some(site.owner.clone()),
        Change::Remove(_) => None,
    });
    (listeners.collect(), sites.collect())
}

#[test]
fn what_two_consumers_have_in_the_plan_stays_over_a_restart_with_the_one_that_was_served() {
    let [evil, shop] = contested();
    let mut before = Resolver::new();
    before.handle(Event::Apply(shard("s2", shop.clone())));
    before.take();
    let served = before.snapshot();
    let both = |resolver: &mut Resolver| {
        resolver.handle(Event::Apply(shard("s1", evil.clone())));
        resolver.handle(Event::Apply(shard("s2", shop.clone())));
    };
    let mut again = Resolver::new();
    again.recall(&served);
    both(&mut again);
    let kept = (vec!["shop".into()], vec!["shop".into()]);
    assert_eq!(holders(&again.take().unwrap()), kept);
    assert_eq!(again.unserved().count(), 2);
    // The recalled holder counts once: when only the other consumer is in the plan, that one gets it.
    again.handle(Event::Apply(shard("s2", Vec::new())));
    let gone = (vec!["evil".into()], vec!["evil".into()]);
    assert_eq!(holders(&again.take().unwrap()), gone);
    let mut new = Resolver::new();
    both(&mut new);
    assert_eq!(holders(&new.take().unwrap()), gone, "without it the order of consumers decides");
}

#[test]
fn a_site_without_rules_is_not_served_and_keeps_the_host_for_its_namespace() {
    let mut resolver = Resolver::new();
    let of = |name: &str, namespace: &str, rules| {
        let mut ingress = web(name, vec![site("h.example", None, rules)]);
        ingress.consumer.namespace = namespace.into();
        ingress
    };
    resolver.handle(Event::Apply(shard("s1", vec![of("b", "shop", vec![rule("/", "b")])])));
    resolver.take();
    resolver.handle(Event::Apply(shard("s1", vec![of("b", "shop", Vec::new())])));
    let update = resolver.take().unwrap();
    assert!(matches!(update.sites[..], [Change::Remove(_)]), "{update:?}");
    resolver.handle(Event::Apply(shard("s2", vec![of("a", "evil", vec![rule("/", "a")])])));
    assert_eq!(holders(&resolver.take().unwrap()).1, Vec::<Arc<str>>::new());
    assert_eq!(resolver.unserved().count(), 1);
}
