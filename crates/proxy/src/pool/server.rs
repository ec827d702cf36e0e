//! What is known of one member for as long as it is in a pool, and while it drains after that: its
//! counters, its health and when its connections must end. Weight and state are the table's.

use super::passive::Passive;
use parking_lot::Mutex;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) active: AtomicUsize,
    pub(crate) picks: AtomicU64,
    pub(crate) failures: AtomicU64,
    /// There are many members, and most of them see no traffic here: what only those need that do would
    /// be most of their memory.
    life: OnceLock<Box<Life>>,
}

/// What there is to know of a member once it had traffic, was checked or has left.
#[derive(Debug, Default)]
struct Life {
    ejections: AtomicU64,
    /// A failure was seen since the last success, so that successes in a row need no lock.
    troubled: AtomicBool,
    health: Mutex<Health>,
    /// When what it has must end; none while it is in the pool.
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
            life: OnceLock::new(),
        }
    }

    fn life(&self) -> &Life {
        self.life.get_or_init(Box::default)
    }

    /// Its health, to be changed.
    pub(super) fn health(&self) -> parking_lot::MutexGuard<'_, Health> {
        self.life().health.lock()
    }

    /// What its health says.
    pub(super) fn look<T>(&self, of: impl FnOnce(&Health) -> T) -> T {
        match self.life.get() {
            Some(life) => of(&life.health.lock()),
            None => of(&Health::default()),
        }
    }

    pub(super) fn is_healthy(&self) -> bool {
        self.look(Health::is_good)
    }

    pub(super) fn begin(&self) {
        self.active.fetch_add(1, Ordering::Relaxed);
        self.picks.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn end(&self) {
        self.active.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn succeeded(&self) {
        let life = self.life();
        if life.troubled.load(Ordering::Relaxed) {
            life.troubled.store(false, Ordering::Relaxed);
            life.health.lock().passive.succeeded();
        }
    }

    /// Says whether it should be put out.
    pub(super) fn failed(&self, now: Instant) -> bool {
        self.life().troubled.store(true, Ordering::Relaxed);
        self.health().passive.failed(now)
    }

    /// It was put out.
    pub(super) fn count_ejection(&self) {
        self.life().ejections.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn ejections(&self) -> u64 {
        self.life.get().map_or(0, |life| life.ejections.load(Ordering::Relaxed))
    }

    /// Its tasks end.
    pub(super) fn stop_tasks(&self) {
        if let Some(life) = self.life.get() {
            life.health.lock().stop_tasks();
        }
    }

    /// It left the pool: what it has ends then.
    pub(super) fn leave(&self, ends: Instant) {
        self.stop_tasks();
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
        self.life.get().and_then(|life| *life.ends.lock())
    }

    fn move_to(&self, ends: Option<Instant>) {
        let life = self.life();
        *life.ends.lock() = ends;
        life.moved.notify_waiters();
    }

    /// Resolves once its drain time is over.
    pub(super) fn ended(self: &Arc<Self>) -> impl Future<Output = ()> + Send + 'static + use<> {
        let server = self.clone();
        async move {
            let life = server.life();
            loop {
                // Made before the look, so that it hears of what happens after it.
                let moved = life.moved.notified();
                let ends = *life.ends.lock();
                match ends {
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
        self.stop_tasks();
    }
}
