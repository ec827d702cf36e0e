//! Bowline's own namespace: every controller makes it before anything can be recorded there, and again when it was
//! deleted. Also a controller that does not lead makes it: the Lease of the election is in it. The leader writes again
//! what was in it.

use crate::causes::causes;
use crate::metrics::Metrics;
use crate::random;
use crate::roles::RoleError;
use crate::watch::{self, Seen, Selection};
use bowline_core::backoff::Backoff;
use bowline_core::clock::in_words;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::PostParams;
use kube::{Api, Client, Error};
use serde_json::json;
use std::time::Duration;
use tokio::sync::{mpsc, watch as signal};

/// Bowline's namespace must exist before anything can be recorded in it.
pub(super) async fn ensure(client: &Client, name: &str) -> Result<(), RoleError> {
    let api: Api<Namespace> = Api::all(client.clone());
    // In a cluster the manifests create it, and the controller may not be allowed to read it.
    if !matches!(api.get_opt(name).await, Ok(None)) {
        return Ok(());
    }
    create(&api, name).await.map(drop).map_err(|source| RoleError::Api {
        doing: format!("cannot make namespace {name}"),
        source: Box::new(source),
    })
}

/// How a namespace came to be there.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Made {
    Here,
    /// Another controller was quicker.
    Elsewhere,
}

async fn create(api: &Api<Namespace>, name: &str) -> Result<Made, Error> {
    let namespace = json!({"metadata": {"name": name}});
    let namespace = serde_json::from_value(namespace).map_err(Error::SerdeError)?;
    match api.create(&PostParams::default(), &namespace).await {
        Ok(_) => Ok(Made::Here),
        Err(Error::Api(status)) if status.code == 409 => Ok(Made::Elsewhere),
        Err(error) => Err(error),
    }
}

/// Makes the namespace again whenever it is gone, and counts in `made` how often. Runs until it is dropped.
pub(super) async fn keep(
    client: Client,
    name: String,
    metrics: Metrics,
    made: signal::Sender<u64>,
) {
    let api: Api<Namespace> = Api::all(client);
    let (sender, mut seen) = mpsc::channel(16);
    let only = Selection::fields(format!("metadata.name={name}"));
    let followed = watch::follow(api.clone(), only, "Namespace", metrics, sender, |seen| {
        Some(seen.map(|_: Namespace| ()))
    });
    let remade = async {
        let mut exists = true;
        while let Some(seen) = seen.recv().await {
            match seen {
                Seen::Begin => exists = false,
                Seen::Apply(()) => exists = true,
                Seen::Delete(()) => {
                    exists = false;
                    remake(&api, &name, &made).await;
                }
                Seen::Done if !exists => remake(&api, &name, &made).await,
                Seen::Done => {}
            }
        }
    };
    tokio::select! {
        () = followed => {}
        () = remade => {}
    }
}

/// The namespace is gone.
async fn remake(api: &Api<Namespace>, name: &str, made: &signal::Sender<u64>) {
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(15));
    loop {
        match create(api, name).await {
            Ok(by) => {
                let made_again = match by {
                    Made::Here => "the namespace was deleted; it is made again",
                    Made::Elsewhere => {
                        "the namespace was deleted; another process has made it again"
                    }
                };
                tracing::warn!(namespace = name, "{made_again}");
                made.send_modify(|count| *count += 1);
                return;
            }
            Err(Error::Api(status)) if status.code == 403 => {
                tracing::error!(
                    namespace = name,
                    "the namespace was deleted, and this controller may not make it: apply the manifests of Bowline \
                     again; agents serve what they know until then"
                );
                return;
            }
            Err(error) => {
                let (why, wait) = (causes(&error), backoff.failed(random::number()));
                tracing::warn!(namespace = name, why, wait = %in_words(wait), "cannot make the namespace again");
                tokio::time::sleep(wait).await;
            }
        }
    }
}
