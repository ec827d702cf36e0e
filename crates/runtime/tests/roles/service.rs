//! Tests a Service from its creation to its deletion, through controller and agent, over the
//! embedded API.

use crate::support::{
    Recorder, cluster, controller_options, create, eventually, load_balancer, service, slice,
    start_agent, start_controller,
};
use bowline_api::{LoadBalancer, Plan};
use bowline_core::key::{ConsumerKind, ConsumerRef};
use bowline_core::outcome::{Problem, Reason};
use bowline_core::update::{Extent, Refusal, Report};
use bowline_runtime::AgentOptions;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Service};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

fn services(client: &Client) -> Api<Service> {
    Api::namespaced(client.clone(), "default")
}

fn plans(client: &Client) -> Api<Plan> {
    Api::namespaced(client.clone(), "bowline-system")
}

async fn status(client: &Client, name: &str) -> Value {
    let service = services(client).get(name).await.unwrap();
    serde_json::to_value(service.status.unwrap_or_default()).unwrap()
}

async fn addressed(client: &Client, name: &str, address: &str) {
    let want = json!([{"ip": address, "ipMode": "Proxy"}]);
    eventually("the address in the status", || async {
        let status = status(client, name).await;
        if status["loadBalancer"]["ingress"] == want { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
}

async fn phase(client: &Client, want: &str) -> LoadBalancer {
    let api: Api<LoadBalancer> = Api::all(client.clone());
    eventually("the phase", || async {
        let lb = api.get("edge").await.map_err(|e| e.to_string())?;
        let phase = lb.status.as_ref().and_then(|status| status.phase);
        if phase.is_some_and(|phase| format!("{phase:?}") == want) {
            Ok(lb)
        } else {
            Err(format!("{:?}", lb.status))
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_becomes_a_plan_then_an_update_then_a_status() {
    let cluster = cluster().await;
    let client = cluster.client();
    let controller = start_controller(client.clone(), controller_options("a"));
    create(&client, load_balancer("127.0.0.1")).await;
    create(&client, service("web", 8080)).await;
    create(&client, slice("web", &["10.0.0.2", "10.0.0.3"])).await;
    let plan = eventually("a Plan", || async {
        let plans = plans(&client).list(&ListParams::default()).await.map_err(|e| e.to_string())?;
        plans.items.into_iter().next().ok_or_else(|| "none".to_owned())
    })
    .await;
    assert_eq!(plan.name_any(), "edge-0");
    assert_eq!(plan.spec.fragments.len(), 1);
    assert_eq!(plan.owner_references()[0].name, "edge");
    let pending = phase(&client, "Pending").await.status.unwrap();
    assert!(pending.message.unwrap().contains("bowline agent --load-balancer edge"));
    assert_eq!(status(&client, "web").await["loadBalancer"], json!({}), "not before it is served");

    let driver = Recorder::default();
    let agent = start_agent(client.clone(), AgentOptions::new("edge"), driver.clone());
    addressed(&client, "web", "127.0.0.1").await;
    let first = driver.updates.lock().unwrap()[0].clone();
    assert_eq!(first.listeners.len(), 1);
    assert_eq!(first.members[0].members.len(), 2);
    let running = phase(&client, "Running").await.status.unwrap();
    assert_eq!(running.consumers.len(), 1);
    assert_eq!(running.message, None);
    assert_eq!(controller.context.readiness.missing(), Vec::<String>::new());
    assert_eq!(agent.context.readiness.missing(), Vec::<String>::new());

    // A member is removed: only the slice is written, and the driver gets one small update.
    create(&client, slice("web", &["10.0.0.3"])).await;
    let last = eventually("the member gone", || async {
        let last = driver.updates.lock().unwrap().last().cloned().unwrap();
        if last.members.iter().any(|it| it.removed.len() == 1) {
            Ok(last)
        } else {
            Err(format!("{last:?}"))
        }
    })
    .await;
    assert_eq!((last.pools.len(), last.listeners.len()), (0, 0));

    // A status edited by hand is repaired.
    let broken = json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}});
    services(&client)
        .patch_status("web", &PatchParams::default(), &Patch::Merge(&broken))
        .await
        .unwrap();
    addressed(&client, "web", "127.0.0.1").await;

    // The Service is deleted, and its listener and its Plan are gone with it.
    services(&client).delete("web", &DeleteParams::default()).await.unwrap();
    eventually("no Plan", || async {
        let left = plans(&client).list(&ListParams::default()).await.map_err(|e| e.to_string())?;
        if left.items.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
    agent.stop().await;
    let status = phase(&client, "Pending").await.status.unwrap();
    assert!(status.message.unwrap().contains("bowline agent"));
    controller.stop().await;
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_agent_cannot_do_is_told_on_that_service_alone() {
    let cluster = cluster().await;
    let client = cluster.client();
    let controller = start_controller(client.clone(), controller_options("a"));
    create(&client, load_balancer("127.0.0.1")).await;
    create(&client, service("web", 8080)).await;
    create(&client, service("ssh", 22)).await;
    let uid = services(&client).get("ssh").await.unwrap().uid().unwrap();
    let driver = Recorder::default();
    *driver.report.lock().unwrap() = Report {
        refused: vec![Refusal {
            consumer: ConsumerRef {
                kind: ConsumerKind::Service,
                namespace: "default".into(),
                name: "ssh".into(),
                uid: uid.into(),
            },
            problem: Problem::new(Reason::BindFailed, "127.0.0.1:22: address in use"),
            extent: Extent::All,
        }],
        ..Report::default()
    };
    let agent = start_agent(client.clone(), AgentOptions::new("edge"), driver.clone());
    addressed(&client, "web", "127.0.0.1").await;
    eventually("the condition", || async {
        let status = status(&client, "ssh").await;
        let condition = &status["conditions"][0];
        if condition["reason"] == "BindFailed" && status["loadBalancer"] == json!({}) {
            Ok(())
        } else {
            Err(status.to_string())
        }
    })
    .await;
    let events: Api<Event> = Api::namespaced(client.clone(), "default");
    eventually("a Warning", || async {
        let events = events.list(&ListParams::default()).await.map_err(|e| e.to_string())?;
        let about = |event: &Event| event.reason.as_deref() == Some("BindFailed");
        if events.items.iter().any(about) { Ok(()) } else { Err(format!("{events:?}")) }
    })
    .await;
    eventually("the list of refusals", || async {
        let refused = phase(&client, "Running").await.status.unwrap().refused;
        if refused.len() == 1 { Ok(()) } else { Err(format!("{refused:?}")) }
    })
    .await;
    agent.stop().await;
    controller.stop().await;
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_fails_gets_everything_again_until_it_works() {
    let cluster = cluster().await;
    let client = cluster.client();
    let controller = start_controller(client.clone(), controller_options("a"));
    create(&client, load_balancer("127.0.0.1")).await;
    create(&client, service("web", 8080)).await;
    let driver = Recorder::default();
    *driver.failures.lock().unwrap() = 2;
    let agent = start_agent(client.clone(), AgentOptions::new("edge"), driver.clone());
    addressed(&client, "web", "127.0.0.1").await;
    assert_eq!(driver.updates.lock().unwrap()[0].listeners.len(), 1);
    agent.stop().await;
    controller.stop().await;
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_controllers_without_election_never_fight() {
    let cluster = cluster().await;
    let client = cluster.client();
    let options = |identity: &str| bowline_runtime::ControllerOptions {
        election: false,
        ..controller_options(identity)
    };
    let first = start_controller(client.clone(), options("a"));
    let second = start_controller(client.clone(), options("b"));
    create(&client, load_balancer("127.0.0.1")).await;
    let agent = start_agent(client.clone(), AgentOptions::new("edge"), Recorder::default());
    for port in 1..=20u16 {
        create(&client, service(&format!("s{port}"), 9000 + port)).await;
    }
    for port in 1..=20u16 {
        addressed(&client, &format!("s{port}"), "127.0.0.1").await;
    }
    phase(&client, "Running").await;
    let versions = || async {
        let balancers: Api<LoadBalancer> = Api::all(client.clone());
        let services = services(&client).list(&ListParams::default()).await.unwrap();
        let plans = plans(&client).list(&ListParams::default()).await.unwrap();
        let balancers = balancers.list(&ListParams::default()).await.unwrap();
        let versions = services.iter().map(|it| it.resource_version());
        let versions = versions.chain(plans.iter().map(|it| it.resource_version()));
        versions.chain(balancers.iter().map(|it| it.resource_version())).collect::<Vec<_>>()
    };
    // Steady state: nothing was written between fifty reads in a row.
    let begun = std::time::Instant::now();
    let (mut same, mut last) = (0, versions().await);
    while same < 50 {
        assert!(begun.elapsed().as_secs() < 30, "still fighting: {last:?}");
        let now = versions().await;
        same = if now == last { same + 1 } else { 0 };
        last = now;
    }
    let leases: Api<Lease> = Api::namespaced(client.clone(), "bowline-system");
    let lease = leases.get("bowline-controller").await.unwrap();
    let said = json!({
        "bowline.dev/default-class": "true", "bowline.dev/default-load-balancer": "edge",
        "bowline.dev/version": env!("CARGO_PKG_VERSION"),
    });
    assert_eq!(json!(lease.metadata.annotations), said, "how they are set is said all the same");
    assert_eq!(lease.spec.unwrap_or_default().holder_identity, None);
    // One controller is killed: the other goes on.
    first.kill();
    create(&client, service("late", 9500)).await;
    addressed(&client, "late", "127.0.0.1").await;
    agent.stop().await;
    second.stop().await;
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_leader_lets_go_another_takes_over() {
    let cluster = cluster().await;
    let client = cluster.client();
    create(&client, load_balancer("127.0.0.1")).await;
    let first = start_controller(client.clone(), controller_options("a"));
    let agent = start_agent(client.clone(), AgentOptions::new("edge"), Recorder::default());
    phase(&client, "Running").await;
    let second = start_controller(client.clone(), controller_options("b"));
    eventually("the standby to be ready", || async {
        let missing = second.context.readiness.missing();
        if missing.is_empty() { Ok(()) } else { Err(format!("{missing:?}")) }
    })
    .await;
    first.stop().await;
    let begun = Instant::now();
    create(&client, service("web", 8080)).await;
    addressed(&client, "web", "127.0.0.1").await;
    assert!(begun.elapsed() < Duration::from_secs(5), "it waited for the Lease to end");
    agent.stop().await;
    second.stop().await;
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_now_is_shown_by_reason() {
    let cluster = cluster().await;
    let client = cluster.client();
    create(&client, load_balancer("127.0.0.1")).await;
    let controller = start_controller(client.clone(), controller_options("a"));
    let wants = |name: &str, port, key: &str, value: &str| {
        let mut object = service(name, port);
        object["metadata"]["annotations"] = json!({key: value});
        object
    };
    create(&client, wants("lost", 8001, "bowline.dev/load-balancer", "nowhere")).await;
    create(&client, wants("odd", 8002, "bowline.dev/algorithm", "dice")).await;
    create(&client, service("fine", 8003)).await;
    let shown = async |expected: [(&str, u32); 2]| {
        eventually("the metric", || async {
            let text = controller.context.metrics.text();
            let line =
                |(reason, count)| format!("bowline_refused{{reason=\"{reason}\"}} {count}\n");
            let all = expected.map(line);
            if all.iter().all(|line| text.contains(line)) { Ok(()) } else { Err(text) }
        })
        .await;
    };
    shown([("LoadBalancerNotFound", 1), ("BadTuning", 1)]).await;
    services(&client).delete("lost", &DeleteParams::default()).await.unwrap();
    shown([("LoadBalancerNotFound", 0), ("BadTuning", 1)]).await;
    controller.stop().await;
    cluster.shutdown().await;
}
