//! What a server would report about an object: the value validations of a schema that Bowline's
//! kinds use, and their rules through kube-cel. For tests only; servers have their own, complete
//! validation.

use kube_cel::{CompiledSchema, Validator, apply_defaults, compile_schema};
use regex::Regex;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The schemas of our kinds, their rules compiled once.
pub(super) struct Checker(BTreeMap<String, (Value, CompiledSchema)>);

impl Checker {
    /// A checker for kinds and their schemas.
    pub(super) fn new(schemas: impl Iterator<Item = (String, Value)>) -> Self {
        let compiled = schemas.map(|(kind, schema)| {
            let rules = compile_schema(&schema);
            (kind, (schema, rules))
        });
        Self(compiled.collect())
    }

    /// An object as a server stores it.
    pub(super) fn defaulted(&self, object: &Value) -> Value {
        apply_defaults(&self.0[object["kind"].as_str().unwrap()].0, object)
    }

    /// The errors of `object` (changed from `old`, if given): field and message.
    pub(super) fn check(&self, object: &Value, old: Option<&Value>) -> Vec<(String, String)> {
        let (schema, rules) = &self.0[object["kind"].as_str().unwrap()];
        let object = self.defaulted(object);
        let old = old.map(|old| self.defaulted(old));
        let mut wrong = Vec::new();
        values(schema, &object, "", &mut wrong);
        if let Err(errors) = Validator::new().validate_compiled(rules, &object, old.as_ref()) {
            wrong.extend(errors.iter().map(|e| (e.field_path.clone(), e.message.clone())));
        }
        wrong
    }
}

fn values(schema: &Value, value: &Value, at: &str, wrong: &mut Vec<(String, String)>) {
    let mut say = |message: String| wrong.push((at.to_owned(), message));
    let bound = |name: &str| schema[name].as_f64();
    if let Some(choices) = schema["enum"].as_array()
        && !choices.contains(value)
    {
        say(format!("Unsupported value: {value}"));
    }
    match value {
        Value::String(text) => {
            if schema["type"] != "string" && schema["x-kubernetes-int-or-string"] != true {
                say("wrong type".into());
            }
            let length = text.chars().count() as f64;
            if bound("minLength").is_some_and(|min| length < min)
                || bound("maxLength").is_some_and(|max| length > max)
            {
                say("wrong length".into());
            }
            if let Some(pattern) = schema["pattern"].as_str()
                && !Regex::new(pattern).unwrap().is_match(text)
            {
                say(format!("should match '{pattern}'"));
            }
            if schema["format"] == "date-time" && !text.contains('T') {
                say("must be of type date-time".into());
            }
        }
        Value::Number(number) => {
            if schema["type"] != "integer" && schema["x-kubernetes-int-or-string"] != true {
                say("wrong type".into());
            }
            let number = number.as_f64().unwrap();
            if let Some(min) = bound("minimum").filter(|min| number < *min) {
                say(format!("should be greater than or equal to {min}"));
            }
            if bound("maximum").is_some_and(|max| number > max) {
                say("should be less than or equal to the maximum".into());
            }
        }
        Value::Bool(_) if schema["type"] != "boolean" => say("wrong type".into()),
        Value::Array(items) => {
            if let Some(min) = bound("minItems").filter(|min| (items.len() as f64) < *min) {
                say(format!("should have at least {min} items"));
            }
            if bound("maxItems").is_some_and(|max| items.len() as f64 > max) {
                say("too many items".into());
            }
            let mut seen = BTreeSet::new();
            for (index, item) in items.iter().enumerate() {
                let at = format!("{at}[{index}]");
                values(&schema["items"], item, &at, wrong);
                if let Some(key) = key_of(schema, item)
                    && !seen.insert(key.clone())
                {
                    wrong.push((at, format!("Duplicate value: {key}")));
                }
            }
        }
        Value::Object(members) => {
            let count = members.len() as f64;
            if let Some(max) = bound("maxProperties").filter(|max| count > *max) {
                say(format!("Too many: {count}: must have at most {max} item"));
            }
            if let Some(min) = bound("minProperties").filter(|min| count < *min) {
                say(format!("should have at least {min} properties"));
            }
            for name in schema["required"].as_array().into_iter().flatten() {
                if !members.contains_key(name.as_str().unwrap()) {
                    wrong.push((join(at, name.as_str().unwrap()), "Required value".into()));
                }
            }
            for (name, member) in members {
                let at = join(at, name);
                let inner = match &schema["properties"][name] {
                    Value::Null => &schema["additionalProperties"],
                    inner => inner,
                };
                // Every object has fields besides spec and status.
                match inner {
                    Value::Null if at.contains('.') => wrong.push((at, "unknown field".into())),
                    Value::Null => {}
                    inner => values(inner, member, &at, wrong),
                }
            }
        }
        _ => {}
    }
}

fn join(at: &str, name: &str) -> String {
    if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") }
}

/// The key that must be unique in a list.
fn key_of(schema: &Value, item: &Value) -> Option<String> {
    match schema["x-kubernetes-list-type"].as_str() {
        Some("set") => Some(item.to_string()),
        Some("map") => {
            let keys = schema["x-kubernetes-list-map-keys"].as_array().unwrap();
            Some(keys.iter().map(|key| item[key.as_str().unwrap()].to_string()).collect())
        }
        _ => None,
    }
}
