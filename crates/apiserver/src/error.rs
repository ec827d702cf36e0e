//! The errors of the Kubernetes API: a `Status` with code, reason, details and causes, and the field
//! errors of an Invalid one. They are values; the HTTP shell turns them into responses.

use serde_json::{Value, json};
use std::collections::HashSet;
use std::fmt;

/// The most field errors in one answer, which ends with the number of the others. kube-apiserver lists
/// all.
const MOST_FIELD_ERRORS: usize = 200;
/// The most bytes of these field errors. The first one is always listed.
const MOST_FIELD_ERROR_TEXT: usize = 256 * 1024;

/// An error, in the form of a Kubernetes `Status` object.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiError {
    /// HTTP status code.
    pub code: u16,
    /// The machine-readable reason, such as `NotFound`. Empty: kube-apiserver gives none.
    pub reason: &'static str,
    /// The message for people.
    pub message: String,
    /// The object or resource that the error is about.
    pub details: Box<Details>,
}

/// The `details` of a Status.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Details {
    /// The object's name.
    pub name: String,
    /// The API group of the resource or kind.
    pub group: String,
    /// The resource (plural) or, for Invalid, the kind.
    pub kind: String,
    /// The object's uid.
    pub uid: String,
    /// The single causes.
    pub causes: Vec<Cause>,
    /// When the client may try again.
    pub retry_after_seconds: u32,
    /// Whether details are sent even if they are empty, as kube-apiserver does in answers that it gives
    /// before it knows the resource.
    pub always: bool,
}

/// One cause of an error.
#[derive(Clone, Debug, PartialEq)]
pub struct Cause {
    /// Such as `FieldValueInvalid`.
    pub reason: &'static str,
    /// The message for people.
    pub message: String,
    /// The JSON path of the field, such as `spec.ports[0].port`.
    pub field: String,
}

impl ApiError {
    /// An error with code, reason and message only.
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: Box::default() }
    }

    /// 400: the request cannot be understood.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 404 for an object of `resource` (the plural) in `group`.
    pub fn not_found(group: &str, resource: &str, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} \"{name}\" not found", qualified(group, resource)))
            .about(group, resource, name)
    }

    /// 404 for an unknown path.
    pub fn no_such_path() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource").generic()
    }

    /// 409: the name is taken.
    pub fn already_exists(group: &str, resource: &str, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", qualified(group, resource));
        Self::new(409, "AlreadyExists", message).about(group, resource, name)
    }

    /// 409: another writer was first, or a precondition does not hold.
    pub fn conflict(group: &str, resource: &str, name: &str, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} \"{name}\": {why}",
            qualified(group, resource)
        );
        Self::new(409, "Conflict", message).about(group, resource, name)
    }

    /// 422: the object is invalid. `kind` is the kind, not the plural.
    pub fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        let mut length = 0;
        let told = errors.iter().take(MOST_FIELD_ERRORS).enumerate().take_while(|(i, error)| {
            length += error.field.len() + error.detail.len();
            length += error.value.as_ref().map_or(0, String::len);
            *i == 0 || length <= MOST_FIELD_ERROR_TEXT
        });
        let told = told.count();
        let (errors, untold) = errors.split_at(told);
        // kube-apiserver lists equal errors once.
        let mut seen = HashSet::new();
        let mut texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        texts.retain(|text| seen.insert(text.clone()));
        if !untold.is_empty() {
            texts.push(format!("and {} more errors", untold.len()));
        }
        let list = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let message = format!("{} \"{name}\" is invalid: {list}", qualified(group, kind));
        let mut error = Self::new(422, "Invalid", message).about(group, kind, name);
        error.details.causes = errors
            .iter()
            .map(|e| Cause { reason: e.kind.cause(), message: e.body(), field: e.field.clone() })
            .collect();
        error
    }

    /// 403: the request is refused.
    pub fn forbidden(group: &str, resource: &str, name: &str, why: &str) -> Self {
        let message = format!("{} \"{name}\" is forbidden: {why}", qualified(group, resource));
        Self::new(403, "Forbidden", message).about(group, resource, name)
    }

    /// 404 for a path outside the API; answered as text.
    pub fn no_page() -> Self {
        Self::new(404, "", "404 page not found\n")
    }

    /// 405: a resource of a custom kind does not support the verb.
    pub fn verb_not_supported(group: &str, resource: &str, verb: &str) -> Self {
        let resource_name = qualified(group, resource);
        let message = format!("{verb} is not supported on resources of kind \"{resource_name}\"");
        Self::new(405, "MethodNotAllowed", message).about(group, resource, "")
    }

    /// 405: the resource does not support the method.
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message).generic()
    }

    /// 410: the requested resource version is too old.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// 413: the body is too large.
    pub fn too_large(limit: usize) -> Self {
        Self::new(
            413,
            "RequestEntityTooLarge",
            format!("Request entity too large: limit is {limit}"),
        )
    }

    /// 415: a content type that this server does not read.
    pub fn unsupported_media_type(message: impl Into<String>) -> Self {
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// 501: a named part of the Kubernetes API that this server does not implement.
    pub fn not_implemented(what: &str) -> Self {
        Self::new(501, "NotImplemented", format!("this server does not implement {what}"))
    }

    /// 500: an error of this server.
    pub fn internal(message: impl fmt::Display) -> Self {
        let text = message.to_string();
        let mut error = Self::new(500, "InternalError", format!("Internal error occurred: {text}"));
        error.details.causes.push(Cause { reason: "", message: text, field: String::new() });
        error
    }

    /// The error with empty details, as kube-apiserver gives it before it knows the resource.
    pub fn generic(mut self) -> Self {
        self.details.always = true;
        self
    }

    /// The error with details that name this object.
    pub fn about(mut self, group: &str, kind: &str, name: &str) -> Self {
        self.details.group = group.to_owned();
        self.details.kind = kind.to_owned();
        self.details.name = name.to_owned();
        self
    }

    /// The `Status` object of the answer.
    pub fn status(&self) -> Value {
        let mut details = serde_json::Map::new();
        let d = &self.details;
        for (key, text) in
            [("name", &d.name), ("group", &d.group), ("kind", &d.kind), ("uid", &d.uid)]
        {
            if !text.is_empty() {
                details.insert(key.into(), json!(text));
            }
        }
        if !d.causes.is_empty() {
            let causes = d.causes.iter().map(|c| {
                let mut cause = serde_json::Map::new();
                for (key, text) in
                    [("reason", c.reason), ("message", &*c.message), ("field", &*c.field)]
                {
                    if !text.is_empty() {
                        cause.insert(key.into(), json!(text));
                    }
                }
                Value::Object(cause)
            });
            details.insert("causes".into(), causes.collect());
        }
        if d.retry_after_seconds > 0 {
            details.insert("retryAfterSeconds".into(), json!(d.retry_after_seconds));
        }
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {},
            "status": "Failure", "message": self.message, "reason": self.reason, "code": self.code,
        });
        if self.reason.is_empty()
            && let Some(map) = status.as_object_mut()
        {
            map.remove("reason");
        }
        if d.always || !details.is_empty() {
            status["details"] = Value::Object(details);
        }
        status
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ApiError {}

/// `services` in the core group, `ingresses.networking.k8s.io` elsewhere.
pub fn qualified(group: &str, name: &str) -> String {
    if group.is_empty() { name.to_owned() } else { format!("{name}.{group}") }
}

/// The kind of a field error. Each has its own wording and cause reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldErrorKind {
    /// A value must be given.
    Required,
    /// The value cannot be used.
    Invalid,
    /// The value is not one of a closed list.
    NotSupported,
    /// The value occurs twice.
    Duplicate,
    /// The field must not be set.
    Forbidden,
    /// Too many bytes or characters.
    TooLong,
    /// Too many items.
    TooMany,
    /// The referenced object does not exist.
    NotFound,
    /// The value is of the wrong JSON type.
    TypeInvalid,
    /// An error of this server during the check.
    Internal,
}

impl FieldErrorKind {
    /// The cause reason in the Status.
    pub fn cause(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::NotFound => "FieldValueNotFound",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::Internal => "InternalError",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Duplicate => "Duplicate value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::NotFound => "Not found",
            Self::Internal => "Internal error",
        }
    }
}

/// One error of one field of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    /// The kind of error.
    pub kind: FieldErrorKind,
    /// The JSON path of the field, such as `spec.ports[0].port`; `<nil>`: no field.
    pub field: String,
    /// The value as the message quotes it, already rendered. None: the wording quotes no value.
    pub value: Option<String>,
    /// What would be valid.
    pub detail: String,
}

impl FieldError {
    /// A value must be given.
    pub fn required(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            kind: FieldErrorKind::Required,
            field: field.into(),
            value: None,
            detail: detail.into(),
        }
    }

    /// The value cannot be used.
    pub fn invalid(field: impl Into<String>, value: &Value, detail: impl Into<String>) -> Self {
        Self {
            kind: FieldErrorKind::Invalid,
            field: field.into(),
            value: Some(quote(value)),
            detail: detail.into(),
        }
    }

    /// The value is of the wrong JSON type; `value` is already rendered.
    pub fn type_invalid(
        field: impl Into<String>,
        value: impl Into<String>,
        detail: impl Into<String>,
    ) -> Self {
        Self {
            kind: FieldErrorKind::TypeInvalid,
            field: field.into(),
            value: Some(value.into()),
            detail: detail.into(),
        }
    }

    /// The value is not one of the supported values.
    pub fn not_supported(field: impl Into<String>, value: &Value, supported: &[&str]) -> Self {
        let list = supported.iter().map(|s| format!("\"{s}\"")).collect::<Vec<_>>().join(", ");
        Self {
            kind: FieldErrorKind::NotSupported,
            field: field.into(),
            value: Some(quote(value)),
            detail: format!("supported values: {list}"),
        }
    }

    /// The value occurs twice.
    pub fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self {
            kind: FieldErrorKind::Duplicate,
            field: field.into(),
            value: Some(quote(value)),
            detail: String::new(),
        }
    }

    /// The field must not be set.
    pub fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            kind: FieldErrorKind::Forbidden,
            field: field.into(),
            value: None,
            detail: detail.into(),
        }
    }

    /// More bytes than allowed.
    pub fn too_long(field: impl Into<String>, limit: usize) -> Self {
        Self {
            kind: FieldErrorKind::TooLong,
            field: field.into(),
            value: None,
            detail: format!("may not be more than {limit} bytes"),
        }
    }

    /// More items than allowed.
    pub fn too_many(field: impl Into<String>, actual: usize, limit: usize) -> Self {
        Self {
            kind: FieldErrorKind::TooMany,
            field: field.into(),
            value: Some(actual.to_string()),
            detail: format!("must have at most {limit} items"),
        }
    }

    /// The message without the field, as in a cause.
    pub fn body(&self) -> String {
        let mut out = self.kind.title().to_owned();
        if let Some(value) = &self.value {
            out.push_str(": ");
            out.push_str(value);
        }
        if !self.detail.is_empty() {
            out.push_str(": ");
            out.push_str(&self.detail);
        }
        out
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

/// A value as Kubernetes quotes it in messages: strings in quotes, the rest as compact JSON.
fn quote(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::String(text) => format!("{text:?}"),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(count: usize, text: &str) -> Vec<FieldError> {
        let field = |i| format!("metadata.labels[{i}]");
        (0..count).map(|i| FieldError::invalid(field(i), &json!(text), "no label")).collect()
    }

    #[test]
    fn a_refusal_tells_of_so_many_errors_and_counts_the_rest() {
        let error = ApiError::invalid("", "ConfigMap", "a", &wrong(10_000, "?"));
        assert_eq!(error.details.causes.len(), 200);
        assert!(error.message.ends_with(", and 9800 more errors]"), "{error}");
        let all = ApiError::invalid("", "ConfigMap", "a", &wrong(200, "?"));
        assert_eq!(all.details.causes.len(), 200);
        assert!(!all.message.contains("more errors"), "{all}");
    }

    #[test]
    fn a_refusal_of_long_values_stays_short_and_is_never_empty() {
        let long = "x".repeat(300_000);
        let error = ApiError::invalid("", "ConfigMap", "a", &wrong(100, &long));
        assert_eq!(error.details.causes.len(), 1);
        assert!(error.message.ends_with("no label, and 99 more errors]"));
    }

    #[test]
    fn what_several_checks_found_is_said_once() {
        let twice = [wrong(1, "?"), wrong(1, "?")].concat();
        let error = ApiError::invalid("", "ConfigMap", "a", &twice);
        assert_eq!(
            error.message,
            "ConfigMap \"a\" is invalid: metadata.labels[0]: Invalid value: \"?\": no label"
        );
        assert_eq!(error.details.causes.len(), 2);
    }
}
