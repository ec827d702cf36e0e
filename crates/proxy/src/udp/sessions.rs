//! The sessions of a UDP listener, by client. When there is no place for another session, the oldest
//! one that was not used since the last check ends.

use crate::pool::Pool;
use crate::proxy_protocol::Header;
use parking_lot::Mutex;
use socket2::SockRef;
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::io::{ErrorKind, IoSlice};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::sync::Notify;
use tokio::time::Instant;

/// This many sessions in use are passed over before one is ended anyway.
const CHANCES: usize = 8;
/// A session that was used less long ago is in use.
const BUSY: Duration = Duration::from_secs(1);

thread_local! {
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; super::LARGEST].into());
}

/// Lends the thread's buffer.
pub(super) fn with_buffer<T>(f: impl FnOnce(&mut [u8]) -> T) -> T {
    BUFFER.with_borrow_mut(|buffer| f(buffer))
}

#[derive(Debug)]
pub(crate) struct Session {
    pub(super) upstream: UdpSocket,
    pool: Weak<Pool>,
    header: Option<Header>,
    start: Instant,
    /// Milliseconds after the start.
    used: AtomicU64,
    refused: AtomicBool,
    ended: Notify,
    place: OnceLock<u64>,
}

impl Session {
    pub(super) fn new(upstream: UdpSocket, pool: Weak<Pool>, header: Option<Header>) -> Self {
        Self {
            upstream,
            pool,
            header,
            start: Instant::now(),
            used: AtomicU64::new(0),
            refused: AtomicBool::new(false),
            ended: Notify::new(),
            place: OnceLock::new(),
        }
    }

    /// Remembers which place the session has.
    pub(super) fn takes(&self, place: u64) {
        let _ = self.place.set(place);
    }

    /// Whether it was used a moment ago.
    pub(crate) fn is_busy(&self) -> bool {
        self.last_used().elapsed() < BUSY
    }

    /// Tells the session to end.
    pub(crate) fn end(&self) {
        self.ended.notify_one();
    }

    pub(super) fn belongs_to(&self, pool: &Arc<Pool>) -> bool {
        std::ptr::eq(self.pool.as_ptr(), Arc::as_ptr(pool))
    }

    /// Sends to the member; returns whether the datagram may have arrived. A datagram that does not
    /// fit the socket's buffer is lost, which UDP allows. The kernel reports here, and only once, that
    /// the member refused an earlier datagram: then this one was not sent, and the session is over.
    pub(super) fn send(&self, bytes: &[u8]) -> bool {
        self.touch();
        // Not through tokio: it would not send before the new socket has been polled, and lose the
        // first datagram.
        let upstream = SockRef::from(&self.upstream);
        let sent = match &self.header {
            None => upstream.send(bytes),
            Some(header) => upstream.send_vectored(&[IoSlice::new(header), IoSlice::new(bytes)]),
        };
        let refused = sent.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
        if refused {
            self.refused.store(true, Ordering::Relaxed);
            self.ended.notify_one();
        }
        !refused
    }

    pub(super) fn touch(&self) {
        let now = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.used.store(now, Ordering::Relaxed);
    }

    pub(super) fn last_used(&self) -> Instant {
        self.start + Duration::from_millis(self.used.load(Ordering::Relaxed))
    }

    /// Resolves when the session must end; returns whether that is because its member refused.
    pub(super) async fn ended(&self) -> bool {
        self.ended.notified().await;
        self.refused.load(Ordering::Relaxed)
    }
}

#[derive(Debug, Default)]
pub(crate) struct SessionTable {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    by_client: HashMap<SocketAddr, Arc<Session>>,
    /// The oldest first, each with its last use at the time when it was put there. Ended sessions may
    /// still be in it.
    order: VecDeque<(SocketAddr, Weak<Session>, u64)>,
}

impl SessionTable {
    pub(super) fn get(&self, client: SocketAddr) -> Option<Arc<Session>> {
        self.table.lock().by_client.get(&client).cloned()
    }

    /// Adds a session; an earlier one of the same client is told to end.
    pub(super) fn put(&self, client: SocketAddr, session: Arc<Session>) {
        let mut table = self.table.lock();
        // Entries of ended sessions are removed once they are half of all.
        if table.order.len() >= 64 + table.by_client.len() * 2 {
            table.order.retain(|(_, session, _)| session.strong_count() > 0);
        }
        table.order.push_back((client, Arc::downgrade(&session), 0));
        if let Some(before) = table.by_client.insert(client, session) {
            before.end();
        }
    }

    /// Tells the oldest session that is not in use to end; returns its place.
    pub(crate) fn make_room(&self) -> Option<u64> {
        self.table.lock().make_room()
    }

    /// Removes the session, unless the client has another one by now.
    pub(super) fn remove(&self, client: SocketAddr, session: &Arc<Session>) {
        let mut table = self.table.lock();
        if table.by_client.get(&client).is_some_and(|current| Arc::ptr_eq(current, session)) {
            table.by_client.remove(&client);
        }
    }
}

impl Table {
    fn make_room(&mut self) -> Option<u64> {
        let mut chances = CHANCES;
        while let Some((client, session, seen)) = self.order.pop_front() {
            let Some(session) = session.upgrade() else { continue };
            let current = self.by_client.get(&client);
            if !current.is_some_and(|current| Arc::ptr_eq(current, &session)) {
                continue;
            }
            let used = session.used.load(Ordering::Relaxed);
            if used > seen && chances > 0 {
                chances -= 1;
                self.order.push_back((client, Arc::downgrade(&session), used));
                continue;
            }
            self.by_client.remove(&client);
            session.end();
            return session.place.get().copied();
        }
        None
    }
}
