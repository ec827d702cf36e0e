//! Makes two runs of one scenario comparable. Values that the server chose (uids, resource versions,
//! times, generated names, allocated addresses and ports) become symbols, numbered in order of
//! appearance: equal values stay equal, different ones stay different. Values from the scenario
//! itself stay.

use super::Scenario;
use regex::Regex;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

pub(super) struct Normalizer {
    /// All requests as text: a value in it was given by the scenario, not chosen by the server.
    given: String,
    /// Each text of this run with its variable, longest first.
    variables: Vec<(String, String)>,
    symbols: BTreeMap<(&'static str, String), String>,
    /// Every `generateName` of the scenario.
    generated: Vec<Regex>,
    time: Regex,
    age: Regex,
    version: Regex,
    object: Regex,
}

impl Normalizer {
    pub(super) fn new(scenario: &Scenario, variables: &Map<String, Value>) -> Self {
        let requests: Vec<_> = scenario.steps.iter().map(|step| &step.request).collect();
        let regex = |text: &str| Regex::new(text).expect("a valid expression");
        let given = serde_json::to_string(&requests).expect("requests are JSON");
        let prefixes = regex(r#""generateName":"([^"]+)""#);
        let generated = prefixes
            .captures_iter(&given)
            .map(|found| regex(&format!(r"({})[a-z0-9]{{5}}\b", regex::escape(&found[1]))))
            .collect();
        Self {
            generated,
            given,
            variables: variables
                .iter()
                .filter_map(|(name, value)| Some((value.as_str()?.into(), format!("${{{name}}}"))))
                .collect(),
            symbols: BTreeMap::new(),
            time: regex(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"),
            age: regex(r"^(\d+[smhdy])+$"),
            object: regex(r#"Invalid value: "\{\\".*\}""#),
            version: regex(
                r"(resource version: |ResourceVersion in record \()\d+( \(\d+\)|, current: \d+)?",
            ),
        }
    }

    pub(super) fn normalize(&mut self, mut answer: Value) -> Value {
        self.walk("", &mut answer);
        self.texts("", &mut answer);
        answer
    }

    fn symbol(&mut self, class: &'static str, value: &str) -> String {
        let next = 1 + self.symbols.keys().filter(|(other, _)| *other == class).count();
        let key = (class, value.to_owned());
        self.symbols.entry(key).or_insert_with(|| format!("<{class}-{next}>")).clone()
    }

    /// First pass: values that the server chose, known by their field.
    fn walk(&mut self, key: &str, value: &mut Value) {
        match value {
            Value::Object(members) => self.object(members),
            Value::Array(items) => items.iter_mut().for_each(|item| self.walk(key, item)),
            Value::String(text) => {
                let class = match key {
                    "uid" => "uid",
                    "resourceVersion" => "rv",
                    "clusterIP" | "clusterIPs" if *text != "None" => "ip",
                    "continue" => "continue",
                    _ => return,
                };
                if !text.is_empty() && *text != "0" && !self.given.contains(&format!("\"{text}\""))
                {
                    *text = self.symbol(class, &text.clone());
                }
            }
            Value::Number(number) if matches!(key, "nodePort" | "healthCheckNodePort") => {
                let text = number.to_string();
                if !self.given.contains(&text) {
                    *value = json!(self.symbol("port", &text));
                }
            }
            _ => {}
        }
    }

    fn object(&mut self, members: &mut Map<String, Value>) {
        let kind = members.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        let list = kind.ends_with("List") || kind == "Table";
        let bookmark = members.get("type").is_some_and(|kind| kind == "BOOKMARK");
        if let Some(metadata) = members.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
            metadata.remove("selfLink");
            // The version of a list changes with other writes, so it is not compared.
            if list && metadata.contains_key("resourceVersion") {
                metadata.insert("resourceVersion".into(), json!("<list-rv>"));
            }
            let text = |key: &str| metadata.get(key).and_then(Value::as_str).unwrap_or_default();
            let (prefix, name) = (text("generateName").to_owned(), text("name").to_owned());
            if !prefix.is_empty() && name.starts_with(&prefix) && name.len() == prefix.len() + 5 {
                let symbol = self.symbol("name", &name);
                metadata.insert("name".into(), json!(format!("{prefix}{symbol}")));
            }
        }
        if bookmark
            && let Some(version) = members["object"].pointer_mut("/metadata/resourceVersion")
        {
            *version = json!("<list-rv>");
        }
        if members.contains_key("storageVersionHash") {
            members.insert("storageVersionHash".into(), json!("<hash>"));
        }
        if kind == "Status" {
            sort_causes(members);
        }
        let skip = |symbol: &Value| symbol == "<list-rv>";
        for (key, member) in members.iter_mut() {
            if !skip(member) {
                self.walk(key, member);
            }
        }
    }

    /// Second pass: the same values in messages and table cells, and the run's own names.
    fn texts(&self, key: &str, value: &mut Value) {
        match value {
            Value::Object(members) => {
                let old = std::mem::take(members);
                for (name, mut member) in old {
                    self.texts(&name, &mut member);
                    members.insert(self.known(&name), member);
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.texts(key, item)),
            Value::String(text) => {
                if key == "cells" && self.age.is_match(text) {
                    *text = "<age>".to_owned();
                    return;
                }
                *text = self.version.replace_all(text, "$1<rv>").into_owned();
                // A server that keeps managed fields quotes them with the object.
                *text = self.object.replace_all(text, "Invalid value: <object>").into_owned();
                let times = self.time.replace_all(text, |found: &regex::Captures<'_>| {
                    let time = &found[0];
                    // The server also quotes Go's time layout.
                    if self.given.contains(time) || time.starts_with("2006-01-02") {
                        time.to_owned()
                    } else {
                        "<time>".to_owned()
                    }
                });
                *text = self.known(&times);
            }
            _ => {}
        }
    }

    fn known(&self, text: &str) -> String {
        let mut out = text.to_owned();
        for (value, variable) in &self.variables {
            out = out.replace(value, variable);
        }
        for ((class, value), symbol) in &self.symbols {
            match *class {
                "uid" | "ip" => out = out.replace(value, symbol),
                "name" => {
                    let prefix = &value[..value.len() - 5];
                    out = out.replace(value, &format!("{prefix}{symbol}"));
                }
                "port" => out = out.replace(&format!(":{value}/"), &format!(":{symbol}/")),
                _ => {}
            }
        }
        for prefix in &self.generated {
            out = prefix.replace_all(&out, "$1<name>").into_owned();
        }
        out
    }
}

/// Sorts the causes, here and in the message that joins them: the server lists them in the order of a
/// Go map, which is random.
fn sort_causes(status: &mut Map<String, Value>) {
    let line = |cause: &Value| {
        let text = |key: &str| cause[key].as_str().unwrap_or_default().to_owned();
        format!("{}: {}", text("field"), text("message"))
    };
    let Some(Value::Array(causes)) =
        status.get_mut("details").and_then(|details| details.get_mut("causes"))
    else {
        return;
    };
    causes.sort_by_key(line);
    let lines: Vec<_> = causes.iter().map(line).collect();
    let Some(Value::String(message)) = status.get_mut("message") else { return };
    if let Some((head, list)) = message.split_once(" is invalid: [")
        && lines.iter().all(|line| list.contains(line))
        && list.len() == lines.iter().map(|line| line.len() + 2).sum::<usize>() - 1
    {
        *message = format!("{head} is invalid: [{}]", lines.join(", "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normalizer(requests: &[Value]) -> Normalizer {
        let steps: Vec<_> = requests
            .iter()
            .map(|body| {
                json!({"about": "", "request": {"method": "POST", "path": "/", "body": body}})
            })
            .collect();
        let scenario =
            serde_json::from_value(json!({"about": "", "steps": steps})).expect("a scenario");
        let variables = json!({"NAMESPACE": "t-1234"});
        Normalizer::new(&scenario, variables.as_object().expect("an object"))
    }

    #[test]
    fn equal_choices_of_the_server_get_equal_symbols_over_all_answers() {
        let mut it = normalizer(&[]);
        let object = |rv: &str| json!({"metadata": {"uid": "aa-bb", "resourceVersion": rv}});
        assert_eq!(
            [it.normalize(object("7")), it.normalize(object("9")), it.normalize(object("7"))],
            ["<rv-1>", "<rv-2>", "<rv-1>"]
                .map(|rv| json!({"metadata": {"uid": "<uid-1>", "resourceVersion": rv}}))
        );
    }

    #[test]
    fn what_the_scenario_gave_is_compared_as_it_stands() {
        let mut it = normalizer(&[json!({"nodePort": 30_080, "at": "2026-01-01T00:00:00Z"})]);
        assert_eq!(
            it.normalize(json!({
                "nodePort": 30_080, "healthCheckNodePort": 31_000,
                "at": "2026-01-01T00:00:00Z", "now": "2026-11-15T09:00:00Z",
            })),
            json!({
                "nodePort": 30_080, "healthCheckNodePort": "<port-1>",
                "at": "2026-01-01T00:00:00Z", "now": "<time>",
            })
        );
    }

    #[test]
    fn a_generated_name_and_the_namespace_are_found_in_messages_too() {
        let mut it = normalizer(&[]);
        assert_eq!(
            it.normalize(json!({
                "metadata": {"generateName": "web-", "name": "web-x7k2p", "namespace": "t-1234"},
                "message": "web-x7k2p in t-1234 is old: resource version: 12 (34)",
            })),
            json!({
                "metadata": {
                    "generateName": "web-", "name": "web-<name-1>", "namespace": "${NAMESPACE}",
                },
                "message": "web-<name-1> in ${NAMESPACE} is old: resource version: <rv>",
            })
        );
    }

    #[test]
    fn causes_are_sorted_in_the_list_and_in_the_message() {
        let status = |first: &str, second: &str| {
            json!({
                "kind": "Status", "message": format!("X \"a\" is invalid: [{first}: no, {second}: no]"),
                "details": {"causes": [
                    {"field": first, "message": "no"}, {"field": second, "message": "no"},
                ]},
            })
        };
        let mut it = normalizer(&[]);
        assert_eq!(it.normalize(status("spec.b", "spec.a")), status("spec.a", "spec.b"));
    }

    #[test]
    fn the_version_of_a_list_is_related_to_nothing() {
        let mut it = normalizer(&[]);
        assert_eq!(
            it.normalize(json!({
                "kind": "ConfigMapList", "metadata": {"resourceVersion": "9"},
                "items": [{"metadata": {"resourceVersion": "9"}}],
            })),
            json!({
                "kind": "ConfigMapList", "metadata": {"resourceVersion": "<list-rv>"},
                "items": [{"metadata": {"resourceVersion": "<rv-1>"}}],
            })
        );
    }
}
