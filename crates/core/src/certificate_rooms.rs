//! Decides which certificates the agents of a load balancer get. The Secrets that an agent may read are limited in
//! number and size, so each namespace has a share of them. A certificate that is handed out stays. The bytes that a
//! user's Secret has stay reserved for its next certificate (its room). A waiting certificate is handed out
//! as soon as there is room, the one of the oldest Ingress first. Sizes come with the watch of users' Secrets, so a
//! decision waits for no read. The room is recorded beside each certificate, so a new leader knows which certificate
//! succeeds which. This module does no I/O; the leader's writer says which certificates are needed.
//!
//! [`crate::quota`] limits each namespace's share of the bytes that may be needed at once. A quarter of the room is
//! kept free for successors.

mod read_order;
mod room;

#[cfg(test)]
mod tests;

pub use read_order::ReadOrder;
pub use room::{Room, SecretHash};

use crate::key::{ConsumerRef, ObjectKey};
use crate::objects::Timestamp;
use crate::outcome::{Problem, Reason};
use crate::plan::Host;
use crate::quota::{Full, Quota, Taken};
use crate::update::{Extent, Refusal};
use room::Rooms;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// The most Secrets of one load balancer: as many as a Role should list by name.
pub const SECRETS: u32 = 64;
/// The most bytes of certificates in one Secret: base64 adds a third, and 1 MiB is the limit.
pub const SECRET: usize = 600 * 1024;
/// The most bytes of one certificate: its chain and its key as PEM.
pub const LARGEST: usize = 40 * 1024;
/// While fewer bytes than these are used, some Secret has room for the largest certificate.
pub const CAPACITY: usize = SECRETS as usize * (SECRET - LARGEST);
/// The most bytes that may be needed at once. The rest is for successors: the replaced certificates stay until no Plan
/// refers to them.
const MOST: usize = CAPACITY / 4 * 3;
/// The bytes reserved for every namespace: about twenty certificates.
const SHARE: usize = 128 * 1024;
/// The limits of namespaces.
const QUOTA: Quota = Quota::of(MOST, SHARE);
/// The largest successor that may take over the room of a certificate of this size. Names and signatures vary in
/// length.
const fn alike(size: usize) -> usize {
    size + size / 8
}

/// A certificate that is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need<'a> {
    /// Its hash.
    pub hash: &'a Arc<str>,
    /// Its bytes.
    pub size: usize,
    /// The users' Secrets that contain it, sorted.
    pub places: &'a [ObjectKey],
    /// Whether agents have it already.
    pub held: bool,
    /// The room recorded beside it, if agents have it.
    pub room: Option<Room>,
    /// When the oldest object that needs it was created.
    pub since: Timestamp,
}

/// Why a certificate is not handed out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Withheld {
    /// It is larger than [`LARGEST`].
    TooLarge(usize),
    /// Its namespace has reached the limit of a namespace.
    NamespaceFull(Arc<str>),
    /// The namespace has used its reserved bytes, and the shared bytes are used up.
    CommonFull(Arc<str>),
    /// The load balancer has no room left.
    Full,
}

impl Withheld {
    /// The refusal for the Ingress that uses this certificate.
    pub fn refusal(&self, ingress: &ConsumerRef, host: &Host, lb: &str) -> Refusal {
        let message = format!(
            "the certificate of {host} is not handed to load balancer {lb}: {self}; \
             handshakes for this host fail, or use the previous certificate"
        );
        let problem = Problem::new(Reason::TooManyCertificates, message);
        Refusal { consumer: ingress.clone(), problem, extent: Extent::Part }
    }
}

impl fmt::Display for Withheld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const KIB: usize = 1024;
        match self {
            Self::TooLarge(size) => write!(
                f,
                "chain and key have {} KiB together, and at most {} KiB are possible",
                size.div_ceil(KIB),
                LARGEST / KIB
            ),
            Self::NamespaceFull(namespace) => write!(
                f,
                "namespace {namespace} has {} KiB of certificates on this load balancer, the limit per namespace",
                QUOTA.each / KIB
            ),
            Self::CommonFull(namespace) => write!(
                f,
                "namespace {namespace} uses its {} reserved KiB, and the room that all namespaces share \
                 is used up",
                QUOTA.own / KIB
            ),
            Self::Full => write!(
                f,
                "all {} KiB of certificates that the load balancer has room for are in use",
                QUOTA.most / KIB
            ),
        }
    }
}

/// The certificates of one load balancer: those that have a room, and those that are withheld.
#[derive(Clone, Debug, Default)]
pub struct CertificateRooms {
    rooms: Rooms,
    withheld: BTreeMap<Arc<str>, Withheld>,
}

/// The bytes that each namespace uses.
#[derive(Debug, Default)]
struct Used {
    by: BTreeMap<Arc<str>, usize>,
    taken: Taken,
}

impl Used {
    fn add(&mut self, namespace: &Arc<str>, size: usize) {
        let used = self.by.entry(namespace.clone()).or_default();
        self.taken.change(&QUOTA, *used, *used + size);
        *used += size;
    }

    fn remove(&mut self, namespace: &Arc<str>, size: usize) {
        let Some(used) = self.by.get_mut(namespace) else { return };
        self.taken.change(&QUOTA, *used, *used - size);
        *used -= size;
    }

    /// Why a namespace may not use `size` more bytes. `alone`: no other namespace can use this load balancer.
    fn refuse(&self, namespace: &Arc<str>, size: usize, alone: bool) -> Option<Withheld> {
        let used = self.by.get(namespace).copied().unwrap_or(0);
        let full = QUOTA.refuse(&self.taken, used, size, alone)?;
        Some(match full {
            Full::All(_) => Withheld::Full,
            Full::Namespace(_) => Withheld::NamespaceFull(namespace.clone()),
            Full::Common(_) => Withheld::CommonFull(namespace.clone()),
        })
    }
}

/// The successor of another certificate in the same user's Secret.
#[derive(Debug)]
struct Heir<'a> {
    need: Need<'a>,
    place: &'a ObjectKey,
    /// The bytes that are reserved for the Secret.
    reserved: usize,
}

impl Heir<'_> {
    /// Whether it is larger than its Secret's reserved bytes allow.
    fn grows(&self) -> bool {
        self.need.size > alike(self.reserved)
    }
}

impl CertificateRooms {
    /// Recomputes which certificates are handed out. `leaving`: certificates that agents have and no object needs any
    /// more, with the recorded room of each. `alone`: only one namespace can use the load balancer.
    ///
    /// A certificate that agents have stays. A successor takes over the room of its predecessor; while it does not fit,
    /// the room stays reserved. Waiting certificates come last.
    pub fn admit<'a>(
        &mut self,
        needs: impl IntoIterator<Item = Need<'a>>,
        leaving: impl IntoIterator<Item = (Arc<str>, Room)>,
        alone: bool,
    ) {
        let needs: Vec<_> = needs.into_iter().collect();
        let needed: BTreeSet<_> = needs.iter().map(|need| Arc::clone(need.hash)).collect();
        let mut before = std::mem::take(&mut self.rooms);
        before.learn(leaving);
        let mut used = Used::default();
        let (mut heirs, mut waiting) = (Vec::new(), Vec::new());
        for need in needs {
            let own = before.of(need.hash);
            if need.held || own.is_some() {
                self.hold(&need, own, &mut used);
                continue;
            }
            let free = |place: &&ObjectKey| {
                before.at(SecretHash::of(place)).is_some_and(|it| !needed.contains(&it.hash))
            };
            match need.places.iter().find(free) {
                Some(place) => heirs.push((need, place)),
                None => waiting.push(need),
            }
        }
        // A room that this pass gave to another certificate is not reserved a second time.
        let heirs = heirs.into_iter().filter_map(|(need, place)| {
            let at = SecretHash::of(place);
            if self.rooms.at(at).is_some() {
                waiting.push(need);
                return None;
            }
            let holder = before.at(at)?;
            used.add(&place.namespace, holder.size);
            self.rooms.put(at, Arc::clone(&holder.hash), holder.size);
            Some(Heir { need, place, reserved: holder.size })
        });
        let heirs = heirs.collect();
        self.withheld.clear();
        self.inherit(heirs, &mut used, alone);
        self.serve(waiting, used, alone);
    }

    /// Keeps the room of a certificate that agents have or are about to get: the recorded room first, else the one
    /// given before.
    fn hold(&mut self, need: &Need<'_>, own: Option<Room>, used: &mut Used) {
        let is = |room: Room| need.places.iter().find(|place| SecretHash::of(place) == room.place);
        let recorded = need.room.and_then(|room| is(room).zip(Some(room)));
        let given = recorded.or_else(|| own.and_then(|room| is(room).zip(Some(room))));
        let Some(place) = given.map(|(place, _)| place).or(need.places.first()) else { return };
        used.add(&place.namespace, need.size);
        // Keep the first recorded size, so that it does not creep up with each successor.
        let came = need.room.or(own).map(|room| room.size);
        let came = came.filter(|came| need.size <= alike(*came)).unwrap_or(need.size);
        self.rooms.put(SecretHash::of(place), Arc::clone(need.hash), came);
    }

    /// Gives room to successors: first those that fit into the reserved room, then larger ones, the oldest first.
    fn inherit(&mut self, mut heirs: Vec<Heir<'_>>, used: &mut Used, alone: bool) {
        heirs.sort_by_key(|heir| (heir.grows(), heir.need.since, Arc::clone(heir.need.hash)));
        for heir in heirs {
            let (hash, size) = (Arc::clone(heir.need.hash), heir.need.size);
            let namespace = &heir.place.namespace;
            used.remove(namespace, heir.reserved);
            if !heir.grows() {
                used.add(namespace, size);
                self.rooms.put(SecretHash::of(heir.place), hash, heir.reserved);
                continue;
            }
            match Self::first(&heir.need, used, alone) {
                Ok(place) => {
                    self.rooms.remove(SecretHash::of(heir.place));
                    used.add(&place.namespace, size);
                    self.rooms.put(SecretHash::of(place), hash, size);
                }
                Err(why) => {
                    used.add(namespace, heir.reserved);
                    self.withheld.insert(hash, why);
                }
            }
        }
    }

    /// Gives the remaining room to waiting certificates, the oldest first.
    fn serve(&mut self, mut waiting: Vec<Need<'_>>, mut used: Used, alone: bool) {
        waiting.sort_by(|a, b| (a.since, a.places, a.hash).cmp(&(b.since, b.places, b.hash)));
        for need in waiting {
            match Self::first(&need, &used, alone) {
                Ok(place) => {
                    used.add(&place.namespace, need.size);
                    self.rooms.put(SecretHash::of(place), Arc::clone(need.hash), need.size);
                }
                Err(why) => drop(self.withheld.insert(need.hash.clone(), why)),
            }
        }
    }

    /// The first of the certificate's Secrets in a namespace that has room for it.
    fn first<'a>(need: &Need<'a>, used: &Used, alone: bool) -> Result<&'a ObjectKey, Withheld> {
        if need.size > LARGEST {
            return Err(Withheld::TooLarge(need.size));
        }
        let mut why = None;
        for place in need.places {
            match used.refuse(&place.namespace, need.size, alone) {
                None => return Ok(place),
                refused => why = why.or(refused),
            }
        }
        Err(why.unwrap_or(Withheld::Full))
    }

    /// The room of a certificate that is handed out.
    pub fn room(&self, hash: &str) -> Option<Room> {
        self.rooms.of(hash)
    }

    /// Whether a certificate that no object needs stays handed out. It does until its successor is handed out, because
    /// the room that they share is recorded beside it. `room`: its recorded room. `held`: whether agents have a
    /// certificate.
    pub fn reserves(
        &self,
        hash: &str,
        room: Option<Room>,
        held: impl Fn(&Arc<str>) -> bool,
    ) -> bool {
        let holder = room.and_then(|room| self.rooms.at(room.place));
        holder.is_some_and(|holder| *holder.hash == *hash || !held(&holder.hash))
    }

    /// Why a certificate is withheld. None: it is handed out, or no object needs it.
    pub fn withholds(&self, hash: &str) -> Option<&Withheld> {
        self.withheld.get(hash)
    }

    /// All withheld certificates, by hash.
    pub fn withheld(&self) -> &BTreeMap<Arc<str>, Withheld> {
        &self.withheld
    }
}
