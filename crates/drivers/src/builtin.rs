//! The built-in proxy as a driver: updates are applied in memory, so an update cannot fail as a whole. It adds to the
//! proxy's reports the settings of pools that the proxy does not support. The agent calls it through [`Driver`].

use crate::{Driver, Error};
use bowline_core::key::ConsumerRef;
use bowline_core::outcome::{Problem, Reason};
use bowline_core::update::{Change, Extent, Refusal, Report, Update};
use bowline_proxy::Proxy;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Drives a proxy in the same process.
#[derive(Debug)]
pub struct Builtin {
    proxy: Arc<Proxy>,
    report: watch::Receiver<Report>,
    failing: watch::Receiver<()>,
    /// The consumers with rate limits, by pool. The proxy does not enforce these limits.
    limited: BTreeMap<Arc<str>, ConsumerRef>,
}

impl Builtin {
    /// A driver for this proxy.
    pub fn new(proxy: Arc<Proxy>) -> Self {
        Self {
            report: proxy.report(),
            failing: proxy.failing_changes(),
            proxy,
            limited: BTreeMap::new(),
        }
    }

    fn hear(&mut self, update: &Update) {
        if update.complete {
            self.limited.clear();
        }
        for change in &update.pools {
            let (pool, limits) = match change {
                Change::Put(name, pool) => (name, pool.limits.as_ref()),
                Change::Remove(name) => (name, None),
            };
            match limits {
                Some(limits) => drop(self.limited.insert(pool.clone(), limits.consumer.clone())),
                None => drop(self.limited.remove(pool)),
            }
        }
    }

    fn told(&mut self) -> Report {
        let mut report = self.report.borrow_and_update().clone();
        self.failing.mark_unchanged();
        report.failing = self.proxy.failing();
        let mut consumers: Vec<_> = self.limited.values().cloned().collect();
        consumers.sort_unstable();
        consumers.dedup();
        report.refused.extend(consumers.into_iter().map(|consumer| Refusal {
            consumer,
            problem: Problem::new(
                Reason::NotSupported,
                "the built-in proxy does not limit a consumer to what it requested; HAProxy does",
            ),
            extent: Extent::Part,
        }));
        report.refused.sort_unstable();
        report
    }
}

impl Driver for Builtin {
    async fn apply(&mut self, update: &Update) -> Result<Report, Error> {
        self.proxy.apply(update).await;
        self.hear(update);
        // The report also covers addresses bound since the update; `changed` does not report them again.
        Ok(self.told())
    }

    async fn changed(&mut self) -> Result<Report, Error> {
        let changed = tokio::select! {
            changed = self.report.changed() => changed,
            changed = self.failing.changed() => changed,
        };
        match changed {
            Ok(()) => Ok(self.told()),
            Err(_) => std::future::pending().await,
        }
    }

    fn most_listeners(&self) -> Option<usize> {
        Some(self.proxy.limits().listeners)
    }

    async fn drain(&mut self, grace: Duration) {
        self.proxy.drain(grace).await;
    }

    fn serves_on(&self) -> bool {
        false
    }
}
