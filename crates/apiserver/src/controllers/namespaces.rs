//! Empties a Namespace that is being deleted and then removes its finalizer. Its conditions say what
//! it still waits for. It never touches a Namespace whose deletion was not requested.

use super::catalog::{self, Served};
use super::deletions::{self, Deletions, Finish, State};
use super::shell::{self, Act, Outcome, Sources};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, NamespaceCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::watcher::{Config, Event};
use kube::{Api, Client};
use serde_json::json;
use std::collections::BTreeMap;
use std::convert::identity;
use tokio::sync::watch;

/// The finalizer in `spec` that this controller removes.
const FINALIZER: &str = "kubernetes";

fn record(namespace: Namespace) -> (String, State) {
    let waits = waits(&namespace);
    deletions::record(namespace.metadata, waits)
}

fn waits(namespace: &Namespace) -> bool {
    let finalizers = namespace.spec.as_ref().and_then(|spec| spec.finalizers.as_deref());
    namespace.metadata.deletion_timestamp.is_some()
        && finalizers.unwrap_or_default().iter().any(|finalizer| finalizer == FINALIZER)
}

/// What is left in a namespace after everything in it was deleted.
#[derive(Debug, Default, PartialEq)]
struct Left {
    /// How many objects, by resource.
    resources: BTreeMap<String, usize>,
    /// How many of them wait for each finalizer.
    finalizers: BTreeMap<String, usize>,
    /// Errors of the deletion.
    failures: Vec<String>,
}

impl Left {
    fn nothing(&self) -> bool {
        self.resources.is_empty() && self.failures.is_empty()
    }

    /// Deletes all objects of a type, and counts those that remain.
    async fn clear(&mut self, client: &Client, served: &Served, namespace: &str) {
        if let Err(error) = self.try_clear(client, served, namespace).await {
            self.failures.push(format!("{}: {error}", served.id));
        }
    }

    async fn try_clear(
        &mut self,
        client: &Client,
        served: &Served,
        namespace: &str,
    ) -> Result<(), kube::Error> {
        let api = served.api(client, namespace);
        let mut count = 0;
        catalog::gone_is_fine(catalog::list(&api, |_| count += 1).await)?;
        if count == 0 {
            return Ok(());
        }
        catalog::delete_all(client, served, namespace).await?;
        let listed = catalog::list(&api, |object| {
            *self.resources.entry(served.id.to_string()).or_default() += 1;
            for finalizer in object.finalizers.into_iter().flatten() {
                *self.finalizers.entry(finalizer).or_default() += 1;
            }
        });
        catalog::gone_is_fine(listed.await)
    }

    /// The conditions of a Namespace with this state: type, the problem (if any), and reason and
    /// message for both cases, in the words of kube-controller-manager.
    fn conditions(&self) -> [NamespaceCondition; 5] {
        let resources = join(&self.resources, "has", "resource instances");
        let finalizers = join(&self.finalizers, "in", "resource instances");
        let failures = format!(
            "Failed to delete all resource types, {} remaining: {}",
            self.failures.len(),
            self.failures.join(", ")
        );
        let condition = |type_: &str, wrong: Option<(&str, String)>, right: (&str, &str)| {
            let status = if wrong.is_some() { "True" } else { "False" };
            let (reason, message) = wrong.unwrap_or((right.0, right.1.to_owned()));
            NamespaceCondition {
                type_: type_.to_owned(),
                status: status.to_owned(),
                reason: Some(reason.to_owned()),
                message: Some(message),
                last_transition_time: None,
            }
        };
        [
            condition(
                "NamespaceDeletionDiscoveryFailure",
                None,
                ("ResourcesDiscovered", "All resources successfully discovered"),
            ),
            condition(
                "NamespaceDeletionGroupVersionParsingFailure",
                None,
                ("ParsedGroupVersions", "All legacy kube types successfully parsed"),
            ),
            condition(
                "NamespaceDeletionContentFailure",
                (!self.failures.is_empty()).then_some(("ContentDeletionFailed", failures)),
                (
                    "ContentDeleted",
                    "All content successfully deleted, may be waiting on finalization",
                ),
            ),
            condition(
                "NamespaceContentRemaining",
                (!self.resources.is_empty()).then(|| {
                    ("SomeResourcesRemain", format!("Some resources are remaining: {resources}"))
                }),
                ("ContentRemoved", "All content successfully removed"),
            ),
            condition(
                "NamespaceFinalizersRemaining",
                (!self.finalizers.is_empty()).then(|| {
                    let message = format!(
                        "Some content in the namespace has finalizers remaining: {finalizers}"
                    );
                    ("SomeFinalizersRemain", message)
                }),
                ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
            ),
        ]
    }
}

fn join(counts: &BTreeMap<String, usize>, verb: &str, what: &str) -> String {
    let parts: Vec<String> =
        counts.iter().map(|(name, count)| format!("{name} {verb} {count} {what}")).collect();
    parts.join(", ")
}

/// The conditions to write, if they differ from those written before. Conditions of other types stay.
fn merge(
    old: &[NamespaceCondition],
    left: &Left,
    now: Timestamp,
) -> Option<Vec<NamespaceCondition>> {
    // A namespace that is deleted at once needs no conditions.
    if old.is_empty() && left.nothing() {
        return None;
    }
    let mut merged = old.to_vec();
    for mut new in left.conditions() {
        match merged.iter_mut().find(|known| known.type_ == new.type_) {
            Some(known) => {
                new.last_transition_time = match &known.last_transition_time {
                    Some(time) if known.status == new.status => Some(time.clone()),
                    _ => Some(Time(now)),
                };
                *known = new;
            }
            None => {
                new.last_transition_time = Some(Time(now));
                merged.push(new);
            }
        }
    }
    (merged != old).then_some(merged)
}

#[derive(Clone)]
struct Actor(Client);

impl Act<Deletions> for Actor {
    async fn act(
        &self,
        Finish { name, uid }: Finish,
    ) -> Result<Outcome<Event<(String, State)>>, kube::Error> {
        let client = &self.0;
        let api: Api<Namespace> = Api::all(client.clone());
        let Some(mut namespace) = api.get_opt(&name).await? else {
            return Ok(Outcome::Done(Vec::new()));
        };
        if namespace.metadata.uid.as_ref() != Some(&uid) || !waits(&namespace) {
            return Ok(Outcome::Done(Vec::new()));
        }
        let left = empty(client, &name).await?;
        // Whether objects remain that clients cannot see is known only when the finalizer is removed,
        // so no condition says so before that.
        if !left.nothing() {
            say(&api, &namespace, &left).await?;
            return Ok(Outcome::Again);
        }
        // Other writers also write here. This write changes the finalizer only, so it names no
        // version.
        namespace.metadata.resource_version = None;
        if let Some(finalizers) = namespace.spec.as_mut().and_then(|spec| spec.finalizers.as_mut())
        {
            finalizers.retain(|finalizer| finalizer != FINALIZER);
        }
        let finalized =
            api.replace_subresource("finalize", &name, &PostParams::default(), &namespace).await;
        match finalized {
            Ok(_) => {
                // A namespace that another finalizer still holds must not keep its old conditions.
                if namespace.metadata.finalizers.as_ref().is_some_and(|held| !held.is_empty()) {
                    catalog::gone_is_fine(say(&api, &namespace, &left).await)?;
                }
                Ok(Outcome::Done(Vec::new()))
            }
            // There are objects that no client can see. The server deletes them if nothing holds
            // them; the conditions say that the namespace waits for them.
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let left = Left { failures: vec![status.message.clone()], ..Left::default() };
                say(&api, &namespace, &left).await?;
                Ok(Outcome::Again)
            }
            Err(error) => Err(error),
        }
    }
}

/// Writes the conditions if they changed.
async fn say(api: &Api<Namespace>, namespace: &Namespace, left: &Left) -> Result<(), kube::Error> {
    let old = namespace.status.as_ref().and_then(|status| status.conditions.as_deref());
    let new = merge(old.unwrap_or_default(), left, Timestamp::now());
    if let (Some(new), Some(name)) = (new, &namespace.metadata.name) {
        let patch = json!({"status": {"conditions": new}});
        api.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    }
    Ok(())
}

/// Pods are deleted first, as kube-controller-manager does: the objects that they use must outlive
/// them.
async fn empty(client: &Client, namespace: &str) -> Result<Left, kube::Error> {
    let served = catalog::discover(client).await?;
    let mut left = Left::default();
    let (pods, others): (Vec<_>, Vec<_>) =
        served.iter().filter(|served| served.namespaced).partition(|served| &*served.id == "pods.");
    for part in [pods, others] {
        for served in part {
            left.clear(client, served, namespace).await;
        }
        if !left.nothing() {
            break;
        }
    }
    Ok(left)
}

pub(super) async fn run(client: Client, stop: watch::Receiver<bool>) {
    let sources =
        Sources::new().watch(Api::all(client.clone()), Config::default(), record, identity);
    shell::run("namespaces", Deletions::default(), sources, Actor(client), stop).await;
}

#[cfg(test)]
mod tests {
    use super::super::shell::{Index, Plan};
    use super::*;

    fn namespace(deleting: bool, finalizers: &[&str]) -> (String, State) {
        let mut object = json!({
            "metadata": {"name": "shop", "uid": "1"}, "spec": {"finalizers": finalizers},
        });
        if deleting {
            object["metadata"]["deletionTimestamp"] = json!("2030-01-01T00:00:00Z");
        }
        record(serde_json::from_value(object).unwrap())
    }

    fn plan(object: (String, State)) -> Plan<Finish> {
        let mut namespaces = Deletions::default();
        let keys = namespaces.observe(Event::Apply(object));
        namespaces.plan(&keys[0], Timestamp::UNIX_EPOCH)
    }

    fn left() -> Left {
        Left {
            resources: [("pods.".to_owned(), 2), ("things.example.com".to_owned(), 1)].into(),
            finalizers: [("example.com/hold".to_owned(), 1)].into(),
            failures: Vec::new(),
        }
    }

    #[test]
    fn only_a_deleted_namespace_with_our_finalizer_is_emptied() {
        let empty = Finish { name: "shop".into(), uid: "1".into() };
        assert_eq!(plan(namespace(true, &["kubernetes"])), Plan::Do(vec![empty]));
        assert_eq!(plan(namespace(false, &["kubernetes"])), Plan::Idle);
        assert_eq!(plan(namespace(true, &["example.com/other"])), Plan::Idle);
    }

    #[test]
    fn the_conditions_say_what_is_left() {
        let conditions = merge(&[], &left(), Timestamp::UNIX_EPOCH).unwrap();
        let said: Vec<_> = conditions
            .iter()
            .map(|c| (c.type_.as_str(), c.status.as_str(), c.message.as_deref().unwrap()))
            .collect();
        assert_eq!(
            said[3..],
            [
                (
                    "NamespaceContentRemaining",
                    "True",
                    "Some resources are remaining: pods. has 2 resource instances, \
                     things.example.com has 1 resource instances"
                ),
                (
                    "NamespaceFinalizersRemaining",
                    "True",
                    "Some content in the namespace has finalizers remaining: \
                     example.com/hold in 1 resource instances"
                ),
            ]
        );
        assert!(said[..3].iter().all(|(_, status, _)| *status == "False"), "{said:?}");
    }

    #[test]
    fn conditions_are_written_only_when_they_change() {
        let now = Timestamp::from_second(100).unwrap();
        let first = merge(&[], &left(), Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(merge(&first, &left(), now), None);
        let second = merge(&first, &Left::default(), now).unwrap();
        let times: Vec<_> =
            second.iter().map(|c| c.last_transition_time.as_ref().unwrap().0.as_second()).collect();
        assert_eq!(times, [0, 0, 0, 100, 100]);
    }

    #[test]
    fn a_namespace_that_was_empty_gets_no_conditions() {
        assert_eq!(merge(&[], &Left::default(), Timestamp::UNIX_EPOCH), None);
    }
}
