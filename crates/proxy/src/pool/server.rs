//! The state of one member while it is in a pool, and while it drains after that: its counters, its
//! health and when its connections must end. Its weight and state are in the table.

use super::checks::Ticket;
use super::passive::Passive;
use parking_lot::Mutex;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) active: AtomicUsize,
    pub(crate) picks: AtomicU64,
    pub(crate) failures: AtomicU64,
    /// Most members see no traffic at this proxy; what only the others need is allocated at its first
    /// use.
    life: OnceLock<Box<Life>>,
}

/// The state of a member that had traffic, was checked or has left.
#[derive(Debug, Default)]
struct Life {
    ejections: AtomicU64,
    /// A failure was seen since the last success; without one, a success needs no lock.
    troubled: AtomicBool,
    /// A copy of the health, readable without the lock.
    failing: AtomicBool,
    health: Mutex<Health>,
    /// When its connections must end; None while it is in the pool.
    ends: Mutex<Option<Instant>>,
    moved: Notify,
}

/// Why a ready member may be left out.
#[derive(Debug, Default)]
pub(super) struct Health {
    pub(super) passive: Passive,
    /// Active checks fail.
    pub(super) down: bool,
    pub(super) checker: Option<Ticket>,
    pub(super) prober: Option<Ticket>,
}

impl Health {
    pub(super) fn is_good(&self) -> bool {
        !self.down && !self.passive.is_out()
    }

    pub(super) fn stop_checks(&mut self) {
        self.checker = None;
        self.prober = None;
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

    /// Reads its health.
    pub(super) fn look<T>(&self, of: impl FnOnce(&Health) -> T) -> T {
        match self.life.get() {
            Some(life) => of(&life.health.lock()),
            None => of(&Health::default()),
        }
    }

    /// Changes its health.
    pub(super) fn change<T>(&self, how: impl FnOnce(&mut Health) -> T) -> T {
        let life = self.life();
        let mut health = life.health.lock();
        let told = how(&mut health);
        life.failing.store(!health.is_good(), Ordering::Relaxed);
        told
    }

    pub(super) fn is_healthy(&self) -> bool {
        self.life.get().is_none_or(|life| !life.failing.load(Ordering::Relaxed))
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

    /// Counts a failure; returns whether the member should be ejected.
    pub(super) fn failed(&self, now: Instant) -> bool {
        self.life().troubled.store(true, Ordering::Relaxed);
        self.change(|health| health.passive.failed(now))
    }

    /// Counts an ejection.
    pub(super) fn count_ejection(&self) {
        self.life().ejections.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn ejections(&self) -> u64 {
        self.life.get().map_or(0, |life| life.ejections.load(Ordering::Relaxed))
    }

    /// Stops its checks.
    pub(super) fn stop_checks(&self) {
        if let Some(life) = self.life.get() {
            life.health.lock().stop_checks();
        }
    }

    /// The member leaves the pool: its connections end at this time.
    pub(super) fn leave(&self, ends: Instant) {
        self.stop_checks();
        self.move_to(Some(ends));
    }

    /// The member is back before it was forgotten, with good health.
    pub(super) fn come_back(&self) {
        self.change(|health| *health = Health::default());
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
                // Created before the check, so that a later change is not missed.
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
