//! Tests what `bowline top` prints of a cluster with traffic.

use super::*;
use crate::view::top::changes::{Changed, changes};
use crate::view::top::page::Page;
use crate::view::top::traffic::Traffic;
use crate::view::top::{Frame, announced};
use std::time::Duration;

/// A page of the agent of `local` with so many answers of the pool of the Ingress, and as many connections.
fn page(answers: u32, ejected: u32) -> String {
    let pool = "pool=\"ingress/demo/hello/hello/http\"";
    format!(
        "bowline_agent_info{{load_balancer=\"local\",agent=\"two\"}} 1\n\
         bowline_proxy_responses_total{{load_balancer=\"local\",{pool},class=\"2xx\"}} {answers}\n\
         bowline_proxy_pool_members{{load_balancer=\"local\",{pool},state=\"ready\"}} 1\n\
         bowline_proxy_pool_members{{load_balancer=\"local\",{pool},state=\"ejected\"}} {ejected}\n\
         bowline_proxy_listener_accepted_total{{load_balancer=\"local\",address=\"127.0.0.1:8080\",protocol=\"tcp\"}} {answers}\n\
         bowline_proxy_listener_active{{load_balancer=\"local\",address=\"127.0.0.1:8080\",protocol=\"tcp\"}} 3\n"
    )
}

/// The cluster with an agent that announces its metrics.
fn with_agent() -> Lists {
    let mut lists = settled();
    let lease = &mut lists.leases[1];
    let hash =
        lease.metadata.annotations.as_ref().and_then(|all| all.get(names::ANNOTATION_PLAN_HASH));
    let entry = json!({
        "agent": "two", "renewed": "2030-01-01T00:00:05.000000Z", "lastsSeconds": 15, "hash": hash,
        "admin": "127.0.0.1:9180",
    });
    annotate(lease, &names::agent_entry("two"), &entry.to_string());
    lists
}

/// What was read twice, two seconds apart.
fn traffic(facts: &Facts) -> Traffic {
    let mut traffic = Traffic::default();
    let agents = announced(facts);
    for (at, answers) in [(1, 100), (3, 142)] {
        let address = agents[0].admin.expect("an address");
        let pages = [(address, Page::read(&page(answers, 1)))].into();
        traffic.take(&agents, &pages, Duration::from_secs(at));
    }
    traffic
}

fn events() -> Vec<Changed> {
    let event = |namespace: &str, second: u8, warning: bool, count: u8| {
        object(json!({
            "metadata": {"namespace": namespace, "name": format!("e{second}")},
            "involvedObject": {"kind": "Service", "namespace": namespace, "name": "hello"},
            "type": if warning { "Warning" } else { "Normal" },
            "reason": if warning { "BindFailed" } else { "Live" },
            "message": format!("message {second}"),
            "count": count,
            "lastTimestamp": format!("2030-01-01T00:00:0{second}Z"),
        }))
    };
    changes(&[event("demo", 1, false, 1), event("demo", 3, true, 4), event("other", 2, false, 1)])
}

fn frame(facts: &Facts, namespace: Option<&str>) -> Frame {
    Frame::of(facts, &traffic(facts), events(), namespace, now())
}

#[test]
fn a_frame_shows_traffic_members_by_health_and_the_last_changes() {
    let facts = facts(with_agent());
    assert_eq!(
        frame(&facts, None).text(),
        "\
2030-01-01T00:00:10Z

Load balancers
  NAME   PHASE  DRIVER   ADDRESS    SVC  ING  AGENTS  REQ/S  CONN/S
  local  -      builtin  127.0.0.1  1    1    1/1     21     21

Listeners
  LISTENS AT            ON     TO                    STATE  CONN/S  OPEN
  127.0.0.1:8000/TCP    local  demo/hello port http  open   –       –
  127.0.0.1:8080/HTTP   local  Ingresses             open   21      3
  127.0.0.1:8443/HTTPS  local  Ingresses             open   –       –

Pools
  POOL                  OF             ON     REQ/S  5XX/S  MEMBERS
  demo/hello port http  Ingress hello  local  21     0      1 ready, 1 ejected
  demo/hello port http  Service hello  local  –      –      1 ready, 1 draining

Changes
  TIME      OBJECT               REASON      MESSAGE
  00:00:03  Service demo/hello   BindFailed  message 3 (×4)
  00:00:02  Service other/hello  Live        message 2
  00:00:01  Service demo/hello   Live        message 1
"
    );
}

#[test]
fn a_namespace_sees_what_concerns_it() {
    let facts = facts(with_agent());
    let text = frame(&facts, Some("other")).text();
    assert!(text.contains("message 2") && !text.contains("message 1"), "{text}");
    assert!(!text.contains("local"), "{text}");
    let text = frame(&facts, Some("demo")).text();
    assert!(
        text.contains("127.0.0.1:8080/HTTP") && text.contains("demo/hello port http"),
        "{text}"
    );
}

#[test]
fn where_no_agent_can_be_asked_there_are_dashes_and_the_members_of_the_slices() {
    let facts = facts(settled());
    let frame = Frame::of(&facts, &Traffic::default(), Vec::new(), None, now());
    let text = frame.text();
    assert!(text.contains("–      –      1 ready, 1 draining"), "{text}");
    let json: Value = serde_json::from_str(&frame.json().expect("JSON")).expect("JSON");
    assert_eq!(json["loadBalancers"][0].get("requests"), None);
    let agents = announced(&facts);
    assert_eq!((agents.len(), agents[0].admin), (1, None));
}
