//! Where clients reach a provisioned load balancer, from what was read of its Service.

use super::*;
use crate::controller::writer::provisions::Provisioned;
use bowline_core::outcome;
use bowline_core::provision::{Reach, Standing};
use std::net::IpAddr;

const LB: &str = "lbc-1";

fn load_balancer(ingress: &Value) -> Observed {
    testing::load_balancer(json!({
        "metadata": {
            "name": LB, "uid": "u", "resourceVersion": "1",
            "annotations": {
                names::ANNOTATION_PROVISIONED_FOR: "shop/web/c",
                names::ANNOTATION_PROXY_NAMESPACE: "ours",
            },
        },
        "spec": {"builtin": {}, "className": "bronze", "allowedNamespaces": {"from": "All"}},
        "status": {"ingress": ingress},
    }))
}

/// A state that has observed the load balancer, its class, and a Service on it; its status shows
/// this.
fn state(ingress: &Value, now: Uptime) -> State {
    let mut state = State::new(Config::default(), Default::default());
    let class = json!({"metadata": {"name": "bronze"}, "spec": {"builtin": {}}});
    state.observe(testing::class(class), now);
    state.observe(load_balancer(ingress), now);
    let service = testing::service(json!({
        "metadata": {
            "name": "x", "namespace": "shop", "uid": "x", "resourceVersion": "1",
            "annotations": {"bowline.dev/load-balancer": LB},
        },
        "spec": {
            "type": "LoadBalancer", "loadBalancerClass": "bowline.dev/lb",
            "ports": [{"port": 80, "protocol": "TCP"}], "ipFamilies": ["IPv6"],
        },
    }));
    state.observe(service, now);
    state.decide(now);
    let looks = state.next(&Target::Provision(LB.into()), now, Timestamp::UNIX_EPOCH);
    assert!(matches!(looks, Next::Write(Write::Provision(_), _)), "{looks:?}");
    state
}

/// The load balancer's objects were read: clients reach it like this.
fn look(state: &mut State, reach: Option<Reach>, now: Uptime) {
    state.provisioned(&LB.into(), &Provisioned { standing: Standing::Ready, reach }, now);
    state.decide(now);
}

/// The ingress points that the next status write shows.
fn shows(state: &mut State, now: Uptime) -> Value {
    match state.next(&Target::LoadBalancer(LB.into()), now, Timestamp::UNIX_EPOCH) {
        Next::Write(Write::LoadBalancer(_, patch), _) => patch["status"]["ingress"].clone(),
        other => panic!("{other:?}"),
    }
}

fn served(state: &State) -> Option<Vec<IpAddr>> {
    let key = ObjectKey::new("shop", "x");
    match &state.planner.outcome(ConsumerKind::Service, &key)?.state {
        outcome::State::Planned { addresses, .. } => Some(addresses.clone()),
        outcome::State::Refused { .. } => None,
    }
}

fn at(addresses: &[&str]) -> Reach {
    let addresses = addresses.iter().map(|it| it.parse().unwrap()).collect();
    Reach { addresses, hostnames: Vec::new() }
}

#[test]
fn an_address_that_its_service_lost_is_the_load_balancers_no_longer() {
    let now = Uptime::default();
    let mut state = state(&json!([{"ip": "2001:db8::7"}]), now);
    let seven: Vec<IpAddr> = vec!["2001:db8::7".parse().unwrap()];
    assert_eq!(served(&state), Some(seven.clone()), "what it had before a restart");
    look(&mut state, None, now);
    assert_eq!(served(&state), Some(seven), "what could not be read says nothing");
    look(&mut state, Some(at(&["2001:db8::8"])), now);
    assert_eq!(served(&state), Some(vec!["2001:db8::8".parse().unwrap()]));
    look(&mut state, Some(at(&[])), now);
    assert_eq!(served(&state), None);
    assert_eq!(shows(&mut state, now), Value::Null);
}

#[test]
fn it_is_reached_by_the_host_name_of_its_service_where_that_has_no_address() {
    let now = Uptime::default();
    let mut state = state(&Value::Array(Vec::new()), now);
    let named = |name: &str| Reach { addresses: Vec::new(), hostnames: vec![name.into()] };
    look(&mut state, Some(named("a.cloud.example")), now);
    assert_eq!(served(&state), Some(vec![bowline_core::plan::BY_NAME]));
    let consumer = Target::Consumer(ConsumerKind::Service, ObjectKey::new("shop", "x"));
    _ = state.outbox.take_targets();
    look(&mut state, Some(named("b.cloud.example")), now);
    assert!(state.outbox.has(&consumer), "it shows another name");
    assert_eq!(shows(&mut state, now), json!([{"hostname": "b.cloud.example"}]));
}

#[test]
fn a_host_name_that_was_shown_counts_after_a_restart() {
    let now = Uptime::default();
    let mut state = state(&json!([{"hostname": "a.cloud.example"}]), now);
    assert_eq!(served(&state), Some(vec![bowline_core::plan::BY_NAME]));
    assert_eq!(shows(&mut state, now), json!([{"hostname": "a.cloud.example"}]));
}
