//! The Secrets by which one load balancer's agent gets its certificates: which they hold, which they
//! should hold, and the next write. Keys pass through on their way from the user's Secret to ours; they
//! are kept only until they are written.

use super::inputs::CertificatesSeen;
use super::packed::Packed;
use bowline_api::{convert, names};
use bowline_core::key::ObjectKey;
use bowline_core::shard::{Stamp, Write};
use bowline_core::update::Certificate;
use bowline_core::vault::{self, Need, Vault, Withheld};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::mem::replace;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What is not found is looked for again after this, and each time after twice as long.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// When all Secrets are full, what waits is tried again after this.
const FULL: Duration = Duration::from_secs(5);

/// A certificate that was looked for in vain.
#[derive(Debug)]
struct Missed {
    places: Vec<ObjectKey>,
    wait: Duration,
    /// When it is looked for again.
    until: Instant,
}

/// Certificates that were read, by hash.
pub(super) type Fetched = BTreeMap<Arc<str>, Arc<Certificate>>;

/// What is known of the certificates of a load balancer.
#[derive(Debug)]
pub(super) struct Certificates {
    packed: Packed<Arc<str>, ()>,
    sizes: BTreeMap<Arc<str>, usize>,
    fetched: Fetched,
    missed: BTreeMap<Arc<str>, Missed>,
    /// Who has room, and who has none.
    vault: Vault,
    /// Whether others have none than when it was last asked.
    withheld_changed: bool,
    /// What was needed, by its revision, when there was last nothing to do.
    rested: Option<(u64, bool, Option<String>)>,
    /// What was needed, by its revision, when all of it was there.
    complete: Option<u64>,
}

/// What a load balancer needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Needed<'a> {
    /// The certificates, by hash, and where each may be found.
    pub(super) certificates: &'a BTreeMap<Arc<str>, Vec<ObjectKey>>,
    /// Another number whenever those are others.
    pub(super) revision: u64,
    /// Whether the load balancer is for one namespace only.
    pub(super) alone: bool,
}

impl Default for Certificates {
    fn default() -> Self {
        Self {
            packed: Packed::new(vault::SECRET),
            sizes: BTreeMap::new(),
            fetched: Fetched::new(),
            missed: BTreeMap::new(),
            vault: Vault::default(),
            withheld_changed: false,
            rested: None,
            complete: None,
        }
    }
}

/// What is to be done next.
#[derive(Debug)]
pub(super) enum Next {
    /// Read these.
    Fetch(Vec<(Arc<str>, Vec<ObjectKey>)>),
    /// Write this.
    Write(CertificatesWrite),
    /// Look again then.
    Later(Instant),
}

/// A write of one Secret.
#[derive(Debug)]
pub(super) struct CertificatesWrite {
    pub(super) write: Write<Arc<str>, ()>,
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
            "labels": owned.labels,
            "ownerReferences": owned.owner_references,
        });
        json!({"metadata": metadata, "data": data})
    }
}

impl Certificates {
    /// A Secret was seen.
    pub(super) fn seen(&mut self, secret: CertificatesSeen) {
        let Some(index) = names::plan_index(&secret.name) else { return };
        if !self.packed.is_news(index, &secret.version) {
            return;
        }
        (self.rested, self.complete) = (None, None);
        self.sizes.extend(secret.sizes.iter().cloned());
        let items = secret.sizes.into_iter().map(|(hash, size)| (hash, Stamp { hash: (), size }));
        self.packed.seen(index, secret.version, secret.owner, items.collect());
    }

    /// A write was carried out.
    pub(super) fn wrote(&mut self, write: Write<Arc<str>, ()>, version: Option<String>) {
        (self.rested, self.complete) = (None, None);
        self.packed.wrote(write, version);
    }

    /// A Secret is gone.
    pub(super) fn gone(&mut self, name: &str) {
        if let Some(index) = names::plan_index(name) {
            (self.rested, self.complete) = (None, None);
            self.packed.gone(index);
        }
    }

    /// Certificates were read, and these were not found.
    pub(super) fn fetched(
        &mut self,
        fetched: Fetched,
        missed: Vec<(Arc<str>, Vec<ObjectKey>)>,
        now: Instant,
    ) {
        self.rested = None;
        self.missed.retain(|hash, _| !fetched.contains_key(hash));
        for (hash, places) in missed {
            let before = self.missed.get(&hash).filter(|before| before.places == places);
            let wait = before.map_or(FIRST_WAIT, |before| (before.wait * 2).min(LONGEST_WAIT));
            self.missed.insert(hash, Missed { places, wait, until: now + wait });
        }
        let sizes = fetched.iter();
        self.sizes
            .extend(sizes.map(|(hash, it)| (Arc::clone(hash), it.chain.len() + it.key.len())));
        self.fetched.extend(fetched);
    }

    /// A Secret could not be written: the others go on until then.
    pub(super) fn refused(&mut self, name: &str, until: Instant) {
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

    /// Whether all of these are there for the agent, but for those that have no room.
    pub(super) fn has_all(&mut self, needed: Needed<'_>) -> bool {
        let there =
            |hash: &Arc<str>| self.packed.holds(hash) || self.vault.withholds(hash).is_some();
        let all = self.complete == Some(needed.revision) || needed.certificates.keys().all(there);
        self.complete = all.then_some(needed.revision);
        all
    }

    /// What brings the Secrets closer to holding exactly what is needed. What is needed no more may go
    /// once no Plan refers to it, which the caller knows. At rest nothing is gone through.
    pub(super) fn next(
        &mut self,
        load_balancer: &str,
        uid: Option<&str>,
        needed: Needed<'_>,
        may_remove: bool,
        now: Instant,
    ) -> Option<Next> {
        let look = (needed.revision, may_remove, uid.map(ToOwned::to_owned));
        if self.rested.as_ref() == Some(&look) {
            return None;
        }
        self.admit(needed);
        let needed = needed.certificates;
        self.missed.retain(|hash, missed| needed.get(hash) == Some(&missed.places));
        let absent: Vec<_> = needed
            .iter()
            .filter(|(hash, _)| !self.has(hash) && self.vault.withholds(hash).is_none())
            .filter(|(hash, _)| self.missed.get(*hash).is_none_or(|missed| missed.until <= now))
            .map(|(hash, places)| (Arc::clone(hash), places.clone()))
            .collect();
        if !absent.is_empty() {
            return Some(Next::Fetch(absent));
        }
        self.want(needed, may_remove);
        let Some(write) = self.next_write(uid, now) else {
            if self.packed.is_settled() {
                self.fetched.clear();
                self.sizes.retain(|hash, _| needed.contains_key(hash));
            }
            if self.packed.is_at_rest() && self.missed.is_empty() {
                self.rested = Some(look);
            }
            return self.missed.values().map(|missed| missed.until).min().map(Next::Later);
        };
        let (index, items) = (write.index(), write.items().cloned().unwrap_or_default());
        let before = self.packed.items(index).cloned().unwrap_or_default();
        let added = items.keys().filter(|hash| !before.contains_key(*hash));
        let added = added
            .filter_map(|hash| self.fetched.get(hash).map(|it| (Arc::clone(hash), Arc::clone(it))));
        Some(Next::Write(CertificatesWrite {
            name: names::certificates_secret(load_balancer, index),
            version: self.packed.version(index).map(ToOwned::to_owned),
            added: added.collect(),
            removed: before.keys().filter(|hash| !items.contains_key(*hash)).cloned().collect(),
            write,
        }))
    }

    /// The next write that may be tried now. What would go into one Secret too many waits until there is room in
    /// the others: what is replaced leaves them when no Plan names it any more.
    fn next_write(&mut self, uid: Option<&str>, now: Instant) -> Option<Write<Arc<str>, ()>> {
        loop {
            let write = self.packed.next(uid, now)?;
            if write.index() < vault::SECRETS || write.items().is_none() {
                return Some(write);
            }
            self.packed.refused(write.index(), now + FULL);
        }
    }

    /// Decides which of those have room whose size is known.
    fn admit(&mut self, needed: Needed<'_>) {
        let before = self.vault.withheld().clone();
        let known = needed.certificates.iter().filter_map(|(hash, places)| {
            let size = *self.sizes.get(hash)?;
            Some(Need { hash, size, places, held: self.packed.holds(hash) })
        });
        self.vault.admit(known, needed.alone);
        let vault = &self.vault;
        self.fetched.retain(|hash, _| vault.withholds(hash).is_none());
        if *vault.withheld() != before {
            (self.withheld_changed, self.complete) = (true, None);
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

    fn want(&mut self, needed: &BTreeMap<Arc<str>, Vec<ObjectKey>>, may_remove: bool) {
        let fits = |hash: &&Arc<str>| self.vault.withholds(hash).is_none();
        let new = needed.keys().filter(fits);
        let new = new.filter(|hash| !self.packed.wanted().contains_key(*hash));
        let lost = self.packed.wanted().keys().filter(|hash| !self.has(hash));
        let lost: Vec<_> = lost.cloned().collect();
        for hash in new.filter(|hash| self.has(hash)).cloned().collect::<Vec<_>>() {
            let size = self.sizes.get(&hash).copied().unwrap_or(0);
            self.packed.want(hash, Some(Stamp { hash: (), size }));
        }
        // Without its content it cannot be written: it must not be taken for written.
        for hash in lost {
            self.packed.want(hash, None);
        }
        let old = self.packed.held().chain(self.packed.wanted().keys());
        let old: Vec<_> = old.filter(|hash| !needed.contains_key(*hash)).cloned().collect();
        for hash in old {
            let kept = (!may_remove && self.packed.holds(&hash))
                .then(|| Stamp { hash: (), size: self.sizes.get(&hash).copied().unwrap_or(0) });
            self.packed.want(hash, kept);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needed(hashes: &[&str]) -> BTreeMap<Arc<str>, Vec<ObjectKey>> {
        let place = ObjectKey { namespace: "shop".into(), name: "tls".into() };
        hashes.iter().map(|hash| (Arc::from(*hash), vec![place.clone()])).collect()
    }

    fn as_needed(certificates: &BTreeMap<Arc<str>, Vec<ObjectKey>>) -> Needed<'_> {
        Needed { certificates, revision: 1, alone: false }
    }

    #[test]
    fn at_rest_nothing_is_gone_through_until_something_else_is_needed() {
        let (mut certificates, one) = (Certificates::default(), needed(&["a"]));
        certificates.seen(CertificatesSeen {
            name: names::certificates_secret("lb", 0),
            load_balancer: "lb".into(),
            version: "1".to_owned(),
            owner: Some("uid".to_owned()),
            sizes: vec![("a".into(), 10)],
        });
        let two = needed(&["a", "b"]);
        let next = |certificates: &mut Certificates, needed, revision| {
            let needed = Needed { certificates: needed, revision, alone: false };
            certificates.next("lb", Some("uid"), needed, true, Instant::now())
        };
        assert!(next(&mut certificates, &one, 1).is_none());
        // Under the same number others are not even seen.
        assert!(next(&mut certificates, &two, 1).is_none());
        let fetch = next(&mut certificates, &two, 2);
        assert!(matches!(fetch, Some(Next::Fetch(_))), "{fetch:?}");
    }

    #[test]
    fn one_that_has_no_room_is_read_once_and_holds_nothing_up() {
        let mut certificates = Certificates::default();
        let all: Vec<_> = (0..100).map(|n| format!("{n:03}")).collect();
        let needed = needed(&all.iter().map(String::as_str).collect::<Vec<_>>());
        let now = Instant::now();
        let size = 2 * vault::LARGEST;
        let mut fetches = 0;
        let mut versions = 1..;
        loop {
            match certificates.next("lb", Some("uid"), as_needed(&needed), true, now) {
                Some(Next::Fetch(wanted)) => {
                    fetches += 1;
                    let padded = |hash: &Arc<str>| if **hash == *"007" { size } else { 1_000 };
                    let chain = |hash| Arc::from("x".repeat(padded(hash)));
                    let read = wanted.iter().map(|(hash, _)| {
                        let it = Certificate { chain: chain(hash), key: "".into() };
                        (Arc::clone(hash), Arc::new(it))
                    });
                    certificates.fetched(read.collect(), Vec::new(), now);
                }
                Some(Next::Write(write)) => {
                    assert!(!write.added.contains_key("007"));
                    certificates.wrote(write.write, versions.next().map(|it: u32| it.to_string()));
                }
                Some(Next::Later(at)) => panic!("{at:?}"),
                None => break,
            }
        }
        assert_eq!(fetches, 1);
        assert!(certificates.take_withheld_changed() && !certificates.take_withheld_changed());
        assert_eq!(certificates.withheld().keys().map(|it| &**it).collect::<Vec<_>>(), ["007"]);
        assert!(certificates.has_all(as_needed(&needed)));
    }

    #[test]
    fn no_secret_is_written_that_no_agent_reads() {
        let mut certificates = Certificates::default();
        let now = Instant::now();
        // All Secrets are full of what is needed no more and what Plans still name.
        for index in 0..vault::SECRETS {
            certificates.seen(CertificatesSeen {
                name: names::certificates_secret("lb", index),
                load_balancer: "lb".into(),
                version: "1".to_owned(),
                owner: Some("uid".to_owned()),
                sizes: vec![(format!("old-{index}").into(), vault::SECRET)],
            });
        }
        let needed = needed(&["new"]);
        let read = Certificate { chain: "x".into(), key: "y".into() };
        certificates.fetched([("new".into(), Arc::new(read))].into(), Vec::new(), now);
        let next = certificates.next("lb", Some("uid"), as_needed(&needed), false, now);
        assert!(next.is_none(), "{next:?}");
        // The Plan is written, and nothing names the old ones any more.
        let next = certificates.next("lb", Some("uid"), as_needed(&needed), true, now);
        let Some(Next::Write(write)) = next else { panic!("{next:?}") };
        assert!(write.write.index() < vault::SECRETS, "{write:?}");
    }

    #[test]
    fn what_is_not_found_is_looked_for_again_ever_less_often() {
        let (mut certificates, needed) = (Certificates::default(), needed(&["a"]));
        let mut now = Instant::now();
        for wait in [1, 2, 4, 8, 16, 32, 60, 60] {
            let next = certificates.next("lb", Some("uid"), as_needed(&needed), true, now);
            let Some(Next::Fetch(wanted)) = next else { panic!("{next:?}") };
            certificates.fetched(Fetched::new(), wanted, now);
            let until = now + Duration::from_secs(wait);
            let next = certificates.next("lb", Some("uid"), as_needed(&needed), true, now);
            assert!(matches!(next, Some(Next::Later(at)) if at == until), "{next:?}");
            now = until;
        }
    }

    #[test]
    fn what_was_deleted_and_cannot_be_found_is_not_taken_for_written() {
        let (mut certificates, needed) = (Certificates::default(), needed(&["a"]));
        let now = Instant::now();
        let secret = || CertificatesSeen {
            name: names::certificates_secret("lb", 0),
            load_balancer: "lb".into(),
            version: "1".to_owned(),
            owner: Some("uid".to_owned()),
            sizes: vec![("a".into(), 10)],
        };
        certificates.seen(secret());
        assert!(certificates.next("lb", Some("uid"), as_needed(&needed), true, now).is_none());
        certificates.gone(&secret().name);
        let next = certificates.next("lb", Some("uid"), as_needed(&needed), true, now);
        let Some(Next::Fetch(wanted)) = next else { panic!("{next:?}") };
        certificates.fetched(Fetched::new(), wanted, now);
        let next = certificates.next("lb", Some("uid"), as_needed(&needed), true, now);
        assert!(matches!(next, Some(Next::Later(_))), "{next:?}");
        assert!(!certificates.has_all(as_needed(&needed)));
    }

    #[test]
    fn a_secret_that_belongs_to_a_deleted_load_balancer_is_given_to_the_new_one() {
        let (mut certificates, needed) = (Certificates::default(), needed(&["a"]));
        certificates.seen(CertificatesSeen {
            name: names::certificates_secret("lb", 0),
            load_balancer: "lb".into(),
            version: "1".to_owned(),
            owner: Some("old".to_owned()),
            sizes: vec![("a".into(), 10)],
        });
        let now = Instant::now();
        let next = certificates.next("lb", Some("new"), as_needed(&needed), true, now);
        let Some(Next::Write(write)) = next else { panic!("{next:?}") };
        let owned = super::super::writes::owned(&write.name, "lb", "new");
        let patch = write.patch("1", &owned);
        assert_eq!(
            patch,
            json!({
                "metadata": {
                    "resourceVersion": "1",
                    "labels": owned.labels,
                    "ownerReferences": owned.owner_references,
                },
                "data": {},
            })
        );
        certificates.wrote(write.write, Some("2".to_owned()));
        assert!(certificates.next("lb", Some("new"), as_needed(&needed), true, now).is_none());
    }
}
