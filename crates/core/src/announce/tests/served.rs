//! An address is announced only while traffic that arrives at the node is served.

use super::make::*;
use crate::announce::*;
use std::sync::Arc;

fn told_prefix(prefix: &str) -> Effect {
    Effect::Announce("tor".into(), net(prefix), Route::default().into())
}

fn withdrawn(prefix: &str) -> Effect {
    Effect::Withdraw("tor".into(), net(prefix))
}

fn held(address: &str) -> Effect {
    Effect::Hold(ip(address), Ports::Unknown)
}

fn base() -> Vec<Object> {
    vec![told(by_bgp("all")), router(peer("tor"))]
}

fn world(objects: impl IntoIterator<Item = Object>) -> World {
    World::new(base().into_iter().chain(objects))
}

#[test]
fn nothing_is_announced_before_every_kind_is_listed() {
    let mut machine = Announcements::new("a".into());
    let objects = [alone("192.0.2.7", "web"), service("web"), slice("web", &["b"])];
    base().into_iter().chain(objects).for_each(|it| machine.handle(Event::Apply(it)));
    for kind in Kind::ALL {
        assert_eq!(machine.take(), []);
        machine.handle(Event::Done(kind));
    }
    let first = machine.take();
    let expected =
        [Effect::Peer(peer("tor").into()), told_prefix("192.0.2.7/32"), Effect::Complete];
    assert_eq!(first, expected);
    assert_eq!(machine.take(), []);
    let told: Vec<_> = machine.told().collect();
    assert_eq!(told, [(ip("192.0.2.7"), ["tor".into()].into())]);
}

#[test]
fn an_address_alone_is_announced_while_its_service_has_an_endpoint_anywhere() {
    let mut world = world([alone("192.0.2.7", "web"), service("web")]);
    assert_eq!(world.why("192.0.2.7"), Some(WhyNot::NotServed));
    assert_eq!(world.apply(slice("web", &["b"])), [told_prefix("192.0.2.7/32")]);
    assert_eq!(world.apply(slice("web", &["b", "c"])), []);
    assert_eq!(world.apply(slice("web", &[])), [withdrawn("192.0.2.7/32")]);
}

#[test]
fn endpoints_that_go_away_count_while_there_is_no_other() {
    let mut world = world([alone("192.0.2.7", "web"), local("web", None)]);
    let leaving_here = [("a", false, true), ("b", true, false)];
    assert_eq!(world.apply(slice_of("web", leaving_here.into_iter())), []);
    let only_here = [("a", false, true)];
    let effects = world.apply(slice_of("web", only_here.into_iter()));
    assert_eq!(effects, [told_prefix("192.0.2.7/32")]);
    let nothing_answers = [("a", false, false)];
    let effects = world.apply(slice_of("web", nothing_answers.into_iter()));
    assert_eq!(effects, [withdrawn("192.0.2.7/32")]);
}

#[test]
fn with_the_policy_local_only_nodes_with_an_endpoint_announce() {
    let mut world = world([alone("192.0.2.7", "web"), local("web", None), slice("web", &["b"])]);
    assert_eq!(world.why("192.0.2.7"), Some(WhyNot::NotServed));
    assert_eq!(world.apply(slice("web", &["a"])), [told_prefix("192.0.2.7/32")]);
    assert_eq!(world.apply(slice("web", &["b"])), [withdrawn("192.0.2.7/32")]);
}

#[test]
fn kube_proxy_says_when_its_rules_are_in_place() {
    let mut world = world([alone("192.0.2.7", "web"), slice("web", &["a"])]);
    let effects = world.apply(local("web", Some(30_000)));
    assert_eq!(effects, [Effect::Check(key("web"), Some(30_000))]);
    let health = |healthy| Event::Health(key("web"), healthy);
    assert_eq!(world.after(health(Some(false))), []);
    assert_eq!(world.after(health(Some(true))), [told_prefix("192.0.2.7/32")]);
    assert_eq!(world.after(health(Some(false))), [withdrawn("192.0.2.7/32")]);
    // Nothing answers: another program than kube-proxy forwards.
    assert_eq!(world.after(health(None)), [told_prefix("192.0.2.7/32")]);
    let gone = world.after(Event::Delete(Name::Service(key("web"))));
    assert_eq!(gone, [Effect::Check(key("web"), None), withdrawn("192.0.2.7/32")]);
}

#[test]
fn behind_an_agent_an_address_is_held_before_it_is_announced_and_released_after() {
    let mut world = world([behind("192.0.2.7", "web", "edge"), service("web")]);
    let address = ip("192.0.2.7");
    assert_eq!(world.agent("edge", "192.0.2.7", false), [held("192.0.2.7")]);
    assert_eq!(world.agent("edge", "192.0.2.7", true), [told_prefix("192.0.2.7/32")]);
    assert_eq!(world.agent("other", "192.0.2.7", false), []);
    let gone = world.after(Event::Agent("edge".into(), None));
    assert_eq!(gone, [withdrawn("192.0.2.7/32")]);
    let gone = world.after(Event::Agent("other".into(), None));
    assert_eq!(gone, [Effect::Release(address)]);
}

#[test]
fn behind_an_agent_an_address_is_announced_only_while_it_is_on_the_node() {
    let objects = [behind("192.0.2.7", "web", "edge"), service("web"), told(by_l2("links"))];
    let mut world = world(objects);
    let address = ip("192.0.2.7");
    let agent = |open| Event::Agent("edge".into(), Some([(address, listening(open))].into()));
    world.machine.handle(agent(true));
    assert_eq!(world.machine.take(), [held("192.0.2.7")]);
    assert_eq!(world.why("192.0.2.7"), Some(WhyNot::NotPresent));
    world.machine.handle(Event::Present([address].into()));
    let offer = Effect::Offer(address, Candidate::default());
    assert_eq!(world.machine.take(), [told_prefix("192.0.2.7/32"), offer]);
    world.machine.handle(Event::Present([].into()));
    let gone = [withdrawn("192.0.2.7/32"), Effect::Decline(address)];
    assert_eq!(world.machine.take(), gone);
}

#[test]
fn ports_of_an_address_are_open_as_far_as_all_its_agents_say() {
    let mut world = world([behind("192.0.2.7", "web", "edge")]);
    let address = ip("192.0.2.7");
    let tcp = |ports: &[u16]| {
        let ports = ports.iter().map(|port| (crate::plan::Transport::Tcp, *port));
        Ports::Only(Arc::new(ports.collect()))
    };
    let mut agent = |name: &str, ports| {
        let said = [(address, Listening { open: false, ports })].into();
        world.after(Event::Agent(name.into(), Some(said)))
    };
    assert_eq!(agent("edge", tcp(&[80])), [Effect::Hold(address, tcp(&[80]))]);
    assert_eq!(agent("edge", tcp(&[80])), []);
    assert_eq!(agent("other", tcp(&[443])), [Effect::Hold(address, tcp(&[80, 443]))]);
    assert_eq!(agent("other", Ports::Unknown), [Effect::Hold(address, Ports::Unknown)]);
}

#[test]
fn an_address_that_only_agents_have_is_the_load_balancers_own() {
    let mut world = world([service("web")]);
    let hold = [held("192.0.2.9"), told_prefix("192.0.2.9/32")];
    assert_eq!(world.agent("edge", "192.0.2.9", true), hold);
    // A list of Address objects does not name it.
    world.machine.handle(Event::Begin(Kind::Address));
    assert_eq!(world.after(Event::Done(Kind::Address)), []);
    let gone = [withdrawn("192.0.2.9/32"), Effect::Release(ip("192.0.2.9"))];
    assert_eq!(world.after(Event::Agent("edge".into(), None)), gone);
    assert_eq!(world.machine.announced(ip("192.0.2.9")), None);
    for address in ["127.0.0.1", "::1", "0.0.0.0", "::"] {
        assert_eq!(world.agent("edge", address, true), [], "{address}");
    }
}

#[test]
fn a_load_balancers_own_address_is_covered_by_its_name_and_by_no_pool() {
    let mut of_pool = by_bgp("all");
    of_pool.covers.pools = ["public".into()].into();
    let mut world = World::new([told(of_pool.clone()), router(peer("tor"))]);
    assert_eq!(world.agent("edge", "192.0.2.9", true), []);
    assert_eq!(world.why("192.0.2.9"), Some(WhyNot::NotAdvertised));
    of_pool.covers.load_balancers = ["edge".into()].into();
    let hold = [held("192.0.2.9"), told_prefix("192.0.2.9/32")];
    assert_eq!(world.apply(told(of_pool)), hold);
}

#[test]
fn an_address_that_is_recorded_later_is_its_holders() {
    let mut of_edge = by_bgp("all");
    of_edge.covers.load_balancers = ["edge".into()].into();
    let mut world = World::new([told(of_edge), router(peer("tor")), service("web")]);
    world.agent("edge", "192.0.2.9", true);
    let gone = [withdrawn("192.0.2.9/32"), Effect::Release(ip("192.0.2.9"))];
    assert_eq!(world.apply(behind("192.0.2.9", "web", "other")), gone);
    let hold = [held("192.0.2.9"), told_prefix("192.0.2.9/32")];
    assert_eq!(world.after(Event::Delete(Name::Address(ip("192.0.2.9")))), hold);
}

#[test]
fn a_shared_address_is_announced_while_any_holder_is_served() {
    let Object::Address(mut record, _) = behind("192.0.2.7", "web", "edge") else { panic!() };
    let Object::Address(other, _) = alone("192.0.2.7", "mail") else { panic!() };
    record.content.holders.extend(other.content.holders);
    let mut world = world([
        Object::Address(record, Announcing::default()),
        service("mail"),
        slice("mail", &["a"]),
    ]);
    assert_eq!(world.network.prefixes("tor"), ["192.0.2.7/32"]);
    assert_eq!(world.agent("edge", "192.0.2.7", true), [held("192.0.2.7")]);
    assert_eq!(world.apply(slice("mail", &[])), []);
    assert_eq!(world.agent("edge", "192.0.2.7", false), [withdrawn("192.0.2.7/32")]);
}

#[test]
fn an_address_that_nothing_covers_is_announced_by_nobody_and_not_held() {
    let mut only_others = by_bgp("other");
    only_others.covers.pools = ["other".into()].into();
    let objects = [told(only_others.clone()), router(peer("tor")), service("web")];
    let addresses = [alone("192.0.2.7", "web"), behind("192.0.2.8", "web", "edge")];
    let mut world = World::new(objects.into_iter().chain(addresses).chain([slice("web", &["a"])]));
    assert_eq!(world.agent("edge", "192.0.2.8", true), []);
    for address in ["192.0.2.7", "192.0.2.8"] {
        assert_eq!(world.why(address), Some(WhyNot::NotAdvertised));
    }
    only_others.covers.load_balancers = ["edge".into()].into();
    let effects = world.apply(told(only_others));
    assert_eq!(effects, [held("192.0.2.8"), told_prefix("192.0.2.8/32")]);
}

#[test]
fn pools_are_covered_by_label_and_services_by_theirs() {
    let mut advertisement = by_bgp("some");
    advertisement.covers.pool_selector = Some(selector("zone", "a"));
    advertisement.covers.services = Some(selector("public", "true"));
    let mut world = World::new([
        told(advertisement),
        router(peer("tor")),
        alone("192.0.2.7", "web"),
        service("web"),
        slice("web", &["b"]),
    ]);
    let pool = |zone: &str| Object::Pool("public".into(), labels(&[("zone", zone)]));
    let labelled = |value: &str| {
        let labels = labels(&[("public", value)]);
        Object::Service(key("web"), AnnouncedService { labels, ..AnnouncedService::default() })
    };
    assert_eq!(world.apply(pool("a")), []);
    assert_eq!(world.apply(labelled("true")), [told_prefix("192.0.2.7/32")]);
    assert_eq!(world.apply(pool("b")), [withdrawn("192.0.2.7/32")]);
    assert_eq!(world.apply(pool("a")), [told_prefix("192.0.2.7/32")]);
    assert_eq!(world.apply(labelled("false")), [withdrawn("192.0.2.7/32")]);
}

#[test]
fn a_released_address_is_withdrawn_and_forgotten() {
    let mut world = world([alone("192.0.2.7", "web"), service("web"), slice("web", &["b"])]);
    let gone = world.after(Event::Delete(Name::Address(ip("192.0.2.7"))));
    assert_eq!(gone, [withdrawn("192.0.2.7/32")]);
    assert_eq!(world.why("192.0.2.7"), None);
    // Its name may come again.
    let again = world.apply(alone("192.0.2.7", "web"));
    assert_eq!(again, [told_prefix("192.0.2.7/32")]);
}
