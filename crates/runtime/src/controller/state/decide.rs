//! Deciding: asks the machines in this order, and hands each decision to the machines that depend on it.
//!
//! ```text
//!  requests ─▶ addresses ─▶ grants ─▶ ┐
//!                                     ├─▶ planner ─▶ fragments, outcomes ─▶ Plans, statuses, Events
//!  wants ────▶ admission ─▶ seats ──▶ ┘      │
//!     ▲           ▲                          ├─▶ binder: claims that are wanted
//!     └───────────┴── requests that changed ─┘
//! ```
//!
//! A plan can change what a consumer requests (a consumer that moves needs other addresses), and a grant can change the
//! plan, so the machines take a few rounds. This module enqueues targets and writes nothing; the turn calls it.

use super::State;
use crate::controller::addresses::{consumer_of, kind_of};
use crate::controller::bindings;
use crate::controller::consumers::{Moved, key, key_of};
use crate::controller::kinds::{KindId, address_pool};
use crate::controller::target::Target;
use bowline_core::addresses::{self, AddressRequest, Decision, HolderRef};
use bowline_core::arrivals::{self, Moving};
use bowline_core::clock::Uptime;
use bowline_core::diagnosis::Place;
use bowline_core::key::{ConsumerKind, ConsumerRef, ObjectKey};
use bowline_core::outcome::{Outcome, Problem};
use bowline_core::planner::{Event, FragmentChange, Grant};
use bowline_core::status;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Planner/allocator rounds per turn. The rest is decided in the next turn.
const ROUNDS: usize = 3;

impl State {
    /// Makes all decisions that follow from the observed events.
    pub(in crate::controller) fn decide(&mut self, now: Uptime) {
        self.inherit_served();
        self.end_served(now);
        self.follow_moves(now);
        for _ in 0..ROUNDS {
            self.request_addresses();
            self.allocate();
            self.admit();
            self.plan(now);
            if !self.forget_replaced() && !self.addresses.has_stale() {
                break;
            }
        }
        self.bind();
        if std::mem::take(&mut self.begins) {
            self.enqueue_everything();
        }
    }

    /// Tells the planner which deleted Plans count no more. Returns whether there were any.
    fn forget_replaced(&mut self) -> bool {
        let records = self.plans.take_replaced();
        let any = !records.is_empty();
        records.into_iter().for_each(|it| self.planner.handle(Event::Recorded(it)));
        any
    }

    /// Records that what Plans and Addresses name may be served, whichever leader planned it: none of it is released
    /// before an agent has applied this leader's first plan.
    fn inherit_served(&mut self) {
        if !self.is_complete() {
            return;
        }
        let change = self.plans.change() + 1;
        let recorded = self.planner.recorded();
        let Some(inherited) = self.addresses.inherit(recorded, change) else { return };
        for (lb, holders) in inherited.planned {
            let consumers = holders.into_iter().filter_map(consumer_of).collect();
            if let Some(plans) = self.plans.get_mut(&lb) {
                plans.doubt(&consumers, change);
            }
        }
        for (_, lb) in inherited.places {
            if self.boards.load_balancers.get(&lb).is_some() {
                self.plans.mark_stale_hash(lb);
            }
        }
    }

    /// Releases what agents have proved not to serve any more.
    fn end_served(&mut self, now: Uptime) {
        let (agents, boards) = (&self.agents, &self.boards);
        self.addresses
            .end_served(|lb, change| agents.may_serve(lb, boards.driven(lb), change, now));
    }

    /// Tells the planner which consumers have arrived on the load balancer that they move to.
    fn follow_moves(&mut self, now: Uptime) {
        let moving = self.planner.moving().filter_map(|outcome| {
            Some(Moving {
                consumer: outcome.consumer.clone(),
                load_balancer: outcome.load_balancer()?.clone(),
                served: self.is_served(outcome, now),
            })
        });
        let moving: Vec<_> = moving.collect();
        for (consumer, lb) in self.arrivals.follow(moving, now) {
            self.planner.handle(Event::Arrived(consumer, Some(lb)));
        }
    }

    fn is_served(&self, outcome: &Outcome, now: Uptime) -> bool {
        let (kind, key) = key_of(&outcome.consumer);
        let planned = self.consumers.planned(&(kind, key.clone())).unwrap_or_default();
        let verdict = outcome.load_balancer().and_then(|lb| self.verdict(lb, now));
        let shown = self.planner.has_status_address(kind, &key);
        let shown = shown.then(|| self.boards.points(kind, &key).unwrap_or_default());
        let names = |lb: &str| self.provisions.hostnames(lb);
        arrivals::is_served(outcome, verdict.as_ref(), planned.change, shown.as_deref(), names)
    }

    /// Hands changed address requests to the address machine.
    fn request_addresses(&mut self) {
        for (kind, key) in self.addresses.take_stale() {
            let request = self.address_request(kind, &key);
            self.addresses.request(kind, key, request);
        }
        // Before Plans are known, no holder counts as deleted.
        if self.is_complete() {
            self.addresses.sync();
        }
    }

    pub(super) fn address_request(
        &self,
        kind: ConsumerKind,
        key: &ObjectKey,
    ) -> Option<AddressRequest> {
        let shown = self.boards.addresses(kind, key)?;
        match kind {
            ConsumerKind::Service => self.planner.service_request(key, shown),
            ConsumerKind::LoadBalancer => self.planner.load_balancer_request(&key.name, shown),
            ConsumerKind::Ingress => None,
        }
    }

    /// Takes the address machine's decisions.
    fn allocate(&mut self) {
        let Some(changes) = self.addresses.take() else { return };
        let addresses::Changes { writes, confirm, decisions, notices, pools } = changes;
        self.outbox.enqueue_all(writes.iter().map(|write| Target::Address(write.address)));
        self.outbox.enqueue_all(confirm.into_iter().map(Target::Holder));
        for (holder, decision) in decisions {
            let grant = decision.map(|decision| decision.grant()).unwrap_or_default();
            match kind_of(holder.kind) {
                Some(ConsumerKind::LoadBalancer) => self.grant_load_balancer(holder, grant),
                Some(kind) => self.grant(kind, holder.key, grant),
                None => self.outbox.enqueue(Target::Object(KindId::ExternalIP, holder.key)),
            }
        }
        for notice in notices {
            if let Some(event) = notice.event() {
                self.outbox.record(event);
            }
        }
        for (name, report) in pools {
            let key = ObjectKey::new("", Arc::clone(&name));
            let shown = self.kinds.address_pools.get(&key);
            address_pool::report(&mut self.addresses, &name, report, shown, &mut self.outbox);
            self.outbox.enqueue(Target::Object(KindId::AddressPool, key));
        }
    }

    /// Hands the addresses of a Service to the planner.
    fn grant(&mut self, kind: ConsumerKind, key: ObjectKey, grant: Grant) {
        self.planner.handle(Event::Granted(kind, key.clone(), grant));
        if self.is_alone(kind, &key) {
            let problems = self.problems_alone(&key);
            self.consumers.tell((kind, key.clone()), problems, &mut self.outbox);
        }
        self.outbox.enqueue(Target::Consumer(kind, key));
    }

    /// Hands the addresses of a load balancer to the planner. All its consumers are served at them from the next
    /// change on.
    fn grant_load_balancer(&mut self, holder: HolderRef, grant: Grant) {
        let (lb, change) = (Arc::clone(&holder.key.name), self.plans.change() + 1);
        let served = self.addresses.serve_holder(holder.clone(), &lb, grant.served(), change);
        let key = holder.key.clone();
        if served && self.boards.load_balancers.get(&lb).is_some() {
            self.plans.mark_stale_hash(Arc::clone(&lb));
            self.consumers.readdress((ConsumerKind::LoadBalancer, key.clone()), change);
        }
        if let Some(problem) = grant.problem.as_ref()
            && let Some(consumer) = consumer_of(holder)
        {
            self.outbox.warn(&consumer, problem);
        }
        self.planner.handle(Event::Granted(ConsumerKind::LoadBalancer, key, grant));
        self.outbox.enqueue(Target::LoadBalancer(lb));
    }

    /// The problems that the owner of a Service without a load balancer is told.
    fn problems_alone(&self, key: &ObjectKey) -> Vec<(ConsumerRef, Problem)> {
        let Some(holder) = self.holder(ConsumerKind::Service, key) else { return Vec::new() };
        let problem = self.addresses.decision(&holder).and_then(Decision::problem);
        let problem = problem.filter(|it| it.reason.is_told(Place::Event));
        consumer_of(holder).into_iter().zip(problem).collect()
    }

    /// Tells admission which consumers want seats, and the planner which of them have one.
    fn admit(&mut self) {
        self.seats.want(self.planner.wants());
        let Some(changes) = self.seats.take(&mut self.outbox) else { return };
        for (consumer, decision) in changes.decisions {
            self.addresses.touch(consumer.kind, &key(&consumer));
            self.planner.handle(Event::Admitted(consumer, decision));
        }
        for (consumer, lb, amounts) in changes.stays {
            self.planner.handle(Event::Stays(consumer, lb, amounts));
        }
    }

    /// Takes the planner's decisions.
    fn plan(&mut self, now: Uptime) {
        let changes = self.planner.take();
        let change = self.plans.begin_change();
        let mut load_balancers = BTreeSet::new();
        for fragment in &changes.fragments {
            self.plan_fragment(fragment, change, now);
            load_balancers.insert(Arc::clone(&fragment.load_balancer));
        }
        for (consumer, outcome) in &changes.outcomes {
            self.observe_outcome(consumer, outcome.as_ref(), change, now);
        }
        self.bindings.want(changes.wanted, changes.users);
        for lb in load_balancers {
            self.enqueue_load_balancer(&lb);
            self.plans.mark_stale_hash(lb);
        }
        for lb in self.plans.take_stale_hashes() {
            let hash = self.plans.hash(&lb, self.planner.hash(&lb));
            self.agents.record_planned(&lb, hash, change);
            self.agents.record_shown(&lb, self.plans.shown(&lb));
        }
    }

    /// Takes in a changed fragment of a consumer on a load balancer.
    fn plan_fragment(&mut self, fragment: &FragmentChange, change: u64, now: Uptime) {
        let FragmentChange { load_balancer: lb, consumer, parts } = fragment;
        let certificates = &self.certificates;
        let lacks = |hash: &Arc<str>| certificates.lacks(lb, hash);
        self.plans.entry(lb).want_certified(consumer, parts, change, lacks);
        let listeners = parts.iter().flat_map(|part| &part.listeners);
        let addresses = listeners.map(|listener| listener.address).collect();
        self.addresses.serve(consumer, lb, addresses, change);
        let who = key_of(consumer);
        // A fragment on the load balancer that a consumer leaves says nothing about the one that it moves to.
        let goes = self.planner.outcome(who.0, &who.1).and_then(Outcome::load_balancer);
        if goes.is_none_or(|goes| goes == lb) {
            self.consumers.replan(who, change, now);
        }
    }

    /// Takes in the changed outcome of a consumer.
    fn observe_outcome(
        &mut self,
        consumer: &ConsumerRef,
        outcome: Option<&Outcome>,
        change: u64,
        now: Uptime,
    ) {
        let who = key_of(consumer);
        let Moved { left, elsewhere, concerned } =
            self.consumers.observe(&who, outcome, change, now);
        if elsewhere && let Some(lb) = outcome.and_then(Outcome::load_balancer) {
            self.plans.mark_stale_hash(Arc::clone(lb));
        }
        if left.is_some() && self.arrivals.departed(consumer) {
            self.planner.handle(Event::Arrived(consumer.clone(), None));
        }
        if who.0 == ConsumerKind::Service {
            self.addresses.touch(who.0, &who.1);
        }
        let alone = self.is_alone(who.0, &who.1);
        if outcome.is_none() && !alone {
            self.consumers.left(consumer, &mut self.outbox);
        }
        let problems = match alone {
            true => self.problems_alone(&who.1),
            false => outcome.iter().copied().flat_map(status::problems).collect(),
        };
        self.consumers.tell(who.clone(), problems, &mut self.outbox);
        self.tell_reached(who.0, &who.1);
        self.outbox.enqueue_all(concerned.into_iter().map(Target::LoadBalancer));
        self.outbox.enqueue(Target::Consumer(who.0, who.1));
    }

    /// Takes the binder's decisions.
    fn bind(&mut self) {
        let boards = &self.boards;
        let news = |op: &_| {
            let key = bindings::target(op).map(|target| &target.key)?;
            let claim = boards.claims.get(key);
            bindings::news(op, claim, boards.load_balancers.get(&key.name))
        };
        self.bindings.decide(news, &mut self.outbox);
    }

    /// Enqueues every target and records every problem, because this process has begun to lead.
    fn enqueue_everything(&mut self) {
        self.consumers.tell_all_again(&mut self.outbox);
        let (boards, outbox) = (&self.boards, &mut self.outbox);
        let consumer = |kind| move |key: &ObjectKey| Target::Consumer(kind, key.clone());
        outbox.enqueue_all(boards.services.keys().map(consumer(ConsumerKind::Service)));
        outbox.enqueue_all(boards.ingresses.keys().map(consumer(ConsumerKind::Ingress)));
        outbox.enqueue_all(self.kinds.targets());
        outbox.enqueue_all(self.announced.addresses().map(Target::Announced));
        outbox.enqueue_all(boards.claims.keys().cloned().map(Target::Claim));
        let load_balancers: BTreeSet<_> = boards
            .load_balancers
            .keys()
            .chain(self.plans.load_balancers())
            .chain(self.certificates.load_balancers())
            .cloned()
            .collect();
        for lb in load_balancers {
            self.enqueue_load_balancer(&lb);
        }
        self.provisions.touch_all(&mut self.outbox);
    }
}
