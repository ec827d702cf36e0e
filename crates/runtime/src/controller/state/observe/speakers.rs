//! Observing the Leases of speakers. They are in the same watch as those of agents.

use super::State;
use crate::controller::kinds::KindId;
use crate::controller::observed::LeaseSeen;
use crate::controller::target::Target;
use crate::watch::Seen;
use bowline_core::clock::Uptime;
use bowline_core::key::{ConsumerKind, ObjectKey};

impl State {
    /// Takes in a Lease, if it is a speaker's. Returns what the agents are to observe.
    pub(super) fn observe_speakers(
        &mut self,
        mut seen: Seen<LeaseSeen>,
        now: Uptime,
    ) -> Seen<LeaseSeen> {
        match &mut seen {
            Seen::Begin => self.speakers.begin(),
            Seen::Apply(lease) => {
                if let Some(speaker) = lease.speaker.take() {
                    self.speakers.apply(lease.name.as_str().into(), speaker, now);
                }
            }
            Seen::Delete(lease) => self.speakers.delete(&lease.name),
            Seen::Done => self.speakers.done(),
        }
        self.speakers_changed();
        seen
    }

    /// Enqueues what shows a change of what speakers report.
    pub(super) fn speakers_changed(&mut self) {
        let news = self.speakers.take();
        let peers = news.peers.into_iter();
        let peers = peers.map(|name| Target::Object(KindId::BGPPeer, ObjectKey::new("", name)));
        self.outbox.enqueue_all(peers);
        for address in news.addresses {
            self.announcement_changed(address);
        }
        // With the first speaker, and without the last one, every Service has another condition.
        if self.announced.run(self.speakers.any()) {
            let services = self.boards.services.keys().cloned();
            self.outbox
                .enqueue_all(services.map(|key| Target::Consumer(ConsumerKind::Service, key)));
        }
    }
}
