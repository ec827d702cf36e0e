//! What the controller hears: one watch per kind, each object read into what the planner knows of it and
//! what its status says, all into one channel.

use super::shown::{
    ClaimShown, CookiesShown, ExternalIpShown, LoadBalancerShown, PoolShown, ServiceShown, Shown,
    key,
};
use super::state::Target;
use crate::lease;
use crate::roles::{Context, ControllerOptions};
use crate::watch::{self, Seen, Selection};
use bowline_api::address::Address;
use bowline_api::address_pool::AddressPool;
use bowline_api::external_ip::ExternalIP;
use bowline_api::plan::Unread;
use bowline_api::{
    LoadBalancer, LoadBalancerClaim, LoadBalancerClass, LoadBalancerClassSpec, Plan, convert, names,
};
use bowline_core::addresses::{self, Record};
use bowline_core::binder::Class;
use bowline_core::hash::PlanHash;
use bowline_core::key::{ConsumerKind, ObjectKey};
use bowline_core::plan::Fragment;
use bowline_core::planner::{Event, Kind, Object};
use bowline_core::replicas::Entry;
use bowline_core::vault::Room;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Node, Secret, Service};
use k8s_openapi::api::networking::v1::{Ingress, IngressClass, IngressLoadBalancerIngress};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::Api;
use kube::core::DeserializeGuard;
use kube::{Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Something that the controller hears.
#[derive(Debug)]
pub(super) enum Heard {
    /// Something about an object that the planner knows; for those whose status we write, with it.
    Planner(Event, Option<Status>),
    /// Plans of ours.
    Plan(Seen<PlanSeen>),
    /// Secrets of ours with certificates.
    Certificates(Seen<CertificatesSeen>),
    /// Secrets of ours with what cookies are signed with.
    Cookies(Seen<CookiesSeen>),
    /// Leases of agents.
    Lease(Seen<LeaseSeen>),
    /// AddressPools.
    Pool(Seen<PoolSeen>),
    /// Address objects. None: one that stands for no address.
    Address(Seen<Option<Record>>),
    /// ExternalIPs.
    ExternalIp(Seen<Box<Shown<ExternalIpShown>>>),
    /// LoadBalancerClasses, and what each makes.
    Class(Seen<(Class, Arc<LoadBalancerClassSpec>)>),
    /// Deployments of proxies, by the load balancer that they serve.
    Proxies(Seen<Arc<str>>),
    /// Nodes with their addresses.
    Node(Seen<(Arc<str>, Vec<IpAddr>)>),
}

impl Heard {
    /// Whether this is an object of ours that cannot be read, or not wholly.
    pub(super) fn is_unreadable(&self) -> bool {
        matches!(self, Self::Plan(Seen::Apply(plan)) if plan.unreadable || !plan.unread.is_empty())
    }

    /// What this is news of.
    pub(super) fn target(&self) -> Option<Target> {
        let consumer = |kind, key: &ObjectKey| Some(Target::Consumer(kind, key.clone()));
        match self {
            Self::Planner(Event::Apply(object), _) => match &**object {
                Object::Service(it) => consumer(ConsumerKind::Service, &it.key),
                Object::Ingress(it) => consumer(ConsumerKind::Ingress, &it.key),
                Object::LoadBalancer(it) => Some(Target::LoadBalancer(Arc::clone(&it.name))),
                Object::Claim(it) => Some(Target::Claim(it.key.clone())),
                _ => None,
            },
            Self::Pool(Seen::Apply(pool) | Seen::Delete(pool)) => {
                Some(Target::Pool(Arc::clone(&pool.pool.name)))
            }
            Self::ExternalIp(Seen::Apply(it) | Seen::Delete(it)) => {
                Some(Target::ExternalIp(it.status.claim.holder.key.clone()))
            }
            Self::Plan(Seen::Apply(plan) | Seen::Delete(plan)) => {
                Some(Target::Plans(Arc::clone(&plan.load_balancer)))
            }
            Self::Certificates(Seen::Apply(secret) | Seen::Delete(secret)) => {
                Some(Target::Certificates(Arc::clone(&secret.load_balancer)))
            }
            Self::Cookies(Seen::Apply(secret) | Seen::Delete(secret)) => {
                Some(Target::Cookies(Arc::clone(&secret.load_balancer)))
            }
            _ => None,
        }
    }
}

/// What a status says.
#[derive(Debug)]
pub(super) enum Status {
    Service(Shown<ServiceShown>),
    Ingress(Shown<Vec<IngressLoadBalancerIngress>>),
    LoadBalancer(Box<Shown<LoadBalancerShown>>),
    Claim(Box<Shown<ClaimShown>>),
}

/// A Plan object.
#[derive(Debug)]
pub(super) struct PlanSeen {
    pub(super) name: String,
    pub(super) load_balancer: Arc<str>,
    pub(super) version: String,
    /// The uid of the load balancer to which it belongs, if its label is right too.
    pub(super) owner: Option<String>,
    pub(super) fragments: Vec<Fragment>,
    /// Those that another version has written, or a person, and that cannot be read.
    pub(super) unread: Vec<Unread>,
    /// The hash that its writer gave it.
    pub(super) hash: PlanHash,
    /// Whether the object as a whole cannot be read.
    pub(super) unreadable: bool,
}

impl PlanSeen {
    /// Whether it has the name of a Plan of its load balancer.
    pub(super) fn is_ours(&self) -> bool {
        is_plan_of(&self.name, &self.load_balancer)
    }

    /// Reads an object. One that somebody edited so that it cannot be read is there, and holds what we
    /// do not know: so it is written again.
    pub(super) fn of(DeserializeGuard(plan): DeserializeGuard<Plan>) -> Self {
        let (meta, spec) = match plan {
            Ok(plan) => (plan.metadata, Some(plan.spec)),
            Err(invalid) => {
                let name = invalid.metadata.name.as_deref().unwrap_or_default();
                tracing::warn!(name, error = invalid.error, "a Plan cannot be read");
                (invalid.metadata, None)
            }
        };
        let name = meta.name.clone().unwrap_or_default();
        // A name that is not one of its load balancer's was not given by us: somebody edited the other.
        let spec = spec.filter(|spec| is_plan_of(&name, &spec.load_balancer));
        let load_balancer = match &spec {
            Some(spec) => spec.load_balancer.as_str(),
            None => load_balancer_of(&meta, &name, numbered(&name, ""), is_plan_of),
        };
        let (load_balancer, owner) =
            (load_balancer.into(), convert::owner_uid(&meta, load_balancer));
        let unreadable = spec.is_none();
        let (fragments, unread, hash) =
            spec.map(|spec| (spec.fragments, spec.unread, spec.hash)).unwrap_or_default();
        let version = meta.resource_version.unwrap_or_default();
        Self { load_balancer, owner, unreadable, version, fragments, unread, hash, name }
    }
}

/// Whether a Plan of this name is one of this load balancer.
fn is_plan_of(name: &str, load_balancer: &str) -> bool {
    names::plan_index(name).is_some_and(|index| names::plan_name(load_balancer, index) == name)
}

/// Whether a Secret of this name has certificates of this load balancer.
fn is_secret_of(name: &str, load_balancer: &str) -> bool {
    names::plan_index(name)
        .is_some_and(|index| names::certificates_secret(load_balancer, index) == name)
}

/// Whether a Secret of this name has what cookies of this load balancer are signed with.
fn is_cookies_of(name: &str, load_balancer: &str) -> bool {
    names::cookies_secret(load_balancer) == name
}

/// What a name has between a prefix and a number.
fn numbered<'a>(name: &'a str, prefix: &str) -> Option<&'a str> {
    Some(name.strip_prefix(prefix)?.rsplit_once('-')?.0)
}

/// The load balancer of an object that does not say it: its owner or, where that is another, the one
/// that its name seems to have. Long names are not whole in it. Empty: none that we know.
fn load_balancer_of<'a>(
    meta: &'a ObjectMeta,
    name: &str,
    named: Option<&'a str>,
    is_of: fn(&str, &str) -> bool,
) -> &'a str {
    let owners = meta.owner_references.iter().flatten().map(|owner| owner.name.as_str());
    let mut all = owners.chain(named);
    all.find(|load_balancer| is_of(name, load_balancer)).unwrap_or_default()
}

/// A Secret of ours: which certificates it has, and how large they are. Never the keys.
#[derive(Debug)]
pub(super) struct CertificatesSeen {
    pub(super) name: String,
    pub(super) load_balancer: Arc<str>,
    pub(super) version: String,
    /// The uid of the load balancer to which it belongs, if its label is right too.
    pub(super) owner: Option<String>,
    pub(super) sizes: Vec<(Arc<str>, usize)>,
    /// The rooms that are recorded with them.
    pub(super) rooms: BTreeMap<Arc<str>, Room>,
}

impl CertificatesSeen {
    /// Whether it has the name of a Secret of its load balancer.
    pub(super) fn is_ours(&self) -> bool {
        is_secret_of(&self.name, &self.load_balancer)
    }

    pub(super) fn of(secret: &Secret) -> Self {
        let (meta, name) = (&secret.metadata, secret.name_any());
        let named = numbered(&name, names::SECRET_PREFIX);
        let load_balancer = load_balancer_of(meta, &name, named, is_secret_of);
        Self {
            load_balancer: load_balancer.into(),
            owner: convert::owner_uid(meta, load_balancer),
            version: secret.resource_version().unwrap_or_default(),
            sizes: convert::certificates(secret)
                .into_iter()
                .map(|(hash, it)| (hash, it.chain.len() + it.key.len()))
                .collect(),
            rooms: convert::rooms(secret),
            name,
        }
    }
}

/// A Secret of ours with what cookies are signed with. Never that itself.
#[derive(Debug)]
pub(super) struct CookiesSeen {
    /// Empty: it has not the name of such a Secret of a load balancer that we know.
    pub(super) load_balancer: Arc<str>,
    pub(super) shown: Shown<CookiesShown>,
}

impl CookiesSeen {
    pub(super) fn of(secret: &Secret) -> Self {
        let (meta, name) = (&secret.metadata, secret.name_any());
        let named = name.strip_prefix(names::COOKIES_PREFIX);
        let load_balancer = load_balancer_of(meta, &name, named, is_cookies_of);
        let shown = CookiesShown {
            owner: convert::owner_uid(meta, load_balancer),
            readable: convert::cookie_secret(secret).is_some(),
        };
        Self { load_balancer: load_balancer.into(), shown: Shown::new(meta, shown) }
    }
}

/// An AddressPool, and what its status says.
#[derive(Debug)]
pub(super) struct PoolSeen {
    pub(super) pool: addresses::Pool,
    pub(super) shown: Shown<PoolShown>,
}

impl PoolSeen {
    pub(super) fn of(pool: &AddressPool) -> Self {
        Self { pool: convert::pool(pool), shown: Shown::<PoolShown>::of(pool) }
    }
}

/// The Lease of the agents of a load balancer.
#[derive(Debug)]
pub(super) struct LeaseSeen {
    pub(super) name: String,
    pub(super) entries: Vec<Entry>,
}

impl LeaseSeen {
    fn of(lease: &Lease) -> Self {
        Self { name: lease.name_any(), entries: lease::entries(lease) }
    }
}

/// Starts all watches.
pub(super) fn follow(
    client: &Client,
    options: &ControllerOptions,
    context: &Context,
    listener: &mpsc::Sender<Heard>,
) -> JoinSet<()> {
    let mut inputs = Inputs {
        client,
        context,
        listener,
        watches: JoinSet::new(),
        namespace: &options.namespace,
    };
    inputs.planned(Kind::Service, "Service", Selection::default(), |it: &Service| {
        let status = Status::Service(Shown::<ServiceShown>::of(it));
        (Object::Service(convert::service(it)), Some(status))
    });
    inputs.planned(Kind::Ingress, "Ingress", Selection::default(), |it: &Ingress| {
        let status = Status::Ingress(Shown::<Vec<IngressLoadBalancerIngress>>::of(it));
        (Object::Ingress(convert::ingress(it)), Some(status))
    });
    inputs.planned(
        Kind::IngressClass,
        "IngressClass",
        Selection::default(),
        |it: &IngressClass| (Object::IngressClass(convert::ingress_class(it)), None),
    );
    let tls = Selection::fields(format!("type={}", convert::TYPE_TLS));
    inputs.planned(Kind::TlsSecret, "Secret", tls, |it: &Secret| {
        (Object::TlsSecret(convert::tls_secret(it).0), None)
    });
    inputs.planned(Kind::Namespace, "Namespace", Selection::default(), |it: &Namespace| {
        (Object::Namespace(convert::namespace(it)), None)
    });
    inputs.planned(
        Kind::LoadBalancer,
        "LoadBalancer",
        Selection::default(),
        |it: &LoadBalancer| {
            let status = Status::LoadBalancer(Box::new(Shown::<LoadBalancerShown>::of(it)));
            (Object::LoadBalancer(convert::load_balancer(it)), Some(status))
        },
    );
    inputs.planned(
        Kind::Claim,
        "LoadBalancerClaim",
        Selection::default(),
        |it: &LoadBalancerClaim| {
            let status = Status::Claim(Box::new(Shown::<ClaimShown>::of(it)));
            (Object::Claim(convert::claimed(it)), Some(status))
        },
    );
    inputs.everywhere("LoadBalancerClass", |seen: Seen<LoadBalancerClass>| {
        Heard::Class(seen.map(|it| (convert::class(&it), Arc::new(it.spec))))
    });
    inputs.ours("Plan", Selection::default(), |seen: Seen<DeserializeGuard<Plan>>| {
        Heard::Plan(seen.map(PlanSeen::of))
    });
    let ours = Selection::fields(format!("type={}", names::SECRET_TYPE_CERTIFICATES));
    inputs.ours("certificates", ours, |seen: Seen<Secret>| {
        Heard::Certificates(seen.map(|secret| CertificatesSeen::of(&secret)))
    });
    let ours = Selection::fields(format!("type={}", names::SECRET_TYPE_COOKIES));
    inputs.ours("cookies", ours, |seen: Seen<Secret>| {
        Heard::Cookies(seen.map(|secret| CookiesSeen::of(&secret)))
    });
    inputs.ours("Lease", Selection::default(), |seen: Seen<Lease>| {
        Heard::Lease(seen.map(|lease| LeaseSeen::of(&lease)))
    });
    inputs.everywhere("AddressPool", |seen: Seen<AddressPool>| {
        Heard::Pool(seen.map(|pool| PoolSeen::of(&pool)))
    });
    inputs.everywhere("Address", |seen: Seen<Address>| {
        Heard::Address(seen.map(|address| convert::record(&address)))
    });
    inputs.everywhere("ExternalIP", |seen: Seen<ExternalIP>| {
        Heard::ExternalIp(seen.map(|it| Box::new(Shown::<ExternalIpShown>::of(&it))))
    });
    if options.local_ports.is_none() {
        let ours = Selection::labels(names::LABEL_LOAD_BALANCER.to_owned());
        let api: Api<Deployment> = Api::all(client.clone());
        inputs.start(api, "Deployment", ours, |seen: Seen<Deployment>| {
            Some(Heard::Proxies(seen.map(|it| served_by(&it.metadata))))
        });
    }
    inputs.everywhere("Node", |seen: Seen<Node>| {
        Heard::Node(seen.map(|node| (node.name_any().into(), convert::node_addresses(&node))))
    });
    inputs.watches
}

/// The load balancer that an object of ours serves; empty where it says none.
fn served_by(meta: &ObjectMeta) -> Arc<str> {
    let kind = LoadBalancer::kind(&());
    let owner = meta.owner_references.iter().flatten().find(|it| it.kind == kind);
    owner.map_or("", |it| it.name.as_str()).into()
}

struct Inputs<'a> {
    client: &'a Client,
    context: &'a Context,
    listener: &'a mpsc::Sender<Heard>,
    watches: JoinSet<()>,
    namespace: &'a str,
}

impl Inputs<'_> {
    /// Follows a kind that the planner knows, in all namespaces.
    fn planned<K>(
        &mut self,
        kind: Kind,
        what: &'static str,
        selection: Selection,
        read: fn(&K) -> (Object, Option<Status>),
    ) where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    {
        let read = move |seen: Seen<K>| {
            let (event, status) = match seen {
                Seen::Begin => (Event::Begin(kind), None),
                Seen::Apply(object) => {
                    let (object, status) = read(&object);
                    (Event::Apply(Box::new(object)), status)
                }
                Seen::Delete(object) => (Event::Delete(kind, named(&object)), read(&object).1),
                Seen::Done => (Event::Done(kind), None),
            };
            Some(Heard::Planner(event, status))
        };
        self.start(Api::all(self.client.clone()), what, selection, read);
    }

    /// Follows a kind of the whole cluster.
    fn everywhere<K>(&mut self, what: &'static str, read: fn(Seen<K>) -> Heard)
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    {
        let api = Api::all(self.client.clone());
        self.start(api, what, Selection::default(), move |seen| Some(read(seen)));
    }

    /// Follows what is in our own namespace.
    fn ours<K>(&mut self, what: &'static str, selection: Selection, read: fn(Seen<K>) -> Heard)
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + Debug
            + Send
            + Sync
            + 'static,
    {
        let api = Api::namespaced(self.client.clone(), self.namespace);
        self.start(api, what, selection, move |seen| Some(read(seen)));
    }

    fn start<K>(
        &mut self,
        api: Api<K>,
        what: &'static str,
        selection: Selection,
        read: impl FnMut(Seen<K>) -> Option<Heard> + Send + 'static,
    ) where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    {
        let (metrics, listener) = (self.context.metrics.clone(), self.listener.clone());
        self.watches.spawn(watch::follow(api, selection, what, metrics, listener, read));
    }
}

fn named<K: Resource>(object: &K) -> ObjectKey {
    key(object.meta())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn plan(name: &str, owner: &str, spec: Value) -> PlanSeen {
        let reference = json!({
            "apiVersion": "bowline.dev/v1alpha1", "kind": "LoadBalancer", "name": owner, "uid": "u",
        });
        let metadata = json!({
            "name": name,
            "resourceVersion": "7",
            "labels": {names::LABEL_LOAD_BALANCER: owner},
            "ownerReferences": [reference],
        });
        let object = json!({
            "apiVersion": "bowline.dev/v1alpha1", "kind": "Plan", "metadata": metadata, "spec": spec,
        });
        PlanSeen::of(serde_json::from_value(object).unwrap())
    }

    /// Whose it is, its owner's uid, and whether it cannot be read.
    fn told(plan: &PlanSeen) -> (&str, Option<&str>, bool) {
        (&plan.load_balancer, plan.owner.as_deref(), plan.unreadable)
    }

    #[test]
    fn a_plan_belongs_to_the_load_balancer_of_its_name_whatever_was_edited() {
        let spec = |lb: &str| json!({"loadBalancer": lb, "hash": "0".repeat(64), "fragments": []});
        let right = plan("edge-0", "edge", spec("edge"));
        assert_eq!(told(&right), ("edge", Some("u"), false));
        assert_eq!(told(&plan("edge-0", "edge", spec("other"))), ("edge", Some("u"), true));
        assert_eq!(
            told(&plan("edge-0", "edge", json!({"fragments": 3}))),
            ("edge", Some("u"), true)
        );
        assert_eq!(told(&plan("edge-0", "other", spec("edge"))), ("edge", None, false));
        assert_eq!(told(&plan("edge-0", "other", spec("other"))), ("edge", None, true));
        assert!(!plan("edge", "edge", spec("edge")).is_ours());
    }

    #[test]
    fn a_secret_belongs_to_the_load_balancer_of_its_name_whatever_was_edited() {
        let secret = |name: &str, label: &str, owner: &str| {
            let owner = json!({
                "apiVersion": "bowline.dev/v1alpha1", "kind": "LoadBalancer", "name": owner, "uid": "u",
            });
            let labels = json!({names::LABEL_LOAD_BALANCER: label});
            let metadata = json!({"name": name, "labels": labels, "ownerReferences": [owner]});
            CertificatesSeen::of(&serde_json::from_value(json!({"metadata": metadata})).unwrap())
        };
        let told = |seen: CertificatesSeen| {
            let ours = seen.is_ours();
            (seen.load_balancer.to_string(), seen.owner, ours)
        };
        let (edge, uid) = ("edge".to_owned(), Some("u".to_owned()));
        let name = "bowline-tls-edge-0";
        assert_eq!(told(secret(name, "edge", "edge")), (edge.clone(), uid, true));
        assert_eq!(told(secret(name, "other", "edge")), (edge.clone(), None, true));
        assert_eq!(told(secret(name, "edge", "other")), (edge, None, true));
        assert_eq!(told(secret("edge-0", "edge", "edge")), (String::new(), None, false));
    }

    #[test]
    fn the_plan_of_a_load_balancer_with_a_long_name_is_found_by_its_owner() {
        let long = "a".repeat(253);
        let seen = plan(&names::plan_name(&long, 0), &long, json!({}));
        assert_eq!((&*seen.load_balancer, seen.unreadable), (long.as_str(), true));
    }
}
