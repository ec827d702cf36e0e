//! Bytes that nobody should send. After every batch the server still answers, what it holds has not
//! changed, and no thread of it has panicked.

use crate::bowline::{Bowline, Start};
use crate::random::Random;
use crate::wire::{Wire, status};
use bowline_testing::Scratch;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::{Api, PostParams, WatchEvent, WatchParams};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::time::Duration;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const JSON: &str = "content-type: application/json\r\n";
const YAML: &str = "content-type: application/yaml\r\n";

/// A server with an object in it, and what it held before the attack.
struct Target {
    server: Bowline,
    wire: Wire,
    before: Vec<(String, String)>,
    _scratch: Scratch,
}

impl Target {
    async fn new() -> Self {
        let scratch = Scratch::new();
        let server = Start::kept(&scratch).ready();
        let api: Api<ConfigMap> = Api::default_namespaced(server.client().await);
        let object = serde_json::from_value(json!({"metadata": {"name": "a"}})).unwrap();
        api.create(&PostParams::default(), &object).await.expect("a write");
        let wire = Wire::to(&server);
        let mut target = Self { server, wire, before: Vec::new(), _scratch: scratch };
        target.before = target.held().await;
        target
    }

    /// Everything that attacks are aimed at.
    async fn held(&self) -> Vec<(String, String)> {
        let mut all = Vec::new();
        for resource in ["configmaps", "services", "namespaces", "pods"] {
            let (code, body) = self.wire.ask("GET", &format!("/api/v1/{resource}"), "", b"").await;
            assert_eq!(code, 200, "{body}");
            let list: Value = serde_json::from_str(&body).expect("JSON");
            for item in list["items"].as_array().expect("items") {
                let metadata = &item["metadata"];
                let name = format!("{resource} {} {}", metadata["namespace"], metadata["name"]);
                all.push((name, metadata["resourceVersion"].to_string()));
            }
        }
        all
    }

    #[track_caller]
    fn assert_alive(&mut self) {
        self.server.assert_never_panicked();
        self.server.service.assert_alive();
    }

    async fn assert_unharmed(&mut self, batch: &str) {
        self.assert_alive();
        let (code, _) = self.wire.ask_with("GET", "/readyz", "", b"").await;
        assert_eq!(code, 200, "after {batch}");
        assert_eq!(self.held().await, self.before, "after {batch}");
    }

    /// Sends a body to be created; it must be refused as the client's mistake.
    async fn refuses(&self, what: &str, headers: &str, body: &[u8]) -> (u16, String) {
        let (code, text) = self.wire.ask("POST", CONFIG_MAPS, headers, body).await;
        assert!((400..500).contains(&code), "{what}: {code} {text:.300}");
        let status: Value = serde_json::from_str(&text).expect("a Status");
        assert_eq!(status["kind"], "Status", "{what}: {text:.300}");
        assert!(text.len() < 100_000, "{what}: an answer of {} bytes", text.len());
        (code, text)
    }

    fn end(mut self) {
        assert_eq!(self.server.stop(), Some(0));
    }
}

#[tokio::test]
async fn random_bytes_harm_nothing() {
    let mut target = Target::new().await;
    let mut random = Random::new(7);
    let token = target.server.token("admin");
    for round in 0..100 {
        let length = random.below(300);
        let mut bytes = random.bytes(length);
        if round % 2 == 0 {
            // Enough ends of lines to be taken for a request now and then.
            bytes.iter_mut().filter(|byte| **byte % 16 == 3).for_each(|byte| *byte = b'\n');
        }
        bytes.extend_from_slice(b"\r\n\r\n");
        target.wire.hurl(&bytes).await;
    }
    target.assert_unharmed("random bytes").await;

    let methods = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "get", "\u{1}"];
    let roots = ["/api/v1/", "/apis/", "/openapi/v3/", "/", "//", "*", "http://a/", CONFIG_MAPS];
    let types = [
        "application/json",
        "application/yaml",
        "application/merge-patch+json",
        "application/json-patch+json",
        "application/strategic-merge-patch+json",
        "application/vnd.kubernetes.protobuf",
        "text/plain",
        "\u{7f}",
    ];
    let mut codes = std::collections::BTreeMap::<u16, usize>::new();
    for _ in 0..300 {
        let method = random.pick(&methods);
        let mut path = random.pick(&roots).as_bytes().to_vec();
        let length = random.below(40);
        let junk = random.bytes(length);
        // A request line takes few bytes as they are, and all of them encoded.
        match random.below(4) {
            0 => path.extend(junk.iter().filter(|byte| !b" \r\n".contains(byte))),
            1 => path.extend(junk.iter().flat_map(|byte| format!("%{byte:02x}").into_bytes())),
            _ => path.extend(junk.iter().map(|byte| b"/%.-az019~"[usize::from(*byte) % 10])),
        }
        if random.below(2) == 0 {
            path.push(b'?');
            for name in [
                "watch",
                "labelSelector",
                "fieldSelector",
                "continue",
                "limit",
                "resourceVersion",
                "resourceVersionMatch",
                "timeoutSeconds",
                "fieldValidation",
            ] {
                let value = random.next();
                path.extend_from_slice(format!("&{name}=").as_bytes());
                match random.below(3) {
                    0 => path.extend_from_slice(format!("%{:02x}{value}", value as u8).as_bytes()),
                    1 => path.extend_from_slice(format!("a%zz%2{value:x}=,!()").as_bytes()),
                    _ => path.extend_from_slice(b"-1"),
                }
            }
        }
        let length = random.below(200);
        let body = random.bytes(length);
        let mut request = format!("{method} ").into_bytes();
        request.extend(&path);
        let rest = format!(
            " HTTP/1.1\r\nhost: a\r\nconnection: close\r\nauthorization: Bearer {token}\r\n\
             content-type: {}\r\naccept: {}\r\ncontent-length: {length}\r\n\r\n",
            random.pick(&types),
            random.pick(&types),
        );
        request.extend_from_slice(rest.as_bytes());
        request.extend(&body);
        let answer = target.wire.exchange(&request).await;
        assert!(status(&answer) < 500, "{}", String::from_utf8_lossy(&answer));
        *codes.entry(status(&answer)).or_default() += 1;
    }
    println!("{codes:?}");
    target.assert_unharmed("random requests").await;

    // Bodies that are close to something: a good one with some bytes turned.
    let good =
        br#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"b":"c"}}"#;
    for _ in 0..200 {
        let mut body = good.to_vec();
        for _ in 0..1 + random.below(4) {
            let at = random.below(body.len());
            body[at] = random.next() as u8;
        }
        let headers = if random.below(2) == 0 { JSON } else { YAML };
        // The path asks for a dry run, so that a body that happens to be good changes nothing either.
        let path = format!("{CONFIG_MAPS}?dryRun=All");
        let (code, text) = target.wire.ask("POST", &path, headers, &body).await;
        assert!(code >= 400, "{code} {text}");
        assert!(code < 500 || code == 501, "{code} {text}");
    }
    target.assert_unharmed("turned bytes").await;
    target.end();
}

#[tokio::test]
async fn enormous_requests_are_refused() {
    let mut target = Target::new().await;
    let long = "a".repeat(2 << 20);
    let (code, _) = target.wire.ask("GET", "/api", &format!("x-long: {long}\r\n"), b"").await;
    assert!(matches!(code, 0 | 400 | 431), "an enormous header: {code}");
    let many: String = (0..20_000).map(|index| format!("x-{index}: a\r\n")).collect();
    let (code, _) = target.wire.ask("GET", "/api", &many, b"").await;
    assert!(matches!(code, 0 | 400 | 431), "many headers: {code}");
    let (code, _) = target.wire.ask("GET", &format!("/api/v1/{long}"), "", b"").await;
    assert!(matches!(code, 0 | 400 | 414 | 431), "an enormous path: {code}");

    let body = format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","data":{{"a":"{long}{long}"}}}}"#);
    let (code, text) = target.refuses("4 MiB", JSON, body.as_bytes()).await;
    assert_eq!(code, 413, "{text:.300}");
    // Said, but not sent: the server does not wait for what it will not take.
    let claims = format!(
        "POST {CONFIG_MAPS} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {}\r\n{JSON}content-length: 99999999999\r\n\r\n{body}",
        target.server.token("admin")
    );
    let answer = target.wire.exchange(claims.as_bytes()).await;
    assert_eq!(status(&answer), 413, "{:.300}", String::from_utf8_lossy(&answer));

    let selector = format!("{CONFIG_MAPS}?labelSelector={}", "a%2C".repeat(20_000));
    let (code, text) = target.wire.ask("GET", &selector, "", b"").await;
    assert!(matches!(code, 200 | 400 | 414 | 431), "a long selector: {code} {text:.300}");
    target.assert_unharmed("enormous requests").await;
    target.end();
}

#[tokio::test]
async fn bodies_that_would_grow_or_nest_without_end_are_refused() {
    let mut target = Target::new().await;
    let nested = |open: &str, close: &str| {
        let deep = open.repeat(100_000) + &close.repeat(100_000);
        format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"b"}},"data":{deep}}}"#
        )
    };
    for (what, body) in [
        ("100,000 lists", nested("[", "]")),
        ("100,000 objects", nested(r#"{"a":"#, "}").replace(":}", ":1}")),
        ("100,000 open lists", "[".repeat(100_000)),
        ("100,000 open objects", r#"{"a":"#.repeat(100_000)),
    ] {
        target.refuses(what, JSON, body.as_bytes()).await;
        target.refuses(&format!("{what} as YAML"), YAML, body.as_bytes()).await;
        target.assert_alive();
        for patch in ["merge-patch", "json-patch", "strategic-merge-patch"] {
            let headers = format!("content-type: application/{patch}+json\r\n");
            let path = format!("{CONFIG_MAPS}/a");
            let (code, text) = target.wire.ask("PATCH", &path, &headers, body.as_bytes()).await;
            assert!((400..500).contains(&code), "{what} as {patch}: {code} {text:.300}");
        }
        target.assert_alive();
    }

    let mut laughs = String::from("a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]\n");
    for level in 1..12 {
        let before = level - 1;
        let _ = writeln!(
            laughs,
            "a{level}: &a{level} [{}]",
            vec![format!("*a{before}"); 10].join(", ")
        );
    }
    target.refuses("a billion laughs", YAML, laughs.as_bytes()).await;
    target.refuses("an anchor in itself", YAML, b"a: &a [*a]\n").await;
    let indented: String = (0..2000).map(|level| format!("{}a:\n", " ".repeat(level))).collect();
    target.refuses("2,000 levels of YAML", YAML, indented.as_bytes()).await;
    target.refuses("a million dashes", YAML, "- ".repeat(1_000_000).as_bytes()).await;
    target.refuses("a million question marks", YAML, "? ".repeat(1_000_000).as_bytes()).await;

    let labels: serde_json::Map<_, _> =
        (0..10_000).map(|index| (format!("label-{index}"), json!("a-value"))).collect();
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b", "labels": labels}});
    // A real server takes them too: 10,000 labels are odd, not wrong.
    let (code, text) =
        target.wire.ask("POST", CONFIG_MAPS, JSON, body.to_string().as_bytes()).await;
    assert_eq!(code, 201, "{text:.300}");
    let (code, text) = target.wire.ask("DELETE", &format!("{CONFIG_MAPS}/b"), "", b"").await;
    assert_eq!(code, 200, "{text:.300}");
    let wrong: serde_json::Map<_, _> =
        (0..10_000).map(|index| (format!("-{index}"), json!("not a value!"))).collect();
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b", "labels": wrong}});
    let (code, text) =
        target.wire.ask("POST", CONFIG_MAPS, JSON, body.to_string().as_bytes()).await;
    assert_eq!(code, 422, "{text:.300}");
    target.assert_unharmed("growing bodies").await;
    target.end();
}

#[tokio::test]
async fn names_and_paths_that_mean_something_elsewhere_mean_nothing_here() {
    let mut target = Target::new().await;
    for name in [
        "\u{0}",
        "a\u{0}b",
        "a\nb",
        "\u{1b}[31mred",
        "../a",
        "a/b",
        "..",
        ".",
        "a b",
        "ä",
        "A",
        "%00",
        "a%2fb",
        "",
        "-a",
        "a-",
        "\u{202e}a",
        "\u{feff}",
    ] {
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        target.refuses(&format!("{name:?}"), JSON, body.to_string().as_bytes()).await;
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "b", "namespace": name}});
        if !name.is_empty() {
            target.refuses(&format!("namespace {name:?}"), JSON, body.to_string().as_bytes()).await;
        }
    }
    for path in [
        "/api/v1/namespaces/default/configmaps/../secrets",
        "/api/v1/namespaces/default/configmaps/%2e%2e/secrets",
        "/api/v1/namespaces/default/configmaps/..%2fa",
        "/api/v1/namespaces/default/configmaps/%00",
        "/api/v1/namespaces/default/configmaps/a%00",
        "/api/v1/namespaces/%2e%2e/configmaps/a",
        "/api/v1/namespaces/default%2fconfigmaps/a",
        "/api/v1/namespaces/default/configmaps/%ff%fe",
        "/api/v1/namespaces/default/configmaps/%",
        "/api/v1/namespaces/default/configmaps/%zz",
        "/api/v1/../../etc/passwd",
        "/../../../etc/passwd",
        "/openapi/v3/../../store.redb",
        "/openapi/v3/%2e%2e/%2e%2e/credentials.json",
        "/api/v1/namespaces/default/configmaps/a/../../../../../secrets",
        "//api//v1//configmaps//",
    ] {
        for method in ["GET", "PUT", "DELETE"] {
            let body = br#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}"#;
            let (code, text) = target.wire.ask(method, path, JSON, body).await;
            assert!((400..500).contains(&code), "{method} {path}: {code} {text:.300}");
            assert!(!text.contains("token") && !text.contains("root:"), "{path}: {text:.300}");
        }
    }
    target.assert_unharmed("odd names and paths").await;
    let api: Api<ConfigMap> = Api::default_namespaced(target.server.client().await);
    assert_eq!(api.get("a").await.expect("it is there").name_any(), "a");
    target.end();
}

#[tokio::test]
async fn numbers_at_their_ends_are_refused_or_mean_the_nearest_that_makes_sense() {
    let mut target = Target::new().await;
    let pods = "/api/v1/namespaces/default/pods";
    for number in [i64::MAX.to_string(), i64::MIN.to_string(), u64::MAX.to_string(), "1e9".into()] {
        for parameter in ["timeoutSeconds", "limit", "resourceVersion", "gracePeriodSeconds"] {
            // The answer may be an endless watch; what counts is that the server lives.
            let path = format!("{CONFIG_MAPS}?watch=1&{parameter}={number}");
            let asked = target.wire.ask("GET", &path, "", b"");
            let _ = tokio::time::timeout(std::time::Duration::from_millis(200), asked).await;
        }
        target.assert_alive();
    }

    let pod = json!({
        "metadata": {"name": "forever", "generation": i64::MAX},
        "spec": {
            "nodeName": "n", "terminationGracePeriodSeconds": i64::MAX,
            "containers": [{"name": "c", "image": "i"}],
        },
    });
    let (code, body) = target.wire.ask("POST", pods, JSON, pod.to_string().as_bytes()).await;
    assert_eq!(code, 201, "{body}");
    let path = format!("{pods}/forever");
    for query in ["", "?gracePeriodSeconds=9223372036854775807", "?gracePeriodSeconds=-1"] {
        let (code, body) = target.wire.ask("DELETE", &format!("{path}{query}"), "", b"").await;
        assert_eq!(code, 200, "{query}: {body}");
        target.assert_alive();
    }
    let (code, _) = target.wire.ask("GET", &path, "", b"").await;
    assert_eq!(code, 404, "a negative grace is none");

    let map = json!({"metadata": {"name": "old", "generation": i64::MAX}});
    let (code, body) = target.wire.ask("POST", CONFIG_MAPS, JSON, map.to_string().as_bytes()).await;
    assert_eq!(code, 201, "{body}");
    let (code, body) = target.wire.ask("DELETE", &format!("{CONFIG_MAPS}/old"), "", b"").await;
    assert_eq!(code, 200, "{body}");
    target.assert_unharmed("numbers at their ends").await;
    target.end();
}

#[tokio::test]
async fn connections_without_a_token_keep_nobody_out_and_harm_nobody_who_has_shown_one() {
    let mut target = Target::new().await;
    let api: Api<ConfigMap> = Api::default_namespaced(target.server.client().await);
    let version = api.get("a").await.expect("it is there").resource_version().expect("a version");
    let watch = api.watch(&WatchParams::default(), &version).await.expect("a watch");
    let mut watch = std::pin::pin!(watch);
    // More than one client may hold: the oldest of them go, and a newcomer finds a place.
    let mut strangers = Vec::new();
    for number in 0..600 {
        let stream = TcpStream::connect(target.server.address).await.expect("a connection");
        strangers.push(stream);
        if number % 200 == 199 {
            target.assert_unharmed("strangers").await;
        }
    }
    let mut open = 0;
    for stream in &mut strangers {
        let mut byte = [0];
        let read = tokio::time::timeout(Duration::from_millis(10), stream.read(&mut byte));
        open += usize::from(read.await.is_err());
    }
    assert!(open <= 256, "{open} of one client stay");
    let object = serde_json::from_value(json!({"metadata": {"name": "b"}})).unwrap();
    api.create(&PostParams::default(), &object).await.expect("a write");
    let told = tokio::time::timeout(Duration::from_secs(30), watch.next()).await.expect("in time");
    assert!(matches!(told, Some(Ok(WatchEvent::Added(it))) if it.name_any() == "b"));
    target.before = target.held().await;
    target.assert_unharmed("strangers").await;
    target.end();
}
