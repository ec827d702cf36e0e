//! Alerts and dashboard: Prometheus understands them, each alert is raised when it should be, and what they
//! look at is there. That docs/metrics.md is what the program shows is proved in `tests/traffic/observe.rs`.

use crate::tools::{repository, run, run_in, text};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Every sample that the program shows, as docs/metrics.md lists them.
fn samples() -> BTreeSet<String> {
    let page = text("docs/metrics.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|row| {
        let (name, rest) = row.split_once('`')?;
        name.starts_with("bowline_").then_some((name, rest.contains("| histogram |")))
    })
    .flat_map(|(name, histogram)| match histogram {
        true => ["_bucket", "_sum", "_count"].map(|end| format!("{name}{end}")).to_vec(),
        false => vec![name.to_owned()],
    })
    .collect()
}

/// The words of an expression that can only be metrics of ours.
fn metrics(expression: &str) -> impl Iterator<Item = String> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("bowline_")).map(str::to_owned)
}

/// All expressions of the dashboard, with what Grafana fills in filled in.
fn dashboard() -> Vec<String> {
    let dashboard: Value =
        serde_json::from_str(&text("deploy/monitoring/dashboard.json")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    targets
        .map(|target| target["expr"].as_str().expect("an expression"))
        .map(|it| it.replace("$__rate_interval", "5m").replace("$load_balancer", "edge"))
        .collect()
}

#[test]
fn prometheus_takes_the_alerts_and_raises_each_when_it_should() {
    let folder = repository("deploy/monitoring");
    for args in [["check", "rules", "alerts.yaml"], ["test", "rules", "alerts_test.yaml"]] {
        run_in(&folder, "promtool", &args).unwrap_or_else(|why| panic!("{why}"));
    }
}

#[test]
fn each_alert_has_a_test_in_which_it_is_raised_and_one_in_which_it_is_not() {
    let words = |file: &str, key: &str| -> Vec<String> {
        let lines = text(file);
        let names =
            lines.lines().filter_map(|line| Some(line.split_once(key)?.1.trim().to_owned()));
        names.collect()
    };
    let alerts: BTreeSet<_> =
        words("deploy/monitoring/alerts.yaml", "- alert:").into_iter().collect();
    // In the tests one line, with a brace, means that nothing is raised.
    let tests = words("deploy/monitoring/alerts_test.yaml", "alertname:");
    let (quiet, raised): (Vec<_>, Vec<_>) = tests.into_iter().partition(|it| it.ends_with('}'));
    let quiet = quiet.iter().map(|it| it.trim_end_matches('}').to_owned());
    assert_eq!(quiet.collect::<BTreeSet<_>>(), alerts);
    assert_eq!(raised.into_iter().collect::<BTreeSet<_>>(), alerts);
}

#[test]
fn the_dashboard_asks_what_prometheus_can_answer() {
    let rules: Vec<_> = dashboard()
        .iter()
        .enumerate()
        .map(|(index, expr)| json!({"record": format!("panel:{index}"), "expr": expr}))
        .collect();
    let scratch = tempfile::tempdir().expect("a folder");
    let file = scratch.path().join("rules.json");
    let groups = json!({"groups": [{"name": "dashboard", "rules": rules}]});
    std::fs::write(&file, groups.to_string()).expect("write");
    let said = run("promtool", &["check", "rules", &file.display().to_string()]);
    assert!(said.contains(&format!("{} rules found", rules.len())), "{said}");
}

#[test]
fn alerts_and_dashboard_look_at_metrics_that_the_program_shows() {
    let samples = samples();
    assert!(samples.contains("bowline_apply_seconds_bucket"), "{samples:?}");
    let alerts: Value =
        serde_saphyr::from_str(&text("deploy/monitoring/alerts.yaml")).expect("YAML");
    let rules = alerts["groups"][0]["rules"].as_array().expect("rules").clone();
    let mut used: BTreeSet<String> = BTreeSet::new();
    for rule in rules {
        used.extend(metrics(rule["expr"].as_str().expect("an expression")));
    }
    for expression in dashboard() {
        used.extend(metrics(&expression));
    }
    let unknown: Vec<_> = used.difference(&samples).collect();
    assert!(unknown.is_empty(), "not in docs/metrics.md: {unknown:?}");
}
