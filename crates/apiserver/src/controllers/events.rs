//! Deletes Events an hour after they last occurred; kube-apiserver's storage does this by itself. It
//! reads only the times of an Event.

use super::expiry::{Deleter, Due, Expiry, Name};
use super::shell::{self, Sources};
use super::table::Record;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Event;
use kube::api::DeleteParams;
use kube::runtime::watcher::Config;
use kube::{Api, Client};
use std::convert::identity;
use tokio::sync::watch;

/// How long an Event is kept.
const KEPT: SignedDuration = SignedDuration::from_hours(1);

#[derive(Clone, Debug, PartialEq)]
struct Seen {
    uid: String,
    created: Timestamp,
    /// The latest time that the Event's writer gave.
    last: Timestamp,
}

impl Record for Seen {}

fn record(event: Event) -> (Name, Seen) {
    let meta = event.metadata;
    let created = meta.creation_timestamp.map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    let series = event.series.and_then(|series| series.last_observed_time).map(|time| time.0);
    let last =
        [event.last_timestamp.map(|time| time.0), event.event_time.map(|time| time.0), series];
    let last = last.into_iter().flatten().fold(created, Timestamp::max);
    let name = (meta.namespace.unwrap_or_default(), meta.name.unwrap_or_default());
    (name, Seen { uid: meta.uid.unwrap_or_default(), created, last })
}

impl Due for Seen {
    fn due(&self, now: Timestamp) -> Option<Timestamp> {
        // A writer whose clock is ahead must not keep an Event forever.
        let seen = if self.last <= now { self.last } else { self.created };
        seen.checked_add(KEPT).ok()
    }

    fn uid(&self) -> &str {
        &self.uid
    }
}

pub(super) async fn run(client: Client, stop: watch::Receiver<bool>) {
    let sources =
        Sources::new().watch(Api::all(client.clone()), Config::default(), record, identity);
    let deleter = Deleter::<Event>::new(client, DeleteParams::default());
    shell::run("events", Expiry::default(), sources, deleter, stop).await;
}

#[cfg(test)]
mod tests {
    use super::super::expiry::Expire;
    use super::super::shell::{Index, Plan};
    use super::*;
    use kube::runtime::watcher;
    use serde_json::{Value, json};

    fn plan(times: Value, now: &str) -> Plan<Expire> {
        let mut event = json!({
            "metadata": {
                "namespace": "shop", "name": "web.1", "uid": "1",
                "creationTimestamp": "2030-01-01T00:00:00Z",
            },
            "involvedObject": {},
        });
        event.as_object_mut().unwrap().append(&mut times.as_object().unwrap().clone());
        let mut events = Expiry::default();
        let event = record(serde_json::from_value(event).unwrap());
        let keys = events.observe(watcher::Event::Apply(event));
        events.plan(&keys[0], now.parse().unwrap())
    }

    fn expire() -> Plan<Expire> {
        Plan::Do(vec![Expire { name: ("shop".into(), "web.1".into()), uid: "1".into() }])
    }

    #[test]
    fn an_event_is_deleted_an_hour_after_the_latest_of_its_times() {
        for times in [
            json!({}),
            json!({"lastTimestamp": "2030-01-01T00:00:00Z"}),
            json!({"lastTimestamp": "2029-01-01T00:00:00Z"}),
            json!({"eventTime": "2030-01-01T00:00:00.000000Z"}),
            json!({
                "eventTime": "2029-01-01T00:00:00.000000Z",
                "series": {"count": 2, "lastObservedTime": "2030-01-01T00:00:00.000000Z"}
            }),
        ] {
            let at = "2030-01-01T01:00:00Z".parse().unwrap();
            assert_eq!(plan(times.clone(), "2030-01-01T00:59:59Z"), Plan::At(at), "{times}");
            assert_eq!(plan(times.clone(), "2030-01-01T01:00:00Z"), expire(), "{times}");
        }
    }

    #[test]
    fn a_later_sighting_keeps_an_event_longer() {
        let times = json!({"lastTimestamp": "2030-01-01T00:30:00Z"});
        let at = "2030-01-01T01:30:00Z".parse().unwrap();
        assert_eq!(plan(times, "2030-01-01T01:10:00Z"), Plan::At(at));
    }

    #[test]
    fn a_time_in_the_future_does_not_keep_an_event() {
        let times = json!({"lastTimestamp": "2999-01-01T00:30:00Z"});
        assert_eq!(plan(times, "2030-01-01T01:00:00Z"), expire());
    }
}
