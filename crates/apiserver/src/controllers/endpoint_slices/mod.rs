//! Makes EndpointSlices from Services with a selector and the Pods that it selects, as
//! kube-controller-manager does. Slices of other managers, and Services without a selector, are left
//! to their users.
//!
//! [`records`] reads objects, [`Index`](super::shell::Index) finds the Services that an event
//! concerns, [`plan`] decides, [`write`] writes.

mod plan;
mod records;
mod write;

#[cfg(test)]
mod tests;

use super::shell::{self, Plan, Sources};
use super::table::Table;
use jiff::Timestamp;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::watcher::{Config, Event};
use kube::{Api, Client};
use plan::Action;
use records::{MANAGED_BY, MANAGER, Name, Offer, SERVICE_NAME, Slice, Wanted, Zone};
use std::collections::{BTreeMap, BTreeSet};
use tokio::sync::watch;

/// An event of a watch.
#[derive(Clone, Debug)]
enum Seen {
    Service(Event<(Name, Wanted)>),
    Pod(Event<(Name, Offer)>),
    Node(Event<(String, Zone)>),
    Slice(Event<(Name, Slice)>),
}

/// All records.
#[derive(Default)]
struct Index {
    services: Table<Name, Wanted>,
    pods: Table<Name, Offer>,
    nodes: Table<String, Zone>,
    slices: Table<Name, Slice>,
    /// The slices of each Service.
    slices_of: BTreeMap<Name, BTreeSet<Name>>,
}

impl shell::Index for Index {
    type Event = Seen;
    type Key = Name;
    type Action = Action;

    fn observe(&mut self, event: Seen) -> Vec<Name> {
        match event {
            Seen::Service(event) => {
                self.services.observe(event).into_iter().map(|(name, _)| name).collect()
            }
            Seen::Pod(event) => {
                let changes = self.pods.observe(event);
                changes.iter().flat_map(|(name, old)| self.services_of(name, old)).collect()
            }
            Seen::Node(event) => {
                let changes = self.nodes.observe(event);
                let changed = |pod: &Offer| changes.iter().any(|(node, _)| *node == pod.node);
                let pods = self.pods.iter().filter(|(_, pod)| changed(pod));
                pods.flat_map(|(name, _)| self.services_of(name, &None)).collect()
            }
            Seen::Slice(event) => {
                let changes = self.slices.observe(event);
                changes.into_iter().flat_map(|(name, old)| self.relate(name, old)).collect()
            }
        }
    }

    fn ready(&self) -> bool {
        self.services.complete()
            && self.pods.complete()
            && self.nodes.complete()
            && self.slices.complete()
    }

    fn plan(&self, name: &Name, _now: Timestamp) -> Plan<Action> {
        // The garbage collector deletes the slices of a deleted Service.
        let Some(service) = self.services.get(name) else { return Plan::Idle };
        let pods: Vec<_> = in_namespace(&self.pods, &name.0)
            .filter(|(_, pod)| selects(service, pod))
            .map(|(name, pod)| (name, pod, self.nodes.get(&pod.node).map(|zone| zone.0.as_str())))
            .collect();
        let slices: Vec<_> = self
            .slices_of
            .get(name)
            .into_iter()
            .flatten()
            .filter_map(|slice| Some((slice, self.slices.get(slice)?)))
            .collect();
        match plan::plan(name, service, &pods, &slices) {
            actions if actions.is_empty() => Plan::Idle,
            actions => Plan::Do(actions),
        }
    }
}

impl Index {
    /// The Services that select or selected a Pod.
    fn services_of(&self, name: &Name, old: &Option<Offer>) -> Vec<Name> {
        let new = self.pods.get(name);
        let concerned =
            |service: &Wanted| new.into_iter().chain(old).any(|pod| selects(service, pod));
        let services = in_namespace(&self.services, &name.0);
        services.filter(|(_, it)| concerned(it)).map(|(name, _)| name.clone()).collect()
    }

    /// Updates `slices_of`. Returns the Services that have or had the slice.
    fn relate(&mut self, name: Name, old: Option<Slice>) -> Vec<Name> {
        let owner = |slice: &Slice| Some((name.0.clone(), slice.labels.get(SERVICE_NAME)?.clone()));
        let old = old.as_ref().and_then(owner);
        let new = self.slices.get(&name).and_then(owner);
        if old != new {
            if let Some(slices) = old.as_ref().and_then(|old| self.slices_of.get_mut(old)) {
                slices.remove(&name);
                if slices.is_empty() {
                    old.as_ref().map(|old| self.slices_of.remove(old));
                }
            }
            if let Some(new) = &new {
                self.slices_of.entry(new.clone()).or_default().insert(name);
            }
        }
        old.into_iter().chain(new).collect()
    }
}

fn selects(service: &Wanted, pod: &Offer) -> bool {
    !service.selector.is_empty()
        && service.selector.iter().all(|(key, value)| pod.labels.get(key) == Some(value))
}

fn in_namespace<'a, V: super::table::Record>(
    table: &'a Table<Name, V>,
    namespace: &'a str,
) -> impl Iterator<Item = (&'a Name, &'a V)> {
    let start = (namespace.to_owned(), String::new());
    table.from(&start).take_while(move |(name, _)| name.0 == namespace)
}

pub(super) async fn run(client: Client, stop: watch::Receiver<bool>) {
    let ours = Config::default().labels(&format!("{MANAGED_BY}={MANAGER}"));
    let slices: Api<EndpointSlice> = Api::all(client.clone());
    let all = Config::default;
    let sources = Sources::new()
        .watch(Api::all(client.clone()), all(), records::service, Seen::Service)
        .watch(Api::all(client.clone()), all(), records::pod, Seen::Pod)
        .watch(Api::all(client.clone()), all(), records::node, Seen::Node)
        .watch(slices, ours, records::slice, Seen::Slice);
    shell::run("endpoint-slices", Index::default(), sources, write::Actor(client), stop).await;
}
