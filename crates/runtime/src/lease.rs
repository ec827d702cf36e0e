//! The format of lease reports: what each agent says in the Lease of its load balancer about the plan it has
//! applied, its refusals and its addresses, and what each speaker says in its own Lease. Agents and speakers write it, the
//! leader and `bowline status` read it. It does no I/O.
//!
//! Every agent has an annotation of its own, `agents.bowline.dev/NAME`, which it writes by a merge patch of
//! that key. So agents never conflict, and a Role can name the one Lease that they need. The agent that
//! writes last also writes the fields of the whole Lease, for leaders of a version that reads only those.

mod entry;
mod refusals;
mod speaker;
mod whole;

pub(crate) use entry::{count, entry_patch, removal};
pub(crate) use speaker::speaker;
#[cfg(feature = "speaker")]
pub(crate) use speaker::speaker_patch;
pub use speaker::{live_speaker, silent_speaker};

use bowline_api::names;
use bowline_core::replicas::{Entry, Left, Said};
use bowline_core::report::Room;
use bowline_core::status::MOST_ADDRESSES;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use std::net::IpAddr;
use std::time::Duration;

/// An agent that has been silent for longer counts as gone.
pub(crate) const DURATION_SECONDS: u32 = 15;
/// The refusals in the entries of all agents take at most this many bytes. The API allows 256 KiB for all annotations of an
/// object together.
const MOST_BYTES_OF_ALL: usize = 160 * 1024;
/// An error is cut to this many characters.
const LONGEST_ERROR: usize = 1024;

/// The room of an agent that has not read the entries of others yet.
pub(crate) fn room() -> Room {
    Room::of(MOST_BYTES_OF_ALL)
}

/// The merge patch that writes an agent's report into the Lease, with this much room for refusals. Empty
/// fields are removed.
pub(crate) fn patch(said: &Said, agent: &str, now: Timestamp, room: Room) -> Value {
    let mut patch = entry_patch(said, agent, now, room, None);
    let whole = whole::fields(said, agent, now, room);
    patch["spec"] = whole["spec"].clone();
    if let (Some(all), Some(more)) = (
        patch["metadata"]["annotations"].as_object_mut(),
        whole["metadata"]["annotations"].as_object(),
    ) {
        all.extend(more.clone());
    }
    patch
}

/// The reports of all agents in a Lease. An agent of a version without entries is read from the fields of the
/// whole Lease: if it is the holder, or if the Lease has neither holder nor entries.
pub fn entries(lease: &Lease) -> Vec<Entry> {
    let all = lease.metadata.annotations.iter().flatten();
    let mut entries: Vec<_> = all
        .filter_map(|(key, text)| {
            Some(entry::read(key.strip_prefix(names::AGENT_ENTRY_PREFIX)?, text))
        })
        .collect();
    let spec = lease.spec.clone().unwrap_or_default();
    let holder = spec.holder_identity.filter(|holder| !holder.is_empty());
    let known = match &holder {
        Some(holder) => entries.iter().any(|entry| *entry.agent == **holder),
        None => !entries.is_empty(),
    };
    if !known {
        let seconds = spec.lease_duration_seconds.and_then(|s| u64::try_from(s).ok());
        let renewed = spec.renew_time.map(|time| time.0.to_string()).unwrap_or_default();
        entries.push(Entry {
            left: holder.is_none().then_some(Left::Unsaid),
            agent: holder.unwrap_or_default().into(),
            renewed: renewed.into(),
            lasts: Duration::from_secs(seconds.unwrap_or(DURATION_SECONDS.into())),
            whole: true,
            said: whole::read(lease),
        });
    }
    entries
}

fn addresses<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<IpAddr> {
    texts.filter_map(|text| text.trim().parse().ok()).take(MOST_ADDRESSES).collect()
}

fn texts(addresses: &[IpAddr]) -> Vec<String> {
    addresses.iter().take(MOST_ADDRESSES).map(ToString::to_string).collect()
}

fn cut(text: &str) -> String {
    text.chars().take(LONGEST_ERROR).collect()
}

#[cfg(test)]
mod tests;
