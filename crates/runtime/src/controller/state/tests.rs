//! Tests of the controller's state: events in, writes out.

mod addresses;
mod announced;
mod bindings;
mod contended;
mod ended;
mod provisions;

use super::*;
use crate::controller::observed::{CookiesSeen, LeaseSeen, Observed};
use crate::controller::shown::{LoadBalancerShown, Shown};
use crate::controller::target::Next;
use crate::controller::testing;
use crate::controller::writer::{Reply, Status, Write};
use crate::watch::Seen;
use bowline_api::names;
use bowline_core::announce::SpeakerLease;
use bowline_core::load_balancer_status_writes::GAP;
use bowline_core::replicas::{Entry, Said};
use bowline_core::status;
use serde_json::{Value, json};

fn load_balancer(version: u32, status: &Value) -> Value {
    let metadata = json!({"name": "edge", "uid": "u", "resourceVersion": version.to_string()});
    let spec = json!({"builtin": {}, "addresses": ["192.0.2.1"]});
    json!({"metadata": metadata, "spec": spec, "status": status})
}

/// The status that a merge patch produces from an empty one.
fn merged(patch: &Value) -> Value {
    let fields = patch["status"].as_object().unwrap().iter().filter(|(_, value)| !value.is_null());
    fields.map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn shown(object: Value) -> Shown<LoadBalancerShown> {
    testing::seen_load_balancer(object).shown
}

/// A state that has observed the load balancer at this time.
fn with_load_balancer(now: Uptime) -> State {
    let mut state = State::new(Config::default(), Default::default());
    state.observe(testing::load_balancer(load_balancer(1, &json!({}))), now);
    state.decide(now);
    state
}

fn cookies(version: u32, owner: &str, data: &Value) -> CookiesSeen {
    let owner = json!({
        "apiVersion": "bowline.dev/v1alpha1", "kind": "LoadBalancer", "name": "edge", "uid": owner,
    });
    let metadata = json!({
        "name": "bowline-cookies-edge", "resourceVersion": version.to_string(),
        "labels": {names::LABEL_LOAD_BALANCER: "edge"}, "ownerReferences": [owner],
    });
    let secret = json!({
        "metadata": metadata, "type": names::SECRET_TYPE_COOKIES, "data": data,
    });
    CookiesSeen::of(&serde_json::from_value(secret).unwrap())
}

/// The write of the cookie Secret: the version that it replaces, and whether it writes a new key.
fn cookies_write(state: &mut State, now: Uptime) -> Option<(Option<String>, bool)> {
    match state.next(&Target::Cookies("edge".into()), now, Timestamp::UNIX_EPOCH) {
        Next::Write(Write::Cookies(write), _) => Some((write.version, write.anew)),
        Next::Nothing => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_cookies_are_signed_with_is_made_once_and_anew_only_where_it_is_lost() {
    let now = Uptime::default();
    let mut state = with_load_balancer(now);
    assert!(state.outbox.has(&Target::Cookies("edge".into())));
    assert_eq!(cookies_write(&mut state, now), Some((None, true)));
    let good = json!({"secret": "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="});
    let short = json!({"secret": "AAAA"});
    let apply =
        |version, owner, data| Observed::Cookies(Seen::Apply(cookies(version, owner, data)));
    state.observe(apply(1, "u", &good), now);
    assert_eq!(cookies_write(&mut state, now), None);
    // The Secret belonged to another load balancer of this name: the key stays, so clients keep their
    // cookies.
    state.observe(apply(2, "before", &good), now);
    assert_eq!(cookies_write(&mut state, now), Some((Some("2".to_owned()), false)));
    state.observe(apply(3, "u", &short), now);
    assert_eq!(cookies_write(&mut state, now), Some((Some("3".to_owned()), true)));
    state.observe(apply(4, "u", &good), now);
    _ = state.outbox.take_targets();
    state.observe(Observed::Cookies(Seen::Begin), now);
    state.observe(Observed::Cookies(Seen::Done), now);
    assert!(state.outbox.has(&Target::Cookies("edge".into())));
    assert_eq!(cookies_write(&mut state, now), Some((None, true)));
}

fn lease(name: &str, hash: bool) -> LeaseSeen {
    let hash = hash.then(bowline_core::hash::PlanHash::default);
    let entry = Entry {
        agent: "a".into(),
        renewed: "now".into(),
        lasts: Duration::from_secs(10),
        left: None,
        whole: false,
        said: Said { hash, ..Said::default() },
    };
    LeaseSeen { name: name.to_owned(), entries: vec![entry], speaker: None }
}

#[test]
fn an_agent_whose_lease_went_while_nobody_watched_is_forgotten_with_the_next_list() {
    let now = Uptime::default();
    let mut state = with_load_balancer(now);
    let list = |state: &mut State, leases: Vec<LeaseSeen>| {
        state.observe(Observed::Lease(Seen::Begin), now);
        leases.into_iter().for_each(|it| state.observe(Observed::Lease(Seen::Apply(it)), now));
        _ = state.outbox.take_targets();
        state.observe(Observed::Lease(Seen::Done), now);
    };
    let verdict = |state: &State| state.verdict(&"edge".into(), now).unwrap();
    list(&mut state, vec![lease("bowline-agent-edge", true), lease("bowline-agent-other", true)]);
    let with = verdict(&state);
    assert_eq!(state.outbox.take_targets(), BTreeSet::new());
    list(&mut state, vec![lease("bowline-agent-other", true)]);
    assert_ne!(verdict(&state), with);
    assert_eq!(state.outbox.take_targets(), [Target::LoadBalancer("edge".into())].into());
    assert_eq!(state.agents.leases().collect::<Vec<_>>(), ["bowline-agent-other"]);
}

#[test]
fn a_load_balancer_that_a_list_does_not_show_is_forgotten_with_its_agents() {
    let now = Uptime::default();
    let mut state = with_load_balancer(now);
    state.observe(Observed::LoadBalancer(Seen::Begin), now);
    state.observe(Observed::LoadBalancer(Seen::Done), now);
    assert!(state.outbox.take_targets().contains(&Target::Plans("edge".into())));
    state.observe(Observed::Lease(Seen::Apply(lease("bowline-agent-edge", true))), now);
    assert_eq!(state.outbox.take_targets(), BTreeSet::new(), "no load balancer has this Lease");
}

#[test]
fn a_class_that_a_list_does_not_show_is_forgotten() {
    let (mut state, now) = (State::new(Config::default(), Default::default()), Uptime::default());
    let class = json!({"metadata": {"name": "bronze"}, "spec": {"builtin": {}}});
    state.observe(testing::class(class), now);
    assert!(state.bindings.class("bronze").is_some());
    state.observe(Observed::Class(Seen::Begin), now);
    state.observe(Observed::Class(Seen::Done), now);
    assert!(state.bindings.class("bronze").is_none());
}

#[test]
fn the_agent_of_a_load_balancer_that_we_make_is_heard_whether_answer_or_watch_is_first() {
    let now = Uptime::default();
    let (mut state, new) =
        (State::new(Config::default(), Default::default()), load_balancer(1, &json!({})));
    state.put_load_balancer(&"edge".into(), shown(new.clone()));
    state.observe(testing::load_balancer(new), now);
    state.decide(now);
    _ = state.outbox.take_targets();
    state.observe(Observed::Lease(Seen::Apply(lease("bowline-agent-edge", true))), now);
    assert_eq!(state.outbox.take_targets(), [Target::LoadBalancer("edge".into())].into());
    assert_eq!(status::waiting(state.verdict(&"edge".into(), now).as_ref()), None);
}

#[test]
fn between_two_writes_of_a_status_the_consumers_are_not_gone_through() {
    let (mut state, now) = (State::new(Config::default(), Default::default()), Uptime::default());
    let target = Target::LoadBalancer("edge".into());
    state.observe(testing::load_balancer(load_balancer(1, &json!({}))), now);
    state.decide(now);
    let next = state.next(&target, now, Timestamp::UNIX_EPOCH);
    let Next::Write(Write::LoadBalancer(_, patch), _) = next else { panic!("{next:?}") };
    let after = Box::new(shown(load_balancer(2, &merged(&patch))));
    state.wrote(&target, Reply::Status(Status::LoadBalancer(after)), now);
    for _ in 0..3 {
        let next = state.next(&target, now, Timestamp::UNIX_EPOCH);
        assert!(matches!(next, Next::Later(at) if at == now + GAP), "{next:?}");
    }
    assert_eq!(state.walks, 1);
    let next = state.next(&target, now + GAP, Timestamp::UNIX_EPOCH);
    assert!(matches!(next, Next::Nothing), "{next:?}");
    assert_eq!(state.walks, 2);
}

#[test]
fn the_answer_to_a_write_brings_no_load_balancer_back_that_was_told_gone() {
    let now = Uptime::default();
    let mut state = with_load_balancer(now);
    let old = load_balancer(2, &json!({}));
    state.observe(testing::deleted_load_balancer(old.clone()), now);
    let target = Target::LoadBalancer("edge".into());
    let answer = Reply::Status(Status::LoadBalancer(Box::new(shown(old))));
    state.wrote(&target, answer, now);
    assert_eq!(state.boards.load_balancers.get(&"edge".into()), None);
}
