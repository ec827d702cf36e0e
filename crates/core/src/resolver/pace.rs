//! How many members of one namespace come and go in one update. A driver takes as long for an update as there are
//! members in it, and everybody's next change waits for that: a tenant that replaces thousands of members at once has
//! them replaced pool by pool, over several updates, and what others change comes with each of these.

use crate::update::Member;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Once an update changes this many members of a namespace, its remaining pools wait for the next update. The last
/// pool may exceed it.
const MOST: usize = 2_000;

/// The members of each namespace that this update changes so far.
#[derive(Debug, Default)]
pub(super) struct MemberPace {
    changed: BTreeMap<Arc<str>, usize>,
}

impl MemberPace {
    /// Whether another pool of this namespace is to wait for the next update.
    pub(super) fn is_up(&self, namespace: &str) -> bool {
        self.changed.get(namespace).is_some_and(|changed| *changed >= MOST)
    }

    /// A pool of this namespace had these members, and has those.
    pub(super) fn count(&mut self, namespace: &Arc<str>, old: &[Member], new: &[Member]) {
        // Lists are sorted, and mostly the same but for a few: those at both ends are no change.
        let same = |(a, b): &(&Member, &Member)| a == b;
        let front = old.iter().zip(new).take_while(same).count();
        let (old, new) = (&old[front..], &new[front..]);
        let back = old.iter().rev().zip(new.iter().rev()).take_while(same).count();
        let changed = old.len().max(new.len()) - back;
        *self.changed.entry(namespace.clone()).or_default() += changed;
    }
}
