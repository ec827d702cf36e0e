//! Kubernetes Events without a flood: what is said again raises a count instead of a new Event, and no
//! object gets more than its share, as client-go's correlator does. It decides; the runtime writes.

use crate::key::{ConsumerRef, ObjectKey};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

/// How an Event is to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// For information.
    Normal,
    /// Somebody should look.
    Warning,
}

/// What something is said about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum About {
    /// A Service, an Ingress or a LoadBalancer.
    Consumer(ConsumerRef),
    /// A LoadBalancerClaim.
    Claim {
        /// Namespace and name.
        key: ObjectKey,
        /// Its uid.
        uid: Arc<str>,
    },
    /// An AddressPool.
    Pool {
        /// Its name, in no namespace.
        key: ObjectKey,
        /// Its uid.
        uid: Arc<str>,
    },
}

impl About {
    /// Its namespace; empty for objects that have none.
    pub fn namespace(&self) -> &Arc<str> {
        match self {
            Self::Consumer(consumer) => &consumer.namespace,
            Self::Claim { key, .. } | Self::Pool { key, .. } => &key.namespace,
        }
    }

    /// Its name.
    pub fn name(&self) -> &Arc<str> {
        match self {
            Self::Consumer(consumer) => &consumer.name,
            Self::Claim { key, .. } | Self::Pool { key, .. } => &key.name,
        }
    }

    /// Its uid.
    pub fn uid(&self) -> &Arc<str> {
        match self {
            Self::Consumer(consumer) => &consumer.uid,
            Self::Claim { uid, .. } | Self::Pool { uid, .. } => uid,
        }
    }
}

impl From<ConsumerRef> for About {
    fn from(consumer: ConsumerRef) -> Self {
        Self::Consumer(consumer)
    }
}

impl fmt::Display for About {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Consumer(consumer) => consumer.fmt(f),
            Self::Claim { key, .. } => write!(f, "LoadBalancerClaim {key}"),
            Self::Pool { key, .. } => write!(f, "AddressPool {}", key.name),
        }
    }
}

/// Something to say about an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Announcement {
    /// About which.
    pub object: About,
    /// How it is to be taken.
    pub severity: Severity,
    /// One word for programs.
    pub reason: Arc<str>,
    /// A sentence for people.
    pub message: Arc<str>,
}

/// What to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// A new Event.
    Create {
        /// What it is known by to later updates.
        id: u64,
        /// How often it has occurred: more than once when it could not be said at first.
        count: u32,
    },
    /// The Event of this id has occurred so often now.
    Update {
        /// Which.
        id: u64,
        /// How often.
        count: u32,
    },
}

/// Limits of what is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How long after it was last said the same raises the count of the Event.
    pub window: Duration,
    /// Writes that an object may have at once.
    pub burst: u32,
    /// How long until it may have another one.
    pub refill: Duration,
    /// Writes that all objects together may have at once.
    pub total_burst: u32,
    /// How long until they may have another one.
    pub total_refill: Duration,
    /// Events and objects that are remembered.
    pub remembered: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            window: Duration::from_secs(600),
            burst: 25,
            refill: Duration::from_secs(300),
            total_burst: 200,
            total_refill: Duration::from_millis(200),
            remembered: 4096,
        }
    }
}

/// Remembers what was said.
#[derive(Debug)]
pub struct Announcer {
    limits: Limits,
    said: Recent<Announcement, Said>,
    budgets: Recent<About, Budget>,
    /// What all objects have used together.
    total: Budget,
    next: u64,
}

#[derive(Clone, Copy, Debug)]
struct Said {
    id: u64,
    count: u32,
    last: Duration,
    /// Whether the Event has been written at all.
    written: bool,
}

/// How many writes an object has used, and since when the oldest of them is growing back.
#[derive(Clone, Copy, Debug)]
struct Budget {
    used: u32,
    since: Duration,
}

impl Announcer {
    /// One that has said nothing.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            said: Recent::default(),
            budgets: Recent::default(),
            total: Budget { used: 0, since: Duration::ZERO },
            next: 0,
        }
    }

    /// Something is to be said now; `now` is monotonic. None: not this time. The count goes on
    /// and is told with the next write.
    pub fn step(&mut self, announcement: Announcement, now: Duration) -> Option<Write> {
        let Limits { window, remembered, .. } = self.limits;
        let allowed = self.spend(&announcement.object, now);
        let before = self.said.get(&announcement).copied();
        let before = before.filter(|said| now.saturating_sub(said.last) <= window);
        let mut said = before.unwrap_or_else(|| {
            self.next += 1;
            Said { id: self.next, count: 0, last: now, written: false }
        });
        said.count = said.count.saturating_add(1);
        said.last = now;
        let Said { id, count, written, .. } = said;
        said.written |= allowed;
        self.said.put(announcement, said, remembered);
        match (allowed, written) {
            (false, _) => None,
            (true, false) => Some(Write::Create { id, count }),
            (true, true) => Some(Write::Update { id, count }),
        }
    }

    /// The Event of this id is not there: it was never created, or has expired. The next one of its
    /// kind is a new Event.
    pub fn lost(&mut self, id: u64) {
        self.said.forget(|said| said.id == id);
    }

    fn spend(&mut self, object: &About, now: Duration) -> bool {
        let Limits { burst, refill, remembered, total_burst, total_refill, .. } = self.limits;
        let mut budget =
            self.budgets.get(object).copied().unwrap_or(Budget { used: 0, since: now });
        budget.grow(refill, now);
        self.total.grow(total_refill, now);
        let allowed = budget.used < burst && self.total.used < total_burst;
        budget.used += u32::from(allowed);
        self.total.used += u32::from(allowed);
        self.budgets.put(object.clone(), budget, remembered);
        allowed
    }
}

impl Budget {
    /// Gives back what time gives back.
    fn grow(&mut self, refill: Duration, now: Duration) {
        while self.used > 0 && now.saturating_sub(self.since) >= refill {
            self.used -= 1;
            self.since += refill;
        }
        if self.used == 0 {
            self.since = now;
        }
    }
}

/// A map that forgets what was not put for the longest time.
#[derive(Debug)]
struct Recent<K, V> {
    entries: HashMap<K, (u64, V)>,
    order: BTreeMap<u64, K>,
    clock: u64,
}

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        Self { entries: HashMap::new(), order: BTreeMap::new(), clock: 0 }
    }
}

impl<K: Clone + Eq + Hash, V> Recent<K, V> {
    fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|(_, value)| value)
    }

    fn put(&mut self, key: K, value: V, most: usize) {
        self.clock += 1;
        self.order.insert(self.clock, key.clone());
        if let Some((before, _)) = self.entries.insert(key, (self.clock, value)) {
            self.order.remove(&before);
        }
        while self.entries.len() > most
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.entries.remove(&oldest);
        }
    }

    fn forget(&mut self, which: impl Fn(&V) -> bool) {
        let order = &mut self.order;
        self.entries.retain(|_, (put, value)| {
            let keep = !which(value);
            if !keep {
                order.remove(put);
            }
            keep
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::ConsumerKind;

    fn about(object: &str, message: &str) -> Announcement {
        Announcement {
            object: About::Consumer(ConsumerRef {
                kind: ConsumerKind::Service,
                namespace: "shop".into(),
                name: object.into(),
                uid: "u".into(),
            }),
            severity: Severity::Warning,
            reason: "PortTaken".into(),
            message: message.into(),
        }
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_same_again_raises_the_count_and_something_else_is_new() {
        let mut announcer = Announcer::new(Limits::default());
        assert_eq!(announcer.step(about("a", "m"), at(0)), Some(Write::Create { id: 1, count: 1 }));
        assert_eq!(announcer.step(about("a", "m"), at(1)), Some(Write::Update { id: 1, count: 2 }));
        assert_eq!(announcer.step(about("a", "n"), at(2)), Some(Write::Create { id: 2, count: 1 }));
        assert_eq!(announcer.step(about("b", "m"), at(2)), Some(Write::Create { id: 3, count: 1 }));
    }

    #[test]
    fn the_same_after_the_window_is_new() {
        let mut announcer = Announcer::new(Limits::default());
        announcer.step(about("a", "m"), at(0));
        assert_eq!(
            announcer.step(about("a", "m"), at(600)),
            Some(Write::Update { id: 1, count: 2 })
        );
        assert_eq!(
            announcer.step(about("a", "m"), at(1201)),
            Some(Write::Create { id: 2, count: 1 })
        );
    }

    #[test]
    fn an_object_has_a_burst_and_then_one_write_in_five_minutes_and_others_have_theirs() {
        let mut announcer = Announcer::new(Limits::default());
        let writes = |announcer: &mut Announcer, seconds| {
            (0..100).filter(|_| announcer.step(about("a", "m"), at(seconds)).is_some()).count()
        };
        assert_eq!(writes(&mut announcer, 0), 25);
        assert_eq!(writes(&mut announcer, 299), 0);
        assert_eq!(
            announcer.step(about("a", "m"), at(300)),
            Some(Write::Update { id: 1, count: 201 })
        );
        assert_eq!(writes(&mut announcer, 301), 0);
        assert_eq!(writes(&mut announcer, 900), 2);
        assert_eq!(
            announcer.step(about("b", "m"), at(301)),
            Some(Write::Create { id: 2, count: 1 })
        );
        assert_eq!(writes(&mut announcer, 1_000_000), 25);
    }

    #[test]
    fn all_objects_together_have_a_burst_and_then_five_writes_a_second() {
        let mut announcer = Announcer::new(Limits::default());
        let writes = |announcer: &mut Announcer, seconds| {
            let all = 0..1000;
            all.filter(|i| announcer.step(about(&i.to_string(), "m"), at(seconds)).is_some())
                .count()
        };
        assert_eq!(writes(&mut announcer, 0), 200);
        assert_eq!(writes(&mut announcer, 1), 5);
    }

    #[test]
    fn what_could_not_be_said_at_first_is_created_when_it_can() {
        let limits = Limits { burst: 1, ..Limits::default() };
        let mut announcer = Announcer::new(limits);
        announcer.step(about("a", "m"), at(0));
        assert_eq!(announcer.step(about("a", "n"), at(1)), None);
        let said = announcer.step(about("a", "n"), at(300));
        assert_eq!(said, Some(Write::Create { id: 2, count: 2 }));
    }

    #[test]
    fn an_event_that_was_lost_is_created_again() {
        let mut announcer = Announcer::new(Limits::default());
        announcer.step(about("a", "m"), at(0));
        announcer.lost(1);
        assert_eq!(announcer.step(about("a", "m"), at(1)), Some(Write::Create { id: 2, count: 1 }));
    }

    #[test]
    fn memory_is_bounded_and_the_oldest_goes_first() {
        let limits = Limits { remembered: 10, total_burst: 5000, ..Limits::default() };
        let mut announcer = Announcer::new(limits);
        for i in 0..1000 {
            announcer.step(about(&i.to_string(), "m"), at(0));
        }
        assert_eq!((announcer.said.entries.len(), announcer.said.order.len()), (10, 10));
        assert_eq!((announcer.budgets.entries.len(), announcer.budgets.order.len()), (10, 10));
        let again = announcer.step(about("999", "m"), at(1));
        assert_eq!(again, Some(Write::Update { id: 1000, count: 2 }));
        assert_eq!(
            announcer.step(about("0", "m"), at(1)),
            Some(Write::Create { id: 1001, count: 1 })
        );
    }
}
