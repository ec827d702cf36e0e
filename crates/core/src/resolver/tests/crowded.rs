//! Tests of the limit for the members of all pools of a namespace together.

use super::*;
use crate::key::ConsumerKind;
use crate::member_rules::{MOST_MEMBERS, MOST_OF_NAMESPACE};
use crate::objects::{Endpoint, SlicePort};
use crate::plan::{Backends, Fragment, Transport};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// The slice of a Service, with the endpoints of these numbers.
fn slice(namespace: &str, service: &str, numbers: impl IntoIterator<Item = usize>) -> Event {
    let endpoint = |n: usize| Endpoint {
        address: [10, 1, (n / 250) as u8, (n % 250) as u8].into(),
        ready: true,
        serving: true,
        terminating: false,
        node: None,
        target: None,
    };
    Event::Apply(Object::Slice(Slice {
        key: ObjectKey::new(namespace, format!("{service}-1")),
        service: Some(service.into()),
        ports: vec![SlicePort { name: "http".into(), number: 80, transport: Transport::Tcp }],
        endpoints: numbers.into_iter().map(endpoint).collect(),
    }))
}

/// An Ingress with its own pool for a Service of its namespace.
fn ingress(namespace: &str, name: &str, service: &str) -> Fragment {
    let mut pool = pool(service, Backends::Pods);
    pool.name = format!("{namespace}/{name}").into();
    pool.service.namespace = namespace.into();
    let consumer =
        ConsumerRef { namespace: namespace.into(), ..consumer(ConsumerKind::Ingress, name) };
    let (listeners, sites) = (Vec::new(), Vec::new());
    Fragment { consumer, part: 0, claimed: false, listeners, sites, pools: vec![pool] }
}

/// The number of members of each pool.
fn sizes(resolver: &Resolver) -> BTreeMap<String, usize> {
    let members = resolver.snapshot().members;
    members.iter().map(|it| (it.pool.to_string(), it.members.len())).collect()
}

fn told(resolver: &Resolver) -> BTreeMap<String, String> {
    let told = resolver.left_out().map(|it| {
        assert_eq!(it.problem.reason, Reason::TooManyMembers);
        (format!("{}/{}", it.consumer.namespace, it.consumer.name), it.problem.message.to_string())
    });
    told.collect()
}

#[test]
fn a_service_behind_many_ingresses_has_no_more_members_than_a_namespace_may_have() {
    let mut resolver = Resolver::new();
    let name = |n: usize| format!("i{n:04}");
    let all = |count: usize| (0..count).map(|n| ingress("evil", &name(n), "web")).collect();
    resolver.handle(slice("evil", "web", 0..MOST_MEMBERS));
    resolver.handle(Event::Apply(shard("a", all(1_000))));
    resolver.take().unwrap();
    let full = MOST_OF_NAMESPACE / MOST_MEMBERS;
    let expected = |names: &[usize]| -> BTreeMap<_, _> {
        names.iter().map(|n| (format!("evil/{}", name(*n)), MOST_MEMBERS)).collect()
    };
    let first: Vec<usize> = (0..full).collect();
    assert_eq!(sizes(&resolver), expected(&first));
    let messages = told(&resolver);
    let message = "2000 members of Service evil/web get no traffic: a namespace can have at most 20000 members \
        of pools on a load balancer that other namespaces may use; claim a load balancer for the namespace to \
        have more";
    assert_eq!((messages.len(), messages["evil/i0999"].as_str()), (1_000 - full, message));
    // Another namespace gets what it needs, and its changes cost the same as alone.
    resolver.handle(Event::Apply(shard("b", vec![ingress("shop", "web", "web")])));
    resolver.take().unwrap();
    let before = resolver.visited();
    resolver.handle(slice("shop", "web", 0..3));
    let update = resolver.take().unwrap();
    assert_eq!((update.members.len(), resolver.visited() - before), (1, 1));
    assert_eq!(sizes(&resolver)["shop/web"], 3);
    // Each of the full pools loses a member, and the next by name gets the places.
    resolver.handle(slice("evil", "web", 1..MOST_MEMBERS));
    resolver.take().unwrap();
    let less = MOST_MEMBERS - 1;
    let mut now: BTreeMap<_, _> = expected(&first).into_keys().map(|it| (it, less)).collect();
    now.insert(format!("evil/{}", name(full)), full);
    now.insert("shop/web".to_owned(), 3);
    assert_eq!(sizes(&resolver), now);
    // Nothing moves when the endpoint comes back. A pool that is deleted makes room for the next.
    resolver.handle(slice("evil", "web", 0..MOST_MEMBERS));
    assert_eq!(resolver.take(), None);
    let mut fewer: Vec<Fragment> = all(1_000);
    fewer.remove(3);
    resolver.handle(Event::Apply(shard("a", fewer)));
    let update = resolver.take().unwrap();
    let given: BTreeMap<_, _> =
        update.members.iter().map(|it| (it.pool.to_string(), it.added.len())).collect();
    let next = format!("evil/{}", name(full));
    // The pools that lack one member are first.
    assert_eq!(given.values().sum::<usize>(), less, "{given:?}");
    assert_eq!((given["evil/i0000"], given[&next]), (1, less - (full - 1)), "{given:?}");
}

#[test]
fn a_namespace_that_has_claimed_the_load_balancer_has_all_its_members() {
    let mut resolver = Resolver::new();
    resolver.handle(slice("shop", "web", 0..MOST_MEMBERS));
    let pools = MOST_OF_NAMESPACE / MOST_MEMBERS + 5;
    let claimed = |n: usize| Fragment { claimed: true, ..ingress("shop", &format!("i{n}"), "web") };
    resolver.handle(Event::Apply(shard("a", (0..pools).map(claimed).collect())));
    resolver.take().unwrap();
    assert_eq!(sizes(&resolver).into_values().collect::<Vec<_>>(), vec![MOST_MEMBERS; pools]);
    assert_eq!(told(&resolver), BTreeMap::new());
}

#[test]
fn members_that_a_namespace_replaces_all_at_once_come_with_several_updates_and_others_wait_for_none()
 {
    let mut resolver = Resolver::new();
    let (pools, members) = (12, 900);
    let all = (0..pools).map(|n| ingress("evil", &format!("i{n:02}"), "web"));
    resolver.handle(Event::Apply(shard("a", all.chain([ingress("shop", "web", "web")]).collect())));
    resolver.handle(slice("evil", "web", 0..members));
    resolver.handle(slice("shop", "web", 0..3));
    // The first update is complete.
    assert_eq!((resolver.take().unwrap().members.len(), resolver.is_behind()), (pools + 1, false));
    resolver.handle(slice("evil", "web", members..2 * members));
    resolver.handle(slice("shop", "web", 1..3));
    let update = resolver.take().unwrap();
    let named: Vec<_> = update.members.iter().map(|it| it.pool.to_string()).collect();
    assert_eq!(named, ["evil/i00", "evil/i01", "evil/i02", "shop/web"]);
    assert!(resolver.is_behind());
    // The next update has the changes of the other namespace, and waiting pools come before pools that change again.
    resolver.handle(slice("evil", "web", 2 * members..2 * members + 2));
    resolver.handle(slice("shop", "web", 2..3));
    let update = resolver.take().unwrap();
    let named: Vec<_> = update.members.iter().map(|it| it.pool.to_string()).collect();
    assert_eq!(named, ["evil/i03", "evil/i04", "evil/i05", "shop/web"]);
    assert_eq!(
        update.members.last().map(|it| (it.pool.to_string(), it.members.len())),
        Some(("shop/web".into(), 1))
    );
    while resolver.is_behind() {
        resolver.take().unwrap();
    }
    let mut expected: BTreeMap<_, _> = (0..pools).map(|n| (format!("evil/i{n:02}"), 2)).collect();
    expected.insert("shop/web".into(), 1);
    assert_eq!(sizes(&resolver), expected);
    assert_eq!(resolver.take(), None);
}

const POOLS: [(&str, &str); 6] =
    [("a", "p"), ("a", "p"), ("a", "q"), ("a", "q"), ("b", "p"), ("b", "q")];

#[derive(Clone, Debug)]
enum Step {
    Pools(u8),
    Endpoints(bool, bool, BTreeSet<usize>),
    Take,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let numbers = prop::collection::btree_set(0..8usize, 0..8);
    let step = prop_oneof![
        (0..64u8).prop_map(Step::Pools),
        (any::<bool>(), any::<bool>(), numbers).prop_map(|(n, s, all)| Step::Endpoints(n, s, all)),
        Just(Step::Take),
    ];
    prop::collection::vec(step, 1..40)
}

proptest! {
    #[test]
    fn in_any_history_pools_keep_the_members_that_they_have_and_a_namespace_keeps_its_bound(
        steps in steps(), most in 1usize..12,
    ) {
        let mut resolver = Resolver::new();
        resolver.pools.rooms.most = most;
        let mut planned = 0;
        let mut endpoints: BTreeMap<(&str, &str), BTreeSet<usize>> = BTreeMap::new();
        // The members in the driver.
        let mut driver: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
        for step in steps.into_iter().chain([Step::Take]) {
            match step {
                Step::Pools(bits) => {
                    planned = bits;
                    let pools = POOLS.iter().enumerate().filter(|(at, _)| bits & (1 << at) != 0);
                    let of = |(at, (namespace, service)): (usize, &(&str, &str))| {
                        ingress(namespace, &format!("i{at}"), service)
                    };
                    resolver.handle(Event::Apply(shard("s", pools.map(of).collect())));
                }
                Step::Endpoints(first, other, numbers) => {
                    let at = (if first { "a" } else { "b" }, if other { "p" } else { "q" });
                    resolver.handle(slice(at.0, at.1, numbers.clone()));
                    endpoints.insert(at, numbers);
                }
                Step::Take => {
                    let before = driver.clone();
                    let number = |member: &Member| match member.address.ip() {
                        IpAddr::V4(ip) => usize::from(ip.octets()[3]),
                        IpAddr::V6(_) => unreachable!(),
                    };
                    let update = resolver.take().unwrap_or_default();
                    for change in &update.pools {
                        if let Change::Remove(name) = change {
                            driver.remove(&**name);
                        }
                    }
                    let mut changed = BTreeSet::new();
                    for change in &update.members {
                        prop_assert!(changed.insert(&change.pool), "{} twice", change.pool);
                        let has = driver.entry(change.pool.to_string()).or_default();
                        change.removed.iter().for_each(|it| _ = has.remove(&number(it)));
                        has.extend(change.added.iter().map(number));
                        let all: BTreeSet<_> = change.members.iter().map(number).collect();
                        prop_assert_eq!(&*has, &all);
                    }
                    driver.retain(|_, has| !has.is_empty());
                    let mut short = BTreeMap::new();
                    for (at, place) in POOLS.iter().enumerate() {
                        let name = format!("{}/i{at}", place.0);
                        let none = BTreeSet::new();
                        let has = driver.get(&name).unwrap_or(&none);
                        let wants = endpoints.get(place).filter(|_| planned & (1 << at) != 0);
                        let wants = wants.unwrap_or(&none);
                        prop_assert!(has.is_subset(wants), "{} {:?} of {:?}", name, has, wants);
                        let had = before.get(&name).unwrap_or(&none);
                        let kept: BTreeSet<_> = had.intersection(wants).copied().collect();
                        prop_assert!(kept.is_subset(has), "{} had {:?}, has {:?}", name, had, has);
                        if has.len() < wants.len() {
                            short.insert(name, place.0);
                        }
                    }
                    for namespace in ["a", "b"] {
                        let own = driver.iter().filter(|(name, _)| name.starts_with(namespace));
                        let taken: usize = own.map(|(_, has)| has.len()).sum();
                        prop_assert!(taken <= most);
                        let lacks = short.values().any(|it| *it == namespace);
                        prop_assert!(!lacks || taken == most, "{} is short with room", namespace);
                    }
                    let told: Vec<_> = told(&resolver).into_keys().collect();
                    prop_assert_eq!(told, short.into_keys().collect::<Vec<_>>());
                }
            }
        }
        resolver.handle(Event::Delete(Kind::Shard, ObjectKey::new("", "s")));
        for (namespace, service) in endpoints.keys() {
            let key = ObjectKey::new(*namespace, format!("{service}-1"));
            resolver.handle(Event::Delete(Kind::Slice, key));
        }
        resolver.take();
        prop_assert!(resolver.is_empty());
    }
}
