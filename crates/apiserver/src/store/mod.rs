//! The store: objects as canonical bytes under revisions, their history, and who may watch it.
//! It decides nothing about what an object means; [`Store`] is called by the read and write paths of
//! the server, which hand it finished objects together with what must still be true when they land.
//!
//! ```text
//!  write ──▶ queue ──▶ writer thread: plan (batch) ──▶ disk: one transaction ──▶ publish (state)
//!                                │                         │                        │
//!                          pure, on an overlay      fails: nothing changed   answers, wakes watchers
//!  get, list, watch ──▶ state: what is durable, and nothing else
//! ```
//!
//! One counter numbers all writes. Every resource has its own bounded history, so that a busy one
//! (Leases) does not push the others' events out. The same `Bytes` serve the current object, the
//! history and every watcher.

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

/// Where an object is kept.
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

/// An object as stored: canonical JSON with `metadata.resourceVersion` in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The revision that wrote it.
    pub revision: u64,
    /// Canonical JSON.
    pub bytes: Bytes,
}

/// How much of the past is kept, for each resource by itself. The newest event is always kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// At most so many events.
    pub history_events: usize,
    /// At most so many bytes of objects that are no longer current.
    pub history_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { history_events: 10_000, history_bytes: 32 << 20 }
    }
}

/// Says of an object whether it is wanted.
pub type Filter<'a> = &'a dyn Fn(&Key, &[u8]) -> bool;

/// Which objects of a resource to list. The default is all of them, as they are now.
#[derive(Clone, Copy, Default)]
pub struct ListQuery<'a> {
    /// Only this namespace.
    pub namespace: Option<&'a str>,
    /// As of this revision. A revision that is not reached yet lists the present and calls it by that
    /// number: whoever asks checks against [`Store::revision`] first (see [`Store::reached`]).
    pub at: Option<u64>,
    /// Only what comes after this (namespace, name): the `next` of the page before.
    pub after: Option<(&'a str, &'a str)>,
    /// At most so many; 0 counts as no limit.
    pub limit: Option<usize>,
    /// Only what this accepts. It runs on a snapshot, outside of every lock.
    pub filter: Option<Filter<'a>>,
}

/// A part of a list, in the order of a real server: by `namespace/name` as one string.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// The revision at which all of this was true.
    pub revision: u64,
    /// The objects.
    pub items: Vec<(Key, Entry)>,
    /// (namespace, name) of the last item, when more follow.
    pub next: Option<(Arc<str>, Arc<str>)>,
    /// How many follow, when some do and no filter was given.
    pub remaining: Option<usize>,
}

/// One change, and what must hold for it to happen.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    /// What to change.
    pub key: Key,
    /// What must be there before.
    pub expect: Expect,
    /// What to do.
    pub change: Change,
    /// What else must hold; checked before everything else.
    pub guards: Vec<Guard>,
}

/// What must be there before a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Nothing.
    Absent,
    /// The object of exactly this revision.
    Revision(u64),
}

/// What a write does.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Store this object. Its `metadata.resourceVersion` is set by the store.
    Put {
        /// The object, a JSON object.
        object: serde_json::Value,
        /// Names that this object holds for itself alone, in place of those it held before: no two
        /// objects of the store ever hold the same claim.
        claims: Vec<String>,
    },
    /// Remove the object and what it claims.
    Delete,
}

/// Something about another object that must hold for a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guard {
    /// This object exists.
    Exists(Key),
    /// No object of any resource lives in this namespace.
    NamespaceEmpty(Arc<str>),
    /// There is no object of this resource.
    ResourceEmpty(Arc<str>),
}

/// A write that is durable and visible.
#[derive(Clone, Debug, PartialEq)]
pub struct Committed {
    /// The object as stored; for a deletion the last object, with the revision of the deletion.
    pub entry: Entry,
}

/// Why a write did not happen.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum WriteError {
    /// [`Expect::Absent`], and it is there.
    #[error("the object exists")]
    Exists,
    /// There is no such object to change.
    #[error("the object does not exist")]
    Missing,
    /// The object is of another revision than expected.
    #[error("the object is of revision {current} meanwhile")]
    Conflict {
        /// The revision that it has.
        current: u64,
    },
    /// Another object holds a claim.
    #[error("{claim} is held by {} {}/{}", by.resource, by.namespace, by.name)]
    Claimed {
        /// What is claimed.
        claim: String,
        /// Who has it.
        by: Key,
    },
    /// A guard does not hold.
    #[error("a condition on another object does not hold: {0:?}")]
    GuardFailed(Guard),
    /// The write could not be made durable, or the object could not be encoded.
    #[error("storage: {0}")]
    Storage(String),
}

/// The history does not reach back that far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("revision {requested} is too old, the oldest at hand is {oldest}")]
pub struct Expired {
    /// What was asked for.
    pub requested: u64,
    /// The oldest revision of this resource from which events, and at which lists, are at hand.
    pub oldest: u64,
}

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// It was not there before.
    Added,
    /// It was there before.
    Modified,
    /// It is gone.
    Deleted,
}

/// One change as watchers see it.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The revision of the change.
    pub revision: u64,
    /// What changed.
    pub key: Key,
    /// How.
    pub kind: EventKind,
    /// The object after the change; for a deletion the last object, with the revision of the deletion.
    pub object: Bytes,
    /// The object before the change; `None` for [`EventKind::Added`] only.
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
    /// The file was written by a version of this program that keeps its data differently.
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
