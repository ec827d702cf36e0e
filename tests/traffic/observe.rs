//! What people and their tools see from outside: the metrics that docs/metrics.md promises, logs that a
//! program can read, a line for each request. Each test has controllers of its own, to look at them.

use crate::stage::{
    Stage, TARGET, agent_kubeconfig, answers, http, is_closed, play_alone, serves,
    start_agent_with, start_controller, tcp,
};
use bowline_testing::{Bowline, Dial, Link, eventually, objects};
use serde_json::Value;
use std::collections::BTreeSet;

/// The names of docs/metrics.md, without those of drivers and speakers, which have tests of their own.
fn documented() -> BTreeSet<String> {
    let page = include_str!("../../docs/metrics.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `bowline_"));
    let elsewhere = ["haproxy_", "nginx_", "speaker_", "l2_"];
    let rows = rows.filter(|rest| !elsewhere.iter().any(|it| rest.starts_with(it)));
    rows.filter_map(|rest| Some(format!("bowline_{}", rest.split_once('`')?.0))).collect()
}

/// The metrics of a process: the names of its samples, without what a histogram adds to them.
async fn found(process: &Bowline) -> BTreeSet<String> {
    let dial = Dial::to(process.admin.ip(), process.admin.port());
    let text = dial.get("localhost", "/metrics").await.expect("metrics").text();
    let mut names = BTreeSet::new();
    let mut histograms = BTreeSet::new();
    for line in text.lines() {
        if let Some((name, "histogram")) =
            line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            histograms.insert(name.to_owned());
        } else if !line.starts_with('#') {
            let name = line.split([' ', '{']).next().unwrap_or_default();
            let base = name.rsplit_once('_').map_or(name, |(base, _)| base);
            names.insert(if histograms.contains(base) { base } else { name }.to_owned());
        }
    }
    names
}

#[test]
fn the_metrics_are_those_of_the_page_about_them_and_they_move() {
    play_alone(async |cluster| {
        let mut controller = start_controller(&cluster, &[]).await;
        controller.ready().await;
        let mut stage = Stage::on(cluster).await;
        let kubeconfig = agent_kubeconfig(&stage.cluster, &stage.lb).await;
        let link = Link::new(&stage.cluster, &kubeconfig).await;
        stage.agent.stop();
        stage.agent = start_agent_with(&stage.cluster, &link.kubeconfig, &stage.lb, &[]);
        stage.agent.ready().await;
        assert!(controller.metric("bowline_leader").await > 0.0);
        let planned = controller.metric("bowline_plan_seconds_count").await;

        let (a, b) = (http("a").await, http("b").await);
        stage.behind("web", &[&a]).await;
        stage.ingress("web", &[("web.example", "/", "Prefix", "web")]).await;
        serves(&stage.dial(80), "web.example", "/", "a").await;
        answers(&stage.dial(80), "nobody.example", "/", 404).await;
        assert!(controller.metric("bowline_plan_seconds_count").await > planned);

        let before = stage.agent.metric("bowline_proxy_responses_total").await;
        for _ in 0..7 {
            stage.dial(80).get("web.example", "/").await.expect("an answer");
        }
        eventually("seven answers more", || async {
            let more = stage.agent.metric("bowline_proxy_responses_total").await - before;
            if more == 7.0 { Ok(()) } else { Err(more.to_string()) }
        })
        .await;

        assert_eq!(stage.agent.metric("bowline_members").await, 1.0);
        let applied = stage.agent.metric("bowline_event_to_applied_seconds_count").await;
        stage.served_by("web", &[&a, &b]).await;
        eventually("two members", || async {
            let members = stage.agent.metric("bowline_members").await;
            if members == 2.0 { Ok(()) } else { Err(members.to_string()) }
        })
        .await;
        assert!(stage.agent.metric("bowline_event_to_applied_seconds_count").await > applied);

        // Refusals, errors and broken watches are counted once there are any.
        stage.apply(objects::service("lost", "nowhere", &[(5001, TARGET)])).await;
        eventually("a refusal", || async {
            let refused = controller.metric("bowline_refused").await;
            if refused == 1.0 { Ok(()) } else { Err(refused.to_string()) }
        })
        .await;
        let _taken = tokio::net::TcpListener::bind((stage.vip, 5000)).await.expect("bind");
        stage.apply(objects::service("blocked", &stage.lb, &[(5000, TARGET)])).await;
        stage.told("Service", "blocked", "BindFailed").await;
        link.cut();
        eventually("a watch breaks off", || async {
            let broken = stage.agent.metric("bowline_watch_restarts_total").await;
            if broken > 0.0 { Ok(()) } else { Err(broken.to_string()) }
        })
        .await;
        link.mend();
        let all: BTreeSet<_> =
            found(&controller).await.union(&found(&stage.agent).await).cloned().collect();
        let mut documented = documented();
        // That one is there only while an agent serves what it kept; the tests of failures look at it.
        assert!(documented.remove("bowline_kept_since_seconds"));
        assert_eq!(all, documented);
    });
}

#[test]
fn logs_are_json_where_they_are_asked_for_and_every_request_is_a_line() {
    play_alone(async |cluster| {
        let mut controller = start_controller(&cluster, &["--log-format", "json"]).await;
        controller.ready().await;
        let mut stage = Stage::on(cluster).await;
        let kubeconfig = agent_kubeconfig(&stage.cluster, &stage.lb).await;
        stage.agent.stop();
        let args = ["--log-format", "json", "--access-log"];
        stage.agent = start_agent_with(&stage.cluster, &kubeconfig, &stage.lb, &args);
        stage.agent.ready().await;
        let (a, b) = (http("a").await, tcp("b").await);
        stage.behind("web", &[&a]).await;
        stage.ingress("web", &[("web.example", "/", "Prefix", "web")]).await;
        serves(&stage.dial(80), "web.example", "/", "a").await;
        // Something goes wrong, so that there is something to log.
        stage.service("web-tcp", 5000, &[&b]).await;
        b.kill().await;
        is_closed(&stage.dial(5000)).await;
        let answer = stage.dial(80).get("web.example", "/x?y=1").await.expect("an answer");
        assert_eq!(answer.status, 200);
        let line = eventually("its line", || async {
            let lines = json_lines(&stage.agent.process.log());
            let ours = lines.into_iter().find(|line| line["path"].as_str() == Some("/x?y=1"));
            ours.ok_or_else(|| stage.agent.process.log())
        })
        .await;
        // The Service's port has no name.
        let pool = format!("ingress/{}/web/web/", stage.namespace);
        let short = ["method", "host", "status", "protocol", "pool", "member", "tls"];
        let short: Vec<_> = short.iter().map(|key| line[key].clone()).collect();
        let expected =
            serde_json::json!(["GET", "web.example", 200, "HTTP/1.1", pool, a.at, false]);
        assert_eq!(Value::Array(short), expected, "{line}");
        assert_eq!(stage.agent.stop(), Some(0));
        assert_eq!(controller.stop(), Some(0));
        for process in [&stage.agent, &controller] {
            let lines = json_lines(&process.process.log());
            assert!(lines.iter().any(|line| line["level"].is_string()), "{lines:?}");
        }
    });
}

/// The lines of a log, all of which are JSON but the last, which may be under way.
fn json_lines(log: &str) -> Vec<Value> {
    let whole = log.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let read =
        |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    whole.lines().map(read).collect()
}
