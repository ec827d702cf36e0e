//! Following one kind of object: a streaming list, or pages and a watch where a server refuses that;
//! resumed after a break, begun anew after an expired version. Objects are read into small values here
//! and dropped; nothing is kept. Controller and agent start one per kind.

use crate::metrics::Metrics;
use crate::random;
use bowline_core::backoff::Backoff;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use kube::api::Api;
use kube::runtime::watcher::{self, Config, Error, Event, InitialListStrategy, watcher};
use kube::{Error as ClientError, Resource};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::time::Duration;
use tokio::sync::mpsc;

/// The seconds after which a server ends a watch, which is then resumed. One of which nothing is heard
/// for longer is dead.
const LONGEST: u32 = 60;

/// What a watch shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen<K> {
    /// All objects follow; those that do not are gone.
    Begin,
    /// An object as it is now.
    Apply(K),
    /// An object as it was when it went.
    Delete(K),
    /// All objects have been shown.
    Done,
}

impl<K> Seen<K> {
    fn of(event: Event<K>) -> Self {
        match event {
            Event::Init => Self::Begin,
            Event::InitApply(object) | Event::Apply(object) => Self::Apply(object),
            Event::Delete(object) => Self::Delete(object),
            Event::InitDone => Self::Done,
        }
    }
}

/// What to follow.
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

    fn config(&self, strategy: InitialListStrategy) -> Config {
        Config {
            label_selector: self.labels.clone(),
            field_selector: self.fields.clone(),
            initial_list_strategy: strategy,
            timeout: Some(LONGEST),
            ..Config::default()
        }
    }
}

/// Follows objects until nobody listens any more. `read` makes of each what the listener wants to know;
/// None: nothing.
pub async fn follow<K, E>(
    api: Api<K>,
    selection: Selection,
    what: &'static str,
    metrics: Metrics,
    listener: mpsc::Sender<E>,
    mut read: impl FnMut(Seen<K>) -> Option<E> + Send,
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    E: Send,
{
    let mut strategy = InitialListStrategy::StreamingList;
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(15));
    let start = |strategy: &InitialListStrategy| -> BoxStream<'static, watcher::Result<Event<K>>> {
        watcher(api.clone(), selection.config(strategy.clone())).boxed()
    };
    let mut events = start(&strategy);
    let mut listing = true;
    loop {
        let next = tokio::select! {
            next = events.next() => next,
            () = listener.closed() => return,
        };
        match next {
            Some(Ok(event)) => {
                match event {
                    Event::Init => listing = true,
                    Event::InitDone => listing = false,
                    _ => {}
                }
                // That a list begins proves nothing yet.
                if !matches!(event, Event::Init) {
                    backoff.worked();
                }
                if let Some(told) = read(Seen::of(event))
                    && listener.send(told).await.is_err()
                {
                    return;
                }
            }
            Some(Err(error)) => {
                if strategy == InitialListStrategy::StreamingList
                    && (refuses_streaming(&error) || listing && cannot_stream(&error))
                {
                    tracing::debug!(what, %error, "no streaming lists here: reading pages instead");
                    strategy = InitialListStrategy::ListWatch;
                    events = start(&strategy);
                    continue;
                }
                metrics.watch_restarted(what);
                let wait = backoff.failed(random::number());
                complain(what, &error, backoff.failures(), wait);
                if expired(&error) {
                    events = start(&strategy);
                }
                tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    () = listener.closed() => return,
                }
            }
            None => events = start(&strategy),
        }
    }
}

/// A first break is daily life (a server restarts, a version expires); one that stays is worth a line.
fn complain(what: &str, error: &Error, failures: u32, wait: Duration) {
    if failures < 3 {
        tracing::debug!(what, %error, ?wait, "the watch broke off");
    } else {
        tracing::warn!(what, %error, ?wait, "cannot watch; what is known stays in force");
    }
}

fn status(error: &Error) -> Option<u16> {
    match error {
        Error::InitialListFailed(ClientError::Api(status))
        | Error::WatchStartFailed(ClientError::Api(status))
        | Error::WatchFailed(ClientError::Api(status)) => Some(status.code),
        Error::WatchError(status) => Some(status.code),
        _ => None,
    }
}

/// Servers without streaming lists answer that the parameter is forbidden or unknown.
fn refuses_streaming(error: &Error) -> bool {
    matches!(error, Error::WatchStartFailed(_)) && matches!(status(error), Some(400 | 422))
}

/// A server over an etcd that is too old for it accepts a streaming list, and then says in the stream
/// that it cannot.
fn cannot_stream(error: &Error) -> bool {
    matches!(error, Error::WatchError(_)) && matches!(status(error), Some(500..))
}

/// The version to resume from is no longer kept. The watcher starts over by itself when the stream says
/// so, but not when the server says it before there is a stream.
fn expired(error: &Error) -> bool {
    status(error) == Some(410)
}

#[cfg(test)]
mod tests;
