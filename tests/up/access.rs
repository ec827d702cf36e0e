//! Who gets in: tokens, TLS, and that nobody can keep the others out by being slow.

use crate::bowline::{Bowline, Start};
use crate::wire::{Wire, status};
use bowline_apiserver::pki::Credentials;
use bowline_testing::Scratch;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn bearer(token: &str) -> String {
    format!("authorization: Bearer {token}\r\n")
}

/// What stands in the way: code and reason of a Status.
fn reason(body: &str) -> (Value, Value) {
    let status: Value = serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {body}"));
    assert_eq!(status["kind"], "Status", "{body}");
    (status["code"].clone(), status["reason"].clone())
}

#[tokio::test]
async fn without_the_token_there_is_401_wherever_one_asks() {
    let scratch = Scratch::new();
    let server = Start::new(&scratch).ready();
    let wire = Wire::to(&server);
    let token = server.token("admin");
    let wrong = [
        String::new(),
        bearer(""),
        bearer("wrong"),
        bearer(&token[1..]),
        bearer(&format!("{token}0")),
        bearer(&token.to_uppercase()),
        format!("authorization: Basic {token}\r\n"),
        format!("x-authorization: Bearer {token}\r\n"),
        "x-remote-user: admin\r\nx-remote-group: system:masters\r\n".to_owned(),
    ];
    for (index, headers) in wrong.iter().enumerate() {
        let mut paths = vec![CONFIG_MAPS];
        if index < 3 {
            paths.extend([
                "/api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=1",
                "/api/v1/namespaces/default/secrets",
                "/api",
                "/apis",
                "/apis/bowline.dev/v1alpha1",
                "/openapi/v3",
                "/openapi/v2",
                "/nowhere",
                "/apis/nothing/v1/nowhere",
                "/",
                "/apis/bowline.dev/v1alpha1/loadbalancers/a/status",
            ]);
        }
        for path in paths {
            let (code, body) = wire.ask_with("GET", path, headers, b"").await;
            assert_eq!(code, 401, "{path} with {headers:?}: {body}");
            assert_eq!(reason(&body), (json!(401), json!("Unauthorized")), "{path}");
        }
        for method in ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW"] {
            let (code, body) = wire.ask_with(method, CONFIG_MAPS, headers, b"{}").await;
            assert_eq!(code, 401, "{method} with {headers:?}: {body}");
        }
    }
    for open in ["/livez", "/readyz", "/healthz", "/version"] {
        let (code, body) = wire.ask_with("GET", open, "", b"").await;
        assert_eq!(code, 200, "{open}: {body}");
        assert!(!body.contains(&token));
    }
    assert!(!server.service.log().contains(&token), "a token is in the log");
    server.assert_never_panicked();
}

#[tokio::test]
async fn the_second_token_reads_everything_but_secrets_and_writes_nothing() {
    let scratch = Scratch::new();
    let server = Start::new(&scratch).ready();
    let wire = Wire::to(&server);
    let api: Api<ConfigMap> = Api::default_namespaced(server.client().await);
    let object = json!({"metadata": {"name": "a"}});
    let object: ConfigMap = serde_json::from_value(object).unwrap();
    let before = api.create(&PostParams::default(), &object).await.expect("a write");

    let reader = bearer(&server.token("read-only"));
    let one = format!("{CONFIG_MAPS}/a");
    let watch = format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=1");
    for path in [CONFIG_MAPS, &one, &watch, "/api/v1/configmaps", "/apis", "/openapi/v3"] {
        let (code, body) = wire.ask_with("GET", path, &reader, b"").await;
        assert_eq!(code, 200, "{path}: {body}");
    }
    for path in [
        "/api/v1/secrets",
        "/api/v1/namespaces/default/secrets",
        "/api/v1/namespaces/default/secrets/a",
        "/api/v1/namespaces/default/secrets?watch=1",
        "/api/v1/namespaces/default/secrets/a?watch=true",
    ] {
        let (code, body) = wire.ask_with("GET", path, &reader, b"").await;
        assert_eq!(code, 403, "{path}: {body}");
        assert_eq!(reason(&body), (json!(403), json!("Forbidden")), "{path}");
    }
    let json = format!("{reader}content-type: application/json\r\n");
    let merge = format!("{reader}content-type: application/merge-patch+json\r\n");
    let body =
        br#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"b":"c"}}"#;
    let nodes = "/api/v1/nodes/a/status";
    for (method, path, headers) in [
        ("POST", CONFIG_MAPS, &json),
        ("PUT", &one, &json),
        ("PATCH", &one, &merge),
        ("DELETE", &one, &reader),
        ("DELETE", CONFIG_MAPS, &reader),
        ("PUT", nodes, &json),
        ("POST", "/api/v1/namespaces", &json),
        ("PUT", "/api/v1/namespaces/default/finalize", &json),
        ("PATCH", "/apis/apps/v1/namespaces/default/deployments/a/scale", &merge),
        ("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &json),
        ("POST", "/apis/bowline.dev/v1alpha1/loadbalancers", &json),
    ] {
        let (code, text) = wire.ask_with(method, path, headers, body).await;
        assert_eq!(code, 403, "{method} {path}: {text}");
        assert_eq!(reason(&text), (json!(403), json!("Forbidden")), "{method} {path}");
    }
    assert_eq!(api.get("a").await.expect("it is there"), before);
    server.assert_never_panicked();
}

#[tokio::test]
async fn its_port_speaks_tls_of_its_own_authority_and_nothing_else() {
    let scratch = Scratch::new();
    let server = Start::new(&scratch).ready();
    let stranger = Credentials::ephemeral("other", server.address).expect("another authority");
    let trusting = Wire::trusting(&server, stranger.authority().as_bytes());
    let error = trusting.connect().await.expect_err("a stranger's authority");
    assert!(error.to_string().contains("certificate"), "{error}");
    Wire::to(&server).connect().await.expect("its own authority");

    let mut stream = TcpStream::connect(server.address).await.expect("a connection");
    let token = server.token("admin");
    let request = format!("GET /version HTTP/1.1\r\nhost: a\r\n{}\r\n", bearer(&token));
    stream.write_all(request.as_bytes()).await.expect("it is sent");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let text = String::from_utf8_lossy(&answer);
    assert!(!text.contains("gitVersion") && !text.contains("HTTP/1.1 200"), "{text}");
}

/// Whether somebody who asks is answered.
async fn answers(server: &Bowline, wire: &Wire) {
    let asked = wire.ask_with("GET", "/readyz", "", b"");
    let (code, _) = tokio::time::timeout(Duration::from_secs(10), asked).await.expect("an answer");
    assert_eq!(code, 200);
    server.assert_never_panicked();
}

#[tokio::test]
async fn clients_that_never_finish_do_not_keep_others_waiting() {
    let scratch = Scratch::new();
    let mut server = Start::new(&scratch).ready();
    let wire = Wire::to(&server);
    let mut silent = Vec::new();
    let mut unfinished = Vec::new();
    let head = format!(
        "POST {CONFIG_MAPS} HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: 100\r\n{}",
        bearer(&server.token("admin"))
    );
    for index in 0..40 {
        let mut stream = TcpStream::connect(server.address).await.expect("a connection");
        stream.write_all(&[22, 3, 1, 2, 0][..index % 5]).await.expect("it is sent");
        silent.push(stream);
        let mut stream = wire.connect().await.expect("a connection");
        let sent = match index % 3 {
            0 => String::new(),
            1 => head.clone(),
            _ => format!("{head}\r\n{{\"a"),
        };
        stream.write_all(sent.as_bytes()).await.expect("it is sent");
        stream.flush().await.expect("it is sent");
        unfinished.push(stream);
        answers(&server, &wire).await;
    }
    // Nor do they keep the server from ending.
    assert_eq!(server.stop(), Some(0));
    let mut rest = Vec::new();
    let _ = unfinished[2].read_to_end(&mut rest).await;
    assert_ne!(status(&rest), 201, "half a body was taken for a whole one");
}
