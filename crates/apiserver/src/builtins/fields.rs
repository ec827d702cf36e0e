//! Helpers of the rules: they read, default and validate fields of objects held as JSON. Null counts as
//! absent, and a value of the wrong type never panics, because defaults run before the types are
//! checked.

use crate::error::FieldError;
use serde_json::{Map, Value, json};

/// A string field. Empty if it is absent.
pub(super) fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

/// An integer field. 0 if it is absent.
pub(super) fn int(value: &Value, field: &str) -> i64 {
    value[field].as_i64().unwrap_or_default()
}

/// The items of a list field. Empty if it is absent.
pub(super) fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value[field].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The strings of a list field.
pub(super) fn texts<'a>(value: &'a Value, field: &str) -> Vec<&'a str> {
    list(value, field).iter().filter_map(Value::as_str).collect()
}

/// The entries of a map field.
pub(super) fn entries<'a>(
    value: &'a Value,
    field: &str,
) -> impl Iterator<Item = (&'a String, &'a Value)> {
    value[field].as_object().into_iter().flatten()
}

/// Whether a field is present.
pub(super) fn has(value: &Value, field: &str) -> bool {
    !value[field].is_null()
}

/// Sets a field. Does nothing if the value is not an object.
pub(super) fn set(value: &mut Value, field: &str, to: Value) {
    if let Value::Object(map) = value {
        map.insert(field.to_owned(), to);
    }
}

/// Sets a field. Null removes it.
pub(super) fn put(value: &mut Value, field: &str, to: Value) {
    if to.is_null() { remove(value, field) } else { set(value, field, to) }
}

/// Removes a field.
pub(super) fn remove(value: &mut Value, field: &str) {
    if let Value::Object(map) = value {
        map.remove(field);
    }
}

/// Sets a field that is absent.
pub(super) fn default(value: &mut Value, field: &str, to: impl Into<Value>) {
    if !has(value, field) {
        set(value, field, to.into());
    }
}

/// Sets a string field that is absent or empty.
pub(super) fn default_text(value: &mut Value, field: &str, to: &str) {
    if !has(value, field) || value[field] == "" {
        set(value, field, json!(to));
    }
}

/// Removes fields that a typed server does not write: absent, empty or zero ones.
pub(super) fn omit_empty(value: &mut Value, fields: &[&str]) {
    let Value::Object(map) = value else { return };
    for field in fields {
        let empty = match map.get(*field) {
            Some(Value::Null) => true,
            Some(Value::String(text)) => text.is_empty(),
            Some(Value::Array(list)) => list.is_empty(),
            Some(Value::Object(members)) => members.is_empty(),
            Some(Value::Number(number)) => number.as_i64() == Some(0),
            Some(Value::Bool(flag)) => !flag,
            None => false,
        };
        if empty {
            map.remove(*field);
        }
    }
}

/// An object field, for writing. It is created if it is absent. None: the field is not an object.
pub(super) fn child<'a>(value: &'a mut Value, field: &str) -> Option<&'a mut Value> {
    let map = value.as_object_mut()?;
    let slot = map.entry(field).or_insert(Value::Null);
    if slot.is_null() {
        *slot = Value::Object(Map::new());
    }
    slot.is_object().then_some(slot)
}

/// A field that is present, for writing.
pub(super) fn member<'a>(value: &'a mut Value, field: &str) -> Option<&'a mut Value> {
    value.get_mut(field).filter(|v| !v.is_null())
}

/// The items of a list field, for writing.
pub(super) fn items<'a>(value: &'a mut Value, field: &str) -> impl Iterator<Item = &'a mut Value> {
    value.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten()
}

/// Writes absent times of conditions as null, as a typed server does.
pub(super) fn unset_times(status: &mut Value, fields: &[&str]) {
    for condition in items(status, "conditions") {
        fields.iter().for_each(|field| default(condition, field, Value::Null));
    }
}

/// The errors of an object, collected during validation.
#[derive(Default)]
pub(super) struct Findings(Vec<FieldError>);

impl Findings {
    /// All errors.
    pub(super) fn done(self) -> Vec<FieldError> {
        self.0
    }

    /// Whether there is no error.
    pub(super) fn none(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds an error.
    pub(super) fn push(&mut self, error: FieldError) {
        self.0.push(error);
    }

    /// Adds several errors.
    pub(super) fn extend(&mut self, errors: impl IntoIterator<Item = FieldError>) {
        self.0.extend(errors);
    }

    /// Adds: the field is required.
    pub(super) fn required(&mut self, field: impl Into<String>, detail: &str) {
        self.push(FieldError::required(field, detail));
    }

    /// Adds: the value is invalid.
    pub(super) fn invalid(
        &mut self,
        field: impl Into<String>,
        value: impl Into<Value>,
        detail: impl Into<String>,
    ) {
        self.push(FieldError::invalid(field, &value.into(), detail));
    }

    /// Adds: the field must not be set.
    pub(super) fn forbidden(&mut self, field: impl Into<String>, detail: impl Into<String>) {
        self.push(FieldError::forbidden(field, detail));
    }

    /// Adds: the value occurs twice.
    pub(super) fn duplicate(&mut self, field: impl Into<String>, value: impl Into<Value>) {
        self.push(FieldError::duplicate(field, &value.into()));
    }

    /// Adds one error "invalid value" for each reason.
    pub(super) fn each(&mut self, field: &str, value: impl Into<Value>, reasons: Vec<String>) {
        let value = value.into();
        for reason in reasons {
            self.push(FieldError::invalid(field, &value, reason));
        }
    }

    /// Checks that the string is present and is one of these (in alphabetical order, as the message
    /// lists them).
    pub(super) fn one_of(&mut self, field: &str, value: &str, supported: &[&str]) {
        if value.is_empty() {
            self.required(field, "");
        } else {
            self.one_of_if_given(field, value, supported);
        }
    }

    /// Checks that the string is absent or one of these.
    pub(super) fn one_of_if_given(&mut self, field: &str, value: &str, supported: &[&str]) {
        if !value.is_empty() && !supported.contains(&value) {
            self.push(FieldError::not_supported(field, &json!(value), supported));
        }
    }

    /// Checks that the number is not negative.
    pub(super) fn not_negative(&mut self, field: &str, value: &Value) {
        if value.as_i64().is_some_and(|n| n < 0) {
            self.invalid(field, value.clone(), "must be greater than or equal to 0");
        }
    }

    /// Checks that the value has not changed.
    pub(super) fn immutable(&mut self, field: &str, new: &Value, old: &Value) {
        if new != old {
            self.invalid(field, new.clone(), "field is immutable");
        }
    }
}

/// The transport protocols of ports.
pub(super) const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];
