//! Follows the Plans of the agent's load balancer. When Plans vanish it looks whether Bowline's namespace vanishes with
//! them, and tells the resolver to hold them then ([`bowline_core::vanished`] decides). It writes nothing.

use super::Heard;
use super::watches::event_of;
use crate::metrics::Metrics;
use crate::supervise::Works;
use crate::watch::{self, Seen, Selection};
use bowline_api::{Plan, PlanSpec, convert, names};
use bowline_core::key::ObjectKey;
use bowline_core::objects::Carrier;
use bowline_core::resolver::{Event, Kind, Object, Written};
use bowline_core::vanished::{Namespace as Found, Vanished};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::PostParams;
use kube::{Api, Client, Error, ResourceExt as _};
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// How often the namespace is looked at while Plans that are gone are held.
const LOOK: Duration = Duration::from_secs(2);
/// How long one look may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Follows the Plans until it is dropped.
pub(super) async fn follow(
    client: Client,
    namespace: String,
    load_balancer: String,
    metrics: Metrics,
    carrier: Option<Carrier>,
    listener: mpsc::Sender<Heard>,
    works: Works,
) {
    let plans: Api<Plan> = Api::namespaced(client.clone(), &namespace);
    let label = names::load_balancer_label(&load_balancer);
    let selection = Selection::labels(format!("{}={label}", names::LABEL_LOAD_BALANCER));
    let (sender, heard) = mpsc::channel(64);
    let name = load_balancer.clone();
    let read = move |seen: Seen<Plan>| {
        works.seen(&seen);
        let wrong = match &seen {
            Seen::Apply(plan) => carrier.and_then(|it| it.refuses(needed(plan)?, &name)),
            _ => None,
        };
        if let (Seen::Apply(plan), Some(wrong)) = (&seen, wrong) {
            let gone = Event::Delete(Kind::Shard, ObjectKey::new("", plan.name_any()));
            return Some(Heard { wrong: Some(wrong.into()), ..Heard::now(gone) });
        }
        let owner = match &seen {
            Seen::Apply(plan) => convert::owner_uid(&plan.metadata, &name),
            _ => None,
        };
        let heard = event_of(Kind::Shard, seen, |plan: Plan| {
            // A Plan with a name that the leader would not give is not the leader's.
            let name = plan.name_any();
            let index = names::plan_index(&name)?;
            Some(Object::Shard(name.into(), index, written(plan.spec)))
        });
        heard.map(|heard| Heard { owner: owner.map(Into::into), ..heard })
    };
    let ground = Ground { client, namespace, load_balancer };
    tokio::select! {
        () = watch::follow(plans, selection, "Plan", metrics, sender, read) => {}
        () = pass_on(&ground, heard, &listener) => {}
    }
    // The agent has ended, and its keeper ends this task: that is no failure of the watch.
    std::future::pending().await
}

/// Passes events on, and before each that takes a Plan away whether Plans that are gone are held.
async fn pass_on(
    ground: &Ground,
    mut heard: mpsc::Receiver<Heard>,
    listener: &mpsc::Sender<Heard>,
) {
    let begun = Instant::now();
    let mut vanished = Vanished::default();
    // Whether there was a Plan. Without one there is nothing to hold.
    let mut known = false;
    loop {
        let next = tokio::select! {
            heard = heard.recv() => match heard {
                Some(heard) => Some(heard),
                None => return,
            },
            () = tokio::time::sleep(LOOK), if vanished.holds() => None,
        };
        let looks = match next.as_ref().map(|heard| &heard.event) {
            // A Plan that is refused is there.
            Some(Event::Delete(..)) if next.as_ref().is_some_and(|it| it.wrong.is_some()) => false,
            None | Some(Event::Delete(..) | Event::Done(_)) => true,
            Some(Event::Apply(_)) => {
                known = true;
                vanished.written(begun.elapsed());
                false
            }
            Some(_) => false,
        };
        if looks {
            let found = ground.look().await;
            let news = match (&found, known) {
                (Found::Unsure, false) => None,
                _ => vanished.looked(found, begun.elapsed()),
            };
            if let Some(holds) = news {
                ground.log(holds);
                if listener.send(Heard::now(Event::Hold(holds))).await.is_err() {
                    return;
                }
            }
        }
        if let Some(heard) = next
            && listener.send(heard).await.is_err()
        {
            return;
        }
    }
}

/// Bowline's namespace, as one agent may look at it.
struct Ground {
    client: Client,
    namespace: String,
    load_balancer: String,
}

impl Ground {
    async fn look(&self) -> Found {
        let look = tokio::time::timeout(PATIENCE, self.try_look()).await;
        look.unwrap_or(Found::Unsure)
    }

    async fn try_look(&self) -> Found {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        match namespaces.get(&self.namespace).await {
            Ok(found) if found.metadata.deletion_timestamp.is_none() => {
                Found::There(found.metadata.uid.map(Into::into))
            }
            Err(Error::Api(status)) if status.code == 403 => self.try_to_write().await,
            _ => Found::Unsure,
        }
    }

    /// An agent in a cluster may not read namespaces, but it may create its Lease. In a namespace that is being deleted
    /// or gone that is refused, also where the Lease is only tried.
    async fn try_to_write(&self) -> Found {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), &self.namespace);
        let name = names::agent_lease(&self.load_balancer);
        let Ok(lease) = serde_json::from_value(json!({"metadata": {"name": name}})) else {
            return Found::Unsure;
        };
        let params = PostParams { dry_run: true, ..PostParams::default() };
        match leases.create(&params, &lease).await {
            Ok(_) => Found::There(None),
            Err(Error::Api(status)) if status.code == 409 => Found::There(None),
            _ => Found::Unsure,
        }
    }

    fn log(&self, holds: bool) {
        let (namespace, load_balancer) = (&*self.namespace, &*self.load_balancer);
        match holds {
            true => tracing::warn!(
                namespace,
                load_balancer,
                "the Plans are gone, and their namespace with them: what they said is served until the leader \
                 has written them again"
            ),
            false => tracing::info!(
                namespace,
                load_balancer,
                "Plans that are gone are not served any more"
            ),
        }
    }
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
