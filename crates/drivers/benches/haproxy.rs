//! `make bench`: how soon HAProxy has what changed, at 1,000 and 5,000 Services with ten members each: by the
//! driver's commands, and, in the same run, by a full render and a reload for every change, as a template and a
//! notifier do it. Asserts nothing about time.
//! `cargo bench -p bowline-drivers --bench haproxy -- haproxy-50` measures another number of Services.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a benchmark fails by panicking"
)]

mod common;

use bowline_core::plan::Host;
use bowline_core::update::Update;
use bowline_drivers::Driver as _;
use bowline_drivers::desired::Desired;
use bowline_drivers::haproxy::render::{Settings, render};
use bowline_drivers::haproxy::{Counters, Held, Options, SHUTDOWN_TIMEOUT, Version, drive};
use bowline_drivers::program::{Excluded, MAX_OLD_GENERATIONS};
use common::stage::{
    MEMBERS, Plain, Stage, answered_by, asked, free_port, median, memory, program, shown,
};
use common::{apply, pool, site_of};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

/// Changes that are measured, by commands and by reloads.
const CHANGES: usize = 50;
const RELOADS: usize = 5;

#[tokio::main]
async fn main() {
    for services in asked("haproxy") {
        let stage = Stage::new("haproxy", services.min(possible(services)), &version()).await;
        let plain = Plain {
            render: files,
            start,
            reload: async |folder: &Path, _: &Child| {
                ask(&folder.join("master.sock"), "reload").await;
            },
        };
        let reloaded = stage.by_reloads(RELOADS, plain).await;
        let told = by_commands(&stage).await;
        let both = [("by commands", told), ("by render and reload", reloaded)];
        stage.compare("change to live", both);
    }
}

/// HAProxy sets a file aside for each member: as many Services as the limit allows.
fn possible(services: usize) -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").expect("limits");
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let hard = line.and_then(|line| line.split_whitespace().nth(1));
    let hard: usize = hard.and_then(|it| it.parse().ok()).unwrap_or(usize::MAX);
    let possible = hard.saturating_sub(2_000) / usize::from(MEMBERS);
    if possible < services {
        println!("haproxy-{services}   needs more files than {hard} (ulimit -Hn): fewer Services");
    }
    possible
}

/// The driver, with its commands. The median time from a change until a client meets it.
async fn by_commands(stage: &Stage) -> Duration {
    let folder = tempfile::tempdir().expect("a folder");
    let options = Options {
        program: program("haproxy"),
        exec: true,
        folder: folder.path().to_owned(),
        admin_socket: folder.path().join("admin.sock"),
        master_socket: folder.path().join("master.sock"),
        min_reload_interval: Duration::ZERO,
        max_old_generations: MAX_OLD_GENERATIONS,
        shutdown_timeout: SHUTDOWN_TIMEOUT,
        compare_every: Duration::from_secs(3600),
        access_log: false,
    };
    let port = free_port().await;
    let before = memory("self");
    let mut driver = drive(options, Counters::default()).await.expect("a driver");
    stage.begin(&mut driver, port).await;
    let mut times = stage.by_driver(&mut driver, port, CHANGES).await;
    stage.says(&format!("longest change by commands: {}", shown(*times.last().expect("some"))));
    let told = median(&mut times);

    times.clear();
    for round in 0..RELOADS {
        let name = format!("new{round}");
        let pools = vec![pool(&name, Some(1000))];
        let sites = vec![site_of(Host::Exact(format!("{name}.example").into()), &name, &name)];
        let begun = Instant::now();
        apply(&mut driver, &Update { pools, sites, ..Update::default() }).await;
        times.push(begun.elapsed());
    }
    stage.says(&format!("a new pool, checked and reloaded: {}", shown(median(&mut times))));
    let worker = worker(&folder.path().join("master.sock")).await;
    stage.says(&format!(
        "memory: {:.0} MB for the driver, {:.0} MB for HAProxy",
        memory("self") - before,
        memory(&worker.to_string())
    ));

    // An expression of Rust's that is none of PCRE's.
    let sites = vec![site_of(Host::Regex(r"\x{1F600}".into()), "p1", "bad")];
    let bad = Update { sites, ..Update::default() };
    stage.refused(&mut driver, &bad).await;
    let sites = vec![site_of(Host::Regex(r"\x{1F601}".into()), "p1", "bad")];
    let bad = Update { sites, ..Update::default() };
    assert!(driver.apply(&bad).await.expect("taken").waiting);
    let begun = Instant::now();
    let (update, by) = stage.change(CHANGES);
    driver.apply(&update).await.expect("taken");
    answered_by(port, by).await;
    let took = shown(begun.elapsed());
    stage.says(&format!("a change while it is looked for: {took}"));
    driver.drain(Duration::from_secs(10)).await;
    told
}

fn files(folder: &Path, desired: &Desired) -> BTreeMap<String, Vec<u8>> {
    let settings = Settings {
        admin_socket: folder.join("admin.sock"),
        peers_socket: folder.join("peers.sock"),
        access_log: false,
        version: Version(2, 6),
        shutdown_seconds: 3600,
        descriptors: 1 << 20,
    };
    render(desired, &Excluded::default(), &settings, &Held::default())
        .expect("settings")
        .wanted
        .files()
}

fn start(folder: &Path) -> Child {
    let socket = format!("{},level,admin", folder.join("master.sock").display());
    let mut command = Command::new(program("haproxy"));
    command.args(["-W", "-S", &socket, "-f"]).arg(folder.join("haproxy.cfg"));
    command.spawn().expect("start HAProxy; apt-get install -y haproxy")
}

async fn ask(socket: &Path, message: &str) -> String {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let asking = async {
            let mut stream = UnixStream::connect(socket).await?;
            stream.write_all(format!("{message}\n").as_bytes()).await?;
            stream.shutdown().await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            std::io::Result::Ok(answer)
        };
        match asking.await {
            Ok(answer) => return answer,
            Err(why) => assert!(Instant::now() < until, "{}: {why}", socket.display()),
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// The pid of HAProxy's worker.
async fn worker(master: &Path) -> u32 {
    let answer = ask(master, "show proc").await;
    let lines = answer.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let mut workers = lines.filter(|line| line.get(1) == Some(&"worker"));
    workers.next().and_then(|line| line[0].parse().ok()).expect("a worker")
}

fn version() -> String {
    let output = Command::new(program("haproxy")).arg("-v").output().expect("HAProxy");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split(" - ").next().unwrap_or_default().trim().to_owned()
}
