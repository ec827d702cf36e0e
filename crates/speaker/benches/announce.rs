//! How fast routes reach a router: from the order to the speaker until FRR has the route in its BGP table, and in the
//! kernel's (FRR itself waits 50 ms before it chooses a path), one route at a time and 10,000 at once. To hold: in the BGP
//! table p50 50 ms, p99 250 ms; 10,000 in 2 s and 50 MB.
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, dead_code)]
#![allow(clippy::disallowed_methods, reason = "a benchmark measures time")]

#[path = "../tests/routers/frr.rs"]
mod frr;
#[path = "../tests/routers/network.rs"]
mod network;
#[path = "../tests/routers/process.rs"]
mod process;
#[path = "../tests/routers/router.rs"]
mod router;

use bowline_speaker::bgp::Route;
use bowline_testing::{Machine, Vty};
use frr::Frr;
use network::Network;
use process::Speaker;
use router::{Router, Setup};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const SAMPLES: usize = 200;
const MANY: u32 = 10_000;

/// The routes that appear in the kernel's table of a machine, as they appear.
struct Monitor {
    child: Child,
    routes: Receiver<(Instant, String)>,
}

impl Monitor {
    fn start(machine: &Machine) -> Self {
        let mut child = machine.on(|| {
            Command::new("ip")
                .args(["-4", "monitor", "route"])
                .stdout(Stdio::piped())
                .spawn()
                .expect("run ip monitor")
        });
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let (seen, routes) = channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok).filter(|line| !line.starts_with("Deleted")) {
                let prefix = line.split(' ').next().unwrap_or_default().to_owned();
                let _ = seen.send((Instant::now(), prefix));
            }
        });
        Self { child, routes }
    }

    /// When all of these have appeared.
    fn until(&self, mut wanted: BTreeSet<String>) -> Instant {
        loop {
            let (at, prefix) = self
                .routes
                .recv_timeout(Duration::from_secs(60))
                .unwrap_or_else(|_| panic!("{} routes do not appear", wanted.len()));
            wanted.remove(&prefix);
            if wanted.is_empty() {
                return at;
            }
        }
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// When the BGP table has the prefix.
fn in_table(vty: &mut Vty, prefix: &str) -> Instant {
    let command = format!("show bgp ipv4 unicast {prefix} json");
    while !vty.ask(&command).contains("nexthops") {}
    Instant::now()
}

/// The median and the 99th of a hundred, in words.
fn spread(mut times: Vec<Duration>) -> String {
    times.sort();
    let at = |share: usize| times[(times.len() - 1) * share / 100].as_secs_f64() * 1000.0;
    format!("p50 {:.1} ms, p99 {:.1} ms", at(50), at(99))
}

/// The nth address, without a length, as `ip` writes host routes.
fn address(first: u8, number: u32) -> String {
    let [_, a, b, c] = number.to_be_bytes();
    format!("{first}.{a}.{b}.{c}")
}

fn main() {
    if process::is_speaker() {
        return process::serve();
    }
    let network = Network::new();
    let setup = Setup { passive: true, ..Setup::default() };
    let frr = Frr::start(&network, &setup);
    let mut speaker = Speaker::start(&network.node);
    speaker.peers([("router", setup.peer())]);
    speaker.complete();
    speaker.until_established();
    let monitor = Monitor::start(&network.router);

    let mut vty = frr.frr.vty("bgpd");
    let (mut known, mut installed) = (Vec::new(), Vec::new());
    for number in 1..=SAMPLES as u32 {
        let address = address(100, number);
        let prefix = format!("{address}/32");
        let began = Instant::now();
        speaker.announce(&prefix, Route::default());
        known.push(in_table(&mut vty, &prefix) - began);
        installed.push(monitor.until([address].into()) - began);
    }
    println!("one route to FRR's BGP table: {}; to hold p50 50 ms, p99 250 ms", spread(known));
    println!("one route to the kernel's table: {}", spread(installed));

    let empty = speaker.memory();
    let all: BTreeSet<_> = (1..=MANY).map(|number| address(101, number)).collect();
    let changes =
        all.iter().map(|it| (format!("{it}/32").parse().unwrap(), Some(Route::default())));
    let changes = changes.collect();
    let began = Instant::now();
    speaker.change("router", changes);
    speaker.until("all routes are told", |it| it.told.0 >= MANY as usize);
    let told = began.elapsed();
    let installed = monitor.until(all) - began;
    println!(
        "{MANY} routes: told in {:.2} s (to hold 2 s), in the kernel's table in {:.2} s; the speaker has {:.1} MB \
         (to hold 50 MB), {:.1} MB of it for them",
        told.as_secs_f64(),
        installed.as_secs_f64(),
        speaker.memory() as f64 / 1024.0,
        speaker.memory().saturating_sub(empty) as f64 / 1024.0,
    );
    let (v4, _) = frr.count();
    assert_eq!(v4, SAMPLES + MANY as usize);
}
