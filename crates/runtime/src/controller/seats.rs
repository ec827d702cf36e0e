//! The shell of admission (`bowline_core::admission`): feeds it and keeps its writes until they are answered. It
//! decides nothing: admission decides which consumer has a seat on a load balancer that counts seats. While another
//! process leads, the machine is fed but not asked.

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

/// Admission with its writes and pending confirmations.
#[derive(Default)]
pub(super) struct SeatShell {
    machine: Admission,
    writes: BTreeMap<Arc<str>, admission::Write>,
    /// Consumers that seem to have left a load balancer; a read confirms it.
    confirm: BTreeSet<(ConsumerRef, Arc<str>)>,
    /// Whether the machine has received all consumers once.
    synced: bool,
    leads: bool,
    /// Seconds since 1970.
    clock: i64,
}

impl SeatShell {
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

    /// Tells the machine which consumers want a seat, and which no longer do.
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

    /// Takes the machine's decisions. None: another process leads.
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

    /// Whether seats of a load balancer have to be written.
    pub(super) fn has_write(&self, lb: &Arc<str>) -> bool {
        self.writes.contains_key(lb)
    }

    /// The next write of a load balancer's seats. Recording a seat is the admission.
    pub(super) fn next(
        &mut self,
        lb: &Arc<str>,
        shown: Option<&Shown<LoadBalancerShown>>,
        now: Uptime,
    ) -> Next {
        let Some(write) = self.writes.get(lb) else { return Next::Nothing };
        let same = |shown: &&Shown<LoadBalancerShown>| *shown.version == *write.version.0;
        let Some(current) = shown.filter(same) else {
            // The load balancer has changed since the decision.
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

    /// Hands the answer to a write of seats to the machine.
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

    /// The read that confirms that a consumer has left a load balancer, which is bound to this claim.
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

    /// Tells the machine whether a consumer that seemed to have left still wants its seat.
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
