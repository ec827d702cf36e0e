//! The agents of one load balancer, as its Lease shows them: which are live, what they report together, and which
//! entries may be removed. Each agent reports for itself alone: a consumer is served if every live agent serves it. The
//! leader keeps one [`Replicas`] per Lease; time is an argument.
//!
//! A silent agent may be cut off and serve on, alone or beside others, as long as nothing shows that it has ended: no
//! time proves that. So its entry stays, and the addresses that it may serve are not released, until it is known to be
//! gone ([`Replicas::dead`]) or an administrator removes the entry.

use crate::clock::Uptime;
use crate::hash::PlanHash;
use crate::programmed::LeaseReport;
use crate::report::Unlisted;
use crate::status::MOST_ADDRESSES;
use crate::update::{Extent, ListenerKey, Refusal};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// What one agent reports about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// The plan in force. None: no plan yet.
    pub hash: Option<PlanHash>,
    /// What is wrong with the agent as a whole.
    pub error: Option<String>,
    /// What it cannot do, for each consumer.
    pub refused: Vec<Refusal>,
    /// The refusals that its report has no room for. The agent itself knows all of them.
    pub unlisted: Unlisted,
    /// Its addresses, for a load balancer without fixed addresses.
    pub addresses: Vec<IpAddr>,
    /// Set while it serves kept state after a restart: since when that is out of date, in seconds of the Unix epoch.
    pub kept_since: Option<i64>,
    /// The version of its program. None: older agents do not say.
    pub version: Option<Arc<str>>,
    /// Where it serves its admin endpoint. None: older agents do not say, or nobody else could reach it there.
    pub admin: Option<SocketAddr>,
    /// The node on which it runs. None: it was not told, or it is older.
    pub node: Option<Arc<str>>,
}

/// What an agent that has ended says about its proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Nothing, as agents of the previous version do.
    Unsaid,
    /// The proxy may go on, or be started again as it was.
    ProxyRuns,
    /// The proxy has ended, and nothing starts it again as it was.
    ProxyEnded,
}

/// How long ago an agent renewed its entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A renewal still counts.
    Live,
    /// No renewal counts any more, or the agent has left.
    Silent,
    /// It has been silent for twice as long as a renewal counts.
    Lost,
}

/// The most entries of silent agents that are kept: they share the room of the Lease with those of live agents.
const MOST_SILENT: usize = 16;

/// The report of one agent in a Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The agent.
    pub agent: Arc<str>,
    /// A text that changes with every renewal. It is never compared with a clock.
    pub renewed: Arc<str>,
    /// How long a renewal counts.
    pub lasts: Duration,
    /// Whether the agent says that it has ended, and what becomes of its proxy.
    pub left: Option<Left>,
    /// Whether the Lease has only this entry. Agents of older versions all write the same fields of one Lease, which
    /// then shows the agent that wrote last.
    pub whole: bool,
    /// Its report.
    pub said: Said,
}

/// What all agents that count report together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Joint {
    /// What at least one of them cannot do.
    pub refused: Vec<Refusal>,
    /// The refusals that they do not name.
    pub unlisted: Unlisted,
    /// The addresses of the load balancer.
    pub addresses: Vec<IpAddr>,
    /// The listeners that none of them could open.
    pub shut: BTreeSet<ListenerKey>,
}

#[derive(Clone, Debug)]
struct Replica {
    entry: Entry,
    /// When the leader first observed this renewal.
    since: Uptime,
    /// How many writes of the plan were known then.
    after: u64,
    /// Whether the agent renewed while the leader watched. Only then it is known to be live.
    alive: bool,
    /// How long the agent has been silent, as of the last tick.
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

    /// The machine of an agent, from its name: the machine's name, `_` and a random part.
    fn machine(&self) -> Option<&str> {
        let (machine, _) = self.entry.agent.rsplit_once('_')?;
        Some(machine).filter(|it| !["", "bowline", "localhost"].contains(it))
    }
}

/// All agents of one load balancer.
#[derive(Clone, Debug, Default)]
pub struct Replicas {
    all: BTreeMap<Arc<str>, Replica>,
    joint: Joint,
}

impl Replicas {
    /// Takes the entries of a Lease. True: something changed. `watched`: an unknown entry is new, and not from a first
    /// list. `writes`: how many writes of the plan are known.
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
        // A Lease of older agents shows one of them at a time. The others stay until their renewal expires.
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

    /// What they report together: the live agents, or where none is live, all.
    pub fn joint(&self) -> &Joint {
        &self.joint
    }

    /// What each agent reports.
    pub fn reports(&self, now: Uptime) -> Vec<LeaseReport> {
        let report = |it: &Replica| LeaseReport {
            agent: Arc::clone(&it.entry.agent),
            hash: it.entry.said.hash,
            error: it.entry.said.error.as_deref().map(Into::into),
            // An agent that has left counts as silent: what it applied stays in force.
            age: match it.entry.left {
                Some(_) => Duration::MAX,
                None => it.age(now),
            },
            lasts: it.entry.lasts,
            // An agent that has left reports nothing else any more.
            after: if it.entry.left.is_some() { u64::MAX } else { it.after },
            ended: it.entry.left == Some(Left::ProxyEnded),
        };
        self.all.values().map(report).collect()
    }

    /// Whether there are agents that count, but none has renewed while the leader watched: they may have died before.
    /// Their next renewal shows that they live, or its absence that they do not.
    pub fn are_unsure(&self) -> bool {
        let mut counted = self.all.values().filter(|it| it.counts()).peekable();
        counted.peek().is_some() && counted.all(|it| !it.alive)
    }

    /// The agents whose entries may be removed: an agent that has ended together with its proxy; an agent that another
    /// agent has replaced on its machine; a silent agent beyond the last [`MOST_SILENT`]. With `fronted`, clients reach
    /// the agents through a Service, which sends nothing to a Pod on a silent node: there an agent that is silent for a
    /// minute may be removed, too. While no agent is live none is removed: the entries are all that is known of the
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
        // The agent that fell silent first goes first. A leader that has just begun sorts by the agents' own texts.
        doubtful.sort_by_key(|it| (it.since, Arc::clone(&it.entry.renewed)));
        dead.extend(&doubtful[..doubtful.len().saturating_sub(MOST_SILENT)]);
        dead.into_iter().map(|it| Arc::clone(&it.entry.agent)).collect()
    }

    /// Counts the writes of the plan from zero again, as for a new load balancer of the name.
    pub fn count_anew(&mut self) {
        self.all.values_mut().for_each(|replica| replica.after = 0);
    }

    /// Forgets removed entries. True: there were some.
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
    /// What the live agents report together. Where none is known to be live, all count.
    pub fn of<'a>(entries: impl Iterator<Item = (&'a Entry, Heard)>) -> Self {
        let all: Vec<_> = entries.collect();
        let live = |(it, heard): &(&Entry, Heard)| it.left.is_none() && *heard == Heard::Live;
        let some = all.iter().any(live);
        let said: Vec<_> =
            all.iter().filter(|it| live(it) || !some).map(|(it, _)| &it.said).collect();
        let mut refused: Vec<Refusal> = Vec::new();
        for one in &said {
            // Where agents report addresses, each serves only its own: another agent cannot open them.
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
        // A silent agent's addresses stay. A lost or left agent's addresses do not, unless there is no other agent.
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
        let closes = |one: &Said, key: &ListenerKey| {
            let here = one.addresses.is_empty() || one.addresses.contains(&key.address);
            !here || one.refused.iter().any(|it| it.closes() == Some(*key))
        };
        let shut = refused.iter().filter_map(Refusal::closes);
        let shut = shut.filter(|key| said.iter().all(|one| closes(one, key))).collect();
        Self { refused, unlisted, addresses, shut }
    }
}

/// The parts of an entry that count when it is compared with the one before. The time of renewal is not among them: an
/// agent that only renews its Lease has reported nothing new.
fn facts(replica: &Replica) -> (Arc<str>, Said, u64, Option<Left>, bool, Heard) {
    let Replica { entry, after, alive, heard, .. } = replica;
    (Arc::clone(&entry.agent), entry.said.clone(), *after, entry.left, *alive, *heard)
}

#[cfg(test)]
mod tests;
