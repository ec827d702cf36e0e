//! Tests of what `bowline up` prints of claims and pools that are deleted.

use super::*;
use crate::controller::kinds::{KindSeen, ObjectSeen, StatusKind};
use bowline_api::AddressPool;

fn condition(type_: &str, reason: &str) -> Value {
    json!({
        "type": type_, "status": "True", "reason": reason, "message": "as it should be",
        "lastTransitionTime": "1970-01-01T00:00:00Z",
    })
}

fn pool(version: u32, deleting: bool) -> Box<ObjectSeen<<AddressPool as StatusKind>::Shown>> {
    let at = deleting.then_some("1970-01-01T00:00:00Z");
    let metadata = json!({
        "name": "public", "uid": "p", "resourceVersion": version.to_string(), "deletionTimestamp": at,
    });
    let status = json!({"conditions": [condition("Used", "Used")], "ipv4": {
        "assigned": 0, "resting": 0, "available": 9,
    }});
    let pool = json!({
        "apiVersion": "bowline.dev/v1alpha1", "kind": "AddressPool", "metadata": metadata,
        "spec": {"addresses": ["192.0.2.0/28"]}, "status": status,
    });
    ObjectSeen::of::<AddressPool>(&serde_json::from_value(pool).unwrap())
}

fn claim() -> Box<crate::controller::observed::ClaimSeen> {
    Box::new(testing::seen_claim(json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "c", "resourceVersion": "1"},
        "spec": {},
        "status": {
            "phase": "Bound", "loadBalancerName": "edge", "conditions": [condition("Bound", "Bound")],
        },
    })))
}

/// The lines after these events.
fn lines_of(state: &mut State, events: Vec<Observed>) -> Vec<String> {
    events.into_iter().for_each(|event| state.observe(event, Uptime::default()));
    state.outbox.take_changes().iter().map(ToString::to_string).collect()
}

const ENDS: [&str; 2] = ["LoadBalancerClaim shop/web is deleted", "AddressPool public is deleted"];

fn with_both() -> State {
    let mut state = State::new(Config::default(), Default::default());
    let shown = vec![
        Observed::Claim(Seen::Apply(claim())),
        Observed::Object(KindSeen::AddressPool(Seen::Apply(pool(1, false)))),
    ];
    let lines = lines_of(&mut state, shown);
    let expected = [
        "LoadBalancerClaim shop/web is bound to load balancer edge",
        "AddressPool public grants addresses",
    ];
    assert_eq!(lines, expected);
    state
}

#[test]
fn the_end_of_a_claim_and_of_a_pool_is_told() {
    let mut state = with_both();
    let events = vec![
        Observed::Claim(Seen::Delete(claim())),
        Observed::Object(KindSeen::AddressPool(Seen::Apply(pool(2, true)))),
        Observed::Object(KindSeen::AddressPool(Seen::Delete(pool(3, true)))),
    ];
    assert_eq!(lines_of(&mut state, events), ENDS);
    assert_eq!(lines_of(&mut state, vec![Observed::Claim(Seen::Delete(claim()))]), [""; 0]);
}

#[test]
fn the_end_of_a_claim_and_of_a_pool_that_a_list_does_not_show_is_told() {
    let mut state = with_both();
    let events = vec![
        Observed::Claim(Seen::Begin),
        Observed::Claim(Seen::Done),
        Observed::Object(KindSeen::AddressPool(Seen::Begin)),
        Observed::Object(KindSeen::AddressPool(Seen::Done)),
    ];
    assert_eq!(lines_of(&mut state, events), ENDS);
}

#[test]
fn the_end_of_a_claim_of_which_nothing_was_told_is_not_told() {
    let mut state = State::new(Config::default(), Default::default());
    let claim = json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "c", "resourceVersion": "1"}, "spec": {},
    });
    let seen = || Box::new(testing::seen_claim(claim.clone()));
    let events = vec![Observed::Claim(Seen::Apply(seen())), Observed::Claim(Seen::Delete(seen()))];
    assert_eq!(lines_of(&mut state, events), [""; 0]);
}
