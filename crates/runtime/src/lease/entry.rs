//! The entry of one agent: the text of its own annotation.

use super::refusals::refusals;
use super::{DURATION_SECONDS, addresses, cut, texts};
use bowline_api::names;
use bowline_core::replicas::{Entry, Left, Said};
use bowline_core::report::{self, Room, Unlisted};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// The entry of an agent as it is written.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Text {
    agent: String,
    renewed: String,
    lasts_seconds: u32,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    left: bool,
    /// Whether the proxy of an agent that has left may still run. Agents of the previous version do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    proxy_runs: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hash: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    refused: Vec<Value>,
    #[serde(default)]
    unlisted: usize,
    /// The namespaces of unlisted refusals. None: any namespace, as from agents of the previous version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unlisted_namespaces: Option<Vec<Arc<str>>>,
    /// The unlisted pools without an endpoint that answers. Leaders of earlier versions ignore it.
    #[serde(default, skip_serializing_if = "is_zero")]
    unlisted_failing: usize,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    addresses: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kept_since: Option<i64>,
    /// The version of the agent's program. Leaders of earlier versions ignore it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    version: Option<Arc<str>>,
    /// Where the agent serves its admin endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    admin: Option<String>,
    /// The node on which the agent runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    node: Option<Arc<str>>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// The part of the patch that belongs to this agent alone.
pub(crate) fn entry_patch(
    said: &Said,
    agent: &str,
    now: Timestamp,
    room: Room,
    left: Option<Left>,
) -> Value {
    let (refused, unlisted) = report::choose(&said.refused, room.own());
    let text = Text {
        agent: agent.to_owned(),
        renewed: format!("{now:.6}"),
        lasts_seconds: DURATION_SECONDS,
        left: left.is_some(),
        proxy_runs: left.and_then(|left| match left {
            Left::Unsaid => None,
            Left::ProxyRuns => Some(true),
            Left::ProxyEnded => Some(false),
        }),
        hash: said.hash.map(|hash| hash.to_string()),
        error: said.error.as_deref().map(cut),
        refused: refused.iter().map(|it| json!(it)).collect(),
        unlisted: unlisted.count,
        unlisted_failing: unlisted.failing,
        unlisted_namespaces: unlisted.namespaces.map(|all| all.into_iter().collect()),
        addresses: texts(&said.addresses),
        kept_since: said.kept_since,
        version: said.version.clone(),
        admin: said.admin.map(|at| at.to_string()),
        node: said.node.clone(),
    };
    let text = serde_json::to_string(&text).unwrap_or_default();
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"annotations": {names::agent_entry(agent): text}},
    })
}

/// The merge patch that removes entries from a Lease.
pub(crate) fn removal<'a>(agents: impl IntoIterator<Item = &'a str>) -> Value {
    let keys = agents.into_iter().map(|agent| (names::agent_entry(agent), Value::Null));
    json!({"metadata": {"annotations": keys.collect::<serde_json::Map<_, _>>()}})
}

/// How many agents have entries in a Lease.
pub(crate) fn count(lease: &Lease) -> usize {
    let all = lease.metadata.annotations.iter().flatten();
    all.filter(|(key, _)| key.starts_with(names::AGENT_ENTRY_PREFIX)).count()
}

/// Reads an entry. An unreadable entry is of an agent that proves nothing.
pub(super) fn read(name: &str, text: &str) -> Entry {
    let Ok(text) = serde_json::from_str::<Text>(text) else {
        return Entry {
            agent: name.into(),
            renewed: text.into(),
            lasts: Duration::from_secs(DURATION_SECONDS.into()),
            left: None,
            whole: false,
            said: Said {
                unlisted: Unlisted { count: 1, ..Unlisted::default() },
                ..Said::default()
            },
        };
    };
    let namespaces = text.unlisted_namespaces.map(|all| all.into_iter().collect());
    let (count, failing) = (text.unlisted, text.unlisted_failing);
    let unlisted = Unlisted { count, namespaces, failing };
    let (refused, unlisted) = refusals(text.refused, unlisted);
    let left = text.left.then_some(match text.proxy_runs {
        None => Left::Unsaid,
        Some(true) => Left::ProxyRuns,
        Some(false) => Left::ProxyEnded,
    });
    Entry {
        agent: text.agent.into(),
        renewed: text.renewed.into(),
        lasts: Duration::from_secs(text.lasts_seconds.into()),
        left,
        whole: false,
        said: Said {
            hash: text.hash.and_then(|hash| hash.parse().ok()),
            error: text.error,
            refused,
            unlisted,
            addresses: addresses(text.addresses.iter().map(String::as_str)),
            kept_since: text.kept_since,
            version: text.version,
            admin: text.admin.and_then(|at| at.parse().ok()),
            node: text.node,
        },
    }
}
