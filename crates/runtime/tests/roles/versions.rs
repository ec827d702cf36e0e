//! Tests a leader and an agent of different versions: a Plan has a value that one of them cannot read.

use crate::support::{
    Recorder, cluster, controller_options, create, eventually, load_balancer, service, start_agent,
    start_controller,
};
use bowline_api::Plan;
use bowline_core::update::{Change, Extent};
use bowline_runtime::AgentOptions;
use bowline_runtime::lease::entries;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn plans(client: &Client) -> Api<DynamicObject> {
    let resource = ApiResource::erase::<Plan>(&());
    Api::namespaced_with(client.clone(), "bowline-system", &resource)
}

/// The fragment of the consumer with this name in the Plan.
async fn fragment(client: &Client, name: &str) -> Option<Value> {
    let plan = plans(client).get_opt("edge-0").await.unwrap()?;
    let all = plan.data["spec"]["fragments"].as_array()?.clone();
    all.into_iter().find(|it| it["consumer"]["name"] == name)
}

/// The ports at which a driver listens now.
fn ports(driver: &Recorder) -> BTreeSet<u16> {
    let mut ports = BTreeSet::new();
    for update in driver.updates.lock().unwrap().iter() {
        if update.complete {
            ports.clear();
        }
        for change in &update.listeners {
            match change {
                Change::Put(key, _) => ports.insert(key.port),
                Change::Remove(key) => ports.remove(&key.port),
            };
        }
    }
    ports
}

async fn listens(driver: &Recorder, expected: &[u16]) {
    let expected: BTreeSet<_> = expected.iter().copied().collect();
    eventually(&format!("listeners at {expected:?}"), || async {
        let now = ports(driver);
        if now == expected { Ok(()) } else { Err(format!("{now:?}")) }
    })
    .await;
}

/// Waits until the agent reports these consumers as unreadable.
async fn says(client: &Client, expected: &[(&str, Extent)]) {
    let leases: Api<Lease> = Api::namespaced(client.clone(), "bowline-system");
    let expected: Vec<_> =
        expected.iter().map(|(name, it)| ((*name).to_owned(), it.clone())).collect();
    eventually(&format!("the agent says {expected:?}"), || async {
        let Some(lease) = leases.get_opt("bowline-agent-edge").await.unwrap() else {
            return Err("the agent has written no Lease yet".to_owned());
        };
        let all = entries(&lease);
        let live = all.iter().filter(|it| it.left.is_none());
        let told = live.flat_map(|it| &it.said.refused);
        let told = told.filter(|it| it.problem.reason.to_string() == "PlanUnread");
        let told: Vec<_> =
            told.map(|it| (it.consumer.name.to_string(), it.extent.clone())).collect();
        if told == expected { Ok(()) } else { Err(format!("{all:?}")) }
    })
    .await;
}

async fn programmed(client: &Client, name: &str, with: &str) {
    let api: Api<Service> = Api::namespaced(client.clone(), "default");
    eventually(&format!("{name} is served{with}"), || async {
        let service = serde_json::to_value(api.get(name).await.unwrap().status).unwrap();
        let conditions = service["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.iter().find(|it| it["type"] == "bowline.dev/Programmed");
        let message = found.map(|it| it["message"].as_str().unwrap_or_default().to_owned());
        let holds = found.is_some_and(|it| it["status"] == "True");
        let same = message.is_some_and(|it| it.contains(with));
        if holds && same { Ok(()) } else { Err(service.to_string()) }
    })
    .await;
}

/// Makes the API accept what a newer version would write, as newer kinds would.
async fn newer_kinds(client: &Client) {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let mut definition = definitions.get("plans.bowline.dev").await.unwrap();
    let mut schema = serde_json::to_value(&definition.spec.versions[0].schema).unwrap();
    schema["openAPIV3Schema"]["properties"]["spec"] = any;
    definition.spec.versions[0].schema = serde_json::from_value(schema).unwrap();
    definitions.replace("plans.bowline.dev", &Default::default(), &definition).await.unwrap();
}

/// A newer leader plans something for `web` that this version cannot read. Returns the new fragment.
async fn newer_leader_writes(client: &Client) -> Value {
    let plan = plans(client).get("edge-0").await.unwrap();
    let mut all = plan.data["spec"]["fragments"].clone();
    let web = all.as_array_mut().unwrap().iter_mut();
    let raw = web.into_iter().find(|it| it["consumer"]["name"] == "web").unwrap();
    raw["pools"][0]["algorithm"] = json!("Quantum");
    raw["listeners"][0]["port"] = json!(8888);
    let raw = raw.clone();
    let spec = json!({"spec": {"fragments": all, "hash": format!("{:064x}", 4711)}});
    plans(client).patch("edge-0", &PatchParams::default(), &Patch::Merge(&spec)).await.unwrap();
    raw
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_version_cannot_read_is_served_as_before_and_is_not_erased() {
    let cluster = cluster().await;
    let client = cluster.client();
    create(&client, load_balancer("127.0.0.1")).await;
    create(&client, service("web", 8080)).await;
    create(&client, service("api", 8081)).await;
    let controller = start_controller(client.clone(), controller_options("old"));
    let driver = Recorder::default();
    let agent = start_agent(client.clone(), AgentOptions::new("edge"), driver.clone());
    listens(&driver, &[8080, 8081]).await;
    programmed(&client, "web", "").await;
    controller.stop().await;

    newer_kinds(&client).await;
    let raw = newer_leader_writes(&client).await;
    says(&client, &[("web", Extent::Part)]).await;
    assert_eq!(ports(&driver), [8080, 8081].into(), "it is served as before");

    // A leader of this version keeps the fragment, reports it to the owner, and serves all other consumers: it
    // may lead only for a moment.
    let controller = start_controller(client.clone(), controller_options("old-again"));
    programmed(&client, "web", "the agent cannot read what is planned for it").await;
    create(&client, service("new", 8082)).await;
    listens(&driver, &[8080, 8081, 8082]).await;
    programmed(&client, "new", "").await;
    assert_eq!(fragment(&client, "web").await, Some(raw.clone()), "it is as it was written");
    // Two leaders of this version do not fight over the fragment, and one that starts keeps it, too.
    controller.stop().await;
    let controller = start_controller(client.clone(), controller_options("old-at-last"));
    create(&client, service("newer", 8083)).await;
    programmed(&client, "newer", "").await;
    assert_eq!(fragment(&client, "web").await, Some(raw), "it is as it was written");
    listens(&driver, &[8080, 8081, 8082, 8083]).await;

    // The owner changes the Service: now this version plans it.
    create(&client, service("web", 8090)).await;
    listens(&driver, &[8081, 8082, 8083, 8090]).await;
    programmed(&client, "web", "").await;
    says(&client, &[]).await;
    agent.stop().await;
    controller.stop().await;
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_rollback_an_agent_that_starts_serves_what_it_cannot_read_as_its_leader_plans_it() {
    let cluster = cluster().await;
    let client = cluster.client();
    create(&client, load_balancer("127.0.0.1")).await;
    create(&client, service("web", 8080)).await;
    create(&client, service("api", 8081)).await;
    let controller = start_controller(client.clone(), controller_options("old"));
    let first = Recorder::default();
    let agent = start_agent(client.clone(), AgentOptions::new("edge"), first.clone());
    listens(&first, &[8080, 8081]).await;
    controller.stop().await;
    newer_kinds(&client).await;
    let raw = newer_leader_writes(&client).await;
    says(&client, &[("web", Extent::Part)]).await;

    // An agent that starts while no leader of its version leads serves the rest.
    agent.stop().await;
    let driver = Recorder::default();
    let agent = start_agent(client.clone(), AgentOptions::new("edge"), driver.clone());
    says(&client, &[("web", Extent::All)]).await;
    listens(&driver, &[8081]).await;
    assert_eq!(fragment(&client, "web").await, Some(raw));

    // A leader of the agent's version plans it again, though its owner changes nothing.
    let controller = start_controller(client.clone(), controller_options("rolled-back"));
    listens(&driver, &[8080, 8081]).await;
    programmed(&client, "web", "").await;
    says(&client, &[]).await;

    // The newer leader leads once more, and then the older one: nothing is interrupted or planned again.
    controller.stop().await;
    let raw = newer_leader_writes(&client).await;
    says(&client, &[("web", Extent::Part)]).await;
    let before = driver.updates.lock().unwrap().len();
    let controller = start_controller(client.clone(), controller_options("old-for-a-moment"));
    create(&client, service("new", 8082)).await;
    programmed(&client, "new", "").await;
    assert_eq!(fragment(&client, "web").await, Some(raw), "it is as it was written");
    let after = driver.updates.lock().unwrap()[before..].to_vec();
    let closed = |it: &Change<_, _>| matches!(it, Change::Remove(_));
    assert!(!after.iter().any(|it| it.complete || it.listeners.iter().any(closed)), "{after:?}");
    assert_eq!(ports(&driver), [8080, 8081, 8082].into());
    agent.stop().await;
    controller.stop().await;
    cluster.shutdown().await;
}
