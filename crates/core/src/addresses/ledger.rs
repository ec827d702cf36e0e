//! The books: every address with its content, every holder with its addresses, the pools with what is left, and the
//! waiters. Each change of an address goes through here, so that the books always agree with each other. Nothing is
//! decided here; the other modules of the machine decide and call it.

use super::entry::{Entry, Hold, Mark, User};
use super::pools::Pools;
use super::record::{AddressState, Content, Holder, HolderRef};
use super::uses::Uses;
use super::waiters::{Wait, Waiters};
use crate::objects::{Family, Version};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::mem::replace;
use std::net::IpAddr;
use std::sync::Arc;

#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) pools: Pools,
    pub(super) waiters: Waiters,
    pub(super) uses: Uses,
    pub(super) entries: BTreeMap<IpAddr, Entry>,
    /// By uid of the holder; also of holders that are gone or not observed yet.
    holdings: FxHashMap<Arc<str>, Vec<Hold>>,
    by_key: FxHashMap<Arc<str>, BTreeSet<IpAddr>>,
    /// Addresses that may have to be written.
    pub(super) to_write: BTreeSet<IpAddr>,
    /// Holders to decide for again, because something of theirs changed.
    pub(super) touched: Vec<HolderRef>,
}

impl Ledger {
    pub(super) fn entry(&self, address: IpAddr) -> Option<&Entry> {
        self.entries.get(&address)
    }

    pub(super) fn held(&self, address: IpAddr) -> Option<&Content> {
        self.entries.get(&address)?.held.as_ref()
    }

    pub(super) fn holds(&self, uid: &str) -> &[Hold] {
        self.holdings.get(uid).map_or(&[], Vec::as_slice)
    }

    pub(super) fn hold(&self, uid: &str, address: IpAddr) -> Option<&Hold> {
        self.holds(uid).iter().find(|hold| hold.address == address)
    }

    /// Whether the API has an address recorded for a holder now.
    pub(super) fn is_recorded(&self, address: IpAddr, uid: &str) -> bool {
        let recorded = self.entries.get(&address).and_then(|entry| entry.recorded.as_ref());
        recorded.is_some_and(|(content, _)| content.has(uid))
    }

    /// Whether a write is in flight that records an address for a holder. Until it is answered, it is open which of
    /// several addresses the holder has.
    pub(super) fn is_being_recorded(&self, address: IpAddr, uid: &str) -> bool {
        let sent = self.entries.get(&address).and_then(|entry| entry.sent.as_ref());
        let wrote = sent.and_then(|sent| sent.wrote.as_ref());
        wrote.is_some_and(|content| content.has(uid)) && !self.is_recorded(address, uid)
    }

    /// Whether a holder is about to give an address up.
    pub(super) fn is_leaving(&self, uid: &str) -> bool {
        self.holds(uid).iter().any(|hold| hold.leave.is_some())
    }

    pub(super) fn hold_mut(&mut self, uid: &str, address: IpAddr) -> Option<&mut Hold> {
        self.holdings.get_mut(uid)?.iter_mut().find(|hold| hold.address == address)
    }

    /// Addresses that are shared under a key, the lowest first.
    pub(super) fn shared(&self, key: &str) -> impl Iterator<Item = IpAddr> {
        self.by_key.get(key).into_iter().flatten().copied()
    }

    /// Adds a holder to an address.
    pub(super) fn join(&mut self, address: IpAddr, holder: Holder) {
        let uid = holder.holder.uid.clone();
        let mut content = self.held(address).cloned().unwrap_or_else(|| Content {
            pool: self.pools.of(address).map(|slot| slot.pool.name.clone()),
            holders: Vec::with_capacity(1),
            state: AddressState::Active,
        });
        content.holders.push(holder);
        self.set_held(address, Some(content));
        if let Some(hold) = self.hold_mut(&uid, address) {
            hold.told = hold.confirmed;
        }
    }

    /// Changes the wanted content of an address, but not its holders.
    pub(super) fn amend(&mut self, address: IpAddr, change: impl FnOnce(&mut Content)) {
        let Some(held) = self.entries.get_mut(&address).and_then(|entry| entry.held.as_mut())
        else {
            return;
        };
        change(held);
        self.to_write.insert(address);
        self.reckon(address, true);
    }

    /// Sets the wanted content of an address, and what its holders have.
    pub(super) fn set_held(&mut self, address: IpAddr, held: Option<Content>) {
        let entry = self.entries.entry(address).or_default();
        let old = replace(&mut entry.held, held);
        let old = old.map(|content| content.holders).unwrap_or_default();
        let new = entry.held.as_ref().map_or(&[][..], |content| &content.holders);
        let mut room = new.is_empty();
        for Holder { holder, .. } in &old {
            if !new.iter().any(|it| it.holder.uid == holder.uid) {
                if let Some(holds) = self.holdings.get_mut(&holder.uid) {
                    holds.retain(|hold| hold.address != address);
                    if holds.is_empty() {
                        self.holdings.remove(&holder.uid);
                    }
                }
                self.touched.push(holder.clone());
                room = true;
            }
        }
        for Holder { holder, .. } in new {
            if !old.iter().any(|it| it.holder.uid == holder.uid) {
                let recorded = entry.recorded.as_ref();
                let confirmed = recorded.is_some_and(|(content, _)| content.has(&holder.uid));
                let holds = self.holdings.entry(holder.uid.clone()).or_default();
                // Sorted by address: nothing may depend on the order of events.
                let at = holds.partition_point(|it| it.address < address);
                let (told, leave, at_once, awaits) = (true, None, false, false);
                holds.insert(at, Hold { address, confirmed, told, leave, at_once, awaits });
                self.touched.push(holder.clone());
            }
        }
        self.to_write.insert(address);
        self.uses.touch_address(address);
        self.reckon(address, room);
    }

    /// Whether an address without a holder is not free yet: it rests, or its Address object still exists.
    pub(super) fn is_being_released(&self, address: IpAddr) -> bool {
        self.entries.get(&address).is_some_and(|entry| {
            entry.held.is_some() || entry.recorded.is_some() || entry.sent.is_some()
        })
    }

    /// Sets what the API has recorded of an address.
    pub(super) fn set_recorded(&mut self, address: IpAddr, recorded: Option<(Content, Version)>) {
        let entry = self.entries.entry(address).or_default();
        let before = replace(&mut entry.recorded, recorded);
        self.to_write.insert(address);
        for Holder { holder, .. } in entry.held.iter().flat_map(|held| &held.holders) {
            let has =
                |it: &Option<(Content, _)>| it.as_ref().is_some_and(|it| it.0.has(&holder.uid));
            if has(&before) == has(&entry.recorded) {
                continue;
            }
            // Which of several addresses a holder keeps depends on what is recorded.
            self.touched.push(holder.clone());
            let mut holds = self.holdings.get_mut(&holder.uid).into_iter().flatten();
            if let Some(hold) = holds.find(|hold| hold.address == address) {
                hold.confirmed |= has(&entry.recorded);
            }
        }
        // A holder that left may ask for it again.
        let stays = |it: &Holder| {
            let recorded = entry.recorded.as_ref();
            recorded.is_some_and(|(content, _)| content.has(&it.holder.uid))
        };
        let left = before.iter().flat_map(|(content, _)| &content.holders).any(|it| !stays(it));
        let room = left || entry.recorded.is_none();
        self.reckon(address, room);
    }

    /// Takes the record as the truth: the wanted content becomes the recorded one.
    pub(super) fn believe_record(&mut self, address: IpAddr) {
        let recorded = self.entries.get(&address).and_then(|entry| entry.recorded.as_ref());
        let content = recorded.map(|(content, _)| content.clone());
        // Holders that stay are decided for again, too: the terms of others may have changed.
        let holders = content.iter().flat_map(|it| &it.holders).map(|it| it.holder.clone());
        self.touched.extend(holders);
        self.set_held(address, content);
    }

    pub(super) fn add_user(&mut self, address: IpAddr, user: User) {
        self.entries.entry(address).or_default().users.insert(user);
        self.reckon(address, false);
    }

    pub(super) fn remove_user(&mut self, address: IpAddr, user: &User) {
        if let Some(entry) = self.entries.get_mut(&address) {
            entry.users.remove(user);
            self.reckon(address, true);
        }
    }

    /// Enqueues the requesters that wait to share an address: its holders may allow more than before.
    pub(super) fn invite(&mut self, address: IpAddr) {
        let Some(entry) = self.entries.get(&address) else { return };
        if let Some(key) = entry.mark.key.clone() {
            self.waiters.wake(Wait::Key(key));
        }
        self.waiters.wake(Wait::Address(address));
    }

    /// Updates pools and indexes after a change of an address. With `room`, it also wakes the requesters that wait
    /// for the address or its key.
    pub(super) fn reckon(&mut self, address: IpAddr, room: bool) {
        let Some(entry) = self.entries.get_mut(&address) else { return };
        let vacant = entry.is_vacant();
        let mut new = Mark::default();
        if !vacant && self.pools.is_stale() {
            // Pools changed: `recount` finds out which pool the address lies in now.
            new = Mark { pool: entry.mark.pool.clone(), ..entry.mark(None) };
        } else if !vacant {
            new = entry.mark(self.pools.of(address).map(|slot| &*slot.pool));
        }
        let changed = new != entry.mark;
        let old = replace(&mut entry.mark, new);
        if room {
            self.waiters.wake(Wait::Address(address));
            if let Some(key) = &old.key {
                self.waiters.wake(Wait::Key(key.clone()));
            }
        }
        let key = self.entries.get(&address).and_then(|entry| entry.mark.key.clone());
        if let Some(key) = key.filter(|key| old.key.as_ref() != Some(key)) {
            self.waiters.wake(Wait::Key(key));
        }
        if changed {
            self.recount_one(address, &old);
        }
        if vacant {
            self.entries.remove(&address);
        }
    }

    fn recount_one(&mut self, address: IpAddr, old: &Mark) {
        let Some(Entry { mark: new, .. }) = self.entries.get(&address) else { return };
        self.pools.count(address, old, false);
        self.pools.count(address, new, true);
        if !new.blocked {
            self.uses.touch_address(address);
        }
        if let Some(pool) = &old.pool {
            if !new.blocked {
                self.waiters.wake(Wait::Space(pool.clone(), Family::of(address)));
            }
            for namespace in &old.namespaces {
                if !new.namespaces.contains(namespace) {
                    self.uses.touch_namespace(namespace);
                    self.waiters.wake(Wait::Quota(pool.clone(), namespace.clone()));
                    self.waiters.wake(Wait::Move(pool.clone(), namespace.clone()));
                }
            }
        }
        let gained = new.namespaces.iter().filter(|it| !old.namespaces.contains(it));
        gained.for_each(|namespace| self.uses.touch_namespace(namespace));
        if old.key == new.key {
            return;
        }
        if let Some(key) = &old.key
            && let Some(addresses) = self.by_key.get_mut(key)
        {
            addresses.remove(&address);
            if addresses.is_empty() {
                self.by_key.remove(key);
            }
        }
        if let Some(key) = new.key.clone() {
            self.by_key.entry(key).or_default().insert(address);
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
            && self.holdings.is_empty()
            && self.by_key.is_empty()
            && self.to_write.is_empty()
            && self.waiters.is_empty()
            && self.uses.is_empty()
    }

    /// Counts everything anew after pools changed. Touches the holders of addresses that lie in another pool now.
    pub(super) fn recount(&mut self) {
        self.uses.touch_all();
        for (address, entry) in &mut self.entries {
            let pool = self.pools.of(*address).map(|slot| slot.pool.clone());
            if entry.mark.pool.as_ref() != pool.as_ref().map(|pool| &pool.name) {
                self.to_write.insert(*address);
                let holders = entry.held.iter().flat_map(|it| &it.holders);
                self.touched.extend(holders.map(|it| it.holder.clone()));
            }
            entry.mark = entry.mark(pool.as_deref());
            self.pools.count(*address, &entry.mark, true);
        }
    }
}
