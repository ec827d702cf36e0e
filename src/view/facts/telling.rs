//! Tells the planner what the lists of a cluster hold, as the leader's watches do. Pure.

use super::processes::Agents;
use super::recorded::index;
use crate::view::list::Lists;
use bowline_api::provisioned_objects::Made;
use bowline_api::{LoadBalancer, convert};
use bowline_core::addresses::{HolderKind, Holding, holdings};
use bowline_core::key::{ConsumerKind, ObjectKey};
use bowline_core::planner::{self, Event, Grant, Kind, Object, Planner};
use bowline_core::provision::Reach;
use bowline_core::update::Refusal;
use k8s_openapi::jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(super) fn tell(planner: &mut Planner, lists: &Lists, agents: &BTreeMap<String, Agents>) {
    let mut kind = |kind: Kind, objects: &mut dyn Iterator<Item = Object>| {
        planner.handle(Event::Begin(kind));
        for object in objects {
            planner.handle(Event::Apply(Box::new(object)));
        }
        planner.handle(Event::Done(kind));
    };
    let secrets = lists.secrets.iter().flatten();
    kind(
        Kind::LoadBalancer,
        &mut lists.load_balancers.iter().map(convert::load_balancer).map(Object::LoadBalancer),
    );
    kind(Kind::Claim, &mut lists.claims.iter().map(convert::claimed).map(Object::Claim));
    kind(
        Kind::Namespace,
        &mut lists.namespaces.iter().map(convert::namespace).map(Object::Namespace),
    );
    kind(
        Kind::IngressClass,
        &mut lists.classes.iter().map(convert::ingress_class).map(Object::IngressClass),
    );
    kind(
        Kind::TlsSecret,
        &mut secrets.map(|secret| Object::TlsSecret(convert::tls_secret(secret).0)),
    );
    kind(Kind::Service, &mut lists.services.iter().map(convert::service).map(Object::Service));
    kind(Kind::Ingress, &mut lists.ingresses.iter().map(convert::ingress).map(Object::Ingress));
    for (name, agent) in agents {
        planner.handle(Event::Reported(name.as_str().into(), agent.joint.addresses.clone()));
        let unserved = agent.joint.refused.iter().filter_map(Refusal::unserved).collect();
        planner.handle(Event::Unserved(name.as_str().into(), unserved));
    }
    // A load balancer that a class made is reached at the address of its Service, as its status shows.
    for lb in lists.load_balancers.iter().filter(|lb| Made::of(lb).is_some()) {
        let points = lb.status.iter().flat_map(|status| &status.ingress);
        let reach =
            Reach { addresses: points.filter_map(|it| it.ip).collect(), hostnames: hostnames(lb) };
        planner.handle(Event::Reported(
            lb.metadata.name.as_deref().unwrap_or_default().into(),
            reach.listeners(),
        ));
    }
    for ((kind, key), grant) in grants(lists) {
        planner.handle(Event::Granted(kind, key, grant));
    }
    // A consumer keeps the ports and hosts that are recorded for it.
    for plan in &lists.plans {
        if let Some(index) = index(plan) {
            let lb = plan.spec.load_balancer.as_str();
            let held = plan.spec.held();
            let held = held.iter().map(AsRef::as_ref);
            planner.handle(Event::Recorded(planner::Record::new(lb, index, held)));
        }
    }
}

/// The host names of a load balancer that a class made, as its status shows.
pub(super) fn hostnames(lb: &LoadBalancer) -> Vec<Arc<str>> {
    let made = lb.status.iter().filter(|_| Made::of(lb).is_some());
    let points = made.flat_map(|status| &status.ingress);
    points.filter_map(|it| Some(it.hostname.as_deref()?.into())).collect()
}

/// Gives consumers the seats that are recorded, on load balancers that count seats.
pub(super) fn admit(planner: &mut Planner, lists: &Lists, now: Timestamp) {
    use bowline_core::admission::{self, Admission};
    let mut machine = Admission::new();
    let now = now.as_second();
    for seating in lists.load_balancers.iter().filter_map(convert::seating) {
        machine.handle(admission::Event::LoadBalancer(Box::new(seating)), now);
    }
    for want in planner.wants().into_iter().filter_map(|(_, want)| want) {
        machine.handle(admission::Event::Wants(want), now);
    }
    for kind in admission::Kind::ALL {
        machine.handle(admission::Event::Done(kind), now);
    }
    let changes = machine.take(now);
    for (consumer, lb, amounts) in changes.stays {
        planner.handle(Event::Stays(consumer, lb, amounts));
    }
    for (consumer, decision) in changes.decisions {
        planner.handle(Event::Admitted(consumer, decision));
    }
}

/// The addresses that Services and load balancers have from pools, from the Address objects alone. If pools can be
/// read, the machine decides in place of this.
fn grants(lists: &Lists) -> BTreeMap<(ConsumerKind, ObjectKey), Grant> {
    let services = lists.services.iter().map(|it| &it.metadata.uid);
    let balancers = lists.load_balancers.iter().map(|it| &it.metadata.uid);
    let live: BTreeSet<&str> = services.chain(balancers).flatten().map(String::as_str).collect();
    let mut all = BTreeMap::new();
    for (holder, Holding { addresses, draining }) in
        holdings(lists.addresses.iter().filter_map(convert::record))
    {
        let kind = match holder.kind {
            HolderKind::Service => ConsumerKind::Service,
            HolderKind::LoadBalancer => ConsumerKind::LoadBalancer,
            HolderKind::ExternalIp => continue,
        };
        // An object that had the same name before holds nothing any more.
        if live.contains(&*holder.uid) {
            all.insert((kind, holder.key), Grant { addresses, draining, problem: None });
        }
    }
    all
}
