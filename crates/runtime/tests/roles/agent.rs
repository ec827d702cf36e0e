//! Tests what an agent reports, and how the leader uses it, over the embedded API.

mod broken;
mod kept;
mod parting;
mod refused;
mod replicas;
use crate::support::{
    Recorder, cluster, controller_options, create, eventually, service, start_agent,
    start_controller,
};
use bowline_core::key::{ConsumerKind, ConsumerRef};
use bowline_core::outcome::{Problem, Reason};
use bowline_core::plan::Transport;
use bowline_core::update::{Change, Extent, ListenerKey, Refusal, Report, Update};
use bowline_drivers::{Driver, Error};
use bowline_runtime::{AgentOptions, Context, agent};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::networking::v1::Ingress;
use kube::api::{Api, DeleteParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

fn leases(client: &Client) -> Api<Lease> {
    Api::namespaced(client.clone(), "bowline-system")
}

fn ours() -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "bowline-system"}})
}

/// A Plan with an HTTP listener at each of these ports, and a host with this certificate.
fn plan(ports: &[u16], certificate: Option<&str>) -> Value {
    let fragment = |port: &u16| {
        let site = certificate.map(|hash| {
            json!({"entry": "web", "host": "a.example",
                "tls": {"certificate": {"hash": hash}, "redirect": true},
                "rules": [{"path": {"kind": "Prefix", "value": "/"}, "action": {"respond": 204}}]})
        });
        json!({
            "consumer": {"kind": "Ingress", "namespace": "shop", "name": format!("at-{port}"),
                "uid": format!("uid-{port}")},
            "listeners": [{"address": "127.0.0.1", "port": port, "protocol": "HTTP",
                "serves": {"entry": "web"}}],
            "sites": site.into_iter().collect::<Vec<_>>(),
        })
    };
    json!({
        "apiVersion": "bowline.dev/v1alpha1", "kind": "Plan",
        "metadata": {"name": "edge-0", "namespace": "bowline-system",
            "labels": {"bowline.dev/load-balancer": "edge"}},
        "spec": {"loadBalancer": "edge", "hash": "0".repeat(64),
            "fragments": ports.iter().map(fragment).collect::<Vec<_>>()},
    })
}

fn listener(port: u16) -> ListenerKey {
    ListenerKey { address: [127, 0, 0, 1].into(), port, transport: Transport::Tcp }
}

fn unbound(consumer: ConsumerRef, port: u16) -> Report {
    let problem = Problem::new(Reason::BindFailed, format!("127.0.0.1:{port}: address in use"));
    Report {
        refused: vec![Refusal { consumer, problem, extent: Extent::Listener(listener(port)) }],
        ..Report::default()
    }
}

fn consumer(kind: ConsumerKind, namespace: &str, name: &str, uid: &str) -> ConsumerRef {
    ConsumerRef { kind, namespace: namespace.into(), name: name.into(), uid: uid.into() }
}

/// The refusals in the agent's Lease.
async fn refused(client: &Client) -> Value {
    let lease = leases(client).get_opt("bowline-agent-edge").await.unwrap();
    let text = lease.and_then(|lease| lease.annotations().get("bowline.dev/refused").cloned());
    text.map_or(Value::Null, |text| serde_json::from_str(&text).unwrap())
}

/// The error in the agent's Lease.
async fn error(client: &Client) -> Option<String> {
    let lease = leases(client).get_opt("bowline-agent-edge").await.unwrap()?;
    lease.annotations().get("bowline.dev/error").cloned()
}

/// A load balancer whose agent reports the address.
fn load_balancer() -> Value {
    json!({
        "apiVersion": "bowline.dev/v1alpha1", "kind": "LoadBalancer",
        "metadata": {"name": "edge"},
        "spec": {"builtin": {}, "allowedNamespaces": {"from": "All"}},
    })
}

fn at(address: &str) -> AgentOptions {
    AgentOptions { addresses: vec![address.parse().unwrap()], ..AgentOptions::new("edge") }
}

async fn status(client: &Client, name: &str) -> Value {
    let api: Api<Service> = Api::namespaced(client.clone(), "default");
    serde_json::to_value(api.get(name).await.unwrap().status.unwrap_or_default()).unwrap()
}

async fn addressed(client: &Client, name: &str, addresses: &[&str]) {
    let want: Vec<_> = addresses.iter().map(|ip| json!({"ip": ip, "ipMode": "Proxy"})).collect();
    eventually("the addresses in the status", || async {
        let status = status(client, name).await;
        let ingress = &status["loadBalancer"]["ingress"];
        let same = ingress.as_array().map_or(&[][..], Vec::as_slice) == want;
        if same { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_stops_takes_no_address_back_nor_does_a_deleted_lease() {
    let cluster = cluster().await;
    let client = cluster.client();
    let controller = start_controller(client.clone(), controller_options("a"));
    create(&client, load_balancer()).await;
    create(&client, service("web", 8080)).await;
    let agent = start_agent(client.clone(), at("127.0.0.1"), Recorder::default());
    addressed(&client, "web", &["127.0.0.1"]).await;

    agent.stop().await;
    let lease = leases(&client).get("bowline-agent-edge").await.unwrap();
    assert_eq!(lease.spec.unwrap().holder_identity.as_deref(), Some(""));
    // A later plan uses the address that is known.
    create(&client, service("late", 8081)).await;
    planned(&client, "late").await;
    leases(&client).delete("bowline-agent-edge", &DeleteParams::default()).await.unwrap();
    create(&client, service("later", 8082)).await;
    planned(&client, "later").await;
    assert_eq!(status(&client, "web").await["loadBalancer"]["ingress"][0]["ip"], "127.0.0.1");

    // A controller that knows only what is written takes no address back either.
    controller.stop().await;
    let controller = start_controller(client.clone(), controller_options("b"));
    create(&client, service("last", 8083)).await;
    planned(&client, "last").await;
    assert_eq!(status(&client, "web").await["loadBalancer"]["ingress"][0]["ip"], "127.0.0.1");

    // Another agent reports another address: that one counts.
    let agent = start_agent(client.clone(), at("127.0.0.9"), Recorder::default());
    addressed(&client, "web", &["127.0.0.9"]).await;
    agent.stop().await;
    controller.stop().await;
    cluster.shutdown().await;
}

/// Waits until the Service is planned and waits for an agent.
async fn planned(client: &Client, name: &str) {
    eventually("a place", || async {
        let status = status(client, name).await;
        let reason = status["conditions"][0]["reason"].as_str().unwrap_or_default();
        if ["NoAgent", "AgentSilent"].contains(&reason) { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_lets_go_of_its_own_lease_only() {
    let cluster = cluster().await;
    let client = cluster.client();
    create(&client, ours()).await;
    let agent = start_agent(client.clone(), at("127.0.0.1"), Recorder::default());
    let lease = leases(&client);
    eventually("the Lease", || async {
        lease.get("bowline-agent-edge").await.map_err(|error| error.to_string())
    })
    .await;
    let other = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "bowline-agent-edge", "namespace": "bowline-system"},
        "spec": {"holderIdentity": "another"},
    });
    create(&client, other).await;
    agent.stop().await;
    let after = lease.get("bowline-agent-edge").await.unwrap();
    assert_eq!(after.spec.unwrap().holder_identity.as_deref(), Some("another"));
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_that_cannot_be_bound_takes_no_address_from_what_is_served_beside_it() {
    let cluster = cluster().await;
    let client = cluster.client();
    let controller = start_controller(client.clone(), controller_options("a"));
    create(&client, load_balancer()).await;
    let mut web = service("web", 8080);
    web["spec"]["ports"] = json!([{"name": "a", "port": 8080}, {"name": "b", "port": 8081}]);
    create(&client, web).await;
    create(
        &client,
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "IngressClass",
            "metadata": {"name": "bowline"}, "spec": {"controller": "bowline.dev/ingress"}}),
    )
    .await;
    let backend = json!({"service": {"name": "web", "port": {"number": 8080}}});
    let paths = json!([{"path": "/", "pathType": "Prefix", "backend": backend}]);
    create(
        &client,
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
            "metadata": {"name": "shop", "namespace": "default"},
            "spec": {"ingressClassName": "bowline",
                "rules": [{"host": "shop.example", "http": {"paths": paths}}]}}),
    )
    .await;
    let api: Api<Service> = Api::namespaced(client.clone(), "default");
    let uid = api.get("web").await.unwrap().uid().unwrap();
    let web = consumer(ConsumerKind::Service, "default", "web", &uid);
    let edge = consumer(ConsumerKind::LoadBalancer, "", "edge", "u");
    let driver = Recorder::default();
    let mut report = unbound(web, 8081);
    report.refused.extend(unbound(edge, 443).refused);
    *driver.report.lock().unwrap() = report;
    let agent = start_agent(client.clone(), at("127.0.0.1"), driver);
    addressed(&client, "web", &["127.0.0.1"]).await;
    let condition = status(&client, "web").await["conditions"][0].clone();
    assert_eq!(condition["reason"], "BindFailed");
    assert_eq!(condition["message"], "127.0.0.1:8081: address in use; the rest is served");
    let ingresses: Api<Ingress> = Api::namespaced(client.clone(), "default");
    eventually("the address of the Ingress", || async {
        let shop = ingresses.get("shop").await.map_err(|error| error.to_string())?;
        let status = serde_json::to_value(shop.status).unwrap();
        let shown = status["loadBalancer"]["ingress"] == json!([{"ip": "127.0.0.1"}]);
        if shown { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
    agent.stop().await;
    controller.stop().await;
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_driver_lost_is_told_again_as_everything_and_its_news_at_once() {
    let cluster = cluster().await;
    let client = cluster.client();
    create(&client, ours()).await;
    create(&client, plan(&[8080, 8081], None)).await;
    let driver = Recorder::default();
    let at_8080 = consumer(ConsumerKind::Ingress, "shop", "at-8080", "uid-8080");
    *driver.report.lock().unwrap() = unbound(at_8080, 8080);
    let agent = start_agent(client.clone(), AgentOptions::new("edge"), driver.clone());
    eventually("the refusal in the Lease", || async {
        let refused = refused(&client).await;
        let port = &refused[0]["extent"]["listener"]["port"];
        if *port == 8080 { Ok(()) } else { Err(refused.to_string()) }
    })
    .await;

    // The port is free at last: the agent reports it before the next renewal.
    *driver.report.lock().unwrap() = Report::default();
    driver.news.notify_one();
    let begun = Instant::now();
    eventually("no refusal in the Lease", || async {
        let refused = refused(&client).await;
        if refused.is_null() { Ok(()) } else { Err(refused.to_string()) }
    })
    .await;
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());

    // The driver fails at an update with a removal.
    *driver.failures.lock().unwrap() = 1;
    create(&client, plan(&[8080], None)).await;
    let last = eventually("another update", || async {
        let updates = driver.updates.lock().unwrap();
        if updates.len() > 1 { Ok(updates.last().unwrap().clone()) } else { Err("none".to_owned()) }
    })
    .await;
    let keys: Vec<_> = last
        .listeners
        .iter()
        .map(|change| match change {
            Change::Put(key, _) => (*key, true),
            Change::Remove(key) => (*key, false),
        })
        .collect();
    assert_eq!((last.complete, keys), (true, vec![(listener(8080), true)]));
    agent.stop().await;
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_waits_for_a_reload_is_told_as_applied_when_it_is_in_force() {
    let cluster = cluster().await;
    let client = cluster.client();
    create(&client, ours()).await;
    create(&client, plan(&[8080], None)).await;
    let driver = Recorder::default();
    driver.report.lock().unwrap().waiting = true;
    let agent = start_agent(client.clone(), AgentOptions::new("edge"), driver.clone());
    let hash = || async {
        let lease = leases(&client).get_opt("bowline-agent-edge").await.unwrap();
        let lease = lease.ok_or("no Lease")?;
        Ok::<_, String>(lease.annotations().get("bowline.dev/plan-hash").cloned())
    };
    eventually("the update", || async {
        if driver.updates.lock().unwrap().is_empty() { Err("none".to_owned()) } else { Ok(()) }
    })
    .await;
    assert_eq!(eventually("the Lease", hash).await, None);
    assert_ne!(agent.context.readiness.missing(), Vec::<String>::new());

    driver.report.lock().unwrap().waiting = false;
    driver.news.notify_one();
    eventually("the hash", || async { hash().await?.ok_or("none".to_owned()) }).await;
    assert_eq!(agent.context.readiness.missing(), Vec::<String>::new());
    agent.stop().await;
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_a_certificate_that_does_not_come_is_told() {
    let cluster = cluster().await;
    let client = cluster.client();
    create(&client, ours()).await;
    create(&client, plan(&[8080], Some("abc"))).await;
    let driver = Recorder::default();
    let agent = start_agent(client.clone(), AgentOptions::new("edge"), driver.clone());
    let refused = eventually("the refusal in the Lease", || async {
        let refused = refused(&client).await;
        if refused.is_array() { Ok(refused) } else { Err("none".to_owned()) }
    })
    .await;
    let told = (&refused[0]["name"], &refused[0]["reason"], &refused[0]["extent"]);
    assert_eq!(told, (&json!("at-8080"), &json!("SecretNotFound"), &json!("part")));
    assert!(refused[0]["message"].as_str().unwrap().contains("a.example"), "{refused}");
    assert_eq!(driver.updates.lock().unwrap().len(), 1, "nothing waited for it");
    agent.stop().await;
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_stop_in_time_though_the_api_never_answers() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", silent.local_addr().unwrap());
    let (asked, mut asks) = tokio::sync::mpsc::unbounded_channel();
    let accepting = tokio::spawn(async move {
        while let Ok((connection, _)) = silent.accept().await {
            asked.send(connection).unwrap();
        }
    });
    let client = Client::try_from(kube::Config::new(address.parse().unwrap())).unwrap();
    let agent = start_agent(client.clone(), at("127.0.0.1"), Recorder::default());
    let _connection = asks.recv().await.unwrap();
    let begun = Instant::now();
    agent.stop().await;
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());

    while asks.try_recv().is_ok() {}
    let controller = start_controller(client, controller_options("a"));
    let _connection = asks.recv().await.unwrap();
    let begun = Instant::now();
    controller.stop().await;
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    accepting.abort();
}

/// A driver that fails for good: at an update, or between two.
struct Broken {
    at_update: bool,
}

impl Broken {
    fn error() -> Error {
        Error { doing: "driving".to_owned(), cause: "its task has ended".to_owned(), retry: false }
    }
}

impl Driver for Broken {
    async fn apply(&mut self, _: &Update) -> Result<Report, Error> {
        if self.at_update { Err(Self::error()) } else { Ok(Report::default()) }
    }

    async fn changed(&mut self) -> Result<Report, Error> {
        if self.at_update { std::future::pending().await } else { Err(Self::error()) }
    }

    async fn drain(&mut self, _: Duration) {}
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_ends_with_a_driver_that_cannot_go_on() {
    let cluster = cluster().await;
    let client = cluster.client();
    create(&client, ours()).await;
    create(&client, plan(&[8080], None)).await;
    for at_update in [true, false] {
        let (context, _stop) = Context::new();
        let options = AgentOptions::new("edge");
        let agent = agent::run(client.clone(), options, Broken { at_update }, context);
        let ended = tokio::time::timeout(Duration::from_secs(30), agent).await.expect("it ends");
        assert_eq!(
            ended.map_err(|error| error.to_string()),
            Err("the driver: driving: its task has ended".to_owned()),
            "at an update: {at_update}"
        );
    }
    cluster.shutdown().await;
}
