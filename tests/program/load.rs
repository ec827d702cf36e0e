//! Endpoints that come and go 100 times a second under load: no request fails, and the program is reloaded not at
//! all where it can learn of them, else no more often than it may be. Five seconds; thirty with BOWLINE_LONG=1.

use crate::edge::{LEARNS, METRICS, UNHARMED, workers};
use crate::play::play;
use crate::stage::{http, serves};
use bowline_testing::objects::Endpoint;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use std::time::{Duration, Instant};
use tokio::process::Command;

/// Changes a second that are due. Half of them are a test; how many a machine accepts is printed.
const RATE: u32 = 100;
/// The most changes that are under way at once.
const UNDER_WAY: usize = 32;

fn seconds() -> u64 {
    if std::env::var_os("BOWLINE_LONG").is_some_and(|it| it == "1") { 30 } else { 5 }
}

#[test]
fn no_request_fails_and_reloads_keep_their_distance_while_endpoints_change() {
    play(async |stage| {
        let mut backends = Vec::new();
        for i in 0..8 {
            backends.push(http(&format!("b{i}")).await);
        }
        let all: Vec<_> = backends.iter().collect();
        stage.behind("web", &all).await;
        stage.ingress("web", &[("web.example", "/", "Prefix", "web")]).await;
        serves(&stage.dial(80), "web.example", "/", "b0").await;
        let stage = &*stage;
        let reloaded = format!("{METRICS}reloads_total");
        let (before, reloads) = (workers(&stage.lb), stage.agent.metric(&reloaded).await);

        let began = Instant::now();
        let until = began + Duration::from_secs(seconds());
        let load = Command::new("wrk")
            .args(["-t2", "-c32", "--timeout", "10s"])
            .args(["-H", "Host: web.example"])
            .args(UNHARMED)
            .args([format!("-d{}s", seconds()), format!("http://{}/", stage.vip)])
            .output();
        let churn = async {
            let mut ticks = tokio::time::interval(Duration::from_secs(1) / RATE);
            let mut under_way = FuturesUnordered::new();
            let (mut round, mut accepted) = (0usize, 0usize);
            while Instant::now() < until {
                tokio::select! {
                    Some(()) = under_way.next() => accepted += 1,
                    _ = ticks.tick() => {
                        round += 1;
                        if under_way.len() == UNDER_WAY {
                            continue;
                        }
                        // Four that stay, and of the others another half each time.
                        let there = |i: usize| i < 4 || (i + round).is_multiple_of(2);
                        let ready: Vec<_> = backends
                            .iter()
                            .enumerate()
                            .filter(|(i, _)| there(*i))
                            .map(|(_, it)| Endpoint::ready(it.at.ip()))
                            .collect();
                        under_way.push(async move { stage.endpoints("web", &ready).await });
                    }
                }
            }
            while let Some(()) = under_way.next().await {
                accepted += 1;
            }
            accepted
        };
        let (output, changes) = tokio::join!(load, churn);
        let text =
            String::from_utf8_lossy(&output.expect("run wrk; apt-get install -y wrk").stdout)
                .into_owned();
        let reloads = stage.agent.metric(&reloaded).await - reloads;
        // One a second, as the agent was told, and the one before the first second is over.
        let most = began.elapsed().as_secs_f64() + 1.0;
        let failed =
            text.lines().filter(|it| it.contains("Socket errors") || it.contains("Non-2xx"));
        assert_eq!(failed.collect::<Vec<_>>(), Vec::<&str>::new(), "{text}");
        eprintln!("{changes} changes, {reloads} reloads\n{text}");
        let due = f64::from(RATE) * began.elapsed().as_secs_f64();
        assert!(changes as f64 > due / 2.0, "{changes} of {due} changes");
        match LEARNS {
            true => assert_eq!((workers(&stage.lb), reloads), (before, 0.0), "reloaded"),
            false => assert!(reloads > 0.0 && reloads <= most, "{reloads} of {most}"),
        }
    });
}
