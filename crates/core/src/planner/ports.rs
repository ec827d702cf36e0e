//! Which contender holds which address and port of a load balancer: the one that Plans record, else the oldest. It
//! opens no port; `assignments` keeps it up to date.

use super::consumer::{ConsumerKey, Contender};
use super::edges::Edges;
use super::recorded::Records;
use crate::key::{ConsumerKind, ConsumerRef};
use crate::outcome::{Problem, Reason};
use crate::update::ListenerKey;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

/// The most contenders that are checked where Plans record no holder of a port.
const MOST_LOOKED_AT: usize = 64;

/// The wanted ports of one load balancer.
#[derive(Debug, Default)]
pub(super) struct Ports {
    contenders: Edges<ListenerKey, Contender>,
    /// Each contender, with the number of ports that it wants.
    by_who: FxHashMap<ConsumerKey, (Contender, usize)>,
}

impl Ports {
    /// The holder of a port, as a contender sees it: itself where it holds the port, else the first holder.
    pub(super) fn holder(
        &self,
        key: &ListenerKey,
        me: &ConsumerKey,
        records: Records<'_>,
    ) -> Option<&ConsumerKey> {
        let holders = self.holders(key, records);
        let mine = holders.iter().find(|contender| contender.who == *me);
        mine.or(holders.first()).map(|contender| &contender.who)
    }

    /// The contenders that hold a port. A contender that a Plan records keeps it. Where Plans of two leaders record
    /// several, all keep it until an agent reports which of them it serves: taken away sooner, it might be taken from
    /// the one that is served. Without a record, a contender that has the port at another address of the load balancer
    /// comes before the oldest, so that a load balancer with a new address keeps its listeners. The cost does not
    /// depend on the number of waiting contenders.
    pub(super) fn holders(&self, key: &ListenerKey, records: Records<'_>) -> Vec<&Contender> {
        let mut all = self.contenders.of(key);
        let Some(oldest) = all.next() else { return Vec::new() };
        if all.next().is_none() {
            return vec![oldest];
        }
        let mut recorded: Vec<&Contender> = records
            .port_holders(key)
            .into_iter()
            .filter_map(|consumer| self.contender(key, consumer))
            .collect();
        recorded.sort_unstable();
        match recorded.len() {
            0 => {
                let has = |it: &&Contender| records.has_port_somewhere(&it.consumer(), key);
                let web =
                    self.by_who.get(&ConsumerKey::load_balancer(records.lb)).map(|(it, _)| it);
                let web = web.filter(|it| self.contends(key, it));
                let first = self.contenders.of(key).take(MOST_LOOKED_AT);
                vec![web.into_iter().chain(first).find(has).unwrap_or(oldest)]
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

    fn contends(&self, key: &ListenerKey, contender: &Contender) -> bool {
        self.contenders.first_from(key, contender) == Some(contender)
    }

    /// The contender for a port that a record names. A load balancer that was created again under its name keeps the
    /// listeners that its Ingresses share; a record of another kind must be of the same object.
    fn contender(&self, key: &ListenerKey, consumer: &ConsumerRef) -> Option<&Contender> {
        let (contender, _) = self.by_who.get(&ConsumerKey::of(consumer))?;
        let same = consumer.kind == ConsumerKind::LoadBalancer || contender.uid == consumer.uid;
        (same && self.contends(key, contender)).then_some(contender)
    }

    /// Whether more than one contender wants a port.
    pub(super) fn is_contended(&self, key: &ListenerKey) -> bool {
        self.contenders.of(key).nth(1).is_some()
    }

    /// All contenders for a port, the oldest first.
    pub(super) fn contenders(&self, key: &ListenerKey) -> impl Iterator<Item = &ConsumerKey> {
        self.contenders.of(key).map(|contender| &contender.who)
    }

    /// Adds a contender. If that changes the holder, all contenders are touched.
    pub(super) fn enter(
        &mut self,
        key: ListenerKey,
        contender: &Contender,
        records: Records<'_>,
        touched: &mut BTreeSet<ConsumerKey>,
    ) {
        self.change(key, records, touched, |ports| {
            ports.contenders.insert(key, contender.clone());
            let known = ports.by_who.entry(contender.who.clone());
            let (now, wanted) = known.or_insert_with(|| (contender.clone(), 0));
            now.clone_from(contender);
            *wanted += 1;
        });
    }

    /// Removes a contender. If that changes the holder, all contenders are touched.
    pub(super) fn leave(
        &mut self,
        key: ListenerKey,
        contender: &Contender,
        records: Records<'_>,
        touched: &mut BTreeSet<ConsumerKey>,
    ) {
        self.change(key, records, touched, |ports| {
            ports.contenders.remove(&key, contender);
            if let Some((_, wanted)) = ports.by_who.get_mut(&contender.who) {
                *wanted -= 1;
                if *wanted == 0 {
                    ports.by_who.remove(&contender.who);
                }
            }
        });
    }

    fn change(
        &mut self,
        key: ListenerKey,
        records: Records<'_>,
        touched: &mut BTreeSet<ConsumerKey>,
        change: impl FnOnce(&mut Self),
    ) {
        let before: Vec<Contender> = self.holders(&key, records).into_iter().cloned().collect();
        change(self);
        if !self.holders(&key, records).into_iter().eq(&before) {
            touched.extend(self.contenders(&key).cloned());
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.contenders.is_empty()
    }
}

/// The problem that another consumer holds a port.
pub(super) fn taken(key: &ListenerKey, holder: &ConsumerKey) -> Problem {
    let ListenerKey { address, port, transport } = key;
    let transport = format!("{transport:?}").to_uppercase();
    Problem::new(
        Reason::PortTaken,
        format!("port {port}/{transport} of {address} belongs to {holder}, which had it first"),
    )
}
