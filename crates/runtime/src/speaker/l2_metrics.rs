//! What a speaker shows at its admin endpoint about layer 2, read at the moment of the scrape. Names are part of the
//! product: docs/metrics.md lists them.

use bowline_speaker::l2::speaker::{Counts, Speaker};
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use std::fmt;
use std::sync::Arc;

/// The counters of the running speaker. Without one they are 0.
pub(super) struct Counters(Arc<Mutex<Option<Speaker>>>);

impl Counters {
    pub(super) fn new(speaker: Arc<Mutex<Option<Speaker>>>) -> Self {
        Self(speaker)
    }
}

impl fmt::Debug for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Counters")
    }
}

impl Collector for Counters {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let counts = self.0.lock().as_ref().map_or_else(Counts::default, Speaker::counts);
        let mut show = |name, help, metric: &dyn Shown| metric.show(&mut encoder, name, help);
        let gauge = |value: u64| ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
        let counter = ConstCounter::<u64>::new;
        let Counts { owners, gossip, owned, members, pauses, lost_frames } = counts;
        show(
            "l2_owned_addresses",
            "Addresses that this node answers for on its links",
            &gauge(owned),
        )?;
        show("l2_members", "Other speakers that are heard by gossip", &gauge(members))?;
        show(
            "l2_addresses_taken",
            "How often this node became the owner of an address",
            &counter(owners.taken),
        )?;
        show(
            "l2_addresses_released",
            "How often this node stopped to own an address",
            &counter(owners.released),
        )?;
        show(
            "l2_announcements",
            "Gratuitous announcements, one for each address and interface",
            &counter(owners.announcements),
        )?;
        show("l2_answers", "Answers to questions for an address", &counter(owners.answers))?;
        show(
            "l2_conflicts",
            "Claims of hosts that are no speakers of this cluster",
            &counter(owners.conflicts),
        )?;
        show(
            "l2_gossip_refused",
            "Datagrams of gossip that were refused: without the key, repeated, or unreadable",
            &counter(gossip.refused),
        )?;
        show(
            "l2_pauses",
            "How often the process did not run for so long that others could take over",
            &counter(pauses),
        )?;
        show("l2_lost_frames", "Frames that could not be sent", &counter(lost_frames))
    }
}

/// A metric as it is written.
trait Shown {
    fn show(&self, encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str) -> fmt::Result;
}

impl<M: EncodeMetric> Shown for M {
    fn show(&self, encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str) -> fmt::Result {
        self.encode(encoder.encode_descriptor(name, help, None, self.metric_type())?)
    }
}
