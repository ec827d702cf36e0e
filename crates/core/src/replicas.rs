//! The agents of one load balancer, as its Lease shows them: which are alive, what they say together, and
//! which entries may be removed. Every agent speaks for itself alone: what is served is what every live one
//! serves. The leader keeps one [`Replicas`] per Lease; time is an argument.

use crate::hash::PlanHash;
use crate::programmed::Claim;
use crate::status::MOST_ADDRESSES;
use crate::update::{Extent, Refusal};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What one agent says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// The plan in force; None: none yet.
    pub hash: Option<PlanHash>,
    /// What is wrong with the agent as a whole.
    pub error: Option<String>,
    /// What it could not do for whom.
    pub refused: Vec<Refusal>,
    /// How many refusals its report has no room for. An agent knows all of its own.
    pub unlisted: usize,
    /// Where it can be reached, for a load balancer without fixed addresses.
    pub addresses: Vec<IpAddr>,
    /// While it serves what it kept from before a restart: since when that is out of date, in seconds of
    /// the Unix epoch.
    pub kept_since: Option<i64>,
}

/// The report of one agent in a Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Which agent.
    pub agent: Arc<str>,
    /// Another text with every renewal. What it says is never compared with a clock.
    pub renewed: Arc<str>,
    /// How long a renewal counts.
    pub lasts: Duration,
    /// Whether the agent says that it has ended.
    pub left: bool,
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
    /// How many more refusals the one with most of them could not name.
    pub unlisted: usize,
    /// Where the load balancer can be reached.
    pub addresses: Vec<IpAddr>,
}

#[derive(Clone, Debug)]
struct Replica {
    entry: Entry,
    /// When this renewal was first seen.
    since: Instant,
    /// How many writes of the plan were known then.
    after: u64,
    /// Whether it was renewed while the leader watched: only then it is known to live.
    alive: bool,
    /// Whether its end has been noticed.
    ended: bool,
}

impl Replica {
    fn is_live(&self, now: Instant) -> bool {
        !self.entry.left && now.saturating_duration_since(self.since) <= self.entry.lasts
    }

    fn counts(&self) -> bool {
        !self.entry.left && !self.ended
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
    pub fn show(&mut self, entries: Vec<Entry>, watched: bool, writes: u64, now: Instant) -> bool {
        let before: Vec<_> = self.all.values().map(facts).collect();
        let mut old = std::mem::take(&mut self.all);
        for entry in entries {
            let known = old.remove(&entry.agent);
            let same = known.as_ref().filter(|it| it.entry.renewed == entry.renewed);
            let (since, after, ended) =
                same.map_or((now, writes, false), |it| (it.since, it.after, it.ended));
            let alive = known.as_ref().map_or(watched, |it| it.alive || same.is_none());
            let agent = Arc::clone(&entry.agent);
            self.all.insert(agent, Replica { entry, since, after, alive, ended });
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
    pub fn tick(&mut self, now: Instant) -> bool {
        let mut news = false;
        for replica in self.all.values_mut() {
            let ended = now.saturating_duration_since(replica.since) > replica.entry.lasts;
            news |= ended != replica.ended;
            replica.ended = ended;
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

    /// What each of them claims.
    pub fn claims(&self, now: Instant) -> Vec<Claim> {
        let claim = |it: &Replica| Claim {
            agent: Arc::clone(&it.entry.agent),
            hash: it.entry.said.hash,
            error: it.entry.said.error.as_deref().map(Into::into),
            // An agent that has left is as one that is silent: what it applied goes on.
            age: match it.entry.left {
                true => Duration::MAX,
                false => now.saturating_duration_since(it.since),
            },
            lasts: it.entry.lasts,
            // An agent that has left says nothing else any more.
            after: if it.entry.left { u64::MAX } else { it.after },
        };
        self.all.values().map(claim).collect()
    }

    /// Agents that say that they are there, though none has been heard of while the leader watched: they
    /// may have died before that. Their end, or their next renewal, shows.
    pub fn are_unsure(&self) -> bool {
        let mut counted = self.all.values().filter(|it| it.counts()).peekable();
        counted.peek().is_some() && counted.all(|it| !it.alive)
    }

    /// Entries of agents that have been silent for so long that nothing waits for them any more. The last one
    /// stays whatever it is: it is what is known of the load balancer.
    pub fn dead(&self, now: Instant) -> Vec<Arc<str>> {
        if !self.all.values().any(|it| it.is_live(now)) {
            return Vec::new();
        }
        let dead = self.all.values().filter(|it| {
            let age = now.saturating_duration_since(it.since);
            !it.entry.whole && !it.is_live(now) && age > it.entry.lasts.saturating_mul(2)
        });
        dead.map(|it| Arc::clone(&it.entry.agent)).collect()
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
        Joint::of(self.all.values().map(|it| (&it.entry, it.counts())))
    }
}

impl Joint {
    /// What the live agents say together; where none is known to live, what all of them say.
    pub fn of<'a>(entries: impl Iterator<Item = (&'a Entry, bool)>) -> Self {
        let all: Vec<_> = entries.collect();
        let some = all.iter().any(|(_, live)| *live);
        let said: Vec<_> =
            all.iter().filter(|(_, live)| *live || !some).map(|(it, _)| &it.said).collect();
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
        // A silent agent takes no address back before its entry is removed; one that left does, unless all
        // did.
        let stays = all.iter().any(|(it, _)| !it.left);
        let entries = all.iter().filter(|(it, _)| !it.left || !stays);
        let mut addresses: Vec<IpAddr> = Vec::new();
        for address in entries.flat_map(|(it, _)| &it.said.addresses) {
            if !addresses.contains(address) && addresses.len() < MOST_ADDRESSES {
                addresses.push(*address);
            }
        }
        let unlisted = said.iter().map(|it| it.unlisted).max().unwrap_or_default();
        Self { refused, unlisted, addresses }
    }
}

/// What makes a report news: all but when it was renewed, unless the plan was written since.
fn facts(replica: &Replica) -> (Arc<str>, Said, u64, [bool; 3]) {
    let Replica { entry, after, alive, ended, .. } = replica;
    (Arc::clone(&entry.agent), entry.said.clone(), *after, [entry.left, *alive, *ended])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{ConsumerKind, ConsumerRef};
    use crate::outcome::{Problem, Reason};
    use crate::plan::Transport;
    use crate::programmed::{History, Pending, Phase};
    use crate::update::ListenerKey;

    const LASTS: Duration = Duration::from_secs(15);

    fn hash(n: u16) -> PlanHash {
        format!("{n:064x}").parse().unwrap()
    }

    fn entry(agent: &str, renewed: &str, said: Said) -> Entry {
        let (agent, renewed) = (agent.into(), renewed.into());
        Entry { agent, renewed, lasts: LASTS, left: false, whole: false, said }
    }

    fn applied(n: u16) -> Said {
        Said { hash: Some(hash(n)), ..Said::default() }
    }

    fn shut(address: [u8; 4], addresses: &[[u8; 4]]) -> Said {
        let consumer = ConsumerRef {
            kind: ConsumerKind::Service,
            namespace: "shop".into(),
            name: "web".into(),
            uid: "u".into(),
        };
        let key = ListenerKey { address: address.into(), port: 80, transport: Transport::Tcp };
        let problem = Problem::new(Reason::BindFailed, "address in use");
        Said {
            refused: vec![Refusal { consumer, problem, extent: Extent::Listener(key) }],
            addresses: addresses.iter().map(|it| IpAddr::from(*it)).collect(),
            ..applied(1)
        }
    }

    fn seconds(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn one_that_is_behind_keeps_all_from_running_until_its_time_is_up() {
        let (mut history, mut replicas, begun) =
            (History::default(), Replicas::default(), Instant::now());
        history.record(&"lb".into(), hash(1), 1);
        history.record(&"lb".into(), hash(2), 2);
        let both =
            |renewed: &str| vec![entry("a", "1", applied(1)), entry("b", renewed, applied(2))];
        assert!(replicas.show(both("1"), true, 0, begun));
        let verdict = |replicas: &Replicas, now| history.judge("lb", &replicas.claims(now));
        let behind = verdict(&replicas, begun);
        assert_eq!(behind.phase, Phase::Pending(Pending::AgentBehind));
        assert!(behind.covers(1) && !behind.covers(2), "every live one must have it");

        // Only b renews.
        for second in [5, 10] {
            assert!(!replicas.show(both(&second.to_string()), true, 0, seconds(begun, second)));
            assert!(!replicas.tick(seconds(begun, second)));
        }
        let later = seconds(begun, 16);
        replicas.show(both("16"), true, 0, later);
        assert!(replicas.tick(later), "a is silent");
        let verdict = verdict(&replicas, later);
        assert_eq!((verdict.phase.clone(), verdict.covers(2)), (Phase::Running, true));
        // Nor is an address given away while the silent one may serve it; after twice its time it is dead.
        assert!(history.may_serve("lb", Some(true), &replicas.claims(later), 2));
        assert_eq!(replicas.dead(later), Vec::<Arc<str>>::new());
        let last = seconds(begun, 31);
        replicas.show(both("31"), true, 0, last);
        assert_eq!(replicas.dead(last), ["a".into()]);
        assert!(replicas.forget(&["a".into()]));
        assert!(!history.may_serve("lb", Some(true), &replicas.claims(last), 2));
    }

    #[test]
    fn the_last_one_is_never_dead_and_what_it_said_stays() {
        let (mut replicas, begun) = (Replicas::default(), Instant::now());
        let said = Said { addresses: vec![[192, 0, 2, 1].into()], ..applied(1) };
        replicas.show(vec![entry("a", "1", said.clone())], true, 0, begun);
        let later = seconds(begun, 1000);
        assert!(replicas.tick(later));
        assert_eq!(replicas.dead(later), Vec::<Arc<str>>::new());
        let left = Entry { left: true, ..entry("a", "2", said) };
        replicas.show(vec![left.clone()], true, 0, later);
        assert_eq!(replicas.joint().addresses, [IpAddr::from([192, 0, 2, 1])]);
        // One that left takes its address along when another one is there.
        let other = Said { addresses: vec![[192, 0, 2, 2].into()], ..applied(1) };
        replicas.show(vec![left, entry("b", "1", other)], true, 0, later);
        assert_eq!(replicas.joint().addresses, [IpAddr::from([192, 0, 2, 2])]);
    }

    #[test]
    fn what_one_live_replica_does_not_open_is_not_open() {
        let (mut replicas, begun) = (Replicas::default(), Instant::now());
        let refusing = shut([10, 0, 0, 1], &[]);
        replicas.show(
            vec![entry("a", "1", applied(1)), entry("b", "1", refusing.clone())],
            true,
            0,
            begun,
        );
        assert_eq!(replicas.joint().refused, refusing.refused);
        // Both refuse the same: it is told once.
        replicas.show(
            vec![entry("a", "2", refusing.clone()), entry("b", "1", refusing.clone())],
            true,
            0,
            begun,
        );
        assert_eq!(replicas.joint().refused, refusing.refused);
        // b is gone: only a counts.
        let later = seconds(begun, 16);
        replicas.show(vec![entry("a", "3", applied(1)), entry("b", "1", refusing)], true, 0, later);
        replicas.tick(later);
        assert_eq!(replicas.joint().refused, []);
    }

    #[test]
    fn the_address_of_another_machine_is_for_that_machine_to_open() {
        let (mut replicas, begun) = (Replicas::default(), Instant::now());
        let (one, two) = ([192, 0, 2, 1], [192, 0, 2, 2]);
        replicas.show(
            vec![entry("a", "1", shut(two, &[one])), entry("b", "1", shut(one, &[two]))],
            true,
            0,
            begun,
        );
        let joint = Joint { addresses: vec![one.into(), two.into()], ..Joint::default() };
        assert_eq!(*replicas.joint(), joint);
        let own = shut(one, &[one]);
        replicas.show(
            vec![entry("a", "2", own.clone()), entry("b", "1", applied(1))],
            true,
            0,
            begun,
        );
        assert_eq!(replicas.joint().refused, own.refused);
    }

    #[test]
    fn a_starting_agent_holds_no_address_back_and_the_phase_says_that_it_is_not_there_yet() {
        let (mut history, mut replicas, now) =
            (History::default(), Replicas::default(), Instant::now());
        history.record(&"lb".into(), hash(1), 1);
        replicas.show(
            vec![entry("a", "1", applied(1)), entry("b", "1", Said::default())],
            true,
            0,
            now,
        );
        let verdict = history.judge("lb", &replicas.claims(now));
        assert_eq!(verdict.phase, Phase::Pending(Pending::AgentBehind));
        assert!(verdict.covers(1), "it is not ready, so nobody is sent to it");
    }

    #[test]
    fn agents_of_before_share_a_lease_with_new_ones_and_each_counts() {
        let (mut history, mut replicas, begun) =
            (History::default(), Replicas::default(), Instant::now());
        history.record(&"lb".into(), hash(1), 1);
        history.record(&"lb".into(), hash(2), 2);
        let old = |n| Entry { whole: true, ..entry("old", "o", applied(n)) };
        let new = |renewed: &str| entry("new", renewed, applied(2));
        replicas.show(vec![new("1"), old(1)], true, 0, begun);
        // The new one writes next: the Lease shows nothing of the old one, which is still there.
        replicas.show(vec![new("2")], true, 0, seconds(begun, 5));
        let phase = |replicas: &Replicas, now| history.judge("lb", &replicas.claims(now)).phase;
        let now = seconds(begun, 5);
        assert_eq!(phase(&replicas, now), Phase::Pending(Pending::AgentBehind));
        let now = seconds(begun, 16);
        replicas.show(vec![new("3")], true, 0, now);
        assert_eq!(phase(&replicas, now), Phase::Running, "its time is up");
    }

    #[test]
    fn a_list_proves_nobody_alive_and_a_renewal_does() {
        let (mut replicas, begun) = (Replicas::default(), Instant::now());
        replicas.show(
            vec![entry("a", "1", applied(1)), entry("b", "1", applied(1))],
            false,
            0,
            begun,
        );
        assert!(replicas.are_unsure());
        assert!(replicas.show(vec![entry("a", "2", applied(1))], true, 0, begun));
        assert!(!replicas.are_unsure());
    }
}
