//! Follows the Plans of the agent's load balancer. It converts them for the resolver, which gets them through
//! [`Deletions`]. It writes nothing.

use super::Heard;
use super::deletions::Deletions;
use super::watches::event_of;
use crate::metrics::Metrics;
use crate::supervise::Works;
use crate::watch::{self, Seen, Selection};
use bowline_api::{Plan, PlanSpec, convert, names};
use bowline_core::objects::Carrier;
use bowline_core::resolver::{Kind, Object, Written};
use kube::{Api, ResourceExt as _};
use std::sync::Arc;
use tokio::sync::mpsc;

/// Follows the Plans until it is dropped.
pub(super) async fn follow(
    deletions: Arc<Deletions>,
    metrics: Metrics,
    carrier: Option<Carrier>,
    listener: mpsc::Sender<Heard>,
    works: Works,
) {
    let plans: Api<Plan> = Api::namespaced(deletions.client.clone(), &deletions.namespace);
    let load_balancer = deletions.load_balancer.clone();
    let label = names::load_balancer_label(&load_balancer);
    let selection = Selection::labels(format!("{}={label}", names::LABEL_LOAD_BALANCER));
    let (sender, heard) = mpsc::channel(64);
    let name = load_balancer;
    let read = move |seen: Seen<Plan>| {
        works.seen(&seen);
        let owner = match &seen {
            Seen::Apply(plan) => convert::owner_uid(&plan.metadata, &name),
            _ => None,
        };
        let heard = event_of(Kind::Shard, seen, |plan: Plan| {
            let why = carrier.and_then(|it| it.refuses(needed(&plan)?, &name));
            // A Plan with a name that the leader would not give is not the leader's.
            let (name, index) = (plan.name_any(), names::plan_index(&plan.name_any())?);
            Some(match why {
                Some(why) => Object::Refused(name.into(), why.into()),
                None => Object::Shard(name.into(), index, written(plan.spec)),
            })
        });
        heard.map(|heard| Heard { owner: owner.map(Into::into), ..heard })
    };
    tokio::select! {
        () = watch::follow(plans, selection, "Plan", metrics, sender, read) => {}
        () = deletions.pass_on(heard, &listener) => {}
    }
    // The agent has ended, and its keeper ends this task: that is no failure of the watch.
    std::future::pending().await
}

/// What the agents of a load balancer have to run, as its Plan says.
fn needed(plan: &Plan) -> Option<Carrier> {
    Carrier::parse(plan.annotations().get(names::ANNOTATION_DRIVER)?)
}

/// Converts a Plan for the resolver. The leader that wrote it may be of another version.
fn written(spec: PlanSpec) -> Written {
    let nameless = spec.unread.iter().filter(|it| it.item.is_none()).count();
    if nameless > 0 {
        tracing::warn!(fragments = nameless, "a Plan has fragments that this version cannot read");
    }
    let unread = spec.unread.into_iter().filter_map(|it| it.item).collect();
    Written { fragments: spec.fragments, unread, hash: Some(spec.hash) }
}
