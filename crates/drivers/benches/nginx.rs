//! `make bench`: how soon nginx has what changed, at 1,000 and 5,000 Services with ten members each: by the driver,
//! which checks each file and makes one reload of what comes meanwhile, and, in the same run, by a full render and a
//! reload for every change, as a template and a notifier do it. Asserts nothing about time.
//! `cargo bench -p bowline-drivers --bench nginx -- nginx-50` measures another number of Services.
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
use bowline_drivers::nginx::render::{Settings, Stream, render};
use bowline_drivers::nginx::{Counters, Options, drive};
use bowline_drivers::program::Excluded;
use common::{
    MEMBERS, answered_by, apply, backend, everything, free_port, median, members, memory, shown,
};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Changes that are measured one by one, and that come at once.
const CHANGES: usize = 5;
const BURST: usize = 100;

#[tokio::main]
async fn main() {
    for services in common::asked("nginx") {
        measure(services).await;
    }
}

async fn measure(services: usize) {
    let (a, b) = (backend("a").await, backend("b").await);
    let mut others = Vec::new();
    for _ in 0..MEMBERS {
        others.push(backend("other").await);
    }
    let name = format!("nginx-{services}");
    println!("{name}   {services} Services with {MEMBERS} members each, {}", version());
    let reloaded = by_reloads(&name, services, [a, b], &others).await;
    let (one, many) = by_driver(&name, services, [a, b], &others).await;
    println!(
        "{name}   change to live: {} by the driver, {} by render and reload: {:.2} × as long",
        shown(one),
        shown(reloaded),
        reloaded.as_secs_f64() / one.as_secs_f64()
    );
    let each = reloaded * u32::try_from(BURST).expect("few");
    println!(
        "{name}   {BURST} changes at once: {} by the driver, {} with a reload for each: {:.0} × as long",
        shown(many),
        shown(each),
        each.as_secs_f64() / many.as_secs_f64()
    );
}

/// The driver: the median time from a change until a client meets it, and the time that many take together.
async fn by_driver(
    name: &str,
    services: usize,
    [a, b]: [SocketAddr; 2],
    others: &[SocketAddr],
) -> (Duration, Duration) {
    let folder = tempfile::tempdir().expect("a folder");
    let options = Options {
        program: program(),
        exec: true,
        folder: folder.path().to_owned(),
        min_reload_interval: Duration::ZERO,
        shutdown_timeout: Duration::from_secs(1),
        access_log: false,
    };
    let port = free_port().await;
    let before = memory("self");
    let mut driver = drive(options.clone(), Counters::default()).await.expect("a driver");
    let begun = Instant::now();
    apply(&mut driver, &everything(services, port, a, others)).await;
    answered_by(port, "a").await;
    println!("{name}   from nothing to live: {}", shown(begun.elapsed()));
    let change = |round: usize| {
        let (at, by) = if round.is_multiple_of(2) { (b, "b") } else { (a, "a") };
        (Update { members: vec![members("p0", &[at])], ..Update::default() }, by)
    };
    let mut times = Vec::new();
    for round in 0..CHANGES {
        let begun = Instant::now();
        let (update, by) = change(round);
        apply(&mut driver, &update).await;
        answered_by(port, by).await;
        times.push(begun.elapsed());
    }
    println!("{name}   memory: {:.0} MB for the driver", memory("self") - before);
    driver.drain(Duration::from_secs(10)).await;

    // As it is by default: what comes within two seconds is one reload.
    let options = Options { min_reload_interval: Duration::from_secs(2), ..options };
    let mut driver = drive(options, Counters::default()).await.expect("a driver");
    apply(&mut driver, &everything(services, port, a, others)).await;
    answered_by(port, "a").await;
    let begun = Instant::now();
    for round in 0..BURST - 1 {
        driver.apply(&change(round).0).await.expect("applied");
    }
    apply(&mut driver, &change(0).0).await;
    answered_by(port, "b").await;
    let many = begun.elapsed();
    driver.drain(Duration::from_secs(10)).await;
    (median(&mut times), many)
}

/// Everything rendered, and nginx reloaded, for each change; without a check.
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
    let mut process = Command::new(program())
        .args(["-e", "stderr", "-g", "daemon off;", "-c"])
        .arg(folder.path().join("nginx.conf"))
        .spawn()
        .expect("start nginx; apt-get install -y nginx");
    answered_by(port, "a").await;
    let signal = |name: &str, pid: u32| {
        Command::new("kill").args([name, &pid.to_string()]).status().expect("kill");
    };
    let mut times = Vec::new();
    for round in 0..CHANGES {
        let (at, by) = if round.is_multiple_of(2) { (b, "b") } else { (a, "a") };
        let begun = Instant::now();
        desired.apply(&Update { members: vec![members("p0", &[at])], ..Update::default() });
        write(folder.path(), &desired, &mut written);
        signal("-HUP", process.id());
        answered_by(port, by).await;
        times.push(begun.elapsed());
    }
    signal("-TERM", process.id());
    process.wait().expect("ended");
    median(&mut times)
}

/// Renders and writes; how large it is.
fn write(folder: &Path, desired: &Desired, before: &mut BTreeMap<String, Vec<u8>>) -> f64 {
    let settings = Settings {
        folder: folder.to_owned(),
        status_socket: folder.join("status.sock"),
        log_socket: None,
        root: false,
        stream: Stream::Missing,
        shutdown_seconds: 1,
        files: 4096,
    };
    let wanted = render(desired, &Excluded::default(), &settings).expect("settings").wanted;
    common::write(folder, wanted.files(), before)
}

fn program() -> PathBuf {
    let usual = Path::new("/usr/sbin/nginx");
    if usual.exists() { usual.into() } else { "nginx".into() }
}

fn version() -> String {
    let output = Command::new(program()).arg("-v").output().expect("nginx");
    String::from_utf8_lossy(&output.stderr).trim().replace("nginx version: ", "")
}
