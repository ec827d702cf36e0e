//! Checks and compiles the schemas of CustomResourceDefinitions: applies Kubernetes' rules for
//! structural schemas, and refuses by name every keyword that is not implemented. An accepted schema
//! becomes a [`Schema`] of which no part is ignored. It is called when a CustomResourceDefinition is
//! written.

use super::compile::compile_plain;
use super::{CompileError, Schema, Type, child, extensions, formats, go, indexed, keyed, lists};
use crate::error::{FieldError, FieldErrorKind};
use serde_json::Value;

/// The path of a schema that all versions share, in kube-apiserver's words.
const SHARED: &str = "spec.validation.openAPIV3Schema";

/// Compiles the `openAPIV3Schema` of a CustomResourceDefinition, or returns its errors.
pub fn compile_crd(schema: &Value) -> Result<Schema, Vec<FieldError>> {
    compile_crd_at(schema, SHARED)
}

/// As [`compile_crd`], for a schema at `path`.
pub fn compile_crd_at(schema: &Value, path: &str) -> Result<Schema, Vec<FieldError>> {
    let mut errors = Vec::new();
    keywords(schema, path, 0, &mut errors);
    if !errors.is_empty() {
        return Err(errors);
    }
    structure(schema, Level::Root, path, &mut errors);
    completeness(schema, schema, path, path, &mut errors);
    errors.sort_by_key(ToString::to_string);
    if truthy(schema, "nullable") {
        let field = child(path, "nullable");
        errors.insert(0, FieldError::forbidden(field, "nullable cannot be true at the root"));
    }
    let compiled = if errors.is_empty() { Some(finish(schema, path)?) } else { None };
    if let Some(compiled) = &compiled {
        defaults(compiled, path, &mut errors);
    }
    extensions::check(schema, path, &mut errors);
    compiled.filter(|_| errors.is_empty()).ok_or(errors)
}

fn finish(schema: &Value, path: &str) -> Result<Schema, Vec<FieldError>> {
    let compiled = compile_plain(schema).map_err(|error| {
        let field = match &error {
            CompileError::Pattern { path: at, .. } => {
                format!("{path}.{}", at.trim_start_matches('.'))
            }
            _ => path.to_owned(),
        };
        vec![FieldError {
            kind: FieldErrorKind::Invalid,
            field,
            value: Some("\"\"".into()),
            detail: error.to_string(),
        }]
    })?;
    let mut nodes = compiled.nodes().to_vec();
    if let Some(root) = nodes.get_mut(compiled.id() as usize) {
        root.resource_root = true;
    }
    Ok(Schema::new(nodes.into(), compiled.id()))
}

/// Formats that the server does not know: it warns and ignores them.
pub fn unrecognized_formats(schema: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let format = text(schema, "format");
    if !format.is_empty() && !formats::recognized(Type::parse(text(schema, "type")), format) {
        found.push(format.to_owned());
    }
    for (_, part) in parts(schema, "") {
        found.extend(unrecognized_formats(part));
    }
    found
}

pub(super) fn text<'a>(schema: &'a Value, key: &str) -> &'a str {
    schema.get(key).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn truthy(schema: &Value, key: &str) -> bool {
    schema.get(key).and_then(Value::as_bool).unwrap_or(false)
}

pub(super) fn list<'a>(schema: &'a Value, key: &str) -> &'a [Value] {
    schema.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

pub(super) fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema.get("properties").and_then(Value::as_object).into_iter().flatten()
}

pub(super) fn has_properties(schema: &Value) -> bool {
    properties(schema).next().is_some()
}

/// The schemas inside a schema, with their paths.
pub(super) fn parts<'a>(schema: &'a Value, path: &str) -> Vec<(String, &'a Value)> {
    let mut out: Vec<_> = properties(schema)
        .map(|(name, part)| (keyed(&child(path, "properties"), name), part))
        .collect();
    for key in ["additionalProperties", "items", "not"] {
        if let Some(part) = schema.get(key).filter(|part| part.is_object()) {
            out.push((child(path, key), part));
        }
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        let branches = list(schema, key).iter().enumerate();
        out.extend(branches.map(|(i, part)| (indexed(&child(path, key), i), part)));
    }
    out
}

pub(super) fn invalid(field: String, value: &Value, detail: impl Into<String>) -> FieldError {
    FieldError {
        kind: FieldErrorKind::Invalid,
        field,
        value: Some(go::quote(value)),
        detail: detail.into(),
    }
}

/// Checks that every keyword is known and has the right JSON type.
fn keywords(schema: &Value, path: &str, depth: usize, errors: &mut Vec<FieldError>) {
    let Some(map) = schema.as_object() else {
        errors.push(invalid(path.to_owned(), schema, "must be a schema object"));
        return;
    };
    if depth > 60 {
        errors.push(FieldError::forbidden(path, "schemas may not be nested deeper than 60 levels"));
        return;
    }
    for (key, value) in map {
        keyword(key, value, path, errors);
    }
    if errors.is_empty() {
        for (path, part) in parts(schema, path) {
            keywords(part, &path, depth + 1, errors);
        }
    }
}

fn keyword(key: &str, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let field = child(path, key);
    let fits = match key {
        "description"
        | "title"
        | "type"
        | "format"
        | "pattern"
        | "x-kubernetes-list-type"
        | "x-kubernetes-map-type" => value.is_string(),
        "nullable"
        | "exclusiveMinimum"
        | "exclusiveMaximum"
        | "uniqueItems"
        | "x-kubernetes-preserve-unknown-fields"
        | "x-kubernetes-embedded-resource"
        | "x-kubernetes-int-or-string" => value.is_boolean(),
        "minimum" | "maximum" | "multipleOf" => value.is_number(),
        "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties" => {
            value.is_u64()
        }
        "enum" | "allOf" | "anyOf" | "oneOf" | "x-kubernetes-validations" => value.is_array(),
        "required" | "x-kubernetes-list-map-keys" => {
            value.as_array().is_some_and(|list| list.iter().all(Value::is_string))
        }
        "properties" | "not" | "externalDocs" => value.is_object(),
        "additionalProperties" => value.is_object() || value.is_boolean(),
        "items" if value.is_array() => {
            let detail = "items must be a schema object and not an array";
            errors.push(FieldError::forbidden(field, detail));
            return;
        }
        "items" => value.is_object(),
        "default" | "example" => true,
        _ => {
            let detail = format!("{key} is not supported");
            errors.push(FieldError::forbidden(field, detail));
            return;
        }
    };
    if !fits {
        errors.push(invalid(field, value, format!("is not of the type that {key} takes")));
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Checks the invariants of a structural schema.
fn structure(schema: &Value, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    let type_ = text(schema, "type");
    let at = |key: &str| child(path, key);
    let embedded = truthy(schema, "x-kubernetes-embedded-resource");
    let preserve = truthy(schema, "x-kubernetes-preserve-unknown-fields");
    let int_or_string = truthy(schema, "x-kubernetes-int-or-string");
    match schema.get("items") {
        Some(items) => structure(items, Level::Item, &at("items"), errors),
        None if type_ == "array" => {
            errors.push(FieldError::required(at("items"), "must be specified"));
        }
        None => {}
    }
    for (name, property) in properties(schema) {
        structure(property, Level::Field, &keyed(&at("properties"), name), errors);
    }
    if let Some(additional) = schema.get("additionalProperties") {
        let field = at("additionalProperties");
        if level == Level::Root {
            errors.push(FieldError::forbidden(field.clone(), "must not be used at the root"));
        }
        if embedded {
            let detail = "must not be used if x-kubernetes-embedded-resource is set";
            errors.push(FieldError::forbidden(field.clone(), detail));
        }
        if additional.is_object() {
            structure(additional, Level::Field, &field, errors);
        }
    }
    for (set, key) in [
        (preserve, "x-kubernetes-preserve-unknown-fields"),
        (embedded, "x-kubernetes-embedded-resource"),
    ] {
        if set && int_or_string {
            let detail = "must be false if x-kubernetes-int-or-string is true";
            errors.push(invalid(at(key), &Value::Bool(true), detail));
        }
    }
    values(schema, is_int_or_string(list(schema, "anyOf")), path, errors);
    if embedded && type_ != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(match type_ {
            "" => FieldError::required(at("type"), detail),
            other => invalid(at("type"), &other.into(), detail),
        });
    } else if type_.is_empty() && !int_or_string && !preserve {
        let detail = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        errors.push(FieldError::required(at("type"), detail));
    }
    if level == Level::Root && !type_.is_empty() && type_ != "object" {
        errors.push(invalid(at("type"), &type_.into(), "must be object at the root"));
    }
    meta(schema, level, embedded, path, errors);
    if embedded && !preserve && !has_properties(schema) {
        errors.push(FieldError::required(
            at("properties"),
            "must not be empty if x-kubernetes-embedded-resource is true without \
             x-kubernetes-preserve-unknown-fields",
        ));
    }
}

/// The schema of a resource may restrict `name` and `generateName`, and nothing else of its metadata.
fn meta(schema: &Value, level: Level, embedded: bool, path: &str, errors: &mut Vec<FieldError>) {
    let resource = level == Level::Root || embedded;
    let property = |name: &str| schema.get("properties").and_then(|p| p.get(name));
    let field = |name: &str| keyed(&child(path, "properties"), name);
    for name in ["kind", "apiVersion"] {
        if let Some(found) = property(name).filter(|_| resource)
            && text(found, "type") != "string"
        {
            let value = text(found, "type").into();
            errors.push(invalid(child(&field(name), "type"), &value, "must be string"));
        }
    }
    let Some(metadata) = property("metadata") else { return };
    if resource && text(metadata, "type") != "object" {
        let value = text(metadata, "type").into();
        errors.push(invalid(child(&field("metadata"), "type"), &value, "must be object"));
    }
    let names_only = properties(metadata).all(|(n, _)| n == "name" || n == "generateName");
    let nothing_else = metadata
        .as_object()
        .is_some_and(|m| m.keys().all(|k| matches!(k.as_str(), "type" | "default" | "properties")));
    if level == Level::Root && !(names_only && nothing_else) {
        errors.push(FieldError::forbidden(
            field("metadata"),
            "must not specify anything other than name and generateName, but metadata is implicitly \
             specified",
        ));
    }
}

/// `anyOf: [{type: integer}, {type: string}]`: the only branches that may have types.
fn is_int_or_string(branches: &[Value]) -> bool {
    let only_type = |branch: &Value, type_: &str| {
        branch.as_object().is_some_and(|m| m.len() == 1) && text(branch, "type") == type_
    };
    matches!(branches, [a, b] if only_type(a, "integer") && only_type(b, "string"))
}

/// Checks the value validations of a schema and of its branches.
fn values(schema: &Value, skip_any_of: bool, path: &str, errors: &mut Vec<FieldError>) {
    if !skip_any_of {
        for (i, branch) in list(schema, "anyOf").iter().enumerate() {
            nested(branch, false, &indexed(&child(path, "anyOf"), i), errors);
        }
    }
    for (i, branch) in list(schema, "allOf").iter().enumerate() {
        let skip = i == 0 && is_int_or_string(list(branch, "anyOf"));
        nested(branch, skip, &indexed(&child(path, "allOf"), i), errors);
    }
    for (i, branch) in list(schema, "oneOf").iter().enumerate() {
        nested(branch, false, &indexed(&child(path, "oneOf"), i), errors);
    }
    if let Some(not) = schema.get("not") {
        nested(not, false, &child(path, "not"), errors);
    }
    let pattern = text(schema, "pattern");
    if !pattern.is_empty()
        && let Err(why) = go::pattern(pattern)
    {
        let detail = format!("must be a valid regular expression, but isn't: {why}");
        errors.push(invalid(child(path, "pattern"), &pattern.into(), detail));
    }
}

/// Checks a branch of `allOf`, `anyOf`, `oneOf` or `not`: it may have value validations only.
fn nested(branch: &Value, skip_any_of: bool, path: &str, errors: &mut Vec<FieldError>) {
    const UNDEFINED: &str = "must be undefined to be structural";
    const EMPTY: &str = "must be empty to be structural";
    const FALSE: &str = "must be false to be structural";
    values(branch, skip_any_of, path, errors);
    if let Some(items) = branch.get("items") {
        nested(items, false, &child(path, "items"), errors);
    }
    for (name, property) in properties(branch) {
        nested(property, false, &keyed(&child(path, "properties"), name), errors);
    }
    let additional = branch.get("additionalProperties");
    for (set, key, detail) in [
        (!text(branch, "type").is_empty(), "type", EMPTY),
        (additional.is_some_and(|a| a != &Value::Bool(false)), "additionalProperties", UNDEFINED),
        (branch.get("default").is_some_and(|d| !d.is_null()), "default", UNDEFINED),
        (!text(branch, "title").is_empty(), "title", EMPTY),
        (!text(branch, "description").is_empty(), "description", EMPTY),
        (truthy(branch, "nullable"), "nullable", FALSE),
        (
            truthy(branch, "x-kubernetes-preserve-unknown-fields"),
            "x-kubernetes-preserve-unknown-fields",
            FALSE,
        ),
        (truthy(branch, "x-kubernetes-embedded-resource"), "x-kubernetes-embedded-resource", FALSE),
        (truthy(branch, "x-kubernetes-int-or-string"), "x-kubernetes-int-or-string", FALSE),
        (
            !list(branch, "x-kubernetes-list-map-keys").is_empty(),
            "x-kubernetes-list-map-keys",
            EMPTY,
        ),
        (branch.get("x-kubernetes-list-type").is_some(), "x-kubernetes-list-type", UNDEFINED),
        (branch.get("x-kubernetes-map-type").is_some(), "x-kubernetes-map-type", UNDEFINED),
        (!list(branch, "x-kubernetes-validations").is_empty(), "x-kubernetes-validations", EMPTY),
    ] {
        if set {
            errors.push(FieldError::forbidden(child(path, key), detail));
        }
    }
    if branch.get("properties").is_some_and(|p| p.get("metadata").is_some()) {
        errors.push(FieldError::forbidden(
            keyed(&child(path, "properties"), "metadata"),
            "must not be specified in a nested context",
        ));
    }
}

/// Checks that everything that a branch restricts is also specified outside of branches.
fn completeness(
    branch: &Value,
    schema: &Value,
    path: &str,
    branch_path: &str,
    errors: &mut Vec<FieldError>,
) {
    let mut inner: Vec<(String, &Value)> = Vec::new();
    for key in ["allOf", "anyOf", "oneOf"] {
        let branches = list(branch, key).iter().enumerate();
        inner.extend(branches.map(|(i, b)| (indexed(&child(branch_path, key), i), b)));
    }
    inner.extend(branch.get("not").map(|not| (child(branch_path, "not"), not)));
    for (branch_path, branch) in inner {
        let missing = |path: &str, at: &str| {
            FieldError::required(path, format!("because it is defined in {at}"))
        };
        completeness(branch, schema, path, &branch_path, errors);
        if let Some(items) = branch.get("items") {
            let (path, at) = (child(path, "items"), child(&branch_path, "items"));
            match schema.get("items") {
                Some(schema) => complete_part(items, schema, &path, &at, errors),
                None => errors.push(missing(&path, &at)),
            }
        }
        for (name, property) in properties(branch) {
            let path = keyed(&child(path, "properties"), name);
            let at = keyed(&child(&branch_path, "properties"), name);
            match schema.get("properties").and_then(|p| p.get(name)) {
                Some(schema) => complete_part(property, schema, &path, &at, errors),
                None => errors.push(missing(&path, &at)),
            }
        }
    }
}

/// As [`completeness`], for a part of a branch: the part itself counts as a branch.
fn complete_part(part: &Value, schema: &Value, path: &str, at: &str, errors: &mut Vec<FieldError>) {
    let wrapped = serde_json::json!({ "not": part });
    let mut found = Vec::new();
    completeness(&wrapped, schema, path, at, &mut found);
    // The wrapping is an internal detail, so its name is removed from messages.
    errors.extend(found.into_iter().map(|mut error| {
        error.detail = error.detail.replacen(&child(at, "not"), at, 1);
        error
    }));
}

/// Checks that defaults are pruned and valid.
fn defaults(schema: &Schema, path: &str, errors: &mut Vec<FieldError>) {
    let node = schema.node();
    if let Some(default) = &node.default {
        let field = child(path, "default");
        let mut pruned = default.clone();
        schema.prune(&mut pruned);
        if pruned != *default {
            errors.push(invalid(field.clone(), default, "must not have unknown fields"));
        }
        errors.extend(lists::embedded(schema, default, &field));
        errors.extend(schema.values(default, None, &field));
    }
    if let Some(items) = schema.items() {
        defaults(&items, &child(path, "items"), errors);
    }
    for (name, &at) in &node.properties {
        defaults(&schema.to(at), &keyed(&child(path, "properties"), name), errors);
    }
}

#[cfg(test)]
#[path = "structural_tests.rs"]
mod tests;
