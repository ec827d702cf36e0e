//! The fields of the whole Lease: the report of the agent that wrote last, for leaders and agents of a version without
//! entries.

use super::refusals::refusals;
use super::{DURATION_SECONDS, addresses, cut, texts};
use bowline_api::names;
use bowline_core::hash::PlanHash;
use bowline_core::replicas::Said;
use bowline_core::report::{self, Room, Unlisted};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

/// The refusals take at most this many bytes, beside those of the entries.
const MOST_BYTES: usize = 48 * 1024;

/// The part of the patch that belongs to the agent that writes last.
pub(super) fn fields(said: &Said, agent: &str, now: Timestamp, room: Room) -> Value {
    let (refused, unlisted) = report::choose(&said.refused, room.cut(MOST_BYTES));
    let unlisted = unlisted.count;
    let refused = (!refused.is_empty()).then(|| json!(refused).to_string());
    let addresses = (!said.addresses.is_empty()).then(|| texts(&said.addresses).join(","));
    json!({
        "metadata": {"annotations": {
            names::ANNOTATION_PLAN_HASH: said.hash.map(|hash| hash.to_string()),
            names::ANNOTATION_ERROR: said.error.as_deref().map(cut),
            names::ANNOTATION_REFUSED: refused,
            names::ANNOTATION_REFUSED_UNLISTED: (unlisted > 0).then(|| unlisted.to_string()),
            names::ANNOTATION_ADDRESSES: addresses,
        }},
        "spec": {
            "holderIdentity": agent,
            "leaseDurationSeconds": DURATION_SECONDS,
            "renewTime": format!("{now:.6}"),
        },
    })
}

/// Reads the fields of the whole Lease. An unreadable field counts as absent, an unreadable refusal as
/// unlisted: the agent proves less, never more.
pub(super) fn read(lease: &Lease) -> Said {
    let annotation = |key: &str| {
        lease.metadata.annotations.as_ref().and_then(|all| all.get(key)).map(String::as_str)
    };
    let all = annotation(names::ANNOTATION_REFUSED)
        .map_or(Ok(Vec::new()), serde_json::from_str::<Vec<Value>>)
        .unwrap_or_else(|_| vec![Value::Null]);
    let unlisted = annotation(names::ANNOTATION_REFUSED_UNLISTED)
        .map_or(0, |text| text.parse::<usize>().unwrap_or(1));
    let (refused, unlisted) = refusals(all, Unlisted { count: unlisted, ..Unlisted::default() });
    Said {
        hash: annotation(names::ANNOTATION_PLAN_HASH)
            .and_then(|text| text.parse::<PlanHash>().ok()),
        error: annotation(names::ANNOTATION_ERROR).map(ToOwned::to_owned),
        unlisted,
        refused,
        addresses: addresses(
            annotation(names::ANNOTATION_ADDRESSES).unwrap_or_default().split(','),
        ),
        kept_since: None,
        version: None,
        admin: None,
        node: None,
    }
}
