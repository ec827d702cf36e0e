//! The load balancers of a consumer that moves from one to another. It stays where a Plan records it until it has a
//! seat on the new load balancer and has been served there for long enough. A request that cannot be met changes
//! nothing, so a load balancer that is being deleted keeps its consumers and gets no new ones. Only records count, so a
//! new leader comes to the same result.

use super::Planner;
use super::asked_load_balancer::{Ask, Asked, Refusal, may_stay, place};
use super::assignments::Assignment;
use super::consumer::ConsumerKey;
use crate::admission::Decision;
use crate::key::ConsumerRef;
use crate::objects::LoadBalancer;
use crate::plan::BY_NAME;
use std::net::IpAddr;
use std::sync::Arc;

/// The load balancer of a consumer, and those from which it comes.
pub(super) struct Way<'a> {
    /// The load balancer that it is on.
    pub(super) lb: &'a Arc<LoadBalancer>,
    /// Why it is not on the load balancer that it asks for.
    pub(super) unmet: Option<Refusal>,
    /// The load balancers on which it stays as well, by name.
    pub(super) before: Vec<&'a Arc<LoadBalancer>>,
}

impl Planner {
    /// The load balancers of a consumer with this request.
    pub(super) fn way(
        &self,
        asked: &Asked,
        who: &ConsumerKey,
        uid: &Arc<str>,
    ) -> Result<Way<'_>, Refusal> {
        let namespace = &who.key.namespace;
        let labels = self.stores.namespaces.get(namespace).map(|labels| &**labels);
        let refusal = match place(asked, namespace, labels, &self.stores) {
            Ok(lb) => match self.seated(lb, who, uid) {
                Ok(()) => {
                    let before = self.before(lb, who, uid);
                    return Ok(Way { lb, unmet: None, before });
                }
                Err(refusal) => refusal,
            },
            Err(refusal) if asked.ask == Ask::Nothing => return Err(refusal),
            Err(refusal) => refusal,
        };
        let mut stays = self.recorded_on(refusal.load_balancer.as_ref(), who, uid);
        // A consumer that waits for a seat on a load balancer has none there, so it cannot stay there.
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

    /// The load balancers from which a consumer comes, until it has arrived on this one. Those that have an address in
    /// common with it are left out: they would take connections from each other.
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

    /// The load balancers on which Plans record a consumer, except `but`, and on which it still may be.
    fn recorded_on(
        &self,
        but: Option<&Arc<str>>,
        who: &ConsumerKey,
        uid: &Arc<str>,
    ) -> Vec<&Arc<LoadBalancer>> {
        let namespace = &who.key.namespace;
        let labels = self.stores.namespaces.get(namespace).map(|labels| &**labels);
        let may_be = |name: &Arc<str>| may_stay(name, namespace, labels, &self.stores);
        let recorded = self.recorded.on(&who.with_uid(uid));
        recorded.into_iter().filter(|name| Some(*name) != but).filter_map(may_be).collect()
    }

    /// Whether Plans record a consumer on a load balancer to which it does not go, or it is planned there.
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

    /// A load balancer has served a consumer for long enough.
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
