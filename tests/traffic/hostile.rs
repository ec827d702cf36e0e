//! Input that is meant to hurt. Whatever one user writes, another user's traffic goes on as before.

use crate::stage::{PROGRAM, Stage, TARGET, annotate, http, leads_to, play, serves, tcp};
use bowline_testing::objects::{self, path};
use bowline_testing::{Backend, Call, SYSTEM, eventually};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Somebody else's Service and Ingress, which must not notice anything.
async fn bystander(stage: &Stage) -> Backend {
    let by = http("by").await;
    stage.behind("by", &[&by]).await;
    stage.ingress("by", &[("by.example", "/", "Prefix", "by")]).await;
    stage.apply(objects::service("by-tcp", &stage.lb, &[(5999, TARGET)])).await;
    stage.served_by("by-tcp", &[&by]).await;
    serves(&stage.dial(80), "by.example", "/", "by").await;
    serves(&stage.dial(5999), "by.example", "/", "by").await;
    by
}

/// Both are answered, and quickly.
async fn goes_on(stage: &Stage) {
    for dial in [stage.dial(80), stage.dial(5999)] {
        let started = Instant::now();
        let echo = dial.get("by.example", "/").await.and_then(|it| it.echo());
        assert_eq!(echo.map(|it| it.name).as_deref(), Ok("by"));
        assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    }
}

/// Changes still take effect.
async fn follows(stage: &Stage, name: &str) {
    let host = format!("{name}.example");
    stage.ingress(name, &[(&host, "/", "Prefix", "by")]).await;
    serves(&stage.dial(80), &host, "/", "by").await;
}

/// What the API makes of an object.
#[derive(Debug, PartialEq, Eq)]
enum Offered {
    Accepted,
    Refused,
}

/// Offers an object to the API.
async fn offer(stage: &Stage, object: &Value) -> Offered {
    let kind = object["kind"].as_str().expect("a kind");
    let call = Call::new("POST", path(kind, &stage.namespace, "")).json(object);
    let reply = stage.cluster.http(call).await;
    match reply.status {
        201 => Offered::Accepted,
        400 | 422 => Offered::Refused,
        other => panic!("{other} {}", reply.text()),
    }
}

#[test]
fn ten_thousand_rules_delay_nobody_and_work() {
    play(async |stage| {
        let _by = bystander(stage).await;
        let rule = |host: String, paths: std::ops::Range<usize>| {
            let paths: Vec<_> = paths
                .map(|path| {
                    json!({
                        "path": format!("/rule/{path}"), "pathType": "Exact",
                        "backend": {"service": {"name": "by", "port": {"number": 80}}},
                    })
                })
                .collect();
            json!({"host": host, "http": {"paths": paths}})
        };
        // Four Ingresses, as one of 10,000 would be too large for an API server.
        for part in 0..4 {
            let rules: Vec<_> = (0..25)
                .map(|host| rule(format!("h{}.many.example", part * 25 + host), 0..100))
                .collect();
            stage
                .apply(json!({
                    "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
                    "metadata": {"name": format!("many-{part}")},
                    "spec": {"ingressClassName": stage.lb, "rules": rules},
                }))
                .await;
            goes_on(stage).await;
        }
        serves(&stage.dial(80), "h99.many.example", "/rule/99", "by").await;
        serves(&stage.dial(80), "h0.many.example", "/rule/0", "by").await;
        goes_on(stage).await;
        follows(stage, "after").await;
    });
}

#[test]
fn what_looks_like_an_exploding_expression_is_matched_letter_by_letter() {
    play(async |stage| {
        let regex = json!({"spec": {"regexHosts": true}});
        stage.cluster.patch("LoadBalancer", "", &stage.lb, &regex).await;
        let _by = bystander(stage).await;
        let nested = "/((((a{1,100}){1,100}){1,100}){1,100})";
        for (number, given) in
            ["/(a+)+$", nested, "/(", "/(?i)\\p{L}{1000}"].into_iter().enumerate()
        {
            // A host cannot be an expression: an API server takes none. A path can look like one.
            let host = format!("~^{}", &given[1..]);
            let rules = [(host.as_str(), "/", "Prefix", "by")];
            let host = objects::ingress(&format!("host-{number}"), &stage.lb, &rules);
            assert_eq!(offer(stage, &host).await, Offered::Refused, "{host}");
            let mut path = objects::ingress(
                &format!("path-{number}"),
                &stage.lb,
                &[("odd.example", "/", "Prefix", "by")],
            );
            path["spec"]["rules"][0]["http"]["paths"][0] = json!({
                "path": given, "pathType": "ImplementationSpecific",
                "backend": {"service": {"name": "by", "port": {"number": 80}}},
            });
            assert_eq!(offer(stage, &path).await, Offered::Accepted, "{path}");
            let mut service = objects::service(
                &format!("note-{number}"),
                &stage.lb,
                &[(6000 + number as u16, TARGET)],
            );
            annotate(&mut service, "bowline.dev/external-domains", given);
            assert_eq!(offer(stage, &service).await, Offered::Accepted, "{service}");
        }
        serves(&stage.dial(80), "odd.example", "/(a+)+$", "by").await;
        follows(stage, "after").await;
        let long = format!("/{}!", "a".repeat(2000));
        let answer = stage.dial(80).get("odd.example", &long).await.expect("an answer");
        assert_eq!(answer.status, 404);
        goes_on(stage).await;
    });
}

#[test]
fn names_and_paths_with_control_characters_stay_data() {
    play(async |stage| {
        let _by = bystander(stage).await;
        let hosts = ["a\nb.example", "a b.example", "\u{0}", "*.*.example", "a;b", "-x", "…", "*"];
        for (number, host) in hosts.into_iter().enumerate() {
            let rules = [(host, "/", "Prefix", "by")];
            let host = objects::ingress(&format!("host-{number}"), &stage.lb, &rules);
            assert_eq!(offer(stage, &host).await, Offered::Refused, "{host}");
        }
        let paths =
            ["/a\nb", "/{}", "/\u{0}", "/%00", "/..", "/a/../b", "//", "/\u{1b}[31m", "/'\"`$"];
        let mut odd = Vec::new();
        for (number, given) in paths.into_iter().enumerate() {
            let name = format!("path-{number}");
            let mut rules =
                objects::ingress(&name, &stage.lb, &[("odd.example", "/", "Prefix", "by")]);
            rules["spec"]["rules"][0]["http"]["paths"][0]["path"] = json!(given);
            rules["spec"]["rules"][0]["http"]["paths"][0]["pathType"] =
                json!("ImplementationSpecific");
            assert_eq!(offer(stage, &rules).await, Offered::Accepted, "{rules}");
            odd.push(format!("ingress/{name}"));
        }
        let values = ["\n\n", "a\r\nb: c\u{1b}[31m", "{{ evil }}\u{7}", ""];
        for (number, value) in values.into_iter().enumerate() {
            for key in ["algorithm", "persistence", "vip", "health-check", "snat"] {
                let name = format!("note-{number}-{key}");
                let port = 7000 + number as u16;
                let mut service = objects::service(&name, &stage.lb, &[(port, TARGET)]);
                annotate(&mut service, &format!("bowline.dev/{key}"), value);
                assert_eq!(offer(stage, &service).await, Offered::Accepted, "{service}");
                odd.push(format!("service/{name}"));
            }
        }
        follows(stage, "after").await;
        goes_on(stage).await;

        // Whoever looks meets them escaped, if at all.
        stage.told("Ingress", "path-7", "BadValue").await;
        stage.told("Service", "note-1-vip", "BadValue").await;
        let (_, events) = stage.cluster.get(&path("Event", &stage.namespace, "")).await;
        for event in events["items"].as_array().expect("Events") {
            shows_no_controls("an Event", event["message"].as_str().expect("a message"));
        }
        let (_, plans) = stage.cluster.get(&path("Plan", SYSTEM, "")).await;
        texts(&plans["items"], &mut |text| shows_no_controls("a Plan", text));
        shows_no_controls("the agent's log", &stage.agent.process.log());
        for object in &odd {
            shows_no_controls(object, &look(stage, &["explain", object, "-n", &stage.namespace]));
        }
        shows_no_controls("status", &look(stage, &["status"]));
        shows_no_controls("plan", &look(stage, &["plan"]));
    });
}

/// What the program says to who looks at the cluster.
fn look(stage: &Stage, args: &[&str]) -> String {
    let output = std::process::Command::new(PROGRAM)
        .args(args)
        .env("KUBECONFIG", stage.cluster.kubeconfig())
        .output()
        .expect("run bowline");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{args:?}: {said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

/// Every text in a value.
fn texts(value: &Value, each: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => each(text),
        Value::Array(all) => all.iter().for_each(|it| texts(it, each)),
        Value::Object(all) => all.values().for_each(|it| texts(it, each)),
        _ => {}
    }
}

#[track_caller]
fn shows_no_controls(what: &str, text: &str) {
    let raw = |c: char| c.is_control() && c != '\n';
    assert!(!text.contains(raw), "{what}: {text:?}");
}

#[test]
fn endless_and_silent_clients_starve_nobody() {
    play(async |stage| {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let _by = bystander(stage).await;
        let mut silent = Vec::new();
        for number in 0..200 {
            let mut stream = stage.dial(80).tcp().await.expect("a connection");
            if number % 2 == 0 {
                stream.write_all(b"GET / HTTP/1.1\r\nHost: by.exa").await.expect("half a request");
            }
            silent.push(stream);
        }
        goes_on(stage).await;
        // A header without end is refused and cut off; what still comes is thrown away for a while, so
        // that the client can read the refusal.
        let endless = stage.dial(80).tcp().await.expect("a connection");
        let (mut from, mut to) = endless.into_split();
        let sending = tokio::spawn(async move {
            let _ = to.write_all(b"GET / HTTP/1.1\r\nHost: by.example\r\n").await;
            let line = format!("X-More: {}\r\n", "x".repeat(1000));
            while to.write_all(line.as_bytes()).await.is_ok() {}
        });
        let mut answer = vec![0; 1000];
        let length = from.read(&mut answer).await.expect("an answer");
        let answer = String::from_utf8_lossy(&answer[..length]);
        assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
        tokio::time::timeout(Duration::from_secs(20), sending)
            .await
            .expect("it is cut off")
            .expect("sent");
        goes_on(stage).await;
    });
}

#[test]
fn requests_that_are_read_two_ways_are_not_passed_on() {
    play(async |stage| {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let by = bystander(stage).await;
        let smuggled = [
            "POST / HTTP/1.1\r\nHost: by.example\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /evil HTTP/1.1\r\nHost: by.example\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: by.example\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
            "GET / HTTP/1.1\r\nHost: by.example\r\nHost: other.example\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: by.example\r\nX: a\x00b\r\n\r\n",
            "GET /a b HTTP/1.1\r\nHost: by.example\r\n\r\n",
        ];
        let before = by.requests();
        for bytes in smuggled {
            let mut stream = stage.dial(80).tcp().await.expect("a connection");
            stream.write_all(bytes.as_bytes()).await.expect("send");
            let mut answer = Vec::new();
            let read = stream.read_to_end(&mut answer);
            let ended = tokio::time::timeout(Duration::from_secs(20), read).await;
            let answer = String::from_utf8_lossy(&answer);
            assert!(ended.is_ok(), "{bytes:?}: it stays open after {answer}");
            assert!(answer.starts_with("HTTP/1.1 400 "), "{bytes:?}: {answer}");
            assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{bytes:?}: {answer}");
        }
        assert_eq!(by.requests(), before, "the backend has seen one of them");
        goes_on(stage).await;
    });
}

#[test]
fn a_service_with_a_thousand_dead_endpoints_delays_nobody_else() {
    play(async |stage| {
        let _by = bystander(stage).await;
        let a = tcp("a").await;
        stage.apply(objects::service("many", &stage.lb, &[(5000, TARGET)])).await;
        // Nobody is at these addresses, and the network says so at once.
        let mut endpoints: Vec<_> = (0..999u16)
            .map(|n| objects::Endpoint::ready([10, 99, (n >> 8) as u8, n as u8].into()))
            .collect();
        endpoints.push(objects::Endpoint::ready(a.at.ip()));
        stage.endpoints("many", &endpoints).await;
        goes_on(stage).await;
        eventually("the only one that lives is found", || async {
            stage.dial(5000).line().await.map(|_| ())
        })
        .await;
        leads_to(&stage.dial(5000), "a").await;
        goes_on(stage).await;
    });
}
