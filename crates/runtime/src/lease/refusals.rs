//! Reads refusals of agents, also of newer versions.

use bowline_core::outcome::Reason;
use bowline_core::report::Unlisted;
use bowline_core::update::Refusal;
use serde::Deserialize as _;
use serde_json::{Value, json};

/// Reads a refusal. A reason of a newer version becomes `Unknown`.
fn refusal(mut one: Value) -> Option<Refusal> {
    let reason = one.get("reason").filter(|it| it.is_string());
    if reason.is_some_and(|it| Reason::deserialize(it).is_err()) {
        one["reason"] = json!(Reason::Unknown);
    }
    serde_json::from_value(one).ok()
}

/// Reads refusals. An unreadable one counts as unlisted, of its namespace if that can be read.
pub(super) fn refusals(all: Vec<Value>, mut unlisted: Unlisted) -> (Vec<Refusal>, Unlisted) {
    let mut read = Vec::new();
    for one in all {
        let namespace = one.get("namespace").and_then(Value::as_str).map(Into::into);
        match refusal(one) {
            Some(refusal) => read.push(refusal),
            None => unlisted.add(namespace),
        }
    }
    (read, unlisted)
}
