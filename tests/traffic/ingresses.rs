//! Ingresses in clear text: hosts, paths and their order, default backends, ports by name, who owns what,
//! and what backends are told of the client.

use crate::stage::{Stage, TARGET, answers, http, play, serves};
use bowline_testing::objects::{self, Endpoint};
use bowline_testing::{Backend, Request, eventually, net};
use serde_json::json;

/// Three Services `one`, `two` and `three`, each with a backend of its name.
async fn three(stage: &Stage) -> [Backend; 3] {
    let backends = [http("one").await, http("two").await, http("three").await];
    for backend in &backends {
        stage.behind(&backend.name, &[backend]).await;
    }
    backends
}

#[test]
fn requests_go_by_host_and_by_the_longest_path() {
    play(async |stage| {
        let _backends = three(stage).await;
        stage
            .ingress(
                "web",
                &[
                    ("a.example", "/", "Prefix", "one"),
                    ("a.example", "/deep", "Prefix", "two"),
                    ("a.example", "/deep/exact", "Exact", "three"),
                    ("b.example", "/", "Prefix", "three"),
                ],
            )
            .await;
        let dial = stage.dial(80);
        serves(&dial, "a.example", "/deep/exact", "three").await;
        for (host, path, name) in [
            ("a.example", "/", "one"),
            ("a.example", "/deeper", "one"),
            ("a.example", "/deep", "two"),
            ("a.example", "/deep/", "two"),
            ("a.example", "/deep/exact/more", "two"),
            ("a.example", "/deep/exact?query=1", "three"),
            ("A.Example:80", "/deep/x", "two"),
            ("b.example", "/deep", "three"),
        ] {
            let echo = dial.get(host, path).await.and_then(|it| it.echo());
            assert_eq!(echo.map(|it| it.name).as_deref(), Ok(name), "{host}{path}");
        }
        let unknown = dial.get("c.example", "/").await.expect("an answer");
        assert_eq!(unknown.status, 404);
    });
}

#[test]
fn an_exact_path_goes_before_a_prefix_of_the_same_length() {
    play(async |stage| {
        let _backends = three(stage).await;
        let rules =
            [("a.example", "/same", "Prefix", "one"), ("a.example", "/same", "Exact", "two")];
        stage.ingress("web", &rules).await;
        serves(&stage.dial(80), "a.example", "/same/below", "one").await;
        serves(&stage.dial(80), "a.example", "/same", "two").await;
    });
}

#[test]
fn a_wildcard_host_covers_one_label_and_yields_to_an_exact_one() {
    play(async |stage| {
        let _backends = three(stage).await;
        let rules =
            [("*.wild.example", "/", "Prefix", "one"), ("tame.wild.example", "/", "Prefix", "two")];
        stage.ingress("web", &rules).await;
        let dial = stage.dial(80);
        serves(&dial, "any.wild.example", "/", "one").await;
        serves(&dial, "tame.wild.example", "/", "two").await;
        for host in ["wild.example", "two.labels.wild.example"] {
            assert_eq!(dial.get(host, "/").await.expect("an answer").status, 404, "{host}");
        }
    });
}

#[test]
fn what_no_rule_matches_goes_to_the_default_backend() {
    play(async |stage| {
        let _backends = three(stage).await;
        let mut ingress =
            objects::ingress("web", &stage.lb, &[("a.example", "/only", "Prefix", "one")]);
        let backend = json!({"service": {"name": "two", "port": {"number": 80}}});
        ingress["spec"]["defaultBackend"] = backend;
        stage.apply(ingress).await;
        serves(&stage.dial(80), "a.example", "/only/this", "one").await;
        serves(&stage.dial(80), "elsewhere.example", "/x", "two").await;
    });
}

#[test]
fn a_rule_without_a_host_holds_for_every_host_without_one_of_its_own() {
    play(async |stage| {
        let _backends = three(stage).await;
        let rules = [("", "/", "Prefix", "one"), ("a.example", "/", "Prefix", "two")];
        stage.ingress("web", &rules).await;
        serves(&stage.dial(80), "whatever.example", "/", "one").await;
        serves(&stage.dial(80), "a.example", "/", "two").await;
    });
}

#[test]
fn what_a_host_has_no_rule_for_goes_on_to_rules_of_its_own_namespace_only() {
    play(async |stage| {
        let _backends = three(stage).await;
        let rules = [
            ("a.example", "/only", "Prefix", "one"),
            ("*.example", "/wild", "Prefix", "two"),
            ("", "/any", "Prefix", "three"),
        ];
        stage.ingress("web", &rules).await;
        serves(&stage.dial(80), "a.example", "/only", "one").await;
        serves(&stage.dial(80), "a.example", "/wild", "two").await;
        serves(&stage.dial(80), "a.example", "/any", "three").await;
        assert_eq!(stage.dial(80).get("a.example", "/else").await.expect("an answer").status, 404);
    });
}

#[test]
fn a_backend_may_name_its_port() {
    play(async |stage| {
        let pod = net::pod4();
        let _one = Backend::http("one", pod, 7001).await;
        let _two = Backend::http("two", pod, 7002).await;
        stage
            .apply(json!({
                "apiVersion": "v1", "kind": "Service", "metadata": {"name": "ports"},
                "spec": {"ports": [
                    {"name": "first", "port": 80, "targetPort": 7001, "protocol": "TCP"},
                    {"name": "second", "port": 81, "targetPort": 7002, "protocol": "TCP"},
                ]},
            }))
            .await;
        let mut slice = objects::slice("ports", ("first", 7001, "TCP"), &[Endpoint::ready(pod)]);
        slice["ports"]
            .as_array_mut()
            .expect("ports")
            .push(json!({"name": "second", "port": 7002, "protocol": "TCP"}));
        stage.apply(slice).await;
        let mut ingress = objects::ingress(
            "web",
            &stage.lb,
            &[("a.example", "/", "Prefix", "ports"), ("b.example", "/", "Prefix", "ports")],
        );
        let port = |rule: usize| format!("/spec/rules/{rule}/http/paths/0/backend/service/port");
        *ingress.pointer_mut(&port(0)).expect("a port") = json!({"name": "second"});
        *ingress.pointer_mut(&port(1)).expect("a port") = json!({"number": 80});
        stage.apply(ingress).await;
        serves(&stage.dial(80), "a.example", "/", "two").await;
        serves(&stage.dial(80), "b.example", "/", "one").await;
    });
}

#[test]
fn backends_are_told_who_asked_and_how() {
    play(async |stage| {
        let a = http("a").await;
        stage.behind("web", &[&a]).await;
        stage.ingress("web", &[("web.example", "/", "Prefix", "web")]).await;
        let client = net::client4();
        let dial = stage.dial(80).from(client);
        serves(&dial, "web.example", "/", "a").await;
        let request = Request::post("web.example", "/path?q=1", "body")
            .header("x-forwarded-proto", "https")
            .header("x-forwarded-host", "lies.example");
        let echo = dial.send(request).await.and_then(|it| it.echo()).expect("an echo");
        let told = |name: &str| echo.header(name).to_owned();
        assert!(told("x-forwarded-for").ends_with(&client.to_string()), "{echo:?}");
        assert_eq!(
            (told("x-forwarded-proto"), told("x-forwarded-host"), told("x-forwarded-port")),
            ("http".into(), "web.example".into(), "80".into())
        );
        assert_eq!(
            (&*echo.method, &*echo.path, &*echo.host, echo.body),
            ("POST", "/path?q=1", "web.example", 4)
        );
    });
}

#[test]
fn websockets_and_http2_pass_an_ingress() {
    play(async |stage| {
        let a = http("a").await;
        stage.behind("web", &[&a]).await;
        stage.ingress("web", &[("web.example", "/", "Prefix", "web")]).await;
        let dial = stage.dial(80);
        serves(&dial, "web.example", "/", "a").await;
        let mut socket = dial.websocket("web.example", "/ws").await.expect("WebSocket");
        assert_eq!(socket.ask("hello").await.as_deref(), Ok("a:hello"));
        // What changes elsewhere does not touch it.
        stage.ingress("other", &[("other.example", "/", "Prefix", "web")]).await;
        serves(&dial, "other.example", "/", "a").await;
        assert_eq!(socket.ask("again").await.as_deref(), Ok("a:again"));
        serves(&dial.clone().http2(), "web.example", "/", "a").await;
    });
}

#[test]
fn an_ingress_is_served_over_ipv6_and_shows_every_address() {
    play(async |stage| {
        let a = http("a").await;
        stage.behind("web", &[&a]).await;
        stage.ingress("web", &[("web.example", "/", "Prefix", "web")]).await;
        serves(&stage.dial(80), "web.example", "/", "a").await;
        serves(&stage.dial6(80), "web.example", "/", "a").await;
        stage.has_addresses("Ingress", "web", &[stage.vip, stage.vip6]).await;
    });
}

#[test]
fn changes_of_rules_and_backends_are_live_and_cut_nothing() {
    play(async |stage| {
        let _backends = three(stage).await;
        stage.ingress("web", &[("a.example", "/", "Prefix", "one")]).await;
        serves(&stage.dial(80), "a.example", "/", "one").await;
        let mut session = stage.dial(80).session().await.expect("a connection");
        let first = session.get("a.example", "/").await.and_then(|it| it.echo());
        assert_eq!(first.map(|it| it.name).as_deref(), Ok("one"));
        let slow = stage.dial(80);
        let slow = tokio::spawn(async move { slow.get("a.example", "/?delay=1000").await });
        stage.ingress("web", &[("a.example", "/", "Prefix", "two")]).await;
        serves(&stage.dial(80), "a.example", "/", "two").await;
        let next = session.get("a.example", "/").await.and_then(|it| it.echo());
        assert_eq!(next.map(|it| it.name).as_deref(), Ok("two"), "on the connection of before");
        let slow = slow.await.expect("no panic").and_then(|it| it.echo());
        assert_eq!(slow.map(|it| it.name).as_deref(), Ok("one"), "what was under way ended");
        stage.delete("Ingress", "web").await;
        eventually("nobody serves it", || async {
            match stage.dial(80).get("a.example", "/").await {
                Ok(answer) if answer.status == 200 => Err(answer.text()),
                _ => Ok(()),
            }
        })
        .await;
    });
}

#[test]
fn a_host_belongs_to_the_namespace_of_its_oldest_ingress() {
    play(async |stage| {
        let _backends = three(stage).await;
        stage.ingress("web", &[("a.example", "/", "Prefix", "one")]).await;
        serves(&stage.dial(80), "a.example", "/", "one").await;
        // Creation times have whole seconds, and among equals names decide.
        let other = later_namespace(stage).await;
        let thief = http("thief").await;
        let cluster = &stage.cluster;
        cluster.apply(&other, &objects::cluster_service("web", 80, TARGET)).await;
        let slice = objects::slice("web", ("", TARGET, "TCP"), &[Endpoint::ready(thief.at.ip())]);
        cluster.apply(&other, &slice).await;
        let rules =
            [("a.example", "/steal", "Prefix", "web"), ("mine.example", "/", "Prefix", "web")];
        cluster.apply(&other, &objects::ingress("web", &stage.lb, &rules)).await;
        serves(&stage.dial(80), "mine.example", "/", "thief").await;
        let message = stage.told_in(&other, "Ingress", "web", "HostTaken").await;
        assert!(message.contains("a.example"), "{message}");
        serves(&stage.dial(80), "a.example", "/steal", "one").await;
        stage.delete("Ingress", "web").await;
        serves(&stage.dial(80), "a.example", "/steal", "thief").await;
    });
}

#[test]
fn of_two_ingresses_with_the_same_path_the_older_has_it_and_the_younger_is_told() {
    play(async |stage| {
        let _backends = three(stage).await;
        stage.ingress("a-first", &[("a.example", "/same", "Prefix", "one")]).await;
        serves(&stage.dial(80), "a.example", "/same", "one").await;
        let rules =
            [("a.example", "/same", "Prefix", "two"), ("a.example", "/own", "Prefix", "two")];
        stage.ingress("b-second", &rules).await;
        serves(&stage.dial(80), "a.example", "/own", "two").await;
        let message = stage.told("Ingress", "b-second", "PathTaken").await;
        assert!(message.contains("/same"), "{message}");
        serves(&stage.dial(80), "a.example", "/same", "one").await;
        stage.delete("Ingress", "a-first").await;
        serves(&stage.dial(80), "a.example", "/same", "two").await;
    });
}

#[test]
fn a_backend_that_does_not_exist_is_told_and_harms_no_other_rule() {
    play(async |stage| {
        let _backends = three(stage).await;
        let rules =
            [("a.example", "/", "Prefix", "one"), ("a.example", "/gone", "Prefix", "missing")];
        stage.ingress("web", &rules).await;
        serves(&stage.dial(80), "a.example", "/", "one").await;
        let message = stage.told("Ingress", "web", "BackendNotFound").await;
        assert!(message.contains("missing"), "{message}");
        answers(&stage.dial(80), "a.example", "/gone", 503).await;
        let late = http("late").await;
        stage.behind("missing", &[&late]).await;
        serves(&stage.dial(80), "a.example", "/gone", "late").await;
    });
}

#[test]
fn an_ingress_without_endpoints_is_answered_with_503() {
    play(async |stage| {
        let a = http("a").await;
        stage.behind("web", &[&a]).await;
        stage.ingress("web", &[("web.example", "/", "Prefix", "web")]).await;
        serves(&stage.dial(80), "web.example", "/", "a").await;
        stage.endpoints("web", &[]).await;
        answers(&stage.dial(80), "web.example", "/", 503).await;
        stage.served_by("web", &[&a]).await;
        serves(&stage.dial(80), "web.example", "/", "a").await;
    });
}

#[test]
fn an_ingress_of_another_class_is_left_alone() {
    play(async |stage| {
        let _backends = three(stage).await;
        let mut foreign =
            objects::ingress("foreign", "somebody-elses", &[("a.example", "/", "Prefix", "one")]);
        foreign["metadata"]["annotations"] = json!({"bowline.dev/load-balancer": stage.lb});
        stage.apply(foreign).await;
        stage.ingress("ours", &[("b.example", "/", "Prefix", "two")]).await;
        serves(&stage.dial(80), "b.example", "/", "two").await;
        assert_eq!(stage.dial(80).get("a.example", "/").await.expect("an answer").status, 404);
    });
}

#[test]
fn a_load_balancer_may_have_its_http_listener_on_another_port() {
    play(async |stage| {
        let _backends = three(stage).await;
        stage.ingress("web", &[("a.example", "/", "Prefix", "one")]).await;
        serves(&stage.dial(80), "a.example", "/", "one").await;
        let port = json!({"spec": {"httpPort": 8000}});
        stage.cluster.patch("LoadBalancer", "", &stage.lb, &port).await;
        serves(&stage.dial(8000), "a.example", "/", "one").await;
        crate::stage::is_closed(&stage.dial(80)).await;
    });
}

#[test]
fn a_headless_service_is_reached_through_its_endpoints() {
    play(async |stage| {
        let a = http("a").await;
        let mut service = objects::cluster_service("web", 80, TARGET);
        service["spec"]["clusterIP"] = json!("None");
        stage.apply(service).await;
        stage.served_by("web", &[&a]).await;
        stage.ingress("web", &[("web.example", "/", "Prefix", "web")]).await;
        serves(&stage.dial(80), "web.example", "/", "a").await;
    });
}

#[test]
fn a_service_that_is_only_a_name_elsewhere_is_no_backend() {
    play(async |stage| {
        let _backends = three(stage).await;
        stage
            .apply(json!({
                "apiVersion": "v1", "kind": "Service", "metadata": {"name": "elsewhere"},
                "spec": {
                    "type": "ExternalName", "externalName": "169.254.169.254.example",
                    "ports": [{"port": 80}],
                },
            }))
            .await;
        let rules =
            [("a.example", "/", "Prefix", "one"), ("a.example", "/x", "Prefix", "elsewhere")];
        stage.ingress("web", &rules).await;
        stage.told("Ingress", "web", "BackendNotSupported").await;
        serves(&stage.dial(80), "a.example", "/", "one").await;
        answers(&stage.dial(80), "a.example", "/x", 503).await;
    });
}

#[test]
fn a_backend_that_asks_for_http2_in_clear_text_gets_it() {
    play(async |stage| {
        let a = http("a").await;
        let mut service = objects::cluster_service("web", 80, TARGET);
        service["spec"]["ports"][0]["appProtocol"] = json!("kubernetes.io/h2c");
        stage.apply(service).await;
        stage.served_by("web", &[&a]).await;
        stage.ingress("web", &[("web.example", "/", "Prefix", "web")]).await;
        serves(&stage.dial(80), "web.example", "/", "a").await;
        let echo = stage.dial(80).get("web.example", "/").await.and_then(|it| it.echo());
        assert_eq!(echo.map(|it| it.version).as_deref(), Ok("HTTP/2.0"));
    });
}

/// A namespace whose name comes after the test's own.
async fn later_namespace(stage: &Stage) -> String {
    let name = format!("{}-later", stage.namespace);
    stage.cluster.owns("namespace", &name);
    stage
        .cluster
        .apply("", &json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}}))
        .await;
    name
}
