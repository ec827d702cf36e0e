use super::work::{MOST_RECORDS, MOST_WRITES};
use super::*;
use crate::controller::inputs::{CookiesSeen, Status};
use crate::controller::shown::{LoadBalancerShown, Shown};
use crate::watch::Seen;
use bowline_api::{LoadBalancer, convert, names};
use bowline_core::planner::{Event, Object};

/// A controller that leads. Nobody carries out what it writes.
fn leader() -> Controller {
    let server = kube::Config::new("http://127.0.0.1:9".parse().unwrap());
    let client = Client::try_from(server).unwrap();
    let context = Context::new().0;
    context.readiness.awaits(FIRST_PLAN);
    let (announcements, _) = announcer::start(
        client.clone(),
        names::MANAGER_CONTROLLER,
        "a".to_owned(),
        context.metrics.clone(),
    );
    Controller {
        state: State::new(Config::default(), Default::default()),
        writer: Writer { client, namespace: names::NAMESPACE.to_owned() },
        leadership: Leadership::always(),
        announcements,
        names: mpsc::unbounded_channel().0,
        context,
        writing: FuturesUnordered::new(),
        busy: HashMap::new(),
        work: Work::default(),
        waiting: Waiting::default(),
        backoffs: HashMap::new(),
        led: true,
    }
}

fn load_balancer(name: &str) -> Heard {
    let object: LoadBalancer = serde_json::from_value(json!({
        "apiVersion": "bowline.dev/v1alpha1", "kind": "LoadBalancer",
        "metadata": {"name": name, "uid": "u", "resourceVersion": "1"},
        "spec": {"builtin": {}, "addresses": ["192.0.2.1"]},
    }))
    .unwrap();
    let status = Status::LoadBalancer(Box::new(Shown::<LoadBalancerShown>::of(&object)));
    let object = Object::LoadBalancer(convert::load_balancer(&object));
    Heard::Planner(Event::Apply(Box::new(object)), Some(status))
}

fn cookies_of(name: &str) -> Heard {
    let secret = json!({"metadata": {"name": names::cookies_secret(name), "resourceVersion": "1"}});
    Heard::Cookies(Seen::Apply(CookiesSeen::of(&serde_json::from_value(secret).unwrap())))
}

#[tokio::test]
async fn it_is_not_ready_while_cookie_secrets_hold_up_the_first_plans() {
    let (mut controller, now) = (leader(), Instant::now());
    for index in 0..=MOST_WRITES {
        controller.state.hear(load_balancer(&format!("edge-{index}")), now);
    }
    controller.state.settle(now);
    controller.write(now);
    let cookies = |target: &&Target| matches!(target, Target::Cookies(_));
    assert_eq!(controller.busy.keys().filter(cookies).count(), MOST_RECORDS);
    assert!(!controller.busy.keys().any(work::is_awaited));
    assert_eq!(controller.context.readiness.missing(), [FIRST_PLAN]);
    // The writes have ended, there is nothing to plan, and the last cookie secret holds nothing up.
    controller.busy.clear();
    controller.write(now);
    assert!(controller.busy.keys().any(|target| matches!(target, Target::Cookies(_))));
    assert_eq!(controller.context.readiness.missing(), [""; 0]);
}

#[tokio::test]
async fn what_the_watch_shows_of_a_cookie_secret_ends_the_waiting_and_its_growth() {
    let (mut controller, now) = (leader(), Instant::now());
    controller.state.hear(load_balancer("edge"), now);
    controller.state.settle(now);
    controller.write(now);
    let target = Target::Cookies("edge".into());
    assert!(controller.busy.contains_key(&target));
    let broken = Failure::Other(Error::LinesCodecMaxLineLengthExceeded);
    controller.ended((target.clone(), Err(broken)));
    assert_eq!((controller.waiting.is_held(&target), controller.backoffs.len()), (true, 1));
    controller.release(&cookies_of("edge"));
    assert_eq!((controller.waiting.is_held(&target), controller.backoffs.len()), (false, 0));
    assert!(controller.state.dirty.contains(&target));
}

/// A class, or a load balancer that it made in a cluster.
fn made(name: &str) -> Heard {
    let object: LoadBalancer = serde_json::from_value(json!({
        "apiVersion": "bowline.dev/v1alpha1", "kind": "LoadBalancer",
        "metadata": {
            "name": name, "uid": "u", "resourceVersion": "1",
            "annotations": {
                names::ANNOTATION_PROVISIONED_FOR: "shop/web/c",
                names::ANNOTATION_PROXY_NAMESPACE: "ours",
            },
        },
        "spec": {"builtin": {}, "className": "bronze"},
    }))
    .unwrap();
    let status = Status::LoadBalancer(Box::new(Shown::<LoadBalancerShown>::of(&object)));
    let object = Object::LoadBalancer(convert::load_balancer(&object));
    Heard::Planner(Event::Apply(Box::new(object)), Some(status))
}

#[tokio::test]
async fn what_classes_make_leaves_room_for_everything_else() {
    let (mut controller, now) = (leader(), Instant::now());
    let class: bowline_api::LoadBalancerClass = serde_json::from_value(json!({
        "apiVersion": "bowline.dev/v1alpha1", "kind": "LoadBalancerClass",
        "metadata": {"name": "bronze"}, "spec": {"builtin": {}},
    }))
    .unwrap();
    let known = (convert::class(&class), std::sync::Arc::new(class.spec.clone()));
    controller.state.hear(Heard::Class(Seen::Apply(known)), now);
    for index in 0..=MOST_WRITES {
        controller.state.hear(made(&format!("lbc-{index}")), now);
    }
    controller.state.settle(now);
    let makes = |target: &Target| matches!(target, Target::Provision(_));
    controller.state.dirty.retain(makes);
    controller.write(now);
    assert_eq!(controller.busy.len(), 4);
    assert!(controller.busy.keys().all(makes));
    controller.state.hear(load_balancer("edge"), now);
    controller.state.settle(now);
    controller.write(now);
    assert!(controller.busy.contains_key(&Target::Cookies("edge".into())));
    assert_eq!(controller.busy.keys().filter(|target| makes(target)).count(), 4);
}
