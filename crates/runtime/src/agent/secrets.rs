//! Follows the Secrets in which the leader hands an agent certificates, and what cookies are signed with:
//! one by one, by name, because an agent may read no others. Most load balancers have one Secret with
//! certificates; one may be missing below another. One that cannot be read holds nothing else back: after
//! a moment the agent goes on without it.

use super::Heard;
use crate::keep::Works;
use crate::metrics::Metrics;
use crate::watch::{self, Seen, Selection, What};
use bowline_api::{convert, names};
use bowline_core::key::ObjectKey;
use bowline_core::resolver::{Event, Kind, Object};
use bowline_core::update::{Certificate, CookieSecret};
use bowline_core::vault;
use futures::future::{join, join_all};
use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use kube::{Client, Error};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

/// So long it may take to find out which Secrets there are.
const LOOK: Duration = Duration::from_secs(1);
/// So long everything else waits for certificates.
const PATIENCE: Duration = Duration::from_secs(3);

/// What a watch shows of a Secret. It is read where it is shown: no more of it goes on than is used.
#[derive(Debug)]
enum Found {
    /// Of the n-th with certificates.
    Certificates(usize, Seen<Vec<(Arc<str>, Arc<Certificate>)>>),
    /// Of the one with what cookies are signed with; with none in it where it cannot be read.
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

/// Roles of before lack Secrets that agents read today; then those who run the agent can help.
fn about(label: &'static str, name: &str) -> What {
    What { label, remedy: Some(format!("may not read {name}; apply deploy/rbac/agent.yaml")) }
}

/// How far one Secret is known.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// It was shown since the last beginning.
    shown: bool,
    /// Whether it exists has been said once.
    synced: bool,
}

/// Follows the Secrets of a load balancer until nobody listens, or one of the watches ends by itself.
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
    let looks = join_all((0..vault::SECRETS).map(|index| is_absent(&api, name(index))));
    let (looks, absent) = join(looks, is_absent(&api, cookies_name.as_str().into())).await;
    let mut cookies = Known { shown: false, synced: absent };
    // All that may exist, those missing between them, and the next.
    let last = looks.iter().rposition(|absent| !absent).map_or(0, |last| last + 1);
    let looks = looks.into_iter().take(last + 1);
    let mut known: Vec<_> = looks.map(|synced| Known { shown: false, synced }).collect();
    let (sender, mut found) = mpsc::channel(16);
    let mut watches = Watches { api, metrics, sender, tasks: JoinSet::new() };
    let named = |index: usize| name(u32::try_from(index).unwrap_or(vault::SECRETS));
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
            // Without one of them the others are not enough.
            Some(_) = watches.tasks.join_next() => return,
        };
        let (index, seen) = match found {
            Found::Certificates(index, seen) => (index, seen),
            Found::Cookies(seen) => {
                cookies.synced |= matches!(seen, Seen::Apply(_) | Seen::Done);
                // One that is gone is still good for the cookies that clients have.
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
                if index + 1 == known.len() && index + 1 < vault::SECRETS as usize {
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

/// Whether there is no such Secret for us. One that we may not read is none; where it is not known in
/// time there may be one.
async fn is_absent(api: &Api<Secret>, name: Arc<str>) -> bool {
    match timeout(LOOK, api.get_metadata_opt(&name)).await {
        Ok(Ok(found)) => found.is_none(),
        Ok(Err(Error::Api(status))) => matches!(status.code, 403 | 404),
        Ok(Err(_)) | Err(_) => false,
    }
}

#[cfg(test)]
mod tests;
