//! The load balancers without a claim, by capacity: finds the one that a request fills most without
//! looking at all of them. It does not know whether one is free and fits otherwise; the caller,
//! [`super::decide`], does.

use super::object::{Ask, ClassWish, LoadBalancer};
use crate::addresses::Scope;
use crate::objects::Operator;
use crate::resources::{Amounts, Fill, Resource};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hash;
use std::sync::Arc;

type Name = Arc<str>;

/// What a claim may demand besides labels.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Group {
    scope: Scope,
    class: Option<Name>,
}

#[derive(Debug, Default)]
pub(super) struct BestFit {
    all: Shelves,
    by_label: FxHashMap<(Name, Name), Shelves>,
    by_key: FxHashMap<Name, Shelves>,
    names: BTreeSet<Name>,
}

#[derive(Debug, Default)]
struct Shelves {
    groups: FxHashMap<Group, Shelf>,
    count: usize,
}

/// Load balancers of one scope and class, in the orders in which requests want them.
#[derive(Debug, Default)]
struct Shelf {
    names: BTreeSet<Name>,
    unlimited: BTreeSet<Name>,
    by_bandwidth: BTreeSet<(u64, Name)>,
    by_iops: BTreeSet<(u64, Name)>,
    by_both: BTreeMap<u64, BTreeMap<u64, BTreeSet<Name>>>,
}

/// A load balancer that was found, and how full it would be.
type Found = (Fill, Name);

impl BestFit {
    /// The names of all of them.
    pub(super) fn names(&self) -> &BTreeSet<Name> {
        &self.names
    }

    pub(super) fn insert(&mut self, lb: &LoadBalancer) {
        self.names.insert(lb.name.clone());
        self.all.insert(lb);
        for (key, value) in &lb.labels {
            self.by_label.entry((key.clone(), value.clone())).or_default().insert(lb);
            self.by_key.entry(key.clone()).or_default().insert(lb);
        }
    }

    pub(super) fn remove(&mut self, lb: &LoadBalancer) {
        if !self.names.remove(&lb.name) {
            return;
        }
        self.all.remove(lb);
        for (key, value) in &lb.labels {
            take(&mut self.by_label, &(key.clone(), value.clone()), lb);
            take(&mut self.by_key, key, lb);
        }
    }

    /// Of those that `fits` accepts, the one with the least to spare; of equals the first by name.
    pub(super) fn best(&self, ask: &Ask, fits: impl Fn(&Name) -> bool) -> Option<Name> {
        let mut best: Option<Found> = None;
        for shelves in self.narrowest(ask) {
            for (group, shelf) in &shelves.groups {
                if group.suits(ask) {
                    better(&mut best, shelf.best(&ask.requests, &fits));
                }
            }
        }
        best.map(|(_, name)| name)
    }

    /// Where to look: under the rarest label that the selector demands, or everywhere.
    fn narrowest(&self, ask: &Ask) -> Vec<&Shelves> {
        let mut narrowest = vec![&self.all];
        let mut least = self.all.count;
        for requirement in &ask.selector.requirements {
            let key = &requirement.key;
            let under: Vec<&Shelves> = match &requirement.operator {
                Operator::In(values) => {
                    let values: BTreeSet<&Name> = values.iter().collect();
                    let of = |value: &Name| self.by_label.get(&(key.clone(), value.clone()));
                    values.into_iter().filter_map(of).collect()
                }
                Operator::Exists => self.by_key.get(key).into_iter().collect(),
                _ => continue,
            };
            let count = under.iter().map(|shelves| shelves.count).sum();
            if count < least {
                (narrowest, least) = (under, count);
            }
        }
        narrowest
    }
}

/// Removes a load balancer from under a label.
fn take<K: Hash + Eq>(shelves: &mut FxHashMap<K, Shelves>, label: &K, lb: &LoadBalancer) {
    if let Some(under) = shelves.get_mut(label) {
        under.remove(lb);
        if under.count == 0 {
            shelves.remove(label);
        }
    }
}

impl Group {
    fn of(lb: &LoadBalancer) -> Self {
        Self { scope: lb.scope, class: lb.class.clone() }
    }

    fn suits(&self, ask: &Ask) -> bool {
        let class = match &ask.class {
            ClassWish::Named(class) => self.class.as_ref() == Some(class),
            ClassWish::Default | ClassWish::Never => true,
        };
        class && ask.scope.is_none_or(|scope| scope == self.scope)
    }
}

impl Shelves {
    fn insert(&mut self, lb: &LoadBalancer) {
        self.groups.entry(Group::of(lb)).or_default().insert(lb);
        self.count += 1;
    }

    fn remove(&mut self, lb: &LoadBalancer) {
        let group = Group::of(lb);
        let Some(shelf) = self.groups.get_mut(&group) else { return };
        shelf.remove(lb);
        self.count -= 1;
        if shelf.names.is_empty() {
            self.groups.remove(&group);
        }
    }
}

impl Shelf {
    fn insert(&mut self, lb: &LoadBalancer) {
        let name = &lb.name;
        self.names.insert(name.clone());
        let Amounts { bandwidth, iops } = lb.capacity;
        if lb.capacity.is_empty() {
            self.unlimited.insert(name.clone());
        }
        self.by_bandwidth.extend(bandwidth.map(|capacity| (capacity, name.clone())));
        self.by_iops.extend(iops.map(|capacity| (capacity, name.clone())));
        if let (Some(bandwidth), Some(iops)) = (bandwidth, iops) {
            let inner = self.by_both.entry(bandwidth).or_default();
            inner.entry(iops).or_default().insert(name.clone());
        }
    }

    fn remove(&mut self, lb: &LoadBalancer) {
        let name = &lb.name;
        self.names.remove(name);
        self.unlimited.remove(name);
        let Amounts { bandwidth, iops } = lb.capacity;
        if let Some(capacity) = bandwidth {
            self.by_bandwidth.remove(&(capacity, name.clone()));
        }
        if let Some(capacity) = iops {
            self.by_iops.remove(&(capacity, name.clone()));
        }
        let (Some(bandwidth), Some(iops)) = (bandwidth, iops) else { return };
        let Some(inner) = self.by_both.get_mut(&bandwidth) else { return };
        if let Some(names) = inner.get_mut(&iops) {
            names.remove(name);
            if names.is_empty() {
                inner.remove(&iops);
            }
        }
        if inner.is_empty() {
            self.by_both.remove(&bandwidth);
        }
    }

    fn best(&self, requests: &Amounts, fits: &impl Fn(&Name) -> bool) -> Option<Found> {
        let limited = match [Resource::Bandwidth, Resource::Iops].map(|it| requests.amount(it)) {
            [0, 0] => return first(&self.names, fits),
            [request, 0] => least(&self.by_bandwidth, request, fits),
            [0, request] => least(&self.by_iops, request, fits),
            [bandwidth, iops] => self.both(bandwidth, iops, fits),
        };
        // A load balancer without a limit is never filled: it is the last choice.
        limited.or_else(|| first(&self.unlimited, fits))
    }

    fn both(&self, bandwidth: u64, iops: u64, fits: &impl Fn(&Name) -> bool) -> Option<Found> {
        let mut best: Option<Found> = None;
        let worse = |best: &Option<Found>, fill: Fill| best.as_ref().is_some_and(|it| fill < it.0);
        for (first, inner) in self.by_both.range(bandwidth..) {
            // All that follow have even more bandwidth to spare.
            if worse(&best, Fill::two((bandwidth, *first), (1, 1))) {
                break;
            }
            for (second, names) in inner.range(iops..) {
                let fill = Fill::two((bandwidth, *first), (iops, *second));
                if worse(&best, fill) {
                    break;
                }
                if let Some(name) = names.iter().find(|name| fits(name)) {
                    better(&mut best, Some((fill, name.clone())));
                    break;
                }
            }
        }
        best
    }
}

fn first(names: &BTreeSet<Name>, fits: &impl Fn(&Name) -> bool) -> Option<Found> {
    names.iter().find(|name| fits(name)).map(|name| (Fill::NONE, name.clone()))
}

fn least(
    capacities: &BTreeSet<(u64, Name)>,
    request: u64,
    fits: &impl Fn(&Name) -> bool,
) -> Option<Found> {
    let enough = capacities.range((request, "".into())..);
    let (capacity, name) = enough.into_iter().find(|(_, name)| fits(name))?;
    Some((Fill::one(request, *capacity), name.clone()))
}

fn better(best: &mut Option<Found>, other: Option<Found>) {
    let Some((fill, name)) = other else { return };
    let wins = |(best, first): &Found| fill > *best || (fill == *best && name < *first);
    if best.as_ref().is_none_or(wins) {
        *best = Some((fill, name));
    }
}
