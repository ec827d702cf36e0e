//! Which addresses load balancers serve for their holders, or may still serve: what is planned now, and
//! what was planned before until an agent has applied the change that took it away. The controller tells
//! it of plans and of what Leases prove; what it says goes to the machine as [`super::Event::Serving`]
//! and holds back releases.

use super::record::HolderRef;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// Somebody on a load balancer.
type Place = (HolderRef, Arc<str>);

/// What load balancers serve, for whom.
#[derive(Debug, Default)]
pub struct Serving {
    places: BTreeMap<Place, Served>,
    /// Where something may still be served that is no longer planned.
    leaving: BTreeSet<Place>,
}

#[derive(Debug, Default)]
struct Served {
    now: Vec<IpAddr>,
    /// What may still be served, until the plan with this change is applied.
    before: Vec<(u64, Vec<IpAddr>)>,
}

impl Serving {
    /// Whether a load balancer serves somebody, or may.
    pub fn has(&self, holder: &HolderRef, load_balancer: &Arc<str>) -> bool {
        self.places.contains_key(&(holder.clone(), load_balancer.clone()))
    }

    /// From this change on a load balancer is to serve somebody at these addresses. Whether that is news.
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
        served.before.push((change, std::mem::replace(&mut served.now, now)));
        self.leaving.insert(place);
        true
    }

    /// A load balancer may serve these, whoever planned it, until it has applied the plan of this change.
    pub fn inherit(
        &mut self,
        holder: HolderRef,
        load_balancer: Arc<str>,
        addresses: Vec<IpAddr>,
        change: u64,
    ) {
        let place = (holder, load_balancer);
        self.leaving.insert(place.clone());
        self.places.entry(place).or_default().before.push((change, addresses));
    }

    /// What is served no longer is forgotten; `waits` says whether a load balancer may still be without
    /// a change. Returns those for whom less is served now.
    pub fn end(&mut self, waits: impl Fn(&Arc<str>, u64) -> bool) -> BTreeSet<HolderRef> {
        let mut ended = BTreeSet::new();
        for place in std::mem::take(&mut self.leaving) {
            let Some(served) = self.places.get_mut(&place) else { continue };
            let before = served.before.len();
            served.before.retain(|(change, _)| waits(&place.1, *change));
            if served.before.len() != before {
                ended.insert(place.0.clone());
            }
            if !served.before.is_empty() {
                self.leaving.insert(place);
            } else if served.now.is_empty() {
                self.places.remove(&place);
            }
        }
        ended
    }

    /// All that is served for somebody, or may be, and where; sorted.
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
        assert_eq!(
            serving.end(|_, change| change > 2),
            [web()].into(),
            "what was before the first"
        );
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
        serving.end(|_, change| change > 8);
        assert_eq!(all(&serving), ips(&[2]));
    }
}
