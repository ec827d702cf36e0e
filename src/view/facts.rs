//! Facts about a cluster from its lists: what the planner decides about them, what is recorded, and what
//! agents report. Pure.

mod announcing;
mod processes;
mod recorded;
mod settings;
mod telling;

pub(super) use announcing::Announcing;
pub(super) use processes::{Agent, Agents, Holder};
pub(super) use recorded::Recorded;

use super::doctor::ip_mode::Carriers;
use super::list::Lists;
use super::pooled::{Pooled, Told};
use super::words::Certificate;
use bowline_api::{Address, LoadBalancer, LoadBalancerClaim, LoadBalancerClass, convert};
use bowline_core::key::{ConsumerKind, ObjectKey};
use bowline_core::objects;
use bowline_core::outcome::{Outcome, Problem, Reason, quote};
use bowline_core::plan::{CertificateRef, Fragment, Site, SiteTls};
use bowline_core::planner::Planner;
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::networking::v1::{Ingress, IngressClass};
use k8s_openapi::jiff::Timestamp;
use processes::{agents, holder};
use recorded::recorded;
use settings::{guessed, settings};
use std::collections::BTreeMap;
use std::sync::Arc;
use telling::{admit, hostnames, tell};

/// The facts about a cluster.
pub(crate) struct Facts {
    pub(super) planner: Planner,
    pub(super) services: BTreeMap<ObjectKey, Service>,
    pub(super) ingresses: BTreeMap<ObjectKey, Ingress>,
    pub(super) classes: BTreeMap<String, IngressClass>,
    pub(super) load_balancers: BTreeMap<String, LoadBalancer>,
    pub(super) claims: BTreeMap<ObjectKey, LoadBalancerClaim>,
    pub(super) balancer_classes: Vec<LoadBalancerClass>,
    pub(super) namespaces: Vec<Namespace>,
    /// How many consumers name each claim.
    pub(super) wanted: Vec<(ObjectKey, u32)>,
    pub(super) recorded: BTreeMap<Arc<str>, Recorded>,
    pub(super) agents: BTreeMap<String, Agents>,
    pub(super) controller: Option<Holder>,
    pub(super) slices: Vec<objects::Slice>,
    pub(super) nodes: Vec<objects::Node>,
    /// What carries connections to addresses on the nodes.
    pub(super) carriers: Carriers,
    pub(super) addresses: Vec<Address>,
    pub(super) announcing: Announcing,
    /// The decisions about addresses. None: pools cannot be read.
    pub(super) pooled: Option<Pooled>,
    /// When the lists were read.
    pub(super) now: Timestamp,
    /// Whether Secrets could be read; if not, nothing is said about certificates.
    pub(super) knows_secrets: bool,
    pub(super) notes: Vec<String>,
}

impl Facts {
    /// The planner's decisions about the lists, with the settings of the cluster's controllers.
    /// `default_class` and `default_load_balancer` override those settings. If neither gives a setting, a
    /// note says so: the controllers may decide otherwise.
    pub(crate) fn new(
        lists: Lists,
        default_class: Option<bool>,
        default_load_balancer: Option<&str>,
        now: Timestamp,
    ) -> Self {
        let said = lists.controller().and_then(settings);
        let mut notes = lists.notes.clone();
        if said.is_none() {
            notes.extend(guessed(default_class, default_load_balancer));
        }
        let mut config = said.unwrap_or_default();
        config.default_class = default_class.unwrap_or(config.default_class);
        if let Some(name) = default_load_balancer {
            config.default_load_balancer = Some(name.into());
            if !lists.load_balancers.iter().any(|it| it.metadata.name.as_deref() == Some(name)) {
                notes.push(format!(
                    "There is no load balancer {}: Services and Ingresses that name none stay where they are \
                     served.",
                    quote(name)
                ));
            }
        }
        let agents = agents(&lists, now);
        let mut planner = Planner::new(config);
        tell(&mut planner, &lists, &agents);
        admit(&mut planner, &lists, now);
        let pooled = Pooled::decide(&mut planner, &lists, now);
        let wanted = planner.take().wanted;
        let controller = lists.controller().and_then(|lease| holder(lease, now));
        let key = |namespace: &Option<String>, name: &Option<String>| {
            ObjectKey::new(
                namespace.as_deref().unwrap_or_default(),
                name.as_deref().unwrap_or_default(),
            )
        };
        Self {
            planner,
            wanted,
            recorded: recorded(&lists),
            announcing: Announcing::of(&lists, now),
            controller,
            agents,
            knows_secrets: lists.secrets.is_some(),
            slices: lists.slices.iter().map(convert::slice).collect(),
            nodes: lists.nodes.iter().map(convert::node).collect(),
            carriers: Carriers::of(&lists.nodes),
            addresses: lists.addresses,
            pooled,
            claims: by_key(lists.claims, |it| key(&it.metadata.namespace, &it.metadata.name)),
            balancer_classes: lists.balancer_classes,
            namespaces: lists.namespaces,
            now,
            services: by_key(lists.services, |it| key(&it.metadata.namespace, &it.metadata.name)),
            ingresses: by_key(lists.ingresses, |it| key(&it.metadata.namespace, &it.metadata.name)),
            classes: by_key(lists.classes, |it| it.metadata.name.clone().unwrap_or_default()),
            load_balancers: by_key(lists.load_balancers, |it| {
                it.metadata.name.clone().unwrap_or_default()
            }),
            notes,
        }
    }

    /// Whether the cluster has this namespace, as far as namespaces can be read.
    pub(crate) fn has_namespace(&self, name: &str) -> bool {
        let named = |it: &Namespace| it.metadata.name.as_deref() == Some(name);
        self.namespaces.is_empty() || self.namespaces.iter().any(named)
    }

    /// The problems of a consumer that can be known: those of certificates only if Secrets can be read.
    pub(super) fn problems<'a>(
        &'a self,
        outcome: &'a Outcome,
    ) -> impl Iterator<Item = &'a Problem> + 'a {
        outcome.problems.iter().filter(|problem| self.can_tell(problem.reason))
    }

    /// The host names of a load balancer.
    pub(super) fn hostnames(&self, lb: &str) -> Vec<Arc<str>> {
        self.load_balancers.get(lb).map(hostnames).unwrap_or_default()
    }

    /// Whether an Address object names this uid as a holder.
    pub(super) fn has_address(&self, uid: &str) -> bool {
        let mut holders = self.addresses.iter().flat_map(|it| &it.spec.holders);
        holders.any(|holder| holder.uid == uid)
    }

    /// Why a consumer has its addresses. None: it requests none, or pools cannot be read.
    pub(super) fn told_of_address(&self, kind: ConsumerKind, key: &ObjectKey) -> Option<Told> {
        self.pooled.as_ref()?.told(kind, key)
    }

    /// Whether a problem with this reason is real: without Secrets every certificate seems to be missing.
    pub(super) fn can_tell(&self, reason: Reason) -> bool {
        self.knows_secrets || !matches!(reason, Reason::SecretNotFound | Reason::BadCertificate)
    }

    /// The certificate of a planned host. Without access to Secrets it is known from what the leader has
    /// recorded.
    pub(super) fn certificate(
        &self,
        load_balancer: &str,
        part: &Fragment,
        site: &Site,
        tls: &SiteTls,
    ) -> Certificate {
        if self.knows_secrets {
            return Certificate::of(tls, true);
        }
        let recorded = self.recorded.get(load_balancer);
        let fragments = recorded.and_then(|it| it.fragments.get(&part.consumer));
        let mut sites = fragments.into_iter().flatten().flat_map(|it| &it.sites);
        let same = sites.find(|it| it.entry == site.entry && it.host == site.host);
        match same.and_then(|it| it.tls.as_ref()) {
            Some(recorded) => Certificate::of(recorded, true),
            None => Certificate::Unknown,
        }
    }

    /// A fragment to show: with the certificates that are known.
    pub(super) fn told(&self, load_balancer: &str, part: &Fragment) -> Fragment {
        let mut told = part.clone();
        for (site, shown) in part.sites.iter().zip(&mut told.sites) {
            let Some(tls) = &mut shown.tls else { continue };
            if let Certificate::Known { hash } = self.certificate(load_balancer, part, site, tls) {
                tls.certificate = Some(CertificateRef { hash });
            }
        }
        told
    }

    /// A fragment to compare: without certificates if Secrets cannot be read.
    pub(super) fn comparable(&self, fragment: &Fragment) -> Fragment {
        let mut fragment = fragment.clone();
        if !self.knows_secrets {
            for tls in fragment.sites.iter_mut().filter_map(|site| site.tls.as_mut()) {
                tls.certificate = None;
            }
        }
        fragment
    }
}

fn by_key<K: Ord, V>(all: Vec<V>, key: impl Fn(&V) -> K) -> BTreeMap<K, V> {
    all.into_iter().map(|one| (key(&one), one)).collect()
}
