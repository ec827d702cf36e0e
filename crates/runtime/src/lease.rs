//! What agents say about themselves in the Lease of their load balancer: the plan each has applied, what it
//! could not do, where it can be reached. Agents write it, the leader and `bowline status` read it; all use
//! this one spelling.
//!
//! Every agent has an annotation of its own, `agents.bowline.dev/NAME`, which it writes by a merge patch of
//! that key: agents never conflict, and a Role can name the one Lease that they need. The fields of the whole
//! Lease are written as well, by whichever agent writes last, for leaders of a version that reads only those.

use bowline_api::names;
use bowline_core::hash::PlanHash;
use bowline_core::key::ConsumerKind;
use bowline_core::outcome::Reason;
use bowline_core::replicas::{Entry, Said};
use bowline_core::status::MOST_ADDRESSES;
use bowline_core::update::{Extent, Refusal};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// An agent that has been silent for longer counts as gone.
pub(crate) const DURATION_SECONDS: u32 = 15;
/// All annotations of an object together may have 256 KiB. Of these the refusals in the fields of the whole
/// Lease take no more bytes than this,
const MOST_BYTES: usize = 48 * 1024;
/// and those in the entries of all agents no more than this.
const MOST_BYTES_OF_ALL: usize = 160 * 1024;
/// For so many agents there is room from the beginning.
const FEW: usize = 4;
/// An error is cut to so many characters.
const LONGEST_ERROR: usize = 1024;

/// How many bytes the refusals in the entry of an agent may take, where so many agents have entries.
pub(crate) fn room(agents: usize) -> usize {
    MOST_BYTES_OF_ALL / agents.max(FEW)
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hash: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    refused: Vec<Value>,
    #[serde(default)]
    unlisted: usize,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    addresses: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kept_since: Option<i64>,
}

/// The merge patch that puts what an agent says into the Lease. Fields that say nothing are taken away. Its
/// refusals have this much room in its entry.
pub(crate) fn patch(said: &Said, agent: &str, now: Timestamp, room: usize) -> Value {
    let (refused, unlisted) = list(&said.refused, MOST_BYTES);
    let refused = (!refused.is_empty()).then(|| format!("[{}]", refused.join(",")));
    let addresses = (!said.addresses.is_empty()).then(|| texts(&said.addresses).join(","));
    let mut patch = entry_patch(said, agent, now, room, false);
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

/// The part of that which is of this agent alone.
pub(crate) fn entry_patch(
    said: &Said,
    agent: &str,
    now: Timestamp,
    room: usize,
    left: bool,
) -> Value {
    let (refused, unlisted) = list(&said.refused, room);
    let text = Text {
        agent: agent.to_owned(),
        renewed: format!("{now:.6}"),
        lasts_seconds: DURATION_SECONDS,
        left,
        hash: said.hash.map(|hash| hash.to_string()),
        error: said.error.as_deref().map(cut),
        refused: refused.iter().filter_map(|it| serde_json::from_str(it).ok()).collect(),
        unlisted,
        addresses: texts(&said.addresses),
        kept_since: said.kept_since,
    };
    let text = serde_json::to_string(&text).unwrap_or_default();
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"annotations": {names::agent_entry(agent): text}},
    })
}

/// The merge patch that takes entries out of a Lease.
pub(crate) fn removal<'a>(agents: impl IntoIterator<Item = &'a str>) -> Value {
    let keys = agents.into_iter().map(|agent| (names::agent_entry(agent), Value::Null));
    json!({"metadata": {"annotations": keys.collect::<serde_json::Map<_, _>>()}})
}

/// How many agents have entries in a Lease.
pub(crate) fn count(lease: &Lease) -> usize {
    let all = lease.metadata.annotations.iter().flatten();
    all.filter(|(key, _)| key.starts_with(names::AGENT_ENTRY_PREFIX)).count()
}

/// What a Lease says of each agent. An agent from before entries is known by the fields of the whole Lease:
/// where it is the holder, or where nobody else ever was.
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
            left: holder.is_none(),
            agent: holder.unwrap_or_default().into(),
            renewed: renewed.into(),
            lasts: Duration::from_secs(seconds.unwrap_or(DURATION_SECONDS.into())),
            whole: true,
            said: read_whole(lease),
        });
    }
    entries
}

/// Reads an entry. One that cannot be read is of an agent that proves nothing.
fn entry(name: &str, text: &str) -> Entry {
    let Ok(text) = serde_json::from_str::<Text>(text) else {
        return Entry {
            agent: name.into(),
            renewed: text.into(),
            lasts: Duration::from_secs(DURATION_SECONDS.into()),
            left: false,
            whole: false,
            said: Said { unlisted: 1, ..Said::default() },
        };
    };
    let (refused, unread) = refusals(text.refused);
    Entry {
        agent: text.agent.into(),
        renewed: text.renewed.into(),
        lasts: Duration::from_secs(text.lasts_seconds.into()),
        left: text.left,
        whole: false,
        said: Said {
            hash: text.hash.and_then(|hash| hash.parse().ok()),
            error: text.error,
            refused,
            unlisted: text.unlisted.saturating_add(unread),
            addresses: addresses(text.addresses.iter().map(String::as_str)),
            kept_since: text.kept_since,
        },
    }
}

/// What the fields of the whole Lease say. What cannot be read counts as not said, and a refusal that cannot
/// be read as one that is not listed: the agent proves less, never more.
fn read_whole(lease: &Lease) -> Said {
    let annotation = |key: &str| {
        lease.metadata.annotations.as_ref().and_then(|all| all.get(key)).map(String::as_str)
    };
    let all = annotation(names::ANNOTATION_REFUSED)
        .map_or(Ok(Vec::new()), serde_json::from_str::<Vec<Value>>)
        .unwrap_or_else(|_| vec![Value::Null]);
    let (refused, unread) = refusals(all);
    let unlisted = annotation(names::ANNOTATION_REFUSED_UNLISTED)
        .map_or(0, |text| text.parse::<usize>().unwrap_or(1));
    Said {
        hash: annotation(names::ANNOTATION_PLAN_HASH)
            .and_then(|text| text.parse::<PlanHash>().ok()),
        error: annotation(names::ANNOTATION_ERROR).map(ToOwned::to_owned),
        unlisted: unlisted.saturating_add(unread),
        refused,
        addresses: addresses(
            annotation(names::ANNOTATION_ADDRESSES).unwrap_or_default().split(','),
        ),
        kept_since: None,
    }
}

/// A refusal as an agent of this or a newer version says it.
fn refusal(mut one: Value) -> Option<Refusal> {
    let reason = one.get("reason").filter(|it| it.is_string());
    if reason.is_some_and(|it| Reason::deserialize(it).is_err()) {
        one["reason"] = json!(Reason::Unknown);
    }
    serde_json::from_value(one).ok()
}

/// The refusals that can be read, and how many cannot.
fn refusals(all: Vec<Value>) -> (Vec<Refusal>, usize) {
    let told = all.len();
    let read: Vec<_> = all.into_iter().filter_map(refusal).collect();
    let unread = told - read.len();
    (read, unread)
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

/// The refusals as JSON, as many as there is room for, and how many more keep something from being
/// served. What concerns all comes first and mere parts last, of each those of consumers with few: one that has more than there
/// is room for hides no other's. A consumer is listed with all of its refusals or not at all.
fn list(refused: &[Refusal], room: usize) -> (Vec<String>, usize) {
    let mut groups: BTreeMap<_, Vec<String>> = BTreeMap::new();
    for refusal in refused {
        // What is served for another consumer the leader has to know before all else; it takes nothing
        // from the one that is served.
        let contested = refusal.unserved().is_some();
        let part = contested || matches!(refusal.extent, Extent::Part | Extent::Host(_));
        let shared = refusal.consumer.kind == ConsumerKind::LoadBalancer;
        let Ok(text) = serde_json::to_string(refusal) else { continue };
        groups.entry((!contested, part, !shared, &refusal.consumer)).or_default().push(text);
    }
    let size = |texts: &[String]| texts.iter().map(|text| text.len() + 1).sum::<usize>();
    let sized = groups.into_iter().map(|(key, texts)| (key, size(&texts), texts));
    let mut groups: Vec<_> = sized.collect();
    groups.sort_by_key(|((settled, part, own, _), size, _)| (*settled, *part, *own, *size));
    let (mut listed, mut bytes, mut unlisted) = (Vec::new(), 2, 0);
    for ((_, part, ..), size, texts) in groups {
        if bytes + size <= room {
            bytes += size;
            listed.extend(texts);
        } else if !part {
            unlisted += texts.len();
        }
    }
    (listed, unlisted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_core::key::ConsumerRef;
    use bowline_core::outcome::Problem;
    use bowline_core::plan::Transport;
    use bowline_core::update::ListenerKey;

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
        let mut patch = patch(said, agent, Timestamp::UNIX_EPOCH, room(1));
        let annotations = patch["metadata"]["annotations"].as_object_mut().unwrap();
        annotations.retain(|_, value| !value.is_null());
        serde_json::from_value(patch).unwrap()
    }

    /// What is read of the only entry, and of the fields of the whole Lease.
    fn told(said: &Said) -> [Said; 2] {
        let lease = lease(said, "me_1");
        let mut all = entries(&lease);
        assert_eq!(all.len(), 1);
        assert_eq!((&*all[0].agent, all[0].left, all[0].whole), ("me_1", false, false));
        [all.remove(0).said, read_whole(&lease)]
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
            unlisted: 0,
            addresses: vec!["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()],
            kept_since: None,
        };
        assert_eq!(told(&report), [report.clone(), report.clone()]);
        let kept = Said { kept_since: Some(7), ..report };
        assert_eq!(told(&kept)[0], kept);
    }

    #[test]
    fn an_agent_of_before_is_read_by_the_whole_lease_beside_those_with_entries() {
        let said = Said { hash: Some(PlanHash::default()), ..Said::default() };
        let mut lease = lease(&said, "new_1");
        lease.spec.as_mut().unwrap().holder_identity = Some("old".to_owned());
        let all = entries(&lease);
        let told: Vec<_> = all.iter().map(|it| (&*it.agent, it.whole, it.left)).collect();
        assert_eq!(told, [("new_1", false, false), ("old", true, false)]);
        assert!(all.iter().all(|it| it.said == said));
        lease.spec.as_mut().unwrap().holder_identity = Some(String::new());
        assert_eq!(entries(&lease).len(), 1, "an agent with an entry let go of it");
        lease.metadata.annotations.as_mut().unwrap().retain(|key, _| !key.starts_with("agents."));
        let all = entries(&lease);
        assert_eq!(all.len(), 1);
        assert_eq!((all[0].whole, all[0].left, &all[0].said), (true, true, &said));
    }

    #[test]
    fn an_entry_that_cannot_be_read_proves_nothing_and_its_changes_are_renewals() {
        let [one, two] = ["{", "{}"].map(|text| entry("x", text));
        assert_eq!((&*one.agent, &one.said), ("x", &Said { unlisted: 1, ..Said::default() }));
        assert_ne!(one.renewed, two.renewed);
    }

    #[test]
    fn an_agent_that_leaves_says_so_and_an_entry_is_removed_by_its_name() {
        let patch = entry_patch(&Said::default(), "me_1", Timestamp::UNIX_EPOCH, 0, true);
        let all = entries(&serde_json::from_value(patch).unwrap());
        assert!(all.iter().any(|entry| entry.left && &*entry.agent == "me_1"), "{all:?}");
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
        assert_eq!(read_whole(&lease), Said { unlisted: 1, ..Said::default() });
    }

    #[test]
    fn a_reason_of_a_newer_agent_is_told_with_its_words() {
        let part = refusal(ConsumerKind::Service, "web", Extent::Part);
        let mut newer = serde_json::to_value(&part).unwrap();
        newer["reason"] = json!("FromTheFuture");
        let problem = Problem::new(Reason::Unknown, part.problem.message.clone());
        let expected = Refusal { problem, ..part };
        assert_eq!(refusals(vec![newer]), (vec![expected], 0));
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
        // Two of one consumer are listed together or not at all.
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
            assert_eq!(services.len() + told.unlisted, 10_000);
            let mut counts = BTreeMap::new();
            for refusal in services {
                *counts.entry(&refusal.consumer).or_insert(0) += 1;
            }
            assert!(counts.len() > 50 && counts.values().all(|count| *count == 2), "{counts:?}");
        }
        // However many agents say it, a server takes it.
        for agents in [1, 4, 64] {
            let patch = patch(&all, "agent-7", Timestamp::UNIX_EPOCH, room(agents));
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
            assert_eq!((told.refused.as_slice(), told.unlisted), (&refused[2000..], 2000));
        }
    }

    #[test]
    fn no_more_addresses_are_believed_than_a_status_can_show() {
        let addresses = (0..20).map(|n| IpAddr::from([192, 0, 2, n])).collect();
        let report = Said { addresses, ..Said::default() };
        assert!(told(&report).iter().all(|it| it.addresses.len() == 16));
    }
}
