//! The turn: observe → decide → write, repeated. A burst of events is one turn. This is the shell around `state`, which
//! does no I/O: it takes events from the channels, asks for the next write of each enqueued target, lets the writer
//! carry the writes out side by side, and hands the answers back.
//!
//! ```text
//!  ┌▶ wait ─▶ observe ─▶ decide ─▶ record ─▶ write ─┐
//!  └────────────────────────────────────────────────┘
//!     for: events of watches, answers to writes, DNS reports, leadership, timers
//! ```

use super::FIRST_PLAN;
use super::observed::Observed;
use super::state::State;
use super::target::{Next, Target, Tried};
use super::write_queue::{self, Lane, Waiting, Work};
use super::writer::{Failure, Reply, Writer};
use crate::causes::causes;
use crate::clock;
use crate::elect::Leadership;
use crate::event_recorder::EventRecorder;
use crate::metrics::Phase;
use crate::observe::Change;
use crate::random;
use crate::roles::Context;
use bowline_api::names;
use bowline_core::backoff::Backoff;
use bowline_core::clock::{Uptime, in_words};
use bowline_core::dns::{self, Name, Report};
use bowline_core::lines::Reminder;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use k8s_openapi::jiff::Timestamp;
use std::collections::HashMap;
use std::time::Duration;
use tokio::sync::mpsc;

/// The most events of a turn.
const BURST: usize = 16_384;
/// How often agents' renewals are checked for expiry.
const TICK: Duration = Duration::from_millis(500);
/// How often a controller that does not lead says so.
const STANDBY: Duration = Duration::from_secs(600);
/// After a conflict the watch shows what happened; should it not, the target is requeued after this.
const CONFLICT: Duration = Duration::from_secs(2);

type Ended = (Target, Result<Reply, Failure>);

/// The leader's loop with everything that it needs.
pub(super) struct Turn {
    state: State,
    writer: Writer,
    leadership: Leadership,
    recorder: EventRecorder,
    /// The channel for changes of the names to look up.
    names: mpsc::UnboundedSender<dns::Event>,
    context: Context,
    writing: FuturesUnordered<BoxFuture<'static, Ended>>,
    /// Targets with a write under way, and the version that it replaces.
    busy: HashMap<Target, Tried>,
    /// Enqueued targets.
    work: Work,
    /// Targets that wait for a time, or after a conflict or an error.
    waiting: Waiting,
    /// The backoffs by target and, if the target has several objects, by object name.
    backoffs: HashMap<(Target, String), Backoff>,
    /// Whether this process was the leader in the last turn.
    led: bool,
    /// That another process leads is said now and then.
    standby: Reminder,
}

impl Turn {
    pub(super) fn new(
        state: State,
        writer: Writer,
        leadership: Leadership,
        recorder: EventRecorder,
        names: mpsc::UnboundedSender<dns::Event>,
        context: Context,
    ) -> Self {
        Self {
            state,
            writer,
            leadership,
            recorder,
            names,
            context,
            writing: FuturesUnordered::new(),
            busy: HashMap::new(),
            work: Work::default(),
            waiting: Waiting::default(),
            backoffs: HashMap::new(),
            led: false,
            standby: Reminder::new(STANDBY),
        }
    }

    /// Takes turns until the context stops.
    pub(super) async fn run(
        mut self,
        mut observed: mpsc::Receiver<Observed>,
        mut found: mpsc::Receiver<(Name, Report)>,
    ) {
        let context = self.context.clone();
        let mut batch = Vec::new();
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let due = self.waiting.next();
            let timer = async {
                match due {
                    Some(at) => tokio::time::sleep(at.saturating_sub(clock::now())).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = context.stopped() => return,
                count = observed.recv_many(&mut batch, BURST) => if count == 0 { return },
                Some(ended) = self.writing.next() => self.ended(ended),
                Some((name, report)) = found.recv() => self.state.found(name, report),
                () = self.leadership.changed() => {}
                _ = tick.tick() => self.state.tick(clock::now()),
                () = timer => {}
            }
            self.take(&mut batch, clock::now());
        }
    }

    /// One turn.
    fn take(&mut self, batch: &mut Vec<Observed>, now: Uptime) {
        self.note_leadership();
        let begun = (!batch.is_empty()).then_some(now);
        for observed in batch.drain(..) {
            if observed.is_unreadable() {
                self.context.metrics.error("Unreadable");
            }
            self.release(&observed);
            self.state.observe(observed, now);
        }
        while let Some(target) = self.waiting.due(now) {
            self.state.outbox.enqueue(target);
        }
        if !self.state.is_complete() {
            return;
        }
        self.state.at(Timestamp::now(), self.led);
        self.state.decide(now);
        if let Some(begun) = begun {
            self.context.metrics.took(Phase::Plan, clock::now().saturating_sub(begun));
        }
        for event in self.state.take_lookups() {
            // The DNS task ends before this one only when the process ends.
            let _ = self.names.send(event);
        }
        self.record_events();
        self.write(now);
    }

    /// Notes whether this process leads. When it stops leading it drops its writes; when it begins it enqueues
    /// everything.
    fn note_leadership(&mut self) {
        let leads = self.leadership.leads();
        match self.leadership.followed() {
            None => self.standby.rests(),
            Some(holder) => {
                if self.standby.says(&holder, clock::now()) {
                    let lease = names::LEASE_CONTROLLER;
                    tracing::info!("waits for leadership: {holder} holds the Lease {lease}");
                }
            }
        }
        if leads == self.led {
            return;
        }
        self.led = leads;
        self.context.metrics.leads(leads);
        self.recorder.set_enabled(leads);
        self.context.changes.tell(Change::Leading(leads));
        tracing::info!(leads, "leadership");
        if leads {
            self.state.begin();
        } else {
            self.writing = FuturesUnordered::new();
            self.busy.clear();
        }
    }

    /// Ends a target's hold after a conflict when the watch shows the object.
    fn release(&mut self, observed: &Observed) {
        if !self.waiting.holds_any() {
            return;
        }
        if let Some(target) = observed.target()
            && self.waiting.release(&target)
        {
            self.backoffs.retain(|(it, _), _| *it != target);
            self.state.outbox.enqueue(target);
        }
    }

    fn record_events(&mut self) {
        for (reason, count) in self.state.refused() {
            // Every controller decides the same; only the leader counts.
            let count = if self.led { *count } else { 0 };
            self.context.metrics.refused(reason.to_string(), count);
        }
        for change in self.state.outbox.take_changes() {
            self.context.changes.tell(change);
        }
        for draft in self.state.outbox.take_events() {
            if self.led {
                self.recorder.record(draft);
            }
        }
    }

    fn write(&mut self, now: Uptime) {
        if !self.led {
            // A process that begins to lead enqueues everything, so a follower drops its targets.
            self.state.outbox.take_targets();
            self.work = Work::default();
            if self.leadership.follows() {
                self.context.readiness.reached(FIRST_PLAN);
            }
            return;
        }
        let mut skipped = Vec::new();
        while let Some((lane, target)) = self.next_target() {
            if self.waiting.is_held(&target) {
                // It is retried when its time comes or the watch shows its object.
                continue;
            }
            let twin = target.twin().is_some_and(|twin| self.busy.contains_key(&twin));
            if twin || self.busy.contains_key(&target) {
                skipped.push((lane, target));
                continue;
            }
            match self.state.next(&target, now, Timestamp::now()) {
                Next::Nothing => {}
                Next::Later(at) => self.waiting.until(at, target),
                Next::Write(write, tried) => {
                    if !self.leadership.leads() {
                        skipped.push((lane, target));
                        break;
                    }
                    self.state.sends(&target, &write);
                    self.busy.insert(target.clone(), tried);
                    let writer = self.writer.clone();
                    self.writing.push(Box::pin(async move {
                        let result = writer.perform(write).await;
                        (target, result)
                    }));
                }
            }
        }
        for (lane, target) in skipped {
            self.work.insert(&lane, target);
        }
        let busy = self.busy.keys().any(write_queue::is_awaited);
        if !busy && !self.work.is_awaited() && !self.waiting.is_awaited() {
            self.context.readiness.reached(FIRST_PLAN);
        }
        self.context.metrics.queue("controller", self.work.len() + self.busy.len());
    }

    /// The next target to write, if there is a free place.
    fn next_target(&mut self) -> Option<(Lane, Target)> {
        for target in self.state.outbox.take_targets() {
            let lane = self.state.lane(&target);
            self.work.insert(&lane, target);
        }
        self.work.pop(self.busy.keys())
    }

    fn ended(&mut self, (target, result): Ended) {
        let tried = self.busy.remove(&target).unwrap_or_default();
        if let Err(failure) = &result
            && failure.is_refusal()
        {
            self.state.unwritten(&target, &tried);
        }
        match result {
            Ok(written) => {
                self.backoffs.remove(&(target.clone(), tried.name));
                self.state.wrote(&target, written, clock::now());
            }
            // A create answered with 404: the namespace does not exist.
            Err(Failure::Gone) if tried.creates() => {
                self.failed(target, &tried, &"there is no such namespace");
            }
            Err(Failure::Gone) => {}
            Err(Failure::Taken) => {
                self.state.taken(&target, &tried);
                self.failed(target, &tried, &"a Secret of another type has this name");
            }
            Err(Failure::Conflict) => {
                self.context.metrics.error("Conflict");
                if self.state.is_at(&target, &tried) {
                    self.hold(target, CONFLICT);
                } else {
                    self.state.outbox.enqueue(target);
                }
            }
            Err(Failure::Other(error)) => self.failed(target, &tried, &causes(&error)),
        }
    }

    /// A write failed: it is retried with a growing backoff, and nothing else waits for it.
    fn failed(&mut self, target: Target, tried: &Tried, error: &dyn std::fmt::Display) {
        self.context.metrics.error("Write");
        let object = (target.clone(), tried.name.clone());
        let backoff = self
            .backoffs
            .entry(object)
            .or_insert_with(|| Backoff::new(Duration::from_millis(100), Duration::from_secs(60)));
        let wait = backoff.failed(random::number());
        tracing::warn!(object = tried.name, %error, wait = %in_words(wait), "cannot write {target}");
        let until = clock::now() + wait;
        if self.state.refused_write(&target, tried, until) {
            self.waiting.until(until, target);
        } else {
            self.hold(target, wait);
        }
    }

    fn hold(&mut self, target: Target, wait: Duration) {
        self.waiting.hold(clock::now() + wait, target);
    }
}

#[cfg(test)]
mod tests;
