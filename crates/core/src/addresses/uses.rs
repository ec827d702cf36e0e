//! Addresses that tenants' Services use without a grant: `externalIPs`, and the status of Services that Bowline does
//! not serve. A use makes an address taken only if its pool would grant it to that namespace; other uses are ignored,
//! and the Service is told. When a leader starts, objects and records alone decide which uses count. From then on an
//! ignored use begins to count only when no Service or ExternalIP that asks for the address gets it. Uses by Nodes
//! and load balancers always count, and are not kept here.

use super::choose::{Passed, describe};
use super::entry::User;
use super::machine::Addresses;
use super::record::Age;
use super::verdict::{NoticeKind, Refusal};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::mem::take;
use std::net::IpAddr;
use std::sync::Arc;

/// At most this many uses of one Service are looked at: a Service may list as many as fit into an object, and each is
/// looked at again whenever its namespace gets or gives up an address.
pub(super) const MOST_USES: usize = 256;
/// At most this many uses of a namespace are looked at.
const MOST_USES_OF_ALL: usize = 16_384;
/// At most this many ignored addresses are named in an Event.
const MOST_NAMED: usize = 3;

/// The addresses that requesters use without a grant, by namespace.
#[derive(Debug, Default)]
pub(super) struct Uses {
    /// The addresses that count, of each Service that uses any; the oldest Service first.
    counted: FxHashMap<Arc<str>, BTreeMap<Age, Vec<IpAddr>>>,
    /// The namespaces that use an address, and how many of their Services do.
    by_address: FxHashMap<IpAddr, BTreeMap<Arc<str>, u32>>,
    /// Namespaces with uses to be judged again.
    dirty: BTreeSet<Arc<str>>,
    /// Namespaces with uses that were ignored and may count when all that ask have been served.
    deferred: BTreeSet<Arc<str>>,
}

impl Uses {
    /// The holders of an address changed, or it became free.
    pub(super) fn touch_address(&mut self, address: IpAddr) {
        let users = self.by_address.get(&address).into_iter().flat_map(BTreeMap::keys);
        self.dirty.extend(users.cloned());
    }

    /// A namespace holds more or less of a pool, or has other labels.
    pub(super) fn touch_namespace(&mut self, namespace: &Arc<str>) {
        if self.counted.contains_key(namespace) {
            self.dirty.insert(namespace.clone());
        }
    }

    /// Pools changed.
    pub(super) fn touch_all(&mut self) {
        self.dirty.extend(self.counted.keys().cloned());
    }

    /// A Service uses other addresses, or has other labels.
    fn put(&mut self, age: &Age, old: &[IpAddr], new: &[IpAddr]) {
        let namespace = &age.holder.key.namespace;
        self.forget(namespace, old);
        for address in new {
            let users = self.by_address.entry(*address).or_default();
            *users.entry(namespace.clone()).or_default() += 1;
        }
        self.counted.entry(namespace.clone()).or_default().entry(age.clone()).or_default();
        self.dirty.insert(namespace.clone());
    }

    /// A Service uses nothing any more. Returns the addresses that counted.
    fn remove(&mut self, age: &Age, old: &[IpAddr]) -> Vec<IpAddr> {
        let namespace = &age.holder.key.namespace;
        self.forget(namespace, old);
        let Some(users) = self.counted.get_mut(namespace) else { return Vec::new() };
        let counted = users.remove(age).unwrap_or_default();
        match users.is_empty() {
            true => {
                self.counted.remove(namespace);
                self.dirty.remove(namespace);
                self.deferred.remove(namespace);
            }
            false => _ = self.dirty.insert(namespace.clone()),
        }
        counted
    }

    fn forget(&mut self, namespace: &Arc<str>, old: &[IpAddr]) {
        for address in old {
            let Some(users) = self.by_address.get_mut(address) else { continue };
            if let Some(count) = users.get_mut(namespace) {
                *count -= 1;
                if *count == 0 {
                    users.remove(namespace);
                }
            }
            if users.is_empty() {
                self.by_address.remove(address);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.counted.is_empty() && self.by_address.is_empty() && self.dirty.is_empty()
    }

    /// The uses that count for a namespace.
    #[cfg(test)]
    pub(super) fn of(&self, namespace: &str) -> BTreeSet<IpAddr> {
        self.counted
            .get(namespace)
            .into_iter()
            .flat_map(BTreeMap::values)
            .flatten()
            .copied()
            .collect()
    }
}

/// What was decided for the uses of one Service.
#[derive(Debug, Default)]
struct Found {
    counted: Vec<IpAddr>,
    ignored: Vec<(IpAddr, Passed)>,
    /// Whether a use was ignored before and may count now.
    deferred: bool,
}

impl Addresses {
    /// A tenant's Service uses other addresses than before. Nothing is decided yet.
    pub(super) fn put_uses(&mut self, age: &Age, old: &[IpAddr], new: &[IpAddr]) {
        let (old, new) = (first_uses(old), first_uses(new));
        match (old.is_empty(), new.is_empty()) {
            (true, true) => {}
            (_, false) => self.ledger.uses.put(age, old, new),
            (false, true) => {
                let user = User::Tenant(age.holder.clone());
                for address in self.ledger.uses.remove(age, old) {
                    self.ledger.remove_user(address, &user);
                }
            }
        }
    }

    /// Decides which uses count, in every namespace where that may have changed.
    pub(super) fn settle_uses(&mut self) {
        for namespace in take(&mut self.ledger.uses.dirty) {
            self.settle_namespace(&namespace, false);
        }
    }

    /// Decides for ignored uses when all requests have been served. False: there were none.
    pub(super) fn settle_deferred_uses(&mut self) -> bool {
        let deferred = take(&mut self.ledger.uses.deferred);
        for namespace in &deferred {
            self.settle_namespace(namespace, true);
        }
        !deferred.is_empty()
    }

    fn settle_namespace(&mut self, namespace: &Arc<str>, last: bool) {
        for (age, found) in self.find_uses(namespace, last) {
            self.visited += 1;
            self.count_uses(&age, found.counted);
            match found.deferred {
                true => _ = self.ledger.uses.deferred.insert(namespace.clone()),
                false => self.tell_ignored(&age, found.ignored),
            }
        }
        // What counts for a namespace is no news to its own uses, and no other namespace depends on it.
        self.ledger.uses.dirty.remove(namespace);
    }

    /// Decides which uses of a namespace count: of the oldest Service first, and the lowest address first. `last`:
    /// all requests have been served, so that a use that was ignored until now may count.
    fn find_uses(&self, namespace: &Arc<str>, last: bool) -> Vec<(Age, Found)> {
        let Some(users) = self.ledger.uses.counted.get(namespace) else { return Vec::new() };
        let pools = &self.ledger.pools;
        let own = |it: IpAddr| {
            let held = self.ledger.held(it).map_or(&[][..], |held| &held.holders);
            held.iter().any(|holder| holder.holder.key.namespace == *namespace)
        };
        // The uses that counted before, by pool: without them, a quota's count is what the holders have of it.
        let mut used: FxHashMap<&Arc<str>, u32> = FxHashMap::default();
        let before: BTreeSet<IpAddr> = users.values().flatten().copied().collect();
        for address in before.into_iter().filter(|it| !own(*it)) {
            if let Some(slot) = pools.of(address) {
                *used.entry(&slot.pool.name).or_default() += 1;
            }
        }
        let mut held: FxHashMap<&Arc<str>, u32> = FxHashMap::default();
        let mut taken: FxHashSet<IpAddr> = FxHashSet::default();
        let mut left = MOST_USES_OF_ALL;
        let labels = self.namespaces.get(namespace).map(|(labels, _)| labels);
        let mut all = Vec::new();
        for (age, before) in users {
            let Some(requester) = self.requesters.get(&age.holder) else { continue };
            let mut found = Found::default();
            for &address in first_uses(&requester.request.uses) {
                let Some(slot) = pools.of(address).filter(|slot| slot.usable().is_ok()) else {
                    continue;
                };
                let name = &slot.pool.name;
                let ignore = |why| (address, (Some(name.clone()), why));
                if left == 0 {
                    found.ignored.push(ignore(Refusal::TooManyUses(MOST_USES_OF_ALL)));
                    continue;
                }
                left -= 1;
                if let Err(unfit) = slot.pool.fits(&requester.request, labels) {
                    found.ignored.push(ignore(Refusal::Unfit(unfit)));
                    continue;
                }
                let holders = self.ledger.held(address).map_or(&[][..], |held| &held.holders);
                let mut others = holders.iter().filter(|it| it.holder.key.namespace != *namespace);
                if let Some(other) = others.next() {
                    let other = other.holder.to_string();
                    found.ignored.push(ignore(Refusal::Foreign(address, other)));
                    continue;
                }
                if holders.is_empty() && before.binary_search(&address).is_err() {
                    if self.ledger.is_being_released(address) {
                        found.ignored.push(ignore(Refusal::Resting(address)));
                        continue;
                    }
                    if !last && requester.ignored.binary_search(&address).is_ok() {
                        found.deferred = true;
                        continue;
                    }
                }
                if let Some(quota) = slot.pool.per_namespace_quota
                    && holders.is_empty()
                    && !taken.contains(&address)
                {
                    let held = held.entry(name).or_insert_with(|| {
                        let used = used.get(name).copied().unwrap_or(0);
                        slot.held_by(namespace).saturating_sub(used)
                    });
                    if *held >= quota {
                        let used = *held;
                        let why = Refusal::Quota { quota, used, moves: false };
                        found.ignored.push(ignore(why));
                        continue;
                    }
                    *held += 1;
                }
                taken.insert(address);
                found.counted.push(address);
            }
            let more = requester.request.uses.get(MOST_USES).filter(|it| pools.of(**it).is_some());
            found.ignored.extend(more.map(|address| {
                let pool = pools.of(*address).map(|slot| slot.pool.name.clone());
                (*address, (pool, Refusal::TooManyUses(MOST_USES)))
            }));
            all.push((age.clone(), found));
        }
        all
    }

    fn count_uses(&mut self, age: &Age, new: Vec<IpAddr>) {
        let users = self.ledger.uses.counted.get_mut(&age.holder.key.namespace);
        let Some(counted) = users.and_then(|users| users.get_mut(age)) else { return };
        let old = std::mem::replace(counted, new.clone());
        let user = User::Tenant(age.holder.clone());
        // Both are sorted.
        for address in old.iter().filter(|it| new.binary_search(it).is_err()) {
            self.ledger.remove_user(*address, &user);
        }
        for address in new.iter().filter(|it| old.binary_search(it).is_err()) {
            self.ledger.add_user(*address, user.clone());
        }
    }

    /// A Service is told once of each address that it uses and that does not count.
    fn tell_ignored(&mut self, age: &Age, ignored: Vec<(IpAddr, Passed)>) {
        let Some(requester) = self.requesters.get_mut(&age.holder) else { return };
        let now: Vec<IpAddr> = ignored.iter().map(|(address, _)| *address).collect();
        let before = std::mem::replace(&mut requester.ignored, now.clone());
        if now.iter().all(|it| before.binary_search(it).is_ok()) {
            return;
        }
        let mut message = String::new();
        for (at, address) in now.iter().take(MOST_NAMED).enumerate() {
            // Writing to a String does not fail.
            let _ = write!(message, "{}{address}", if at == 0 { "" } else { ", " });
        }
        if let more @ 1.. = now.len().saturating_sub(MOST_NAMED) {
            let _ = write!(message, " and {more} more");
        }
        let mut why: Vec<Passed> = Vec::new();
        for (_, passed) in ignored {
            if !why.contains(&passed) && why.len() < MOST_NAMED {
                why.push(passed);
            }
        }
        let _ = write!(
            message,
            " in externalIPs or status is ignored and may be granted to others, because no pool would grant it: {}",
            describe(&why)
        );
        let holder = requester.request.holder.clone();
        self.tell(&holder, NoticeKind::AddressIgnored, message);
    }
}

fn first_uses(uses: &[IpAddr]) -> &[IpAddr] {
    &uses[..uses.len().min(MOST_USES)]
}
