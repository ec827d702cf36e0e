//! Seats on load balancers that count them. The planner says which consumers belong on a load balancer and with which
//! amounts, and places consumers that have a seat. [`crate::admission`] decides which consumers get one.

use super::allowed_namespaces::allows;
use super::asked_load_balancer::{
    Ask, Refusal, ask_of_ingress, ask_of_service, ingress_not_ours, not_ours, place,
};
use super::consumer::ConsumerKey;
use super::{Object, Planner};
use crate::admission::{Decision, Want};
use crate::key::{ConsumerKind, ConsumerRef, ObjectKey};
use crate::objects::{IngressClass, LoadBalancer, LoadBalancerClaim, Namespace};
use crate::outcome::{Problem, Reason};
use crate::resources::Amounts;
use rustc_hash::FxHashMap;
use std::mem::take;
use std::sync::Arc;

/// The answers of the API about a consumer that seems to have left a load balancer.
#[derive(Clone, Debug, PartialEq)]
pub struct Read {
    /// The Service or Ingress.
    pub consumer: Object,
    /// Its namespace.
    pub namespace: Option<Namespace>,
    /// The class of an Ingress.
    pub class: Option<IngressClass>,
    /// The claim that the load balancer names.
    pub claim: Option<LoadBalancerClaim>,
}

/// The seats that consumers want, and the admission's decisions on them.
#[derive(Debug, Default)]
pub(super) struct Admitted {
    wants: FxHashMap<ConsumerKey, Want>,
    decisions: FxHashMap<ConsumerKey, (Arc<str>, Decision)>,
    /// The amounts of consumers that stay on a load balancer and belong elsewhere.
    stays: FxHashMap<(ConsumerRef, Arc<str>), Amounts>,
}

impl Planner {
    /// The seats that consumers want, as far as that changed: one on a load balancer that counts seats, or none. Called
    /// before [`Planner::take`], which plans by the decisions on them.
    pub fn wants(&mut self) -> Vec<(ConsumerRef, Option<Want>)> {
        let mut told = Vec::new();
        let decided = take(&mut self.decided);
        for who in self.to_assign.union(&decided) {
            let want = self.want(who);
            let old = self.admitted.wants.get(who);
            if old == want.as_ref() {
                continue;
            }
            let is_same = |old: &&Want| want.as_ref().is_some_and(|it| it.consumer == old.consumer);
            told.extend(old.filter(|old| !is_same(old)).map(|old| (old.consumer.clone(), None)));
            match want {
                Some(want) => {
                    told.push((want.consumer.clone(), Some(want.clone())));
                    self.admitted.wants.insert(who.clone(), want);
                }
                None => _ = self.admitted.wants.remove(who),
            }
        }
        told
    }

    fn want(&self, who: &ConsumerKey) -> Option<Want> {
        let (uid, created, requests, asked) = match who.kind {
            ConsumerKind::Service => {
                let it = self.service(who)?;
                let asked = ask_of_service(&it, &self.config);
                (it.uid.clone(), it.created, it.requests.clone(), asked)
            }
            ConsumerKind::Ingress => {
                let (it, class) = self.ingress(who)?;
                if ingress_not_ours(&it, Some(class)).is_some() {
                    return None;
                }
                let asked = ask_of_ingress(&it, class, &self.config);
                (it.uid.clone(), it.created, it.requests.clone(), asked)
            }
            ConsumerKind::LoadBalancer => return None,
        };
        let asked = asked.ok()?;
        let way = self.way(&asked, who, &uid);
        let namespace = &who.key.namespace;
        let labels = self.stores.namespaces.get(namespace).map(|labels| &**labels);
        let goes = place(&asked, namespace, labels, &self.stores).ok();
        let stays = way.into_iter().flat_map(|way| [way.lb].into_iter().chain(way.before));
        let mut on: Vec<&Arc<LoadBalancer>> = goes.into_iter().collect();
        for lb in stays {
            if !on.iter().any(|it| it.name == lb.name) {
                on.push(lb);
            }
        }
        // First the load balancer to which the consumer goes, then those on which it stays.
        let mut on = on.into_iter().filter(|lb| lb.counted).map(|lb| lb.name.clone());
        let load_balancer = on.next()?;
        let (consumer, keeps) = (who.with_uid(&uid), on.collect());
        Some(Want { consumer, created, load_balancer, requests, keeps })
    }

    /// Whether a consumer belongs on a load balancer, or stays there until it can be where it belongs.
    pub fn keeps(&self, consumer: &ConsumerRef, load_balancer: &str) -> bool {
        let want = self.admitted.wants.get(&ConsumerKey::of(consumer));
        want.filter(|it| it.consumer == *consumer).is_some_and(|it| {
            *it.load_balancer == *load_balancer || it.keeps.iter().any(|lb| **lb == *load_balancer)
        })
    }

    /// Whether a consumer, as fresh reads of the API show it, belongs on a load balancer. Where its request cannot be
    /// read, its recorded place counts. The load balancer itself is taken from the planner's index: a write based on
    /// the answer uses that version of it.
    pub fn belongs(&self, read: &Read, load_balancer: &str) -> bool {
        let Some(lb) = self.stores.directory.by_name(load_balancer) else { return false };
        let (asked, key, consumer) = match &read.consumer {
            Object::Service(it) if not_ours(it, &self.config).is_none() => {
                let consumer = ConsumerKey::service(&it.key).with_uid(&it.uid);
                (ask_of_service(it, &self.config), &it.key, consumer)
            }
            Object::Ingress(it) => match &read.class {
                Some(class) if ingress_not_ours(it, Some(class)).is_none() => {
                    let consumer = ConsumerKey::ingress(&it.key).with_uid(&it.uid);
                    (ask_of_ingress(it, class, &self.config), &it.key, consumer)
                }
                _ => return false,
            },
            _ => return false,
        };
        let Ok(asked) = asked else {
            let on = self.recorded.on(&consumer);
            return on.is_empty() || on.iter().any(|name| ***name == *load_balancer);
        };
        let has = |claim: &ObjectKey, uid: &str| {
            let known = read.claim.as_ref();
            known.is_some_and(|it| it.key == *claim && *it.uid == *uid)
        };
        let may_use = || allows(lb, &key.namespace, read.namespace.as_ref(), has);
        match &asked.ask {
            Ask::Claim(claim) => match &lb.claim {
                Some((key, Some(uid))) => key == claim && has(key, uid),
                _ => false,
            },
            Ask::Name(name) => *name == lb.name && may_use(),
            Ask::Source(_) | Ask::External | Ask::Nothing => {
                let labels = read.namespace.as_ref();
                place(&asked, &key.namespace, labels, &self.stores)
                    .is_ok_and(|lb| *lb.name == *load_balancer)
            }
        }
    }

    /// Takes the admission's decision on a consumer. None: there is no decision any more.
    pub(super) fn admit(&mut self, consumer: &ConsumerRef, decision: Option<Decision>) {
        let who = ConsumerKey::of(consumer);
        let decisions = &mut self.admitted.decisions;
        let news = decision.map(|decision| (consumer.uid.clone(), decision));
        if decisions.get(&who) == news.as_ref() {
            return;
        }
        match news {
            Some(news) => _ = decisions.insert(who.clone(), news),
            // A decision on another object of the same name stays.
            None if decisions.get(&who).is_some_and(|(uid, _)| *uid == consumer.uid) => {
                decisions.remove(&who);
            }
            None => return,
        }
        self.decided.insert(who.clone());
        self.touch(who);
    }

    /// Whether a consumer that belongs on a load balancer may be there.
    pub(super) fn seated(
        &self,
        lb: &LoadBalancer,
        who: &ConsumerKey,
        uid: &Arc<str>,
    ) -> Result<(), Refusal> {
        if !lb.counted {
            return Ok(());
        }
        match self.decision(lb, who, uid) {
            Some(Decision::Admitted { .. }) => Ok(()),
            Some(Decision::Waiting { problem, .. }) => Err(Refusal::by(lb, problem.clone())),
            None => {
                let message = format!("its seat on load balancer {} is being recorded", lb.name);
                Err(Refusal::by(lb, Problem::new(Reason::SeatPending, message)))
            }
        }
    }

    /// A consumer that belongs elsewhere stays on a load balancer with these amounts.
    pub(super) fn stay(&mut self, who: ConsumerRef, lb: Arc<str>, amounts: Option<Amounts>) {
        let (stays, touched) = (&mut self.admitted.stays, ConsumerKey::of(&who));
        let old = match amounts {
            Some(amounts) => stays.insert((who, lb), amounts),
            None => stays.remove(&(who, lb)),
        };
        if old != amounts {
            self.touch(touched);
        }
    }

    /// The amounts with which a consumer was admitted.
    pub(super) fn admitted_with(
        &self,
        lb: &LoadBalancer,
        who: &ConsumerKey,
        uid: &Arc<str>,
    ) -> Option<Amounts> {
        match self.decision(lb, who, uid) {
            Some(Decision::Admitted { requests, .. }) => Some(*requests),
            Some(Decision::Waiting { .. }) => None,
            None => self.admitted.stays.get(&(who.with_uid(uid), lb.name.clone())).copied(),
        }
    }

    /// Why a consumer with a seat does not have all that it requests.
    pub(super) fn short(
        &self,
        lb: &LoadBalancer,
        who: &ConsumerKey,
        uid: &Arc<str>,
    ) -> Option<Problem> {
        match self.decision(lb, who, uid).filter(|_| lb.counted)? {
            Decision::Admitted { short, .. } => short.clone(),
            Decision::Waiting { .. } => None,
        }
    }

    /// The decision on a consumer on a load balancer.
    pub(super) fn decision(
        &self,
        lb: &LoadBalancer,
        who: &ConsumerKey,
        uid: &Arc<str>,
    ) -> Option<&Decision> {
        let (decided, decision) = self.admitted.decisions.get(who)?;
        let (Decision::Admitted { load_balancer, .. } | Decision::Waiting { load_balancer, .. }) =
            decision;
        (decided == uid && *load_balancer == lb.name).then_some(decision)
    }
}
