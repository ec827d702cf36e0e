//! Does the last step of a kubelet: deletes a Pod whose grace period is over, because no kubelet
//! runs here. It never touches a Pod whose deletion was not requested.

use super::expiry::{Deleter, Due, Expiry, Name};
use super::shell::{self, Sources};
use super::table::Record;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, PartialObjectMeta};
use kube::runtime::watcher::Config;
use kube::{Api, Client};
use std::convert::identity;
use tokio::sync::watch;

/// When a Pod's grace period ends, if this controller still has to act then.
#[derive(Clone, Debug, PartialEq)]
struct Ending {
    uid: String,
    at: Option<Timestamp>,
}

impl Record for Ending {}

impl Due for Ending {
    fn due(&self, _now: Timestamp) -> Option<Timestamp> {
        self.at
    }

    fn uid(&self) -> &str {
        &self.uid
    }
}

fn record(pod: PartialObjectMeta<Pod>) -> (Name, Ending) {
    let meta = pod.metadata;
    // With no grace left, only finalizers hold the Pod, and they belong to other controllers.
    let waiting = meta.deletion_grace_period_seconds != Some(0);
    let at = meta.deletion_timestamp.filter(|_| waiting).map(|time| time.0);
    let name = (meta.namespace.unwrap_or_default(), meta.name.unwrap_or_default());
    (name, Ending { uid: meta.uid.unwrap_or_default(), at })
}

pub(super) async fn run(client: Client, stop: watch::Receiver<bool>) {
    let sources =
        Sources::new().watch(Api::all(client.clone()), Config::default(), record, identity);
    let deleter = Deleter::<Pod>::new(client, DeleteParams::default().grace_period(0));
    shell::run("pods", Expiry::default(), sources, deleter, stop).await;
}

#[cfg(test)]
mod tests {
    use super::super::expiry::Expire;
    use super::super::shell::{Index, Plan};
    use super::*;
    use kube::runtime::watcher::Event;
    use serde_json::json;

    fn plan(deletion: Option<(&str, i64)>, now: &str) -> Plan<Expire> {
        let mut pod = json!({"metadata": {"namespace": "shop", "name": "web", "uid": "1"}});
        if let Some((time, grace)) = deletion {
            pod["metadata"]["deletionTimestamp"] = json!(time);
            pod["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
        }
        let mut pods = Expiry::default();
        let keys = pods.observe(Event::Apply(record(serde_json::from_value(pod).unwrap())));
        pods.plan(&keys[0], now.parse().unwrap())
    }

    #[test]
    fn a_pod_ends_when_its_grace_is_over_and_not_before() {
        let deletion = Some(("2030-01-01T00:00:30Z", 30));
        let at = "2030-01-01T00:00:30Z".parse().unwrap();
        let end = Expire { name: ("shop".into(), "web".into()), uid: "1".into() };
        assert_eq!(plan(deletion, "2030-01-01T00:00:29Z"), Plan::At(at));
        assert_eq!(plan(deletion, "2030-01-01T00:00:30Z"), Plan::Do(vec![end]));
    }

    #[test]
    fn a_pod_that_lives_or_waits_only_for_finalizers_is_left_alone() {
        assert_eq!(plan(None, "2031-01-01T00:00:00Z"), Plan::Idle);
        let held = Some(("2030-01-01T00:00:30Z", 0));
        assert_eq!(plan(held, "2031-01-01T00:00:00Z"), Plan::Idle);
    }
}
