//! The store: objects as canonical bytes at revisions, their history, and watches. It does not know
//! the meaning of objects. The read and write paths of the server call [`Store`] with finished objects
//! and with conditions that must hold at the commit.
//!
//! ```text
//!  write ──▶ queue ──▶ writer thread: plan (batch) ──▶ disk: one transaction ──▶ publish (state)
//!                                │                         │                        │
//!                          pure, on an overlay      fails: nothing changed   answers, wakes watchers
//!  get, list, watch ──▶ state: what is durable, and nothing else
//! ```
//!
//! One counter numbers all writes. Every resource has its own bounded history, so that a busy one
//! (Leases) does not drop the events of others. The current object, the history and all watchers share
//! the same `Bytes`.

mod batch;
mod disk;
mod engine;
mod history;
mod names;
mod stamp;
mod state;

#[cfg(test)]
mod durability_tests;
#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use engine::{Store, Watch};

use bytes::Bytes;
use std::sync::Arc;

/// The key of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The resource's storage name, such as `services` or `ingresses.networking.k8s.io`.
    pub resource: Arc<str>,
    /// Namespace, empty for cluster-scoped objects.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
}

impl Key {
    /// The key of an object; `namespace` is empty for cluster-scoped ones.
    pub fn new(
        resource: impl Into<Arc<str>>,
        namespace: impl Into<Arc<str>>,
        name: impl Into<Arc<str>>,
    ) -> Self {
        Self { resource: resource.into(), namespace: namespace.into(), name: name.into() }
    }
}

/// A stored object: canonical JSON with `metadata.resourceVersion`.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The revision that wrote it.
    pub revision: u64,
    /// Canonical JSON.
    pub bytes: Bytes,
}

/// How much history is kept for each resource. The newest event is always kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most events.
    pub history_events: usize,
    /// The most bytes of objects that are not current any more.
    pub history_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { history_events: 10_000, history_bytes: 32 << 20 }
    }
}

/// Whether an object is wanted.
pub type Filter<'a> = &'a dyn Fn(&Key, &[u8]) -> bool;

/// Which objects of a resource to list. The default: all, as they are now.
#[derive(Clone, Copy, Default)]
pub struct ListQuery<'a> {
    /// Only this namespace.
    pub namespace: Option<&'a str>,
    /// At this revision. A revision that is not reached yet lists the present under that number, so
    /// the caller checks [`Store::revision`] first (see [`Store::reached`]).
    pub at: Option<u64>,
    /// Only objects after this (namespace, name): the `next` of the page before.
    pub after: Option<(&'a str, &'a str)>,
    /// The most items. 0 means no limit.
    pub limit: Option<usize>,
    /// Only objects that it accepts. It runs on a snapshot, outside of all locks.
    pub filter: Option<Filter<'a>>,
}

/// A part of a list, in kube-apiserver's order: by `namespace/name` as one string.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// The revision of the list.
    pub revision: u64,
    /// The objects.
    pub items: Vec<(Key, Entry)>,
    /// (namespace, name) of the last item, if more follow.
    pub next: Option<(Arc<str>, Arc<str>)>,
    /// How many follow, if any, and if there was no filter.
    pub remaining: Option<usize>,
}

/// One change, and the conditions for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    /// The object to change.
    pub key: Key,
    /// What must exist before.
    pub expect: Expect,
    /// What the write does.
    pub change: Change,
    /// Other conditions, checked first.
    pub guards: Vec<Guard>,
}

/// What must exist before a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// No object.
    Absent,
    /// The object at exactly this revision.
    Revision(u64),
}

/// What a write does.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Store this object. Its `metadata.resourceVersion` is set by the store.
    Put {
        /// The object, a JSON object.
        object: serde_json::Value,
        /// The claims of the object, which replace its former ones. No two objects of the store ever
        /// hold the same claim.
        claims: Vec<String>,
    },
    /// Remove the object and its claims.
    Delete,
}

/// A condition about other objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guard {
    /// This object exists.
    Exists(Key),
    /// No object of any resource exists in this namespace.
    NamespaceEmpty(Arc<str>),
    /// There is no object of this resource.
    ResourceEmpty(Arc<str>),
}

/// A write that is durable and visible.
#[derive(Clone, Debug, PartialEq)]
pub struct Committed {
    /// The stored object; for a deletion the last object, with the revision of the deletion.
    pub entry: Entry,
}

/// Why a write did not happen.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum WriteError {
    /// [`Expect::Absent`], but the object exists.
    #[error("the object exists")]
    Exists,
    /// The object does not exist.
    #[error("the object does not exist")]
    Missing,
    /// The object has another revision than expected.
    #[error("the object is of revision {current} meanwhile")]
    Conflict {
        /// Its revision.
        current: u64,
    },
    /// Another object holds a claim.
    #[error("{claim} is held by {} {}/{}", by.resource, by.namespace, by.name)]
    Claimed {
        /// The claim.
        claim: String,
        /// The object that holds it.
        by: Key,
    },
    /// A guard does not hold.
    #[error("a condition on another object does not hold: {0:?}")]
    GuardFailed(Guard),
    /// The write could not be made durable, or the object could not be encoded.
    #[error("storage: {0}")]
    Storage(String),
}

/// The history does not reach back to this revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("revision {requested} is too old, the oldest at hand is {oldest}")]
pub struct Expired {
    /// The requested revision.
    pub requested: u64,
    /// The oldest revision of this resource from which events can be read, and at which it can be
    /// listed.
    pub oldest: u64,
}

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// It was created.
    Added,
    /// It was changed.
    Modified,
    /// It was deleted.
    Deleted,
}

/// One change, as watchers get it.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The revision of the change.
    pub revision: u64,
    /// What changed.
    pub key: Key,
    /// The kind of change.
    pub kind: EventKind,
    /// The object after the change; for a deletion the last object, with the revision of the deletion.
    pub object: Bytes,
    /// The object before the change. `None` only for [`EventKind::Added`].
    pub previous: Option<Bytes>,
}

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another handle, of this process or another one, holds the file.
    #[error("the store is in use by another process")]
    InUse,
    /// The file is not a store, or is damaged.
    #[error("the store's file is damaged: {0}")]
    Corrupt(String),
    /// Another version of this program wrote the file in another format.
    #[error("the store's file has format {found}, this program reads format {known}")]
    Format {
        /// The format of the file.
        found: u64,
        /// The format that this program reads and writes.
        known: u64,
    },
    /// The file cannot be read or written.
    #[error("the store's file cannot be used: {0}")]
    Io(#[from] std::io::Error),
}
