//! Builds objects as JSON: load balancers, Services, EndpointSlices, Ingresses, Secrets. It also writes
//! any object to a cluster. A test changes what it needs by [`Value`]'s indices.

use crate::{Call, Cluster, Issued};
use k8s_openapi::ByteString;
use serde_json::{Value, json};
use std::net::IpAddr;

/// A load balancer of the built-in proxy that all namespaces may use.
pub fn load_balancer(name: &str, addresses: &[IpAddr]) -> Value {
    json!({
        "apiVersion": "bowline.dev/v1alpha1", "kind": "LoadBalancer",
        "metadata": {"name": name},
        "spec": {"builtin": {}, "addresses": addresses, "allowedNamespaces": {"from": "All"}},
    })
}

/// A Service on this load balancer without a selector: the test writes its endpoints. Ports are
/// (number, target port); if there are several, each is named `pNUMBER`.
pub fn service(name: &str, load_balancer: &str, ports: &[(u16, u16)]) -> Value {
    let several = ports.len() > 1;
    let ports: Vec<_> = ports
        .iter()
        .map(|(port, target)| {
            let mut port = json!({"port": port, "targetPort": target, "protocol": "TCP"});
            if several {
                port["name"] = json!(format!("p{}", port["port"]));
            }
            port
        })
        .collect();
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": name,
            "annotations": {"bowline.dev/load-balancer": load_balancer},
        },
        "spec": {
            "type": "LoadBalancer", "loadBalancerClass": "bowline.dev/lb",
            "ports": ports,
        },
    })
}

/// The same for UDP.
pub fn udp_service(name: &str, load_balancer: &str, port: u16, target: u16) -> Value {
    let mut object = service(name, load_balancer, &[(port, target)]);
    object["spec"]["ports"][0]["protocol"] = json!("UDP");
    object
}

/// A ClusterIP Service, such as a backend of an Ingress.
pub fn cluster_service(name: &str, port: u16, target: u16) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name},
        "spec": {"ports": [{"port": port, "targetPort": target, "protocol": "TCP"}]},
    })
}

/// An endpoint of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Its address.
    pub address: IpAddr,
    /// Whether it accepts new traffic.
    pub ready: bool,
    /// Whether it still answers.
    pub serving: bool,
    /// Whether it is terminating.
    pub terminating: bool,
}

impl Endpoint {
    /// An endpoint that accepts traffic.
    pub fn ready(address: IpAddr) -> Self {
        Self { address, ready: true, serving: true, terminating: false }
    }

    /// An endpoint that does not accept traffic yet.
    pub fn not_ready(address: IpAddr) -> Self {
        Self { address, ready: false, serving: false, terminating: false }
    }

    /// An endpoint that is terminating and still answers.
    pub fn terminating(address: IpAddr) -> Self {
        Self { address, ready: false, serving: true, terminating: true }
    }
}

/// The slice of a Service with one port of this name, number and protocol. Each Service has one slice
/// for each family, named after both.
pub fn slice(service: &str, port: (&str, u16, &str), endpoints: &[Endpoint]) -> Value {
    let family = if endpoints.iter().any(|it| it.address.is_ipv6()) { "IPv6" } else { "IPv4" };
    let endpoints: Vec<_> = endpoints
        .iter()
        .map(|it| {
            json!({
                "addresses": [it.address],
                "conditions": {
                    "ready": it.ready, "serving": it.serving, "terminating": it.terminating,
                },
            })
        })
        .collect();
    let (name, number, protocol) = port;
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": format!("{service}-{}", family.to_lowercase()),
            "labels": {
                "kubernetes.io/service-name": service,
                "endpointslice.kubernetes.io/managed-by": "traffic-tests",
            },
        },
        "addressType": family,
        "ports": [{"name": name, "port": number, "protocol": protocol}],
        "endpoints": endpoints,
    })
}

/// An Ingress of this class. Rules are (host, path, path type, Service); every Service has port 80.
pub fn ingress(name: &str, class: &str, rules: &[(&str, &str, &str, &str)]) -> Value {
    let rules: Vec<_> = rules
        .iter()
        .map(|(host, path, kind, service)| {
            let mut rule = json!({"http": {"paths": [{
                "path": path, "pathType": kind,
                "backend": {"service": {"name": service, "port": {"number": 80}}},
            }]}});
            if !host.is_empty() {
                rule["host"] = json!(host);
            }
            rule
        })
        .collect();
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": {"name": name},
        "spec": {"ingressClassName": class, "rules": rules},
    })
}

/// An IngressClass of Bowline with this load balancer.
pub fn ingress_class(name: &str, load_balancer: &str) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "IngressClass",
        "metadata": {"name": name},
        "spec": {
            "controller": "bowline.dev/ingress",
            "parameters": {"apiGroup": "bowline.dev", "kind": "LoadBalancer", "name": load_balancer},
        },
    })
}

/// A TLS Secret.
pub fn tls_secret(name: &str, issued: &Issued) -> Value {
    let base64 = |text: &str| json!(ByteString(text.as_bytes().to_vec()));
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"name": name},
        "data": {"tls.crt": base64(&issued.certificate), "tls.key": base64(&issued.key)},
    })
}

/// A Pod on a node. Its container does not matter; [`pod_status`] says whether it runs.
pub fn pod(
    name: &str,
    node: &str,
    labels: &Value,
    address: IpAddr,
    ports: &[(&str, u16)],
) -> Value {
    let ports: Vec<_> =
        ports.iter().map(|(name, port)| json!({"name": name, "containerPort": port})).collect();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "nodeName": node,
            "containers": [{"name": "main", "image": "none", "ports": ports}],
        },
        "status": {"podIP": address},
    })
}

/// The status of a running Pod.
pub fn pod_status(address: IpAddr, ready: bool) -> Value {
    let ready = if ready { "True" } else { "False" };
    json!({"status": {
        "phase": "Running", "podIP": address, "podIPs": [{"ip": address}],
        "conditions": [{"type": "Ready", "status": ready}],
    }})
}

/// The path of an object in the API.
pub fn path(kind: &str, namespace: &str, name: &str) -> String {
    let (prefix, plural, namespaced) = match kind {
        "Service" => ("/api/v1", "services", true),
        "Secret" => ("/api/v1", "secrets", true),
        "Pod" => ("/api/v1", "pods", true),
        "ConfigMap" => ("/api/v1", "configmaps", true),
        "Event" => ("/api/v1", "events", true),
        "ServiceAccount" => ("/api/v1", "serviceaccounts", true),
        "Namespace" => ("/api/v1", "namespaces", false),
        "Node" => ("/api/v1", "nodes", false),
        "EndpointSlice" => ("/apis/discovery.k8s.io/v1", "endpointslices", true),
        "Ingress" => ("/apis/networking.k8s.io/v1", "ingresses", true),
        "IngressClass" => ("/apis/networking.k8s.io/v1", "ingressclasses", false),
        "Deployment" => ("/apis/apps/v1", "deployments", true),
        "Role" => ("/apis/rbac.authorization.k8s.io/v1", "roles", true),
        "RoleBinding" => ("/apis/rbac.authorization.k8s.io/v1", "rolebindings", true),
        "PodDisruptionBudget" => ("/apis/policy/v1", "poddisruptionbudgets", true),
        "NetworkPolicy" => ("/apis/networking.k8s.io/v1", "networkpolicies", true),
        "Lease" => ("/apis/coordination.k8s.io/v1", "leases", true),
        "LoadBalancer" => ("/apis/bowline.dev/v1alpha1", "loadbalancers", false),
        "LoadBalancerClaim" => ("/apis/bowline.dev/v1alpha1", "loadbalancerclaims", true),
        "LoadBalancerClass" => ("/apis/bowline.dev/v1alpha1", "loadbalancerclasses", false),
        "Plan" => ("/apis/bowline.dev/v1alpha1", "plans", true),
        "Address" => ("/apis/bowline.dev/v1alpha1", "addresses", false),
        "AddressPool" => ("/apis/bowline.dev/v1alpha1", "addresspools", false),
        "Advertisement" => ("/apis/bowline.dev/v1alpha1", "advertisements", false),
        "BGPPeer" => ("/apis/bowline.dev/v1alpha1", "bgppeers", false),
        "ExternalIP" => ("/apis/bowline.dev/v1alpha1", "externalips", true),
        other => panic!("where objects of kind {other} are is not written down here"),
    };
    let namespace = if namespaced { format!("/namespaces/{namespace}") } else { String::new() };
    let name = if name.is_empty() { String::new() } else { format!("/{name}") };
    format!("{prefix}{namespace}/{plural}{name}")
}

impl Cluster {
    /// Creates an object, or merges it into the existing one. The server must accept it.
    pub async fn apply(&self, namespace: &str, object: &Value) -> Value {
        let kind = object["kind"].as_str().expect("a kind");
        let name = object["metadata"]["name"].as_str().expect("a name");
        let created = self.http(Call::new("POST", path(kind, namespace, "")).json(object)).await;
        if created.status != 409 {
            return created.expect(201);
        }
        self.patch(kind, namespace, name, object).await
    }

    /// Merges this into an object.
    pub async fn patch(&self, kind: &str, namespace: &str, name: &str, patch: &Value) -> Value {
        let call = Call::new("PATCH", path(kind, namespace, name))
            .body("application/merge-patch+json", patch.to_string());
        self.http(call).await.expect(200)
    }

    /// The object as it is now. Null: it does not exist.
    pub async fn read(&self, kind: &str, namespace: &str, name: &str) -> Value {
        match self.get(&path(kind, namespace, name)).await {
            (200, object) => object,
            (404, _) => Value::Null,
            (status, object) => panic!("{kind} {namespace}/{name}: {status} {object}"),
        }
    }

    /// Deletes an existing object.
    pub async fn delete(&self, kind: &str, namespace: &str, name: &str) {
        self.http(Call::new("DELETE", path(kind, namespace, name))).await.expect(200);
    }
}
