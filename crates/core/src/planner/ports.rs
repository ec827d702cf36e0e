//! Who has which address and port of a load balancer: of those who want it, the oldest.

use super::few::Edges;
use super::who::{Contender, Who};
use crate::outcome::{Problem, Reason};
use crate::update::ListenerKey;
use std::collections::BTreeSet;

/// The wanted ports of one load balancer.
#[derive(Debug, Default)]
pub(super) struct Ports(Edges<ListenerKey, Contender>);

impl Ports {
    /// Who has it.
    pub(super) fn holder(&self, key: &ListenerKey) -> Option<&Who> {
        self.0.first(key).map(|contender| &contender.who)
    }

    /// Adds a contender. Where that changes who has the port, all who want it are touched.
    pub(super) fn enter(
        &mut self,
        key: ListenerKey,
        contender: &Contender,
        touched: &mut BTreeSet<Who>,
    ) {
        self.0.insert(key, contender.clone());
        if self.0.first(&key) == Some(contender) {
            touched.extend(self.0.of(&key).map(|contender| contender.who.clone()));
        }
    }

    /// Takes a contender away, likewise.
    pub(super) fn leave(
        &mut self,
        key: ListenerKey,
        contender: &Contender,
        touched: &mut BTreeSet<Who>,
    ) {
        let had_it = self.0.first(&key) == Some(contender);
        self.0.remove(&key, contender);
        if had_it {
            touched.extend(self.0.of(&key).map(|contender| contender.who.clone()));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// That somebody else has a port.
pub(super) fn taken(key: &ListenerKey, holder: &Who) -> Problem {
    let ListenerKey { address, port, transport } = key;
    let transport = format!("{transport:?}").to_uppercase();
    Problem::new(
        Reason::PortTaken,
        format!("port {port}/{transport} of {address} is taken by {holder}, which is older"),
    )
}
