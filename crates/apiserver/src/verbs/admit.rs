//! The first steps of every write: checks that the body is an object of the right kind with the right
//! structure, and finds fields that the schema does not know. The result is an object of the kind's
//! schema. The verbs call it.

use crate::builtins::drop_nulls;
use crate::decode::Decoded;
use crate::error::{ApiError, FieldError};
use crate::http::query::FieldValidation;
use crate::kind::Kind;
use crate::meta;
use crate::schema::object_meta;
use crate::server::{Server, Translation};
use serde_json::{Value, json};
use std::collections::HashSet;

/// The most unknown and duplicate fields that are reported, as in kube-apiserver.
const MOST_COMPLAINTS: usize = 100;
/// The most bytes of their paths. kube-apiserver has no such limit. The first one is always reported.
const MOST_COMPLAINT_TEXT: usize = 64 * 1024;

/// An object of the kind's schema, with the warnings for its writer.
pub(super) struct Admitted {
    pub(super) object: Value,
    pub(super) warnings: Vec<String>,
}

impl Server {
    /// Checks and cleans a body. Unknown and duplicate fields are refused, reported as warnings, or
    /// dropped, as the writer requests.
    pub(super) fn admit(
        &self,
        kind: &Kind,
        decoded: Decoded,
        validation: FieldValidation,
    ) -> Result<Admitted, ApiError> {
        let Decoded { mut value, duplicates, source } = decoded;
        if value.is_null() && kind.strategic {
            value = json!({});
        }
        check_type(kind, &value)?;
        translate(self.translate.as_ref(), kind, &mut value)?;
        if kind.strategic {
            drop_nulls(&mut value, &kind.schema);
        } else if let Some(metadata) = value.get_mut("metadata") {
            drop_nulls(metadata, object_meta());
        }
        self.check_structure(kind, &value)?;
        let mut unknown = kind.schema.prune(&mut value);
        if !kind.strategic
            && let Some(metadata) = value.get_mut("metadata")
        {
            let inner = object_meta().prune(metadata);
            unknown.extend(inner.into_iter().map(|path| format!("metadata.{path}")));
        }
        drop_empty_metadata(&mut value);
        let warnings = match validation {
            FieldValidation::Ignore => Vec::new(),
            _ => complaints(kind, unknown, duplicates, source.as_deref()),
        };
        if validation == FieldValidation::Strict && !warnings.is_empty() {
            let list = warnings.join(", ");
            return Err(unhandled(kind, &format!("strict decoding error: {list}")));
        }
        Ok(Admitted { object: value, warnings })
    }

    /// kube-apiserver decodes built-in kinds into types: a value of the wrong type makes the request
    /// invalid. The types of custom objects are checked in validation; only their `metadata` is typed.
    fn check_structure(&self, kind: &Kind, value: &Value) -> Result<(), ApiError> {
        let first = if kind.strategic {
            kind.schema.type_errors(value, &kind.kind).into_iter().next()
        } else {
            value.get("metadata").and_then(|metadata| {
                object_meta().type_errors(metadata, "ObjectMeta").into_iter().next()
            })
        };
        match first {
            None => Ok(()),
            Some(error) => Err(unhandled(kind, &error.to_string())),
        }
    }
}

/// The messages about unknown and duplicate fields, in kube-apiserver's order: for built-in kinds as in
/// the body; for custom kinds duplicates first, then by name.
fn complaints(
    kind: &Kind,
    mut unknown: Vec<String>,
    duplicates: Vec<String>,
    source: Option<&[u8]>,
) -> Vec<String> {
    unknown.sort();
    let mut list: Vec<(&str, String)> = Vec::new();
    list.extend(duplicates.into_iter().map(|path| ("duplicate", path)));
    list.extend(unknown.into_iter().map(|path| ("unknown", path)));
    if kind.strategic
        && list.len() > 1
        && let Some(source) = source
    {
        // For a duplicate field the second place counts.
        let places = crate::decode::places(source, list.iter().map(|(_, path)| path.as_str()));
        list.sort_by_key(|(_, path)| places.get(path).copied());
    }
    let mut seen = HashSet::new();
    list.retain(|complaint| seen.insert(complaint.clone()));
    let mut text = 0;
    let told = list.into_iter().take(MOST_COMPLAINTS).enumerate().take_while(|(i, (_, path))| {
        text += path.len();
        *i == 0 || text <= MOST_COMPLAINT_TEXT
    });
    told.map(|(_, (what, path))| format!("{what} field \"{path}\"")).collect()
}

/// 400 for a body that is not an object of the kind.
fn unhandled(kind: &Kind, why: &str) -> ApiError {
    ApiError::bad_request(format!(
        "{} in version \"{}\" cannot be handled as a {}: {why}",
        kind.kind, kind.version, kind.kind
    ))
}

fn check_type(kind: &Kind, value: &Value) -> Result<(), ApiError> {
    let Some(object) = value.as_object() else {
        return Err(unhandled(kind, "json: cannot unmarshal a value that is not an object"));
    };
    let given_kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
    let given_version = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    for (field, given) in [("Kind", given_kind), ("apiVersion", given_version)] {
        if given.is_empty() && !kind.strategic {
            let text = shortened(value);
            return Err(ApiError::bad_request(format!(
                "the object provided is unrecognized (must be of type {}): Object '{field}' is missing \
                 in '{text}' ({text})",
                kind.kind
            )));
        }
    }
    if !given_version.is_empty() && given_version != kind.api_version() && kind.strategic {
        let version = given_version.rsplit('/').next().unwrap_or_default();
        let given_kind = if given_kind.is_empty() { &kind.kind } else { given_kind };
        return Err(ApiError::bad_request(format!(
            "{given_kind} in version \"{version}\" cannot be handled as a {}: no kind \"{given_kind}\" is \
             registered for version \"{given_version}\"",
            kind.kind
        )));
    }
    if !given_version.is_empty() && given_version != kind.api_version() {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({given_version}) does not match the expected API version \
             ({})",
            kind.api_version()
        )));
    }
    if !given_kind.is_empty() && given_kind != kind.kind && !kind.strategic {
        let why = format!("must be {}", kind.kind);
        let error = FieldError::invalid("kind", &json!(given_kind), why);
        return Err(ApiError::invalid(&kind.group, given_kind, meta::name(value), &[error]));
    }
    if !given_kind.is_empty() && given_kind != kind.kind {
        let group = kind.group.split('.').next().filter(|group| !group.is_empty());
        return Err(ApiError::bad_request(format!(
            "{given_kind} in version \"{}\" cannot be handled as a {}: converting ({}.{given_kind}) to \
             ({}.{}): unknown conversion",
            kind.version,
            kind.kind,
            kind.version,
            group.unwrap_or("core"),
            kind.kind
        )));
    }
    Ok(())
}

/// The beginning of a value, enough to recognise it in a message.
fn shortened(value: &Value) -> String {
    value.to_string().chars().take(200).collect()
}

/// Applies the product's own translation, if there is one for this kind.
pub(super) fn translate(
    translation: Option<&Translation>,
    kind: &Kind,
    value: &mut Value,
) -> Result<(), ApiError> {
    let Some(translation) = translation else { return Ok(()) };
    translation(&kind.group, &kind.kind, value).map_err(|why| {
        let error = FieldError::invalid("spec", &json!(meta::name(value)), why);
        ApiError::invalid(&kind.group, &kind.kind, meta::name(value), &[error])
    })
}

/// For the collections of `metadata`, empty means absent.
fn drop_empty_metadata(value: &mut Value) {
    meta::of(value).retain(|_, member| match member {
        Value::Object(map) => !map.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::String(text) => !text.is_empty(),
        _ => true,
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn config_map() -> Kind {
        let options = crate::server::Options::default();
        let store = crate::store::Store::memory(crate::store::Limits::default());
        let server = Server::new(store, options).unwrap();
        (*server.kind("", "v1", "configmaps").unwrap()).clone()
    }

    #[test]
    fn as_many_complaints_as_the_real_server_has_in_the_order_of_the_body() {
        let names: Vec<String> = (0..50_000).rev().map(|i| format!("f{i}")).collect();
        let fields: Vec<String> = names.iter().map(|name| format!("\"{name}\":1")).collect();
        let source = format!("{{{}}}", fields.join(","));
        let started = Instant::now();
        let told = complaints(&config_map(), names.clone(), Vec::new(), Some(source.as_bytes()));
        assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
        let expected: Vec<String> =
            names[..100].iter().map(|name| format!("unknown field \"{name}\"")).collect();
        assert_eq!(told, expected);
    }

    #[test]
    fn long_paths_make_few_complaints_and_never_none() {
        let long: Vec<String> =
            ["a", "b", "c"].iter().map(|name| name.repeat(MOST_COMPLAINT_TEXT)).collect();
        let told = complaints(&config_map(), long, Vec::new(), None);
        assert_eq!(told.len(), 1);
    }
}
