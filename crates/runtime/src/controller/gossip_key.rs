//! The key that speakers have in common: a Secret in Bowline's namespace that the leader makes when there is none. Nothing
//! is derived from it, so a key that was deleted is replaced by another one.

use crate::metrics::Metrics;
use crate::random;
use crate::watch::{self, Seen, Selection};
use bowline_api::{convert, names};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, Client, Error, ResourceExt as _};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::sync::mpsc;

/// When a key is made that could not be made, also because another process leads.
const AGAIN: Duration = Duration::from_secs(2);

/// Makes the key whenever there is none and this process leads. Runs until it is dropped.
pub(super) async fn keep(client: Client, namespace: String, metrics: Metrics) {
    let api: Api<Secret> = Api::namespaced(client, &namespace);
    let (sender, mut seen) = mpsc::channel(16);
    let only = Selection::fields(format!("type={}", names::SECRET_TYPE_GOSSIP));
    let followed = watch::follow(api.clone(), only, "gossip key", metrics, sender, |seen| {
        Some(seen.map(|it: Secret| (it.name_any(), convert::gossip_key(&it).is_some())))
    });
    let making = async {
        let (mut keys, mut listed) = (BTreeSet::new(), false);
        loop {
            let missing = listed && keys.is_empty();
            tokio::select! {
                next = seen.recv() => match next {
                    None => return,
                    Some(Seen::Begin) => (keys, listed) = (BTreeSet::new(), false),
                    Some(Seen::Apply((name, true))) => _ = keys.insert(name),
                    Some(Seen::Apply((name, false)) | Seen::Delete((name, _))) => _ = keys.remove(&name),
                    Some(Seen::Done) => listed = true,
                },
                () = create(&api), if missing => {}
            }
        }
    };
    tokio::select! {
        () = followed => {}
        () = making => {}
    }
}

/// Makes the key, and gives the watch time to deliver it before it is made again.
async fn create(api: &Api<Secret>) {
    match random::secret() {
        Ok(key) => write(api, &key).await,
        Err(error) => tracing::error!(%error, "cannot get random bytes for the key of speakers"),
    }
    tokio::time::sleep(AGAIN).await;
}

async fn write(api: &Api<Secret>, key: &[u8]) {
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some(names::GOSSIP_SECRET.to_owned()),
            ..ObjectMeta::default()
        },
        type_: Some(names::SECRET_TYPE_GOSSIP.to_owned()),
        data: Some(convert::gossip_key_data(key)),
        ..Secret::default()
    };
    let params = PostParams {
        field_manager: Some(names::MANAGER_CONTROLLER.to_owned()),
        ..PostParams::default()
    };
    match api.create(&params, &secret).await {
        Ok(_) => tracing::info!(secret = names::GOSSIP_SECRET, "made the key of speakers"),
        Err(Error::Api(status)) if status.code == 409 => {
            tracing::debug!(
                "the key of speakers is there, or a Secret of another type has its name"
            );
        }
        // Another process leads.
        Err(Error::Service(_)) => {}
        Err(error) => tracing::warn!(%error, "cannot make the key of speakers"),
    }
}
