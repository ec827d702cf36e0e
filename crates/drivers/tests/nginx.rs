//! Tests the driver with a real nginx on loopback: updates go in, requests go through nginx, and its processes are
//! observed. The workspace's `tests/nginx` tests the whole agent.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

#[path = "program/both.rs"]
mod both;
mod common;
#[path = "program/failing.rs"]
mod failing;
#[path = "program/generations.rs"]
mod generations;

use both::{Stopped, signal, start};
use bowline_core::outcome::Reason;
use bowline_core::plan::{CertificateRef, Limits, Pool, Serves, SiteTls, Timeouts};
use bowline_core::update::{Certificate, Change, Report, ResolvedSite, Update};
use bowline_drivers::Driver as _;
use bowline_drivers::nginx::{Counters, Options, drive};
use common::folder::parent;
use common::{
    Folder, answers, ask, backend, consumer, eventually, exact, first, free_port, get, listener,
    members, plain, pool, put, settled, site, slow,
};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

fn program() -> PathBuf {
    let usual = Path::new("/usr/sbin/nginx");
    if usual.exists() { usual.into() } else { "nginx".into() }
}

/// The condition by which a wrapper script detects a check.
const IS_CHECK: &str = "[ \"$3\" = -t ]";
/// nginx's complaint about the refused update.
const WHY: &str = "loading nginx's file: invalid port in upstream \"127.0.0.1:0\"";

/// An update that nginx refuses: a member with port 0.
fn refused(by: &str) -> Update {
    Update {
        pools: vec![pool(by)],
        members: vec![members(by, &[([127, 0, 0, 1], 0).into()])],
        sites: vec![site(exact(&format!("{by}.example")), "/", by, by)],
        ..Update::default()
    }
}

/// The arguments for starting nginx without the driver.
fn outside(folder: &Path) -> Vec<OsString> {
    let config = folder.join("current/nginx.conf");
    ["-e", "stderr", "-g", "daemon off;", "-c"]
        .map(OsString::from)
        .into_iter()
        .chain([config.into()])
        .collect()
}

fn options(folder: &Path) -> Options {
    Options {
        program: program(),
        exec: true,
        folder: folder.to_owned(),
        min_reload_interval: Duration::from_millis(300),
        max_old_generations: 16,
        shutdown_timeout: Duration::from_secs(60),
        access_log: false,
    }
}

/// How many workers a load starts.
fn workers_of_a_load() -> usize {
    std::thread::available_parallelism().unwrap().get()
}

/// The pid of an nginx process that accepts connections.
async fn worker(folder: &Path) -> Result<u32, String> {
    let asking = async {
        let mut stream = UnixStream::connect(folder.join("status.sock")).await?;
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    let answer = asking.await.map_err(|error| error.to_string())?;
    answer.trim_end().rsplit(' ').next().and_then(|it| it.parse().ok()).ok_or(answer)
}

/// The pid of the master, then those of the workers.
async fn pids(folder: &Path) -> Vec<u32> {
    let master = master(folder).await;
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let all = all.filter_map(|it| it.file_name().to_str()?.parse().ok());
    [master].into_iter().chain(all.filter(|pid| parent(*pid) == Some(master))).collect()
}

async fn master(folder: &Path) -> u32 {
    eventually("a master", async || {
        let worker = worker(folder).await?;
        let parent = parent(worker).ok_or("it has ended")?;
        // A worker of a killed master has another parent.
        let title = std::fs::read_to_string(format!("/proc/{parent}/cmdline"));
        let title = title.map_err(|it| it.to_string())?;
        if title.starts_with("nginx: master") { Ok(parent) } else { Err(title) }
    })
    .await
}

const NOTHING: &str = "No rule matches this host and path.\n";

#[tokio::test(flavor = "multi_thread")]
async fn what_is_reported_is_served_and_a_burst_is_one_reload() {
    let folder = Folder::new();
    let (a, b) = (backend("a").await, backend("b").await);
    let (port, update) = first(&[a]).await;
    let (mut driver, report) = start(options(folder.path()), &update).await;
    assert_eq!(report, Report::default());
    assert_eq!(get(port, "a.example", "/x").await, Ok((200, "a".to_owned())));
    assert_eq!(get(port, "b.example", "/x").await, Ok((404, NOTHING.to_owned())));
    let before = master(folder.path()).await;

    // No request meets an old process once the new ones are reported.
    for round in 0..10 {
        let at = if round % 2 == 0 { b } else { a };
        let swap = Update { members: vec![members("p", &[at])], ..Update::default() };
        let report = driver.apply(&swap).await.unwrap();
        assert_eq!(settled(&mut driver, report).await, Report::default());
        let name = if round % 2 == 0 { "b" } else { "a" };
        for _ in 0..20 {
            assert_eq!(get(port, "a.example", "/").await, Ok((200, name.to_owned())));
        }
    }

    let began = Instant::now();
    let mut report = Report::default();
    for round in 0..100 {
        let at = if round % 2 == 0 { a } else { b };
        let swap = Update { members: vec![members("p", &[at])], ..Update::default() };
        report = driver.apply(&swap).await.unwrap();
    }
    settled(&mut driver, report).await;
    answers(port, "a.example", "/", 200, "b").await;
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());

    let more = Update {
        pools: vec![pool("q")],
        members: vec![members("q", &[a])],
        sites: vec![site(exact("c.example"), "/odd;'$%20", "q", "c")],
        ..Update::default()
    };
    let report = driver.apply(&more).await.unwrap();
    assert_eq!(settled(&mut driver, report).await, Report::default());
    answers(port, "c.example", "/odd;'$%20/y", 200, "a").await;
    answers(port, "c.example", "/od", 404, NOTHING).await;
    assert_eq!(master(folder.path()).await, before, "one master");
    driver.drain(Duration::from_secs(5)).await;
    worker(folder.path()).await.expect_err("it has ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nginx_refuses_is_found_and_told_and_the_rest_goes_live() {
    let folder = Folder::new();
    let a = backend("a").await;
    let (port, mut update) = first(&[a]).await;
    for i in 0..20 {
        update.sites.push(site(exact(&format!("h{i}.example")), "/", "p", &format!("h{i}")));
    }
    // A member with port 0, and a malformed certificate.
    let bad = refused("bad");
    update.pools.extend(bad.pools);
    update.members.extend(bad.members);
    update.sites.extend(bad.sites);
    let hash: Arc<str> = "ab".repeat(32).into();
    let block = |label: &str| format!("-----BEGIN {label}-----\nAAAA\n-----END {label}-----\n");
    let certificate =
        Certificate { chain: block("CERTIFICATE").into(), key: block("PRIVATE KEY").into() };
    update.certificates.push(Change::Put(hash.clone(), Arc::new(certificate)));
    let tls = SiteTls { certificate: Some(CertificateRef { hash }), redirect: false };
    let Change::Put(key, plain) = site(exact("tls.example"), "/", "p", "tls") else { panic!() };
    let secure = ResolvedSite { tls: Some(tls), ..(*plain).clone() };
    update.sites.push(Change::Put(key, Arc::new(secure)));
    let Change::Put(key, clear) = listener(([127, 0, 0, 1], 1).into()) else { panic!() };
    let mut https = (*clear).clone();
    https.listener.protocol = bowline_core::plan::ListenerProtocol::Https;
    https.listener.port = free_port().await;
    https.listener.serves = Serves::Entry("web".into());
    let key = bowline_core::update::ListenerKey { port: https.listener.port, ..key };
    update.listeners.push(Change::Put(key, Arc::new(https)));

    let (mut driver, report) = start(options(folder.path()), &update).await;
    let told: Vec<_> = report.refused.iter().map(|it| (&it.consumer, it.problem.reason)).collect();
    assert_eq!(
        told,
        [(&consumer("bad"), Reason::NotSupported), (&consumer("tls"), Reason::BadCertificate)],
        "{report:?}"
    );
    answers(port, "h19.example", "/", 200, "a").await;
    answers(port, "tls.example", "/", 200, "a").await;
    answers(port, "bad.example", "/", 404, NOTHING).await;

    // A changed consumer is tried again.
    let better = Update {
        members: vec![members("bad", &[a])],
        sites: vec![site(exact("bad.example"), "/better", "bad", "bad")],
        ..Update::default()
    };
    let report = driver.apply(&better).await.unwrap();
    let report = settled(&mut driver, report).await;
    assert_eq!(report.refused.len(), 1, "{report:?}");
    answers(port, "bad.example", "/better", 200, "a").await;
    driver.drain(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_nginx_that_is_killed_or_whose_socket_is_removed_loads_what_comes() {
    let folder = Folder::new();
    let (a, b) = (backend("a").await, backend("b").await);
    let (port, update) = first(&[a]).await;
    let (mut driver, _) = start(options(folder.path()), &update).await;
    let remove_socket = || std::fs::remove_file(folder.path().join("status.sock")).unwrap();
    let mut now = b;
    for hidden in [true, false] {
        let before = master(folder.path()).await;
        signal(before, "-KILL");
        // Its workers live on and hold its addresses. Without the socket's file they cannot be found.
        if hidden {
            remove_socket();
        }
        eventually("another master", async || match master(folder.path()).await {
            now if now == before => Err("the same".to_owned()),
            _ => get(port, "a.example", "/").await.map(drop),
        })
        .await;
        // The driver may not have asked there yet.
        remove_socket();
        let swap = Update { members: vec![members("p", &[now])], ..Update::default() };
        eventually("the update", async || driver.apply(&swap).await.map_err(|it| it.to_string()))
            .await;
        answers(port, "a.example", "/", 200, if now == a { "a" } else { "b" }).await;
        // nginx now uses the other socket, until that one is gone.
        std::fs::remove_file(folder.path().join("status-2.sock")).unwrap();
        eventually("a socket", async || worker(folder.path()).await).await;
        now = a;
    }
    driver.drain(Duration::from_secs(5)).await;
    get(port, "a.example", "/").await.expect_err("it has ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_else_made_it_load_is_repaired() {
    let folder = Folder::new();
    let a = backend("a").await;
    let (port, update) = first(&[a]).await;
    let (mut driver, _) = start(options(folder.path()), &update).await;
    let file = folder.path().join("current/nginx.conf");
    let text = std::fs::read_to_string(&file).unwrap();
    let other =
        text.replace("bowline-", "other-").replace("server_name a.example;", "server_name x;");
    std::fs::write(&file, other).unwrap();
    signal(master(folder.path()).await, "-HUP");
    answers(port, "a.example", "/", 404, NOTHING).await;
    answers(port, "a.example", "/", 200, "a").await;
    driver.drain(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_answers_to_one_client_take_no_member_from_the_others() {
    let folder = Folder::new();
    let (a, b) = (slow("a").await, slow("b").await);
    let (port, mut update) = first(&[a.at, b.at]).await;
    let timeouts = Timeouts { backend_ms: Some(300), ..Timeouts::default() };
    update.pools = vec![put(Pool { timeouts, ..plain("p") })];
    let (mut driver, _) = start(options(folder.path()), &update).await;
    for _ in 0..12 {
        assert_eq!(get(port, "a.example", "/slow").await.map(|it| it.0), Ok(504));
        assert_eq!(get(port, "a.example", "/").await.map(|it| it.0), Ok(200));
    }
    // Slow requests are not repeated with another member.
    assert_eq!(a.slow() + b.slow(), 12);
    driver.drain(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_may_have_64_kib_and_a_target_no_fragment() {
    let folder = Folder::new();
    let a = backend("a").await;
    let (port, update) = first(&[a]).await;
    let (mut driver, _) = start(options(folder.path()), &update).await;
    let long = format!("X-Long: {}\r\n", "x".repeat(60_000));
    let answer = ask(port, "a.example", "/", &long).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    for path in ["/a#/../b", "/a#", "/a?b#/../c", "/a/../b", "/a/..;x"] {
        assert_eq!(get(port, "a.example", path).await.map(|it| it.0), Ok(400), "{path}");
    }
    assert_eq!(get(port, "a.example", "/a?b=/../c").await.map(|it| it.0), Ok(200));
    driver.drain(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_may_open_as_many_files_as_the_machine_lets_them() {
    let folder = Folder::new();
    let a = backend("a").await;
    let (_, update) = first(&[a]).await;
    let program = both::script(folder.path(), "ulimit -S -n 256");
    let (mut driver, _) = start(Options { program, ..options(folder.path()) }, &update).await;
    let worker = worker(folder.path()).await.unwrap();
    let limits = std::fs::read_to_string(format!("/proc/{worker}/limits")).unwrap();
    let line = limits.lines().find(|it| it.starts_with("Max open files")).unwrap();
    let soft: u64 = line.split_whitespace().nth(3).unwrap().parse().unwrap();
    assert!(soft > 1_024, "{line}");
    driver.drain(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_takes_a_killed_masters_place_has_its_addresses_at_once() {
    let folder = Folder::new();
    let a = backend("a").await;
    let (port, update) = first(&[a]).await;
    let (mut driver, _) = start(options(folder.path()), &update).await;
    let before = master(folder.path()).await;
    signal(before, "-KILL");
    eventually("another master", async || match master(folder.path()).await {
        now if now == before => Err("the same".to_owned()),
        _ => Ok(()),
    })
    .await;
    // Its workers live on for a moment and hold the addresses. That must not count as a failure.
    let report = driver.apply(&Update::default()).await.unwrap();
    assert_eq!(settled(&mut driver, report).await, Report::default());
    assert_eq!(get(port, "a.example", "/").await, Ok((200, "a".to_owned())));
    driver.drain(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_beyond_what_was_agreed_wait_and_more_are_refused() {
    let folder = Folder::new();
    let a = backend("a").await;
    let (port, mut update) = first(&[a]).await;
    let limits =
        Limits { consumer: consumer("held"), requests_per_second: Some(5), bits_per_second: None };
    update.pools.push(put(Pool { limits: Some(limits), ..plain("held") }));
    update.members.push(members("held", &[a]));
    update.sites.push(site(exact("held.example"), "/", "held", "held"));
    let (mut driver, report) = start(options(folder.path()), &update).await;
    assert_eq!(report, Report::default());
    let mut asked = tokio::task::JoinSet::new();
    for _ in 0..60 {
        asked.spawn(async move {
            let began = Instant::now();
            let status = get(port, "held.example", "/").await.unwrap().0;
            (status, began.elapsed())
        });
    }
    let all = asked.join_all().await;
    let of = |status| all.iter().filter(move |it| it.0 == status).map(|it| it.1);
    assert_eq!(of(200).count() + of(429).count(), 60, "{all:?}");
    // One request goes at once and five wait; others may have come later.
    assert!(of(200).count() >= 6 && of(429).count() > 0, "{all:?}");
    let longest = of(200).max().unwrap();
    assert!(longest >= Duration::from_millis(700), "{longest:?} of {all:?}");
    assert_eq!(get(port, "a.example", "/").await, Ok((200, "a".to_owned())));
    driver.drain(Duration::from_secs(5)).await;
}

/// Waits for an answer of a worker that is not stopped. The kernel may have woken a stopped one for a request.
async fn others_answer(stopped: &Stopped, folder: &Path) {
    eventually("another worker", async || {
        let asked = tokio::time::timeout(Duration::from_millis(200), worker(folder)).await;
        match asked.map_err(|_| "no answer".to_owned())?? {
            pid if stopped.0.contains(&pid) => Err("a stopped one".to_owned()),
            _ => Ok(()),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_that_is_found_under_way_is_in_force_when_processes_of_before_are_deaf() {
    let folder = Folder::new();
    let a = backend("a").await;
    let (port, update) = first(&[a]).await;
    let (driver, _) = start(options(folder.path()), &update).await;
    drop(driver);
    // The new workers have what the next agent wants.
    let file = folder.path().join("current/nginx.conf");
    let wanted = std::fs::read_to_string(&file).unwrap();
    let other = wanted.replace("bowline-", "other-").replace("name a.example;", "name x;");
    let master = master(folder.path()).await;
    for (text, status) in [(&other, 404), (&wanted, 200)] {
        let stopped = Stopped::workers(folder.path()).await;
        std::fs::write(&file, text).unwrap();
        signal(master, "-HUP");
        others_answer(&stopped, folder.path()).await;
        if status == 404 {
            drop(stopped);
            eventually("only the others", async || {
                let mut all = Vec::new();
                for _ in 0..20 {
                    all.push(get(port, "a.example", "/").await);
                }
                match all.iter().all(|it| it.as_ref().is_ok_and(|it| it.0 == 404)) {
                    true => Ok(()),
                    false => Err(format!("{all:?}")),
                }
            })
            .await;
            continue;
        }
        let mut driver = drive(options(folder.path()), Counters::default()).await.unwrap();
        let applied = tokio::time::timeout(Duration::from_secs(4), driver.apply(&update)).await;
        applied.expect_err("it is in force too early");
        drop(stopped);
        let report = driver.apply(&Update::default()).await.unwrap();
        assert_eq!(settled(&mut driver, report).await, Report::default());
        assert_eq!(get(port, "a.example", "/").await, Ok((200, "a".to_owned())));
        driver.drain(Duration::from_secs(5)).await;
    }
}
