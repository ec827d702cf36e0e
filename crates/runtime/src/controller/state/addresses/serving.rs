//! What load balancers serve at addresses of pools, and may still serve: told to the machine, which
//! releases nothing of it. The books are `bowline_core::addresses::Serving`'s; Leases are the proof.

use super::*;
use bowline_core::planner::Grant;

/// What the machine knows a consumer as. None: one that has no addresses of its own.
fn holder_of(consumer: &ConsumerRef) -> Option<HolderRef> {
    let kind = match consumer.kind {
        ConsumerKind::Service => HolderKind::Service,
        ConsumerKind::LoadBalancer => HolderKind::LoadBalancer,
        ConsumerKind::Ingress => return None,
    };
    Some(HolderRef { key: key(consumer), kind, uid: Arc::clone(&consumer.uid) })
}

fn consumer_of(holder: HolderRef) -> Option<ConsumerRef> {
    let HolderRef { key: ObjectKey { namespace, name }, kind, uid } = holder;
    Some(ConsumerRef { kind: kind_of(kind)?, namespace, name, uid })
}

impl State {
    /// A load balancer is to serve a Service at these addresses from this change on.
    pub(in crate::controller::state) fn serve(
        &mut self,
        consumer: &ConsumerRef,
        lb: &Arc<str>,
        now: Vec<IpAddr>,
    ) {
        let known = self.pooled.known.contains(&(consumer.kind, key(consumer)));
        let holder = holder_of(consumer).filter(|it| it.kind == HolderKind::Service);
        let Some(holder) = holder.filter(|it| known || self.pooled.serving.has(it, lb)) else {
            return;
        };
        if self.pooled.serving.plan(&holder, lb, now, self.change) {
            self.tell_served(holder);
        }
    }

    /// A load balancer has these addresses of its pool, and serves everybody there, from the next change
    /// on.
    pub(super) fn serve_at(&mut self, holder: &HolderRef, grant: &Grant) {
        let (lb, change) = (&holder.key.name, self.change + 1);
        if !self.pooled.serving.plan(holder, lb, grant.served(), change) {
            return;
        }
        self.tell_served(holder.clone());
        if self.balancers.get(lb).is_some() {
            self.met.insert(Arc::clone(lb));
            let who = (ConsumerKind::LoadBalancer, holder.key.clone());
            self.tracked.entry(who).or_default().changed = change;
        }
    }

    /// What Plans hold, and what Addresses say is on a load balancer, may be served, whoever planned it,
    /// until an agent has applied our first plan.
    pub(super) fn inherit(&mut self) {
        if self.pooled.inherited || !self.pooled.leads || !self.is_complete() {
            return;
        }
        self.pooled.inherited = true;
        let change = self.change + 1;
        let plans = self.planner.recorded();
        let plans = plans.filter_map(|(lb, who, at)| Some((holder_of(who)?, lb, at)));
        let inherited = self.pooled.serving.inherit_all(&self.pooled.machine, plans, change);
        for (lb, holders) in inherited.planned {
            let consumers = holders.into_iter().filter_map(consumer_of).collect();
            if let Some(plans) = self.plans.get_mut(&lb) {
                plans.doubt(&consumers, change);
            }
        }
        for (holder, lb) in inherited.places {
            if self.balancers.get(&lb).is_some() {
                self.met.insert(lb);
            }
            self.tell_served(holder);
        }
    }

    /// What load balancers have ceased to serve may be released.
    pub(super) fn end_served(&mut self, now: Instant) {
        let mut serving = std::mem::take(&mut self.pooled.serving);
        let ended = serving.end(|lb, change| {
            let driven = self.balancers.get(lb).map(|shown| shown.status.driven);
            self.history.may_serve(lb, driven, &self.claims(lb, now), change)
        });
        self.pooled.serving = serving;
        ended.into_iter().for_each(|holder| self.tell_served(holder));
    }

    fn tell_served(&mut self, holder: HolderRef) {
        let places = self.pooled.serving.of(&holder);
        self.pooled.tell(Told::Serving { holder, places });
    }
}
