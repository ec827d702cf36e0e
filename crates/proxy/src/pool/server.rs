//! What is known of one member for as long as it is in a pool, and while it drains after that: its
//! counters, its health and when its connections must end. Weight and state are the table's.

use super::passive::Passive;
use parking_lot::Mutex;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) active: AtomicUsize,
    pub(crate) picks: AtomicU64,
    pub(crate) failures: AtomicU64,
    pub(crate) ejections: AtomicU64,
    /// A failure was seen since the last success, so that successes in a row need no lock.
    troubled: AtomicBool,
    health: Mutex<Health>,
    /// When what it has must end; none while it is in the pool. There are many members, and few of them
    /// ever leave under traffic: a watch channel each would be most of their memory.
    ends: Mutex<Option<Instant>>,
    moved: Notify,
}

/// Why a member may be left out although it is ready.
#[derive(Debug, Default)]
pub(super) struct Health {
    pub(super) passive: Passive,
    /// Active checks say that it does not answer.
    pub(super) down: bool,
    pub(super) checker: Option<AbortHandle>,
    pub(super) prober: Option<AbortHandle>,
}

impl Health {
    pub(super) fn is_good(&self) -> bool {
        !self.down && !self.passive.is_out()
    }

    pub(super) fn stop_tasks(&mut self) {
        for task in [self.checker.take(), self.prober.take()].into_iter().flatten() {
            task.abort();
        }
    }
}

impl Server {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self {
            address,
            active: AtomicUsize::new(0),
            picks: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            ejections: AtomicU64::new(0),
            troubled: AtomicBool::new(false),
            health: Mutex::default(),
            ends: Mutex::new(None),
            moved: Notify::new(),
        }
    }

    pub(super) fn health(&self) -> parking_lot::MutexGuard<'_, Health> {
        self.health.lock()
    }

    pub(super) fn begin(&self) {
        self.active.fetch_add(1, Ordering::Relaxed);
        self.picks.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn end(&self) {
        self.active.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn succeeded(&self) {
        if self.troubled.load(Ordering::Relaxed) {
            self.troubled.store(false, Ordering::Relaxed);
            self.health().passive.succeeded();
        }
    }

    /// Says whether it should be put out.
    pub(super) fn failed(&self, now: Instant) -> bool {
        self.troubled.store(true, Ordering::Relaxed);
        self.health().passive.failed(now)
    }

    /// It left the pool: what it has ends then.
    pub(super) fn leave(&self, ends: Instant) {
        self.health().stop_tasks();
        self.move_to(Some(ends));
    }

    /// It is back before it was forgotten; what was held against it is not.
    pub(super) fn come_back(&self) {
        let mut health = self.health();
        health.stop_tasks();
        *health = Health::default();
        drop(health);
        self.move_to(None);
    }

    pub(super) fn ends(&self) -> Option<Instant> {
        *self.ends.lock()
    }

    fn move_to(&self, ends: Option<Instant>) {
        *self.ends.lock() = ends;
        self.moved.notify_waiters();
    }

    /// Resolves once its drain time is over.
    pub(super) fn ended(self: &Arc<Self>) -> impl Future<Output = ()> + Send + 'static + use<> {
        let server = self.clone();
        async move {
            loop {
                // Made before the look, so that it hears of what happens after it.
                let moved = server.moved.notified();
                match server.ends() {
                    None => moved.await,
                    Some(end) => tokio::select! {
                        () = sleep_until(end) => return,
                        () = moved => {}
                    },
                }
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.health.get_mut().stop_tasks();
    }
}
