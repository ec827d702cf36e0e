//! Follows the Secrets in which the leader hands certificates to an agent: one by one, by name, because
//! an agent may read no others. Most load balancers have one Secret; the next is looked for once the one
//! before it exists.

use super::Heard;
use crate::metrics::Metrics;
use crate::watch::{self, Seen, Selection};
use bowline_api::{convert, names};
use bowline_core::key::ObjectKey;
use bowline_core::resolver::{Event, Kind, Object};
use bowline_core::update::Certificate;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::Api;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Agents are allowed to read so many; see deploy/rbac/agent.yaml.
const MOST: usize = 8;

type Found = Vec<(Arc<str>, Arc<Certificate>)>;

/// How far one Secret is known.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// It was shown since the last beginning.
    shown: bool,
    /// Whether it exists has been said once.
    synced: bool,
}

/// Follows the certificates of a load balancer until nobody listens.
pub(super) async fn follow(
    client: Client,
    namespace: String,
    load_balancer: String,
    metrics: Metrics,
    listener: mpsc::Sender<Heard>,
) {
    let (sender, mut seen) = mpsc::channel::<(u32, Seen<Found>)>(16);
    let mut watches = JoinSet::new();
    let mut known: Vec<Known> = Vec::new();
    let mut told = false;
    let name = |index| Arc::<str>::from(names::certificates_secret(&load_balancer, index));
    let mut start = |index: u32| {
        let api: Api<Secret> = Api::namespaced(client.clone(), &namespace);
        let selection = Selection::fields(format!("metadata.name={}", name(index)));
        let read = move |seen: Seen<Secret>| {
            Some((
                index,
                match seen {
                    Seen::Begin => Seen::Begin,
                    Seen::Apply(secret) => Seen::Apply(convert::certificates(&secret)),
                    Seen::Delete(_) => Seen::Delete(Vec::new()),
                    Seen::Done => Seen::Done,
                },
            ))
        };
        let (metrics, sender) = (metrics.clone(), sender.clone());
        watches.spawn(watch::follow(api, selection, "Secret", metrics, sender, read));
    };
    if listener.send(Heard::now(Event::Begin(Kind::Certificates))).await.is_err() {
        return;
    }
    known.push(Known::default());
    start(0);
    while let Some((index, seen)) = seen.recv().await {
        let gone = || Event::Delete(Kind::Certificates, ObjectKey::new("", name(index)));
        let event = match seen {
            Seen::Begin => {
                known[index as usize].shown = false;
                None
            }
            Seen::Apply(found) => {
                known[index as usize].shown = true;
                if index as usize + 1 == known.len() && known.len() < MOST {
                    known.push(Known::default());
                    start(index + 1);
                }
                Some(Event::Apply(Object::Certificates(name(index), found)))
            }
            Seen::Delete(_) => Some(gone()),
            Seen::Done => {
                known[index as usize].synced = true;
                (!known[index as usize].shown).then(gone)
            }
        };
        let done = !told && known.iter().all(|one| one.synced);
        told |= done;
        for event in event.into_iter().chain(done.then_some(Event::Done(Kind::Certificates))) {
            if listener.send(Heard::now(event)).await.is_err() {
                return;
            }
        }
    }
}
