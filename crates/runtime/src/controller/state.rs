//! All that the controller knows, in parts that each own one thing. The main entry points: `observe` takes in what
//! watches deliver, `decide` asks the machines, `next` gives the write that a target needs, `wrote` takes in the
//! answer. The others set time and leadership and report failed writes. It does no I/O; time is an argument.
//!
//! ```text
//!  Observed ─▶ observe ─▶ parts ─▶ decide ─▶ Outbox: targets, Events, changes
//!                           ▲                   │
//!              wrote ───────┘    next ◀─────────┘
//!                 ▲                │
//!                 └──── API ◀──────┘ Write
//! ```

mod announced;
mod consumer_status;
mod decide;
mod load_balancer_status;
mod next;
mod observe;
mod written;

#[cfg(test)]
mod tests;

use super::addresses::AddressShell;
use super::agents::Agents;
use super::announced_board::AnnouncedBoard;
use super::bindings::BindingShell;
use super::boards::Boards;
use super::certificate_book::CertificateBook;
use super::consumers::{Consumers, key_of};
use super::kinds::Kinds;
use super::outbox::Outbox;
use super::plan_book::PlanBook;
use super::provisions::Provisions;
use super::seats::SeatShell;
use super::target::Target;
use super::write_queue::Lane;
use bowline_api::convert::Location;
use bowline_api::provisioned_objects::Images;
use bowline_core::addresses::{self, HolderKind, HolderRef};
use bowline_core::announce::Speakers;
use bowline_core::arrivals::Arrivals;
use bowline_core::binder::Subject;
use bowline_core::clock::Uptime;
use bowline_core::dns;
use bowline_core::in_force::SharedListeners;
use bowline_core::key::{ConsumerKind, ObjectKey};
use bowline_core::load_balancer_status_writes::StatusWrites;
use bowline_core::outcome::Reason;
use bowline_core::planner::{Config, Event, Planner};
use bowline_core::programmed::Verdict;
use ipnet::IpNet;
use k8s_openapi::jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// The number of kinds that must be listed before anything is written, without those that the planner waits for and
/// those in `kinds`.
const LISTED: usize = 7;

/// All parts of the controller's state.
pub(super) struct State {
    planner: Planner,
    addresses: AddressShell,
    bindings: BindingShell,
    seats: SeatShell,
    provisions: Provisions,
    agents: Agents,
    speakers: Speakers,
    announced: AnnouncedBoard,
    plans: PlanBook,
    certificates: CertificateBook,
    consumers: Consumers,
    boards: Boards,
    kinds: Kinds,
    arrivals: Arrivals,
    status_writes: StatusWrites,
    shared_listeners: SharedListeners,
    listed: BTreeSet<&'static str>,
    /// Whether this process begins to lead and has not enqueued everything yet.
    begins: bool,
    pub(super) outbox: Outbox,
    /// How often a load balancer's status iterated over its consumers; for tests.
    #[cfg(test)]
    walks: usize,
}

impl State {
    pub(super) fn new(config: Config, addresses: addresses::Config) -> Self {
        let grace = Duration::from_secs(u64::try_from(addresses.grace).unwrap_or_default());
        Self {
            planner: Planner::new(config),
            addresses: AddressShell::new(addresses),
            bindings: BindingShell::default(),
            seats: SeatShell::default(),
            provisions: Provisions::default(),
            agents: Agents::default(),
            speakers: Speakers::default(),
            announced: AnnouncedBoard::default(),
            plans: PlanBook::default(),
            certificates: CertificateBook::default(),
            consumers: Consumers::default(),
            boards: Boards::default(),
            kinds: Kinds::default(),
            arrivals: Arrivals::new(grace),
            status_writes: StatusWrites::default(),
            shared_listeners: SharedListeners::default(),
            #[cfg(test)]
            walks: 0,
            listed: BTreeSet::new(),
            begins: false,
            outbox: Outbox::default(),
        }
    }

    /// Sets where the load balancers of classes run: in the cluster, or on this machine.
    pub(super) fn on(
        mut self,
        location: Location,
        images: Images,
        deny_members: Vec<IpNet>,
    ) -> Self {
        self.bindings = BindingShell::on(location);
        self.provisions = Provisions::with(images, deny_members);
        self
    }

    /// Whether every kind was listed once. Nothing is written before that.
    pub(super) fn is_complete(&self) -> bool {
        self.listed.len() == LISTED && self.kinds.are_listed() && self.planner.is_complete()
    }

    /// This process begins to lead. Everything is enqueued only after addresses are decided: before that, many
    /// consumers seem to have none.
    pub(super) fn begin(&mut self) {
        self.planner.handle(Event::WritesAbandoned);
        self.begins = true;
    }

    /// Sets the time and whether this process leads.
    pub(super) fn at(&mut self, clock: Timestamp, leads: bool) {
        let clock = clock.as_second();
        self.begins &= leads;
        self.addresses.at(clock, leads);
        self.bindings.at(clock, leads);
        self.seats.at(clock, leads);
    }

    /// Takes the changes of the names to look up.
    pub(super) fn take_lookups(&mut self) -> Vec<dns::Event> {
        self.addresses.take_lookups()
    }

    /// The number of current problems, by reason.
    pub(super) fn refused(&self) -> &BTreeMap<Reason, usize> {
        self.consumers.refused()
    }

    /// The lane in which a target waits for its turn. A load balancer with a claim is in the lane of the claim's
    /// namespace, the only one that uses it.
    pub(super) fn lane(&self, target: &Target) -> Lane {
        let namespace = match target {
            Target::Holder(holder) => &holder.key.namespace,
            Target::Subject(Subject::Claim { key, .. }) => &key.namespace,
            Target::Subject(Subject::LoadBalancer { claim, .. }) => &claim.namespace,
            Target::Leaver(consumer, _) => &consumer.namespace,
            Target::Claim(key) | Target::Consumer(_, key) | Target::Object(_, key) => {
                &key.namespace
            }
            Target::Address(address) | Target::Announced(address) => {
                return Lane::Namespace(self.addresses.namespace_of(*address));
            }
            Target::Binding(lb)
            | Target::Cookies(lb)
            | Target::Certificates(lb)
            | Target::Plans(lb)
            | Target::LoadBalancer(lb)
            | Target::Agents(lb)
            | Target::Job(lb)
            | Target::Provision(lb) => {
                let known = self.planner.load_balancer(lb);
                match known.and_then(|it| it.claim.as_ref()) {
                    Some((claim, _)) => &claim.namespace,
                    None => return Lane::LoadBalancer(Arc::clone(lb)),
                }
            }
        };
        Lane::Namespace(Arc::clone(namespace))
    }

    fn uid(&self, lb: &str) -> Option<Arc<str>> {
        self.planner.load_balancer(lb).map(|it| Arc::clone(&it.uid))
    }

    /// What the agents of a load balancer prove. None: this build does not drive it.
    fn verdict(&self, lb: &Arc<str>, now: Uptime) -> Option<Verdict> {
        let driven = self.boards.driven(lb).unwrap_or_default();
        driven.then(|| self.agents.verdict(lb, now))
    }

    /// A consumer in the address machine's terms.
    fn holder(&self, kind: ConsumerKind, key: &ObjectKey) -> Option<HolderRef> {
        let (kind, uid) = match kind {
            ConsumerKind::Service => (HolderKind::Service, self.planner.service_uid(key)?),
            ConsumerKind::LoadBalancer => (HolderKind::LoadBalancer, self.uid(&key.name)?),
            ConsumerKind::Ingress => return None,
        };
        Some(HolderRef { key: key.clone(), kind, uid })
    }

    /// Whether a Service uses its address without a load balancer.
    fn is_alone(&self, kind: ConsumerKind, key: &ObjectKey) -> bool {
        kind == ConsumerKind::Service && self.planner.is_alone(key)
    }

    /// The consumers on a load balancer, and the load balancer itself, which owns the listeners that Ingresses share.
    fn consumers_on(&self, lb: &Arc<str>) -> impl Iterator<Item = (ConsumerKind, ObjectKey)> {
        let own = (ConsumerKind::LoadBalancer, ObjectKey::new("", Arc::clone(lb)));
        self.planner.consumers(lb).map(key_of).chain([own])
    }

    /// Enqueues all targets of a load balancer except its binding.
    fn enqueue_load_balancer(&mut self, lb: &Arc<str>) {
        self.outbox.enqueue_all([
            Target::Cookies(Arc::clone(lb)),
            Target::Certificates(Arc::clone(lb)),
            Target::Plans(Arc::clone(lb)),
            Target::Provision(Arc::clone(lb)),
            Target::LoadBalancer(Arc::clone(lb)),
        ]);
    }
}
