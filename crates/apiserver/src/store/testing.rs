//! Helpers of the store's tests: short forms of writes, and a storage medium that can be copied as a
//! killed process leaves it, cut off as by a power cut, and broken.

use super::disk::Disk;
use super::{Change, Expect, Guard, Key, Limits, Store, Write};
use parking_lot::Mutex;
use redb::StorageBackend;
use serde_json::{Value, json};
use std::io;
use std::sync::Arc;

/// The bytes that a disk writes or loses together.
const SECTOR: usize = 512;

/// Limits that no test reaches.
pub(super) const WIDE: Limits = Limits { history_events: 10_000, history_bytes: usize::MAX };

/// Limits with this number of events.
pub(super) fn few(history_events: usize) -> Limits {
    Limits { history_events, ..WIDE }
}

/// A key of resource `things`, from `namespace/name`.
pub(super) fn thing(path: &str) -> Key {
    key("things", path)
}

/// A key from `namespace/name`.
pub(super) fn key(resource: &str, path: &str) -> Key {
    let (namespace, name) = path.split_once('/').unwrap_or(("", path));
    Key::new(resource, namespace, name)
}

/// Creates `key` with a value in it.
pub(super) fn create(key: &Key, value: impl Into<Value>) -> Write {
    put(key, Expect::Absent, value)
}

/// Updates `key` from `revision`.
pub(super) fn update(key: &Key, revision: u64, value: impl Into<Value>) -> Write {
    put(key, Expect::Revision(revision), value)
}

/// Deletes `key` at `revision`.
pub(super) fn delete(key: &Key, revision: u64) -> Write {
    let expect = Expect::Revision(revision);
    Write { key: key.clone(), expect, change: Change::Delete, guards: Vec::new() }
}

fn put(key: &Key, expect: Expect, value: impl Into<Value>) -> Write {
    let metadata = json!({"name": &*key.name, "namespace": &*key.namespace});
    let object = json!({"metadata": metadata, "spec": value.into()});
    let change = Change::Put { object, claims: Vec::new() };
    Write { key: key.clone(), expect, change, guards: Vec::new() }
}

impl Write {
    /// The write with these claims.
    pub(super) fn claiming(mut self, wanted: &[&str]) -> Self {
        if let Change::Put { claims, .. } = &mut self.change {
            *claims = wanted.iter().map(ToString::to_string).collect();
        }
        self
    }

    /// The write with one more guard.
    pub(super) fn if_only(mut self, guard: Guard) -> Self {
        self.guards.push(guard);
        self
    }
}

/// The object in stored bytes.
pub(super) fn parse(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

/// A disk in memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Medium(Arc<Mutex<Platter>>);

#[derive(Debug, Default)]
struct Platter {
    /// The bytes that a reader sees.
    live: Vec<u8>,
    /// The bytes at the last sync.
    synced: Vec<u8>,
    /// The changes since the last sync: a new length, or a piece of a sector.
    pending: Vec<Stroke>,
    /// All changes, so that the medium can be cut off anywhere.
    journal: Vec<Stroke>,
    broken: bool,
    /// It cannot be said that it has taken the place of the one before it.
    unsettled: bool,
    /// The medium on which the store goes on after this one has failed.
    next: Option<Medium>,
}

#[derive(Clone, Debug)]
enum Stroke {
    Length(usize),
    Bytes(usize, Vec<u8>),
    Sync,
}

impl Stroke {
    fn apply(&self, to: &mut Vec<u8>) {
        match self {
            Self::Length(length) => to.resize(*length, 0),
            Self::Bytes(offset, bytes) => {
                let end = offset + bytes.len();
                if to.len() < end {
                    to.resize(end, 0);
                }
                to[*offset..end].copy_from_slice(bytes);
            }
            Self::Sync => {}
        }
    }
}

impl Medium {
    /// Opens the store on this medium.
    pub(super) fn open(&self, limits: Limits) -> Store {
        Store::on(Disk::on(self.clone()).unwrap(), limits).unwrap()
    }

    /// The medium as a process leaves it when it is killed now.
    pub(super) fn killed(&self) -> Medium {
        Self::of(self.0.lock().live.clone())
    }

    /// The medium after a power cut now: of each unsynced change, `survives` decides.
    pub(super) fn power_cut(&self, mut survives: impl FnMut() -> bool) -> Medium {
        let platter = self.0.lock();
        let mut bytes = platter.synced.clone();
        for change in &platter.pending {
            if matches!(change, Stroke::Length(_)) || survives() {
                change.apply(&mut bytes);
            }
        }
        Self::of(bytes)
    }

    /// The number of changes so far.
    pub(super) fn age(&self) -> usize {
        self.0.lock().journal.len()
    }

    /// The medium after this number of changes.
    pub(super) fn at_age(&self, age: usize) -> Medium {
        let young = Medium::default();
        for stroke in &self.0.lock().journal[..age] {
            young.0.lock().stroke(stroke.clone());
        }
        young
    }

    /// All its bytes.
    pub(super) fn bytes(&self) -> Vec<u8> {
        self.0.lock().live.clone()
    }

    /// Lets every later write fail.
    pub(super) fn break_down(&self) {
        self.0.lock().broken = true;
    }

    /// Lets every attempt to settle it fail.
    pub(super) fn unsettle(&self) {
        self.0.lock().unsettled = true;
    }

    pub(super) fn settle(&self) -> io::Result<()> {
        match self.0.lock().unsettled {
            true => Err(io::Error::other("the folder is on the moon")),
            false => Ok(()),
        }
    }

    /// The store goes on here when this medium fails.
    pub(super) fn goes_on(&self, next: &Medium) {
        self.0.lock().next = Some(next.clone());
    }

    /// Where the store goes on.
    pub(super) fn next(&self) -> Option<Medium> {
        self.0.lock().next.clone()
    }

    /// From now on everything can be written.
    pub(super) fn mend(&self) {
        self.0.lock().broken = false;
    }

    /// The same bytes on a medium that works.
    fn of(bytes: Vec<u8>) -> Medium {
        let platter = Platter { live: bytes.clone(), synced: bytes, ..Platter::default() };
        Medium(Arc::new(Mutex::new(platter)))
    }

    fn change(&self, strokes: Vec<Stroke>) -> io::Result<()> {
        let mut platter = self.0.lock();
        if platter.broken {
            return Err(io::Error::other("no space left on the moon"));
        }
        for stroke in strokes {
            platter.stroke(stroke);
        }
        Ok(())
    }
}

impl Platter {
    fn stroke(&mut self, stroke: Stroke) {
        self.journal.push(stroke.clone());
        if let Stroke::Sync = stroke {
            for stroke in self.pending.drain(..) {
                stroke.apply(&mut self.synced);
            }
            return;
        }
        stroke.apply(&mut self.live);
        self.pending.push(stroke);
    }
}

impl StorageBackend for Medium {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().live.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let (platter, start) = (self.0.lock(), offset as usize);
        let bytes = platter.live.get(start..start + out.len());
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change(vec![Stroke::Length(len as usize)])
    }

    fn sync_data(&self) -> io::Result<()> {
        self.change(vec![Stroke::Sync])
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut pieces = Vec::new();
        let (mut at, mut rest) = (offset as usize, data);
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rest.len().min(SECTOR - at % SECTOR));
            pieces.push(Stroke::Bytes(at, piece.to_vec()));
            (at, rest) = (at + piece.len(), after);
        }
        self.change(pieces)
    }
}

/// A pseudo-random choice for each piece, from a seed.
pub(super) fn coin(mut seed: u64) -> impl FnMut() -> bool {
    move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        seed >> 63 == 1
    }
}
