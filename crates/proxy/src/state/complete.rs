//! Complete updates: what is in force and not in them is removed. The caller of a driver sends one
//! first, and whenever it does not know what became of an earlier update. It only computes; `state`
//! applies.

use super::State;
use bowline_core::update::{Change, Member, MemberChange, Update};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

impl State {
    /// The update with all removals that follow from it.
    pub(super) fn completed<'a>(&self, update: &'a Update) -> Cow<'a, Update> {
        let nothing = self.listeners.is_empty()
            && self.sites.is_empty()
            && self.shared.backends.read().is_empty()
            && self.shared.certificates.hashes().len() == 0;
        if !update.complete || nothing {
            return Cow::Borrowed(update);
        }
        let mut all = update.clone();
        remove_others(&mut all.certificates, self.shared.certificates.hashes());
        remove_others(&mut all.sites, self.sites.keys().cloned());
        remove_others(&mut all.listeners, self.listeners.keys().copied());
        let backends = self.shared.backends.read();
        remove_others(&mut all.pools, backends.keys().cloned());
        for change in &mut all.members {
            if let Some(backend) = backends.get(&change.pool) {
                change.removed = gone(&backend.pool.members(), &change.members);
            }
        }
        // A complete update does not mention a pool without members.
        let spoken: BTreeSet<_> = update.members.iter().map(|change| &change.pool).collect();
        for (pool, backend) in backends.iter().filter(|(pool, _)| !spoken.contains(pool)) {
            let removed = backend.pool.members().to_vec();
            if !removed.is_empty() {
                all.members.push(MemberChange {
                    pool: Arc::clone(pool),
                    members: Arc::default(),
                    added: Vec::new(),
                    changed: Vec::new(),
                    removed,
                });
            }
        }
        Cow::Owned(all)
    }
}

fn remove_others<K: Ord + Clone, V>(
    changes: &mut Vec<Change<K, V>>,
    known: impl Iterator<Item = K>,
) {
    let put: BTreeSet<_> = changes
        .iter()
        .filter_map(|change| match change {
            Change::Put(key, _) => Some(key.clone()),
            Change::Remove(_) => None,
        })
        .collect();
    changes.retain(|change| matches!(change, Change::Put(..)));
    changes.extend(known.filter(|key| !put.contains(key)).map(Change::Remove));
}

fn gone(before: &[Member], now: &[Member]) -> Vec<Member> {
    let now: BTreeSet<_> = now.iter().map(|member| member.address).collect();
    before.iter().filter(|member| !now.contains(&member.address)).copied().collect()
}
