//! Two tenants: `shop`, which is served and changes nothing, and `evil`. And a client of shop's that asks
//! without a pause.

use crate::stage::{Stage, TARGET, http, serves};
use bowline_testing::objects::{self, Endpoint};
use bowline_testing::{Backend, Dial, net, unique};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};

/// A namespace that is not the stage's.
pub(crate) struct Evil {
    pub(crate) namespace: String,
}

impl Evil {
    /// Its name comes before shop's: what is decided by name goes to it.
    pub(crate) async fn new(stage: &Stage) -> Self {
        let namespace = format!("evil-{}", unique());
        assert!(namespace < stage.namespace, "{namespace} {}", stage.namespace);
        stage.cluster.owns("namespace", &namespace);
        let object =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        stage.cluster.apply("", &object).await;
        Self { namespace }
    }

    pub(crate) async fn apply(&self, stage: &Stage, object: Value) -> Value {
        stage.cluster.apply(&self.namespace, &object).await
    }

    /// An Ingress with these hosts, all of them to a Service `web` that answers as `evil`.
    pub(crate) async fn ingress(&self, stage: &Stage, name: &str, hosts: &[&str]) {
        let rules: Vec<_> = hosts.iter().map(|host| (*host, "/", "Prefix", "web")).collect();
        self.apply(stage, objects::ingress(name, &stage.lb, &rules)).await;
    }

    /// The Service `web`, which answers as `evil`.
    pub(crate) async fn web(&self, stage: &Stage) -> Backend {
        let backend = http("evil").await;
        self.apply(stage, objects::cluster_service("web", 80, TARGET)).await;
        let at = [Endpoint::ready(backend.at.ip())];
        self.apply(stage, objects::slice("web", ("", TARGET, "TCP"), &at)).await;
        backend
    }
}

/// The host of shop, which `shop` answers.
pub(crate) const SHOP: &str = "shop.example";

/// Shop's Ingress, served.
pub(crate) async fn shop(stage: &Stage) -> Backend {
    let backend = http("shop").await;
    stage.behind("web", &[&backend]).await;
    stage.ingress("web", &[(SHOP, "/", "Prefix", "web")]).await;
    serves(&stage.dial(80), SHOP, "/", "shop").await;
    backend
}

/// Does something while a client of shop's asks without a pause: each request is answered by shop.
pub(crate) async fn unharmed<T>(dial: &Dial, something: impl Future<Output = T>) -> T {
    let over = AtomicBool::new(false);
    let (mut good, mut bad) = (0, Vec::new());
    let client = async {
        let mut from = net::client4();
        for round in 1.. {
            if over.load(Ordering::Relaxed) {
                break;
            }
            // An address has no port left after 28,000 connections within a minute.
            if round % 10_000 == 0 {
                from = net::client4();
            }
            match dial.clone().from(from).get(SHOP, "/").await.and_then(|answer| answer.echo()) {
                Ok(echo) if echo.name == "shop" => good += 1,
                Ok(echo) => bad.push(format!("answered by {}", echo.name)),
                Err(why) => bad.push(why),
            }
        }
    };
    let happens = async {
        let value = something.await;
        over.store(true, Ordering::Relaxed);
        value
    };
    let (value, ()) = tokio::join!(happens, client);
    assert!(bad.is_empty(), "{} of {} failed: {:?}", bad.len(), good + bad.len(), bad.first());
    assert!(good > 0, "nothing was asked");
    value
}
