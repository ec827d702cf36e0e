//! Observes events: records them, and enqueues the claims and load balancers that they touch. Nothing is decided
//! here.

use super::machine::{Binder, ClaimSlot, drop_from};
use super::object::{Claim, LoadBalancer, Object};
use super::report::ClaimReport;
use super::{Event, Kind, Subject};
use crate::key::ObjectKey;
use crate::objects::{Timestamp, Version};
use std::sync::Arc;

impl Binder {
    /// Observes an event.
    pub fn handle(&mut self, event: Event, now: Timestamp) {
        match event {
            Event::Begin(kind) => self.relists[kind as usize].begin(),
            Event::Done(kind) => {
                self.sweep(kind);
                self.relists[kind as usize].done();
            }
            Event::Apply(object) => match *object {
                Object::LoadBalancer(lb) => self.record_lb(lb),
                Object::Claim(claim) => self.record_claim(claim),
                Object::Class(class) => {
                    let epoch = self.relists[Kind::Class as usize].epoch();
                    let old = self.classes.insert(class.name.clone(), (class.clone(), epoch));
                    if old.is_none_or(|(old, _)| old != class) {
                        self.classes_changed();
                    }
                }
                Object::Namespace(namespace) => {
                    let epoch = self.relists[Kind::Namespace as usize].epoch();
                    let labels = namespace.labels;
                    let name = namespace.name;
                    let old = self.namespaces.insert(name.clone(), (labels.clone(), epoch));
                    if old.is_none_or(|(old, _)| old != labels) {
                        self.namespace_changed(&name);
                    }
                }
            },
            Event::Delete { kind, key, uid } => self.delete(kind, &key, &uid),
            Event::Wanted { claim, consumers } => {
                let epoch = self.relists[Kind::Consumer as usize].epoch();
                let old = match consumers {
                    0 => self.wanted.remove(&claim),
                    _ => self.wanted.insert(claim.clone(), (consumers, epoch)),
                };
                if old.map_or(0, |(old, _)| old) != consumers {
                    self.wants_changed(&claim);
                }
            }
            Event::Confirmed { subject, version } => self.confirmed(subject, version),
            Event::Written { id, result } => self.written(id, result, now),
            Event::Finished { id, result } => self.finished(id, result, now),
            Event::Waits { id, why } => self.waits(id, why),
            Event::Abandoned { id } => self.abandoned(id),
            Event::Used { load_balancer, namespaces } => self.used(load_balancer, namespaces),
        }
    }

    fn used(&mut self, lb: Arc<str>, namespaces: Vec<Arc<str>>) {
        let old = match namespaces.is_empty() {
            true => self.users.remove(&lb),
            false => self.users.insert(lb.clone(), namespaces),
        };
        if old.as_ref() == self.users.get(&lb) {
            return;
        }
        // Waiting claims may have it now.
        if self.index.names().contains(&lb) {
            self.opened.add(&lb);
        }
        if let Some(claim) = self.tie(&lb).and_then(|tie| tie.claim.clone()) {
            self.touch_claim(&claim.key);
        }
        self.dirty_lbs.insert(lb);
    }

    fn classes_changed(&mut self) {
        self.woken = true;
        let making = self.lbs.iter().filter(|(_, slot)| slot.making.is_some());
        let made = self.made_for.values().flatten().chain(making.map(|(name, _)| name));
        self.dirty_lbs.extend(made.cloned());
    }

    /// Enqueues the pending claims of a namespace: its labels decide which classes allow it.
    fn namespace_changed(&mut self, name: &str) {
        let its = self.pending.iter().filter(|age| &*age.key.namespace == name);
        self.dirty_claims.extend(its.cloned());
    }

    fn wants_changed(&mut self, claim: &ObjectKey) {
        self.touch_claim(claim);
        if let Some(claim) = self.claims.get(claim).map(|slot| slot.seen.clone()) {
            self.touch_lbs_of(&claim);
        }
    }

    fn delete(&mut self, kind: Kind, key: &ObjectKey, uid: &Arc<str>) {
        match kind {
            Kind::LoadBalancer => self.remove_lb(&key.name, uid),
            Kind::Claim => {
                let Some(slot) = self.claims.get_mut(key) else { return };
                if let Some(sent) = &mut slot.sent {
                    sent.gone.push(uid.clone());
                }
                if slot.seen.uid == *uid {
                    self.remove_claim(key);
                }
            }
            Kind::Class => {
                if self.classes.remove(&key.name).is_some() {
                    self.classes_changed();
                }
            }
            Kind::Namespace => {
                if self.namespaces.remove(&key.name).is_some() {
                    self.namespace_changed(&key.name);
                }
            }
            Kind::Consumer => {
                if self.wanted.remove(key).is_some() {
                    self.wants_changed(key);
                }
            }
        }
    }

    /// A list has ended: objects that it did not deliver are deleted.
    fn sweep(&mut self, kind: Kind) {
        let relist = self.relists[kind as usize];
        let of_name = |name: &Arc<str>| ObjectKey::new("", name.clone());
        let gone: Vec<(ObjectKey, Arc<str>)> = match kind {
            Kind::LoadBalancer => {
                let old = self.lbs.iter().filter(|(_, slot)| relist.has_missed(slot.epoch));
                old.filter_map(|(name, slot)| {
                    Some((of_name(name), slot.seen.as_ref()?.uid.clone()))
                })
                .collect()
            }
            Kind::Claim => {
                let old = self.claims.iter().filter(|(_, slot)| relist.has_missed(slot.epoch));
                old.map(|(key, slot)| (key.clone(), slot.seen.uid.clone())).collect()
            }
            Kind::Class => {
                let missed = relist.missed(&self.classes, |(_, epoch)| *epoch);
                missed.iter().map(|name| (of_name(name), "".into())).collect()
            }
            Kind::Namespace => {
                let missed = relist.missed(&self.namespaces, |(_, epoch)| *epoch);
                missed.iter().map(|name| (of_name(name), "".into())).collect()
            }
            Kind::Consumer => {
                let missed = relist.missed(&self.wanted, |(_, epoch)| *epoch);
                missed.into_iter().map(|key| (key, "".into())).collect()
            }
        };
        gone.iter().for_each(|(key, uid)| self.delete(kind, key, uid));
    }

    /// The API has a load balancer.
    pub(super) fn record_lb(&mut self, lb: LoadBalancer) {
        let epoch = self.relists[Kind::LoadBalancer as usize].epoch();
        let name = lb.name.clone();
        let slot = self.lbs.get_mut(&name);
        let (mut old, mut writes) = (None, false);
        if let Some(slot) = slot {
            slot.epoch = epoch;
            old = slot.seen.clone();
            writes = slot.sent.as_ref().is_some_and(|sent| sent.tie);
        }
        if old.as_ref().is_some_and(|old| is_old(&lb.version, &old.version)) {
            return;
        }
        let renewed = old.as_ref().is_none_or(|old| old.uid != lb.uid);
        // If it changed, what was wanted for it is decided again, unless the answer of a write is due.
        let keeps = writes || old.is_some_and(|old| same_but_report(&old, &lb));
        self.amend(&name, |slot| {
            slot.epoch = epoch;
            if renewed {
                (slot.dead, slot.done, slot.job, slot.job_failed) = (None, None, None, None);
            }
            if !keeps {
                (slot.want, slot.making) = (None, None);
            }
            slot.seen = Some(Arc::new(lb));
        });
    }

    fn remove_lb(&mut self, name: &Arc<str>, uid: &Arc<str>) {
        let Some(slot) = self.lbs.get_mut(name) else { return };
        let mut writes = false;
        if let Some(sent) = &mut slot.sent {
            sent.gone.push(uid.clone());
            writes = sent.tie;
        }
        if slot.seen.as_ref().is_some_and(|lb| lb.uid == *uid) {
            self.amend(name, |slot| {
                slot.seen = None;
                (slot.dead, slot.done, slot.job, slot.job_failed) = (None, None, None, None);
                if !writes {
                    slot.want = None;
                }
            });
        }
    }

    /// The API has a claim.
    pub(super) fn record_claim(&mut self, claim: Claim) {
        let epoch = self.relists[Kind::Claim as usize].epoch();
        let key = claim.key.clone();
        let claim = Arc::new(claim);
        if let Some(slot) = self.claims.get_mut(&key) {
            slot.epoch = epoch;
            if is_old(&claim.version, &slot.seen.version) {
                return;
            }
            if slot.seen.uid != claim.uid {
                self.remove_claim(&key);
            }
        }
        if let Some(home) = home(&claim) {
            self.homes.entry(home.clone()).or_default().insert(key.clone());
        }
        let slot = self.claims.get_mut(&key);
        let mut old = None;
        match slot {
            Some(slot) => old = Some(std::mem::replace(&mut slot.seen, claim.clone())),
            None => {
                let (seen, sent) = (claim.clone(), None);
                let slot = ClaimSlot {
                    seen,
                    epoch,
                    report: None,
                    told_at: None,
                    sent,
                    failures: 0,
                    retry_at: 0,
                    lost: None,
                };
                self.claims.insert(key.clone(), slot);
            }
        }
        if let Some(old) = &old {
            if old.age() != claim.age() {
                self.forget_age(old);
            }
            if let Some(gone) = home(old).filter(|gone| Some(*gone) != home(&claim)) {
                drop_from(&mut self.homes, gone, &key);
                self.dirty_lbs.insert(gone.clone());
            }
        }
        self.touch_claim(&key);
        self.touch_lbs_of(&claim);
    }

    pub(super) fn remove_claim(&mut self, key: &ObjectKey) {
        let Some(slot) = self.claims.remove(key) else { return };
        if let Some(home) = home(&slot.seen) {
            drop_from(&mut self.homes, home, key);
        }
        self.forget_age(&slot.seen);
        self.touch_lbs_of(&slot.seen);
        self.outdated = true;
    }

    fn forget_age(&mut self, claim: &Claim) {
        let age = claim.age();
        self.pending.remove(&age);
        self.dirty_claims.remove(&age);
    }

    /// Marks the load balancers that a claim has, had or may have.
    fn touch_lbs_of(&mut self, claim: &Claim) {
        let held = self.held.get(&claim.uid).into_iter().flatten();
        let made = self.made_for.get(&claim.uid).into_iter().flatten();
        let reserved = self.reserved.get(&claim.key).into_iter().flatten();
        let all = held.chain(made).chain(reserved).chain(home(claim)).cloned();
        self.dirty_lbs.extend(all.collect::<Vec<_>>());
    }

    fn confirmed(&mut self, subject: Subject, version: Option<Version>) {
        match subject {
            Subject::Claim { uid, load_balancer, .. } => {
                if let Some(slot) = self.lbs.get_mut(&load_balancer)
                    && version.is_none()
                {
                    slot.dead = Some(uid);
                    self.dirty_lbs.insert(load_balancer);
                }
            }
            Subject::LoadBalancer { name, claim } => {
                if let Some(slot) = self.claims.get_mut(&claim) {
                    slot.lost = Some((name, version));
                    self.touch_claim(&claim);
                }
            }
        }
    }
}

fn home(claim: &Claim) -> Option<&Arc<str>> {
    claim.report.as_ref().and_then(ClaimReport::home)
}

fn is_old(new: &Version, known: &Version) -> bool {
    new == known || new.is_older_than(known)
}

/// Whether two versions of a load balancer differ in their reports at most.
fn same_but_report(old: &LoadBalancer, new: &LoadBalancer) -> bool {
    let mut as_before = new.clone();
    (as_before.version, as_before.report) = (old.version.clone(), old.report.clone());
    as_before == *old
}
