//! What the terminal of `bowline up` says about changes: each once, with its time, and the last word is true. Before the
//! greeting it says what cannot be opened; roles that wait say for what.

use crate::bowline::{Bowline, PROGRAM, Start};
use crate::demo::turn;
use bowline_api::{AddressPool, LoadBalancer, LoadBalancerClaim};
use bowline_testing::{Scratch, net, until};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::networking::v1::{Ingress, IngressClass};
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};
use std::net::TcpListener;
use std::path::Path;

/// The lines with a time that contain a text, without the time.
fn lines(server: &Bowline, part: &str) -> Vec<String> {
    let is_time =
        |text: &str| text.len() == 8 && text.bytes().all(|it| it.is_ascii_digit() || it == b':');
    let log = server.service.log();
    let timed =
        log.lines().filter_map(|line| line.split_once(' ')).filter(|(time, _)| is_time(time));
    timed.map(|(_, text)| text.to_owned()).filter(|text| text.contains(part)).collect()
}

fn has(server: &Bowline, line: &str) {
    until(line, || {
        let found = lines(server, line);
        if found.is_empty() { Err(server.service.log()) } else { Ok(()) }
    });
}

fn service(name: &str, port: u16, annotations: Value) -> Service {
    serde_json::from_value(json!({
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"type": "LoadBalancer", "ports": [{"port": port}]},
    }))
    .expect("a Service")
}

#[test]
fn each_of_forty_services_is_live_once_and_gone_once() {
    let _turn = turn();
    net::in_namespace(|| async {
        let scratch = Scratch::new();
        let mut server = Start::new(&scratch).ready();
        let api: Api<Service> = Api::default_namespaced(server.client().await);
        for index in 0..40 {
            let one = service(&format!("web-{index}"), 20_000 + index, json!({}));
            api.create(&PostParams::default(), &one).await.expect("a Service");
        }
        until("forty lines", || {
            let found = lines(&server, "is live at 127.0.0.1");
            if found.len() >= 40 { Ok(()) } else { Err(format!("{}: {found:?}", found.len())) }
        });
        api.delete("web-7", &DeleteParams::default()).await.expect("deleted");
        has(&server, "Service default/web-7 is no longer served");
        let mut live = lines(&server, "is live at 127.0.0.1");
        live.sort_unstable();
        live.dedup();
        assert_eq!((live.len(), lines(&server, "is live at").len()), (40, 40), "each once");
        assert_eq!(server.stop(), Some(0));
    });
}

#[test]
fn claims_and_pools_are_lines_and_the_last_word_on_a_consumer_is_true() {
    let _turn = turn();
    net::in_namespace(|| async {
        let scratch = Scratch::new();
        let mut server = Start::new(&scratch).ready();
        let client = server.client().await;
        let params = PostParams::default();
        let claims: Api<LoadBalancerClaim> = Api::default_namespaced(client.clone());
        let claim = json!({"apiVersion": "bowline.dev/v1alpha1", "kind": "LoadBalancerClaim",
            "metadata": {"name": "web"}, "spec": {"loadBalancerName": "edge"}});
        claims
            .create(&params, &serde_json::from_value(claim).expect("one"))
            .await
            .expect("a claim");
        let on = json!({"bowline.dev/load-balancer-claim": "web"});
        let services: Api<Service> = Api::default_namespaced(client.clone());
        services.create(&params, &service("web", 20_100, on)).await.expect("a Service");
        has(&server, "Service default/web: ClaimNotBound: ");
        has(&server, "LoadBalancerClaim default/web: ");

        let edge = json!({"apiVersion": "bowline.dev/v1alpha1", "kind": "LoadBalancer",
            "metadata": {"name": "edge"}, "spec": {"builtin": {}, "addresses": ["127.0.0.77"]}});
        let balancers: Api<LoadBalancer> = Api::all(client.clone());
        balancers.create(&params, &serde_json::from_value(edge).expect("one")).await.expect("edge");
        has(&server, "LoadBalancerClaim default/web is bound to load balancer edge");
        has(&server, "Service default/web is live at 127.0.0.77");
        let said = lines(&server, "Service default/web");
        let ends = [
            "Service default/web: ClaimNotBound is solved",
            "Service default/web is live at 127.0.0.77",
        ];
        assert_eq!(said[said.len() - 2..], ends, "{said:?}");

        let pools: Api<AddressPool> = Api::all(client.clone());
        let pool = json!({"apiVersion": "bowline.dev/v1alpha1", "kind": "AddressPool",
            "metadata": {"name": "public"}, "spec": {"addresses": ["192.0.2.0/28"]}});
        pools.create(&params, &serde_json::from_value(pool).expect("one")).await.expect("a pool");
        has(&server, "AddressPool public grants addresses");
        assert_eq!(server.stop(), Some(0));
    });
}

#[test]
fn a_listener_that_cannot_be_opened_is_told_before_the_greeting() {
    let _turn = turn();
    net::in_namespace(|| async {
        let scratch = Scratch::new();
        let taken =
            ["127.0.0.1:8000", "127.0.0.1:8080"].map(|at| TcpListener::bind(at).expect("a port"));
        let mut server = Start::new(&scratch).arg("--demo").ready();
        let log = server.service.log();
        let (before, _) = log.split_once("Kubernetes API  ").expect("a greeting");
        for part in [
            "Not open for Ingresses: 127.0.0.1:8080: Address already in use",
            "another port with --http-port",
            "Service demo/hello: BindFailed: 127.0.0.1:8000",
        ] {
            assert!(before.contains(part), "{part}: {log}");
        }
        drop(taken);
        has(&server, "Service demo/hello: BindFailed is solved");
        assert_eq!(server.stop(), Some(0));
    });
}

#[tokio::test]
async fn without_the_demo_there_is_a_default_ingress_class_too() {
    let scratch = Scratch::new();
    let mut server = Start::new(&scratch).ready();
    let api: Api<IngressClass> = Api::all(server.client().await);
    let class = api.get("bowline").await.expect("an IngressClass");
    let marks = class.metadata.annotations.expect("marks");
    assert_eq!(marks["ingressclass.kubernetes.io/is-default-class"], "true");
    let ingresses: Api<Ingress> = Api::default_namespaced(server.client().await);
    let web = json!({"metadata": {"name": "web"}, "spec": {"rules": [{"host": "web.example"}]}});
    let web: Ingress = serde_json::from_value(web).expect("an Ingress");
    let web =
        ingresses.create(&PostParams::default(), &web).await.expect("an Ingress without a class");
    assert_eq!(web.spec.and_then(|it| it.ingress_class_name).as_deref(), Some("bowline"));
    assert_eq!(class.spec.and_then(|it| it.controller).as_deref(), Some("bowline.dev/ingress"));
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn a_role_that_waits_says_for_what() {
    let scratch = Scratch::new();
    let mut server = Start::new(&scratch).ready();
    let kubeconfig = server.kubeconfig.display().to_string();
    for (role, says) in [
        (&["agent", "--load-balancer", "lcoal"][..], "load balancer lcoal does not exist"),
        (&["controller"], "waits for leadership: "),
    ] {
        let all = [role, &["--admin", "127.0.0.1:0", "--kubeconfig", &kubeconfig]].concat();
        let args: Vec<_> = all.into_iter().map(str::to_owned).collect();
        let mut process = scratch.spawn(role[0], Path::new(PROGRAM), &args);
        until(says, || {
            process.assert_alive();
            let log = process.log();
            if log.contains(says) { Ok(()) } else { Err(log) }
        });
        let log = process.log();
        assert_eq!(log.matches(says).count(), 1, "{log}");
        assert!(role.len() == 1 || log.contains("Did you mean local?"), "{log}");
        process.kill();
    }
    assert_eq!(server.stop(), Some(0));
}
