//! Words for real traffic: load balancers with an agent and an address of the test's network, Ingresses and Services
//! with a backend, and clients that look up where something is and ask there.

use crate::stage::{LB, Site};
use bowline_testing::objects::{self, Endpoint, path};
use bowline_testing::{Backend, Bowline, Dial, eventually, net};
use serde_json::{Value, json};
use std::net::IpAddr;

/// The port of backends.
const TARGET: u16 = 8080;

/// Where an object says that it can be reached.
pub(crate) fn points(object: &Value) -> Vec<IpAddr> {
    let points = match object["kind"] == LB {
        true => &object["status"]["ingress"],
        false => &object["status"]["loadBalancer"]["ingress"],
    };
    let ip = |it: &Value| it["ip"].as_str().and_then(|ip| ip.parse().ok());
    points.as_array().into_iter().flatten().filter_map(ip).collect()
}

impl Site {
    /// A load balancer with these fields, a fresh address and an agent.
    pub(crate) async fn live(&self, name: &str, spec: Value) -> (IpAddr, Bowline) {
        let vip = net::vip4();
        let mut spec = spec;
        spec["addresses"] = json!([vip]);
        self.lb(name, spec).await;
        (vip, self.agent(name).await)
    }

    /// An IngressClass of ours that names nothing.
    pub(crate) async fn web_class(&self) {
        let class = json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "IngressClass",
            "metadata": {"name": "web"}, "spec": {"controller": "bowline.dev/ingress"},
        });
        self.cluster.apply("", &class).await;
    }

    /// A Service inside the cluster with one backend, which answers with its name.
    pub(crate) async fn backend(&self, namespace: &str, name: &str) -> Backend {
        let pod = net::pod4();
        let backend = Backend::http(name, pod, TARGET).await;
        self.cluster.apply(namespace, &objects::cluster_service(name, 80, TARGET)).await;
        let slice = objects::slice(name, ("", TARGET, "TCP"), &[Endpoint::ready(pod)]);
        self.cluster.apply(namespace, &slice).await;
        backend
    }

    /// An Ingress for a host on a claim, that leads to the Service of its name.
    pub(crate) async fn ingress(&self, namespace: &str, name: &str, host: &str, claim: &str) {
        let mut ingress = objects::ingress(name, "web", &[(host, "/", "Prefix", name)]);
        ingress["metadata"]["annotations"] = json!({"bowline.dev/load-balancer-claim": claim});
        self.cluster.apply(namespace, &ingress).await;
    }

    /// Waits until an object shows exactly these addresses.
    pub(crate) async fn shows(&self, kind: &str, namespace: &str, name: &str, at: &[IpAddr]) {
        eventually(&format!("{kind} {name} is at {at:?}"), || async {
            let (_, object) = self.cluster.get(&path(kind, namespace, name)).await;
            if points(&object) == at { Ok(()) } else { Err(object.to_string()) }
        })
        .await;
    }
}

/// Waits until a backend answers for a host there; says which.
pub(crate) async fn answers(at: IpAddr, port: u16, host: &str) -> String {
    eventually(&format!("{host} answers at {at}:{port}"), || async {
        let answer = Dial::to(at, port).get(host, "/").await?;
        answer.echo().map(|echo| echo.name)
    })
    .await
}

/// Waits until nobody serves a host there: no rule is for it, or no port is open.
pub(crate) async fn silent(at: IpAddr, port: u16, host: &str) {
    eventually(&format!("{host} is not served at {at}:{port}"), || async {
        match Dial::to(at, port).get(host, "/").await {
            Ok(answer) if answer.status != 404 => Err(format!("{}", answer.status)),
            _ => Ok(()),
        }
    })
    .await;
}
