//! JSON patch, merge patch and strategic merge patch of plain values. A body is parsed once and
//! applied at every retry of the commit. It does no I/O and knows no kind; the write path calls it.

mod json;
mod order;
mod strategic;

use crate::error::{ApiError, FieldError};
use crate::kind::Kind;
use crate::schema::Schema;
use serde_json::{Map, Value};

/// The media types of patches, in the order of the error message.
const ACCEPTED: [&str; 3] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];

/// A parsed patch.
#[derive(Clone, Debug, PartialEq)]
pub enum Patch {
    /// RFC 6902.
    Json(json_patch::Patch),
    /// RFC 7386.
    Merge(Value),
    /// Kubernetes' own format: a merge patch that merges lists by key. Built-in kinds only.
    Strategic(Value),
}

impl Patch {
    /// As [`Patch::parse`] for one kind: only built-in kinds accept strategic merge patches. Built-in
    /// and custom kinds refuse other content types in different words, as in kube-apiserver.
    pub fn parse_for(kind: &Kind, content_type: &str, body: &[u8]) -> Result<Patch, ApiError> {
        match Self::parse(content_type, body) {
            Ok(Patch::Strategic(_)) if !kind.strategic => Err(unknown_format(&ACCEPTED[..2])),
            Err(error) if error.code == 415 && !is_apply(content_type) => Err(if kind.strategic {
                ApiError::unsupported_media_type("415: Unsupported Media Type")
            } else {
                unknown_format(&ACCEPTED[..2])
            }),
            read => read,
        }
    }

    /// Reads the body of a PATCH request of this content type.
    pub fn parse(content_type: &str, body: &[u8]) -> Result<Patch, ApiError> {
        match media_type(content_type) {
            "application/json-patch+json" => json::parse(body).map(Patch::Json),
            "application/merge-patch+json" => match object(body, "error decoding patch: ")? {
                Value::Null => Err(ApiError::bad_request("Invalid JSON Patch")),
                patch => Ok(Patch::Merge(patch)),
            },
            "application/strategic-merge-patch+json" => {
                Ok(Patch::Strategic(match object(body, "")? {
                    Value::Null => Value::Object(Map::new()),
                    patch => patch,
                }))
            }
            _ if is_apply(content_type) => Err(ApiError::unsupported_media_type(
                "server-side apply is not implemented by this server",
            )),
            _ => Err(unknown_format(&ACCEPTED)),
        }
    }

    /// The object after the patch. If the patch fails, nothing is changed.
    pub fn apply(&self, object: &Value, schema: &Schema) -> Result<Value, ApiError> {
        let patched = match self {
            Patch::Json(patch) => json::apply(object, patch)?,
            Patch::Merge(patch) => {
                let mut patched = object.clone();
                merge(&mut patched, patch);
                patched
            }
            Patch::Strategic(patch) => strategic::apply(object, patch, schema)?,
        };
        if patched.is_object() {
            // The limits of a body also hold for the result of a patch.
            crate::decode::check(&patched).map_err(ApiError::bad_request)?;
            return Ok(patched);
        }
        let why = format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value of \
             type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \
             \"json:\\\"kind,omitempty\\\"\" }}",
            json_type(&patched)
        );
        let text = Value::String(patched.to_string());
        Err(ApiError::invalid("", "", "", &[FieldError::invalid("patch", &text, why)]))
    }
}

fn media_type(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or_default().trim()
}

fn is_apply(content_type: &str) -> bool {
    media_type(content_type) == "application/apply-patch+yaml"
}

fn unknown_format(accepted: &[&str]) -> ApiError {
    ApiError::unsupported_media_type(format!(
        "the body of the request was in an unknown format - accepted media types include: {}",
        accepted.join(", ")
    ))
}

/// The JSON error, in kube-apiserver's words if they are simple.
fn json_error(error: &serde_json::Error) -> String {
    if error.is_eof() { "unexpected end of JSON input".to_owned() } else { error.to_string() }
}

/// An object or null, or kube-apiserver's 400.
fn object(body: &[u8], prefix: &str) -> Result<Value, ApiError> {
    let value: Value = serde_json::from_slice(body)
        .map_err(|error| ApiError::bad_request(format!("{prefix}{}", json_error(&error))))?;
    match value {
        Value::Object(_) | Value::Null => Ok(value),
        other => Err(ApiError::bad_request(format!(
            "{prefix}json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            json_type(&other)
        ))),
    }
}

/// RFC 7386 with kube-apiserver's one addition: null members of new values are removed, even inside
/// lists. Clients that write absent fields as null depend on it.
fn merge(target: &mut Value, patch: &Value) {
    let (Value::Object(target), Value::Object(patch)) = (&mut *target, patch) else {
        *target = patch.clone();
        prune_nulls(target);
        return;
    };
    for (key, value) in patch {
        if value.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key.as_str()).or_insert(Value::Null), value);
        }
    }
}

/// Removes all null members, also inside lists. Null items of lists stay.
fn prune_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, member| !member.is_null());
            map.values_mut().for_each(prune_nulls);
        }
        Value::Array(list) => list.iter_mut().for_each(prune_nulls),
        _ => {}
    }
}

/// The 422 of a valid patch that does not fit the object. kube-apiserver gives no details.
fn does_not_apply() -> ApiError {
    ApiError::new(422, "Invalid", "the server rejected our request due to an error in our request")
        .generic()
}

/// Go's name of a JSON value's type.
fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The Go type of a decoded value, as kube-apiserver's messages show it.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

#[cfg(test)]
mod tests;
