//! Which kept connections to an address may still be used. When a member is removed and its address
//! comes back, another Pod may have it: connections from before are not used again.

use bowline_core::update::Member;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often each address was removed of late.
#[derive(Debug)]
pub(crate) struct Generations {
    /// Longer than a connection can be kept or drain.
    remembered: Duration,
    next: AtomicU64,
    any: AtomicBool,
    known: RwLock<Known>,
}

#[derive(Debug, Default)]
struct Known {
    members: HashMap<SocketAddr, (u64, Instant)>,
    /// At this size, old entries are removed.
    tidy_at: usize,
}

impl Generations {
    /// For connections that are kept for this long.
    pub(crate) fn new(kept: Duration) -> Self {
        Self {
            remembered: kept + Duration::from_secs(900),
            next: AtomicU64::new(1),
            any: AtomicBool::new(false),
            known: RwLock::default(),
        }
    }

    /// The number for connections to the member; connections under another number must not be used.
    pub(crate) fn of(&self, member: SocketAddr) -> u64 {
        if !self.any.load(Ordering::Acquire) {
            return 0;
        }
        self.known.read().members.get(&member).map_or(0, |(generation, _)| *generation)
    }

    /// These members are removed.
    pub(crate) fn removed(&self, members: &[Member]) {
        if members.is_empty() {
            return;
        }
        let now = Instant::now();
        let mut known = self.known.write();
        if known.members.len() >= known.tidy_at {
            known.members.retain(|_, (_, at)| now.duration_since(*at) < self.remembered);
            known.tidy_at = (known.members.len() * 2).max(1024);
        }
        for member in members {
            let generation = self.next.fetch_add(1, Ordering::Relaxed);
            known.members.insert(member.address, (generation, now));
        }
        self.any.store(true, Ordering::Release);
    }
}
