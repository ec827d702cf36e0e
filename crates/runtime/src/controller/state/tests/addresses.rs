//! Services, load balancers and ExternalIPs with addresses of a pool.

use super::*;
use crate::controller::kinds::{KindId, KindSeen, KindShown, ObjectSeen, StatusKind};
use crate::controller::writer;
use bowline_api::external_ip::ExternalIP;
use bowline_core::addresses::Written;
use bowline_core::dns::{Answers, Failure, FailureKind, Found, Name, Report};
use bowline_core::event_correlator::Severity;
use bowline_core::objects::{Family, Version};
use bowline_core::status::problems;
use std::net::IpAddr;

fn pool(addresses: &str) -> Observed {
    testing::pool(json!({
        "metadata": {"name": "public", "uid": "p", "resourceVersion": "1"},
        "spec": {"addresses": [addresses]},
    }))
}

fn service(name: &str, annotations: Value) -> Observed {
    testing::service(json!({
        "metadata": {
            "name": name, "namespace": "shop", "uid": name, "resourceVersion": "1",
            "annotations": annotations,
        },
        "spec": {
            "type": "LoadBalancer", "ports": [{"port": 80, "protocol": "TCP"}],
            "ipFamilies": ["IPv4"], "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"],
        },
    }))
}

/// A load balancer with addresses of the pool.
fn load_balancer() -> Observed {
    testing::load_balancer(json!({
        "metadata": {"name": "edge", "uid": "edge", "resourceVersion": "1"},
        "spec": {
            "builtin": {}, "addressPool": "public", "allowedNamespaces": {"from": "All"},
        },
    }))
}

/// An Address that the load balancer holds.
fn address(name: &str) -> Observed {
    let holder = json!({"kind": "LoadBalancer", "name": "edge", "uid": "edge"});
    testing::address(json!({
        "metadata": {"name": name, "uid": name, "resourceVersion": "1"},
        "spec": {"pool": "public", "holders": [holder]},
    }))
}

/// An ExternalIP that may request addresses, at this version.
fn external_ip(version: &str) -> Box<ObjectSeen<<ExternalIP as StatusKind>::Shown>> {
    let object = json!({
        "metadata": {
            "name": "game-0", "namespace": "shop", "uid": "u", "resourceVersion": version,
            "finalizers": [names::FINALIZER_CLEANUP],
        },
        "spec": {"serviceName": "game", "podName": "game-0", "addressPool": "public"},
    });
    let object: ExternalIP = testing::read("ExternalIP", object);
    ObjectSeen::of(&object)
}

/// A state that has observed these objects, and the end of every list.
fn observed(all: impl IntoIterator<Item = Observed>, leads: bool) -> (State, Uptime) {
    let now = Uptime::default();
    let config = Config { default_class: true, ..Config::default() };
    let mut state = State::new(config, Default::default());
    all.into_iter().for_each(|it| state.observe(it, now));
    testing::listed().into_iter().for_each(|it| state.observe(it, now));
    assert!(state.is_complete());
    state.at(Timestamp::UNIX_EPOCH, leads);
    state.decide(now);
    (state, now)
}

/// The warnings since the last call: object, reason and message.
fn warnings(state: &mut State) -> Vec<(String, String, String)> {
    let said = state.outbox.take_events().into_iter();
    let said = said.filter(|it| matches!(it.severity, Severity::Warning));
    said.map(|it| (it.object.name().to_string(), it.reason.to_string(), it.message.to_string()))
        .collect()
}

fn refused(state: &State) -> usize {
    state.refused().values().sum()
}

#[test]
fn a_service_alone_that_gets_no_address_is_told_so_once_and_counted() {
    let taken = || service("web", json!({"bowline.dev/vip": "198.51.100.1"}));
    let (mut state, now) = observed([pool("192.0.2.0/24"), taken()], true);
    let told = warnings(&mut state);
    let message = "198.51.100.1 is in no pool";
    assert!(matches!(&told[..], [(web, _, text)] if web == "web" && text.starts_with(message)));
    assert_eq!(refused(&state), 1);
    state.observe(taken(), now);
    state.decide(now);
    assert_eq!((warnings(&mut state), refused(&state)), (vec![], 1));
    state.begin();
    state.decide(now);
    assert_eq!(warnings(&mut state), told, "who begins to lead says it again");
    state.observe(service("web", json!({})), now);
    state.decide(now);
    write_address(&mut state, "1");
    state.decide(now);
    assert_eq!((warnings(&mut state), refused(&state)), (vec![], 0));
}

/// Carries out a write of an Address, which then has this version.
fn write_address(state: &mut State, version: &str) -> Option<IpAddr> {
    let write = state.addresses.writes().next()?.clone();
    state.addresses.wrote(write.address, write.id, Written::Ok(Version(version.into())));
    Some(write.address)
}

/// Carries out the writes of Addresses.
fn record(state: &mut State, now: Uptime) {
    while write_address(state, "1").is_some() {}
    state.decide(now);
}

#[test]
fn an_address_that_is_being_recorded_is_no_news_on_a_load_balancer() {
    for wish in [("bowline.dev/address-pool", "public"), ("bowline.dev/vip", "192.0.2.9")] {
        let asks = service("web", json!({"bowline.dev/load-balancer": "edge", wish.0: wish.1}));
        let all = [pool("192.0.2.0/24"), load_balancer(), address("192.0.2.7"), asks];
        let (mut state, now) = observed(all, true);
        assert_eq!((warnings(&mut state), refused(&state)), (vec![], 0), "{wish:?}");
        let target = Target::Consumer(ConsumerKind::Service, ObjectKey::new("shop", "web"));
        let next = state.next(&target, now, Timestamp::UNIX_EPOCH);
        assert!(matches!(next, Next::Nothing), "{wish:?}: {next:?}");
        record(&mut state, now);
        assert_eq!((warnings(&mut state), refused(&state)), (vec![], 0), "{wish:?}");
        let next = state.next(&target, now, Timestamp::UNIX_EPOCH);
        assert!(matches!(next, Next::Write(..)), "{wish:?}: {next:?}");
    }
}

#[test]
fn a_service_alone_is_told_that_there_is_no_pool_by_one_reason() {
    let (mut state, now) = observed([service("web", json!({}))], true);
    let told = warnings(&mut state);
    let [(_, reason, message)] = &told[..] else { panic!("{told:?}") };
    let target = Target::Consumer(ConsumerKind::Service, ObjectKey::new("shop", "web"));
    let next = state.next(&target, now, Timestamp::UNIX_EPOCH);
    let Next::Write(Write::Consumer(_, _, patch), _) = next else { panic!("{next:?}") };
    let condition = &patch["status"]["conditions"][0];
    assert_eq!((reason.as_str(), &condition["reason"]), ("NoPool", &json!("NoPool")));
    assert_eq!(json!(message), condition["message"]);
}

#[test]
fn who_begins_to_lead_does_not_warn_of_addresses_that_are_recorded() {
    let on_edge = service("web", json!({"bowline.dev/load-balancer": "edge"}));
    let all = [pool("192.0.2.0/24"), load_balancer(), address("192.0.2.7"), on_edge];
    let (mut state, now) = observed(all, false);
    let key = ObjectKey::new("shop", "web");
    let problems = |state: &State| {
        let outcome = state.planner.outcome(ConsumerKind::Service, &key);
        outcome.into_iter().flat_map(problems).count()
    };
    assert_eq!(problems(&state), 1, "a follower gives nobody an address");
    warnings(&mut state);
    state.begin();
    state.at(Timestamp::UNIX_EPOCH, true);
    state.decide(now);
    assert_eq!((warnings(&mut state), problems(&state)), (vec![], 0));
    assert!(state.outbox.has(&Target::Consumer(ConsumerKind::Service, key)));
}

#[test]
fn a_look_up_concerns_a_service_only_where_it_says_something_else() {
    let named = service("web", json!({"bowline.dev/assign-from-fqdn": "web.example.com"}));
    let (mut state, _) = observed([pool("192.0.2.0/24"), named], true);
    let name: Name = "web.example.com".parse().unwrap();
    assert_eq!(state.addresses.names(), [&name]);
    let ok = |address: &str, ttl| {
        let ttl = Duration::from_secs(ttl);
        Found::new(Family::V4, [address.parse().unwrap()], ttl)
    };
    let failed = |text: &str| Err(Failure::new(FailureKind::ServFail, text));
    let mut look = |answer, next_check| {
        _ = state.outbox.take_targets();
        let answers = Answers { v4: Some(answer), v6: None };
        let next_check = Duration::from_secs(next_check);
        state.found(name.clone(), Report { answers, next_check, retried_within: next_check });
        let target = Target::Consumer(ConsumerKind::Service, ObjectKey::new("shop", "web"));
        state.outbox.has(&target)
    };
    assert!(look(ok("192.0.2.7", 300), 309));
    assert!(!look(ok("192.0.2.7", 17), 18));
    assert!(look(ok("192.0.2.8", 17), 18));
    assert!(look(failed("one server"), 5));
    assert!(!look(failed("another server"), 10));
    assert!(look(ok("192.0.2.8", 17), 18));
}

/// A Service with an address from a DNS name, as a former leader left it, and its Address.
fn from_name() -> [Observed; 2] {
    let condition = |type_: &str, reason: &str, message: &str| {
        json!({
            "type": type_, "status": "True", "reason": reason, "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    };
    let service = testing::service(json!({
        "metadata": {
            "name": "web", "namespace": "shop", "uid": "web", "resourceVersion": "1",
            "annotations": {"bowline.dev/assign-from-fqdn": "web.example.com"},
        },
        "spec": {
            "type": "LoadBalancer", "ports": [{"port": 80, "protocol": "TCP"}],
            "ipFamilies": ["IPv4"], "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"],
        },
        "status": {
            "loadBalancer": {"ingress": [{"ip": "192.0.2.5", "ipMode": "VIP"}]},
            "conditions": [
                condition(names::CONDITION_SERVICE_PROGRAMMED, "Assigned", "as it was"),
                condition(names::CONDITION_ADDRESS_FROM_DNS, "Resolved", "web.example.com is so"),
            ],
        },
    }));
    let holder = json!({"kind": "Service", "namespace": "shop", "name": "web", "uid": "web"});
    let address = testing::address(json!({
        "metadata": {"name": "192.0.2.5", "uid": "a", "resourceVersion": "1"},
        "spec": {"pool": "public", "holders": [holder]},
    }));
    [service, address]
}

#[test]
fn what_was_said_of_a_name_stays_until_a_new_leader_has_looked_it_up() {
    let [service, address] = from_name();
    let (mut state, now) = observed([pool("192.0.2.0/24"), service, address], true);
    let target = Target::Consumer(ConsumerKind::Service, ObjectKey::new("shop", "web"));
    let next = state.next(&target, now, Timestamp::UNIX_EPOCH);
    assert!(matches!(next, Next::Nothing), "{next:?}");
    assert_eq!(warnings(&mut state), []);
    let failure = Err(Failure::new(FailureKind::Timeout, ""));
    let answers = Answers { v4: Some(failure), v6: None };
    let (next_check, retried_within) = (Duration::from_secs(5), Duration::from_secs(66));
    let report = Report { answers, next_check, retried_within };
    state.found("web.example.com".parse().unwrap(), report);
    state.decide(now);
    let next = state.next(&target, now, Timestamp::UNIX_EPOCH);
    let Next::Write(Write::Consumer(_, _, patch), _) = next else { panic!("{next:?}") };
    let conditions = patch["status"]["conditions"].as_array().unwrap();
    let reasons: Vec<_> = conditions.iter().map(|it| it["reason"].as_str().unwrap()).collect();
    assert_eq!(reasons, ["NameFailed", "NameFailed"]);
}

#[test]
fn a_list_that_is_behind_a_write_takes_nothing_from_an_external_ip() {
    let observed_as = |seen| Observed::Object(KindSeen::ExternalIP(seen));
    let seen = |version| observed_as(Seen::Apply(external_ip(version)));
    let (mut state, now) = observed([pool("192.0.2.0/24"), seen("1")], true);
    let holder = external_ip("1").shown.status.request.holder;
    let address = write_address(&mut state, "2").unwrap();
    state.decide(now);
    assert_eq!(state.addresses.recorded(&holder), [address]);
    // The answer to a write of its status.
    let holder_key = ObjectKey::new("shop", "game-0");
    let target = Target::Object(KindId::ExternalIP, holder_key);
    let written = writer::Reply::Object(KindShown::ExternalIP(external_ip("3")));
    state.wrote(&target, written, now);
    state.observe(observed_as(Seen::Begin), now);
    state.observe(seen("1"), now);
    state.observe(observed_as(Seen::Done), now);
    state.decide(now);
    assert_eq!(state.addresses.recorded(&holder), [address]);
    assert_eq!(state.addresses.writes().count(), 0);
}
