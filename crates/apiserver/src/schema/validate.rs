//! Validates an object, in the words of kube-apiserver for custom objects. It is called after
//! defaulting and never changes the object. The order is: values, embedded resources, lists that are
//! sets or maps.

use super::{ListType, Node, NodeId, Schema, Type, formats, go, lists};
use crate::error::{FieldError, FieldErrorKind};
use serde_json::{Number, Value};

impl Schema {
    /// The errors of a new object.
    pub fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = self.values(object, None, "");
        errors.extend(lists::embedded(self, object, ""));
        errors.extend(lists::duplicates(self, object, ""));
        errors
    }

    /// The errors of a changed object. Errors in unchanged values are ignored, so that existing
    /// objects can still be updated under a stricter schema.
    pub fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = self.values(object, Some(old), "");
        errors.extend(lists::embedded(self, object, ""));
        if lists::duplicates(self, old, "").is_empty() {
            errors.extend(lists::duplicates(self, object, ""));
        }
        errors
    }

    /// The errors of an object's status that is written through `/status`.
    pub fn validate_status(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = match (self.member("status"), object.get("status")) {
            (Some(schema), Some(status)) => schema.values(status, old.get("status"), "status"),
            _ => Vec::new(),
        };
        if lists::duplicates(self, old, "").is_empty() {
            errors.extend(lists::duplicates(self, object, ""));
        }
        errors
    }

    /// The errors of a value at `field`; messages name its parts from there.
    pub(super) fn values(
        &self,
        value: &Value,
        old: Option<&Value>,
        field: &str,
    ) -> Vec<FieldError> {
        let walk = Walk { nodes: self.nodes(), field };
        walk.visit(self.id(), value, "", old, true).errors
    }
}

/// Whether CEL rules cannot run on an object with these errors.
pub fn blocking(errors: &[FieldError]) -> bool {
    errors.iter().any(|error| {
        matches!(
            error.kind,
            FieldErrorKind::NotSupported
                | FieldErrorKind::Required
                | FieldErrorKind::TooLong
                | FieldErrorKind::TooMany
                | FieldErrorKind::TypeInvalid
        )
    })
}

/// The error that stands for rules that were not run because of [`blocking`] errors.
pub fn unchecked_rules() -> FieldError {
    FieldError {
        kind: FieldErrorKind::Invalid,
        field: "<nil>".into(),
        value: Some("null".into()),
        detail:
            "some validation rules were not checked because the object was invalid; correct the \
                 existing errors to complete validation"
                .into(),
    }
}

/// Errors and the number of matches: of several alternatives, the one with most matches is shown.
#[derive(Default)]
struct Outcome {
    errors: Vec<FieldError>,
    matches: usize,
}

impl Outcome {
    fn push(&mut self, error: FieldError) {
        if !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }

    fn merge(&mut self, other: Outcome) {
        self.matches += other.matches;
        for error in other.errors {
            self.push(error);
        }
    }

    fn valid(&self) -> bool {
        self.errors.is_empty()
    }
}

struct Walk<'a> {
    nodes: &'a [Node],
    /// The path of the validated value itself.
    field: &'a str,
}

impl<'a> Walk<'a> {
    fn field(&self, name: &str) -> String {
        match (self.field, name.trim_start_matches('.')) {
            ("", "") => "<nil>".to_owned(),
            (field, "") => field.to_owned(),
            ("", name) => name.to_owned(),
            (field, name) => format!("{field}.{name}"),
        }
    }

    fn invalid(&self, name: &str, value: String, detail: String) -> FieldError {
        FieldError {
            kind: FieldErrorKind::Invalid,
            field: self.field(name),
            value: Some(value),
            detail: format!("{name} in body {detail}"),
        }
    }

    /// An error that kube-apiserver reports without a field.
    fn general(&self, detail: String) -> FieldError {
        FieldError {
            kind: FieldErrorKind::Invalid,
            field: self.field(""),
            value: Some("\"\"".into()),
            detail,
        }
    }

    fn wrong_type(&self, name: &str, wanted: &str, found: &str) -> FieldError {
        let found = go::quote_text(found);
        let detail = format!("{name} in body must be of type {wanted}: {found}");
        FieldError::type_invalid(self.field(name), found, detail)
    }

    /// Validates `value` at `name`. `own` is false in branches of `allOf`, `anyOf`, `oneOf` and `not`,
    /// whose errors count even if nothing changed.
    fn visit(
        &self,
        at: NodeId,
        value: &'a Value,
        name: &str,
        old: Option<&'a Value>,
        own: bool,
    ) -> Outcome {
        let node = &self.nodes[at as usize];
        let mut out = Outcome::default();
        let types = types(node);
        if value.is_null() {
            if types.is_empty() || node.nullable {
                out.matches += 1;
            } else {
                out.push(self.wrong_type(name, &types.join(","), "null"));
            }
            self.enumeration(node, value, name, &mut out);
        } else {
            let format = recognized_format(node);
            if !types.is_empty() || format.is_some() {
                match self.type_of(&types, format, value, name) {
                    Some(error) => out.push(error),
                    None => out.matches += 1,
                }
                out.matches += 1;
            }
            out.merge(self.alternatives(node, value, name, old));
            out.matches += 1;
            match value {
                Value::String(text) => {
                    self.string(node, text, name, &mut out);
                    out.matches += 1;
                    if let Some(check) = format.and_then(|f| formats::check(node.type_, f)) {
                        if !check(text) {
                            out.push(self.wrong_type(name, &node.format, text));
                        }
                        out.matches += 1;
                    }
                }
                Value::Number(number) => {
                    self.number(node, number, name, &mut out);
                    out.matches += 2;
                }
                Value::Array(list) => {
                    self.list(node, list, name, old, &mut out);
                    out.matches += 2;
                }
                _ => {}
            }
            self.enumeration(node, value, name, &mut out);
            out.matches += 1;
            if let Value::Object(map) = value {
                self.object(node, map, name, old, &mut out);
                out.matches += 1;
            }
            out.matches += 1;
        }
        if own && !out.valid() && old == Some(value) {
            out.errors.clear();
        }
        out
    }

    fn type_of(
        &self,
        types: &[&str],
        format: Option<&str>,
        value: &Value,
        name: &str,
    ) -> Option<FieldError> {
        let (found, found_format) = kind(value);
        let has = |t: &str| types.contains(&t);
        let whole = found == "number" && value.as_f64().is_some_and(is_whole) && has("integer");
        if has(found) || whole || (found == "integer" && has("number")) {
            return None;
        }
        if let Some(format) = format {
            if found == "string" && !has("number") && !has("integer") {
                return None;
            }
            if !matches!(found, "string" | "array") {
                return Some(self.wrong_type(name, format, found_format));
            }
        }
        Some(self.wrong_type(name, &types.join(","), found))
    }

    fn alternatives(
        &self,
        node: &Node,
        value: &'a Value,
        name: &str,
        old: Option<&'a Value>,
    ) -> Outcome {
        let mut out = Outcome::default();
        let quoted = go::quote_text(name);
        let branch = |at: NodeId| self.visit(at, value, name, old, false);
        let mut best: Option<Outcome> = None;
        let keep = |best: &mut Option<Outcome>, outcome: Outcome| {
            if best.as_ref().is_none_or(|b| outcome.matches > b.matches) {
                *best = Some(outcome);
            }
        };
        let mut success = None;
        for &at in &node.any_of {
            let outcome = branch(at);
            if outcome.valid() {
                success = Some(outcome);
                break;
            }
            keep(&mut best, outcome);
        }
        if let Some(outcome) = success {
            out.merge(outcome);
        } else if let Some(outcome) = best.take() {
            out.push(self.general(format!("{quoted} must validate at least one schema (anyOf)")));
            out.merge(outcome);
        }

        let (mut valid, mut first) = (0, None);
        for &at in &node.one_of {
            let outcome = branch(at);
            if outcome.valid() {
                valid += 1;
                best = None;
                first.get_or_insert(outcome);
            } else if valid == 0 {
                keep(&mut best, outcome);
            }
        }
        if valid == 1 {
            out.merge(first.unwrap_or_default());
        } else if !node.one_of.is_empty() {
            let found = match valid {
                0 => "Found none valid".to_owned(),
                n => format!("Found {n} valid alternatives"),
            };
            out.push(self.general(format!(
                "{quoted} must validate one and only one schema (oneOf). {found}"
            )));
            out.merge(best.unwrap_or_default());
        }

        let mut valid = 0;
        for &at in &node.all_of {
            let outcome = branch(at);
            valid += usize::from(outcome.valid());
            out.merge(outcome);
        }
        if valid != node.all_of.len() {
            let none = if valid == 0 { ". None validated" } else { "" };
            out.push(self.general(format!("{quoted} must validate all the schemas (allOf){none}")));
        }
        if let Some(at) = node.not
            && branch(at).valid()
        {
            out.push(self.general(format!("{quoted} must not validate the schema (not)")));
        }
        out.matches += 1;
        out
    }

    /// Reports at most one error: the first.
    fn string(&self, node: &Node, text: &str, name: &str, out: &mut Outcome) {
        let checks = &node.checks;
        let length = text.chars().count();
        if let Some(limit) = checks.max_length.filter(|&limit| length > limit) {
            out.push(FieldError {
                kind: FieldErrorKind::TooLong,
                field: self.field(name),
                value: None,
                detail: format!("may not be more than {limit} {}", plural(limit, "byte")),
            });
        } else if let Some(limit) = checks.min_length.filter(|&limit| length < limit) {
            let detail = format!("should be at least {limit} chars long");
            out.push(self.invalid(name, go::quote_text(text), detail));
        } else if let Some(pattern) = &checks.pattern
            && !pattern.is_match(text)
        {
            let detail = format!("should match '{}'", checks.pattern_text);
            out.push(self.invalid(name, go::quote_text(text), detail));
        }
    }

    fn number(&self, node: &Node, number: &Number, name: &str, out: &mut Outcome) {
        let checks = &node.checks;
        let value = number.as_f64().unwrap_or_default();
        if let Some(what) = out_of_range(node, number) {
            out.push(self.general(format!("Checked value must be of type {what} in {name}")));
        }
        let shown = match number.as_i64() {
            Some(n) => n.to_string(),
            None => go::number(value),
        };
        // An integer is compared with the integer part of a bound, because Go converts the bound.
        let bound = |b: f64| if number.is_i64() { b.trunc() } else { b };
        if let Some(factor) = checks.multiple_of {
            let factor = bound(factor);
            let times = if factor < 1.0 { 1.0 / factor * value } else { value / factor };
            if factor <= 0.0 {
                // For example, no integer is a multiple of one half.
                let shown_factor = bound_text(number, factor);
                let detail = format!(
                    "factor MultipleOf declared for {name} must be positive: {shown_factor}"
                );
                let mut error = self.invalid(name, shown.clone(), String::new());
                error.detail = detail;
                out.push(error);
            } else if !is_whole(times) {
                let detail = format!("should be a multiple of {}", bound_text(number, factor));
                out.push(self.invalid(name, shown.clone(), detail));
            }
        }
        if let Some((minimum, exclusive)) = checks.minimum
            && (value < bound(minimum) || exclusive && value <= bound(minimum))
        {
            let than = if exclusive { "than" } else { "than or equal to" };
            let detail = format!("should be greater {than} {}", bound_text(number, minimum));
            out.push(self.invalid(name, shown.clone(), detail));
        }
        if let Some((maximum, exclusive)) = checks.maximum
            && (value > bound(maximum) || exclusive && value >= bound(maximum))
        {
            let than = if exclusive { "than" } else { "than or equal to" };
            let detail = format!("should be less {than} {}", bound_text(number, maximum));
            out.push(self.invalid(name, shown, detail));
        }
    }

    fn list(
        &self,
        node: &Node,
        list: &'a [Value],
        name: &str,
        old: Option<&'a Value>,
        out: &mut Outcome,
    ) {
        if let Some(items) = node.items {
            for (i, value) in list.iter().enumerate() {
                let old = old.and_then(|old| counterpart(node, old, value));
                out.merge(self.visit(items, value, &format!("{name}[{i}]"), old, true));
            }
        }
        let size = list.len();
        if let Some(limit) = node.checks.min_items.filter(|&limit| size < limit) {
            let detail = format!("should have at least {limit} items");
            out.push(self.invalid(name, size.to_string(), detail));
        }
        if let Some(limit) = node.checks.max_items.filter(|&limit| size > limit) {
            out.push(self.too_many(name, size, limit));
        }
    }

    fn too_many(&self, name: &str, size: usize, limit: usize) -> FieldError {
        FieldError {
            kind: FieldErrorKind::TooMany,
            field: self.field(name),
            value: Some(size.to_string()),
            detail: format!("must have at most {limit} {}", plural(limit, "item")),
        }
    }

    fn enumeration(&self, node: &Node, value: &Value, name: &str, out: &mut Outcome) {
        let Some(allowed) = &node.checks.enumeration else { return };
        if !value.is_null() && allowed.iter().any(|a| same(a, value)) {
            return;
        }
        let list: Vec<String> = allowed
            .iter()
            .map(|value| match value {
                Value::String(text) => go::quote_text(text),
                other => go::quote_text(&other.to_string()),
            })
            .collect();
        out.push(FieldError {
            kind: FieldErrorKind::NotSupported,
            field: self.field(name),
            value: Some(go::quote(value)),
            detail: format!("supported values: {}", list.join(", ")),
        });
    }

    fn object(
        &self,
        node: &Node,
        map: &'a serde_json::Map<String, Value>,
        name: &str,
        old: Option<&'a Value>,
        out: &mut Outcome,
    ) {
        let size = map.len();
        if let Some(limit) = node.checks.min_properties.filter(|&limit| size < limit) {
            let detail = format!("should have at least {limit} properties");
            out.push(self.invalid(name, size.to_string(), detail));
        }
        if let Some(limit) = node.checks.max_properties.filter(|&limit| size > limit) {
            out.push(self.too_many(name, size, limit));
        }
        for (key, value) in map {
            let path = format!("{name}.{key}");
            match (node.properties.get(key), node.additional) {
                (None, Some(_)) if node.no_additional => out.push(FieldError {
                    kind: FieldErrorKind::Invalid,
                    field: self.field(name),
                    value: Some(go::quote_text(key)),
                    detail: format!("{path} in body is a forbidden property"),
                }),
                (None, Some(at)) => {
                    let old = old.and_then(|old| old.get(key));
                    out.merge(self.visit(at, value, &path, old, true));
                }
                _ => {}
            }
        }
        for (key, &at) in &node.properties {
            if let Some(value) = map.get(key) {
                let path = super::child(name, key);
                let type_meta = name.is_empty() && matches!(key.as_str(), "apiVersion" | "kind");
                let old = old.and_then(|old| old.get(key)).filter(|_| !type_meta);
                out.merge(self.visit(at, value, &path, old, true));
            }
        }
        for key in &node.required {
            if !map.contains_key(key) {
                out.push(FieldError::required(self.field(&format!("{name}.{key}")), ""));
            }
        }
    }
}

/// The old item that corresponds to a new one. Only lists with keys have it.
pub(super) fn counterpart<'a>(node: &Node, old: &'a Value, item: &Value) -> Option<&'a Value> {
    let Some(ListType::Map(keys)) = &node.list_type else { return None };
    let old = old.as_array()?;
    old.iter().find(|o| o.is_object() && keys.iter().all(|key| o.get(key) == item.get(key)))
}

fn types(node: &Node) -> Vec<&'static str> {
    match node.type_ {
        _ if node.int_or_string => vec!["integer", "string"],
        Some(type_) => vec![type_.name()],
        None => Vec::new(),
    }
}

fn recognized_format(node: &Node) -> Option<&str> {
    let type_ = if node.int_or_string { None } else { node.type_ };
    Some(node.format.as_str()).filter(|f| !f.is_empty() && formats::recognized(type_, f))
}

/// The JSON type and the number format of a value.
fn kind(value: &Value) -> (&'static str, &'static str) {
    match value {
        Value::Null => ("null", ""),
        Value::Bool(_) => ("boolean", ""),
        Value::String(_) => ("string", ""),
        Value::Number(n) if n.is_i64() => ("integer", "int64"),
        Value::Number(_) => ("number", "float64"),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
    }
}

fn out_of_range(node: &Node, number: &Number) -> Option<&'static str> {
    let value = number.as_f64().unwrap_or_default();
    match (node.type_?, node.format.as_str()) {
        (Type::Integer, "int32") if number.as_i64().is_none_or(|n| i32::try_from(n).is_err()) => {
            Some("integer with format int32").filter(|_| !is_whole(value) || !fits(value, i32::MAX))
        }
        (Type::Integer, "int64") if !number.is_i64() && !is_whole(value) => {
            Some("integer with format int64")
        }
        (Type::Integer, _) if !number.is_i64() && !is_whole(value) => {
            Some("integer (default format)")
        }
        (Type::Number, "float") if value.abs() > f64::from(f32::MAX) => {
            Some("number with format float")
        }
        _ => None,
    }
}

fn fits(value: f64, limit: i32) -> bool {
    value <= f64::from(limit) && value >= -f64::from(limit) - 1.0
}

/// Whether a number has no fraction and fits into JSON exactly.
fn is_whole(value: f64) -> bool {
    const SAFE: f64 = 9_007_199_254_740_991.0;
    value.abs() <= SAFE && (value - value.round()).abs() < 1e-9 * value.abs().max(1.0)
}

fn bound_text(number: &Number, bound: f64) -> String {
    if number.is_i64() && bound.abs() < 9.2e18 {
        (bound as i64).to_string()
    } else {
        go::number(bound)
    }
}

/// Whether two values are equal in an enumeration: numbers by value.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        _ => a == b,
    }
}

fn plural(count: usize, word: &str) -> String {
    if count == 1 { word.to_owned() } else { format!("{word}s") }
}

#[cfg(test)]
#[path = "validate_tests.rs"]
mod tests;
