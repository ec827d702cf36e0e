//! All AddressPools: which of them are used, which one an address lies in, and what each has left.
//! Each change of an address updates the counts; after a change of a pool everything is counted
//! anew. It grants nothing; [`super::ledger`] owns it.

use super::entry::Mark;
use super::pool::Pool;
use super::range::{Range, is_buggy};
use super::report::{Counts, PoolReport, PoolUse};
use super::space::Space;
use super::verdict::Refusal;
use crate::objects::Family;
use crate::relist::{Epoch, Relist};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;
use std::net::IpAddr;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Slot {
    pub(super) pool: Arc<Pool>,
    pub(super) used: PoolUse,
    epoch: Epoch,
    spaces: [Space; 2],
    held: [(u64, u64); 2],
    by_namespace: FxHashMap<Arc<str>, u32>,
}

impl Slot {
    fn new(pool: Pool, epoch: Epoch) -> Self {
        let pool = Arc::new(pool);
        let spaces = spaces(&pool);
        let used = PoolUse::Used;
        Self { pool, used, epoch, spaces, held: <_>::default(), by_namespace: <_>::default() }
    }

    pub(super) fn space(&self, family: Family) -> &Space {
        &self.spaces[family as usize]
    }

    /// How many of its addresses count for a namespace.
    pub(super) fn held_by(&self, namespace: &str) -> u32 {
        self.by_namespace.get(namespace).copied().unwrap_or(0)
    }

    /// Whether new addresses are granted from it.
    pub(super) fn usable(&self) -> Result<(), Refusal> {
        match &self.used {
            PoolUse::Used => Ok(()),
            PoolUse::Overlaps { pool, .. } => Err(Refusal::Overlaps(pool.clone())),
            PoolUse::Deleting => Err(Refusal::Deleting),
        }
    }

    /// Why it is not tried for requests that name no pool.
    pub(super) fn passed_by_all(&self) -> (Option<Arc<str>>, Refusal) {
        let why = self.usable().err().unwrap_or(Refusal::ByName);
        (Some(self.pool.name.clone()), why)
    }

    pub(super) fn avoids(&self, address: IpAddr) -> bool {
        self.pool.avoid_buggy && is_buggy(address)
    }

    fn report(&self) -> PoolReport {
        let counts = |family: Family| {
            let (space, (assigned, resting)) = (self.space(family), self.held[family as usize]);
            let used = self.used == PoolUse::Used;
            let available = if used { space.available() } else { 0 };
            (!space.is_empty()).then_some(Counts { assigned, resting, available })
        };
        PoolReport {
            name: self.pool.name.clone(),
            used: self.used.clone(),
            refused: self.pool.refused.clone(),
            ipv4: counts(Family::V4),
            ipv6: counts(Family::V6),
        }
    }
}

fn spaces(pool: &Pool) -> [Space; 2] {
    [Family::V4, Family::V6].map(|family| Space::new(family, &pool.ranges, pool.avoid_buggy))
}

#[derive(Debug, Default)]
pub(super) struct Pools {
    all: BTreeMap<Arc<str>, Slot>,
    /// Whether a pool changed, and `refresh` has not run since.
    stale: bool,
    /// The pools that allow automatic assignment, in the order in which they are tried.
    order: Vec<Arc<str>>,
    /// The runs of used pools: last address and pool by first address.
    index: BTreeMap<IpAddr, (IpAddr, Arc<str>)>,
    /// The pools that are not used, the oldest first.
    unused: Vec<Arc<str>>,
    /// Pools with a report that may have changed.
    touched: BTreeSet<Arc<str>>,
    reported: BTreeMap<Arc<str>, PoolReport>,
}

impl Pools {
    pub(super) fn apply(&mut self, pool: Pool, epoch: Epoch) {
        if let Some(slot) = self.all.get_mut(&pool.name) {
            slot.epoch = epoch;
            if *slot.pool == pool {
                return;
            }
        }
        self.stale = true;
        self.all.insert(pool.name.clone(), Slot::new(pool, epoch));
    }

    pub(super) fn delete(&mut self, name: &str) {
        self.stale |= self.all.remove(name).is_some();
    }

    /// Forgets pools that the last list did not deliver.
    pub(super) fn sweep(&mut self, relist: Relist) {
        let before = self.all.len();
        self.all.retain(|_, slot| !relist.has_missed(slot.epoch));
        self.stale |= self.all.len() != before;
    }

    /// If a pool changed, computes which pools are used. Then all addresses must be counted again.
    pub(super) fn refresh(&mut self) -> bool {
        if !take(&mut self.stale) {
            return false;
        }
        self.touched.extend(self.all.keys().cloned().chain(self.reported.keys().cloned()));
        (self.index, self.unused) = <_>::default();
        let mut by_age: Vec<(i64, Arc<str>)> =
            self.all.values().map(|it| (it.pool.created, it.pool.name.clone())).collect();
        by_age.sort_unstable();
        for (_, name) in by_age {
            let Some(slot) = self.all.get_mut(&name) else { continue };
            (slot.spaces, slot.held, slot.by_namespace) =
                (spaces(&slot.pool), <_>::default(), <_>::default());
            slot.used = match overlap(&self.index, &slot.pool) {
                _ if slot.pool.deleting => PoolUse::Deleting,
                Some((pool, range)) => PoolUse::Overlaps { pool, range },
                None => PoolUse::Used,
            };
            if slot.used != PoolUse::Used {
                self.unused.push(name);
                continue;
            }
            for run in slot.spaces.iter().flat_map(Space::runs) {
                self.index.insert(run.first(), (run.last(), name.clone()));
            }
        }
        let mut order: Vec<&Pool> = self
            .all
            .values()
            .filter(|slot| slot.used == PoolUse::Used && slot.pool.auto_assign)
            .map(|slot| &*slot.pool)
            .collect();
        order.sort_by(|one, other| one.rank().cmp(&other.rank()));
        self.order = order.into_iter().map(|pool| pool.name.clone()).collect();
        true
    }

    pub(super) fn get(&self, name: &str) -> Option<&Slot> {
        self.all.get(name)
    }

    /// All pools, by name.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.all.values()
    }

    /// The pools that serve requests that name no pool, in the order in which they are tried.
    pub(super) fn order(&self) -> &[Arc<str>] {
        &self.order
    }

    /// The pool that an address lies in: a used one, else the oldest other one.
    pub(super) fn of(&self, address: IpAddr) -> Option<&Slot> {
        let used = self.index.range(..=address).next_back();
        let used = used.filter(|(_, (last, _))| address <= *last);
        let used = used.and_then(|(_, (_, name))| self.all.get(name));
        let mut others = self.unused.iter().filter_map(|name| self.all.get(name));
        used.or_else(|| others.find(|slot| slot.pool.contains(address)))
    }

    /// Adds an address to the counts as its mark says, or takes it off them.
    pub(super) fn count(&mut self, address: IpAddr, mark: &Mark, begins: bool) {
        // When a pool has changed everything is about to be counted anew.
        if self.stale {
            return;
        }
        let Some(slot) = mark.pool.as_ref().and_then(|name| self.all.get_mut(name)) else {
            return;
        };
        let family = Family::of(address) as usize;
        let (assigned, resting) = &mut slot.held[family];
        let add = |count: &mut u64, one: bool| match begins {
            true => *count += u64::from(one),
            false => *count -= u64::from(one),
        };
        add(assigned, mark.assigned);
        add(resting, mark.resting);
        for namespace in &mark.namespaces {
            let count = slot.by_namespace.entry(namespace.clone()).or_default();
            *count = if begins { *count + 1 } else { *count - 1 };
            if *count == 0 {
                slot.by_namespace.remove(namespace);
            }
        }
        if mark.blocked {
            match begins {
                true => slot.spaces[family].take(address),
                false => slot.spaces[family].release(address),
            };
        }
        if !self.touched.contains(&slot.pool.name) {
            self.touched.insert(slot.pool.name.clone());
        }
    }

    /// Whether a pool changed, and `refresh` has not run since.
    pub(super) fn is_stale(&self) -> bool {
        self.stale
    }

    /// The reports that changed since the last call. None: the pool is gone.
    pub(super) fn reports(&mut self) -> Vec<(Arc<str>, Option<PoolReport>)> {
        let mut changed = Vec::new();
        for name in take(&mut self.touched) {
            let now = self.all.get(&name).map(Slot::report);
            if self.reported.get(&name) == now.as_ref() {
                continue;
            }
            match &now {
                Some(report) => self.reported.insert(name.clone(), report.clone()),
                None => self.reported.remove(&name),
            };
            changed.push((name, now));
        }
        changed
    }
}

/// An older pool that has addresses in common with this one, and the range of this pool that does.
fn overlap(index: &BTreeMap<IpAddr, (IpAddr, Arc<str>)>, pool: &Pool) -> Option<(Arc<str>, Range)> {
    pool.ranges.iter().find_map(|range| {
        let (_, (last, name)) = index.range(..=range.last()).next_back()?;
        (*last >= range.first()).then(|| (name.clone(), *range))
    })
}
