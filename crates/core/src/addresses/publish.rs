//! Publishes decisions: returns each one that differs from the last. An address is shown from when
//! it is recorded until it is given up. It changes no allocation; `take` calls it.

use super::machine::Addresses;
use super::record::{Age, HolderRef};
use super::request::AddressRequest;
use super::requester::Requester;
use super::verdict::{Decision, Draining, Granted, NoticeKind, Verdict};
use crate::objects::{Family, Timestamp};
use crate::outcome::Reason;
use std::fmt::{self, Write as _};
use std::mem::take;
use std::net::IpAddr;
use std::sync::Arc;

impl Addresses {
    pub(super) fn publish(&mut self, now: Timestamp) -> Vec<(HolderRef, Option<Arc<Decision>>)> {
        let mut withdrawn = take(&mut self.withdrawn);
        withdrawn.sort_unstable();
        let mut changes: Vec<_> = withdrawn.into_iter().map(|holder| (holder, None)).collect();
        for age in take(&mut self.to_publish) {
            changes.extend(self.publish_one(&age, now));
        }
        changes
    }

    fn publish_one(
        &mut self,
        age: &Age,
        now: Timestamp,
    ) -> Option<(HolderRef, Option<Arc<Decision>>)> {
        let requester = self.requesters.get(&age.holder)?;
        let new = self.current_decision(requester, now);
        if requester.published.as_deref() == new.as_ref()
            || self.is_in_passing(requester, new.as_ref())
        {
            return None;
        }
        let new = new.map(Arc::new);
        let requester = self.requesters.get_mut(&age.holder)?;
        let old = std::mem::replace(&mut requester.published, new.clone());
        let shown = old.iter().flat_map(|it| {
            it.addresses.iter().map(|it| it.address).chain(it.draining.iter().map(|it| it.address))
        });
        for address in shown {
            if !requester.unacked.contains(&address) {
                requester.unacked.push(address);
            }
        }
        let holder = requester.request.holder.clone();
        for Granted { address, .. } in old.iter().flat_map(|it| &it.addresses) {
            // An address that the machine gives up is held until it is no longer shown. This one is
            // not held: another writer took it.
            if self.ledger.hold(&holder.uid, *address).is_none() {
                let message =
                    format!("lost {address}: its Address object no longer lists this holder");
                self.tell(&holder, NoticeKind::AddressLost, message);
            }
        }
        Some((holder, new))
    }

    /// Whether a decision says only that an address is being recorded, and no write failed. It is
    /// not published: mostly it is over at once, and each decision costs a write.
    fn is_in_passing(&self, requester: &Requester, new: Option<&Decision>) -> bool {
        let Some(new) = new.filter(|new| new.verdict.reason == Reason::Recording) else {
            return false;
        };
        let same = match &requester.published {
            Some(old) => (&old.addresses, &old.draining) == (&new.addresses, &new.draining),
            None => new.addresses.is_empty() && new.draining.is_empty(),
        };
        let mut entries =
            requester.targets.iter().flatten().filter_map(|it| self.ledger.entry(*it));
        same && entries.all(|entry| entry.failures == 0)
    }

    fn current_decision(&self, requester: &Requester, now: Timestamp) -> Option<Decision> {
        let request = &*requester.request;
        let holds = self.ledger.holds(requester.uid());
        if request.wants_nothing() {
            // No decision for a requester that has no address.
            let verdict = Verdict::new(Reason::Released, "it asks for no address of a pool");
            return (!holds.is_empty()).then_some(Decision {
                addresses: Vec::new(),
                draining: Vec::new(),
                verdict,
            });
        }
        let serves = |family: Family| -> Option<IpAddr> {
            let mut confirmed = holds.iter().filter(|hold| {
                hold.confirmed && hold.leave.is_none() && Family::of(hold.address) == family
            });
            let target = requester.targets[family as usize];
            let recorded = confirmed.clone().find(|hold| Some(hold.address) == target);
            recorded.or_else(|| confirmed.next()).map(|hold| hold.address)
        };
        let draining = holds.iter().filter(|hold| hold.confirmed).filter_map(|hold| {
            let until = hold.leave.filter(|_| self.drains(requester, hold, now))?;
            Some(Draining { address: hold.address, until })
        });
        let draining = draining.collect();
        let pool_of = |it: IpAddr| self.ledger.pools.of(it).map(|slot| slot.pool.name.clone());
        // An address of another family stays until there is one in its place.
        let others =
            [Family::V4, Family::V6].into_iter().filter(|it| !requester.families.contains(it));
        let granted = requester.families.iter().copied().chain(others).filter_map(serves);
        let addresses: Vec<Granted> =
            granted.map(|it| Granted { address: it, pool: pool_of(it) }).collect();
        let verdict = self.verdict(request, requester, &addresses);
        Some(Decision { addresses, draining, verdict })
    }

    fn verdict(
        &self,
        request: &AddressRequest,
        requester: &Requester,
        addresses: &[Granted],
    ) -> Verdict {
        if let Some(problem) = &requester.problem {
            return problem.clone();
        }
        let mut message = String::with_capacity(48);
        let recorded = |address| addresses.iter().any(|it| it.address == address);
        for target in requester.targets.iter().flatten().filter(|it| !recorded(**it)) {
            let and = if message.is_empty() { "" } else { " and " };
            append(&mut message, format_args!("{and}{target}"));
        }
        if !message.is_empty() {
            message.push_str(" is being recorded");
            return Verdict::new(Reason::Recording, message);
        }
        for Granted { address, pool } in addresses {
            let and = if message.is_empty() { "" } else { " and " };
            append(&mut message, format_args!("{and}{address}"));
            if let Some(pool) = pool {
                append(&mut message, format_args!(" of pool {pool}"));
            }
        }
        if let Some(name) = request.name() {
            append(&mut message, format_args!(", from {name}"));
        }
        if let Some(note) = &requester.note {
            append(&mut message, format_args!("; {note}"));
        }
        Verdict::new(Reason::Assigned, message)
    }
}

fn append(text: &mut String, more: fmt::Arguments<'_>) {
    // Writing to a String does not fail.
    let _ = text.write_fmt(more);
}
