//! WATCH: from now, from a version, or with the whole list first, and with bookmarks. Objects that
//! enter or leave the selection are shown as ADDED and DELETED. The HTTP shell calls it.

use super::list::{ListOptions, Selection, resource_version};
use crate::error::{ApiError, FieldError};
use crate::http::query::{Query, VersionMatch};
use crate::kind::Kind;
use crate::server::Server;
use crate::store::{Event, EventKind, Expired, Watch};
use bytes::Bytes;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// How to watch.
#[derive(Clone, Debug)]
pub struct WatchOptions {
    selection: Selection,
    start: Start,
    bookmarks: bool,
    timeout: Duration,
}

/// Where a watch starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// With all objects as ADDED, then all later events. `announce`: with a bookmark between them.
    Everything { at_least: u64, announce: bool },
    /// After this revision.
    After(u64),
}

/// How often an idle watcher gets a bookmark.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);

/// How long a watch without a timeout lasts.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(45 * 60);

/// The longest watch; the client then starts a new one.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

/// An event for a watcher.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// ADDED, MODIFIED or DELETED, with the object in the stored version.
    Change(&'static str, Bytes),
    /// BOOKMARK at this revision, and whether it ends the initial events.
    Bookmark(u64, bool),
    /// The watch cannot go on.
    Error(Box<ApiError>),
}

impl WatchOptions {
    /// Reads the parameters of a watch.
    pub fn parse(kind: &Kind, query: &Query) -> Result<Self, ApiError> {
        let version =
            resource_version(&query.resource_version).map_err(|why| ApiError::new(500, "", why))?;
        let initial = query.send_initial_events;
        let wrong = watch_errors(query);
        if !wrong.is_empty() {
            return Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", &wrong));
        }
        if !query.continue_token.is_empty() {
            return Err(ApiError::bad_request("continue is forbidden for watch"));
        }
        let start = match initial {
            Some(true) => Start::Everything { at_least: version, announce: query.bookmarks },
            None if version == 0 => Start::Everything { at_least: 0, announce: false },
            _ => Start::After(version),
        };
        Ok(Self {
            selection: Selection::parse(kind, query)?,
            start,
            bookmarks: query.bookmarks,
            timeout: query
                .timeout_seconds
                .filter(|seconds| *seconds > 0)
                .map_or(DEFAULT_TIMEOUT, Duration::from_secs)
                .min(LONGEST_TIMEOUT),
        })
    }
}

/// A running watch.
pub struct WatchStream {
    kind: Arc<Kind>,
    namespace: String,
    selection: Selection,
    pending: VecDeque<Notice>,
    watch: Option<Watch>,
    bookmarks: bool,
    next_bookmark: Instant,
    ends: Instant,
}

impl Server {
    /// WATCH. An empty `namespace` means all namespaces.
    pub async fn watch(
        &self,
        kind: &Arc<Kind>,
        namespace: &str,
        options: WatchOptions,
    ) -> Result<WatchStream, ApiError> {
        let now = Instant::now();
        let mut stream = WatchStream {
            kind: kind.clone(),
            namespace: namespace.to_owned(),
            selection: options.selection.clone(),
            pending: VecDeque::new(),
            watch: None,
            bookmarks: options.bookmarks,
            next_bookmark: now + BOOKMARK_EVERY,
            ends: now + options.timeout,
        };
        let from = match options.start {
            Start::After(0) => self.store.revision(),
            Start::After(revision) => {
                self.wait_for(revision).await?;
                revision
            }
            Start::Everything { at_least, announce } => {
                self.wait_for(at_least).await?;
                let list = ListOptions::now(options.selection);
                let listed = self.list(kind, namespace, &list).await?;
                stream.pending.extend(
                    listed.items.into_iter().map(|(_, bytes)| Notice::Change("ADDED", bytes)),
                );
                if announce {
                    stream.pending.push_back(Notice::Bookmark(listed.revision, true));
                }
                listed.revision
            }
        };
        match self.store.watch(&kind.storage, from) {
            Ok(watch) => stream.watch = Some(watch),
            Err(expired) => stream.pending.push_back(gone(&expired)),
        }
        Ok(stream)
    }
}

/// The errors of a watch's parameters.
fn watch_errors(query: &Query) -> Vec<FieldError> {
    const FIELD: &str = "resourceVersionMatch";
    match (query.send_initial_events, query.version_match) {
        (None, Some(_)) => vec![FieldError::forbidden(
            FIELD,
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        )],
        (Some(_), None) => vec![FieldError::forbidden(
            FIELD,
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        )],
        (Some(_), Some(VersionMatch::Exact)) => vec![
            FieldError::forbidden(
                FIELD,
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ),
            FieldError::not_supported(FIELD, &json!("Exact"), &["NotOlderThan"]),
        ],
        (None, None) | (Some(_), Some(VersionMatch::NotOlderThan)) => Vec::new(),
    }
}

fn gone(expired: &Expired) -> Notice {
    Notice::Error(Box::new(ApiError::expired(format!(
        "too old resource version: {} ({})",
        expired.requested, expired.oldest
    ))))
}

impl WatchStream {
    /// The kind that is watched.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// The next notice. None: the watch has ended. The future can be dropped and called again.
    pub async fn next(&mut self) -> Option<Notice> {
        loop {
            if let Some(notice) = self.pending.pop_front() {
                if matches!(notice, Notice::Error(_)) {
                    self.watch = None;
                }
                return Some(notice);
            }
            let watch = self.watch.as_mut()?;
            let wake = self.ends.min(self.next_bookmark);
            tokio::select! {
                events = watch.next() => match events {
                    Ok(events) => {
                        let notices = events.iter().filter_map(|event| {
                            self.selection.notice(&self.kind, &self.namespace, event)
                        });
                        self.pending.extend(notices);
                    }
                    Err(expired) => self.pending.push_back(gone(&expired)),
                },
                () = sleep_until(wake) => {
                    if self.bookmarks {
                        self.pending.push_back(Notice::Bookmark(watch.position(), false));
                    }
                    self.next_bookmark = Instant::now() + BOOKMARK_EVERY;
                    if wake == self.ends {
                        self.watch = None;
                    }
                }
            }
        }
    }
}

impl Selection {
    /// The notice of an event for a watcher of this selection.
    fn notice(&self, kind: &Kind, namespace: &str, event: &Event) -> Option<Notice> {
        if !namespace.is_empty() && &*event.key.namespace != namespace {
            return None;
        }
        let object = event.object.clone();
        if self.everything() {
            return Some(Notice::Change(type_of(event.kind), object));
        }
        let before = event.previous.as_deref().is_some_and(|bytes| self.matches(kind, bytes));
        let after = event.kind != EventKind::Deleted && self.matches(kind, &object);
        match (before, after) {
            (false, false) => None,
            (false, true) => Some(Notice::Change("ADDED", object)),
            (true, true) => Some(Notice::Change("MODIFIED", object)),
            (true, false) => Some(Notice::Change("DELETED", last_selected(event))),
        }
    }
}

/// An object that leaves the selection: its last selected state, at the version that removed it.
fn last_selected(event: &Event) -> Bytes {
    let previous = event.previous.as_ref().unwrap_or(&event.object);
    match serde_json::from_slice::<Value>(previous) {
        Ok(mut object) => {
            let version = json!(event.revision.to_string());
            crate::meta::of(&mut object).insert("resourceVersion".to_owned(), version);
            Bytes::from(object.to_string())
        }
        Err(_) => event.object.clone(),
    }
}

fn type_of(kind: EventKind) -> &'static str {
    match kind {
        EventKind::Added => "ADDED",
        EventKind::Modified => "MODIFIED",
        EventKind::Deleted => "DELETED",
    }
}
