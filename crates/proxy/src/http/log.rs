//! The access log: formats one line of JSON for each request, which goes to the configured sink. It
//! never waits.

use super::connection::Connection;
use serde::Serialize;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime};

/// The fields of a line.
#[derive(Debug, Serialize)]
pub(super) struct Line<'a> {
    time: String,
    client: IpAddr,
    listener: SocketAddr,
    tls: bool,
    protocol: &'static str,
    method: &'a str,
    host: &'a str,
    path: &'a str,
    status: u16,
    bytes_in: usize,
    bytes_out: usize,
    duration_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pool: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    member: Option<SocketAddr>,
    tries: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

/// How a request ended.
pub(super) struct Outcome<'a> {
    pub(super) host: &'a str,
    pub(super) path: &'a str,
    pub(super) method: &'a str,
    pub(super) version: http::Version,
    pub(super) status: u16,
    pub(super) bytes_in: usize,
    pub(super) bytes_out: usize,
    pub(super) took: Duration,
    pub(super) pool: Option<&'a str>,
    pub(super) member: Option<SocketAddr>,
    pub(super) tries: u8,
    pub(super) error: Option<&'a str>,
}

/// The line of a request that ends now.
pub(super) fn line(connection: &Connection, outcome: &Outcome<'_>, now: SystemTime) -> String {
    let line = Line {
        time: rfc3339(now),
        client: connection.client.ip().to_canonical(),
        listener: connection.local,
        tls: connection.tls.is_some(),
        protocol: match outcome.version {
            http::Version::HTTP_2 => "HTTP/2",
            http::Version::HTTP_10 => "HTTP/1.0",
            _ => "HTTP/1.1",
        },
        method: outcome.method,
        host: outcome.host,
        path: outcome.path,
        status: outcome.status,
        bytes_in: outcome.bytes_in,
        bytes_out: outcome.bytes_out,
        duration_ms: (outcome.took.as_secs_f64() * 1e6).round() / 1e3,
        pool: outcome.pool,
        member: outcome.member,
        tries: outcome.tries,
        error: outcome.error,
    };
    serde_json::to_string(&line).unwrap_or_default()
}

/// A time in UTC with milliseconds.
fn rfc3339(time: SystemTime) -> String {
    jiff::Timestamp::try_from(time).map(|time| format!("{time:.3}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;

    #[test]
    fn times_are_written_in_utc() {
        let at = |seconds, milliseconds: u32| {
            rfc3339(UNIX_EPOCH + Duration::new(seconds, milliseconds * 1_000_000))
        };
        assert_eq!(at(0, 0), "1970-01-01T00:00:00.000Z");
        assert_eq!(at(1_790_000_000, 999), "2026-09-21T14:13:20.999Z");
    }
}
