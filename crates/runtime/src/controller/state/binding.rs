//! Which claim has which load balancer: tells the machine of `bowline_core::binder` what is heard, and turns
//! what it says into targets. It decides nothing. While another process leads the machine only listens.

use super::*;
use crate::controller::binding::{Answer, Found, Step};
use crate::controller::shown::{ClaimShown, Shown};
use bowline_api::LoadBalancerClassSpec;
use bowline_api::convert;
use bowline_api::quantity::ResourceList;
use bowline_core::binder::{
    self, Binder, Binding, Changes, ClaimReport, Class, Event as Told, Job, Kind, Object as Thing,
    Op, Report as Standing, Subject, Tie, Wipe,
};
use bowline_core::objects::Version;
use bowline_core::status::Condition as Said;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::{Value, json};
use std::collections::VecDeque;

#[cfg(test)]
mod tests;

/// Uids that are remembered; no write is under way while so many go.
const BURIED: usize = 1024;
/// How often a load balancer is looked at that is still being wiped.
const AGAIN: Duration = Duration::from_secs(1);

/// Which claim has which load balancer, and what is to be done about it.
#[derive(Default)]
pub(super) struct Bindings {
    machine: Binder,
    pub(super) claims: Board<ObjectKey, ClaimShown>,
    /// What classes make.
    classes: BTreeMap<Arc<str>, Arc<LoadBalancerClassSpec>>,
    on_balancers: BTreeMap<Arc<str>, binder::Write>,
    on_claims: BTreeMap<ObjectKey, binder::Write>,
    /// What is told once a write has made it so.
    news: BTreeMap<binder::Id, Announcement>,
    look_for: BTreeSet<Subject>,
    jobs: BTreeMap<Arc<str>, Job>,
    /// Whether the machine has been told of all who ask for claims.
    told: bool,
    leads: bool,
    /// Seconds since 1970.
    clock: i64,
    /// Where load balancers that classes make are served.
    pub(super) ground: convert::Ground,
    /// The uids of load balancers and claims that were told gone last: the answer to a write that comes later
    /// does not bring one back.
    buried: VecDeque<Arc<str>>,
}

impl Bindings {
    pub(super) fn tell(&mut self, event: Told) {
        self.machine.handle(event, self.clock);
    }

    /// The time is this, and we lead or do not. Who ceases to lead does not know what became of writes.
    pub(super) fn at(&mut self, clock: i64, leads: bool) {
        self.clock = clock;
        if self.leads && !leads {
            let on_balancers = std::mem::take(&mut self.on_balancers).into_values();
            let all = on_balancers.chain(std::mem::take(&mut self.on_claims).into_values());
            for id in all.map(|write| write.id).collect::<Vec<_>>() {
                self.tell(Told::Written { id, result: binder::Written::Failed });
            }
            for job in std::mem::take(&mut self.jobs).into_values() {
                self.tell(Told::Abandoned { id: job.id });
            }
            self.look_for.clear();
            self.news.clear();
        }
        self.leads = leads;
    }

    /// Whether the load balancer or claim of this uid was told gone.
    pub(super) fn is_buried(&self, uid: &Arc<str>) -> bool {
        self.buried.contains(uid)
    }

    /// What a class says.
    pub(super) fn class(&self, name: &str) -> Option<Arc<LoadBalancerClassSpec>> {
        self.classes.get(name).cloned()
    }

    /// Bowline's own namespace, as proxies in the cluster know it.
    pub(super) fn own_namespace(&self) -> String {
        match &self.ground {
            convert::Ground::Cluster { namespace } => namespace.clone(),
            convert::Ground::Machine { .. } => names::NAMESPACE.to_owned(),
        }
    }

    /// What the planner is told of objects that concern bindings, too.
    pub(super) fn hear(&mut self, event: &Event, status: Option<&Status>) {
        use bowline_core::planner::Kind as Planned;
        let kind = |kind: &Planned| match kind {
            Planned::LoadBalancer => Some(Kind::LoadBalancer),
            Planned::Claim => Some(Kind::Claim),
            Planned::Namespace => Some(Kind::Namespace),
            _ => None,
        };
        let told = match event {
            Event::Begin(it) => kind(it).map(Told::Begin),
            Event::Done(it) => kind(it).map(Told::Done),
            Event::Apply(object) => {
                let thing = match (&**object, status) {
                    (_, Some(Status::LoadBalancer(shown))) => {
                        Some(Thing::LoadBalancer(shown.status.known.clone()))
                    }
                    (_, Some(Status::Claim(shown))) => {
                        Some(Thing::Claim(shown.status.known.clone()))
                    }
                    (Object::Namespace(namespace), _) => Some(Thing::Namespace(namespace.clone())),
                    _ => None,
                };
                thing.map(|thing| Told::Apply(Box::new(thing)))
            }
            Event::Delete(it, key) => kind(it).map(|kind| {
                let uid = match status {
                    Some(Status::LoadBalancer(shown)) => Arc::clone(&shown.status.known.uid),
                    Some(Status::Claim(shown)) => Arc::clone(&shown.status.known.uid),
                    _ => "".into(),
                };
                if !uid.is_empty() {
                    self.buried.truncate(BURIED - 1);
                    self.buried.push_front(Arc::clone(&uid));
                }
                Told::Delete { kind, key: key.clone(), uid }
            }),
            _ => None,
        };
        if let Some(told) = told {
            self.tell(told);
        }
    }
}

impl State {
    pub(super) fn hear_class(&mut self, seen: Seen<(Class, Arc<LoadBalancerClassSpec>)>) {
        let bindings = &mut self.bindings;
        match seen {
            Seen::Begin => bindings.tell(Told::Begin(Kind::Class)),
            Seen::Apply((class, spec)) => {
                bindings.classes.insert(Arc::clone(&class.name), spec);
                bindings.tell(Told::Apply(Box::new(Thing::Class(class))));
                self.touch_provisions();
            }
            Seen::Delete((class, _)) => {
                bindings.classes.remove(&class.name);
                let key = ObjectKey::new("", class.name);
                bindings.tell(Told::Delete { kind: Kind::Class, key, uid: "".into() });
            }
            Seen::Done => {
                bindings.tell(Told::Done(Kind::Class));
                self.listed.insert("LoadBalancerClass");
            }
        }
    }

    /// A claim is so now.
    pub(super) fn put_claim(&mut self, shown: Shown<ClaimShown>) {
        if self.bindings.is_buried(&shown.status.known.uid) {
            return;
        }
        let key = shown.status.known.key.clone();
        self.bindings.claims.put(key.clone(), shown);
        self.dirty.insert(Target::Claim(key));
    }

    /// A claim shows where its load balancer is reached.
    pub(super) fn touch_claim_of(&mut self, lb: &binder::LoadBalancer) {
        if let Some(claim) = &lb.tie.claim {
            self.dirty.insert(Target::Claim(claim.key.clone()));
        }
    }

    /// How many ask for claims, and which namespaces use load balancers.
    pub(super) fn want(
        &mut self,
        wanted: Vec<(ObjectKey, u32)>,
        users: Vec<(Arc<str>, Vec<Arc<str>>)>,
    ) {
        for (load_balancer, namespaces) in users {
            self.bindings.tell(Told::Used { load_balancer, namespaces });
        }
        for (claim, consumers) in wanted {
            self.bindings.tell(Told::Wanted { claim, consumers });
        }
        if !std::mem::replace(&mut self.bindings.told, true) {
            self.bindings.tell(Told::Done(Kind::Consumer));
        }
    }

    /// Takes what the machine decided.
    pub(super) fn bind(&mut self) {
        if !self.bindings.leads {
            return;
        }
        let clock = self.bindings.clock;
        let Changes { writes, confirm, jobs } = self.bindings.machine.take(clock);
        for write in writes {
            // The watch may show it before the answer comes: what is news is found out now.
            let news = self.news_of(&write.op);
            self.bindings.news.extend(news.map(|news| (write.id, news)));
            match whom(&write.op) {
                Whom::LoadBalancer(name) => {
                    self.dirty.insert(Target::Binding(Arc::clone(&name)));
                    self.bindings.on_balancers.insert(name, write);
                }
                Whom::Claim(key) => {
                    self.dirty.insert(Target::Claim(key.clone()));
                    self.bindings.on_claims.insert(key, write);
                }
            }
        }
        for subject in confirm {
            self.dirty.insert(Target::Subject(subject.clone()));
            self.bindings.look_for.insert(subject);
        }
        for job in jobs {
            self.dirty.insert(Target::Job(Arc::clone(&job.load_balancer)));
            self.bindings.jobs.insert(Arc::clone(&job.load_balancer), job);
        }
    }

    pub(super) fn next_subject(&self, subject: &Subject) -> Next {
        match self.bindings.look_for.contains(subject) {
            true => Next::Write(Write::LookFor(subject.clone()), Tried::default()),
            false => Next::Nothing,
        }
    }

    pub(super) fn next_binding(&mut self, lb: &Arc<str>, now: Instant, clock: Timestamp) -> Next {
        let Some(write) = self.bindings.on_balancers.get(lb).cloned() else {
            return self.next_seats(lb, now);
        };
        // One write of the object at a time: its seats come next.
        if self.seats.has_write(lb) {
            self.dirty.insert(Target::Binding(Arc::clone(lb)));
        }
        if let Op::Create(new) = &write.op {
            let class = self.bindings.classes.get(&new.class);
            let Some(object) =
                class.map(|class| convert::provisioned(new, class, &self.bindings.ground))
            else {
                self.answered(Whom::LoadBalancer(Arc::clone(lb)), write.id, &Answer::Failed);
                return Next::Later(now);
            };
            let step = Step::Create(Box::new(object));
            return Next::Write(Write::Binding(write.id, Arc::clone(lb), step), Tried::default());
        }
        let known = self.balancers.get(lb);
        let same = |shown: &&Shown<_>| is_at(shown, target(&write.op));
        let Some(shown) = known.filter(same) else {
            // It has changed since that was decided.
            let found = known.cloned().map(|shown| Found::LoadBalancer(Box::new(shown)));
            self.answered(Whom::LoadBalancer(Arc::clone(lb)), write.id, &Answer::Conflict(found));
            return Next::Later(now);
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
            Op::Create(_) | Op::GuardClaim(..) | Op::ReportClaim(..) => return Next::Nothing,
        };
        Next::Write(Write::Binding(write.id, Arc::clone(lb), step), Tried::default())
    }

    pub(super) fn next_claim(&mut self, key: &ObjectKey, now: Instant, clock: Timestamp) -> Next {
        let known = self.bindings.claims.get(key);
        let Some(write) = self.bindings.on_claims.get(key) else { return self.next_shown(key) };
        let (id, op) = (write.id, &write.op);
        let Some(shown) = known.filter(|shown| is_at(shown, target(op))) else {
            let found = known.cloned().map(|shown| Found::Claim(Box::new(shown)));
            self.answered(Whom::Claim(key.clone()), id, &Answer::Conflict(found));
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
                let ingress = self.ingress_of(report.load_balancer.as_ref(), report.phase);
                Step::Status(json!({
                    "metadata": {"resourceVersion": &*shown.version},
                    "status": {
                        "phase": convert::claim_phase(report.phase),
                        "loadBalancerName": report.load_balancer,
                        "capacity": amounts(convert::resource_list(&report.capacity)),
                        "ingress": ingress,
                        "conditions": conditions,
                    },
                }))
            }
            _ => return Next::Nothing,
        };
        Next::Write(Write::BindClaim(id, key.clone(), step), Tried::default())
    }

    /// Where the load balancer of a claim is reached, for its status. None: nowhere.
    fn ingress_of(&self, lb: Option<&Arc<str>>, phase: binder::Phase) -> Option<Value> {
        let lb = lb.filter(|_| phase == binder::Phase::Bound)?;
        let ingress = &self.balancers.get(lb)?.status.status.ingress;
        (!ingress.is_empty()).then(|| json!(ingress))
    }

    /// A claim shows where its load balancer is reached.
    fn next_shown(&self, key: &ObjectKey) -> Next {
        let Some(shown) = self.bindings.claims.get(key) else { return Next::Nothing };
        let Some(report) = &shown.status.known.report else { return Next::Nothing };
        let ingress = self.ingress_of(report.load_balancer.as_ref(), report.phase);
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

    /// Wipes what is behind a load balancer: nothing is planned for it any more, and where it has an agent
    /// that has said so.
    pub(super) fn next_job(&mut self, lb: &Arc<str>, now: Instant) -> Next {
        let Some(job) = self.bindings.jobs.get(lb) else { return Next::Nothing };
        let known = self.balancers.get(lb).map(|shown| &shown.status.known);
        let same = known.is_some_and(|it| it.uid == job.uid && it.tie.uid() == job.claim.as_ref());
        let empty = self.planner.consumers(lb).next().is_none()
            && self.plans.get(lb).is_none_or(Plans::is_empty);
        let (id, made) = (job.id, self.balancers.get(lb).and_then(|it| it.status.made.as_ref()));
        // Proxies that are removed need not say that they have nothing to do.
        if same && empty && job.kind == binder::JobKind::Deprovision && made.is_some() {
            return self.next_removal(lb, id, now);
        }
        let waiting = status::waiting(self.verdict(lb, now).as_ref());
        let result = match Wipe::of(lb, same, empty, waiting.as_ref()) {
            Wipe::NotYet => return Next::Later(now + AGAIN),
            Wipe::Waits(why) => {
                self.bindings.tell(Told::Waits { id, why });
                return Next::Later(now + AGAIN);
            }
            Wipe::Done => Ok(()),
            Wipe::Failed(why) => Err(why),
        };
        self.finish_job(lb, id, result);
        Next::Later(now)
    }

    /// A job was done, or why not.
    pub(super) fn finish_job(
        &mut self,
        lb: &Arc<str>,
        id: binder::Id,
        result: Result<(), Arc<str>>,
    ) {
        if self.bindings.jobs.get(lb).is_some_and(|job| job.id == id) {
            self.bindings.jobs.remove(lb);
            self.bindings.tell(Told::Finished { id, result });
        }
    }

    pub(super) fn looked_for(&mut self, subject: Subject, version: Option<Version>) {
        self.bindings.look_for.remove(&subject);
        self.bindings.tell(Told::Confirmed { subject, version });
    }

    /// A write of a LoadBalancer or claim was answered.
    pub(super) fn bound(&mut self, target: &Target, id: binder::Id, answer: Answer) {
        let whom = match target {
            Target::Binding(lb) => Whom::LoadBalancer(Arc::clone(lb)),
            Target::Claim(key) => Whom::Claim(key.clone()),
            _ => return,
        };
        self.answered(whom, id, &answer);
        match answer {
            Answer::Ok(Some(Found::LoadBalancer(shown)))
            | Answer::Conflict(Some(Found::LoadBalancer(shown))) => {
                let lb = Arc::clone(&shown.status.known.name);
                self.put_balancer(&lb, *shown);
            }
            Answer::Ok(Some(Found::Claim(shown))) | Answer::Conflict(Some(Found::Claim(shown))) => {
                self.put_claim(*shown);
            }
            _ => {}
        }
    }

    fn answered(&mut self, whom: Whom, id: binder::Id, answer: &Answer) {
        match &whom {
            Whom::LoadBalancer(lb) => {
                if self.bindings.on_balancers.get(lb).is_some_and(|it| it.id == id) {
                    self.bindings.on_balancers.remove(lb);
                }
            }
            Whom::Claim(key) => {
                if self.bindings.on_claims.get(key).is_some_and(|it| it.id == id) {
                    self.bindings.on_claims.remove(key);
                }
            }
        }
        let news = self.bindings.news.remove(&id);
        self.said.extend(news.filter(|_| matches!(answer, Answer::Ok(_))));
        self.bindings.tell(Told::Written { id, result: answer.written() });
    }

    /// What has become of a claim or load balancer is told once, when it becomes so.
    fn news_of(&self, op: &Op) -> Option<Announcement> {
        match op {
            Op::ReportClaim(target, report) => {
                let before = self.bindings.claims.get(&target.key);
                let before = before.and_then(|shown| shown.status.known.report.as_ref());
                let news = before.is_none_or(|before| !before.agrees(report));
                news.then(|| report.announcement(&target.key, &target.uid))
            }
            Op::Report(target, report) => {
                let before = self.balancers.get(&target.key.name);
                let before = before.and_then(|shown| shown.status.known.report.as_ref());
                report.announcement(before, &target.key.name, &target.uid)
            }
            _ => None,
        }
    }
}

/// Amounts for a merge patch, in which null takes away what was there.
pub(in crate::controller) fn amounts(list: Option<ResourceList>) -> Option<Value> {
    list.map(
        |it| json!({"network-bandwidth": it.network_bandwidth, "network-iops": it.network_iops}),
    )
}

/// Whose write it is.
enum Whom {
    LoadBalancer(Arc<str>),
    Claim(ObjectKey),
}

fn whom(op: &Op) -> Whom {
    match op {
        Op::Create(new) => Whom::LoadBalancer(Arc::clone(&new.name)),
        Op::GuardClaim(target, _) | Op::ReportClaim(target, _) => Whom::Claim(target.key.clone()),
        Op::Bind(target, _)
        | Op::Release(target, _)
        | Op::Guard(target, _)
        | Op::Report(target, _)
        | Op::Delete(target) => Whom::LoadBalancer(Arc::clone(&target.key.name)),
    }
}

fn target(op: &Op) -> Option<&binder::Target> {
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

/// Whether an object is as it was when something was decided of it.
fn is_at<S>(shown: &Shown<S>, target: Option<&binder::Target>) -> bool {
    target.is_some_and(|target| *shown.version == *target.version.0)
}

/// The patch that ties a load balancer to a claim, or looses it.
fn tied(tie: &Tie, finalizers: &[String], version: &str) -> Value {
    let finalizers = convert::finalizers(finalizers, tie);
    let claim = tie.claim.as_ref().map(|claim| {
        // In a merge patch null takes the uid away.
        json!({
            "namespace": claim.key.namespace, "name": claim.key.name, "uid": claim.uid,
        })
    });
    json!({
        "metadata": {
            "resourceVersion": version,
            "finalizers": (!finalizers.is_empty()).then_some(finalizers),
        },
        "spec": {"claimRef": claim},
    })
}

fn said(report: &ClaimReport) -> Said {
    Said {
        holds: report.phase == binder::Phase::Bound,
        reason: report.reason.to_string().into(),
        message: Arc::clone(&report.message),
    }
}

/// The conditions of a load balancer with those of its binding among them.
fn standing(
    report: &Standing,
    before: &[Condition],
    generation: i64,
    clock: Timestamp,
) -> Vec<Condition> {
    let bound = Said {
        holds: report.binding == Binding::Bound,
        reason: report.binding.to_string().into(),
        message: Arc::clone(&report.message),
    };
    let type_ = names::CONDITION_BOUND;
    let mut all = render::with_condition(before, type_, &bound, generation, clock);
    let type_ = names::CONDITION_RECLAIMED;
    match &report.failed {
        Some(why) => {
            let reason = names::REASON_FAILED.into();
            let failed = Said { holds: false, reason, message: Arc::clone(why) };
            all = render::with_condition(&all, type_, &failed, generation, clock);
        }
        None => all.retain(|it| it.type_ != type_),
    }
    all.retain(|it| it.type_ != names::CONDITION_IDLE);
    all.extend(report.idle_since.map(|since| Condition {
        type_: names::CONDITION_IDLE.to_owned(),
        status: "True".to_owned(),
        reason: names::REASON_NO_CONSUMERS.to_owned(),
        message: "nobody uses it".to_owned(),
        observed_generation: None,
        last_transition_time: Time(Timestamp::from_second(since).unwrap_or(clock)),
    }));
    all
}

/// The patch that says how a load balancer is bound. What it could not be wiped or removed for is its phase.
fn reported(report: &Standing, conditions: &[Condition], version: &str) -> Value {
    let mut status = json!({"conditions": conditions});
    if let Some(why) = &report.failed {
        status["phase"] = json!(bowline_api::load_balancer::LoadBalancerPhase::Failed);
        status["message"] = json!(why);
    }
    json!({"metadata": {"resourceVersion": version}, "status": status})
}
