//! What goes wrong around HAProxy: traffic flows on what is there, and everything converges without help.

use crate::edge::{args, folder, master, play, signal, workers};
use crate::stage::{Stage, agent_kubeconfig, http, serves, start_agent_with};
use bowline_testing::Dial;
use std::collections::BTreeSet;

async fn served(stage: &Stage) -> bowline_testing::Backend {
    let a = http("a").await;
    stage.behind("web", &[&a]).await;
    stage.ingress("web", &[("web.example", "/", "Prefix", "web")]).await;
    serves(&stage.dial(80), "web.example", "/", "a").await;
    a
}

/// What docs/metrics.md says of HAProxy.
fn documented() -> BTreeSet<String> {
    let page = include_str!("../../docs/metrics.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `bowline_haproxy_"));
    rows.filter_map(|rest| Some(format!("bowline_haproxy_{}", rest.split_once('`')?.0))).collect()
}

/// What the agent shows of it.
async fn shown(stage: &Stage) -> BTreeSet<String> {
    let dial = Dial::to(stage.agent.admin.ip(), stage.agent.admin.port());
    let text = dial.get("localhost", "/metrics").await.expect("metrics").text();
    let lines = text.lines().filter(|line| line.starts_with("bowline_haproxy_"));
    lines.filter_map(|line| Some(line.split_once([' ', '{'])?.0.to_owned())).collect()
}

#[test]
fn haproxy_that_is_killed_comes_back_with_what_is_wanted_now() {
    play(async |stage| {
        let _a = served(stage).await;
        let before = master(&stage.lb);
        let worker = workers(&stage.lb)[0];
        signal(worker, "KILL");
        let b = http("b").await;
        stage.served_by("web", &[&b]).await;
        serves(&stage.dial(80), "web.example", "/", "b").await;
        assert_ne!(master(&stage.lb), before);
        assert_eq!(shown(stage).await, documented());
    });
}

#[test]
fn a_socket_that_is_removed_is_made_again_and_traffic_flows_meanwhile() {
    play(async |stage| {
        let _a = served(stage).await;
        std::fs::remove_file(folder(&stage.lb).join("admin.sock")).expect("a socket");
        serves(&stage.dial(80), "web.example", "/", "a").await;
        let b = http("b").await;
        stage.served_by("web", &[&b]).await;
        serves(&stage.dial(80), "web.example", "/", "b").await;
    });
}

#[test]
fn an_agent_that_is_killed_leaves_haproxy_serving_and_the_next_one_takes_it_over() {
    play(async |stage| {
        let _a = served(stage).await;
        let before = (master(&stage.lb), workers(&stage.lb));
        stage.agent.process.end();
        serves(&stage.dial(80), "web.example", "/", "a").await;
        let kubeconfig = agent_kubeconfig(&stage.cluster, &stage.lb).await;
        let args = args(&stage.lb);
        let args: Vec<_> = args.iter().map(String::as_str).collect();
        stage.agent = start_agent_with(&stage.cluster, &kubeconfig, &stage.lb, &args);
        stage.agent.ready().await;
        let b = http("b").await;
        stage.served_by("web", &[&b]).await;
        serves(&stage.dial(80), "web.example", "/", "b").await;
        assert_eq!((master(&stage.lb), workers(&stage.lb)), before);
    });
}
