//! Tests what holds for every view on a terminal: no control characters from foreign text, and 80
//! columns.

use super::*;

/// The texts of all views of a cluster with a Service and an Ingress of this name.
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

/// A cluster in which every foreign text is `text`.
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
