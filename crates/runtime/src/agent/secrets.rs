//! Follows the Secrets in which the leader gives an agent its certificates and its cookie secret: each by
//! name, because an agent may read no others. Most load balancers have one Secret with certificates; of
//! several, one with a lower index may be missing. A Secret that cannot be read delays the agent only for
//! a moment. `agent.rs` starts it.

use super::Heard;
use crate::metrics::Metrics;
use crate::supervise::Works;
use crate::watch::{self, Seen, Selection, What};
use bowline_api::{convert, names};
use bowline_core::certificate_rooms;
use bowline_core::key::ObjectKey;
use bowline_core::resolver::{Event, Kind, Object};
use bowline_core::update::{Certificate, CookieSecret};
use futures::future::{join, join_all};
use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use kube::{Client, Error};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

/// How long it may take to find out which Secrets exist.
const LOOK: Duration = Duration::from_secs(1);
/// How long the agent waits for certificates before it goes on without them.
const PATIENCE: Duration = Duration::from_secs(3);

/// What a watch shows of a Secret, parsed at once: only what is used is passed on.
#[derive(Debug)]
enum Found {
    /// The n-th Secret with certificates.
    Certificates(usize, Seen<Vec<(Arc<str>, Arc<Certificate>)>>),
    /// The Secret with the cookie secret; None if its content cannot be read.
    Cookies(Seen<Option<CookieSecret>>),
}

/// The watches, one for each Secret.
struct Watches {
    api: Api<Secret>,
    metrics: Metrics,
    sender: mpsc::Sender<Found>,
    tasks: JoinSet<()>,
}

impl Watches {
    fn certificates(&mut self, index: usize, name: &str) {
        self.start("certificates", name, move |seen| {
            Found::Certificates(index, seen.map(|secret| convert::certificates(&secret)))
        });
    }

    fn cookies(&mut self, name: &str) {
        self.start("cookies", name, |seen| {
            Found::Cookies(seen.map(|secret| convert::cookie_secret(&secret)))
        });
    }

    fn start(
        &mut self,
        label: &'static str,
        name: &str,
        read: impl Fn(Seen<Secret>) -> Found + Send + 'static,
    ) {
        let selection = Selection::fields(format!("metadata.name={name}"));
        let what = about(label, name);
        let (api, metrics, sender) = (self.api.clone(), self.metrics.clone(), self.sender.clone());
        let read = move |seen| Some(read(seen));
        self.tasks.spawn(watch::follow(api, selection, what, metrics, sender, read));
    }
}

/// Manifests of an older version do not grant all Secrets that agents read today; the log then says which
/// one to apply.
fn about(label: &'static str, name: &str) -> What {
    What { label, remedy: Some(format!("may not read {name}; apply deploy/rbac/agent.yaml")) }
}

/// What is known of one Secret.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// The Secret was shown since the list began.
    shown: bool,
    /// It is known whether the Secret exists.
    synced: bool,
}

/// Follows the Secrets of a load balancer until the listener is gone or one of the watches ends by
/// itself.
pub(super) async fn follow(
    client: Client,
    namespace: String,
    load_balancer: String,
    metrics: Metrics,
    listener: mpsc::Sender<Heard>,
    works: Works,
) {
    let begun = Instant::now();
    if listener.send(Heard::now(Event::Begin(Kind::Certificates))).await.is_err() {
        return;
    }
    let api: Api<Secret> = Api::namespaced(client, &namespace);
    let name = |index| Arc::<str>::from(names::certificates_secret(&load_balancer, index));
    let cookies_name = names::cookies_secret(&load_balancer);
    let looks = join_all((0..certificate_rooms::SECRETS).map(|index| is_absent(&api, name(index))));
    let (looks, absent) = join(looks, is_absent(&api, cookies_name.as_str().into())).await;
    let mut cookies = Known { shown: false, synced: absent };
    // All Secrets up to the last one that may exist, and the one after it.
    let last = looks.iter().rposition(|absent| !absent).map_or(0, |last| last + 1);
    let looks = looks.into_iter().take(last + 1);
    let mut known: Vec<_> = looks.map(|synced| Known { shown: false, synced }).collect();
    let (sender, mut found) = mpsc::channel(16);
    let mut watches = Watches { api, metrics, sender, tasks: JoinSet::new() };
    let named = |index: usize| name(u32::try_from(index).unwrap_or(certificate_rooms::SECRETS));
    watches.cookies(&cookies_name);
    (0..known.len()).for_each(|index| watches.certificates(index, &named(index)));
    let mut told = false;
    loop {
        let late = begun.elapsed() >= PATIENCE;
        let all = cookies.synced && known.iter().all(|one| one.synced);
        if all {
            works.now();
        }
        if !told && (late || all) {
            told = true;
            if listener.send(Heard::now(Event::Done(Kind::Certificates))).await.is_err() {
                return;
            }
        }
        let found = tokio::select! {
            found = found.recv() => match found {
                Some(found) => found,
                None => return,
            },
            () = sleep_until(begun + PATIENCE), if !told => continue,
            // A watch ended: the others are not enough without it.
            Some(_) = watches.tasks.join_next() => return,
        };
        let (index, seen) = match found {
            Found::Certificates(index, seen) => (index, seen),
            Found::Cookies(seen) => {
                cookies.synced |= matches!(seen, Seen::Apply(_) | Seen::Done);
                // If the Secret is deleted, its content stays valid for the cookies that clients have.
                let Seen::Apply(secret) = seen else { continue };
                let Some(secret) = secret else {
                    tracing::warn!(name = cookies_name, "a Secret has no key to sign cookies with");
                    continue;
                };
                let event = Event::Apply(Object::CookieSecret(secret));
                if listener.send(Heard::now(event)).await.is_err() {
                    return;
                }
                continue;
            }
        };
        let gone = || Event::Delete(Kind::Certificates, ObjectKey::new("", named(index)));
        let event = match seen {
            Seen::Begin => {
                known[index].shown = false;
                None
            }
            Seen::Apply(certificates) => {
                known[index] = Known { shown: true, synced: true };
                if index + 1 == known.len() && index + 1 < certificate_rooms::SECRETS as usize {
                    known.push(Known::default());
                    watches.certificates(index + 1, &named(index + 1));
                }
                Some(Event::Apply(Object::Certificates(named(index), certificates)))
            }
            Seen::Delete(_) => Some(gone()),
            Seen::Done => {
                known[index].synced = true;
                (!known[index].shown).then(gone)
            }
        };
        if let Some(event) = event
            && listener.send(Heard::now(event)).await.is_err()
        {
            return;
        }
    }
}

/// Whether this Secret does not exist for this agent. A Secret that it may not read counts as absent.
/// Without an answer in time the Secret may exist.
async fn is_absent(api: &Api<Secret>, name: Arc<str>) -> bool {
    match timeout(LOOK, api.get_metadata_opt(&name)).await {
        Ok(Ok(found)) => found.is_none(),
        Ok(Err(Error::Api(status))) => matches!(status.code, 403 | 404),
        Ok(Err(_)) | Err(_) => false,
    }
}

#[cfg(test)]
mod tests;
