//! The metrics of the data plane, in the form that Prometheus reads. Pools and listeners keep their own
//! counters; they are read at each scrape, so that counting costs no look-up and nothing remains of a
//! pool or listener that is gone.

use crate::Proxy;
use crate::pool::checks::Checks;
use crate::pool::{Condition, MemberStats, Pool};
use crate::state::{Counters, Shared, State};
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

/// Counters of one listener.
#[derive(Debug, Default)]
pub struct ListenerStats {
    /// Connections or sessions that began.
    pub accepted: AtomicU64,
    /// Connections or sessions that were refused: source ranges, limits.
    pub refused: AtomicU64,
    /// Connections or sessions that were ended so that another client got a place.
    pub displaced: AtomicU64,
    /// Connections or sessions that are open.
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

    /// Counts one as begun, and as open until the guard is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> Active {
        Self::add(&self.accepted, 1);
        Self::add(&self.active, 1);
        Active(self.clone())
    }
}

/// A connection or session that is open.
#[derive(Debug)]
pub(crate) struct Active(Arc<ListenerStats>);

impl Drop for Active {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Finds the counters of all pools and listeners of a proxy. Clones share them.
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
    /// Shows a pool's counters as long as it lives, or until another pool of the same name comes.
    pub fn add_pool(&self, pool: &Arc<Pool>) {
        self.sources.lock().pools.insert(pool.config().name.clone(), Arc::downgrade(pool));
    }

    /// Counters for a listener, shown as long as they live. The protocol is `tcp` or `udp`.
    pub fn listener(&self, at: SocketAddr, protocol: &'static str) -> Arc<ListenerStats> {
        let stats = Arc::new(ListenerStats::default());
        self.sources.lock().listeners.insert((at, protocol), Arc::downgrade(&stats));
        stats
    }
}

/// The label of the load balancer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Whose {
    load_balancer: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClassLabels {
    pool: String,
    class: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusLabels {
    status: u16,
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

/// A metric of things that have counters.
struct Family<T> {
    name: &'static str,
    help: &'static str,
    kind: MetricType,
    read: fn(&T) -> u64,
}

const RESPONSES: [Family<u64>; 1] = [Family {
    name: "proxy_responses",
    help: "Answers to requests that met a pool, by class of status",
    kind: Counter,
    read: |count| *count,
}];

const OWN: [Family<u64>; 1] = [Family {
    name: "proxy_own_responses",
    help: "Answers to requests that met no pool, by status",
    kind: Counter,
    read: |count| *count,
}];

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

const LISTENER: [Family<Arc<ListenerStats>>; 6] = [
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
        name: "proxy_listener_displaced",
        help: "Connections, requests or sessions ended so that another client found a place",
        kind: Counter,
        read: |stats| stats.displaced.load(Ordering::Relaxed),
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

const CHECKS: [Family<(u64, u64)>; 2] = [
    Family {
        name: "proxy_checks_under_way",
        help: "Health checks of members under way, of all load balancers of the process",
        kind: Gauge,
        read: |(under_way, _)| *under_way,
    },
    Family {
        name: "proxy_checks_waiting",
        help: "Health checks of members that are due and wait for their turn",
        kind: Gauge,
        read: |(_, waiting)| *waiting,
    },
];

/// A draining member counts as healthy.
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

/// What proxies have counted so far; each sample has its load balancer.
#[derive(Default)]
struct Samples {
    responses: Vec<((Whose, ClassLabels), u64)>,
    own: Vec<((Whose, StatusLabels), u64)>,
    members: Vec<((Whose, MemberLabels), MemberStats)>,
    counts: Vec<((Whose, StateLabels), (Condition, u64))>,
    listeners: Vec<((Whose, ListenerLabels), Arc<ListenerStats>)>,
    checks: Checking,
}

/// The checks of a process. Proxies may share them.
#[derive(Default)]
struct Checking {
    seen: Vec<Arc<Checks>>,
    under_way: u64,
    waiting: u64,
}

impl Checking {
    fn add(&mut self, checks: &Arc<Checks>) {
        if self.seen.iter().any(|seen| Arc::ptr_eq(seen, checks)) {
            return;
        }
        self.seen.push(checks.clone());
        let (under_way, waiting) = checks.count();
        self.under_way += under_way as u64;
        self.waiting += waiting as u64;
    }

    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        if self.seen.is_empty() {
            return Ok(());
        }
        let counts = (self.under_way, self.waiting);
        for Family { name, help, kind, read } in &CHECKS {
            let sample = encoder.encode_descriptor(name, help, None, *kind)?;
            ConstGauge::new(i64::try_from(read(&counts)).unwrap_or(i64::MAX)).encode(sample)?;
        }
        Ok(())
    }
}

impl Samples {
    fn add(&mut self, whose: &Whose, counters: &Counters, metrics: &Metrics) {
        self.responses.extend(counters.responses().into_iter().map(|(pool, class, count)| {
            ((whose.clone(), ClassLabels { pool: pool.to_string(), class }), count)
        }));
        let own = counters.own().into_iter();
        self.own
            .extend(own.map(|(status, count)| ((whose.clone(), StatusLabels { status }), count)));
        for (name, pool) in metrics.live_pools() {
            let stats = pool.stats();
            for (condition, state) in [
                (Condition::Ready, "ready"),
                (Condition::Draining, "draining"),
                (Condition::Ejected, "ejected"),
                (Condition::Down, "down"),
            ] {
                let count = stats.iter().filter(|member| member.condition == condition).count();
                let labels = StateLabels { pool: name.to_string(), state };
                self.counts.push(((whose.clone(), labels), (condition, count as u64)));
            }
            // Members that never had traffic would be most of the output and carry no information.
            let telling = stats.into_iter().filter(|stats| stats.picks > 0 || !is_healthy(stats));
            self.members.extend(telling.map(|stats| {
                let member = stats.address.to_string();
                ((whose.clone(), MemberLabels { pool: name.to_string(), member }), stats)
            }));
        }
        let listeners = metrics.live_listeners().into_iter();
        self.listeners.extend(listeners.map(|(labels, stats)| ((whose.clone(), labels), stats)));
    }

    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        encode(&RESPONSES, &self.responses, encoder)?;
        encode(&OWN, &self.own, encoder)?;
        encode(&MEMBER, &self.members, encoder)?;
        encode(&POOL, &self.counts, encoder)?;
        encode(&LISTENER, &self.listeners, encoder)?;
        self.checks.encode(encoder)
    }
}

/// Shows the counters of the proxies of a process, each under the name of its load balancer and as long
/// as it lives. It is registered once, with the prefix `bowline`; clones share the proxies.
#[derive(Clone, Debug, Default)]
pub struct Exposition {
    proxies: Arc<Mutex<BTreeMap<String, Shown>>>,
}

/// The counters of a proxy, and whether the proxy lives: connections may outlive it.
#[derive(Debug)]
struct Shown {
    alive: Weak<tokio::sync::Mutex<State>>,
    shared: Weak<Shared>,
}

impl Exposition {
    /// Shows a proxy from now on, in place of another one of the same load balancer.
    pub fn add(&self, load_balancer: &str, proxy: &Proxy) {
        let shown =
            Shown { alive: Arc::downgrade(&proxy.state), shared: Arc::downgrade(&proxy.shared) };
        self.proxies.lock().insert(load_balancer.to_owned(), shown);
    }
}

impl Collector for Exposition {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut samples = Samples::default();
        let mut proxies = self.proxies.lock();
        proxies.retain(|_, shown| shown.alive.strong_count() > 0);
        for (load_balancer, shown) in proxies.iter() {
            if let Some(shared) = shown.shared.upgrade() {
                let whose = Whose { load_balancer: load_balancer.clone() };
                samples.add(&whose, &shared.counters, &shared.metrics);
                samples.checks.add(&shared.hall.checks);
            }
        }
        samples.encode(&mut encoder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use crate::pool::Client;
    use crate::pool::tests::{change, config, member};
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    #[derive(Debug)]
    struct One(Metrics);

    impl Collector for One {
        fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
            let mut samples = Samples::default();
            let whose = Whose { load_balancer: "edge".to_owned() };
            samples.add(&whose, &Counters::default(), &self.0);
            samples.encode(&mut encoder)
        }
    }

    fn all(collector: impl Collector) -> String {
        let mut registry = Registry::with_prefix("bowline");
        registry.register_collector(Box::new(collector));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        text
    }

    fn printed(metrics: &Metrics) -> String {
        let text = all(One(metrics.clone())).replace("{load_balancer=\"edge\",", "{");
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
             bowline_proxy_listener_displaced_total{address=\"192.0.2.9:53\",protocol=\"udp\"} 0\n\
             bowline_proxy_listener_active{address=\"192.0.2.9:53\",protocol=\"udp\"} 0\n\
             bowline_proxy_listener_bytes_in_total{address=\"192.0.2.9:53\",protocol=\"udp\"} 7\n\
             bowline_proxy_listener_bytes_out_total{address=\"192.0.2.9:53\",protocol=\"udp\"} 0\n"
        );
        drop((pick, pool, stats));
        assert_eq!(printed(&metrics), "");
        assert!(metrics.sources.lock().pools.is_empty());
    }

    #[tokio::test]
    async fn each_metric_is_described_once_and_a_proxy_is_shown_once_while_it_lives() {
        let exposition = Exposition::default();
        let proxies = ["a", "b", "a"].map(|name| {
            let proxy = Proxy::new(Options::default());
            exposition.add(name, &proxy);
            proxy.shared.counters.refused_request(404);
            proxy
        });
        proxies[2].shared.counters.refused_request(404);
        let samples = |text: &str| -> Vec<String> {
            let of_proxies = |line: &&str| !line.starts_with('#') && !line.contains("_checks_");
            text.lines().filter(of_proxies).map(str::to_owned).collect()
        };
        let text = all(exposition.clone());
        let own = |name: &str, count: u64| {
            format!(
                "bowline_proxy_own_responses_total{{load_balancer=\"{name}\",status=\"404\"}} {count}"
            )
        };
        assert_eq!(samples(&text), [own("a", 2), own("b", 1)]);
        assert_eq!(text.matches("# TYPE bowline_proxy_own_responses ").count(), 1, "{text}");
        let [first, second, third] = proxies;
        drop((first, third));
        assert_eq!(samples(&all(exposition.clone())), [own("b", 1)]);
        drop(second);
        assert_eq!(samples(&all(exposition.clone())), [""; 0]);
        assert!(exposition.proxies.lock().is_empty());
    }
}
