//! The metrics of a program. The task and the [`Program`](super::program_trait::Program) count; the runtime
//! registers them.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The metrics that every program has.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Successful reloads.
    pub(crate) reloads: Counter,
    /// Failed reloads.
    pub(crate) failed_reloads: Counter,
    /// Differences from what the program was given, found and repaired.
    pub(crate) drift: Counter,
    /// Times that the program was restarted, or found to be another process than before.
    pub(crate) restarts: Counter,
    /// Old generations: processes from before a reload that still have connections.
    pub(crate) old_generations: Gauge,
    /// Old generations that were ended because there were too many.
    pub(crate) ended_generations: Counter,
}

impl Counters {
    /// Registers the metrics: `name` is the program's name in help texts, `prefix` in metric names.
    pub(crate) fn register(&self, registry: &mut Registry, name: &str, prefix: &str) {
        let all = [
            ("reloads", format!("Reloads of {name}"), &self.reloads),
            ("failed_reloads", format!("Reloads of {name} that failed"), &self.failed_reloads),
            (
                "drift",
                format!("Differences between the state of {name} and the plan that were repaired"),
                &self.drift,
            ),
            (
                "restarts",
                format!("Times that {name} was restarted, or found to be another process"),
                &self.restarts,
            ),
            (
                "ended_generations",
                format!("Old generations of {name} that were ended because there were too many"),
                &self.ended_generations,
            ),
        ];
        for (what, help, counter) in all {
            registry.register(format!("{prefix}_{what}"), help, counter.clone());
        }
        let help =
            format!("Generations of {name} from before a reload that still have connections");
        registry.register(format!("{prefix}_old_generations"), help, self.old_generations.clone());
    }
}
