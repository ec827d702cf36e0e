use super::*;
use crate::controller::shown::Shown;
use bowline_api::{LoadBalancer, convert};
use serde_json::{Value, json};

fn load_balancer(version: u32, status: &Value) -> LoadBalancer {
    let metadata = json!({"name": "edge", "uid": "u", "resourceVersion": version.to_string()});
    let spec = json!({"builtin": {}, "addresses": ["192.0.2.1"]});
    let object = json!({
        "apiVersion": "bowline.dev/v1alpha1", "kind": "LoadBalancer",
        "metadata": metadata, "spec": spec, "status": status,
    });
    serde_json::from_value(object).unwrap()
}

/// The status that a merge patch leads to where there was none.
fn merged(patch: &Value) -> Value {
    let fields = patch["status"].as_object().unwrap().iter().filter(|(_, value)| !value.is_null());
    fields.map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn shown(it: &LoadBalancer) -> Status {
    Status::LoadBalancer(Box::new(Shown::<LoadBalancerShown>::of(it)))
}

#[test]
fn between_two_writes_of_a_status_the_consumers_are_not_gone_through() {
    let (mut state, now) = (State::new(Config::default()), Instant::now());
    let target = Target::LoadBalancer("edge".into());
    let new = load_balancer(1, &json!({}));
    let object = Box::new(Object::LoadBalancer(convert::load_balancer(&new)));
    state.hear(Heard::Planner(Event::Apply(object), Some(shown(&new))), now);
    state.settle(now);
    let next = state.next(&target, now, Timestamp::UNIX_EPOCH);
    let Next::Write(Write::LoadBalancer(_, patch), _) = next else { panic!("{next:?}") };
    state.wrote(&target, Written::Status(shown(&load_balancer(2, &merged(&patch)))), now);
    for _ in 0..3 {
        let next = state.next(&target, now, Timestamp::UNIX_EPOCH);
        assert!(matches!(next, Next::Later(at) if at == now + GAP), "{next:?}");
    }
    assert_eq!(state.walks, 1);
    let next = state.next(&target, now + GAP, Timestamp::UNIX_EPOCH);
    assert!(matches!(next, Next::Nothing), "{next:?}");
    assert_eq!(state.walks, 2);
}
