//! Makes the writes that bring Address objects to their wanted content, one per address at a time, each under the
//! version that was decided on, and handles their answers. It sends nothing: the controller carries the writes out.

use super::entry::Sent;
use super::machine::{Addresses, Deadline};
use super::record::{AddressState, Content, Holder, Record};
use super::{Kind, Op, Write, WriteId, Written};
use crate::objects::{Timestamp, Version};
use std::mem::take;
use std::net::IpAddr;

/// Failed writes are repeated after 1, 2, 4 … seconds, and at last every 32.
const LONGEST_RETRY: u32 = 5;

impl Addresses {
    pub(super) fn write(&mut self, now: Timestamp) -> Vec<Write> {
        let mut writes = Vec::new();
        for address in take(&mut self.ledger.to_write) {
            self.visited += 1;
            let Some(entry) = self.ledger.entry(address) else { continue };
            if entry.sent.is_some() {
                continue;
            }
            if entry.retry_at > now {
                self.deadlines.insert((entry.retry_at, Deadline::Address(address)));
                continue;
            }
            self.complete(address, now);
            if let Some(op) = self.difference(address, now) {
                writes.push(self.send(address, op));
            }
        }
        // `complete` enqueued addresses that have just been compared.
        self.ledger.to_write.clear();
        writes
    }

    fn difference(&self, address: IpAddr, now: Timestamp) -> Option<Op> {
        let wanted = |it: &Holder| self.is_wanted(&it.holder, address, now);
        let entry = self.ledger.entry(address)?;
        match (&entry.held, &entry.recorded) {
            (None, None) => None,
            (None, Some((_, version))) => Some(Op::Delete { version: version.clone() }),
            // Another leader released an address that all its holders are about to give up: it is not created again
            // for that.
            (Some(held), None) if !held.holders.iter().any(wanted) => None,
            (Some(held), None) => Some(Op::Create(held.clone())),
            (Some(held), Some((recorded, _))) if held == recorded && !entry.doubt => None,
            (Some(held), Some((_, version))) => {
                Some(Op::Update { version: version.clone(), content: held.clone() })
            }
        }
    }

    fn send(&mut self, address: IpAddr, op: Op) -> Write {
        self.next_id += 1;
        let id = WriteId(self.next_id);
        self.in_flight.insert(id, address);
        let (wrote, base) = match &op {
            Op::Create(content) => (Some(content.clone()), None),
            Op::Update { version, content } => (Some(content.clone()), Some(version.clone())),
            Op::Delete { version } => (None, Some(version.clone())),
        };
        if let Some(entry) = self.ledger.entries.get_mut(&address) {
            let unsure = std::mem::take(&mut entry.doubt);
            entry.sent = Some(Sent { id, wrote, base, gone: None, unseen: false, unsure });
        }
        Write { id, address, op }
    }

    /// Derives pool and state of the wanted content, and ends a rest that is over.
    fn complete(&mut self, address: IpAddr, now: Timestamp) {
        let Some(held) = self.ledger.held(address) else { return };
        if held.holders.is_empty() {
            let left = match held.state {
                AddressState::Resting { until } if until > now => {
                    self.deadlines.insert((until, Deadline::Address(address)));
                    return;
                }
                AddressState::Resting { .. } => None,
                // Its last holder left, and the record does not say yet that it rests.
                _ => self.rest(address, held.clone(), now),
            };
            return self.ledger.set_held(address, left);
        }
        let leaving = held.holders.iter().filter_map(|it| {
            let hold = self.ledger.hold(&it.holder.uid, address)?;
            Some((&it.holder.uid, hold.leave?))
        });
        let held_back = leaving.clone().any(|(uid, _)| self.is_served(uid, address));
        let leaves = leaving.map(|(_, leave)| leave);
        let state = match (leaves.max(), held.state) {
            // The later end counts, so that two leaders agree. When it has come, only the status has to change before
            // the address is released.
            (Some(leave), AddressState::Draining { until }) => {
                AddressState::Draining { until: until.max(leave) }
            }
            // Also when the grace is over and an agent still serves the address: the next leader, too, must see that
            // its holder has given it up.
            (Some(until), _) if until > now || held_back => AddressState::Draining { until },
            // For a holder that was never observed, draining stays as it is recorded.
            (None, draining @ AddressState::Draining { .. }) if self.has_stranger(address) => {
                draining
            }
            _ => AddressState::Active,
        };
        let pool = self.ledger.pools.of(address).map(|slot| slot.pool.name.clone());
        let pool = pool.or_else(|| held.pool.clone());
        if (&pool, state) != (&held.pool, held.state) {
            self.ledger.amend(address, |content| (content.pool, content.state) = (pool, state));
        }
    }

    fn has_stranger(&self, address: IpAddr) -> bool {
        let mut holders = self.ledger.held(address).into_iter().flat_map(|held| &held.holders);
        holders.any(|it| self.requester_of(&it.holder).is_none())
    }

    /// A write was answered.
    pub(super) fn written(&mut self, id: WriteId, result: Written, now: Timestamp) {
        let Some(address) = self.in_flight.remove(&id) else { return };
        let Some(entry) = self.ledger.entries.get_mut(&address) else { return };
        let Some(sent) = entry.sent.take_if(|sent| sent.id == id) else { return };
        entry.epoch = self.relists[Kind::Address as usize].epoch();
        // A failed write did not end the doubt.
        entry.doubt |= sent.unseen || sent.unsure && matches!(result, Written::Failed);
        entry.answered_in_list |= self.listing_addresses;
        if matches!(result, Written::Failed) {
            entry.retry_at = now + (1 << entry.failures.min(LONGEST_RETRY));
            entry.failures += 1;
            // Its holders are told that it fails.
            let holders = entry.held.iter().flat_map(|it| &it.holders);
            self.ledger.touched.extend(holders.map(|it| it.holder.clone()));
            self.ledger.to_write.insert(address);
            self.ledger.reckon(address, false);
            return self.failed(address, &sent, now);
        }
        (entry.failures, entry.retry_at) = (0, 0);
        let gone = |it: &Version| sent.gone.as_ref().is_some_and(|gone| it.is_older_than(gone));
        match (result, sent.wrote.clone()) {
            // The watch has delivered the deletion of the object that the answer names.
            (Written::Ok(version), Some(_)) if gone(&version) => self.conflict(address, None, now),
            (Written::Conflict(Some(newest)), _) if gone(&newest.version) => {
                self.conflict(address, None, now);
            }
            (Written::Ok(version), Some(content)) => self.wrote(address, content, version),
            (Written::Ok(_), None) => self.deleted(address, &sent),
            // What the watch delivered since is newer, or its deletion will be delivered, too.
            (Written::Conflict(None), _) if self.knows_another(address, sent.base.as_ref()) => {
                self.ledger.believe_record(address);
            }
            (Written::Conflict(newest), _) => {
                self.bury_record(address, newest.is_none() && !sent.unseen && !sent.unsure);
                self.conflict(address, newest, now);
            }
            (Written::Failed, _) => {}
        }
    }

    /// The result of a write is unknown. What the watch delivered meanwhile was kept for the answer; now it is the
    /// truth, so that the next try does not overwrite it.
    fn failed(&mut self, address: IpAddr, sent: &Sent, now: Timestamp) {
        let entry = self.ledger.entry(address);
        let known = entry.and_then(|entry| entry.recorded.as_ref()).map(|(_, version)| version);
        match known {
            Some(_) if sent.unseen => {
                self.ledger.set_recorded(address, None);
                self.keep_wanted(address, now);
            }
            _ if known == sent.base.as_ref() => {}
            Some(_) => self.ledger.believe_record(address),
            None => self.keep_wanted(address, now),
        }
    }

    fn wrote(&mut self, address: IpAddr, content: Content, version: Version) {
        let entry = self.ledger.entry(address);
        let known = entry.and_then(|entry| entry.recorded.as_ref());
        // The watch may have been quicker than the answer, and may know more by now.
        if known.is_none_or(|(_, known)| known.is_older_than(&version)) {
            self.ledger.set_recorded(address, Some((content, version)));
            return;
        }
        if known.is_some_and(|(known, _)| *known != content) {
            self.ledger.believe_record(address);
        }
        self.ledger.to_write.insert(address);
    }

    fn deleted(&mut self, address: IpAddr, sent: &Sent) {
        let entry = self.ledger.entry(address);
        let known = entry.and_then(|entry| entry.recorded.as_ref()).map(|(_, known)| known);
        match (known, &sent.base) {
            // The watch has delivered the deletion already, or even a later object.
            (None, _) => self.ledger.to_write.extend([address]),
            (Some(known), Some(base)) if base.is_older_than(known) => {
                self.ledger.believe_record(address);
            }
            (Some(known), _) => {
                let epoch = self.relists[Kind::Address as usize].epoch();
                self.tombstones.insert(address, (known.clone(), epoch));
                self.ledger.set_recorded(address, None);
            }
        }
        self.ledger.reckon(address, true);
    }

    /// Whether another version of an object is recorded than the one that a write was based on.
    fn knows_another(&self, address: IpAddr, base: Option<&Version>) -> bool {
        let recorded = self.ledger.entry(address).and_then(|entry| entry.recorded.as_ref());
        recorded.is_some_and(|(_, known)| Some(known) != base)
    }

    /// An object is gone, and the watch has yet to deliver that: what it delivers until then is old.
    fn bury_record(&mut self, address: IpAddr, gone: bool) {
        let entry = self.ledger.entry(address).filter(|_| gone);
        if let Some((_, known)) = entry.and_then(|entry| entry.recorded.as_ref()) {
            let epoch = self.relists[Kind::Address as usize].epoch();
            self.tombstones.insert(address, (known.clone(), epoch));
        }
    }

    /// Another writer was quicker: what the API has is the truth.
    fn conflict(&mut self, address: IpAddr, newest: Option<Record>, now: Timestamp) {
        let Some(Record { version, content, .. }) = newest else {
            self.ledger.set_recorded(address, None);
            return self.keep_wanted(address, now);
        };
        let entry = self.ledger.entry(address);
        let known = entry.and_then(|entry| entry.recorded.as_ref());
        if known.is_none_or(|(_, known)| !version.is_older_than(known)) {
            self.ledger.set_recorded(address, Some((content, version)));
        }
        self.ledger.believe_record(address);
    }
}
