//! The views as a user reads them, whole.

use super::explain::{Explanation, Subject};
use super::plan::Difference;
use super::status::{Applied, Status};
use super::testing::{facts, lists, now, object, service, settled};
use super::{Facts, Lists, View};
use bowline_api::{LoadBalancer, LoadBalancerStatus, Plan, PlanSpec, names};
use bowline_core::hash::PlanHash;
use bowline_core::key::{ConsumerKind, ObjectKey};
use bowline_core::plan::CertificateRef;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use serde_json::{Value, json};

fn explained(lists: Lists, subject: Subject, namespace: &str, name: &str) -> String {
    let key = ObjectKey::new(namespace, name);
    Explanation::of(&facts(lists), subject, &key).expect("it exists").text()
}

/// A text without its layout.
fn joined(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_service_is_explained_from_its_load_balancer_to_its_members() {
    assert_eq!(
        explained(settled(), Subject::Service, "demo", "hello"),
        "\
Service demo/hello is on load balancer local

  Why          it names none; the default is local
  Recorded     yes
  Applied      yes, by agent two, heard of 5 s ago by this machine's clock
  Listens at   127.0.0.1:8000/TCP → demo/hello port http

  Pool demo/hello port http: 2 members, round-robin
    192.0.2.1:18081  Ready     pod-a
    192.0.2.2:18082  Draining  pod-b

  Problems     none
"
    );
}

#[test]
fn an_ingress_is_explained_with_its_hosts_and_what_is_wrong_with_them() {
    assert_eq!(
        explained(settled(), Subject::Ingress, "demo", "hello"),
        "\
Ingress demo/hello is on load balancer local

  Why          it names none; the default is local
  Recorded     yes
  Applied      yes, by agent two, heard of 5 s ago by this machine's clock
  Listens at   127.0.0.1:8080/HTTP
               127.0.0.1:8443/HTTPS

  Hosts
    hello.localhost
      /gone exactly  → status 503
      /              → demo/hello port http

  Pool demo/hello port http: 2 members, round-robin
    192.0.2.1:18081  Ready     pod-a
    192.0.2.2:18082  Draining  pod-b

  Problems
    - BackendNotFound: Service \"gone\" does not exist
"
    );
}

#[test]
fn a_load_balancer_is_explained_with_all_that_it_carries() {
    assert_eq!(
        explained(lists(), Subject::LoadBalancer, "", "local"),
        "\
LoadBalancer local (builtin): not looked at by a controller yet

  Addresses    127.0.0.1
  Ports        HTTP 8080, HTTPS 8443 (while it has an Ingress)
  Open to      all namespaces
  Carries      1 Service, 1 Ingress
  Applied      no: its agent does not report; start it with `bowline agent
               --load-balancer local`

  Listeners
    127.0.0.1:8000/TCP    → demo/hello port http
    127.0.0.1:8080/HTTP   → the rules of its Ingresses
    127.0.0.1:8443/HTTPS  → the rules of its Ingresses

  Consumers
    Service demo/hello
    Ingress demo/hello

  Refused
    - Ingress demo/hello: BackendNotFound: Service \"gone\" does not exist
"
    );
}

#[test]
fn what_is_not_ours_is_said_with_what_would_help() {
    let mut lists = settled();
    let of_class = |class: &str| json!({"type": "LoadBalancer", "loadBalancerClass": class});
    lists.services.extend([
        object(service("theirs", of_class("a.example/b"))),
        object(service("pods", of_class("bowline.dev/ip-per-pod"))),
    ]);
    let mut pods = service("pods-by-annotation", json!({"type": "LoadBalancer"}));
    pods["metadata"]["annotations"] = json!({"bowline.dev/ip-per-pod": "true"});
    lists.services.push(object(pods));
    lists.ingresses.push(object(json!({
        "metadata": {"namespace": "demo", "name": "other"}, "spec": {"ingressClassName": "nginx"},
    })));
    let words = |subject, name: &str| joined(&explained(lists.clone(), subject, "demo", name));
    assert_eq!(
        words(Subject::Service, "inside"),
        "Service demo/inside is not Bowline's Why its type is ClusterIP, which is reached from inside \
         the cluster only What helps make it type LoadBalancer, or let an Ingress send requests to it"
    );
    assert_eq!(
        words(Subject::Service, "theirs"),
        "Service demo/theirs is not Bowline's Why its loadBalancerClass is \"a.example/b\", somebody \
         else's What helps make it anew with loadBalancerClass: bowline.dev/lb"
    );
    for pods in ["pods", "pods-by-annotation"] {
        let text = words(Subject::Service, pods);
        assert!(
            text.ends_with("an address for each Pod, which is not in this version yet"),
            "{text}"
        );
        assert!(!text.contains("loadBalancerClass"), "{text}");
    }
    assert_eq!(
        words(Subject::Ingress, "other"),
        "Ingress demo/other is not Bowline's Why there is no IngressClass \"nginx\" What helps set \
         ingressClassName: bowline"
    );
}

#[test]
fn a_service_that_was_refused_says_by_whom_and_why() {
    let mut lists = lists();
    let mut wants = service("lost", json!({"type": "LoadBalancer", "ports": [{"port": 80}]}));
    wants["metadata"]["annotations"] = json!({"bowline.dev/load-balancer": "edge"});
    lists.services.push(object(wants));
    assert_eq!(
        explained(lists, Subject::Service, "demo", "lost"),
        "\
Service demo/lost is on no load balancer

  Why          it asks for edge by annotation
  What helps   correct the name; kubectl get lb shows those there are

  Problems
    - LoadBalancerNotFound: load balancer \"edge\" does not exist
"
    );
}

#[test]
fn a_service_of_the_only_external_load_balancer_says_so() {
    let mut lists = lists();
    let address = "203.0.113.1";
    lists.load_balancers[0] = object(json!({
        "apiVersion": "bowline.dev/v1alpha1", "kind": "LoadBalancer", "metadata": {"name": "box"},
        "spec": {
            "external": {"driver": "Octavia", "backends": "Pods", "primary": {"url": "https://192.0.2.9"}},
            "addresses": [address], "allowedNamespaces": {"from": "All"},
        },
    }));
    annotate(&mut lists.leases[0], names::ANNOTATION_DEFAULT_LOAD_BALANCER, "");
    let meta = &mut lists.services[0].metadata;
    meta.annotations = Some([("bowline.dev/vip".to_owned(), address.to_owned())].into());
    let text = explained(lists, Subject::Service, "demo", "hello");
    let words = joined(&text);
    assert!(words.contains("Service demo/hello is on load balancer box"), "{text}");
    assert!(words.contains("it goes to the only external one"), "{text}");
    assert!(!words.contains("--default-load-balancer"), "{text}");
}

#[test]
fn a_claim_that_is_not_bound_is_said_with_what_would_help() {
    let mut lists = lists();
    let meta = &mut lists.services[0].metadata;
    let claim = ("bowline.dev/load-balancer-claim".to_owned(), "web".to_owned());
    meta.annotations = Some([claim].into());
    let text = explained(lists, Subject::Service, "demo", "hello");
    assert!(text.contains("  What helps   see the claim with kubectl get lbc;"), "{text}");
}

#[test]
fn what_is_recorded_stays_where_a_wish_cannot_be_read() {
    let mut lists = settled();
    let meta = &mut lists.services[0].metadata;
    meta.annotations = Some([("bowline.dev/load-balancer".into(), "No Name!".into())].into());
    let text = explained(lists, Subject::Service, "demo", "hello");
    assert!(text.starts_with("Service demo/hello is on load balancer local\n"), "{text}");
    assert!(text.contains("- BadValue: "), "{text}");
}

#[test]
fn the_status_has_a_line_for_each_load_balancer_and_then_who_was_refused() {
    assert_eq!(
        Status::of(&facts(settled())).text(),
        "\
Controller: one leads, heard of 2 s ago by this machine's clock

NAME   SOURCE   PHASE  ADDRESS    SVC  ING  REFUSED  PLAN
local  builtin  -      127.0.0.1  1    1    1        applied

Refused:
  - Ingress demo/hello on local: BackendNotFound: Service \"gone\" does not exist
"
    );
    assert_eq!(
        Status::of(&facts(Lists::default())).text(),
        "Controller: none leads: none runs, or they run with --leader-elect=false\n\nNo load balancers.\n\n\
         Note: How the controllers are set is not known: they are taken to have\n      \
         --default-class=false and no --default-load-balancer. Say it with these\n      \
         flags, or name Bowline's own namespace with --namespace.\n"
    );
}

/// What `status` says of the plan of `local` when its agent's Lease and its own status are changed.
fn applied(change: impl FnOnce(&mut Lease, &mut LoadBalancer)) -> (Applied, String) {
    let mut lists = settled();
    change(&mut lists.leases[1], &mut lists.load_balancers[0]);
    let status = Status::of(&facts(lists));
    (status.load_balancers[0].applied.state, status.text())
}

fn annotate(lease: &mut Lease, key: &str, value: &str) {
    let all = lease.metadata.annotations.get_or_insert_default();
    all.insert(key.to_owned(), value.to_owned());
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
        let head = "How the controllers are set is not known: they are taken to have";
        let tail = "Say it with these flags, or name Bowline's own namespace with --namespace.";
        vec![format!("{head} {what}. {tail}")]
    };
    let both = guessed("--default-class=false and no --default-load-balancer");
    assert_eq!(notes(&unsaid, None, None), both);
    assert_eq!(notes(&unsaid, Some(true), None), guessed("no --default-load-balancer"));
    assert_eq!(notes(&unsaid, Some(true), Some("local")), [""; 0]);
}

#[test]
fn a_plan_that_is_recorded_and_the_same_would_change_nothing() {
    let nothing = Difference::of(&facts(settled()));
    assert!(nothing.is_empty());
    assert_eq!(
        nothing.text(),
        "Nothing would change: what is recorded is what would be planned.\n"
    );
}

#[test]
fn a_plan_shows_what_comes_goes_and_changes() {
    let mut lists = settled();
    lists.ingresses.clear();
    let ports = json!([{"name": "http", "port": 8001, "protocol": "TCP"}]);
    let spec = json!({"type": "LoadBalancer", "ipFamilies": ["IPv4"], "ports": ports});
    lists.services[0] = object(service("hello", spec));
    assert_eq!(
        Difference::of(&facts(lists)).text(),
        "\
local: 0 to add, 1 to change, 2 to remove
  ~ Service demo/hello
      - listener 127.0.0.1:8000/TCP → demo/hello port http
      + listener 127.0.0.1:8001/TCP → demo/hello port http
  - Ingress demo/hello
      - host hello.localhost path / → demo/hello port http
      - host hello.localhost path /gone exactly → status 503
      - pool demo/hello port http: round-robin
  - LoadBalancer local
      - listener 127.0.0.1:8080/HTTP → the rules of its Ingresses
      - listener 127.0.0.1:8443/HTTPS → the rules of its Ingresses
"
    );
}

fn as_json(view: &impl View) -> Value {
    serde_json::from_str(&view.json().expect("JSON")).expect("JSON")
}

const HOLDER: &str = "two";

fn holder(identity: &str, seconds: i64) -> Value {
    json!({"identity": identity, "silentSeconds": seconds, "overdue": false})
}

/// The load balancer of the settled cluster, for programs.
fn local() -> Value {
    let listener = |port: u16, protocol: &str, serves: Value| json!({"address": "127.0.0.1", "port": port, "protocol": protocol, "serves": serves});
    json!({
        "name": "local", "source": "builtin", "addresses": ["127.0.0.1"],
        "httpPort": 8080, "httpsPort": 8443, "allowedNamespaces": {"from": "All"},
        "listeners": [
            listener(8000, "TCP", json!({"pool": "service/demo/hello/http"})),
            listener(8080, "HTTP", json!({"entry": "web"})),
            listener(8443, "HTTPS", json!({"entry": "web"})),
        ],
        "consumers": [
            {"kind": "Service", "namespace": "demo", "name": "hello"},
            {"kind": "Ingress", "namespace": "demo", "name": "hello"},
        ],
        "refused": [{
            "kind": "Ingress", "namespace": "demo", "name": "hello",
            "reason": "BackendNotFound", "message": "Service \"gone\" does not exist",
        }],
        "applied": {"state": "Yes", "agent": holder(HOLDER, 5)},
        "notes": [],
    })
}

#[test]
fn the_status_for_programs_has_these_fields() {
    assert_eq!(
        as_json(&Status::of(&facts(settled()))),
        json!({
            "apiVersion": "view.bowline.dev/v1alpha1", "kind": "Status",
            "controller": holder("one", 2), "loadBalancers": [local()], "nowhere": [], "notes": [],
        })
    );
}

#[test]
fn an_explanation_for_programs_has_these_fields() {
    let facts = facts(settled());
    let explained = |subject, namespace: &str, name: &str| {
        let key = ObjectKey::new(namespace, name);
        as_json(&Explanation::of(&facts, subject, &key).expect("it exists"))
    };
    let mut expected = local();
    expected["apiVersion"] = json!("view.bowline.dev/v1alpha1");
    expected["kind"] = json!("LoadBalancerExplanation");
    assert_eq!(explained(Subject::LoadBalancer, "", "local"), expected);

    let hello = ObjectKey::new("demo", "hello");
    let members = json!([
        {"address": "192.0.2.1:18081", "state": "Ready", "target": "pod-a"},
        {"address": "192.0.2.2:18082", "state": "Draining", "target": "pod-b"},
    ]);
    let applied = json!({"state": "Yes", "agent": holder(HOLDER, 5)});
    assert_eq!(
        explained(Subject::Service, "demo", "hello"),
        json!({
            "apiVersion": "view.bowline.dev/v1alpha1", "kind": "ConsumerExplanation",
            "object": {"kind": "Service", "namespace": "demo", "name": "hello"},
            "state": "Planned", "loadBalancer": "local",
            "why": "it names none; the default is local",
            "addresses": ["127.0.0.1"],
            "listeners": [local()["listeners"][0]],
            "hosts": [],
            "pools": [{"name": "service/demo/hello/http", "members": members}],
            "fragments": facts.planner.parts(ConsumerKind::Service, &hello),
            "problems": [], "recorded": "Yes", "applied": applied, "notes": [],
        })
    );
    assert_eq!(
        explained(Subject::Ingress, "demo", "hello")["hosts"],
        json!([{"host": "hello.localhost"}])
    );
    assert_eq!(
        explained(Subject::Service, "demo", "inside"),
        json!({
            "apiVersion": "view.bowline.dev/v1alpha1", "kind": "ConsumerExplanation",
            "object": {"kind": "Service", "namespace": "demo", "name": "inside"},
            "state": "NotOurs",
            "why": "its type is ClusterIP, which is reached from inside the cluster only",
            "remedy": "make it type LoadBalancer, or let an Ingress send requests to it",
            "addresses": [], "listeners": [], "hosts": [], "pools": [], "fragments": [],
            "problems": [], "notes": [],
        })
    );
}

#[test]
fn certificates_for_programs_are_known_unusable_or_unknown() {
    let (with, blind) = with_tls();
    let state = |lists| {
        let key = ObjectKey::new("demo", "hello");
        let explanation = Explanation::of(&facts(lists), Subject::Ingress, &key);
        as_json(&explanation.expect("it exists"))["hosts"][0]["certificate"].clone()
    };
    assert_eq!(state(with), json!({"state": "Unusable"}));
    assert_eq!(state(blind), json!({"state": "Unknown"}));
}

#[test]
fn a_difference_for_programs_has_these_fields() {
    let mut lists = settled();
    let before = facts(lists.clone());
    lists.services[0].metadata.uid = Some("another".into());
    let after = facts(lists);
    let hello = ObjectKey::new("demo", "hello");
    let consumer = json!({"kind": "Service", "namespace": "demo", "name": "hello"});
    let parts = |facts: &Facts| json!(facts.planner.parts(ConsumerKind::Service, &hello));
    assert_eq!(
        as_json(&Difference::of(&after)),
        json!({
            "apiVersion": "view.bowline.dev/v1alpha1", "kind": "Difference",
            "loadBalancers": [{"name": "local", "consumers": [
                {"consumer": consumer, "change": "Add", "before": [], "after": parts(&after)},
                {"consumer": consumer, "change": "Remove", "before": parts(&before), "after": []},
            ]}],
            "notes": [],
        })
    );
}

/// A cluster whose Ingress has TLS; and the same as somebody sees it who may not read Secrets.
fn with_tls() -> (Lists, Lists) {
    let mut lists = lists();
    let backend = json!({"service": {"name": "hello", "port": {"number": 8000}}});
    let paths = json!([{"path": "/", "pathType": "Prefix", "backend": backend}]);
    lists.ingresses[0] = object(json!({
        "metadata": {"namespace": "demo", "name": "hello", "uid": "i"},
        "spec": {
            "ingressClassName": "bowline",
            "tls": [{"hosts": ["hello.localhost"], "secretName": "cert"}],
            "rules": [{"host": "hello.localhost", "http": {"paths": paths}}],
        },
    }));
    let blind = Lists { secrets: None, notes: vec![NO_SECRETS.to_owned()], ..lists.clone() };
    (lists, blind)
}

const NO_SECRETS: &str = "You may not list secrets, so nothing is said about certificates.";

#[test]
fn without_secrets_certificates_are_neither_compared_nor_complained_about() {
    let (with, blind) = with_tls();
    let with = explained(with, Subject::Ingress, "demo", "hello");
    assert!(with.contains("SecretNotFound"), "{with}");
    assert!(with.contains("(TLS: no usable certificate: handshakes fail;"), "{with}");
    let text = explained(blind.clone(), Subject::Ingress, "demo", "hello");
    assert!(!text.contains("SecretNotFound"), "{text}");
    assert!(text.ends_with(&format!("\nNote: {NO_SECRETS}\n")), "{text}");
    let unknown = "hello.localhost (TLS: certificate not known: you may not read Secrets; clear";
    assert!(text.contains(unknown), "{text}");
    let plan = Difference::of(&facts(blind)).text();
    let unknown = "TLS: certificate not known: you may not read Secrets";
    assert!(joined(&plan).contains(unknown), "{plan}");
}

#[test]
fn without_secrets_the_certificate_is_the_one_that_the_leader_recorded() {
    let (_, mut blind) = with_tls();
    let planned = facts(blind.clone());
    let mut fragments: Vec<_> =
        planned.planner.fragments("local").map(|it| (**it).clone()).collect();
    for tls in fragments.iter_mut().flat_map(|it| &mut it.sites).filter_map(|it| it.tls.as_mut()) {
        tls.certificate = Some(CertificateRef { hash: "0123456789abcdef".into() });
    }
    let hash = PlanHash::default();
    let spec = PlanSpec { load_balancer: "local".into(), hash, fragments, unreadable: 0 };
    blind.plans = vec![Plan::new("local-0", spec)];
    let text = explained(blind, Subject::Ingress, "demo", "hello");
    let told = "hello.localhost (TLS: certificate 0123456789ab; clear text is redirected)";
    assert!(text.contains(told), "{text}");
}

/// All texts about a cluster with a Service and an Ingress of this name.
fn texts(lists: Lists, name: &str, load_balancer: &str) -> [String; 5] {
    let facts = facts(lists);
    let explain = |subject, namespace: &str, name: &str| {
        let key = ObjectKey::new(namespace, name);
        Explanation::of(&facts, subject, &key).expect("it exists").text()
    };
    [
        explain(Subject::Service, "demo", name),
        explain(Subject::Ingress, "demo", name),
        explain(Subject::LoadBalancer, "", load_balancer),
        Status::of(&facts).text(),
        Difference::of(&facts).text(),
    ]
}

/// Every text that somebody else may write says `text`.
fn with_everywhere(text: &str) -> Lists {
    let mut lists = settled();
    for slice in &mut lists.slices {
        let endpoints = slice.endpoints.as_mut().expect("endpoints");
        let target = endpoints[0].target_ref.as_mut().expect("a target");
        target.name = Some(text.to_owned());
    }
    let refused = json!([
        {"kind": "Service", "namespace": "demo", "name": "hello", "uid": "hello",
         "reason": "BindFailed", "message": text, "extent": "All"},
    ]);
    for lease in &mut lists.leases {
        let annotations = lease.metadata.annotations.as_mut().expect("annotations");
        annotations.insert(names::ANNOTATION_ERROR.into(), text.into());
        annotations.insert(names::ANNOTATION_REFUSED.into(), refused.to_string());
        lease.spec.as_mut().expect("a spec").holder_identity = Some(text.into());
    }
    lists.load_balancers[0].status = Some(LoadBalancerStatus {
        message: Some(text.to_owned()),
        ..LoadBalancerStatus::default()
    });
    lists.notes = vec![text.to_owned()];
    lists
}

#[test]
fn what_others_write_cannot_command_the_terminal_nor_forge_a_line() {
    let evil = "\u{1b}[31mX\u{1b}]0;owned\u{7}\nforged line\u{9b}2J\u{202e}";
    let all = texts(with_everywhere(evil), "hello", "local");
    for text in &all {
        let commands = |c: &char| *c != '\n' && (c.is_control() || *c == '\u{202e}');
        assert_eq!(text.chars().find(commands), None, "{text}");
        assert!(!text.lines().any(|line| line.trim_start().starts_with("forged")), "{text}");
    }
    let shown = all.concat().matches("]0;owned").count();
    assert!(shown >= 12, "not hidden, but shown: {shown}\n{}", all.concat());
}

#[test]
fn every_line_fits_into_80_columns() {
    let long = format!("a{}", "-very-long-name".repeat(4));
    let mut huge = with_everywhere(&"0123456789".repeat(25));
    let lb = &mut huge.load_balancers[0];
    lb.metadata.name = Some(long.clone());
    lb.spec.addresses = vec!["2001:db8:1234:5678:9abc:def0:1234:5678".parse().expect("one")];
    huge.leases[1].metadata.name = Some(names::agent_lease(&long));
    let settings = huge.leases[0].metadata.annotations.as_mut().expect("annotations");
    settings.insert(names::ANNOTATION_DEFAULT_LOAD_BALANCER.into(), long.clone());
    huge.services[0].metadata.name = Some(long.clone());
    huge.services[0].spec.as_mut().expect("a spec").ip_families = Some(vec!["IPv6".into()]);
    let ingress = &mut huge.ingresses[0];
    ingress.metadata.name = Some(long.clone());
    let rules = &mut ingress.spec.as_mut().expect("a spec").rules;
    let rule = &mut rules.as_mut().expect("rules")[0];
    rule.host = Some(["label-of-a-host"; 12].join("."));
    for path in &mut rule.http.as_mut().expect("http").paths {
        let tail = "/segment".repeat(30);
        path.path = path.path.as_ref().map(|path| format!("{path}{tail}"));
    }
    for (lists, name, lb) in [
        (lists(), "hello", "local"),
        (settled(), "hello", "local"),
        (huge, long.as_str(), long.as_str()),
    ] {
        let all = texts(lists, name, lb);
        assert!(joined(&all[0]).contains("is on load balancer"), "{}", all[0]);
        for line in all.iter().flat_map(|text| text.lines()) {
            assert!(line.chars().count() <= 80, "{line}\n{}", all.concat());
        }
    }
}
