//! Tests members of which HAProxy cannot check all, because it may not open enough files.

use crate::both::{signal, start};
use crate::common::{Folder, answers, backend, consumer, eventually, exact, first, settled, site};
use crate::{ask, crowd, foreign, has_servers, options, worker};
use bowline_core::outcome::Reason;
use bowline_core::update::{Extent, Report, Update};
use bowline_drivers::Driver as _;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

/// Runs a test in a child process that may open `most` files. True: this is the child.
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

#[tokio::test(flavor = "multi_thread")]
async fn more_members_than_haproxy_may_open_files_keep_nobody_elses_change_from_going_live() {
    let name =
        "files::more_members_than_haproxy_may_open_files_keep_nobody_elses_change_from_going_live";
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
