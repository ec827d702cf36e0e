//! Observes events: records them, and enqueues the load balancers that they touch. Nothing is decided here.

use super::machine::{Admission, Belongs, Sent};
use super::plan::Age;
use super::{Event, Kind, LoadBalancer, Want, WriteId, Written};
use crate::key::ConsumerRef;
use crate::objects::{Timestamp, Version};
use std::sync::Arc;

/// Failed writes are repeated after 1, 2, 4 … seconds, and at last every 32.
const LONGEST_RETRY: u32 = 5;

impl Admission {
    /// Observes an event.
    pub fn handle(&mut self, event: Event, now: Timestamp) {
        match event {
            Event::Begin(kind) => self.relists[kind as usize].begin(),
            Event::Done(kind) => {
                self.sweep(kind);
                if self.relists[kind as usize].done() {
                    self.dirty.extend(self.slots.keys().cloned());
                }
            }
            Event::LoadBalancer(lb) => self.record(*lb),
            Event::LoadBalancerGone(name) => self.remove(&name),
            Event::Uncounted(name, version) => self.uncount(&name, &version),
            Event::Wants(want) => self.want(want),
            Event::Leaves(consumer) => self.leave(&consumer),
            Event::Confirmed { consumer, load_balancer, wants } => {
                self.confirmed(consumer, load_balancer, wants);
            }
            Event::Written { id, result } => self.written(id, result, now),
        }
    }

    fn sweep(&mut self, kind: Kind) {
        let relist = self.relists[kind as usize];
        match kind {
            Kind::LoadBalancer => {
                let gone = self.slots.iter();
                let gone = gone
                    .filter(|(_, slot)| slot.recorded.is_some() && relist.has_missed(slot.epoch));
                let gone: Vec<Arc<str>> = gone.map(|(name, _)| name.clone()).collect();
                gone.iter().for_each(|name| self.remove(name));
            }
            Kind::Consumer => {
                let missed = relist.missed(&self.belongs, |it| it.epoch);
                missed.iter().for_each(|consumer| self.leave(consumer));
            }
        }
    }

    /// The API has a load balancer.
    fn record(&mut self, lb: LoadBalancer) {
        let epoch = self.relists[Kind::LoadBalancer as usize].epoch();
        let known = self.version_of(&lb.name);
        let old =
            known.is_some_and(|known| *known == lb.version || lb.version.is_older_than(known));
        let slot = self.slots.entry(lb.name.clone()).or_default();
        slot.epoch = epoch;
        if old {
            return;
        }
        // A consumer that has left and has no seat any more may come back, and needs no read.
        slot.left.retain(|uid| lb.seats.iter().any(|seat| seat.consumer.uid == *uid));
        self.dirty.insert(lb.name.clone());
        slot.recorded = Some(lb);
    }

    fn remove(&mut self, name: &Arc<str>) {
        let Some(slot) = self.slots.get_mut(name) else { return };
        let gone = slot.recorded.take().map(|lb| lb.uid);
        if let Some(sent) = &mut slot.sent {
            sent.gone = gone.or_else(|| sent.gone.take());
        }
        slot.left.clear();
        self.dirty.insert(name.clone());
    }

    /// A load balancer counts no seats. An event that is older than the known version is ignored.
    fn uncount(&mut self, name: &Arc<str>, version: &Version) {
        if self.version_of(name).is_none_or(|known| !version.is_older_than(known)) {
            self.remove(name);
        }
    }

    fn want(&mut self, want: Want) {
        let age = Age { created: want.created, consumer: want.consumer.clone() };
        let epoch = self.relists[Kind::Consumer as usize].epoch();
        let belongs = Belongs {
            load_balancer: want.load_balancer.clone(),
            keeps: want.keeps.clone(),
            age: age.clone(),
            epoch,
        };
        if let Some(old) = self.belongs.insert(want.consumer.clone(), belongs) {
            if (&old.load_balancer, &old.age) != (&want.load_balancer, &age) {
                self.unwant(&old);
                // At its new load balancer there may be no decision for a while.
                self.withdrawn.insert(want.consumer.clone());
            }
            if old.keeps != want.keeps {
                self.unkeep(&old);
            }
        }
        for name in &want.keeps {
            let slot = self.slots.entry(name.clone()).or_default();
            slot.left.remove(&want.consumer.uid);
            self.asked.remove(&(name.clone(), want.consumer.clone()));
            if slot.kept.insert(want.consumer.uid.clone()) {
                self.dirty.insert(name.clone());
            }
        }
        let slot = self.slots.entry(want.load_balancer.clone()).or_default();
        slot.left.remove(&want.consumer.uid);
        self.asked.remove(&(want.load_balancer.clone(), want.consumer.clone()));
        if slot.wants.get(&age) != Some(&want) {
            self.dirty.insert(want.load_balancer.clone());
            slot.wants.insert(age, want);
        }
    }

    fn unwant(&mut self, old: &Belongs) {
        if let Some(slot) = self.slots.get_mut(&old.load_balancer) {
            slot.wants.remove(&old.age);
            self.dirty.insert(old.load_balancer.clone());
        }
    }

    fn unkeep(&mut self, old: &Belongs) {
        for name in &old.keeps {
            if let Some(slot) = self.slots.get_mut(name) {
                slot.kept.remove(&old.age.consumer.uid);
                self.dirty.insert(name.clone());
            }
        }
    }

    fn leave(&mut self, consumer: &ConsumerRef) {
        if let Some(old) = self.belongs.remove(consumer) {
            self.unwant(&old);
            self.unkeep(&old);
            self.withdrawn.insert(consumer.clone());
        }
    }

    fn confirmed(&mut self, consumer: ConsumerRef, load_balancer: Arc<str>, wants: bool) {
        let key = (load_balancer.clone(), consumer);
        let asked = self.asked.contains_key(&key);
        let here = self.belongs.get(&key.1).is_some_and(|it| {
            it.load_balancer == load_balancer || it.keeps.contains(&load_balancer)
        });
        // If it still belongs there, its own watch will deliver it; until then it is asked for again.
        if wants || here || !asked {
            return;
        }
        self.asked.remove(&key);
        if let Some(slot) = self.slots.get_mut(&load_balancer) {
            slot.left.insert(key.1.uid);
            self.dirty.insert(load_balancer);
        }
    }

    fn written(&mut self, id: WriteId, result: Written, now: Timestamp) {
        let Some(name) = self.in_flight.remove(&id) else { return };
        let epoch = self.relists[Kind::LoadBalancer as usize].epoch();
        let Some(slot) = self.slots.get_mut(&name) else { return };
        let Some(Sent { uid, base, seats, gone, .. }) = slot.sent.take_if(|sent| sent.id == id)
        else {
            return;
        };
        self.dirty.insert(name.clone());
        // A write that succeeded and changed nothing did not record the seats: it is delayed like a failed one.
        if matches!(&result, Written::Failed) || matches!(&result, Written::Ok(it) if *it == base) {
            slot.retry_at = now + (1 << slot.failures.min(LONGEST_RETRY));
            slot.failures += 1;
            return;
        }
        (slot.failures, slot.retry_at, slot.epoch) = (0, 0, epoch);
        match result {
            Written::Ok(version) => {
                // The watch may have been quicker than the answer, and may know more by now.
                if let Some(lb) = slot.recorded.as_mut().filter(|lb| lb.uid == uid)
                    && lb.version.is_older_than(&version)
                {
                    (lb.version, lb.seats) = (version, seats);
                    let lb = &*lb;
                    slot.left.retain(|uid| lb.seats.iter().any(|it| it.consumer.uid == *uid));
                }
            }
            // The watch delivered the deletion of the object that was read.
            Written::Conflict(Some(lb)) if gone.as_ref() == Some(&lb.uid) => {}
            Written::Conflict(Some(lb)) => self.record(*lb),
            Written::Conflict(None) => self.remove(&name),
            Written::Failed => {}
        }
    }
}
