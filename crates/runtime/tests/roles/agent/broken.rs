//! Tests roles in which a task panics. The panic is in the stream of the API's response, where a bug of
//! Bowline could cause one, too.

use super::{error, leases, ours, plan};
use crate::support::{
    Recorder, cluster, controller_options, create, eventually, load_balancer, service, slice,
    start_agent, start_controller,
};
use bowline_drivers::template::{Publisher, ServerNames, Target};
use bowline_runtime::templates::{self, TemplateOptions};
use bowline_runtime::{AgentOptions, Context, RoleError, controller};
use http_body_util::BodyExt as _;
use kube::Client;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Makes the next piece of a response panic, once it is set.
#[derive(Clone)]
struct Mine(Arc<AtomicBool>);

impl Mine {
    fn lay(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    fn is_gone(&self) -> bool {
        !self.0.load(Ordering::SeqCst)
    }
}

/// A client for which the next piece of a response to such a request panics, once the mine is set.
fn mined(client: &Client, path: &'static str) -> (Client, Mine) {
    let mine = Mine(Arc::new(AtomicBool::new(false)));
    let (laid, inner) = (mine.clone(), client.clone());
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (laid, inner) = (laid.clone(), inner.clone());
        async move {
            let meant = request.uri().path().ends_with(path);
            let answer = inner.send(request).await?;
            Ok::<_, kube::Error>(answer.map(|body| {
                body.map_frame(move |frame| {
                    let hit = meant && laid.0.swap(false, Ordering::SeqCst);
                    assert!(!hit, "a test of panics");
                    frame
                })
            }))
        }
    });
    (Client::new(service, "default"), mine)
}

/// The addresses of the last members that the driver was given.
fn members(driver: &Recorder) -> Vec<String> {
    let updates = driver.updates.lock().unwrap();
    let changes = updates.iter().flat_map(|update| &update.members);
    let last = changes.last().map(|change| change.members.iter());
    last.into_iter().flatten().map(|member| member.address.ip().to_string()).collect()
}

async fn has_members(driver: &Recorder, expected: &[&str]) {
    eventually("the members", || async {
        let members = members(driver);
        if members == expected { Ok(()) } else { Err(format!("{members:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_whose_watch_panics_begins_it_again_and_is_not_ready_meanwhile() {
    let cluster = cluster().await;
    let client = cluster.client();
    let controller = start_controller(client.clone(), controller_options("a"));
    create(&client, load_balancer("127.0.0.1")).await;
    create(&client, service("web", 8080)).await;
    create(&client, slice("web", &["192.0.2.2"])).await;
    let (mined, mine) = mined(&client, "/endpointslices");
    let driver = Recorder::default();
    let agent = start_agent(mined, AgentOptions::new("edge"), driver.clone());
    has_members(&driver, &["192.0.2.2"]).await;
    let readiness = agent.context.readiness.clone();
    eventually("to be ready", || async {
        if readiness.missing().is_empty() { Ok(()) } else { Err(format!("{readiness:?}")) }
    })
    .await;
    let unready = tokio::spawn(async move {
        let what = "the watch of EndpointSlices for load balancer edge to work again";
        while !readiness.missing().contains(&what.to_owned()) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });

    mine.lay();
    create(&client, slice("web", &["192.0.2.2", "192.0.2.3"])).await;
    tokio::time::timeout(Duration::from_secs(20), unready).await.expect("not ready").unwrap();
    assert!(mine.is_gone());
    has_members(&driver, &["192.0.2.2", "192.0.2.3"]).await;
    eventually("to be ready again", || async {
        let missing = agent.context.readiness.missing();
        if missing.is_empty() { Ok(()) } else { Err(format!("{missing:?}")) }
    })
    .await;
    assert!(agent.context.metrics.text().contains("bowline_errors_total{reason=\"TaskEnded\"} 1"));
    create(&client, slice("web", &["192.0.2.4"])).await;
    has_members(&driver, &["192.0.2.4"]).await;
    agent.stop().await;
    controller.stop().await;
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_cannot_see_says_so_in_its_lease_and_renews_it_after_a_panic_there() {
    let cluster = cluster().await;
    let client = cluster.client();
    create(&client, ours()).await;
    create(&client, plan(&[8080], None)).await;
    // The watch of Secrets is one of several in one task, and the first thing that an agent does. It panics
    // until the agent has reported that: the first report may come after the watch works again.
    let (mined_client, mine) = mined(&client, "/secrets");
    mine.lay();
    let agent = start_agent(mined_client, AgentOptions::new("edge"), Recorder::default());
    let told = eventually("the error", || async {
        let told = error(&client).await.ok_or(String::new());
        if told.is_err() {
            mine.lay();
        }
        told
    });
    let told = told.await;
    assert!(told.starts_with("the watch of Secrets for load balancer edge: ended"), "{told}");
    eventually("no error", || async { error(&client).await.map_or(Ok(()), Err) }).await;
    agent.stop().await;

    let (mined_client, mine) = mined(&client, "/leases/bowline-agent-edge");
    let agent = start_agent(mined_client, AgentOptions::new("edge"), Recorder::default());
    let renewed = || async {
        let lease = leases(&client).get("bowline-agent-edge").await.map_err(|it| it.to_string())?;
        lease.spec.and_then(|spec| spec.renew_time).ok_or("never renewed".to_owned())
    };
    eventually("a report", renewed).await;
    mine.lay();
    eventually("the panic", || async { if mine.is_gone() { Ok(()) } else { Err(String::new()) } })
        .await;
    // The panic may have been in a read, so there need not have been a renewal meanwhile.
    let then = eventually("the last report", renewed).await;
    eventually("a report after the panic", || async {
        if renewed().await? > then { Ok(()) } else { Err("not renewed".to_owned()) }
    })
    .await;
    agent.stop().await;
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn templates_follow_on_after_a_watch_panicked() {
    let cluster = cluster().await;
    let client = cluster.client();
    let folder = tempfile::tempdir().unwrap();
    let (template, output) = (folder.path().join("t.j2"), folder.path().join("out"));
    std::fs::write(&template, "{{ Services | map(attribute='Name') | join(' ') }}").unwrap();
    let names = Arc::new(ServerNames::new("").unwrap());
    let target = Target { template, output: output.clone(), check: None };
    let limit = Duration::from_secs(5);
    let publisher = Publisher::new(vec![target], Vec::new(), Arc::clone(&names), limit).unwrap();
    let options = TemplateOptions {
        domain: "cluster.local".to_owned(),
        default_mode: "http".to_owned(),
        default_address: [127, 0, 0, 1].into(),
        names,
        settle: Duration::from_millis(10),
        once: None,
        grace: Duration::from_secs(1),
        members: Default::default(),
        identity: "a".to_owned(),
    };
    let (mined, mine) = mined(&client, "/services");
    let (context, stop) = Context::new();
    let running = tokio::spawn(templates::run(mined, options, publisher, context.clone()));
    let has = |name: &'static str| {
        let output = output.clone();
        move || {
            let text = std::fs::read_to_string(&output).unwrap_or_default();
            async move { if text.contains(name) { Ok(()) } else { Err(text) } }
        }
    };
    create(&client, service("one", 8080)).await;
    create(&client, slice("one", &["192.0.2.2"])).await;
    create(&client, slice("two", &["192.0.2.2"])).await;
    eventually("the first", has("one")).await;
    mine.lay();
    create(&client, service("two", 8081)).await;
    eventually("the second", has("two")).await;
    assert!(mine.is_gone() && context.metrics.text().contains("reason=\"TaskEnded\"} 1"));
    stop.send(true).unwrap();
    running.await.unwrap().unwrap();
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_of_which_any_task_panics_ends() {
    let cluster = cluster().await;
    let client = cluster.client();
    for path in ["/nodes", "/leases/bowline-controller"] {
        let (mined, mine) = mined(&client, path);
        let (context, _stop) = Context::new();
        let running =
            tokio::spawn(controller::run(mined, controller_options(path), context.clone()));
        eventually("a leader", || async {
            let missing = context.readiness.missing();
            if missing.is_empty() { Ok(()) } else { Err(format!("{missing:?}")) }
        })
        .await;
        mine.lay();
        create(
            &client,
            serde_json::json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}),
        )
        .await;
        let ended = tokio::time::timeout(Duration::from_secs(30), running).await.expect(path);
        assert!(matches!(ended.unwrap(), Err(RoleError::Ended(_))), "{path}");
        super::leases(&client).delete("bowline-controller", &Default::default()).await.unwrap();
        let nodes: kube::Api<k8s_openapi::api::core::v1::Node> = kube::Api::all(client.clone());
        nodes.delete("n", &Default::default()).await.unwrap();
    }
    cluster.shutdown().await;
}
