//! Which contender has which address and port of a load balancer: the one that Plans record, else the oldest.

use super::few::Edges;
use super::recorded::Records;
use super::who::{Contender, Who};
use crate::outcome::{Problem, Reason};
use crate::update::ListenerKey;
use std::collections::BTreeSet;

/// The wanted ports of one load balancer.
#[derive(Debug, Default)]
pub(super) struct Ports(Edges<ListenerKey, Contender>);

impl Ports {
    /// The holder of a port, as a contender sees it: itself where it holds the port, else the first holder.
    pub(super) fn holder(&self, key: &ListenerKey, me: &Who, records: Records<'_>) -> Option<&Who> {
        let holders = self.holders(key, records);
        let mine = holders.iter().find(|contender| contender.who == *me);
        mine.or(holders.first()).map(|contender| &contender.who)
    }

    /// The contenders that have a port. One that a Plan records keeps it. Where Plans of two leaders
    /// record several, all keep it until an agent says which of them it serves: taking it from one of
    /// them sooner might take it from the one that is served. Where none is recorded, a contender that
    /// has the port at another address of the load balancer comes before the oldest: a load balancer
    /// that gets another address keeps its listeners.
    pub(super) fn holders(&self, key: &ListenerKey, records: Records<'_>) -> Vec<&Contender> {
        let mut all = self.0.of(key);
        let Some(oldest) = all.next() else { return Vec::new() };
        if all.next().is_none() {
            return vec![oldest];
        }
        let has = |it: &&Contender| records.has_port(&it.consumer(), key);
        let mut recorded: Vec<_> = self.0.of(key).filter(has).collect();
        match recorded.len() {
            0 => {
                let has = |it: &&Contender| records.has_port_somewhere(&it.consumer(), key);
                vec![self.0.of(key).find(has).unwrap_or(oldest)]
            }
            1 => recorded,
            _ => {
                let unserved = |it: &&Contender| records.is_port_unserved(&it.consumer(), key);
                if recorded.iter().all(unserved) {
                    recorded.truncate(1);
                } else {
                    recorded.retain(|it| !unserved(it));
                }
                recorded
            }
        }
    }

    /// Whether more than one contender wants a port.
    pub(super) fn is_contended(&self, key: &ListenerKey) -> bool {
        self.0.of(key).nth(1).is_some()
    }

    /// All contenders for a port, the oldest first.
    pub(super) fn contenders(&self, key: &ListenerKey) -> impl Iterator<Item = &Who> {
        self.0.of(key).map(|contender| &contender.who)
    }

    /// Adds a contender. Where that changes the holder, all contenders are touched.
    pub(super) fn enter(
        &mut self,
        key: ListenerKey,
        contender: &Contender,
        records: Records<'_>,
        touched: &mut BTreeSet<Who>,
    ) {
        self.change(key, records, touched, |all| all.insert(key, contender.clone()));
    }

    /// Takes a contender away, likewise.
    pub(super) fn leave(
        &mut self,
        key: ListenerKey,
        contender: &Contender,
        records: Records<'_>,
        touched: &mut BTreeSet<Who>,
    ) {
        self.change(key, records, touched, |all| all.remove(&key, contender));
    }

    fn change(
        &mut self,
        key: ListenerKey,
        records: Records<'_>,
        touched: &mut BTreeSet<Who>,
        change: impl FnOnce(&mut Edges<ListenerKey, Contender>),
    ) {
        let before: Vec<Contender> = self.holders(&key, records).into_iter().cloned().collect();
        change(&mut self.0);
        if !self.holders(&key, records).into_iter().eq(&before) {
            touched.extend(self.contenders(&key).cloned());
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// That another consumer has a port.
pub(super) fn taken(key: &ListenerKey, holder: &Who) -> Problem {
    let ListenerKey { address, port, transport } = key;
    let transport = format!("{transport:?}").to_uppercase();
    Problem::new(
        Reason::PortTaken,
        format!("port {port}/{transport} of {address} belongs to {holder}, which had it first"),
    )
}
