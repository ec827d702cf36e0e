//! Tests an agent that serves kept state, and learns that its load balancer is another one now.

use super::{leases, load_balancer, ours, plan};
use crate::support::{Recorder, Running, cluster, create, eventually, start_agent};
use bowline_api::{LoadBalancer, Plan};
use bowline_core::replicas::Left;
use bowline_core::update::Change;
use bowline_runtime::AgentOptions;
use bowline_runtime::lease::entries;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::watch;

/// Passes requests for paths with one of these ends; all others wait.
#[derive(Clone)]
struct Gate(Arc<watch::Sender<&'static [&'static str]>>);

/// A client whose requests wait at a gate.
fn gated(client: &Client, open: &'static [&'static str]) -> (Client, Gate) {
    let gate = Gate(Arc::new(watch::Sender::new(open)));
    let (at, inner) = (gate.clone(), client.clone());
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (mut open, inner) = (at.0.subscribe(), inner.clone());
        async move {
            let path = request.uri().path().to_owned();
            let lets = |open: &&[&str]| open.iter().any(|end| path.ends_with(end));
            // The gate outlives every request of its test.
            let _ = open.wait_for(lets).await;
            inner.send(request).await
        }
    });
    (Client::new(service, "default"), gate)
}

/// The Plan of a load balancer with this uid, with a listener at this port.
fn plan_of(uid: &str, port: u16) -> Value {
    let mut plan = plan(&[port], None);
    plan["metadata"]["ownerReferences"] = json!([{"apiVersion": "bowline.dev/v1alpha1",
        "kind": "LoadBalancer", "name": "edge", "uid": uid, "controller": true}]);
    plan
}

/// Creates the load balancer and returns its uid.
async fn made(client: &Client) -> String {
    create(client, load_balancer()).await;
    let api: Api<LoadBalancer> = Api::all(client.clone());
    api.get("edge").await.unwrap().metadata.uid.unwrap()
}

/// Deletes the load balancer, and waits until its Plan is gone.
async fn gone(client: &Client) {
    let api: Api<LoadBalancer> = Api::all(client.clone());
    api.delete("edge", &Default::default()).await.unwrap();
    let plans: Api<Plan> = Api::namespaced(client.clone(), "bowline-system");
    eventually("no Plan", || async {
        match plans.get_opt("edge-0").await.unwrap() {
            None => Ok(()),
            Some(plan) => Err(format!("{:?}", plan.metadata)),
        }
    })
    .await;
}

/// The ports at which a driver listens; None before its first update.
fn ports(driver: &Recorder) -> Option<BTreeSet<u16>> {
    let mut ports = None;
    for update in driver.updates.lock().unwrap().iter() {
        let now: &mut BTreeSet<u16> = ports.get_or_insert_default();
        if update.complete {
            now.clear();
        }
        for change in &update.listeners {
            match change {
                Change::Put(key, _) => now.insert(key.port),
                Change::Remove(key) => now.remove(&key.port),
            };
        }
    }
    ports
}

async fn listens(driver: &Recorder, expected: &[u16]) {
    let expected = Some(expected.iter().copied().collect());
    eventually(&format!("listeners at {expected:?}"), || async {
        let now = ports(driver);
        if now == expected { Ok(()) } else { Err(format!("{now:?}")) }
    })
    .await;
}

/// Waits until the agent's Lease says that it serves kept state, or that it does not.
async fn says_kept(client: &Client, kept: bool) {
    eventually(&format!("kept: {kept}"), || async {
        let lease = leases(client).get("bowline-agent-edge").await.map_err(|it| it.to_string())?;
        let said = entries(&lease);
        let live: Vec<_> = said.iter().filter(|it| it.left.is_none()).collect();
        let right = live.iter().any(|it| it.said.kept_since.is_some()) == kept;
        if right && !live.is_empty() { Ok(()) } else { Err(format!("{said:?}")) }
    })
    .await;
}

fn is_ready(agent: &Running) -> bool {
    agent.context.readiness.missing().is_empty()
}

#[tokio::test(flavor = "multi_thread")]
async fn kept_state_of_an_earlier_load_balancer_is_withdrawn_when_the_first_plan_shows_another() {
    let cluster = cluster().await;
    let client = cluster.client();
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let options =
        || AgentOptions { state: Some(folder.path().into()), ..AgentOptions::new("edge") };
    create(&client, ours()).await;
    let first = made(&client).await;
    create(&client, plan_of(&first, 8080)).await;
    let driver = Recorder::default();
    let agent = start_agent(client.clone(), options(), driver.clone());
    listens(&driver, &[8080]).await;
    agent.stop().await;
    assert!(state.exists());

    // The agent reaches its Lease and nothing else: it serves the kept state, and reports that.
    const LEASE: &[&str] = &["/leases", "/leases/bowline-agent-edge"];
    const PLANS: &[&str] = &["/leases", "/leases/bowline-agent-edge", "/plans"];
    gone(&client).await;
    let second = made(&client).await;
    assert_ne!(first, second);
    create(&client, plan_of(&second, 9090)).await;
    let (gated, gate) = gated(&client, LEASE);
    let driver = Recorder::default();
    let agent = start_agent(gated, options(), driver.clone());
    listens(&driver, &[8080]).await;
    says_kept(&client, true).await;
    assert!(is_ready(&agent));

    // A Plan of another load balancer with the same name arrives, and its members do not yet.
    gate.0.send_replace(PLANS);
    listens(&driver, &[]).await;
    says_kept(&client, false).await;
    eventually("not to be ready", || async {
        if is_ready(&agent) { Err("ready".to_owned()) } else { Ok(()) }
    })
    .await;
    assert!(!state.exists(), "the keys of the earlier one are gone");

    // The API has delivered everything.
    gate.0.send_replace(&[""]);
    listens(&driver, &[9090]).await;
    eventually("to be ready", || async {
        if is_ready(&agent) { Ok(()) } else { Err("not ready".to_owned()) }
    })
    .await;
    agent.stop().await;
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_whose_folder_ends_with_its_pod_keeps_nothing_once_it_has_said_that_it_leaves() {
    let cluster = cluster().await;
    let client = cluster.client();
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let options = |ends: bool| AgentOptions {
        state: Some(folder.path().into()),
        state_ends_with_pod: ends,
        ..AgentOptions::new("edge")
    };
    create(&client, ours()).await;
    let uid = made(&client).await;
    create(&client, plan_of(&uid, 8080)).await;
    let left = async || {
        let lease = leases(&client).get("bowline-agent-edge").await.unwrap();
        entries(&lease).iter().map(|it| it.left).collect::<Vec<_>>()
    };
    // Whether the folder ends with the Pod, whether the API answers at the end, what the agent reports,
    // and whether state is kept.
    for (ends, answers, says, keeps) in [
        (false, true, Some(Left::ProxyRuns), true),
        (true, false, None, true),
        (true, true, Some(Left::ProxyEnded), false),
    ] {
        let driver = Recorder { ends: true, ..Recorder::default() };
        let (gated, gate) = gated(&client, &[""]);
        let agent = start_agent(gated, options(ends), driver.clone());
        listens(&driver, &[8080]).await;
        says_kept(&client, false).await;
        if !answers {
            gate.0.send_replace(&[]);
        }
        agent.stop().await;
        assert_eq!((left().await, state.exists()), (vec![says], keeps), "{ends} {answers}");
    }
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_the_driver_refused_is_given_again_after_kept_state_was_withdrawn() {
    let cluster = cluster().await;
    let client = cluster.client();
    let folder = tempfile::tempdir().unwrap();
    let options =
        || AgentOptions { state: Some(folder.path().into()), ..AgentOptions::new("edge") };
    create(&client, ours()).await;
    let first = made(&client).await;
    create(&client, plan_of(&first, 8080)).await;
    let driver = Recorder::default();
    let agent = start_agent(client.clone(), options(), driver.clone());
    listens(&driver, &[8080]).await;
    agent.stop().await;

    // Everything but Plans is delivered, so the first Plan is the last thing that is missing.
    const LEASE: &[&str] = &["/leases", "/leases/bowline-agent-edge"];
    const OTHERS: &[&str] =
        &["/leases", "/leases/bowline-agent-edge", "/endpointslices", "/nodes", "/secrets"];
    gone(&client).await;
    let second = made(&client).await;
    create(&client, plan_of(&second, 9090)).await;
    let (gated, gate) = gated(&client, LEASE);
    let driver = Recorder::default();
    let agent = start_agent(gated, options(), driver.clone());
    gate.0.send_replace(OTHERS);
    listens(&driver, &[8080]).await;
    *driver.failures.lock().unwrap() = 1;
    gate.0.send_replace(&[""]);
    listens(&driver, &[9090]).await;
    agent.stop().await;
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_starts_while_bowlines_namespace_is_gone_serves_its_kept_state_on() {
    let cluster = cluster().await;
    let client = cluster.client();
    let folder = tempfile::tempdir().unwrap();
    let options =
        || AgentOptions { state: Some(folder.path().into()), ..AgentOptions::new("edge") };
    create(&client, ours()).await;
    let uid = made(&client).await;
    create(&client, plan_of(&uid, 8080)).await;
    let driver = Recorder::default();
    let agent = start_agent(client.clone(), options(), driver.clone());
    listens(&driver, &[8080]).await;
    agent.stop().await;

    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces.delete("bowline-system", &Default::default()).await.unwrap();
    eventually("no namespace", || async {
        match namespaces.get_opt("bowline-system").await.unwrap() {
            None => Ok(()),
            Some(namespace) => Err(format!("{namespace:?}")),
        }
    })
    .await;
    let driver = Recorder::default();
    let agent = start_agent(client.clone(), options(), driver.clone());
    listens(&driver, &[8080]).await;
    assert!(folder.path().join("state").exists());
    // Its load balancer has the same uid, so the leader's first Plan does not replace the kept state yet.
    create(&client, ours()).await;
    create(&client, plan_of(&uid, 9090)).await;
    eventually("the agent's Lease", || async {
        leases(&client).get("bowline-agent-edge").await.map_err(|it| it.to_string())
    })
    .await;
    assert_eq!(ports(&driver), Some(BTreeSet::from([8080])));
    agent.stop().await;
    cluster.shutdown().await;
}
