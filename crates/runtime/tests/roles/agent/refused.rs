//! Tests an agent that runs another proxy than its load balancer needs.

use super::{error, ours, plan};
use crate::support::{Recorder, cluster, create, eventually, start_agent};
use bowline_api::Plan;
use bowline_core::objects::Carrier;
use bowline_runtime::AgentOptions;
use kube::{Api, Client};
use serde_json::{Value, json};

/// The Plan of this number with a listener at this port, for agents that run this. None: it does not say what.
fn plan_for(driver: Option<&str>, number: u16, port: u16) -> Value {
    let mut plan = plan(&[port], None);
    plan["metadata"]["name"] = json!(format!("edge-{number}"));
    plan["metadata"]["annotations"] = json!({"bowline.dev/driver": driver});
    plan
}

async fn says(client: &Client, wrong: bool) {
    eventually(&format!("an error in the Lease: {wrong}"), || async {
        let said = error(client).await;
        if said.is_some() == wrong { Ok(()) } else { Err(format!("{said:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_is_not_ready_while_it_refuses_a_plan_whatever_other_plans_say() {
    let cluster = cluster().await;
    let client = cluster.client();
    create(&client, ours()).await;
    create(&client, plan_for(Some("haproxy"), 0, 8080)).await;
    create(&client, plan_for(Some("nginx"), 1, 8081)).await;
    let driver = Recorder::default();
    let options = AgentOptions { carrier: Some(Carrier::Nginx), ..AgentOptions::new("edge") };
    let agent = start_agent(client.clone(), options, driver.clone());
    says(&client, true).await;
    let is_ready = || agent.context.readiness.missing().is_empty();
    assert!(!is_ready());
    assert!(!driver.updates.lock().unwrap().is_empty());

    let plans: Api<Plan> = Api::namespaced(client.clone(), "bowline-system");
    plans.delete("edge-0", &Default::default()).await.unwrap();
    says(&client, false).await;
    eventually("ready", || async { if is_ready() { Ok(()) } else { Err(String::new()) } }).await;

    create(&client, plan_for(Some("haproxy"), 0, 8080)).await;
    says(&client, true).await;
    eventually("not ready", || async { if is_ready() { Err(String::new()) } else { Ok(()) } })
        .await;
    create(&client, plan_for(Some("nginx"), 0, 8080)).await;
    says(&client, false).await;
    eventually("ready", || async { if is_ready() { Ok(()) } else { Err(String::new()) } }).await;
    agent.stop().await;
    cluster.shutdown().await;
}
