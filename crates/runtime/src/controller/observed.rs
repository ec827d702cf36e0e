//! What the controller observes: one variant for each watched kind. Each object is converted once into what
//! the machines and the statuses need. This module decides nothing; `watches` creates the values and
//! `state::observe` consumes them.

use super::kinds::KindSeen;
use super::shown::{ClaimShown, CookiesShown, LoadBalancerShown, ServiceShown, Shown};
use super::target::Target;
use crate::lease;
use crate::watch::Seen;
use bowline_api::address::AnnouncedBy;
use bowline_api::plan::Unread;
use bowline_api::{
    Address, LoadBalancer, LoadBalancerClaim, LoadBalancerClassSpec, Plan, convert, names,
};
use bowline_core::addresses::Record;
use bowline_core::announce::SpeakerLease;
use bowline_core::binder::Class;
use bowline_core::certificate_rooms::Room;
use bowline_core::hash::PlanHash;
use bowline_core::key::ConsumerKind;
use bowline_core::objects;
use bowline_core::plan::Fragment;
use bowline_core::replicas::Entry;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Secret, Service};
use k8s_openapi::api::networking::v1::{Ingress, IngressLoadBalancerIngress};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;
use kube::core::DeserializeGuard;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// An event of a watch.
#[derive(Debug)]
pub(super) enum Observed {
    /// Services.
    Service(Seen<Box<ServiceSeen>>),
    /// Ingresses.
    Ingress(Seen<Box<IngressSeen>>),
    /// IngressClasses.
    IngressClass(Seen<objects::IngressClass>),
    /// Secrets of type kubernetes.io/tls.
    TlsSecret(Seen<objects::TlsSecret>),
    /// Namespaces.
    Namespace(Seen<objects::Namespace>),
    /// LoadBalancers.
    LoadBalancer(Seen<Box<LoadBalancerSeen>>),
    /// LoadBalancerClaims.
    Claim(Seen<Box<ClaimSeen>>),
    /// LoadBalancerClasses with their specs.
    Class(Seen<(Class, Arc<LoadBalancerClassSpec>)>),
    /// Plans in Bowline's namespace.
    Plan(Seen<PlanSeen>),
    /// Certificate Secrets in Bowline's namespace.
    Certificates(Seen<CertificatesSeen>),
    /// Cookie Secrets (keys that sign cookies) in Bowline's namespace.
    Cookies(Seen<CookiesSeen>),
    /// Leases of agents.
    Lease(Seen<LeaseSeen>),
    /// Address objects. None: the object's name is not an IP address.
    Address(Seen<Option<AddressSeen>>),
    /// Objects of the kinds in `kinds`.
    Object(KindSeen),
    /// Deployments of proxies; the value is the load balancer that they serve.
    Proxies(Seen<Arc<str>>),
    /// Nodes and their addresses.
    Node(Seen<(Arc<str>, Vec<IpAddr>)>),
}

impl Observed {
    /// Whether this is a Plan that cannot be read completely.
    pub(super) fn is_unreadable(&self) -> bool {
        matches!(self, Self::Plan(Seen::Apply(plan)) if plan.unreadable || !plan.unread.is_empty())
    }

    /// The target that is held after a conflict until this event.
    pub(super) fn target(&self) -> Option<Target> {
        match self {
            Self::Service(Seen::Apply(it)) => {
                Some(Target::Consumer(ConsumerKind::Service, it.planned.key.clone()))
            }
            Self::Ingress(Seen::Apply(it)) => {
                Some(Target::Consumer(ConsumerKind::Ingress, it.planned.key.clone()))
            }
            Self::LoadBalancer(Seen::Apply(it)) => {
                Some(Target::LoadBalancer(Arc::clone(&it.planned.name)))
            }
            Self::Claim(Seen::Apply(it)) => Some(Target::Claim(it.planned.key.clone())),
            Self::Object(seen) => seen.target(),
            Self::Address(Seen::Apply(Some(it))) => Some(Target::Announced(it.record.address)),
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

/// A Service: what the planner needs, and the status that it shows.
#[derive(Debug)]
pub(super) struct ServiceSeen {
    pub(super) planned: objects::Service,
    pub(super) shown: Shown<ServiceShown>,
}

impl ServiceSeen {
    pub(super) fn of(service: &Service) -> Self {
        Self { planned: convert::service(service), shown: Shown::<ServiceShown>::of(service) }
    }
}

/// An Address: what is recorded, and where its status says that it is announced.
#[derive(Debug)]
pub(super) struct AddressSeen {
    pub(super) record: Record,
    pub(super) announced_by: Option<AnnouncedBy>,
}

impl AddressSeen {
    pub(super) fn of(address: &Address) -> Option<Self> {
        let announced_by = address.status.as_ref().and_then(|it| it.announced_by.clone());
        Some(Self { record: convert::record(address)?, announced_by })
    }
}

/// An Ingress: what the planner needs, and the status that it shows.
#[derive(Debug)]
pub(super) struct IngressSeen {
    pub(super) planned: objects::Ingress,
    pub(super) shown: Shown<Vec<IngressLoadBalancerIngress>>,
}

impl IngressSeen {
    pub(super) fn of(ingress: &Ingress) -> Self {
        let shown = Shown::<Vec<IngressLoadBalancerIngress>>::of(ingress);
        Self { planned: convert::ingress(ingress), shown }
    }
}

/// A LoadBalancer: what the planner needs; and what binder, admission and statuses need.
#[derive(Debug)]
pub(super) struct LoadBalancerSeen {
    pub(super) planned: objects::LoadBalancer,
    pub(super) shown: Shown<LoadBalancerShown>,
}

impl LoadBalancerSeen {
    pub(super) fn of(load_balancer: &LoadBalancer) -> Self {
        let shown = Shown::<LoadBalancerShown>::of(load_balancer);
        Self { planned: convert::load_balancer(load_balancer), shown }
    }
}

/// A LoadBalancerClaim: what the planner needs; and what the binder and the claim's status need.
#[derive(Debug)]
pub(super) struct ClaimSeen {
    pub(super) planned: objects::LoadBalancerClaim,
    pub(super) shown: Shown<ClaimShown>,
}

impl ClaimSeen {
    pub(super) fn of(claim: &LoadBalancerClaim) -> Self {
        Self { planned: convert::claimed(claim), shown: Shown::<ClaimShown>::of(claim) }
    }
}

/// A Plan object.
#[derive(Debug)]
pub(super) struct PlanSeen {
    pub(super) name: String,
    pub(super) load_balancer: Arc<str>,
    pub(super) version: String,
    /// The uid of the load balancer that owns it, if its label is right too.
    pub(super) owner: Option<String>,
    pub(super) fragments: Vec<Fragment>,
    /// Fragments that cannot be read: another version of Bowline wrote them, or a person edited them.
    pub(super) unread: Vec<Unread>,
    /// The recorded hash.
    pub(super) hash: PlanHash,
    /// What it says that agents have to run.
    pub(super) driver: Option<Box<str>>,
    /// Whether the object as a whole cannot be read.
    pub(super) unreadable: bool,
}

impl PlanSeen {
    /// Whether its name is a Plan name of its load balancer.
    pub(super) fn is_ours(&self) -> bool {
        is_plan_of(&self.name, &self.load_balancer)
    }

    /// Converts a Plan. A Plan that was edited so that it cannot be read is kept as `unreadable`, so that
    /// the leader writes it again.
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
        // The leader names a Plan after its load balancer. If name and spec differ, a person edited the
        // spec.
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
        let driver = meta.annotations.as_ref().and_then(|all| all.get(names::ANNOTATION_DRIVER));
        let driver = driver.map(|it| it.as_str().into());
        let version = meta.resource_version.unwrap_or_default();
        Self { load_balancer, owner, driver, unreadable, version, fragments, unread, hash, name }
    }
}

/// Whether this is the name of a Plan of this load balancer.
fn is_plan_of(name: &str, load_balancer: &str) -> bool {
    names::plan_index(name).is_some_and(|index| names::plan_name(load_balancer, index) == name)
}

/// Whether this is the name of a certificate Secret of this load balancer.
fn is_secret_of(name: &str, load_balancer: &str) -> bool {
    names::plan_index(name)
        .is_some_and(|index| names::certificates_secret(load_balancer, index) == name)
}

/// Whether this is the name of the cookie Secret of this load balancer.
fn is_cookies_of(name: &str, load_balancer: &str) -> bool {
    names::cookies_secret(load_balancer) == name
}

/// The part of a name between a prefix and a number.
fn numbered<'a>(name: &'a str, prefix: &str) -> Option<&'a str> {
    Some(name.strip_prefix(prefix)?.rsplit_once('-')?.0)
}

/// The load balancer of an object that does not name it: its owner or, if their names do not match, the
/// load balancer in the object's name. An object's name contains a long name only in part. Empty: no known
/// load balancer.
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

/// One of Bowline's certificate Secrets: which certificates it contains, and their sizes. Never the keys.
#[derive(Debug)]
pub(super) struct CertificatesSeen {
    pub(super) name: String,
    pub(super) load_balancer: Arc<str>,
    pub(super) version: String,
    /// The uid of the load balancer that owns it, if its label is right too.
    pub(super) owner: Option<String>,
    pub(super) sizes: Vec<(Arc<str>, usize)>,
    /// The rooms recorded beside the certificates.
    pub(super) rooms: BTreeMap<Arc<str>, Room>,
}

impl CertificatesSeen {
    /// Whether its name is the name of a certificate Secret of its load balancer.
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

/// One of Bowline's cookie Secrets. Never the key in it.
#[derive(Debug)]
pub(super) struct CookiesSeen {
    /// Empty: the Secret does not have the name of a cookie Secret of a known load balancer.
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

/// The Lease of the agents of a load balancer.
#[derive(Debug)]
pub(super) struct LeaseSeen {
    pub(super) name: String,
    pub(super) entries: Vec<Entry>,
    /// What a speaker reports there.
    pub(super) speaker: Option<SpeakerLease>,
}

impl LeaseSeen {
    pub(super) fn of(lease: &Lease) -> Self {
        let speaker = lease::speaker(lease);
        Self { name: lease.name_any(), entries: lease::entries(lease), speaker }
    }
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

    /// Its load balancer, its owner's uid, and whether it is unreadable.
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
