//! Tests what `explain` says of agents that it asks.

use super::*;
use crate::view::now::{Answer, Asked};
use bowline_core::hash::PlanHash;
use bowline_runtime::agents_page::{AgentNow, Reporting};

/// The settled cluster, where the agent says where it can be asked.
fn with_admin() -> Lists {
    let mut lists = settled();
    let lease = lists.leases.last_mut().expect("the Lease of the agent");
    let hash = lists.plans[0].spec.hash.to_string();
    let entry = json!({
        "agent": "two", "renewed": "2030-01-01T00:00:05.000000Z", "lastsSeconds": 15,
        "hash": hash, "admin": "127.0.0.1:9180",
    });
    let annotations = lease.metadata.annotations.get_or_insert_default();
    annotations.insert(names::agent_entry("two"), entry.to_string());
    lists
}

/// The line on the agent, when it answers so.
fn told(answer: Answer) -> String {
    let facts = facts(with_admin());
    let key = ObjectKey::new("demo", "hello");
    let mut explanation = Explanation::of(&facts, Subject::Service, &key).expect("there is one");
    let asked = explanation.asked();
    assert_eq!(asked, [Asked { agent: "two".into(), at: ([127, 0, 0, 1], 9180).into() }]);
    explanation.hear(&[(asked[0].clone(), answer)]);
    let text = joined(&explanation.text());
    let (_, rest) = text.split_once("Agent now ").expect("a line");
    rest.split(" Listens at").next().unwrap_or_default().to_owned()
}

fn now(plan: Option<PlanHash>, reporting: Reporting) -> Answer {
    Answer::Now(AgentNow {
        agent: "two".into(),
        load_balancer: "local".into(),
        plan: plan.map(|it| it.to_string()),
        failed: false,
        refused: 0,
        reporting,
        reported_seconds_ago: Some(40),
    })
}

#[test]
fn an_agent_that_answers_says_what_is_in_force_now() {
    let recorded = settled().plans[0].spec.hash;
    let says = "two answers at 127.0.0.1:9180: the recorded plan is in force";
    assert_eq!(told(now(Some(recorded), Reporting::Written)), says);
    let says = "two answers at 127.0.0.1:9180: another plan than the recorded one is in force; it has no right to \
                write its report, the last one was written 40 s ago";
    assert_eq!(told(now(Some(PlanHash::default()), Reporting::Forbidden)), says);
}

#[test]
fn an_agent_that_cannot_be_reached_is_known_from_its_report() {
    let says = "two is not reachable from here at 127.0.0.1:9180 (no answer within 1 s); what is said of it is from \
                its report of 5 s ago";
    assert_eq!(told(Answer::None("no answer within 1 s".into())), says);
}
