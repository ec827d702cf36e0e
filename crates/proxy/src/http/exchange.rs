//! The state of one request. It is counted and logged exactly once, however it ends: also when the
//! request is dropped and pingora calls no callback any more.

use super::log::{self, Outcome};
use super::pace::Pace;
use super::scope::{Scope, Verdict};
use super::target::Target;
use crate::pool::{Failure, Pick};
use crate::state::{Backend, Shared};
use pingora_http::RequestHeader;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

/// The state of a request while it is served.
pub(crate) struct Exchange {
    shared: Arc<Shared>,
    pub(super) scope: Option<Arc<Scope>>,
    pub(super) target: Option<Target>,
    pub(super) backend: Option<Arc<Backend>>,
    pub(super) pick: Option<Pick>,
    pub(super) pace: Option<Arc<Pace>>,
    pub(super) failed: Vec<SocketAddr>,
    pub(super) tries: u8,
    /// The member that was tried last, for the log.
    pub(super) member: Option<SocketAddr>,
    /// What the log needs if the request is dropped.
    asked: Option<Asked>,
    began: Instant,
    ended: bool,
}

/// The part of a request that is logged.
struct Asked {
    method: http::Method,
    version: http::Version,
    path: String,
}

impl Asked {
    fn of(request: &RequestHeader) -> Self {
        Self {
            method: request.method.clone(),
            version: request.version,
            path: String::from_utf8_lossy(request.raw_path()).into_owned(),
        }
    }
}

/// How a request ended.
#[derive(Default)]
pub(super) struct Ended<'a> {
    pub(super) status: u16,
    pub(super) bytes_in: usize,
    pub(super) bytes_out: usize,
    pub(super) error: Option<&'a str>,
}

impl Exchange {
    /// The state of a request that begins now.
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            scope: Scope::current(),
            target: None,
            backend: None,
            pick: None,
            pace: None,
            failed: Vec::new(),
            tries: 0,
            member: None,
            asked: None,
            began: Instant::now(),
            ended: false,
        }
    }

    /// Keeps what the log will need.
    pub(super) fn asked(&mut self, request: &RequestHeader) {
        if self.shared.options.access_log.is_some() {
            self.asked = Some(Asked::of(request));
        }
    }

    /// Why the request is being ended from outside, if it is.
    pub(super) fn verdict(&self) -> Option<Verdict> {
        self.scope.as_ref().and_then(|scope| scope.verdict())
    }

    /// Counts and logs how the request ended, and releases the member.
    pub(super) fn end(&mut self, ended: &Ended<'_>) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let verdict = self.verdict();
        if let Some(pick) = self.pick.take()
            && verdict == Some(Verdict::Silent)
        {
            pick.failed(Failure::Timeout);
        }
        match &self.backend {
            Some(backend) => backend.answered(ended.status),
            None => self.shared.counters.refused_request(ended.status),
        }
        let (Some(sink), Some(scope), Some(asked)) =
            (&self.shared.options.access_log, &self.scope, &self.asked)
        else {
            return;
        };
        let config = self.backend.as_ref().map(|backend| backend.pool.config());
        let outcome = Outcome {
            host: self.target.as_ref().map_or("", |target| &target.host),
            path: &asked.path,
            method: asked.method.as_str(),
            version: asked.version,
            status: ended.status,
            bytes_in: ended.bytes_in,
            bytes_out: ended.bytes_out,
            took: self.began.elapsed(),
            pool: config.as_ref().map(|config| &*config.name),
            member: self.member,
            tries: self.tries,
            error: verdict.map(Verdict::name).or(ended.error),
        };
        sink.write(&log::line(&scope.connection, &outcome, SystemTime::now()));
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.end(&Ended { error: Some("Dropped"), ..Ended::default() });
    }
}
