//! Tests of how namespaces share the listeners that an agent can open: which are open, which wait, and who is told.

use super::*;
use crate::cases::cases;
use crate::key::ConsumerKind;
use crate::plan::{
    Backends, ENTRY_WEB, Fragment, Listener, ListenerProtocol, Serves, service_pool,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// With this bound every namespace has one listener to itself, and may have 16.
const MOST: usize = 64;
const QUOTA: usize = 16;

fn consumer(namespace: &str) -> ConsumerRef {
    let kind = match namespace {
        "" => ConsumerKind::LoadBalancer,
        _ => ConsumerKind::Service,
    };
    let (namespace, name, uid) = (namespace.into(), "web".into(), "uid".into());
    ConsumerRef { kind, namespace, name, uid }
}

/// The Service `web` of a namespace, with a listener at each port. The empty namespace stands for the listeners that
/// Ingresses share.
fn service(namespace: &str, ports: impl IntoIterator<Item = u16>, claimed: bool) -> Fragment {
    let mut pool = pool("web", Backends::Pods);
    pool.name = service_pool(namespace, "web", "http");
    let serves = match namespace {
        "" => Serves::Entry(ENTRY_WEB.into()),
        _ => Serves::Pool(pool.name.clone()),
    };
    let listener = |port| Listener {
        address: [192, 0, 2, 1].into(),
        port,
        protocol: match namespace {
            "" => ListenerProtocol::Http,
            _ => ListenerProtocol::Tcp,
        },
        serves: serves.clone(),
    };
    Fragment {
        consumer: consumer(namespace),
        part: 0,
        claimed,
        listeners: ports.into_iter().map(listener).collect(),
        sites: Vec::new(),
        pools: vec![pool],
    }
}

fn resolver() -> Resolver {
    Resolver::new().bounded(Some(MOST))
}

/// Sets the whole plan of a namespace.
fn set(resolver: &mut Resolver, fragment: Fragment) {
    let name = format!("{}-0", fragment.consumer.namespace);
    resolver.handle(Event::Apply(shard(&name, vec![fragment])));
    resolver.take();
}

/// The open ports.
fn open(resolver: &Resolver) -> BTreeSet<u16> {
    let open = resolver.snapshot().listeners.into_iter().map(|change| match change {
        Change::Put(key, _) => key.port,
        Change::Remove(key) => panic!("{key:?} is removed from everything"),
    });
    open.collect()
}

/// The ports that are reported as closed, by namespace.
fn told(resolver: &Resolver) -> BTreeMap<String, BTreeSet<u16>> {
    let mut told = BTreeMap::<_, BTreeSet<_>>::new();
    for Refusal { consumer, problem, extent } in resolver.left_out() {
        assert_eq!(problem.reason, Reason::TooManyListeners);
        let Extent::Listener(key) = extent else { panic!("{extent:?}") };
        assert!(told.entry(consumer.namespace.to_string()).or_default().insert(key.port));
    }
    told
}

fn ports(range: Range<u16>) -> BTreeSet<u16> {
    range.collect()
}

fn told_to(namespace: &str, range: Range<u16>) -> BTreeMap<String, BTreeSet<u16>> {
    BTreeMap::from([(namespace.to_owned(), ports(range))])
}

#[test]
fn a_namespace_that_asks_for_more_than_its_share_is_told_and_another_is_served() {
    let mut resolver = resolver();
    set(&mut resolver, service("evil", 100..200, false));
    assert_eq!(open(&resolver), ports(100..116));
    assert_eq!(told(&resolver), told_to("evil", 116..200));
    let message = resolver.left_out().next().map(|it| it.problem.message.to_string());
    let expected = "192.0.2.1:116 is not open: namespace \"evil\" has 16 listeners here, the limit per \
                    namespace on a load balancer that namespaces share";
    assert_eq!(message.as_deref(), Some(expected));
    set(&mut resolver, service("shop", 80..83, false));
    assert_eq!(open(&resolver), &ports(80..83) | &ports(100..116));
    assert_eq!(told(&resolver), told_to("evil", 116..200));
}

#[test]
fn a_listener_that_waits_is_opened_when_there_is_room_and_one_that_is_open_stays() {
    let mut resolver = resolver();
    set(&mut resolver, service("evil", 100..118, false));
    // A lower port takes nothing from ports that are open.
    set(&mut resolver, service("evil", 99..118, false));
    assert_eq!(open(&resolver), ports(100..116));
    resolver.take_left_out_changed();
    set(&mut resolver, service("evil", (99..118).filter(|port| *port != 105), false));
    assert_eq!(open(&resolver), ports(99..116).into_iter().filter(|it| *it != 105).collect());
    assert_eq!(told(&resolver), told_to("evil", 116..118));
    assert!(resolver.take_left_out_changed());
    // A waiting listener may leave without a change of the open ones.
    set(&mut resolver, service("evil", (99..116).filter(|port| *port != 105), false));
    assert_eq!(told(&resolver), BTreeMap::new());
    assert!(resolver.take_left_out_changed());
    assert!(!resolver.take_left_out_changed());
}

#[test]
fn namespaces_that_take_all_they_may_leave_each_newcomer_its_own() {
    let mut resolver = resolver();
    for (number, namespace) in ["evil-a", "evil-b", "evil-c", "evil-d"].iter().enumerate() {
        let first = 1_000 + 100 * number as u16;
        set(&mut resolver, service(namespace, first..first + 100, false));
    }
    // One of its own for each of the four, and the half that all share.
    assert_eq!(open(&resolver).len(), 4 + MOST / 2);
    let small: Vec<_> = (0..MOST - 4 - MOST / 2).map(|n| format!("shop-{n}")).collect();
    for (port, namespace) in (100..).zip(&small) {
        set(&mut resolver, service(namespace, [port], false));
        assert!(open(&resolver).contains(&port), "{namespace}");
    }
    assert_eq!(open(&resolver).len(), MOST);
    set(&mut resolver, service("late", [99], false));
    let message = resolver.left_out().find(|it| &*it.consumer.namespace == "late");
    let message = message.map(|it| it.problem.message.to_string());
    let expected = "192.0.2.1:99 is not open: all 64 listeners that the agent can open are in use";
    assert_eq!(message.as_deref(), Some(expected));
    // The namespace with the fewest comes first when there is room again.
    set(&mut resolver, service("evil-a", [], false));
    assert!(open(&resolver).contains(&99));
}

#[test]
fn a_load_balancer_with_a_claim_is_its_namespaces_and_what_is_open_stays_without() {
    let mut resolver = resolver();
    set(&mut resolver, service("shop", 100..200, true));
    assert_eq!(open(&resolver), ports(100..164));
    // The claim is deleted.
    set(&mut resolver, service("shop", 100..150, false));
    assert_eq!(open(&resolver), ports(100..150));
    set(&mut resolver, service("other", 200..210, false));
    assert_eq!(open(&resolver), &ports(100..150) | &ports(200..201));
    assert_eq!(told(&resolver), told_to("other", 201..210));
    set(&mut resolver, service("shop", 100..110, false));
    assert_eq!(open(&resolver), &ports(100..110) | &ports(200..210));
}

#[test]
fn the_listeners_that_ingresses_share_are_never_left_out() {
    let mut resolver = Resolver::new().bounded(Some(2));
    set(&mut resolver, service("shop", [8080], false));
    set(&mut resolver, service("other", [8081], false));
    set(&mut resolver, service("", [80, 443], false));
    assert_eq!(open(&resolver), [80, 443, 8080, 8081].into());
    assert_eq!(told(&resolver), BTreeMap::new());
    set(&mut resolver, service("other", [], false));
    set(&mut resolver, service("third", [8082], false));
    assert_eq!(told(&resolver), told_to("third", 8082..8083), "they count");
}

#[test]
fn without_a_bound_every_listener_is_open() {
    let mut resolver = Resolver::new();
    set(&mut resolver, service("shop", 1..5_000, false));
    assert_eq!(open(&resolver).len(), 4_999);
    assert_eq!(told(&resolver), BTreeMap::new());
}

#[test]
fn a_listener_that_goes_to_another_namespace_needs_room_there() {
    let mut resolver = resolver();
    set(&mut resolver, service("evil", 100..116, false));
    // Two leaders have recorded one port for two namespaces.
    set(&mut resolver, service("shop", [200], false));
    resolver.handle(Event::Apply(shard("evil-0", vec![service("evil", 100..116, false)])));
    set(&mut resolver, service("evil", (100..116).chain([200]), false));
    assert_eq!(open(&resolver), &ports(100..116) | &ports(200..201));
    resolver.handle(Event::Apply(shard("shop-0", vec![])));
    let update = resolver.take().unwrap();
    assert!(matches!(update.listeners[..], [Change::Remove(key)] if key.port == 200), "{update:?}");
    assert_eq!(told(&resolver), told_to("evil", 200..201));
}

/// A step of a history: the ports of a namespace in the plan change, or the agent restarts.
#[derive(Clone, Debug)]
enum Step {
    Set(usize, Vec<u16>),
    Restart(bool),
}

const NAMESPACES: [&str; 5] = ["", "a", "b", "c", "d"];

fn step() -> impl Strategy<Value = Step> {
    // Namespaces use different ports: a port of two namespaces is reported in another way.
    let set = (0..NAMESPACES.len(), prop::collection::vec(0u16..40, 0..40));
    let set = set.prop_map(|(namespace, ports)| {
        let first = 1 + 100 * namespace as u16;
        let few = if namespace == 0 { 2 } else { usize::MAX };
        let ports: BTreeSet<_> = ports.into_iter().take(few).map(|port| first + port).collect();
        Step::Set(namespace, ports.into_iter().collect())
    });
    prop_oneof![8 => set, 1 => any::<bool>().prop_map(Step::Restart)]
}

/// The number of open listeners of each namespace.
fn count(open: &BTreeSet<u16>) -> [usize; 5] {
    let mut count = [0; 5];
    open.iter().for_each(|port| count[usize::from((port - 1) / 100)] += 1);
    count
}

proptest! {
    #![proptest_config(cases(80))]

    #[test]
    fn in_any_history_open_listeners_stay_shares_hold_and_only_listeners_without_room_wait(
        steps in prop::collection::vec(step(), 1..30),
    ) {
        let mut plan: BTreeMap<usize, Vec<u16>> = BTreeMap::new();
        let mut resolver = resolver();
        let mut before = BTreeSet::new();
        for step in steps {
            match step {
                Step::Set(namespace, ports) => {
                    set(&mut resolver, service(NAMESPACES[namespace], ports.clone(), false));
                    plan.insert(namespace, ports);
                }
                Step::Restart(kept) => {
                    let mut anew = Resolver::new().bounded(Some(MOST));
                    if kept {
                        anew.recall(&resolver.snapshot());
                    }
                    for (namespace, ports) in plan.iter().rev() {
                        let fragment = service(NAMESPACES[*namespace], ports.clone(), false);
                        let name = format!("{}-0", NAMESPACES[*namespace]);
                        anew.handle(Event::Apply(shard(&name, vec![fragment])));
                    }
                    anew.take();
                    if kept || told(&resolver).is_empty() {
                        prop_assert_eq!(open(&anew), open(&resolver));
                    } else {
                        before = BTreeSet::new();
                    }
                    resolver = anew;
                }
            }
            let (open, told) = (open(&resolver), told(&resolver));
            let wanted: BTreeSet<u16> = plan.values().flatten().copied().collect();
            let closed: BTreeSet<u16> = told.values().flatten().copied().collect();
            prop_assert_eq!(&wanted - &open, closed, "what is not open is told");
            prop_assert!(open.is_subset(&wanted));
            let stays: BTreeSet<u16> = &before & &wanted;
            prop_assert!(stays.is_subset(&open), "{:?} was open", &stays - &open);
            let all = count(&open);
            let common: usize = all[1..].iter().map(|open| open.saturating_sub(1)).sum();
            let shared = all[0];
            prop_assert!(open.len() <= MOST + shared && common <= MOST / 2);
            prop_assert!(all[1..].iter().all(|open| *open <= QUOTA), "{all:?}");
            for namespace in told.keys() {
                let has = all[NAMESPACES.iter().position(|it| it == namespace).unwrap()];
                let full = open.len() >= MOST || has >= QUOTA || has >= 1 && common >= MOST / 2;
                prop_assert!(full, "{namespace} waits with {has} open, of {all:?}");
            }
            before = open;
        }
        for namespace in NAMESPACES {
            resolver.handle(Event::Delete(Kind::Shard, ObjectKey::new("", format!("{namespace}-0"))));
        }
        resolver.take();
        prop_assert!(resolver.is_empty(), "{resolver:?}");
    }
}
