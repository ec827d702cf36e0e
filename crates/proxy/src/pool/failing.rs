//! Which pools of a proxy have ready members that take no clients, because they failed or their health checks fail. Each
//! pool says so when that changes; the proxy's owner reads all of them. It decides nothing about traffic.

use bowline_core::update::FailingPool;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::watch;

/// See the module.
#[derive(Debug)]
pub(crate) struct FailingPools {
    pools: Mutex<BTreeMap<Arc<str>, FailingPool>>,
    changed: watch::Sender<()>,
}

impl FailingPools {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { pools: Mutex::default(), changed: watch::Sender::new(()) })
    }

    /// The failing members of a pool are these now. None: it has none.
    pub(crate) fn set(&self, pool: &Arc<str>, failing: Option<FailingPool>) {
        let mut pools = self.pools.lock();
        if pools.get(pool) == failing.as_ref() {
            return;
        }
        match failing {
            Some(failing) => drop(pools.insert(Arc::clone(pool), failing)),
            None => drop(pools.remove(pool)),
        }
        self.changed.send_replace(());
    }

    /// All pools with failing members, by name.
    pub(crate) fn all(&self) -> Vec<FailingPool> {
        self.pools.lock().values().cloned().collect()
    }

    /// Resolves when they change.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}
