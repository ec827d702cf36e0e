//! The sessions of a UDP listener, by client. Where there is no place for another, the oldest that was
//! not used since it was last looked at makes room for it.

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

/// So many sessions in use are passed over before one is made to go all the same.
const CHANCES: usize = 8;
/// A session that was used a shorter time ago is in use.
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

    /// Remembers which place it has.
    pub(super) fn takes(&self, place: u64) {
        let _ = self.place.set(place);
    }

    /// Whether it was used a moment ago.
    pub(crate) fn is_busy(&self) -> bool {
        self.last_used().elapsed() < BUSY
    }

    /// Tells it to end.
    pub(crate) fn end(&self) {
        self.ended.notify_one();
    }

    pub(super) fn belongs_to(&self, pool: &Arc<Pool>) -> bool {
        std::ptr::eq(self.pool.as_ptr(), Arc::as_ptr(pool))
    }

    /// Sends to the member; says whether it may have arrived. What does not fit the socket's buffer is
    /// lost, as datagrams may be. But a member that refused the datagram before is told of here, and
    /// only once: then this one was not sent, and the session is over.
    pub(super) fn send(&self, bytes: &[u8]) -> bool {
        self.touch();
        // Past tokio: it would not try before the new socket has been polled, and lose the first.
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

    /// Resolves when the session must end; says whether that is because its member refused.
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
    /// The oldest first, with when it had been used last when it came to its place. Sessions that
    /// ended may still be here.
    order: VecDeque<(SocketAddr, Weak<Session>, u64)>,
}

impl SessionTable {
    pub(super) fn get(&self, client: SocketAddr) -> Option<Arc<Session>> {
        self.table.lock().by_client.get(&client).cloned()
    }

    /// Puts a session in; one of the same client is told to end.
    pub(super) fn put(&self, client: SocketAddr, session: Arc<Session>) {
        let mut table = self.table.lock();
        // Entries of sessions that ended by themselves are swept once they are half of all.
        if table.order.len() >= 64 + table.by_client.len() * 2 {
            table.order.retain(|(_, session, _)| session.strong_count() > 0);
        }
        table.order.push_back((client, Arc::downgrade(&session), 0));
        if let Some(before) = table.by_client.insert(client, session) {
            before.end();
        }
    }

    /// Tells the oldest that was not used of late to end; gives the place that it has.
    pub(crate) fn make_room(&self) -> Option<u64> {
        self.table.lock().make_room()
    }

    /// Takes the session out, unless the client has another by now.
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
