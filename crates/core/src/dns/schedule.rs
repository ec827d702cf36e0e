//! Decides when each name is looked up: at once when it is wanted, then whenever its TTL ends, after failures with
//! growing delays; never twice at a time, and never too many names at a time. It sends no query and does not wait:
//! the runtime carries out the effects, and calls it again at [`Schedule::next_wake`].
//!
//! ```text
//!           Want                     due               its turn              Answered: Report
//!  unknown ─────▶ waiting (due now) ────▶ in the line ─────────▶ in flight ─────────────────▶ waiting (due later)
//! ```
//!
//! Only so many names are looked up at once, and namespaces share these look-ups ([`JobSlots`]): names under a zone
//! without servers that answer do not delay names of other namespaces. A name that several namespaces want is
//! looked up once, with the share of the namespace that has the most room.

#[cfg(test)]
mod tests;

use super::{Answers, Families, Name, Report};
use crate::backoff::Backoff;
use crate::clock::Uptime;
use crate::job_slots::{Begun, JobSlots, JobTurn};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// How often names are looked up, and how many at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    min: Duration,
    max: Duration,
    /// A name that does not resolve is looked up again after this time at most, even if `max` is longer: a user may
    /// be waiting for its first record.
    pub longest_retry: Duration,
    /// How many look-ups may be in flight. One namespace has at most half of them.
    pub at_once: usize,
    /// A look-up is late by up to a tenth of its delay, and by this at most.
    pub most_late: Duration,
    /// Makes the lateness differ between processes.
    pub seed: u64,
}

/// Invalid TTL limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the shortest time between look-ups must be 1s or more, and not more than the longest")]
pub struct BadLimits;

impl Config {
    /// Looks again after the TTL, but not before `min` and not after `max`.
    pub fn new(min: Duration, max: Duration) -> Result<Self, BadLimits> {
        if min < Duration::from_secs(1) || min > max {
            return Err(BadLimits);
        }
        Ok(Self { min, max, ..Self::default() })
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(self.min, self.slowest_retry())
    }

    fn slowest_retry(&self) -> Duration {
        self.longest_retry.clamp(self.min, self.max)
    }

    fn retried_within(&self) -> Duration {
        let longest = self.slowest_retry();
        longest + self.lateness(longest)
    }

    /// How late a look-up with this delay may be.
    fn lateness(&self, delay: Duration) -> Duration {
        (delay / 10).min(self.most_late)
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            min: Duration::from_secs(5),
            max: Duration::from_secs(3600),
            longest_retry: Duration::from_secs(60),
            at_once: 64,
            most_late: Duration::from_secs(10),
            seed: 0,
        }
    }
}

/// An input of the schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// These families of the name are wanted from now on, and no others.
    Want {
        /// The name.
        name: Name,
        /// All families that any user wants.
        families: Families,
        /// The namespaces that want the name, each once.
        namespaces: Arc<[Arc<str>]>,
    },
    /// No user wants the name any more.
    Unwant {
        /// The name.
        name: Name,
    },
    /// A look-up has ended, in whatever way.
    Answered {
        /// The name.
        name: Name,
        /// The id of the [`Effect::Look`].
        id: u64,
        /// An answer for each family that was asked for.
        answers: Answers,
    },
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Look the name up and answer with [`Event::Answered`] of the same id, always.
    Look {
        /// Tells look-ups apart; never used twice.
        id: u64,
        /// The name.
        name: Name,
        /// What to ask for.
        families: Families,
    },
    /// Stop that look-up: its answer is not wanted any more. If it comes all the same, it is ignored.
    Cancel {
        /// The id of the look-up.
        id: u64,
    },
    /// Report what was found.
    Report {
        /// The name.
        name: Name,
        /// What was found, and when it is looked up again.
        report: Report,
    },
}

/// All names that are wanted, and when they are looked up.
#[derive(Debug)]
pub struct Schedule {
    config: Config,
    names: HashMap<Name, Entry>,
    /// Every name that is not due yet, by when it is.
    due: BTreeSet<(Uptime, Name)>,
    /// Names that are due, and those with a look-up in flight.
    turns: JobSlots<Name>,
    /// Effects that were decided and not taken yet.
    effects: Vec<Effect>,
    last_id: u64,
    visited: u64,
}

#[derive(Debug)]
struct Entry {
    wanted: Families,
    /// The namespaces that want it.
    namespaces: Arc<[Arc<str>]>,
    /// The wanted families that have been reported.
    known: Families,
    state: State,
    backoff: Backoff,
    looks: u64,
}

#[derive(Clone, Debug)]
enum State {
    Waiting {
        due: Uptime,
    },
    /// It is due, and in the line of each namespace that wants it.
    InLine {
        turn: JobTurn,
    },
    /// Its look-up is in flight, and counts for that namespace.
    InFlight {
        id: u64,
        asked: Families,
        namespace: Arc<str>,
    },
}

impl Schedule {
    /// A schedule without names.
    pub fn new(config: Config) -> Self {
        let turns = JobSlots::new(config.at_once);
        let (names, due) = (HashMap::new(), BTreeSet::new());
        Self { config, names, due, turns, effects: Vec::new(), last_id: 0, visited: 0 }
    }

    /// When [`Self::take`] has more to give. None: not before the next event.
    pub fn next_wake(&self) -> Option<Uptime> {
        self.due.first().map(|(due, _)| *due)
    }

    /// How many names were visited since the beginning: the cost, for tests.
    pub fn visited(&self) -> u64 {
        self.visited
    }

    /// Observes an event at `now`.
    pub fn handle(&mut self, event: Event, now: Uptime) {
        match event {
            Event::Want { name, families, namespaces }
                if families.is_empty() || namespaces.is_empty() =>
            {
                self.unwant(&name);
            }
            Event::Want { name, families, namespaces } => {
                self.want(name, families, namespaces, now);
            }
            Event::Unwant { name } => self.unwant(&name),
            Event::Answered { name, id, answers } => self.answered(name, id, answers, now),
        }
    }

    /// The effects to carry out, now that all events up to `now` are known.
    pub fn take(&mut self, now: Uptime) -> Vec<Effect> {
        self.start_due(now);
        std::mem::take(&mut self.effects)
    }

    fn want(&mut self, name: Name, families: Families, namespaces: Arc<[Arc<str>]>, now: Uptime) {
        self.visited += 1;
        let Some(entry) = self.names.get_mut(&name) else {
            let entry = Entry {
                wanted: families,
                namespaces,
                known: Families::NONE,
                state: State::Waiting { due: now },
                backoff: self.config.backoff(),
                looks: 0,
            };
            self.due.insert((now, name.clone()));
            self.names.insert(name, entry);
            return;
        };
        entry.wanted = families;
        entry.known = entry.known.and(families);
        let before = std::mem::replace(&mut entry.namespaces, namespaces);
        match entry.state {
            State::Waiting { due } if due > now && !entry.known.covers(families) => {
                entry.state = State::Waiting { due: now };
                self.due.remove(&(due, name.clone()));
                self.due.insert((now, name));
            }
            State::InLine { turn } => {
                let (old, new): (BTreeSet<_>, BTreeSet<_>) =
                    (before.iter().collect(), entry.namespaces.iter().collect());
                old.difference(&new).for_each(|left| self.turns.leave(left, turn));
                new.difference(&old).for_each(|it| self.turns.join(it, turn, name.clone()));
            }
            State::Waiting { .. } | State::InFlight { .. } => {}
        }
    }

    fn unwant(&mut self, name: &Name) {
        self.visited += 1;
        let Some(entry) = self.names.remove(name) else { return };
        match entry.state {
            State::Waiting { due } => _ = self.due.remove(&(due, name.clone())),
            State::InLine { turn } => {
                entry.namespaces.iter().for_each(|it| self.turns.leave(it, turn));
            }
            State::InFlight { id, namespace, .. } => {
                self.turns.done(&namespace);
                self.effects.push(Effect::Cancel { id });
            }
        }
    }

    fn answered(&mut self, name: Name, id: u64, answers: Answers, now: Uptime) {
        self.visited += 1;
        let Some(entry) = self.names.get_mut(&name) else { return };
        let State::InFlight { id: ours, asked, namespace } = &entry.state else { return };
        if *ours != id {
            return;
        }
        self.turns.done(namespace);
        entry.known = asked.and(entry.wanted);
        let answers = answers.only(entry.known);
        // A family that was added during the look-up is asked for at once.
        let delay = match entry.known.covers(entry.wanted) {
            true => entry.delay(&self.config, &name, &answers),
            false => Duration::ZERO,
        };
        let due = now.saturating_add(delay);
        entry.state = State::Waiting { due };
        self.due.insert((due, name.clone()));
        if answers != Answers::default() {
            let retried_within = self.config.retried_within();
            let report = Report { answers, next_check: delay, retried_within };
            self.effects.push(Effect::Report { name, report });
        }
    }

    fn start_due(&mut self, now: Uptime) {
        while self.next_wake().is_some_and(|due| due <= now) {
            let Some((_, name)) = self.due.pop_first() else { break };
            let Some(entry) = self.names.get_mut(&name) else { continue };
            let turn = self.turns.wait(entry.namespaces.iter(), &name);
            entry.state = State::InLine { turn };
        }
        while let Some(Begun { namespace, turn, job: name }) = self.turns.begin() {
            self.visited += 1;
            let Some(entry) = self.names.get_mut(&name) else { continue };
            let others = entry.namespaces.iter().filter(|it| **it != namespace);
            others.for_each(|other| self.turns.leave(other, turn));
            self.last_id += 1;
            entry.looks += 1;
            let (id, families) = (self.last_id, entry.wanted);
            entry.state = State::InFlight { id, asked: families, namespace };
            self.effects.push(Effect::Look { id, name, families });
        }
    }
}

impl Entry {
    /// How long to wait after these answers. If the DNS says that a name lacks one family, that is no failure while
    /// the name has the other: both are asked for when the TTL of the other one ends.
    fn delay(&mut self, config: &Config, name: &Name, answers: &Answers) -> Duration {
        let (mut ttl, mut failed, mut unsure) = (None, false, false);
        for (_, answer) in answers.iter() {
            match answer {
                Ok(found) => {
                    let found = found.ttl().clamp(config.min, config.max);
                    ttl = Some(ttl.map_or(found, |ttl: Duration| ttl.min(found)));
                }
                Err(failure) => {
                    failed = true;
                    unsure |= !failure.kind.is_definite();
                }
            }
        }
        let delay = if unsure || (failed && ttl.is_none()) {
            let retry = self.backoff.failed(u32::MAX);
            ttl.map_or(retry, |ttl| ttl.min(retry))
        } else {
            self.backoff.worked();
            ttl.unwrap_or(config.min)
        };
        // After the TTL, never before: a cache in between would give the same answer again.
        delay + config.lateness(delay).mul_f64(share(config.seed, name, self.looks))
    }
}

/// A number from 0 up to 1: the same for the same look-up, different for other names and other look-ups.
fn share(seed: u64, name: &Name, look: u64) -> f64 {
    let mut hash = seed ^ look.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for byte in name.as_str().bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    // The finisher of splitmix64: one bit of difference anywhere changes half of all bits.
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^= hash >> 31;
    f64::from((hash >> 32) as u32) / (f64::from(u32::MAX) + 1.0)
}
