//! The options of a proxy: everything about its behaviour that the plan does not say. It computes the limits and
//! enforces none.

use crate::places::Places;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

/// The options of a proxy: everything about its behaviour that the plan does not say.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Where a line for each request goes. None: nowhere.
    pub access_log: Option<AccessLog>,
    /// The limits for clients and members.
    pub limits: Limits,
    /// Threads that serve connections. None: one per processor.
    pub workers: Option<NonZeroUsize>,
    /// Places for clients. Proxies share them if their options are clones of each other; the limits of the first one
    /// count.
    pub places: Places,
}

impl Options {
    /// The number of threads that serve connections.
    pub(crate) fn workers(&self) -> usize {
        let processors = std::thread::available_parallelism;
        self.workers.or_else(|| processors().ok()).map_or(1, NonZeroUsize::get)
    }
}

/// The limits for clients and members. Without them slow ones could hold all resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Client connections in all. Each further concurrent request on an HTTP/2 connection counts as a connection.
    pub connections: usize,
    /// Client connections at one listener, so that no listener takes all.
    pub listener_connections: usize,
    /// Connections of one client, at all listeners together, while no other client needs them. A client is an IPv4
    /// address, or the /64 of an IPv6 address.
    pub client_connections: usize,
    /// Listeners in all. The proxy does not enforce this; the agent's resolver does.
    pub listeners: usize,
    /// UDP sessions in all.
    pub sessions: usize,
    /// UDP sessions at one listener; at most half of all.
    pub listener_sessions: usize,
    /// Bytes of one request head.
    pub header_bytes: usize,
    /// Bytes of the heads of all concurrent requests on one HTTP/2 connection. The first few kilobytes of each head
    /// are free, here and in `all_header_bytes`.
    pub connection_header_bytes: usize,
    /// Bytes of the heads of all concurrent requests.
    pub all_header_bytes: usize,
    /// Time from the first byte of a head, or of a TLS handshake, to its last.
    pub header_time: Duration,
    /// Time between two requests of a connection.
    pub idle_time: Duration,
    /// Time between two pieces of a request body.
    pub body_time: Duration,
    /// Time for a client to read a piece of a response.
    pub write_time: Duration,
    /// Silence after an upgrade, as on a WebSocket.
    pub tunnel_time: Duration,
    /// Concurrent requests on one HTTP/2 connection.
    pub streams: u32,
    /// Concurrent health checks of members, for all pools together.
    pub checks: usize,
    /// Ties of client addresses to members, in pools that keep them; for all pools together.
    pub ties: usize,
    /// Members that a request is tried on.
    pub tries: u8,
    /// Time to connect to a member, if the pool does not say.
    pub connect_time: Duration,
    /// Silence of a member, if the pool does not say.
    pub backend_time: Duration,
    /// Time for which an unused connection to a member is kept.
    pub member_idle_time: Duration,
    /// Unused connections to members that are kept.
    pub idle_members: usize,
    /// Time for which connections of a removed listener go on, if no pool says.
    pub drain_time: Duration,
}

/// The upper bound of each, however many file descriptors there are.
const CONNECTIONS: usize = 16_384;
const LISTENERS: usize = 65_536;
const SESSIONS: usize = 8_192;
const LISTENER_SESSIONS: usize = 2_000;
const IDLE_MEMBERS: usize = 4_096;
const CHECKS: usize = 256;
const TIES: usize = 262_144;
const ALL_HEADER_BYTES: usize = 256 * 1024 * 1024;
const HEADER_BYTES: usize = 64 * 1024;

/// The memory for one of each. Measured on a debug build (`tests/memory.rs` says how): an idle TLS connection 20
/// KiB, an idle HTTP/2 connection 35 KiB, an incomplete HTTP/2 request 25 KiB. The rest is for the data in transit.
const PLACE: usize = 64 * 1024;
const SESSION: usize = 8 * 1024;
const IDLE_MEMBER: usize = 16 * 1024;
const TIE: usize = 256;

/// Three quarters.
fn most_of(all: usize) -> usize {
    all - all / 4
}

impl Limits {
    /// The limits for this many file descriptors, and this many bytes of memory if they are limited. An eighth of
    /// the descriptors is left to the rest of the process and to listeners, which get half of all that remains. A
    /// client's connection takes two descriptors, its own and its member's. Half of the memory is left to the rest
    /// of the process.
    pub fn within(descriptors: u64, memory: Option<u64>) -> Self {
        let memory =
            memory.map_or(usize::MAX, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        let all = usize::try_from(descriptors).unwrap_or(usize::MAX);
        let ours = all - (all / 8).max(128).min(all);
        let sessions = SESSIONS.min(ours / 4).min(memory / 64 / SESSION);
        let idle_members = IDLE_MEMBERS.min(ours / 8).min(memory / 32 / IDLE_MEMBER);
        let checks = CHECKS.min(ours / 16).max(1);
        let left = ours.saturating_sub(sessions + idle_members + checks);
        let ties = TIES.min(memory / 64 / TIE).max(1);
        // Seven sixteenths, less the memory of sessions, ties and kept connections.
        let for_places = memory / 16 * 7 - memory / 32 - memory / 32;
        let connections = CONNECTIONS.min(left / 2).min(for_places / PLACE).max(1);
        let used = 2 * connections + sessions + idle_members + checks;
        Self {
            connections,
            listeners: LISTENERS.min(all.saturating_sub(used) / 2),
            listener_connections: most_of(connections),
            client_connections: most_of(connections),
            sessions,
            idle_members,
            checks,
            ties,
            all_header_bytes: ALL_HEADER_BYTES.min(memory / 16).max(HEADER_BYTES),
            ..Self::default()
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            connections: CONNECTIONS,
            listener_connections: most_of(CONNECTIONS),
            client_connections: most_of(CONNECTIONS),
            listeners: LISTENERS,
            sessions: SESSIONS,
            listener_sessions: LISTENER_SESSIONS,
            header_bytes: HEADER_BYTES,
            connection_header_bytes: HEADER_BYTES * 4,
            all_header_bytes: ALL_HEADER_BYTES,
            header_time: seconds(15),
            idle_time: seconds(75),
            body_time: seconds(60),
            write_time: seconds(60),
            tunnel_time: seconds(3600),
            streams: 128,
            checks: CHECKS,
            ties: TIES,
            tries: 4,
            connect_time: seconds(5),
            backend_time: seconds(60),
            member_idle_time: seconds(60),
            idle_members: IDLE_MEMBERS,
            drain_time: seconds(30),
        }
    }
}

/// Receives the lines of the access log. It is called on threads that carry traffic, so it must not wait.
#[derive(Clone)]
pub struct AccessLog(Arc<dyn Fn(&str) + Send + Sync>);

impl AccessLog {
    /// Passes each line, without its line end, to this function.
    pub fn new(sink: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(sink))
    }

    pub(crate) fn write(&self, line: &str) {
        (self.0)(line);
    }
}

impl fmt::Debug for AccessLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccessLog")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The most descriptors that are used, listeners aside.
    fn used(limits: Limits) -> u64 {
        (limits.connections * 2 + limits.sessions + limits.idle_members + limits.checks) as u64
    }

    #[test]
    fn limits_leave_descriptors_for_others() {
        for (descriptors, connections) in
            [(0, 1), (256, 36), (1024, 252), (65_536, 16_384), (1_048_576, 16_384)]
        {
            let limits = Limits::within(descriptors, None);
            assert_eq!(limits.connections, connections, "{descriptors}");
            assert!(used(limits) <= (descriptors - descriptors / 8).max(3), "{limits:?}");
            assert!(limits.listeners as u64 <= descriptors.saturating_sub(used(limits)) / 2);
        }
        let listeners = [256, 1024, 65_536].map(|all| Limits::within(all, None).listeners);
        assert_eq!(listeners, [64, 64, 10_112]);
        assert_eq!(Limits::within(u64::MAX, None), Limits::default());
        assert_eq!(Limits::within(u64::MAX, Some(u64::MAX)), Limits::default());
    }

    #[test]
    fn limits_leave_half_of_the_memory_to_others() {
        let mib = 1024 * 1024;
        for (memory, connections) in
            [(0, 1), (64, 384), (256, 1536), (1024, 6144), (2048, 12_288), (4096, 16_384)]
        {
            let limits = Limits::within(1 << 20, Some(memory * mib));
            assert_eq!(limits.connections, connections, "{memory} MiB");
            let used = limits.connections * PLACE
                + limits.sessions * SESSION
                + limits.idle_members * IDLE_MEMBER
                + limits.ties * TIE
                + limits.all_header_bytes;
            assert!(used as u64 <= (memory * mib / 2).max(256 * 1024), "{memory} MiB: {limits:?}");
        }
        let (one, both) = (Limits::within(1024, None), Limits::within(1024, Some(64 * mib)));
        assert_eq!((one.connections, both.connections), (252, 300));
    }
}
