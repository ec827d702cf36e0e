//! The scale subresource: shows an `autoscaling/v1` Scale of an object, and writes it back. A Scale is
//! admitted like any other body. Its count is set in the object that the commit replaces, so no other
//! write is lost.

use super::Written;
use super::admit::Admitted;
use super::create::{Input, place};
use super::update::{Part, Proposal, another_name, patched_badly};
use crate::builtins::definitions::enforced;
use crate::decode::Decoded;
use crate::error::{ApiError, FieldError};
use crate::http::query::FieldValidation;
use crate::jsonpath::JsonPath;
use crate::kind::{Kind, NoRules, ScalePaths};
use crate::meta;
use crate::patch::Patch;
use crate::schema::{Node, Schema};
use crate::server::Server;
use serde_json::{Value, json};
use std::sync::{Arc, LazyLock};

/// A Scale after a write.
#[derive(Clone, Debug, PartialEq)]
pub struct Scaled {
    /// The Scale of the written object.
    pub scale: Value,
    /// Texts for `Warning` headers.
    pub warnings: Vec<String>,
}

impl Server {
    /// GET of `/scale`.
    pub fn scale(&self, kind: &Kind, namespace: &str, name: &str) -> Result<Value, ApiError> {
        let stored = self.load(kind, namespace, name)?;
        show(kind, paths(kind)?, &stored.value)
    }

    /// PUT of `/scale`.
    pub async fn replace_scale(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        input: Input,
    ) -> Result<Scaled, ApiError> {
        let paths = paths(kind)?;
        let Admitted { object: scale, warnings } =
            self.admit(scale_kind(), input.decoded, input.validation)?;
        let scale = located(scale, namespace, name)?;
        let propose = |old: &Value| {
            let mut object = scaled(kind, paths, old, &scale)?;
            let uid = meta::uid(&scale);
            if !uid.is_empty() {
                meta::of(&mut object).insert("uid".into(), json!(uid));
            }
            Ok(Proposal { object, warnings: warnings.clone() })
        };
        let written = self.update(kind, namespace, name, Part::Object, false, &propose).await?;
        shown(kind, paths, written)
    }

    /// PATCH of `/scale`.
    pub async fn patch_scale(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        patch: &Patch,
        validation: FieldValidation,
    ) -> Result<Scaled, ApiError> {
        let paths = paths(kind)?;
        let propose = |old: &Value| {
            let value = patch.apply(&describe(paths, old), &scale_kind().schema)?;
            let patched = value.to_string();
            let Admitted { object: scale, warnings } = self
                .admit(scale_kind(), Decoded::plain(value), validation)
                .map_err(|error| patched_badly(scale_kind(), &patched, error))?;
            let scale = located(scale, namespace, name)?;
            // A built-in object without a count can get one.
            let counted = kind.strategic || number(&paths.spec_replicas, old).is_some();
            if !counted && scale["spec"]["replicas"].is_null() {
                return Err(ApiError::bad_request(format!(
                    "the spec replicas field {:?} cannot be empty",
                    paths.spec_replicas
                )));
            }
            let object = scaled(kind, paths, old, &scale)?;
            if kind.strategic && meta::uid(&scale) != meta::uid(old) {
                let why = format!(
                    "Precondition failed: UID in precondition: {}, UID in object meta: {}",
                    meta::uid(&scale),
                    meta::uid(old)
                );
                let resource = format!("{}/scale", kind.plural);
                return Err(ApiError::conflict(&kind.group, &resource, name, &why));
            }
            Ok(Proposal { object, warnings })
        };
        let written = self.update(kind, namespace, name, Part::Object, true, &propose).await?;
        shown(kind, paths, written)
    }
}

/// The kind Scale, for admission.
fn scale_kind() -> &'static Kind {
    static KIND: LazyLock<Kind> = LazyLock::new(|| {
        let root = enforced("io.k8s.api.autoscaling.v1.Scale").unwrap_or_default();
        let schema = crate::schema::compile(&root, &enforced)
            .unwrap_or_else(|_| Schema::new(Arc::from([Node::default()]), 0));
        Kind {
            group: "autoscaling".to_owned(),
            version: "v1".to_owned(),
            kind: "Scale".to_owned(),
            list_kind: "ScaleList".to_owned(),
            plural: "scales".to_owned(),
            singular: "scale".to_owned(),
            short_names: Vec::new(),
            categories: Vec::new(),
            namespaced: true,
            status: false,
            scale: None,
            storage: "scales.autoscaling".into(),
            storage_version: "v1".to_owned(),
            schema,
            strategic: true,
            columns: Vec::new(),
            selectable: Vec::new(),
            rules: Arc::new(NoRules),
        }
    });
    &KIND
}

/// The Scale, if it has the name and namespace of the path.
fn located(mut scale: Value, namespace: &str, name: &str) -> Result<Value, ApiError> {
    let given = meta::name(&scale);
    if given != name {
        return Err(another_name(given, name));
    }
    place(&mut scale, scale_kind(), namespace)?;
    Ok(scale)
}

/// The object with the count of a Scale, and with the version that the Scale names, if any.
fn scaled(kind: &Kind, paths: &ScalePaths, old: &Value, scale: &Value) -> Result<Value, ApiError> {
    let replicas = &scale["spec"]["replicas"];
    let count = if replicas.is_null() { Some(0) } else { replicas.as_i64() };
    let count = count
        .filter(|count| *count >= 0)
        .ok_or_else(|| negative(kind, paths, meta::name(old), replicas))?;
    let mut object = old.clone();
    let mut slot = &mut object;
    for step in paths.spec_replicas.split('.').filter(|step| !step.is_empty()) {
        if slot.is_null() {
            *slot = json!({});
        }
        let Value::Object(map) = slot else {
            return Err(ApiError::internal(format!(
                "the spec replicas field {:?} is below something that is no object",
                paths.spec_replicas
            )));
        };
        slot = map.entry(step).or_insert(Value::Null);
    }
    *slot = json!(count);
    let version = meta::text(scale, "resourceVersion");
    meta::of(&mut object).insert("resourceVersion".into(), json!(version));
    Ok(object)
}

/// The Scale of a written object.
fn shown(kind: &Kind, paths: &ScalePaths, written: Written) -> Result<Scaled, ApiError> {
    let mut object = serde_json::from_slice(&written.bytes).map_err(ApiError::internal)?;
    if kind.converts() {
        kind.rules.to_served(&mut object);
    }
    Ok(Scaled { scale: show(kind, paths, &object)?, warnings: written.warnings })
}

fn paths(kind: &Kind) -> Result<&ScalePaths, ApiError> {
    kind.scale.as_ref().ok_or_else(ApiError::no_such_path)
}

fn number(path: &str, object: &Value) -> Option<i64> {
    let path = JsonPath::parse(path).ok()?;
    path.find(object).first().and_then(|value| value.as_i64())
}

/// The error for a negative count. Built-in kinds report the Scale's field, custom kinds their own.
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
    if number(&paths.spec_replicas, object).is_none() && !kind.strategic {
        let why = format!("the spec replicas field \"{}\" does not exist", paths.spec_replicas);
        return Err(ApiError::internal(why));
    }
    Ok(describe(paths, object))
}

fn describe(paths: &ScalePaths, object: &Value) -> Value {
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
    // kube-apiserver leaves out a desired count of zero.
    let spec = match number(&paths.spec_replicas, object).unwrap_or(0) {
        0 => json!({}),
        count => json!({"replicas": count}),
    };
    json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec,
        "status": status,
    })
}

/// The label selector as text. Custom kinds store it as text, built-in kinds as an object.
fn selector(paths: &ScalePaths, object: &Value) -> Option<String> {
    let path = JsonPath::parse(paths.label_selector.as_deref()?).ok()?;
    match path.find(object).first()? {
        Value::String(text) => Some(text.clone()),
        selector => crate::selector::LabelSelector::from_label_selector(selector)
            .ok()
            .map(|selector| selector.to_string()),
    }
}

#[cfg(test)]
#[path = "scale_tests.rs"]
mod tests;
