//! What agents say is read back, by leaders of this version and of the one before.

use super::refusals::refusals;
use super::*;
use bowline_core::hash::PlanHash;
use bowline_core::key::{ConsumerKind, ConsumerRef};
use bowline_core::outcome::{Problem, Reason};
use bowline_core::plan::Transport;
use bowline_core::report::Unlisted;
use bowline_core::update::{Extent, ListenerKey, Refusal};
use serde::{Deserialize, Serialize};
use serde_json::json;
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
    [all.remove(0).said, whole::read(&lease)]
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
    let [one, two] = ["{", "{}"].map(|text| entry::read("x", text));
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
    assert_eq!(removal, json!({"metadata": {"annotations": {"agents.bowline.dev/me_1": null}}}));
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
    assert_eq!(whole::read(&lease), Said { unlisted, ..Said::default() });
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
    let service = |n: u16| refusal(ConsumerKind::Service, &name(n), listener([127, 0, 0, 1], n));
    let mut refused: Vec<_> = (0..100).map(service).collect();
    let all = Said { refused: refused.clone(), ..Said::default() };
    assert_eq!(told(&all), [all.clone(), all]);

    refused.extend((100..5000).map(service));
    // Two refusals of one consumer are listed together or not at all.
    refused.extend(
        (0..5000).map(|n| refusal(ConsumerKind::Service, &name(n), listener([127, 0, 0, 2], n))),
    );
    refused.push(refusal(ConsumerKind::Ingress, "part", Extent::Part));
    refused.push(refusal(ConsumerKind::LoadBalancer, "edge", listener([127, 0, 0, 1], 443)));
    let all = Said { refused, ..Said::default() };
    for told in told(&all) {
        assert_eq!(told.refused[0].consumer.kind, ConsumerKind::LoadBalancer);
        let services = told.refused.iter().filter(|it| it.consumer.kind == ConsumerKind::Service);
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
    let service = |name: &str, n| refusal(ConsumerKind::Service, name, listener([127, 0, 0, 1], n));
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
    let read = entry::read("me_1", &serde_json::to_string(&old).unwrap());
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
