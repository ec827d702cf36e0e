//! The metrics of Bowline. One registry per process; roles hold a handle and never fail because of it.
//! Names are part of the product: docs/metrics.md lists them.

use parking_lot::{Mutex, RwLock};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

type Label = [(&'static str, String); 1];

/// The error reason of a task that ended by itself.
pub(crate) const TASK_ENDED: &str = "TaskEnded";

/// The metrics of a process.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<RwLock<Registry>>,
    queue_depth: Family<Label, Gauge>,
    phases: [Histogram; 4],
    event_to_applied: Histogram,
    members: Family<Label, Gauge>,
    errors: Family<Label, Counter>,
    refused: Family<Label, Gauge>,
    leader: Gauge,
    watch_restarts: Family<Label, Counter>,
    kept_since: Family<Label, Gauge>,
    agents: Family<[(&'static str, String); 2], Gauge>,
    /// The names in `agents`, by load balancer.
    agent_names: Arc<Mutex<BTreeMap<String, String>>>,
}

fn agent_labels(load_balancer: &str, agent: &str) -> [(&'static str, String); 2] {
    [("load_balancer", load_balancer.to_owned()), ("agent", agent.to_owned())]
}

/// A phase that is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The planner.
    Plan,
    /// The resolver, as it takes events.
    Resolve,
    /// The resolver, as it computes an update.
    Diff,
    /// The driver.
    Apply,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("bowline");
        let seconds = || Histogram::new(exponential_buckets(0.000_01, 4.0, 11));
        let [plan, resolve, diff, apply] = [seconds(), seconds(), seconds(), seconds()];
        let metrics = Self {
            queue_depth: Family::default(),
            phases: [plan.clone(), resolve.clone(), diff.clone(), apply.clone()],
            event_to_applied: seconds(),
            members: Family::default(),
            errors: Family::default(),
            refused: Family::default(),
            leader: Gauge::default(),
            watch_restarts: Family::default(),
            kept_since: Family::default(),
            agents: Family::default(),
            agent_names: Arc::default(),
            registry: Arc::default(),
        };
        let of = |what| format!("Seconds that {what} took");
        registry.register(
            "queue_depth",
            "Items that wait to be written or applied, by queue",
            metrics.queue_depth.clone(),
        );
        registry.register("plan_seconds", of("planning a burst of events"), plan);
        registry.register(
            "resolve_seconds",
            of("the resolver's work on a burst of events"),
            resolve,
        );
        registry.register("diff_seconds", of("finding the difference for the driver"), diff);
        registry.register("apply_seconds", of("the driver"), apply);
        registry.register(
            "event_to_applied_seconds",
            "Seconds from the arrival of the first event of a burst until it was applied",
            metrics.event_to_applied.clone(),
        );
        registry.register(
            "members",
            "Members of all pools, by load balancer",
            metrics.members.clone(),
        );
        registry.register("errors", "Errors, by reason", metrics.errors.clone());
        registry.register(
            "refused",
            "Problems of objects that the leader reports now, by reason",
            metrics.refused.clone(),
        );
        registry.register(
            "leader",
            "1 while this process is the leader among the controllers",
            metrics.leader.clone(),
        );
        registry.register(
            "watch_restarts",
            "Watches that broke off and were restarted, by kind",
            metrics.watch_restarts.clone(),
        );
        registry.register(
            "kept_since_seconds",
            "Unix time until which an agent that serves its kept state had followed the API, by load balancer",
            metrics.kept_since.clone(),
        );
        registry.register(
            "agent_info",
            "1, with the load balancer and the name of an agent of this process",
            metrics.agents.clone(),
        );
        *metrics.registry.write() = registry;
        metrics
    }
}

impl Metrics {
    /// Lets another part, such as the proxy, add metrics.
    pub fn register(&self, add: impl FnOnce(&mut Registry)) {
        add(&mut self.registry.write());
    }

    /// All metrics, in the text format of OpenMetrics.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing into a String cannot fail.
        let _ = encode(&mut text, &self.registry.read());
        text
    }

    /// Sets the length of a queue.
    pub fn queue(&self, queue: &str, depth: usize) {
        let depth = i64::try_from(depth).unwrap_or(i64::MAX);
        self.queue_depth.get_or_create(&[("queue", queue.to_owned())]).set(depth);
    }

    /// Times some work.
    pub fn time<T>(&self, phase: Phase, work: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let result = work();
        self.took(phase, begun.elapsed());
        result
    }

    /// Records how long a phase took.
    pub fn took(&self, phase: Phase, time: Duration) {
        let index = match phase {
            Phase::Plan => 0,
            Phase::Resolve => 1,
            Phase::Diff => 2,
            Phase::Apply => 3,
        };
        self.phases[index].observe(time.as_secs_f64());
    }

    /// Records how long after an event its effect was in force.
    pub fn applied_after(&self, time: Duration) {
        self.event_to_applied.observe(time.as_secs_f64());
    }

    /// Sets the number of members.
    pub fn members(&self, load_balancer: &str, count: usize) {
        let label = [("load_balancer", load_balancer.to_owned())];
        self.members.get_or_create(&label).set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Removes the metrics of a load balancer that is no longer served here.
    pub fn forget(&self, load_balancer: &str) {
        self.members.remove(&[("load_balancer", load_balancer.to_owned())]);
        self.queue_depth.remove(&[("queue", load_balancer.to_owned())]);
        self.forget_agent(load_balancer);
    }

    /// Sets how much is refused for this reason.
    pub fn refused(&self, reason: impl Into<String>, count: usize) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.refused.get_or_create(&[("reason", reason.into())]).set(count);
    }

    /// Counts an error with this reason.
    pub fn error(&self, reason: impl Into<String>) {
        self.errors.get_or_create(&[("reason", reason.into())]).inc();
    }

    /// Sets whether this process is the leader.
    pub fn leads(&self, leads: bool) {
        self.leader.set(leads.into());
    }

    /// Sets until when the kept state that is served was known to be true; None: the agent follows the
    /// API.
    pub fn kept_since(&self, load_balancer: &str, since: Option<i64>) {
        let label = [("load_balancer", load_balancer.to_owned())];
        match since {
            Some(since) => drop(self.kept_since.get_or_create(&label).set(since)),
            None => drop(self.kept_since.remove(&label)),
        }
    }

    /// Tells the name of the agent of a load balancer. An agent before it with the load balancer has ended.
    pub fn agent(&self, load_balancer: &str, agent: &str) {
        self.forget_agent(load_balancer);
        self.agents.get_or_create(&agent_labels(load_balancer, agent)).set(1);
        self.agent_names.lock().insert(load_balancer.to_owned(), agent.to_owned());
    }

    fn forget_agent(&self, load_balancer: &str) {
        if let Some(agent) = self.agent_names.lock().remove(load_balancer) {
            self.agents.remove(&agent_labels(load_balancer, &agent));
        }
    }

    /// Tells the version and the commit of this program.
    pub fn build_info(&self, version: &str, commit: &str) {
        let labels = [("version", version.to_owned()), ("commit", commit.to_owned())];
        let info = Family::<[(&'static str, String); 2], Gauge>::default();
        info.get_or_create(&labels).set(1);
        let help = "1, with the version and the commit of this program";
        self.registry.write().register("build_info", help, info);
    }

    /// Counts a watch that broke off.
    pub fn watch_restarted(&self, kind: &str) {
        self.watch_restarts.get_or_create(&[("kind", kind.to_owned())]).inc();
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_of_ours_begins_with_bowline() {
        let metrics = Metrics::default();
        metrics.queue("edge", 1);
        metrics.members("edge", 1);
        metrics.error("BindFailed");
        metrics.refused("PortTaken", 1);
        metrics.watch_restarted("Service");
        metrics.kept_since("edge", Some(7));
        metrics.agent("edge", "vm_1");
        let text = metrics.text();
        let names: Vec<_> = text
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE "))
            .filter_map(|line| line.split(' ').next())
            .collect();
        assert_eq!(
            names,
            [
                "bowline_queue_depth",
                "bowline_plan_seconds",
                "bowline_resolve_seconds",
                "bowline_diff_seconds",
                "bowline_apply_seconds",
                "bowline_event_to_applied_seconds",
                "bowline_members",
                "bowline_errors",
                "bowline_refused",
                "bowline_leader",
                "bowline_watch_restarts",
                "bowline_kept_since_seconds",
                "bowline_agent_info",
            ]
        );
    }

    #[test]
    fn the_build_is_told_by_a_metric_that_is_always_one() {
        let metrics = Metrics::default();
        metrics.build_info("0.1.0", "abc");
        let line = "bowline_build_info{version=\"0.1.0\",commit=\"abc\"} 1";
        assert!(metrics.text().contains(line), "{}", metrics.text());
    }

    #[test]
    fn of_agents_one_after_the_other_the_last_is_told() {
        let metrics = Metrics::default();
        metrics.agent("edge", "vm_1");
        metrics.agent("edge", "vm_2");
        let text = metrics.text();
        let line = "bowline_agent_info{load_balancer=\"edge\",agent=\"vm_2\"} 1";
        assert!(text.contains(line) && !text.contains("vm_1"), "{text}");
    }

    #[test]
    fn errors_are_counted_by_reason() {
        let metrics = Metrics::default();
        metrics.error("BindFailed");
        metrics.error("BindFailed");
        assert!(metrics.text().contains("bowline_errors_total{reason=\"BindFailed\"} 2"));
    }

    #[test]
    fn nothing_is_left_of_a_load_balancer_that_is_gone() {
        let metrics = Metrics::default();
        for name in ["edge", "other"] {
            metrics.queue(name, 1);
            metrics.members(name, 3);
            metrics.agent(name, "vm_1");
        }
        metrics.forget("edge");
        let text = metrics.text();
        assert!(!text.contains("edge") && text.contains("other"), "{text}");
    }
}
