//! Tests for every program. Compiled once for each program; the binary's root has what is special about it.

use crate::common::{
    Folder, answers, backend, consumer, eventually, exact, first, free_port, get, listener,
    members, pool, running, settled, site,
};
use crate::{Counters, IS_CHECK, Options, WHY, drive, options, outside, pids, program, refused};
use bowline_core::update::{Change, Report, Update};
use bowline_drivers::Driver as _;
use bowline_drivers::program::Driven;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::task::{LocalSet, spawn_local};

/// Starts a driver with this update, and waits until the update is in force.
pub(crate) async fn start(options: Options, update: &Update) -> (Driven, Report) {
    let mut driver = drive(options, Counters::default()).await.unwrap();
    let report = driver.apply(update).await.unwrap();
    let report = settled(&mut driver, report).await;
    (driver, report)
}

/// A wrapper script that runs these lines before the program.
pub(crate) fn script(folder: &Path, lines: &str) -> PathBuf {
    let script = folder.join("program");
    let text = format!("#!/bin/sh\n{lines}\nexec {} \"$@\"\n", program().display());
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    script
}

/// Sends a signal, if the process exists.
pub(crate) fn signal(pid: u32, name: &str) {
    Command::new("kill").args([name, &pid.to_string()]).status().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_test_that_fails_leaves_no_program_running() {
    let (told, pids_of) = tokio::sync::oneshot::channel();
    let fails = async move {
        let folder = Folder::new();
        let a = backend("a").await;
        let (_, update) = first(&[a]).await;
        let (_driver, _) = start(options(folder.path()), &update).await;
        let pids = pids(folder.path()).await;
        assert!(!pids.is_empty() && pids.iter().all(|pid| running(folder.path()).contains(pid)));
        told.send((folder.path().to_owned(), pids)).unwrap();
        panic!("as a test fails");
    };
    let failed: Result<(), _> = LocalSet::new().run_until(async { spawn_local(fails).await }).await;
    assert!(failed.unwrap_err().is_panic());
    let (folder, pids) = pids_of.await.unwrap();
    eventually("all of them to end", async || {
        let ended = |pid: &u32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline"));
            !line.is_ok_and(|line| !line.is_empty())
        };
        let left = running(&folder);
        if left.is_empty() && pids.iter().all(ended) { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_cannot_be_bound_is_told_and_served_when_it_can() {
    let folder = Folder::new();
    let a = backend("a").await;
    let (port, mut update) = first(&[a]).await;
    let held = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let taken = held.local_addr().unwrap();
    update.listeners.push(listener(taken));
    let (mut driver, report) = start(options(folder.path()), &update).await;
    assert_eq!(report.refused.len(), 1, "{report:?}");
    answers(port, "a.example", "/", 200, "a").await;
    drop(held);
    answers(taken.port(), "a.example", "/", 200, "a").await;
    driver.drain(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_ended_comes_back_without_an_address_that_was_taken_meanwhile() {
    let folder = Folder::new();
    let a = backend("a").await;
    let (port, mut update) = first(&[a]).await;
    let lost = ([127, 0, 0, 1], free_port().await).into();
    update.listeners.push(listener(lost));
    let (mut driver, report) = start(options(folder.path()), &update).await;
    assert_eq!(report, Report::default());
    let taken = eventually("the address, before the next one has it", async || {
        answers(lost.port(), "a.example", "/", 200, "a").await;
        for pid in pids(folder.path()).await {
            signal(pid, "-KILL");
        }
        let until = Instant::now() + Duration::from_secs(1);
        loop {
            match TcpListener::bind(lost).await {
                Ok(taken) => return Ok(taken),
                Err(why) if Instant::now() >= until => return Err(why.to_string()),
                Err(_) => tokio::task::yield_now().await,
            }
        }
    })
    .await;
    answers(port, "a.example", "/", 200, "a").await;
    let report = eventually("what cannot be bound is told", async || {
        let report = driver.apply(&Update::default()).await.map_err(|it| it.to_string())?;
        if report.refused.is_empty() { Err(format!("{report:?}")) } else { Ok(report) }
    })
    .await;
    assert_eq!(report.refused[0].consumer, consumer("edge"), "{report:?}");
    drop(taken);
    answers(lost.port(), "a.example", "/", 200, "a").await;
    driver.drain(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_somebody_else_runs_is_driven_and_left_running() {
    let folder = Folder::new();
    let (a, b) = (backend("a").await, backend("b").await);
    let (port, update) = first(&[a]).await;
    let options = Options { exec: false, ..options(folder.path()) };
    let mut driver = drive(options, Counters::default()).await.unwrap();
    let error = driver.apply(&update).await.unwrap_err();
    assert!(error.retry, "{error}");

    // As the error advises: start it with the files that were just written.
    let mut running = tokio::process::Command::new(program())
        .args(outside(folder.path()))
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    eventually("the update", async || driver.apply(&update).await.map_err(|it| it.to_string()))
        .await;
    answers(port, "a.example", "/", 200, "a").await;
    let swap = Update { members: vec![members("p", &[b])], ..Update::default() };
    eventually("the update", async || driver.apply(&swap).await.map_err(|it| it.to_string())).await;
    answers(port, "a.example", "/", 200, "b").await;
    driver.drain(Duration::from_secs(5)).await;
    assert_eq!(get(port, "a.example", "/").await, Ok((200, "b".to_owned())));
    signal(running.id().unwrap(), "-TERM");
    running.wait().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn why_it_does_not_load_what_its_check_accepted_is_told() {
    let folder = Folder::new();
    let a = backend("a").await;
    let (port, update) = first(&[a]).await;
    // The check can be made to accept everything.
    let lie = folder.path().join("lie");
    let lies = format!("{IS_CHECK} && [ -e {} ] && exit 0", lie.display());
    let options = Options { program: script(folder.path(), &lies), ..options(folder.path()) };
    let (mut driver, _) = start(options, &update).await;

    std::fs::write(&lie, "").unwrap();
    // The reason comes at once, or with the second try.
    let mut trouble = driver.apply(&refused("bad")).await.err().map(|it| it.to_string());
    while trouble.is_none() {
        let report = tokio::time::timeout(Duration::from_secs(30), driver.changed()).await;
        let report = report.unwrap().unwrap();
        assert!(report.waiting, "{report:?}");
        trouble = report.trouble;
    }
    let trouble = trouble.unwrap();
    assert!(trouble.contains(WHY), "{trouble}");
    assert_eq!(get(port, "a.example", "/").await, Ok((200, "a".to_owned())));

    std::fs::remove_file(&lie).unwrap();
    let waiting = Report { waiting: true, ..Report::default() };
    let report = settled(&mut driver, waiting).await;
    let told: Vec<_> = report.refused.iter().map(|it| &it.consumer).collect();
    assert_eq!((told, report.trouble), (vec![&consumer("bad")], None));
    driver.drain(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_that_are_refused_only_together_one_is_left_out() {
    let folder = Folder::new();
    let a = backend("a").await;
    let (port, mut update) = first(&[a]).await;
    for name in ["one-x", "one-y"] {
        update.pools.push(pool(name));
        update.members.push(members(name, &[a]));
        update.sites.push(site(exact(&format!("{name}.example")), "/", name, name));
    }
    let both = "for file; do :; done; grep -qE '(backend|upstream) one-x' \"$file\" && grep -qE '(backend|upstream) one-y' \"$file\"";
    let script = script(folder.path(), &format!("{IS_CHECK} && ({both}) && exit 1"));
    let options = Options { program: script, ..options(folder.path()) };
    let (mut driver, report) = start(options, &update).await;
    let told: Vec<_> = report.refused.iter().map(|it| &it.consumer).collect();
    assert_eq!(told, [&consumer("one-y")], "{report:?}");
    for host in ["a.example", "one-x.example"] {
        answers(port, host, "/", 200, "a").await;
    }
    driver.drain(Duration::from_secs(5)).await;
}

/// A program with checks that wait until the test allows them.
pub(crate) struct Checks {
    folder: Folder,
    pub(crate) program: PathBuf,
}

impl Checks {
    pub(crate) fn new() -> Self {
        let folder = Folder::new();
        let [begun, allowed] = ["begun", "allowed"].map(|it| folder.path().join(it));
        let wait = format!(
            "echo >> {begun}; n=$(wc -l < {begun}); until [ $n -le $(cat {allowed}) ]; do sleep 0.01; done",
            begun = begun.display(),
            allowed = allowed.display()
        );
        let program = script(folder.path(), &format!("if {IS_CHECK}; then {wait}; fi"));
        let checks = Self { folder, program };
        checks.allow(u32::MAX.into());
        checks
    }

    pub(crate) fn begun(&self) -> u64 {
        let lines = std::fs::read_to_string(self.folder.path().join("begun"));
        lines.map_or(0, |lines| lines.lines().count() as u64)
    }

    /// Allows the first `count` checks.
    pub(crate) fn allow(&self, count: u64) {
        let next = self.folder.path().join("next");
        std::fs::write(&next, count.to_string()).unwrap();
        std::fs::rename(&next, self.folder.path().join("allowed")).unwrap();
    }

    /// Waits until more than `count` checks have begun.
    pub(crate) async fn one_after(&self, count: u64) {
        eventually("a check that waits", async || match self.begun() {
            begun if begun > count => Ok(()),
            begun => Err(format!("{begun} have begun")),
        })
        .await;
    }
}

/// Many consumers that are accepted and need a reload.
fn many(at: SocketAddr) -> Update {
    let hosts = (0..16).map(|i| format!("h{i}"));
    Update {
        pools: vec![pool("q")],
        members: vec![members("q", &[at])],
        sites: hosts.map(|it| site(exact(&format!("{it}.example")), "/", "q", &it)).collect(),
        ..Update::default()
    }
}

/// Joins two updates.
fn and(mut one: Update, other: Update) -> Update {
    one.pools.extend(other.pools);
    one.members.extend(other.members);
    one.sites.extend(other.sites);
    one
}

fn without<K: Clone, V>(changes: &[Change<K, V>]) -> Vec<Change<K, V>> {
    let keys = changes.iter().map(|change| match change {
        Change::Put(key, _) | Change::Remove(key) => key.clone(),
    });
    keys.map(Change::Remove).collect()
}

/// A driver in a search, whose fourth check waits, with its port and the number of checks before.
async fn searching(folder: &Path) -> (Checks, Driven, u16, u64) {
    let checks = Checks::new();
    let a = backend("a").await;
    let (port, update) = first(&[a]).await;
    let options = Options {
        program: checks.program.clone(),
        min_reload_interval: Duration::ZERO,
        ..options(folder)
    };
    let (mut driver, _) = start(options, &update).await;
    let before = checks.begun();
    // The checks of everything, of all unchanged suspects, and of the first half of the changed ones.
    checks.allow(before + 3);
    let report = driver.apply(&and(many(a), refused("bad"))).await.unwrap();
    assert!(report.waiting, "{report:?}");
    checks.one_after(before + 3).await;
    (checks, driver, port, before)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_newer_goes_live_before_the_search_for_what_was_refused_is_over() {
    let folder = Folder::new();
    let (checks, mut driver, port, before) = searching(folder.path()).await;
    assert_ne!(get(port, "h0.example", "/").await.unwrap().0, 200, "nothing of it is accepted");

    // The search has begun its next check; the check after that is for the newer state.
    let bad = refused("bad");
    let (pools, sites) = (without(&bad.pools), without(&bad.sites));
    let better = Update { pools, sites, ..Update::default() };
    let (report, ()) = tokio::join!(driver.apply(&better), async { checks.allow(before + 5) });
    assert_eq!(settled(&mut driver, report.unwrap()).await, Report::default());
    for host in ["a.example", "h0.example", "h15.example"] {
        answers(port, host, "/", 200, "a").await;
    }
    assert_eq!(checks.begun(), before + 5);
    checks.allow(u32::MAX.into());
    driver.drain(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_ends_when_it_is_told_to_though_what_is_refused_is_not_found_yet() {
    let folder = Folder::new();
    let checks = Checks::new();
    let a = backend("a").await;
    let options = Options { program: checks.program.clone(), ..options(folder.path()) };
    let mut driver = drive(options, Counters::default()).await.unwrap();
    checks.allow(3);
    let (_, update) = first(&[a]).await;
    let report = driver.apply(&and(and(update, many(a)), refused("bad"))).await.unwrap();
    assert!(report.waiting, "{report:?}");
    checks.one_after(3).await;
    let drained = driver.drain(Duration::from_secs(5));
    let drained = tokio::time::timeout(Duration::from_secs(60), drained);
    let (drained, ()) = tokio::join!(drained, async { checks.allow(4) });
    drained.unwrap();
    assert_eq!(checks.begun(), 4);
    checks.allow(u32::MAX.into());
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_refused_and_changes_all_the_time_keeps_nobody_waiting() {
    let folder = Folder::new();
    let (checks, mut driver, port, before) = searching(folder.path()).await;

    // `bad` changes during the search for it: the others go live after this one search.
    let another = site(exact("another.example"), "/", "p", "bad");
    let changed = Update { sites: vec![another], ..Update::default() };
    let (report, ()) =
        tokio::join!(driver.apply(&changed), async { checks.allow(u32::MAX.into()) });
    assert!(report.unwrap().waiting);
    answers(port, "h0.example", "/", 200, "a").await;
    // A second search would need ten more checks.
    assert!(checks.begun() < before + 18, "{} checks", checks.begun() - before);
    driver.drain(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn new_ones_that_are_refused_all_the_time_keep_nobody_waiting() {
    let folder = Folder::new();
    let (checks, mut driver, port, _) = searching(folder.path()).await;
    checks.allow(u32::MAX.into());
    // When one refused consumer is found, the next one is there.
    let flood = async {
        for n in 0.. {
            driver.apply(&refused(&format!("bad{n}"))).await.unwrap();
        }
    };
    tokio::select! {
        () = answers(port, "h0.example", "/", 200, "a") => {}
        () = flood => {}
    }
    driver.drain(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_dies_is_started_again_while_what_it_refuses_is_looked_for() {
    let folder = Folder::new();
    let (checks, mut driver, port, before) = searching(folder.path()).await;
    for pid in pids(folder.path()).await {
        signal(pid, "-KILL");
    }
    eventually("nobody answers", async || match get(port, "a.example", "/").await {
        Ok(answer) => Err(format!("{answer:?}")),
        Err(_) => Ok(()),
    })
    .await;
    // The driver pauses before it restarts a program, and the search must last longer than that.
    let slowly = async {
        for count in 4..10 {
            checks.allow(before + count);
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        () = answers(port, "a.example", "/", 200, "a") => {}
        () = slowly => panic!("it was not started before the search is over"),
    }
    assert_ne!(get(port, "h0.example", "/").await.unwrap().0, 200, "the search is over");
    checks.allow(u32::MAX.into());
    driver.drain(Duration::from_secs(5)).await;
}

/// Stops the current workers, as if the machine were busy, and continues them when dropped.
pub(crate) struct Stopped(pub(crate) Vec<u32>);

impl Stopped {
    pub(crate) async fn workers(folder: &Path) -> Self {
        let workers = pids(folder).await.split_off(1);
        workers.iter().for_each(|pid| signal(*pid, "-STOP"));
        Self(workers)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        self.0.iter().for_each(|pid| signal(*pid, "-CONT"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_in_force_while_processes_of_before_take_connections() {
    let folder = Folder::new();
    let (a, b) = (backend("a").await, backend("b").await);
    let (port, update) = first(&[a]).await;
    let (mut driver, _) = start(options(folder.path()), &update).await;
    let stopped = Stopped::workers(folder.path()).await;
    let more = Update {
        pools: vec![pool("q")],
        members: vec![members("q", &[b])],
        sites: vec![site(exact("b.example"), "/", "q", "b")],
        ..Update::default()
    };
    let applied = tokio::time::timeout(Duration::from_secs(2), async {
        let report = driver.apply(&more).await.unwrap();
        settled(&mut driver, report).await
    });
    applied.await.expect_err("it is in force too early");
    drop(stopped);
    let report = driver.apply(&Update::default()).await.unwrap();
    assert_eq!(settled(&mut driver, report).await, Report::default());
    for _ in 0..10 {
        assert_eq!(get(port, "b.example", "/").await, Ok((200, "b".to_owned())));
    }
    driver.drain(Duration::from_secs(5)).await;
}
