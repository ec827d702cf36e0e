//! Tests the driver with a real HAProxy on loopback: updates go in, requests go through HAProxy, and its processes are
//! observed. The workspace's `tests/haproxy` tests the whole agent. Here is what the modules share.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

#[path = "program/both.rs"]
mod both;
#[path = "haproxy/checks.rs"]
mod checks;
#[path = "haproxy/churn.rs"]
mod churn;
mod common;
#[path = "program/failing.rs"]
mod failing;
#[path = "haproxy/files.rs"]
mod files;
#[path = "program/generations.rs"]
mod generations;
#[path = "haproxy/limits.rs"]
mod limits;
#[path = "haproxy/members.rs"]
mod members;
#[path = "haproxy/repair.rs"]
mod repair;
#[path = "haproxy/settings.rs"]
mod settings;

use bowline_core::plan::{Host, Pool};
use bowline_core::update::{Change, MemberChange, ResolvedSite, SiteKey, Update};
use bowline_drivers::haproxy::{Counters, Options, drive};
use common::{consumer, eventually, exact, members, pool, site};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

/// The HAProxy under test: the one at `BOWLINE_TEST_HAPROXY`, or the usual one.
fn program() -> PathBuf {
    if let Some(other) = std::env::var_os("BOWLINE_TEST_HAPROXY") {
        return other.into();
    }
    let usual = Path::new("/usr/sbin/haproxy");
    if usual.exists() { usual.into() } else { "haproxy".into() }
}

/// The condition by which a wrapper script detects a check.
const IS_CHECK: &str = "[ \"$1\" = -c ]";
/// HAProxy's complaint about the refused update.
const WHY: &str = r"loading HAProxy's files: regex '\A(?:\x{1F600})\z' is invalid";

/// An update that HAProxy refuses: an expression that is valid in Rust but not in PCRE.
fn refused(by: &str) -> Update {
    let host = Host::Regex(r"\x{1F600}".into());
    Update { sites: vec![site(host, "/", "p", by)], ..Update::default() }
}

/// The arguments for starting HAProxy without the driver.
fn outside(folder: &Path) -> Vec<OsString> {
    let master = format!("{},level,admin", folder.join("master.sock").display());
    let config = folder.join("current/haproxy.cfg");
    vec!["-W".into(), "-S".into(), master.into(), "-f".into(), config.into()]
}

/// The first two numbers of its version.
fn version() -> (u32, u32) {
    let printed = std::process::Command::new(program()).arg("-v").output().expect("HAProxy");
    let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
    let version = printed.split_whitespace().nth(2).expect("a version");
    let mut numbers = version.split(['.', '-']).map_while(|it| it.parse::<u32>().ok());
    (numbers.next().expect("a number"), numbers.next().expect("a number"))
}

fn options(folder: &Path) -> Options {
    Options {
        program: program(),
        exec: true,
        folder: folder.to_owned(),
        admin_socket: folder.join("admin.sock"),
        master_socket: folder.join("master.sock"),
        min_reload_interval: Duration::from_millis(500),
        max_old_generations: 16,
        shutdown_timeout: Duration::from_secs(60),
        compare_every: Duration::from_secs(1),
        access_log: false,
    }
}

/// How many workers a load starts.
fn workers_of_a_load() -> usize {
    1
}

async fn ask(socket: &Path, message: &str) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(socket).await?;
    stream.write_all(format!("{message}\n").as_bytes()).await?;
    stream.shutdown().await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// The pids of the master and the workers.
async fn processes(folder: &Path) -> (u32, Vec<u32>) {
    // A master that reloads is unreachable for a moment.
    let answer = eventually("a master", async || {
        ask(&folder.join("master.sock"), "show proc").await.map_err(|it| it.to_string())
    })
    .await;
    let of = |kind: &str| -> Vec<u32> {
        let lines = answer.lines().map(|it| it.split_whitespace().collect::<Vec<_>>());
        lines.filter(|it| it.get(1) == Some(&kind)).filter_map(|it| it[0].parse().ok()).collect()
    };
    (of("master")[0], of("worker"))
}

async fn pids(folder: &Path) -> Vec<u32> {
    let (master, workers) = processes(folder).await;
    // The master exits when its worker does.
    [vec![master], workers].concat()
}

/// A pool with this many members, each at another address where nothing listens.
fn crowd(
    name: &str,
    number: u32,
) -> (Change<std::sync::Arc<str>, std::sync::Arc<Pool>>, MemberChange) {
    let at = |n: u32| (std::net::Ipv4Addr::from(0x7f20_0000 + n), 9).into();
    let base = name.bytes().fold(0_u32, |sum, byte| (sum * 31 + u32::from(byte)) % 97) * 5_000;
    let all: Vec<_> = (base..base + number).map(at).collect();
    (pool(name), members(name, &all))
}

/// A site of this namespace, with a rule for this pool.
fn foreign(namespace: &str, name: &str) -> Change<SiteKey, std::sync::Arc<ResolvedSite>> {
    let Change::Put(key, it) = site(exact(&format!("{name}.evil.example")), "/", name, name) else {
        panic!("a site")
    };
    let mut it = (*it).clone();
    it.owner = namespace.into();
    let by = bowline_core::key::ConsumerRef { namespace: namespace.into(), ..consumer(name) };
    it.rules.iter_mut().for_each(|(_, of)| *of = by.clone());
    Change::Put(key, std::sync::Arc::new(it))
}

/// Waits until a backend has this many servers that take traffic.
async fn has_servers(socket: &Path, name: &str, expected: usize) {
    eventually("servers", async || {
        let answer = ask(socket, &format!("show servers state {name}")).await;
        let answer = answer.map_err(|it| it.to_string())?;
        let stay = answer.lines().filter(|line| line.split(' ').nth(6) == Some("0")).count();
        if stay == expected { Ok(()) } else { Err(format!("{stay} instead of {expected}")) }
    })
    .await;
}

/// The pid of HAProxy's worker, which changes with a reload.
async fn worker(socket: &Path) -> u32 {
    let info = ask(socket, "show info").await.unwrap();
    info.lines().find_map(|line| line.strip_prefix("Pid: ")).unwrap().parse().unwrap()
}
