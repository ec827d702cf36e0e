//! Addresses on the node itself: hands what agents serve here to the keeper of `lo`, and says which of them are there.
//! The keeper starts when something is wanted, or to remove what an earlier speaker left. `network` calls it.

use super::network::Said;
use bowline_core::announce::{Effect, Event, Ports};
use bowline_core::plan::Transport;
use bowline_speaker::served::{self, Keeper, News, Protocol, Served};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::Instant;

/// How long an address stays on the node after it is withdrawn: until routers and clients know. Packets that arrive
/// later would be forwarded back.
const STAYS: Duration = Duration::from_secs(1);

/// The addresses that are about to leave the node.
#[derive(Debug, Default)]
struct Leaving(BTreeMap<IpAddr, Instant>);

impl Leaving {
    fn add(&mut self, address: IpAddr, now: Instant) {
        self.0.entry(address).or_insert(now + STAYS);
    }

    /// It is wanted again.
    fn keep(&mut self, address: &IpAddr) {
        self.0.remove(address);
    }

    /// When the first one leaves.
    fn due(&self) -> Option<Instant> {
        self.0.values().min().copied()
    }

    /// Those of which the time has come.
    fn take(&mut self, now: Instant) -> Vec<IpAddr> {
        self.0.extract_if(.., |_, at| *at <= now).map(|it| it.0).collect()
    }
}

/// The addresses of this node.
pub(super) struct Host {
    served: Served,
    leaving: Leaving,
    keeper: Option<Keeper>,
    present: BTreeSet<IpAddr>,
    trouble: Option<String>,
    said: UnboundedSender<Said>,
}

impl Host {
    /// Nothing is changed before the first effect. What the keeper says goes to `said`, and from there to [`Host::hear`].
    pub(super) fn new(said: UnboundedSender<Said>) -> Self {
        Self {
            served: Served::default(),
            leaving: Leaving::default(),
            keeper: None,
            present: BTreeSet::new(),
            trouble: None,
            said,
        }
    }

    /// Carries out the effects that concern the node itself.
    pub(super) fn carry_out(&mut self, effects: &[Effect]) {
        let mut changed = false;
        for effect in effects {
            match effect {
                Effect::Hold(address, ports) => {
                    self.leaving.keep(address);
                    self.served.addresses.insert(*address, open_ports(ports));
                }
                Effect::Release(address) => {
                    self.leaving.add(*address, Instant::now());
                    continue;
                }
                Effect::Offer(address, _) => _ = self.served.silent.insert(*address),
                Effect::Decline(address) => _ = self.served.silent.remove(address),
                Effect::Refuse(prefix) => _ = self.served.refused.insert(*prefix),
                Effect::Accept(prefix) => _ = self.served.refused.remove(prefix),
                Effect::Complete => self.served.complete = true,
                _ => continue,
            }
            changed = true;
        }
        if changed {
            self.serve();
        }
    }

    /// Returns when an address leaves the node.
    pub(super) fn due(&self) -> impl Future<Output = ()> + Send + use<> {
        let due = self.leaving.due();
        async move {
            match due {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        }
    }

    /// Removes the addresses of which the time has come.
    pub(super) fn release(&mut self) {
        let gone = self.leaving.take(Instant::now());
        for address in &gone {
            self.served.addresses.remove(address);
        }
        if !gone.is_empty() {
            self.serve();
        }
    }

    /// Whether no address is about to leave.
    pub(super) fn is_settled(&self) -> bool {
        self.leaving.due().is_none()
    }

    fn serve(&mut self) {
        if self.keeper.is_none() {
            let said = self.said.clone();
            // The speaker ends.
            let started = Keeper::start(move |news| _ = said.send(Said::Host(news)));
            match started {
                Ok(keeper) => self.keeper = Some(keeper),
                Err(error) => {
                    self.troubled(format!("addresses cannot be put on interface lo: {error}"));
                }
            }
        }
        if let Some(keeper) = &self.keeper {
            keeper.serve(self.served.clone());
        }
    }

    fn troubled(&mut self, trouble: String) {
        // A speaker that only talks to routers needs no right to change the node.
        if self.served.is_empty() {
            tracing::debug!(trouble, "what an earlier speaker left on the node stays");
            return;
        }
        tracing::warn!(trouble, "addresses on the node");
        self.trouble = Some(trouble);
    }

    /// Takes in what the keeper says.
    pub(super) fn hear(&mut self, news: News) -> Option<Event> {
        match news {
            News::Present(mut present) => {
                present.retain(|it| self.served.addresses.contains_key(it));
                if present.len() == self.served.addresses.len() {
                    self.trouble = None;
                }
                if present == self.present {
                    return None;
                }
                self.present.clone_from(&present);
                Some(Event::Present(present))
            }
            News::Trouble(trouble) => {
                self.troubled(trouble);
                None
            }
        }
    }

    /// What does not work.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }
}

/// The ports that packets may reach.
fn open_ports(ports: &Ports) -> served::Ports {
    let port = |(transport, port): &(Transport, u16)| match transport {
        Transport::Tcp => Some((Protocol::Tcp, *port)),
        Transport::Udp => Some((Protocol::Udp, *port)),
        // Packets of other protocols are not filtered.
        Transport::Sctp => None,
    };
    match ports {
        Ports::Unknown => served::Ports::All,
        Ports::Only(ports) => served::Ports::Only(ports.iter().filter_map(port).collect()),
    }
}

/// How long it may take to remove what is on the node.
const SWEEP: Duration = Duration::from_secs(3);

/// Removes all that a speaker of this process put on the node, once nothing listens there any more.
pub async fn sweep() {
    let (sender, mut said) = unbounded_channel();
    let mut host = Host::new(sender);
    host.served.complete = true;
    host.serve();
    let gone = async {
        while let Some(Said::Host(news)) = said.recv().await {
            if matches!(news, News::Present(present) if present.is_empty()) {
                return;
            }
        }
    };
    let _ = tokio::time::timeout(SWEEP, gone).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_leaves_the_node_after_it_is_withdrawn_unless_it_is_wanted_again() {
        let [one, two] = ["192.0.2.1", "192.0.2.2"].map(|it| it.parse().unwrap());
        let (mut leaving, now) = (Leaving::default(), Instant::now());
        leaving.add(one, now);
        leaving.add(two, now);
        leaving.add(one, now + STAYS / 2);
        leaving.keep(&two);
        assert_eq!(leaving.take(now), Vec::<IpAddr>::new());
        assert_eq!(leaving.due(), Some(now + STAYS), "from the first time on");
        assert_eq!(leaving.take(now + STAYS), [one]);
        assert_eq!(leaving.due(), None);
    }
}
