//! The scale subresource: an `autoscaling/v1` Scale shown from an object and written back into it.

use super::update::Part;
use crate::error::{ApiError, FieldError};
use crate::http::query::FieldValidation;
use crate::jsonpath::JsonPath;
use crate::kind::{Kind, ScalePaths};
use crate::meta;
use crate::patch::Patch;
use crate::schema::{Node, Schema};
use crate::server::Server;
use serde_json::{Value, json};
use std::sync::Arc;

impl Server {
    /// GET of `/scale`.
    pub fn scale(&self, kind: &Kind, namespace: &str, name: &str) -> Result<Value, ApiError> {
        let paths = paths(kind)?;
        let stored = self.read(kind, namespace, name)?;
        show(kind, paths, &stored.value)
    }

    /// PUT of `/scale`.
    pub async fn replace_scale(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        scale: &Value,
    ) -> Result<Value, ApiError> {
        let paths = paths(kind)?;
        let replicas = match &scale["spec"]["replicas"] {
            Value::Null => 0,
            value => value
                .as_i64()
                .filter(|count| *count >= 0)
                .ok_or_else(|| negative(kind, paths, name, value))?,
        };
        let mut patch = json!({});
        let version = meta::text(scale, "resourceVersion");
        if !version.is_empty() {
            patch["metadata"] = json!({"resourceVersion": version});
        }
        let mut slot = &mut patch;
        for step in paths.spec_replicas.split('.').filter(|step| !step.is_empty()) {
            slot = &mut slot[step];
        }
        *slot = json!(replicas);
        let patch = Patch::Merge(patch);
        let written = self
            .patch(kind, namespace, name, Part::Object, &patch, FieldValidation::Ignore)
            .await?;
        let value = serde_json::from_slice(&written.bytes).map_err(ApiError::internal)?;
        show(kind, paths, &value)
    }

    /// PATCH of `/scale`.
    pub async fn patch_scale(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        patch: &Patch,
    ) -> Result<Value, ApiError> {
        let paths = paths(kind)?;
        let stored = self.read(kind, namespace, name)?;
        // What has no count yet can be given one.
        let current = show(kind, paths, &stored.value)
            .unwrap_or_else(|_| json!({"metadata": stored.value["metadata"], "spec": {}}));
        let free_form = Schema::new(Arc::from([Node::default()]), 0);
        let mut wanted = patch.apply(&current, &free_form)?;
        // The version that was read here is not a demand of the client's.
        if wanted["metadata"]["resourceVersion"] == current["metadata"]["resourceVersion"] {
            meta::of(&mut wanted).remove("resourceVersion");
        }
        self.replace_scale(kind, namespace, name, &wanted).await
    }
}

fn paths(kind: &Kind) -> Result<&ScalePaths, ApiError> {
    kind.scale.as_ref().ok_or_else(ApiError::no_such_path)
}

fn number(path: &str, object: &Value) -> Option<i64> {
    let path = JsonPath::parse(path).ok()?;
    path.find(object).first().and_then(|value| value.as_i64())
}

/// Workloads answer for the Scale, custom kinds for their own field.
fn negative(kind: &Kind, paths: &ScalePaths, name: &str, value: &Value) -> ApiError {
    if kind.strategic {
        let why = "must be greater than or equal to 0";
        let error = FieldError::invalid("spec.replicas", value, why);
        return ApiError::invalid("autoscaling", "Scale", name, &[error]);
    }
    let why = "should be a non-negative integer";
    let error = FieldError::invalid(&paths.spec_replicas, value, why);
    ApiError::invalid(&kind.group, &kind.kind, name, &[error])
}

fn show(kind: &Kind, paths: &ScalePaths, object: &Value) -> Result<Value, ApiError> {
    let wanted = number(&paths.spec_replicas, object);
    if wanted.is_none() && !kind.strategic {
        let why = format!("the spec replicas field \"{}\" does not exist", paths.spec_replicas);
        return Err(ApiError::internal(why));
    }
    let mut metadata = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object["metadata"].get(field) {
            metadata[field] = value.clone();
        }
    }
    let mut status = json!({"replicas": number(&paths.status_replicas, object).unwrap_or(0)});
    if let Some(selector) = selector(paths, object) {
        status["selector"] = json!(selector);
    }
    // A real server leaves a desired count of zero out.
    let spec = match wanted.unwrap_or(0) {
        0 => json!({}),
        count => json!({"replicas": count}),
    };
    Ok(json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec,
        "status": status,
    }))
}

/// The label selector as text: stored as text by custom kinds, as an object by workloads.
fn selector(paths: &ScalePaths, object: &Value) -> Option<String> {
    let path = JsonPath::parse(paths.label_selector.as_deref()?).ok()?;
    match path.find(object).first()? {
        Value::String(text) => Some(text.clone()),
        selector => crate::selector::LabelSelector::from_label_selector(selector)
            .ok()
            .map(|selector| selector.to_string()),
    }
}
