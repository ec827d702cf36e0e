//! Carries out planned writes of slices. An update names the revision for which it was planned, so it
//! overwrites no other change. Annotations and other foreign fields stay.

use super::super::catalog::gone_is_fine;
use super::super::shell::{Act, Outcome};
use super::plan::{Action, Content};
use super::records::{self, Condition, Family, Identity, Name, Port};
use super::{Index, Seen};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::ObjectMeta;
use kube::runtime::watcher::Event;
use kube::{Api, Client};
use serde_json::{Value, json};

/// The longest name that can be generated.
const LONGEST_NAME: usize = 253;

/// Writes slices.
#[derive(Clone)]
pub(super) struct Actor(pub(super) Client);

impl Act<Index> for Actor {
    async fn act(&self, action: Action) -> Result<Outcome<Seen>, kube::Error> {
        let api = |namespace: &str| Api::<EndpointSlice>::namespaced(self.0.clone(), namespace);
        let written = match action {
            Action::Create { service, owner, family, content } => {
                let slice = new(&service, owner, family, content);
                api(&service.0).create(&PostParams::default(), &slice).await?
            }
            Action::Update { slice, uid, version, removed, content } => {
                let patch = Patch::Merge(patch(&uid, version, removed, content));
                api(&slice.0).patch(&slice.1, &PatchParams::default(), &patch).await?
            }
            Action::Delete { slice, uid } => {
                let this = Preconditions { uid: Some(uid), resource_version: None };
                let params = DeleteParams::default().preconditions(this);
                gone_is_fine(api(&slice.0).delete(&slice.1, &params).await)?;
                return Ok(Outcome::Done(Vec::new()));
            }
        };
        // The index gets the slice at once: a plan made before the watch delivers it would create the
        // slice again.
        Ok(Outcome::Done(vec![Seen::Slice(Event::Apply(records::slice(written)))]))
    }
}

fn new(service: &Name, owner: String, family: Family, content: Content) -> EndpointSlice {
    let prefix = format!("{}-", service.1);
    let owner = OwnerReference {
        api_version: "v1".into(),
        kind: "Service".into(),
        name: service.1.clone(),
        uid: owner,
        controller: Some(true),
        block_owner_deletion: Some(true),
    };
    EndpointSlice {
        metadata: ObjectMeta {
            namespace: Some(service.0.clone()),
            generate_name: Some(if prefix.len() > LONGEST_NAME {
                service.1.clone()
            } else {
                prefix
            }),
            labels: Some(content.labels),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        address_type: family.as_str().into(),
        ports: Some(content.ports.into_iter().map(port).collect()),
        endpoints: Some(content.endpoints.into_iter().map(endpoint).collect()),
    }
}

fn patch(uid: &str, version: u64, removed: Vec<String>, content: Content) -> Value {
    let kept = content.labels.into_iter().map(|(key, value)| (key, Value::String(value)));
    let gone = removed.into_iter().map(|key| (key, Value::Null));
    let labels: serde_json::Map<String, Value> = kept.chain(gone).collect();
    let ports: Vec<EndpointPort> = content.ports.into_iter().map(port).collect();
    let endpoints: Vec<Endpoint> = content.endpoints.into_iter().map(endpoint).collect();
    json!({
        "metadata": {"uid": uid, "resourceVersion": version.to_string(), "labels": labels},
        "ports": ports,
        "endpoints": endpoints,
    })
}

fn port(port: Port) -> EndpointPort {
    EndpointPort {
        name: Some(port.name),
        protocol: Some(port.protocol),
        port: port.port,
        app_protocol: port.app_protocol,
    }
}

fn endpoint((identity, condition): (Identity, Condition)) -> Endpoint {
    let target = identity.target.map(|(namespace, name)| ObjectReference {
        kind: Some("Pod".into()),
        namespace: Some(namespace),
        name: Some(name),
        uid: Some(condition.uid),
        ..ObjectReference::default()
    });
    Endpoint {
        addresses: identity.addresses,
        hostname: identity.hostname,
        target_ref: target,
        conditions: Some(EndpointConditions {
            ready: condition.ready,
            serving: condition.serving,
            terminating: condition.terminating,
        }),
        node_name: condition.node,
        zone: condition.zone,
        ..Endpoint::default()
    }
}
