//! Ingresses over TLS: certificates by server name, their rotation, the redirect, and what is refused
//! rather than served in the clear.

use crate::stage::{Stage, answers, http, play, serves};
use bowline_testing::objects;
use bowline_testing::{Authority, Backend, Dial, Issued, Request, eventually};
use rustls::ClientConfig;
use serde_json::{Value, json};
use std::sync::Arc;

/// An Ingress of one host to the Service `web`, with a certificate in the Secret of this name.
fn secure(stage: &Stage, name: &str, host: &str, secret: &str) -> Value {
    let mut ingress = objects::ingress(name, &stage.lb, &[(host, "/", "Prefix", "web")]);
    ingress["spec"]["tls"] = json!([{"hosts": [host], "secretName": secret}]);
    ingress
}

/// A backend behind an Ingress with TLS, served already.
async fn served(stage: &Stage, authority: &Authority, host: &str) -> (Backend, Arc<ClientConfig>) {
    let a = http("a").await;
    stage.behind("web", &[&a]).await;
    stage.apply(objects::tls_secret("web-tls", &authority.issue(&[host]))).await;
    stage.apply(secure(stage, "web", host, "web-tls")).await;
    let trusted = authority.trusted(&[]);
    serves(&stage.dial(443).tls(&trusted, host), host, "/", "a").await;
    (a, trusted)
}

/// The certificate in a PEM file, to compare with what a connection shows.
fn der(issued: &Issued) -> Vec<u8> {
    use rustls::pki_types::{CertificateDer, pem::PemObject as _};
    CertificateDer::from_pem_slice(issued.certificate.as_bytes()).expect("a certificate").to_vec()
}

async fn shows(dial: &Dial, issued: &Issued) {
    let want = der(issued);
    eventually("the certificate", || async {
        let shown = dial.certificate().await?;
        if shown.to_vec() == want { Ok(()) } else { Err("another certificate".to_owned()) }
    })
    .await;
}

#[test]
fn each_host_shows_its_own_certificate() {
    play(async |stage| {
        let authority = Authority::new();
        let a = http("a").await;
        stage.behind("web", &[&a]).await;
        let (one, two) = (authority.issue(&["one.example"]), authority.issue(&["*.two.example"]));
        stage.apply(objects::tls_secret("one", &one)).await;
        stage.apply(objects::tls_secret("two", &two)).await;
        stage.apply(secure(stage, "one", "one.example", "one")).await;
        stage.apply(secure(stage, "two", "*.two.example", "two")).await;
        let trusted = authority.trusted(&[]);
        let dial = |name: &str| stage.dial(443).tls(&trusted, name);
        shows(&dial("one.example"), &one).await;
        shows(&dial("any.two.example"), &two).await;
        serves(&dial("any.two.example"), "any.two.example", "/", "a").await;
        let echo = dial("one.example").get("one.example", "/").await.and_then(|it| it.echo());
        assert_eq!(
            echo.map(|it| it.header("x-forwarded-proto").to_owned()).as_deref(),
            Ok("https")
        );
        shows(&stage.dial6(443).tls(&trusted, "one.example"), &one).await;
        dial("unknown.example").certificate().await.expect_err("no certificate for strangers");
    });
}

#[test]
fn a_new_certificate_is_shown_to_new_connections_and_old_ones_go_on() {
    play(async |stage| {
        let authority = Authority::new();
        let (_a, trusted) = served(stage, &authority, "web.example").await;
        let dial = stage.dial(443).tls(&trusted, "web.example");
        let mut old = dial.session().await.expect("a connection");
        let new = authority.issue(&["web.example"]);
        stage.apply(objects::tls_secret("web-tls", &new)).await;
        shows(&dial, &new).await;
        let echo = old.get("web.example", "/").await.and_then(|it| it.echo());
        assert_eq!(echo.map(|it| it.name).as_deref(), Ok("a"), "the connection of before");
    });
}

#[test]
fn http2_and_websockets_are_spoken_over_tls() {
    play(async |stage| {
        let authority = Authority::new();
        let (_a, trusted) = served(stage, &authority, "web.example").await;
        let h2 = authority.trusted(&["h2"]);
        let dial = stage.dial(443).tls(&h2, "web.example").http2();
        serves(&dial, "web.example", "/", "a").await;
        let mut session = dial.session().await.expect("a connection");
        for path in ["/1", "/2"] {
            let echo = session.send(Request::post("web.example", path, "body")).await;
            assert_eq!(echo.and_then(|it| it.echo()).map(|it| it.path).as_deref(), Ok(path));
        }
        let dial = stage.dial(443).tls(&trusted, "web.example");
        let mut socket = dial.websocket("web.example", "/ws").await.expect("WebSocket");
        assert_eq!(socket.ask("hello").await.as_deref(), Ok("a:hello"));
    });
}

#[test]
fn requests_in_clear_text_are_sent_to_https_unless_that_is_switched_off() {
    play(async |stage| {
        let authority = Authority::new();
        let (_a, _) = served(stage, &authority, "web.example").await;
        let answer = stage.dial(80).get("web.example", "/path?q=1").await.expect("an answer");
        assert!(matches!(answer.status, 301 | 308), "{}", answer.status);
        assert_eq!(answer.header("location"), "https://web.example/path?q=1");
        let off = json!({"metadata": {"annotations": {"bowline.dev/https-redirect": "false"}}});
        stage.patch("Ingress", "web", off).await;
        serves(&stage.dial(80), "web.example", "/", "a").await;
    });
}

#[test]
fn a_host_whose_certificate_is_missing_is_served_neither_way() {
    play(async |stage| {
        let authority = Authority::new();
        let a = http("a").await;
        stage.behind("web", &[&a]).await;
        stage.apply(secure(stage, "web", "web.example", "later")).await;
        stage.told("Ingress", "web", "SecretNotFound").await;
        let trusted = authority.trusted(&[]);
        let dial = stage.dial(443).tls(&trusted, "web.example");
        dial.certificate().await.expect_err("no handshake");
        eventually("the redirect", || async {
            let answer = stage.dial(80).get("web.example", "/").await?;
            if matches!(answer.status, 301 | 308) { Ok(()) } else { Err(answer.text()) }
        })
        .await;
        assert_eq!(a.requests(), 0, "nothing was served in the clear");
        let issued = authority.issue(&["web.example"]);
        stage.apply(objects::tls_secret("later", &issued)).await;
        serves(&dial, "web.example", "/", "a").await;
    });
}

#[test]
fn a_secret_that_is_no_certificate_harms_only_its_own_host() {
    play(async |stage| {
        let authority = Authority::new();
        let (_a, trusted) = served(stage, &authority, "web.example").await;
        let nonsense = Issued { certificate: "no PEM at all".into(), key: "\0\u{1}".into() };
        stage.apply(objects::tls_secret("nonsense", &nonsense)).await;
        stage.apply(secure(stage, "bad", "bad.example", "nonsense")).await;
        stage.told("Ingress", "bad", "BadCertificate").await;
        // A key that is not the certificate's.
        let (one, two) = (authority.issue(&["odd.example"]), authority.issue(&["odd.example"]));
        let mismatched = Issued { certificate: one.certificate, key: two.key };
        stage.apply(objects::tls_secret("mismatched", &mismatched)).await;
        stage.apply(secure(stage, "odd", "odd.example", "mismatched")).await;
        stage.told("Ingress", "odd", "BadCertificate").await;
        for host in ["bad.example", "odd.example"] {
            let dial = stage.dial(443).tls(&trusted, host);
            dial.certificate().await.expect_err("no handshake");
        }
        serves(&stage.dial(443).tls(&trusted, "web.example"), "web.example", "/", "a").await;
        // The last good certificate of a host is not kept for a bad one: what is shown is what is asked.
        stage.apply(objects::tls_secret("web-tls", &nonsense)).await;
        let dial = stage.dial(443).tls(&trusted, "web.example");
        eventually("no handshake", || async {
            match dial.certificate().await {
                Ok(_) => Err("a certificate".to_owned()),
                Err(_) => Ok(()),
            }
        })
        .await;
    });
}

#[test]
fn a_connection_for_one_host_does_not_serve_another_with_a_different_certificate() {
    play(async |stage| {
        let authority = Authority::new();
        let (_a, trusted) = served(stage, &authority, "web.example").await;
        let other = authority.issue(&["other.example"]);
        stage.apply(objects::tls_secret("other", &other)).await;
        stage.apply(secure(stage, "other", "other.example", "other")).await;
        shows(&stage.dial(443).tls(&trusted, "other.example"), &other).await;
        answers(&stage.dial(443).tls(&trusted, "web.example"), "other.example", "/", 421).await;
    });
}

#[test]
fn a_certificate_that_nobody_uses_any_more_is_shown_no_more() {
    play(async |stage| {
        let authority = Authority::new();
        let (_a, trusted) = served(stage, &authority, "web.example").await;
        stage.delete("Ingress", "web").await;
        let dial = stage.dial(443).tls(&trusted, "web.example");
        eventually("no handshake", || async {
            match dial.certificate().await {
                Ok(_) => Err("a certificate".to_owned()),
                Err(_) => Ok(()),
            }
        })
        .await;
        let name = format!("bowline-tls-{}-0", stage.lb);
        eventually("the copy is gone", || async {
            let copy = stage.cluster.read("Secret", bowline_testing::SYSTEM, &name).await;
            let keys = copy["data"].as_object().map_or(0, serde_json::Map::len);
            if keys == 0 { Ok(()) } else { Err(format!("{keys} entries")) }
        })
        .await;
    });
}

#[test]
fn what_the_leader_records_keeps_its_label_and_its_owner_whoever_takes_them_away() {
    play(async |stage| {
        let (_a, _) = served(stage, &Authority::new(), "web.example").await;
        let owner = stage.cluster.read("LoadBalancer", "", &stage.lb).await;
        let secret = format!("bowline-tls-{}-0", stage.lb);
        let stranger = json!({
            "apiVersion": "bowline.dev/v1alpha1", "kind": "LoadBalancer", "name": stage.lb,
            "uid": "00000000-0000-0000-0000-000000000000",
        });
        for (kind, name) in [("Plan", format!("{}-0", stage.lb)), ("Secret", secret)] {
            let system = bowline_testing::SYSTEM;
            let before = stage.cluster.read(kind, system, &name).await;
            assert_eq!(before["metadata"]["ownerReferences"][0]["uid"], owner["metadata"]["uid"]);
            for edit in [
                json!({"labels": null}),
                json!({"ownerReferences": null}),
                json!({"ownerReferences": [stranger]}),
            ] {
                stage.cluster.patch(kind, system, &name, &json!({"metadata": edit})).await;
                eventually("label and owner are back", || async {
                    let now = stage.cluster.read(kind, system, &name).await;
                    let same = |what: &str| now["metadata"][what] == before["metadata"][what];
                    // Whose owner does not exist is deleted by a cluster's garbage collector, which may be
                    // first; then it is made again.
                    let collected = edit["ownerReferences"].is_array();
                    let all =
                        same("labels") && same("ownerReferences") && (same("uid") || collected);
                    if all { Ok(()) } else { Err(format!("{kind}: {}", now["metadata"])) }
                })
                .await;
            }
        }
    });
}
