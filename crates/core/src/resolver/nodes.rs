//! The nodes that may be members, each with one address of each family. It keeps nothing else of a
//! Node; `members` reads it.

use crate::objects::Node;
use crate::relist::{Epoch, Relist};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Usable nodes by name.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    nodes: BTreeMap<Arc<str>, (Epoch, Addresses)>,
}

/// The first address of each family.
type Addresses = [Option<IpAddr>; 2];

impl Nodes {
    /// Takes a node as it is now. True: its addresses as a member changed.
    pub(super) fn apply(&mut self, node: Node, epoch: Epoch) -> bool {
        let first = |v4: bool| node.addresses.iter().find(|a| a.is_ipv4() == v4).copied();
        let addresses = [first(true), first(false)];
        if !node.usable || addresses == [None, None] {
            return self.delete(&node.name);
        }
        match self.nodes.insert(node.name, (epoch, addresses)) {
            Some((_, old)) => old != addresses,
            None => true,
        }
    }

    /// Forgets a node. True: it was known.
    pub(super) fn delete(&mut self, name: &str) -> bool {
        self.nodes.remove(name).is_some()
    }

    /// Forgets nodes that the last list did not deliver. True: there were some.
    pub(super) fn sweep(&mut self, relist: Relist) -> bool {
        let before = self.nodes.len();
        self.nodes.retain(|_, (epoch, _)| !relist.has_missed(*epoch));
        self.nodes.len() != before
    }

    /// The addresses of all nodes.
    pub(super) fn all(&self) -> impl Iterator<Item = IpAddr> {
        self.nodes.values().flat_map(|(_, addresses)| addresses.iter().flatten().copied())
    }

    /// The addresses of one node.
    pub(super) fn of(&self, name: &str) -> impl Iterator<Item = IpAddr> {
        self.nodes.get(name).into_iter().flat_map(|(_, all)| all.iter().flatten().copied())
    }
}
