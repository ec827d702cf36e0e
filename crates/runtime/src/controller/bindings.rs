//! The shell of the binder (`bowline_core::binder`): feeds it, keeps its writes until they are answered, and renders
//! them. It decides nothing: the binder decides which claim gets which load balancer. While another process leads, the
//! machine is fed but not asked.

mod patches;

use super::outbox::Outbox;
use super::render;
use super::shown::{ClaimShown, LoadBalancerShown, Shown};
use super::target::{Next, Target, Tried};
use super::writer::Write;
use super::writer::bindings::{Current, Step, StepReply};
use crate::watch::Seen;
use bowline_api::LoadBalancerClassSpec;
use bowline_api::convert::{self, Location};
use bowline_api::names;
use bowline_core::binder::{
    self, Binder, Class, Event, Id, Job, Kind, Object, Op, Phase, Subject, Tie,
};
use bowline_core::clock::Uptime;
use bowline_core::deleted_uids::Tombstones;
use bowline_core::event_correlator::EventDraft;
use bowline_core::key::ObjectKey;
use bowline_core::objects::{Namespace, Version};
use bowline_core::relist::Missing;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(super) use patches::amounts;
use patches::{reported, said, standing, tied};

/// The binder with its writes, jobs and confirmations.
#[derive(Default)]
pub(super) struct BindingShell {
    machine: Binder,
    /// The specs of the classes.
    classes: BTreeMap<Arc<str>, Arc<LoadBalancerClassSpec>>,
    missing_classes: Missing<Arc<str>>,
    on_balancers: BTreeMap<Arc<str>, binder::Write>,
    on_claims: BTreeMap<ObjectKey, binder::Write>,
    /// Events to record when their write has succeeded.
    news: BTreeMap<Id, EventDraft>,
    look_for: BTreeSet<Subject>,
    jobs: BTreeMap<Arc<str>, Job>,
    /// Whether the machine has received all consumers of claims once.
    synced: bool,
    leads: bool,
    /// Seconds since 1970.
    clock: i64,
    /// Where the load balancers of classes run.
    location: Location,
    /// Load balancers and claims that were deleted recently.
    tombstones: Tombstones,
}

impl BindingShell {
    /// A shell whose classes provision load balancers in the cluster, or on this machine.
    pub(super) fn on(location: Location) -> Self {
        Self { location, ..Self::default() }
    }

    fn tell(&mut self, event: Event) {
        self.machine.handle(event, self.clock);
    }

    /// Sets the time and whether this process leads. When it stops leading, its open writes count as failed.
    pub(super) fn at(&mut self, clock: i64, leads: bool) {
        self.clock = clock;
        if self.leads && !leads {
            let on_balancers = std::mem::take(&mut self.on_balancers).into_values();
            let all = on_balancers.chain(std::mem::take(&mut self.on_claims).into_values());
            for id in all.map(|write| write.id).collect::<Vec<_>>() {
                self.tell(Event::Written { id, result: binder::Written::Failed });
            }
            for job in std::mem::take(&mut self.jobs).into_values() {
                self.tell(Event::Abandoned { id: job.id });
            }
            self.look_for.clear();
            self.news.clear();
        }
        self.leads = leads;
    }

    /// Observes a LoadBalancer.
    pub(super) fn observe_load_balancer(&mut self, seen: Seen<&binder::LoadBalancer>) {
        match seen {
            Seen::Begin => self.tell(Event::Begin(Kind::LoadBalancer)),
            Seen::Apply(it) => {
                self.tell(Event::Apply(Box::new(Object::LoadBalancer(it.clone()))));
            }
            Seen::Delete(it) => {
                let key = ObjectKey::new("", Arc::clone(&it.name));
                self.delete(Kind::LoadBalancer, key, Arc::clone(&it.uid));
            }
            Seen::Done => self.tell(Event::Done(Kind::LoadBalancer)),
        }
    }

    /// Observes a LoadBalancerClaim.
    pub(super) fn observe_claim(&mut self, seen: Seen<&binder::Claim>) {
        match seen {
            Seen::Begin => self.tell(Event::Begin(Kind::Claim)),
            Seen::Apply(it) => self.tell(Event::Apply(Box::new(Object::Claim(it.clone())))),
            Seen::Delete(it) => self.delete(Kind::Claim, it.key.clone(), Arc::clone(&it.uid)),
            Seen::Done => self.tell(Event::Done(Kind::Claim)),
        }
    }

    /// Observes a Namespace.
    pub(super) fn observe_namespace(&mut self, seen: &Seen<Namespace>) {
        match seen {
            Seen::Begin => self.tell(Event::Begin(Kind::Namespace)),
            Seen::Apply(it) => self.tell(Event::Apply(Box::new(Object::Namespace(it.clone())))),
            Seen::Delete(it) => {
                self.delete(Kind::Namespace, ObjectKey::new("", Arc::clone(&it.name)), "".into());
            }
            Seen::Done => self.tell(Event::Done(Kind::Namespace)),
        }
    }

    /// Observes a LoadBalancerClass.
    pub(super) fn observe_class(&mut self, seen: Seen<(Class, Arc<LoadBalancerClassSpec>)>) {
        match seen {
            Seen::Begin => {
                self.missing_classes.begin(self.classes.keys().cloned());
                self.tell(Event::Begin(Kind::Class));
            }
            Seen::Apply((class, spec)) => {
                self.missing_classes.observe(&class.name);
                self.classes.insert(Arc::clone(&class.name), spec);
                self.tell(Event::Apply(Box::new(Object::Class(class))));
            }
            Seen::Delete((class, _)) => {
                self.classes.remove(&class.name);
                self.delete(Kind::Class, ObjectKey::new("", class.name), "".into());
            }
            Seen::Done => {
                for name in self.missing_classes.done() {
                    self.classes.remove(&name);
                }
                self.tell(Event::Done(Kind::Class));
            }
        }
    }

    fn delete(&mut self, kind: Kind, key: ObjectKey, uid: Arc<str>) {
        if !uid.is_empty() {
            self.tombstones.bury(&uid);
        }
        self.tell(Event::Delete { kind, key, uid });
    }

    /// Whether the load balancer or claim of this uid was deleted.
    pub(super) fn is_buried(&self, uid: &Arc<str>) -> bool {
        self.tombstones.is_buried(uid)
    }

    /// The spec of a class.
    pub(super) fn class(&self, name: &str) -> Option<Arc<LoadBalancerClassSpec>> {
        self.classes.get(name).cloned()
    }

    /// Bowline's own namespace, as provisioned proxies in the cluster know it.
    pub(super) fn own_namespace(&self) -> String {
        match &self.location {
            Location::Cluster { namespace } => namespace.clone(),
            Location::Machine { .. } => names::NAMESPACE.to_owned(),
        }
    }

    /// Tells the machine how many consumers each claim has, and which namespaces use each load balancer.
    pub(super) fn want(
        &mut self,
        wanted: Vec<(ObjectKey, u32)>,
        users: Vec<(Arc<str>, Vec<Arc<str>>)>,
    ) {
        for (load_balancer, namespaces) in users {
            self.tell(Event::Used { load_balancer, namespaces });
        }
        for (claim, consumers) in wanted {
            self.tell(Event::Wanted { claim, consumers });
        }
        if !std::mem::replace(&mut self.synced, true) {
            self.tell(Event::Done(Kind::Consumer));
        }
    }

    /// Takes the machine's decisions. `news` gives the Event to record after a write: it is computed now, because the
    /// watch may show the write before its answer arrives.
    pub(super) fn decide(&mut self, news: impl Fn(&Op) -> Option<EventDraft>, outbox: &mut Outbox) {
        if !self.leads {
            return;
        }
        let binder::Changes { writes, confirm, jobs } = self.machine.take(self.clock);
        for write in writes {
            self.news.extend(news(&write.op).map(|news| (write.id, news)));
            match written_object(&write.op) {
                WrittenObject::LoadBalancer(name) => {
                    outbox.enqueue(Target::Binding(Arc::clone(&name)));
                    self.on_balancers.insert(name, write);
                }
                WrittenObject::Claim(key) => {
                    outbox.enqueue(Target::Claim(key.clone()));
                    self.on_claims.insert(key, write);
                }
            }
        }
        for subject in confirm {
            outbox.enqueue(Target::Subject(subject.clone()));
            self.look_for.insert(subject);
        }
        for job in jobs {
            outbox.enqueue(Target::Job(Arc::clone(&job.load_balancer)));
            self.jobs.insert(Arc::clone(&job.load_balancer), job);
        }
    }

    /// Whether the binder has a write for a load balancer.
    #[cfg(test)]
    pub(super) fn has_write(&self, lb: &Arc<str>) -> bool {
        self.on_balancers.contains_key(lb)
    }

    pub(super) fn next_subject(&self, subject: &Subject) -> Next {
        match self.look_for.contains(subject) {
            true => Next::Write(Write::LookFor(subject.clone()), Tried::default()),
            false => Next::Nothing,
        }
    }

    /// The next write of a load balancer's binding. None: there is none, so its seats may be written.
    pub(super) fn next_load_balancer(
        &mut self,
        lb: &Arc<str>,
        shown: Option<&Shown<LoadBalancerShown>>,
        now: Uptime,
        clock: Timestamp,
        outbox: &mut Outbox,
    ) -> Option<Next> {
        let write = self.on_balancers.get(lb).cloned()?;
        if let Op::Create(new) = &write.op {
            let class = self.classes.get(&new.class);
            let Some(object) = class.map(|class| convert::provisioned(new, class, &self.location))
            else {
                self.answer(
                    WrittenObject::LoadBalancer(Arc::clone(lb)),
                    write.id,
                    &StepReply::Failed,
                    outbox,
                );
                return Some(Next::Later(now));
            };
            let step = Step::Create(Box::new(object));
            let write = Write::Binding(write.id, Arc::clone(lb), step);
            return Some(Next::Write(write, Tried::default()));
        }
        let Some(shown) = shown.filter(|shown| is_at(shown, target(&write.op))) else {
            // The load balancer has changed since the decision.
            let found = shown.cloned().map(|shown| Current::LoadBalancer(Box::new(shown)));
            let answer = StepReply::Conflict(found);
            self.answer(WrittenObject::LoadBalancer(Arc::clone(lb)), write.id, &answer, outbox);
            return Some(Next::Later(now));
        };
        let version = &*shown.version;
        let step = match &write.op {
            Op::Bind(_, tie) | Op::Release(_, tie) | Op::Guard(_, tie) => {
                Step::Amend(tied(tie, &shown.status.finalizers, version))
            }
            Op::Report(_, report) => {
                let before = &shown.status.status.conditions;
                let conditions = standing(report, before, shown.generation, clock);
                Step::Status(reported(report, &conditions, version))
            }
            Op::Delete(target) => {
                Step::Delete { uid: Arc::clone(&target.uid), version: target.version.clone() }
            }
            Op::Create(_) | Op::GuardClaim(..) | Op::ReportClaim(..) => return Some(Next::Nothing),
        };
        let write = Write::Binding(write.id, Arc::clone(lb), step);
        Some(Next::Write(write, Tried::default()))
    }

    /// The next write of a claim. `ingress` gives the load balancer whose ingress points the claim shows.
    pub(super) fn next_claim<'a>(
        &mut self,
        key: &ObjectKey,
        shown: Option<&Shown<ClaimShown>>,
        ingress: impl Fn(&Arc<str>) -> Option<&'a Shown<LoadBalancerShown>>,
        now: Uptime,
        clock: Timestamp,
        outbox: &mut Outbox,
    ) -> Next {
        let ingress = |lb: Option<&Arc<str>>, phase| {
            let lb = lb.filter(|_| phase == Phase::Bound)?;
            let ingress = &ingress(lb)?.status.status.ingress;
            (!ingress.is_empty()).then(|| json!(ingress))
        };
        let Some(write) = self.on_claims.get(key) else {
            return shown.map_or(Next::Nothing, |shown| next_ingress(key, shown, ingress));
        };
        let (id, op) = (write.id, &write.op);
        let Some(shown) = shown.filter(|shown| is_at(shown, target(op))) else {
            let found = shown.cloned().map(|shown| Current::Claim(Box::new(shown)));
            self.answer(WrittenObject::Claim(key.clone()), id, &StepReply::Conflict(found), outbox);
            return Next::Later(now);
        };
        let step = match op {
            Op::GuardClaim(_, in_use) => {
                let tie = Tie { in_use: *in_use, ..Tie::default() };
                let finalizers = convert::finalizers(&shown.status.finalizers, &tie);
                Step::Amend(json!({"metadata": {
                    "resourceVersion": &*shown.version,
                    "finalizers": (!finalizers.is_empty()).then_some(finalizers),
                }}))
            }
            Op::ReportClaim(_, report) => {
                let said = said(report);
                let type_ = names::CONDITION_BOUND;
                let before = &shown.status.status.conditions;
                let conditions =
                    render::with_condition(before, type_, &said, shown.generation, clock);
                Step::Status(json!({
                    "metadata": {"resourceVersion": &*shown.version},
                    "status": {
                        "phase": convert::claim_phase(report.phase),
                        "loadBalancerName": report.load_balancer,
                        "capacity": amounts(convert::resource_list(&report.capacity)),
                        "ingress": ingress(report.load_balancer.as_ref(), report.phase),
                        "conditions": conditions,
                    },
                }))
            }
            _ => return Next::Nothing,
        };
        Next::Write(Write::BindClaim(id, key.clone(), step), Tried::default())
    }

    /// The job of a load balancer whose claim is deleted.
    pub(super) fn job(&self, lb: &Arc<str>) -> Option<&Job> {
        self.jobs.get(lb)
    }

    /// Tells the machine that a job waits, and why.
    pub(super) fn job_waits(&mut self, id: Id, why: Arc<str>) {
        self.tell(Event::Waits { id, why });
    }

    /// Tells the machine that a job is done, or why it failed.
    pub(super) fn finish_job(&mut self, lb: &Arc<str>, id: Id, result: Result<(), Arc<str>>) {
        if self.jobs.get(lb).is_some_and(|job| job.id == id) {
            self.jobs.remove(lb);
            self.tell(Event::Finished { id, result });
        }
    }

    /// Hands the machine the version of an object that was looked for. None: it is deleted.
    pub(super) fn looked_for(&mut self, subject: Subject, version: Option<Version>) {
        self.look_for.remove(&subject);
        self.tell(Event::Confirmed { subject, version });
    }

    /// Hands the answer to a write of a load balancer or claim to the machine.
    pub(super) fn answered(
        &mut self,
        target: &Target,
        id: Id,
        answer: &StepReply,
        outbox: &mut Outbox,
    ) {
        match target {
            Target::Binding(lb) => {
                self.answer(WrittenObject::LoadBalancer(Arc::clone(lb)), id, answer, outbox);
            }
            Target::Claim(key) => {
                self.answer(WrittenObject::Claim(key.clone()), id, answer, outbox)
            }
            _ => {}
        }
    }

    fn answer(&mut self, object: WrittenObject, id: Id, answer: &StepReply, outbox: &mut Outbox) {
        match &object {
            WrittenObject::LoadBalancer(lb) => {
                if self.on_balancers.get(lb).is_some_and(|it| it.id == id) {
                    self.on_balancers.remove(lb);
                }
            }
            WrittenObject::Claim(key) => {
                if self.on_claims.get(key).is_some_and(|it| it.id == id) {
                    self.on_claims.remove(key);
                }
            }
        }
        let news = self.news.remove(&id).filter(|_| matches!(answer, StepReply::Ok(_)));
        news.into_iter().for_each(|event| outbox.record(event));
        self.tell(Event::Written { id, result: answer.written() });
    }
}

/// The write that updates the ingress points in a claim's status, if they differ.
fn next_ingress(
    key: &ObjectKey,
    shown: &Shown<ClaimShown>,
    ingress: impl Fn(Option<&Arc<str>>, Phase) -> Option<Value>,
) -> Next {
    let Some(report) = &shown.status.known.report else { return Next::Nothing };
    let ingress = ingress(report.load_balancer.as_ref(), report.phase);
    let before = &shown.status.status.ingress;
    if ingress == (!before.is_empty()).then(|| json!(before)) {
        return Next::Nothing;
    }
    let patch = json!({
        "metadata": {"resourceVersion": &*shown.version},
        "status": {"ingress": ingress},
    });
    Next::Write(Write::Claim(key.clone(), patch), Tried::at(&shown.version))
}

/// The Event to record when a write has succeeded.
pub(super) fn news(
    op: &Op,
    claim: Option<&Shown<ClaimShown>>,
    load_balancer: Option<&Shown<LoadBalancerShown>>,
) -> Option<EventDraft> {
    match op {
        Op::ReportClaim(target, report) => {
            let before = claim.and_then(|shown| shown.status.known.report.as_ref());
            let news = before.is_none_or(|before| !before.agrees(report));
            news.then(|| report.event(&target.key, &target.uid))
        }
        Op::Report(target, report) => {
            let before = load_balancer.and_then(|shown| shown.status.known.report.as_ref());
            report.event(before, &target.key.name, &target.uid)
        }
        _ => None,
    }
}

/// The object that a write changes.
enum WrittenObject {
    LoadBalancer(Arc<str>),
    Claim(ObjectKey),
}

fn written_object(op: &Op) -> WrittenObject {
    match op {
        Op::Create(new) => WrittenObject::LoadBalancer(Arc::clone(&new.name)),
        Op::GuardClaim(target, _) | Op::ReportClaim(target, _) => {
            WrittenObject::Claim(target.key.clone())
        }
        Op::Bind(target, _)
        | Op::Release(target, _)
        | Op::Guard(target, _)
        | Op::Report(target, _)
        | Op::Delete(target) => WrittenObject::LoadBalancer(Arc::clone(&target.key.name)),
    }
}

/// The object and version for which a write was decided.
pub(super) fn target(op: &Op) -> Option<&binder::Target> {
    match op {
        Op::Create(_) => None,
        Op::Bind(target, _)
        | Op::Release(target, _)
        | Op::Guard(target, _)
        | Op::Report(target, _)
        | Op::Delete(target)
        | Op::GuardClaim(target, _)
        | Op::ReportClaim(target, _) => Some(target),
    }
}

/// Whether an object still has the version for which a write was decided.
fn is_at<S>(shown: &Shown<S>, target: Option<&binder::Target>) -> bool {
    target.is_some_and(|target| *shown.version == *target.version.0)
}
