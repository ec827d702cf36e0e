//! How many members of one namespace change in one update. The more members an update has, the longer a driver takes,
//! and the next change of every tenant waits for it. So a tenant that replaces thousands of members at once gets them
//! replaced pool by pool, over several updates, and each of these has the changes of other tenants.

use crate::update::Member;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Once an update changes this many members of a namespace, the namespace's remaining pools wait for the next update.
/// The last pool may exceed it.
const MOST: usize = 2_000;

/// The number of members of each namespace that this update has changed so far.
#[derive(Debug, Default)]
pub(super) struct MemberPace {
    changed: BTreeMap<Arc<str>, usize>,
}

impl MemberPace {
    /// Whether another pool of this namespace waits for the next update.
    pub(super) fn is_up(&self, namespace: &str) -> bool {
        self.changed.get(namespace).is_some_and(|changed| *changed >= MOST)
    }

    /// Counts the change of a pool of this namespace.
    pub(super) fn count(&mut self, namespace: &Arc<str>, old: &[Member], new: &[Member]) {
        // The lists are sorted and mostly equal: what is equal at both ends is no change.
        let same = |(a, b): &(&Member, &Member)| a == b;
        let front = old.iter().zip(new).take_while(same).count();
        let (old, new) = (&old[front..], &new[front..]);
        let back = old.iter().rev().zip(new.iter().rev()).take_while(same).count();
        let changed = old.len().max(new.len()) - back;
        *self.changed.entry(namespace.clone()).or_default() += changed;
    }
}
