//! Which pools serve no client, or serve clients with some members only, as an agent reports it. It joins what the
//! resolver gave the driver (ready members) with what the driver found (members that do not answer), and waits before
//! it reports: a pool that fails for a moment is not worth a write. The driver finds failures; the agent asks this machine.

use crate::clock::Uptime;
use crate::key::ConsumerRef;
use crate::outcome::{Problem, Reason};
use crate::plan::ServicePortRef;
use crate::update::{Extent, FailingPool, Refusal};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// How long a pool is in a state before the state is reported.
pub const HOLD: Duration = Duration::from_secs(2);
/// The same for a pool that never had a ready member: the Pods of a new Service need time to start.
pub const START: Duration = Duration::from_secs(8);
/// The least time between two reports of one pool.
pub const GAP: Duration = Duration::from_secs(5);
/// The same while only counts and names differ: endpoints that come and go must not cause writes.
pub const LONG_GAP: Duration = Duration::from_secs(60);

/// How many reports a namespace may cause at once, beside [`AT_ONCE_PER_POOL`] for each of its pools. Each report of a pool is a
/// write of the leader, and pools that change their state all the time must not use up what other namespaces need.
const AT_ONCE: u32 = 32;
/// Enough for two outages of everything in short order, each with its end.
const AT_ONCE_PER_POOL: u32 = 4;
/// How far apart further reports of a namespace are.
const EACH: Duration = Duration::from_millis(500);

/// An event for the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The driver has a pool of this consumer with this many ready members.
    Pool {
        /// The name of the pool.
        name: Arc<str>,
        /// The consumer that it serves.
        consumer: ConsumerRef,
        /// The Service port with its members.
        service: ServicePortRef,
        /// The number of its ready members.
        ready: usize,
    },
    /// The driver no longer has a pool.
    Removed(Arc<str>),
    /// The pools with members that do not answer. Pools that are not listed have none.
    Failing(Vec<FailingPool>),
}

/// See the module.
#[derive(Debug, Default)]
pub struct Health {
    pools: BTreeMap<Arc<str>, Watched>,
    /// The pools of the last [`Event::Failing`].
    failing: BTreeMap<Arc<str>, FailingPool>,
    /// When to report which pool.
    due: BTreeSet<(Uptime, Arc<str>)>,
    /// What is reported, by pool.
    reported: BTreeMap<Arc<str>, Refusal>,
    /// By the namespace of the consumer.
    budgets: BTreeMap<Arc<str>, Budget>,
    changed: bool,
}

/// How many reports a namespace has used up.
#[derive(Debug, Default)]
struct Budget {
    pools: u32,
    /// When all that was used up is given back.
    full_at: Uptime,
}

impl Budget {
    /// Takes a place for a report, and returns when it may be made.
    fn take(&mut self, now: Uptime) -> Uptime {
        let begin = self.full_at.max(now);
        self.full_at = begin + EACH;
        let pools = self.pools.saturating_mul(AT_ONCE_PER_POOL);
        begin.saturating_sub(EACH.saturating_mul(AT_ONCE.saturating_add(pools)))
    }
}

#[derive(Debug)]
struct Watched {
    consumer: ConsumerRef,
    service: ServicePortRef,
    ready: usize,
    /// Whether it never had a ready member.
    fresh: bool,
    state: State,
    /// Since when the pool is in another kind of state than it was reported in.
    since: Uptime,
    told: State,
    /// When it was reported last. None: never.
    told_at: Option<Uptime>,
    due: Option<Uptime>,
    /// The place that the next report has in the budget of its namespace. None: it has not asked for one.
    place: Option<Uptime>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// Every ready member answers, as far as the driver knows.
    Good,
    /// There is no ready member.
    Empty,
    /// So many of so many ready members do not answer; some of them by name.
    Failing(usize, usize, Vec<SocketAddr>),
}

impl State {
    /// A number for each kind of state: counts and names of the same kind can change without a new kind.
    fn kind(&self) -> u8 {
        match self {
            Self::Good => 0,
            Self::Empty => 1,
            Self::Failing(failing, ready, _) => 2 + u8::from(failing >= ready),
        }
    }
}

impl Watched {
    /// When the state is to be reported. None: it is reported already.
    fn due(&self) -> Option<Uptime> {
        if self.state == self.told {
            return None;
        }
        let gap = if self.state.kind() == self.told.kind() { LONG_GAP } else { GAP };
        let rest = self.told_at.map_or(Uptime::ZERO, |at| at + gap);
        let hold = if self.fresh { START } else { HOLD };
        Some(rest.max(self.since + hold).max(self.place.unwrap_or_default()))
    }

    fn refusal(&self) -> Option<Refusal> {
        let (service, port) = names(&self.service);
        let (reason, message) = match &self.state {
            State::Good => return None,
            State::Empty => {
                let problem = no_endpoints(&self.service);
                let consumer = self.consumer.clone();
                return Some(Refusal { consumer, problem, extent: Extent::Part });
            }
            State::Failing(failing, ready, named) => {
                let some: Vec<_> = named.iter().map(ToString::to_string).collect();
                let (some, more) =
                    (some.join(", "), if *failing > named.len() { ", …" } else { "" });
                if failing >= ready {
                    let message =
                        format!("no endpoint of Service {service}{port} answers ({some}{more})");
                    (Reason::EndpointsDown, message)
                } else {
                    let message = format!(
                        "{failing} of {ready} endpoints of Service {service}{port} do not answer: {some}{more}"
                    );
                    (Reason::EndpointsFailing, message)
                }
            }
        };
        let problem = Problem::new(reason, message);
        Some(Refusal { consumer: self.consumer.clone(), problem, extent: Extent::Part })
    }
}

/// The Service of a pool, and its port with a space before it.
fn names(service: &ServicePortRef) -> (String, String) {
    let ServicePortRef { namespace, name, port, .. } = service;
    let port = if port.is_empty() { String::new() } else { format!(" port {port}") };
    (format!("{namespace}/{name}"), port)
}

/// What is wrong with a pool that has no ready member.
pub fn no_endpoints(service: &ServicePortRef) -> Problem {
    let (service, port) = names(service);
    let message =
        format!("Service {service}{port} has no ready endpoint, so clients get no answer");
    Problem::new(Reason::NoEndpoints, message)
}

impl Health {
    /// Takes an event.
    pub fn handle(&mut self, event: Event, now: Uptime) {
        match event {
            Event::Pool { name, consumer, service, ready } => {
                let budgets = &mut self.budgets;
                let watched = self.pools.entry(Arc::clone(&name)).or_insert_with(|| {
                    budgets.entry(Arc::clone(&consumer.namespace)).or_default().pools += 1;
                    Watched {
                        consumer: consumer.clone(),
                        service: service.clone(),
                        ready,
                        fresh: true,
                        state: State::Good,
                        since: now,
                        told: State::Good,
                        told_at: None,
                        due: None,
                        place: None,
                    }
                });
                if watched.consumer != consumer || watched.service != service {
                    // What was reported of it names another consumer or Service.
                    if watched.consumer.namespace != consumer.namespace {
                        give_back(budgets, &watched.consumer.namespace, now);
                        budgets.entry(Arc::clone(&consumer.namespace)).or_default().pools += 1;
                    }
                    (watched.consumer, watched.service) = (consumer, service);
                    watched.told = State::Good;
                    self.changed |= self.reported.remove(&name).is_some();
                }
                watched.ready = ready;
                watched.fresh &= ready == 0;
                self.look_at(&name, now);
            }
            Event::Removed(name) => {
                if let Some(watched) = self.pools.remove(&name) {
                    give_back(&mut self.budgets, &watched.consumer.namespace, now);
                    if let Some(at) = watched.due {
                        self.due.remove(&(at, Arc::clone(&name)));
                    }
                }
                self.changed |= self.reported.remove(&name).is_some();
            }
            Event::Failing(all) => {
                let all = all.into_iter().map(|it| (Arc::clone(&it.pool), it)).collect();
                let before = std::mem::replace(&mut self.failing, all);
                let differs = |name: &&Arc<str>| before.get(*name) != self.failing.get(*name);
                let names = before.keys().chain(self.failing.keys()).filter(differs);
                let names: BTreeSet<_> = names.cloned().collect();
                names.iter().for_each(|name| self.look_at(name, now));
            }
        }
    }

    fn look_at(&mut self, name: &Arc<str>, now: Uptime) {
        let Some(watched) = self.pools.get_mut(name) else { return };
        let state = match self.failing.get(name) {
            _ if watched.ready == 0 => State::Empty,
            Some(it) if it.count > 0 => {
                let failing = usize::try_from(it.count).unwrap_or(usize::MAX);
                State::Failing(failing.min(watched.ready), watched.ready, it.named.clone())
            }
            _ => State::Good,
        };
        // A pool that fails in changing ways fails all the time.
        if watched.state.kind() == watched.told.kind() && state.kind() != watched.told.kind() {
            watched.since = now;
        }
        watched.state = state;
        let due = watched.due();
        if due != watched.due {
            if let Some(at) = watched.due {
                self.due.remove(&(at, Arc::clone(name)));
            }
            self.due.extend(due.map(|at| (at, Arc::clone(name))));
            watched.due = due;
        }
    }

    /// When [`Self::take`] has something to report, if nothing happens before.
    pub fn wake_at(&self) -> Option<Uptime> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Whether something else is to be reported than at the last call.
    pub fn take(&mut self, now: Uptime) -> bool {
        while let Some((_, name)) = self.due.first().filter(|(at, _)| *at <= now).cloned() {
            self.due.pop_first();
            let Some(watched) = self.pools.get_mut(&name) else { continue };
            let budget = self.budgets.entry(Arc::clone(&watched.consumer.namespace)).or_default();
            let place = watched.place.unwrap_or_else(|| budget.take(now));
            if place > now {
                (watched.place, watched.due) = (Some(place), Some(place));
                self.due.insert((place, name));
                continue;
            }
            (watched.place, watched.due) = (None, None);
            watched.told = watched.state.clone();
            watched.told_at = Some(now);
            match watched.refusal() {
                Some(refusal) => drop(self.reported.insert(name, refusal)),
                None => drop(self.reported.remove(&name)),
            }
            self.changed = true;
        }
        std::mem::take(&mut self.changed)
    }

    /// What is to be reported, one entry for each pool.
    pub fn refusals(&self) -> impl Iterator<Item = &Refusal> {
        self.reported.values()
    }
}

/// A pool of a namespace is gone.
fn give_back(budgets: &mut BTreeMap<Arc<str>, Budget>, namespace: &Arc<str>, now: Uptime) {
    let Some(budget) = budgets.get_mut(namespace) else { return };
    budget.pools = budget.pools.saturating_sub(1);
    if budget.pools == 0 {
        // What a namespace used up counts on when it has pools again.
        budgets.retain(|_, it| it.pools > 0 || it.full_at > now);
    }
}

#[cfg(test)]
mod tests;
