//! The controller that leads and the agents of load balancers, as their Leases show them. Pure.

use crate::view::list::Lists;
use bowline_api::names;
use bowline_core::replicas::{Entry, Heard, Joint, Said};
use bowline_runtime::lease;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use std::collections::BTreeMap;

/// The holder of a Lease, and how long it has been silent. The clocks of its machine and of this one may
/// differ, so only the leader, which measures with one clock, decides whether it is alive.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::view) struct Holder {
    pub(in crate::view) identity: String,
    /// The version of its program. None: earlier versions do not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::view) version: Option<String>,
    /// Seconds since its last renewal, by the clock of this machine.
    pub(in crate::view) silent_seconds: i64,
    /// Whether that is longer than the Lease lasts.
    pub(in crate::view) overdue: bool,
}

/// The report of one agent of a load balancer.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::view) struct Agent {
    /// None: it has left.
    pub(in crate::view) holder: Option<Holder>,
    pub(in crate::view) said: Said,
}

/// The agents of a load balancer.
#[derive(Clone, Debug, Default)]
pub(in crate::view) struct Agents {
    pub(in crate::view) all: Vec<Agent>,
    /// Their joint report.
    pub(in crate::view) joint: Joint,
}

pub(super) fn agents(lists: &Lists, now: Timestamp) -> BTreeMap<String, Agents> {
    let names = lists.load_balancers.iter().filter_map(|lb| lb.metadata.name.as_deref());
    let agents = |name: &str| {
        let entries = lease::entries(lists.lease(&names::agent_lease(name))?);
        let mut all: Vec<_> = entries.iter().map(|entry| agent(entry, now)).collect();
        // The agent with the latest renewal is first.
        all.sort_by_key(|it| it.holder.as_ref().map_or(i64::MAX, |holder| holder.silent_seconds));
        // If some agents have renewed in time, an agent that has not does not count. Whether a single agent
        // is alive is the leader's decision.
        let heard = |entry: &Entry| {
            let silent = u64::try_from(silent_seconds(entry, now)).unwrap_or_default();
            match silent {
                it if it <= entry.lasts.as_secs() => Heard::Live,
                it if it <= 2 * entry.lasts.as_secs() => Heard::Silent,
                _ => Heard::Lost,
            }
        };
        let joint = Joint::of(entries.iter().map(|entry| (entry, heard(entry))));
        Some((name.to_owned(), Agents { all, joint }))
    };
    names.filter_map(agents).collect()
}

/// How long ago an agent renewed its entry, by the clock of this machine.
fn silent_seconds(entry: &Entry, now: Timestamp) -> i64 {
    let renewed: Option<Timestamp> = entry.renewed.parse().ok();
    renewed.map_or(0, |at| now.as_second() - at.as_second()).max(0)
}

fn agent(entry: &Entry, now: Timestamp) -> Agent {
    let silent_seconds = silent_seconds(entry, now);
    let overdue = u64::try_from(silent_seconds).is_ok_and(|it| it > entry.lasts.as_secs());
    let version = entry.said.version.as_deref().map(str::to_owned);
    let holder = Holder { identity: entry.agent.to_string(), version, silent_seconds, overdue };
    Agent { holder: entry.left.is_none().then_some(holder), said: entry.said.clone() }
}

pub(super) fn holder(lease: &Lease, now: Timestamp) -> Option<Holder> {
    let spec = lease.spec.as_ref()?;
    let identity = spec.holder_identity.clone().filter(|name| !name.is_empty())?;
    let silent_seconds = now.as_second() - spec.renew_time.as_ref()?.0.as_second();
    let duration = i64::from(spec.lease_duration_seconds.unwrap_or(15));
    let annotations = lease.metadata.annotations.as_ref();
    Some(Holder {
        identity,
        version: annotations.and_then(|all| all.get(names::ANNOTATION_VERSION)).cloned(),
        silent_seconds: silent_seconds.max(0),
        overdue: silent_seconds > duration,
    })
}
