//! What a speaker announces with. The speaker passes it the effects of `core::announce`, in their order, and reads
//! sessions and owned addresses back for its report.

use bowline_core::announce::{Effect, Event, Wish};
use bowline_core::report::speaker::{OnLinks, Session};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// How a speaker ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The node leaves: routers forget the routes at once.
    Leave,
    /// The next speaker of the node takes over: routers keep the routes.
    Upgrade,
}

/// What speakers need to find each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gossip {
    /// Where other speakers reach this one, if that is known.
    pub at: Option<SocketAddr>,
    /// Where other speakers should be.
    pub peers: BTreeSet<SocketAddr>,
    /// The key that all speakers of the cluster have. None: it is not known yet.
    pub key: Option<Vec<u8>>,
}

/// Carries out effects. It decides nothing.
pub trait Announcer: Send + 'static {
    /// Carries out effects, in this order.
    fn carry_out(&mut self, effects: Vec<Effect>);

    /// The password in a Secret of Bowline's namespace. None: the Secret is gone.
    fn password(&mut self, secret: Arc<str>, password: Option<Vec<u8>>);

    /// How speakers find each other now.
    fn gossip(&mut self, _gossip: Gossip) {}

    /// An administrator wishes that a node owns an address. Only the present owner does something about it.
    fn move_to(&mut self, _address: IpAddr, _wish: Wish) {}

    /// The sessions by BGPPeer.
    fn sessions(&self) -> BTreeMap<Arc<str>, Session>;

    /// The addresses that this node owns on its links.
    fn owned(&self) -> Vec<IpAddr>;

    /// What else there is to say of the links.
    fn links(&self) -> OnLinks {
        OnLinks::default()
    }

    /// Returns when something has changed since the last call: what the report says, or what the machine has to know.
    fn changed(&mut self) -> impl Future<Output = Vec<Event>> + Send;

    /// Returns when every address that this node owned has another owner, or can have none. If the next speaker of the node
    /// takes over, the addresses stay here, and another node tells who asks where they are.
    fn left(&mut self, _ending: Ending) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// Ends all sessions.
    fn stop(self, ending: Ending) -> impl Future<Output = ()> + Send;
}
