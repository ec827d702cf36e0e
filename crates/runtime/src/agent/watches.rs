//! The watches of an agent: what each delivers becomes an event for the resolver, with the time of its arrival.

use super::deletions::Deletions;
use super::missing_load_balancer::Planned;
use super::{Heard, missing_load_balancer, other_load_balancers, plans, secrets};
use crate::roles::{AgentOptions, Context};
use crate::supervise::Keeper;
use crate::watch::{self, Seen, Selection};
use bowline_api::convert;
use bowline_core::key::ObjectKey;
use bowline_core::resolver::{Event, Kind, Object};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{Api, Client, ResourceExt as _};
use std::sync::Arc;
use tokio::sync::mpsc;

/// Starts the watches that every agent needs. `recalled`: the agent has kept state from before a restart.
pub(super) fn follow(
    client: &Client,
    options: &AgentOptions,
    context: &Context,
    sender: &mpsc::Sender<Heard>,
    tasks: &mut Keeper,
    recalled: bool,
) {
    let load_balancer = &options.load_balancer;
    let (of, namespace) = (client.clone(), options.namespace.clone());
    let deletions = Arc::new(Deletions::new(of, namespace, load_balancer.clone(), recalled));
    let (metrics, listener) = (context.metrics.clone(), sender.clone());
    let (carrier, shared) = (options.carrier, Arc::clone(&deletions));
    tasks.keep(watch_of("Plans", load_balancer), move |works| {
        let (metrics, listener) = (metrics.clone(), listener.clone());
        plans::follow(Arc::clone(&shared), metrics, carrier, listener, works)
    });
    let (metrics, listener) = (context.metrics.clone(), sender.clone());
    let planned = Planned::default();
    // Where the uid is known, the load balancer exists.
    if options.uid.is_none() {
        let carrier = options.carrier;
        let (client, name, context) = (client.clone(), load_balancer.clone(), context.clone());
        tokio::spawn(missing_load_balancer::tell(client, planned.clone(), name, carrier, context));
    }
    tasks.keep(watch_of("the Plans of others", load_balancer), move |works| {
        let (metrics, listener, planned) = (metrics.clone(), listener.clone(), planned.clone());
        other_load_balancers::follow(Arc::clone(&deletions), metrics, listener, works, planned)
    });
    let slices: Api<EndpointSlice> = Api::all(client.clone());
    let (metrics, listener) = (context.metrics.clone(), sender.clone());
    tasks.keep(watch_of("EndpointSlices", load_balancer), move |works| {
        let (api, what) = (slices.clone(), "EndpointSlice");
        let selection = Selection::default();
        watch::follow(api, selection, what, metrics.clone(), listener.clone(), move |seen| {
            works.seen(&seen);
            event_of(Kind::Slice, seen, |slice: EndpointSlice| {
                Some(Object::Slice(convert::slice(&slice)))
            })
        })
    });
    let (client, namespace) = (client.clone(), options.namespace.clone());
    let (metrics, listener) = (context.metrics.clone(), sender.clone());
    let name = load_balancer.clone();
    tasks.keep(watch_of("Secrets", load_balancer), move |works| {
        let (client, namespace, name) = (client.clone(), namespace.clone(), name.clone());
        secrets::follow(client, namespace, name, metrics.clone(), listener.clone(), works)
    });
}

/// Starts the watch of Nodes, which only some agents need.
pub(super) fn follow_nodes(
    client: &Client,
    load_balancer: &str,
    context: &Context,
    sender: &mpsc::Sender<Heard>,
    tasks: &mut Keeper,
) {
    let nodes: Api<Node> = Api::all(client.clone());
    let (metrics, listener) = (context.metrics.clone(), sender.clone());
    tasks.keep(watch_of("Nodes", load_balancer), move |works| {
        let (api, selection) = (nodes.clone(), Selection::default());
        watch::follow(api, selection, "Node", metrics.clone(), listener.clone(), move |seen| {
            works.seen(&seen);
            event_of(Kind::Node, seen, |node: Node| Some(Object::Node(convert::node(&node))))
        })
    });
}

/// The name of an agent's watch.
fn watch_of(kinds: &str, load_balancer: &str) -> String {
    format!("the watch of {kinds} for load balancer {load_balancer}")
}

/// Converts what a watch shows into an event for the resolver.
pub(super) fn event_of<K: kube::Resource>(
    kind: Kind,
    seen: Seen<K>,
    read: impl FnOnce(K) -> Option<Object>,
) -> Option<Heard> {
    let event = match seen {
        Seen::Begin => Event::Begin(kind),
        Seen::Apply(object) => Event::Apply(read(object)?),
        Seen::Delete(object) => {
            let namespace = object.namespace().unwrap_or_default();
            Event::Delete(kind, ObjectKey::new(namespace, object.name_any()))
        }
        Seen::Done => Event::Done(kind),
    };
    Some(Heard::now(event))
}
