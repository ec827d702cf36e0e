//! The assignments of consumers: on which load balancer each is, and what it wants there. It changes assignments, and finds
//! the consumers that a change touches: only those that want the same port, host or path. The planner's index calls it.

use super::asked_load_balancer::{Ask, Refusal};
use super::consumer::{Age, ConsumerKey, Contender};
use super::edges::Edges;
use super::hosts::{HostWant, Hosts};
use super::ports::Ports;
use super::recorded::{News, Recorded};
use crate::key::{ConsumerKind, ObjectKey};
use crate::plan::Host;
use crate::update::ListenerKey;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The assignment of a consumer of ours.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Assignment {
    /// None.
    Refused(Refusal),
    /// On a load balancer.
    Placed(Placed),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Placed {
    pub(super) lb: Arc<str>,
    /// The consumer's uid.
    pub(super) uid: Arc<str>,
    pub(super) age: Age,
    pub(super) wants: Wants,
    /// Why it is not where it asks to be. It stays here until it can be there.
    pub(super) unmet: Option<Refusal>,
    /// The claim through which it is here, although it asks for another load balancer.
    pub(super) through: Option<ObjectKey>,
    /// The load balancers from which it comes, until it has arrived here; by name.
    pub(super) before: Vec<Self>,
}

impl Placed {
    /// All its places: this one, and those before.
    pub(super) fn all(&self) -> impl Iterator<Item = &Self> {
        [self].into_iter().chain(&self.before)
    }
}

/// What a consumer wants on a load balancer.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Wants {
    /// Listeners, sorted.
    Ports(Vec<ListenerKey>),
    /// Hosts with their paths and TLS.
    Hosts(BTreeMap<Host, HostWant>),
}

/// The contention on one load balancer.
#[derive(Debug, Default)]
pub(super) struct Ground {
    pub(super) ports: Ports,
    pub(super) hosts: Hosts,
    /// The Ingresses on it, the oldest first.
    pub(super) ingresses: BTreeSet<Age>,
}

impl Ground {
    fn is_empty(&self) -> bool {
        self.ports.is_empty() && self.hosts.is_empty() && self.ingresses.is_empty()
    }
}

#[derive(Debug, Default)]
pub(super) struct Assignments {
    assignments: FxHashMap<ConsumerKey, (Option<Ask>, Assignment)>,
    /// What consumers ask for, and the load balancers on which they stay until they have it.
    asks: Edges<Ask, ConsumerKey>,
    grounds: BTreeMap<Arc<str>, Ground>,
    /// Claims for which the set of asking consumers changed.
    touched_claims: BTreeSet<ObjectKey>,
}

impl Assignments {
    /// The claims for which the set of asking consumers changed since the last call, with the number of consumers.
    pub(super) fn take_wanted(&mut self) -> Vec<(ObjectKey, u32)> {
        let count = |claim: &ObjectKey| self.asks.of(&Ask::Claim(claim.clone())).count();
        let touched = std::mem::take(&mut self.touched_claims);
        let counted = touched.into_iter().map(|claim| {
            let count = u32::try_from(count(&claim)).unwrap_or(u32::MAX);
            (claim, count)
        });
        counted.collect()
    }

    pub(super) fn get(&self, who: &ConsumerKey) -> Option<&Assignment> {
        self.assignments.get(who).map(|(_, assignment)| assignment)
    }

    pub(super) fn ground(&self, lb: &str) -> Option<&Ground> {
        self.grounds.get(lb)
    }

    /// The consumers that ask for this.
    pub(super) fn asking(&self, ask: &Ask) -> impl Iterator<Item = &ConsumerKey> {
        self.asks.of(ask)
    }

    /// Sets the assignment of a consumer. None: it is gone or not ours. Adds all consumers that this touches to `touched`,
    /// the consumer itself included if its assignment changed.
    pub(super) fn set(
        &mut self,
        who: &ConsumerKey,
        assignment: Option<(Option<Ask>, Assignment)>,
        recorded: &Recorded,
        touched: &mut BTreeSet<ConsumerKey>,
    ) {
        let old = self.assignments.remove(who);
        if old == assignment {
            self.assignments.extend(old.map(|old| (who.clone(), old)));
            return;
        }
        touched.insert(who.clone());
        let (before, after) = (holds(old.as_ref()), holds(assignment.as_ref()));
        let gone = before.iter().filter(|ask| !after.contains(ask));
        let come = after.iter().filter(|ask| !before.contains(ask));
        for ask in gone.clone().chain(come.clone()) {
            if let Ask::Claim(claim) = ask {
                self.touched_claims.insert(claim.clone());
            }
        }
        gone.for_each(|ask| self.asks.remove(ask, who));
        come.for_each(|ask| self.asks.insert(ask.clone(), who.clone()));
        let places = (old.as_ref().and_then(placed), assignment.as_ref().and_then(placed));
        self.contend(who, places, recorded, touched);
        self.assignments.extend(assignment.map(|assignment| (who.clone(), assignment)));
    }

    fn contend(
        &mut self,
        who: &ConsumerKey,
        (old, new): (Option<&Placed>, Option<&Placed>),
        recorded: &Recorded,
        touched: &mut BTreeSet<ConsumerKey>,
    ) {
        let (old, new) = (places(old), places(new));
        for (place, wants) in &old {
            self.change(who, *place, (Some(wants), new.get(place).copied()), recorded, touched);
        }
        for (place, wants) in new.iter().filter(|(place, _)| !old.contains_key(place)) {
            self.change(who, *place, (None, Some(wants)), recorded, touched);
        }
    }

    /// Changes what one consumer wants on one load balancer.
    fn change(
        &mut self,
        who: &ConsumerKey,
        (lb, age, uid): Spot<'_>,
        (old, new): (Option<&Wants>, Option<&Wants>),
        recorded: &Recorded,
        touched: &mut BTreeSet<ConsumerKey>,
    ) {
        let records = recorded.of_lb(lb);
        let ground = self.grounds.entry(lb.clone()).or_default();
        let (before, after) = (ports(old), ports(new));
        let me = Contender { age: age.clone(), who: who.clone(), uid: uid.clone() };
        for key in before.difference(&after) {
            ground.ports.leave(*key, &me, records, touched);
        }
        for key in after.difference(&before) {
            ground.ports.enter(*key, &me, records, touched);
        }
        let none = BTreeMap::new();
        let (before, after) = (hosts(old).unwrap_or(&none), hosts(new).unwrap_or(&none));
        for host in before.keys().chain(after.keys().filter(|host| !before.contains_key(host))) {
            let (was, is) = (before.get(host), after.get(host));
            if was != is {
                ground.hosts.change(age, host, (was, is), records, touched);
            }
        }
        if who.kind == ConsumerKind::Ingress {
            let oldest = ground.ingresses.first().cloned();
            match new {
                Some(_) => ground.ingresses.insert(age.clone()),
                None => ground.ingresses.remove(age),
            };
            if oldest.as_ref() != ground.ingresses.first() {
                touched.insert(ConsumerKey::load_balancer(lb));
            }
        }
        if ground.is_empty() {
            self.grounds.remove(lb);
        }
    }
}

/// The holders of contended ports and hosts, before or after a change of records.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Decisions {
    ports: BTreeMap<ListenerKey, Vec<ConsumerKey>>,
    hosts: BTreeMap<Host, Vec<Arc<str>>>,
}

impl Assignments {
    /// The holders of the ports and hosts that records of these consumers and hosts may decide. Ports and hosts that
    /// only one consumer or namespace wants are left out: no record decides them.
    pub(super) fn decisions(&self, news: &News, recorded: &Recorded) -> Decisions {
        let lb = &news.load_balancer;
        let Some(ground) = self.grounds.get(lb) else { return Decisions::default() };
        let records = recorded.of_lb(lb);
        let wants = news.consumers.iter().filter_map(|consumer| {
            let placed = self.assignments.get(&ConsumerKey::of(consumer)).and_then(placed)?;
            Some(placed.all().filter(|it| it.lb == *lb).map(|it| &it.wants))
        });
        let keys: BTreeSet<ListenerKey> =
            wants.flatten().flat_map(|wants| ports(Some(wants))).collect();
        let keys = keys.into_iter().filter(|key| ground.ports.is_contended(key));
        let holders = |key: &ListenerKey| -> Vec<ConsumerKey> {
            let holders = ground.ports.holders(key, records);
            holders.into_iter().map(|contender| contender.who.clone()).collect()
        };
        let hosts = news.hosts.iter().filter(|host| ground.hosts.is_contended(host));
        let owners =
            |host: &Host| ground.hosts.owners(host, records).into_iter().cloned().collect();
        Decisions {
            ports: keys.map(|key| (key, holders(&key))).collect(),
            hosts: hosts.map(|host| (host.clone(), owners(host))).collect(),
        }
    }

    /// Touches the contenders for everything that is decided differently after the change.
    pub(super) fn follow(
        &self,
        lb: &str,
        before: &Decisions,
        after: &Decisions,
        touched: &mut BTreeSet<ConsumerKey>,
    ) {
        let Some(ground) = self.grounds.get(lb) else { return };
        for (key, _) in after.ports.iter().filter(|(key, it)| before.ports.get(key) != Some(it)) {
            touched.extend(ground.ports.contenders(key).cloned());
        }
        for (host, _) in after.hosts.iter().filter(|(host, it)| before.hosts.get(host) != Some(it))
        {
            touched.extend(ground.hosts.contenders(host));
        }
    }
}

fn placed((_, assignment): &(Option<Ask>, Assignment)) -> Option<&Placed> {
    match assignment {
        Assignment::Placed(placed) => Some(placed),
        Assignment::Refused(_) => None,
    }
}

/// A place where a consumer contends: load balancer, age and uid.
type Spot<'a> = (&'a Arc<str>, &'a Age, &'a Arc<str>);

/// What a consumer wants at each of its places.
fn places(placed: Option<&Placed>) -> BTreeMap<Spot<'_>, &Wants> {
    let all = placed.into_iter().flat_map(Placed::all);
    all.map(|it| ((&it.lb, &it.age, &it.uid), &it.wants)).collect()
}

/// What a consumer asks for and, where it stays elsewhere, what else it holds: everything that touches it when it
/// changes, without duplicates.
fn holds(assignment: Option<&(Option<Ask>, Assignment)>) -> Vec<Ask> {
    let Some((ask, assignment)) = assignment else { return Vec::new() };
    let mut all: Vec<Ask> = ask.iter().cloned().collect();
    if let Assignment::Placed(placed) = assignment {
        let kept = placed.all().filter(|it| it.unmet.is_some() || it.lb != placed.lb);
        let kept = kept.flat_map(|it| {
            let through = it.through.clone().map(Ask::Claim);
            [Some(Ask::Name(it.lb.clone())), through].into_iter().flatten()
        });
        let kept: Vec<_> = kept.filter(|it| !all.contains(it)).collect();
        all.extend(kept);
    }
    all
}

fn ports(wants: Option<&Wants>) -> BTreeSet<ListenerKey> {
    match wants {
        Some(Wants::Ports(keys)) => keys.iter().copied().collect(),
        _ => BTreeSet::new(),
    }
}

fn hosts(wants: Option<&Wants>) -> Option<&BTreeMap<Host, HostWant>> {
    match wants {
        Some(Wants::Hosts(hosts)) => Some(hosts),
        _ => None,
    }
}
