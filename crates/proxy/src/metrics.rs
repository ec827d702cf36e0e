//! What the data plane counts, in the form that Prometheus reads. Pools and listeners keep their own
//! counters; they are read here when somebody asks, so that counting costs no look-up and nothing is
//! left of a pool or listener that is gone.

use crate::pool::{Condition, MemberStats, Pool};
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType::{self, Counter, Gauge};
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

/// Finds the counters of all pools and listeners, for a registry with the prefix `bowline`. Clones
/// are the same.
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

impl Metrics {
    fn live_pools(&self) -> Vec<(Arc<str>, Arc<Pool>)> {
        let mut sources = self.sources.lock();
        sources.pools.retain(|_, pool| pool.strong_count() > 0);
        let pools = sources.pools.iter();
        pools.filter_map(|(name, pool)| Some((name.clone(), pool.upgrade()?))).collect()
    }

    fn live_listeners(&self) -> Vec<(ListenerLabels, Arc<ListenerStats>)> {
        let mut sources = self.sources.lock();
        sources.listeners.retain(|_, stats| stats.strong_count() > 0);
        let listeners = sources.listeners.iter().filter_map(|((at, protocol), stats)| {
            let labels = ListenerLabels { address: at.to_string(), protocol };
            Some((labels, stats.upgrade()?))
        });
        listeners.collect()
    }
}

/// A metric that things with counters have.
struct Family<T> {
    name: &'static str,
    help: &'static str,
    kind: MetricType,
    read: fn(&T) -> u64,
}

const MEMBER: [Family<MemberStats>; 5] = [
    Family {
        name: "proxy_member_picks",
        help: "Connections or requests given to a member",
        kind: Counter,
        read: |member| member.picks,
    },
    Family {
        name: "proxy_member_failures",
        help: "Connections or requests that a member failed",
        kind: Counter,
        read: |member| member.failures,
    },
    Family {
        name: "proxy_member_ejections",
        help: "How often a member was left out for its failures",
        kind: Counter,
        read: |member| member.ejections,
    },
    Family {
        name: "proxy_member_active",
        help: "Connections or requests that a member has now",
        kind: Gauge,
        read: |member| member.active as u64,
    },
    Family {
        name: "proxy_member_healthy",
        help: "Whether a member answers (1) or is ejected or down (0)",
        kind: Gauge,
        read: |member| u64::from(is_healthy(member)),
    },
];

const POOL: [Family<(Condition, u64)>; 1] = [Family {
    name: "proxy_pool_members",
    help: "Members of a pool by state",
    kind: Gauge,
    read: |(_, count)| *count,
}];

const LISTENER: [Family<Arc<ListenerStats>>; 5] = [
    Family {
        name: "proxy_listener_accepted",
        help: "Connections or sessions begun",
        kind: Counter,
        read: |stats| stats.accepted.load(Ordering::Relaxed),
    },
    Family {
        name: "proxy_listener_refused",
        help: "Connections, or datagrams without a session, turned away",
        kind: Counter,
        read: |stats| stats.refused.load(Ordering::Relaxed),
    },
    Family {
        name: "proxy_listener_active",
        help: "Connections or sessions that go on",
        kind: Gauge,
        read: |stats| stats.active.load(Ordering::Relaxed),
    },
    Family {
        name: "proxy_listener_bytes_in",
        help: "Bytes from clients",
        kind: Counter,
        read: |stats| stats.bytes_in.load(Ordering::Relaxed),
    },
    Family {
        name: "proxy_listener_bytes_out",
        help: "Bytes to clients",
        kind: Counter,
        read: |stats| stats.bytes_out.load(Ordering::Relaxed),
    },
];

/// Draining is no illness.
fn is_healthy(member: &MemberStats) -> bool {
    matches!(member.condition, Condition::Ready | Condition::Draining)
}

fn encode<T, L: EncodeLabelSet>(
    families: &[Family<T>],
    things: &[(L, T)],
    encoder: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    for Family { name, help, kind, read } in families {
        let mut family = encoder.encode_descriptor(name, help, None, *kind)?;
        for (labels, thing) in things {
            let sample = family.encode_family(labels)?;
            match kind {
                Counter => ConstCounter::new(read(thing)).encode(sample)?,
                _ => {
                    ConstGauge::new(i64::try_from(read(thing)).unwrap_or(i64::MAX))
                        .encode(sample)?;
                }
            }
        }
    }
    Ok(())
}

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (mut members, mut counts) = (Vec::new(), Vec::new());
        for (name, pool) in self.live_pools() {
            let stats = pool.stats();
            for (condition, state) in [
                (Condition::Ready, "ready"),
                (Condition::Draining, "draining"),
                (Condition::Ejected, "ejected"),
                (Condition::Down, "down"),
            ] {
                let count = stats.iter().filter(|member| member.condition == condition).count();
                let labels = StateLabels { pool: name.to_string(), state };
                counts.push((labels, (condition, count as u64)));
            }
            // Members that never had traffic would be most of the output, and say nothing.
            let telling = stats.into_iter().filter(|stats| stats.picks > 0 || !is_healthy(stats));
            members.extend(telling.map(|stats| {
                let member = stats.address.to_string();
                (MemberLabels { pool: name.to_string(), member }, stats)
            }));
        }
        encode(&MEMBER, &members, &mut encoder)?;
        encode(&POOL, &counts, &mut encoder)?;
        encode(&LISTENER, &self.live_listeners(), &mut encoder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Client;
    use crate::pool::tests::{change, config, member};
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    fn printed(metrics: &Metrics) -> String {
        let mut registry = Registry::with_prefix("bowline");
        registry.register_collector(Box::new(metrics.clone()));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        text.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect()
    }

    #[test]
    fn members_with_traffic_states_and_listeners_are_shown_and_nothing_is_left_of_what_is_gone() {
        let metrics = Metrics::default();
        let pool = Pool::new(config("p"));
        metrics.add_pool(&pool);
        pool.set_members(&change(&[member("10.0.0.1:80")]));
        let pick = pool.pick(&Client { addr: [192, 0, 2, 1].into(), cookie: None }, &[]).unwrap();
        let stats = metrics.listener("192.0.2.9:53".parse().unwrap(), "udp");
        ListenerStats::add(&stats.bytes_in, 7);
        assert_eq!(
            printed(&metrics),
            "bowline_proxy_member_picks_total{pool=\"p\",member=\"10.0.0.1:80\"} 1\n\
             bowline_proxy_member_failures_total{pool=\"p\",member=\"10.0.0.1:80\"} 0\n\
             bowline_proxy_member_ejections_total{pool=\"p\",member=\"10.0.0.1:80\"} 0\n\
             bowline_proxy_member_active{pool=\"p\",member=\"10.0.0.1:80\"} 1\n\
             bowline_proxy_member_healthy{pool=\"p\",member=\"10.0.0.1:80\"} 1\n\
             bowline_proxy_pool_members{pool=\"p\",state=\"ready\"} 1\n\
             bowline_proxy_pool_members{pool=\"p\",state=\"draining\"} 0\n\
             bowline_proxy_pool_members{pool=\"p\",state=\"ejected\"} 0\n\
             bowline_proxy_pool_members{pool=\"p\",state=\"down\"} 0\n\
             bowline_proxy_listener_accepted_total{address=\"192.0.2.9:53\",protocol=\"udp\"} 0\n\
             bowline_proxy_listener_refused_total{address=\"192.0.2.9:53\",protocol=\"udp\"} 0\n\
             bowline_proxy_listener_active{address=\"192.0.2.9:53\",protocol=\"udp\"} 0\n\
             bowline_proxy_listener_bytes_in_total{address=\"192.0.2.9:53\",protocol=\"udp\"} 7\n\
             bowline_proxy_listener_bytes_out_total{address=\"192.0.2.9:53\",protocol=\"udp\"} 0\n"
        );
        drop((pick, pool, stats));
        assert_eq!(printed(&metrics), "");
        assert!(metrics.sources.lock().pools.is_empty());
    }
}
