//! Which pool addresses load balancers serve, or may still serve. The machine gets it and releases none of them.
//! `bowline_core::addresses::Serving` keeps the records; agents' Leases are the proof.

use super::super::consumers::key;
use super::{AddressShell, kind_of};
use bowline_core::addresses::{Event, HolderKind, HolderRef, Inherited};
use bowline_core::key::{ConsumerKind, ConsumerRef, ObjectKey};
use std::net::IpAddr;
use std::sync::Arc;

/// A consumer in the address machine's terms. None: it has no addresses of its own.
fn holder_of(consumer: &ConsumerRef) -> Option<HolderRef> {
    let kind = match consumer.kind {
        ConsumerKind::Service => HolderKind::Service,
        ConsumerKind::LoadBalancer => HolderKind::LoadBalancer,
        ConsumerKind::Ingress => return None,
    };
    Some(HolderRef { key: key(consumer), kind, uid: Arc::clone(&consumer.uid) })
}

/// A holder as a consumer. None: an ExternalIP is no consumer.
pub(in crate::controller) fn consumer_of(holder: HolderRef) -> Option<ConsumerRef> {
    let HolderRef { key: ObjectKey { namespace, name }, kind, uid } = holder;
    Some(ConsumerRef { kind: kind_of(kind)?, namespace, name, uid })
}

impl AddressShell {
    /// Records that a load balancer serves a Service at these addresses from this change on.
    pub(in crate::controller) fn serve(
        &mut self,
        consumer: &ConsumerRef,
        lb: &Arc<str>,
        addresses: Vec<IpAddr>,
        change: u64,
    ) {
        let known = self.known.contains(&(consumer.kind, key(consumer)));
        let holder = holder_of(consumer).filter(|it| it.kind == HolderKind::Service);
        if let Some(holder) = holder.filter(|it| known || self.serving.has(it, lb)) {
            self.serve_holder(holder, lb, addresses, change);
        }
    }

    /// Records that a load balancer serves a holder at these addresses from this change on. Returns whether that
    /// changed.
    pub(in crate::controller) fn serve_holder(
        &mut self,
        holder: HolderRef,
        lb: &Arc<str>,
        addresses: Vec<IpAddr>,
        change: u64,
    ) -> bool {
        let news = self.serving.plan(&holder, lb, addresses, change);
        if news {
            self.tell_served(holder);
        }
        news
    }

    /// Records what Plans hold and what Addresses name a load balancer for: it may be served, whichever leader
    /// planned it, until an agent has applied this leader's first plan. None: already done, or another process
    /// leads.
    pub(in crate::controller) fn inherit<'a>(
        &mut self,
        plans: impl Iterator<Item = (&'a Arc<str>, &'a ConsumerRef, Vec<IpAddr>)>,
        change: u64,
    ) -> Option<Inherited> {
        if !self.leads || std::mem::replace(&mut self.inherited, true) {
            return None;
        }
        let plans = plans.filter_map(|(lb, consumer, at)| Some((holder_of(consumer)?, lb, at)));
        let inherited = self.serving.inherit_all(&self.machine, plans, change);
        for (holder, _) in &inherited.places {
            self.tell_served(holder.clone());
        }
        Some(inherited)
    }

    /// Releases what load balancers no longer serve. `may_serve` says whether a load balancer may still serve what a
    /// change removed.
    pub(in crate::controller) fn end_served(&mut self, may_serve: impl Fn(&Arc<str>, u64) -> bool) {
        for holder in self.serving.end(may_serve) {
            self.tell_served(holder);
        }
    }

    fn tell_served(&mut self, holder: HolderRef) {
        let places = self.serving.of(&holder);
        self.tell(Event::Serving { holder, places });
    }
}
