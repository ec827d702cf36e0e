//! Facts about a cluster from its lists: what the planner decides about them, what is recorded, and what
//! agents report. Pure.

use super::list::Lists;
use super::pooled::{Pooled, Told};
use super::words::Certificate;
use bowline_api::provisioned_objects::Made;
use bowline_api::{
    Address, LoadBalancer, LoadBalancerClaim, LoadBalancerClass, Plan, convert, names,
};
use bowline_core::addresses::{AddressState, HolderKind, HolderRef, Record};
use bowline_core::hash::PlanHash;
use bowline_core::key::{ConsumerKind, ConsumerRef, ObjectKey};
use bowline_core::objects;
use bowline_core::outcome::{Outcome, Problem, Reason, quote};
use bowline_core::plan::{CertificateRef, Fragment, Site, SiteTls};
use bowline_core::planner::{self, Config, Event, Grant, Kind, Object, Planner};
use bowline_core::provision::Reach;
use bowline_core::replicas::{Entry, Heard, Joint, Said};
use bowline_core::update::Refusal;
use bowline_runtime::lease;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::networking::v1::{Ingress, IngressClass};
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

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
    pub(super) addresses: Vec<Address>,
    /// The decisions about addresses. None: pools cannot be read.
    pub(super) pooled: Option<Pooled>,
    /// When the lists were read.
    pub(super) now: Timestamp,
    /// Whether Secrets could be read; if not, nothing is said about certificates.
    pub(super) knows_secrets: bool,
    pub(super) notes: Vec<String>,
}

/// What Plan objects hold for one load balancer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Recorded {
    /// The fragments, in their parts, by consumer.
    pub(super) fragments: BTreeMap<ConsumerRef, Vec<Fragment>>,
    /// The hash of all fragments.
    pub(super) hash: PlanHash,
}

/// The holder of a Lease, and how long it has been silent. The clocks of its machine and of this one may
/// differ, so only the leader, which measures with one clock, decides whether it is alive.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Holder {
    pub(super) identity: String,
    /// The version of its program. None: earlier versions do not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) version: Option<String>,
    /// Seconds since its last renewal, by the clock of this machine.
    pub(super) silent_seconds: i64,
    /// Whether that is longer than the Lease lasts.
    pub(super) overdue: bool,
}

/// The report of one agent of a load balancer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Agent {
    /// None: it has left.
    pub(super) holder: Option<Holder>,
    pub(super) said: Said,
}

/// The agents of a load balancer.
#[derive(Clone, Debug, Default)]
pub(super) struct Agents {
    pub(super) all: Vec<Agent>,
    /// Their joint report.
    pub(super) joint: Joint,
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
            controller,
            agents,
            knows_secrets: lists.secrets.is_some(),
            slices: lists.slices.iter().map(convert::slice).collect(),
            nodes: lists.nodes.iter().map(convert::node).collect(),
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

/// The settings of the controllers of a cluster, from their Lease. None: the Lease does not have them.
fn settings(lease: &Lease) -> Option<Config> {
    let annotation = |key: &str| lease.metadata.annotations.as_ref()?.get(key);
    Some(Config {
        default_class: annotation(names::ANNOTATION_DEFAULT_CLASS)? == "true",
        default_load_balancer: annotation(names::ANNOTATION_DEFAULT_LOAD_BALANCER)
            .filter(|name| !name.is_empty())
            .map(|name| name.as_str().into()),
    })
}

/// The note that settings are guessed, unless all are given.
fn guessed(default_class: Option<bool>, default_load_balancer: Option<&str>) -> Option<String> {
    let class = default_class.is_none().then_some("--default-class=false");
    let name = default_load_balancer.is_none().then_some("no --default-load-balancer");
    let taken: Vec<_> = class.into_iter().chain(name).collect();
    (!taken.is_empty()).then(|| {
        format!(
            "The settings of the controllers are not known. Assumed: {}. Give these flags, or name Bowline's own \
             namespace with --system-namespace.",
            taken.join(" and ")
        )
    })
}

fn tell(planner: &mut Planner, lists: &Lists, agents: &BTreeMap<String, Agents>) {
    let mut kind = |kind: Kind, objects: &mut dyn Iterator<Item = Object>| {
        planner.handle(Event::Begin(kind));
        for object in objects {
            planner.handle(Event::Apply(Box::new(object)));
        }
        planner.handle(Event::Done(kind));
    };
    let secrets = lists.secrets.iter().flatten();
    kind(
        Kind::LoadBalancer,
        &mut lists.load_balancers.iter().map(convert::load_balancer).map(Object::LoadBalancer),
    );
    kind(Kind::Claim, &mut lists.claims.iter().map(convert::claimed).map(Object::Claim));
    kind(
        Kind::Namespace,
        &mut lists.namespaces.iter().map(convert::namespace).map(Object::Namespace),
    );
    kind(
        Kind::IngressClass,
        &mut lists.classes.iter().map(convert::ingress_class).map(Object::IngressClass),
    );
    kind(
        Kind::TlsSecret,
        &mut secrets.map(|secret| Object::TlsSecret(convert::tls_secret(secret).0)),
    );
    kind(Kind::Service, &mut lists.services.iter().map(convert::service).map(Object::Service));
    kind(Kind::Ingress, &mut lists.ingresses.iter().map(convert::ingress).map(Object::Ingress));
    for (name, agent) in agents {
        planner.handle(Event::Reported(name.as_str().into(), agent.joint.addresses.clone()));
        let unserved = agent.joint.refused.iter().filter_map(Refusal::unserved).collect();
        planner.handle(Event::Unserved(name.as_str().into(), unserved));
    }
    // A load balancer that a class made is reached at the address of its Service, as its status shows.
    for lb in lists.load_balancers.iter().filter(|lb| Made::of(lb).is_some()) {
        let points = lb.status.iter().flat_map(|status| &status.ingress);
        let reach =
            Reach { addresses: points.filter_map(|it| it.ip).collect(), hostnames: hostnames(lb) };
        planner.handle(Event::Reported(
            lb.metadata.name.as_deref().unwrap_or_default().into(),
            reach.listeners(),
        ));
    }
    for ((kind, key), grant) in grants(lists) {
        planner.handle(Event::Granted(kind, key, grant));
    }
    // A consumer keeps the ports and hosts that are recorded for it.
    for plan in &lists.plans {
        if let Some(index) = index(plan) {
            let lb = plan.spec.load_balancer.as_str();
            let held = plan.spec.held();
            let held = held.iter().map(AsRef::as_ref);
            planner.handle(Event::Recorded(planner::Record::new(lb, index, held)));
        }
    }
}

/// The host names of a load balancer that a class made, as its status shows.
fn hostnames(lb: &LoadBalancer) -> Vec<Arc<str>> {
    let made = lb.status.iter().filter(|_| Made::of(lb).is_some());
    let points = made.flat_map(|status| &status.ingress);
    points.filter_map(|it| Some(it.hostname.as_deref()?.into())).collect()
}

/// Gives consumers the seats that are recorded, on load balancers that count seats.
fn admit(planner: &mut Planner, lists: &Lists, now: Timestamp) {
    use bowline_core::admission::{self, Admission};
    let mut machine = Admission::new();
    let now = now.as_second();
    for seating in lists.load_balancers.iter().filter_map(convert::seating) {
        machine.handle(admission::Event::LoadBalancer(Box::new(seating)), now);
    }
    for want in planner.wants().into_iter().filter_map(|(_, want)| want) {
        machine.handle(admission::Event::Wants(want), now);
    }
    for kind in admission::Kind::ALL {
        machine.handle(admission::Event::Done(kind), now);
    }
    let changes = machine.take(now);
    for (consumer, lb, amounts) in changes.stays {
        planner.handle(Event::Stays(consumer, lb, amounts));
    }
    for (consumer, decision) in changes.decisions {
        planner.handle(Event::Admitted(consumer, decision));
    }
}

/// The addresses that Services and load balancers have from pools, from the Address objects. These do not
/// say which of their holders drain; if pools can be read, the machine decides that.
fn grants(lists: &Lists) -> BTreeMap<(ConsumerKind, ObjectKey), Grant> {
    let services = lists.services.iter().map(|it| &it.metadata.uid);
    let balancers = lists.load_balancers.iter().map(|it| &it.metadata.uid);
    let live: BTreeSet<&str> = services.chain(balancers).flatten().map(String::as_str).collect();
    let mut all: BTreeMap<(ConsumerKind, ObjectKey), Grant> = BTreeMap::new();
    for Record { address, content, .. } in lists.addresses.iter().filter_map(convert::record) {
        // An object that had the same name before holds nothing any more.
        for HolderRef { kind, key, .. } in content
            .holders
            .into_iter()
            .map(|it| it.holder)
            .filter(|holder| live.contains(&*holder.uid))
        {
            let kind = match kind {
                HolderKind::Service => ConsumerKind::Service,
                HolderKind::LoadBalancer => ConsumerKind::LoadBalancer,
                HolderKind::ExternalIp => continue,
            };
            let grant = all.entry((kind, key)).or_default();
            match content.state {
                AddressState::Draining { .. } => grant.draining.push(address),
                _ => grant.addresses.push(address),
            }
        }
    }
    all
}

/// The index of a Plan among those of its load balancer. None: the leader did not create it.
fn index(plan: &Plan) -> Option<u32> {
    names::plan_index(plan.metadata.name.as_deref()?)
}

fn recorded(lists: &Lists) -> BTreeMap<Arc<str>, Recorded> {
    let mut all: BTreeMap<Arc<str>, Recorded> = BTreeMap::new();
    // A fragment in two Plans counts once, from the Plan with the lower index, as for agents.
    let mut plans: Vec<_> = lists.plans.iter().filter_map(|it| Some((index(it)?, it))).collect();
    plans.sort_by_key(|(index, _)| *index);
    for (_, plan) in plans {
        let recorded = all.entry(plan.spec.load_balancer.as_str().into()).or_default();
        for fragment in &plan.spec.fragments {
            let parts = recorded.fragments.entry(fragment.consumer.clone()).or_default();
            if parts.iter().all(|other| other.part != fragment.part) {
                parts.push(fragment.clone());
                recorded.hash = recorded.hash.plus(PlanHash::of(fragment));
            }
        }
    }
    for parts in all.values_mut().flat_map(|recorded| recorded.fragments.values_mut()) {
        parts.sort_by_key(|fragment| fragment.part);
    }
    all
}

fn agents(lists: &Lists, now: Timestamp) -> BTreeMap<String, Agents> {
    let names = lists.load_balancers.iter().filter_map(|lb| lb.metadata.name.as_deref());
    let agents = |name: &str| {
        let entries = lease::entries(lists.lease(&names::agent_lease(name))?);
        let mut all: Vec<_> = entries.iter().map(|entry| agent(entry, now)).collect();
        // The agent with the latest renewal is first.
        all.sort_by_key(|it| it.holder.as_ref().map_or(i64::MAX, |holder| holder.silent_seconds));
        // If some agents have renewed in time, an agent that has not does not count. Whether a single agent
        // is alive is the leader's decision.
        let heard = |entry: &Entry| {
            let silent = u64::try_from(silent_seconds(entry, now)).unwrap_or_default();
            match silent {
                it if it <= entry.lasts.as_secs() => Heard::Live,
                it if it <= 2 * entry.lasts.as_secs() => Heard::Silent,
                _ => Heard::Lost,
            }
        };
        let joint = Joint::of(entries.iter().map(|entry| (entry, heard(entry))));
        Some((name.to_owned(), Agents { all, joint }))
    };
    names.filter_map(agents).collect()
}

/// How long ago an agent renewed its entry, by the clock of this machine.
fn silent_seconds(entry: &Entry, now: Timestamp) -> i64 {
    let renewed: Option<Timestamp> = entry.renewed.parse().ok();
    renewed.map_or(0, |at| now.as_second() - at.as_second()).max(0)
}

fn agent(entry: &Entry, now: Timestamp) -> Agent {
    let silent_seconds = silent_seconds(entry, now);
    let overdue = u64::try_from(silent_seconds).is_ok_and(|it| it > entry.lasts.as_secs());
    let version = entry.said.version.as_deref().map(str::to_owned);
    let holder = Holder { identity: entry.agent.to_string(), version, silent_seconds, overdue };
    Agent { holder: entry.left.is_none().then_some(holder), said: entry.said.clone() }
}

fn holder(lease: &Lease, now: Timestamp) -> Option<Holder> {
    let spec = lease.spec.as_ref()?;
    let identity = spec.holder_identity.clone().filter(|name| !name.is_empty())?;
    let silent_seconds = now.as_second() - spec.renew_time.as_ref()?.0.as_second();
    let duration = i64::from(spec.lease_duration_seconds.unwrap_or(15));
    let annotations = lease.metadata.annotations.as_ref();
    Some(Holder {
        identity,
        version: annotations.and_then(|all| all.get(names::ANNOTATION_VERSION)).cloned(),
        silent_seconds: silent_seconds.max(0),
        overdue: silent_seconds > duration,
    })
}
