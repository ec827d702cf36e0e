//! Prefixes, attributes and peers.

use super::make::*;
use crate::announce::*;
use std::sync::Arc;

fn web() -> Vec<Object> {
    vec![alone("192.0.2.7", "web"), service("web"), slice("web", &["b"])]
}

fn announce(peer: &str, prefix: &str, route: Route) -> Effect {
    Effect::Announce(peer.into(), net(prefix), route.into())
}

#[test]
fn another_community_is_an_update_and_no_flap() {
    let mut world = World::new(web().into_iter().chain([told(by_bgp("all")), router(peer("tor"))]));
    let mut changed = by_bgp("all");
    let route = Route { communities: [Community::GRACEFUL_SHUTDOWN].into(), ..Route::default() };
    changed.bgp = Some(ByBgp { route: route.clone(), ..ByBgp::default() });
    let visited = world.machine.visited();
    assert_eq!(world.apply(told(changed.clone())), [announce("tor", "192.0.2.7/32", route)]);
    assert_eq!(world.machine.visited(), visited);
    assert_eq!(world.apply(told(changed)), []);
}

#[test]
fn a_route_changes_also_when_what_is_covered_changes_with_it() {
    let mut world = World::new(web().into_iter().chain([told(by_bgp("all")), router(peer("tor"))]));
    let mut changed = by_bgp("all");
    changed.covers.pools = ["public".into()].into();
    let route = Route { prepend: 2, ..Route::default() };
    changed.bgp = Some(ByBgp { route: route.clone(), ..ByBgp::default() });
    assert_eq!(world.apply(told(changed)), [announce("tor", "192.0.2.7/32", route)]);
}

#[test]
fn several_advertisements_of_a_prefix_make_one_route_in_the_order_of_their_names() {
    let with = |name: &str, route: Route| {
        told(Advertisement { bgp: Some(ByBgp { route, ..ByBgp::default() }), ..by_bgp(name) })
    };
    let community = |text: &str| text.parse::<Community>().unwrap();
    let (one, two) = (community("1:1"), community("2:2"));
    let first = Route { med: Some(5), communities: [one].into(), ..Route::default() };
    let second = Route { local_pref: Some(7), med: Some(9), prepend: 2, communities: [two].into() };
    let objects = [with("b", second.clone()), with("a", first.clone()), router(peer("tor"))];
    let mut world = World::new(web().into_iter().chain(objects));
    let both =
        Route { local_pref: Some(7), med: Some(5), prepend: 2, communities: [one, two].into() };
    assert_eq!(world.network.peers["tor"].1[&net("192.0.2.7/32")], both);
    let gone = world.after(Event::Delete(Name::Advertisement("a".into())));
    assert_eq!(gone, [announce("tor", "192.0.2.7/32", second)]);
}

#[test]
fn a_change_that_concerns_one_peer_changes_only_its_routes() {
    let mut only_b = by_bgp("b-only");
    only_b.bgp = Some(ByBgp { peers: ["b".into()].into(), ..ByBgp::default() });
    let mut only_a = by_bgp("a-only");
    only_a.bgp = Some(ByBgp { peers: ["a".into()].into(), ..ByBgp::default() });
    let objects = [told(only_a.clone()), told(only_b), router(peer("a")), router(peer("b"))];
    let mut world = World::new(web().into_iter().chain(objects));
    let route = Route { med: Some(1), ..Route::default() };
    only_a.bgp =
        Some(ByBgp { peers: ["a".into()].into(), route: route.clone(), ..ByBgp::default() });
    assert_eq!(world.apply(told(only_a)), [announce("a", "192.0.2.7/32", route)]);
    let changed = Peer { hold_time: 9, ..peer("b") };
    assert_eq!(world.apply(router(changed.clone())), [Effect::Peer(changed.into())]);
    let gone = world.after(Event::Delete(Name::Peer("b".into())));
    assert_eq!(gone, [Effect::Forget("b".into())]);
    let again = world.apply(router(peer("b")));
    let expected =
        [Effect::Peer(peer("b").into()), announce("b", "192.0.2.7/32", Route::default())];
    assert_eq!(again, expected);
}

#[test]
fn a_peer_is_for_the_nodes_that_it_selects() {
    let chosen = Peer { nodes: Some(selector("rack", "1")), ..peer("tor") };
    let objects = [told(by_bgp("all")), router(chosen.clone())];
    let mut world = World::new(web().into_iter().chain(objects));
    assert_eq!(world.network.prefixes("tor"), [""; 0]);
    assert_eq!(world.why("192.0.2.7"), Some(WhyNot::NoPeer));
    let here = SpeakerNode { labels: labels(&[("rack", "1")]), ..node("a") };
    let effects = world.apply(Object::Node(here));
    let expected = [Effect::Peer(chosen.into()), announce("tor", "192.0.2.7/32", Route::default())];
    assert_eq!(effects, expected);
    assert_eq!(world.why("192.0.2.7"), None);
}

fn aggregated() -> Object {
    let lengths = Lengths::new(24, 64).unwrap();
    told(Advertisement { bgp: Some(ByBgp { lengths, ..ByBgp::default() }), ..by_bgp("all") })
}

#[test]
fn an_aggregate_is_announced_once_and_refuses_what_nobody_holds() {
    let objects = [aggregated(), router(peer("tor")), alone("192.0.2.8", "web")];
    let mut world = World::new(web().into_iter().chain(objects));
    assert_eq!(world.network.prefixes("tor"), ["192.0.2.0/24"]);
    assert_eq!(world.network.refused, [net("192.0.2.0/24")].into());
    let delete = |address: &str| Event::Delete(Name::Address(ip(address)));
    assert_eq!(world.after(delete("192.0.2.8")), []);
    let gone = world.after(delete("192.0.2.7"));
    let prefix = net("192.0.2.0/24");
    assert_eq!(gone, [Effect::Withdraw("tor".into(), prefix), Effect::Accept(prefix)]);
}

#[test]
fn what_is_not_served_on_every_node_has_a_host_route_beside_the_aggregate() {
    let objects = [aggregated(), router(peer("tor")), behind("192.0.2.9", "api", "edge")];
    let mut world = World::new(web().into_iter().chain(objects));
    world.agent("edge", "192.0.2.9", true);
    assert_eq!(world.network.prefixes("tor"), ["192.0.2.0/24", "192.0.2.9/32"]);
    world.apply(local("web", None));
    assert_eq!(world.network.prefixes("tor"), ["192.0.2.0/24", "192.0.2.9/32"]);
    world.apply(slice("web", &["a"]));
    let expected = ["192.0.2.0/24", "192.0.2.7/32", "192.0.2.9/32"];
    assert_eq!(world.network.prefixes("tor"), expected);
}

#[test]
fn an_address_on_links_is_offered_with_the_interfaces_of_all_advertisements() {
    let mut one = by_l2("one");
    one.l2 = Some(ByL2 { interfaces: ["eth1".into()].into(), preferred: None });
    let mut two = by_l2("two");
    let preferred = Some(selector("name", "a"));
    two.l2 = Some(ByL2 { interfaces: ["eth2".into()].into(), preferred });
    let objects = [told(one), told(two.clone()), Object::Node(node("a"))];
    let mut world = World::new(web().into_iter().chain(objects));
    let interfaces: std::collections::BTreeSet<Arc<str>> = ["eth1".into(), "eth2".into()].into();
    let offer = Candidate { interfaces, preferred: true, draining: false };
    assert_eq!(world.network.offers, [(ip("192.0.2.7"), offer)].into());
    two.l2 = Some(ByL2::default());
    let offer = Candidate::default();
    assert_eq!(world.apply(told(two)), [Effect::Offer(ip("192.0.2.7"), offer)]);
    let gone = world.apply(slice("web", &[]));
    assert_eq!(gone, [Effect::Decline(ip("192.0.2.7"))]);
}
