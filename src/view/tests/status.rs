//! Tests what `status` shows to people about load balancers and their agents.

use super::*;
use std::collections::BTreeSet;

#[test]
fn the_status_has_a_line_for_each_load_balancer_and_then_who_was_refused() {
    assert_eq!(
        Status::of(&facts(settled())).text(),
        "\
Controller: one leads, last seen 2 s ago

NAME   SOURCE   PHASE  ADDRESS    SVC  ING  REFUSED  PLAN
local  builtin  -      127.0.0.1  1    1    1        applied

Refused:
  - Ingress demo/hello on local: BackendNotFound: Service \"gone\" does not exist
"
    );
    assert_eq!(
        Status::of(&facts(Lists::default())).text(),
        "Controller: none leads: none runs, or they run with --leader-elect=false\n\nNo load balancers.\n\n\
         Note: The settings of the controllers are not known. Assumed:\n      \
         --default-class=false and no --default-load-balancer. Give these flags, or\n      \
         name Bowline's own namespace with --system-namespace.\n"
    );
}

/// What `status` shows about the plan of `local` after a change of its agent's Lease and its own
/// status.
fn applied(change: impl FnOnce(&mut Lease, &mut LoadBalancer)) -> (Applied, String) {
    let mut lists = settled();
    change(&mut lists.leases[1], &mut lists.load_balancers[0]);
    let status = Status::of(&facts(lists));
    (status.load_balancers[0].applied.state, status.text())
}

#[test]
fn an_agent_that_failed_has_not_applied_the_plan_whose_hash_it_reports() {
    let (state, text) =
        applied(|lease, _| annotate(lease, names::ANNOTATION_ERROR, "no room for members"));
    assert_eq!(state, Applied::Failed, "{text}");
    assert!(text.contains("\nlocal: no room for members\n"), "{text}");
}

#[test]
fn refusals_that_are_not_named_or_not_understood_are_counted() {
    let known = json!({"kind": "Service", "namespace": "demo", "name": "hello", "uid": "hello",
        "reason": "BindFailed", "message": "taken"});
    let refused = json!([known, {"reason": "FromTheFuture"}]).to_string();
    let (_, text) = applied(|lease, _| {
        annotate(lease, names::ANNOTATION_REFUSED, &refused);
        annotate(lease, names::ANNOTATION_REFUSED_UNLISTED, "7");
    });
    assert!(text.contains("  - Service demo/hello on local: BindFailed: taken\n"), "{text}");
    assert!(text.contains("  - 8 more on local, which its agent has no room to name\n"), "{text}");
}

#[test]
fn silence_is_for_the_leader_to_judge_and_not_for_this_machines_clock() {
    let long_ago = |lease: &mut Lease| {
        let time = "2029-12-31T00:00:00Z".parse().expect("a time");
        lease.spec.as_mut().expect("a spec").renew_time = Some(MicroTime(time));
    };
    assert_eq!(applied(|lease, _| long_ago(lease)).0, Applied::Yes);
    let condition = |reason: &str| {
        json!({"type": "Programmed", "status": "False", "reason": reason, "message": "",
            "lastTransitionTime": "2030-01-01T00:00:00Z"})
    };
    let says = |lb: &mut LoadBalancer, reason: &str| {
        lb.status = Some(object(json!({"conditions": [condition(reason)]})));
    };
    assert_eq!(applied(|_, lb| says(lb, "AgentSilent")).0, Applied::Silent);
    assert_eq!(applied(|_, lb| says(lb, "AgentBehind")).0, Applied::Yes);
    let left = applied(|lease, _| lease.spec.as_mut().expect("a spec").holder_identity = None);
    assert_eq!(left.0, Applied::NoAgent);
}

#[test]
fn a_source_that_this_build_cannot_drive_is_not_told_to_start_an_agent() {
    let (state, _) = applied(|_, lb| {
        lb.spec.source = object(json!({"awsLoadBalancer": {"lbName": "a"}}));
    });
    assert_eq!(state, Applied::NoDriver);
}

#[test]
fn settings_that_nobody_says_are_noted_as_guessed_unless_they_are_given() {
    let notes = |lists: &Lists, class, name| Facts::new(lists.clone(), class, name, now()).notes;
    let said = settled();
    assert_eq!(notes(&said, None, None), [""; 0]);
    let mut unsaid = said;
    unsaid.leases[0].metadata.annotations = None;
    let guessed = |what: &str| {
        let head = "The settings of the controllers are not known. Assumed:";
        let tail = "Give these flags, or name Bowline's own namespace with --system-namespace.";
        vec![format!("{head} {what}. {tail}")]
    };
    let both = guessed("--default-class=false and no --default-load-balancer");
    assert_eq!(notes(&unsaid, None, None), both);
    assert_eq!(notes(&unsaid, Some(true), None), guessed("no --default-load-balancer"));
    assert_eq!(notes(&unsaid, Some(true), Some("local")), [""; 0]);
}

#[test]
fn a_load_balancer_that_is_reached_by_a_host_name_shows_the_name() {
    let mut lists = lists();
    lists.load_balancers[0] = object(json!({
        "apiVersion": "bowline.dev/v1alpha1", "kind": "LoadBalancer",
        "metadata": {"name": "local", "uid": "l", "annotations": {
            names::ANNOTATION_PROVISIONED_FOR: "demo/web/c", names::ANNOTATION_PROXY_NAMESPACE: "ours",
        }},
        "spec": {"builtin": {}, "allowedNamespaces": {"from": "All"}, "httpPort": 8080, "httpsPort": 8443},
        "status": {"ingress": [{"hostname": "a.cloud.example"}]},
    }));
    let facts = facts(lists);
    let status = Status::of(&facts).text();
    assert!(status.contains(" a.cloud.example "), "{status}");
    let key = |name: &str| ObjectKey::new("demo", name);
    let service = Explanation::of(&facts, Subject::Service, &key("hello")).expect("it is there");
    let balancer = Explanation::of(&facts, Subject::LoadBalancer, &ObjectKey::new("", "local"));
    let balancer = balancer.expect("it is there");
    let json = serde_json::to_value(&service).expect("it has a form");
    assert_eq!(json["addresses"], json!(["a.cloud.example"]), "{json}");
    let ingress = Explanation::of(&facts, Subject::Ingress, &key("hello")).expect("it is there");
    for (text, at) in [
        (service.text(), "a.cloud.example:8000/TCP → demo/hello"),
        (ingress.text(), "a.cloud.example:8080/HTTP"),
        (balancer.text(), "Addresses    a.cloud.example\n"),
        (balancer.text(), "a.cloud.example:8000/TCP"),
    ] {
        assert!(text.contains(at), "{at}: {text}");
        assert!(!text.contains("0.0.0.0"), "{text}");
    }
    assert!(!status.contains("0.0.0.0"), "{status}");
}

#[test]
fn every_agent_is_shown_and_one_that_is_behind_is_named() {
    let entry = |agent: &str, hash: &str, time: &str| {
        json!({"agent": agent, "renewed": time, "lastsSeconds": 15, "hash": hash}).to_string()
    };
    let both = |lease: &mut Lease, second: &str, time: &str| {
        let hash =
            lease.metadata.annotations.as_ref().expect("some")[names::ANNOTATION_PLAN_HASH].clone();
        let now = "2030-01-01T00:00:09Z";
        annotate(lease, &names::agent_entry("one"), &entry("one", &hash, now));
        let second = if second.is_empty() { hash } else { second.repeat(64) };
        annotate(lease, &names::agent_entry("two"), &entry("two", &second, time));
        lease.spec.as_mut().expect("a spec").holder_identity = Some("one".to_owned());
    };
    let recent = "2030-01-01T00:00:08Z";
    assert_eq!(applied(|lease, _| both(lease, "", recent)).0, Applied::Yes);
    assert_eq!(applied(|lease, _| both(lease, "f", recent)).0, Applied::Older);
    // An overdue agent beside one that renews in time is dead, or will show that it is not.
    assert_eq!(applied(|lease, _| both(lease, "f", "2029-12-31T00:00:00Z")).0, Applied::Yes);

    let mut lists = settled();
    both(&mut lists.leases[1], "f", recent);
    let facts = facts(lists);
    let view = super::super::status::LoadBalancerView::of(&facts, "local").expect("it is there");
    let text = super::super::status_text::applied("local", &view.applied);
    assert!(
        text.starts_with("not yet: an older plan is in force at 2 agents: one (applied,"),
        "{text}"
    );
    assert!(text.contains("two (an older plan,"), "{text}");
}

#[test]
fn the_versions_of_the_leader_and_of_the_agents_are_counted() {
    let mut lists = settled();
    annotate(&mut lists.leases[0], names::ANNOTATION_VERSION, "0.1.0+abc");
    let entry = |agent: &str, version: &str| {
        json!({"agent": agent, "renewed": "2030-01-01T00:00:09Z", "lastsSeconds": 15, "version": version})
            .to_string()
    };
    for (agent, version) in [("a", "0.1.0+abc"), ("b", "0.1.0+abc"), ("c", "0.0.9")] {
        annotate(&mut lists.leases[1], &names::agent_entry(agent), &entry(agent, version));
    }
    lists.leases[1].spec.as_mut().expect("a spec").holder_identity = Some("a".to_owned());
    let status = Status::of(&facts(lists));
    let line = "\nVersions: controller 0.1.0+abc, 1 agent of 0.0.9, 2 agents of 0.1.0+abc\n";
    assert!(status.text().contains(line), "{}", status.text());
    let json = serde_json::to_value(&status).expect("it has a form");
    assert_eq!(json["controller"]["version"], "0.1.0+abc");
    let agents = json["loadBalancers"][0]["applied"]["agents"].as_array().expect("agents");
    let versions: BTreeSet<_> = agents.iter().filter_map(|it| it["version"].as_str()).collect();
    assert_eq!(versions, BTreeSet::from(["0.0.9", "0.1.0+abc"]));
}

#[test]
fn a_namespace_sees_its_own_consumers_and_the_load_balancers_that_concern_it() {
    let status = |namespace| Status::of(&facts(settled())).in_namespace(namespace);
    let own = status("demo");
    assert!(
        own.text().contains("\nlocal  builtin  -      127.0.0.1  1    1    1 "),
        "{}",
        own.text()
    );
    assert!(own.text().contains("Ingress demo/hello on local: BackendNotFound"), "{}", own.text());
    let other = status("other");
    assert_eq!(
        other.text(),
        "Controller: one leads, last seen 2 s ago\n\n\
         No load balancer serves namespace \"other\".\n"
    );
    let mut claimed = settled();
    let claim = json!({"namespace": "other", "name": "web"});
    claimed.load_balancers[0].spec.claim_ref = Some(object(claim));
    let other = Status::of(&facts(claimed)).in_namespace("other");
    assert!(other.text().contains("\nlocal "), "{}", other.text());
}
