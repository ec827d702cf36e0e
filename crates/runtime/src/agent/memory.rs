//! The agent's shell around [`bowline_core::kept_state`]: reads and writes the state folder (`--state`) when that
//! machine says so, and tells it the time and the results. It decides nothing, and without a folder it does nothing.

use super::state_folder::{Folder, Loaded};
use crate::clock;
use crate::metrics::Metrics;
use crate::roles::AgentOptions;
use bowline_core::kept_state::{Effect, Event, KeptState, Origin, Unusable};
use bowline_core::update::{Certificate, Change, CookieSecret, Update};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

/// How long the last write may take when the agent ends.
const LAST: Duration = Duration::from_secs(2);

/// The reporter notifies this when the API has answered.
pub(super) type Contact = Arc<Notify>;

/// The state that was found in the folder.
#[derive(Debug)]
pub(super) struct FoundState {
    pub(super) update: Update,
    /// The last time at which it was known to be true, in seconds of the Unix epoch.
    pub(super) since: i64,
}

/// What the agent has to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Serve the kept state.
    Serve,
    /// Withdraw the kept state and serve nothing.
    Withdraw,
    /// Save what is served.
    Save,
}

#[derive(Debug, Default)]
pub(super) struct Memory {
    kept_state: KeptState,
    folder: Option<Arc<Folder>>,
    kept: Option<FoundState>,
    /// The last time at which the kept state was known to be true, in seconds of the Unix epoch.
    since: Option<i64>,
    /// Marks of the cluster that the agent is configured for.
    cluster: Option<watch::Receiver<BTreeSet<String>>>,
    /// Kept certificates. They stay after the other kept state is replaced, until the API has delivered all that the
    /// plan names.
    certificates: BTreeMap<Arc<str>, Arc<Certificate>>,
    cookie_secret: Option<CookieSecret>,
    /// Effects that are not carried out yet.
    effects: Vec<Effect>,
    saving: Option<JoinHandle<(io::Result<()>, Duration)>>,
    failing: bool,
    /// Whether the last write was still running when the agent ended.
    is_late: bool,
    metrics: Metrics,
    contact: Contact,
}

impl Memory {
    /// Opens the state folder and reads it. Every error is logged and counted, and the agent goes on without kept
    /// state. Also returns the agent's name from the folder.
    pub(super) async fn open(options: &AgentOptions, metrics: &Metrics) -> (Self, Option<String>) {
        let origin = Origin {
            load_balancer: options.load_balancer.clone(),
            namespace: options.namespace.clone(),
            cluster: options.cluster.as_ref().map(|it| it.borrow().clone()).unwrap_or_default(),
            uid: options.uid.clone(),
        };
        let (kept_state, metrics) = (KeptState::new(origin), metrics.clone());
        let cluster = options.cluster.clone();
        let memory = Self { kept_state, metrics, cluster, ..Self::default() };
        let Some(path) = options.state.clone() else { return (memory, None) };
        let identity = options.identity.clone();
        match tokio::task::spawn_blocking(move || memory.read(&path, &identity)).await {
            Ok(memory) => memory,
            Err(error) => {
                tracing::error!(%error, "--state: cannot read the kept state");
                (Self::default(), None)
            }
        }
    }

    fn read(mut self, path: &Path, identity: &str) -> (Self, Option<String>) {
        let shown = path.display();
        let folder = match Folder::open(path) {
            Ok(folder) => folder,
            Err(error) => {
                self.metrics.error("State");
                tracing::warn!(folder = %shown, %error, "--state: cannot use the folder; no state is kept");
                return (self, None);
            }
        };
        let identity = folder.identity(identity);
        let found = match folder.load() {
            Ok(None) => Event::Opened,
            Ok(Some(Loaded { update, origin, at })) => {
                let certificates = update.certificates.iter().filter_map(|change| match change {
                    Change::Put(hash, certificate) => Some((hash.clone(), certificate.clone())),
                    Change::Remove(_) => None,
                });
                self.certificates = certificates.collect();
                self.cookie_secret.clone_from(&update.cookie_secret);
                self.since = Some(seconds(at));
                self.kept = Some(FoundState { update, since: seconds(at) });
                // Only the wall clock goes on across a reboot. If it was set back, the age is unknown and counts as
                // zero.
                Event::Found(origin, SystemTime::now().duration_since(at).unwrap_or_default())
            }
            Err(error) => {
                self.metrics.error("State");
                tracing::warn!(folder = %shown, %error, "--state: the kept state is ignored");
                Event::Opened
            }
        };
        self.folder = Some(Arc::new(folder));
        self.tell(found);
        (self, Some(identity))
    }

    /// What the reporter notifies when the API has answered.
    pub(super) fn contact(&self) -> Contact {
        Arc::clone(&self.contact)
    }

    /// Passes an event to the machine.
    pub(super) fn tell(&mut self, event: Event) {
        self.kept_state.handle(event, clock::since_boot());
    }

    /// A Plan names this uid as the uid of the load balancer.
    pub(super) fn owned(&mut self, uid: &str) {
        if self.kept_state.origin().uid.as_deref() != Some(uid) {
            self.tell(Event::Owner(uid.to_owned()));
        }
    }

    /// Resolves when the agent has something to do. Safe to cancel.
    pub(super) async fn due(&mut self, watching: bool) -> Due {
        self.tell(Event::Watching(watching));
        let contact = self.contact();
        loop {
            self.effects.extend(self.kept_state.take(clock::since_boot()));
            while !self.effects.is_empty() {
                if let Some(due) = self.next() {
                    return due;
                }
            }
            let wake = self.kept_state.wake();
            let wake = async {
                match wake {
                    Some(at) => tokio::time::sleep(at.saturating_sub(clock::since_boot())).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                ended = written(&mut self.saving) => self.saved(ended),
                () = contact.notified() => self.tell(Event::Answered),
                marks = configured(&mut self.cluster) => self.tell(Event::Configured(marks)),
                () = wake => {}
            }
        }
    }

    /// Carries out the next effect, or returns what the agent has to do.
    fn next(&mut self) -> Option<Due> {
        match self.effects.remove(0) {
            Effect::Serve => return Some(Due::Serve),
            Effect::Withdraw => return Some(Due::Withdraw),
            Effect::Save => return Some(Due::Save),
            Effect::Forget(why) => {
                self.metrics.error("State");
                tracing::warn!("--state: the kept state is ignored: {why}");
                self.kept = None;
                self.certificates.clear();
                self.cookie_secret = None;
                // The file holds the keys of a load balancer that is gone.
                let gone = self.folder.as_ref().filter(|_| why == Unusable::Uid);
                if let Some(Err(error)) = gone.map(|folder| folder.forget()) {
                    tracing::warn!(%error, "--state: cannot remove the kept state");
                }
            }
            Effect::Confirm => {
                if let Some(Err(error)) = self.folder.as_ref().map(|folder| folder.confirm()) {
                    tracing::debug!(%error, "--state: cannot note that the kept state is current");
                }
            }
        }
        None
    }

    /// The kept state, while it may be served.
    pub(super) fn kept(&self) -> Option<&FoundState> {
        self.kept.as_ref().filter(|_| self.kept_state.keeps_some())
    }

    /// The time until which the served state was known to be true. None: the agent follows the API.
    pub(super) fn since(&self) -> Option<i64> {
        self.since.filter(|_| self.kept_state.serves())
    }

    /// Adds to a complete update the kept secrets that the API has not delivered: the missing certificates and the
    /// cookie secret. A certificate is found by the hash of its content, so it cannot be an old one.
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

    /// The driver has applied what the API delivered. Returns whether kept state was served until now.
    pub(super) fn replaced(&mut self) -> bool {
        let served = self.kept_state.serves();
        self.tell(Event::Followed);
        self.kept = None;
        served
    }

    /// Starts to save this update.
    pub(super) fn save(&mut self, update: Update) {
        let Some(folder) = self.folder.clone() else { return };
        let origin = self.kept_state.origin().clone();
        self.saving = Some(tokio::task::spawn_blocking(move || {
            let begun = Instant::now();
            let saved = folder.save(&update, &origin);
            (saved, begun.elapsed())
        }));
    }

    fn saved(&mut self, (saved, took): (io::Result<()>, Duration)) {
        self.saving = None;
        self.tell(Event::Written(saved.is_ok(), took));
        let failed = std::mem::replace(&mut self.failing, saved.is_err());
        if let Err(error) = saved {
            self.metrics.error("State");
            if !failed {
                tracing::warn!(%error, "--state: cannot write the kept state; the write is tried again");
            }
        }
    }

    /// Deletes the kept state after the agent has ended. False: the file may still exist, or a late write may bring
    /// it back.
    pub(super) fn forget(&self) -> bool {
        if self.is_late {
            return false;
        }
        let forgotten = self.folder.as_ref().map_or(Ok(()), |folder| folder.forget());
        if let Err(error) = &forgotten {
            tracing::warn!(%error, "--state: cannot remove the kept state");
        }
        forgotten.is_ok()
    }

    /// Saves the changes since the last save, if that does not take long. Called at the end.
    pub(super) async fn end(&mut self, update: impl FnOnce() -> Update) {
        let last = async {
            if let Some(saving) = self.saving.take() {
                let _ = saving.await;
            }
            if self.kept_state.end() {
                self.save(update());
            }
            if let Some(saving) = self.saving.take() {
                let _ = saving.await;
            }
        };
        if tokio::time::timeout(LAST, last).await.is_err() {
            self.is_late = true;
            tracing::warn!(
                "--state: the last changes could not be written to the kept state in time"
            );
        }
    }
}

/// Resolves when the agent is configured with other marks of the cluster.
async fn configured(cluster: &mut Option<watch::Receiver<BTreeSet<String>>>) -> BTreeSet<String> {
    if let Some(marks) = cluster
        && marks.changed().await.is_ok()
    {
        return marks.borrow_and_update().clone();
    }
    // The marks do not change any more.
    *cluster = None;
    std::future::pending().await
}

/// Resolves when a write has ended; never, if none is under way.
async fn written(
    saving: &mut Option<JoinHandle<(io::Result<()>, Duration)>>,
) -> (io::Result<()>, Duration) {
    match saving {
        Some(saving) => {
            saving.await.unwrap_or_else(|error| (Err(io::Error::other(error)), Duration::ZERO))
        }
        None => std::future::pending().await,
    }
}

fn seconds(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_core::kept_state::{MAX_AGE, PATIENCE};

    fn options(path: &Path) -> AgentOptions {
        AgentOptions { state: Some(path.to_owned()), ..AgentOptions::new("edge") }
    }

    fn update(n: u16) -> Update {
        let hash = format!("{n:064x}").parse().unwrap();
        Update { complete: true, hash, ..Update::default() }
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
        // The API has delivered everything but the Secrets.
        assert!(!memory.replaced() && memory.kept().is_none());
        let mut now = update(2);
        memory.complete(&mut now, ["h1".into(), "h2".into()].iter());
        assert_eq!((now.certificates, now.cookie_secret), (vec![put()], Some(secret)));
    }

    /// Saves an update in a folder, as an agent with these options.
    async fn keep(options: &AgentOptions, served: Update) {
        let (mut memory, identity) = Memory::open(options, &Metrics::default()).await;
        assert!(identity.is_some());
        memory.replaced();
        memory.end(|| served).await;
    }

    #[tokio::test]
    async fn what_was_kept_last_is_served_when_the_api_says_nothing() {
        let place = tempfile::tempdir().unwrap();
        keep(&options(place.path()), update(7)).await;
        let begun = Instant::now();
        let (mut memory, _) = Memory::open(&options(place.path()), &Metrics::default()).await;
        assert_eq!(memory.due(true).await, Due::Serve);
        assert!(begun.elapsed() >= PATIENCE);
        assert_eq!(memory.kept().map(|kept| kept.update.hash), Some(update(7).hash));
        memory.tell(Event::Serves);
        assert!(memory.since().is_some());
        assert!(memory.replaced() && memory.kept().is_none() && memory.since().is_none());
    }

    #[tokio::test]
    async fn state_of_another_uid_or_cluster_or_of_long_ago_is_told_and_forgotten() {
        let place = tempfile::tempdir().unwrap();
        let uid = |uid: &str| AgentOptions { uid: Some(uid.into()), ..options(place.path()) };
        let certificate = Arc::new(Certificate { chain: "chain".into(), key: "key".into() });
        let certificates = || vec![Change::Put("h1".into(), Arc::clone(&certificate))];
        let file = place.path().join("state");
        // What becomes of state that an agent of the load balancer with uid `u1` kept this long ago.
        let forgets = async |options: AgentOptions, told: Option<&str>, age: Duration| {
            keep(&uid("u1"), Update { certificates: certificates(), ..update(1) }).await;
            let kept = std::fs::File::options().append(true).open(&file).unwrap();
            kept.set_modified(SystemTime::now() - age).unwrap();
            let metrics = Metrics::default();
            let (mut memory, _) = Memory::open(&options, &metrics).await;
            assert!(memory.kept.is_some());
            told.iter().for_each(|uid| memory.owned(uid));
            let due = tokio::time::timeout(Duration::from_millis(100), memory.due(true)).await;
            assert!(due.is_err(), "{due:?}");
            let counted = metrics.text().contains("bowline_errors_total{reason=\"State\"} 1");
            // Keys of a load balancer that is gone are deleted.
            let is_gone = memory.kept().is_none() && memory.certificates.is_empty();
            (is_gone, counted, file.exists())
        };
        let (now, used) = (Duration::ZERO, (false, false, true));
        let (forgotten, deleted) = ((true, true, true), (true, true, false));
        assert_eq!(forgets(uid("u1"), None, now).await, used);
        assert_eq!(forgets(uid("u2"), None, now).await, deleted);
        assert_eq!(forgets(options(place.path()), Some("u1"), now).await, used);
        assert_eq!(forgets(options(place.path()), Some("u2"), now).await, deleted);
        let marks = watch::Sender::new(["c2".to_owned()].into());
        let cluster = AgentOptions { cluster: Some(marks.subscribe()), ..uid("u1") };
        assert_eq!(forgets(cluster, None, now).await, forgotten);
        let age = MAX_AGE + Duration::from_secs(9);
        assert_eq!(forgets(uid("u1"), None, age).await, forgotten);
    }

    #[tokio::test]
    async fn a_new_ca_beside_the_old_one_counts_after_a_restart() {
        let place = tempfile::tempdir().unwrap();
        let marks = |all: &[&str]| all.iter().map(|it| (*it).to_owned()).collect::<BTreeSet<_>>();
        let configured = watch::Sender::new(marks(&["old"]));
        let open = async |marks: &watch::Sender<BTreeSet<String>>| {
            let cluster = Some(marks.subscribe());
            let options = AgentOptions { cluster, ..options(place.path()) };
            Memory::open(&options, &Metrics::default()).await.0
        };
        let mut memory = open(&configured).await;
        memory.replaced();
        assert_eq!(memory.due(true).await, Due::Save);
        memory.save(update(1));
        configured.send_replace(marks(&["old", "new"]));
        assert_eq!(memory.due(true).await, Due::Save);
        memory.save(update(1));
        memory.end(|| update(1)).await;
        drop(memory);
        for (now, usable) in [("new", true), ("old", true), ("other", false)] {
            let mut memory = open(&watch::Sender::new(marks(&[now]))).await;
            let due = tokio::time::timeout(Duration::from_millis(100), memory.due(true)).await;
            assert!(due.is_err(), "{due:?}");
            assert_eq!(memory.kept().is_some(), usable, "with the CA {now:?}");
        }
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
        assert!(!memory.kept_state.end(), "there is nowhere to keep it");
        assert!(metrics.text().contains("bowline_errors_total{reason=\"State\"} 1"));
        std::fs::write(place.path().join("state"), "{}").unwrap();
        let (memory, identity) = Memory::open(&options(place.path()), &metrics).await;
        assert!(identity.is_some() && memory.kept().is_none());
        assert!(metrics.text().contains("bowline_errors_total{reason=\"State\"} 2"));
    }
}
