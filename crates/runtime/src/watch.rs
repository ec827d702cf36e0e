//! Follows one kind of object: by a streaming list, or by pages and a watch if a server refuses that. It
//! resumes after a break and lists anew after an expired version. Objects are read into small values here
//! and dropped. Controller and agent start one watch per kind.
//!
//! One of several API servers may lag behind the others. A list that is older than what was delivered
//! before is dropped: it would remove existing objects and bring deleted ones back.

use crate::causes::causes;
use crate::metrics::Metrics;
use crate::random;
use bowline_core::backoff::Backoff;
use bowline_core::clock::in_words;
use futures::StreamExt;
use futures::stream::BoxStream;
use kube::Resource;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use kube::runtime::watcher::Error;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Seconds after which a server ends a watch, which is then resumed. A watch that is silent for longer is
/// dead.
const LONGEST: u32 = 60;
/// A watch that the server ends sooner was refused.
const SHORTEST: Duration = Duration::from_secs(1);
/// Objects per page of a list.
const PAGE: u32 = 500;
/// The annotation of the bookmark that ends a streaming list.
const END_OF_LIST: &str = "k8s.io/initial-events-end";

/// What a watch shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen<K> {
    /// A list begins: objects that do not come before `Done` are gone.
    Begin,
    /// An object as it is now.
    Apply(K),
    /// An object as it was when it was deleted.
    Delete(K),
    /// The list is complete.
    Done,
}

impl<K> Seen<K> {
    /// Converts the object.
    pub fn map<T>(self, read: impl FnOnce(K) -> T) -> Seen<T> {
        match self {
            Self::Begin => Seen::Begin,
            Self::Apply(object) => Seen::Apply(read(object)),
            Self::Delete(object) => Seen::Delete(read(object)),
            Self::Done => Seen::Done,
        }
    }

    /// The same, with the object borrowed.
    pub fn as_ref(&self) -> Seen<&K> {
        match self {
            Self::Begin => Seen::Begin,
            Self::Apply(object) => Seen::Apply(object),
            Self::Delete(object) => Seen::Delete(object),
            Self::Done => Seen::Done,
        }
    }
}

/// What a watch is called in the log and the metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct What {
    /// The kind, or another short word.
    pub label: &'static str,
    /// What to log, once, if the server forbids the watch. None: the server's message, each time.
    pub remedy: Option<String>,
}

impl From<&'static str> for What {
    fn from(label: &'static str) -> Self {
        Self { label, remedy: None }
    }
}

/// Which objects to follow.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Objects with these labels.
    pub labels: Option<String>,
    /// Objects with these fields.
    pub fields: Option<String>,
}

impl Selection {
    /// Objects with these labels only.
    pub fn labels(selector: impl Into<String>) -> Self {
        Self { labels: Some(selector.into()), fields: None }
    }

    /// Objects with these fields only.
    pub fn fields(selector: impl Into<String>) -> Self {
        Self { labels: None, fields: Some(selector.into()) }
    }

    fn pages(&self, continue_token: Option<String>) -> ListParams {
        ListParams {
            label_selector: self.labels.clone(),
            field_selector: self.fields.clone(),
            limit: Some(PAGE),
            continue_token,
            ..ListParams::default()
        }
    }

    fn watch(&self, send_initial_events: bool) -> WatchParams {
        WatchParams {
            label_selector: self.labels.clone(),
            field_selector: self.fields.clone(),
            timeout: Some(LONGEST),
            bookmarks: true,
            send_initial_events,
        }
    }
}

/// Follows objects until the receiver of `listener` is dropped. `read` makes an event of what is seen;
/// None: nothing is sent.
pub async fn follow<K, E>(
    api: Api<K>,
    selection: Selection,
    what: impl Into<What>,
    metrics: Metrics,
    listener: mpsc::Sender<E>,
    read: impl FnMut(Seen<K>) -> Option<E> + Send,
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    E: Send,
{
    let closed = listener.clone();
    let mut follower = Follower {
        api,
        selection,
        what: what.into(),
        forbidden: false,
        metrics,
        listener,
        read,
        backoff: Backoff::new(Duration::from_millis(100), Duration::from_secs(15)),
        streaming: true,
        newest: None,
    };
    tokio::select! {
        () = follower.run() => {}
        () = closed.closed() => {}
    }
}

type Events<K> = BoxStream<'static, kube::Result<WatchEvent<K>>>;

struct Follower<K, E, R> {
    api: Api<K>,
    selection: Selection,
    what: What,
    /// The server has forbidden the watch since it last worked.
    forbidden: bool,
    metrics: Metrics,
    listener: mpsc::Sender<E>,
    read: R,
    backoff: Backoff,
    /// Whether this server streams lists.
    streaming: bool,
    /// The newest version up to which everything was delivered. None: no list is complete yet.
    newest: Option<String>,
}

/// Why following broke off, and from which version it resumes; None: from a new list.
struct Broken {
    version: Option<String>,
    why: Trouble,
}

impl Broken {
    fn anew(why: impl Into<Trouble>) -> Self {
        Self { version: None, why: why.into() }
    }
}

impl<K, E, R> Follower<K, E, R>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    R: FnMut(Seen<K>) -> Option<E>,
{
    async fn run(&mut self) {
        let mut version = None;
        while !self.listener.is_closed() {
            let ended = match version.take() {
                None => self.list().await,
                Some(version) => self.resume(version).await,
            };
            match ended {
                Ok(last) => version = Some(last),
                Err(broken) => {
                    version = broken.version;
                    self.recover(&broken.why).await;
                }
            }
        }
    }

    /// Waits, ever longer, after a break. If the server cannot stream lists, switches to pages at once.
    async fn recover(&mut self, why: &Trouble) {
        if self.streaming && why.refuses_streaming() {
            tracing::debug!(what = self.what.label, %why, "no streaming lists here: reading pages instead");
            self.streaming = false;
            return;
        }
        let label = self.what.label;
        self.metrics.watch_restarted(label);
        let wait = self.backoff.failed(random::number());
        let complaint = complaint(&self.what, why, self.backoff.failures(), self.forbidden);
        self.forbidden |= why.is_forbidden();
        match complaint {
            Complaint::Quiet => {
                tracing::debug!(what = label, error = causes(why), wait = %in_words(wait), "the watch broke off")
            }
            Complaint::Remedy(remedy) => tracing::warn!(what = label, "{remedy}"),
            Complaint::Loud => {
                let error = causes(why);
                tracing::warn!(
                    what = label,
                    error,
                    wait = %in_words(wait),
                    "cannot watch; what is known stays in force"
                );
            }
        }
        tokio::time::sleep(wait).await;
    }

    async fn tell(&mut self, seen: Seen<K>) {
        if let Some(told) = self.read(seen) {
            self.send(told).await;
        }
    }

    /// Calls `read`. An object at which it panics is left out, as one that cannot be decoded is: such an
    /// object of one tenant must not hide those of others.
    fn read(&mut self, seen: Seen<K>) -> Option<E> {
        let (Seen::Apply(object) | Seen::Delete(object)) = &seen else { return (self.read)(seen) };
        let name = named(object);
        let read = std::panic::catch_unwind(AssertUnwindSafe(|| (self.read)(seen)));
        read.unwrap_or_else(|_| {
            let ((namespace, name), what) = (name, self.what.label);
            tracing::error!(what, namespace, name, "reading an object panicked; it is left out");
            self.metrics.error("Unreadable");
            None
        })
    }

    async fn send(&mut self, told: E) {
        // Once the receiver is gone, `follow` ends.
        let _ = self.listener.send(told).await;
    }

    /// Everything up to this version was delivered.
    fn reached(&mut self, version: &str) {
        self.backoff.worked();
        self.forbidden = false;
        if self.newest.as_deref().is_none_or(|newest| !is_older(version, newest)) {
            self.newest = Some(version.to_owned());
        }
    }

    /// Whether a list of this version may be delivered.
    fn check(&self, version: &str) -> Result<(), Broken> {
        match &self.newest {
            Some(newest) if is_older(version, newest) => Err(Broken::anew(Trouble::Older {
                version: version.to_owned(),
                newest: newest.clone(),
            })),
            _ => Ok(()),
        }
    }

    /// Delivers all objects, then follows them.
    async fn list(&mut self) -> Result<String, Broken> {
        if !self.streaming {
            let version = self.list_pages().await?;
            return self.resume(version).await;
        }
        let (version, events) = self.list_stream().await?;
        self.watch(version, events).await
    }

    /// Pages come from a quorum, so they are never older than anything if the server is correct.
    async fn list_pages(&mut self) -> Result<String, Broken> {
        let (mut token, mut begun) = (None, false);
        loop {
            let page = self.api.list(&self.selection.pages(token)).await;
            let page = page.map_err(|error| Broken::anew(Error::InitialListFailed(error)))?;
            let version = page.metadata.resource_version.filter(|version| !version.is_empty());
            if let Some(version) = &version {
                self.check(version)?;
            }
            if !std::mem::replace(&mut begun, true) {
                self.tell(Seen::Begin).await;
            }
            for object in page.items {
                self.tell(Seen::Apply(object)).await;
            }
            token = page.metadata.continue_.filter(|token| !token.is_empty());
            if token.is_none() {
                let version = version.ok_or_else(|| Broken::anew(Error::NoResourceVersion))?;
                self.tell(Seen::Done).await;
                self.reached(&version);
                return Ok(version);
            }
        }
    }

    /// A streaming list tells its version only at its end. The first list is delivered as it comes; a later
    /// one, which could be older, is held until its version is checked.
    async fn list_stream(&mut self) -> Result<(String, Events<K>), Broken> {
        let at_least = self.newest.clone().unwrap_or_else(|| "0".to_owned());
        let mut events = self.open(true, &at_least).await.map_err(Broken::anew)?;
        let first = self.newest.is_none();
        let mut held = BTreeMap::new();
        if first {
            self.tell(Seen::Begin).await;
        }
        let version = loop {
            match next(&mut events).await {
                Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) if first => {
                    self.tell(Seen::Apply(object)).await;
                }
                Some(Ok(WatchEvent::Deleted(object))) if first => {
                    self.tell(Seen::Delete(object)).await;
                }
                Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
                    held.insert(named(&object), self.read(Seen::Apply(object)));
                }
                Some(Ok(WatchEvent::Deleted(object))) => drop(held.remove(&named(&object))),
                Some(Ok(WatchEvent::Bookmark(bookmark))) => {
                    if bookmark.metadata.annotations.contains_key(END_OF_LIST) {
                        break bookmark.metadata.resource_version;
                    }
                }
                Some(Ok(WatchEvent::Error(status))) => {
                    return Err(Broken::anew(Trouble::List(Error::WatchError(status.boxed()))));
                }
                Some(Err(error)) => self.skip(error).map_err(Broken::anew)?,
                None => return Err(Broken::anew(Trouble::Ended)),
            }
        };
        self.check(&version)?;
        if !first {
            self.tell(Seen::Begin).await;
            for told in held.into_values().flatten() {
                self.send(told).await;
            }
        }
        self.tell(Seen::Done).await;
        self.reached(&version);
        Ok((version, events))
    }

    async fn open(&mut self, list: bool, version: &str) -> Result<Events<K>, Error> {
        let events = self.api.watch(&self.selection.watch(list), version).await;
        events.map(StreamExt::boxed).map_err(Error::WatchStartFailed)
    }

    /// Follows from a version. Ok: the server ended the watch, and the caller resumes from this version.
    async fn resume(&mut self, version: String) -> Result<String, Broken> {
        match self.open(false, &version).await {
            Ok(events) => self.watch(version, events).await,
            Err(error) => {
                Err(Broken { version: (!expired(&error)).then_some(version), why: error.into() })
            }
        }
    }

    async fn watch(
        &mut self,
        mut version: String,
        mut events: Events<K>,
    ) -> Result<String, Broken> {
        let opened = Instant::now();
        loop {
            let event = match next(&mut events).await {
                Some(Ok(event)) => event,
                Some(Err(error)) => match self.skip(error) {
                    Ok(()) => continue,
                    Err(error) => return Err(Broken { version: Some(version), why: error.into() }),
                },
                None if opened.elapsed() < SHORTEST => {
                    return Err(Broken { version: Some(version), why: Trouble::Ended });
                }
                None => return Ok(version),
            };
            let seen = match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => Seen::Apply(object),
                WatchEvent::Deleted(object) => Seen::Delete(object),
                WatchEvent::Bookmark(bookmark) => {
                    version = bookmark.metadata.resource_version;
                    self.reached(&version);
                    continue;
                }
                WatchEvent::Error(status) => {
                    let error = Error::WatchError(status.boxed());
                    let version = (!expired(&error)).then_some(version);
                    return Err(Broken { version, why: error.into() });
                }
            };
            let (Seen::Apply(object) | Seen::Delete(object)) = &seen else { continue };
            let Some(now) = object.meta().resource_version.clone().filter(|now| !now.is_empty())
            else {
                return Err(Broken::anew(Error::NoResourceVersion));
            };
            self.tell(seen).await;
            version = now;
            self.reached(&version);
        }
    }

    /// An object that cannot be decoded is skipped, so that it does not hide the others.
    fn skip(&self, error: kube::Error) -> Result<(), Error> {
        match error {
            kube::Error::SerdeError(error) => {
                tracing::warn!(what = self.what.label, %error, "an object cannot be read");
                self.metrics.error("Unreadable");
                Ok(())
            }
            error => Err(Error::WatchFailed(error)),
        }
    }
}

/// The next event; None also after a silence longer than a server lets a watch live.
async fn next<K>(events: &mut Events<K>) -> Option<kube::Result<WatchEvent<K>>> {
    let patience = Duration::from_secs(u64::from(LONGEST) + 5);
    tokio::time::timeout(patience, events.next()).await.unwrap_or_default()
}

fn named<K: Resource>(object: &K) -> (Option<String>, Option<String>) {
    (object.meta().namespace.clone(), object.meta().name.clone())
}

/// Whether one resourceVersion is before another. If they are not numbers, nothing is known and the last
/// one counts.
pub(crate) fn is_older(version: &str, than: &str) -> bool {
    match (version.parse::<u64>(), than.parse::<u64>()) {
        (Ok(version), Ok(than)) => version < than,
        _ => false,
    }
}

/// What breaks a watch off.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("{0}")]
    Watch(#[from] Error),
    /// A streaming list failed.
    #[error("{0}")]
    List(Error),
    #[error("the server ended the watch at once, or in the middle of a list")]
    Ended,
    #[error(
        "the server is behind: it lists version {version}, and {newest} was seen before. If the cluster was \
         restored from a backup, restart this process"
    )]
    Older { version: String, newest: String },
}

impl Trouble {
    fn is_forbidden(&self) -> bool {
        matches!(self, Self::Watch(error) | Self::List(error) if status(error) == Some(403))
    }

    fn refuses_streaming(&self) -> bool {
        match self {
            Self::Watch(error) => refuses_streaming(error),
            Self::List(error) => cannot_stream(error),
            Self::Ended | Self::Older { .. } => false,
        }
    }
}

/// How a break is logged.
#[derive(Debug, PartialEq, Eq)]
enum Complaint<'a> {
    Quiet,
    Loud,
    Remedy(&'a str),
}

/// A first break is normal (a server restarts, a version expires); a lasting one is logged. A forbidden
/// watch lasts until an administrator acts, so its remedy is logged only once.
fn complaint<'a>(what: &'a What, why: &Trouble, failures: u32, told: bool) -> Complaint<'a> {
    match &what.remedy {
        Some(_) if why.is_forbidden() && told => Complaint::Quiet,
        Some(remedy) if why.is_forbidden() => Complaint::Remedy(remedy),
        _ if failures < 3 => Complaint::Quiet,
        _ => Complaint::Loud,
    }
}

fn status(error: &Error) -> Option<u16> {
    match error {
        Error::InitialListFailed(kube::Error::Api(status))
        | Error::WatchStartFailed(kube::Error::Api(status))
        | Error::WatchFailed(kube::Error::Api(status)) => Some(status.code),
        Error::WatchError(status) => Some(status.code),
        _ => None,
    }
}

/// A server without streaming lists answers that the parameter is forbidden or unknown.
fn refuses_streaming(error: &Error) -> bool {
    matches!(error, Error::WatchStartFailed(_)) && matches!(status(error), Some(400 | 422))
}

/// A server on an etcd that is too old accepts a streaming list, and then says in the stream that it cannot
/// serve it. A server that is behind (504) can, once it has caught up.
fn cannot_stream(error: &Error) -> bool {
    matches!(error, Error::WatchError(_)) && matches!(status(error), Some(500..=503 | 505..))
}

/// The server no longer keeps the version to resume from.
fn expired(error: &Error) -> bool {
    status(error) == Some(410)
}

#[cfg(test)]
mod tests;
