//! The sockets between the processes of a node, in `/run/bowline`: their names, and what is said there. Agents write,
//! the speaker reads.

use bowline_core::announce::Listening;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// The name of the speaker's socket in its folder.
pub(crate) const SPEAKER: &str = "speaker.sock";

/// What an agent says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Open {
    /// The load balancer that it serves.
    pub(crate) load_balancer: Arc<str>,
    /// The addresses in its Plan, and what listens at each.
    pub(crate) addresses: Arc<BTreeMap<IpAddr, Listening>>,
}
