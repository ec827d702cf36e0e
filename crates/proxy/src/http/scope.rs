//! The context of a request beside what pingora passes on, and how a request is ended from outside:
//! because its member's drain time is over, or because a side was silent for too long. If possible,
//! the request is made to fail, so that it is answered, counted and logged as usual; otherwise it is
//! dropped.

use super::connection::Connection;
use super::stream::Link;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

/// How long a request may take to end after it was made to fail.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Why a request was ended from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Its member was removed, and its drain time is over.
    Drained,
    /// Its member was silent for too long.
    Silent,
    /// Its client did not send its body in time.
    Slow,
    /// Neither side sent anything for too long.
    Idle,
}

impl Verdict {
    /// The status that the client gets.
    pub(super) fn status(self) -> u16 {
        match self {
            Self::Drained | Self::Silent | Self::Idle => 504,
            Self::Slow => 408,
        }
    }

    /// The word in the access log.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Drained => "Drained",
            Self::Silent => "MemberSilent",
            Self::Slow => "ClientSlow",
            Self::Idle => "Idle",
        }
    }
}

tokio::task_local! {
    static CURRENT: Arc<Scope>;
}

/// The context of a request.
pub(super) struct Scope {
    pub(super) connection: Arc<Connection>,
    /// The link to the request's connection; None on HTTP/2, where requests share it.
    pub(super) link: Option<Arc<Link>>,
    end: Mutex<Option<BoxFuture<'static, Verdict>>>,
    verdict: OnceLock<Verdict>,
}

impl Scope {
    /// The scope of the current request.
    pub(super) fn current() -> Option<Arc<Self>> {
        CURRENT.try_with(Arc::clone).ok()
    }

    /// Ends the request when this future resolves; replaces the previous future.
    pub(super) fn end_when(&self, over: BoxFuture<'static, Verdict>) {
        *self.end.lock() = Some(over);
    }

    /// Why the request is being ended, if it is.
    pub(super) fn verdict(&self) -> Option<Verdict> {
        self.verdict.get().copied()
    }
}

/// Runs a request; None if it was dropped.
pub(super) async fn run<T>(
    connection: &Arc<Connection>,
    link: Option<Arc<Link>>,
    request: impl Future<Output = T>,
) -> Option<T> {
    let scope = Arc::new(Scope {
        connection: connection.clone(),
        link,
        end: Mutex::new(None),
        verdict: OnceLock::new(),
    });
    let mut request = pin!(CURRENT.scope(scope.clone(), request));
    let ended = std::future::poll_fn(|cx| {
        if let Poll::Ready(outcome) = request.as_mut().poll(cx) {
            return Poll::Ready(Some(outcome));
        }
        let mut end = scope.end.lock();
        let Some(Poll::Ready(verdict)) = end.as_mut().map(|end| end.as_mut().poll(cx)) else {
            return Poll::Pending;
        };
        *end = None;
        let _ = scope.verdict.set(verdict);
        Poll::Ready(None)
    });
    if let Some(outcome) = ended.await {
        return Some(outcome);
    }
    scope.link.as_ref()?.break_off();
    tokio::time::timeout(LAST_WORDS, request).await.ok()
}
