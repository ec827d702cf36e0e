//! Builders, and an API that carries out the changes of the machine as a real one would.

use crate::addresses::Scope;
use crate::binder::*;
use crate::key::ObjectKey;
use crate::objects::{AllowedNamespaces, LabelSelector, Operator, Requirement, Timestamp, Version};
use crate::resources::Amounts;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) const NOW: Timestamp = 1_000;

pub(super) fn amounts(bandwidth: u64, iops: u64) -> Amounts {
    let some = |amount: u64| (amount > 0).then_some(amount);
    Amounts { bandwidth: some(bandwidth), iops: some(iops) }
}

pub(super) fn key(text: &str) -> ObjectKey {
    let (namespace, name) = text.split_once('/').unwrap_or(("", text));
    ObjectKey::new(namespace, name)
}

pub(super) fn lb(name: &str, capacity: Amounts) -> LoadBalancer {
    LoadBalancer {
        name: name.into(),
        uid: format!("uid-{name}").into(),
        version: Version("0".into()),
        deleting: false,
        labels: <_>::default(),
        scope: Scope::Internet,
        class: None,
        capacity,
        reclaim: Reclaim::Retain,
        shared: false,
        provisioned_for: None,
        users: Vec::new(),
        tie: Tie::default(),
        report: None,
    }
}

pub(super) fn claim(name: &str, requests: Amounts) -> Claim {
    Claim {
        key: key(name),
        uid: format!("u-{}", name.replace('/', "-")).into(),
        version: Version("0".into()),
        created: 1,
        deleting: false,
        ask: Ok(Ask { requests, ..Ask::default() }),
        in_use: false,
        report: None,
    }
}

pub(super) fn asking(name: &str, edit: impl FnOnce(&mut Ask)) -> Claim {
    let mut claim = claim(name, Amounts::default());
    claim.ask.as_mut().map(edit).unwrap();
    claim
}

pub(super) fn class(name: &str) -> Class {
    Class {
        name: name.into(),
        created: 1,
        deleting: false,
        default: false,
        capacity: Amounts::default(),
        reclaim: Reclaim::Delete,
        idle_timeout: None,
        scope: None,
        allowed: AllowedNamespaces::All,
        unmakable: None,
    }
}

pub(super) fn label(key: &str, value: &str) -> LabelSelector {
    let operator = Operator::In(vec![value.into()]);
    LabelSelector { requirements: vec![Requirement { key: key.into(), operator }] }
}

pub(super) fn held_by(claim: &Claim) -> Option<ClaimRef> {
    Some(ClaimRef { key: claim.key.clone(), uid: Some(claim.uid.clone()) })
}

/// What the API has. Objects that are deleted stay while they have finalizers.
#[derive(Clone, Debug, Default)]
pub(super) struct Store {
    pub(super) lbs: BTreeMap<Arc<str>, LoadBalancer>,
    pub(super) claims: BTreeMap<ObjectKey, Claim>,
    version: u64,
    uids: u64,
    /// What the watches of load balancers and claims deliver.
    pub(super) logs: [Vec<Event>; 2],
}

impl Store {
    fn next(&mut self) -> Version {
        self.version += 1;
        Version(self.version.to_string().into())
    }

    pub(super) fn new_uid(&mut self) -> Arc<str> {
        self.uids += 1;
        format!("uid{}", self.uids).into()
    }

    pub(super) fn put_lb(&mut self, mut lb: LoadBalancer) {
        let key = key(&lb.name);
        if lb.deleting && !lb.tie.in_use && !lb.tie.cleanup {
            self.lbs.remove(&lb.name);
            let (kind, uid) = (Kind::LoadBalancer, lb.uid);
            return self.logs[0].push(Event::Delete { kind, key, uid });
        }
        lb.version = self.next();
        self.lbs.insert(lb.name.clone(), lb.clone());
        self.logs[0].push(Event::Apply(Box::new(Object::LoadBalancer(lb))));
    }

    pub(super) fn put_claim(&mut self, mut claim: Claim) {
        let key = claim.key.clone();
        if claim.deleting && !claim.in_use {
            self.claims.remove(&key);
            let (kind, uid) = (Kind::Claim, claim.uid);
            return self.logs[1].push(Event::Delete { kind, key, uid });
        }
        claim.version = self.next();
        self.claims.insert(key, claim.clone());
        self.logs[1].push(Event::Apply(Box::new(Object::Claim(claim))));
    }

    pub(super) fn lb(&self, name: &str) -> Option<Box<Object>> {
        self.lbs.get(name).cloned().map(|lb| Box::new(Object::LoadBalancer(lb)))
    }

    /// Carries out a write, if it is under the present version. Err: no API would accept it.
    pub(super) fn perform(&mut self, op: &Op) -> Result<Written, String> {
        Ok(match op {
            Op::Bind(target, tie) | Op::Release(target, tie) | Op::Guard(target, tie) => {
                let Some(mut lb) = self.at_lb(target) else {
                    return Ok(Written::Conflict(self.lb(&target.key.name)));
                };
                let adds = (tie.in_use && !lb.tie.in_use) || (tie.cleanup && !lb.tie.cleanup);
                if lb.deleting && adds {
                    return Err(format!("a finalizer on what is being deleted: {op:?}"));
                }
                if lb.tie.uid().zip(tie.uid()).is_some_and(|(old, new)| old != new) {
                    return Err(format!("from one claim to another: {lb:?} {op:?}"));
                }
                lb.tie = tie.clone();
                self.put_lb(lb);
                Written::Ok(self.lb(&target.key.name))
            }
            Op::Report(target, report) => {
                let Some(mut lb) = self.at_lb(target) else {
                    return Ok(Written::Conflict(self.lb(&target.key.name)));
                };
                lb.report = Some(report.clone());
                self.put_lb(lb);
                Written::Ok(self.lb(&target.key.name))
            }
            Op::Delete(target) => {
                let Some(mut lb) = self.at_lb(target) else {
                    return Ok(Written::Conflict(self.lb(&target.key.name)));
                };
                lb.deleting = true;
                self.put_lb(lb);
                Written::Ok(self.lb(&target.key.name))
            }
            Op::Create(new) => {
                if self.lbs.contains_key(&new.name) {
                    return Ok(Written::Conflict(self.lb(&new.name)));
                }
                let uid = self.new_uid();
                self.put_lb(LoadBalancer {
                    uid,
                    scope: new.scope,
                    class: Some(new.class.clone()),
                    reclaim: new.reclaim,
                    provisioned_for: Some(new.claim.clone()),
                    tie: new.tie(),
                    ..lb(&new.name, new.capacity)
                });
                Written::Ok(self.lb(&new.name))
            }
            Op::GuardClaim(target, _) | Op::ReportClaim(target, _) => {
                let there = self.claims.get(&target.key).cloned();
                let object = |claim: Option<&Claim>| {
                    claim.cloned().map(|claim| Box::new(Object::Claim(claim)))
                };
                let same = |it: &Claim| it.uid == target.uid && it.version == target.version;
                let Some(mut claim) = there.clone().filter(same) else {
                    return Ok(Written::Conflict(object(there.as_ref())));
                };
                match op {
                    Op::GuardClaim(_, true) if claim.deleting => {
                        return Err(format!("a finalizer on what is being deleted: {op:?}"));
                    }
                    Op::GuardClaim(_, in_use) => claim.in_use = *in_use,
                    Op::ReportClaim(_, report) => claim.report = Some(report.clone()),
                    _ => {}
                }
                self.put_claim(claim);
                Written::Ok(object(self.claims.get(&target.key)))
            }
        })
    }

    fn at_lb(&self, target: &Target) -> Option<LoadBalancer> {
        let same = |it: &&LoadBalancer| it.uid == target.uid && it.version == target.version;
        self.lbs.get(&target.key.name).filter(same).cloned()
    }

    pub(super) fn version_of(&self, subject: &Subject) -> Option<Version> {
        match subject {
            Subject::Claim { key, uid, .. } => {
                let claim = self.claims.get(key).filter(|claim| claim.uid == *uid)?;
                Some(claim.version.clone())
            }
            Subject::LoadBalancer { name, .. } => Some(self.lbs.get(name)?.version.clone()),
        }
    }
}

/// A machine, and the API that it works on.
pub(super) struct Api {
    pub(super) machine: Binder,
    pub(super) store: Store,
    pub(super) now: Timestamp,
    heard: [usize; 2],
    /// All writes that were carried out.
    pub(super) ops: Vec<Op>,
    pub(super) jobs: Vec<(Arc<str>, JobKind)>,
    /// Why jobs fail, if they do.
    pub(super) fails: Option<Arc<str>>,
    /// What jobs wait for, if they do; and the jobs that wait.
    pub(super) waits: Option<Arc<str>>,
    pub(super) under_way: Vec<Id>,
    /// Whether the next job is given up.
    pub(super) abandons: bool,
}

impl Api {
    pub(super) fn new(
        lbs: impl IntoIterator<Item = LoadBalancer>,
        claims: impl IntoIterator<Item = Claim>,
    ) -> Self {
        let mut store = Store::default();
        lbs.into_iter().for_each(|lb| store.put_lb(lb));
        claims.into_iter().for_each(|claim| store.put_claim(claim));
        let mut api = Self {
            machine: Binder::new(),
            store,
            now: NOW,
            heard: [0, 0],
            ops: Vec::new(),
            jobs: Vec::new(),
            fails: None,
            waits: None,
            under_way: Vec::new(),
            abandons: false,
        };
        Kind::ALL.into_iter().for_each(|kind| api.tell(Event::Begin(kind)));
        api
    }

    pub(super) fn with_class(mut self, class: Class) -> Self {
        self.tell(Event::Apply(Box::new(Object::Class(class))));
        self
    }

    pub(super) fn tell(&mut self, event: Event) {
        self.machine.handle(event, self.now);
    }

    pub(super) fn wanted(&mut self, claim: &str, consumers: u32) {
        self.tell(Event::Wanted { claim: key(claim), consumers });
    }

    fn hear(&mut self) {
        for at in 0..2 {
            let news = self.store.logs[at][self.heard[at]..].to_vec();
            self.heard[at] += news.len();
            news.into_iter().for_each(|event| self.tell(event));
        }
        if !self.machine.synced() {
            Kind::ALL.into_iter().for_each(|kind| self.tell(Event::Done(kind)));
        }
    }

    /// Delivers, carries out and answers everything until there is nothing to do.
    pub(super) fn run(&mut self) {
        for _ in 0..200 {
            self.hear();
            let changes = self.machine.take(self.now);
            if changes == Changes::default() {
                return;
            }
            for subject in changes.confirm {
                let version = self.store.version_of(&subject);
                self.tell(Event::Confirmed { subject, version });
            }
            for Write { id, op } in changes.writes {
                let result = self.store.perform(&op).unwrap();
                assert!(matches!(result, Written::Ok(_)), "{op:?}: {result:?}");
                self.ops.push(op);
                self.tell(Event::Written { id, result });
            }
            for job in changes.jobs {
                self.jobs.push((job.load_balancer, job.kind));
                if std::mem::take(&mut self.abandons) {
                    self.tell(Event::Abandoned { id: job.id });
                    continue;
                }
                if let Some(why) = self.waits.clone() {
                    self.under_way.push(job.id);
                    self.tell(Event::Waits { id: job.id, why });
                    continue;
                }
                let result = self.fails.clone().map_or(Ok(()), Err);
                self.tell(Event::Finished { id: job.id, result });
            }
        }
        panic!("it does not come to rest");
    }

    /// Lets time pass, and does everything that becomes due.
    pub(super) fn pass(&mut self, seconds: Timestamp) {
        let until = self.now + seconds;
        self.run();
        while let Some(at) = self.machine.wake_at().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.run();
        }
        self.now = until;
        self.run();
    }

    pub(super) fn edit_lb(&mut self, name: &str, edit: impl FnOnce(&mut LoadBalancer)) {
        let mut lb = self.store.lbs[name].clone();
        edit(&mut lb);
        self.store.put_lb(lb);
    }

    pub(super) fn edit_claim(&mut self, name: &str, edit: impl FnOnce(&mut Claim)) {
        let mut claim = self.store.claims[&key(name)].clone();
        edit(&mut claim);
        self.store.put_claim(claim);
    }

    pub(super) fn report(&self, claim: &str) -> ClaimReport {
        self.store.claims[&key(claim)].report.clone().expect("a report")
    }

    /// The load balancer that a claim's status names.
    pub(super) fn home(&self, claim: &str) -> Option<Arc<str>> {
        let report = self.report(claim);
        report.load_balancer.filter(|_| report.phase == Phase::Bound)
    }

    pub(super) fn binding(&self, lb: &str) -> Binding {
        self.store.lbs[lb].report.as_ref().expect("a report").binding
    }
}
