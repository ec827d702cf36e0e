//! What a Service asks of the way to its members, as clients and members meet it; also when it asks while they
//! serve.

use crate::play::{play, unharmed};
use crate::stage::{TARGET, annotate, answers, http, leads_to, serves, tcp};
use bowline_testing::{eventually, objects};
use serde_json::{Value, json};

/// A port with a name, so that something can be said of it.
const NAMED: (&str, u16, &str) = ("p", TARGET, "TCP");

#[test]
fn members_that_speak_http2_in_clear_text_are_spoken_to_so() {
    play(async |stage| {
        let a = http("a").await;
        stage.behind("web", &[&a]).await;
        stage.ingress("web", &[("web.example", "/", "Prefix", "web")]).await;
        let dial = stage.dial(80);
        serves(&dial, "web.example", "/", "a").await;
        // Asked for while it serves.
        let mut service = objects::cluster_service("web", 80, TARGET);
        service["spec"]["ports"][0]["appProtocol"] = json!("kubernetes.io/h2c");
        let spoken = unharmed(&dial, "web.example", async {
            stage.apply(service).await;
            eventually("HTTP/2", || async {
                let version = dial.get("web.example", "/").await?.echo()?.version;
                if version == "HTTP/2.0" { Ok(version) } else { Err(version) }
            })
            .await
        })
        .await;
        assert_eq!(spoken, "HTTP/2.0");
    });
}

#[test]
fn silence_ends_what_it_is_said_to_end() {
    play(async |stage| {
        let (a, b) = (http("a").await, tcp("b").await);
        let mut web = objects::cluster_service("web", 80, TARGET);
        let mut db = objects::service("db", &stage.lb, &[(5432, TARGET)]);
        for (service, backend) in [(&mut web, &a), (&mut db, &b)] {
            service["spec"]["ports"][0]["name"] = json!("p");
            stage.apply(service.clone()).await;
            let name = service["metadata"]["name"].as_str().expect("a name");
            let ready = [objects::Endpoint::ready(backend.at.ip())];
            stage.apply(objects::slice(name, NAMED, &ready)).await;
        }
        stage.ingress("web", &[("web.example", "/", "Prefix", "web")]).await;
        let dial = stage.dial(80);
        answers(&dial, "web.example", "/?delay=1500", 200).await;
        leads_to(&stage.dial(5432), "b").await;
        for mut service in [web, db] {
            annotate(&mut service, "bowline.dev/backend-timeout", "{\"p\": 700}");
            stage.apply(service).await;
        }
        answers(&dial, "web.example", "/?delay=1500", 504).await;
        answers(&dial, "web.example", "/", 200).await;
        eventually("a silent connection that ends", || async {
            let mut line = stage.dial(5432).line().await?;
            line.ask("x").await?;
            tokio::time::sleep(std::time::Duration::from_millis(1_500)).await;
            match line.ask("y").await {
                Ok(_) => Err("it goes on".to_owned()),
                Err(_) => Ok(()),
            }
        })
        .await;
    });
}

#[test]
fn no_request_fails_while_an_ingress_changes_its_service() {
    play(async |stage| {
        let (a, b) = (http("a").await, http("b").await);
        stage.behind("one", &[&a]).await;
        stage.behind("two", &[&b]).await;
        stage.ingress("web", &[("web.example", "/", "Prefix", "one")]).await;
        let dial = stage.dial(80);
        serves(&dial, "web.example", "/", "a").await;
        for (service, path, name) in [("two", "Prefix", "b"), ("one", "Exact", "a")] {
            unharmed(&dial, "web.example", async {
                stage.ingress("web", &[("web.example", "/", path, service)]).await;
                serves(&dial, "web.example", "/", name).await;
            })
            .await;
        }
    });
}

#[test]
fn each_request_is_logged_as_it_was_answered() {
    play(async |stage| {
        let a = http("a").await;
        stage.behind("web", &[&a]).await;
        stage.ingress("web", &[("web.example", "/shop", "Prefix", "web")]).await;
        let dial = stage.dial(80);
        serves(&dial, "web.example", "/shop/cart", "a").await;
        answers(&dial, "web.example", "/other", 404).await;
        let (vip, member) = (format!("{}:80", stage.vip), a.at.to_string());
        for (path, status, member) in [("/shop/cart", 200, &*member), ("/other", 404, "")] {
            eventually("a line of this request", || async {
                let log = stage.agent.process.log();
                let mut lines = log.lines().filter_map(|it| serde_json::from_str::<Value>(it).ok());
                // Before it was served it was asked for, too.
                let of_this = |it: &Value| it["path"] == path && it["status"] == status;
                let found = lines.find(of_this).ok_or(path)?;
                assert_eq!(
                    (&found["method"], &found["host"]),
                    (&json!("GET"), &json!("web.example"))
                );
                assert_eq!(found["listener"], vip.as_str(), "{found}");
                let by = found["member"].as_str().expect("text");
                assert!(by == member || status == 404, "{found}");
                Ok(())
            })
            .await;
        }
    });
}
