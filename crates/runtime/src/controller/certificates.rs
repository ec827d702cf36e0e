//! The Secrets by which one load balancer's agent gets its certificates: which they hold, which they
//! should hold, and the next write. Keys pass through on their way from the user's Secret to ours; they
//! are kept only until they are written.

use super::observed::CertificatesSeen;
use super::packed::Packed;
use bowline_api::{convert, names};
use bowline_core::clock::Uptime;
use bowline_core::key::ObjectKey;
use bowline_core::planner::NeededCertificates;
use bowline_core::shard::{Shards, Stamp, Write};
use bowline_core::update::Certificate;
use bowline_core::vault::{self, Need, Room, Turns, Vault, Withheld};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::mem::replace;
use std::sync::Arc;
use std::time::Duration;

/// What is not found is looked for again after this, and each time after twice as long.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// When all Secrets are full, what waits is tried again after this.
const FULL: Duration = Duration::from_secs(5);

/// The most certificates that are read at once: what was read is written before more is read.
const BATCH: usize = 128;
/// The most writes before more is read. Each Secret can be written once by then.
const MOST_WRITES: u32 = vault::SECRETS;

/// A certificate that was looked for in vain.
#[derive(Debug)]
struct Missed {
    places: Vec<ObjectKey>,
    wait: Duration,
    /// When it is looked for again.
    until: Uptime,
}

/// A certificate to be read: its hash, and the Secrets that should have it.
type Sought = (Arc<str>, Vec<ObjectKey>);

/// Certificates that were read, by hash.
pub(super) type Fetched = BTreeMap<Arc<str>, Arc<Certificate>>;

/// What is known of the certificates of a load balancer.
#[derive(Debug)]
pub(super) struct Certificates {
    packed: Packed<Arc<str>, Option<Room>>,
    fetched: Fetched,
    /// Whose certificates are read next.
    turns: Turns,
    /// How many writes there were since certificates were last read.
    writes: u32,
    missed: BTreeMap<Arc<str>, Missed>,
    /// Who has room, and who has none.
    vault: Vault,
    /// Whether the set of withheld certificates changed since the last `take_withheld_changed`.
    withheld_changed: bool,
    /// What was needed, by its revision, when there was last nothing to do.
    rested: Option<(u64, bool, Option<String>)>,
}

/// What a load balancer needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Needed<'a> {
    /// The certificates, by hash.
    pub(super) certificates: &'a NeededCertificates,
    /// Another number whenever those are others.
    pub(super) revision: u64,
    /// Whether the load balancer is for one namespace only.
    pub(super) alone: bool,
}

impl Default for Certificates {
    fn default() -> Self {
        Self {
            // A hash does not name a namespace: `want` says to which each certificate belongs. Certificates that
            // no object has needed since this leader began take turns as one more namespace.
            packed: Packed::new(Shards::new(vault::SECRET), |_| "".into()),
            fetched: Fetched::new(),
            turns: Turns::default(),
            writes: 0,
            missed: BTreeMap::new(),
            vault: Vault::default(),
            withheld_changed: false,
            rested: None,
        }
    }
}

/// What is to be done next.
#[derive(Debug)]
pub(super) enum CertificateStep {
    /// Read these.
    Fetch(Vec<Sought>),
    /// Write this.
    Write(CertificatesWrite),
    /// Look again then.
    Later(Uptime),
}

/// A write of one Secret.
#[derive(Debug)]
pub(super) struct CertificatesWrite {
    pub(super) write: Write<Arc<str>, Option<Room>>,
    /// Its name.
    pub(super) name: String,
    /// The version that it changes. None: it is new.
    pub(super) version: Option<String>,
    /// What comes in.
    pub(super) added: Fetched,
    removed: Vec<Arc<str>>,
}

impl CertificatesWrite {
    /// Whether the Secret is deleted.
    pub(super) fn is_deletion(&self) -> bool {
        matches!(self.write, Write::Delete { .. })
    }

    /// The merge patch, which gives the Secret to the owner that `owned` names. Of the content it has
    /// only what changes, so no key has to be kept for it.
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

    /// The annotations of the Secret: the room of each certificate, for the leader after this one.
    pub(super) fn annotations(&self) -> BTreeMap<String, String> {
        let items = self.write.items().into_iter().flatten();
        let rooms = items.filter_map(|(hash, stamp)| Some((hash, stamp.hash?)));
        [(names::ANNOTATION_ROOMS.to_owned(), convert::rooms_text(rooms))].into()
    }
}

impl Certificates {
    /// A Secret was seen.
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

    /// A write was carried out.
    pub(super) fn wrote(&mut self, write: Write<Arc<str>, Option<Room>>, version: Option<String>) {
        self.rested = None;
        self.packed.wrote(write, version);
    }

    /// A Secret is gone.
    pub(super) fn gone(&mut self, name: &str) {
        if let Some(index) = names::plan_index(name) {
            self.rested = None;
            self.packed.gone(index);
        }
    }

    /// Certificates were read, and these were not found.
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

    /// A Secret could not be written: the others go on until then.
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

    /// The version of a Secret that is known.
    pub(super) fn version(&self, name: &str) -> Option<&str> {
        self.packed.version(names::plan_index(name)?)
    }

    /// Whether a certificate is not there for the agent, though it is not refused.
    pub(super) fn lacks(&self, hash: &Arc<str>) -> bool {
        self.packed.seen_as(hash).is_none() && self.vault.withholds(hash).is_none()
    }

    /// What brings the Secrets closer to holding exactly what is needed. What is needed no more may go
    /// once no Plan refers to it, which the caller knows. At rest nothing is gone through.
    ///
    /// What was read is written before more is read, and after a round of writes more is read: neither certificates
    /// that change before they can be read, nor certificates that change all the time, hold up those of others. A
    /// namespace that waits for no write is read after the next write: it does not wait for the writes of others.
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

    /// What has room and is to be read, each with its namespace, that of the oldest Ingress first.
    fn absent(&self, needed: &NeededCertificates, now: Uptime) -> Vec<(Arc<str>, Sought)> {
        let absent = needed
            .iter()
            .filter(|(hash, _)| self.vault.withholds(hash).is_none() && !self.has(hash))
            .filter(|(hash, _)| self.missed.get(*hash).is_none_or(|missed| missed.until <= now));
        let mut absent: Vec<_> = absent.collect();
        absent.sort_by_key(|(_, it)| it.since());
        let absent = absent.into_iter().filter_map(|(hash, it)| {
            let namespace = Arc::clone(&it.secrets().first()?.namespace);
            Some((namespace, (Arc::clone(hash), it.secrets().to_vec())))
        });
        absent.collect()
    }

    /// The next write that may be tried now. What would go into one Secret too many waits until there is room in
    /// the others: what is replaced leaves them when no Plan names it any more.
    fn next_write(
        &mut self,
        uid: Option<&str>,
        now: Uptime,
    ) -> Option<Write<Arc<str>, Option<Room>>> {
        loop {
            let write = self.packed.next(uid, now)?;
            if write.index() < vault::SECRETS || write.items().is_none() {
                return Some(write);
            }
            self.packed.refused(write.index(), now + FULL);
        }
    }

    /// Decides which have room.
    fn admit(&mut self, needed: Needed<'_>) {
        let before = self.vault.withheld().clone();
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
        self.vault.admit(needs, leaving, needed.alone);
        let (vault, packed) = (&self.vault, &self.packed);
        // What is written never moves to another Secret, so its content has done its part.
        self.fetched.retain(|hash, _| {
            let wanted = needed.certificates.contains_key(hash) && !packed.holds(hash);
            wanted && vault.withholds(hash).is_none()
        });
        if *vault.withheld() != before {
            self.withheld_changed = true;
        }
    }

    /// Those that have no room, by hash.
    pub(super) fn withheld(&self) -> &BTreeMap<Arc<str>, Withheld> {
        self.vault.withheld()
    }

    /// Whether others have no room than when it was last asked.
    pub(super) fn take_withheld_changed(&mut self) -> bool {
        replace(&mut self.withheld_changed, false)
    }

    fn has(&self, hash: &Arc<str>) -> bool {
        self.packed.holds(hash) || self.fetched.contains_key(hash)
    }

    fn want(&mut self, needed: &NeededCertificates, may_remove: bool) {
        let (mut wanted, mut owned) = (Vec::new(), Vec::new());
        for (hash, it) in
            needed.iter().filter(|(hash, _)| self.vault.withholds(hash).is_none() && self.has(hash))
        {
            let stamp = Stamp { hash: self.vault.room(hash), size: it.size() };
            owned.extend(it.secrets().first().map(|secret| (hash, &secret.namespace)));
            if self.packed.wanted().get(hash) != Some(&stamp) {
                wanted.push((Arc::clone(hash), Some(stamp)));
            }
        }
        // Without its content it cannot be written: it must not be taken for written.
        let lost = self.packed.wanted().keys().filter(|hash| !self.has(hash));
        wanted.extend(lost.map(|hash| (Arc::clone(hash), None)));
        let old = self.packed.held().chain(self.packed.wanted().keys());
        for hash in old.filter(|hash| !needed.contains_key(*hash)) {
            let seen = self.packed.seen_as(hash).copied();
            let held = |hash: &Arc<str>| self.packed.holds(hash);
            let kept =
                seen.filter(|seen| !may_remove || self.vault.reserves(hash, seen.hash, held));
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
