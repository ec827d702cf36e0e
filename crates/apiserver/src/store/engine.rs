//! The shell around the pure parts of the store: a writer thread takes all waiting writes, makes them
//! durable in one transaction, publishes them, answers, and wakes the watchers. It decides nothing
//! itself. The server holds [`Store`] handles.

use super::batch::{Answer, Request, plan};
use super::disk::Disk;
use super::history::History;
use super::names::Names;
use super::state::{State, page};
use super::{
    Committed, Entry, Event, Expired, Key, Limits, ListQuery, OpenError, Page, Write, WriteError,
};
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::{oneshot, watch};

/// The revision of a new store. Not 0, which means "any" to clients.
pub(super) const FIRST_REVISION: u64 = 1;

/// The most writes of one transaction: the first should not wait long for the last.
const BATCH_WRITES: usize = 1024;
/// The most bytes of their objects.
const BATCH_BYTES: usize = 8 << 20;

/// A disk that failed again is left alone for so many times as long as the attempt took.
const PAUSE: u32 = 10;

/// A handle on a store; clones are cheap and mean the same store. When the last one goes, the writes
/// that wait are finished and the file is released before `drop` returns.
#[derive(Clone)]
pub struct Store(Arc<Handle>);

struct Handle {
    shared: Arc<Shared>,
    jobs: Option<mpsc::Sender<Job>>,
    writer: Option<JoinHandle<()>>,
}

/// What readers, watchers and the writer share.
struct Shared {
    limits: Limits,
    state: RwLock<State>,
    /// Wakes tasks that wait for a revision.
    revision: watch::Sender<u64>,
    /// Wakes the watchers of a resource. Only resources with watchers have an entry.
    signals: Mutex<HashMap<Arc<str>, watch::Sender<()>>>,
    /// Why no writes are taken now.
    failure: RwLock<Option<Arc<str>>>,
}

enum Job {
    Write(Request, oneshot::Sender<Answer>),
    Close(oneshot::Sender<()>),
}

impl Store {
    /// A store in memory, dropped with its last handle.
    pub fn memory(limits: Limits) -> Store {
        let shared = Shared::new(State::new(FIRST_REVISION), limits);
        let (jobs, waiting) = mpsc::channel();
        let names = Names::default();
        let writer = Writer { shared: shared.clone(), disk: None, names, again: None };
        // Without a thread nobody receives, and every write says so.
        let writer = writer.start(waiting).ok();
        Store(Arc::new(Handle { shared, jobs: Some(jobs), writer }))
    }

    /// The store in the file at `path`, which is created if it does not exist. Loads the whole file.
    pub fn open(path: &Path, limits: Limits) -> Result<Store, OpenError> {
        Self::on(Disk::open(path)?, limits)
    }

    pub(super) fn on(disk: Disk, limits: Limits) -> Result<Store, OpenError> {
        let mut names = Names::default();
        let shared = Shared::new(disk.load(&mut names)?, limits);
        let (jobs, waiting) = mpsc::channel();
        let writer = Writer { shared: shared.clone(), disk: Some(disk), names, again: None };
        let writer = writer.start(waiting)?;
        Ok(Store(Arc::new(Handle { shared, jobs: Some(jobs), writer: Some(writer) })))
    }

    /// The latest revision that is durable and visible.
    pub fn revision(&self) -> u64 {
        self.0.shared.state.read().revision()
    }

    /// The object at `key`.
    pub fn get(&self, key: &Key) -> Option<Entry> {
        self.0.shared.state.read().find(key).map(|(_, entry)| entry.clone())
    }

    /// The objects of a resource, or a page of them, now or at an earlier revision.
    pub fn list(&self, resource: &str, query: &ListQuery<'_>) -> Result<Page, Expired> {
        let ListQuery { namespace, at, after, limit, filter } = *query;
        let limit = limit.filter(|limit| *limit > 0).unwrap_or(usize::MAX);
        // With a filter it is not known how many objects are needed, and the filter must not run under
        // the lock.
        let take = if filter.is_some() { usize::MAX } else { limit };
        let selection = self.0.shared.state.read().select(resource, namespace, at, after, take)?;
        Ok(page(selection, limit, filter))
    }

    /// Does a write if its expectation and guards hold, and returns when it is durable and visible.
    /// Dropping the future does not undo the write.
    pub async fn write(&self, write: Write) -> Result<Committed, WriteError> {
        let request = Request::prepare(write)?;
        let (answer, answered) = oneshot::channel();
        let sent = self.0.send(Job::Write(request, answer));
        match answered.await {
            Ok(answer) if sent => answer,
            _ => Err(WriteError::Storage("the store is closed".to_owned())),
        }
    }

    /// The revision of the newest change of a resource. 0: it never changed.
    pub fn changed(&self, resource: &str) -> u64 {
        self.0.shared.state.read().history(resource).map_or(0, History::newest)
    }

    /// Watches a resource: all its events after revision `from`.
    pub fn watch(&self, resource: &str, from: u64) -> Result<Watch, Expired> {
        let shared = &self.0.shared;
        if let Some(history) = shared.state.read().history(resource) {
            history.reaches(from)?;
        }
        let resource = Arc::<str>::from(resource);
        let signal = shared.signals.lock().entry(resource.clone()).or_default().subscribe();
        Ok(Watch { shared: shared.clone(), resource, signal, seen: from })
    }

    /// The object that holds a claim.
    pub fn claimed_by(&self, claim: &str) -> Option<Key> {
        self.0.shared.state.read().claimed_by(claim).cloned()
    }

    /// Waits until `revision` is reached, at most for `within`. Returns whether it was.
    pub async fn reached(&self, revision: u64, within: Duration) -> bool {
        let mut latest = self.0.shared.revision.subscribe();
        let reached = latest.wait_for(|latest| *latest >= revision);
        matches!(tokio::time::timeout(within, reached).await, Ok(Ok(_)))
    }

    /// The number of objects of each resource in a namespace, without zeros.
    pub fn namespace_contents(&self, namespace: &str) -> Vec<(Arc<str>, usize)> {
        self.0.shared.state.read().namespace_contents(namespace)
    }

    /// Why the store takes no writes, if that is so: the disk failed. Reads and watches go on, and a later write
    /// tries to write everything into a new file.
    pub fn failure(&self) -> Option<Arc<str>> {
        self.0.shared.failure.read().clone()
    }

    /// Finishes the writes that were sent before, and releases the file even if there are other
    /// handles. They can still read; their writes are refused.
    pub async fn close(self) {
        let (done, closed) = oneshot::channel();
        self.0.send(Job::Close(done));
        // An error means that another handle has closed the store already.
        let _ = closed.await;
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("revision", &self.revision()).finish_non_exhaustive()
    }
}

impl Handle {
    /// Sends a job. Returns whether there is a writer.
    fn send(&self, job: Job) -> bool {
        self.jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok())
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.jobs.take();
        if let Some(writer) = self.writer.take() {
            // A writer that panicked has already set the failure; there is nothing to finish.
            let _ = writer.join();
        }
    }
}

impl Shared {
    fn new(state: State, limits: Limits) -> Arc<Self> {
        let (revision, signals) =
            (watch::Sender::new(state.revision()), Mutex::new(HashMap::new()));
        let failure = RwLock::new(None);
        Arc::new(Self { limits, state: RwLock::new(state), revision, signals, failure })
    }

    /// Wakes the watchers of `resources`, and tasks that wait for a revision.
    fn wake(&self, resources: &[Arc<str>], revision: u64) {
        let mut signals = self.signals.lock();
        for resource in resources {
            if let Some(signal) = signals.get(resource) {
                if signal.receiver_count() == 0 {
                    signals.remove(resource);
                } else {
                    signal.send_replace(());
                }
            }
        }
        drop(signals);
        self.revision.send_replace(revision);
    }
}

/// The writer's part.
struct Writer {
    shared: Arc<Shared>,
    disk: Option<Disk>,
    names: Names,
    /// A disk that failed is not tried again before.
    again: Option<Instant>,
}

impl Writer {
    fn start(self, jobs: mpsc::Receiver<Job>) -> std::io::Result<JoinHandle<()>> {
        let shared = self.shared.clone();
        std::thread::Builder::new().name("store-writer".to_owned()).spawn(move || {
            // Without its writer the store can still be read: set the failure, so that readiness ends.
            if catch_unwind(AssertUnwindSafe(|| self.run(jobs))).is_err() {
                let failure = "the store's writer failed: restart this process";
                *shared.failure.write() = Some(failure.into());
            }
        })
    }

    /// Writes until all senders are dropped.
    fn run(mut self, jobs: mpsc::Receiver<Job>) {
        while let Ok(first) = jobs.recv() {
            let (mut requests, mut answers) = (Vec::new(), Vec::new());
            let (mut weight, mut closing) = (0, None);
            for job in std::iter::once(first).chain(jobs.try_iter()) {
                match job {
                    Job::Write(request, answer) => {
                        weight += request.weight();
                        requests.push(request);
                        answers.push(answer);
                    }
                    Job::Close(done) => closing = Some(done),
                }
                if closing.is_some() || requests.len() >= BATCH_WRITES || weight >= BATCH_BYTES {
                    break;
                }
            }
            for (answer, result) in answers.into_iter().zip(self.write(requests)) {
                // The caller may have been dropped; the write is valid.
                let _ = answer.send(result);
            }
            if let Some(done) = closing {
                drop(self);
                drop(jobs);
                let _ = done.send(());
                return;
            }
        }
    }

    /// Plans, makes durable and publishes a batch. If the transaction fails, every answer is the
    /// failure: an answer may depend on an earlier write of the batch.
    fn write(&mut self, requests: Vec<Request>) -> Vec<Answer> {
        let count = requests.len();
        if let Err(failure) = self.mended() {
            return vec![Err(WriteError::Storage(failure)); count];
        }
        let shared = &self.shared;
        let (batch, answers) = plan(&shared.state.read(), &mut self.names, shared.limits, requests);
        if batch.growth.is_empty() {
            return answers;
        }
        if let Some(disk) = &self.disk
            && let Err(error) = disk.commit(&batch)
        {
            // The file may or may not hold the batch now, so nothing may be numbered after it.
            tracing::error!(%error, "the store's file failed, no writes are taken until it can be written again");
            return vec![Err(WriteError::Storage(self.failed(&error))); count];
        }
        let resources: Vec<_> = batch.growth.keys().cloned().collect();
        let revision = batch.revision;
        let fallen = shared.state.write().publish(batch);
        drop(fallen);
        shared.wake(&resources, revision);
        answers
    }

    /// After the disk has failed: writes what the memory has into a new file, now and then, until that works. The
    /// memory has what was acknowledged and nothing else; so has the new file, whatever the failed write left behind.
    fn mended(&mut self) -> Result<(), String> {
        let Some(failure) = self.shared.failure.read().clone() else { return Ok(()) };
        let begun = Instant::now();
        let early = self.again.is_some_and(|again| begun < again);
        let Some(disk) = self.disk.as_ref().filter(|_| !early) else {
            return Err(failure.to_string());
        };
        let renewed = disk.renewed(&self.shared.state.read());
        // The new file has taken the place of the old one, so it is kept in any case: it holds the lock.
        let settled = renewed.and_then(|disk| self.disk.insert(disk).settle());
        match settled {
            Ok(()) => {
                self.again = None;
                *self.shared.failure.write() = None;
                tracing::warn!("the store's file was written again: writes are taken");
                Ok(())
            }
            Err(error) => {
                self.again = Some(Instant::now() + begun.elapsed() * PAUSE);
                Err(self.failed(&error))
            }
        }
    }

    /// Takes no writes from now on because of this error. Returns the message for clients.
    fn failed(&self, error: &dyn fmt::Display) -> String {
        let failure = format!(
            "{error}; no writes are taken until the disk of the data folder can be written again"
        );
        *self.shared.failure.write() = Some(failure.as_str().into());
        failure
    }
}

/// The events of one resource, as they become durable. An idle watcher costs nothing; it gets
/// [`Expired`] if the history has moved on without it.
pub struct Watch {
    shared: Arc<Shared>,
    resource: Arc<str>,
    signal: watch::Receiver<()>,
    seen: u64,
}

impl Watch {
    /// Waits for events of this resource and returns all of them, oldest first. Dropping the future
    /// loses no event. On a closed store it waits forever.
    pub async fn next(&mut self) -> Result<Vec<Arc<Event>>, Expired> {
        loop {
            self.signal.mark_unchanged();
            let events = {
                let state = self.shared.state.read();
                let events = state.events(&self.resource, self.seen)?;
                if !events.is_empty() {
                    self.seen = self.seen.max(state.revision());
                }
                events
            };
            if !events.is_empty() {
                return Ok(events);
            }
            if self.signal.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// The revision up to which this watcher has received everything. It also grows while only other
    /// resources change, so that a client knows where to resume.
    pub fn position(&self) -> u64 {
        let state = self.shared.state.read();
        match state.history(&self.resource) {
            Some(history) if history.moved_since(self.seen) => self.seen,
            _ => self.seen.max(state.revision()),
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (resource, seen) = (&self.resource, self.seen);
        f.debug_struct("Watch").field("resource", resource).field("seen", &seen).finish()
    }
}
