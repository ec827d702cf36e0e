//! Addresses from pools: tells the machine of `bowline_core::addresses` what is heard and what those who
//! may have addresses ask for, and turns what it says into targets and into news for the planner. While
//! another process leads the machine only listens.

#[cfg(test)]
mod tests;

mod external_ips;
mod lookups;
mod pools;
mod serving;

use super::*;
use bowline_core::addresses::{
    Addresses, Changes, Claim as Ask, Config, Event as Told, HolderKind, HolderRef, Kind as Class,
    NoticeKind, Object as Thing, PoolReport, Record, Serving, Write as AddressWrite, WriteId,
    Written as Answer,
};
use bowline_core::dns::{self, Name, Report, Wants};
use bowline_core::point::Point;

/// As often may the plan change what is asked for, and that the plan, before the next turn.
const MOST_ROUNDS: usize = 3;

/// Who has addresses from pools, and what is to be done about it.
pub(super) struct Pooled {
    machine: Addresses,
    pub(super) pools: Board<Arc<str>, PoolShown>,
    pub(super) external_ips: Board<ObjectKey, ExternalIpShown>,
    reports: BTreeMap<Arc<str>, PoolReport>,
    /// Those of whom the machine knows.
    known: BTreeSet<(ConsumerKind, ObjectKey)>,
    /// Those whose claim may be another one.
    stale: BTreeSet<(ConsumerKind, ObjectKey)>,
    writes: BTreeMap<IpAddr, AddressWrite>,
    confirm: BTreeSet<HolderRef>,
    serving: Serving,
    /// Whether that includes what a former leader planned.
    inherited: bool,
    names: Wants,
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

impl Pooled {
    pub(super) fn new(config: Config) -> Self {
        Self {
            machine: Addresses::new(config),
            pools: Board::default(),
            external_ips: Board::default(),
            reports: BTreeMap::new(),
            known: BTreeSet::new(),
            stale: BTreeSet::new(),
            writes: BTreeMap::new(),
            confirm: BTreeSet::new(),
            serving: Serving::default(),
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
        self.bindings.at(clock.as_second(), leads);
        self.seats.at(clock.as_second(), leads);
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
        self.follow_moves(now);
        for _ in 0..MOST_ROUNDS {
            self.claim();
            self.allocate();
            self.admit();
            self.plan(now);
            if self.pooled.stale.is_empty() {
                break;
            }
        }
        self.bind();
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
                Some(claim) if claim.is_news() || self.pooled.known.contains(&who) => {
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
            for class in [Class::Service, Class::LoadBalancer] {
                self.pooled.tell(Told::Done(class));
            }
        }
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
            let Some(kind) = kind_of(holder.kind) else {
                self.dirty.insert(Target::ExternalIp(holder.key));
                continue;
            };
            let grant = decision.map(|decision| decision.grant()).unwrap_or_default();
            if kind == ConsumerKind::LoadBalancer {
                self.serve_at(&holder, &grant);
                if let Some(problem) = grant.problem.as_ref().filter(|it| !it.reason.is_passing()) {
                    let HolderRef { key: ObjectKey { namespace, name }, uid, .. } = holder.clone();
                    self.say(&ConsumerRef { kind, namespace, name, uid }, problem);
                }
            }
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
                object: ConsumerRef { kind, namespace: key.namespace, name: key.name, uid }.into(),
                severity: match notice.kind {
                    NoticeKind::AddressAssigned | NoticeKind::AddressReleased => Severity::Normal,
                    NoticeKind::AddressChanged
                    | NoticeKind::AddressLost
                    | NoticeKind::AddressIgnored => Severity::Warning,
                },
                reason: format!("{:?}", notice.kind).into(),
                message: notice.message.into(),
            });
        }
        for (name, report) in pools {
            match report {
                Some(report) => {
                    self.say_of_pool(&name, &report);
                    self.pooled.reports.insert(Arc::clone(&name), report);
                }
                None => _ = self.pooled.reports.remove(&name),
            }
            self.dirty.insert(Target::Pool(name));
        }
    }

    /// Whether a Service has its address alone: on no load balancer.
    pub(super) fn is_alone(&self, kind: ConsumerKind, key: &ObjectKey) -> bool {
        kind == ConsumerKind::Service && self.planner.is_alone(key)
    }

    /// The namespace for which an Address is to be written; empty where there is none.
    pub(super) fn namespace_of(&self, address: IpAddr) -> Arc<str> {
        let write = self.pooled.writes.get(&address);
        write.and_then(|write| write.op.namespace()).cloned().unwrap_or_else(|| "".into())
    }

    /// What the owner of a Service that has its address alone should be told.
    pub(super) fn problems_alone(&self, key: &ObjectKey) -> Vec<(ConsumerRef, Problem)> {
        let Some(holder) = self.holder(ConsumerKind::Service, key) else { return Vec::new() };
        let decision = self.pooled.machine.decision(&holder);
        let problem = decision.and_then(|it| it.problem());
        let problem = problem.filter(|it| !it.reason.is_passing());
        let HolderRef { key: ObjectKey { namespace, name }, uid, .. } = holder;
        let service = ConsumerRef { kind: ConsumerKind::Service, namespace, name, uid };
        problem.into_iter().map(|it| (service.clone(), it)).collect()
    }

    /// Whether the machine has said anything of a consumer. It says nothing of one that has no address of
    /// its own.
    pub(super) fn is_decided(&self, kind: ConsumerKind, key: &ObjectKey) -> bool {
        let holder = self.holder(kind, key);
        holder.is_none_or(|it| self.pooled.machine.decision(&it).is_some())
    }

    /// What the status of a load balancer is to say of its addresses, where it says this now.
    pub(super) fn assigned(
        &self,
        lb: &Arc<str>,
        before: Option<status::Condition>,
    ) -> Option<status::Condition> {
        let (kind, key) = (ConsumerKind::LoadBalancer, ObjectKey::new("", Arc::clone(lb)));
        self.claim_of(kind, &key).filter(|claim| !claim.wants_nothing())?;
        let holder = self.holder(kind, &key);
        let decision = holder.and_then(|it| self.pooled.machine.decision(&it));
        bowline_core::addresses::assigned(decision, before)
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
        let before =
            render::condition_of(&shown.status.conditions, names::CONDITION_SERVICE_PROGRAMMED);
        let want = status::ConsumerStatus {
            // As the Service asks for its families, and what drains last.
            points: decision.shown().into_iter().map(Point::At).collect(),
            programmed: decision.condition(before),
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
