//! What pingora is told to do with each request once [`super::decide`] has found where it goes: which
//! member gets it, what the member is told, whether it is tried again, what is answered otherwise. It holds no state but
//! the tables that updates swap.
//!
//! A request is tried again where that is safe: always when no connection could be made; after it was
//! sent only if nothing has come back and either an HTTP/2 member says that it did not begin with it,
//! or its method is idempotent and it has no body or went over a kept connection that the member
//! closed. A member that was silent for too long is not asked
//! twice. Members that failed are not tried again for the same request.

use super::answer::Answer;
use super::connection::Scope;
use super::decide::Decision;
use super::log::{self, Outcome};
use super::target::Target;
use super::{forwarded, peer};
use crate::pool::{Client, Failure, Pick};
use crate::state::{Backend, Shared};
use async_trait::async_trait;
use bowline_core::plan::PersistenceKey;
use pingora_core::modules::http::HttpModules;
use pingora_core::upstreams::peer::HttpPeer;
use pingora_core::{Error, ErrorSource, ErrorType, Result};
use pingora_http::{RequestHeader, ResponseHeader};
use pingora_proxy::{FailToProxy, ProxyHttp, ProxyWarnLogContext, Session};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Instant, SystemTime};

/// Decides about requests.
pub(crate) struct Service {
    shared: Arc<Shared>,
    /// Whose turn it is among weighted pools.
    pub(super) turn: AtomicU64,
}

/// What is known of a request while it is answered.
pub(crate) struct Request {
    scope: Option<Arc<Scope>>,
    began: Instant,
    backend: Option<Arc<Backend>>,
    pick: Option<Pick>,
    /// The member that was tried last, for the log.
    member: Option<SocketAddr>,
    failed: Vec<SocketAddr>,
    tries: u8,
}

impl Service {
    /// Decides by these tables.
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, turn: AtomicU64::new(0) }
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

/// The value of a cookie that a client sent.
fn cookie<'a>(request: &'a RequestHeader, name: &str) -> Option<&'a str> {
    request
        .headers
        .get_all(http::header::COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .find_map(|pair| pair.trim().strip_prefix(name)?.strip_prefix('='))
}

#[async_trait]
impl ProxyHttp for Service {
    type CTX = Request;

    fn new_ctx(&self) -> Request {
        Request {
            scope: Scope::current(),
            began: Instant::now(),
            backend: None,
            pick: None,
            member: None,
            failed: Vec::new(),
            tries: 0,
        }
    }

    fn init_downstream_modules(&self, _modules: &mut HttpModules) {}

    async fn request_filter(&self, session: &mut Session, ctx: &mut Request) -> Result<bool> {
        let Some(scope) = &ctx.scope else {
            return Err(Error::new_in(ErrorType::InternalError));
        };
        match self.decide(&scope.connection, session.req_header()) {
            Decision::Answer(answer) => {
                answer.send(session).await?;
                Ok(true)
            }
            Decision::Forward(backend) => {
                if session.is_upgrade_req() {
                    session.set_read_timeout(Some(self.shared.options.limits.tunnel_time));
                }
                ctx.backend = Some(backend);
                Ok(false)
            }
        }
    }

    async fn upstream_peer(
        &self,
        session: &mut Session,
        ctx: &mut Request,
    ) -> Result<Box<HttpPeer>> {
        let (Some(scope), Some(backend)) = (&ctx.scope, &ctx.backend) else {
            return Err(Error::new_in(ErrorType::InternalError));
        };
        let config = backend.pool.config();
        let by_cookie =
            config.persistence.is_some_and(|persistence| persistence.by == PersistenceKey::Cookie);
        let client = Client {
            addr: scope.connection.client.ip(),
            cookie: by_cookie
                .then(|| cookie(session.req_header(), backend.pool.cookie_name()))
                .flatten(),
        };
        // What was picked before is let go first: it is no longer a request of that member.
        ctx.pick = None;
        let Some(pick) = backend.pool.pick(&client, &ctx.failed) else {
            // Where some were tried in vain, it is their failure that the client is told of.
            let status = if ctx.failed.is_empty() { 503 } else { 502 };
            return Err(Error::new_up(ErrorType::HTTPStatus(status)));
        };
        scope.cut_when(Box::pin(pick.cancelled()));
        ctx.member = Some(pick.address());
        ctx.tries = ctx.tries.saturating_add(1);
        let peer = peer::to(
            pick.address(),
            &config,
            &self.shared,
            &scope.connection,
            session.is_upgrade_req(),
        );
        ctx.pick = Some(pick);
        Ok(Box::new(peer))
    }

    async fn upstream_request_filter(
        &self,
        session: &mut Session,
        request: &mut RequestHeader,
        ctx: &mut Request,
    ) -> Result<()> {
        let Some(scope) = &ctx.scope else {
            return Ok(());
        };
        let host = Target::of(session.req_header()).map_or("", |target| target.authority);
        forwarded::tell(request, &scope.connection, host)
    }

    async fn upstream_response_filter(
        &self,
        _session: &mut Session,
        response: &mut ResponseHeader,
        ctx: &mut Request,
    ) -> Result<()> {
        let Some(pick) = &ctx.pick else {
            return Ok(());
        };
        match response.status.as_u16() {
            status @ (502..=504) => pick.failed(Failure::Status(status)),
            _ => pick.succeeded(),
        }
        Ok(())
    }

    async fn response_filter(
        &self,
        session: &mut Session,
        response: &mut ResponseHeader,
        ctx: &mut Request,
    ) -> Result<()> {
        let (Some(scope), false) = (&ctx.scope, response.status.is_informational()) else {
            return Ok(());
        };
        if *scope.connection.listener.draining().borrow() {
            session.set_keepalive(None);
        }
        if let Some(mut cookie) = ctx.pick.as_ref().and_then(Pick::cookie_to_set) {
            if scope.connection.tls.is_some() {
                cookie.push_str("; Secure");
            }
            response.append_header(http::header::SET_COOKIE, cookie)?;
        }
        Ok(())
    }

    fn fail_to_connect(
        &self,
        _session: &mut Session,
        _peer: &HttpPeer,
        ctx: &mut Request,
        mut error: Box<Error>,
    ) -> Box<Error> {
        if let Some(pick) = &ctx.pick {
            pick.failed(Failure::Connect);
            ctx.failed.push(pick.address());
        }
        error.set_retry(true);
        error
    }

    fn error_while_proxy(
        &self,
        _peer: &HttpPeer,
        session: &mut Session,
        mut error: Box<Error>,
        ctx: &mut Request,
        kept: bool,
    ) -> Box<Error> {
        let silent = *error.etype() == ErrorType::ReadTimedout;
        let upstream = *error.esource() == ErrorSource::Upstream;
        let answered = session.response_written().is_some();
        // An HTTP/2 member says of some requests that it did not begin with them.
        let untouched = *error.etype() == ErrorType::H2Error && error.retry();
        // A kept connection that the member closed says nothing about the member.
        error.retry.decide_reuse(kept);
        let closed = kept && error.retry();
        if upstream
            && !closed
            && let Some(pick) = &ctx.pick
        {
            ctx.failed.push(pick.address());
            if !untouched {
                pick.failed(if silent { Failure::Timeout } else { Failure::Reset });
            }
        }
        let repeatable = session.req_header().method.is_idempotent();
        let whole = !session.as_ref().retry_buffer_truncated();
        let harmless = (untouched && whole)
            || (repeatable && ((closed && whole) || session.as_mut().is_body_empty()));
        let retry = upstream && !answered && !silent && harmless;
        error.set_retry(retry);
        error
    }

    async fn fail_to_proxy(
        &self,
        session: &mut Session,
        error: &Error,
        _ctx: &mut Request,
    ) -> FailToProxy {
        let status = status(error);
        let answered = session
            .response_written()
            .is_some_and(|response| !response.status.is_informational() || response.status == 101);
        if status > 0 && !answered {
            session.set_keepalive(None);
            if let Err(error) = Answer::status(status).send(session).await {
                tracing::debug!(%error, "a client could not be told of an error");
            }
        }
        FailToProxy { error_code: status, can_reuse_downstream: false }
    }

    async fn logging(&self, session: &mut Session, error: Option<&Error>, ctx: &mut Request) {
        let status = session.response_written().map_or(0, |response| response.status.as_u16());
        match &ctx.backend {
            Some(backend) => backend.answered(status),
            None => self.shared.counters.refused_request(status),
        }
        ctx.pick = None;
        let (Some(sink), Some(scope)) = (&self.shared.options.access_log, &ctx.scope) else {
            return;
        };
        let (bytes_in, bytes_out) = (session.body_bytes_read(), session.body_bytes_sent());
        let request = session.req_header();
        let target = Target::of(request);
        let raw = String::from_utf8_lossy(request.raw_path());
        let config = ctx.backend.as_ref().map(|backend| backend.pool.config());
        let outcome = Outcome {
            host: target.as_ref().map_or("", |target| &target.host),
            path: &raw,
            method: request.method.as_str(),
            version: request.version,
            status,
            bytes_in,
            bytes_out,
            took: ctx.began.elapsed(),
            pool: config.as_ref().map(|config| &*config.name),
            member: ctx.member,
            tries: ctx.tries,
            error: error.map(|error| error.etype().as_str()),
        };
        sink.write(&log::line(&scope.connection, &outcome, SystemTime::now()));
    }

    fn suppress_error_log(&self, _session: &Session, _ctx: &Request, _error: &Error) -> bool {
        true
    }

    fn suppress_proxy_warn_log(
        &self,
        _session: &Session,
        _ctx: &Request,
        _error: &Error,
        _context: ProxyWarnLogContext,
    ) -> bool {
        true
    }
}

/// What a client is told of an error; nothing where it is gone.
fn status(error: &Error) -> u16 {
    match (error.etype(), error.esource()) {
        (ErrorType::HTTPStatus(status), _) => *status,
        (ErrorType::ReadTimedout | ErrorType::ConnectTimedout, ErrorSource::Upstream) => 504,
        (_, ErrorSource::Upstream) => 502,
        (
            ErrorType::WriteError
            | ErrorType::WriteTimedout
            | ErrorType::ReadError
            | ErrorType::ConnectionClosed,
            ErrorSource::Downstream,
        ) => 0,
        (ErrorType::ReadTimedout, ErrorSource::Downstream) => 408,
        (_, ErrorSource::Downstream) => 400,
        _ => 500,
    }
}
