//! `make bench`: how fast `bowline speaker` gets addresses to a router. The real binary follows the embedded API and tells
//! FRR, each in a network of its own; FRR's BGP table and its kernel's routes are the truth. Prints, and asserts nothing
//! about time. To hold (DESIGN): one address p50 50 ms and p99 250 ms, 10,000 addresses in 2 s and 50 MB, traffic
//! elsewhere 500 ms after a crash with BFD (3 × 100 ms).
#![allow(clippy::expect_used, clippy::panic, reason = "a benchmark fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "a benchmark measures time")]

mod frr;
#[path = "../../crates/speaker/tests/routers/network.rs"]
#[allow(dead_code, reason = "shared with the tests of the speaker; each uses its part")]
mod network;
mod site;

use bowline_testing::net;
use site::{MANY, Site, spread};
use std::time::{Duration, Instant};

/// How many addresses are announced one at a time.
const SAMPLES: usize = 200;
/// How many addresses a node has that crashes.
const CARRIED: u32 = 100;
/// How often it crashes.
const CRASHES: usize = 7;
/// How long a speaker is watched at rest.
const REST: Duration = Duration::from_secs(10);

fn main() {
    let only = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let wanted = |name: &str| only.as_ref().is_none_or(|only| name.contains(only.as_str()));
    let runtime = || {
        net::in_namespace(|| async {
            if wanted("announce-one") {
                one().await;
            }
            if wanted("announce-many") {
                many().await;
            }
            if wanted("announce-crash") {
                crash().await;
            }
        })
    };
    runtime();
}

/// One address after another: from the order to record it until FRR has the route.
async fn one() {
    let site = Site::new().await;
    let _speaker = site.speaker("a").await;
    site.advertise("all").await;
    let mut table = site.router.table();
    let mut times = Vec::new();
    // The first ones bring up caches and pages.
    for number in 0..SAMPLES + 20 {
        let at = site::address(1, u32::try_from(number).expect("few"));
        let begun = Instant::now();
        site.record(at).await;
        tokio::task::block_in_place(|| table.until(&at.to_string()));
        times.push(begun.elapsed());
    }
    times.drain(..20);
    println!(
        "announce-one     {SAMPLES} addresses, one at a time: recorded to FRR's BGP table {} (to hold p50 50 ms, p99 250 ms)",
        spread(&mut times)
    );
}

/// Ten thousand addresses at once, and after a start of the speaker; then at rest.
async fn many() {
    let site = Site::new().await;
    let speaker = site.speaker("a").await;
    let empty = speaker.memory();
    let idle = speaker.at_rest(REST).await;
    println!("announce-many    a speaker without addresses: {idle}");
    site.record_many().await;
    let recorded = speaker.memory();
    let begun = Instant::now();
    site.advertise("all").await;
    tokio::task::block_in_place(|| site.router.until_routes(MANY));
    let took = begun.elapsed();
    println!(
        "announce-many    {MANY} recorded addresses that an Advertisement begins to cover: all in FRR's BGP table after \
         {:.2} s (to hold 2 s); memory {empty:.1} MB empty, {recorded:.1} MB with the addresses known, {:.1} MB announced, at most \
         {:.1} MB (to hold 50 MB)",
        took.as_secs_f64(),
        speaker.memory(),
        speaker.peak(),
    );
    println!("announce-many    at rest with {MANY} addresses: {}", speaker.at_rest(REST).await);
    drop(speaker);
    tokio::task::block_in_place(|| site.router.until_routes(0));
    let begun = Instant::now();
    let speaker = site.speaker("a").await;
    tokio::task::block_in_place(|| site.router.until_routes(MANY));
    println!(
        "announce-many    a speaker that starts with {MANY} addresses: all in FRR's BGP table after {:.2} s, {:.2} s of CPU, at \
         most {:.1} MB",
        begun.elapsed().as_secs_f64(),
        speaker.cpu().as_secs_f64(),
        speaker.peak(),
    );
}

/// A node falls silent and its TCP connection stays, as in a crash: only BFD tells. Until the router sends nothing there.
async fn crash() {
    let site = Site::new().await;
    let a = site.speaker("a").await;
    let _b = site.speaker("b").await;
    for number in 0..CARRIED {
        site.record(site::address(3, number)).await;
    }
    site.advertise("all").await;
    let both = usize::try_from(CARRIED).expect("few");
    let mut times = Vec::new();
    for _ in 0..CRASHES {
        tokio::task::block_in_place(|| {
            site.router.until_kernel("both nodes have the traffic", |routes| {
                routes.through(site::A) == both && routes.through(site::B) == both
            });
            site.router.until_bfd();
            let begun = Instant::now();
            a.process.signal("STOP");
            site.router.until_kernel("the other node has the traffic", |routes| {
                routes.through(site::A) == 0 && routes.through(site::B) == both
            });
            times.push(begun.elapsed());
            a.process.signal("CONT");
        });
    }
    println!(
        "announce-crash   {CARRIED} addresses on two nodes, BFD 3 × 100 ms: the router's kernel sends all traffic elsewhere {} \
         after one falls silent, over {CRASHES} crashes (to hold 500 ms)",
        spread(&mut times)
    );
}
