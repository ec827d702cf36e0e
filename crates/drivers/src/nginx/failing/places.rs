//! In which pools the addresses are that may not answer. It follows the desired state by what changed in it: the members of
//! a pool are one shared value, and another value is a change. Pure.

use crate::desired::Desired;
use bowline_core::update::{FailingPool, Member, MemberState};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// The pools with a ready member at each suspected address.
    of: BTreeMap<SocketAddr, BTreeSet<Arc<str>>>,
    /// The members that were looked at, by pool.
    seen: BTreeMap<Arc<str>, Arc<[Member]>>,
    /// How many members were looked at; tests count.
    #[cfg(test)]
    looked_at: usize,
}

impl Places {
    /// Takes in the desired state and addresses that may not answer.
    pub(super) fn follow(&mut self, desired: &Desired, heard: &BTreeSet<SocketAddr>) {
        let new: BTreeSet<_> =
            heard.iter().filter(|it| !self.of.contains_key(it)).copied().collect();
        if self.of.is_empty() && new.is_empty() {
            self.seen.clear();
            return;
        }
        let gone: Vec<_> =
            self.seen.keys().filter(|it| !desired.members.contains_key(*it)).cloned().collect();
        for pool in gone {
            self.seen.remove(&pool);
            self.leave(&pool);
        }
        for (pool, members) in &desired.members {
            let same = self.seen.get(pool).is_some_and(|it| Arc::ptr_eq(it, members));
            if same && new.is_empty() {
                continue;
            }
            if !same {
                self.seen.insert(Arc::clone(pool), Arc::clone(members));
                self.leave(pool);
            }
            #[cfg(test)]
            {
                self.looked_at += members.len();
            }
            for member in members.iter().filter(|it| it.state == MemberState::Ready) {
                let at = member.address;
                let suspected = new.contains(&at) || !same && self.of.contains_key(&at);
                if suspected {
                    self.of.entry(at).or_default().insert(Arc::clone(pool));
                }
            }
        }
    }

    fn leave(&mut self, pool: &str) {
        for pools in self.of.values_mut() {
            pools.remove(pool);
        }
    }

    /// Keeps the addresses that are still suspected and a member of some pool.
    pub(super) fn retain(&mut self, is_suspected: impl Fn(&SocketAddr) -> bool) {
        self.of.retain(|at, pools| is_suspected(at) && !pools.is_empty());
    }

    /// Whether an address is a ready member of some pool.
    pub(super) fn has(&self, address: &SocketAddr) -> bool {
        self.of.contains_key(address)
    }

    /// The namespace of a pool with this address.
    pub(super) fn namespace(&self, address: &SocketAddr, desired: &Desired) -> Option<Arc<str>> {
        let pools = self.of.get(address)?.iter();
        let pool = pools.rev().find_map(|it| desired.pools.get(it))?;
        Some(Arc::clone(&pool.service.namespace))
    }

    /// The pools with members at these addresses, by name.
    pub(super) fn failing(&self, down: &BTreeSet<SocketAddr>) -> Vec<FailingPool> {
        let mut all: BTreeMap<&Arc<str>, FailingPool> = BTreeMap::new();
        for at in down {
            for pool in self.of.get(at).into_iter().flatten() {
                let failing = all.entry(pool).or_insert_with(|| FailingPool {
                    pool: Arc::clone(pool),
                    count: 0,
                    named: Vec::new(),
                });
                failing.count += 1;
                if failing.named.len() < FailingPool::NAMED {
                    failing.named.push(*at);
                }
            }
        }
        all.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(pool: u8, member: u8) -> SocketAddr {
        ([10, 0, pool, member], 80).into()
    }

    fn put(desired: &mut Desired, pool: u8, members: &[SocketAddr]) {
        let ready = |at: &SocketAddr| Member { address: *at, weight: 1, state: MemberState::Ready };
        desired.members.insert(format!("p{pool}").into(), members.iter().map(ready).collect());
    }

    fn names(places: &Places, down: &[SocketAddr]) -> Vec<String> {
        let down = down.iter().copied().collect();
        places.failing(&down).iter().map(|it| format!("{} {}", it.pool, it.count)).collect()
    }

    #[test]
    fn while_an_address_fails_only_pools_that_change_are_looked_at() {
        let (mut desired, mut places) = (Desired::default(), Places::default());
        for pool in 0..50 {
            put(&mut desired, pool, &[at(pool, 1), at(pool, 2)]);
        }
        let none = BTreeSet::new();
        places.follow(&desired, &none);
        assert_eq!(places.looked_at, 0, "nothing fails");
        places.follow(&desired, &BTreeSet::from([at(7, 1)]));
        assert_eq!(places.looked_at, 100, "the pools of a new address");
        for _ in 0..10 {
            places.follow(&desired, &BTreeSet::from([at(7, 1)]));
        }
        assert_eq!(places.looked_at, 100, "it fails as before");
        put(&mut desired, 8, &[at(7, 1), at(8, 2)]);
        places.follow(&desired, &none);
        assert_eq!(places.looked_at, 102, "one pool has changed");
        assert_eq!(names(&places, &[at(7, 1)]), ["p7 1", "p8 1"]);
        put(&mut desired, 7, &[at(7, 2)]);
        desired.members.remove("p8");
        places.follow(&desired, &none);
        places.retain(|_| true);
        assert!(!places.has(&at(7, 1)), "it is a member of no pool any more");
        assert_eq!(names(&places, &[at(7, 1)]), [""; 0]);
    }
}
