//! Follows the addresses on which other load balancers listen: a member at one of them would send traffic round
//! in a circle. It reads only these addresses from their Plans. The agent's resolver gets them through [`Deletions`].

use super::Heard;
use super::deletions::Deletions;
use super::missing_load_balancer::Planned;
use super::watches::event_of;
use crate::metrics::Metrics;
use crate::supervise::Works;
use crate::watch::{self, Seen, Selection};
use bowline_api::Plan;
use bowline_core::resolver::{Kind, Object};
use kube::api::ApiResource;
use kube::core::NotUsed;
use kube::{Api, ResourceExt as _};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::mpsc;

/// The fields of a Plan that are read here. A field that cannot be read counts as empty.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Places {
    load_balancer: String,
    fragments: Vec<Fragment>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Fragment {
    listeners: Vec<Listener>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Listener {
    address: String,
}

impl Places {
    /// The addresses, each once. A listener with only a name ([`bowline_core::plan::BY_NAME`]) has none.
    fn addresses(&self) -> Vec<IpAddr> {
        let listeners = self.fragments.iter().flat_map(|fragment| &fragment.listeners);
        let addresses = listeners.filter_map(|listener| listener.address.parse().ok());
        let mut addresses: Vec<_> = addresses.filter(|it: &IpAddr| !it.is_unspecified()).collect();
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }
}

/// The addresses that were sent to the resolver, by Plan. Most changes of a Plan leave its addresses as they
/// are, and work on one load balancer must cause no work on another.
#[derive(Default)]
struct Known {
    addresses: BTreeMap<String, Vec<IpAddr>>,
    /// A new list is under way: every Plan is sent again.
    lists: bool,
}

impl Known {
    /// Whether the addresses of this Plan must be sent to the resolver.
    fn is_news(&mut self, name: &str, addresses: &[IpAddr]) -> bool {
        let before = self.addresses.insert(name.to_owned(), addresses.to_vec());
        let changed = before.as_deref().unwrap_or_default() != addresses;
        changed || self.lists && !addresses.is_empty()
    }

    /// Whether the resolver must learn that this Plan is deleted: not of one without addresses, such as the agent's own.
    fn is_lost(&mut self, name: &str) -> bool {
        self.addresses.remove(name).is_some_and(|addresses| !addresses.is_empty())
    }
}

/// Follows the Plans of all other load balancers until the listener is gone.
pub(super) async fn follow(
    deletions: Arc<Deletions>,
    metrics: Metrics,
    listener: mpsc::Sender<Heard>,
    works: Works,
    planned: Planned,
) {
    let resource = ApiResource::erase::<Plan>(&());
    let (client, load_balancer) = (deletions.client.clone(), deletions.load_balancer.clone());
    let plans: Api<kube::core::Object<Places, NotUsed>> =
        Api::namespaced_with(client, &deletions.namespace, &resource);
    let mut known = Known::default();
    let read = move |seen: Seen<kube::core::Object<Places, NotUsed>>| {
        works.seen(&seen);
        match &seen {
            Seen::Begin => {
                known = Known { lists: true, ..Known::default() };
                planned.begin();
            }
            Seen::Done => {
                known.lists = false;
                planned.done();
            }
            Seen::Apply(plan) => planned.put(&plan.name_any(), &plan.spec.load_balancer),
            Seen::Delete(plan) => {
                planned.remove(&plan.name_any());
                if !known.is_lost(&plan.name_any()) {
                    return None;
                }
            }
        }
        event_of(Kind::Elsewhere, seen, |plan| {
            let name = plan.name_any();
            // The resolver knows the agent's own Plans already.
            let own = plan.spec.load_balancer == load_balancer;
            let addresses = if own { Vec::new() } else { plan.spec.addresses() };
            known.is_news(&name, &addresses).then(|| Object::Elsewhere(name.into(), addresses))
        })
    };
    let (sender, heard) = mpsc::channel(1024);
    tokio::select! {
        () = watch::follow(plans, Selection::default(), "Plan", metrics, sender, read) => {}
        () = deletions.pass_on(heard, &listener) => {}
    }
    // The agent has ended, and its keeper ends this task: that is no failure of the watch.
    std::future::pending().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_plan_that_changes_without_its_addresses_is_no_news_unless_all_are_told_anew() {
        let (one, two) = ([IpAddr::from([192, 0, 2, 1])], [IpAddr::from([192, 0, 2, 2])]);
        let mut known = Known::default();
        let told = [&one, &one, &two].map(|addresses| known.is_news("edge-0", addresses));
        assert_eq!(told, [true, false, true]);
        known.lists = true;
        assert!(known.is_news("edge-0", &two));
    }

    #[test]
    fn the_deletion_of_a_plan_without_addresses_is_no_news() {
        let mut known = Known { lists: true, ..Known::default() };
        assert!(!known.is_news("own-0", &[]));
        assert!(known.is_news("edge-0", &[IpAddr::from([192, 0, 2, 1])]));
        assert_eq!(["own-0", "edge-0", "edge-0"].map(|it| known.is_lost(it)), [false, true, false]);
        assert!(known.is_news("edge-0", &[IpAddr::from([192, 0, 2, 1])]));
        assert!(known.is_news("edge-0", &[]), "the resolver forgets them");
    }

    #[test]
    fn addresses_are_read_out_of_a_plan_of_whatever_version() {
        let read = |spec| serde_json::from_value::<Places>(spec).unwrap().addresses();
        let listener = |address: &str| json!({"address": address, "protocol": "FromTheFuture"});
        let plan = json!({"loadBalancer": "edge", "hash": 7, "fragments": [
            {"consumer": {}, "listeners": [listener("192.0.2.2"), listener("192.0.2.1")]},
            {"listeners": [listener("192.0.2.1"), listener("0.0.0.0"), listener("next-door"), {}]},
            {"sites": []},
        ]});
        assert_eq!(read(plan), [[192, 0, 2, 1], [192, 0, 2, 2]].map(IpAddr::from));
        assert_eq!(read(json!({})), [] as [IpAddr; 0]);
    }
}
