//! Plans the writes of one Service's slices. It changes as little as possible: endpoints stay in their
//! slice, and slices are filled before new ones are made. It does no I/O.

use super::records::{
    Condition, Family, HEADLESS, Identity, MANAGED_BY, MANAGER, Name, Offer, Port, SERVICE_NAME,
    Slice, Wanted,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::collections::BTreeMap;

/// The most endpoints of a slice.
pub(super) const LARGEST: usize = 100;

/// A write of a slice.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    Create { service: Name, owner: String, family: Family, content: Content },
    Update { slice: Name, uid: String, version: u64, removed: Vec<String>, content: Content },
    Delete { slice: Name, uid: String },
}

/// The content of a slice.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Content {
    pub(super) labels: BTreeMap<String, String>,
    pub(super) ports: Vec<Port>,
    pub(super) endpoints: Vec<(Identity, Condition)>,
}

type Endpoints = BTreeMap<Identity, Condition>;

/// What to do about a Service. `pods` are the Pods that its selector selects, with the zone of their
/// node. `slices` are the slices that this controller manages for it, sorted by name.
pub(super) fn plan(
    name: &Name,
    service: &Wanted,
    pods: &[(&Name, &Offer, Option<&str>)],
    slices: &[(&Name, &Slice)],
) -> Vec<Action> {
    // Without a selector the slices belong to the user, including those that were made here before.
    // kube-controller-manager treats them in the same way.
    if service.selector.is_empty() {
        return Vec::new();
    }
    let slices: Vec<_> = slices.iter().copied().filter(|(_, slice)| !slice.deleting).collect();
    let wrong_family =
        |slice: &Slice| !slice.family.is_some_and(|one| service.families.contains(&one));
    let mut actions = Vec::new();
    for &family in &service.families {
        let ours: Vec<_> =
            slices.iter().copied().filter(|(_, slice)| slice.family == Some(family)).collect();
        actions.extend(plan_family(name, service, family, pods, &ours));
    }
    let leftover = slices.iter().filter(|(_, slice)| wrong_family(slice));
    actions.extend(leftover.map(|(name, slice)| delete(name, slice)));
    actions
}

fn plan_family(
    name: &Name,
    service: &Wanted,
    family: Family,
    pods: &[(&Name, &Offer, Option<&str>)],
    slices: &[(&Name, &Slice)],
) -> Vec<Action> {
    // Pods are grouped by the port numbers that the Service's ports have on them. Each group has its
    // own slices.
    let mut wanted: BTreeMap<Vec<Port>, Endpoints> = BTreeMap::new();
    for &(pod, offer, zone) in pods.iter().filter(|(_, offer, _)| !offer.addresses.is_empty()) {
        let group = wanted.entry(ports(service, offer)).or_default();
        let addresses = offer.addresses(family);
        if !addresses.is_empty() {
            let (identity, condition) = endpoint(&name.1, service, pod, offer, zone, addresses);
            group.insert(identity, condition);
        }
    }

    let labels = labels(&name.1, service);
    let mut writes = Writes::default();
    let (owned, foreign): (Vec<_>, Vec<_>) =
        slices.iter().copied().partition(|(_, slice)| slice.owners.contains(&service.uid));
    for (ports, endpoints) in wanted {
        let group: Vec<_> =
            owned.iter().copied().filter(|(_, slice)| slice.ports == ports).collect();
        writes.known.extend(group.iter().map(|(name, _)| (*name).clone()));
        writes.place(&labels, ports, endpoints, &group);
    }
    let others = owned.iter().copied().filter(|(name, _)| !writes.known.contains(name));
    let others: Vec<_> = others.collect();
    writes.delete.extend(others);

    // A Service always has a slice, so that its clients can tell "no endpoint" from "not processed
    // yet".
    if owned.len() == writes.delete.len() && writes.create.is_empty() {
        let empty = Content { labels, ports: Vec::new(), endpoints: Vec::new() };
        match writes.delete.iter().position(|(_, slice)| holds(slice, &empty)) {
            Some(kept) => drop(writes.delete.remove(kept)),
            None => writes.create.push(empty),
        }
    }
    let mut actions = writes.actions(name, service, family);
    actions.extend(foreign.into_iter().map(|(name, slice)| delete(name, slice)));
    actions
}

/// The writes of one address family of a Service.
#[derive(Default)]
struct Writes<'a> {
    known: Vec<Name>,
    create: Vec<Content>,
    update: Vec<(&'a Name, &'a Slice, Content)>,
    delete: Vec<(&'a Name, &'a Slice)>,
}

impl<'a> Writes<'a> {
    /// Places the endpoints of one set of ports into the slices with these ports.
    fn place(
        &mut self,
        labels: &BTreeMap<String, String>,
        ports: Vec<Port>,
        mut wanted: Endpoints,
        slices: &[(&'a Name, &'a Slice)],
    ) {
        let (mut changed, mut unchanged) = (Vec::new(), Vec::new());
        for &(name, slice) in slices {
            let kept =
                slice.endpoints.iter().filter_map(|(identity, _)| wanted.remove_entry(identity));
            let content =
                Content { labels: labels.clone(), ports: ports.clone(), endpoints: kept.collect() };
            if content.endpoints.is_empty() && !slice.endpoints.is_empty() {
                self.delete.push((name, slice));
            } else if holds(slice, &content) {
                unchanged.push((name, slice, content));
            } else {
                changed.push((name, slice, content));
            }
        }
        // The fullest slices come first: they are written in any case, so filling them costs no write.
        changed.sort_by_key(|(_, _, content)| std::cmp::Reverse(content.endpoints.len()));
        for (_, _, content) in &mut changed {
            fill(content, &mut wanted);
        }
        while !wanted.is_empty() {
            // If the rest fits into one unchanged slice, choose the one that it fills most.
            let sizes = unchanged.iter().enumerate();
            let sizes = sizes.map(|(place, (_, _, it))| (it.endpoints.len() + wanted.len(), place));
            if let Some((_, place)) = sizes.filter(|(size, _)| *size <= LARGEST).max() {
                let (name, slice, mut content) = unchanged.swap_remove(place);
                fill(&mut content, &mut wanted);
                changed.push((name, slice, content));
            } else {
                let (labels, ports) = (labels.clone(), ports.clone());
                let mut content = Content { labels, ports, endpoints: Vec::new() };
                fill(&mut content, &mut wanted);
                self.create.push(content);
            }
        }
        self.update.extend(changed);
    }

    /// The actions. A slice that would be deleted is updated instead of creating a new one.
    fn actions(mut self, name: &Name, service: &Wanted, family: Family) -> Vec<Action> {
        let reused = self.create.len().min(self.delete.len());
        let contents = self.create.drain(..reused);
        let places = self.delete.drain(..reused);
        self.update.extend(places.zip(contents).map(|((name, slice), new)| (name, slice, new)));
        let mut actions = Vec::new();
        // A slice created for a Service that is being deleted would outlive it.
        if !service.deleting {
            actions.extend(self.create.into_iter().map(|content| Action::Create {
                service: name.clone(),
                owner: service.uid.clone(),
                family,
                content,
            }));
        }
        self.update.sort_by_key(|(name, _, _)| *name);
        actions.extend(self.update.into_iter().map(|(name, slice, content)| Action::Update {
            slice: name.clone(),
            uid: slice.uid.clone(),
            version: slice.version,
            removed: removed(slice, &content),
            content,
        }));
        actions.extend(self.delete.into_iter().map(|(name, slice)| delete(name, slice)));
        actions
    }
}

fn delete(name: &Name, slice: &Slice) -> Action {
    Action::Delete { slice: name.clone(), uid: slice.uid.clone() }
}

fn removed(slice: &Slice, content: &Content) -> Vec<String> {
    let gone = slice.labels.keys().filter(|key| !content.labels.contains_key(*key));
    gone.cloned().collect()
}

fn holds(slice: &Slice, content: &Content) -> bool {
    slice.labels == content.labels
        && slice.ports == content.ports
        && slice.endpoints == content.endpoints
}

fn fill(content: &mut Content, wanted: &mut Endpoints) {
    while content.endpoints.len() < LARGEST {
        let Some(next) = wanted.pop_first() else { break };
        content.endpoints.push(next);
    }
}

/// The ports of a Service on one Pod, sorted. A named port that the Pod does not have is left out.
fn ports(service: &Wanted, pod: &Offer) -> Vec<Port> {
    let number = |target: &IntOrString, protocol: &str| match target {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(name) => {
            let named = pod.ports.iter().find(|(known, its, _)| known == name && its == protocol);
            named.map(|(_, _, number)| *number)
        }
    };
    let mut ports: Vec<Port> = service
        .ports
        .iter()
        .filter_map(|wish| {
            Some(Port {
                name: wish.name.clone(),
                port: Some(number(&wish.target, &wish.protocol)?),
                protocol: wish.protocol.clone(),
                app_protocol: wish.app_protocol.clone(),
            })
        })
        .collect();
    ports.sort();
    ports
}

fn endpoint(
    service_name: &str,
    service: &Wanted,
    pod: &Name,
    offer: &Offer,
    zone: Option<&str>,
    addresses: Vec<String>,
) -> (Identity, Condition) {
    let named = !offer.hostname.is_empty() && offer.subdomain == service_name;
    let identity = Identity {
        addresses,
        hostname: named.then(|| offer.hostname.clone()),
        target: Some(pod.clone()),
    };
    let condition = Condition {
        uid: offer.uid.clone(),
        ready: Some(service.publish_not_ready || (offer.ready && !offer.deleting)),
        serving: Some(offer.ready),
        terminating: Some(offer.deleting),
        node: Some(offer.node.clone()).filter(|node| !node.is_empty()),
        zone: zone.filter(|zone| !zone.is_empty()).map(str::to_owned),
    };
    (identity, condition)
}

/// The labels of a Service's slices: the Service's own labels and this controller's.
fn labels(name: &str, service: &Wanted) -> BTreeMap<String, String> {
    let mut labels = service.labels.clone();
    labels.remove(HEADLESS);
    if service.headless {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    labels.insert(SERVICE_NAME.to_owned(), name.to_owned());
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    labels
}
