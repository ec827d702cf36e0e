//! What a speaker shows at its admin endpoint: its sessions as they are at that moment, and what it announces. Names are
//! part of the product: docs/metrics.md lists them.

use crate::metrics::Metrics;
use bowline_core::report::speaker::SpeakerReport;
use bowline_speaker::bfd::State;
use bowline_speaker::bgp::shell::{PeerStatus, Statuses};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use std::fmt;
use tokio::sync::watch;

/// What the speaker announces, and from whom it knows what is open.
#[derive(Debug)]
pub(super) struct Gauges {
    addresses: Family<[(&'static str, &'static str); 1], Gauge>,
    agents: Gauge,
    synced: Gauge,
}

impl Gauges {
    pub(super) fn new(metrics: &Metrics) -> Self {
        let gauges = Self {
            addresses: Family::default(),
            agents: Gauge::default(),
            synced: Gauge::default(),
        };
        metrics.register(|it| {
            let addresses = gauges.addresses.clone();
            it.register("speaker_addresses", "Addresses that this node announces", addresses);
            let agents = gauges.agents.clone();
            let help = "Load balancers of which an agent on this node says what is open";
            it.register("speaker_agents", help, agents);
            let help = "1 once the speaker has seen all that decides about announcements";
            it.register("speaker_synced", help, gauges.synced.clone());
        });
        gauges
    }

    /// The first view is complete.
    pub(super) fn synced(&self) {
        self.synced.set(1);
    }

    /// Shows what is reported.
    pub(super) fn show(&self, report: &SpeakerReport) {
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let by = |protocol| self.addresses.get_or_create_owned(&[("protocol", protocol)]);
        by("bgp").set(count(report.by_bgp().count()));
        by("l2").set(count(report.owned().count()));
        self.agents.set(count(report.agents.len()));
    }
}

/// Shows the sessions with BGPPeers.
#[derive(Debug)]
pub(super) struct Sessions(watch::Receiver<Statuses>);

impl Sessions {
    pub(super) fn new(statuses: watch::Receiver<Statuses>) -> Self {
        Self(statuses)
    }
}

/// A metric of a session. None: it has none.
struct Metric {
    name: &'static str,
    help: &'static str,
    kind: MetricType,
    of: fn(&PeerStatus) -> Option<u64>,
}

const METRICS: [Metric; 9] = [
    Metric {
        name: "speaker_session_up",
        help: "1 while the BGP session with a peer is established",
        kind: MetricType::Gauge,
        of: |it| Some(it.session.peer.is_some().into()),
    },
    Metric {
        name: "speaker_session_flaps",
        help: "How often an established BGP session ended",
        kind: MetricType::Counter,
        of: |it| Some(it.session.counters.flaps),
    },
    Metric {
        name: "speaker_routes",
        help: "Routes that a peer has been told",
        kind: MetricType::Gauge,
        of: |it| u64::try_from(it.session.told.v4 + it.session.told.v6).ok(),
    },
    Metric {
        name: "speaker_routes_wanted",
        help: "Routes that a peer is to be told",
        kind: MetricType::Gauge,
        of: |it| u64::try_from(it.session.wanted.v4 + it.session.wanted.v6).ok(),
    },
    Metric {
        name: "speaker_updates_sent",
        help: "UPDATE messages to a peer",
        kind: MetricType::Counter,
        of: |it| Some(it.session.counters.updates_sent),
    },
    Metric {
        name: "speaker_notifications_sent",
        help: "NOTIFICATION messages to a peer",
        kind: MetricType::Counter,
        of: |it| Some(it.session.counters.notifications_sent),
    },
    Metric {
        name: "speaker_notifications_received",
        help: "NOTIFICATION messages of a peer",
        kind: MetricType::Counter,
        of: |it| Some(it.session.counters.notifications_received),
    },
    Metric {
        name: "speaker_bfd_up",
        help: "1 while the BFD session with a peer is up; only of peers with BFD",
        kind: MetricType::Gauge,
        of: |it| Some(u64::from(matches!(it.bfd.as_ref()?, Ok(State::Up)))),
    },
    Metric {
        name: "speaker_bfd_flaps",
        help: "How often a BFD session that was up ended; only of peers with BFD",
        kind: MetricType::Counter,
        of: |it| it.bfd.as_ref().map(|_| it.bfd_flaps),
    },
];

impl Collector for Sessions {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let statuses = self.0.borrow().clone();
        for Metric { name, help, kind, of } in METRICS {
            let samples = statuses.iter().filter_map(|(peer, status)| Some((peer, of(status)?)));
            let samples: Vec<_> = samples.collect();
            if samples.is_empty() {
                continue;
            }
            let mut metric = encoder.encode_descriptor(name, help, None, kind)?;
            for (peer, value) in samples {
                let labels = [("peer", peer.as_str())];
                let sample = metric.encode_family(&labels)?;
                match kind {
                    MetricType::Counter => ConstCounter::new(value).encode(sample)?,
                    _ => {
                        ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)).encode(sample)?
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_core::report::speaker::Session;
    use bowline_speaker::bgp::PerFamily;
    use bowline_speaker::bgp::session::{Counters, State as BgpState, Status};
    use std::time::Duration;

    fn status(bfd: Option<Result<State, String>>) -> PeerStatus {
        let counters = Counters { flaps: 2, updates_sent: 7, ..Counters::default() };
        let session = Status {
            state: BgpState::Active,
            peer: None,
            last_failure: None,
            wanted: PerFamily { v4: 3, v6: 1 },
            told: PerFamily { v4: 1, v6: 1 },
            held_back: PerFamily::default(),
            counters,
        };
        let since = Duration::ZERO;
        PeerStatus { session, since, not_listening: None, bfd, bfd_flaps: 4 }
    }

    #[test]
    fn each_session_is_shown_by_its_peer_and_bfd_only_where_it_is_wanted() {
        let metrics = Metrics::default();
        let statuses =
            [("tor-a".to_owned(), status(Some(Ok(State::Up)))), ("tor-b".to_owned(), status(None))];
        let (sender, receiver) = watch::channel(statuses.into());
        metrics.register(|it| it.register_collector(Box::new(Sessions::new(receiver))));
        let text = metrics.text();
        for line in [
            "bowline_speaker_session_up{peer=\"tor-a\"} 0",
            "bowline_speaker_session_flaps_total{peer=\"tor-b\"} 2",
            "bowline_speaker_routes{peer=\"tor-a\"} 2",
            "bowline_speaker_routes_wanted{peer=\"tor-a\"} 4",
            "bowline_speaker_updates_sent_total{peer=\"tor-a\"} 7",
            "bowline_speaker_bfd_up{peer=\"tor-a\"} 1",
            "bowline_speaker_bfd_flaps_total{peer=\"tor-a\"} 4",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        assert!(!text.contains("bfd_up{peer=\"tor-b\"}"), "{text}");
        sender.send_replace(Statuses::new());
        assert!(!metrics.text().contains("tor-a"));
    }

    #[test]
    fn what_is_announced_is_counted_by_protocol() {
        let metrics = Metrics::default();
        let gauges = Gauges::new(&metrics);
        let at = |n: u8| std::net::IpAddr::from([192, 0, 2, n]);
        let sessions = [("tor".into(), Session { up: true, ..Session::default() })].into();
        let told = [1, 2].map(|n| (at(n), ["tor".into()].into()));
        let report = SpeakerReport::new("a".into(), "1".into(), sessions, told, [at(9)]);
        gauges.show(&report.hearing(["edge".into()]));
        gauges.synced();
        let text = metrics.text();
        for line in [
            "bowline_speaker_addresses{protocol=\"bgp\"} 2",
            "bowline_speaker_addresses{protocol=\"l2\"} 1",
            "bowline_speaker_agents 1",
            "bowline_speaker_synced 1",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
