//! Elects one leader among several processes by a Lease, as client-go does. It decides what to read and write and
//! when to lead; the runtime carries that out, and never acts as leader unless [`Elector::leads`].
//!
//! No clock of another machine counts. A lease has run out when *this process* has seen it unchanged for its whole
//! duration on its monotonic clock, which must count the time for which a machine is suspended. A leader counts its
//! own time from when it *sent* the renewal that succeeded, and stops at the renew deadline, which is shorter. So two
//! never lead at once, as long as the rates of these clocks do not differ by more than the ratio of duration to
//! deadline (15 to 10), and the server refuses a write under an old resourceVersion. A process that was stopped stops
//! leading with its first step after that, before anything else.

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use crate::clock::Uptime;
use std::sync::Arc;
use std::time::Duration;

/// Our identity, and how long things last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Our identity: no other process may ever have it.
    pub identity: Arc<str>,
    /// How long others wait for our next renewal.
    pub lease: Duration,
    /// How long we lead without having renewed; shorter than the lease.
    pub renew_deadline: Duration,
    /// The time between attempts.
    pub retry: Duration,
}

impl Config {
    /// As client-go has it: 15, 10 and 2 seconds.
    pub fn new(identity: impl Into<Arc<str>>) -> Self {
        Self {
            identity: identity.into(),
            lease: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }

    /// How long a request may be without an answer before it is given up.
    fn patience(&self) -> Duration {
        self.renew_deadline / 2
    }
}

/// What a Lease says. Every difference is a sign of life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its holder. None: it is free.
    pub holder: Option<Arc<str>>,
    /// `renewTime` as written; it is never read as a time.
    pub renewed: Arc<str>,
    /// The duration of the lease.
    pub duration: Duration,
    /// `leaseTransitions`.
    pub transitions: u32,
    /// Its resourceVersion.
    pub version: Arc<str>,
}

/// What a Lease should say. The writer adds `renewTime`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The holder. None: the Lease is released.
    pub holder: Option<Arc<str>>,
    /// The duration of the lease.
    pub duration: Duration,
    /// `leaseTransitions`.
    pub transitions: u32,
    /// Whether `acquireTime` is now too.
    pub acquired: bool,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Stop acting as leader. It comes before any request of the same turn.
    StopLeading,
    /// Act as leader while [`Elector::leads`].
    StartLeading,
    /// Send this and answer with [`Event::Answer`] of the same id.
    Send(u64, Request),
    /// The Lease is released, once the request that was sent is answered. No effect follows.
    Ended,
}

/// What to ask the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Read the Lease.
    Read,
    /// Create it.
    Create(Wanted),
    /// Change it, under this resourceVersion.
    Update(Arc<str>, Wanted),
}

/// What the API server answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The Lease as it is, read or written.
    Lease(Record),
    /// It does not exist.
    NotFound,
    /// Another process wrote or created it before us.
    Conflict,
    /// Whether it had an effect is unknown.
    Failed,
}

/// An input of an elector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request was answered.
    Answer(u64, Answer),
    /// This process shuts down: release the Lease.
    Release,
}

/// Takes part in an election.
#[derive(Debug)]
pub struct Elector {
    config: Config,
    /// The record, and when we first saw it so.
    observed: Option<(Record, Uptime)>,
    /// Until when we lead.
    until: Option<Uptime>,
    pending: Option<Pending>,
    /// When to try next.
    next: Uptime,
    /// Whether the resourceVersion that we know may be an old one.
    unsure: bool,
    leaving: Leaving,
    /// Effects that were decided and not taken yet.
    effects: Vec<Effect>,
    last_id: u64,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    id: u64,
    sent: Uptime,
    write: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaving {
    No,
    Asked,
    Ended,
}

impl Elector {
    /// An elector that has seen nothing yet. It acts with its first [`Self::take`].
    pub fn new(config: Config) -> Self {
        Self {
            config,
            observed: None,
            until: None,
            pending: None,
            next: Duration::ZERO,
            unsure: true,
            leaving: Leaving::No,
            effects: Vec::new(),
            last_id: 0,
        }
    }

    /// Whether we lead at this moment.
    pub fn leads(&self, now: Uptime) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// The holder of the Lease, as far as we know.
    pub fn holder(&self) -> Option<&Arc<str>> {
        self.observed.as_ref().and_then(|(record, _)| record.holder.as_ref())
    }

    /// When [`Self::take`] has more to give. None: never.
    pub fn wake(&self) -> Option<Uptime> {
        if self.leaving == Leaving::Ended {
            return None;
        }
        let work = match self.pending {
            Some(pending) => pending.sent + self.config.patience(),
            None => self.next,
        };
        Some(self.until.map_or(work, |until| until.min(work)))
    }

    /// Observes an event at `now`. `jitter`, from 0 to 1, spreads attempts.
    pub fn handle(&mut self, event: Event, now: Uptime, jitter: f64) {
        self.expire(now);
        match event {
            _ if self.leaving == Leaving::Ended => {}
            Event::Release => {
                self.stop();
                self.leaving = Leaving::Asked;
                self.next = now;
            }
            Event::Answer(id, answer) => {
                if let Some(pending) = self.pending.take_if(|pending| pending.id == id) {
                    self.answered(pending, answer, now, jitter);
                }
            }
        }
    }

    /// The effects to carry out at `now`.
    pub fn take(&mut self, now: Uptime) -> Vec<Effect> {
        self.expire(now);
        if self.leaving != Leaving::Ended && self.pending.is_none() && now >= self.next {
            self.act(now);
        }
        std::mem::take(&mut self.effects)
    }

    /// Stops leading when the lease has run out, and gives up a request that was not answered in time.
    fn expire(&mut self, now: Uptime) {
        if self.until.is_some() && !self.leads(now) {
            self.stop();
        }
        if self.pending.is_some_and(|pending| now >= pending.sent + self.config.patience()) {
            self.pending = None;
            self.unsure = true;
        }
    }

    fn answered(&mut self, pending: Pending, answer: Answer, now: Uptime, jitter: f64) {
        let retry = self.config.retry;
        match answer {
            Answer::Lease(record) => {
                let ours = self.is_ours(&record);
                self.observe(record, now);
                self.unsure = false;
                if pending.write && ours && self.leaving == Leaving::No {
                    let until = pending.sent + self.config.renew_deadline;
                    let starts = self.until.is_none() && now < until;
                    self.until = (now < until).then_some(until);
                    self.effects.extend(starts.then_some(Effect::StartLeading));
                    self.next = (pending.sent + retry).max(now);
                } else if pending.write {
                    self.next = now;
                } else {
                    self.decide(true, now, jitter);
                }
            }
            Answer::NotFound if !pending.write && self.leaving == Leaving::No => {
                self.stop();
                self.decide(false, now, jitter);
            }
            Answer::NotFound | Answer::Conflict => {
                self.unsure = true;
                self.next = now;
            }
            Answer::Failed => {
                self.unsure = true;
                self.next = now + retry;
            }
        }
    }

    /// Sends what is due: the release, a renewal or a read.
    fn act(&mut self, now: Uptime) {
        match &self.observed {
            _ if self.leaving == Leaving::Asked => self.let_go(now),
            Some((record, _)) if self.until.is_some() && !self.unsure => {
                let wanted = self.wanted(record.transitions, false);
                self.send(Request::Update(record.version.clone(), wanted), now);
            }
            _ => self.send(Request::Read, now),
        }
    }

    /// The Lease has just been read: take it if it may be taken, else wait.
    fn decide(&mut self, exists: bool, now: Uptime, jitter: f64) {
        if self.leaving == Leaving::Asked {
            return self.let_go(now);
        }
        let ours = self.observed.as_ref().is_some_and(|(record, _)| self.is_ours(record));
        // A deleted Lease still counts for a process that saw it: its holder may lead on.
        let others = self.observed.as_ref().filter(|(record, _)| record.holder.is_some() && !ours);
        let runs_out = others.map_or(now, |(record, seen)| *seen + record.duration);
        if now < runs_out {
            let spread = self.config.retry.mul_f64(1.0 + 0.2 * jitter.clamp(0.0, 1.0));
            self.next = (now + spread).min(runs_out);
            return;
        }
        let request = match &self.observed {
            Some((record, _)) if exists => {
                let transitions = record.transitions.saturating_add(u32::from(!ours));
                Request::Update(record.version.clone(), self.wanted(transitions, !ours))
            }
            _ => Request::Create(self.wanted(0, true)),
        };
        self.send(request, now);
    }

    fn let_go(&mut self, now: Uptime) {
        match &self.observed {
            Some((record, _)) if self.is_ours(record) && !self.unsure => {
                let wanted = Wanted { holder: None, ..self.wanted(record.transitions, false) };
                self.send(Request::Update(record.version.clone(), wanted), now);
            }
            _ => {}
        }
        // One attempt is enough: should it fail, the lease runs out.
        self.leaving = Leaving::Ended;
        self.effects.push(Effect::Ended);
    }

    /// Takes note of a record. Only a record that is different counts as a sign of life.
    fn observe(&mut self, record: Record, now: Uptime) {
        if !self.is_ours(&record) {
            self.stop();
        }
        let seen = match &self.observed {
            Some((old, seen)) if *old == record => *seen,
            _ => now,
        };
        self.observed = Some((record, seen));
    }

    fn stop(&mut self) {
        if self.until.take().is_some() {
            self.effects.push(Effect::StopLeading);
        }
    }

    fn is_ours(&self, record: &Record) -> bool {
        record.holder.as_ref() == Some(&self.config.identity)
    }

    fn wanted(&self, transitions: u32, acquired: bool) -> Wanted {
        let holder = Some(self.config.identity.clone());
        Wanted { holder, duration: self.config.lease, transitions, acquired }
    }

    fn send(&mut self, request: Request, now: Uptime) {
        self.last_id += 1;
        let write = !matches!(request, Request::Read);
        self.pending = Some(Pending { id: self.last_id, sent: now, write });
        self.effects.push(Effect::Send(self.last_id, request));
    }
}
