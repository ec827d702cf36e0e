//! What breaks, and what does not: a member, the agent, the controller, the API server.

use crate::stage::{
    Stage, TARGET, agent_kubeconfig, http, is_closed, lead_to, leads_to, names, play, serves,
    start_agent, start_agent_with, tcp,
};
use bowline_testing::{Authority, Dial, Link, Request, eventually, net, objects, unique};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

#[test]
fn a_member_that_dies_takes_only_its_own_requests_along() {
    play(async |stage| {
        let (a, b) = (http("a").await, http("b").await);
        stage.behind("web", &[&a, &b]).await;
        stage.ingress("web", &[("web.example", "/", "Prefix", "web")]).await;
        let dial = stage.dial(80);
        serves(&dial, "web.example", "/", "a").await;
        serves(&dial, "web.example", "/", "b").await;
        // Posts are not repeated elsewhere: they may have had an effect.
        let posts: Vec<_> = (0..10)
            .map(|_| {
                let dial = dial.clone();
                tokio::spawn(async move {
                    dial.send(Request::post("web.example", "/?delay=1500", "x")).await
                })
            })
            .collect();
        let before = (a.requests(), b.requests());
        eventually("all have arrived", || async {
            let arrived = a.requests() + b.requests();
            if arrived >= before.0 + before.1 + 10 { Ok(()) } else { Err(arrived.to_string()) }
        })
        .await;
        b.kill().await;
        let mut ended = BTreeMap::<String, usize>::new();
        for post in posts {
            let answer = post.await.expect("no panic").and_then(|it| it.echo());
            *ended.entry(answer.map_or_else(|_| "failed".into(), |it| it.name)).or_default() += 1;
        }
        assert_eq!(ended, BTreeMap::from([("a".into(), 5), ("failed".into(), 5)]));
        // It is still in the slice; what follows avoids it.
        assert_eq!(names(&dial, "web.example", 20).await, vec!["a"; 20]);
    });
}

#[test]
fn connections_avoid_an_endpoint_that_refuses_them_and_find_it_again() {
    play(async |stage| {
        let (a, b) = (tcp("a").await, tcp("b").await);
        let at = b.at;
        stage.service("web", 5000, &[&a, &b]).await;
        let dial = stage.dial(5000);
        lead_to(&dial, &["a", "b"]).await;
        b.kill().await;
        for _ in 0..20 {
            assert_eq!(dial.line().await.expect("a connection").name, "a");
        }
        let _b = bowline_testing::Backend::tcp("b", at.ip(), at.port()).await;
        lead_to(&dial, &["a", "b"]).await;
    });
}

#[test]
fn an_agent_that_is_killed_serves_again_after_its_restart() {
    play(async |stage| {
        let a = tcp("a").await;
        stage.service("web", 5000, &[&a]).await;
        leads_to(&stage.dial(5000), "a").await;
        stage.agent.process.kill();
        stage.dial(5000).tcp().await.expect_err("nobody listens");
        let kubeconfig = agent_kubeconfig(&stage.cluster, &stage.lb).await;
        stage.agent = start_agent(&stage.cluster, &kubeconfig, &stage.lb);
        stage.agent.ready().await;
        // Ready means that the plan is applied: there is nothing to wait for.
        assert_eq!(stage.dial(5000).line().await.expect("a connection").name, "a");
    });
}

#[test]
fn traffic_goes_on_while_the_api_server_is_away_and_changes_follow_when_it_is_back() {
    play(async |stage| {
        let (a, b) = (tcp("a").await, tcp("b").await);
        let kubeconfig = agent_kubeconfig(&stage.cluster, &stage.lb).await;
        let link = Link::new(&stage.cluster, &kubeconfig).await;
        stage.agent.stop();
        stage.agent = start_agent(&stage.cluster, &link.kubeconfig, &stage.lb);
        stage.service("web", 5000, &[&a]).await;
        leads_to(&stage.dial(5000), "a").await;
        let mut old = stage.dial(5000).line().await.expect("a connection");
        link.cut();
        stage.served_by("web", &[&b]).await;
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(2) {
            assert_eq!(stage.dial(5000).line().await.expect("a connection").name, "a");
            assert_eq!(old.ask("x").await.as_deref(), Ok("x"));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        link.mend();
        lead_to(&stage.dial(5000), &["b"]).await;
    });
}

/// What an agent says of itself.
async fn said(stage: &Stage, path: &str) -> (u16, String) {
    let admin = stage.agent.admin;
    let answer =
        Dial::to(admin.ip(), admin.port()).get("localhost", path).await.expect("an answer");
    (answer.status, answer.text())
}

#[test]
fn an_agent_that_is_killed_while_the_api_is_away_serves_what_it_kept_and_follows_when_it_is_back() {
    play(async |stage| {
        let (a, b, web) = (tcp("a").await, tcp("b").await, http("web").await);
        let authority = Authority::new();
        let kubeconfig = agent_kubeconfig(&stage.cluster, &stage.lb).await;
        let link = Link::new(&stage.cluster, &kubeconfig).await;
        let folder = stage.cluster.scratch().join(format!("state-{}", stage.lb));
        let state = folder.display().to_string();
        stage.agent.stop();
        let start = |stage: &Stage| {
            let args = ["--state", state.as_str()];
            start_agent_with(&stage.cluster, &link.kubeconfig, &stage.lb, &args)
        };
        stage.agent = start(stage);
        stage.service("plain", 5000, &[&a]).await;
        stage.behind("web", &[&web]).await;
        stage.apply(objects::tls_secret("web-tls", &authority.issue(&["web.example"]))).await;
        let mut ingress =
            objects::ingress("web", &stage.lb, &[("web.example", "/", "Prefix", "web")]);
        ingress["spec"]["tls"] = json!([{"hosts": ["web.example"], "secretName": "web-tls"}]);
        stage.apply(ingress).await;
        let secure = stage.dial(443).tls(&authority.trusted(&[]), "web.example");
        leads_to(&stage.dial(5000), "a").await;
        serves(&secure, "web.example", "/", "web").await;
        assert_eq!(said(stage, "/readyz").await, (200, "ok\n".to_owned()));
        // What is served is kept a second later at the latest.
        eventually("the state", || async {
            let kept = std::fs::read_to_string(folder.join("state")).unwrap_or_default();
            let all = ["web.example", &a.at.to_string(), &web.at.to_string(), "PRIVATE KEY"];
            if all.iter().all(|it| kept.contains(it)) {
                Ok(())
            } else {
                Err(kept.len().to_string())
            }
        })
        .await;

        stage.agent.process.kill();
        link.cut();
        stage.dial(5000).tcp().await.expect_err("nobody listens");
        stage.agent = start(stage);
        stage.agent.ready().await;
        assert_eq!(stage.dial(5000).line().await.expect("a connection").name, "a");
        serves(&secure, "web.example", "/", "web").await;
        let (_, text) = said(stage, "/readyz").await;
        assert!(
            text.starts_with("ok\n") && text.contains("is served from the kept state of"),
            "{text}"
        );
        assert!(stage.agent.process.log().contains("is served from the kept state of"));
        assert!(stage.agent.metric("bowline_kept_since_seconds").await > 1e9);

        // The API is back, and somebody else is there: no connection is refused on the way.
        stage.served_by("plain", &[&b]).await;
        link.mend();
        let dial = stage.dial(5000);
        eventually("the new member", || async {
            let name = dial.line().await.expect("never refused").name;
            if name == "b" { Ok(()) } else { Err(name) }
        })
        .await;
        lead_to(&dial, &["b"]).await;
        serves(&secure, "web.example", "/", "web").await;
        eventually("to follow the API", || async {
            let (_, text) = said(stage, "/readyz").await;
            if text == "ok\n" { Ok(()) } else { Err(text) }
        })
        .await;
        assert_eq!(stage.agent.metric("bowline_kept_since_seconds").await, 0.0);

        // What is not whole is not used, and the agent starts all the same.
        stage.agent.process.kill();
        std::fs::write(folder.join("state"), "x").expect("written");
        stage.agent = start(stage);
        stage.agent.ready().await;
        leads_to(&dial, "b").await;
        assert!(stage.agent.process.log().contains("the kept state is ignored"));
    });
}

#[test]
fn a_request_under_way_is_answered_when_the_agent_is_told_to_stop() {
    play(async |stage| {
        let a = http("a").await;
        stage.behind("web", &[&a]).await;
        stage.ingress("web", &[("web.example", "/", "Prefix", "web")]).await;
        stage.service("plain", 5000, &[&a]).await;
        let (web, plain) = (stage.dial(80), stage.dial(5000));
        serves(&web, "web.example", "/", "a").await;
        serves(&plain, "web.example", "/", "a").await;
        let before = a.requests();
        let slow: Vec<_> = [web.clone(), plain]
            .into_iter()
            .map(|dial| tokio::spawn(async move { dial.get("web.example", "/?delay=1500").await }))
            .collect();
        eventually("they have arrived", || async {
            if a.requests() == before + 2 { Ok(()) } else { Err(a.requests().to_string()) }
        })
        .await;
        stage.agent.process.signal("TERM");
        eventually("it accepts nothing more", || async {
            match web.tcp().await {
                Ok(_) => Err("a connection".to_owned()),
                Err(_) => Ok(()),
            }
        })
        .await;
        for request in slow {
            let echo = request.await.expect("no panic").and_then(|it| it.echo());
            assert_eq!(echo.map(|it| it.name).as_deref(), Ok("a"));
        }
        assert_eq!(stage.agent.process.wait(), Some(0));
        let kubeconfig = agent_kubeconfig(&stage.cluster, &stage.lb).await;
        stage.agent = start_agent(&stage.cluster, &kubeconfig, &stage.lb);
        stage.agent.ready().await;
    });
}

#[test]
fn a_load_balancer_without_its_agent_is_not_running_and_says_so() {
    play(async |stage| {
        let a = tcp("a").await;
        stage.service("web", 5000, &[&a]).await;
        phase_is(stage, |phase| phase == "Running").await;
        stage.agent.process.kill();
        phase_is(stage, |phase| phase != "Running").await;
        let kubeconfig = agent_kubeconfig(&stage.cluster, &stage.lb).await;
        stage.agent = start_agent(&stage.cluster, &kubeconfig, &stage.lb);
        phase_is(stage, |phase| phase == "Running").await;
    });
}

async fn phase_is(stage: &Stage, wanted: impl Fn(&str) -> bool) {
    eventually("the phase", || async {
        let lb = stage.cluster.read("LoadBalancer", "", &stage.lb).await;
        let phase = lb["status"]["phase"].as_str().unwrap_or_default();
        if wanted(phase) { Ok(()) } else { Err(lb["status"].to_string()) }
    })
    .await;
}

#[test]
fn an_agent_that_runs_another_proxy_than_its_load_balancer_needs_serves_nothing_and_says_which() {
    play(async |stage| {
        let (name, vip) = (format!("lb-{}", unique()), net::vip4());
        let mut lb = objects::load_balancer(&name, &[vip]);
        lb["spec"].as_object_mut().expect("a spec").remove("builtin");
        lb["spec"]["bareMetalLoadBalancer"] = json!({"type": "Haproxy", "serviceName": "edge"});
        stage.cluster.owns("loadbalancer", &name);
        stage.cluster.apply("", &lb).await;
        let says = async |text: &str| {
            eventually(&format!("the load balancer says {text}"), || async {
                let lb = stage.cluster.read("LoadBalancer", "", &name).await;
                let status = &lb["status"];
                let message = status["message"].as_str().unwrap_or_default();
                let so = status["phase"] == "Pending" && message.contains(text);
                if so { Ok(()) } else { Err(status.to_string()) }
            })
            .await;
        };
        says(&format!("start one with `bowline agent --load-balancer {name} --driver haproxy`"))
            .await;
        let a = tcp("a").await;
        stage.apply(objects::service("web", &name, &[(5000, TARGET)])).await;
        stage.served_by("web", &[&a]).await;
        let kubeconfig = agent_kubeconfig(&stage.cluster, &name).await;
        let mut agent = start_agent(&stage.cluster, &kubeconfig, &name);
        says("the agent runs --driver builtin").await;
        says("needs haproxy: start it with --driver haproxy").await;
        is_closed(&Dial::to(vip, 5000)).await;
        agent.process.assert_alive();
        agent.process.end();
        stage.delete("Service", "web").await;
        stage.cluster.delete("LoadBalancer", "", &name).await;
    });
}
