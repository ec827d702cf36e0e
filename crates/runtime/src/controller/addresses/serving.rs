//! What load balancers serve at addresses of pools, and may still serve: told to the machine, which releases nothing
//! of it. `bowline_core::addresses::Serving` keeps the books; agents' Leases are the proof.

use super::super::consumers::key;
use super::{AddressShell, kind_of};
use bowline_core::addresses::{Event, HolderKind, HolderRef, Inherited};
use bowline_core::key::{ConsumerKind, ConsumerRef, ObjectKey};
use std::net::IpAddr;
use std::sync::Arc;

/// A consumer as the address machine knows it. None: it has no addresses of its own.
fn holder_of(consumer: &ConsumerRef) -> Option<HolderRef> {
    let kind = match consumer.kind {
        ConsumerKind::Service => HolderKind::Service,
        ConsumerKind::LoadBalancer => HolderKind::LoadBalancer,
        ConsumerKind::Ingress => return None,
    };
    Some(HolderRef { key: key(consumer), kind, uid: Arc::clone(&consumer.uid) })
}

/// A holder as a consumer. None: an ExternalIP, which is none.
pub(in crate::controller) fn consumer_of(holder: HolderRef) -> Option<ConsumerRef> {
    let HolderRef { key: ObjectKey { namespace, name }, kind, uid } = holder;
    Some(ConsumerRef { kind: kind_of(kind)?, namespace, name, uid })
}

impl AddressShell {
    /// A load balancer serves a Service at these addresses from this change on.
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

    /// A load balancer serves a holder at these addresses from this change on. Whether that is news.
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

    /// What Plans hold, and what Addresses say is on a load balancer, may be served, whichever leader planned it,
    /// until an agent has applied the first plan of this one. None: that was noted before.
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

    /// What load balancers serve no longer may be released. `may_serve` says whether one may serve what a change
    /// took away.
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
