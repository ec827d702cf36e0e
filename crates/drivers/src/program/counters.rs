//! What is counted of a program.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

/// What is counted of every program.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Reloads that worked.
    pub(crate) reloads: Counter,
    /// Reloads that did not.
    pub(crate) failed_reloads: Counter,
    /// What was found otherwise than it should be, and repaired.
    pub(crate) drift: Counter,
    /// Times that it was started again, or found to be another process than before.
    pub(crate) restarts: Counter,
}

impl Counters {
    /// Shows them; the program is `name`, and `prefix` in the names of metrics.
    pub(crate) fn register(&self, registry: &mut Registry, name: &str, prefix: &str) {
        let all = [
            ("reloads", format!("Reloads of {name}"), &self.reloads),
            ("failed_reloads", format!("Reloads of {name} that failed"), &self.failed_reloads),
            (
                "drift",
                format!("What {name} had otherwise than it should, and was repaired"),
                &self.drift,
            ),
            (
                "restarts",
                format!("Times that {name} was started again, or found to be another"),
                &self.restarts,
            ),
        ];
        for (what, help, counter) in all {
            registry.register(format!("{prefix}_{what}"), help, counter.clone());
        }
    }
}
