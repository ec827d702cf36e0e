//! Under load: as many requests as a load generator can send, while everything around them changes. Not
//! one may fail. Five seconds each; thirty with BOWLINE_LONG=1, as `make soak` sets it.

use crate::stage::{Stage, TARGET, annotate, http, play, serves};
use bowline_testing::objects::{self, Endpoint};
use bowline_testing::{Authority, Backend, eventually, net};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use serde_json::json;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio::process::Command;

fn seconds() -> u64 {
    if std::env::var_os("BOWLINE_LONG").is_some_and(|it| it == "1") { 30 } else { 5 }
}

/// What a load generator reports.
#[derive(Debug, PartialEq, Eq)]
struct Load {
    requests: u64,
    failures: Vec<String>,
}

fn tool(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
        .unwrap_or_else(|| {
            panic!("{name} is missing; install it with\n  sudo apt-get install -y {name}")
        })
}

/// `wrk` at full speed over kept connections.
async fn wrk(url: String, host: &str) -> Load {
    let output = Command::new(tool("wrk"))
        .args(["-t2", "-c32", "--timeout", "10s", "-H", &format!("Host: {host}")])
        .args([format!("-d{}s", seconds()), url])
        .output()
        .await
        .expect("run wrk");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let requests = text
        .lines()
        .find_map(|line| line.trim().split_once(" requests in "))
        .and_then(|(number, _)| number.parse().ok())
        .unwrap_or_else(|| panic!("wrk said {text}{}", String::from_utf8_lossy(&output.stderr)));
    let failed = |line: &&str| line.contains("Socket errors") || line.contains("Non-2xx");
    let failures = text.lines().map(str::trim).filter(failed).map(str::to_owned).collect();
    Load { requests, failures }
}

/// `hey` with a new connection for each request.
async fn hey(url: String, host: &str) -> Load {
    let output = Command::new(tool("hey"))
        .args(["-c", "16", "-z", &format!("{}s", seconds()), "-disable-keepalive"])
        .args(["-host", host, &url])
        .output()
        .await
        .expect("run hey");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut load = Load { requests: 0, failures: Vec::new() };
    let mut errors = false;
    for line in text.lines().map(str::trim) {
        errors |= line.starts_with("Error distribution");
        if let Some((status, count)) = line.split_once("]\t").filter(|_| line.starts_with('[')) {
            let number = count.split(' ').next().and_then(|it| it.parse::<u64>().ok());
            load.requests += number.unwrap_or_default();
            if errors || status != "[200" {
                load.failures.push(line.to_owned());
            }
        }
    }
    load
}

/// What became of the changes that were due while the load lasted.
#[derive(Debug, Default, PartialEq, Eq)]
struct Churn {
    /// The API accepted them.
    accepted: usize,
    /// The API had so many under way already that these were left out.
    left_out: usize,
    /// How often the agent gave the proxy something new.
    applied: usize,
}

impl Churn {
    /// Whether there was as much of it as there was to be. How much a machine accepts in a second is
    /// printed, not judged: a slow one leaves changes out, and says so.
    fn assert_enough(&self, requests: u64) {
        let rate = self.accepted as f64 / seconds() as f64;
        eprintln!("{requests} requests, {rate:.0} changes/s: {self:?}");
        let due = RATE * seconds() as usize;
        assert!(self.accepted + self.left_out >= due * 8 / 10, "of {due}: {self:?}");
        assert!(self.accepted > 0 && self.applied > 0, "{self:?}");
    }
}

/// Changes a second.
const RATE: usize = 100;
/// The most changes that are under way at once.
const UNDER_WAY: usize = 32;

/// Changes the endpoints of a Service 100 times a second until the load ends: of eight backends four or
/// more are there at any time.
async fn churn(stage: &Stage, service: &str, backends: &[Backend], until: Instant) -> Churn {
    let name = format!("{service}-ipv4");
    let applied = async || stage.agent.metric("bowline_apply_seconds_count").await as usize;
    let before = applied().await;
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / RATE as u32);
    let mut churn = Churn::default();
    let mut under_way = FuturesUnordered::new();
    let mut round = 0usize;
    while Instant::now() < until {
        tokio::select! {
            Some(_) = under_way.next() => {
                churn.accepted += 1;
                continue;
            }
            _ = ticks.tick() => round += 1,
        }
        if under_way.len() == UNDER_WAY {
            churn.left_out += 1;
            continue;
        }
        let there = |number: usize| number.is_multiple_of(2) || (round >> (number / 2)) & 1 == 0;
        let ready: Vec<_> = backends
            .iter()
            .enumerate()
            .filter(|(number, _)| there(*number))
            .map(|(_, it)| Endpoint::ready(it.at.ip()))
            .collect();
        let slice = objects::slice(service, ("", TARGET, "TCP"), &ready);
        let (cluster, namespace, name) = (&stage.cluster, &stage.namespace, &name);
        under_way
            .push(async move { cluster.patch("EndpointSlice", namespace, name, &slice).await });
    }
    churn.accepted += under_way.count().await;
    churn.applied = applied().await - before;
    churn
}

async fn eight() -> Vec<Backend> {
    let mut backends = Vec::new();
    for number in 0..8 {
        backends.push(http(&format!("b{number}")).await);
    }
    backends
}

#[test]
fn no_request_fails_while_endpoints_come_and_go() {
    play(async |stage| {
        let backends = eight().await;
        let all: Vec<_> = backends.iter().collect();
        stage.behind("web", &all).await;
        stage.ingress("web", &[("web.example", "/", "Prefix", "web")]).await;
        serves(&stage.dial(80), "web.example", "/", "b0").await;
        let until = Instant::now() + Duration::from_secs(seconds());
        let url = format!("http://{}/", stage.vip);
        let (load, churn) =
            tokio::join!(wrk(url, "web.example"), churn(stage, "web", &backends, until));
        assert_eq!(load.failures, Vec::<String>::new(), "{load:?}");
        assert!(load.requests > 200, "{load:?}");
        churn.assert_enough(load.requests);
    });
}

#[test]
fn no_connection_fails_while_endpoints_of_a_plain_service_come_and_go() {
    play(async |stage| {
        let backends = eight().await;
        let all: Vec<_> = backends.iter().collect();
        stage.service("web", 80, &all).await;
        serves(&stage.dial(80), "web.example", "/", "b0").await;
        let until = Instant::now() + Duration::from_secs(seconds());
        let url = format!("http://{}/", stage.vip);
        let (load, churn) =
            tokio::join!(hey(url, "web.example"), churn(stage, "web", &backends, until));
        assert_eq!(load.failures, Vec::<String>::new(), "{load:?}");
        assert!(load.requests > 200, "{load:?}");
        churn.assert_enough(load.requests);
    });
}

#[test]
fn no_request_fails_while_rules_certificates_and_other_services_change() {
    play(async |stage| {
        let a = http("a").await;
        stage.behind("web", &[&a]).await;
        stage.ingress("web", &[("web.example", "/", "Prefix", "web")]).await;
        serves(&stage.dial(80), "web.example", "/", "a").await;
        let authority = Authority::new();
        let until = Instant::now() + Duration::from_secs(seconds());
        let changes = async {
            let mut number = 0u16;
            while Instant::now() < until {
                let name = format!("other-{}", number % 5);
                let host = format!("{name}.example");
                stage.apply(objects::tls_secret(&name, &authority.issue(&[&host]))).await;
                let mut ingress =
                    objects::ingress(&name, &stage.lb, &[(&host, "/", "Prefix", "web")]);
                ingress["spec"]["tls"] = json!([{"hosts": [host], "secretName": name}]);
                stage.apply(ingress).await;
                let mut service =
                    objects::service(&name, &stage.lb, &[(6000 + number % 50, TARGET)]);
                annotate(&mut service, "bowline.dev/algorithm", "least-connections");
                stage.apply(service).await;
                if number % 3 == 2 {
                    stage.delete("Ingress", &name).await;
                    stage.delete("Service", &name).await;
                }
                number += 1;
            }
            number
        };
        let url = format!("http://{}/", stage.vip);
        let (load, changes) = tokio::join!(wrk(url, "web.example"), changes);
        eprintln!("{} requests, {changes} changes", load.requests);
        assert_eq!(load.failures, Vec::<String>::new(), "{load:?}");
        // How many a machine has time for is printed, not judged.
        assert!(changes > 0, "{load:?}");
    });
}

/// Waits until the agent has given the proxy so many members, those that leave included.
async fn has_members(stage: &Stage, count: usize) {
    eventually(&format!("{count} members"), || async {
        let members = stage.agent.metric("bowline_members").await as usize;
        if members == count { Ok(()) } else { Err(members.to_string()) }
    })
    .await;
}

#[test]
fn no_request_fails_while_backends_are_replaced_one_by_one() {
    play(async |stage| {
        let (a, b) = (http("a").await, http("b").await);
        stage.behind("web", &[&a, &b]).await;
        stage.ingress("web", &[("web.example", "/", "Prefix", "web")]).await;
        serves(&stage.dial(80), "web.example", "/", "a").await;
        let until = Instant::now() + Duration::from_secs(seconds());
        let rolling = async {
            let mut old = std::collections::VecDeque::from([a, b]);
            let mut rolled = 0;
            while Instant::now() < until {
                let new = Backend::http("new", net::pod4(), TARGET).await;
                let leaving = old.pop_front().expect("two at any time");
                old.push_back(new);
                // As a Deployment does it: the new one is ready, the old one ends, and is told to stop
                // after everybody has heard of it.
                let mut endpoints: Vec<_> =
                    old.iter().map(|it| Endpoint::ready(it.at.ip())).collect();
                endpoints.push(Endpoint::terminating(leaving.at.ip()));
                stage.endpoints("web", &endpoints).await;
                has_members(stage, 3).await;
                endpoints.pop();
                stage.endpoints("web", &endpoints).await;
                has_members(stage, 2).await;
                leaving.stop().await;
                rolled += 1;
            }
            // The last two stay until the load has ended, which is a little after `until`.
            (rolled, old)
        };
        let url = format!("http://{}/", stage.vip);
        let (load, (rolled, _serving)) = tokio::join!(wrk(url, "web.example"), rolling);
        eprintln!("{} requests, {rolled} backends replaced", load.requests);
        assert_eq!(load.failures, Vec::<String>::new(), "{load:?}");
        assert!(rolled > 0, "{load:?}");
    });
}
