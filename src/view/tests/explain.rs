//! Tests what `explain` shows to people.

use super::*;

#[test]
fn a_service_is_explained_from_its_load_balancer_to_its_members() {
    assert_eq!(
        explained(settled(), Subject::Service, "demo", "hello"),
        "\
Service demo/hello is on load balancer local

  Why          it names no load balancer; the default is local
  Recorded     yes
  Applied      yes, by agent two, last seen 5 s ago
  Listens at   127.0.0.1:8000/TCP → demo/hello port http

  Pool demo/hello port http: 2 members, round-robin
    192.0.2.1:18081  Ready     pod-a
    192.0.2.2:18082  Draining  pod-b

  Problems     none
"
    );
}

/// The row of a reason says whether `explain` and `status` tell it, and with which remedy.
#[test]
fn what_an_agent_reports_is_told_where_the_table_says_and_with_its_remedy() {
    for reason in Reason::ALL {
        let mut lists = settled();
        let problem = json!({"reason": reason, "message": "what is wrong"});
        let mut refused = json!({"kind": "Service", "namespace": "demo", "name": "hello", "uid": "hello", "extent": "part"});
        refused.as_object_mut().unwrap().append(problem.clone().as_object_mut().unwrap());
        let lease = lists.leases.last_mut().expect("the agent's");
        annotate(lease, names::ANNOTATION_REFUSED, &json!([refused]).to_string());
        let facts = facts(lists);
        let key = ObjectKey::new("demo", "hello");
        let view = Explanation::of(&facts, Subject::Service, &key).expect("it exists");
        let view: Value = serde_json::from_str(&view.json().expect("JSON")).expect("JSON");
        let told = view["problems"].as_array().expect("problems");
        let mine = told.iter().find(|it| it["reason"] == reason.to_string());
        assert_eq!(mine.is_some(), reason.is_told(Place::Explain), "{reason}: {view}");
        let names =
            [("KIND", "service"), ("NAME", "hello"), ("NAMESPACE", "demo"), ("LB", "local")];
        let helps = reason.remedy().map(|it| with_names(it.what, &names));
        if let (Some(mine), Some(helps)) = (mine, helps) {
            let printed = mine["remedy"].as_str().expect("a remedy");
            assert!(printed.starts_with(&*helps), "{printed}, {helps}");
        }
        let status: Value =
            serde_json::from_str(&Status::of(&facts).json().expect("JSON")).expect("JSON");
        let listed = status["loadBalancers"][0]["refused"].as_array().expect("refusals");
        let listed = listed
            .iter()
            .any(|it| it["reason"] == reason.to_string() && it["message"] == "what is wrong");
        assert_eq!(listed, reason.is_told(Place::Status), "{reason}: {status}");
    }
}

#[test]
fn an_annotation_that_does_not_exist_is_removed_by_the_printed_command() {
    let mut lists = settled();
    let slip = ("bowline.dev/algoritm".to_owned(), "source-ip".to_owned());
    lists.services[0].metadata.annotations = Some([slip].into());
    let text = explained(lists, Subject::Service, "demo", "hello");
    let command = "`kubectl annotate service hello -n demo bowline.dev/algoritm-`";
    assert!(text.lines().any(|line| line.contains(command)), "{text}");
}

#[test]
fn a_service_on_a_load_balancer_without_a_driver_is_told_that_and_not_advised_on_addresses() {
    let mut lists = lists();
    lists.load_balancers.push(object(json!({
        "apiVersion": "bowline.dev/v1alpha1", "kind": "LoadBalancer", "metadata": {"name": "device", "uid": "d"},
        "spec": {
            "external": {"driver": "Octavia", "primary": {"url": "https://x.example.com"}},
            "allowedNamespaces": {"from": "All"},
        },
    })));
    let named = ("bowline.dev/load-balancer".to_owned(), "device".to_owned());
    lists.services[0].metadata.annotations = Some([named].into());
    let text = joined(&explained(lists, Subject::Service, "demo", "hello"));
    let told = "What helps use a build of Bowline that has the driver (`bowline version` lists features), or a load \
                balancer with another source Problems - NoDriver: this build has no driver for the source of load \
                balancer device - NoAddress: load balancer \"device\" has no address yet";
    assert!(text.ends_with(told), "{text}");
    assert!(!text.contains("kubectl patch lb"), "{text}");
}

#[test]
fn the_commands_of_a_remedy_are_printed_whole_and_with_the_names_of_the_object() {
    let mut lists = settled();
    lists.services[0].metadata.annotations =
        Some([("bowline.dev/load-balancer".to_owned(), "locall".to_owned())].into());
    let text = explained(lists, Subject::Service, "demo", "hello");
    let command =
        "kubectl annotate service hello -n demo --overwrite bowline.dev/load-balancer=local";
    assert!(text.lines().any(|line| line.contains(&format!("`{command}`"))), "{text}");
}

#[test]
fn an_ingress_is_explained_with_its_hosts_and_what_is_wrong_with_them() {
    assert_eq!(
        explained(settled(), Subject::Ingress, "demo", "hello"),
        "\
Ingress demo/hello is on load balancer local

  Why          it names no load balancer; the default is local
  Recorded     yes
  Applied      yes, by agent two, last seen 5 s ago
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
      What helps: create the Service, or correct its name or port in the rule
                  (`kubectl get services -n demo`)
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
  Applied      no: its agent does not report; start it with
               `bowline agent --load-balancer local`
  What helps   start an agent with the command that the message names, where the
               addresses of the load balancer are

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
        "Service demo/theirs is not Bowline's Why its loadBalancerClass is \"a.example/b\", which \
         is not Bowline's What helps create it again with loadBalancerClass: bowline.dev/lb"
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
  What helps   name a load balancer that exists (`kubectl get lb`):
               `kubectl annotate service lost -n demo --overwrite bowline.dev/load-balancer=local`;
               or correct the IngressClass, or `--default-load-balancer` of the
               controllers

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
    meta.annotations = Some([("lb.zcloud.cn/vip".to_owned(), address.to_owned())].into());
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
    let missing = joined(&explained(lists.clone(), Subject::Service, "demo", "hello"));
    let make = "or make this one: `echo '{\"apiVersion\":\"bowline.dev/v1alpha1\",\"kind\":\"LoadBalancerClaim\",\
                \"metadata\":{\"name\":\"web\"},\"spec\":{}}' | kubectl apply -n demo -f -`";
    assert!(missing.contains("ClaimNotFound: claim \"web\" does not exist"), "{missing}");
    assert!(missing.contains(make), "{missing}");
    lists.claims = vec![object(json!({
        "apiVersion": "bowline.dev/v1alpha1", "kind": "LoadBalancerClaim",
        "metadata": {"namespace": "demo", "name": "web", "uid": "c"}, "spec": {},
    }))];
    let waits = explained(lists, Subject::Service, "demo", "hello");
    let helps = "  What helps   see why the claim waits: `bowline explain lbc/web -n demo`\n";
    assert!(waits.contains(helps), "{waits}");
}

#[test]
fn a_claim_that_waits_is_told_of_every_load_balancer_and_how_many_wait_for_it() {
    let mut lists = lists();
    lists.load_balancers[0].spec.allowed_namespaces = Default::default();
    let named = ("bowline.dev/load-balancer-claim".to_owned(), "web".to_owned());
    lists.services[0].metadata.annotations = Some([named].into());
    for number in 0..12 {
        let mut inner = lists.load_balancers[0].clone();
        inner.metadata.name = Some(format!("inner-{number}"));
        inner.spec.scope = bowline_api::load_balancer::Scope::Intranet;
        lists.load_balancers.push(inner);
    }
    lists.claims.push(object(json!({
        "apiVersion": "bowline.dev/v1alpha1", "kind": "LoadBalancerClaim",
        "metadata": {"namespace": "demo", "name": "web", "uid": "c"},
        "spec": {"className": "gold", "scope": "Internet"},
    })));
    let text = explained(lists, Subject::Claim, "demo", "web");
    let words = joined(&text);
    assert!(
        words.starts_with("Claim demo/web waits, and no controller has looked at it"),
        "{text}"
    );
    assert!(words.contains("Used by 1 consumer"), "{text}");
    assert!(words.contains("class gold does not exist"), "{text}");
    assert!(words.contains("- local: it has no class"), "{text}");
    assert_eq!(words.matches("its scope is Intranet").count(), 12, "{text}");
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
fn a_service_whose_port_another_has_is_told_the_next_free_one() {
    let mut lists = settled();
    for (name, port) in [("next", 8001), ("late", 8000)] {
        let ports = json!([{"port": port, "protocol": "TCP"}]);
        let spec = json!({"type": "LoadBalancer", "ipFamilies": ["IPv4"], "ports": ports});
        let mut wants = service(name, spec);
        wants["metadata"]["creationTimestamp"] = json!("2029-06-01T00:00:00Z");
        lists.services.push(object(wants));
    }
    let text = joined(&explained(lists, Subject::Service, "demo", "late"));
    assert!(text.contains("PortTaken: port 8000/TCP of 127.0.0.1 belongs to"), "{text}");
    let helps = "use another port, another address or another load balancer: no consumer of local has 8002/TCP";
    assert!(text.contains(helps), "{text}");
}

#[test]
fn a_service_is_told_at_once_that_it_has_no_ready_endpoint() {
    let mut lists = settled();
    lists.slices = vec![object(json!({
        "metadata": {"namespace": "demo", "name": "a", "labels": {"kubernetes.io/service-name": "hello"}},
        "addressType": "IPv4", "ports": [], "endpoints": [],
    }))];
    let text = joined(&explained(lists.clone(), Subject::Service, "demo", "hello"));
    let told =
        "NoEndpoints: Service demo/hello port http has no ready endpoint, so clients get no answer";
    assert_eq!(text.matches(told).count(), 1, "{text}");
    // Perhaps none may be read.
    lists.slices.clear();
    let text = joined(&explained(lists, Subject::Service, "demo", "hello"));
    assert!(text.contains("Problems none"), "{text}");
}
