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

use bowline_core::update::Update;
use bowline_drivers::Driver as _;
use bowline_drivers::desired::Desired;
use bowline_drivers::haproxy::render::{Settings, render};
use bowline_drivers::haproxy::{Counters, Options, Version, drive};
use bowline_drivers::program::Excluded;
use common::{
    MEMBERS, answered_by, apply, backend, everything, free_port, median, members, memory, pool,
    shown, site,
};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

/// Changes that are measured, by commands and by reloads.
const CHANGES: usize = 50;
const RELOADS: usize = 5;

#[tokio::main]
async fn main() {
    for services in common::asked("haproxy") {
        measure(services.min(possible(services))).await;
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

async fn measure(services: usize) {
    let (a, b) = (backend("a").await, backend("b").await);
    // They must be there: HAProxy would be busy with looking for them.
    let mut others = Vec::new();
    for _ in 0..MEMBERS {
        others.push(backend("other").await);
    }
    let name = format!("haproxy-{services}");
    println!("{name}   {services} Services with {MEMBERS} members each, {}", version());
    let reloaded = by_reloads(&name, services, [a, b], &others).await;
    let told = by_commands(&name, services, [a, b], &others).await;
    println!(
        "{name}   change to live: {} by commands, {} by render and reload: {:.0} × as long",
        shown(told),
        shown(reloaded),
        reloaded.as_secs_f64() / told.as_secs_f64()
    );
}

/// The driver, with its commands. The median time from a change until a client meets it.
async fn by_commands(
    name: &str,
    services: usize,
    [a, b]: [SocketAddr; 2],
    others: &[SocketAddr],
) -> Duration {
    let folder = tempfile::tempdir().expect("a folder");
    let options = Options {
        program: program(),
        exec: true,
        folder: folder.path().to_owned(),
        admin_socket: folder.path().join("admin.sock"),
        master_socket: folder.path().join("master.sock"),
        min_reload_interval: Duration::ZERO,
        compare_every: Duration::from_secs(3600),
        access_log: false,
    };
    let port = free_port().await;
    let before = memory("self");
    let mut driver = drive(options, Counters::default()).await.expect("a driver");
    let begun = Instant::now();
    apply(&mut driver, &everything(services, port, a, others)).await;
    answered_by(port, "a").await;
    println!("{name}   from nothing to live: {}", shown(begun.elapsed()));

    let mut times = Vec::new();
    for round in 0..CHANGES {
        let (at, by) = if round.is_multiple_of(2) { (b, "b") } else { (a, "a") };
        let begun = Instant::now();
        apply(&mut driver, &Update { members: vec![members("p0", &[at])], ..Update::default() })
            .await;
        answered_by(port, by).await;
        times.push(begun.elapsed());
    }
    let told = median(&mut times);
    println!("{name}   longest change by commands: {}", shown(*times.last().expect("some")));
    times.clear();
    for round in 0..RELOADS {
        let begun = Instant::now();
        let pool = pool(&format!("new{round}"), Some(1000));
        let site = site(&format!("new{round}.example"), &format!("new{round}"));
        let update = Update { pools: vec![pool], sites: vec![site], ..Update::default() };
        apply(&mut driver, &update).await;
        times.push(begun.elapsed());
    }
    println!("{name}   a new pool, checked and reloaded: {}", shown(median(&mut times)));
    let worker = worker(&folder.path().join("master.sock")).await;
    println!(
        "{name}   memory: {:.0} MB for the driver, {:.0} MB for HAProxy",
        memory("self") - before,
        memory(&worker.to_string())
    );
    driver.drain(Duration::from_secs(10)).await;
    told
}

/// Everything rendered, and HAProxy reloaded, for each change; without a check, which would take as long again.
async fn by_reloads(
    name: &str,
    services: usize,
    [a, b]: [SocketAddr; 2],
    others: &[SocketAddr],
) -> Duration {
    let folder = tempfile::tempdir().expect("a folder");
    let port = free_port().await;
    let mut desired = Desired::default();
    desired.apply(&everything(services, port, a, others));
    let mut written = BTreeMap::new();
    let begun = Instant::now();
    let size = write(folder.path(), &desired, &mut written);
    println!("{name}   render and write: {}, {:.1} MB", shown(begun.elapsed()), size / 1e6);
    let master = folder.path().join("master.sock");
    let mut process = start(folder.path(), &master);
    answered_by(port, "a").await;
    let (mut times, mut rendered) = (Vec::new(), Vec::new());
    for round in 0..RELOADS {
        let (at, by) = if round.is_multiple_of(2) { (b, "b") } else { (a, "a") };
        let begun = Instant::now();
        desired.apply(&Update { members: vec![members("p0", &[at])], ..Update::default() });
        write(folder.path(), &desired, &mut written);
        rendered.push(begun.elapsed());
        ask(&master, "reload").await;
        answered_by(port, by).await;
        times.push(begun.elapsed());
    }
    println!("{name}   of which render and write again: {}", shown(median(&mut rendered)));
    let pid = process.id().to_string();
    Command::new("kill").args(["-TERM", &pid]).status().expect("kill");
    process.wait().expect("ended");
    median(&mut times)
}

/// Renders and writes; how large it is.
fn write(folder: &Path, desired: &Desired, before: &mut BTreeMap<String, Vec<u8>>) -> f64 {
    let settings = Settings {
        admin_socket: folder.join("admin.sock"),
        peers_socket: folder.join("peers.sock"),
        access_log: false,
        version: Version(2, 6),
    };
    let wanted = render(desired, &Excluded::default(), &settings).expect("settings").wanted;
    common::write(folder, wanted.files(), before)
}

fn start(folder: &Path, master: &Path) -> Child {
    let socket = format!("{},level,admin", master.display());
    let mut command = Command::new(program());
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

fn program() -> PathBuf {
    let usual = Path::new("/usr/sbin/haproxy");
    if usual.exists() { usual.into() } else { "haproxy".into() }
}

fn version() -> String {
    let output = Command::new(program()).arg("-v").output().expect("HAProxy");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split(" - ").next().unwrap_or_default().trim().to_owned()
}
