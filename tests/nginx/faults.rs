//! What goes wrong around nginx: traffic flows on what is there, and everything converges without help.

use crate::edge::{args, master, play, signal, workers};
use crate::stage::{Stage, agent_kubeconfig, answers, http, serves, start_agent_with};
use bowline_testing::{Authority, Dial, objects};
use serde_json::json;
use std::collections::BTreeSet;

async fn served(stage: &Stage) -> bowline_testing::Backend {
    let a = http("a").await;
    stage.behind("web", &[&a]).await;
    stage.ingress("web", &[("web.example", "/", "Prefix", "web")]).await;
    serves(&stage.dial(80), "web.example", "/", "a").await;
    a
}

/// What docs/metrics.md says of nginx.
fn documented() -> BTreeSet<String> {
    let page = include_str!("../../docs/metrics.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `bowline_nginx_"));
    rows.filter_map(|rest| Some(format!("bowline_nginx_{}", rest.split_once('`')?.0))).collect()
}

/// What the agent shows of it.
async fn shown(stage: &Stage) -> BTreeSet<String> {
    let dial = Dial::to(stage.agent.admin.ip(), stage.agent.admin.port());
    let text = dial.get("localhost", "/metrics").await.expect("metrics").text();
    let lines = text.lines().filter(|line| line.starts_with("bowline_nginx_"));
    lines.filter_map(|line| Some(line.split_once([' ', '{'])?.0.to_owned())).collect()
}

#[test]
fn nginx_that_is_killed_comes_back_with_what_is_wanted_now() {
    play(async |stage| {
        let _a = served(stage).await;
        assert_eq!(documented(), shown(stage).await);
        let before = master(&stage.lb);
        signal(before, "KILL");
        let b = http("b").await;
        stage.served_by("web", &[&b]).await;
        serves(&stage.dial(80), "web.example", "/", "b").await;
        assert_ne!(master(&stage.lb), before);

        // A worker is its master's to replace.
        let master_before = master(&stage.lb);
        let killed = *workers(&stage.lb).first().expect("a worker");
        signal(killed, "KILL");
        let a = http("a").await;
        stage.served_by("web", &[&a]).await;
        serves(&stage.dial(80), "web.example", "/", "a").await;
        assert_eq!(master(&stage.lb), master_before);
    });
}

#[test]
fn an_agent_that_is_killed_leaves_nginx_serving_and_the_next_one_takes_it_over() {
    play(async |stage| {
        let _a = served(stage).await;
        let before = master(&stage.lb);
        stage.agent.process.end();
        serves(&stage.dial(80), "web.example", "/", "a").await;
        let kubeconfig = agent_kubeconfig(&stage.cluster, &stage.lb).await;
        let args = args(&stage.lb);
        let args: Vec<_> = args.iter().map(String::as_str).collect();
        let running = workers(&stage.lb);
        stage.agent = start_agent_with(&stage.cluster, &kubeconfig, &stage.lb, &args);
        stage.agent.ready().await;
        serves(&stage.dial(80), "web.example", "/", "a").await;
        // Some may have been about to end when the agent was killed.
        let now = workers(&stage.lb);
        assert!(now.is_subset(&running), "nothing needed a reload: {running:?}, {now:?}");
        let b = http("b").await;
        stage.served_by("web", &[&b]).await;
        serves(&stage.dial(80), "web.example", "/", "b").await;
        assert_eq!(master(&stage.lb), before);
    });
}

#[test]
fn what_nginx_refuses_is_left_out_and_told_and_the_others_are_served() {
    play(async |stage| {
        let _a = served(stage).await;
        let authority = Authority::new();
        let (good, other) = (authority.issue(&["bad.example"]), authority.issue(&["x.example"]));
        let mut mixed = good.clone();
        mixed.key = other.key;
        stage.apply(objects::tls_secret("bad", &mixed)).await;
        let rules = [("bad.example", "/", "Prefix", "web")];
        let mut ingress = objects::ingress("bad", &stage.lb, &rules);
        ingress["spec"]["tls"] = json!([{"hosts": ["bad.example"], "secretName": "bad"}]);
        stage.apply(ingress).await;
        stage.ingress("later", &[("later.example", "/", "Prefix", "web")]).await;
        serves(&stage.dial(80), "later.example", "/", "a").await;
        stage.told("Ingress", "bad", "BadCertificate").await;
        answers(&stage.dial(80), "bad.example", "/", 308).await;

        stage.apply(objects::tls_secret("bad", &good)).await;
        let dial = stage.dial(443).tls(&authority.trusted(&[]), "bad.example");
        serves(&dial, "bad.example", "/", "a").await;
    });
}
