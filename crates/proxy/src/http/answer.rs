//! Responses that the proxy sends itself: no rule, no member, redirects, refusals. Each is a status,
//! at most a location, and one short line of plain text. It never contains anything that the client
//! sent, except the path and query of a redirect, which only that client gets.

use super::connection::Connection;
use bytes::Bytes;
use pingora_core::{Error, ErrorType, Result};
use pingora_http::ResponseHeader;
use pingora_proxy::Session;
use std::time::Duration;

/// How long an unused request body is read.
const PATIENCE: Duration = Duration::from_secs(1);
/// How much of it is read before the response.
const SMALL: usize = 64 * 1024;

/// A response of the proxy itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// The status.
    pub(super) status: u16,
    /// The location of a redirect.
    pub(super) location: Option<String>,
}

impl Answer {
    /// A response with a status and no location.
    pub(super) fn status(status: u16) -> Self {
        Self { status, location: None }
    }

    /// Sends the response instead of forwarding the request. A small body is read first, so that the
    /// connection can be used again.
    pub(super) async fn send_instead(
        &self,
        session: &mut Session,
        connection: &Connection,
    ) -> Result<()> {
        let waits = session.req_header().headers.contains_key(http::header::EXPECT);
        if !session.is_http2() && !waits {
            let _ = tokio::time::timeout(PATIENCE, discard(session, SMALL)).await;
        }
        if connection.is_ending() {
            session.set_keepalive(None);
        }
        self.send(session).await
    }

    /// Sends the response.
    pub(super) async fn send(&self, session: &mut Session) -> Result<()> {
        let body = text(self.status);
        let mut response = ResponseHeader::build(self.status, Some(4))?;
        if !body.is_empty() {
            response.insert_header(http::header::CONTENT_TYPE, "text/plain; charset=utf-8")?;
            response.insert_header(http::header::CONTENT_LENGTH, body.len())?;
        }
        response.insert_header(http::header::CACHE_CONTROL, "no-store")?;
        if let Some(location) = &self.location {
            let location = http::HeaderValue::from_bytes(location.as_bytes())
                .map_err(|_| Error::new_down(ErrorType::HTTPStatus(400)))?;
            response.insert_header(http::header::LOCATION, location)?;
        }
        let empty = body.is_empty() || session.req_header().method == http::Method::HEAD;
        session.write_response_header(Box::new(response), empty).await?;
        if !empty {
            session.write_response_body(Some(Bytes::from_static(body.as_bytes())), true).await?;
        }
        // To close before the rest of the body is read would make the client lose the response.
        if !session.is_http2() && !session.as_mut().is_body_done() {
            let _ = tokio::time::timeout(PATIENCE, discard(session, usize::MAX)).await;
        }
        Ok(())
    }
}

/// Reads and drops the body, until it ends or has this many bytes.
async fn discard(session: &mut Session, most: usize) {
    let mut left = most;
    while !session.as_mut().is_body_done() && left > 0 {
        match session.as_mut().read_request_body().await {
            Ok(Some(piece)) => left = left.saturating_sub(piece.len()),
            _ => return,
        }
    }
}

/// The same response without pingora, for a connection that is closed afterwards.
pub(super) fn raw(status: u16) -> Vec<u8> {
    let body = text(status);
    let reason = http::StatusCode::from_u16(status)
        .ok()
        .and_then(|status| status.canonical_reason())
        .unwrap_or("");
    format!(
        "HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

fn text(status: u16) -> &'static str {
    match status {
        100..=199 | 204 | 304 => "",
        400 => "The request cannot be read unambiguously.\n",
        403 => "This address may not use this service.\n",
        404 => "No rule matches this host and path.\n",
        408 => "The request took too long.\n",
        421 => "This host is not served on this connection.\n",
        431 => "The request header is too large.\n",
        502 => "The member that was chosen did not answer properly.\n",
        503 => "No member is available.\n",
        505 => "The member that was chosen cannot be asked in HTTP/1.0.\n",
        504 => "The member that was chosen did not answer in time.\n",
        300..=399 => "See the location.\n",
        _ => "\n",
    }
}
