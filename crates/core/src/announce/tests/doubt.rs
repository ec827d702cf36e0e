//! Nodes that should not announce, and nodes that should only if no other one does.

use super::make::*;
use crate::announce::*;

fn world(objects: impl IntoIterator<Item = Object>) -> World {
    let base = [
        told(by_bgp("all")),
        router(peer("tor")),
        alone("192.0.2.7", "web"),
        service("web"),
        slice("web", &["a", "b"]),
        Object::Node(node("a")),
        Object::Node(node("b")),
    ];
    World::new(base.into_iter().chain(objects))
}

fn is_announced(world: &World) -> bool {
    !world.network.prefixes("tor").is_empty()
}

fn doubtful() -> [SpeakerNode; 2] {
    [SpeakerNode { ready: false, ..node("a") }, SpeakerNode { cordoned: true, ..node("a") }]
}

#[test]
fn an_excluded_or_leaving_node_withdraws() {
    for (no, why) in [
        (SpeakerNode { excluded: true, ..node("a") }, WhyNot::NodeExcluded),
        (SpeakerNode { leaving: true, ..node("a") }, WhyNot::NodeLeaving),
    ] {
        let mut world = world([]);
        assert!(is_announced(&world));
        world.apply(Object::Node(no));
        assert!(!is_announced(&world));
        assert_eq!(world.why("192.0.2.7"), Some(why));
        world.apply(Object::Node(node("a")));
        assert!(is_announced(&world));
    }
}

#[test]
fn a_speaker_that_leaves_withdraws_and_keeps_what_is_on_the_node() {
    let mut world = world([behind("192.0.2.8", "api", "edge")]);
    world.agent("edge", "192.0.2.8", true);
    let effects = world.after(Event::Leave);
    let withdraw = |prefix| Effect::Withdraw("tor".into(), net(prefix));
    assert_eq!(effects, [withdraw("192.0.2.7/32"), withdraw("192.0.2.8/32")]);
    assert_eq!(world.network.held, [(ip("192.0.2.8"), Ports::Unknown)].into());
}

/// The same with an Advertisement on links beside.
fn on_links(objects: impl IntoIterator<Item = Object>) -> World {
    world([told(by_l2("links"))].into_iter().chain(objects))
}

/// Whether another node should take the address over on the links.
fn hands_over(world: &World) -> bool {
    world.network.offers[&ip("192.0.2.7")].draining
}

#[test]
fn a_doubtful_node_hands_over_only_while_a_sound_one_serves() {
    for no in doubtful() {
        let mut world = on_links([Object::Node(no)]);
        assert!(!hands_over(&world), "no other speaker runs");
        world.after(Event::Speaker("b".into(), true));
        assert!(hands_over(&world));
        world.apply(Object::Node(SpeakerNode { ready: false, ..node("b") }));
        assert!(!hands_over(&world), "the other node is doubtful, too");
        world.apply(Object::Node(node("b")));
        assert!(hands_over(&world));
        world.after(Event::Speaker("b".into(), false));
        assert!(!hands_over(&world));
    }
}

#[test]
fn with_the_policy_local_a_sound_node_without_an_endpoint_does_not_serve() {
    let [no, _] = doubtful();
    let mut world = on_links([Object::Node(no), local("web", None), slice("web", &["a"])]);
    world.after(Event::Speaker("b".into(), true));
    assert!(!hands_over(&world));
    world.apply(slice("web", &["a", "b"]));
    assert!(hands_over(&world));
}

#[test]
fn behind_an_agent_the_other_speaker_says_whether_it_serves() {
    let [no, _] = doubtful();
    let address = behind("192.0.2.7", "web", "edge");
    let mut world = on_links([Object::Node(no), address]);
    world.agent("edge", "192.0.2.7", true);
    world.after(Event::Speaker("b".into(), true));
    assert!(!hands_over(&world));
    world.after(Event::ServedAt(ip("192.0.2.7"), "b".into(), true));
    assert!(hands_over(&world));
    world.after(Event::ServedAt(ip("192.0.2.7"), "b".into(), false));
    assert!(!hands_over(&world));
}

#[test]
fn a_doubtful_node_keeps_its_routes_while_another_one_serves_on_links_alone() {
    for no in doubtful() {
        let mut world = on_links([Object::Node(no)]);
        world.after(Event::Speaker("b".into(), true));
        world.after(Event::ServedAt(ip("192.0.2.7"), "b".into(), true));
        assert!(hands_over(&world) && is_announced(&world), "b may have no session");
        world.apply(recorded(alone("192.0.2.7", "web"), 2, &["a", "b"]));
        assert!(!is_announced(&world));
    }
}

#[test]
fn without_gossip_the_leader_says_whether_a_sound_node_announces() {
    let address = || behind("192.0.2.7", "web", "edge");
    for no in doubtful() {
        let mut world = world([Object::Node(node("a")), address()]);
        world.agent("edge", "192.0.2.7", true);
        world.apply(recorded(address(), 2, &["a", "b"]));
        assert!(is_announced(&world), "a sound node announces beside others");
        world.apply(Object::Node(no));
        assert!(!is_announced(&world), "b announces");
        assert_eq!(world.why("192.0.2.7"), Some(WhyNot::NodeDoubtful));
        // What this node does itself changes the record, too.
        world.apply(recorded(address(), 1, &["b"]));
        assert!(!is_announced(&world));
        world.apply(Object::Node(SpeakerNode { cordoned: true, ..node("b") }));
        assert!(is_announced(&world), "b is doubtful, too");
        world.apply(Object::Node(node("b")));
        assert!(!is_announced(&world));
        world.apply(recorded(address(), 0, &[]));
        assert!(is_announced(&world), "b does not announce any more");
        world.apply(recorded(address(), 1, &["a"]));
        assert!(is_announced(&world), "this node alone does");
    }
}

#[test]
fn a_sound_node_counts_also_when_the_record_does_not_name_it() {
    let names = ["a", "b", "c", "d", "e"];
    let cordoned = |name: &&str| Object::Node(SpeakerNode { cordoned: true, ..node(name) });
    let address = |nodes| recorded(behind("192.0.2.7", "web", "edge"), nodes, &names);
    let mut world = world(names.iter().map(cordoned).chain([address(5)]));
    world.agent("edge", "192.0.2.7", true);
    assert!(is_announced(&world), "all five that announce are cordoned");
    world.apply(address(6));
    assert!(!is_announced(&world), "the sixth is not, whichever it is");
    world.apply(Object::Node(SpeakerNode { ready: false, ..node("f") }));
    assert!(is_announced(&world), "it may be f");
}

#[test]
fn an_excluded_node_offers_on_links_what_the_leader_says_others_announce() {
    let address = || behind("192.0.2.7", "web", "edge");
    let both = Advertisement { l2: Some(ByL2::default()), ..by_bgp("all") };
    let mut world = world([told(both), recorded(address(), 2, &["a", "b"])]);
    world.agent("edge", "192.0.2.7", true);
    world.apply(Object::Node(SpeakerNode { excluded: true, ..node("a") }));
    assert!(!is_announced(&world));
    let offer = &world.network.offers[&ip("192.0.2.7")];
    assert!(offer.draining, "{offer:?}");
}

#[test]
fn on_links_a_node_that_another_one_replaces_answers_until_the_other_one_does() {
    let address = behind("192.0.2.7", "web", "edge");
    let mut world = World::new([told(by_l2("all")), address, Object::Node(node("b"))]);
    let offer =
        |draining| Effect::Offer(ip("192.0.2.7"), Candidate { draining, ..Candidate::default() });
    let gone = Effect::Decline(ip("192.0.2.7"));
    let state = |change: fn(&mut SpeakerNode)| {
        let mut it = node("a");
        change(&mut it);
        Object::Node(it)
    };
    world.agent("edge", "192.0.2.7", true);
    // Nothing else serves it.
    assert_eq!(world.apply(state(|it| it.cordoned = true)), []);
    assert_eq!(world.apply(state(|it| it.excluded = true)), std::slice::from_ref(&gone));
    assert_eq!(world.apply(state(|_| ())), [offer(false)]);
    world.after(Event::Speaker("b".into(), true));
    world.after(Event::ServedAt(ip("192.0.2.7"), "b".into(), true));
    for change in [
        (|it| it.cordoned = true) as fn(&mut SpeakerNode),
        |it| it.ready = false,
        |it| it.excluded = true,
        |it| it.leaving = true,
    ] {
        assert_eq!(world.apply(state(change)), [offer(true)]);
        assert_eq!(world.apply(state(|_| ())), [offer(false)]);
    }
    assert_eq!(world.after(Event::Leave), [offer(true)]);
    assert_eq!(world.agent("edge", "192.0.2.7", false), [gone]);
}

#[test]
fn another_node_that_no_advertisement_selects_takes_nothing_over() {
    let [no, _] = doubtful();
    let here = Advertisement { nodes: Some(selector("name", "a")), ..by_l2("links") };
    let mut world = world([Object::Node(no), told(here)]);
    world.after(Event::Speaker("b".into(), true));
    assert!(!hands_over(&world));
}

#[test]
fn a_node_that_no_advertisement_selects_announces_nothing() {
    let mut there = by_bgp("all");
    there.nodes = Some(selector("name", "b"));
    let world = world([told(there)]);
    assert!(!is_announced(&world));
    assert_eq!(world.why("192.0.2.7"), Some(WhyNot::NodeNotSelected));
}

#[test]
fn a_node_leaves_when_its_object_says_so_and_not_when_it_is_only_unready() {
    for (it, leaves) in [
        (node("a"), false),
        (SpeakerNode { ready: false, ..node("a") }, false),
        (SpeakerNode { cordoned: true, ..node("a") }, true),
        (SpeakerNode { leaving: true, ..node("a") }, true),
        (SpeakerNode { excluded: true, ..node("a") }, true),
    ] {
        assert_eq!(world([Object::Node(it.clone())]).machine.leaves(), leaves, "{it:?}");
    }
}

#[test]
fn a_machine_that_never_had_a_node_object_announces_and_one_whose_object_is_deleted_leaves() {
    let base =
        [told(by_bgp("all")), router(peer("tor")), alone("192.0.2.7", "web"), service("web")];
    let rest = [slice("web", &["a", "b"])];
    let mut world = World::new(base.into_iter().chain(rest));
    let deleted = Event::Delete(Name::Node("a".into()));
    world.after(deleted.clone());
    assert!(is_announced(&world));
    world.apply(Object::Node(SpeakerNode { excluded: true, ..node("a") }));
    assert!(!is_announced(&world));
    world.after(deleted.clone());
    assert!(!is_announced(&world), "what was withdrawn stays so");
    world.apply(Object::Node(node("a")));
    assert!(is_announced(&world));
    world.after(deleted);
    assert!(!is_announced(&world));
}

#[test]
fn events_of_other_nodes_cost_a_sound_node_nothing() {
    let mut world = world([]);
    let visited = world.machine.visited();
    world.after(Event::Speaker("b".into(), true));
    world.apply(Object::Node(SpeakerNode { cordoned: true, ..node("b") }));
    world.after(Event::ServedAt(ip("192.0.2.7"), "b".into(), true));
    world.apply(recorded(alone("192.0.2.7", "web"), 1, &["b"]));
    assert_eq!(world.machine.visited(), visited);
}
