//! Which refusals the report of an agent names where there is no room for all, what it says of the rest, and
//! how much room it has. Agents choose by it, leaders read what it says; the text of a report is
//! `bowline_runtime::lease`'s.

use crate::key::{ConsumerKind, ConsumerRef};
use crate::shard::json_size;
use crate::update::{Extent, Refusal};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Refusals that a report does not name. Only those count that keep something from being served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unlisted {
    /// How many.
    pub count: usize,
    /// The namespaces of their consumers, "" for the load balancer's own listeners. None: the report does not
    /// say, as that of an older agent, or of one that has no room for the names. Then they may be of any.
    pub namespaces: Option<BTreeSet<Arc<str>>>,
}

impl Unlisted {
    /// One more that is not named; None: nothing of it can be read.
    pub fn add(&mut self, namespace: Option<Arc<str>>) {
        let known = self.count == 0 || self.namespaces.is_some();
        self.count = self.count.saturating_add(1);
        match namespace.filter(|_| known) {
            Some(namespace) => _ = self.namespaces.get_or_insert_default().insert(namespace),
            None => self.namespaces = None,
        }
    }

    /// How many there may be of a consumer; 0: none is. What keeps the load balancer's own listeners from
    /// being opened concerns every Ingress.
    pub fn may_concern(&self, consumer: &ConsumerRef) -> usize {
        let concerned = self.namespaces.as_ref().is_none_or(|all| {
            all.contains(&consumer.namespace)
                || consumer.kind == ConsumerKind::Ingress && all.contains("")
        });
        if concerned { self.count } else { 0 }
    }

    /// What two agents do not name.
    pub fn with(self, other: &Self) -> Self {
        let namespaces = match (self.count, other.count) {
            (_, 0) => self.namespaces,
            (0, _) => other.namespaces.clone(),
            _ => self.namespaces.zip(other.namespaces.as_ref()).map(|(mut all, more)| {
                all.extend(more.iter().cloned());
                all
            }),
        };
        Self { count: self.count.max(other.count), namespaces }
    }
}

/// The refusals that a report names in so many bytes, and what it says of the rest.
///
/// Those of the load balancer's own listeners come first, mere parts last. The others are listed in
/// order of the bytes that their namespace has used so far, so each namespace gets an equal share, and one that
/// needs no more than that is listed whole. Of one namespace those come first that
/// say what is served for another consumer, since by these the leader settles it; then consumers with few. A
/// consumer is named with all of its refusals of one such kind or with none.
pub fn choose(refused: &[Refusal], room: usize) -> (Vec<&Refusal>, Unlisted) {
    let all = fill(refused, room);
    if all.1.count == 0 {
        return all;
    }
    // The names of namespaces have a quarter of the room.
    let for_names = room / 4;
    let (listed, mut unlisted) = fill(refused, room - for_names);
    let names = unlisted.namespaces.iter().flatten();
    if names.map(|name| name.len() + 3).sum::<usize>() > for_names {
        unlisted.namespaces = None;
    }
    (listed, unlisted)
}

/// What comes before what in a report, whoever it is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Tier {
    Shared,
    Unserved,
    Part,
}

fn tier(refusal: &Refusal) -> Tier {
    match refusal.consumer.kind {
        ConsumerKind::LoadBalancer => Tier::Shared,
        _ if is_part(refusal) && refusal.unserved().is_none() => Tier::Part,
        _ => Tier::Unserved,
    }
}

/// Whether every listener is open all the same.
fn is_part(refusal: &Refusal) -> bool {
    matches!(refusal.extent, Extent::Part | Extent::Host(_))
}

fn fill(refused: &[Refusal], room: usize) -> (Vec<&Refusal>, Unlisted) {
    let mut groups = BTreeMap::<_, (usize, Vec<&Refusal>)>::new();
    for refusal in refused {
        let key = (tier(refusal), refusal.unserved().is_none(), &refusal.consumer);
        let (size, all) = groups.entry(key).or_default();
        *size += json_size(refusal) + 1;
        all.push(refusal);
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups
        .sort_by_key(|((tier, settled, consumer), (size, _))| (*tier, *settled, *size, *consumer));
    // How much a namespace has used when a consumer of it is named, this one included.
    let mut used = BTreeMap::<(Tier, &Arc<str>), usize>::new();
    let mut queue: Vec<_> = groups
        .into_iter()
        .map(|((tier, _, consumer), (size, all))| {
            let used = used.entry((tier, &consumer.namespace)).or_default();
            *used += size;
            ((tier, *used, consumer), size, all)
        })
        .collect();
    queue.sort_by_key(|(order, ..)| *order);
    let (mut listed, mut bytes, mut unlisted) = (Vec::new(), 2, Unlisted::default());
    for (_, size, all) in queue {
        if bytes + size <= room {
            bytes += size;
            listed.extend(all);
        } else {
            for refusal in all.into_iter().filter(|it| !is_part(it)) {
                unlisted.add(Some(refusal.consumer.namespace.clone()));
            }
        }
    }
    (listed, unlisted)
}

/// How many bytes an agent gives to its refusals, which it learns from what the API says of its writes: all
/// agents of a load balancer share one object of bounded size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// For all agents together.
    all: usize,
    /// Among so many.
    agents: usize,
    /// How often it was halved because the object was too large.
    halved: u32,
    /// How many writes have gone well since.
    good: u32,
}

/// For so many agents there is room from the beginning.
const FEW: usize = 4;
/// Halved so often, any room is nothing.
const NOTHING: u32 = 24;
/// After so many writes an agent tries whether there is more room again.
const AGAIN: u32 = 12;

impl Room {
    /// So many bytes are for the refusals of all agents.
    pub fn of(all: usize) -> Self {
        Self { all, agents: 1, halved: 0, good: 0 }
    }

    /// The object was written, and has the reports of so many agents.
    pub fn written(&mut self, agents: usize) {
        self.agents = agents;
        if self.halved > 0 {
            self.good += 1;
            if self.good >= AGAIN {
                (self.halved, self.good) = (self.halved - 1, 0);
            }
        }
    }

    /// The object would be too large. False: there is no room left to give up, so the next report is no smaller.
    pub fn refused(&mut self) -> bool {
        let shrinks = self.cut(self.all) > 0;
        (self.halved, self.good) = ((self.halved + 1).min(NOTHING), 0);
        shrinks
    }

    /// The bytes for the refusals of this agent alone.
    pub fn own(self) -> usize {
        self.cut(self.all / self.agents.max(FEW))
    }

    /// So many bytes, or fewer where there is less room than there should be.
    pub fn cut(self, bytes: usize) -> usize {
        bytes.checked_shr(self.halved).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
