//! The certificate Secrets of one load balancer: what they contain, what they should contain, and the next write.
//! Keys pass through on their way from the users' Secrets to Bowline's, and are kept only until they are written.
//! It does no I/O; `State::next` asks it.

use super::observed::CertificatesSeen;
use super::packed::Packed;
use bowline_api::{convert, names};
use bowline_core::certificate_rooms::{self, CertificateRooms, Need, ReadOrder, Room, Withheld};
use bowline_core::clock::Uptime;
use bowline_core::key::ObjectKey;
use bowline_core::planner::NeededCertificates;
use bowline_core::shard::{Shards, Stamp, Write};
use bowline_core::update::Certificate;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::mem::replace;
use std::sync::Arc;
use std::time::Duration;

/// The first wait before a certificate that was not found is looked for again. Each later wait is twice as long.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The longest wait before a missing certificate is looked for again.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// While all Secrets are full, waiting certificates are retried after this time.
const FULL: Duration = Duration::from_secs(5);

/// The most certificates read at once. They are written before more are read.
const BATCH: usize = 128;
/// The most writes before more certificates are read: enough to write each Secret once.
const MOST_WRITES: u32 = certificate_rooms::SECRETS;

/// A certificate that was looked for and not found.
#[derive(Debug)]
struct Missed {
    places: Vec<ObjectKey>,
    wait: Duration,
    /// When it is looked for again.
    until: Uptime,
}

/// A certificate to read: its hash, and the users' Secrets that should contain it.
type Sought = (Arc<str>, Vec<ObjectKey>);

/// Certificates that were read, by hash.
pub(super) type Fetched = BTreeMap<Arc<str>, Arc<Certificate>>;

/// The state of one load balancer's certificates.
#[derive(Debug)]
pub(super) struct Certificates {
    packed: Packed<Arc<str>, Option<Room>>,
    fetched: Fetched,
    /// The turns in which namespaces' certificates are read.
    turns: ReadOrder,
    /// The number of writes since certificates were last read.
    writes: u32,
    missed: BTreeMap<Arc<str>, Missed>,
    /// Which certificates have room, and which are withheld.
    rooms: CertificateRooms,
    /// Whether the set of withheld certificates changed since the last `take_withheld_changed`.
    withheld_changed: bool,
    /// The arguments of the last `next` that found nothing to do.
    rested: Option<(u64, bool, Option<String>)>,
}

/// What a load balancer needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Needed<'a> {
    /// The certificates, by hash.
    pub(super) certificates: &'a NeededCertificates,
    /// Changes whenever the certificates change.
    pub(super) revision: u64,
    /// Whether only one namespace can use the load balancer.
    pub(super) alone: bool,
}

impl Default for Certificates {
    fn default() -> Self {
        Self {
            // A hash names no namespace: `want` assigns each certificate to one. Certificates that no object has
            // needed since this leader began are treated as one more namespace.
            packed: Packed::new(Shards::new(certificate_rooms::SECRET), |_| "".into()),
            fetched: Fetched::new(),
            turns: ReadOrder::default(),
            writes: 0,
            missed: BTreeMap::new(),
            rooms: CertificateRooms::default(),
            withheld_changed: false,
            rested: None,
        }
    }
}

/// The next step.
#[derive(Debug)]
pub(super) enum CertificateStep {
    /// Read these certificates.
    Fetch(Vec<Sought>),
    /// Write this Secret.
    Write(CertificatesWrite),
    /// Requeue at this time.
    Later(Uptime),
}

/// A write of one Secret.
#[derive(Debug)]
pub(super) struct CertificatesWrite {
    pub(super) write: Write<Arc<str>, Option<Room>>,
    /// Its name.
    pub(super) name: String,
    /// The version that it replaces. None: the Secret is created.
    pub(super) version: Option<String>,
    /// The certificates that it adds.
    pub(super) added: Fetched,
    removed: Vec<Arc<str>>,
}

impl CertificatesWrite {
    /// Whether the Secret is deleted.
    pub(super) fn is_deletion(&self) -> bool {
        matches!(self.write, Write::Delete { .. })
    }

    /// The merge patch, which also sets the owner that `owned` names. It contains only the changed certificates, so
    /// no other key has to be kept for it.
    pub(super) fn patch(&self, version: &str, owned: &ObjectMeta) -> Value {
        let mut data = json!(convert::certificates_data(&self.added));
        if let Some(data) = data.as_object_mut() {
            data.extend(self.removed.iter().map(|hash| (hash.to_string(), Value::Null)));
        }
        let metadata = json!({
            "resourceVersion": version,
            "annotations": self.annotations(),
            "labels": owned.labels,
            "ownerReferences": owned.owner_references,
        });
        json!({"metadata": metadata, "data": data})
    }

    /// The annotations of the Secret: the room of each certificate, for the next leader.
    pub(super) fn annotations(&self) -> BTreeMap<String, String> {
        let items = self.write.items().into_iter().flatten();
        let rooms = items.filter_map(|(hash, stamp)| Some((hash, stamp.hash?)));
        [(names::ANNOTATION_ROOMS.to_owned(), convert::rooms_text(rooms))].into()
    }
}

impl Certificates {
    /// Records an observed Secret.
    pub(super) fn seen(&mut self, secret: CertificatesSeen) {
        let Some(index) = names::plan_index(&secret.name) else { return };
        if !self.packed.is_news(index, &secret.version) {
            return;
        }
        self.rested = None;
        let items = secret.sizes.into_iter().map(|(hash, size)| {
            let room = secret.rooms.get(&hash).copied();
            (hash, Stamp { hash: room, size })
        });
        self.packed.seen(index, secret.version, secret.owner, items.collect());
    }

    /// Records a write that was carried out.
    pub(super) fn wrote(&mut self, write: Write<Arc<str>, Option<Room>>, version: Option<String>) {
        self.rested = None;
        self.packed.wrote(write, version);
    }

    /// Records that a Secret is deleted.
    pub(super) fn gone(&mut self, name: &str) {
        if let Some(index) = names::plan_index(name) {
            self.rested = None;
            self.packed.gone(index);
        }
    }

    /// Takes in certificates that were read, and those that were not found.
    pub(super) fn fetched(&mut self, fetched: Fetched, missed: Vec<Sought>, now: Uptime) {
        self.rested = None;
        self.missed.retain(|hash, _| !fetched.contains_key(hash));
        for (hash, places) in missed {
            let before = self.missed.get(&hash).filter(|before| before.places == places);
            let wait = before.map_or(FIRST_WAIT, |before| (before.wait * 2).min(LONGEST_WAIT));
            self.missed.insert(hash, Missed { places, wait, until: now + wait });
        }
        self.fetched.extend(fetched);
        self.writes = 0;
    }

    /// Records that a Secret's write failed. The other Secrets go on; this one is retried at `until`.
    pub(super) fn refused(&mut self, name: &str, until: Uptime) {
        if let Some(index) = names::plan_index(name) {
            self.rested = None;
            self.packed.refused(index, until);
        }
    }

    /// The names of all Secrets.
    pub(super) fn names(&self, load_balancer: &str) -> impl Iterator<Item = String> {
        self.packed.indices().map(move |index| names::certificates_secret(load_balancer, index))
    }

    /// The known version of a Secret.
    pub(super) fn version(&self, name: &str) -> Option<&str> {
        self.packed.version(names::plan_index(name)?)
    }

    /// Whether the agent does not have a certificate yet, though it is not withheld.
    pub(super) fn lacks(&self, hash: &Arc<str>) -> bool {
        self.packed.seen_as(hash).is_none() && self.rooms.withholds(hash).is_none()
    }

    /// The next step towards Secrets that contain exactly what is needed. `may_remove`: no Plan refers to a
    /// certificate that is not needed any more. If nothing changed since there was last nothing to do, it returns
    /// at once.
    ///
    /// Certificates that were read are written before others are read, at most `MOST_WRITES` at a time. So neither
    /// certificates that change before they can be read, nor certificates that change all the time, delay those of
    /// other namespaces. A namespace with no waiting write is read after the next write: it does not wait for
    /// the writes of others.
    pub(super) fn next(
        &mut self,
        load_balancer: &str,
        uid: Option<&str>,
        needed: Needed<'_>,
        may_remove: bool,
        now: Uptime,
    ) -> Option<CertificateStep> {
        let look = (needed.revision, may_remove, uid.map(ToOwned::to_owned));
        if self.rested.as_ref() == Some(&look) {
            return None;
        }
        self.admit(needed);
        let needed = needed.certificates;
        self.missed.retain(|hash, missed| {
            needed.get(hash).is_some_and(|it| *it.secrets() == *missed.places)
        });
        self.want(needed, may_remove);
        let absent = self.absent(needed, now);
        if self.writes > 0 {
            let idle = |(namespace, _): &&(Arc<str>, Sought)| !self.packed.waits(namespace);
            let early: Vec<_> = absent.iter().filter(idle).cloned().collect();
            if !early.is_empty() {
                return Some(CertificateStep::Fetch(self.turns.take(early, BATCH)));
            }
        }
        let write = match absent.is_empty() || self.writes < MOST_WRITES {
            true => self.next_write(uid, now),
            false => None,
        };
        let Some(write) = write else {
            if !absent.is_empty() {
                return Some(CertificateStep::Fetch(self.turns.take(absent, BATCH)));
            }
            if self.packed.is_settled() {
                self.fetched.clear();
            }
            if self.packed.is_at_rest() && self.missed.is_empty() {
                self.rested = Some(look);
            }
            let missed = self.missed.values().map(|missed| missed.until);
            return missed.chain(self.packed.tried_again()).min().map(CertificateStep::Later);
        };
        self.writes += 1;
        let (index, items) = (write.index(), write.items().cloned().unwrap_or_default());
        let before = self.packed.items(index).cloned().unwrap_or_default();
        let added = items.keys().filter(|hash| !before.contains_key(*hash));
        let added = added
            .filter_map(|hash| self.fetched.get(hash).map(|it| (Arc::clone(hash), Arc::clone(it))));
        Some(CertificateStep::Write(CertificatesWrite {
            name: names::certificates_secret(load_balancer, index),
            version: self.packed.version(index).map(ToOwned::to_owned),
            added: added.collect(),
            removed: before.keys().filter(|hash| !items.contains_key(*hash)).cloned().collect(),
            write,
        }))
    }

    /// The certificates that have room and are to be read now, each with its namespace, the one of the oldest
    /// Ingress first.
    fn absent(&self, needed: &NeededCertificates, now: Uptime) -> Vec<(Arc<str>, Sought)> {
        let absent = needed
            .iter()
            .filter(|(hash, _)| self.rooms.withholds(hash).is_none() && !self.has(hash))
            .filter(|(hash, _)| self.missed.get(*hash).is_none_or(|missed| missed.until <= now));
        let mut absent: Vec<_> = absent.collect();
        absent.sort_by_key(|(_, it)| it.since());
        let absent = absent.into_iter().filter_map(|(hash, it)| {
            let namespace = Arc::clone(&it.secrets().first()?.namespace);
            Some((namespace, (Arc::clone(hash), it.secrets().to_vec())))
        });
        absent.collect()
    }

    /// The next write that may be tried now. A write beyond the last Secret waits until there is room in the
    /// others: replaced certificates leave them when no Plan refers to them any more.
    fn next_write(
        &mut self,
        uid: Option<&str>,
        now: Uptime,
    ) -> Option<Write<Arc<str>, Option<Room>>> {
        loop {
            let write = self.packed.next(uid, now)?;
            if write.index() < certificate_rooms::SECRETS || write.items().is_none() {
                return Some(write);
            }
            self.packed.refused(write.index(), now + FULL);
        }
    }

    /// Decides which certificates have room.
    fn admit(&mut self, needed: Needed<'_>) {
        let before = self.rooms.withheld().clone();
        let needs = needed.certificates.iter().map(|(hash, it)| {
            let seen = self.packed.seen_as(hash);
            Need {
                hash,
                size: it.size(),
                places: it.secrets(),
                held: seen.is_some(),
                room: seen.and_then(|stamp| stamp.hash),
                since: it.since(),
            }
        });
        let leaving = self.packed.held().filter(|hash| !needed.certificates.contains_key(*hash));
        let leaving = leaving.filter_map(|hash| {
            let room = self.packed.seen_as(hash)?.hash?;
            Some((Arc::clone(hash), room))
        });
        self.rooms.admit(needs, leaving, needed.alone);
        let (rooms, packed) = (&self.rooms, &self.packed);
        // A written certificate never moves to another Secret, so its content is not kept.
        self.fetched.retain(|hash, _| {
            let wanted = needed.certificates.contains_key(hash) && !packed.holds(hash);
            wanted && rooms.withholds(hash).is_none()
        });
        if *rooms.withheld() != before {
            self.withheld_changed = true;
        }
    }

    /// The withheld certificates, by hash.
    pub(super) fn withheld(&self) -> &BTreeMap<Arc<str>, Withheld> {
        self.rooms.withheld()
    }

    /// Whether the withheld certificates changed since the last call.
    pub(super) fn take_withheld_changed(&mut self) -> bool {
        replace(&mut self.withheld_changed, false)
    }

    fn has(&self, hash: &Arc<str>) -> bool {
        self.packed.holds(hash) || self.fetched.contains_key(hash)
    }

    fn want(&mut self, needed: &NeededCertificates, may_remove: bool) {
        let (mut wanted, mut owned) = (Vec::new(), Vec::new());
        for (hash, it) in
            needed.iter().filter(|(hash, _)| self.rooms.withholds(hash).is_none() && self.has(hash))
        {
            let stamp = Stamp { hash: self.rooms.room(hash), size: it.size() };
            owned.extend(it.secrets().first().map(|secret| (hash, &secret.namespace)));
            if self.packed.wanted().get(hash) != Some(&stamp) {
                wanted.push((Arc::clone(hash), Some(stamp)));
            }
        }
        // Without its content it cannot be written, so it must not count as written.
        let lost = self.packed.wanted().keys().filter(|hash| !self.has(hash));
        wanted.extend(lost.map(|hash| (Arc::clone(hash), None)));
        let old = self.packed.held().chain(self.packed.wanted().keys());
        for hash in old.filter(|hash| !needed.contains_key(*hash)) {
            let seen = self.packed.seen_as(hash).copied();
            let held = |hash: &Arc<str>| self.packed.holds(hash);
            let kept =
                seen.filter(|seen| !may_remove || self.rooms.reserves(hash, seen.hash, held));
            wanted.push((Arc::clone(hash), kept));
        }
        for (hash, namespace) in owned {
            self.packed.belongs(hash, namespace);
        }
        for (hash, stamp) in wanted {
            self.packed.want(hash, stamp);
        }
    }
}

#[cfg(test)]
mod tests;
