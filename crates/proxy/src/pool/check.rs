//! One health check of a member, and what its results mean. [`super::checks`] decides when it runs.

use crate::proxy_protocol;
use bowline_core::plan::{self, HealthCheck, Speaks, Transport};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The longest wait for an answer if no interval says it.
const LONGEST: Duration = Duration::from_secs(5);
/// The longest status line that is read.
const STATUS_LINE: usize = 64;

/// What a check does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Question {
    /// The path of a GET request; None: a connection is enough.
    path: Option<Arc<str>>,
    proxy_protocol: bool,
    /// The time between two checks, and the longest time of one.
    pub(super) interval: Duration,
}

impl Question {
    /// A check by connection alone; None for UDP, where a member need not answer.
    pub(super) fn connect(config: &plan::Pool) -> Option<Self> {
        let by_tcp = config.service.protocol == Transport::Tcp;
        by_tcp.then_some(Self { path: None, proxy_protocol: false, interval: LONGEST })
    }

    /// The pool's health check, if it has one and members can answer.
    pub(super) fn of(config: &plan::Pool) -> Option<(Self, &HealthCheck)> {
        let check = config.health_check.as_ref()?;
        if config.service.protocol != Transport::Tcp {
            return None;
        }
        // A member that speaks only HTTP/2 would refuse an HTTP/1 request.
        let path = check.http_path.clone().filter(|_| config.speaks == Speaks::Http1);
        let interval = Duration::from_millis(u64::from(check.interval_ms.max(100)));
        Some((Self { path, proxy_protocol: config.proxy_protocol, interval }, check))
    }

    pub(super) async fn ask(&self, member: SocketAddr, patience: Duration) -> bool {
        matches!(timeout(patience, self.try_ask(member)).await, Ok(Ok(true)))
    }

    async fn try_ask(&self, member: SocketAddr) -> io::Result<bool> {
        let mut stream = TcpStream::connect(member).await?;
        let Some(path) = &self.path else { return Ok(true) };
        let mut request = Vec::new();
        if self.proxy_protocol {
            request.extend_from_slice(&proxy_protocol::LOCAL);
        }
        request.extend_from_slice(&get(path, member));
        stream.write_all(&request).await?;
        let (mut line, mut length) = ([0; STATUS_LINE], 0);
        loop {
            let read = stream.read(&mut line[length..]).await?;
            length += read;
            if let Some(status) = status(&line[..length]) {
                return Ok((200..400).contains(&status));
            }
            if read == 0 || length == STATUS_LINE {
                return Ok(false);
            }
        }
    }
}

/// A GET request for the path; bytes that could end the line are escaped.
fn get(path: &str, member: SocketAddr) -> Vec<u8> {
    let mut request = b"GET ".to_vec();
    for byte in path.bytes() {
        match byte {
            0x21..=0x7e => request.push(byte),
            other => request.extend_from_slice(format!("%{other:02X}").as_bytes()),
        }
    }
    let rest = format!(
        " HTTP/1.1\r\nHost: {member}\r\nUser-Agent: bowline-health-check\r\nAccept: */*\r\nConnection: close\r\n\r\n"
    );
    request.extend_from_slice(rest.as_bytes());
    request
}

/// The status of a response that begins like this, once its digits are complete.
fn status(answer: &[u8]) -> Option<u16> {
    let rest = answer.strip_prefix(b"HTTP/1.")?;
    let [b'0' | b'1', b' ', digits @ ..] = rest else { return None };
    let digits = digits.get(..3)?;
    digits.iter().all(u8::is_ascii_digit).then_some(())?;
    Some(digits.iter().fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0')))
}

/// A number from 0 to 1 that differs between members.
pub(super) fn fraction(member: SocketAddr) -> f64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in member.to_string().bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    (hash >> 11) as f64 / (1u64 << 53) as f64
}

/// JobSlots single results into up or down: `fall` failures in a row are down, `rise` successes in a
/// row up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Streak {
    fall: u8,
    rise: u8,
    up: bool,
    against: u8,
}

impl Streak {
    /// Members are ready, so they count as up until checks say otherwise.
    pub(super) fn new(fall: u8, rise: u8) -> Self {
        Self { fall: fall.max(1), rise: rise.max(1), up: true, against: 0 }
    }

    /// The new state, if this result changes it.
    pub(super) fn next(&mut self, answers: bool) -> Option<bool> {
        if answers == self.up {
            self.against = 0;
            return None;
        }
        self.against += 1;
        if self.against < if self.up { self.fall } else { self.rise } {
            return None;
        }
        self.against = 0;
        self.up = answers;
        Some(answers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fall_failures_in_a_row_are_down_and_rise_successes_up() {
        let mut streak = Streak::new(3, 2);
        let answers = [false, false, true, false, false, false, false, true, false, true, true];
        let changes: Vec<_> = answers.into_iter().map(|answer| streak.next(answer)).collect();
        let expected =
            [None, None, None, None, None, Some(false), None, None, None, None, Some(true)];
        assert_eq!(changes, expected);
    }

    #[test]
    fn a_path_cannot_end_its_line() {
        let request = get("/a b\r\nX: y", "[::1]:80".parse().unwrap());
        let request = String::from_utf8(request).unwrap();
        assert!(request.starts_with("GET /a%20b%0D%0AX:%20y HTTP/1.1\r\nHost: [::1]:80\r\n"));
    }

    #[test]
    fn a_status_is_read_once_it_is_complete() {
        assert_eq!(status(b"HTTP/1.1 204 No Content"), Some(204));
        assert_eq!(status(b"HTTP/1.0 503"), Some(503));
        for bad in ["HTTP/1.1 20", "HTTP/2 200", "SSH-2.0-x", "HTTP/1.1 2x4", ""] {
            assert_eq!(status(bad.as_bytes()), None, "{bad}");
        }
    }
}
