//! The callbacks of pingora for each request: which member gets it, what the member is sent, whether
//! it is retried, and which error the client gets. [`super::decide`] finds the rule. It holds no state
//! but the tables that updates swap.
//!
//! A request is retried if that is safe: always when no connection could be made. After it was sent,
//! only if no response has begun and either an HTTP/2 member reports that it did not process the
//! request, or the method is idempotent and the request has no body or went over a kept connection
//! that the member closed. A request is not retried after a member was silent for too long, nor on a
//! member that failed for it. While the request body is incomplete, a timeout is not counted as the
//! member's failure.

use super::answer::Answer;
use super::cookies;
use super::decide::Decision;
use super::exchange::{Ended, Exchange};
use super::pace::{Awaited, Pace};
use super::peer;
use super::scope::{Scope, Verdict};
use super::target::Target;
use crate::pool::{Client, Failure, Pick};
use crate::state::Shared;
use async_trait::async_trait;
use bowline_core::plan::{PersistenceKey, Pool, Speaks};
use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use pingora_core::modules::http::HttpModules;
use pingora_core::upstreams::peer::HttpPeer;
use pingora_core::{Error, ErrorSource, ErrorType, Result};
use pingora_http::{RequestHeader, ResponseHeader};
use pingora_proxy::{FailToProxy, ProxyHttp, ProxyWarnLogContext, Session};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// Implements pingora's callbacks.
pub(crate) struct Callbacks {
    shared: Arc<Shared>,
    /// Counts the choices among weighted pools.
    pub(super) turn: AtomicU64,
}

impl Callbacks {
    /// Callbacks that decide by these tables.
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, turn: AtomicU64::new(0) }
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Resolves when a request times out for which pingora has no fitting timeout.
    fn over(
        &self,
        pace: Arc<Pace>,
        scope: &Scope,
        silence: Duration,
    ) -> BoxFuture<'static, Verdict> {
        let limits = self.shared.options.limits;
        let listener = scope.connection.listener.clone();
        pace.over(move |turn| match turn {
            Awaited::Client => limits.body_time,
            Awaited::Member => silence,
            Awaited::Either if listener.is_crowded() => limits.idle_time,
            Awaited::Either => limits.tunnel_time,
        })
    }
}

/// The pace of a request for which pingora has no fitting timeout; None if pingora has one.
fn pace(session: &mut Session, pool: &Pool) -> Option<Arc<Pace>> {
    let h2c = pool.speaks == Speaks::H2c;
    if h2c && !session.as_mut().is_body_empty() {
        return Some(Pace::new(Awaited::Client));
    }
    // No other upgrades are forwarded.
    let socket = |value: &http::HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"websocket");
    let upgrade = session.req_header().headers.get(http::header::UPGRADE).is_some_and(socket);
    (!h2c && upgrade && session.is_upgrade_req()).then(|| Pace::new(Awaited::Member))
}

#[async_trait]
impl ProxyHttp for Callbacks {
    type CTX = Exchange;

    fn new_ctx(&self) -> Exchange {
        Exchange::new(self.shared.clone())
    }

    fn init_downstream_modules(&self, _modules: &mut HttpModules) {}

    async fn request_filter(&self, session: &mut Session, ctx: &mut Exchange) -> Result<bool> {
        let Some(scope) = &ctx.scope else {
            return Err(Error::new_in(ErrorType::InternalError));
        };
        let connection = scope.connection.clone();
        ctx.asked(session.req_header());
        let decision = match Target::of(session.req_header()) {
            None => Decision::Answer(Answer::status(400)),
            Some(target) => {
                let decision = self.decide(&connection, session.req_header(), &target);
                ctx.target = Some(target);
                decision
            }
        };
        match decision {
            Decision::Answer(answer) => {
                answer.send_instead(session, &connection).await?;
                Ok(true)
            }
            Decision::Forward(backend) => {
                ctx.backend = Some(backend);
                Ok(false)
            }
        }
    }

    async fn upstream_peer(
        &self,
        session: &mut Session,
        ctx: &mut Exchange,
    ) -> Result<Box<HttpPeer>> {
        let (Some(scope), Some(backend)) = (&ctx.scope, &ctx.backend) else {
            return Err(Error::new_in(ErrorType::InternalError));
        };
        let config = backend.pool.config();
        let by_cookie =
            config.persistence.is_some_and(|persistence| persistence.by == PersistenceKey::Cookie);
        let name = if by_cookie { backend.pool.cookie_name() } else { None };
        let client = Client {
            addr: scope.connection.client.ip(),
            cookie: name.and_then(|name| cookies::named(session.req_header(), &name)),
        };
        // Release the previous member first: the request is no longer with it.
        ctx.pick = None;
        let Some(pick) = backend.pool.pick(&client, &ctx.failed) else {
            // If other members were tried in vain, the client gets a status for their failure.
            let status = if ctx.failed.is_empty() { 503 } else { 502 };
            return Err(Error::new_up(ErrorType::HTTPStatus(status)));
        };
        ctx.pace = pace(session, &config);
        let silence = peer::silence(&config, &self.shared.options.limits);
        let drained = pick.cancelled().map(|()| Verdict::Drained);
        scope.end_when(match &ctx.pace {
            None => drained.boxed(),
            Some(pace) => {
                let over = self.over(pace.clone(), scope, silence);
                futures::future::select(over, drained.boxed())
                    .map(|first| first.factor_first().0)
                    .boxed()
            }
        });
        ctx.member = Some(pick.address());
        ctx.tries = ctx.tries.saturating_add(1);
        let mut peer = peer::to(pick.address(), &config, &self.shared, &scope.connection);
        if ctx.pace.is_some() {
            peer.options.read_timeout = Some(silence.max(self.shared.options.limits.tunnel_time));
        }
        ctx.pick = Some(pick);
        Ok(Box::new(peer))
    }

    async fn upstream_request_filter(
        &self,
        _session: &mut Session,
        request: &mut RequestHeader,
        ctx: &mut Exchange,
    ) -> Result<()> {
        let (Some(scope), Some(target)) = (&ctx.scope, &ctx.target) else {
            return Err(Error::new_in(ErrorType::InternalError));
        };
        target.write(request)?;
        let speaks = ctx.backend.as_ref().map(|backend| backend.pool.config().speaks);
        if speaks != Some(Speaks::H2c) {
            cookies::join(request)?;
        }
        scope.connection.told.tell(request, target.authority.as_ref())
    }

    async fn request_body_filter(
        &self,
        session: &mut Session,
        _body: &mut Option<Bytes>,
        end: bool,
        ctx: &mut Exchange,
    ) -> Result<()> {
        if let Some(pace) = &ctx.pace {
            pace.went_on(match pace.turn() {
                turn @ (Awaited::Client | Awaited::Either) if !end || session.was_upgraded() => {
                    turn
                }
                _ => Awaited::Member,
            });
        }
        Ok(())
    }

    async fn upstream_response_filter(
        &self,
        session: &mut Session,
        response: &mut ResponseHeader,
        ctx: &mut Exchange,
    ) -> Result<()> {
        if let Some(pick) = &ctx.pick {
            match response.status.as_u16() {
                status @ (502..=504) => pick.failed(Failure::Status(status)),
                _ => pick.succeeded(),
            }
        }
        let tunnel = response.status == http::StatusCode::SWITCHING_PROTOCOLS;
        if let Some(pace) = &ctx.pace {
            pace.went_on(match pace.turn() {
                _ if tunnel => Awaited::Either,
                Awaited::Client if !response.status.is_informational() => Awaited::Either,
                turn => turn,
            });
        }
        if tunnel && let Some(link) = ctx.scope.as_ref().and_then(|scope| scope.link.as_ref()) {
            link.become_tunnel();
            session.set_read_timeout(Some(self.shared.options.limits.tunnel_time));
        }
        Ok(())
    }

    fn upstream_response_body_filter(
        &self,
        _session: &mut Session,
        _body: &mut Option<Bytes>,
        _end: bool,
        ctx: &mut Exchange,
    ) -> Result<Option<Duration>> {
        if let Some(pace) = &ctx.pace {
            pace.went_on(pace.turn());
        }
        Ok(None)
    }

    async fn response_filter(
        &self,
        session: &mut Session,
        response: &mut ResponseHeader,
        ctx: &mut Exchange,
    ) -> Result<()> {
        let (Some(scope), false) = (&ctx.scope, response.status.is_informational()) else {
            return Ok(());
        };
        if scope.connection.is_ending() {
            session.set_keepalive(None);
        }
        if session.req_header().version == http::Version::HTTP_10 {
            let config = ctx.backend.as_ref().map(|backend| backend.pool.config());
            let framed = response.headers.contains_key(http::header::CONTENT_LENGTH);
            if !framed && config.is_some_and(|config| config.speaks == Speaks::H2c) {
                // Pingora would send chunks, which such a client cannot read.
                return Err(Error::new_down(ErrorType::HTTPStatus(505)));
            }
            // A response without a length ends with the connection.
            response.remove_header(&http::header::TRANSFER_ENCODING);
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
        ctx: &mut Exchange,
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
        ctx: &mut Exchange,
        kept: bool,
    ) -> Box<Error> {
        if let Some(verdict) = ctx.verdict() {
            return Error::new_down(ErrorType::HTTPStatus(verdict.status()));
        }
        let silent = *error.etype() == ErrorType::ReadTimedout;
        let upstream = *error.esource() == ErrorSource::Upstream;
        if silent && upstream && !session.was_upgraded() && !session.as_mut().is_body_done() {
            return Error::new_down(ErrorType::HTTPStatus(Verdict::Slow.status()));
        }
        let answered = session.response_written().is_some();
        // An HTTP/2 member can report that it did not process a request.
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
        _ctx: &mut Exchange,
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

    async fn logging(&self, session: &mut Session, error: Option<&Error>, ctx: &mut Exchange) {
        ctx.end(&Ended {
            status: session.response_written().map_or(0, |response| response.status.as_u16()),
            bytes_in: session.body_bytes_read(),
            bytes_out: session.body_bytes_sent(),
            error: error.map(|error| error.etype().as_str()),
        });
    }

    fn suppress_error_log(&self, _session: &Session, _ctx: &Exchange, _error: &Error) -> bool {
        true
    }

    fn suppress_proxy_warn_log(
        &self,
        _session: &Session,
        _ctx: &Exchange,
        _error: &Error,
        _context: ProxyWarnLogContext,
    ) -> bool {
        true
    }
}

/// The status that a client gets for an error; 0 if the client is gone.
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
