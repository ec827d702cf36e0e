//! Which addresses load balancers serve, or may still serve, for holders: those planned now, and those planned before
//! until an agent has applied the change that removed them. It releases nothing itself. The controller feeds it plans
//! and what Leases prove, and sends the result to the machine as [`super::Event::Serving`], which holds back
//! releases.

use super::machine::Addresses;
use super::record::HolderRef;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// A holder on a load balancer.
type HolderOnLoadBalancer = (HolderRef, Arc<str>);

/// What load balancers serve, by holder.
#[derive(Debug, Default)]
pub struct Serving {
    places: BTreeMap<HolderOnLoadBalancer, Served>,
    /// The holders for which a load balancer may still serve removed addresses, by the change that removed them. While an
    /// agent is silent, only the oldest change of its load balancer is checked, however many holders there are.
    leaving: BTreeMap<Arc<str>, BTreeMap<u64, BTreeSet<HolderRef>>>,
}

/// Holders that load balancers may serve, whichever leader planned that.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Inherited {
    /// The holders, each with a load balancer.
    pub places: Vec<(HolderRef, Arc<str>)>,
    /// The holders that the recorded Plans of a load balancer serve. An agent proves nothing about them before it has
    /// applied this leader's plan.
    pub planned: BTreeMap<Arc<str>, BTreeSet<HolderRef>>,
}

#[derive(Debug, Default)]
struct Served {
    now: Vec<IpAddr>,
    /// Addresses that may still be served until the plan with this change is applied.
    before: Vec<(u64, Vec<IpAddr>)>,
}

impl Serving {
    /// Whether a load balancer serves a holder, or may.
    pub fn has(&self, holder: &HolderRef, load_balancer: &Arc<str>) -> bool {
        self.places.contains_key(&(holder.clone(), load_balancer.clone()))
    }

    /// Plans that from this change on a load balancer serves a holder at these addresses. Returns whether that is
    /// new.
    pub fn plan(
        &mut self,
        holder: &HolderRef,
        load_balancer: &Arc<str>,
        mut now: Vec<IpAddr>,
        change: u64,
    ) -> bool {
        now.sort_unstable();
        now.dedup();
        let place = (holder.clone(), load_balancer.clone());
        if now.is_empty() && !self.places.contains_key(&place) {
            return false;
        }
        let served = self.places.entry(place.clone()).or_default();
        if served.now == now {
            return false;
        }
        let before = std::mem::replace(&mut served.now, now);
        if !before.is_empty() {
            self.leave(place, before, change);
        }
        true
    }

    /// Notes that a load balancer may serve these addresses, whichever leader planned that, until it has applied the
    /// plan of this change.
    fn inherit(
        &mut self,
        holder: HolderRef,
        load_balancer: Arc<str>,
        addresses: Vec<IpAddr>,
        change: u64,
    ) {
        self.leave((holder, load_balancer), addresses, change);
    }

    /// Notes all that load balancers may serve when a leader starts: the addresses that Address objects place on
    /// them, and those of Plans that their holders still have. They count until the load balancer has applied the
    /// plan of this change.
    pub fn inherit_all<'a>(
        &mut self,
        machine: &Addresses,
        plans: impl IntoIterator<Item = (HolderRef, &'a Arc<str>, Vec<IpAddr>)>,
        change: u64,
    ) -> Inherited {
        let mut places = BTreeMap::<HolderOnLoadBalancer, BTreeSet<IpAddr>>::new();
        for (holder, load_balancer, address) in machine.places() {
            let place = (holder.clone(), load_balancer.clone());
            places.entry(place).or_default().insert(address);
        }
        let mut planned = BTreeMap::<Arc<str>, BTreeSet<HolderRef>>::new();
        for (holder, load_balancer, addresses) in plans {
            let held = machine.addresses_of(&holder);
            let mut held = addresses.into_iter().filter(|it| held.contains(it)).peekable();
            if held.peek().is_some() {
                let place = (holder.clone(), load_balancer.clone());
                places.entry(place).or_default().extend(held);
                planned.entry(load_balancer.clone()).or_default().insert(holder);
            }
        }
        let all = places.keys().cloned().collect();
        for ((holder, load_balancer), addresses) in places {
            self.inherit(holder, load_balancer, addresses.into_iter().collect(), change);
        }
        Inherited { places: all, planned }
    }

    /// Records that these addresses may be served until the load balancer has applied `change`. If the same addresses
    /// were removed before, only the later change counts, so a holder that moves to and fro adds no entries.
    fn leave(&mut self, place: HolderOnLoadBalancer, addresses: Vec<IpAddr>, change: u64) {
        let (holder, load_balancer) = place.clone();
        let before = &mut self.places.entry(place).or_default().before;
        let leaving = self.leaving.entry(load_balancer).or_default();
        if let Some(at) = before.iter().position(|(_, it)| *it == addresses) {
            let (old, _) = before.remove(at);
            if let Some(holders) = leaving.get_mut(&old)
                && before.iter().all(|(it, _)| *it != old)
            {
                holders.remove(&holder);
                if holders.is_empty() {
                    leaving.remove(&old);
                }
            }
        }
        before.push((change, addresses));
        leaving.entry(change).or_default().insert(holder);
    }

    /// Forgets what is no longer served; `waits` says whether a load balancer may not have applied a change yet, and
    /// so no later one either. Returns the holders for which less is served now.
    pub fn end(&mut self, waits: impl Fn(&Arc<str>, u64) -> bool) -> BTreeSet<HolderRef> {
        let mut ended = BTreeSet::new();
        let places = &mut self.places;
        self.leaving.retain(|load_balancer, changes| {
            while let Some(first) = changes.first_entry() {
                if waits(load_balancer, *first.key()) {
                    return true;
                }
                let (change, holders) = first.remove_entry();
                for holder in holders {
                    let place = (holder, load_balancer.clone());
                    if let Some(served) = places.get_mut(&place) {
                        served.before.retain(|(it, _)| *it != change);
                        if served.before.is_empty() && served.now.is_empty() {
                            places.remove(&place);
                        }
                    }
                    ended.insert(place.0);
                }
            }
            false
        });
        ended
    }

    /// All addresses that are or may be served for a holder, each with its load balancer; sorted.
    pub fn of(&self, holder: &HolderRef) -> Vec<(IpAddr, Arc<str>)> {
        let places = self.places.range((holder.clone(), Arc::from(""))..);
        let mut served: Vec<_> = places
            .take_while(|((it, _), _)| it == holder)
            .flat_map(|((_, load_balancer), it)| {
                let before = it.before.iter().flat_map(|(_, before)| before);
                it.now.iter().chain(before).map(|address| (*address, Arc::clone(load_balancer)))
            })
            .collect();
        served.sort_unstable();
        served.dedup();
        served
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addresses::HolderKind;
    use crate::key::ObjectKey;

    fn web() -> HolderRef {
        let key = ObjectKey::new("shop", "web");
        HolderRef { key, kind: HolderKind::Service, uid: "1".into() }
    }

    fn ips(last: &[u8]) -> Vec<IpAddr> {
        last.iter().map(|it| [192, 0, 2, *it].into()).collect()
    }

    fn all(serving: &Serving) -> Vec<IpAddr> {
        serving.of(&web()).into_iter().map(|(address, _)| address).collect()
    }

    #[test]
    fn what_was_planned_counts_until_the_change_that_took_it_away_is_applied() {
        let (mut serving, edge) = (Serving::default(), Arc::from("edge"));
        assert!(serving.plan(&web(), &edge, ips(&[1]), 1));
        assert!(!serving.plan(&web(), &edge, ips(&[1]), 2), "no news");
        assert!(serving.plan(&web(), &edge, ips(&[2]), 3));
        assert_eq!(all(&serving), ips(&[1, 2]));
        assert!(serving.end(|_, change| change > 2).is_empty());
        assert_eq!(all(&serving), ips(&[1, 2]));
        assert_eq!(serving.end(|_, _| false), [web()].into());
        assert_eq!(all(&serving), ips(&[2]));
        assert!(serving.plan(&web(), &edge, ips(&[]), 4));
        serving.end(|_, _| false);
        assert!(!serving.has(&web(), &edge));
    }

    #[test]
    fn what_somebody_has_on_two_load_balancers_counts_on_both() {
        let (mut serving, a, b) = (Serving::default(), Arc::from("a"), Arc::from("b"));
        serving.plan(&web(), &a, ips(&[1]), 1);
        serving.plan(&web(), &b, ips(&[2]), 1);
        serving.plan(&web(), &a, ips(&[]), 2);
        assert_eq!(all(&serving), ips(&[1, 2]));
        serving.end(|lb, _| *lb == b);
        assert_eq!(serving.of(&web()), [(ips(&[2])[0], b)]);
    }

    #[test]
    fn what_is_inherited_counts_until_our_own_plan_is_applied() {
        let (mut serving, edge) = (Serving::default(), Arc::<str>::from("edge"));
        serving.inherit(web(), edge.clone(), ips(&[1]), 7);
        serving.plan(&web(), &edge, ips(&[2]), 8);
        assert!(serving.end(|_, change| change > 6).is_empty());
        assert_eq!(all(&serving), ips(&[1, 2]));
        serving.end(|_, change| change > 7);
        assert_eq!(all(&serving), ips(&[2]));
    }

    #[test]
    fn an_agent_that_is_away_costs_one_look_however_much_it_serves() {
        let (mut serving, edge) = (Serving::default(), Arc::<str>::from("edge"));
        for uid in 0..1_000 {
            let holder = HolderRef { uid: uid.to_string().into(), ..web() };
            serving.inherit(holder, edge.clone(), ips(&[1]), 7);
        }
        let looks = std::cell::Cell::new(0);
        let ended = serving.end(|_, _| looks.replace(looks.get() + 1) < usize::MAX);
        assert_eq!((ended.len(), looks.get()), (0, 1));
        assert_eq!(serving.end(|_, _| false).len(), 1_000);
        assert!(serving.places.is_empty() && serving.leaving.is_empty());
    }

    #[test]
    fn who_moves_to_and_fro_while_an_agent_is_away_does_not_pile_up() {
        let (mut serving, edge) = (Serving::default(), Arc::<str>::from("edge"));
        for change in 1..100 {
            serving.plan(&web(), &edge, ips(&[(change % 2) as u8]), change);
        }
        assert_eq!(serving.places[&(web(), edge.clone())].before.len(), 2);
        serving.end(|_, change| change > 98);
        assert_eq!(all(&serving), ips(&[0, 1]), "the last move is yet to be applied");
        serving.end(|_, _| false);
        assert_eq!(all(&serving), ips(&[1]));
        assert!(serving.leaving.is_empty());
    }
}
