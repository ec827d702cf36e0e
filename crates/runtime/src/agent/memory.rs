//! When an agent keeps what it serves, and when it serves what it kept: after a start the API has a moment to
//! tell everything; then what was kept is served until it has. What was told is kept once a second at most,
//! and only when it changed. Without a folder nothing happens here.

use super::state::Folder;
use crate::metrics::Metrics;
use crate::roles::AgentOptions;
use bowline_core::update::{Certificate, Change, CookieSecret, Update};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::task::JoinHandle;
use tokio::time::sleep_until;

/// So long the API has after a start. What was kept may lead to an address that another tenant's Pod has by
/// now, so it is not served where the API can tell. Longer than Secrets are waited for.
const PATIENCE: Duration = Duration::from_secs(4);
/// The least time between two writes,
const GAP: Duration = Duration::from_secs(1);
/// and so many times as long as a write took: a large state costs no more than a twentieth of the time.
const SHARE: u32 = 20;
/// When a write that failed is tried again.
const AGAIN: Duration = Duration::from_secs(30);
/// How often it is noted that what is kept is still true.
const CONFIRM: Duration = Duration::from_secs(60);
/// The API is there if it was heard of within this.
const RECENT: u64 = 15;
/// How long the last write may take at the end.
const LAST: Duration = Duration::from_secs(2);

/// When the API was last heard of, in seconds of the Unix epoch.
pub(super) type Contact = Arc<AtomicU64>;

/// What was kept.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) update: Update,
    /// Until when it was known to be true, in seconds of the Unix epoch.
    pub(super) since: i64,
}

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// What was kept is to be served.
    Serve,
    /// What is served is to be kept.
    Save,
}

#[derive(Debug, Default)]
pub(super) struct Memory {
    folder: Option<Arc<Folder>>,
    kept: Option<Kept>,
    /// Secrets that were kept: they outlive the rest until the API has told all that the plan names.
    certificates: BTreeMap<Arc<str>, Arc<Certificate>>,
    cookie_secret: Option<CookieSecret>,
    /// When what was kept is served, unless the API has told everything by then.
    serve_at: Option<Instant>,
    /// What was kept is being served: since when it may be out of date.
    serves: Option<i64>,
    save_at: Option<Instant>,
    saving: Option<JoinHandle<(io::Result<()>, Duration)>>,
    next_save: Option<Instant>,
    confirm_at: Option<Instant>,
    failing: bool,
    metrics: Metrics,
    contact: Contact,
}

impl Memory {
    /// Opens the folder that the options name, and reads what is in it. Whatever is wrong with it is told, and
    /// the agent goes on without.
    pub(super) async fn open(options: &AgentOptions, metrics: &Metrics) -> (Self, Option<String>) {
        let metrics = metrics.clone();
        let Some(path) = options.state.clone() else {
            return (Self { metrics, ..Self::default() }, None);
        };
        let (lb, namespace) = (options.load_balancer.clone(), options.namespace.clone());
        let identity = options.identity.clone();
        let read = move || Self::read(&path, &lb, &namespace, &identity, &metrics);
        match tokio::task::spawn_blocking(read).await {
            Ok(memory) => memory,
            Err(error) => {
                tracing::error!(%error, "--state: reading what was kept failed");
                (Self::default(), None)
            }
        }
    }

    fn read(
        path: &Path,
        load_balancer: &str,
        namespace: &str,
        identity: &str,
        metrics: &Metrics,
    ) -> (Self, Option<String>) {
        let mut memory = Self { metrics: metrics.clone(), ..Self::default() };
        let folder = match Folder::open(path, load_balancer, namespace) {
            Ok(folder) => folder,
            Err(error) => {
                metrics.error("State");
                let folder = path.display();
                tracing::warn!(%folder, %error, "--state: cannot use the folder; nothing is kept");
                return (memory, None);
            }
        };
        let identity = folder.identity(identity);
        match folder.load() {
            Ok(None) => {}
            Ok(Some((update, at))) => {
                let certificates = update.certificates.iter().filter_map(|change| match change {
                    Change::Put(hash, certificate) => Some((hash.clone(), certificate.clone())),
                    Change::Remove(_) => None,
                });
                memory.certificates = certificates.collect();
                memory.cookie_secret.clone_from(&update.cookie_secret);
                memory.kept = Some(Kept { update, since: seconds(at) });
                memory.serve_at = Some(Instant::now() + PATIENCE);
            }
            Err(error) => {
                metrics.error("State");
                let folder = path.display();
                tracing::warn!(%folder, %error, "--state: what was kept is ignored");
            }
        }
        memory.folder = Some(Arc::new(folder));
        memory.confirm_at = Some(Instant::now() + CONFIRM);
        (memory, Some(identity))
    }

    /// Where it is noted that the API was heard of.
    pub(super) fn contact(&self) -> Contact {
        Arc::clone(&self.contact)
    }

    /// Resolves when something is to be done. It can be cancelled without loss.
    pub(super) async fn due(&mut self, healthy: bool) -> Due {
        loop {
            if let Some(saving) = &mut self.saving {
                // Serving comes before waiting for a disk.
                tokio::select! {
                    ended = saving => {
                        self.saving = None;
                        let failed = |error| (Err(io::Error::other(error)), Duration::ZERO);
                        self.saved(ended.unwrap_or_else(failed));
                    }
                    () = at(self.serve_at) => return self.serve(),
                }
                continue;
            }
            tokio::select! {
                () = at(self.serve_at) => return self.serve(),
                () = at(self.save_at) => {
                    self.save_at = None;
                    return Due::Save;
                }
                () = at(self.confirm_at) => self.confirm(healthy),
            }
        }
    }

    fn serve(&mut self) -> Due {
        self.serve_at = None;
        Due::Serve
    }

    /// What is to be served.
    pub(super) fn kept(&self) -> Option<&Kept> {
        self.kept.as_ref()
    }

    /// It could not be served: it is tried again then.
    pub(super) fn serve_later(&mut self, wait: Duration) {
        self.serve_at = Some(Instant::now() + wait);
    }

    /// It is being served.
    pub(super) fn serves(&mut self, since: i64) {
        self.serves = Some(since);
    }

    /// Since when what is served may be out of date; None: it is followed.
    pub(super) fn since(&self) -> Option<i64> {
        self.serves
    }

    /// Adds to all that there is what the API has not told of it and was kept: certificates of these hashes,
    /// which are known by their content, so that none can be an old one, and the cookie secret.
    pub(super) fn complete<'a>(
        &self,
        update: &mut Update,
        missing: impl Iterator<Item = &'a Arc<str>>,
    ) {
        let kept = missing.filter_map(|hash| {
            Some(Change::Put(hash.clone(), self.certificates.get(hash)?.clone()))
        });
        update.certificates.extend(kept);
        if update.cookie_secret.is_none() {
            update.cookie_secret.clone_from(&self.cookie_secret);
        }
    }

    /// The driver has what the API told; true: instead of what was kept.
    pub(super) fn replaced(&mut self) -> bool {
        (self.kept, self.serve_at) = (None, None);
        if self.folder.is_some() && self.save_at.is_none() {
            let now = Instant::now();
            self.save_at = Some(self.next_save.map_or(now, |at| at.max(now)));
        }
        self.serves.take().is_some()
    }

    /// Begins to keep this.
    pub(super) fn save(&mut self, update: Update) {
        let Some(folder) = self.folder.clone() else { return };
        self.saving = Some(tokio::task::spawn_blocking(move || {
            let begun = Instant::now();
            let saved = folder.save(&update);
            (saved, begun.elapsed())
        }));
    }

    fn saved(&mut self, (saved, took): (io::Result<()>, Duration)) {
        let now = Instant::now();
        self.next_save = Some(now + GAP.max(took * SHARE));
        match saved {
            Ok(()) => self.failing = false,
            Err(error) => {
                self.metrics.error("State");
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::warn!(%error, "--state: cannot keep what is served; it is tried again");
                }
                self.save_at = Some(now + AGAIN);
            }
        }
    }

    /// Notes that what is kept is still true, while the API is heard of and all watches work.
    fn confirm(&mut self, healthy: bool) {
        self.confirm_at = Some(Instant::now() + CONFIRM);
        let heard = self.contact.load(Ordering::Relaxed);
        let now = u64::try_from(seconds(SystemTime::now())).unwrap_or_default();
        let current = self.kept.is_none() && self.save_at.is_none() && self.next_save.is_some();
        if healthy
            && current
            && now.saturating_sub(heard) <= RECENT
            && let Some(folder) = &self.folder
            && let Err(error) = folder.confirm()
        {
            tracing::debug!(%error, "--state: cannot note that what is kept is true");
        }
    }

    /// At the end: what changed since it was last kept is kept, if that does not take long.
    pub(super) async fn end(&mut self, update: impl FnOnce() -> Update) {
        let last = async {
            if let Some(saving) = self.saving.take() {
                let _ = saving.await;
            }
            if self.save_at.take().is_some() {
                self.save(update());
            }
            if let Some(saving) = self.saving.take() {
                let _ = saving.await;
            }
        };
        if tokio::time::timeout(LAST, last).await.is_err() {
            tracing::warn!("--state: the last changes could not be kept in time");
        }
    }
}

/// Notes that the API was heard of.
pub(super) fn heard(contact: &Contact) {
    contact.store(u64::try_from(seconds(SystemTime::now())).unwrap_or_default(), Ordering::Relaxed);
}

fn seconds(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time.into()).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(path: &Path) -> AgentOptions {
        AgentOptions { state: Some(path.to_owned()), ..AgentOptions::new("edge") }
    }

    fn update(n: u16) -> Update {
        let hash = format!("{n:064x}").parse().unwrap();
        Update { complete: true, hash, ..Update::default() }
    }

    /// Drives a memory for a while; how often it kept something.
    async fn driven(memory: &mut Memory, time: Duration) -> usize {
        let until = Instant::now() + time;
        let mut saves = 0;
        while let Ok(due) = tokio::time::timeout_at(until.into(), memory.due(true)).await {
            assert_eq!(due, Due::Save);
            saves += 1;
            memory.save(update(1));
        }
        saves
    }

    #[tokio::test]
    async fn kept_certificates_outlive_the_rest_until_they_are_told() {
        let place = tempfile::tempdir().unwrap();
        let certificate = Arc::new(Certificate { chain: "chain".into(), key: "key".into() });
        let put = || Change::Put("h1".into(), Arc::clone(&certificate));
        let secret = CookieSecret([7; 32]);
        let served =
            Update { certificates: vec![put()], cookie_secret: Some(secret.clone()), ..update(1) };
        let (mut memory, _) = Memory::open(&options(place.path()), &Metrics::default()).await;
        memory.replaced();
        memory.end(|| served).await;
        drop(memory);
        let (mut memory, _) = Memory::open(&options(place.path()), &Metrics::default()).await;
        // The API has told everything but the Secrets.
        assert!(!memory.replaced() && memory.kept().is_none());
        let mut now = update(2);
        memory.complete(&mut now, ["h1".into(), "h2".into()].iter());
        assert_eq!((now.certificates, now.cookie_secret), (vec![put()], Some(secret)));
    }

    #[tokio::test]
    async fn however_often_it_changes_it_is_kept_once_a_second_and_not_when_nothing_changed() {
        let place = tempfile::tempdir().unwrap();
        let (mut memory, identity) =
            Memory::open(&options(place.path()), &Metrics::default()).await;
        assert!(identity.is_some() && memory.kept().is_none());
        let mut saves = 0;
        for _ in 0..50 {
            assert!(!memory.replaced());
            saves += driven(&mut memory, Duration::from_millis(30)).await;
        }
        assert!((1..=3).contains(&saves), "{saves} in 1.5 s");
        saves = driven(&mut memory, Duration::from_millis(1200)).await;
        assert!(saves <= 1, "{saves}");
        assert_eq!(driven(&mut memory, Duration::from_millis(1200)).await, 0);
    }

    #[tokio::test]
    async fn what_was_kept_is_served_only_when_the_api_had_its_time_and_what_changed_last_is_kept()
    {
        let place = tempfile::tempdir().unwrap();
        let (mut memory, _) = Memory::open(&options(place.path()), &Metrics::default()).await;
        memory.replaced();
        memory.end(|| update(7)).await;
        drop(memory);
        let begun = Instant::now();
        let (mut memory, _) = Memory::open(&options(place.path()), &Metrics::default()).await;
        assert_eq!(memory.due(true).await, Due::Serve);
        assert!(begun.elapsed() >= PATIENCE);
        let since = memory.kept().map(|kept| (kept.update.hash, kept.since)).unwrap();
        assert_eq!(since.0, update(7).hash);
        memory.serves(since.1);
        assert!(memory.replaced() && memory.kept().is_none());
        drop(memory);

        // The API tells in time.
        let (mut memory, _) = Memory::open(&options(place.path()), &Metrics::default()).await;
        assert!(!memory.replaced());
        memory.save_at = None;
        let wait = tokio::time::timeout(PATIENCE + GAP, memory.due(true));
        assert!(wait.await.is_err(), "nothing is to be served");
    }

    #[tokio::test]
    async fn a_folder_that_cannot_be_used_is_counted_and_the_agent_goes_on() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        std::fs::write(&file, "").unwrap();
        let metrics = Metrics::default();
        let (mut memory, identity) = Memory::open(&options(&file), &metrics).await;
        assert_eq!(identity, None);
        memory.replaced();
        assert!(memory.save_at.is_none());
        assert!(metrics.text().contains("bowline_errors_total{reason=\"State\"} 1"));
        std::fs::write(place.path().join("state"), "{}").unwrap();
        let (memory, identity) = Memory::open(&options(place.path()), &metrics).await;
        assert!(identity.is_some() && memory.kept().is_none());
        assert!(metrics.text().contains("bowline_errors_total{reason=\"State\"} 2"));
    }
}
