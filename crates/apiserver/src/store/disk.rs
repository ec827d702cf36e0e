//! The store's file: current objects, the undo log, and the counters, in one redb database. A batch is
//! one transaction, so the file always holds the state after some batch. Only the writer calls this
//! module; readers use the state in memory.
//!
//! A file that failed is never written again: nobody can know which of its pages are on the disk. What the
//! memory has, which is what was acknowledged, is written into a new file, which takes the place of the old.
//!
//! The log keeps what each change *replaced*. Together with the current objects that is everything a
//! history needs, and no object is written twice for being new.

use super::batch::{Batch, Kept};
use super::history::History;
use super::names::Names;
use super::state::State;
use super::{Entry, Event, EventKind, Key, OpenError, stamp};
use bytes::Bytes;
use redb::{
    Builder, Database, DatabaseError, Durability, ReadableDatabase, ReadableTable, TableDefinition,
};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The format of the tables below. A file with another format is refused.
const FORMAT: u64 = 1;

/// The memory that redb may use as a cache: enough for the upper pages of its trees. After the start
/// nothing is read back.
const CACHE_BYTES: usize = 4 << 20;

// A redb file whose creation is not finished lacks the mark at its start, has only zeros behind the
// first page, and is small.
/// The length of redb's mark.
const MARK: usize = 9;
/// The length of redb's first page.
const FIRST_PAGE: usize = 4096;
/// The largest file that counts as unfinished.
const UNFINISHED_MAX: u64 = 16 << 20;

/// The key of an object: resource, namespace, name.
type ObjectKey = (&'static str, &'static str, &'static str);
/// An object: its revision, its claims, its bytes.
type ObjectRow = (u64, Vec<&'static str>, &'static [u8]);
/// The key of a change: resource, revision.
type LogKey = (&'static str, u64);
/// A change: whether it was a deletion, namespace and name of the object, and the object before.
type LogRow = (bool, &'static str, &'static str, Option<&'static [u8]>);

/// The current objects.
const OBJECTS: TableDefinition<'_, ObjectKey, ObjectRow> = TableDefinition::new("objects");
/// The changes that can still be undone.
const LOG: TableDefinition<'_, LogKey, LogRow> = TableDefinition::new("log");
/// Resource → the revision up to which its log is cut off.
const COMPACTED: TableDefinition<'_, &str, u64> = TableDefinition::new("compacted");
/// The format and the revision, by the names below.
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
const META_FORMAT: &str = "format";
const META_REVISION: &str = "revision";

/// An open file.
#[derive(Debug)]
pub(super) struct Disk {
    database: Database,
    place: Place,
}

/// Where a store is kept.
#[derive(Clone, Debug)]
enum Place {
    /// In this file, which is no symbolic link.
    File(PathBuf),
    /// On a medium of a test; after it has failed the next one is used, if the test has one.
    #[cfg(test)]
    Medium(super::testing::Medium),
}

impl Disk {
    /// Opens the file at `path`, creating it readable by its owner only.
    pub(super) fn open(path: &Path) -> Result<Self, OpenError> {
        let file = claim(path)?;
        // A new file has to be on the disk of the file, not on that of a link to it.
        let path = path.canonicalize()?;
        let disk = Self::with(builder().create_file(file), Place::File(path.clone()))?;
        // What a process that was killed meanwhile left takes space. Only the process that has the store makes it.
        match std::fs::remove_file(successor(&path)) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        disk.settle()?;
        Ok(disk)
    }

    /// A store that has exactly `state`, in the place of this one, whose file has failed. Until it is there
    /// completely the old file stays; the new one is locked before it takes its place, so that no other process
    /// gets in between. It survives a power cut when it is settled.
    pub(super) fn renewed(&self, state: &State) -> Result<Self, OpenError> {
        match &self.place {
            Place::File(path) => {
                let new = successor(path);
                let made = Self::replacing(path, &new, state);
                if made.is_err() {
                    // What is half there takes the space that may be missing.
                    let _ = std::fs::remove_file(&new);
                }
                made
            }
            #[cfg(test)]
            Place::Medium(medium) => {
                let next = medium.next().ok_or_else(|| std::io::Error::other("no other medium"))?;
                let disk = Self::on(next)?;
                disk.commit(&state.whole()).map_err(unreadable)?;
                Ok(disk)
            }
        }
    }

    fn replacing(path: &Path, new: &Path, state: &State) -> Result<Self, OpenError> {
        match std::fs::remove_file(new) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        let file = claim(new)?;
        let disk = Self::with(builder().create_file(file), Place::File(path.to_owned()))?;
        disk.commit(&state.whole()).map_err(unreadable)?;
        std::fs::rename(new, path)?;
        Ok(disk)
    }

    /// Makes sure that a power cut leaves this file in its place, and not the one before it.
    pub(super) fn settle(&self) -> Result<(), OpenError> {
        match &self.place {
            Place::File(path) => sync_folder(path),
            #[cfg(test)]
            Place::Medium(medium) => Ok(medium.settle()?),
        }
    }

    /// Opens a store on a medium of a test.
    #[cfg(test)]
    pub(super) fn on(medium: super::testing::Medium) -> Result<Self, OpenError> {
        let place = Place::Medium(medium.clone());
        Self::with(builder().create_with_backend(medium), place)
    }

    fn with(database: Result<Database, DatabaseError>, place: Place) -> Result<Self, OpenError> {
        let disk = Self { database: database.map_err(refused)?, place };
        disk.prepare()?;
        Ok(disk)
    }

    /// Writes the counters into a new file; checks the format of an existing one.
    fn prepare(&self) -> Result<(), OpenError> {
        let transaction = self.database.begin_write().map_err(unreadable)?;
        let new = transaction.list_tables().map_err(unreadable)?.next().is_none();
        {
            let mut meta = transaction.open_table(META).map_err(unreadable)?;
            if new {
                meta.insert(META_FORMAT, FORMAT).map_err(unreadable)?;
                meta.insert(META_REVISION, super::engine::FIRST_REVISION).map_err(unreadable)?;
                transaction.open_table(OBJECTS).map_err(unreadable)?;
                transaction.open_table(LOG).map_err(unreadable)?;
                transaction.open_table(COMPACTED).map_err(unreadable)?;
            } else {
                match meta.get(META_FORMAT).map_err(unreadable)?.map(|found| found.value()) {
                    Some(FORMAT) => {}
                    Some(found) => return Err(OpenError::Format { found, known: FORMAT }),
                    None => return Err(OpenError::Corrupt("it names no format".to_owned())),
                }
            }
        }
        if new {
            transaction.commit().map_err(unreadable)?;
        } else {
            transaction.abort().map_err(unreadable)?;
        }
        Ok(())
    }

    /// Loads and checks the whole file.
    pub(super) fn load(&self, names: &mut Names) -> Result<State, OpenError> {
        let transaction = self.database.begin_read().map_err(unreadable)?;
        let meta = transaction.open_table(META).map_err(unreadable)?;
        let revision = meta
            .get(META_REVISION)
            .map_err(unreadable)?
            .ok_or_else(|| OpenError::Corrupt("it names no revision".to_owned()))?
            .value();
        let mut state = State::new(revision);

        let objects = transaction.open_table(OBJECTS).map_err(unreadable)?;
        for row in objects.iter().map_err(unreadable)? {
            let (key, value) = row.map_err(unreadable)?;
            let (resource, namespace, name) = key.value();
            let (written, claims, bytes) = value.value();
            let key = Key::new(names.intern(resource), names.intern(namespace), name);
            if written > revision || stamp::revision_of(bytes) != Some(written) {
                return Err(damaged(&key, written));
            }
            let entry = Entry { revision: written, bytes: exact(bytes) };
            let kept = Kept { entry, claims: claims.into_iter().map(Arc::from).collect() };
            if !state.restore_object(key.clone(), kept) {
                return Err(damaged(&key, written));
            }
        }

        let mut compacted = BTreeMap::new();
        let points = transaction.open_table(COMPACTED).map_err(unreadable)?;
        for row in points.iter().map_err(unreadable)? {
            let (resource, point) = row.map_err(unreadable)?;
            compacted.insert(names.intern(resource.value()), point.value());
        }
        let log = transaction.open_table(LOG).map_err(unreadable)?;
        let mut events = read_log(&log, &state, names)?;
        for resource in compacted.keys() {
            events.entry(resource.clone()).or_default();
        }
        for (resource, events) in events {
            let point = compacted.get(&resource).copied().unwrap_or(0);
            state.restore_history(&resource, History::restore(point, events));
        }
        Ok(state)
    }

    /// Makes a batch durable, completely or not at all.
    pub(super) fn commit(&self, batch: &Batch) -> Result<(), redb::Error> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        {
            let mut objects = transaction.open_table(OBJECTS)?;
            for (key, kept) in &batch.objects {
                let place = (&*key.resource, &*key.namespace, &*key.name);
                match kept {
                    Some(Kept { entry, claims }) => {
                        let claims = claims.iter().map(|claim| &**claim).collect::<Vec<_>>();
                        objects.insert(place, (entry.revision, claims, &*entry.bytes))?;
                    }
                    None => {
                        objects.remove(place)?;
                    }
                }
            }
            let mut log = transaction.open_table(LOG)?;
            let mut compacted = transaction.open_table(COMPACTED)?;
            for (resource, growth) in &batch.growth {
                for event in &growth.events {
                    let deleted = event.kind == EventKind::Deleted;
                    let (namespace, name) = (&*event.key.namespace, &*event.key.name);
                    let row = (deleted, namespace, name, event.previous.as_deref());
                    log.insert((&**resource, event.revision), row)?;
                }
                for revision in &growth.forget {
                    log.remove((&**resource, *revision))?;
                }
                if growth.compacted > 0 {
                    compacted.insert(&**resource, growth.compacted)?;
                }
            }
            let mut meta = transaction.open_table(META)?;
            meta.insert(META_REVISION, batch.revision)?;
        }
        transaction.commit()?;
        Ok(())
    }
}

/// The events of every resource. The log is read newest first: each row undoes its change on a copy of
/// the objects, so that the copy always shows the state after the change before.
fn read_log(
    log: &impl ReadableTable<LogKey, LogRow>,
    state: &State,
    names: &mut Names,
) -> Result<BTreeMap<Arc<str>, VecDeque<Arc<Event>>>, OpenError> {
    let mut events = BTreeMap::<Arc<str>, VecDeque<Arc<Event>>>::new();
    let mut view = HashMap::<Key, Option<Bytes>>::new();
    for row in log.iter().map_err(unreadable)?.rev() {
        let (at, row) = row.map_err(unreadable)?;
        let (resource, revision) = at.value();
        let (deleted, namespace, name, previous) = row.value();
        let sought = Key::new(names.intern(resource), names.intern(namespace), name);
        let (key, after) = match view.remove_entry(&sought) {
            Some(seen) => seen,
            None => match state.find(&sought) {
                Some((key, entry)) => (key, Some(entry.bytes.clone())),
                None => (sought, None),
            },
        };
        let previous = previous.map(exact);
        let (kind, object) = match (deleted, after, &previous) {
            (true, None, Some(previous)) => {
                (EventKind::Deleted, stamp::restamp(previous, revision))
            }
            (false, Some(object), previous) => {
                let kind = if previous.is_some() { EventKind::Modified } else { EventKind::Added };
                (kind, Some(object).filter(|o| stamp::revision_of(o) == Some(revision)))
            }
            _ => return Err(damaged(&key, revision)),
        };
        let object = object.ok_or_else(|| damaged(&key, revision))?;
        if revision > state.revision() {
            return Err(damaged(&key, revision));
        }
        view.insert(key.clone(), previous.clone());
        let event = Event { revision, key, kind, object, previous };
        events.entry(event.key.resource.clone()).or_default().push_front(Arc::new(event));
    }
    Ok(events)
}

/// The file that is to take the place of the one at `path`, while it is written.
fn successor(path: &Path) -> PathBuf {
    let mut new = path.to_owned().into_os_string();
    new.push(".new");
    PathBuf::from(new)
}

/// Opens or creates the file. A file whose creation was interrupted is emptied: no write in it was ever
/// acknowledged, and redb would refuse it.
fn claim(path: &Path) -> Result<File, OpenError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    // A process that has the store open, or is creating it, holds this lock through redb.
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(OpenError::InUse),
        Err(TryLockError::Error(error)) => return Err(error.into()),
    }
    // The process before may have put a new file in the place of this one while this one was being opened.
    if !is_at(&file, path)? {
        return Err(OpenError::InUse);
    }
    if unfinished(&mut file)? {
        file.set_len(0)?;
    }
    file.unlock()?;
    Ok(file)
}

/// Whether the file is the one that stands at `path`.
fn is_at(file: &File, path: &Path) -> std::io::Result<bool> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        let (mine, there) = (file.metadata()?, std::fs::metadata(path)?);
        Ok((mine.dev(), mine.ino()) == (there.dev(), there.ino()))
    }
    #[cfg(not(unix))]
    {
        let _ = (file, path);
        Ok(true)
    }
}

fn unfinished(file: &mut File) -> std::io::Result<bool> {
    let zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
    let mut bytes = Vec::new();
    file.take(MARK as u64).read_to_end(&mut bytes)?;
    if !zero(&bytes) || file.metadata()?.len() > UNFINISHED_MAX {
        return Ok(false);
    }
    file.read_to_end(&mut bytes)?;
    Ok(bytes.get(FIRST_PAGE..).is_none_or(zero))
}

/// A new file survives a power cut only when its folder is synced.
fn sync_folder(path: &Path) -> Result<(), OpenError> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    if cfg!(unix) {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_BYTES);
    builder
}

/// A copy in an allocation of exactly this size.
fn exact(bytes: &[u8]) -> Bytes {
    Bytes::from(Box::<[u8]>::from(bytes))
}

fn damaged(key: &Key, revision: u64) -> OpenError {
    let Key { resource, namespace, name } = key;
    OpenError::Corrupt(format!("{resource} {namespace}/{name} at revision {revision} is not whole"))
}

fn refused(error: DatabaseError) -> OpenError {
    match error {
        DatabaseError::DatabaseAlreadyOpen => OpenError::InUse,
        other => unreadable(other),
    }
}

fn unreadable(error: impl Into<redb::Error>) -> OpenError {
    match error.into() {
        redb::Error::Io(error) if error.kind() != ErrorKind::InvalidData => OpenError::Io(error),
        other => OpenError::Corrupt(other.to_string()),
    }
}
