//! The shell of the address machine (`bowline_core::addresses`): feeds it, keeps its writes until they are answered,
//! and keeps the reports of AddressPools. It decides nothing. While another process leads, the machine is fed but
//! not asked.
//!
//! ```text
//!  observed, requests ─▶ machine ─▶ take: writes of Addresses, reads that confirm, grants, notices, pool reports
//!                           ▲                  │
//!                           └──── answers ◀────┘
//! ```

mod names;
mod serving;

use super::target::{Next, Tried};
use super::writer::Write;
use crate::watch::Seen;
use bowline_core::addresses::{
    self, AddressRequest, Addresses, Changes, Config, Content, Decision, Event, HolderKind,
    HolderRef, Kind, Object, Pool, PoolReport, Record, Serving, WriteId, Written,
};
use bowline_core::dns::{Name, Report, Wants};
use bowline_core::key::{ConsumerKind, ObjectKey};
use bowline_core::objects::Namespace;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

pub(super) use serving::consumer_of;

/// The address machine with its writes and confirmations.
pub(super) struct AddressShell {
    machine: Addresses,
    /// The reports of AddressPools, for their statuses.
    reports: BTreeMap<Arc<str>, PoolReport>,
    /// Consumers that the machine knows.
    known: BTreeSet<(ConsumerKind, ObjectKey)>,
    /// Consumers whose request has to be recomputed.
    stale: BTreeSet<(ConsumerKind, ObjectKey)>,
    writes: BTreeMap<IpAddr, addresses::Write>,
    confirm: BTreeSet<HolderRef>,
    serving: Serving,
    /// Whether `serving` includes what a former leader planned.
    inherited: bool,
    lookups: Lookups,
    /// Whether the machine has received all consumers once.
    synced: bool,
    leads: bool,
    /// Seconds since 1970.
    clock: i64,
}

/// The DNS names that Services ask for; see `names`.
#[derive(Default)]
struct Lookups {
    wants: Wants,
    by_service: BTreeMap<ObjectKey, Name>,
    found: BTreeMap<Name, Report>,
    /// Changes of the names to look up.
    events: Vec<bowline_core::dns::Event>,
}

impl AddressShell {
    pub(super) fn new(config: Config) -> Self {
        Self {
            machine: Addresses::new(config),
            reports: BTreeMap::new(),
            known: BTreeSet::new(),
            stale: BTreeSet::new(),
            writes: BTreeMap::new(),
            confirm: BTreeSet::new(),
            serving: Serving::default(),
            inherited: false,
            lookups: Lookups::default(),
            synced: false,
            leads: true,
            clock: 0,
        }
    }

    fn tell(&mut self, event: Event) {
        self.machine.handle(event, self.clock);
    }

    /// Sets the time and whether this process leads. When it stops leading, its open writes count as failed.
    pub(super) fn at(&mut self, clock: i64, leads: bool) {
        self.clock = clock;
        if self.leads && !leads {
            for write in std::mem::take(&mut self.writes).into_values() {
                self.tell(Event::Written { id: write.id, result: Written::Failed });
            }
            self.confirm.clear();
        }
        self.leads = leads;
        self.inherited &= leads;
    }

    /// Observes a Namespace.
    pub(super) fn observe_namespace(&mut self, seen: &Seen<Namespace>) {
        self.tell(match seen {
            Seen::Begin => Event::Begin(Kind::Namespace),
            Seen::Apply(namespace) => Event::Apply(Box::new(Object::Namespace(namespace.clone()))),
            Seen::Delete(namespace) => {
                Event::Delete(Kind::Namespace, ObjectKey::new("", Arc::clone(&namespace.name)))
            }
            Seen::Done => Event::Done(Kind::Namespace),
        });
    }

    /// Observes an Address object.
    pub(super) fn observe_address(&mut self, seen: Seen<Option<Record>>) {
        self.tell(match seen {
            Seen::Begin => Event::Begin(Kind::Address),
            Seen::Apply(Some(record)) => Event::Recorded(record),
            Seen::Delete(Some(Record { address, version, .. })) => {
                Event::Unrecorded { address, version: Some(version) }
            }
            Seen::Apply(None) | Seen::Delete(None) => return,
            Seen::Done => Event::Done(Kind::Address),
        });
    }

    /// Observes an AddressPool.
    pub(super) fn observe_pool(&mut self, seen: Seen<&Pool>) {
        self.tell(match seen {
            Seen::Begin => Event::Begin(Kind::Pool),
            Seen::Apply(pool) => Event::Apply(Box::new(Object::Pool(pool.clone()))),
            Seen::Delete(pool) => {
                Event::Delete(Kind::Pool, ObjectKey::new("", Arc::clone(&pool.name)))
            }
            Seen::Done => Event::Done(Kind::Pool),
        });
    }

    /// Observes an ExternalIP.
    pub(super) fn observe_external_ip(&mut self, seen: Seen<&AddressRequest>) {
        self.tell(match seen {
            Seen::Begin => Event::Begin(Kind::ExternalIp),
            Seen::Apply(request) => Event::Apply(Box::new(Object::Request(request.clone()))),
            Seen::Delete(request) => Event::Delete(Kind::ExternalIp, request.holder.key.clone()),
            Seen::Done => Event::Done(Kind::ExternalIp),
        });
    }

    /// The report of an AddressPool, for its status.
    pub(super) fn pool_report(&self, name: &str) -> Option<&PoolReport> {
        self.reports.get(name)
    }

    /// Keeps the report of an AddressPool. None: the pool is deleted.
    pub(super) fn keep_pool_report(&mut self, name: &Arc<str>, report: Option<PoolReport>) {
        match report {
            Some(report) => _ = self.reports.insert(Arc::clone(name), report),
            None => _ = self.reports.remove(name),
        }
    }

    /// Observes a Node.
    pub(super) fn observe_node(&mut self, seen: Seen<(Arc<str>, Vec<IpAddr>)>) {
        self.tell(match seen {
            Seen::Begin => Event::Begin(Kind::Node),
            Seen::Apply((name, addresses)) => {
                Event::Apply(Box::new(Object::Node { name, addresses }))
            }
            Seen::Delete((name, _)) => Event::Delete(Kind::Node, ObjectKey::new("", name)),
            Seen::Done => Event::Done(Kind::Node),
        });
    }

    /// Marks the request of a consumer for recomputation.
    pub(super) fn touch(&mut self, kind: ConsumerKind, key: &ObjectKey) {
        self.stale.insert((kind, key.clone()));
    }

    /// Marks all known consumers of a kind after its relist: those that the relist did not show are deleted.
    pub(super) fn relisted(&mut self, kind: ConsumerKind) {
        let known = self.known.iter().filter(|(it, _)| *it == kind).cloned();
        let known: Vec<_> = known.collect();
        self.stale.extend(known);
    }

    /// Whether requests have to be recomputed.
    pub(super) fn has_stale(&self) -> bool {
        !self.stale.is_empty()
    }

    /// Takes the consumers whose request has to be recomputed.
    pub(super) fn take_stale(&mut self) -> BTreeSet<(ConsumerKind, ObjectKey)> {
        std::mem::take(&mut self.stale)
    }

    /// Hands a consumer's address request to the machine. None: the consumer is deleted or requests nothing any
    /// more.
    pub(super) fn request(
        &mut self,
        kind: ConsumerKind,
        key: ObjectKey,
        request: Option<AddressRequest>,
    ) {
        if kind == ConsumerKind::Service {
            self.name(&key, request.as_ref());
        }
        let consumer = (kind, key);
        match request {
            Some(request) if request.is_news() || self.known.contains(&consumer) => {
                self.tell(Event::Apply(Box::new(Object::Request(request))));
                self.known.insert(consumer);
            }
            Some(_) => {}
            None if self.known.remove(&consumer) => {
                let kind = match kind {
                    ConsumerKind::LoadBalancer => Kind::LoadBalancer,
                    _ => Kind::Service,
                };
                self.tell(Event::Delete(kind, consumer.1));
            }
            None => {}
        }
    }

    /// Tells the machine that it has received all consumers. Before that, no holder counts as deleted.
    pub(super) fn sync(&mut self) {
        if !std::mem::replace(&mut self.synced, true) {
            for kind in [Kind::Service, Kind::LoadBalancer] {
                self.tell(Event::Done(kind));
            }
        }
    }

    /// Takes the machine's decisions. None: another process leads.
    pub(super) fn take(&mut self) -> Option<Changes> {
        let changes = self.leads.then(|| self.machine.take(self.clock))?;
        self.writes.extend(changes.writes.iter().map(|write| (write.address, write.clone())));
        self.confirm.extend(changes.confirm.iter().cloned());
        Some(changes)
    }

    /// The machine's decision for a holder.
    pub(super) fn decision(&self, holder: &HolderRef) -> Option<&Decision> {
        self.machine.decision(holder)
    }

    /// The holders of an address, and its state. None: it has none.
    pub(super) fn content(&self, address: IpAddr) -> Option<&Content> {
        self.machine.address(address)
    }

    /// The addresses recorded for a holder.
    pub(super) fn recorded(&self, holder: &HolderRef) -> Vec<IpAddr> {
        self.machine.addresses_of(holder)
    }

    /// The namespace for which an Address is written. Empty: none.
    pub(super) fn namespace_of(&self, address: IpAddr) -> Arc<str> {
        let write = self.writes.get(&address);
        write.and_then(|write| write.op.namespace()).cloned().unwrap_or_else(|| "".into())
    }

    /// Tells the machine which addresses a consumer's status shows: its other addresses may be released.
    pub(super) fn acknowledge(&mut self, holder: HolderRef, addresses: Vec<IpAddr>) {
        let consumer = kind_of(holder.kind).map(|kind| (kind, holder.key.clone()));
        if consumer.is_none_or(|consumer| self.known.contains(&consumer)) {
            self.tell(Event::Shown { holder, addresses });
        }
    }

    pub(super) fn next_address(&self, address: IpAddr) -> Next {
        match self.writes.get(&address) {
            Some(write) => Next::Write(Write::Address(write.clone()), Tried::default()),
            None => Next::Nothing,
        }
    }

    pub(super) fn next_holder(&self, holder: &HolderRef) -> Next {
        match self.confirm.contains(holder) {
            true => Next::Write(Write::Confirm(holder.clone()), Tried::default()),
            false => Next::Nothing,
        }
    }

    /// The open writes of Addresses.
    #[cfg(test)]
    pub(super) fn writes(&self) -> impl Iterator<Item = &addresses::Write> {
        self.writes.values()
    }

    /// Hands the answer to the write of an Address to the machine.
    pub(super) fn wrote(&mut self, address: IpAddr, id: WriteId, result: Written) {
        if self.writes.get(&address).is_some_and(|write| write.id == id) {
            self.writes.remove(&address);
        }
        self.tell(Event::Written { id, result });
    }

    /// Tells the machine whether a holder exists.
    pub(super) fn confirmed(&mut self, holder: HolderRef, exists: bool) {
        self.confirm.remove(&holder);
        self.tell(Event::Confirmed { holder, exists });
    }
}

/// The kind of a holder as a consumer. None: an ExternalIP is no consumer.
pub(super) fn kind_of(kind: HolderKind) -> Option<ConsumerKind> {
    match kind {
        HolderKind::Service => Some(ConsumerKind::Service),
        HolderKind::LoadBalancer => Some(ConsumerKind::LoadBalancer),
        HolderKind::ExternalIp => None,
    }
}
