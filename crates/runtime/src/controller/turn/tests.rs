//! Tests of the turn, with writes that reach no API.

use super::super::write_queue::{MOST_RECORDS, MOST_WRITES};
use super::*;
use crate::controller::observed::CookiesSeen;
use crate::controller::testing;
use crate::event_recorder;
use crate::watch::Seen;
use bowline_api::names;
use bowline_core::planner::Config;
use kube::{Client, Error};
use serde_json::json;

/// The turn of a leader whose writes reach no API.
fn leader() -> Turn {
    let server = kube::Config::new("http://127.0.0.1:9".parse().unwrap());
    let client = Client::try_from(server).unwrap();
    let context = Context::new().0;
    context.readiness.awaits(FIRST_PLAN);
    let (recorder, _) = event_recorder::start(
        client.clone(),
        names::MANAGER_CONTROLLER,
        "a".to_owned(),
        context.metrics.clone(),
    );
    let writer = Writer { client, namespace: names::NAMESPACE.to_owned() };
    let (state, names) =
        (State::new(Config::default(), Default::default()), mpsc::unbounded_channel().0);
    let leadership = Leadership::always();
    Turn { led: true, ..Turn::new(state, writer, leadership, recorder, names, context) }
}

fn load_balancer(name: &str) -> Observed {
    testing::load_balancer(json!({
        "metadata": {"name": name, "uid": "u", "resourceVersion": "1"},
        "spec": {"builtin": {}, "addresses": ["192.0.2.1"]},
    }))
}

fn cookies_of(name: &str) -> Observed {
    let secret = json!({"metadata": {"name": names::cookies_secret(name), "resourceVersion": "1"}});
    Observed::Cookies(Seen::Apply(CookiesSeen::of(&serde_json::from_value(secret).unwrap())))
}

#[tokio::test]
async fn it_is_not_ready_while_cookie_secrets_hold_up_the_first_plans() {
    let (mut turn, now) = (leader(), Uptime::default());
    for index in 0..=MOST_WRITES {
        turn.state.observe(load_balancer(&format!("edge-{index}")), now);
    }
    turn.state.decide(now);
    turn.write(now);
    let cookies = |target: &&Target| matches!(target, Target::Cookies(_));
    assert_eq!(turn.busy.keys().filter(cookies).count(), MOST_RECORDS);
    assert!(!turn.busy.keys().any(write_queue::is_awaited));
    assert_eq!(turn.context.readiness.missing(), [FIRST_PLAN]);
    // The writes have ended, there is nothing to plan, and the missing cookie Secret does not block
    // readiness.
    turn.busy.clear();
    turn.write(now);
    assert!(turn.busy.keys().any(|target| matches!(target, Target::Cookies(_))));
    assert_eq!(turn.context.readiness.missing(), [""; 0]);
}

#[tokio::test]
async fn what_the_watch_shows_of_a_cookie_secret_ends_the_waiting_and_its_growth() {
    let (mut turn, now) = (leader(), Uptime::default());
    turn.state.observe(load_balancer("edge"), now);
    turn.state.decide(now);
    turn.write(now);
    let target = Target::Cookies("edge".into());
    assert!(turn.busy.contains_key(&target));
    let broken = Failure::Other(Error::LinesCodecMaxLineLengthExceeded);
    turn.ended((target.clone(), Err(broken)));
    assert_eq!((turn.waiting.is_held(&target), turn.backoffs.len()), (true, 1));
    turn.release(&cookies_of("edge"));
    assert_eq!((turn.waiting.is_held(&target), turn.backoffs.len()), (false, 0));
    assert!(turn.state.outbox.has(&target));
}

/// A LoadBalancer that a class provisioned in a cluster.
fn made(name: &str) -> Observed {
    testing::load_balancer(json!({
        "metadata": {
            "name": name, "uid": "u", "resourceVersion": "1",
            "annotations": {
                names::ANNOTATION_PROVISIONED_FOR: "shop/web/c",
                names::ANNOTATION_PROXY_NAMESPACE: "ours",
            },
        },
        "spec": {"builtin": {}, "className": "bronze"},
    }))
}

#[tokio::test]
async fn what_classes_make_leaves_room_for_everything_else() {
    let (mut turn, now) = (leader(), Uptime::default());
    let class = json!({"metadata": {"name": "bronze"}, "spec": {"builtin": {}}});
    turn.state.observe(testing::class(class), now);
    for index in 0..=MOST_WRITES {
        turn.state.observe(made(&format!("lbc-{index}")), now);
    }
    turn.state.decide(now);
    let makes = |target: &Target| matches!(target, Target::Provision(_));
    let made = turn.state.outbox.take_targets().into_iter().filter(makes);
    turn.state.outbox.enqueue_all(made.collect::<Vec<_>>());
    turn.write(now);
    assert_eq!(turn.busy.len(), 4);
    assert!(turn.busy.keys().all(makes));
    turn.state.observe(load_balancer("edge"), now);
    turn.state.decide(now);
    turn.write(now);
    assert!(turn.busy.contains_key(&Target::Cookies("edge".into())));
    assert_eq!(turn.busy.keys().filter(|target| makes(target)).count(), 4);
}
