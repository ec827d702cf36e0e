//! Where consumers sit: on which load balancer, and what they want there. It moves them, and says
//! whom a move touches: only those who want the same port, host or path.

use super::few::Edges;
use super::placement::{Ask, Refusal};
use super::ports::Ports;
use super::who::{Age, Contender, Who};
use crate::update::ListenerKey;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Where a consumer of ours sits.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Seat {
    /// Nowhere.
    Refused(Refusal),
    /// On a load balancer.
    Placed(Placed),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Placed {
    pub(super) lb: Arc<str>,
    pub(super) age: Age,
    pub(super) wants: Wants,
}

/// What it wants there.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Wants {
    /// Listeners, sorted.
    Ports(Vec<ListenerKey>),
}

/// What is contended for on one load balancer.
#[derive(Debug, Default)]
pub(super) struct Ground {
    pub(super) ports: Ports,
}

impl Ground {
    fn is_empty(&self) -> bool {
        self.ports.is_empty()
    }
}

#[derive(Debug, Default)]
pub(super) struct Seats {
    seats: FxHashMap<Who, (Option<Ask>, Seat)>,
    asks: Edges<Ask, Who>,
    grounds: BTreeMap<Arc<str>, Ground>,
}

impl Seats {
    pub(super) fn get(&self, who: &Who) -> Option<&Seat> {
        self.seats.get(who).map(|(_, seat)| seat)
    }

    pub(super) fn ground(&self, lb: &str) -> Option<&Ground> {
        self.grounds.get(lb)
    }

    /// Those who ask for this.
    pub(super) fn asking(&self, ask: &Ask) -> impl Iterator<Item = &Who> {
        self.asks.of(ask)
    }

    /// Seats a consumer anew; None: it is gone or not ours. All whom that touches are added to
    /// `touched`, itself among them if its seat is another one.
    pub(super) fn set(
        &mut self,
        who: &Who,
        seat: Option<(Option<Ask>, Seat)>,
        touched: &mut BTreeSet<Who>,
    ) {
        let old = self.seats.remove(who);
        if old == seat {
            self.seats.extend(old.map(|old| (who.clone(), old)));
            return;
        }
        touched.insert(who.clone());
        if let Some((Some(ask), _)) = &old {
            self.asks.remove(ask, who);
        }
        if let Some((Some(ask), _)) = &seat {
            self.asks.insert(ask.clone(), who.clone());
        }
        let placed = |seat: &Option<(Option<Ask>, Seat)>| match seat {
            Some((_, Seat::Placed(placed))) => Some(placed.clone()),
            _ => None,
        };
        self.contend(who, placed(&old).as_ref(), placed(&seat).as_ref(), touched);
        self.seats.extend(seat.map(|seat| (who.clone(), seat)));
    }

    fn contend(
        &mut self,
        who: &Who,
        old: Option<&Placed>,
        new: Option<&Placed>,
        touched: &mut BTreeSet<Who>,
    ) {
        let stays = old.zip(new).is_some_and(|(old, new)| old.lb == new.lb && old.age == new.age);
        let ports = |placed: Option<&Placed>| -> BTreeSet<ListenerKey> {
            match placed.map(|placed| &placed.wants) {
                Some(Wants::Ports(keys)) => keys.iter().copied().collect(),
                None => BTreeSet::new(),
            }
        };
        let (before, after) = (ports(old), ports(new));
        let kept: BTreeSet<_> =
            if stays { before.intersection(&after).copied().collect() } else { BTreeSet::new() };
        if let Some(old) = old
            && let Some(ground) = self.grounds.get_mut(&old.lb)
        {
            let me = Contender { age: old.age.clone(), who: who.clone() };
            for key in before.difference(&kept) {
                ground.ports.leave(*key, &me, touched);
            }
        }
        if let Some(new) = new {
            let ground = self.grounds.entry(new.lb.clone()).or_default();
            let me = Contender { age: new.age.clone(), who: who.clone() };
            for key in after.difference(&kept) {
                ground.ports.enter(*key, &me, touched);
            }
        }
        if let Some(old) = old
            && self.grounds.get(&old.lb).is_some_and(Ground::is_empty)
        {
            self.grounds.remove(&old.lb);
        }
    }
}
