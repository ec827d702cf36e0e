//! Addresses from pools: tells the machine of `bowline_core::addresses` what is heard and what those who
//! may have addresses ask for, and turns what it says into targets and into news for the planner. While
//! another process leads the machine only listens.

#[cfg(test)]
mod tests;

use super::*;
use crate::controller::inputs::PoolSeen;
use crate::controller::shown::Shown;
use crate::controller::writes::PoolWrite;
use bowline_api::address_pool::{AddressPoolStatus, COUNT_MAX, FamilyCounts};
use bowline_core::addresses::{
    Addresses, Changes, Claim as Ask, Config, Counts, Event as Told, HolderKind, HolderRef,
    Kind as Class, NoticeKind, Object as Thing, PoolReport, PoolUse, Record, Write as AddressWrite,
    WriteId, Written as Answer,
};
use bowline_core::dns::{self, Name, Report, Wants};
use serde_json::json;

/// Seconds for which an address is still served after its DNS name moved.
const GRACE: i64 = 60;
/// As often may the plan change what is asked for, and that the plan, before the next turn.
const MOST_ROUNDS: usize = 3;

/// Who has addresses from pools, and what is to be done about it.
pub(super) struct Pooled {
    machine: Addresses,
    pub(super) pools: Board<Arc<str>, PoolShown>,
    reports: BTreeMap<Arc<str>, PoolReport>,
    /// Those of whom the machine knows.
    known: BTreeSet<(ConsumerKind, ObjectKey)>,
    /// Those whose claim may be another one.
    stale: BTreeSet<(ConsumerKind, ObjectKey)>,
    writes: BTreeMap<IpAddr, AddressWrite>,
    confirm: BTreeSet<HolderRef>,
    served: BTreeMap<(ConsumerRef, Arc<str>), Served>,
    /// Where something may still be served that is no longer planned.
    leaving: BTreeSet<(ConsumerRef, Arc<str>)>,
    /// Whether that includes what a former leader planned.
    inherited: bool,
    names: Wants<ObjectKey>,
    /// The DNS names that Services ask for.
    named: BTreeMap<ObjectKey, Name>,
    /// What was found under each name.
    found: BTreeMap<Name, Report>,
    /// Names to be looked up from now on, or no longer.
    look: Vec<dns::Event>,
    /// Whether the machine has been told of all holders once.
    told: bool,
    leads: bool,
    /// Seconds since 1970.
    clock: i64,
}

/// What a load balancer serves for somebody.
#[derive(Default)]
struct Served {
    now: Vec<IpAddr>,
    /// What it may still serve, until it has applied the plan with this change.
    before: Vec<(u64, Vec<IpAddr>)>,
}

impl Pooled {
    pub(super) fn new() -> Self {
        Self {
            machine: Addresses::new(Config { grace: GRACE }),
            pools: Board::default(),
            reports: BTreeMap::new(),
            known: BTreeSet::new(),
            stale: BTreeSet::new(),
            writes: BTreeMap::new(),
            confirm: BTreeSet::new(),
            served: BTreeMap::new(),
            leaving: BTreeSet::new(),
            inherited: false,
            names: Wants::default(),
            named: BTreeMap::new(),
            found: BTreeMap::new(),
            look: Vec::new(),
            told: false,
            leads: true,
            clock: 0,
        }
    }

    pub(super) fn tell(&mut self, event: Told) {
        self.machine.handle(event, self.clock);
    }

    /// What somebody asks for may be something else.
    pub(super) fn touch(&mut self, kind: ConsumerKind, key: &ObjectKey) {
        self.stale.insert((kind, key.clone()));
    }

    /// A Namespace, as the planner is told of it.
    pub(super) fn hear_namespace(&mut self, event: &Event) {
        use bowline_core::planner::Kind;
        match event {
            Event::Begin(Kind::Namespace) => self.tell(Told::Begin(Class::Namespace)),
            Event::Done(Kind::Namespace) => self.tell(Told::Done(Class::Namespace)),
            Event::Delete(Kind::Namespace, key) => {
                self.tell(Told::Delete(Class::Namespace, key.clone()));
            }
            Event::Apply(object) => {
                if let Object::Namespace(namespace) = &**object {
                    self.tell(Told::Apply(Box::new(Thing::Namespace(namespace.clone()))));
                }
            }
            _ => {}
        }
    }
}

fn kind_of(kind: HolderKind) -> Option<ConsumerKind> {
    match kind {
        HolderKind::Service => Some(ConsumerKind::Service),
        HolderKind::LoadBalancer => Some(ConsumerKind::LoadBalancer),
        HolderKind::ExternalIp => None,
    }
}

fn service_holder(service: &ConsumerRef) -> HolderRef {
    HolderRef { key: key(service), kind: HolderKind::Service, uid: Arc::clone(&service.uid) }
}

impl State {
    /// The time is this, and we lead or do not. Who ceases to lead does not know what became of writes.
    pub(in crate::controller) fn at(&mut self, clock: Timestamp, leads: bool) {
        let pooled = &mut self.pooled;
        pooled.clock = clock.as_second();
        if pooled.leads && !leads {
            for write in std::mem::take(&mut pooled.writes).into_values() {
                pooled.tell(Told::Written { id: write.id, result: Answer::Failed });
            }
            pooled.confirm.clear();
            self.begins = false;
        }
        pooled.leads = leads;
        pooled.inherited &= leads;
    }

    pub(super) fn hear_pool(&mut self, seen: Seen<PoolSeen>) {
        let pooled = &mut self.pooled;
        match seen {
            Seen::Begin => {
                pooled.pools.begin();
                pooled.tell(Told::Begin(Class::Pool));
            }
            Seen::Apply(PoolSeen { pool, shown }) => {
                let name = Arc::clone(&pool.name);
                pooled.pools.put(Arc::clone(&name), shown);
                pooled.tell(Told::Apply(Box::new(Thing::Pool(pool))));
                self.dirty.insert(Target::Pool(name));
            }
            Seen::Delete(PoolSeen { pool, .. }) => {
                pooled.pools.remove(&pool.name);
                pooled.tell(Told::Delete(Class::Pool, ObjectKey::new("", pool.name)));
            }
            Seen::Done => {
                pooled.pools.done();
                pooled.tell(Told::Done(Class::Pool));
                self.listed.insert("AddressPool");
            }
        }
    }

    pub(super) fn hear_address(&mut self, seen: Seen<Option<Record>>) {
        let pooled = &mut self.pooled;
        match seen {
            Seen::Begin => pooled.tell(Told::Begin(Class::Address)),
            Seen::Apply(Some(record)) => pooled.tell(Told::Recorded(record)),
            Seen::Delete(Some(Record { address, version, .. })) => {
                pooled.tell(Told::Unrecorded { address, version: Some(version) });
            }
            Seen::Apply(None) | Seen::Delete(None) => {}
            Seen::Done => {
                pooled.tell(Told::Done(Class::Address));
                self.listed.insert("Address");
            }
        }
    }

    pub(super) fn hear_node(&mut self, seen: Seen<(Arc<str>, Vec<IpAddr>)>) {
        let pooled = &mut self.pooled;
        match seen {
            Seen::Begin => pooled.tell(Told::Begin(Class::Node)),
            Seen::Apply((name, addresses)) => {
                pooled.tell(Told::Apply(Box::new(Thing::Node { name, addresses })));
            }
            Seen::Delete((name, _)) => {
                pooled.tell(Told::Delete(Class::Node, ObjectKey::new("", name)));
            }
            Seen::Done => {
                pooled.tell(Told::Done(Class::Node));
                self.listed.insert("Node");
            }
        }
    }

    /// All Services, or all load balancers, have been told: who is not there is gone.
    pub(super) fn sweep_holders(&mut self, kind: ConsumerKind) {
        let known = self.pooled.known.iter().filter(|(it, _)| *it == kind).cloned();
        let known: Vec<_> = known.collect();
        self.pooled.stale.extend(known);
    }

    /// Plans what was heard, and who has which address: each may change the other.
    pub(in crate::controller) fn settle(&mut self, now: Instant) {
        self.inherit();
        self.end_served(now);
        for _ in 0..MOST_ROUNDS {
            self.claim();
            self.allocate();
            self.plan(now);
            if self.pooled.stale.is_empty() {
                break;
            }
        }
        if std::mem::take(&mut self.begins) {
            self.touch_all();
        }
    }

    /// Tells the machine what is asked for.
    fn claim(&mut self) {
        for (kind, key) in std::mem::take(&mut self.pooled.stale) {
            let claim = self.claim_of(kind, &key);
            if kind == ConsumerKind::Service {
                self.name(&key, claim.as_ref());
            }
            let who = (kind, key);
            match claim {
                Some(claim) if is_news(&claim) || self.pooled.known.contains(&who) => {
                    self.pooled.tell(Told::Apply(Box::new(Thing::Claim(claim))));
                    self.pooled.known.insert(who);
                }
                Some(_) => {}
                None if self.pooled.known.remove(&who) => {
                    let class = match kind {
                        ConsumerKind::LoadBalancer => Class::LoadBalancer,
                        _ => Class::Service,
                    };
                    self.pooled.tell(Told::Delete(class, who.1));
                }
                None => {}
            }
        }
        // Nobody is gone before it is known what Plans hold for them.
        if !self.pooled.told && self.is_complete() {
            self.pooled.told = true;
            for class in [Class::Service, Class::LoadBalancer, Class::ExternalIp] {
                self.pooled.tell(Told::Done(class));
            }
        }
    }

    /// Notes which DNS name a Service asks for.
    fn name(&mut self, key: &ObjectKey, claim: Option<&Ask>) {
        use bowline_core::addresses::Ask::Name as Named;
        let wanted = claim.and_then(|claim| match &claim.ask {
            Ok(Named { name, .. }) => Some((name.parse::<Name>().ok()?, families(claim))),
            _ => None,
        });
        match &wanted {
            Some((name, _)) => _ = self.pooled.named.insert(key.clone(), name.clone()),
            None => _ = self.pooled.named.remove(key),
        }
        let events = self.pooled.names.set(key.clone(), wanted);
        for event in &events {
            if let dns::Event::Unwant { name } = event {
                self.pooled.found.remove(name);
            }
        }
        self.pooled.look.extend(events);
    }

    /// Names to be looked up from now on, or no longer.
    pub(in crate::controller) fn look(&mut self) -> Vec<dns::Event> {
        std::mem::take(&mut self.pooled.look)
    }

    /// A name was looked up.
    pub(in crate::controller) fn found(&mut self, name: Name, report: Report) {
        let answer = bowline_core::addresses::Answer::of(&report.answers);
        self.pooled.tell(Told::Resolved { name: name.as_str().into(), answer });
        // A TTL counts down in caches, and the next look is a little late each time: no Service is
        // written for that.
        let before = self.pooled.found.get(&name);
        if before.is_some_and(|before| before.answers.says_as(&report.answers)) {
            return;
        }
        let users = self.pooled.names.users(&name);
        let users = users.map(|key| Target::Consumer(ConsumerKind::Service, key.clone()));
        self.dirty.extend(users);
        self.pooled.found.insert(name, report);
    }

    /// What a Service is told of its DNS name.
    pub(super) fn name_condition(&self, key: &ObjectKey) -> Option<status::Condition> {
        let name = self.pooled.named.get(key)?;
        let holder = self.holder(ConsumerKind::Service, key)?;
        let decision = self.pooled.machine.decision(&holder);
        let found = self.pooled.found.get(name);
        Some(bowline_core::addresses::from_name(name.as_str(), found, decision))
    }

    fn claim_of(&self, kind: ConsumerKind, key: &ObjectKey) -> Option<Ask> {
        match kind {
            ConsumerKind::Service => {
                let shown = self.services.get(key)?;
                self.planner.service_claim(key, render::addresses_of_service(&shown.status))
            }
            ConsumerKind::LoadBalancer => {
                let shown = self.balancers.get(&key.name)?;
                let shown = shown.status.status.ingress.iter().filter_map(|point| point.ip);
                self.planner.load_balancer_claim(&key.name, shown.collect())
            }
            ConsumerKind::Ingress => None,
        }
    }

    /// Takes what the machine decided.
    fn allocate(&mut self) {
        if !self.pooled.leads {
            return;
        }
        let Changes { writes, confirm, decisions, notices, pools } =
            self.pooled.machine.take(self.pooled.clock);
        for write in writes {
            self.dirty.insert(Target::Address(write.address));
            self.pooled.writes.insert(write.address, write);
        }
        for holder in confirm {
            self.dirty.insert(Target::Holder(holder.clone()));
            self.pooled.confirm.insert(holder);
        }
        for (holder, decision) in decisions {
            let Some(kind) = kind_of(holder.kind) else { continue };
            let grant = decision.map(|decision| decision.grant()).unwrap_or_default();
            self.planner.handle(Event::Granted(kind, holder.key.clone(), grant));
            if self.is_alone(kind, &holder.key) {
                let problems = self.problems_alone(&holder.key);
                self.tell_problems((kind, holder.key.clone()), problems);
            }
            self.dirty.insert(match kind {
                ConsumerKind::LoadBalancer => Target::LoadBalancer(holder.key.name),
                kind => Target::Consumer(kind, holder.key),
            });
        }
        for notice in notices {
            let Some(kind) = kind_of(notice.holder.kind) else { continue };
            let HolderRef { key, uid, .. } = notice.holder;
            self.said.push(Announcement {
                object: ConsumerRef { kind, namespace: key.namespace, name: key.name, uid },
                severity: match notice.kind {
                    NoticeKind::AddressAssigned => Severity::Normal,
                    NoticeKind::AddressChanged | NoticeKind::AddressLost => Severity::Warning,
                },
                reason: format!("{:?}", notice.kind).into(),
                message: notice.message.into(),
            });
        }
        for (name, report) in pools {
            match report {
                Some(report) => _ = self.pooled.reports.insert(Arc::clone(&name), report),
                None => _ = self.pooled.reports.remove(&name),
            }
            self.dirty.insert(Target::Pool(name));
        }
    }

    /// Whether a Service has its address alone: on no load balancer, and there are pools.
    pub(super) fn is_alone(&self, kind: ConsumerKind, key: &ObjectKey) -> bool {
        kind == ConsumerKind::Service && !self.pooled.pools.is_empty() && self.planner.is_alone(key)
    }

    /// What the owner of a Service that has its address alone should be told. That a name is yet to be
    /// looked up is none of it.
    pub(super) fn problems_alone(&self, key: &ObjectKey) -> Vec<(ConsumerRef, Problem)> {
        use bowline_core::addresses::Reason;
        let Some(holder) = self.holder(ConsumerKind::Service, key) else { return Vec::new() };
        let decision = self.pooled.machine.decision(&holder);
        let decision = decision.filter(|it| it.verdict.reason != Reason::NamePending);
        let HolderRef { key: ObjectKey { namespace, name }, uid, .. } = holder;
        let service = ConsumerRef { kind: ConsumerKind::Service, namespace, name, uid };
        decision.and_then(|it| it.problem()).into_iter().map(|it| (service.clone(), it)).collect()
    }

    /// What the machine knows a consumer as.
    fn holder(&self, kind: ConsumerKind, key: &ObjectKey) -> Option<HolderRef> {
        let (kind, uid) = match kind {
            ConsumerKind::Service => (HolderKind::Service, self.planner.service_uid(key)?),
            ConsumerKind::LoadBalancer => (HolderKind::LoadBalancer, self.uid(&key.name)?),
            ConsumerKind::Ingress => return None,
        };
        Some(HolderRef { key: key.clone(), kind, uid })
    }

    /// A load balancer is to serve somebody at these addresses from this change on.
    pub(super) fn serve(&mut self, consumer: &ConsumerRef, lb: &Arc<str>, mut now: Vec<IpAddr>) {
        let of_pools = self.pooled.known.contains(&(consumer.kind, key(consumer)));
        let place = (consumer.clone(), Arc::clone(lb));
        if consumer.kind != ConsumerKind::Service
            || !(of_pools || self.pooled.served.contains_key(&place))
        {
            return;
        }
        now.sort_unstable();
        now.dedup();
        let served = self.pooled.served.entry(place).or_default();
        if served.now != now {
            let old = std::mem::replace(&mut served.now, now);
            served.before.push((self.change, old));
            self.pooled.leaving.insert((consumer.clone(), Arc::clone(lb)));
            self.tell_served(consumer);
        }
    }

    /// What Plans hold may be served, whoever planned it, until an agent has applied our first plan.
    fn inherit(&mut self) {
        if self.pooled.inherited || !self.pooled.leads || !self.is_complete() {
            return;
        }
        self.pooled.inherited = true;
        let change = self.change + 1;
        let mut found = BTreeMap::<Arc<str>, BTreeSet<ConsumerRef>>::new();
        let recorded = self.planner.recorded();
        let recorded = recorded.filter(|(_, it, _)| it.kind == ConsumerKind::Service);
        for (lb, consumer, addresses) in recorded {
            let held = self.pooled.machine.addresses_of(&service_holder(consumer));
            let addresses = addresses.iter().copied().filter(|it| held.contains(it));
            let addresses: Vec<_> = addresses.collect();
            if !addresses.is_empty() {
                let place = (consumer.clone(), Arc::clone(lb));
                self.pooled.leaving.insert(place.clone());
                self.pooled.served.entry(place).or_default().before.push((change, addresses));
                found.entry(Arc::clone(lb)).or_default().insert(consumer.clone());
            }
        }
        for (lb, consumers) in found {
            consumers.iter().for_each(|consumer| self.tell_served(consumer));
            if let Some(plans) = self.plans.get_mut(&lb) {
                plans.doubt(&consumers, change);
            }
            if self.balancers.get(&lb).is_some() {
                self.met.insert(lb);
            }
        }
    }

    /// What load balancers have ceased to serve may be released. One without an agent serves nothing.
    fn end_served(&mut self, now: Instant) {
        for place in std::mem::take(&mut self.pooled.leaving) {
            let lives = self.agents.contains_key(&names::agent_lease(&place.1));
            let verdict = self.verdict(&place.1, now).filter(|_| lives);
            let waits = |change| verdict.as_ref().is_some_and(|it| !it.covers(change));
            let Some(served) = self.pooled.served.get_mut(&place) else { continue };
            let before = served.before.len();
            served.before.retain(|(change, _)| waits(*change));
            let ended = served.before.len() != before;
            if !served.before.is_empty() {
                self.pooled.leaving.insert(place.clone());
            } else if served.now.is_empty() {
                self.pooled.served.remove(&place);
            }
            if ended {
                self.tell_served(&place.0);
            }
        }
    }

    fn tell_served(&mut self, consumer: &ConsumerRef) {
        let first = (consumer.clone(), Arc::from(""));
        let places = self.pooled.served.range(first..);
        let places = places.take_while(|((it, _), _)| it == consumer).map(|(_, served)| served);
        let addresses = places.flat_map(|served| {
            let before = served.before.iter().flat_map(|(_, addresses)| addresses);
            served.now.iter().chain(before).copied()
        });
        let addresses: Vec<_> = addresses.collect();
        self.pooled.tell(Told::Serving { holder: service_holder(consumer), addresses });
    }

    /// The addresses that are still recorded for a Service.
    pub(super) fn recorded_for(&self, key: &ObjectKey) -> Vec<IpAddr> {
        let holder = self.holder(ConsumerKind::Service, key);
        holder.map(|holder| self.pooled.machine.addresses_of(&holder)).unwrap_or_default()
    }

    pub(super) fn next_address(&self, address: IpAddr) -> Next {
        match self.pooled.writes.get(&address) {
            Some(write) => Next::Write(Write::Address(write.clone()), Tried::default()),
            None => Next::Nothing,
        }
    }

    pub(super) fn next_holder(&self, holder: &HolderRef) -> Next {
        match self.pooled.confirm.contains(holder) {
            true => Next::Write(Write::Confirm(holder.clone()), Tried::default()),
            false => Next::Nothing,
        }
    }

    /// The status of a Service that has its address alone: kube-proxy balances, a speaker announces.
    pub(super) fn next_alone(&self, key: &ObjectKey, clock: Timestamp) -> Next {
        let Some(shown) = self.services.get(key) else { return Next::Nothing };
        let holder = self.holder(ConsumerKind::Service, key);
        let Some(decision) = holder.and_then(|it| self.pooled.machine.decision(&it).cloned())
        else {
            return Next::Nothing;
        };
        let want = status::ConsumerStatus {
            addresses: decision.shown(),
            programmed: decision.condition(),
        };
        let dns = self.name_condition(key);
        match render::service(&want, render::IP_MODE_ALONE, dns.as_ref(), shown, clock) {
            Some(patch) => Next::Write(
                Write::Consumer(ConsumerKind::Service, key.clone(), patch),
                Tried::at(&shown.version),
            ),
            None => Next::Nothing,
        }
    }

    /// The status of somebody is as it should be, or is about to be looked at again: what it does not
    /// show may be released.
    pub(super) fn acknowledge(&mut self, kind: ConsumerKind, key: &ObjectKey) {
        if !self.pooled.known.contains(&(kind, key.clone())) {
            return;
        }
        let addresses = match kind {
            ConsumerKind::Service => {
                self.services.get(key).map(|it| render::addresses_of_service(&it.status))
            }
            ConsumerKind::LoadBalancer => self.balancers.get(&key.name).map(|shown| {
                shown.status.status.ingress.iter().filter_map(|point| point.ip).collect()
            }),
            ConsumerKind::Ingress => None,
        };
        if let (Some(holder), Some(addresses)) = (self.holder(kind, key), addresses) {
            self.pooled.tell(Told::Shown { holder, addresses });
        }
    }

    pub(super) fn next_pool(&self, name: &Arc<str>, clock: Timestamp) -> Next {
        let (Some(shown), Some(report)) =
            (self.pooled.pools.get(name), self.pooled.reports.get(name))
        else {
            return Next::Nothing;
        };
        let tried = Tried::at(&shown.version);
        let has = shown.status.finalizers.iter().any(|it| it == names::FINALIZER_IN_USE);
        if report.in_use() && !has && !shown.status.deleting {
            let mut finalizers = shown.status.finalizers.clone();
            finalizers.push(names::FINALIZER_IN_USE.to_owned());
            return finalize(name, &finalizers, tried);
        }
        if has && shown.status.deleting && !report.in_use() {
            let kept = shown.status.finalizers.iter().filter(|it| *it != names::FINALIZER_IN_USE);
            return finalize(name, &kept.cloned().collect::<Vec<_>>(), tried);
        }
        let status = pool_status(report, shown, clock);
        if status == shown.status.status {
            return Next::Nothing;
        }
        let patch = json!({
            "metadata": {"resourceVersion": &*shown.version},
            "status": {
                "ipv4": status.ipv4, "ipv6": status.ipv6, "conditions": status.conditions,
            },
        });
        Next::Write(Write::Pool(Arc::clone(name), PoolWrite::Status(patch)), tried)
    }

    pub(super) fn wrote_address(&mut self, address: IpAddr, id: WriteId, result: Answer) {
        if self.pooled.writes.get(&address).is_some_and(|write| write.id == id) {
            self.pooled.writes.remove(&address);
        }
        self.pooled.tell(Told::Written { id, result });
    }

    pub(super) fn confirmed(&mut self, holder: HolderRef, exists: bool) {
        self.pooled.confirm.remove(&holder);
        self.pooled.tell(Told::Confirmed { holder, exists });
    }
}

/// The families that somebody wants, as questions to the DNS.
fn families(claim: &Ask) -> dns::Families {
    use bowline_core::addresses::Families;
    match claim.families {
        Families::One(family) => [family].into_iter().collect(),
        Families::Prefer(_) | Families::Require(_) | Families::OfPool => dns::Families::BOTH,
    }
}

/// Whether somebody has to do with addresses at all: most Services have not.
fn is_news(claim: &Ask) -> bool {
    use bowline_core::addresses::Ask;
    claim.ask != Ok(Ask::Nothing) || !claim.uses.is_empty()
}

fn finalize(name: &Arc<str>, finalizers: &[String], tried: Tried) -> Next {
    let finalizers = (!finalizers.is_empty()).then_some(finalizers);
    let patch = json!({
        "metadata": {"resourceVersion": tried.version(), "finalizers": finalizers},
    });
    Next::Write(Write::Pool(Arc::clone(name), PoolWrite::Finalizers(patch)), tried)
}

fn pool_status(
    report: &PoolReport,
    shown: &Shown<PoolShown>,
    clock: Timestamp,
) -> AddressPoolStatus {
    let count = |number: u128| i64::try_from(number).unwrap_or(COUNT_MAX).min(COUNT_MAX);
    let counts = |it: &Counts| FamilyCounts {
        assigned: count(it.assigned.into()),
        resting: count(it.resting.into()),
        available: count(it.available),
    };
    let condition = |holds, reason: &str, message: String| status::Condition {
        holds,
        reason: reason.into(),
        message: message.into(),
    };
    let used = match &report.used {
        PoolUse::Used => condition(true, "Used", "addresses are given from it".to_owned()),
        PoolUse::Overlaps { pool, range } => condition(
            false,
            "Overlaps",
            format!(
                "{}-{} has addresses of the older pool {pool}: nothing new is given from this pool \
                 until they have none in common",
                range.first(),
                range.last(),
            ),
        ),
        PoolUse::Deleting if report.in_use() => condition(
            false,
            "InUse",
            "it is being deleted, and goes when nobody has an address of it: see the Addresses with \
             this pool"
                .to_owned(),
        ),
        PoolUse::Deleting => condition(false, "Deleting", "it is being deleted".to_owned()),
    };
    let readable = match &report.refused[..] {
        [] => condition(true, "Readable", "all entries are used".to_owned()),
        refused => {
            let told: Vec<_> = refused.iter().take(5).map(ToString::to_string).collect();
            condition(false, "BadEntries", format!("left out: {}", told.join("; ")))
        }
    };
    let before = &shown.status.status.conditions;
    let generation = shown.generation;
    let with = render::with_condition(before, names::CONDITION_USED, &used, generation, clock);
    let conditions =
        render::with_condition(&with, names::CONDITION_READABLE, &readable, generation, clock);
    AddressPoolStatus {
        ipv4: report.ipv4.as_ref().map(counts),
        ipv6: report.ipv6.as_ref().map(counts),
        conditions,
    }
}
