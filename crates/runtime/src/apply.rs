//! Applies objects through the API: creates an absent object, and brings an existing one to its manifest with a
//! merge patch. Server-side apply would be better, but the embedded API does not have it yet. `bowline up` and
//! `embedded` use it.

use crate::causes::causes;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams, Request, ValidationDirective};
use kube::core::GroupVersionKind;
use kube::discovery::{self, ApiResource, Scope};
use kube::{Client, Error};
use serde_json::Value;
use std::time::Duration;

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// The object did not exist.
    Created,
    /// The object was changed to match the manifest.
    Configured,
    /// The object matched the manifest.
    Unchanged,
}

/// Why an object cannot be applied.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// It has no apiVersion, kind or name, or its kind cannot be read.
    #[error("not a Kubernetes object: {0}")]
    Unreadable(String),
    /// The API has no such kind.
    #[error("the API serves no {kind} in {api_version}: {}", causes(source))]
    UnknownKind {
        /// Its kind.
        kind: String,
        /// Its apiVersion.
        api_version: String,
        /// What the API said.
        source: Box<Error>,
    },
    /// The API refused it.
    #[error("{what}: {}", causes(source))]
    Refused {
        /// `Kind namespace/name`.
        what: String,
        /// What the API said.
        source: Box<Error>,
    },
}

/// A kind that was defined a moment ago may need a moment to be served.
const PATIENCE: [Duration; 5] = [
    Duration::from_millis(20),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(300),
    Duration::from_millis(1000),
];

/// Applies one object. A field that its kind does not have is refused, as `kubectl --validate=strict` does.
pub async fn strictly(client: &Client, object: &Value) -> Result<Applied, ApplyError> {
    apply(client, object, true).await
}

/// Applies one object. The API drops a field that its kind does not have.
pub async fn object(client: &Client, object: &Value) -> Result<Applied, ApplyError> {
    apply(client, object, false).await
}

async fn apply(client: &Client, object: &Value, strict: bool) -> Result<Applied, ApplyError> {
    let parsed: DynamicObject = serde_json::from_value(object.clone())
        .map_err(|error| ApplyError::Unreadable(error.to_string()))?;
    let types = parsed
        .types
        .as_ref()
        .ok_or_else(|| ApplyError::Unreadable("apiVersion and kind are missing".to_owned()))?;
    let gvk = GroupVersionKind::try_from(types)
        .map_err(|error| ApplyError::Unreadable(error.to_string()))?;
    let (resource, scope) = find(client, &gvk).await?;
    let Some(name) = parsed.metadata.name.clone() else {
        return Err(ApplyError::Unreadable(format!("{} has no metadata.name", gvk.kind)));
    };
    let namespace = parsed.metadata.namespace.as_deref().unwrap_or("default");
    let (api, what): (Api<DynamicObject>, String) = match scope {
        Scope::Namespaced => (
            Api::namespaced_with(client.clone(), namespace, &resource),
            format!("{} {namespace}/{name}", gvk.kind),
        ),
        Scope::Cluster => {
            (Api::all_with(client.clone(), &resource), format!("{} {name}", gvk.kind))
        }
    };
    let refused =
        |source: Error| ApplyError::Refused { what: what.clone(), source: Box::new(source) };
    match api.get_opt(&name).await.map_err(refused)? {
        None => {
            create(client, api.resource_url(), object, strict).await.map_err(refused)?;
            Ok(Applied::Created)
        }
        Some(before) => {
            let params = PatchParams {
                field_validation: strict.then_some(ValidationDirective::Strict),
                ..PatchParams::default()
            };
            let after = api.patch(&name, &params, &Patch::Merge(object)).await.map_err(refused)?;
            Ok(if are_same(before, after) { Applied::Unchanged } else { Applied::Configured })
        }
    }
}

/// Creates an object as it is written: a typed object would lose the fields that its type does not have.
async fn create(client: &Client, url: &str, object: &Value, strict: bool) -> Result<(), Error> {
    let body = serde_json::to_vec(object).map_err(Error::SerdeError)?;
    let request = Request::new(url).create(&PostParams::default(), body);
    let mut request = request.map_err(Error::BuildRequest)?;
    if strict {
        // The client ends the path of a request without parameters with a question mark.
        let uri = request.uri().to_string();
        let uri = uri.trim_end_matches(['?', '&']);
        let separator = if uri.contains('?') { '&' } else { '?' };
        let uri = format!("{uri}{separator}fieldValidation=Strict");
        *request.uri_mut() =
            uri.parse().map_err(|error: http::uri::InvalidUri| Error::HttpError(error.into()))?;
    }
    client.request::<DynamicObject>(request).await.map(drop)
}

/// Whether two versions of an object differ only in fields that are not the manifest's. A controller may have
/// written the status between the two reads.
fn are_same(before: DynamicObject, after: DynamicObject) -> bool {
    let said = |mut object: DynamicObject| {
        object.metadata.resource_version = None;
        object.metadata.managed_fields = None;
        if let Some(fields) = object.data.as_object_mut() {
            fields.remove("status");
        }
        object
    };
    said(before) == said(after)
}

async fn find(client: &Client, gvk: &GroupVersionKind) -> Result<(ApiResource, Scope), ApplyError> {
    let mut waits = PATIENCE.iter();
    loop {
        match discovery::pinned_kind(client, gvk).await {
            Ok((resource, capabilities)) => return Ok((resource, capabilities.scope)),
            Err(source) => match waits.next() {
                Some(wait) => tokio::time::sleep(*wait).await,
                None => {
                    return Err(ApplyError::UnknownKind {
                        kind: gvk.kind.clone(),
                        api_version: gvk.api_version(),
                        source: Box::new(source),
                    });
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_status_written_meanwhile_is_no_change_and_everything_else_is() {
        let object = |version: &str, spec: &str, status: &str, label: &str| {
            serde_json::from_value::<DynamicObject>(json!({
                "apiVersion": "bowline.dev/v1alpha1",
                "kind": "LoadBalancer",
                "metadata": {"name": "edge", "resourceVersion": version, "labels": {"a": label}},
                "spec": {"scope": spec},
                "status": {"phase": status},
            }))
            .unwrap()
        };
        let before = object("1", "Internet", "Pending", "x");
        assert!(are_same(before.clone(), object("2", "Internet", "Running", "x")));
        assert!(!are_same(before.clone(), object("2", "Intranet", "Pending", "x")));
        assert!(!are_same(before, object("2", "Internet", "Pending", "y")));
    }
}
