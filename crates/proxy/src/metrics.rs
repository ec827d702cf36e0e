//! What the data plane counts, in the form that Prometheus reads. Pools and listeners keep their own
//! counters; they are read here when somebody asks, so that counting costs no look-up and nothing is
//! left of a pool or listener that is gone.

use crate::pool::{Condition, Pool};
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// Counters of one TCP or UDP listener.
#[derive(Debug, Default)]
pub struct ListenerStats {
    /// Connections or sessions that were begun.
    pub accepted: AtomicU64,
    /// Those that were turned away: source ranges, limits.
    pub refused: AtomicU64,
    /// Those that go on.
    pub active: AtomicU64,
    /// Bytes from clients.
    pub bytes_in: AtomicU64,
    /// Bytes to clients.
    pub bytes_out: AtomicU64,
}

impl ListenerStats {
    pub(crate) fn add(counter: &AtomicU64, amount: u64) {
        counter.fetch_add(amount, Ordering::Relaxed);
    }

    /// Counts one as begun, and as going on until the guard is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> Active {
        Self::add(&self.accepted, 1);
        Self::add(&self.active, 1);
        Active(self.clone())
    }
}

/// Something that goes on.
#[derive(Debug)]
pub(crate) struct Active(Arc<ListenerStats>);

impl Drop for Active {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Finds the counters of all pools and listeners. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    sources: Arc<Mutex<Sources>>,
}

#[derive(Debug, Default)]
struct Sources {
    pools: BTreeMap<Arc<str>, Weak<Pool>>,
    listeners: BTreeMap<(SocketAddr, &'static str), Weak<ListenerStats>>,
}

impl Metrics {
    /// Shows a pool's counters for as long as it lives, or until another of its name comes.
    pub fn add_pool(&self, pool: &Arc<Pool>) {
        self.sources.lock().pools.insert(pool.config().name.clone(), Arc::downgrade(pool));
    }

    /// Counters for a listener, shown for as long as they live. The protocol is `tcp` or `udp`.
    pub fn listener(&self, at: SocketAddr, protocol: &'static str) -> Arc<ListenerStats> {
        let stats = Arc::new(ListenerStats::default());
        self.sources.lock().listeners.insert((at, protocol), Arc::downgrade(&stats));
        stats
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MemberLabels {
    pool: String,
    member: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    pool: String,
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ListenerLabels {
    address: String,
    protocol: &'static str,
}

/// All samples of one metric.
struct Samples<L> {
    name: &'static str,
    help: &'static str,
    gauge: bool,
    values: Vec<(Arc<L>, u64)>,
}

impl<L: EncodeLabelSet> Samples<L> {
    fn encode(self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let kind = if self.gauge { MetricType::Gauge } else { MetricType::Counter };
        let mut family = encoder.encode_descriptor(self.name, self.help, None, kind)?;
        for (labels, value) in self.values {
            let sample = family.encode_family(&*labels)?;
            if self.gauge {
                ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)).encode(sample)?;
            } else {
                ConstCounter::new(value).encode(sample)?;
            }
        }
        Ok(())
    }
}

fn samples<L>(name: &'static str, help: &'static str, gauge: bool) -> Samples<L> {
    Samples { name, help, gauge, values: Vec::new() }
}

impl Metrics {
    fn live(&self) -> (Vec<Arc<Pool>>, Vec<(ListenerLabels, Arc<ListenerStats>)>) {
        let mut sources = self.sources.lock();
        sources.pools.retain(|_, pool| pool.strong_count() > 0);
        sources.listeners.retain(|_, stats| stats.strong_count() > 0);
        let pools = sources.pools.values().filter_map(Weak::upgrade).collect();
        let listeners = sources.listeners.iter().filter_map(|((at, protocol), stats)| {
            let labels = ListenerLabels { address: at.to_string(), protocol };
            Some((labels, stats.upgrade()?))
        });
        (pools, listeners.collect())
    }
}

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (pools, listeners) = self.live();

        let mut picks = samples(
            "bowline_proxy_member_picks",
            "Connections or requests given to a member",
            false,
        );
        let mut failures = samples(
            "bowline_proxy_member_failures",
            "Connections or requests that a member failed",
            false,
        );
        let mut ejections = samples(
            "bowline_proxy_member_ejections",
            "How often a member was left out for its failures",
            false,
        );
        let mut active = samples(
            "bowline_proxy_member_active",
            "Connections or requests that a member has now",
            true,
        );
        let mut healthy = samples(
            "bowline_proxy_member_healthy",
            "Whether a member takes traffic (1) or is ejected or down (0)",
            true,
        );
        let mut members = samples("bowline_proxy_pool_members", "Members of a pool by state", true);
        for pool in &pools {
            let name = pool.config().name.to_string();
            let mut states = [("ready", 0), ("draining", 0), ("ejected", 0), ("down", 0)];
            for member in pool.stats() {
                states[match member.condition {
                    Condition::Ready => 0,
                    Condition::Draining => 1,
                    Condition::Ejected => 2,
                    Condition::Down => 3,
                }]
                .1 += 1;
                // Members that never had traffic would be most of the output, and say nothing.
                let good = matches!(member.condition, Condition::Ready | Condition::Draining);
                if member.picks == 0 && good {
                    continue;
                }
                let labels = Arc::new(MemberLabels {
                    pool: name.clone(),
                    member: member.address.to_string(),
                });
                picks.values.push((labels.clone(), member.picks));
                failures.values.push((labels.clone(), member.failures));
                ejections.values.push((labels.clone(), member.ejections));
                active.values.push((labels.clone(), member.active as u64));
                healthy.values.push((labels, u64::from(good)));
            }
            for (state, count) in states {
                members.values.push((Arc::new(StateLabels { pool: name.clone(), state }), count));
            }
        }
        for family in [picks, failures, ejections, active, healthy] {
            family.encode(&mut encoder)?;
        }
        members.encode(&mut encoder)?;

        type Read = fn(&ListenerStats) -> &AtomicU64;
        let families: [(&str, &str, bool, Read); 5] = [
            ("bowline_proxy_listener_accepted", "Connections or sessions begun", false, |s| {
                &s.accepted
            }),
            ("bowline_proxy_listener_refused", "Connections or sessions turned away", false, |s| {
                &s.refused
            }),
            ("bowline_proxy_listener_active", "Connections or sessions that go on", true, |s| {
                &s.active
            }),
            ("bowline_proxy_listener_bytes_in", "Bytes from clients", false, |s| &s.bytes_in),
            ("bowline_proxy_listener_bytes_out", "Bytes to clients", false, |s| &s.bytes_out),
        ];
        let listeners: Vec<_> = listeners.into_iter().map(|(l, s)| (Arc::new(l), s)).collect();
        for (name, help, gauge, read) in families {
            let mut family = samples(name, help, gauge);
            family.values = listeners
                .iter()
                .map(|(labels, stats)| (labels.clone(), read(stats).load(Ordering::Relaxed)))
                .collect();
            family.encode(&mut encoder)?;
        }
        Ok(())
    }
}
