//! The rules of schemas of CustomResourceDefinitions that concern single nodes: where defaults are
//! allowed, and how `x-kubernetes-*` may be used. [`super::structural`] calls it.

use super::compile::strings;
use super::structural::{has_properties, invalid, list, parts, properties, text, truthy};
use super::{Type, child, indexed, keyed};
use crate::error::FieldError;
use serde_json::{Map, Value};

/// Checks a schema and all schemas in it.
pub(super) fn check(schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let context = Context { root: true, inside_meta: false, no_defaults: None };
    rules(schema, path, &context, errors);
}

struct Context<'a> {
    root: bool,
    inside_meta: bool,
    /// Why defaults are not allowed here. None: they are.
    no_defaults: Option<&'a str>,
}

/// Checks the rules of single nodes and their use of extensions.
fn rules(schema: &Value, path: &str, context: &Context<'_>, errors: &mut Vec<FieldError>) {
    let type_ = text(schema, "type");
    let at = |key: &str| child(path, key);
    if !type_.is_empty() && Type::parse(type_).is_none() {
        let known = ["array", "boolean", "integer", "number", "object", "string"];
        errors.push(FieldError::not_supported(at("type"), &type_.into(), &known));
    }
    if let Some(reason) = context.no_defaults
        && schema.get("default").is_some_and(|d| !d.is_null())
    {
        errors.push(FieldError::forbidden(at("default"), format!("must not be set {reason}")));
    }
    if context.inside_meta && truthy(schema, "x-kubernetes-embedded-resource") {
        let field = at("x-kubernetes-embedded-resource");
        errors.push(FieldError::forbidden(field, "must not be used inside of resource meta"));
    }
    if truthy(schema, "uniqueItems") {
        errors.push(FieldError::forbidden(
            at("uniqueItems"),
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        ));
    }
    if has_properties(schema)
        && schema.get("additionalProperties").is_some_and(|a| a != &Value::Bool(true))
    {
        errors.push(FieldError::forbidden(
            at("additionalProperties"),
            "additionalProperties and properties are mutual exclusive",
        ));
    }
    let resource = context.root || truthy(schema, "x-kubernetes-embedded-resource");
    for (part_path, part) in parts(schema, path) {
        let name =
            properties(schema).find(|(_, p)| std::ptr::eq(*p, part)).map(|(n, _)| n.as_str());
        let is_meta =
            resource && name.is_some_and(|n| matches!(n, "metadata" | "kind" | "apiVersion"));
        let top = name.filter(|_| is_meta && context.root).map(|n| format!("in top-level {n}"));
        let mapped = context.inside_meta && part_path == at("additionalProperties");
        let inner = Context {
            root: false,
            inside_meta: context.inside_meta || is_meta,
            no_defaults: match &top {
                Some(reason) => Some(reason),
                None if mapped => Some("inside additionalProperties applying to object metadata"),
                None => context.no_defaults,
            },
        };
        rules(part, &part_path, &inner, errors);
    }
    if schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        let field = at("x-kubernetes-preserve-unknown-fields");
        errors.push(invalid(field, &Value::Bool(false), "must be true or undefined"));
    }
    let needs_type = |key: &str, wanted: &str, errors: &mut Vec<FieldError>| {
        if schema.get(key).is_some() && type_ != wanted {
            let detail = format!("must be {wanted} if {key} is specified");
            errors.push(match type_ {
                "" => FieldError::required(at("type"), detail),
                other => invalid(at("type"), &other.into(), detail),
            });
        }
    };
    needs_type("x-kubernetes-map-type", "object", errors);
    one_of(schema, "x-kubernetes-map-type", &["atomic", "granular"], path, errors);
    needs_type("x-kubernetes-list-type", "array", errors);
    list_type(schema, path, errors);
    for (i, rule) in list(schema, "x-kubernetes-validations").iter().enumerate() {
        validation(rule, &indexed(&at("x-kubernetes-validations"), i), errors);
    }
}

fn one_of(schema: &Value, key: &str, known: &[&str], path: &str, errors: &mut Vec<FieldError>) {
    if let Some(value) =
        schema.get(key).filter(|v| !known.contains(&v.as_str().unwrap_or_default()))
    {
        errors.push(FieldError::not_supported(child(path, key), value, known));
    }
}

fn list_type(schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let at = |key: &str| child(path, key);
    let type_ = text(schema, "x-kubernetes-list-type");
    let keys = strings(schema.get("x-kubernetes-list-map-keys"));
    let items = schema.get("items").unwrap_or(&Value::Null);
    let items_at = |key: &str| child(&at("items"), key);
    if type_ == "set" {
        const ATOMIC: &str = "must be atomic as item of a list with x-kubernetes-list-type=set";
        let nested = items.get("x-kubernetes-list-type").unwrap_or(&Value::Null);
        if text(items, "type") == "array" && !nested.is_null() && nested != "atomic" {
            errors.push(invalid(items_at("x-kubernetes-list-type"), nested, ATOMIC));
        }
        if text(items, "type") == "object" && text(items, "x-kubernetes-map-type") != "atomic" {
            errors.push(invalid(items_at("x-kubernetes-map-type"), nested, ATOMIC));
        }
    }
    one_of(schema, "x-kubernetes-list-type", &["atomic", "set", "map"], path, errors);
    if !keys.is_empty() && type_ != "map" {
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        errors.push(match type_ {
            "" => FieldError::required(at("x-kubernetes-list-type"), detail),
            other => invalid(at("x-kubernetes-list-type"), &other.into(), detail),
        });
    }
    if matches!(type_, "set" | "map") && truthy(items, "nullable") {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {type_}");
        errors.push(FieldError::forbidden(items_at("nullable"), detail));
    }
    if type_ != "map" {
        return;
    }
    let keys_at = at("x-kubernetes-list-map-keys");
    if keys.is_empty() {
        let detail = "must not be empty if x-kubernetes-list-type is map";
        errors.push(FieldError::required(keys_at, detail));
        return;
    }
    if items.is_null() {
        let detail = "must have a schema if x-kubernetes-list-type is map";
        errors.push(FieldError::required(at("items"), detail));
        return;
    }
    if text(items, "type") != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        errors.push(invalid(items_at("type"), &text(items, "type").into(), detail));
        return;
    }
    let shown = Value::from(keys.clone());
    let required = strings(items.get("required"));
    for (i, key) in keys.iter().enumerate() {
        if keys[..i].contains(key) {
            errors.push(invalid(keys_at.clone(), &shown, "must not contain duplicate entries"));
        }
        let Some(property) = items.get("properties").and_then(|p| p.get(key)) else {
            let detail = "entries must all be names of item properties";
            errors.push(invalid(keys_at.clone(), &shown, detail));
            continue;
        };
        let property_at = |name: &str| child(&keyed(&items_at("properties"), key), name);
        if matches!(text(property, "type"), "array" | "object") {
            let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
            errors.push(invalid(property_at("type"), &text(items, "type").into(), detail));
        }
        if !required.contains(key) && property.get("default").is_none_or(Value::is_null) {
            let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or \
                          be a required property";
            errors.push(FieldError::required(property_at("default"), detail));
        }
        if truthy(property, "nullable") {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.push(FieldError::forbidden(property_at("nullable"), detail));
        }
    }
}

/// Checks the form of one rule of `x-kubernetes-validations`. [`super::CelRules`] checks its content.
fn validation(rule: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let Some(map) = rule.as_object() else {
        errors.push(invalid(path.to_owned(), rule, "must be a validation rule"));
        return;
    };
    for (key, value) in map {
        let fits = match key.as_str() {
            "rule" | "message" | "messageExpression" | "reason" | "fieldPath" => value.is_string(),
            "optionalOldSelf" => value.is_boolean(),
            _ => {
                let detail = format!("{key} is not supported");
                errors.push(FieldError::forbidden(child(path, key), detail));
                continue;
            }
        };
        if !fits {
            let detail = format!("is not of the type that {key} takes");
            errors.push(invalid(child(path, key), value, detail));
        }
    }
    let lines = |text: &str| text.contains(['\n', '\r']);
    let (expression, message) = (text(rule, "rule").trim(), text(rule, "message"));
    let given = |key: &str, map: &Map<String, Value>| map.get(key).cloned().unwrap_or_default();
    if expression.is_empty() {
        errors.push(FieldError::required(child(path, "rule"), "rule is not specified"));
    } else if !message.is_empty() && message.trim().is_empty() {
        let value = given("message", map);
        errors.push(invalid(child(path, "message"), &value, "must be non-empty if specified"));
    } else if lines(message.trim()) {
        let value = given("message", map);
        errors.push(invalid(child(path, "message"), &value, "must not contain line breaks"));
    } else if lines(expression) && message.trim().is_empty() {
        let detail = "message must be specified if rule contains line breaks";
        errors.push(FieldError::required(child(path, "message"), detail));
    }
    let message_expression = text(rule, "messageExpression");
    if !message_expression.is_empty() && message_expression.trim().is_empty() {
        let detail = "messageExpression must be non-empty if specified";
        errors.push(FieldError::required(child(path, "messageExpression"), detail));
    }
    let reasons =
        ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
    one_of(rule, "reason", &reasons, path, errors);
    let field = text(rule, "fieldPath");
    if !field.is_empty() && field.trim().is_empty() {
        let detail = "must be non-empty if specified";
        errors.push(invalid(child(path, "fieldPath"), &field.into(), detail));
    }
    if lines(field) {
        let detail = "must not contain line breaks";
        errors.push(invalid(child(path, "fieldPath"), &field.into(), detail));
    }
}
