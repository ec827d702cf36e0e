//! All that a node announces with: routers by BGP, its links by ARP and neighbour discovery, and the addresses on the node
//! itself that both need. It passes each effect to the part that it concerns.

use super::announcer::{Announcer, Ending, Gossip};
use super::bgp::Routers;
use super::host::Host;
use super::links::Links;
use crate::metrics::Metrics;
use bowline_core::announce::{Effect, Event, Wish};
use bowline_core::report::speaker::{OnLinks, Session};
use bowline_speaker::{l2, served};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// What a thread of the node's network says.
#[derive(Debug)]
pub(super) enum Said {
    /// The keeper of `lo`.
    Host(served::News),
    /// The speaker of this generation on links.
    Links(u64, l2::speaker::News),
}

/// The network of a node.
pub struct Network {
    routers: Routers,
    host: Host,
    links: Links,
    said: UnboundedReceiver<Said>,
}

impl Network {
    /// Nothing is announced yet. It belongs to the tokio runtime that it is made in, and its threads to the network
    /// namespace of the thread that calls it.
    pub fn new(node: &str, metrics: &Metrics) -> Self {
        let (sender, said) = unbounded_channel();
        let routers = Routers::new(node, metrics);
        let links = Links::new(node, sender.clone(), metrics);
        Self { routers, host: Host::new(sender), links, said }
    }

    fn hear(&mut self, said: Said) -> Vec<Event> {
        match said {
            Said::Host(news) => self.host.hear(news).into_iter().collect(),
            Said::Links(generation, news) => self.links.hear(generation, news),
        }
    }
}

impl Announcer for Network {
    fn carry_out(&mut self, effects: Vec<Effect>) {
        self.host.carry_out(&effects);
        self.links.carry_out(&effects);
        self.routers.carry_out(effects);
    }

    fn password(&mut self, secret: Arc<str>, password: Option<Vec<u8>>) {
        self.routers.password(secret, password);
    }

    fn gossip(&mut self, gossip: Gossip) {
        self.links.gossip(gossip);
    }

    fn move_to(&mut self, address: IpAddr, wish: Wish) {
        self.links.move_to(address, wish);
    }

    fn sessions(&self) -> BTreeMap<Arc<str>, Session> {
        self.routers.sessions()
    }

    fn owned(&self) -> Vec<IpAddr> {
        self.links.owned().collect()
    }

    fn links(&self) -> OnLinks {
        let mut links = self.links.report();
        links.troubles.extend(self.host.trouble().map(Into::into));
        links
    }

    async fn changed(&mut self) -> Vec<Event> {
        let said = tokio::select! {
            events = self.routers.changed() => return events,
            () = self.links.due() => {
                self.links.try_again();
                return Vec::new();
            }
            () = self.host.due() => {
                self.host.release();
                return Vec::new();
            }
            // `links` and `host` have senders, so there is always one.
            Some(said) = self.said.recv() => said,
        };
        let mut events = self.hear(said);
        while let Ok(said) = self.said.try_recv() {
            events.extend(self.hear(said));
        }
        events
    }

    async fn left(&mut self, ending: Ending) {
        self.links.leave(ending);
        while !self.links.has_left() || !self.host.is_settled() {
            tokio::select! {
                () = self.host.due() => self.host.release(),
                said = self.said.recv() => {
                    let Some(said) = said else { return };
                    self.hear(said);
                }
            }
        }
    }

    async fn stop(self, ending: Ending) {
        self.routers.stop(ending).await;
    }
}
