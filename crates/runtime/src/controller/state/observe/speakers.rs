//! Observing the Leases of speakers. They are in the same watch as those of agents.

use super::State;
use crate::controller::kinds::KindId;
use crate::controller::observed::LeaseSeen;
use crate::controller::target::Target;
use crate::watch::Seen;
use bowline_core::addresses::HolderKind;
use bowline_core::announce;
use bowline_core::clock::Uptime;
use bowline_core::key::{ConsumerKind, ConsumerRef, ObjectKey};
use std::net::IpAddr;

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

    /// Warns the Services that hold an address. How many warnings are written is limited by namespace, as all are.
    fn conflicts(&mut self, address: IpAddr, host: &str) {
        let problem = announce::conflict(address, host);
        let holders = self.addresses.content(address).into_iter().flat_map(|it| &it.holders);
        let services = holders.filter(|it| it.holder.kind == HolderKind::Service);
        let services: Vec<_> = services
            .map(|it| ConsumerRef {
                kind: ConsumerKind::Service,
                namespace: it.holder.key.namespace.clone(),
                name: it.holder.key.name.clone(),
                uid: it.holder.uid.clone(),
            })
            .collect();
        for service in services {
            self.outbox.warn(&service, &problem);
        }
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
        for (address, host) in news.conflicts {
            self.conflicts(address, &host);
        }
        // With the first speaker, and without the last one, every Service has another condition.
        if self.announced.run(self.speakers.any()) {
            let services = self.boards.services.keys().cloned();
            self.outbox
                .enqueue_all(services.map(|key| Target::Consumer(ConsumerKind::Service, key)));
        }
    }
}
