//! The sockets between the processes of a node, in `/run/bowline`: their names, and what is said there. Agents write,
//! the speaker reads.

use bowline_core::announce::{Listening, Ports};
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
    /// Whether the next line has more of them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) more: bool,
}

/// A line ends when it is longer than this.
const LINE: usize = 256 * 1024;

/// What an agent says, as lines of JSON: with many addresses these are several, so that none is too long to be read.
pub(crate) fn lines(
    load_balancer: &Arc<str>,
    addresses: &BTreeMap<IpAddr, Listening>,
) -> Vec<Vec<u8>> {
    let mut lines = Vec::new();
    let mut say = |addresses: &mut BTreeMap<IpAddr, Listening>, more| {
        let addresses = Arc::new(std::mem::take(addresses));
        let open = Open { load_balancer: load_balancer.clone(), addresses, more };
        let mut line = serde_json::to_vec(&open).unwrap_or_default();
        line.push(b'\n');
        lines.push(line);
    };
    let (mut part, mut length) = (BTreeMap::new(), 0);
    for (address, listening) in addresses {
        if length > LINE {
            say(&mut part, true);
            length = 0;
        }
        // An address of IPv6 and what is around it, and a port, at their longest.
        let ports = match &listening.ports {
            Ports::Unknown => 0,
            Ports::Only(ports) => ports.len(),
        };
        length += 80 + 13 * ports;
        part.insert(*address, listening.clone());
    }
    say(&mut part, false);
    lines
}
