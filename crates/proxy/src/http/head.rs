//! Reads the head of a request within its limits and refuses what two servers could read differently. It does not
//! decide where the request goes; the connection loop calls it before pingora.
//!
//! Refused with 503: a large head of a client that holds its share of the bytes for large heads, and a large head
//! that loses its bytes to a client that holds fewer. Refused with 400: both a length and a transfer coding, two
//! different lengths, any transfer coding but `chunked`, HTTP/1.1 without a host, two hosts. Refused with 431: a
//! head that is too large. A head that does not arrive in time is answered with 408.

use super::chunks::Chunks;
use super::stream::{Downstream, Expects};
use crate::places::{HeadBytes, Heads};
use bytes::BytesMut;
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The most header fields of a request.
const MOST_FIELDS: usize = 128;
/// The part of a head that every request may use without being counted.
pub(super) const SMALL: usize = 8 * 1024;
/// The start of every HTTP/2 connection.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What comes next on a connection.
#[derive(Debug)]
pub(crate) enum Next {
    /// The head of a request, and the bytes for large heads that it holds. The body may follow on the connection.
    Request(BytesMut, Option<HeadBytes>),
    /// HTTP/2 in clear text.
    Http2,
    /// Nothing: the client closed, or was silent for too long.
    Closed,
    /// Something to answer with this status, before the connection is closed.
    Refused(u16),
}

/// Limits of a head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// The most bytes.
    pub(crate) size: usize,
    /// The longest time from the first byte to the last.
    pub(crate) time: Duration,
    /// Whether HTTP/2 may begin here.
    pub(crate) http2: bool,
}

/// Waits for the first bytes of the next request; returns whether they came, or None when the time is over. Safe
/// to cancel.
pub(crate) async fn begin(stream: &mut Downstream, time: Duration) -> Option<bool> {
    let read = tokio::time::timeout(time, stream.read_ahead()).await.ok()?;
    Some(matches!(read, Ok(1..)))
}

/// Reads the head that has begun, and leaves the stream so that pingora can read the body.
pub(crate) async fn next(
    stream: &mut Downstream,
    bounds: &Bounds,
    heads: &Arc<Heads>,
    client: IpAddr,
) -> Next {
    let deadline = Instant::now() + bounds.time;
    let mut looked_at = 0;
    let mut taken: Option<HeadBytes> = None;
    loop {
        let large = stream.ahead().len().saturating_sub(SMALL);
        if large > 0 {
            let enough = match &mut taken {
                Some(taken) => taken.grow_to(large),
                None => {
                    taken = heads.take(client, large);
                    taken.is_some()
                }
            };
            if !enough {
                return Next::Refused(503);
            }
        }
        match judge(stream.ahead(), looked_at, bounds) {
            Verdict::More => looked_at = stream.ahead().len(),
            Verdict::Whole(length, expects) => {
                return Next::Request(stream.take_head(length, expects), taken);
            }
            Verdict::Http2 => return Next::Http2,
            Verdict::Refused(status) => return Next::Refused(status),
        }
        let read = tokio::time::timeout_at(deadline, stream.read_ahead());
        match unless_lost(taken.as_ref(), read).await {
            Some(Ok(Ok(read))) if read > 0 => {}
            Some(Ok(_)) => return Next::Closed,
            Some(Err(_)) => return Next::Refused(408),
            None => return Next::Refused(503),
        }
    }
}

/// Does some work for a request, unless its head loses its bytes to another client.
pub(super) async fn unless_lost<T>(
    taken: Option<&HeadBytes>,
    work: impl Future<Output = T>,
) -> Option<T> {
    let Some(taken) = taken else { return Some(work.await) };
    tokio::select! {
        biased;
        () = taken.lost() => None,
        done = work => Some(done),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    More,
    Whole(usize, Expects),
    Http2,
    Refused(u16),
}

/// The length of the head at the start of these bytes, if there is one.
#[cfg(feature = "fuzzing")]
pub(super) fn whole(bytes: &[u8]) -> Option<usize> {
    let bounds = Bounds { size: usize::MAX, time: Duration::ZERO, http2: true };
    match judge(bytes, 0, &bounds) {
        Verdict::Whole(length, _) => Some(length),
        _ => None,
    }
}

/// Classifies these bytes; the first `looked_at` contain no complete head.
fn judge(bytes: &[u8], looked_at: usize, bounds: &Bounds) -> Verdict {
    if bounds.http2 && bytes.starts_with(b"PRI") {
        return match bytes.len() {
            length if length >= PREFACE.len() && bytes.starts_with(PREFACE) => Verdict::Http2,
            length if length < PREFACE.len() && PREFACE.starts_with(bytes) => Verdict::More,
            _ => Verdict::Refused(400),
        };
    }
    if !has_end(&bytes[looked_at.saturating_sub(3)..]) {
        return if bytes.len() > bounds.size { Verdict::Refused(431) } else { Verdict::More };
    }
    let mut fields = [const { MaybeUninit::uninit() }; MOST_FIELDS];
    let mut request = httparse::Request::new(&mut []);
    match request.parse_with_uninit_headers(bytes, &mut fields) {
        Ok(httparse::Status::Complete(length)) if length > bounds.size => Verdict::Refused(431),
        Ok(httparse::Status::Complete(length)) => match expects(&request) {
            Some(expects) => Verdict::Whole(length, expects),
            None => Verdict::Refused(400),
        },
        Ok(httparse::Status::Partial) if bytes.len() > bounds.size => Verdict::Refused(431),
        Ok(httparse::Status::Partial) => Verdict::More,
        Err(httparse::Error::TooManyHeaders) => Verdict::Refused(431),
        Err(_) => Verdict::Refused(400),
    }
}

/// Whether the bytes contain the empty line that ends a head.
fn has_end(bytes: &[u8]) -> bool {
    memchr::memchr_iter(b'\n', bytes)
        .any(|at| matches!(bytes[at + 1..], [b'\n', ..] | [b'\r', b'\n', ..]))
}

/// What follows the head; None if two servers could read the request differently.
fn expects(request: &httparse::Request<'_, '_>) -> Option<Expects> {
    let mut length = None;
    let mut chunked = false;
    let mut hosts = 0;
    for field in request.headers.iter() {
        if field.name.eq_ignore_ascii_case("host") {
            hosts += 1;
        } else if field.name.eq_ignore_ascii_case("content-length") {
            let value = decimal(field.value)?;
            if length.replace(value).is_some_and(|before| before != value) {
                return None;
            }
        } else if field.name.eq_ignore_ascii_case("transfer-encoding") {
            if chunked || !field.value.trim_ascii().eq_ignore_ascii_case(b"chunked") {
                return None;
            }
            chunked = true;
        }
    }
    let newer = request.version == Some(1);
    if hosts > 1 || (hosts == 0 && newer) || (chunked && (length.is_some() || !newer)) {
        return None;
    }
    if chunked {
        return Some(Expects::Chunked(Chunks::default()));
    }
    Some(Expects::Exactly(length.unwrap_or(0)))
}

fn decimal(value: &[u8]) -> Option<u64> {
    let value = value.trim_ascii();
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(value).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BOUNDS: Bounds = Bounds { size: 1000, time: Duration::from_secs(1), http2: true };

    fn read(text: &str) -> Verdict {
        judge(text.as_bytes(), 0, &BOUNDS)
    }

    #[test]
    fn a_head_is_whole_at_its_empty_line_and_says_what_follows() {
        let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        assert_eq!(read(get), Verdict::Whole(get.len(), Expects::Exactly(0)));
        assert_eq!(read(&format!("{get}GET")), Verdict::Whole(get.len(), Expects::Exactly(0)));
        let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 7\r\n\r\n";
        assert_eq!(read(post), Verdict::Whole(post.len(), Expects::Exactly(7)));
        let chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        let body = Expects::Chunked(Chunks::default());
        assert_eq!(read(chunked), Verdict::Whole(chunked.len(), body));
        assert_eq!(read("GET / HTTP/1.1\r\nHost: a\r\n"), Verdict::More);
        assert_eq!(read("GET / HTTP/1.0\r\n\r\n"), Verdict::Whole(18, Expects::Exactly(0)));
    }

    #[test]
    fn what_two_servers_could_read_differently_is_refused() {
        for fields in [
            "",
            "Host: a\r\nHost: a\r\n",
            "Host: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n",
            "Host: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n",
            "Host: a\r\nContent-Length: +1\r\n",
            "Host: a\r\nContent-Length: 1, 1\r\n",
            "Host: a\r\nTransfer-Encoding: gzip, chunked\r\n",
            "Host: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Host : a\r\n",
            "Host: a\r\n folded: b\r\n",
        ] {
            let verdict = read(&format!("POST / HTTP/1.1\r\n{fields}\r\n"));
            assert_eq!(verdict, Verdict::Refused(400), "{fields:?}");
        }
        let old = read("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n");
        assert_eq!(old, Verdict::Refused(400));
    }

    #[test]
    fn a_head_that_is_too_large_is_refused_before_it_is_whole() {
        let long = "a".repeat(2000);
        assert_eq!(read(&format!("GET /{long}")), Verdict::Refused(431));
        let whole = format!("GET / HTTP/1.1\r\nHost: {long}\r\n\r\n");
        assert_eq!(read(&whole), Verdict::Refused(431));
        let many = "a:b\r\n".repeat(MOST_FIELDS + 1);
        assert_eq!(read(&format!("GET / HTTP/1.1\r\n{many}\r\n")), Verdict::Refused(431));
    }

    #[test]
    fn http2_is_known_by_its_preface_only() {
        assert_eq!(read("PRI * HT"), Verdict::More);
        assert_eq!(judge(PREFACE, 0, &BOUNDS), Verdict::Http2);
        assert_eq!(read("PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n"), Verdict::Refused(400));
        assert_eq!(judge(PREFACE, 0, &Bounds { http2: false, ..BOUNDS }), Verdict::Refused(400));
    }

    /// Pieces of valid heads, and of nearly valid ones.
    fn piece() -> impl Strategy<Value = Vec<u8>> {
        let written = proptest::sample::select(vec![
            "GET / HTTP/1.1\r\n",
            "POST /a HTTP/1.0\r\n",
            "GET  / HTTP/1.1\n",
            "Host: a\r\n",
            "Content-Length: 1\r\n",
            "Content-Length: 99999999999999999999\r\n",
            "Transfer-Encoding: chunked\r\n",
            "x",
            ":",
            " ",
            "\r\n",
            "\n",
            "PRI * HTTP/2.0\r\n\r\n",
        ]);
        prop_oneof![
            9 => written.prop_map(|text| text.as_bytes().to_vec()),
            1 => proptest::collection::vec(any::<u8>(), 1..4),
        ]
    }

    /// Mostly heads with fields in any number and order; otherwise pieces, which hardly ever form a head.
    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let line = proptest::sample::select(vec!["GET / HTTP/1.1\r\n", "POST / HTTP/1.0\r\n"]);
        let field = proptest::sample::select(vec![
            "Host: a\r\n",
            "hOST:b\r\n",
            "Content-Length: 1\r\n",
            "content-length: 2\r\n",
            "Transfer-Encoding: chunked\r\n",
            "X: y\r\n",
        ]);
        let head = (line, proptest::collection::vec(field, 0..5));
        prop_oneof![
            3 => head.prop_map(|(line, fields)| [line, &fields.concat(), "\r\n"].concat().into()),
            1 => proptest::collection::vec(piece(), 0..12).prop_map(|pieces| pieces.concat()),
        ]
    }

    proptest! {
        #[test]
        fn a_head_is_read_alike_however_it_is_cut(cut in 0usize..60, fields in "[a-z]{1,5}: [a-z]{0,9}\r\n") {
            let text = format!("GET / HTTP/1.1\r\nhost: a\r\n{fields}\r\n");
            let cut = cut.min(text.len() - 1);
            prop_assert_eq!(judge(&text.as_bytes()[..cut], 0, &BOUNDS), Verdict::More);
            prop_assert_eq!(judge(text.as_bytes(), cut, &BOUNDS), judge(text.as_bytes(), 0, &BOUNDS));
        }

        #[test]
        fn no_bytes_make_it_fail_and_a_whole_head_has_one_host_and_one_length(bytes in bytes()) {
            if let Verdict::Whole(length, _) = judge(&bytes, 0, &BOUNDS) {
                prop_assert!(length <= bytes.len());
                let head = String::from_utf8_lossy(&bytes[..length]).to_ascii_lowercase();
                let fields = |name: &str| {
                    let lines = head.lines().filter(|line| line.starts_with(name));
                    lines.map(str::to_owned).collect::<Vec<_>>()
                };
                prop_assert!(fields("host:").len() <= 1, "{head}");
                let (mut lengths, codings) = (fields("content-length:"), fields("transfer-encoding:"));
                lengths.dedup();
                prop_assert!(lengths.len() + codings.len() <= 1, "{head}");
            }
        }
    }
}
