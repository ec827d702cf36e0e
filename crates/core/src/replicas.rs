//! The agents of one load balancer, as its Lease shows them: which are alive, what they say together, and
//! which entries may be removed. Every agent speaks for itself alone: what is served is what every live one
//! serves. The leader keeps one [`Replicas`] per Lease; time is an argument.
//!
//! A silent agent may be cut off and serve on, alone or beside others, for as long as nothing shows that it has
//! ended: no time proves that. So its entry stays, and holds back the addresses that it may serve, until it
//! is known to be gone ([`Replicas::dead`]) or an administrator removes it.

use crate::clock::Uptime;
use crate::hash::PlanHash;
use crate::programmed::LeaseReport;
use crate::report::Unlisted;
use crate::status::MOST_ADDRESSES;
use crate::update::{Extent, Refusal};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// What one agent says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// The plan in force; None: none yet.
    pub hash: Option<PlanHash>,
    /// What is wrong with the agent as a whole.
    pub error: Option<String>,
    /// What it could not do for whom.
    pub refused: Vec<Refusal>,
    /// The refusals that its report has no room for. An agent knows all of its own.
    pub unlisted: Unlisted,
    /// Where it can be reached, for a load balancer without fixed addresses.
    pub addresses: Vec<IpAddr>,
    /// While it serves what it kept from before a restart: since when that is out of date, in seconds of
    /// the Unix epoch.
    pub kept_since: Option<i64>,
}

/// What an agent that has ended says of its proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Nothing, as agents of the version before.
    Unsaid,
    /// It may go on, or be started again as it was.
    ProxyRuns,
    /// It has ended, and nothing starts it as it was.
    ProxyEnded,
}

/// How long ago an agent was heard of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It is live.
    Live,
    /// It has been silent for longer than a renewal counts, or has left.
    Silent,
    /// It has been silent for twice as long.
    Lost,
}

/// Entries of so many silent agents are kept: they share the room of the Lease with those that live.
const MOST_SILENT: usize = 16;

/// The report of one agent in a Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Which agent.
    pub agent: Arc<str>,
    /// Another text with every renewal. What it says is never compared with a clock.
    pub renewed: Arc<str>,
    /// How long a renewal counts.
    pub lasts: Duration,
    /// Whether the agent says that it has ended, and what becomes of its proxy.
    pub left: Option<Left>,
    /// Whether it is the whole Lease: that of an agent from before agents had entries of their own, of
    /// which a Lease shows the one that wrote last.
    pub whole: bool,
    /// What it says.
    pub said: Said,
}

/// What all agents that count say together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Joint {
    /// What at least one of them could not do.
    pub refused: Vec<Refusal>,
    /// What they could not name.
    pub unlisted: Unlisted,
    /// Where the load balancer can be reached.
    pub addresses: Vec<IpAddr>,
}

#[derive(Clone, Debug)]
struct Replica {
    entry: Entry,
    /// When this renewal was first seen.
    since: Uptime,
    /// How many writes of the plan were known then.
    after: u64,
    /// Whether it was renewed while the leader watched: only then it is known to live.
    alive: bool,
    /// How long it has been silent, as far as that has been noticed.
    heard: Heard,
}

impl Replica {
    fn is_live(&self, now: Uptime) -> bool {
        self.entry.left.is_none() && self.age(now) <= self.entry.lasts
    }

    fn age(&self, now: Uptime) -> Duration {
        now.saturating_sub(self.since)
    }

    fn heard(&self, now: Uptime) -> Heard {
        match self.age(now) {
            age if age <= self.entry.lasts => Heard::Live,
            age if age <= self.entry.lasts.saturating_mul(2) => Heard::Silent,
            _ => Heard::Lost,
        }
    }

    fn counts(&self) -> bool {
        self.entry.left.is_none() && self.heard == Heard::Live
    }

    /// The machine that an agent is on: its name is that of the machine, and a random part.
    fn machine(&self) -> Option<&str> {
        let (machine, _) = self.entry.agent.rsplit_once('_')?;
        Some(machine).filter(|it| !["", "bowline", "localhost"].contains(it))
    }
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Replicas {
    all: BTreeMap<Arc<str>, Replica>,
    joint: Joint,
}

impl Replicas {
    /// Takes in what a Lease shows; true: it is news. `watched` says that an entry that was not there before
    /// is new, rather than met in a first list; `writes` how many writes of the plan are known.
    pub fn show(&mut self, entries: Vec<Entry>, watched: bool, writes: u64, now: Uptime) -> bool {
        let before: Vec<_> = self.all.values().map(facts).collect();
        let mut old = std::mem::take(&mut self.all);
        for entry in entries {
            let known = old.remove(&entry.agent);
            let same = known.as_ref().filter(|it| it.entry.renewed == entry.renewed);
            let (since, after, heard) =
                same.map_or((now, writes, Heard::Live), |it| (it.since, it.after, it.heard));
            let alive = known.as_ref().map_or(watched, |it| it.alive || same.is_none());
            let agent = Arc::clone(&entry.agent);
            self.all.insert(agent, Replica { entry, since, after, alive, heard });
        }
        // The Lease shows one agent from before entries at a time: another one is there until its time is up.
        let others = old.into_iter().filter(|(_, it)| it.entry.whole && it.is_live(now));
        self.all.extend(others);
        let news = before != self.all.values().map(facts).collect::<Vec<_>>();
        if news {
            self.joint = self.join();
        }
        news
    }

    /// Time has passed: true if an agent's Lease entry has expired.
    pub fn tick(&mut self, now: Uptime) -> bool {
        let mut news = false;
        for replica in self.all.values_mut() {
            let heard = replica.heard(now);
            news |= heard != replica.heard;
            replica.heard = heard;
        }
        if news {
            self.joint = self.join();
        }
        news
    }

    /// What they say together: the live ones, or where none is, all.
    pub fn joint(&self) -> &Joint {
        &self.joint
    }

    /// What each agent reports.
    pub fn reports(&self, now: Uptime) -> Vec<LeaseReport> {
        let report = |it: &Replica| LeaseReport {
            agent: Arc::clone(&it.entry.agent),
            hash: it.entry.said.hash,
            error: it.entry.said.error.as_deref().map(Into::into),
            // An agent that has left is as one that is silent: what it applied goes on.
            age: match it.entry.left {
                Some(_) => Duration::MAX,
                None => it.age(now),
            },
            lasts: it.entry.lasts,
            // An agent that has left says nothing else any more.
            after: if it.entry.left.is_some() { u64::MAX } else { it.after },
            ended: it.entry.left == Some(Left::ProxyEnded),
        };
        self.all.values().map(report).collect()
    }

    /// Agents that say that they are there, though none has been heard of while the leader watched: they
    /// may have died before that. Their end, or their next renewal, shows.
    pub fn are_unsure(&self) -> bool {
        let mut counted = self.all.values().filter(|it| it.counts()).peekable();
        counted.peek().is_some() && counted.all(|it| !it.alive)
    }

    /// Entries of agents that are known to be gone, so that nothing has to wait for them: an agent that has ended
    /// with its proxy, and an agent that another agent has replaced on its machine. `fronted` says that clients reach the
    /// agents by a Service, as they do where a class made them: that sends nothing to a Pod whose node is
    /// silent, so such an agent counts as gone after a minute, whatever it may still do. Of silent agents that
    /// may serve on the last [`MOST_SILENT`] stay. The last entry stays whatever it is: it is what is known of the
    /// load balancer.
    pub fn dead(&self, fronted: bool, now: Uptime) -> Vec<Arc<str>> {
        let live = || self.all.values().filter(|it| it.is_live(now));
        if live().next().is_none() {
            return Vec::new();
        }
        let working = live().filter(|it| it.entry.said.hash.is_some());
        let machines: BTreeSet<_> = working.filter_map(Replica::machine).collect();
        let replaced = |it: &Replica| it.machine().is_some_and(|it| machines.contains(it));
        let silent = self.all.values().filter(|it| !it.entry.whole && !it.is_live(now));
        let lost = silent.filter(|it| it.heard(now) == Heard::Lost);
        let (mut dead, mut doubtful): (Vec<_>, Vec<_>) = lost.partition(|it| {
            let ended = matches!(it.entry.left, Some(Left::Unsaid | Left::ProxyEnded));
            let minute = it.age(now) > it.entry.lasts.saturating_mul(4);
            ended || replaced(it) || fronted && minute
        });
        // The one that was silent first goes first; a leader that has just begun goes by what they said.
        doubtful.sort_by_key(|it| (it.since, Arc::clone(&it.entry.renewed)));
        dead.extend(&doubtful[..doubtful.len().saturating_sub(MOST_SILENT)]);
        dead.into_iter().map(|it| Arc::clone(&it.entry.agent)).collect()
    }

    /// The writes of the plan are counted anew, as for another load balancer of the name.
    pub fn count_anew(&mut self) {
        self.all.values_mut().for_each(|replica| replica.after = 0);
    }

    /// Entries were removed. True: that is news.
    pub fn forget(&mut self, agents: &[Arc<str>]) -> bool {
        let before = self.all.len();
        self.all.retain(|agent, _| !agents.contains(agent));
        let news = before != self.all.len();
        if news {
            self.joint = self.join();
        }
        news
    }

    fn join(&self) -> Joint {
        Joint::of(self.all.values().map(|it| (&it.entry, it.heard)))
    }
}

impl Joint {
    /// What the live agents say together; where none is known to live, what all of them say.
    pub fn of<'a>(entries: impl Iterator<Item = (&'a Entry, Heard)>) -> Self {
        let all: Vec<_> = entries.collect();
        let live = |(it, heard): &(&Entry, Heard)| it.left.is_none() && *heard == Heard::Live;
        let some = all.iter().any(live);
        let said: Vec<_> =
            all.iter().filter(|it| live(it) || !some).map(|(it, _)| &it.said).collect();
        let mut refused: Vec<Refusal> = Vec::new();
        for one in &said {
            // Where agents report addresses, each serves its own: nobody else can open them.
            let others = |it: &Refusal| match &it.extent {
                Extent::Listener(key) => {
                    !one.addresses.contains(&key.address)
                        && said.iter().any(|other| other.addresses.contains(&key.address))
                }
                _ => false,
            };
            refused.extend(one.refused.iter().filter(|it| !others(it)).cloned());
        }
        if said.len() > 1 {
            let mut seen = BTreeSet::new();
            refused.retain(|it| seen.insert(it.clone()));
        }
        // An agent that is silent for a moment takes no address back. One that is lost, or left, does, unless
        // no other is there.
        let shown =
            |(it, heard): &&(&Entry, Heard)| it.left.is_none() && (*heard != Heard::Lost || !some);
        let stays = all.iter().any(|it| shown(&it));
        let entries = all.iter().filter(|it| shown(it) || !stays);
        let mut addresses: Vec<IpAddr> = Vec::new();
        for address in entries.flat_map(|(it, _)| &it.said.addresses) {
            if !addresses.contains(address) && addresses.len() < MOST_ADDRESSES {
                addresses.push(*address);
            }
        }
        let unlisted = said.iter().fold(Unlisted::default(), |all, it| all.with(&it.unlisted));
        Self { refused, unlisted, addresses }
    }
}

/// What makes a report news: all but when it was renewed, unless the plan was written since.
fn facts(replica: &Replica) -> (Arc<str>, Said, u64, Option<Left>, bool, Heard) {
    let Replica { entry, after, alive, heard, .. } = replica;
    (Arc::clone(&entry.agent), entry.said.clone(), *after, entry.left, *alive, *heard)
}

#[cfg(test)]
mod tests;
