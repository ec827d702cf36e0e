//! The first steps of every write: is this the right kind of object, does it have the right structure,
//! and what did the writer put in that nobody knows. What remains is an object of the kind's schema.

use crate::decode::Decoded;
use crate::error::{ApiError, FieldError};
use crate::http::query::FieldValidation;
use crate::kind::Kind;
use crate::meta;
use crate::schema::Schema;
use crate::schema::object_meta;
use crate::server::{Server, Translation};
use serde_json::{Value, json};

/// An object of the kind's schema, and what to tell its writer.
pub(super) struct Admitted {
    pub(super) object: Value,
    pub(super) warnings: Vec<String>,
}

impl Server {
    /// Checks and cleans a body. Unknown and duplicate fields are refused, warned of or dropped, as
    /// the writer asked.
    pub(super) fn admit(
        &self,
        kind: &Kind,
        decoded: Decoded,
        validation: FieldValidation,
    ) -> Result<Admitted, ApiError> {
        let Decoded { mut value, mut duplicates } = decoded;
        check_type(kind, &value)?;
        translate(self.translate.as_ref(), kind, &mut value)?;
        if kind.strategic {
            drop_nulls(&kind.schema, &mut value);
        } else if let Some(metadata) = value.get_mut("metadata") {
            drop_nulls(object_meta(), metadata);
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
        let mut complaints: Vec<String> =
            unknown.into_iter().map(|path| format!("unknown field \"{path}\"")).collect();
        complaints.extend(duplicates.drain(..).map(|path| format!("duplicate field \"{path}\"")));
        match validation {
            FieldValidation::Strict if !complaints.is_empty() => {
                let list = complaints.join(", ");
                Err(unhandled(kind, &format!("strict decoding error: {list}")))
            }
            FieldValidation::Warn => Ok(Admitted { object: value, warnings: complaints }),
            _ => Ok(Admitted { object: value, warnings: Vec::new() }),
        }
    }

    /// Built-in kinds are decoded into types by a real server: a value of the wrong type is a broken
    /// request there. Custom objects answer for their types in validation; only `metadata` is typed.
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
    if given_kind.is_empty() && !kind.strategic {
        return Err(ApiError::bad_request(format!(
            "Object 'Kind' is missing in '{}'",
            shortened(value)
        )));
    }
    if given_version.is_empty() && !kind.strategic {
        return Err(ApiError::bad_request(format!(
            "Object 'apiVersion' is missing in '{}'",
            shortened(value)
        )));
    }
    if !given_version.is_empty() && given_version != kind.api_version() {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({given_version}) does not match the expected API version \
             ({})",
            kind.api_version()
        )));
    }
    if !given_kind.is_empty() && given_kind != kind.kind {
        return Err(ApiError::bad_request(format!(
            "{given_kind} in version \"{}\" cannot be handled as a {}: the kind does not match",
            kind.version, kind.kind
        )));
    }
    Ok(())
}

/// Enough of a value to recognise it in a message.
fn shortened(value: &Value) -> String {
    value.to_string().chars().take(200).collect()
}

/// The product's own rewrites, where it has any for this kind.
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

/// In typed objects null and absent are the same. Free-form parts keep their nulls.
fn drop_nulls(schema: &Schema, value: &mut Value) {
    if schema.node().preserve_unknown {
        return;
    }
    match value {
        Value::Object(map) => {
            map.retain(|_, member| !member.is_null());
            for (name, member) in map {
                if let Some(inner) = schema.member(name) {
                    drop_nulls(&inner, member);
                }
            }
        }
        Value::Array(items) => {
            if let Some(inner) = schema.items() {
                items.iter_mut().for_each(|item| drop_nulls(&inner, item));
            }
        }
        _ => {}
    }
}

/// Empty and absent are the same for the collections of `metadata`.
fn drop_empty_metadata(value: &mut Value) {
    meta::of(value).retain(|_, member| match member {
        Value::Object(map) => !map.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::String(text) => !text.is_empty(),
        _ => true,
    });
}
