//! Tests that a holder keeps what it has: ports and hosts that Plans record stay with their consumer or namespace, even
//! if older objects ask for them later.

use super::make::*;
use crate::key::{ConsumerKind, ConsumerRef};
use crate::objects::{Ingress, LoadBalancer, Placement, Service};
use crate::outcome::Reason;
use crate::plan::{ENTRY_WEB, Fragment, Site};
use crate::planner::{Changes, Config, Event, Kind, Object, Planner, Record};
use crate::update::{Extent, ListenerKey};

const LBS: [&str; 2] = ["lb", "other"];

/// Records what the planner planned, as the controller reads it back.
fn record(planner: &mut Planner) {
    for name in LBS {
        let fragments: Vec<_> = planner.fragments(name).cloned().collect();
        let fragments = fragments.iter().map(|fragment| &**fragment);
        planner.handle(Event::Recorded(Record::new(name, 0, fragments)));
    }
    assert_eq!(planner.take(), Changes::default(), "recording a plan changes nothing");
}

fn recorded(objects: Vec<Object>) -> Planner {
    let mut planner = planner(Config::default(), objects);
    record(&mut planner);
    planner
}

/// The planner of a new leader: it gets objects first and Plans afterwards.
fn restarted(from: &Planner, objects: Vec<Object>) -> Planner {
    let mut planner = planner(Config::default(), objects);
    for name in LBS {
        let fragments: Vec<_> = from.fragments(name).cloned().collect();
        let fragments = fragments.iter().map(|fragment| &**fragment);
        planner.handle(Event::Recorded(Record::new(name, 0, fragments)));
    }
    planner.take();
    planner
}

fn site(name: &str, host: &str, created: i64) -> Ingress {
    Ingress { created, ..ingress(name, vec![rule(host, &[("/", "x:80")])]) }
}

fn old_service(name: &str, ports: &[u16]) -> Service {
    Service { created: -9, ..service(name, ports) }
}

fn then(planner: &mut Planner, object: impl Into<Object>) {
    apply(planner, object);
    planner.take();
}

fn basics() -> Vec<Object> {
    let other = LoadBalancer { addresses: vec![ip("192.0.2.9")], ..lb("other") };
    vec![lb("lb").into(), other.into(), class("web").into()]
}

fn with(more: impl IntoIterator<Item = Object>) -> Vec<Object> {
    basics().into_iter().chain(more).collect()
}

#[test]
fn an_edit_of_an_older_ingress_takes_no_host_from_another_namespace() {
    let shop = || site("shop/web", "shop.example", 5);
    let mut planner = recorded(with([site("evil/old", "old.example", 0).into(), shop().into()]));
    let edited = || site("evil/old", "shop.example", 0);
    then(&mut planner, edited());
    assert_eq!(ingress_state(&planner, "shop/web"), "lb 192.0.2.1");
    assert_eq!(ingress_state(&planner, "evil/old"), "HostTaken by lb");
    let again = restarted(&planner, with([edited().into(), shop().into()]));
    assert_eq!(ingress_state(&again, "shop/web"), "lb 192.0.2.1");
    assert_eq!(ingress_state(&again, "evil/old"), "HostTaken by lb");
}

#[test]
fn what_waits_gets_a_host_when_its_holder_lets_go() {
    let mut planner = recorded(with([site("shop/web", "shop.example", 5).into()]));
    then(&mut planner, site("evil/old", "shop.example", 0));
    assert_eq!(ingress_state(&planner, "evil/old"), "HostTaken by lb");
    planner.handle(Event::Delete(Kind::Ingress, key("shop/web")));
    planner.take();
    assert_eq!(ingress_state(&planner, "evil/old"), "lb 192.0.2.1");
}

#[test]
fn a_host_stays_with_its_namespace_when_the_ingress_that_had_it_is_deleted() {
    let second = site("shop/second", "shop.example", 6);
    let mut planner = recorded(with([site("shop/first", "shop.example", 5).into(), second.into()]));
    assert_eq!(ingress_state(&planner, "shop/second"), "PathTaken by lb");
    then(&mut planner, site("evil/old", "shop.example", 0));
    planner.handle(Event::Delete(Kind::Ingress, key("shop/first")));
    planner.take();
    assert_eq!(ingress_state(&planner, "shop/second"), "lb 192.0.2.1");
    assert_eq!(ingress_state(&planner, "evil/old"), "HostTaken by lb");
}

#[test]
fn an_older_service_that_comes_later_takes_no_port() {
    let mut planner = recorded(with([Service { created: 5, ..service("shop/x", &[80]) }.into()]));
    then(&mut planner, old_service("evil/x", &[80, 81]));
    assert_eq!(service_state(&planner, "shop/x"), "lb 192.0.2.1");
    assert_eq!(service_state(&planner, "evil/x"), "lb 192.0.2.1", "its other port is free");
    assert!(reasons(&planner, ConsumerKind::Service, "evil/x").contains(&Reason::PortTaken));
}

#[test]
fn an_older_service_takes_no_listener_that_ingresses_share() {
    let shop = || site("shop/web", "shop.example", 5);
    let mut planner = recorded(with([shop().into(), site("a/web", "a.example", 1).into()]));
    let elsewhere = Ok(Placement::LoadBalancer("other".into()));
    then(&mut planner, Service { placement: elsewhere, ..old_service("evil/x", &[80, 443]) });
    record(&mut planner);
    then(&mut planner, old_service("evil/x", &[80, 443]));
    assert_eq!(ingress_state(&planner, "shop/web"), "lb 192.0.2.1");
    assert_eq!(service_state(&planner, "evil/x"), "other 192.0.2.9", "it stays where it was");
    // The listeners also stay when the oldest of the Ingresses is deleted.
    planner.handle(Event::Delete(Kind::Ingress, key("a/web")));
    planner.take();
    assert_eq!(ingress_state(&planner, "shop/web"), "lb 192.0.2.1");
}

#[test]
fn another_object_of_the_same_name_holds_nothing() {
    let mut planner = recorded(with([Service { created: 5, ..service("shop/x", &[80]) }.into()]));
    then(&mut planner, old_service("evil/x", &[80]));
    then(&mut planner, Service { uid: "anew".into(), created: 7, ..service("shop/x", &[80]) });
    assert_eq!(service_state(&planner, "shop/x"), "PortTaken by lb");
    assert_eq!(service_state(&planner, "evil/x"), "lb 192.0.2.1");
}

#[test]
fn a_holder_keeps_its_port_when_the_load_balancer_gets_another_address() {
    let shop = || site("shop/web", "shop.example", 5);
    let evil = || old_service("evil/x", &[80, 443, 81]);
    let mut planner = recorded(with([shop().into()]));
    then(&mut planner, evil());
    record(&mut planner);
    for addresses in [vec![ip("192.0.2.1"), ip("192.0.2.2")], vec![ip("192.0.2.2")]] {
        then(&mut planner, LoadBalancer { addresses, ..lb("lb") });
        record(&mut planner);
        let Some(outcome) = planner.outcome(ConsumerKind::Ingress, &key("shop/web")) else {
            panic!("shop/web is gone")
        };
        assert!(state(Some(outcome)).ends_with("192.0.2.2"), "{outcome:?}");
    }
}

#[test]
fn a_move_takes_nothing_from_the_holder_at_the_new_place() {
    let on = |name: &str, it| Service { placement: Ok(Placement::LoadBalancer(name.into())), ..it };
    let shop = Service { created: 5, ..service("shop/x", &[80]) };
    let evil = old_service("evil/x", &[80]);
    let mut planner = recorded(with([shop.into(), on("other", evil.clone()).into()]));
    then(&mut planner, on("lb", evil));
    assert_eq!(service_state(&planner, "shop/x"), "lb 192.0.2.1");
    assert_eq!(service_state(&planner, "evil/x"), "other 192.0.2.9");
}

#[test]
fn what_is_being_written_counts_until_it_is_seen_what_became_of_it() {
    let shop = || Service { created: 5, ..service("shop/x", &[80]) };
    let fragments = |planner: &Planner| -> Vec<Fragment> {
        planner.fragments("lb").map(|it| (**it).clone()).collect()
    };
    let mut planner = planner(Config::default(), with([shop().into()]));
    let written = fragments(&planner);
    planner.handle(Event::Writing(Record::new("lb", 0, &written)));
    then(&mut planner, old_service("evil/x", &[80]));
    assert_eq!(service_state(&planner, "shop/x"), "lb 192.0.2.1");
    // The leader gave up and the write was never observed: the oldest comes first.
    planner.handle(Event::WritesAbandoned);
    planner.take();
    assert_eq!(service_state(&planner, "evil/x"), "lb 192.0.2.1");
    assert_eq!(service_state(&planner, "shop/x"), "PortTaken by lb");
    // The write was carried out after all.
    planner.handle(Event::Recorded(Record::new("lb", 0, &written)));
    planner.take();
    assert_eq!(service_state(&planner, "shop/x"), "lb 192.0.2.1");
}

fn consumer(kind: ConsumerKind, name: &str) -> ConsumerRef {
    let (uid, key) = (format!("uid-of-{name}").into(), key(name));
    ConsumerRef { kind, namespace: key.namespace, name: key.name, uid }
}

#[test]
fn of_two_recorded_ports_the_one_that_is_served_stays() {
    let [a, b] = ["a/x", "b/x"].map(|name| consumer(ConsumerKind::Service, name));
    let at = [ip("192.0.2.1")];
    let port = ListenerKey { address: at[0], port: 80, transport: crate::plan::Transport::Tcp };
    let objects = || with([service("a/x", &[80]).into(), service("b/x", &[80]).into()]);
    let twice = || {
        let mut planner = planner(Config::default(), objects());
        planner.handle(Event::Recorded(Record::new("lb", 0, [&fragment_at(a.clone(), &at)])));
        planner.handle(Event::Recorded(Record::new("lb", 1, [&fragment_at(b.clone(), &at)])));
        planner.take();
        planner
    };
    let states = |planner: &Planner| ["a/x", "b/x"].map(|name| service_state(planner, name));
    assert_eq!(states(&twice()), ["lb 192.0.2.1", "lb 192.0.2.1"], "no agent has spoken yet");
    let unserved = |planner: &mut Planner, which: &[&ConsumerRef]| {
        let all = which.iter().map(|it| ((*it).clone(), Extent::Listener(port))).collect();
        planner.handle(Event::Unserved("lb".into(), all));
        planner.take();
    };
    let mut planner = twice();
    unserved(&mut planner, &[&a]);
    assert_eq!(states(&planner), ["PortTaken by lb", "lb 192.0.2.1"]);
    // The replicas disagree: the older consumer keeps the port.
    let mut planner = twice();
    unserved(&mut planner, &[&a, &b]);
    assert_eq!(states(&planner), ["lb 192.0.2.1", "PortTaken by lb"]);
}

#[test]
fn of_two_recorded_hosts_the_one_that_is_served_stays() {
    let host = || "h.example".parse().unwrap();
    let recorded = |name: &str| {
        let consumer = consumer(ConsumerKind::Ingress, name);
        let site = Site { entry: ENTRY_WEB.into(), host: host(), tls: None, rules: Vec::new() };
        Fragment { sites: vec![site], ..fragment_at(consumer, &[]) }
    };
    let mut planner = planner(
        Config::default(),
        with([site("a/x", "h.example", 0).into(), site("b/x", "h.example", 5).into()]),
    );
    planner.handle(Event::Recorded(Record::new("lb", 0, [&recorded("a/x")])));
    planner.handle(Event::Recorded(Record::new("lb", 1, [&recorded("b/x")])));
    planner.take();
    let states = |planner: &Planner| ["a/x", "b/x"].map(|name| ingress_state(planner, name));
    assert_eq!(states(&planner), ["lb 192.0.2.1", "lb 192.0.2.1"]);
    let loser = (consumer(ConsumerKind::Ingress, "a/x"), Extent::Host(host()));
    planner.handle(Event::Unserved("lb".into(), vec![loser]));
    planner.take();
    assert_eq!(states(&planner), ["HostTaken by lb", "lb 192.0.2.1"]);
    // When the record is gone, the agent no longer reports the port as unserved. That changes nothing.
    planner.handle(Event::Recorded(Record::new("lb", 0, [])));
    planner.handle(Event::Unserved("lb".into(), Vec::new()));
    planner.take();
    assert_eq!(states(&planner), ["HostTaken by lb", "lb 192.0.2.1"]);
}

#[test]
fn a_load_balancer_that_is_made_again_keeps_the_listeners_of_its_ingresses() {
    let mut planner = recorded(with([site("shop/web", "shop.example", 5).into()]));
    then(&mut planner, old_service("evil/x", &[80, 443]));
    then(&mut planner, LoadBalancer { uid: "anew".into(), ..lb("lb") });
    assert_eq!(ingress_state(&planner, "shop/web"), "lb 192.0.2.1");
    assert_eq!(service_state(&planner, "evil/x"), "PortTaken by lb");
}

#[test]
fn a_write_that_is_refused_leaves_no_record() {
    let young = || Service { created: 5, ..service("shop/x", &[80]) };
    let mut planner = planner(Config::default(), with([young().into()]));
    let written: Vec<Fragment> = planner.fragments("lb").map(|it| (**it).clone()).collect();
    planner.handle(Event::Writing(Record::new("lb", 0, &written)));
    then(&mut planner, old_service("evil/x", &[80]));
    planner.handle(Event::WriteFailed("lb".into(), 0));
    planner.take();
    assert_eq!(
        service_state(&planner, "evil/x"),
        "lb 192.0.2.1",
        "nothing is recorded: it is older"
    );
    assert_eq!(service_state(&planner, "shop/x"), "PortTaken by lb");
}

#[test]
fn a_host_that_passes_between_ingresses_of_a_namespace_goes_to_no_other_between_two_writes() {
    let mut planner = recorded(with([site("shop/web", "h.example", 5).into()]));
    then(&mut planner, site("evil/web", "h.example", -9));
    assert_eq!(rules(&planner, "evil/web"), [""; 0]);
    // An older Ingress of the namespace takes the path. Its fragment is in a Plan object that is written next.
    then(&mut planner, site("shop/api", "h.example", 1));
    let has_api = |fragment: &Fragment| &*fragment.consumer.name == "api";
    let fragments: Vec<_> = planner.fragments("lb").map(|it| (**it).clone()).collect();
    let first = fragments.iter().filter(|it| !has_api(it));
    planner.handle(Event::Recorded(Record::new("lb", 0, first)));
    planner.take();
    assert_eq!(rules(&planner, "evil/web"), [""; 0]);
    planner.handle(Event::Recorded(Record::new(
        "lb",
        1,
        fragments.iter().filter(|it| has_api(it)),
    )));
    planner.take();
    // It is deleted, and its Plan object is written before the one of the other Ingress.
    planner.handle(Event::Delete(Kind::Ingress, key("shop/api")));
    planner.take();
    planner.handle(Event::Recorded(Record::new("lb", 1, [])));
    planner.take();
    assert_eq!(rules(&planner, "evil/web"), [""; 0]);
    assert_eq!(rules(&planner, "shop/web").len(), 1);
}

#[test]
fn an_ingress_of_an_administrator_keeps_the_ports_of_a_shared_load_balancer_for_ingresses() {
    // Without an Ingress the first Service to come gets the ports, and keeps them.
    let mut bare = recorded(with([old_service("evil/x", &[80, 443]).into()]));
    record(&mut bare);
    then(&mut bare, site("shop/web", "shop.example", 5));
    assert_eq!(ingress_state(&bare, "shop/web"), "PortTaken by lb");

    let placeholder = || site("admin/placeholder", "placeholder.invalid", 1);
    let mut planner = recorded(with([placeholder().into()]));
    then(&mut planner, old_service("evil/x", &[80, 443]));
    record(&mut planner);
    assert_eq!(service_state(&planner, "evil/x"), "PortTaken by lb");
    then(&mut planner, site("shop/web", "shop.example", 5));
    record(&mut planner);
    assert_eq!(ingress_state(&planner, "shop/web"), "lb 192.0.2.1");
    // The listeners stay, also at the moment when the last Ingress of a tenant is deleted.
    planner.handle(Event::Delete(Kind::Ingress, key("shop/web")));
    planner.take();
    assert_eq!(service_state(&planner, "evil/x"), "PortTaken by lb");
    let again =
        restarted(&planner, with([old_service("evil/x", &[80, 443]).into(), placeholder().into()]));
    assert_eq!(service_state(&again, "evil/x"), "PortTaken by lb");
}
