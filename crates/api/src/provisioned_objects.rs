//! Renders the objects that serve a provisioned load balancer in a cluster: proxies with an agent beside each, the door
//! in front of them, and the agents' rights. It also compares the rendered objects with existing ones. It does no I/O;
//! the leader's provisioner calls it.

use crate::class::LoadBalancerClassSpec;
use crate::source::{BareMetalType, LoadBalancerSource};
use crate::{LoadBalancer, names};
use bowline_core::certificate_rooms::SECRETS;
use bowline_core::plan::Transport;
use bowline_core::provision::Rollout;
use ipnet::IpNet;
use kube::ResourceExt as _;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The port of an agent's probes and metrics in its Pod.
const ADMIN: u16 = 9180;
/// The folder that a proxy and its agent share in their Pod.
const FOLDER: &str = "/run/bowline";
/// The volume with the agent's token.
const TOKEN: &str = "token";
/// The folder with the agent's kept state. It is in memory, because it holds private keys. It survives a restart of the
/// container, not of the machine.
const STATE: &str = "/var/lib/bowline";
/// The folder in which Kubernetes clients look for the token.
const TOKEN_FOLDER: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The most ports of the door.
const MOST_PORTS: usize = 200;

/// The objects that serve a provisioned load balancer, in the order in which they are created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// The Lease in which agents report. Agents make it; it is deleted with the other parts.
    Lease,
    /// The ServiceAccount of the agents.
    Account,
    /// The Role with the agents' rights in Bowline's own namespace.
    Rights,
    /// The RoleBinding of this Role.
    Grant,
    /// The PodDisruptionBudget.
    Budget,
    /// The NetworkPolicy: all clients may reach the listeners, and Bowline's own namespace the agent's admin port.
    Fence,
    /// The Deployment with the proxies.
    Proxies,
    /// The door: the Service in front of the proxies.
    Door,
}

impl Part {
    /// All parts, in the order in which they are created.
    pub const ALL: [Self; 8] = [
        Self::Lease,
        Self::Account,
        Self::Rights,
        Self::Grant,
        Self::Budget,
        Self::Fence,
        Self::Proxies,
        Self::Door,
    ];

    /// Group and version, kind, and plural name of the kind.
    pub fn kind(self) -> (&'static str, &'static str, &'static str) {
        const RBAC: &str = "rbac.authorization.k8s.io/v1";
        match self {
            Self::Lease => ("coordination.k8s.io/v1", "Lease", "leases"),
            Self::Account => ("v1", "ServiceAccount", "serviceaccounts"),
            Self::Rights => (RBAC, "Role", "roles"),
            Self::Grant => (RBAC, "RoleBinding", "rolebindings"),
            Self::Budget => ("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets"),
            Self::Fence => ("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies"),
            Self::Proxies => ("apps/v1", "Deployment", "deployments"),
            Self::Door => ("v1", "Service", "services"),
        }
    }
}

/// The images of the proxies. Each image also contains Bowline's binary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Images {
    /// Bowline alone.
    pub builtin: String,
    /// With HAProxy.
    pub haproxy: String,
    /// With nginx.
    pub nginx: String,
}

impl Default for Images {
    fn default() -> Self {
        let named = |name: &str| format!("{name}:{}", env!("CARGO_PKG_VERSION"));
        Self {
            builtin: named("bowline"),
            haproxy: named("bowline-haproxy"),
            nginx: named("bowline-nginx"),
        }
    }
}

/// A program that carries traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// The built-in proxy.
    Builtin,
    /// HAProxy.
    Haproxy,
    /// nginx.
    Nginx,
}

/// A load balancer that a class provisioned in a cluster: the fields on which its objects depend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// Its name.
    pub name: String,
    /// Its uid: objects of an earlier load balancer of the same name are not its own.
    pub uid: String,
    /// The namespace of its proxies.
    pub namespace: String,
    /// The name of its objects there.
    pub service: String,
    /// The program that carries its traffic.
    pub program: Program,
    /// The ports of its HTTP and HTTPS listeners.
    pub ports: (u16, u16),
    /// Whether it is being deleted.
    pub deleting: bool,
}

impl Made {
    /// Reads the fields of a LoadBalancer. None: no class provisioned it in a cluster.
    pub fn of(load_balancer: &LoadBalancer) -> Option<Self> {
        let LoadBalancer { metadata, spec, .. } = load_balancer;
        let marks = metadata.annotations.as_ref()?;
        marks.get(names::ANNOTATION_PROVISIONED_FOR)?;
        let namespace = marks.get(names::ANNOTATION_PROXY_NAMESPACE)?.clone();
        let name = load_balancer.name_any();
        let (program, service) = match &spec.source {
            LoadBalancerSource::Builtin(_) => (Program::Builtin, name.clone()),
            LoadBalancerSource::BareMetalLoadBalancer(it) => {
                let program = match it.type_ {
                    BareMetalType::Haproxy => Program::Haproxy,
                    BareMetalType::Nginx => Program::Nginx,
                };
                (program, it.service_name.clone())
            }
            _ => return None,
        };
        Some(Self {
            uid: load_balancer.uid().unwrap_or_default(),
            ports: (spec.http_port, spec.https_port),
            deleting: metadata.deletion_timestamp.is_some(),
            name,
            namespace,
            service,
            program,
        })
    }

    /// The namespace and the name of a part. `own` is Bowline's namespace.
    pub fn place(&self, part: Part, own: &str) -> (String, String) {
        match part {
            Part::Lease => (own.to_owned(), names::agent_lease(&self.name)),
            Part::Rights | Part::Grant => (own.to_owned(), names::proxy_rights(&self.name)),
            Part::Account | Part::Budget | Part::Fence | Part::Proxies | Part::Door => {
                (self.namespace.clone(), self.service.clone())
            }
        }
    }

    /// Whether an object belongs to this load balancer.
    pub fn owns(&self, object: &Value) -> bool {
        let owners = object["metadata"]["ownerReferences"].as_array();
        owners.into_iter().flatten().any(|owner| owner["uid"] == self.uid.as_str())
    }
}

/// The wanted objects of one load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The load balancer.
    pub made: Made,
    /// Bowline's own namespace.
    pub own: String,
    /// The number of copies of the proxy.
    pub replicas: i32,
    /// The AddressPool of the door's address.
    pub address_pool: Option<String>,
    /// Its listeners besides those of Ingresses.
    pub listeners: BTreeSet<(u16, Transport)>,
    /// The images of the proxies.
    pub images: Images,
    /// The agents send no traffic to members in these networks.
    pub deny_members: Vec<IpNet>,
}

impl Wish {
    /// The objects that a class wants for a load balancer with these listeners.
    pub fn new(
        made: Made,
        own: &str,
        class: &LoadBalancerClassSpec,
        listeners: BTreeSet<(u16, Transport)>,
        images: Images,
    ) -> Self {
        Self {
            made,
            own: own.to_owned(),
            replicas: class.replicas,
            address_pool: class.address_pool.clone(),
            listeners,
            images,
            deny_members: Vec::new(),
        }
    }

    /// The wanted object of a part. None: Bowline does not create this part.
    pub fn object(&self, part: Part) -> Option<Value> {
        let body = match part {
            Part::Lease => return None,
            Part::Account => json!({"automountServiceAccountToken": false}),
            Part::Rights => self.rights(),
            Part::Grant => self.grant(),
            Part::Budget => json!({"spec": {
                "maxUnavailable": 1, "selector": {"matchLabels": self.labels()},
            }}),
            Part::Fence => self.fence(),
            Part::Proxies => self.proxies(),
            Part::Door => self.door(),
        };
        let (version, kind, _) = part.kind();
        let (namespace, name) = self.made.place(part, &self.own);
        let mut metadata = json!({
            "name": name,
            "namespace": namespace,
            "labels": self.labels(),
            "ownerReferences": [{
                "apiVersion": format!("{}/{}", names::GROUP, names::VERSION),
                "kind": "LoadBalancer", "name": self.made.name, "uid": self.made.uid,
                "controller": true,
            }],
        });
        if let (Part::Door, Some(pool)) = (part, &self.address_pool) {
            metadata["annotations"] = json!({crate::annotation_keys::ADDRESS_POOL.name: pool});
        }
        let mut object = json!({"apiVersion": version, "kind": kind, "metadata": metadata});
        if let (Some(object), Value::Object(body)) = (object.as_object_mut(), body) {
            object.extend(body);
        }
        Some(object)
    }

    /// The patch that changes an existing part into the wanted object, without fields that cannot be changed.
    pub fn change(&self, part: Part) -> Option<Value> {
        let mut object = self.object(part)?;
        if let Some(spec) = object["spec"].as_object_mut() {
            spec.remove("loadBalancerClass");
            if part == Part::Proxies {
                spec.remove("selector");
            }
        }
        if let Some(object) = object.as_object_mut() {
            object.remove("roleRef");
        }
        Some(object)
    }

    fn labels(&self) -> BTreeMap<&'static str, String> {
        let whose = names::load_balancer_label(&self.made.name);
        [
            ("app.kubernetes.io/name", "bowline-proxy".to_owned()),
            (names::LABEL_LOAD_BALANCER, whose),
        ]
        .into()
    }

    fn grant(&self) -> Value {
        let role = names::proxy_rights(&self.made.name);
        json!({
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
            "subjects": [{
                "kind": "ServiceAccount",
                "name": self.made.service, "namespace": self.made.namespace,
            }],
        })
    }

    /// The agents' rights in Bowline's own namespace: to watch Plans, to report in their own Lease, and to read the
    /// Secrets of this load balancer and of no other. The installation cannot ship this Role, because it names Secrets
    /// of a load balancer that does not exist yet. The API lets the leader grant only rights that it has itself.
    fn rights(&self) -> Value {
        let name = &self.made.name;
        let certificates = (0..SECRETS).map(|index| names::certificates_secret(name, index));
        let secrets: Vec<_> =
            [names::cookies_secret(name)].into_iter().chain(certificates).collect();
        json!({"rules": [
            {"apiGroups": [names::GROUP], "resources": ["plans"], "verbs": ["list", "watch"]},
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
            {
                "apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
                "resourceNames": [names::agent_lease(name)], "verbs": ["get", "patch"],
            },
            {
                "apiGroups": [""], "resources": ["secrets"],
                "resourceNames": secrets, "verbs": ["get", "list", "watch"],
            },
        ]})
    }

    /// The NetworkPolicy of the proxies. Probes come from the node, and no NetworkPolicy applies to them. To scrape
    /// metrics, an administrator adds another policy: each policy allows more.
    fn fence(&self) -> Value {
        let range = |protocol: &str, first: u16, last: u16| json!({"protocol": protocol, "port": first, "endPort": last});
        let own = json!({"matchLabels": {"kubernetes.io/metadata.name": self.own}});
        json!({"spec": {
            "podSelector": {"matchLabels": self.labels()},
            "policyTypes": ["Ingress"],
            "ingress": [
                {"ports": [
                    range("TCP", 1, ADMIN - 1),
                    range("TCP", ADMIN + 1, u16::MAX),
                    range("UDP", 1, u16::MAX),
                    range("SCTP", 1, u16::MAX),
                ]},
                {
                    "ports": [{"protocol": "TCP", "port": ADMIN}],
                    "from": [{"namespaceSelector": own}],
                },
            ],
        }})
    }

    fn proxies(&self) -> Value {
        let labels = self.labels();
        let mut pod = json!({
            "serviceAccountName": self.made.service,
            "terminationGracePeriodSeconds": 30,
            "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
            "hostNetwork": false,
            "hostPID": false,
            "hostIPC": false,
            // Only the agent gets a token: a program that reads data from the Internet must not reach the API.
            "automountServiceAccountToken": false,
            "volumes": [token(), state()],
            // Copies run on different nodes if there are several, and on one if there is only one.
            "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
                "weight": 100,
                "podAffinityTerm": {
                    "topologyKey": "kubernetes.io/hostname",
                    "labelSelector": {"matchLabels": &labels},
                },
            }]}},
        });
        match self.made.program {
            Program::Builtin => pod["containers"] = json!([self.agent(&[])]),
            Program::Haproxy => self.beside(&mut pod, "haproxy", &format!(
                "until [ -e {FOLDER}/current/haproxy.cfg ]; do sleep 0.2; done; exec haproxy -W \
                 -S {FOLDER}/master.sock,mode,600,level,admin -f {FOLDER}/current/haproxy.cfg"
            )),
            Program::Nginx => {
                // The agent sends signals to nginx.
                pod["shareProcessNamespace"] = json!(true);
                self.beside(&mut pod, "nginx", &format!(
                    "until [ -e {FOLDER}/current/nginx.conf ]; do sleep 0.2; done; exec nginx \
                     -e stderr -g 'daemon off;' -c {FOLDER}/current/nginx.conf"
                ));
            }
        }
        json!({"spec": {
            "replicas": self.replicas,
            "selector": {"matchLabels": &labels},
            "template": {"metadata": {"labels": &labels}, "spec": pod},
        }})
    }

    fn image(&self) -> &str {
        match self.made.program {
            Program::Builtin => &self.images.builtin,
            Program::Haproxy => &self.images.haproxy,
            Program::Nginx => &self.images.nginx,
        }
    }

    /// Adds a proxy with the agent as its sidecar: an init container that restarts, so it starts first. Both share one
    /// folder.
    fn beside(&self, pod: &mut Value, program: &str, command: &str) {
        let shared = json!([{"name": "run", "mountPath": FOLDER}]);
        let mut agent =
            self.agent(&[format!("--driver={program}"), format!("--{program}-folder={FOLDER}")]);
        agent["restartPolicy"] = json!("Always");
        if let Some(mounts) = agent["volumeMounts"].as_array_mut() {
            mounts.insert(0, shared[0].clone());
        }
        pod["initContainers"] = json!([agent]);
        pod["containers"] = json!([{
            "name": program,
            "image": self.image(),
            "command": ["/bin/sh", "-c", command],
            "resources": {
                "requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "512Mi"},
            },
            "securityContext": security(),
            "volumeMounts": shared,
        }]);
        let run = json!({"name": "run", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}});
        pod["volumes"] = json!([run, token(), state()]);
    }

    fn agent(&self, more: &[String]) -> Value {
        let mut args = vec![
            "agent".to_owned(),
            format!("--load-balancer={}", self.made.name),
            format!("--system-namespace={}", self.own),
            "--listen=$(POD_IPS)".to_owned(),
            format!("--admin=[::]:{ADMIN}"),
            format!("--state={STATE}/agent"),
            "--log-format=json".to_owned(),
        ];
        if !self.deny_members.is_empty() {
            let denied: Vec<_> = self.deny_members.iter().map(ToString::to_string).collect();
            args.push(format!("--deny-members={}", denied.join(",")));
        }
        let probe = |path: &str, seconds: u32| json!({"httpGet": {"path": path, "port": ADMIN}, "periodSeconds": seconds});
        json!({
            "name": "agent",
            "image": self.image(),
            "command": ["/usr/local/bin/bowline"],
            "args": args.iter().chain(more).collect::<Vec<_>>(),
            "env": [
                {"name": "POD_IPS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIPs"}}},
            ],
            "ports": [{"name": "admin", "containerPort": ADMIN, "protocol": "TCP"}],
            "livenessProbe": probe("/livez", 10),
            "readinessProbe": probe("/readyz", 5),
            "resources": {
                "requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "384Mi"},
            },
            "securityContext": security(),
            "volumeMounts": [
                {"name": TOKEN, "mountPath": TOKEN_FOLDER, "readOnly": true},
                {"name": "state", "mountPath": STATE},
            ],
        })
    }

    /// The Service through which clients reach the proxies. It keeps the clients' source addresses. The agent's admin
    /// port is not part of it, even if a consumer wants that port.
    fn door(&self) -> Value {
        let (http, https) = self.made.ports;
        let all = [(http, Transport::Tcp), (https, Transport::Tcp)];
        let mut all: BTreeSet<_> = all.into_iter().chain(self.listeners.iter().copied()).collect();
        all.remove(&(ADMIN, Transport::Tcp));
        let port = |(port, transport): (u16, Transport)| {
            let (short, protocol) = match transport {
                Transport::Tcp => ("tcp", "TCP"),
                Transport::Udp => ("udp", "UDP"),
                Transport::Sctp => ("sctp", "SCTP"),
            };
            let name = format!("{short}-{port}");
            json!({"name": name, "port": port, "targetPort": port, "protocol": protocol})
        };
        let mut spec = json!({
            "type": "LoadBalancer",
            "externalTrafficPolicy": "Local",
            "selector": self.labels(),
            "ports": all.into_iter().take(MOST_PORTS).map(port).collect::<Vec<_>>(),
        });
        if self.address_pool.is_some() {
            spec["loadBalancerClass"] = json!(names::CLASS_LOAD_BALANCER);
        }
        json!({"spec": spec})
    }
}

/// A volume for kept state. It has room for two copies, because a new one is written before the old one is replaced.
fn state() -> Value {
    json!({"name": "state", "emptyDir": {"medium": "Memory", "sizeLimit": "128Mi"}})
}

/// The volume with the token and CA that an API client needs, with the content that Kubernetes would mount into every
/// container.
fn token() -> Value {
    json!({"name": TOKEN, "projected": {"sources": [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
        {"configMap": {
            "name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}],
        }},
        {"downwardAPI": {
            "items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}],
        }},
    ]}})
}

/// The security context of the containers. Ports below 1024 need a capability, which only root gets in a container.
fn security() -> Value {
    json!({
        "runAsUser": 0,
        "privileged": false,
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
    })
}

/// Whether an existing object has everything that is wanted. Fields that the API or others added are accepted, but no
/// list members. The API may leave out a field that is false.
pub fn covers(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => wanted
            .iter()
            .all(|(key, wanted)| covers(found.get(key).unwrap_or(&Value::Null), wanted)),
        (Value::Array(found), Value::Array(wanted)) => {
            found.len() == wanted.len()
                && found.iter().zip(wanted).all(|(found, wanted)| covers(found, wanted))
        }
        (Value::Null, Value::Bool(wanted)) => !wanted,
        _ => found == wanted,
    }
}

/// The progress of the proxies, from their Deployment.
pub fn rollout(deployment: &Value) -> Rollout {
    let number = |value: &Value| value.as_u64().and_then(|it| u32::try_from(it).ok()).unwrap_or(0);
    let (spec, status) = (&deployment["spec"], &deployment["status"]);
    let wanted = spec["replicas"].as_u64().map_or(1, |_| number(&spec["replicas"]));
    let current = status["observedGeneration"] == deployment["metadata"]["generation"];
    // Copies of an earlier template do not count.
    let ready = number(&status["readyReplicas"]).min(number(&status["updatedReplicas"]));
    let conditions = status["conditions"].as_array();
    let bad = |it: &&Value| match it["type"].as_str() {
        Some("ReplicaFailure") => it["status"] == "True",
        Some("Progressing") => it["status"] == "False",
        _ => false,
    };
    let stuck = conditions.into_iter().flatten().find(bad).filter(|_| current);
    let stuck =
        stuck.map(|it| it["message"].as_str().unwrap_or("the Deployment does not progress").into());
    Rollout { wanted, ready: if current { ready } else { 0 }, stuck }
}

#[cfg(test)]
mod tests;
