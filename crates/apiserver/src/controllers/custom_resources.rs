//! Deletes the objects of a CustomResourceDefinition that is being deleted, waits until none is left,
//! and then removes the definition's finalizer. kube-apiserver does this itself. It never touches a
//! definition whose deletion was not requested.

use super::catalog::{self, Served};
use super::deletions::{self, Deletions, Finish, State};
use super::shell::{self, Act, Outcome, Sources};
use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionCondition,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{ApiResource, Patch, PatchParams};
use kube::runtime::watcher::{Config, Event};
use kube::{Api, Client};
use serde_json::json;
use std::collections::BTreeSet;
use std::convert::identity;
use tokio::sync::watch;

/// The finalizer that this controller removes.
const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

fn record(definition: CustomResourceDefinition) -> (String, State) {
    let waits = waits(&definition);
    deletions::record(definition.metadata, waits)
}

fn waits(definition: &CustomResourceDefinition) -> bool {
    let meta = &definition.metadata;
    meta.deletion_timestamp.is_some()
        && meta.finalizers.iter().flatten().any(|finalizer| finalizer == FINALIZER)
}

/// How a definition's objects can be reached.
#[derive(Debug, PartialEq)]
enum Reach {
    /// The definition was never served, so it has no objects.
    NeverServed,
    /// No version is served, so clients cannot see the objects; the server deletes them itself.
    Hidden,
    /// By this resource type.
    Served(Served),
}

fn reach(definition: &CustomResourceDefinition) -> Reach {
    let conditions = definition.status.as_ref().and_then(|status| status.conditions.as_deref());
    let established = |condition: &CustomResourceDefinitionCondition| {
        condition.type_ == "Established" && condition.status == "True"
    };
    if !conditions.unwrap_or_default().iter().any(established) {
        return Reach::NeverServed;
    }
    let spec = &definition.spec;
    let served = || spec.versions.iter().filter(|version| version.served);
    let Some(version) = served().find(|version| version.storage).or_else(|| served().next()) else {
        return Reach::Hidden;
    };
    Reach::Served(Served {
        id: format!("{}.{}", spec.names.plural, spec.group).into(),
        resource: ApiResource {
            group: spec.group.clone(),
            version: version.name.clone(),
            api_version: format!("{}/{}", spec.group, version.name),
            kind: spec.names.kind.clone(),
            plural: spec.names.plural.clone(),
        },
        namespaced: spec.scope == "Namespaced",
        collection: true,
        watchable: true,
    })
}

/// The conditions to write while objects are being deleted, if they are not written yet.
fn terminating(
    old: &[CustomResourceDefinitionCondition],
    reason: &str,
    message: &str,
    now: Timestamp,
) -> Option<Vec<CustomResourceDefinitionCondition>> {
    let known = old.iter().find(|condition| condition.type_ == "Terminating");
    let since = known
        .filter(|condition| condition.status == "True")
        .and_then(|condition| condition.last_transition_time.clone());
    let condition = CustomResourceDefinitionCondition {
        type_: "Terminating".into(),
        status: "True".into(),
        reason: Some(reason.into()),
        message: Some(message.into()),
        last_transition_time: Some(since.unwrap_or(Time(now))),
        ..known.cloned().unwrap_or_default()
    };
    if known == Some(&condition) {
        return None;
    }
    let others = old.iter().filter(|condition| condition.type_ != "Terminating").cloned();
    Some(others.chain([condition]).collect())
}

#[derive(Clone)]
struct Actor(Client);

impl Act<Deletions> for Actor {
    async fn act(
        &self,
        Finish { name, uid }: Finish,
    ) -> Result<Outcome<Event<(String, State)>>, kube::Error> {
        let api: Api<CustomResourceDefinition> = Api::all(self.0.clone());
        let Some(definition) = api.get_opt(&name).await? else {
            return Ok(Outcome::Done(Vec::new()));
        };
        if definition.metadata.uid.as_ref() != Some(&uid) || !waits(&definition) {
            return Ok(Outcome::Done(Vec::new()));
        }
        let (reason, message) =
            ("InstanceDeletionInProgress", "CustomResource deletion is in progress");
        match reach(&definition) {
            Reach::NeverServed => {}
            Reach::Hidden => {}
            Reach::Served(served) => {
                say(&api, &definition, reason, message).await?;
                if purge(&self.0, &served).await? > 0 {
                    return Ok(Outcome::Again);
                }
            }
        }
        match release(&api, &name, &uid).await {
            Ok(()) => Ok(Outcome::Done(Vec::new())),
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let message =
                    format!("could not confirm zero CustomResources remaining: {}", status.message);
                // The write above changed the revision, so the definition is read again.
                if let Some(definition) = api.get_opt(&name).await? {
                    say(&api, &definition, "InstanceDeletionCheck", &message).await?;
                }
                Ok(Outcome::Again)
            }
            Err(error) => Err(error),
        }
    }
}

async fn say(
    api: &Api<CustomResourceDefinition>,
    definition: &CustomResourceDefinition,
    reason: &str,
    message: &str,
) -> Result<(), kube::Error> {
    let old = definition.status.as_ref().and_then(|status| status.conditions.as_deref());
    let new = terminating(old.unwrap_or_default(), reason, message, Timestamp::now());
    if let (Some(new), Some(name)) = (new, &definition.metadata.name) {
        let patch = json!({"status": {"conditions": new}});
        api.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    }
    Ok(())
}

/// Deletes every object. Returns how many remain.
async fn purge(client: &Client, served: &Served) -> Result<usize, kube::Error> {
    let all = served.api(client, "");
    let mut namespaces = BTreeSet::new();
    catalog::list(&all, |object| {
        namespaces.insert(object.namespace.unwrap_or_default());
    })
    .await?;
    if namespaces.is_empty() {
        return Ok(0);
    }
    for namespace in namespaces {
        catalog::delete_all(client, served, &namespace).await?;
    }
    let mut left = 0;
    catalog::list(&all, |_| left += 1).await?;
    Ok(left)
}

async fn release(
    api: &Api<CustomResourceDefinition>,
    name: &str,
    uid: &str,
) -> Result<(), kube::Error> {
    let Some(mut meta) = api.get_metadata_opt(name).await?.map(|object| object.metadata) else {
        return Ok(());
    };
    let finalizers = meta.finalizers.get_or_insert_default();
    finalizers.retain(|finalizer| finalizer != FINALIZER);
    let patch = json!({"metadata": {
        "uid": uid, "resourceVersion": meta.resource_version, "finalizers": finalizers,
    }});
    api.patch_metadata(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

pub(super) async fn run(client: Client, stop: watch::Receiver<bool>) {
    let sources =
        Sources::new().watch(Api::all(client.clone()), Config::default(), record, identity);
    shell::run("custom-resources", Deletions::default(), sources, Actor(client), stop).await;
}

#[cfg(test)]
mod tests {
    use super::super::shell::{Index, Plan};
    use super::*;
    use serde_json::Value;

    fn definition(versions: Value, established: &str) -> CustomResourceDefinition {
        serde_json::from_value(json!({
            "metadata": {
                "name": "things.example.com", "uid": "1", "finalizers": [FINALIZER],
                "deletionTimestamp": "2030-01-01T00:00:00Z",
            },
            "spec": {
                "group": "example.com", "scope": "Namespaced", "versions": versions,
                "names": {"plural": "things", "kind": "Thing"},
            },
            "status": {"conditions": [{"type": "Established", "status": established}]},
        }))
        .unwrap()
    }

    fn plan(definition: CustomResourceDefinition) -> Plan<Finish> {
        let mut definitions = Deletions::default();
        let keys = definitions.observe(Event::Apply(record(definition)));
        definitions.plan(&keys[0], Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn only_a_deleted_definition_with_our_finalizer_is_purged() {
        let deleted = definition(json!([]), "True");
        let purge = Finish { name: "things.example.com".into(), uid: "1".into() };
        assert_eq!(plan(deleted.clone()), Plan::Do(vec![purge]));
        let mut living = deleted.clone();
        living.metadata.deletion_timestamp = None;
        assert_eq!(plan(living), Plan::Idle);
        let mut released = deleted;
        released.metadata.finalizers = None;
        assert_eq!(plan(released), Plan::Idle);
    }

    #[test]
    fn objects_are_reached_through_the_stored_version_if_it_is_served() {
        let version = |name: &str, served: bool, storage: bool| json!({"name": name, "served": served, "storage": storage});
        let api_version = |versions| match reach(&definition(versions, "True")) {
            Reach::Served(served) => served.resource.api_version,
            other => format!("{other:?}"),
        };
        assert_eq!(
            api_version(json!([version("v1", true, false), version("v2", true, true)])),
            "example.com/v2"
        );
        assert_eq!(
            api_version(json!([version("v1", true, false), version("v2", false, true)])),
            "example.com/v1"
        );
        assert_eq!(api_version(json!([version("v1", false, true)])), "Hidden");
        assert_eq!(reach(&definition(json!([]), "False")), Reach::NeverServed);
    }

    #[test]
    fn the_terminating_condition_is_written_once() {
        let time = Timestamp::UNIX_EPOCH;
        let written = terminating(&[], "Why", "what", time).unwrap();
        assert_eq!(terminating(&written, "Why", "what", Timestamp::MAX), None);
        let changed = terminating(&written, "Other", "what", Timestamp::MAX).unwrap();
        assert_eq!(changed[0].last_transition_time, Some(Time(time)));
    }
}
