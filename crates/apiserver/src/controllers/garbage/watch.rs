//! Watches the metadata of all objects, whichever types are served. It reads the served types again
//! when a definition changes, and at intervals.

use super::super::catalog::{self, Meta, Served};
use super::super::shell::follow;
use super::{Seen, record};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, PartialObjectMeta};
use kube::runtime::watcher::{Config, Event};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{self, Sender};
use tokio::task::{AbortHandle, JoinSet};

/// How often the served types are read again if no definition changes.
const REFRESH: Duration = Duration::from_secs(30);
/// How long to wait after a definition changed: it needs time to be served, and changes come in
/// bursts.
const SETTLE: Duration = Duration::from_millis(200);
/// When the served types are read a second time, in case the definition took longer.
const SECOND_LOOK: Duration = Duration::from_secs(2);

/// Sends the served types and all changes of their objects, until the receiver is dropped.
pub(super) async fn everything(client: Client, sender: Sender<Seen>) {
    let mut watches = Watches { client, sender, tasks: JoinSet::new(), running: BTreeMap::new() };
    let (changed, mut definitions) = mpsc::channel(64);
    let api: Api<PartialObjectMeta<CustomResourceDefinition>> = Api::all(watches.client.clone());
    watches.tasks.spawn(follow(api, Config::default(), drop, |event: Event<()>| event, changed));
    let mut wait = Duration::ZERO;
    loop {
        tokio::select! {
            _ = definitions.recv() => {
                tokio::time::sleep(SETTLE).await;
                while definitions.try_recv().is_ok() {}
                wait = SECOND_LOOK;
            }
            () = tokio::time::sleep(wait) => wait = REFRESH,
        }
        if !watches.refresh().await {
            return;
        }
    }
}

struct Watches {
    client: Client,
    sender: Sender<Seen>,
    tasks: JoinSet<()>,
    running: BTreeMap<Arc<str>, (Served, AbortHandle)>,
}

impl Watches {
    /// Starts and stops watches so that there is one for every type. False: the receiver is dropped.
    async fn refresh(&mut self) -> bool {
        let served = match catalog::discover(&self.client).await {
            Ok(served) => served,
            Err(error) => {
                tracing::warn!(%error, "cannot discover resource types, again later");
                return !self.sender.is_closed();
            }
        };
        // Events are many, live shortly, and own nothing.
        let served: Vec<_> = served.into_iter().filter(|kind| &*kind.id != "events.").collect();
        for (_, (_, task)) in self.running.extract_if(.., |_, (kind, _)| !served.contains(kind)) {
            task.abort();
        }
        if self.sender.send(Seen::Kinds(served.clone())).await.is_err() {
            return false;
        }
        for kind in served.into_iter().filter(|kind| kind.watchable) {
            if !self.running.contains_key(&kind.id) {
                let task = self.tasks.spawn(objects(kind.clone(), &self.client, &self.sender));
                self.running.insert(kind.id.clone(), (kind, task));
            }
        }
        while self.tasks.try_join_next().is_some() {}
        true
    }
}

fn objects(
    kind: Served,
    client: &Client,
    sender: &Sender<Seen>,
) -> impl Future<Output = ()> + Send + use<> {
    let read = |object: Meta| record(object.metadata);
    let id = kind.id.clone();
    let event = move |event| Seen::Object(id.clone(), event);
    follow(kind.api(client, ""), Config::default(), read, event, sender.clone())
}
