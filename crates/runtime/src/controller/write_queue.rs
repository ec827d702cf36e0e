//! The order of the leader's writes, and the targets that wait for a time. Writes that agents need get most
//! places, writes for people have places of their own, and in both namespaces take turns. It decides nothing about
//! what is written; the turn calls it.

use super::target::Target;
use bowline_core::clock::Uptime;
use bowline_core::fair_queue::Queue;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// The most writes under way at once, without long work.
pub(super) const MOST_WRITES: usize = 32;
/// How many of those may be records.
pub(super) const MOST_RECORDS: usize = 24;

/// The kind of work that a target is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WorkKind {
    /// Records a decision.
    Record,
    /// Shows something to people, such as a status.
    Tell,
    /// Many reads and writes, each of which may take long.
    Long,
}

impl WorkKind {
    const ALL: [Self; 3] = [Self::Record, Self::Tell, Self::Long];

    /// The most writes of this kind under way at once. No kind may use all places, so none blocks another.
    fn most(self) -> usize {
        match self {
            Self::Record => MOST_RECORDS,
            Self::Tell => 24,
            Self::Long => 4,
        }
    }

    fn of(target: &Target) -> Self {
        match target {
            Target::Holder(_)
            | Target::Subject(_)
            | Target::Leaver(..)
            | Target::Binding(_)
            | Target::Claim(_)
            | Target::Address(_)
            | Target::Cookies(_)
            | Target::Certificates(_)
            | Target::Plans(_) => Self::Record,
            Target::Consumer(..)
            | Target::LoadBalancer(_)
            | Target::Object(..)
            | Target::Announced(_)
            | Target::Agents(_) => Self::Tell,
            Target::Job(_) | Target::Provision(_) => Self::Long,
        }
    }
}

/// Whether agents or addresses wait for this target: a new leader is ready only when each such target is written
/// once. Cookie Secrets are not awaited: until they exist, agents use a key of their own.
pub(super) fn is_awaited(target: &Target) -> bool {
    use Target::{Address, Certificates, Holder, Plans};
    matches!(target, Plans(_) | Certificates(_) | Address(_) | Holder(_))
}

/// The tenant whose turn a target uses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lane {
    /// A namespace. Empty: no tenant.
    Namespace(Arc<str>),
    /// All tenants of a load balancer.
    LoadBalancer(Arc<str>),
}

/// The enqueued targets.
#[derive(Debug, Default)]
pub(super) struct Work {
    queues: [Queue<Lane, Target>; 3],
    /// How many enqueued targets are awaited.
    awaited: usize,
}

impl Work {
    pub(super) fn insert(&mut self, lane: &Lane, target: Target) {
        let awaited = usize::from(is_awaited(&target));
        if self.queues[WorkKind::of(&target) as usize].insert(lane, 0, target) {
            self.awaited += awaited;
        }
    }

    /// The next target for which there is a place beside the `busy` ones.
    pub(super) fn pop<'a>(
        &mut self,
        busy: impl ExactSizeIterator<Item = &'a Target>,
    ) -> Option<(Lane, Target)> {
        let mut counts = [0; 3];
        busy.for_each(|target| counts[WorkKind::of(target) as usize] += 1);
        // Long work has its own places: it never waits for other work.
        let quick = counts[WorkKind::Record as usize] + counts[WorkKind::Tell as usize];
        let has_place = |class: &WorkKind| {
            counts[*class as usize] < class.most()
                && (*class == WorkKind::Long || quick < MOST_WRITES)
        };
        let free = WorkKind::ALL.into_iter().filter(has_place);
        let next = free.map(|class| class as usize).find_map(|class| self.queues[class].pop());
        self.awaited -= next.iter().filter(|(_, target)| is_awaited(target)).count();
        next
    }

    /// Whether an awaited target is enqueued.
    pub(super) fn is_awaited(&self) -> bool {
        self.awaited > 0
    }

    pub(super) fn len(&self) -> usize {
        self.queues.iter().map(Queue::len).sum()
    }
}

/// Targets that wait for a time. A held target is not retried before its time.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    timers: BTreeSet<(Uptime, Target)>,
    /// Targets that wait after a conflict or an error.
    held: HashMap<Target, Uptime>,
    /// The number of timers for Plans plus the number of held targets that are awaited.
    awaited: usize,
}

impl Waiting {
    /// Requeues a target at this time, at the latest.
    pub(super) fn until(&mut self, at: Uptime, target: Target) {
        let plans = matches!(target, Target::Plans(_));
        if self.timers.insert((at, target)) {
            self.awaited += usize::from(plans);
        }
    }

    /// Holds a target until this time.
    pub(super) fn hold(&mut self, at: Uptime, target: Target) {
        self.until(at, target.clone());
        let awaited = is_awaited(&target);
        if self.held.insert(target, at).is_none() {
            self.awaited += usize::from(awaited);
        }
    }

    /// Ends the hold of a target. False: it was not held.
    pub(super) fn release(&mut self, target: &Target) -> bool {
        let held = self.held.remove(target).is_some();
        self.awaited -= usize::from(held && is_awaited(target));
        held
    }

    pub(super) fn is_held(&self, target: &Target) -> bool {
        self.held.contains_key(target)
    }

    pub(super) fn holds_any(&self) -> bool {
        !self.held.is_empty()
    }

    /// Takes the next target that is due.
    pub(super) fn due(&mut self, now: Uptime) -> Option<Target> {
        self.next().filter(|at| *at <= now)?;
        let (_, target) = self.timers.pop_first()?;
        self.awaited -= usize::from(matches!(target, Target::Plans(_)));
        self.release(&target);
        Some(target)
    }

    /// When the first target is due.
    pub(super) fn next(&self) -> Option<Uptime> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Whether Plans wait for a time, or an awaited target is held.
    pub(super) fn is_awaited(&self) -> bool {
        self.awaited > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_core::key::{ConsumerKind, ObjectKey};
    use std::time::Duration;

    fn ingress(namespace: &str, n: usize) -> (Lane, Target) {
        let key = ObjectKey::new(namespace, n.to_string());
        (Lane::Namespace(namespace.into()), Target::Consumer(ConsumerKind::Ingress, key))
    }

    fn address(namespace: &str, n: u8) -> (Lane, Target) {
        (Lane::Namespace(namespace.into()), Target::Address([192, 0, 2, n].into()))
    }

    fn work(all: impl IntoIterator<Item = (Lane, Target)>) -> Work {
        let mut work = Work::default();
        all.into_iter().for_each(|(lane, target)| work.insert(&lane, target));
        work
    }

    #[test]
    fn a_tenant_with_thousands_of_objects_leaves_every_other_its_turn() {
        let evil = (0..5000).map(|n| ingress("evil", n));
        let mut work = work(evil.chain([ingress("shop", 0)]));
        let none: [Target; 0] = [];
        let first: Vec<_> = (0..2).filter_map(|_| work.pop(none.iter())).collect();
        assert_eq!(first, [ingress("evil", 0), ingress("shop", 0)]);
        assert_eq!(work.len(), 4999);
    }

    #[test]
    fn what_is_recorded_leaves_places_for_what_people_read() {
        let mut work = work((0..100).map(|n| address("evil", n)).chain([ingress("shop", 0)]));
        let mut busy = Vec::new();
        while let Some((_, target)) = work.pop(busy.iter()) {
            busy.push(target);
        }
        assert_eq!(busy.len(), 25);
        assert_eq!(busy.last(), Some(&ingress("shop", 0).1));
        assert!(work.is_awaited());
    }

    #[test]
    fn long_work_waits_for_no_backlog_of_other_work() {
        let long = (Lane::LoadBalancer("edge".into()), Target::Provision("edge".into()));
        let quick = (0..100).flat_map(|n| [address("evil", n), ingress("evil", usize::from(n))]);
        let mut work = work(quick.chain([long.clone()]));
        let mut busy = Vec::new();
        while let Some((_, target)) = work.pop(busy.iter()) {
            busy.push(target);
        }
        assert_eq!((busy.len(), busy.contains(&long.1)), (MOST_WRITES + 1, true));
    }

    #[test]
    fn plans_take_turns_with_the_addresses_of_tenants() {
        let plans = || (Lane::LoadBalancer("edge".into()), Target::Plans("edge".into()));
        let mut work = work((0..100).map(|n| address("evil", n)).chain([plans()]));
        let none: [Target; 0] = [];
        work.pop(none.iter());
        assert_eq!(work.pop(none.iter()), Some(plans()));
    }

    #[test]
    fn what_waits_for_a_time_is_told_by_counting() {
        let (now, mut waiting) = (Uptime::default(), Waiting::default());
        let later = now + Duration::from_secs(1);
        waiting.until(later, ingress("shop", 0).1);
        assert!(!waiting.is_awaited());
        let plans = Target::Plans("edge".into());
        waiting.hold(later, plans.clone());
        waiting.hold(later, address("shop", 1).1);
        assert!(waiting.is_held(&plans) && waiting.release(&plans) && !waiting.release(&plans));
        assert!(waiting.is_awaited(), "its timer is there still");
        assert_eq!((waiting.due(now), waiting.next()), (None, Some(later)));
        let due: Vec<_> = std::iter::from_fn(|| waiting.due(later)).collect();
        assert_eq!(due, [address("shop", 1).1, plans, ingress("shop", 0).1]);
        assert!(!waiting.is_awaited() && !waiting.holds_any());
    }
}
