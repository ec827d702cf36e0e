//! The Secrets by which one load balancer's agent gets its certificates: which they hold, which they
//! should hold, and the next write. Keys pass through on their way from the user's Secret to ours; they
//! are kept only until they are written.

use super::inputs::CertificatesSeen;
use bowline_api::{convert, names};
use bowline_core::key::ObjectKey;
use bowline_core::update::Certificate;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The most bytes of certificates in one Secret.
const LARGEST: usize = 700 * 1024;

/// Certificates that were read, by hash.
pub(super) type Fetched = BTreeMap<Arc<str>, Arc<Certificate>>;

/// What is known of the certificates of a load balancer.
#[derive(Debug, Default)]
pub(super) struct Certificates {
    secrets: BTreeMap<String, Held>,
    fetched: Fetched,
}

#[derive(Debug)]
struct Held {
    version: String,
    sizes: BTreeMap<Arc<str>, usize>,
}

/// What is to be done next.
#[derive(Debug)]
pub(super) enum Next {
    /// Read these.
    Fetch(Vec<(Arc<str>, Vec<ObjectKey>)>),
    /// Write this.
    Write(CertificatesWrite),
}

/// A write of one Secret.
#[derive(Debug)]
pub(super) struct CertificatesWrite {
    /// Its name.
    pub(super) name: String,
    /// The version that it changes. None: it is new.
    pub(super) version: Option<String>,
    /// What comes in.
    pub(super) added: Fetched,
    removed: Vec<Arc<str>>,
    deletes: bool,
}

impl CertificatesWrite {
    /// Whether the Secret is deleted.
    pub(super) fn is_deletion(&self) -> bool {
        self.deletes
    }

    /// The merge patch. It names only what changes, so no key has to be kept for it.
    pub(super) fn patch(&self, version: &str) -> Value {
        let mut data = json!(convert::certificates_data(&self.added));
        if let Some(data) = data.as_object_mut() {
            data.extend(self.removed.iter().map(|hash| (hash.to_string(), Value::Null)));
        }
        json!({"metadata": {"resourceVersion": version}, "data": data})
    }
}

impl Certificates {
    /// A Secret was seen.
    pub(super) fn seen(&mut self, secret: &CertificatesSeen) {
        let old = self.secrets.get(&secret.name);
        if old.is_some_and(|known| super::shown::is_older(&secret.version, &known.version)) {
            return;
        }
        let sizes = secret.sizes.iter().cloned().collect();
        let held = Held { version: secret.version.clone(), sizes };
        self.secrets.insert(secret.name.clone(), held);
    }

    /// A Secret is gone.
    pub(super) fn gone(&mut self, name: &str) {
        self.secrets.remove(name);
    }

    /// Certificates were read.
    pub(super) fn fetched(&mut self, fetched: Fetched) {
        self.fetched.extend(fetched);
    }

    /// The names of all Secrets.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.secrets.keys().map(String::as_str)
    }

    /// The version of a Secret that is known.
    pub(super) fn version(&self, name: &str) -> Option<&str> {
        self.secrets.get(name).map(|held| held.version.as_str())
    }

    /// Whether all of these are there for the agent.
    pub(super) fn has_all<'a>(&self, mut hashes: impl Iterator<Item = &'a Arc<str>>) -> bool {
        hashes.all(|hash| self.secrets.values().any(|held| held.sizes.contains_key(hash)))
    }

    /// What brings the Secrets closer to holding exactly `needed`. `unused` may go only once no Plan
    /// refers to it any more, which the caller knows.
    pub(super) fn next(
        &mut self,
        load_balancer: &str,
        needed: &BTreeMap<Arc<str>, Vec<ObjectKey>>,
        may_remove: bool,
    ) -> Option<Next> {
        let held: BTreeSet<_> =
            self.secrets.values().flat_map(|held| held.sizes.keys().cloned()).collect();
        let missing = needed.iter().filter(|(hash, _)| !held.contains(*hash));
        let (ready, absent): (Vec<_>, Vec<_>) =
            missing.partition(|(hash, _)| self.fetched.contains_key(*hash));
        if !absent.is_empty() {
            let copy =
                |(hash, keys): (&Arc<str>, &Vec<ObjectKey>)| (Arc::clone(hash), keys.clone());
            return Some(Next::Fetch(absent.into_iter().map(copy).collect()));
        }
        if let Some(write) = self.addition(load_balancer, &ready) {
            return Some(Next::Write(write));
        }
        self.fetched.clear();
        if !may_remove {
            return None;
        }
        self.secrets.iter().find_map(|(name, held)| {
            let unneeded = held.sizes.keys().filter(|hash| !needed.contains_key(*hash));
            let removed: Vec<_> = unneeded.cloned().collect();
            let deletes = removed.len() == held.sizes.len();
            (deletes || !removed.is_empty()).then(|| {
                Next::Write(CertificatesWrite {
                    name: name.clone(),
                    version: Some(held.version.clone()),
                    added: Fetched::new(),
                    removed,
                    deletes,
                })
            })
        })
    }

    /// Puts as many as fit into the first Secret with room.
    fn addition(
        &self,
        load_balancer: &str,
        ready: &[(&Arc<str>, &Vec<ObjectKey>)],
    ) -> Option<CertificatesWrite> {
        let size =
            |hash: &Arc<str>| self.fetched.get(hash).map_or(0, |it| it.chain.len() + it.key.len());
        let (first, _) = ready.first()?;
        let used = |name: &str| {
            self.secrets.get(name).map_or(0, |held| held.sizes.values().sum::<usize>())
        };
        let name = (0..)
            .map(|index| names::certificates_secret(load_balancer, index))
            .find(|name| used(name) == 0 || used(name) + size(first) <= LARGEST)?;
        let mut total = used(&name);
        let mut added = Fetched::new();
        for (hash, _) in ready {
            if !added.is_empty() && total + size(hash) > LARGEST {
                break;
            }
            total += size(hash);
            added.extend(self.fetched.get(*hash).map(|it| (Arc::clone(hash), Arc::clone(it))));
        }
        let version = self.secrets.get(&name).map(|held| held.version.clone());
        Some(CertificatesWrite { name, version, added, removed: Vec::new(), deletes: false })
    }
}
