//! Observes events: records them, and enqueues the requesters and addresses that they touch. Nothing is decided here.

use super::entry::User;
use super::machine::{Addresses, same_labels};
use super::record::{Age, HolderKey, Record};
use super::request::AddressRequest;
use super::requester::Requester;
use super::{Event, HolderKind, Kind, Object};
use crate::key::ObjectKey;
use crate::objects::{Timestamp, Version};
use std::net::IpAddr;
use std::sync::Arc;

impl Addresses {
    /// Observes an event. An unchanged object changes nothing.
    pub fn handle(&mut self, event: Event, now: Timestamp) {
        match event {
            Event::Begin(kind) => {
                self.relists[kind as usize].begin();
                self.listing_addresses |= kind == Kind::Address;
            }
            Event::Done(kind) => {
                self.sweep(kind, now);
                self.relists[kind as usize].done();
            }
            Event::Apply(object) => self.apply(*object),
            Event::Delete(kind, key) => self.delete(kind, &key),
            Event::Recorded(record) => self.record(record),
            Event::Unrecorded { address, version } => self.unrecord(address, version.as_ref(), now),
            Event::Resolved { name, answer } => {
                if self.answers.get(&name) != Some(&answer)
                    && let Some(ages) = self.by_name.get(&name)
                {
                    self.dirty.extend(ages.iter().cloned());
                    self.answers.insert(name, answer);
                }
            }
            Event::Shown { holder, addresses } => {
                if let Some(requester) = self.requesters.get_mut(&holder.holder_key())
                    && *requester.uid() == holder.uid
                {
                    requester.unacked = addresses;
                    if self.ledger.is_leaving(&holder.uid) {
                        self.dirty.insert(requester.request.age());
                    }
                }
            }
            Event::Serving { holder, places } => {
                let uid = holder.uid.clone();
                match places.is_empty() {
                    true => self.serving.remove(&uid),
                    false => self.serving.insert(uid.clone(), places),
                };
                self.to_bury.insert(uid);
                self.ledger.touched.push(holder);
            }
            Event::Confirmed { holder, exists } => {
                if !exists && self.requester_of(&holder).is_none() {
                    self.bury(&holder.uid);
                }
            }
            Event::Written { id, result } => self.written(id, result, now),
        }
    }

    fn apply(&mut self, object: Object) {
        match object {
            Object::Pool(pool) => {
                let epoch = self.relists[Kind::Pool as usize].epoch();
                self.ledger.pools.apply(pool, epoch);
            }
            Object::Namespace(namespace) => {
                let epoch = self.relists[Kind::Namespace as usize].epoch();
                let same = same_labels(self.namespaces.get(&namespace.name), &namespace.labels);
                self.namespaces.insert(namespace.name.clone(), (namespace.labels, epoch));
                if !same {
                    self.touch_namespace(&namespace.name);
                }
            }
            Object::Node { name, addresses } => {
                let epoch = self.relists[Kind::Node as usize].epoch();
                let old = self.nodes.insert(name.clone(), (addresses.clone(), epoch));
                let old = old.map(|(old, _)| old).unwrap_or_default();
                self.set_uses(&User::Node(name), &old, &addresses);
            }
            Object::Request(request) => self.apply_request(request),
        }
    }

    fn apply_request(&mut self, request: AddressRequest) {
        let who = request.holder_key();
        let epoch = self.relists[kind_of(who.kind) as usize].epoch();
        // The old object of this name may be the only requester of the DNS name: its removal drops the answer.
        let answer = request.name().and_then(|name| self.answers.get(name).cloned());
        if let Some(requester) = self.requesters.get_mut(&who) {
            requester.epoch = epoch;
            if *requester.request == request {
                return;
            }
            let same = requester.request.holder.uid == request.holder.uid;
            if !same || requester.request.created != request.created {
                self.remove_requester(&who);
            }
        }
        self.gone.remove(&request.holder.uid);
        let request = Arc::new(request);
        let age = request.age();
        let old = match self.requesters.get_mut(&who) {
            Some(requester) => Some(std::mem::replace(&mut requester.request, request.clone())),
            None => {
                self.requesters.insert(who.clone(), Requester::new(request.clone(), epoch));
                self.touch_partners(&request.holder.uid);
                None
            }
        };
        self.change_uses(old.as_deref(), Some(&request));
        let old_name = old.as_ref().and_then(|old| old.name());
        if old_name != request.name() {
            self.unname(old_name, &age);
            if let Some(name) = request.name() {
                self.by_name.entry(name.clone()).or_default().insert(age.clone());
                if let Some(answer) = answer {
                    self.answers.entry(name.clone()).or_insert(answer);
                }
            }
        }
        // The watch event of a status that was just written is no news.
        let holds = self.ledger.holds(&request.holder.uid);
        let held = |address: &IpAddr| holds.iter().any(|hold| hold.address == *address);
        if !(old.is_some_and(|old| old.wishes_as(&request))
            && request.status.iter().all(held)
            && !self.ledger.is_leaving(&request.holder.uid))
        {
            self.dirty.insert(age);
        }
    }

    /// A holder is observed for the first time: its partners could not be judged before.
    fn touch_partners(&mut self, uid: &str) {
        let held = self.ledger.holds(uid).iter().filter_map(|hold| self.ledger.held(hold.address));
        let shared = held.filter(|held| held.holders.len() > 1).flat_map(|held| &held.holders);
        let partners: Vec<_> = shared.map(|it| it.holder.clone()).collect();
        self.ledger.touched.extend(partners);
    }

    fn unname(&mut self, name: Option<&Arc<str>>, age: &Age) {
        let Some(name) = name else { return };
        let Some(ages) = self.by_name.get_mut(name) else { return };
        ages.remove(age);
        if ages.is_empty() {
            self.by_name.remove(name);
            self.answers.remove(name);
        }
    }

    /// A requester uses other addresses, or other labels may change which of its uses count.
    fn change_uses(&mut self, old: Option<&AddressRequest>, new: Option<&AddressRequest>) {
        let Some(age) = new.or(old).map(AddressRequest::age) else { return };
        // A tenant's uses count only within bounds; which of them do is decided in `take`.
        let split = |request: Option<&AddressRequest>| match request {
            Some(request) if request.tenant().is_some() => (request.uses.clone(), Vec::new()),
            Some(request) => (Vec::new(), request.uses.clone()),
            None => <_>::default(),
        };
        let ((old_tenant, old_own), (new_tenant, new_own)) = (split(old), split(new));
        let same = |old: &AddressRequest, new: &AddressRequest| old.labels == new.labels;
        let fits_as_before = old.zip(new).is_some_and(|(old, new)| same(old, new));
        if old_tenant != new_tenant || !fits_as_before {
            self.put_uses(&age, &old_tenant, &new_tenant);
        }
        self.set_uses(&User::Holder(age.holder), &old_own, &new_own);
    }

    fn set_uses(&mut self, user: &User, old: &[IpAddr], new: &[IpAddr]) {
        for address in old.iter().filter(|it| !new.contains(it)) {
            self.ledger.remove_user(*address, user);
        }
        for address in new.iter().filter(|it| !old.contains(it)) {
            self.ledger.add_user(*address, user.clone());
        }
    }

    fn touch_namespace(&mut self, name: &Arc<str>) {
        self.ledger.uses.touch_namespace(name);
        let inside = self.unserved.iter().filter(|age| age.holder.key.namespace == *name);
        self.dirty.extend(inside.cloned());
    }

    fn delete(&mut self, kind: Kind, key: &ObjectKey) {
        match kind {
            Kind::Pool => self.ledger.pools.delete(&key.name),
            Kind::Namespace => {
                self.namespaces.remove(&key.name);
                self.ledger.uses.touch_namespace(&key.name);
            }
            Kind::Node => {
                if let Some((old, _)) = self.nodes.remove(&key.name) {
                    self.set_uses(&User::Node(key.name.clone()), &old, &[]);
                }
            }
            Kind::Service | Kind::LoadBalancer | Kind::ExternalIp => {
                let kind = match kind {
                    Kind::LoadBalancer => HolderKind::LoadBalancer,
                    Kind::ExternalIp => HolderKind::ExternalIp,
                    _ => HolderKind::Service,
                };
                self.remove_requester(&HolderKey { key: key.clone(), kind });
            }
            // Addresses have events of their own.
            Kind::Address => {}
        }
    }

    fn remove_requester(&mut self, who: &HolderKey) {
        let Some(requester) = self.requesters.remove(who) else { return };
        let (age, holder) = (requester.request.age(), requester.request.holder.clone());
        for wait in &requester.waits {
            self.ledger.waiters.remove(wait, &age);
        }
        self.unserved.remove(&age);
        self.dirty.remove(&age);
        self.to_publish.remove(&age);
        self.unname(requester.request.name(), &age);
        self.change_uses(Some(&requester.request), None);
        if requester.published.is_some() {
            self.withdrawn.push(holder.clone());
        }
        self.bury(&holder.uid);
    }

    /// A holder is gone for sure: its addresses are to be released.
    fn bury(&mut self, uid: &Arc<str>) {
        if !self.ledger.holds(uid).is_empty() {
            self.gone.insert(uid.clone());
            self.to_bury.insert(uid.clone());
        }
    }

    /// A list has ended: objects that it did not deliver are deleted.
    fn sweep(&mut self, kind: Kind, now: Timestamp) {
        let relist = self.relists[kind as usize];
        match kind {
            Kind::Pool => self.ledger.pools.sweep(relist),
            Kind::Namespace => {
                let gone =
                    self.namespaces.extract_if(.., |_, (_, epoch)| relist.has_missed(*epoch));
                gone.for_each(|(name, _)| self.ledger.uses.touch_namespace(&name));
            }
            Kind::Node => {
                let missed = relist.missed(&self.nodes, |(_, epoch)| *epoch);
                missed.into_iter().for_each(|name| self.delete(kind, &ObjectKey::new("", name)));
            }
            Kind::Service | Kind::LoadBalancer | Kind::ExternalIp => {
                let its = self.requesters.iter().filter(|(who, _)| kind_of(who.kind) == kind);
                let missed = relist.missed(its, |requester| requester.epoch);
                missed.iter().for_each(|who| self.remove_requester(who));
            }
            Kind::Address => {
                self.listing_addresses = false;
                for (address, entry) in &mut self.ledger.entries {
                    // Only once, when the list has ended: a list may take long.
                    if std::mem::take(&mut entry.answered_in_list) {
                        entry.doubt = true;
                        self.ledger.to_write.insert(*address);
                    }
                }
                let mut gone = Vec::new();
                let entries = self.ledger.entries.iter_mut();
                for (address, entry) in entries.filter(|(_, it)| relist.has_missed(it.epoch)) {
                    match &mut entry.sent {
                        Some(sent) => sent.unseen = true,
                        None if entry.recorded.is_some() => gone.push(*address),
                        None => {}
                    }
                }
                gone.into_iter().for_each(|address| self.unrecord(address, None, now));
                // A list may be older than a deletion that came while it was requested: the watch may still deliver
                // that object as if it existed.
                self.tombstones.retain(|_, (_, epoch)| relist.is_recent(*epoch));
            }
        }
    }

    /// The API has an Address object. While a write of it is in flight, the answer decides what this event means;
    /// otherwise the record is the truth.
    fn record(&mut self, record: Record) {
        let Record { address, version, content } = record;
        if self.tombstones.get(&address).is_some_and(|(dead, _)| !dead.is_older_than(&version)) {
            return;
        }
        self.tombstones.remove(&address);
        let entry = self.ledger.entries.entry(address).or_default();
        entry.epoch = self.relists[Kind::Address as usize].epoch();
        let known = entry.recorded.as_ref().map(|(_, known)| known);
        if known.is_some_and(|known| version.is_older_than(known)) {
            return;
        }
        // The object exists, or the watch will deliver its deletion.
        (entry.doubt, entry.answered_in_list) = (false, false);
        if let Some(sent) = &mut entry.sent {
            (sent.unseen, sent.unsure) = (false, false);
            // An object that was created after the deletion is not gone.
            sent.gone.take_if(|gone| !version.is_older_than(gone));
        }
        if known == Some(&version) {
            return;
        }
        let idle = entry.sent.is_none();
        let as_meant = entry.held.as_ref() == Some(&content);
        self.ledger.set_recorded(address, Some((content, version)));
        if idle && !as_meant {
            self.ledger.believe_record(address);
        }
    }

    /// The API no longer has an Address object. Holders that want the address keep it, and it is written again.
    fn unrecord(&mut self, address: IpAddr, version: Option<&Version>, now: Timestamp) {
        let older = |dead: &Version| version.is_some_and(|told| told.is_older_than(dead));
        if self.tombstones.get(&address).is_none_or(|(dead, _)| !older(dead)) {
            self.tombstones.remove(&address);
        }
        let Some(entry) = self.ledger.entries.get_mut(&address) else { return };
        if let (Some((_, known)), Some(version)) = (&entry.recorded, version)
            && version.is_older_than(known)
        {
            return;
        }
        if let Some(sent) = &mut entry.sent {
            sent.gone = version.cloned();
        }
        let idle = entry.sent.is_none();
        self.ledger.set_recorded(address, None);
        if idle {
            self.keep_wanted(address, now);
        }
    }

    /// Removes the holders that do not want an address that is not recorded.
    pub(super) fn keep_wanted(&mut self, address: IpAddr, now: Timestamp) {
        let Some(held) = self.ledger.held(address) else { return };
        let mut content = held.clone();
        content.holders.retain(|it| self.is_wanted(&it.holder, address, now));
        let rest = (!content.holders.is_empty()).then_some(content);
        self.ledger.set_held(address, rest);
    }
}

fn kind_of(kind: HolderKind) -> Kind {
    match kind {
        HolderKind::Service => Kind::Service,
        HolderKind::LoadBalancer => Kind::LoadBalancer,
        HolderKind::ExternalIp => Kind::ExternalIp,
    }
}
