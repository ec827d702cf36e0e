//! Writes Kubernetes Events as `bowline_core::event_correlator` decides, so that `kubectl describe` shows what is
//! wrong with an object. An Event that the API refuses is dropped; one that gets no answer is written
//! later. The first Event of a process about something is named after its content, so that a new leader
//! does not repeat what the leader before it has written. The controller and the template role start it.

use crate::api_timeout::answer;
use crate::metrics::Metrics;
use bowline_api::{AddressPool, LoadBalancerClaim, names};
use bowline_core::event_correlator::{About, EventCorrelator, EventDraft, Limits, Severity, Write};
use bowline_core::key::ConsumerKind;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, Error, Resource as _};
use parking_lot::Mutex;
use serde_json::json;
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// How long nothing is written after the API has not answered.
const UNANSWERED: Duration = Duration::from_secs(1);

/// The handle with which parts of the process record Events.
#[derive(Clone, Debug)]
pub(crate) struct EventRecorder {
    correlator: Arc<Mutex<EventCorrelator>>,
    /// Wakes the writer, which ends when all copies of this handle are dropped.
    wake: mpsc::Sender<()>,
    /// Whether recorder are written, or dropped.
    enabled: Arc<AtomicBool>,
    begun: Instant,
}

impl EventRecorder {
    /// Sets whether Events are written from now on. When that ends, waiting Events are dropped: another
    /// leader writes them then.
    pub(crate) fn set_enabled(&self, enabled: bool) {
        self.enabled.store(enabled, Ordering::Relaxed);
        if !enabled {
            self.correlator.lock().clear();
        }
    }

    /// Records an Event, unless too many Events about objects of its namespace wait already.
    pub(crate) fn record(&self, draft: EventDraft) {
        if !self.enabled.load(Ordering::Relaxed) {
            return;
        }
        if !self.correlator.lock().add(draft, self.begun.elapsed()) {
            tracing::debug!("an Event was dropped: too many of its namespace wait");
        }
        // If the channel is full, the writer is about to look anyway.
        let _ = self.wake.try_send(());
    }
}

/// Writes Events until all [`EventRecorder`] are dropped and nothing that may be written now is left.
pub(crate) fn start(
    client: Client,
    component: &'static str,
    instance: String,
    metrics: Metrics,
) -> (EventRecorder, impl Future<Output = ()> + Send + 'static) {
    let (wake, mut woken) = mpsc::channel::<()>(1);
    let correlator = Arc::new(Mutex::new(EventCorrelator::new(Limits::default())));
    let enabled = Arc::new(AtomicBool::new(false));
    let (shared, still_enabled, begun) =
        (Arc::clone(&correlator), Arc::clone(&enabled), Instant::now());
    let run = async move {
        let mut shell =
            Shell { client, component, instance, names: HashMap::new(), said: HashSet::new() };
        let mut over = false;
        loop {
            let next = shared.lock().take(begun.elapsed());
            let Some((draft, write)) = next else {
                if over {
                    return;
                }
                let again = shared.lock().again();
                let again = async {
                    match again {
                        Some(wait) => tokio::time::sleep(wait).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    heard = woken.recv() => over = heard.is_none(),
                    () = again => {}
                }
                continue;
            };
            if let Err((id, error)) = shell.write(&draft, write).await {
                metrics.error("Event");
                tracing::debug!(object = %draft.object, %error, "cannot write an Event");
                shared.lock().lost(id);
                // A refused write would be refused again, except the count of an Event that is gone.
                let code = if let Error::Api(status) = &error { status.code } else { 503 };
                let answered = code != 429 && code < 500;
                let gone = code == 404 && matches!(write, Write::Update { .. });
                if (gone || !answered) && !over && still_enabled.load(Ordering::Relaxed) {
                    shared.lock().add(draft, begun.elapsed());
                }
                if !answered {
                    tokio::time::sleep(UNANSWERED).await;
                }
            }
        }
    };
    (EventRecorder { correlator, wake, enabled, begun }, run)
}

struct Shell {
    client: Client,
    /// The component that reports.
    component: &'static str,
    instance: String,
    /// The names of Events that were created.
    names: HashMap<u64, String>,
    /// Hashes of what this process has written.
    said: HashSet<u64>,
}

/// The most hashes, and about the most names, that are remembered.
const REMEMBERED: usize = 8192;

impl Shell {
    async fn write(&mut self, what: &EventDraft, write: Write) -> Result<(), (u64, Error)> {
        let namespace = namespace(what);
        let api: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        match write {
            Write::Create { id, count } => {
                let now = Timestamp::now();
                let content = content(what);
                let first = !self.said.contains(&content);
                let name = if first {
                    name(what.object.name(), content, 0)
                } else {
                    name(what.object.name(), nanoseconds(now), crate::random::number())
                };
                let mut event = event(what, namespace, (self.component, &self.instance), now);
                event.metadata.name = Some(name.clone());
                event.count = i32::try_from(count).ok();
                let params = PostParams {
                    field_manager: Some(self.component.to_owned()),
                    ..PostParams::default()
                };
                match answer(api.create(&params, &event)).await {
                    Ok(_) => drop(self.names.insert(id, name)),
                    // Another process has created this Event, and counts it.
                    Err(Error::Api(status)) if first && status.code == 409 => {}
                    Err(error) => return Err((id, error)),
                }
                if self.said.len() == REMEMBERED {
                    self.said.clear();
                }
                self.said.insert(content);
                // Ids only grow; the correlator remembers no more than a few thousand of them.
                if self.names.len() > REMEMBERED {
                    let newest = id;
                    self.names.retain(|id, _| newest - id < REMEMBERED as u64);
                }
            }
            Write::Update { id, count } => {
                let Some(name) = self.names.get(&id) else { return Ok(()) };
                let patch = json!({"count": count, "lastTimestamp": Time(Timestamp::now())});
                answer(api.patch(name, &PatchParams::default(), &Patch::Merge(patch)))
                    .await
                    .map_err(|error| (id, error))?;
            }
        }
        Ok(())
    }
}

/// The namespace of an Event. For objects without one it is `default`: kubectl looks there.
fn namespace(what: &EventDraft) -> &str {
    let namespace = what.object.namespace();
    if namespace.is_empty() { "default" } else { namespace }
}

/// The most bytes of an object's name at the start of an Event's name, so that Kubernetes accepts the
/// whole.
const LONGEST_BEGINNING: usize = 253 - 1 - 16 - 16;

/// A name for an Event: from its content, or from the time and a random number.
fn name(object: &str, what: u64, random: u32) -> String {
    let end = object.floor_char_boundary(LONGEST_BEGINNING);
    let beginning = object[..end].trim_end_matches(['.', '-']);
    format!("{beginning}.{what:016x}{random:08x}")
}

fn nanoseconds(now: Timestamp) -> u64 {
    u64::try_from(now.as_nanosecond()).unwrap_or_default()
}

/// The hash of object and message. It may differ between builds: then the Event is written once more.
fn content(what: &EventDraft) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

fn event(
    what: &EventDraft,
    namespace: &str,
    (component, instance): (&str, &str),
    now: Timestamp,
) -> Event {
    let object = &what.object;
    let ours = || format!("{}/{}", names::GROUP, names::VERSION);
    let (api_version, kind) = match object {
        About::Consumer(consumer) => {
            let api_version = match consumer.kind {
                ConsumerKind::Service => "v1".to_owned(),
                ConsumerKind::Ingress => "networking.k8s.io/v1".to_owned(),
                ConsumerKind::LoadBalancer => ours(),
            };
            (api_version, consumer.kind.to_string())
        }
        About::Claim { .. } => (ours(), LoadBalancerClaim::kind(&()).into_owned()),
        About::Pool { .. } => (ours(), AddressPool::kind(&()).into_owned()),
    };
    let own = (!object.namespace().is_empty()).then(|| object.namespace().to_string());
    Event {
        metadata: ObjectMeta { namespace: Some(namespace.to_owned()), ..ObjectMeta::default() },
        involved_object: ObjectReference {
            api_version: Some(api_version),
            kind: Some(kind),
            name: Some(object.name().to_string()),
            namespace: own,
            uid: Some(object.uid().to_string()),
            ..ObjectReference::default()
        },
        reason: Some(what.reason.to_string()),
        message: Some(what.message.to_string()),
        type_: Some(
            match what.severity {
                Severity::Normal => "Normal",
                Severity::Warning => "Warning",
            }
            .to_owned(),
        ),
        source: Some(EventSource { component: Some(component.to_owned()), host: None }),
        reporting_component: Some(component.to_owned()),
        reporting_instance: Some(instance.to_owned()),
        first_timestamp: Some(Time(now)),
        last_timestamp: Some(Time(now)),
        ..Event::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_an_event_is_never_too_long() {
        let now = nanoseconds(Timestamp::from_second(1_800_000_000).unwrap());
        assert_eq!(name("shop", now, 7), "shop.18fae27693b4000000000007");
        assert!(name(&"a.".repeat(126), u64::MAX, u32::MAX).len() <= 253);
    }
}
