//! Seats on load balancers that count them: tells the machine of `bowline_core::admission` who belongs where, and
//! the planner who has a seat. It decides nothing. While another process leads the machine only listens.

use super::*;
use crate::controller::binding::{Answer, Found, Step};
use crate::controller::shown::{LoadBalancerShown, Shown};
use bowline_api::convert;
use bowline_core::admission::{
    self, Admission, Changes, Event as Told, Kind, Write as SeatsWrite, WriteId,
};
use serde_json::json;

/// Who has a seat where, and what is to be done about it.
#[derive(Default)]
pub(super) struct Seats {
    machine: Admission,
    writes: BTreeMap<Arc<str>, SeatsWrite>,
    /// Who seems to have left, and which load balancer.
    confirm: BTreeSet<(ConsumerRef, Arc<str>)>,
    /// Whether the machine has been told of all consumers once.
    told: bool,
    leads: bool,
    /// Seconds since 1970.
    clock: i64,
}

impl Seats {
    fn tell(&mut self, event: Told) {
        self.machine.handle(event, self.clock);
    }

    /// The time is this, and we lead or do not. Who ceases to lead does not know what became of writes.
    pub(super) fn at(&mut self, clock: i64, leads: bool) {
        self.clock = clock;
        if self.leads && !leads {
            for write in std::mem::take(&mut self.writes).into_values() {
                self.tell(Told::Written { id: write.id, result: admission::Written::Failed });
            }
            self.confirm.clear();
        }
        self.leads = leads;
    }

    /// Whether seats of a load balancer are to be recorded.
    pub(super) fn has_write(&self, lb: &Arc<str>) -> bool {
        self.writes.contains_key(lb)
    }

    /// A load balancer is so now.
    pub(super) fn show(&mut self, shown: &LoadBalancerShown) {
        self.tell(match &shown.seating {
            Some(seating) => Told::LoadBalancer(Box::new(seating.clone())),
            None => Told::Uncounted(Arc::clone(&shown.known.name), shown.known.version.clone()),
        });
    }

    /// What the planner is told of load balancers.
    pub(super) fn hear(&mut self, event: &Event, status: Option<&Status>) {
        use bowline_core::planner::Kind as Planned;
        match (event, status) {
            (Event::Begin(Planned::LoadBalancer), _) => self.tell(Told::Begin(Kind::LoadBalancer)),
            (Event::Done(Planned::LoadBalancer), _) => self.tell(Told::Done(Kind::LoadBalancer)),
            (Event::Delete(Planned::LoadBalancer, key), _) => {
                self.tell(Told::LoadBalancerGone(Arc::clone(&key.name)));
            }
            (Event::Apply(_), Some(Status::LoadBalancer(shown))) => self.show(&shown.status),
            _ => {}
        }
    }
}

impl State {
    /// Tells the machine who belongs where, and the planner who has a seat.
    pub(super) fn admit(&mut self) {
        for (consumer, want) in self.planner.wants() {
            self.seats.tell(match want {
                Some(want) => Told::Wants(want),
                None => Told::Leaves(consumer),
            });
        }
        if !std::mem::replace(&mut self.seats.told, true) {
            self.seats.tell(Told::Done(Kind::Consumer));
        }
        if !self.seats.leads {
            return;
        }
        let Changes { writes, confirm, decisions, stays } =
            self.seats.machine.take(self.seats.clock);
        for write in writes {
            self.dirty.insert(Target::Binding(Arc::clone(&write.load_balancer)));
            self.seats.writes.insert(Arc::clone(&write.load_balancer), write);
        }
        for (consumer, lb) in confirm {
            self.dirty.insert(Target::Leaver(consumer.clone(), Arc::clone(&lb)));
            self.seats.confirm.insert((consumer, lb));
        }
        for (consumer, decision) in decisions {
            self.pooled.touch(consumer.kind, &key(&consumer));
            self.planner.handle(Event::Admitted(consumer, decision));
        }
        for (consumer, lb, amounts) in stays {
            self.planner.handle(Event::Stays(consumer, lb, amounts));
        }
    }

    /// The seats of a load balancer are recorded: that is the admission.
    pub(super) fn next_seats(&mut self, lb: &Arc<str>, now: Instant) -> Next {
        let Some(write) = self.seats.writes.get(lb) else { return Next::Nothing };
        let known = self.balancers.get(lb);
        let same = |shown: &&Shown<LoadBalancerShown>| *shown.version == *write.version.0;
        let Some(shown) = known.filter(same) else {
            // It has changed since that was decided.
            let found = known.cloned().map(|shown| Found::LoadBalancer(Box::new(shown)));
            let id = write.id;
            self.seated(lb, id, &Answer::Conflict(found));
            return Next::Later(now);
        };
        let (consumers, allocated) = convert::seats(write);
        let patch = json!({
            "metadata": {"resourceVersion": &*shown.version},
            "status": {
                "consumers": (!consumers.is_empty()).then_some(consumers),
                "allocated": amounts(allocated),
            },
        });
        let write = Write::Seats(write.id, Arc::clone(lb), Step::Status(patch));
        Next::Write(write, Tried::default())
    }

    /// A write of seats was answered.
    pub(super) fn seated(&mut self, lb: &Arc<str>, id: WriteId, answer: &Answer) {
        if self.seats.writes.get(lb).is_some_and(|write| write.id == id) {
            self.seats.writes.remove(lb);
        }
        let shown = |found: &Option<Found>| match found {
            Some(Found::LoadBalancer(shown)) => Some((**shown).clone()),
            _ => None,
        };
        let result = match answer {
            Answer::Ok(found) => match shown(found) {
                Some(shown) => admission::Written::Ok(shown.status.known.version.clone()),
                None => admission::Written::Conflict(None),
            },
            Answer::Conflict(found) => {
                let seating = shown(found).and_then(|shown| shown.status.seating);
                admission::Written::Conflict(seating.map(Box::new))
            }
            Answer::Failed | Answer::Refused(_) => admission::Written::Failed,
        };
        self.seats.tell(Told::Written { id, result });
        if let Answer::Ok(found) | Answer::Conflict(found) = answer
            && let Some(shown) = shown(found)
        {
            self.put_balancer(lb, shown);
        }
    }

    /// A load balancer is so now, as the answer to a write says.
    pub(super) fn put_balancer(&mut self, lb: &Arc<str>, shown: Shown<LoadBalancerShown>) {
        if self.bindings.is_buried(&shown.status.known.uid) {
            return;
        }
        self.seats.show(&shown.status);
        let known = binder::Object::LoadBalancer(shown.status.known.clone());
        self.bindings.tell(binder::Event::Apply(Box::new(known)));
        self.touch_claim_of(&shown.status.known);
        // The answer to its creation may come before the watch shows it.
        if self.balancers.get(lb).is_none() {
            self.meet(lb, Vec::new());
        }
        self.balancers.put(Arc::clone(lb), shown);
        self.dirty.insert(Target::LoadBalancer(Arc::clone(lb)));
    }

    pub(super) fn next_leaver(&self, consumer: &ConsumerRef, lb: &Arc<str>) -> Next {
        let who = (consumer.clone(), Arc::clone(lb));
        match self.seats.confirm.contains(&who) {
            true => {
                let known =
                    self.balancers.get(lb).and_then(|it| it.status.known.tie.claim.as_ref());
                let claim = known.map(|claim| claim.key.clone());
                Next::Write(Write::Leaver(who.0, who.1, claim), Tried::default())
            }
            false => Next::Nothing,
        }
    }

    /// What a read says of somebody who seems to have left.
    pub(super) fn looked_at(
        &mut self,
        consumer: ConsumerRef,
        load_balancer: Arc<str>,
        found: Option<&Read>,
    ) {
        self.seats.confirm.remove(&(consumer.clone(), Arc::clone(&load_balancer)));
        let claim = |it: &(ObjectKey, Option<Arc<str>>)| binder::ClaimRef {
            key: it.0.clone(),
            uid: it.1.clone(),
        };
        let planned = self.planner.load_balancer(&load_balancer);
        let planned = planned.map(|lb| lb.claim.as_ref().map(claim));
        let known = self.balancers.get(&load_balancer);
        let known = known.map(|shown| shown.status.known.tie.claim.clone());
        // While the planner does not know the load balancer as it is, nobody has left it.
        let wants = found.is_some_and(|read| {
            planned != known
                || self.planner.belongs(read, &load_balancer)
                || self.planner.keeps(&consumer, &load_balancer)
        });
        self.seats.tell(Told::Confirmed { consumer, load_balancer, wants });
    }
}
