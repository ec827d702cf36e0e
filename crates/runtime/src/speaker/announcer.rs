//! What a speaker announces with. The speaker passes it the effects of `core::announce`, in their order, and reads
//! sessions and owned addresses back for its report.

use bowline_core::announce::Effect;
use bowline_core::report::speaker::Session;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// How a speaker ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The node leaves: routers forget the routes at once.
    Leave,
    /// The next speaker of the node takes over: routers keep the routes.
    Upgrade,
}

/// Carries out effects. It decides nothing.
pub trait Announcer: Send + 'static {
    /// Carries out effects, in this order.
    fn carry_out(&mut self, effects: Vec<Effect>);

    /// The password in a Secret of Bowline's namespace. None: the Secret is gone.
    fn password(&mut self, secret: Arc<str>, password: Option<Vec<u8>>);

    /// The sessions by BGPPeer.
    fn sessions(&self) -> BTreeMap<Arc<str>, Session>;

    /// The addresses that this node owns on its links.
    fn owned(&self) -> Vec<IpAddr>;

    /// Returns when sessions or owned addresses have changed since the last call.
    fn changed(&mut self) -> impl Future<Output = ()> + Send;

    /// Ends all sessions.
    fn stop(self, ending: Ending) -> impl Future<Output = ()> + Send;
}
