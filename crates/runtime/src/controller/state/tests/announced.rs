//! What the leader tells of announced addresses.

use super::*;
use bowline_core::point::Point;
use bowline_core::report::speaker::{Session, SpeakerReport};
use std::net::IpAddr;
use std::time::Duration;

const AT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7));

fn speaker(node: &str, renewed: u32, told: &[IpAddr]) -> Observed {
    let session = Session { up: true, routes: 1, reason: None };
    let told = told.iter().map(|it| (*it, ["tor".into()].into()));
    let sessions = [("tor".into(), session)].into();
    let report = SpeakerReport::new(node.into(), "1".into(), sessions, told, []);
    let lease = SpeakerLease {
        report: Some(report),
        renewed: renewed.to_string().into(),
        lasts: Duration::from_secs(15),
    };
    let name = names::speaker_lease(node);
    Observed::Lease(Seen::Apply(LeaseSeen { name, entries: Vec::new(), speaker: Some(lease) }))
}

fn service(status: &Value, version: u32) -> Observed {
    testing::service(json!({
        "metadata": {
            "name": "web", "namespace": "shop", "uid": "web",
            "resourceVersion": version.to_string(),
        },
        "spec": {
            "type": "LoadBalancer", "ports": [{"port": 80, "protocol": "TCP"}],
            "ipFamilies": ["IPv4"], "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"],
        },
        "status": status,
    }))
}

fn address(status: &Value, version: u32) -> Observed {
    let holder = json!({"kind": "Service", "namespace": "shop", "name": "web", "uid": "web",
        "ports": [{"protocol": "TCP", "port": 80}]});
    testing::address(json!({
        "metadata": {"name": AT.to_string(), "uid": "a", "resourceVersion": version.to_string()},
        "spec": {"pool": "public", "holders": [holder]}, "status": status,
    }))
}

/// A leader whose Service has an address alone.
fn leader(more: impl IntoIterator<Item = Observed>) -> (State, Uptime) {
    let now = Uptime::default();
    let config = Config { default_class: true, ..Config::default() };
    let mut state = State::new(config, Default::default());
    let pool = testing::pool(json!({
        "metadata": {"name": "public", "uid": "p", "resourceVersion": "1"},
        "spec": {"addresses": ["192.0.2.0/24"]},
    }));
    let all = [pool, service(&json!({}), 1), address(&json!({}), 1)];
    all.into_iter().chain(more).for_each(|it| state.observe(it, now));
    testing::listed().into_iter().for_each(|it| state.observe(it, now));
    assert!(state.is_complete());
    state.at(Timestamp::UNIX_EPOCH, true);
    state.decide(now);
    (state, now)
}

/// The write of the status of the Address: the version that it replaces, and the field.
fn told(state: &mut State, now: Uptime) -> Option<(Value, Value)> {
    match state.next(&Target::Announced(AT), now, Timestamp::UNIX_EPOCH) {
        Next::Write(Write::Announced(AT, patch), _) => Some((
            patch["metadata"]["resourceVersion"].clone(),
            patch["status"]["announcedBy"].clone(),
        )),
        Next::Nothing => None,
        other => panic!("{other:?}"),
    }
}

/// What the next write of the Service says in the condition: whether it holds, and the message.
fn condition(state: &mut State, now: Uptime) -> Option<(Value, Value)> {
    let target = Target::Consumer(ConsumerKind::Service, ObjectKey::new("shop", "web"));
    let next = state.next(&target, now, Timestamp::UNIX_EPOCH);
    let Next::Write(Write::Consumer(_, _, patch), _) = next else { panic!("{next:?}") };
    let conditions = patch["status"]["conditions"].as_array().unwrap();
    let ours = conditions.iter().find(|it| it["type"] == names::CONDITION_SERVICE_ANNOUNCED)?;
    Some((ours["status"].clone(), ours["message"].clone()))
}

fn services(state: &State) -> bool {
    let target = Target::Consumer(ConsumerKind::Service, ObjectKey::new("shop", "web"));
    state.outbox.has(&target)
}

#[test]
fn an_address_and_its_service_tell_who_announces_it_until_no_node_does() {
    let (mut state, now) = leader([]);
    assert_eq!((told(&mut state, now), condition(&mut state, now)), (None, None));
    state.observe(speaker("a", 1, &[]), now);
    assert!(services(&state), "the first speaker concerns every Service");
    let silent = (json!("False"), json!("no node announces 192.0.2.7"));
    assert_eq!((told(&mut state, now), condition(&mut state, now)), (None, Some(silent)));
    state.observe(speaker("a", 2, &[AT]), now);
    let by =
        |nodes: &[&str]| json!({"owner": null, "bgpNodes": nodes.len(), "firstBGPNodes": nodes});
    assert!(state.outbox.has(&Target::Announced(AT)));
    assert_eq!(told(&mut state, now), Some((json!("1"), by(&["a"]))));
    let announced = (json!("True"), json!("192.0.2.7 is announced by BGP"));
    assert_eq!(condition(&mut state, now), Some(announced.clone()));
    state.observe(address(&json!({"announcedBy": by(&["a"])}), 2), now);
    assert_eq!(told(&mut state, now), None, "the status says so");
    // Another node changes the Address, and no Service.
    state.observe(speaker("b", 1, &[AT]), now);
    assert_eq!(told(&mut state, now), Some((json!("2"), by(&["a", "b"]))));
    assert_eq!(condition(&mut state, now), Some(announced));
    for node in ["a", "b"] {
        state.observe(speaker(node, 3, &[]), now);
    }
    assert_eq!(told(&mut state, now), Some((json!("2"), Value::Null)));
}

#[test]
fn a_host_that_claims_an_address_is_an_event_of_its_service() {
    use bowline_core::report::speaker::OnLinks;
    let claimed = |node: &str| {
        let links =
            OnLinks { conflicts: [(AT, "02:00:00:00:99:99".into())].into(), ..OnLinks::default() };
        let Observed::Lease(Seen::Apply(mut seen)) = speaker(node, 1, &[]) else { panic!("one") };
        let lease = seen.speaker.as_mut().unwrap();
        lease.report = lease.report.take().map(|it| it.on_links(links));
        Observed::Lease(Seen::Apply(seen))
    };
    let (mut state, now) = leader([]);
    state.outbox.take_events();
    state.observe(claimed("a"), now);
    let events = state.outbox.take_events();
    let [event] = &events[..] else { panic!("{events:?}") };
    assert_eq!(&*event.reason, "AddressConflict");
    let said = &event.message;
    assert!(said.contains("host 02:00:00:00:99:99 claims 192.0.2.7"), "{said}");
    assert!(said.contains("What helps: find the host"), "{said}");
    state.observe(claimed("b"), now);
    assert_eq!(state.outbox.take_events(), [], "each node of the segment sees the host");
}

#[test]
fn of_many_nodes_five_are_named() {
    let nodes: Vec<_> = (0..9).map(|n| format!("n{n}")).collect();
    let (mut state, now) = leader(nodes.iter().map(|node| speaker(node, 1, &[AT])));
    let first: Vec<_> = nodes.iter().take(5).collect();
    let expected = json!({"owner": null, "bgpNodes": 9, "firstBGPNodes": first});
    assert_eq!(told(&mut state, now), Some((json!("1"), expected)));
}

#[test]
fn without_speakers_the_condition_goes() {
    let (mut state, now) = leader([speaker("a", 1, &[AT])]);
    assert!(condition(&mut state, now).is_some());
    let later = now + Duration::from_secs(60);
    state.tick(later);
    assert!(services(&state));
    assert_eq!(condition(&mut state, later), None);
}

#[test]
fn of_an_address_of_no_pool_it_is_told_only_that_it_is_announced() {
    let at: IpAddr = [198, 51, 100, 1].into();
    let own = |state: &State| state.announced_condition(&[Point::At(at)]).map(|it| it.holds);
    let held = testing::address(json!({
        "metadata": {"name": at.to_string(), "uid": "o", "resourceVersion": "1"},
        "spec": {"holders": [{"kind": "LoadBalancer", "name": "edge", "uid": "edge"}]},
    }));
    let (mut state, now) = leader([held, speaker("a", 1, &[])]);
    assert_eq!(own(&state), None, "the machine may have it by itself");
    state.observe(speaker("a", 2, &[at]), now);
    assert_eq!(own(&state), Some(true));
}
