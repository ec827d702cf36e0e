//! Why this node does not announce an address, in words.

use super::decide::Entry;
use crate::outcome::{Problem, Reason, quote};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// Why a node does not announce an address. In the order of nearness: of several nodes, the reason of the one that is
/// nearest to announcing it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WhyNot {
    /// The address has no holder.
    NoHolder,
    /// No Advertisement covers it.
    NotAdvertised,
    /// No Advertisement that covers it selects the node.
    NodeNotSelected,
    /// The node is excluded from load balancers.
    NodeExcluded,
    /// The node, or its speaker, leaves.
    NodeLeaving,
    /// No holder is served on the node.
    NotServed,
    /// All is open, but the address is not on the node itself.
    NotPresent,
    /// The node is not ready or cordoned, and another one serves the address.
    NodeDoubtful,
    /// It is announced by BGP alone, and no BGPPeer is for the node.
    NoPeer,
}

impl WhyNot {
    /// The reason as a word for programs.
    pub fn reason(self) -> Reason {
        match self {
            Self::NoHolder => Reason::Released,
            Self::NotAdvertised => Reason::NotAdvertised,
            Self::NodeNotSelected => Reason::NodeNotSelected,
            Self::NodeExcluded => Reason::NodeExcluded,
            Self::NodeLeaving | Self::NodeDoubtful => Reason::NodeLeaving,
            Self::NotServed | Self::NotPresent => Reason::NotServed,
            Self::NoPeer => Reason::NoPeer,
        }
    }

    /// The reason with a sentence.
    pub(super) fn problem(self, address: IpAddr, node: &Arc<str>, entry: &Entry) -> Problem {
        let node = quote(node);
        let message = match self {
            Self::NoHolder => format!("{address} has no holder"),
            Self::NotAdvertised => match &entry.pool {
                Some(pool) => {
                    format!("no Advertisement covers {address} of AddressPool {}", quote(pool))
                }
                None => format!("no Advertisement covers {address}"),
            },
            Self::NodeNotSelected => {
                format!("no Advertisement that covers {address} selects node {node}")
            }
            Self::NodeExcluded => {
                format!("node {node} is excluded from load balancers by its label")
            }
            Self::NodeLeaving => format!("node {node} leaves"),
            Self::NotServed => format!("node {node} does not serve {address}: {}", Unserved(entry)),
            Self::NotPresent => {
                format!("{address} is not on interface lo of node {node} yet")
            }
            Self::NodeDoubtful => {
                format!("node {node} is not ready or cordoned, and another node serves {address}")
            }
            Self::NoPeer => {
                format!("{address} is announced by BGP, and no BGPPeer of it is for node {node}")
            }
        };
        Problem::new(self.reason(), message)
    }
}

/// Why nothing serves the holders.
struct Unserved<'a>(&'a Entry);

impl fmt::Display for Unserved<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut holders = self.0.holders.iter();
        match holders.next() {
            None => f.write_str("it has no holder"),
            Some(holder) => match (&holder.load_balancer, &holder.service) {
                (Some(load_balancer), _) => write!(
                    f,
                    "no agent of load balancer {} on the node has its listeners open",
                    quote(load_balancer)
                ),
                (None, Some(service)) => {
                    write!(f, "Service {service} has no ready endpoint that the node could use")
                }
                (None, None) => f.write_str("addresses of single Pods are not announced yet"),
            },
        }
    }
}
