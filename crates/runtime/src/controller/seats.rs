//! The shell of admission (`bowline_core::admission`), which decides which consumer has a seat on a load balancer that
//! counts them: feeds it and keeps the writes that it wants until they are answered. It decides nothing. While another
//! process leads, the machine is fed and not asked.

use super::bindings::amounts;
use super::outbox::Outbox;
use super::shown::{LoadBalancerShown, Shown};
use super::target::{Next, Target, Tried};
use super::writer::Write;
use super::writer::bindings::{Current, Step, StepReply};
use crate::watch::Seen;
use bowline_api::convert;
use bowline_core::admission::{self, Admission, Changes, Event, Kind, Want, WriteId, Written};
use bowline_core::clock::Uptime;
use bowline_core::key::{ConsumerRef, ObjectKey};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// See the module.
#[derive(Default)]
pub(super) struct SeatShell {
    machine: Admission,
    writes: BTreeMap<Arc<str>, admission::Write>,
    /// Consumers that seem to have left a load balancer.
    confirm: BTreeSet<(ConsumerRef, Arc<str>)>,
    /// Whether the machine has been told of all consumers once.
    synced: bool,
    leads: bool,
    /// Seconds since 1970.
    clock: i64,
}

impl SeatShell {
    fn tell(&mut self, event: Event) {
        self.machine.handle(event, self.clock);
    }

    /// The time is this, and this process leads or does not. One that ceases to lead does not learn how its writes
    /// ended.
    pub(super) fn at(&mut self, clock: i64, leads: bool) {
        self.clock = clock;
        if self.leads && !leads {
            for write in std::mem::take(&mut self.writes).into_values() {
                self.tell(Event::Written { id: write.id, result: Written::Failed });
            }
            self.confirm.clear();
        }
        self.leads = leads;
    }

    /// Observes a LoadBalancer.
    pub(super) fn observe(&mut self, seen: Seen<&LoadBalancerShown>) {
        self.tell(match seen {
            Seen::Begin => Event::Begin(Kind::LoadBalancer),
            Seen::Apply(shown) => match &shown.seating {
                Some(seating) => Event::LoadBalancer(Box::new(seating.clone())),
                None => {
                    Event::Uncounted(Arc::clone(&shown.known.name), shown.known.version.clone())
                }
            },
            Seen::Delete(shown) => Event::LoadBalancerGone(Arc::clone(&shown.known.name)),
            Seen::Done => Event::Done(Kind::LoadBalancer),
        });
    }

    /// Consumers that want a seat now, or no longer.
    pub(super) fn want(&mut self, wants: impl IntoIterator<Item = (ConsumerRef, Option<Want>)>) {
        for (consumer, want) in wants {
            self.tell(match want {
                Some(want) => Event::Wants(want),
                None => Event::Leaves(consumer),
            });
        }
        if !std::mem::replace(&mut self.synced, true) {
            self.tell(Event::Done(Kind::Consumer));
        }
    }

    /// Takes what the machine decided. None: another process leads.
    pub(super) fn take(&mut self, outbox: &mut Outbox) -> Option<Changes> {
        let mut changes = self.leads.then(|| self.machine.take(self.clock))?;
        for write in std::mem::take(&mut changes.writes) {
            outbox.enqueue(Target::Binding(Arc::clone(&write.load_balancer)));
            self.writes.insert(Arc::clone(&write.load_balancer), write);
        }
        for (consumer, lb) in std::mem::take(&mut changes.confirm) {
            outbox.enqueue(Target::Leaver(consumer.clone(), Arc::clone(&lb)));
            self.confirm.insert((consumer, lb));
        }
        Some(changes)
    }

    /// Whether seats of a load balancer are to be written.
    pub(super) fn has_write(&self, lb: &Arc<str>) -> bool {
        self.writes.contains_key(lb)
    }

    /// The next write of the seats of a load balancer: recording a seat is the admission.
    pub(super) fn next(
        &mut self,
        lb: &Arc<str>,
        shown: Option<&Shown<LoadBalancerShown>>,
        now: Uptime,
    ) -> Next {
        let Some(write) = self.writes.get(lb) else { return Next::Nothing };
        let same = |shown: &&Shown<LoadBalancerShown>| *shown.version == *write.version.0;
        let Some(current) = shown.filter(same) else {
            // It has changed since that was decided.
            let seating = shown.and_then(|shown| shown.status.seating.clone());
            let (id, result) = (write.id, Written::Conflict(seating.map(Box::new)));
            self.answer(lb, id, result);
            if let Some(shown) = shown {
                self.observe(Seen::Apply(&shown.status));
            }
            return Next::Later(now);
        };
        let (consumers, allocated) = convert::seats(write);
        let patch = json!({
            "metadata": {"resourceVersion": &*current.version},
            "status": {
                "consumers": (!consumers.is_empty()).then_some(consumers),
                "allocated": amounts(allocated),
            },
        });
        let write = Write::Seats(write.id, Arc::clone(lb), Step::Status(patch));
        Next::Write(write, Tried::default())
    }

    /// A write of seats was answered.
    pub(super) fn answered(&mut self, lb: &Arc<str>, id: WriteId, answer: &StepReply) {
        let found = |found: &Option<Current>| match found {
            Some(Current::LoadBalancer(shown)) => Some((**shown).clone()),
            _ => None,
        };
        let result = match answer {
            StepReply::Ok(after) => match found(after) {
                Some(shown) => Written::Ok(shown.status.known.version.clone()),
                None => Written::Conflict(None),
            },
            StepReply::Conflict(after) => {
                let seating = found(after).and_then(|shown| shown.status.seating);
                Written::Conflict(seating.map(Box::new))
            }
            StepReply::Failed | StepReply::Refused(_) => Written::Failed,
        };
        self.answer(lb, id, result);
    }

    fn answer(&mut self, lb: &Arc<str>, id: WriteId, result: Written) {
        if self.writes.get(lb).is_some_and(|write| write.id == id) {
            self.writes.remove(lb);
        }
        self.tell(Event::Written { id, result });
    }

    /// The read that confirms whether a consumer has left a load balancer, which names this claim.
    pub(super) fn next_leaver(
        &self,
        consumer: &ConsumerRef,
        lb: &Arc<str>,
        claim: Option<ObjectKey>,
    ) -> Next {
        let (consumer, lb) = (consumer.clone(), Arc::clone(lb));
        match self.confirm.contains(&(consumer.clone(), Arc::clone(&lb))) {
            true => Next::Write(Write::Leaver(consumer, lb, claim), Tried::default()),
            false => Next::Nothing,
        }
    }

    /// Whether a consumer that seemed to have left still wants its seat.
    pub(super) fn confirmed(
        &mut self,
        consumer: ConsumerRef,
        load_balancer: Arc<str>,
        wants: bool,
    ) {
        self.confirm.remove(&(consumer.clone(), Arc::clone(&load_balancer)));
        self.tell(Event::Confirmed { consumer, load_balancer, wants });
    }
}
