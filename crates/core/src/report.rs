//! Which refusals an agent's report names where there is no room for all, what it says about the others, and how much
//! room it has. Agents choose refusals with it, leaders read the rest with it. It writes no report: the text is made by
//! `bowline_runtime::lease`.

use crate::key::{ConsumerKind, ConsumerRef};
use crate::shard::json_size;
use crate::update::{Extent, Refusal};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub mod speaker;

/// The refusals that a report does not name: those that keep something from being served, and pools that fail.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unlisted {
    /// The number of refusals.
    pub count: usize,
    /// The namespaces of their consumers, "" for the load balancer's own listeners. None: the report does not say,
    /// because its agent is older or has no room for the names. Then they may be of any namespace.
    pub namespaces: Option<BTreeSet<Arc<str>>>,
    /// The number of pools without an endpoint that answers. They are in force, so they are not in `count`.
    pub failing: usize,
}

impl Unlisted {
    /// Adds a refusal that is not named. None: its namespace cannot be read.
    pub fn add(&mut self, namespace: Option<Arc<str>>) {
        let known = self.count == 0 || self.namespaces.is_some();
        self.count = self.count.saturating_add(1);
        match namespace.filter(|_| known) {
            Some(namespace) => _ = self.namespaces.get_or_insert_default().insert(namespace),
            None => self.namespaces = None,
        }
    }

    /// How many of the refusals may be a consumer's; 0: none. A refusal of the load balancer's own listeners concerns
    /// every Ingress.
    pub fn may_concern(&self, consumer: &ConsumerRef) -> usize {
        let concerned = self.namespaces.as_ref().is_none_or(|all| {
            all.contains(&consumer.namespace)
                || consumer.kind == ConsumerKind::Ingress && all.contains("")
        });
        if concerned { self.count } else { 0 }
    }

    /// What two agents together do not name.
    pub fn with(self, other: &Self) -> Self {
        let namespaces = match (self.count, other.count) {
            (_, 0) => self.namespaces,
            (0, _) => other.namespaces.clone(),
            _ => self.namespaces.zip(other.namespaces.as_ref()).map(|(mut all, more)| {
                all.extend(more.iter().cloned());
                all
            }),
        };
        let (count, failing) = (self.count.max(other.count), self.failing.max(other.failing));
        Self { count, namespaces, failing }
    }
}

/// The refusals that a report names in `room` bytes, and what it says about the others.
///
/// Refusals of the load balancer's own listeners come first. Refusals that leave all listeners of a consumer open (a host,
/// a rule, a setting) come last. The others are listed in order of the
/// bytes that their namespace has used so far, so each namespace gets an equal share, and a namespace that needs no
/// more than its share is listed whole. Within a namespace, refusals come first that say what is served for another
/// consumer, since by these the leader settles the conflict; then consumers with few bytes. A consumer is named with
/// all of its refusals of one such kind or with none.
pub fn choose(refused: &[Refusal], room: usize) -> (Vec<&Refusal>, Unlisted) {
    let all = fill(refused, room);
    if all.1.count == 0 {
        return all;
    }
    // A quarter of the room is for names of namespaces.
    let for_names = room / 4;
    let (listed, mut unlisted) = fill(refused, room - for_names);
    let names = unlisted.namespaces.iter().flatten();
    if names.map(|name| name.len() + 3).sum::<usize>() > for_names {
        unlisted.namespaces = None;
    }
    (listed, unlisted)
}

/// The first sort key of a report, across all namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Tier {
    Shared,
    Unserved,
    Part,
    Health,
}

fn tier(refusal: &Refusal) -> Tier {
    match refusal.consumer.kind {
        ConsumerKind::LoadBalancer => Tier::Shared,
        _ if refusal.problem.reason.is_health() => Tier::Health,
        _ if is_part(refusal) && refusal.unserved().is_none() => Tier::Part,
        _ => Tier::Unserved,
    }
}

/// Whether every listener of the consumer is open all the same.
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
    // How much a namespace has used up to and including this consumer.
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
            for refusal in all {
                unlisted.failing += usize::from(refusal.problem.reason.is_outage());
                if !is_part(refusal) {
                    unlisted.add(Some(refusal.consumer.namespace.clone()));
                }
            }
        }
    }
    (listed, unlisted)
}

/// How many bytes an agent spends on its refusals. It learns this from the API's answers to its writes: all agents of a
/// load balancer share one object of bounded size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// The bytes for all agents together.
    all: usize,
    /// The number of agents.
    agents: usize,
    /// How often the bytes were halved because the object was too large.
    halved: u32,
    /// How many writes have succeeded since.
    good: u32,
}

/// Up to this many agents there is room from the beginning.
const FEW: usize = 4;
/// Halved this often, any room is zero.
const NOTHING: u32 = 24;
/// After this many writes an agent tries whether there is more room again.
const AGAIN: u32 = 12;

impl Room {
    /// Room for all agents together, in bytes.
    pub fn of(all: usize) -> Self {
        Self { all, agents: 1, halved: 0, good: 0 }
    }

    /// The object was written, with the reports of this many agents.
    pub fn written(&mut self, agents: usize) {
        self.agents = agents;
        if self.halved > 0 {
            self.good += 1;
            if self.good >= AGAIN {
                (self.halved, self.good) = (self.halved - 1, 0);
            }
        }
    }

    /// The API refused the object as too large. False: the room is zero already, so the next report will not be
    /// smaller.
    pub fn refused(&mut self) -> bool {
        let shrinks = self.cut(self.all) > 0;
        (self.halved, self.good) = ((self.halved + 1).min(NOTHING), 0);
        shrinks
    }

    /// The bytes for the refusals of this agent.
    pub fn own(self) -> usize {
        self.cut(self.all / self.agents.max(FEW))
    }

    /// This many bytes, or fewer after the object was too large.
    pub fn cut(self, bytes: usize) -> usize {
        bytes.checked_shr(self.halved).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
