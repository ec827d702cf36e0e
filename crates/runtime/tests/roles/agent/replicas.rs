//! Tests several agents of one load balancer: each reports for itself, and only what all of them serve counts
//! as served.

use super::{addressed, leases, status, unbound};
use crate::support::{
    Recorder, cluster, controller_options, create, eventually, load_balancer, service, start_agent,
    start_controller,
};
use bowline_api::LoadBalancer;
use bowline_core::key::ConsumerKind;
use bowline_core::update::Report;
use bowline_runtime::AgentOptions;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::jiff::Timestamp;
use kube::api::Api;
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use std::collections::BTreeMap;

fn agent(identity: &str) -> AgentOptions {
    AgentOptions { identity: identity.to_owned(), ..AgentOptions::new("edge") }
}

async fn phase(client: &Client, expected: &str) {
    let api: Api<LoadBalancer> = Api::all(client.clone());
    eventually("the phase", || async {
        let status = api.get("edge").await.map_err(|error| error.to_string())?.status;
        let status = serde_json::to_value(status).unwrap();
        if status["phase"] == expected { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
}

/// The entries of all agents in the Lease.
async fn entries(client: &Client) -> BTreeMap<String, Value> {
    let lease = leases(client).get_opt("bowline-agent-edge").await.unwrap();
    let annotations = lease.map(|lease| lease.annotations().clone()).unwrap_or_default();
    let own = annotations.into_iter().filter_map(|(key, text)| {
        let name = key.strip_prefix("agents.bowline.dev/")?.to_owned();
        Some((name, serde_json::from_str(&text).unwrap()))
    });
    own.collect()
}

/// Writes into the Lease by a merge patch.
async fn write(client: &Client, patch: Value) {
    let params = kube::api::PatchParams::default();
    let patch = kube::api::Patch::Merge(&patch);
    leases(client).patch("bowline-agent-edge", &params, &patch).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_is_shown_when_every_live_agent_serves_it() {
    let cluster = cluster().await;
    let client = cluster.client();
    let controller = start_controller(client.clone(), controller_options("a"));
    create(&client, load_balancer("127.0.0.1")).await;
    let (good, bad) = (Recorder::default(), Recorder::default());
    let one = start_agent(client.clone(), agent("one"), good.clone());
    let two = start_agent(client.clone(), agent("two"), bad.clone());
    phase(&client, "Running").await;
    assert_eq!(entries(&client).await.keys().collect::<Vec<_>>(), ["one", "two"]);

    // One agent fails to apply the next plan. A report of the other one proves nothing for it.
    *bad.failures.lock().unwrap() = u32::MAX;
    create(&client, service("web", 8080)).await;
    eventually("the good one", || async {
        let entries = entries(&client).await;
        let ahead = entries["one"]["hash"] != entries["two"]["hash"];
        if ahead { Ok(()) } else { Err(format!("{entries:?}")) }
    })
    .await;
    phase(&client, "Pending").await;
    assert_eq!(status(&client, "web").await["loadBalancer"], json!({}));
    let said = status(&client, "web").await["conditions"][0]["message"].to_string();
    assert!(said.contains("two: writing: disk full"), "{said}");

    *bad.failures.lock().unwrap() = 0;
    addressed(&client, "web", &["127.0.0.1"]).await;
    phase(&client, "Running").await;

    // A listener that one agent cannot open is not open.
    let api: Api<Service> = Api::namespaced(client.clone(), "default");
    let uid = api.get("web").await.unwrap().uid().unwrap();
    let web = super::consumer(ConsumerKind::Service, "default", "web", &uid);
    *bad.report.lock().unwrap() = unbound(web, 8080);
    bad.news.notify_one();
    addressed(&client, "web", &[]).await;
    *bad.report.lock().unwrap() = Report::default();
    bad.news.notify_one();
    addressed(&client, "web", &["127.0.0.1"]).await;

    // The leader does not wait for an agent that has left.
    *bad.failures.lock().unwrap() = u32::MAX;
    create(&client, service("late", 8081)).await;
    phase(&client, "Pending").await;
    two.stop().await;
    addressed(&client, "late", &["127.0.0.1"]).await;
    phase(&client, "Running").await;
    assert_eq!(entries(&client).await["two"]["left"], true);
    one.stop().await;
    controller.stop().await;
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_entry_of_an_agent_that_died_is_removed_when_its_machine_has_another_and_not_before() {
    let cluster = cluster().await;
    let client = cluster.client();
    let controller = start_controller(client.clone(), controller_options("a"));
    create(&client, load_balancer("127.0.0.1")).await;
    let one = start_agent(client.clone(), agent("vm1_b"), Recorder::default());
    phase(&client, "Running").await;
    for dead in ["vm1_a", "vm2_a"] {
        let entry =
            json!({"agent": dead, "renewed": "x", "lastsSeconds": 1, "hash": "f".repeat(64)});
        let key = format!("agents.bowline.dev/{dead}");
        write(&client, json!({"metadata": {"annotations": {key: entry.to_string()}}})).await;
    }
    create(&client, service("web", 8080)).await;
    addressed(&client, "web", &["127.0.0.1"]).await;
    // The agent on another machine may be cut off and still serve.
    eventually("the live one and the one on another machine", || async {
        let entries = entries(&client).await;
        if entries.keys().eq(["vm1_b", "vm2_a"]) { Ok(()) } else { Err(format!("{entries:?}")) }
    })
    .await;
    one.stop().await;
    // No other agent is left: its report stays.
    let entry =
        json!({"agent": "vm1_b", "renewed": "y", "lastsSeconds": 1, "hash": "f".repeat(64)});
    let key = "agents.bowline.dev/vm1_b";
    write(&client, json!({"metadata": {"annotations": {key: entry.to_string()}}})).await;
    phase(&client, "Pending").await;
    assert!(entries(&client).await.contains_key("vm1_b"));
    controller.stop().await;
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_whose_report_is_too_large_for_the_lease_shrinks_it_and_goes_on() {
    let cluster = cluster().await;
    let client = cluster.client();
    create(&client, super::ours()).await;
    create(&client, super::plan(&[8080], None)).await;
    // All but 20 KiB of the room for annotations is taken.
    let padding = "x".repeat((256 - 20) * 1024);
    create(
        &client,
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "bowline-agent-edge", "namespace": "bowline-system",
                "annotations": {"example.com/padding": padding}},
        }),
    )
    .await;
    let driver = Recorder::default();
    let refusals = (0..5000).flat_map(|n| {
        let name = format!("service-{n}");
        unbound(super::consumer(ConsumerKind::Service, "greedy", &name, &name), 8080).refused
    });
    *driver.report.lock().unwrap() = Report { refused: refusals.collect(), ..Report::default() };
    let one = start_agent(client.clone(), agent("vm1_a"), driver.clone());
    let reported = |refused: usize| {
        let client = &client;
        eventually("a report", move || async move {
            let entries = entries(client).await;
            let entry = entries.get("vm1_a").cloned().unwrap_or_default();
            let listed = entry["refused"].as_array().map_or(0, Vec::len);
            let unlisted = entry["unlisted"].as_u64().unwrap_or_default() as usize;
            let whole = entry["hash"].is_string() && listed + unlisted == refused;
            if whole { Ok(listed) } else { Err(entry.to_string()) }
        })
    };
    let listed = reported(5000).await;
    assert!(listed > 0, "some are named");
    // The agent goes on reporting: it reports the next change, too.
    driver.report.lock().unwrap().refused.truncate(4000);
    driver.news.notify_one();
    reported(4000).await;
    // The agent can still report that it leaves.
    one.stop().await;
    assert_eq!(entries(&client).await["vm1_a"]["left"], true);
    cluster.shutdown().await;
}

/// What an agent of the previous version writes: the fields of the whole Lease.
fn whole(agent: &str, hash: &str) -> Value {
    json!({
        "metadata": {"annotations": {"bowline.dev/plan-hash": hash}},
        "spec": {"holderIdentity": agent, "leaseDurationSeconds": 15,
            "renewTime": format!("{:.6}", Timestamp::now())},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_understands_agents_of_the_version_before_beside_new_ones() {
    let cluster = cluster().await;
    let client = cluster.client();
    let controller = start_controller(client.clone(), controller_options("a"));
    create(&client, load_balancer("127.0.0.1")).await;
    create(&client, service("web", 8080)).await;
    // An old agent alone.
    let mut lease = whole("old", &"0".repeat(64));
    lease["apiVersion"] = "coordination.k8s.io/v1".into();
    lease["kind"] = "Lease".into();
    lease["metadata"]["name"] = "bowline-agent-edge".into();
    lease["metadata"]["namespace"] = "bowline-system".into();
    create(&client, lease).await;
    let plans: Api<bowline_api::Plan> = Api::namespaced(client.clone(), "bowline-system");
    let hash = eventually("a plan", || async {
        let plan = plans.get("edge-0").await.map_err(|error| error.to_string())?;
        Ok::<_, String>(plan.spec.hash.to_string())
    })
    .await;
    assert_eq!(status(&client, "web").await["loadBalancer"], json!({}));
    write(&client, whole("old", &hash)).await;
    addressed(&client, "web", &["127.0.0.1"]).await;

    // A new agent comes beside it, and the old one falls behind: both count.
    let new = start_agent(client.clone(), agent("new"), Recorder::default());
    eventually("its entry", || async {
        let entries = entries(&client).await;
        let has = entries.get("new").is_some_and(|it| it["hash"] == hash.as_str());
        if has { Ok(()) } else { Err(format!("{entries:?}")) }
    })
    .await;
    create(&client, service("late", 8081)).await;
    phase(&client, "Pending").await;
    assert_eq!(status(&client, "late").await["loadBalancer"], json!({}));
    let now = eventually("the new plan", || async {
        let now = plans.get("edge-0").await.map_err(|error| error.to_string())?.spec.hash;
        let now = now.to_string();
        if now == hash { Err("the old one".to_owned()) } else { Ok(now) }
    })
    .await;
    write(&client, whole("old", &now)).await;
    addressed(&client, "late", &["127.0.0.1"]).await;
    new.stop().await;
    controller.stop().await;
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_of_the_version_before_finds_a_new_agents_report_where_it_looks() {
    let cluster = cluster().await;
    let client = cluster.client();
    create(&client, super::ours()).await;
    create(&client, super::plan(&[8080], None)).await;
    let driver = Recorder::default();
    let refused = super::consumer(ConsumerKind::Ingress, "shop", "at-8080", "uid-8080");
    *driver.report.lock().unwrap() = unbound(refused, 8080);
    let options = AgentOptions { addresses: vec![[127, 0, 0, 1].into()], ..agent("new_1") };
    let new = start_agent(client.clone(), options, driver);
    let lease = eventually("the whole Lease", || async {
        let lease = leases(&client).get("bowline-agent-edge").await;
        let lease = lease.map_err(|error| error.to_string())?;
        let hash = lease.annotations().get("bowline.dev/plan-hash").cloned();
        hash.ok_or("no hash").map_err(str::to_owned)?;
        Ok(lease)
    })
    .await;
    let spec = lease.spec.clone().unwrap();
    assert_eq!(spec.holder_identity.as_deref(), Some("new_1"));
    assert_eq!((spec.lease_duration_seconds, spec.renew_time.is_some()), (Some(15), true));
    assert_eq!(lease.annotations()["bowline.dev/addresses"], "127.0.0.1");
    let refused: Value = serde_json::from_str(&lease.annotations()["bowline.dev/refused"]).unwrap();
    assert_eq!(refused[0]["reason"], "BindFailed");
    new.stop().await;
    let lease = leases(&client).get("bowline-agent-edge").await.unwrap();
    assert_eq!(lease.spec.unwrap().holder_identity.as_deref(), Some(""));
    cluster.shutdown().await;
}
