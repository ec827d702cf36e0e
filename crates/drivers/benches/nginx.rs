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

use bowline_core::plan::Host;
use bowline_core::update::Update;
use bowline_drivers::Driver as _;
use bowline_drivers::desired::Desired;
use bowline_drivers::nginx::render::{Settings, Stream, render};
use bowline_drivers::nginx::{Counters, Options, drive};
use bowline_drivers::program::{Excluded, MAX_OLD_GENERATIONS};
use common::stage::{
    Plain, Stage, TURNS, answered_by, asked, free_port, median, memory, program, signal,
};
use common::{apply, members, pool, site_of};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// Changes that are measured one by one, and that come at once.
const CHANGES: usize = 5;
const BURST: usize = 100;

#[tokio::main]
async fn main() {
    for services in asked("nginx") {
        let stage = Stage::new("nginx", services, &version()).await;
        let plain = Plain {
            render: files,
            start,
            reload: async |_: &Path, process: &Child| signal(process, "-HUP"),
        };
        let reloaded = stage.by_reloads(CHANGES, plain).await;
        let (one, many) = by_driver(&stage).await;
        let both = [("by the driver", one), ("by render and reload", reloaded)];
        stage.compare("change to live", both);
        let each = reloaded * u32::try_from(BURST).expect("few");
        let both = [("by the driver", many), ("with a reload for each", each)];
        stage.compare(&format!("{BURST} changes at once"), both);
    }
}

/// The driver: the median time from a change until a client meets it, and the time that many take together.
async fn by_driver(stage: &Stage) -> (Duration, Duration) {
    let folder = tempfile::tempdir().expect("a folder");
    let options = Options {
        program: program("nginx"),
        exec: true,
        folder: folder.path().to_owned(),
        min_reload_interval: Duration::ZERO,
        max_old_generations: MAX_OLD_GENERATIONS,
        shutdown_timeout: Duration::from_secs(1),
        access_log: false,
    };
    let port = free_port().await;
    let before = memory("self");
    let mut driver = drive(options.clone(), Counters::default()).await.expect("a driver");
    stage.begin(&mut driver, port).await;
    let mut times = stage.by_driver(&mut driver, port, CHANGES).await;
    stage.says(&format!("memory: {:.0} MB for the driver", memory("self") - before));
    // A member that no connection can be made to.
    let bad = Update {
        pools: vec![pool("bad", None)],
        members: vec![members("bad", &[([127, 0, 0, 1], 0).into()])],
        sites: vec![site_of(Host::Exact("bad.example".into()), "bad", "bad")],
        ..Update::default()
    };
    stage.refused(&mut driver, &bad).await;
    driver.drain(Duration::from_secs(10)).await;

    // As it is by default: what comes within two seconds is one reload.
    let options = Options { min_reload_interval: Duration::from_secs(2), ..options };
    let mut driver = drive(options, Counters::default()).await.expect("a driver");
    apply(&mut driver, &stage.everything(port)).await;
    answered_by(port, TURNS[0]).await;
    let begun = Instant::now();
    for round in 0..BURST - 1 {
        driver.apply(&stage.change(round).0).await.expect("applied");
    }
    let (update, by) = stage.change(BURST - 1);
    apply(&mut driver, &update).await;
    answered_by(port, by).await;
    let many = begun.elapsed();
    driver.drain(Duration::from_secs(10)).await;
    (median(&mut times), many)
}

fn files(folder: &Path, desired: &Desired) -> BTreeMap<String, Vec<u8>> {
    let settings = Settings {
        folder: folder.to_owned(),
        status_socket: folder.join("status.sock"),
        log_socket: None,
        root: false,
        stream: Stream::Missing,
        shutdown_seconds: 1,
        files: 4096,
    };
    render(desired, &Excluded::default(), &settings).expect("settings").wanted.files()
}

fn start(folder: &Path) -> Child {
    let mut command = Command::new(program("nginx"));
    command.args(["-e", "stderr", "-g", "daemon off;", "-c"]).arg(folder.join("nginx.conf"));
    command.spawn().expect("start nginx; apt-get install -y nginx")
}

fn version() -> String {
    let output = Command::new(program("nginx")).arg("-v").output().expect("nginx");
    String::from_utf8_lossy(&output.stderr).trim().replace("nginx version: ", "")
}
