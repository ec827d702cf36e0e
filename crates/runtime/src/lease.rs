//! The format of lease reports: what each agent says in the Lease of its load balancer about the plan it has
//! applied, its refusals and its addresses. Agents write it, the leader and `bowline status` read it. It does
//! no I/O.
//!
//! Every agent has an annotation of its own, `agents.bowline.dev/NAME`, which it writes by a merge patch of
//! that key. So agents never conflict, and a Role can name the one Lease that they need. The agent that
//! writes last also writes the fields of the whole Lease, for leaders of a version that reads only those.

use bowline_api::names;
use bowline_core::announce::SpeakerLease;
use bowline_core::hash::PlanHash;
use bowline_core::outcome::Reason;
use bowline_core::replicas::{Entry, Left, Said};
use bowline_core::report::speaker::SpeakerReport;
use bowline_core::report::{self, Room, Unlisted};
use bowline_core::status::MOST_ADDRESSES;
use bowline_core::update::Refusal;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// An agent that has been silent for longer counts as gone.
pub(crate) const DURATION_SECONDS: u32 = 15;
/// The API allows 256 KiB for all annotations of an object together. The refusals in the fields of the whole
/// Lease take at most this many bytes.
const MOST_BYTES: usize = 48 * 1024;
/// The refusals in the entries of all agents take at most this many bytes.
const MOST_BYTES_OF_ALL: usize = 160 * 1024;
/// An error is cut to this many characters.
const LONGEST_ERROR: usize = 1024;

/// The room of an agent that has not read the entries of others yet.
pub(crate) fn room() -> Room {
    Room::of(MOST_BYTES_OF_ALL)
}

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

/// The merge patch that writes an agent's report into the Lease, with this much room for refusals. Empty
/// fields are removed.
pub(crate) fn patch(said: &Said, agent: &str, now: Timestamp, room: Room) -> Value {
    let (refused, unlisted) = report::choose(&said.refused, room.cut(MOST_BYTES));
    let unlisted = unlisted.count;
    let refused = (!refused.is_empty()).then(|| json!(refused).to_string());
    let addresses = (!said.addresses.is_empty()).then(|| texts(&said.addresses).join(","));
    let mut patch = entry_patch(said, agent, now, room, None);
    let whole = json!({
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
    });
    patch["spec"] = whole["spec"].clone();
    if let (Some(all), Some(more)) = (
        patch["metadata"]["annotations"].as_object_mut(),
        whole["metadata"]["annotations"].as_object(),
    ) {
        all.extend(more.clone());
    }
    patch
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

/// The reports of all agents in a Lease. An agent of a version without entries is read from the fields of the
/// whole Lease: if it is the holder, or if the Lease has neither holder nor entries.
pub fn entries(lease: &Lease) -> Vec<Entry> {
    let all = lease.metadata.annotations.iter().flatten();
    let mut entries: Vec<_> = all
        .filter_map(|(key, text)| Some(entry(key.strip_prefix(names::AGENT_ENTRY_PREFIX)?, text)))
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
            said: read_whole(lease),
        });
    }
    entries
}

/// Reads an entry. An unreadable entry is of an agent that proves nothing.
fn entry(name: &str, text: &str) -> Entry {
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

/// Reads the fields of the whole Lease. An unreadable field counts as absent, an unreadable refusal as
/// unlisted: the agent proves less, never more.
fn read_whole(lease: &Lease) -> Said {
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

/// Reads a refusal. A reason of a newer version becomes `Unknown`.
fn refusal(mut one: Value) -> Option<Refusal> {
    let reason = one.get("reason").filter(|it| it.is_string());
    if reason.is_some_and(|it| Reason::deserialize(it).is_err()) {
        one["reason"] = json!(Reason::Unknown);
    }
    serde_json::from_value(one).ok()
}

/// Reads refusals. An unreadable one counts as unlisted, of its namespace if that can be read.
fn refusals(all: Vec<Value>, mut unlisted: Unlisted) -> (Vec<Refusal>, Unlisted) {
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

fn addresses<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<IpAddr> {
    texts.filter_map(|text| text.trim().parse().ok()).take(MOST_ADDRESSES).collect()
}

fn texts(addresses: &[IpAddr]) -> Vec<String> {
    addresses.iter().take(MOST_ADDRESSES).map(ToString::to_string).collect()
}

fn cut(text: &str) -> String {
    text.chars().take(LONGEST_ERROR).collect()
}

/// What a speaker says in its Lease. None: the Lease is no speaker's, or the report cannot be read.
pub(crate) fn speaker(lease: &Lease) -> Option<SpeakerLease> {
    let text = lease.metadata.annotations.as_ref()?.get(names::ANNOTATION_SPEAKER)?;
    let spec = lease.spec.as_ref()?;
    let report = serde_json::from_str(text).ok()?;
    let holder = spec.holder_identity.as_deref().unwrap_or_default();
    let renewed = spec.renew_time.as_ref().map(|time| time.0.to_string()).unwrap_or_default();
    let lasts = spec.lease_duration_seconds.and_then(|it| u64::try_from(it).ok());
    Some(SpeakerLease {
        // A speaker that leaves gives up the Lease.
        report: (!holder.is_empty()).then_some(report),
        renewed: renewed.into(),
        lasts: Duration::from_secs(lasts.unwrap_or(DURATION_SECONDS.into())),
    })
}

/// The report of a speaker that has renewed its Lease lately.
pub fn live_speaker(lease: &Lease, now: Timestamp) -> Option<SpeakerReport> {
    /// Clocks of machines differ.
    const TOLERANCE: Duration = Duration::from_secs(15);
    let said = speaker(lease)?;
    let renewed = lease.spec.as_ref()?.renew_time.as_ref()?.0;
    let silent = now.duration_since(renewed).unsigned_abs();
    said.report.filter(|_| silent <= said.lasts + TOLERANCE)
}

/// The node of a speaker that has not renewed its Lease in time and did not give it up, and for how many seconds it has
/// been silent.
pub fn silent_speaker(lease: &Lease, now: Timestamp) -> Option<(String, i64)> {
    let report = speaker(lease)?.report?;
    let renewed = lease.spec.as_ref()?.renew_time.as_ref()?.0;
    let silent = now.as_second() - renewed.as_second();
    live_speaker(lease, now).is_none().then(|| (report.node.to_string(), silent))
}

/// The merge patch that writes the report of a speaker.
#[cfg(feature = "speaker")]
pub(crate) fn speaker_patch(report: &SpeakerReport, now: Timestamp) -> Value {
    let text = serde_json::to_string(report).unwrap_or_default();
    json!({
        "metadata": {"annotations": {names::ANNOTATION_SPEAKER: text}},
        "spec": {
            "holderIdentity": report.node,
            "leaseDurationSeconds": DURATION_SECONDS,
            "renewTime": format!("{now:.6}"),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_core::key::{ConsumerKind, ConsumerRef};
    use bowline_core::outcome::Problem;
    use bowline_core::plan::Transport;
    use bowline_core::update::{Extent, ListenerKey};
    use std::collections::BTreeMap;

    fn listener(address: [u8; 4], port: u16) -> Extent {
        let address = address.into();
        Extent::Listener(ListenerKey { address, port, transport: Transport::Tcp })
    }

    fn refusal(kind: ConsumerKind, name: &str, extent: Extent) -> Refusal {
        let consumer =
            ConsumerRef { kind, namespace: "shop".into(), name: name.into(), uid: name.into() };
        let problem = Problem::new(Reason::BindFailed, "127.0.0.1:80: permission denied");
        Refusal { consumer, problem, extent }
    }

    fn lease(said: &Said, agent: &str) -> Lease {
        let mut patch = patch(said, agent, Timestamp::UNIX_EPOCH, room());
        let annotations = patch["metadata"]["annotations"].as_object_mut().unwrap();
        annotations.retain(|_, value| !value.is_null());
        serde_json::from_value(patch).unwrap()
    }

    /// What is read from the only entry, and from the fields of the whole Lease.
    fn told(said: &Said) -> [Said; 2] {
        let lease = lease(said, "me_1");
        let mut all = entries(&lease);
        assert_eq!(all.len(), 1);
        assert_eq!((&*all[0].agent, all[0].left, all[0].whole), ("me_1", None, false));
        [all.remove(0).said, read_whole(&lease)]
    }

    #[cfg(feature = "speaker")]
    #[test]
    fn the_report_of_a_speaker_is_read_until_it_gives_up_its_lease() {
        let report = SpeakerReport::new("a".into(), "1".into(), Default::default(), [], []);
        let mut patch = speaker_patch(&report, Timestamp::UNIX_EPOCH);
        let read = |patch: &Value| {
            speaker(&serde_json::from_value(patch.clone()).unwrap()).map(|it| it.report)
        };
        assert_eq!(read(&patch), Some(Some(report)));
        patch["spec"]["holderIdentity"] = "".into();
        assert_eq!(read(&patch), Some(None));
        patch["metadata"]["annotations"][names::ANNOTATION_SPEAKER] = "{".into();
        assert_eq!(read(&patch), None);
    }

    #[test]
    fn what_an_agent_says_is_read_back() {
        let report = Said {
            hash: Some(PlanHash::default()),
            error: Some("no".to_owned()),
            refused: vec![
                refusal(ConsumerKind::Service, "all", Extent::All),
                refusal(ConsumerKind::Service, "one", listener([127, 0, 0, 1], 80)),
                refusal(ConsumerKind::Ingress, "part", Extent::Part),
            ],
            unlisted: Unlisted::default(),
            addresses: vec!["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()],
            kept_since: None,
            version: None,
            admin: None,
            node: None,
        };
        assert_eq!(told(&report), [report.clone(), report.clone()]);
        let kept = Said {
            kept_since: Some(7),
            version: Some("0.1.0+abc".into()),
            admin: Some(([192, 0, 2, 7], 9180).into()),
            node: Some("a".into()),
            ..report
        };
        assert_eq!(told(&kept)[0], kept);
    }

    #[test]
    fn failing_pools_that_have_no_room_are_counted() {
        let failing = |n: usize| {
            let problem = Problem::new(Reason::EndpointsDown, "no endpoint answers ".repeat(9));
            Refusal { problem, ..refusal(ConsumerKind::Service, &n.to_string(), Extent::Part) }
        };
        let said = Said { refused: (0..1000).map(failing).collect(), ..Said::default() };
        let [read, whole] = told(&said);
        assert_eq!(read.refused.len() + read.unlisted.failing, 1000);
        assert!(read.unlisted.failing > 0);
        // They put no consumer in doubt, for leaders of the previous version neither.
        assert_eq!((read.unlisted.count, whole.unlisted), (0, Unlisted::default()));
    }

    #[test]
    fn an_agent_of_before_is_read_by_the_whole_lease_beside_those_with_entries() {
        let said = Said { hash: Some(PlanHash::default()), ..Said::default() };
        let mut lease = lease(&said, "new_1");
        lease.spec.as_mut().unwrap().holder_identity = Some("old".to_owned());
        let all = entries(&lease);
        let told: Vec<_> = all.iter().map(|it| (&*it.agent, it.whole, it.left)).collect();
        assert_eq!(told, [("new_1", false, None), ("old", true, None)]);
        assert!(all.iter().all(|it| it.said == said));
        lease.spec.as_mut().unwrap().holder_identity = Some(String::new());
        assert_eq!(entries(&lease).len(), 1, "an agent with an entry let go of it");
        lease.metadata.annotations.as_mut().unwrap().retain(|key, _| !key.starts_with("agents."));
        let all = entries(&lease);
        assert_eq!(all.len(), 1);
        assert_eq!((all[0].whole, all[0].left, &all[0].said), (true, Some(Left::Unsaid), &said));
    }

    #[test]
    fn an_entry_that_cannot_be_read_proves_nothing_and_its_changes_are_renewals() {
        let [one, two] = ["{", "{}"].map(|text| entry("x", text));
        let unlisted = Unlisted { count: 1, ..Unlisted::default() };
        assert_eq!((&*one.agent, &one.said), ("x", &Said { unlisted, ..Said::default() }));
        assert_ne!(one.renewed, two.renewed);
    }

    #[test]
    fn an_agent_that_leaves_says_so_and_an_entry_is_removed_by_its_name() {
        for left in [Left::Unsaid, Left::ProxyRuns, Left::ProxyEnded] {
            let (said, now) = (Said::default(), Timestamp::UNIX_EPOCH);
            let patch = entry_patch(&said, "me_1", now, room(), Some(left));
            let all = entries(&serde_json::from_value(patch).unwrap());
            let told: Vec<_> = all.iter().map(|it| (&*it.agent, it.left)).collect();
            assert!(told.contains(&("me_1", Some(left))), "{all:?}");
        }
        let removal = removal(["me_1"]);
        assert_eq!(
            removal,
            json!({"metadata": {"annotations": {"agents.bowline.dev/me_1": null}}})
        );
    }

    #[test]
    fn what_cannot_be_read_counts_as_not_said() {
        let lease = json!({"metadata": {"annotations": {
            names::ANNOTATION_PLAN_HASH: "x",
            names::ANNOTATION_REFUSED: r#"[{"reason": "FromTheFuture"}]"#,
            names::ANNOTATION_ADDRESSES: "localhost",
        }}});
        let lease = serde_json::from_value(lease).unwrap();
        let unlisted = Unlisted { count: 1, ..Unlisted::default() };
        assert_eq!(read_whole(&lease), Said { unlisted, ..Said::default() });
    }

    #[test]
    fn a_reason_of_a_newer_agent_is_told_with_its_words() {
        let part = refusal(ConsumerKind::Service, "web", Extent::Part);
        let mut newer = serde_json::to_value(&part).unwrap();
        newer["reason"] = json!("FromTheFuture");
        let problem = Problem::new(Reason::Unknown, part.problem.message.clone());
        let expected = Refusal { problem, ..part };
        let none = Unlisted::default();
        assert_eq!(refusals(vec![newer], none.clone()), (vec![expected], none));
    }

    #[test]
    fn many_refusals_are_told_and_those_without_room_are_counted() {
        let name = |n: u16| format!("service-{n:05}");
        let service =
            |n: u16| refusal(ConsumerKind::Service, &name(n), listener([127, 0, 0, 1], n));
        let mut refused: Vec<_> = (0..100).map(service).collect();
        let all = Said { refused: refused.clone(), ..Said::default() };
        assert_eq!(told(&all), [all.clone(), all]);

        refused.extend((100..5000).map(service));
        // Two refusals of one consumer are listed together or not at all.
        refused.extend(
            (0..5000)
                .map(|n| refusal(ConsumerKind::Service, &name(n), listener([127, 0, 0, 2], n))),
        );
        refused.push(refusal(ConsumerKind::Ingress, "part", Extent::Part));
        refused.push(refusal(ConsumerKind::LoadBalancer, "edge", listener([127, 0, 0, 1], 443)));
        let all = Said { refused, ..Said::default() };
        for told in told(&all) {
            assert_eq!(told.refused[0].consumer.kind, ConsumerKind::LoadBalancer);
            let services =
                told.refused.iter().filter(|it| it.consumer.kind == ConsumerKind::Service);
            let services: Vec<_> = services.collect();
            assert_eq!(services.len() + told.unlisted.count, 10_000);
            let mut counts = BTreeMap::new();
            for refusal in services {
                *counts.entry(&refusal.consumer).or_insert(0) += 1;
            }
            assert!(counts.len() > 50 && counts.values().all(|count| *count == 2), "{counts:?}");
        }
        // However many agents report it, a server accepts it.
        for agents in [1, 4, 64] {
            let mut room = room();
            room.written(agents);
            let patch = patch(&all, "agent-7", Timestamp::UNIX_EPOCH, room);
            let annotations = patch["metadata"]["annotations"].as_object().unwrap();
            let of = |own: bool| -> usize {
                let is_own = |key: &str| key.starts_with(names::AGENT_ENTRY_PREFIX) == own;
                let counted = annotations.iter().filter(|(key, _)| is_own(key));
                counted.map(|(key, it)| key.len() + it.as_str().unwrap_or_default().len()).sum()
            };
            let bytes = of(false) + agents * of(true);
            assert!(bytes < 256 * 1024, "{agents}: {bytes}");
        }
    }

    #[test]
    fn a_consumer_with_more_refusals_than_there_is_room_for_hides_no_other() {
        let service =
            |name: &str, n| refusal(ConsumerKind::Service, name, listener([127, 0, 0, 1], n));
        let mut refused: Vec<_> = (0..2000).map(|n| service("a-greedy-one", n)).collect();
        refused.push(service("shop", 80));
        for told in told(&Said { refused: refused.clone(), ..Said::default() }) {
            assert_eq!((told.refused.as_slice(), told.unlisted.count), (&refused[2000..], 2000));
        }
    }

    /// The report for one namespace with very many refusals and one with few.
    fn greedy() -> Said {
        let service = |n: u16| {
            let name = format!("service-{n:05}");
            let mut all = refusal(ConsumerKind::Service, &name, listener([127, 0, 0, 1], n));
            all.consumer.namespace = "greedy".into();
            all
        };
        Said { refused: (0..5000).map(service).collect(), ..Said::default() }
    }

    #[test]
    fn the_namespaces_of_what_is_not_listed_are_read_by_leaders_that_know_of_them() {
        let [new, whole] = told(&greedy());
        assert!(new.unlisted.count > 4000);
        assert_eq!(new.unlisted.namespaces, Some(["greedy".into()].into()));
        // The fields of the whole Lease are as before: any namespace may be concerned.
        assert!(whole.unlisted.count > 4000 && whole.unlisted.namespaces.is_none());
    }

    #[test]
    fn a_leader_of_the_version_before_reads_a_new_report_and_a_new_one_an_old_report() {
        /// The entry as the previous version reads and writes it.
        #[derive(Serialize, Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Before {
            agent: String,
            renewed: String,
            lasts_seconds: u32,
            #[serde(default)]
            left: bool,
            refused: Vec<Value>,
            unlisted: usize,
        }
        let left = Some(Left::ProxyRuns);
        let patch = entry_patch(&greedy(), "me_1", Timestamp::UNIX_EPOCH, room(), left);
        let text = patch["metadata"]["annotations"]["agents.bowline.dev/me_1"].as_str().unwrap();
        let mut old: Before = serde_json::from_str(text).unwrap();
        assert!(old.left && old.refused.len() + old.unlisted == 5000);
        old.refused.truncate(1);
        let read = entry("me_1", &serde_json::to_string(&old).unwrap());
        assert_eq!(read.left, Some(Left::Unsaid));
        assert_eq!(read.said.unlisted, Unlisted { count: old.unlisted, ..Unlisted::default() });
    }

    #[test]
    fn a_refusal_that_cannot_be_read_puts_its_own_namespace_in_doubt_alone() {
        let newer = json!({"kind": "Gateway", "namespace": "new", "reason": "BindFailed"});
        let (read, unlisted) = refusals(vec![newer], Unlisted::default());
        assert_eq!((read, unlisted.namespaces), (vec![], Some(["new".into()].into())));
    }

    #[test]
    fn no_more_addresses_are_believed_than_a_status_can_show() {
        let addresses = (0..20).map(|n| IpAddr::from([192, 0, 2, n])).collect();
        let report = Said { addresses, ..Said::default() };
        assert!(told(&report).iter().all(|it| it.addresses.len() == 16));
    }
}
