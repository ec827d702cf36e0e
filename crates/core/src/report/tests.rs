//! Tests of what a report names, what it leaves out, and how much room it has.

use super::*;
use crate::outcome::{Problem, Reason};
use crate::plan::Transport;
use crate::update::ListenerKey;
use proptest::prelude::*;

fn consumer(kind: ConsumerKind, namespace: &str, name: &str) -> ConsumerRef {
    ConsumerRef { kind, namespace: namespace.into(), name: name.into(), uid: name.into() }
}

fn listener(port: u16) -> Extent {
    let address = [192, 0, 2, 1].into();
    Extent::Listener(ListenerKey { address, port, transport: Transport::Tcp })
}

fn refusal(namespace: &str, name: &str, extent: Extent) -> Refusal {
    let consumer = consumer(ConsumerKind::Service, namespace, name);
    Refusal { consumer, problem: Problem::new(Reason::BindFailed, "address in use"), extent }
}

fn many(namespace: &str, number: u16) -> impl Iterator<Item = Refusal> {
    (0..number).map(move |n| refusal(namespace, &format!("service-{n:05}"), listener(n)))
}

fn names(all: &[&str]) -> Option<BTreeSet<Arc<str>>> {
    Some(all.iter().map(|it| Arc::from(*it)).collect())
}

#[test]
fn a_namespace_with_many_refusals_puts_no_other_in_doubt() {
    let mut refused: Vec<_> = many("greedy", 5000).collect();
    // A consumer with more refusals than each consumer of the greedy namespace.
    refused.extend((0..3).map(|n| refusal("shop", "web", listener(n))));
    let (listed, unlisted) = choose(&refused, 4096);
    let of_shop = listed.iter().filter(|it| &*it.consumer.namespace == "shop").count();
    assert_eq!((of_shop, &unlisted.namespaces), (3, &names(&["greedy"])));
    assert_eq!(listed.len() + unlisted.count, 5003);
    let service = |namespace| consumer(ConsumerKind::Service, namespace, "other");
    assert_eq!(unlisted.may_concern(&service("greedy")), unlisted.count);
    assert_eq!(unlisted.may_concern(&service("shop")), 0);
    assert_eq!(unlisted.may_concern(&service("quiet")), 0);
}

#[test]
fn namespaces_that_need_more_than_their_share_get_equal_shares() {
    let refused: Vec<_> = many("a", 900).chain(many("b", 100)).chain(many("c", 100)).collect();
    let (listed, unlisted) = choose(&refused, 8192);
    let of =
        |namespace: &str| listed.iter().filter(|it| &*it.consumer.namespace == namespace).count();
    assert!(of("a") > 5 && of("a").abs_diff(of("b")) <= 1 && of("b").abs_diff(of("c")) <= 1);
    assert_eq!(unlisted.namespaces, names(&["a", "b", "c"]));
}

#[test]
fn what_is_served_for_another_consumer_is_named_first_and_counted_where_it_is_not() {
    let contested = |n| {
        let problem = Problem::new(Reason::PortTaken, "open for another");
        Refusal { problem, ..refusal("shop", &format!("late-{n}"), listener(n)) }
    };
    let mut refused: Vec<_> = many("shop", 500).collect();
    refused.push(contested(1));
    let (listed, _) = choose(&refused, 1024);
    assert_eq!(listed.first(), Some(&&contested(1)));
    let refused = [contested(1)];
    let (listed, unlisted) = choose(&refused, 40);
    assert_eq!((listed.len(), unlisted.count, unlisted.namespaces), (0, 1, names(&["shop"])));
}

#[test]
fn refusals_of_the_load_balancers_own_listeners_concern_every_ingress() {
    let own = consumer(ConsumerKind::LoadBalancer, "", "edge");
    let refused = [Refusal { consumer: own, ..refusal("", "edge", listener(80)) }];
    let (_, unlisted) = choose(&refused, 0);
    let of = |kind| unlisted.may_concern(&consumer(kind, "shop", "web"));
    // Without room for any name, a refusal may be of any namespace.
    assert_eq!((of(ConsumerKind::Ingress), of(ConsumerKind::Service)), (1, 1));
    let (_, unlisted) = choose(&refused, 40);
    let of = |kind| unlisted.may_concern(&consumer(kind, "shop", "web"));
    assert_eq!((of(ConsumerKind::Ingress), of(ConsumerKind::Service)), (1, 0));
}

#[test]
fn what_two_agents_leave_out_is_of_the_namespaces_of_both_unless_one_does_not_say() {
    let of = |count, namespaces| Unlisted { count, namespaces, failing: 0 };
    let (a, b) = (of(2, names(&["a"])), of(3, names(&["b"])));
    assert_eq!(a.clone().with(&b), of(3, names(&["a", "b"])));
    assert_eq!(a.clone().with(&Unlisted::default()), a);
    assert_eq!(Unlisted::default().with(&a), a);
    assert_eq!(a.with(&of(1, None)), of(2, None));
}

#[test]
fn pools_that_fail_and_have_no_room_are_counted_and_put_no_consumer_in_doubt() {
    let failing = |n: u16, reason| {
        let problem = Problem::new(reason, "no endpoint answers");
        Refusal { problem, ..refusal("shop", &format!("web-{n}"), Extent::Part) }
    };
    let mut refused: Vec<_> = (0..90).map(|n| failing(n, Reason::EndpointsDown)).collect();
    refused.push(failing(90, Reason::EndpointsFailing));
    let (listed, unlisted) = choose(&refused, 4096);
    let outages = listed.iter().filter(|it| it.problem.reason.is_outage()).count();
    assert!(outages > 5, "{outages}");
    assert_eq!(unlisted, Unlisted { failing: 90 - outages, ..Unlisted::default() });
    let other = Unlisted { failing: 99, ..Unlisted::default() };
    assert_eq!(unlisted.with(&other), other, "two agents report the same pools");
}

#[test]
fn a_refusal_of_which_nothing_can_be_read_may_be_of_any_namespace() {
    let mut unlisted = Unlisted::default();
    unlisted.add(Some("a".into()));
    assert_eq!(unlisted, Unlisted { count: 1, namespaces: names(&["a"]), failing: 0 });
    unlisted.add(None);
    unlisted.add(Some("b".into()));
    assert_eq!(unlisted, Unlisted { count: 3, ..Unlisted::default() });
}

#[test]
fn an_agent_that_is_told_that_its_report_is_too_large_shrinks_it_and_tries_more_later() {
    let mut room = Room::of(160 * 1024);
    assert_eq!(room.own(), 40 * 1024);
    room.written(8);
    assert_eq!(room.own(), 20 * 1024);
    assert!(room.refused() && room.refused());
    assert_eq!((room.own(), room.cut(48 * 1024)), (5 * 1024, 12 * 1024));
    // The room stays small for a while: one successful write does not bring back the large report.
    (1..AGAIN).for_each(|_| room.written(8));
    assert_eq!(room.own(), 5 * 1024);
    room.written(8);
    assert_eq!(room.own(), 10 * 1024);
    (0..100).for_each(|_| _ = room.refused());
    assert!(!room.refused());
    assert_eq!((room.own(), room.cut(48 * 1024)), (0, 0));
}

fn a_refusal() -> impl Strategy<Value = Refusal> {
    let extent = prop_oneof![Just(Extent::All), Just(Extent::Part), (0..50u16).prop_map(listener)];
    let reason = prop_oneof![Just(Reason::BindFailed), Just(Reason::PortTaken)];
    ("[a-e]", "[a-z]{1,3}", extent, reason).prop_map(|(namespace, name, extent, reason)| {
        let problem = Problem::new(reason, "because");
        Refusal { problem, ..refusal(&namespace, &name, extent) }
    })
}

proptest! {
    #[test]
    fn a_report_fits_and_everybody_without_a_name_in_it_is_served_or_in_doubt(
        refused in prop::collection::btree_set(a_refusal(), 0..80),
        room in 0..8000usize,
    ) {
        let refused: Vec<_> = refused.into_iter().collect();
        let (listed, unlisted) = choose(&refused, room);
        let names = unlisted.namespaces.iter().flatten().map(|it| it.len() + 3).sum::<usize>();
        let bytes = listed.iter().map(|it| json_size(it) + 1).sum::<usize>();
        prop_assert!(bytes + names <= room, "{bytes} + {names} > {room}");
        let left_out = refused.iter().filter(|it| !listed.contains(it) && !is_part(it));
        prop_assert_eq!(left_out.clone().count(), unlisted.count);
        for refusal in left_out {
            prop_assert!(unlisted.may_concern(&refusal.consumer) > 0);
        }
        // A namespace that needs no more than its share is named wholly.
        let mut needs = BTreeMap::<_, usize>::new();
        for refusal in refused.iter().filter(|it| tier(it) == Tier::Unserved) {
            *needs.entry(refusal.consumer.namespace.clone()).or_default() += json_size(refusal) + 1;
        }
        let share = (room - room / 4).saturating_sub(2) / needs.len().max(1);
        for (namespace, _) in needs.iter().filter(|(_, needs)| **needs <= share) {
            let named = unlisted.namespaces.as_ref();
            let named = named.is_some_and(|it| it.contains(namespace));
            prop_assert!(!named, "{namespace} fits into {share}");
        }
    }
}
