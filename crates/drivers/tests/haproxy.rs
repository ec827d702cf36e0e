//! Tests the driver with a real HAProxy on loopback: updates go in, requests go through HAProxy, and its processes are
//! observed. The workspace's `tests/haproxy` tests the whole agent.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

#[path = "program/both.rs"]
mod both;
#[path = "haproxy/churn.rs"]
mod churn;
mod common;
#[path = "program/failing.rs"]
mod failing;
#[path = "program/generations.rs"]
mod generations;
#[path = "haproxy/settings.rs"]
mod settings;

use both::{Checks, signal, start};
use bowline_core::outcome::Reason;
use bowline_core::plan::{Host, Limits, PathKind, Persistence, PersistenceKey, Pool};
use bowline_core::update::{Change, Extent, MemberChange, Report, ResolvedSite, SiteKey, Update};
use bowline_drivers::Driver as _;
use bowline_drivers::haproxy::{Counters, Options, drive};
use common::{
    Folder, answers, backend, consumer, eventually, exact, first, get, meanwhile, members, plain,
    pool, put, settled, site, site_at,
};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UnixStream};

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

#[tokio::test(flavor = "multi_thread")]
async fn members_and_hosts_change_without_a_reload_and_pools_where_haproxy_can() {
    let folder = Folder::new();
    let (a, b) = (backend("a").await, backend("b").await);
    let (port, update) = first(&[a]).await;
    let (mut driver, report) = start(options(folder.path()), &update).await;
    assert_eq!(report, Report::default());
    answers(port, "a.example", "/x", 200, "a").await;
    answers(port, "b.example", "/x", 404, "No rule matches this host and path.").await;
    let before = processes(folder.path()).await;

    let swap = Update { members: vec![members("p", &[b])], ..Update::default() };
    assert_eq!(driver.apply(&swap).await.unwrap(), Report::default());
    for _ in 0..10 {
        assert_eq!(get(port, "a.example", "/").await, Ok((200, "b".to_owned())));
    }
    let host = Update {
        sites: vec![site(exact("b.example"), "/odd;'$%25", "p", "b")],
        ..Update::default()
    };
    assert_eq!(driver.apply(&host).await.unwrap(), Report::default());
    answers(port, "b.example", "/odd;'$%25/y", 200, "b").await;
    answers(port, "b.example", "/od", 404, "No rule matches this host and path.").await;
    assert_eq!(processes(folder.path()).await, before);

    let more = Update {
        pools: vec![pool("q")],
        members: vec![members("q", &[a])],
        sites: vec![site(exact("c.example"), "/", "q", "c")],
        ..Update::default()
    };
    let report = driver.apply(&more).await.unwrap();
    assert_eq!(settled(&mut driver, report).await, Report::default());
    answers(port, "c.example", "/", 200, "a").await;
    answers(port, "b.example", "/odd;'$%25", 200, "b").await;
    let after = processes(folder.path()).await;
    assert_eq!(after.0, before.0, "one master");
    if version() >= (3, 4) {
        assert_eq!(after.1.first(), before.1.first(), "the same worker");
    } else {
        assert_ne!(after.1.first(), before.1.first(), "another worker");
    }
    driver.drain(Duration::from_secs(5)).await;
    ask(&folder.path().join("master.sock"), "show proc").await.expect_err("it has ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_haproxy_refuses_is_found_and_told_and_the_rest_goes_live() {
    let folder = Folder::new();
    let a = backend("a").await;
    let (port, mut update) = first(&[a]).await;
    for i in 0..20 {
        update.sites.push(site(exact(&format!("h{i}.example")), "/", "p", &format!("h{i}")));
    }
    update.sites.extend(refused("bad").sites);
    let (mut driver, report) = start(options(folder.path()), &update).await;
    let told: Vec<_> = report.refused.iter().map(|it| &it.consumer).collect();
    assert_eq!(told, [&consumer("bad")], "{report:?}");
    answers(port, "h19.example", "/", 200, "a").await;
    driver.drain(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn members_change_while_what_haproxy_refuses_is_looked_for() {
    let folder = Folder::new();
    let checks = Checks::new();
    let (a, b) = (backend("a").await, backend("b").await);
    let (port, update) = first(&[a]).await;
    let options = Options { program: checks.program.clone(), ..options(folder.path()) };
    let (mut driver, _) = start(options, &update).await;
    let before = checks.begun();
    checks.allow(before + 1);
    let report = driver.apply(&refused("bad")).await.unwrap();
    assert!(report.waiting, "{report:?}");
    checks.one_after(before + 1).await;
    // The change waits only for the check that has begun.
    let swap = Update { members: vec![members("p", &[b])], ..Update::default() };
    let (report, ()) = tokio::join!(driver.apply(&swap), async { checks.allow(before + 2) });
    let report = report.unwrap();
    assert!(report.waiting, "{report:?}");
    answers(port, "a.example", "/", 200, "b").await;

    checks.allow(u32::MAX.into());
    let report = settled(&mut driver, report).await;
    let told: Vec<_> = report.refused.iter().map(|it| &it.consumer).collect();
    assert_eq!(told, [&consumer("bad")], "{report:?}");
    answers(port, "a.example", "/", 200, "b").await;
    driver.drain(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn members_change_while_files_are_checked_and_while_haproxy_loads_them() {
    let folder = Folder::new();
    let checks = Checks::new();
    let (a, b, c) = (backend("a").await, backend("b").await, backend("c").await);
    let (port, update) = first(&[a]).await;
    let options = Options { program: checks.program.clone(), ..options(folder.path()) };
    let (mut driver, _) = start(options, &update).await;
    let before = checks.begun();
    checks.allow(before);
    let of_evil = |name: &str| {
        let mut pool = plain(name);
        pool.service.namespace = "evil".into();
        // A pool of a kind of its own needs a load in every HAProxy.
        pool.source_ranges = vec!["0.0.0.0/0".parse().unwrap()];
        Update {
            pools: vec![put(pool)],
            members: vec![members(name, &[a])],
            sites: vec![foreign("evil", name)],
            ..Update::default()
        }
    };
    let mut report = driver.apply(&of_evil("q")).await.unwrap();
    assert!(report.waiting);
    checks.one_after(before).await;
    driver.apply(&Update { members: vec![members("p", &[b])], ..Update::default() }).await.unwrap();
    answers(port, "a.example", "/", 200, "b").await;
    assert_ne!(get(port, "q.evil.example", "/").await.unwrap().0, 200, "the check is not over");
    // The same if they come in one update with a change that needs another load.
    let mut both = of_evil("r");
    both.members.push(members("p", &[c]));
    let answered = tokio::time::timeout(Duration::from_secs(10), driver.apply(&both)).await;
    assert!(answered.expect("the update waits for the check").unwrap().waiting);
    answers(port, "a.example", "/", 200, "c").await;
    assert_ne!(get(port, "r.evil.example", "/").await.unwrap().0, 200, "the check is not over");

    // Members go on changing until HAProxy has loaded the checked files.
    checks.allow(u32::MAX.into());
    for at in [c, b].into_iter().cycle() {
        let change = Update { members: vec![members("p", &[at])], ..Update::default() };
        report = driver.apply(&change).await.unwrap();
        if !report.waiting {
            break;
        }
    }
    assert_eq!(report, Report::default());
    answers(port, "q.evil.example", "/", 200, "a").await;
    answers(port, "r.evil.example", "/", 200, "a").await;
    driver.apply(&Update { members: vec![members("p", &[c])], ..Update::default() }).await.unwrap();
    for _ in 0..10 {
        assert_eq!(get(port, "a.example", "/").await, Ok((200, "c".to_owned())));
    }
    driver.drain(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn members_go_after_the_rule_that_leads_to_them_also_while_files_are_checked() {
    let folder = Folder::new();
    let checks = Checks::new();
    let (blue, green) = (backend("blue").await, backend("green").await);
    let (port, mut update) = first(&[blue]).await;
    update.pools.push(pool("g"));
    update.members.push(members("g", &[green]));
    update.sites.push(site(exact("g.example"), "/", "g", "g"));
    update.sites.push(site(exact("p.example"), "/", "p", "p"));
    let options = Options { program: checks.program.clone(), ..options(folder.path()) };
    let (mut driver, _) = start(options, &update).await;
    let before = checks.begun();
    checks.allow(before);
    // A pool of a kind of its own needs a load in every HAProxy.
    let ranges = vec!["0.0.0.0/0".parse().unwrap()];
    let evil = Update {
        pools: vec![put(Pool { source_ranges: ranges, ..plain("q") })],
        members: vec![members("q", &[blue])],
        sites: vec![foreign("evil", "q")],
        ..Update::default()
    };
    assert!(driver.apply(&evil).await.unwrap().waiting);
    checks.one_after(before).await;
    // The host gets another pool, which waits for the check, and its old pool loses its members.
    let elsewhere =
        Update { sites: vec![site(exact("a.example"), "/", "g", "a")], ..Update::default() };
    driver.apply(&elsewhere).await.unwrap();
    driver.apply(&Update { members: vec![members("p", &[])], ..Update::default() }).await.unwrap();
    assert_eq!(get(port, "a.example", "/").await, Ok((200, "blue".to_owned())));
    let moved = eventually("the host is led elsewhere", async || {
        checks.allow(u32::MAX.into());
        match get(port, "a.example", "/").await {
            Ok((200, name)) if name == "green" => Ok(Ok(())),
            Ok((200, name)) => Err(name),
            other => Ok(Err(other)),
        }
    });
    assert_eq!(moved.await, Ok(()), "no request fails");
    eventually("the members are gone", async || match get(port, "p.example", "/").await {
        Ok((503, _)) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    driver.drain(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backend_has_servers_before_a_host_is_led_to_it_however_many_others_lag() {
    let folder = Folder::new();
    let (blue, green) = (backend("blue").await, backend("green").await);
    let (port, mut update) = first(&[blue]).await;
    let crowds: Vec<_> = ["c1", "c2", "c3", "c4"].map(|name| crowd(name, 400)).into();
    update.pools.extend(crowds.iter().map(|(pool, _)| pool.clone()));
    update.members.extend(crowds.into_iter().map(|(_, members)| members));
    update.pools.push(pool("g"));
    update.members.push(members("g", &[green]));
    update.sites.push(site(exact("g.example"), "/", "g", "g"));
    update.sites.extend(["c1", "c2", "c3", "c4"].map(|name| foreign(name, name)));
    let (mut driver, _) = start(options(folder.path()), &update).await;
    let socket = folder.path().join("admin.sock");
    let ((), good, bad) = meanwhile(port, "a.example", "/x", async {
        for (round, to) in ["g", "p"].into_iter().cycle().enumerate().take(10) {
            let none = |name: &str| members(name, &[]);
            let crowds = ["c1", "c2", "c3", "c4"].map(|name| match round % 2 {
                0 => none(name),
                _ => crowd(name, 400).1,
            });
            let lead = Update {
                members: crowds.into(),
                sites: vec![site(exact("a.example"), "/", to, "a")],
                ..Update::default()
            };
            let report = driver.apply(&lead).await.unwrap();
            settled(&mut driver, report).await;
            let name = if to == "g" { "green" } else { "blue" };
            answers(port, "a.example", "/", 200, name).await;
            if to == "g" {
                has_servers(&socket, "p", 0).await;
            }
        }
    })
    .await;
    assert!(bad.is_empty(), "{} of {} failed: {:?}", bad.len(), good + bad.len(), bad.first());
    driver.drain(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_else_changed_is_repaired_and_a_dead_haproxy_comes_back() {
    let folder = Folder::new();
    let a = backend("a").await;
    let (port, update) = first(&[a]).await;
    let (mut driver, _) = start(options(folder.path()), &update).await;
    answers(port, "a.example", "/", 200, "a").await;
    let admin = folder.path().join("admin.sock");
    ask(&admin, "clear map maps/web.hosts.map").await.unwrap();
    answers(port, "a.example", "/", 200, "a").await;
    let server = format!("server p/{a}");
    let (ip, somewhere) = (a.ip(), backend("somewhere else").await.port());
    for what in [
        format!("set {server} state maint"),
        format!("set {server} state drain"),
        format!("set {server} addr {ip} port {somewhere}"),
        "disable frontend http:web".to_owned(),
        "shutdown frontend http:web".to_owned(),
    ] {
        ask(&admin, &what).await.unwrap();
        answers(port, "a.example", "/", 200, "a").await;
    }

    let master = processes(folder.path()).await.0;
    for pid in pids(folder.path()).await {
        signal(pid, "-KILL");
    }
    answers(port, "a.example", "/", 200, "a").await;
    assert_ne!(processes(folder.path()).await.0, master);

    std::fs::remove_file(&admin).unwrap();
    let b = backend("b").await;
    let swap = Update { members: vec![members("p", &[b])], ..Update::default() };
    // While the socket is gone an update may fail; then the driver gets everything again, as from the agent.
    if driver.apply(&swap).await.is_err() {
        let (_, mut again) = first(&[b]).await;
        again.listeners.clone_from(&update.listeners);
        eventually("the update", async || driver.apply(&again).await.map_err(|it| it.to_string()))
            .await;
    }
    answers(port, "a.example", "/", 200, "b").await;
    let swap = Update { members: vec![members("p", &[a])], ..Update::default() };
    eventually("commands", async || driver.apply(&swap).await.map_err(|it| it.to_string())).await;
    answers(port, "a.example", "/", 200, "a").await;
    driver.drain(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_is_held_to_its_requests_and_the_rest_goes_on() {
    let folder = Folder::new();
    let a = backend("a").await;
    let (port, mut update) = first(&[a]).await;
    let limits =
        Limits { consumer: consumer("a"), requests_per_second: Some(5), bits_per_second: None };
    let Change::Put(name, free) = pool("held") else { panic!("a pool") };
    let held = Pool { limits: Some(limits), ..(*free).clone() };
    update.pools.push(Change::Put(name, held.into()));
    update.members.push(members("held", &[a]));
    update.sites.push(site(exact("held.example"), "/", "held", "held"));
    let (mut driver, report) = start(options(folder.path()), &update).await;
    assert_eq!(report, Report::default());
    answers(port, "a.example", "/", 200, "a").await;
    let (mut served, mut refused) = (0, 0);
    for _ in 0..100 {
        match get(port, "held.example", "/").await.unwrap().0 {
            200 => served += 1,
            429 => refused += 1,
            other => panic!("{other}"),
        }
        assert_eq!(get(port, "a.example", "/").await.unwrap().0, 200);
    }
    assert!(served >= 5 && refused > 0, "{served} were served, {refused} refused");
    driver.drain(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_fails_while_rules_move_to_pools_that_are_not_there_yet() {
    let folder = Folder::new();
    let (a, b) = (backend("a").await, backend("b").await);
    let (port, update) = first(&[a]).await;
    let (mut driver, _) = start(options(folder.path()), &update).await;
    answers(port, "a.example", "/x", 200, "a").await;
    // Another Service; then the same path by another rule and with another Service.
    for (kind, path, from, to, at, name) in [
        (PathKind::Prefix, "/x", "p", "q", b, "b"),
        (PathKind::Exact, "/x", "q", "r", a, "a"),
        (PathKind::Prefix, "/", "r", "s", b, "b"),
    ] {
        let moved = Update {
            pools: vec![pool(to), Change::Remove(from.into())],
            members: vec![members(to, &[at])],
            sites: vec![site_at(exact("a.example"), kind, path, to, "a")],
            ..Update::default()
        };
        let moving = async {
            let report = driver.apply(&moved).await.unwrap();
            settled(&mut driver, report).await;
            answers(port, "a.example", "/x", 200, name).await;
        };
        let ((), good, bad) = meanwhile(port, "a.example", "/x", moving).await;
        assert_eq!(bad, Vec::<String>::new(), "to {to}, {good} were good");
        assert!(good > 0);
    }
    driver.drain(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cookie_leads_back_to_a_member_that_came_while_haproxy_ran() {
    let folder = Folder::new();
    let (a, b) = (backend("a").await, backend("b").await);
    let (port, mut update) = first(&[a]).await;
    let persistence = Some(Persistence { by: PersistenceKey::Cookie, timeout_seconds: 600 });
    update.pools = vec![put(Pool { persistence, ..plain("p") })];
    let (mut driver, _) = start(options(folder.path()), &update).await;
    answers(port, "a.example", "/", 200, "a").await;
    let more = Update { members: vec![members("p", &[a, b])], ..Update::default() };
    assert_eq!(driver.apply(&more).await.unwrap(), Report::default());
    let cookie = eventually("a cookie of the new member", async || {
        let answer = common::ask(port, "a.example", "/", "").await?;
        let line = answer.lines().find_map(|line| line.strip_prefix("set-cookie: "));
        let cookie = line.and_then(|line| line.split(';').next()).map(str::to_owned);
        match cookie {
            Some(cookie) if answer.ends_with('b') => Ok(cookie),
            _ => Err(answer),
        }
    })
    .await;
    for _ in 0..6 {
        let lines = format!("Cookie: {cookie}\r\n");
        let answer = common::ask(port, "a.example", "/", &lines).await.unwrap();
        assert!(answer.ends_with('b'), "{answer}");
    }
    driver.drain(Duration::from_secs(5)).await;
}

/// A backend that answers every request with this many bytes.
async fn large(bytes: usize) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut head = [0; 4096];
                let _ = stream.read(&mut head).await;
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\n");
                let _ = stream.write_all(head.as_bytes()).await;
                let _ = stream.write_all(&vec![b'x'; bytes]).await;
            });
        }
    });
    at
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_is_held_to_its_bandwidth_where_haproxy_can_and_told_where_not() {
    let folder = Folder::new();
    let a = large(3_000_000).await;
    let (port, mut update) = first(&[a]).await;
    let limits = Limits {
        consumer: consumer("held"),
        requests_per_second: None,
        bits_per_second: Some(8_000_000),
    };
    update.pools.push(put(Pool { limits: Some(limits), ..plain("held") }));
    update.members.push(members("held", &[a]));
    update.sites.push(site(exact("held.example"), "/", "held", "held"));
    let (mut driver, report) = start(options(folder.path()), &update).await;
    let began = std::time::Instant::now();
    let (status, body) = get(port, "held.example", "/").await.unwrap();
    assert_eq!((status, body.len()), (200, 3_000_000));
    if version() >= (2, 7) {
        assert_eq!(report, Report::default());
        // The limit is a megabyte per second, and the first megabyte may go at once.
        assert!(began.elapsed() >= Duration::from_millis(1500), "{:?}", began.elapsed());
    } else {
        let told: Vec<_> = report
            .refused
            .iter()
            .map(|it| (&it.consumer, it.problem.reason, it.extent.clone()))
            .collect();
        assert_eq!(told, [(&consumer("held"), Reason::NotSupported, Extent::Part)]);
        assert!(report.refused[0].problem.message.contains("2.7"), "{report:?}");
    }
    assert_eq!(get(port, "a.example", "/").await.unwrap().0, 200);
    driver.drain(Duration::from_secs(5)).await;
}

/// Runs a test of this file in a child process that may open `most` files. True: this is the child.
fn with_files(most: u64, test: &str) -> bool {
    const CHILD: &str = "BOWLINE_TEST_FEW_FILES";
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    let limited = format!("ulimit -n {most} && exec \"$0\" \"$@\"");
    let program = std::env::current_exe().expect("this program");
    let ran = std::process::Command::new("sh")
        .args(["-c", &limited])
        .arg(program)
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, "1")
        .status();
    assert!(ran.expect("a shell").success(), "{test} with {most} files");
    false
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

/// Waits until this many servers of `p` and of `c1` are checked: HAProxy gets large changes in parts.
async fn are_checked(socket: &Path, expected: [usize; 2]) {
    eventually("checks", async || {
        let now = [checked(socket, "p").await, checked(socket, "c1").await];
        if now == expected { Ok(()) } else { Err(format!("{now:?} instead of {expected:?}")) }
    })
    .await;
}

/// The namespaces with a report of too few files. There must be no other report.
fn short_of_files(report: &Report) -> BTreeSet<&str> {
    let refused = report.refused.iter();
    assert!(refused.clone().all(|it| it.problem.reason == Reason::NoDescriptors), "{report:?}");
    assert!(refused.clone().all(|it| it.extent == Extent::Part), "{report:?}");
    refused.map(|it| &*it.consumer.namespace).collect()
}

/// How many members of a pool HAProxy checks.
async fn checked(socket: &Path, pool: &str) -> usize {
    let answer = ask(socket, &format!("show servers state {pool}")).await.unwrap();
    let servers = answer.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    // Servers that leave are in maintenance until they are removed.
    let stays = servers.filter(|fields| fields.get(6) == Some(&"0"));
    let states = stays.filter_map(|fields| fields.get(13)?.parse::<u32>().ok());
    states.filter(|state| state & 4 != 0).count()
}

/// How many members of a pool HAProxy considers down, and how many of these no check can bring up.
async fn down(socket: &Path, pool: &str) -> (usize, usize) {
    let answer = ask(socket, &format!("show servers state {pool}")).await.unwrap();
    let servers = answer.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let down = servers.filter(|it| it.get(5) == Some(&"0") && it.get(6) == Some(&"0"));
    let states: Vec<u32> = down.filter_map(|fields| fields.get(13)?.parse().ok()).collect();
    (states.len(), states.iter().filter(|state| *state & 4 == 0).count())
}

/// The pid of HAProxy's worker, which changes with a reload.
async fn worker(socket: &Path) -> u32 {
    let info = ask(socket, "show info").await.unwrap();
    info.lines().find_map(|line| line.strip_prefix("Pid: ")).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn more_members_than_haproxy_may_open_files_keep_nobody_elses_change_from_going_live() {
    let name = "more_members_than_haproxy_may_open_files_keep_nobody_elses_change_from_going_live";
    // About 1,370 members can be checked.
    if !with_files(3_000, name) {
        return;
    }
    let folder = Folder::new();
    let at = backend("shop").await;
    let (port, update) = first(&[at]).await;
    let (mut driver, report) = start(options(folder.path()), &update).await;
    assert_eq!(short_of_files(&report), BTreeSet::new());
    answers(port, "a.example", "/", 200, "shop").await;

    // Two other namespaces have more members than can be checked, and share the checks.
    let crowds = [("c1", 800), ("c2", 1_500), ("c3", 300)].map(|(name, size)| crowd(name, size));
    let update = Update {
        pools: crowds.iter().map(|(pool, _)| pool.clone()).collect(),
        members: crowds.iter().map(|(_, members)| members.clone()).collect(),
        sites: vec![foreign("evil", "c1"), foreign("worse", "c2"), foreign("worse", "c3")],
        ..Update::default()
    };
    let report = driver.apply(&update).await.unwrap();
    let report = settled(&mut driver, report).await;
    assert_eq!(short_of_files(&report), BTreeSet::from(["evil", "worse"]));
    let socket = folder.path().join("admin.sock");
    let mut all = [0; 4];
    for (count, pool) in all.iter_mut().zip(["p", "c1", "c2", "c3"]) {
        *count = checked(&socket, pool).await;
    }
    assert_eq!(all, [1, 685, 385, 300]);

    // The next change of another namespace is loaded.
    let update =
        Update { sites: vec![site(exact("b.example"), "/", "p", "other")], ..Update::default() };
    let report = driver.apply(&update).await.unwrap();
    settled(&mut driver, report).await;
    answers(port, "b.example", "/", 200, "shop").await;

    // HAProxy is killed and restarted.
    let pid = worker(&socket).await;
    signal(pid, "-KILL");
    eventually("another HAProxy", async || {
        let info = ask(&socket, "show info").await.map_err(|error| error.to_string())?;
        let now = info.lines().find_map(|line| line.strip_prefix("Pid: ")).unwrap_or_default();
        if now == pid.to_string() { Err("the same".to_owned()) } else { Ok(()) }
    })
    .await;
    answers(port, "a.example", "/", 200, "shop").await;

    // Nothing answers at these addresses, so all checked members are down.
    eventually("members are down", async || match down(&socket, "c1").await {
        (685, 0) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    // A later namespace gets its share of the checks without a reload.
    let pid = worker(&socket).await;
    let mine = consumer("p").namespace;
    let shop = crowd("p", 900).1;
    let report = driver.apply(&Update { members: vec![shop], ..Update::default() }).await.unwrap();
    let report = settled(&mut driver, report).await;
    assert_eq!(short_of_files(&report), BTreeSet::from(["evil", &*mine, "worse"]));
    are_checked(&socket, [457, 457]).await;
    assert_eq!(down(&socket, "c1").await, (457, 0), "a member without a check is up");
    // A pool that grows when no check is free keeps its checks.
    let shop = crowd("p", 901).1;
    let report = driver.apply(&Update { members: vec![shop], ..Update::default() }).await.unwrap();
    settled(&mut driver, report).await;
    has_servers(&socket, "p", 901).await;
    are_checked(&socket, [457, 457]).await;
    let shop = crowd("p", 10).1;
    let report = driver.apply(&Update { members: vec![shop], ..Update::default() }).await.unwrap();
    let report = settled(&mut driver, report).await;
    assert_eq!(short_of_files(&report), BTreeSet::from(["evil", "worse"]));
    are_checked(&socket, [10, 681]).await;
    assert_eq!(worker(&socket).await, pid, "nothing of this needs a reload");

    // Checks return as soon as there is room, with no change other than of members.
    let fewer = crowd("c1", 10).1;
    let report = driver.apply(&Update { members: vec![fewer], ..Update::default() }).await.unwrap();
    let report = settled(&mut driver, report).await;
    assert_eq!(short_of_files(&report), BTreeSet::from(["worse"]));
    assert_eq!(checked(&socket, "c2").await, 1_371 - 10 - 10 - 300);
    driver.drain(Duration::ZERO).await;
}
