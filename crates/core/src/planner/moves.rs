//! Where somebody is while it moves from one load balancer to another. It stays where a Plan has it until it
//! has a seat where it goes, and until it has been served there for long enough; a wish that is not met
//! changes nothing. Only what is recorded counts, so a new leader finds the same.

use super::Planner;
use super::assignments::Assignment;
use super::consumer::ConsumerKey;
use super::placement::{Ask, Refusal, place};
use crate::admission::Decision;
use crate::key::ConsumerRef;
use crate::objects::LoadBalancer;
use crate::plan::BY_NAME;
use std::net::IpAddr;
use std::sync::Arc;

/// Where somebody is, and where it comes from.
pub(super) struct Way<'a> {
    /// The load balancer that it is on.
    pub(super) lb: &'a Arc<LoadBalancer>,
    /// Why that is not the one that it asks for.
    pub(super) unmet: Option<Refusal>,
    /// Those on which it stays beside, by name.
    pub(super) before: Vec<&'a Arc<LoadBalancer>>,
}

impl Planner {
    /// Which load balancers somebody is on that asks for this one.
    pub(super) fn way(
        &self,
        ask: &Ask,
        who: &ConsumerKey,
        uid: &Arc<str>,
    ) -> Result<Way<'_>, Refusal> {
        let namespace = &who.key.namespace;
        let labels = self.stores.namespaces.get(namespace).map(|labels| &**labels);
        let refusal = match place(ask, namespace, labels, &self.stores) {
            Ok(lb) => match self.seated(lb, who, uid) {
                Ok(()) => {
                    let before = self.before(lb, who, uid);
                    return Ok(Way { lb, unmet: None, before });
                }
                Err(refusal) => refusal,
            },
            Err(refusal) if *ask == Ask::Nothing => return Err(refusal),
            Err(refusal) => refusal,
        };
        let mut stays = self.recorded_on(refusal.load_balancer.as_ref(), who, uid);
        // A seat that it does not get where it stays is one that it does not have.
        let unseated = |lb: &LoadBalancer| {
            let decision = self.decision(lb, who, uid).filter(|_| lb.counted);
            matches!(decision, Some(Decision::Waiting { .. }))
        };
        stays.retain(|lb| !unseated(lb));
        if stays.is_empty() {
            return Err(refusal);
        }
        let lb = stays.remove(0);
        Ok(Way { lb, unmet: Some(refusal), before: stays })
    }

    /// Where somebody who is on a load balancer was before, until it has arrived. Two that have an
    /// address in common would take connections from each other.
    fn before(
        &self,
        lb: &LoadBalancer,
        who: &ConsumerKey,
        uid: &Arc<str>,
    ) -> Vec<&Arc<LoadBalancer>> {
        let arrived = self.arrived.get(who);
        if arrived.is_some_and(|(it, at)| it == uid && *at == lb.name) {
            return Vec::new();
        }
        let mut before = self.recorded_on(Some(&lb.name), who, uid);
        if !before.is_empty() {
            let directory = &self.stores.directory;
            let here = directory.addresses(lb);
            let common = |at: &IpAddr| *at != BY_NAME && here.contains(at);
            before.retain(|it| !directory.addresses(it).iter().any(common));
        }
        before
    }

    /// The load balancers on which Plans have somebody, but for one, and on which it may still be.
    fn recorded_on(
        &self,
        but: Option<&Arc<str>>,
        who: &ConsumerKey,
        uid: &Arc<str>,
    ) -> Vec<&Arc<LoadBalancer>> {
        let namespace = &who.key.namespace;
        let labels = self.stores.namespaces.get(namespace).map(|labels| &**labels);
        let may_be =
            |name: &Arc<str>| place(&Ask::Name(name.clone()), namespace, labels, &self.stores).ok();
        let recorded = self.recorded.on(&who.with_uid(uid));
        recorded.into_iter().filter(|name| Some(*name) != but).filter_map(may_be).collect()
    }

    /// Whether Plans have somebody where it does not go, or it is planned there.
    pub(super) fn is_elsewhere(&self, who: &ConsumerKey, consumer: &ConsumerRef) -> bool {
        match self.assignments.get(who) {
            Some(Assignment::Placed(placed)) => {
                let moves = placed.unmet.is_some() || !placed.before.is_empty();
                moves || self.recorded.on(consumer).iter().any(|name| **name != placed.lb)
            }
            Some(Assignment::Refused(_)) => true,
            None => false,
        }
    }

    /// A load balancer has served somebody for long enough.
    pub(super) fn arrive(&mut self, consumer: &ConsumerRef, lb: Option<Arc<str>>) {
        let who = ConsumerKey::of(consumer);
        let news = lb.map(|lb| (consumer.uid.clone(), lb));
        if self.arrived.get(&who) != news.as_ref() {
            match news {
                Some(news) => _ = self.arrived.insert(who.clone(), news),
                None => _ = self.arrived.remove(&who),
            }
            self.touch(who);
        }
    }
}
