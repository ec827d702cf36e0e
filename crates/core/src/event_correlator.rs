//! Kubernetes Events without a flood: a repeated message raises the count of its Event instead of creating another
//! one, and no object gets more than its share, as in client-go's correlator. Namespaces take turns, each with a
//! budget of its own, so that a namespace with many messages silences no other. Messages beyond a budget wait. It
//! only decides; the runtime writes.

mod budget;

#[cfg(test)]
mod tests;

use crate::clock::Uptime;
use crate::fair_queue::Queue;
use crate::key::{ConsumerRef, ObjectKey};
use budget::{Budget, Recent};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The severity of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// For information.
    Normal,
    /// A person should look.
    Warning,
}

/// The object of an Event.
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

/// A message about an object, to write as an Event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EventDraft {
    /// The object.
    pub object: About,
    /// Its severity.
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
        /// Identifies the Event in later updates.
        id: u64,
        /// How often it has occurred: more than once if it had to wait.
        count: u32,
    },
    /// A higher count of an Event that was written before.
    Update {
        /// Its id.
        id: u64,
        /// How often it has occurred.
        count: u32,
    },
}

/// The limits of Events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How long after a message the same one raises the count of its Event.
    pub window: Duration,
    /// Writes that an object may have at once.
    pub burst: u32,
    /// How long until it may have another one.
    pub refill: Duration,
    /// Writes that the objects of a namespace may have at once.
    pub namespace_burst: u32,
    /// How long until they may have another one.
    pub namespace_refill: Duration,
    /// Writes that all objects together may have at once.
    pub total_burst: u32,
    /// How long until they may have another one.
    pub total_refill: Duration,
    /// Events and objects that are remembered.
    pub remembered: usize,
    /// Pairs of object and reason, in one namespace, that may have messages waiting.
    pub waiting: usize,
    /// Such pairs in all namespaces together: namespaces with any share it equally.
    pub total_waiting: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            window: Duration::from_secs(600),
            burst: 25,
            refill: Duration::from_secs(300),
            namespace_burst: 100,
            namespace_refill: Duration::from_millis(400),
            total_burst: 200,
            total_refill: Duration::from_millis(200),
            remembered: 4096,
            waiting: 1024,
            total_waiting: 16 * 1024,
        }
    }
}

/// The most messages that wait for one object and reason: the latest ones.
const MESSAGES: usize = 8;
/// Pairs of object and reason that may wait in a namespace whatever its share is.
const LEAST_WAITING: usize = 16;

/// An object and the reason for which something is said about it.
type Subject = (About, Arc<str>);

/// Remembers the messages that were said, and keeps those that wait.
#[derive(Debug)]
pub struct EventCorrelator {
    limits: Limits,
    said: Recent<EventDraft, Said>,
    objects: Recent<About, Budget>,
    namespaces: Recent<Arc<str>, Budget>,
    /// What all objects have used together.
    total: Budget,
    next: u64,
    /// Waiting pairs by namespace; warnings first.
    waiting: Queue<Arc<str>, Subject>,
    messages: BTreeMap<Subject, VecDeque<EventDraft>>,
}

#[derive(Clone, Copy, Debug)]
struct Said {
    id: u64,
    count: u32,
    last: Duration,
    /// Whether the Event has been written at all.
    written: bool,
}

impl EventCorrelator {
    /// An correlator that has said nothing.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            said: Recent::default(),
            objects: Recent::default(),
            namespaces: Recent::default(),
            total: Budget::new(Duration::ZERO),
            next: 0,
            waiting: Queue::default(),
            messages: BTreeMap::new(),
        }
    }

    /// Enqueues a message; `now` is monotonic. False: too many messages of its namespace wait already.
    pub fn add(&mut self, draft: EventDraft, now: Uptime) -> bool {
        let namespace = Arc::clone(draft.object.namespace());
        let subject = (draft.object.clone(), Arc::clone(&draft.reason));
        if !self.messages.contains_key(&subject)
            && self.waiting.waiting(&namespace) >= self.room(&namespace)
        {
            return false;
        }
        let mut said = self.recall(&draft, now);
        said.count = said.count.saturating_add(1);
        said.last = now;
        self.said.put(draft.clone(), said, self.limits.remembered);
        let rank = u8::from(draft.severity == Severity::Normal);
        let messages = self.messages.entry(subject.clone()).or_default();
        if !messages.contains(&draft) {
            messages.push_back(draft);
        }
        if messages.len() > MESSAGES {
            messages.pop_front();
        }
        self.waiting.insert(&namespace, rank, subject);
        true
    }

    /// How many pairs of object and reason of a namespace may wait.
    fn room(&self, namespace: &Arc<str>) -> usize {
        let new = usize::from(self.waiting.waiting(namespace) == 0);
        let share = self.limits.total_waiting / (self.waiting.tenants() + new);
        share.max(LEAST_WAITING).min(self.limits.waiting)
    }

    /// What is known of a message: a new entry if it was not said for a while.
    fn recall(&mut self, draft: &EventDraft, now: Uptime) -> Said {
        let before = self.said.get(draft).copied();
        let recent = before.filter(|said| now.saturating_sub(said.last) <= self.limits.window);
        recent.unwrap_or_else(|| {
            self.next += 1;
            Said { id: self.next, count: 0, last: now, written: false }
        })
    }

    /// What may be written now, or None: nothing waits, or it has to wait longer.
    pub fn take(&mut self, now: Uptime) -> Option<(EventDraft, Write)> {
        self.total.grow(self.limits.total_refill, now);
        if self.total.used >= self.limits.total_burst {
            return None;
        }
        let (namespace, subject) = self.choose(now)?;
        self.spend(&namespace, &subject.0, now);
        let messages = self.messages.get_mut(&subject)?;
        let draft = messages.pop_front()?;
        if messages.is_empty() {
            self.messages.remove(&subject);
            self.waiting.remove(&namespace, &subject);
        }
        self.waiting.served(&namespace);
        let before = self.said.get(&draft).copied();
        let mut said = before.unwrap_or_else(|| self.recall(&draft, now));
        let (id, count) = (said.id, said.count.max(1));
        let write = match std::mem::replace(&mut said.written, true) {
            false => Write::Create { id, count },
            true => Write::Update { id, count },
        };
        self.said.put(draft.clone(), said, self.limits.remembered);
        Some((draft, write))
    }

    /// The first object that may have a write, of the next namespace in turn that may have one.
    fn choose(&self, now: Uptime) -> Option<(Arc<str>, Subject)> {
        let Limits { burst, refill, namespace_burst, namespace_refill, .. } = self.limits;
        let left = |budget: Option<&Budget>, burst: u32, refill: Duration| {
            let mut budget = budget.copied().unwrap_or_else(|| Budget::new(now));
            budget.grow(refill, now);
            budget.used < burst
        };
        let mut lanes = self
            .waiting
            .lanes()
            .filter(|lane| left(self.namespaces.get(lane), namespace_burst, namespace_refill));
        lanes.find_map(|lane| {
            let mut items = self.waiting.items(lane);
            let subject = items.find(|(object, _)| left(self.objects.get(object), burst, refill));
            subject.map(|subject| (Arc::clone(lane), subject.clone()))
        })
    }

    fn spend(&mut self, namespace: &Arc<str>, object: &About, now: Uptime) {
        let Limits { refill, namespace_refill, remembered, .. } = self.limits;
        let spent = |budget: Option<&Budget>, refill: Duration| {
            let mut budget = budget.copied().unwrap_or_else(|| Budget::new(now));
            budget.grow(refill, now);
            budget.used += 1;
            budget
        };
        let own = spent(self.objects.get(object), refill);
        self.objects.put(object.clone(), own, remembered);
        let all = spent(self.namespaces.get(namespace), namespace_refill);
        self.namespaces.put(Arc::clone(namespace), all, remembered);
        self.total.used += 1;
    }

    /// How long until something that waits may be written, at the earliest. None: nothing waits.
    pub fn again(&self) -> Option<Duration> {
        (!self.waiting.is_empty()).then_some(self.limits.total_refill)
    }

    /// Drops all waiting messages.
    pub fn clear(&mut self) {
        self.waiting = Queue::default();
        self.messages.clear();
    }

    /// The Event of this id does not exist: it was never created, or has expired. The next message of its kind is a
    /// new Event.
    pub fn lost(&mut self, id: u64) {
        self.said.forget(|said| said.id == id);
    }
}
