//! Transcripts: named scenarios of raw HTTP exchanges. Their answers were recorded from kube-apiserver
//! and normalized, and are compared as a whole with the answers of the test's cluster. So the comparison
//! also works without kube-apiserver.
//!
//! `BOWLINE_RECORD=1` with kube-apiserver replaces the answers in the file. `BOWLINE_DECLARE=1` with the
//! embedded server writes down its answers where it differs on purpose.

mod correspondence;
mod diff;
mod normalize;

use crate::cluster::{Access, Cluster, Flavour};
use crate::http::{Call, Reply};
use crate::wait::eventually;
use correspondence::Correspondence;
use normalize::Normalizer;
use regex::Regex;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// A scenario file.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// What the scenario shows.
    pub about: String,
    /// In order. A step may use values that earlier steps captured.
    pub steps: Vec<Step>,
}

/// One exchange.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// What the step shows, in a few words.
    pub about: String,
    /// The request.
    pub request: Request,
    /// Variables for later steps: name to JSON pointer into the body of the answer.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub capture: BTreeMap<String, String>,
    /// Repeat the request until these JSON pointers into `{status, headers, body}` have these values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub until: BTreeMap<String, Value>,
    /// Where the embedded server differs on purpose.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differs: Vec<Difference>,
    /// The answer of kube-apiserver, normalized: status, relevant headers, body.
    #[serde(default)]
    pub response: Value,
}

/// A request. Texts may contain `${VARIABLE}`, and `${FILL:n}` for n letters.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Such as `GET`.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// The caller. None: the administrator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<As>,
    /// Lower-case names. The default content type is `application/json`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// A JSON body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Value>,
    /// Alternatively a body as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Alternatively a body as hexadecimal bytes; `${…}` is replaced first and stands for its own bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hex: Option<String>,
}

/// A caller other than the administrator.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum As {
    /// The read-only token.
    ReadOnly,
    /// An invalid token.
    WrongToken,
    /// No token.
    Anonymous,
}

/// An intended difference of the embedded server.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Difference {
    /// JSON pointer into `{status, headers, body}`.
    pub at: String,
    /// The reason.
    pub why: String,
    /// The embedded server's value there. None: it has no value there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub embedded: Option<Value>,
}

/// Runs the scenario in `file`. Panics with all differences, or records the answers.
pub async fn run(file: &Path) {
    let text = std::fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let mut scenario: Scenario =
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let record = std::env::var_os("BOWLINE_RECORD").is_some_and(|value| value == "1");
    let declare = std::env::var_os("BOWLINE_DECLARE").is_some_and(|value| value == "1");
    let cluster = Cluster::start().await;
    assert!(
        !record || cluster.flavour() == Flavour::Real,
        "BOWLINE_RECORD=1 needs a real server: set KUBEBUILDER_ASSETS"
    );
    let mut variables = Map::new();
    variables.insert("NAMESPACE".into(), json!(cluster.namespace().await));
    variables.insert("UNIQUE".into(), json!(format!("u{}", crate::unique())));
    let mut normalizer = Normalizer::new(&scenario, &variables);
    let mut same = Correspondence::default();

    let mut failures = Vec::new();
    for (number, step) in scenario.steps.iter_mut().enumerate() {
        let call = step.request.call(&variables);
        let reply = exchange(&cluster, &call, step, &variables).await;
        let actual = answer(&call, &reply);
        if let Some(resource) = made_in_the_cluster(&call, &reply) {
            cluster
                .owns(&resource, actual["body"]["metadata"]["name"].as_str().unwrap_or_default());
        }
        for (name, pointer) in &step.capture {
            let value = actual["body"].pointer(pointer).cloned().unwrap_or_default();
            if value.is_null() {
                failures.push(format!("step {number}: nothing to capture at {pointer}"));
            }
            variables.insert(name.clone(), value);
        }
        let actual = normalizer.normalize(actual);
        if record {
            step.response = actual;
            continue;
        }
        if cluster.flavour() == Flavour::Embedded {
            let alike = |difference: &Difference| {
                step.response.pointer(&difference.at) == actual.pointer(&difference.at)
            };
            if declare {
                step.differs.retain(|difference| !alike(difference));
                for difference in &mut step.differs {
                    difference.embedded = actual.pointer(&difference.at).cloned();
                }
            } else {
                // A declared difference that no longer exists must be removed from the file.
                failures.extend(step.differs.iter().filter(|one| alike(one)).map(|one| {
                    format!("step {number}: {} is declared and does not differ", one.at)
                }));
            }
        }
        let expected = match cluster.flavour() {
            Flavour::Real => (step.response.clone(), actual),
            Flavour::Embedded => {
                let (recorded, actual) = step.on_purpose(step.response.clone(), actual);
                let (mut recorded, actual) = always_on_purpose(recorded, actual);
                same.align(&mut recorded, &actual);
                (recorded, actual)
            }
        };
        let lines = diff::lines(&expected.0, &expected.1);
        if !lines.is_empty() {
            failures.push(format!(
                "step {number}: {}\n  {} {}\n    {}",
                step.about,
                call.method,
                call.path,
                lines.join("\n    ")
            ));
        }
    }
    if record || declare {
        let text = serde_json::to_string_pretty(&scenario).expect("a scenario is JSON");
        std::fs::write(file, text + "\n").expect("write the recording");
    }
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    assert!(failures.is_empty(), "{name} differs from the recording:\n\n{}", failures.join("\n\n"));
}

/// A cluster-scoped object that the request created, as an argument of `kubectl delete`.
fn made_in_the_cluster(call: &Call, reply: &Reply) -> Option<String> {
    let path = call.path.split('?').next().unwrap_or_default();
    let steps: Vec<_> = path.trim_start_matches('/').split('/').collect();
    let resource = match steps[..] {
        ["api", _, plural] => plural.to_owned(),
        ["apis", group, version, plural] => format!("{plural}.{version}.{group}"),
        _ => return None,
    };
    let review = path.contains("/authorization.k8s.io/");
    (call.method == "POST" && reply.status == 201 && !review).then_some(resource)
}

async fn exchange(
    cluster: &Cluster,
    call: &Call,
    step: &Step,
    variables: &Map<String, Value>,
) -> Reply {
    if step.until.is_empty() {
        return cluster.http(call.clone()).await;
    }
    eventually(&step.about, || async {
        let reply = cluster.http(call.clone()).await;
        let seen = answer(call, &reply);
        let met = step.until.iter().all(|(pointer, wanted)| {
            seen.pointer(pointer).unwrap_or(&Value::Null) == &fill(wanted, variables)
        });
        if met { Ok(reply) } else { Err(seen.to_string()) }
    })
    .await
}

/// The headers on which clients rely.
const HEADERS: [&str; 5] = ["content-type", "warning", "retry-after", "allow", "www-authenticate"];

/// An answer as one JSON value.
fn answer(call: &Call, reply: &Reply) -> Value {
    let headers: Map<_, _> = HEADERS
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), json!(reply.headers.get(*name)?))))
        .collect();
    let kind = reply.headers.get("content-type").map_or("", String::as_str);
    let text = reply.text();
    let watch = call.path.contains("watch=") && reply.status == 200;
    let body = if watch && kind.contains("json") {
        Value::Array(reply.json_lines().into_iter().filter(|event| !idle(event)).collect())
    } else if kind.contains("json") {
        serde_json::from_str(&text).unwrap_or(json!(text))
    } else if kind.contains("yaml") {
        serde_saphyr::from_str(&text).unwrap_or(json!(text))
    } else {
        json!(text)
    };
    json!({"status": reply.status, "headers": headers, "body": body})
}

/// Whether this is a bookmark that only shows progress. The server decides when to send it.
fn idle(event: &Value) -> bool {
    let annotations = &event["object"]["metadata"]["annotations"];
    event["type"] == "BOOKMARK" && annotations["k8s.io/initial-events-end"] != "true"
}

impl Step {
    /// The recording and the answer, with intended differences made equal.
    fn on_purpose(&self, mut recorded: Value, actual: Value) -> (Value, Value) {
        for difference in &self.differs {
            match &difference.embedded {
                Some(value) => put(&mut recorded, &difference.at, value.clone()),
                None => remove(&mut recorded, &difference.at),
            }
        }
        (recorded, actual)
    }
}

/// Removes two intended differences that would be declared in most scenarios. The embedded server sends
/// stored bytes, so items of lists contain apiVersion and kind. It also lists each cause of an error
/// once, while kube-apiserver runs some checks twice and lists both results.
fn always_on_purpose(mut recorded: Value, mut actual: Value) -> (Value, Value) {
    if let (Some(Value::Array(wanted)), Some(Value::Array(items))) =
        (recorded.pointer("/body/items"), actual.pointer_mut("/body/items"))
    {
        for (wanted, item) in wanted.iter().zip(items) {
            if let Some(members) = item.as_object_mut() {
                members.retain(|key, _| {
                    !matches!(key.as_str(), "apiVersion" | "kind") || wanted.get(key).is_some()
                });
            }
        }
    }
    if let Some(causes) = recorded.pointer_mut("/body/details/causes").and_then(Value::as_array_mut)
    {
        let mut seen: Vec<Value> = Vec::new();
        causes.retain(|cause| {
            let new = !seen.contains(cause);
            seen.push(cause.clone());
            new
        });
    }
    (recorded, actual)
}

/// Removes the value at `pointer`.
fn remove(value: &mut Value, pointer: &str) {
    let Some((parent, last)) = pointer.rsplit_once('/') else { return };
    if let Some(Value::Object(members)) = value.pointer_mut(parent) {
        members.remove(&last.replace("~1", "/").replace("~0", "~"));
    }
}

/// Sets the value at `pointer`, and creates the members on the way.
fn put(value: &mut Value, pointer: &str, new: Value) {
    let Some((parent, last)) = pointer.rsplit_once('/') else {
        *value = new;
        return;
    };
    let last = last.replace("~1", "/").replace("~0", "~");
    if value.pointer(parent).is_none() {
        put(value, parent, json!({}));
    }
    match value.pointer_mut(parent) {
        Some(Value::Array(items)) => {
            if let Some(item) = last.parse().ok().and_then(|n: usize| items.get_mut(n)) {
                *item = new;
            }
        }
        Some(Value::Object(members)) => {
            members.insert(last, new);
        }
        Some(other) => *other = json!({last: new}),
        None => {}
    }
}

impl Request {
    fn call(&self, variables: &Map<String, Value>) -> Call {
        let text = |text: &str| match fill(&json!(text), variables) {
            Value::String(text) => text,
            other => other.to_string(),
        };
        let mut call = Call::new(&self.method, text(&self.path));
        call.access = match self.access {
            None => Access::Admin,
            Some(As::ReadOnly) => Access::ReadOnly,
            Some(As::WrongToken) => Access::WrongToken,
            Some(As::Anonymous) => Access::Anonymous,
        };
        for (name, value) in &self.headers {
            call = call.header(name, &text(value));
        }
        if let Some(body) = &self.body {
            call.body = fill(body, variables).to_string().into_bytes();
        } else if let Some(body) = &self.text {
            call.body = text(body).into_bytes();
        } else if let Some(body) = &self.hex {
            call.body = bytes(&text(&hex_variables(body, variables)));
        } else {
            return call;
        }
        if !self.headers.contains_key("content-type") {
            call = call.header("content-type", "application/json");
        }
        call
    }
}

/// Replaces every `${NAME}` in all texts. A text that is only `${NAME}` gets the value with its type.
fn fill(value: &Value, variables: &Map<String, Value>) -> Value {
    match value {
        Value::String(text) => {
            let whole = text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
            if let Some(found) = whole.and_then(|name| variables.get(name)) {
                return found.clone();
            }
            let mut out = letters(text);
            for (name, value) in variables {
                let plain = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                out = out.replace(&format!("${{{name}}}"), &plain);
            }
            json!(out)
        }
        Value::Array(items) => items.iter().map(|item| fill(item, variables)).collect(),
        Value::Object(members) => {
            let filled = members.iter().map(|(key, member)| {
                let key = fill(&json!(key), variables);
                (key.as_str().unwrap_or_default().to_owned(), fill(member, variables))
            });
            Value::Object(filled.collect())
        }
        other => other.clone(),
    }
}

/// Replaces `${FILL:n}` by n letters, so that large bodies need not be in the file.
fn letters(text: &str) -> String {
    let pattern = Regex::new(r"\$\{FILL:(\d+)\}").expect("a valid expression");
    pattern
        .replace_all(text, |found: &regex::Captures<'_>| {
            "x".repeat(found[1].parse().unwrap_or_default())
        })
        .into_owned()
}

fn hex_variables(text: &str, variables: &Map<String, Value>) -> String {
    variables.iter().fold(text.to_owned(), |text, (name, value)| {
        let hex: String =
            value.as_str().unwrap_or_default().bytes().map(|b| format!("{b:02x}")).collect();
        text.replace(&format!("${{{name}}}"), &hex)
    })
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<_> = hex.chars().filter(char::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .filter_map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_alone_keeps_its_type_and_inside_a_text_becomes_text() {
        let variables = json!({"port": 30_001, "name": "web"});
        let filled = fill(
            &json!({"a": "${port}", "b": "x-${name}:${port}", "${name}": "${FILL:3}"}),
            variables.as_object().expect("an object"),
        );
        assert_eq!(filled, json!({"a": 30_001, "b": "x-web:30001", "web": "xxx"}));
    }

    #[test]
    fn a_difference_on_purpose_replaces_or_removes_only_what_it_names() {
        let step: Step = serde_json::from_value(json!({
            "about": "", "request": {"method": "GET", "path": "/"},
            "differs": [
                {"at": "/status", "why": "", "embedded": 415},
                {"at": "/body/message", "why": ""},
            ],
        }))
        .expect("a step");
        let (expected, actual) = step.on_purpose(
            json!({"status": 200, "body": {"message": "a", "code": 1}}),
            json!({"status": 415, "body": {"code": 2}}),
        );
        assert_eq!(diff::lines(&expected, &actual), ["/body/code: expected 1, got 2"]);
        let (expected, actual) = step.on_purpose(
            json!({"status": 200, "body": {"message": "a"}}),
            json!({"status": 501, "body": {"message": "a"}}),
        );
        assert_eq!(
            diff::lines(&expected, &actual),
            ["/body/message: expected nothing, got \"a\"", "/status: expected 415, got 501"]
        );
    }

    #[test]
    fn bytes_are_written_in_hexadecimal_with_variables_as_their_own_bytes() {
        let variables = json!({"N": "ab"});
        let text = hex_variables("6b38 ${N} 0a", variables.as_object().expect("an object"));
        assert_eq!(bytes(&text), b"k8ab\n");
    }
}
