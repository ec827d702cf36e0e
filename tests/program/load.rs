//! Endpoints that come and go 100 times a second under load: no request fails, and the program is reloaded not at
//! all where it can learn of them, else no more often than it may be. Five seconds; thirty with BOWLINE_LONG=1.

use crate::edge::{LEARNS, METRICS, UNHARMED, workers};
use crate::play::play;
use crate::stage::{TARGET, http, serves};
use bowline_testing::objects::{self, Endpoint};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use std::time::{Duration, Instant};
use tokio::process::Command;

/// Changes a second that are due. How many a machine accepts is printed, and judged in the long run only: a busy
/// one is no failure of the program.
const RATE: u32 = 100;
/// The most changes that are under way at once.
const UNDER_WAY: usize = 32;

fn is_long() -> bool {
    std::env::var_os("BOWLINE_LONG").is_some_and(|it| it == "1")
}

fn seconds() -> u64 {
    if is_long() { 30 } else { 5 }
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
        // It is served a moment before the reload that brought it is over.
        stage.has_addresses("Ingress", "web", &[stage.vip, stage.vip6]).await;
        let stage = &*stage;
        let reloaded = format!("{METRICS}reloads_total");
        let (before, reloads) = (workers(&stage.lb), stage.agent.metric(&reloaded).await);

        let began = Instant::now();
        let until = began + Duration::from_secs(seconds());
        let load = Command::new("wrk")
            // Few, so that on two cores somebody can bring the changes.
            .args(["-t1", "-c4", "--timeout", "10s"])
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
                        let stays = |i: usize| i < 4 || (i + round).is_multiple_of(2);
                        let there = backends.iter().enumerate().filter(|(i, _)| stays(*i));
                        let ready: Vec<_> = there.map(|(_, it)| Endpoint::ready(it.at.ip())).collect();
                        let slice = objects::slice("web", ("", TARGET, "TCP"), &ready);
                        // It is there: asking whether it can be created would be half of the work.
                        under_way.push(async move {
                            let name = slice["metadata"]["name"].as_str().expect("a name");
                            stage.patch("EndpointSlice", name, slice.clone()).await;
                        });
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
        let rate = changes as f64 / began.elapsed().as_secs_f64();
        eprintln!("{rate:.0} changes a second, {reloads} reloads\n{text}");
        let least = if is_long() { 0.9 * f64::from(RATE) } else { 1.0 };
        assert!(rate > least, "{rate} changes a second");
        match LEARNS {
            true => assert_eq!((workers(&stage.lb), reloads), (before, 0.0), "reloaded"),
            false => assert!(reloads > 0.0 && reloads <= most, "{reloads} of {most}"),
        }
    });
}
