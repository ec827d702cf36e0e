//! Tests members that change without end, beside other changes and while HAProxy loads its files.

use crate::both::{Checks, script, start};
use crate::common::{
    Folder, answers, backend, eventually, first, get, members, plain, pool, put, settled, slow,
};
use crate::{Counters, Options, drive, foreign, has_servers, options, outside, worker};
use crate::{IS_CHECK, ask, crowd, generations, program, refused};
use bowline_core::update::Update;
use bowline_drivers::Driver as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixListener;
use tokio::sync::Semaphore;

#[tokio::test(flavor = "multi_thread")]
async fn removed_members_are_let_go_while_all_members_are_replaced_without_end() {
    let folder = Folder::new();
    let at = backend("shop").await;
    let (port, mut update) = first(&[at]).await;
    let fresh = |name: &str, size: u32, round: u32| {
        let at = |n| (std::net::Ipv4Addr::from(0x7f20_0000 + round * size + n), 9).into();
        members(name, &(0..size).map(at).collect::<Vec<_>>())
    };
    let pools = [("few", 1), ("many", 100)];
    for (name, size) in pools {
        update.pools.push(pool(name));
        update.members.push(fresh(name, size, 0));
        update.sites.push(foreign("evil", name));
    }
    let (mut driver, _) = start(options(folder.path()), &update).await;
    let socket = folder.path().join("admin.sock");
    for (name, size) in pools {
        let mut seen = Vec::new();
        for round in 1..60 {
            let change = Update { members: vec![fresh(name, size, round)], ..Update::default() };
            driver.apply(&change).await.unwrap();
            let answer = ask(&socket, &format!("show servers state {name}")).await.unwrap();
            seen.push(answer.lines().filter(|it| it.split(' ').nth(1) == Some(name)).count());
            assert_eq!(get(port, "a.example", "/").await.unwrap().0, 200);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(seen.iter().all(|it| *it <= 2 * size as usize + 100), "{name}: {seen:?}");
        assert!(seen.windows(2).any(|it| it[1] < it[0]), "{name} loses none: {seen:?}");
        has_servers(&socket, name, size as usize).await;
    }
    driver.drain(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn members_that_come_with_another_namespaces_setting_bring_its_reload_no_sooner() {
    let folder = Folder::new();
    let (a, b, theirs) = (backend("a").await, backend("b").await, slow("theirs").await);
    let (port, mut update) = first(&[a]).await;
    update.pools.extend(generations::setting("e", "evil", 1).pools);
    update.members.push(members("e", &[theirs.at]));
    update.sites.push(foreign("evil", "e"));
    // With two old generations the namespace `evil` waits for four seconds.
    let options = Options {
        min_reload_interval: Duration::from_secs(1),
        max_old_generations: 3,
        shutdown_timeout: Duration::from_secs(3600),
        ..options(folder.path())
    };
    let (mut driver, _) = start(options, &update).await;
    let mut held = Vec::new();
    for round in 2..4 {
        held.push(generations::hold(port, "e.evil.example", &theirs).await);
        let report = driver.apply(&generations::setting("e", "evil", round)).await.unwrap();
        settled(&mut driver, report).await;
    }
    let socket = folder.path().join("admin.sock");
    let pid = worker(&socket).await;
    let mut both = generations::setting("e", "evil", 4);
    both.members.push(members("p", &[b]));
    let report = driver.apply(&both).await.unwrap();
    assert!(report.waiting, "{report:?}");
    answers(port, "a.example", "/", 200, "b").await;
    let soon = tokio::time::timeout(Duration::from_millis(2_500), settled(&mut driver, report));
    soon.await.expect_err("evil's setting is loaded as if shop had asked for it");
    assert_eq!(worker(&socket).await, pid);
    driver.drain(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_members_change_while_what_haproxy_refuses_is_looked_for() {
    let (folder, checks) = (Folder::new(), Checks::new());
    let a = backend("a").await;
    let (_, update) = first(&[a]).await;
    let options = Options { program: checks.program.clone(), ..options(folder.path()) };
    let (mut driver, _) = start(options, &update).await;
    let before = checks.begun();
    checks.allow(before + 1);
    driver.apply(&refused("bad")).await.unwrap();
    checks.one_after(before + 1).await;
    // The check in progress does not end meanwhile, so HAProxy loads nothing.
    let many = Update { members: vec![crowd("p", 900).1], ..Update::default() };
    assert!(driver.apply(&many).await.unwrap().waiting);
    has_servers(&folder.path().join("admin.sock"), "p", 900).await;
    checks.allow(u32::MAX.into());
    driver.drain(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_haproxy_has_after_a_load_that_failed_is_seen_and_brought_in_step_at_once() {
    let folder = Folder::new();
    let a = backend("a").await;
    let (port, update) = first(&[a]).await;
    let lie = folder.path().join("lie");
    let lies = format!("{IS_CHECK} && [ -e {} ] && exit 0", lie.display());
    let options = Options {
        program: script(folder.path(), &lies),
        compare_every: Duration::from_secs(3600),
        ..options(folder.path())
    };
    let (mut driver, _) = start(options, &update).await;
    // The first comparison is due before this update, the next one in an hour.
    driver.apply(&Update::default()).await.unwrap();
    // As if the server had been sent to a process that is gone.
    let socket = folder.path().join("admin.sock");
    ask(&socket, &format!("set server p/{a} state maint")).await.unwrap();
    assert_eq!(get(port, "a.example", "/").await.unwrap().0, 503);
    std::fs::write(&lie, "").unwrap();
    let _ = driver.apply(&refused("bad")).await;
    answers(port, "a.example", "/", 200, "a").await;
    driver.drain(Duration::ZERO).await;
}

/// A socket in front of HAProxy's master. Once the processes from before a load have stopped, it delays the answer to
/// `show proc` until the test allows it.
struct SlowMaster {
    path: PathBuf,
    is_slow: Arc<AtomicBool>,
    goes_on: Arc<Semaphore>,
}

impl SlowMaster {
    fn new(folder: &Path) -> Self {
        let (path, master) = (folder.join("slow.sock"), folder.join("master.sock"));
        let listener = UnixListener::bind(&path).unwrap();
        let (is_slow, goes_on) = (Arc::new(AtomicBool::new(false)), Arc::new(Semaphore::new(0)));
        let slow = Self { path, is_slow: is_slow.clone(), goes_on: goes_on.clone() };
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (is_slow, goes_on) = (is_slow.clone(), goes_on.clone());
                let master = master.clone();
                tokio::spawn(async move {
                    let mut message = String::new();
                    stream.read_to_string(&mut message).await.unwrap();
                    if message.starts_with("show proc") && is_slow.load(Ordering::Relaxed) {
                        let _ = goes_on.acquire().await.unwrap();
                    }
                    let answer = ask(&master, message.trim_end()).await.unwrap_or_default();
                    let stops = answer.contains("Stopping: 1") || answer.starts_with("Can't find");
                    is_slow.fetch_or(message.starts_with('@') && stops, Ordering::Relaxed);
                    let _ = stream.write_all(answer.as_bytes()).await;
                });
            }
        });
        slow
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn members_that_came_during_a_load_are_told_before_processes_from_before_it_are_looked_for() {
    let (folder, checks) = (Folder::new(), Checks::new());
    let (a, b) = (backend("a").await, backend("b").await);
    let (port, update) = first(&[a]).await;
    let master = SlowMaster::new(folder.path());
    let options = Options {
        exec: false,
        program: checks.program.clone(),
        master_socket: master.path.clone(),
        ..options(folder.path())
    };
    let mut driver = drive(options, Counters::default()).await.unwrap();
    driver.apply(&update).await.unwrap_err();
    let _running = tokio::process::Command::new(program())
        .args(outside(folder.path()))
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    eventually("the update", async || driver.apply(&update).await.map_err(|it| it.to_string()))
        .await;
    let before = checks.begun();
    checks.allow(before);
    // A pool of a kind of its own needs a load in every HAProxy.
    let mut other = plain("q");
    other.source_ranges = vec!["0.0.0.0/0".parse().unwrap()];
    let load = Update {
        pools: vec![put(other)],
        members: vec![members("q", &[a])],
        sites: vec![foreign("evil", "q")],
        ..Update::default()
    };
    driver.apply(&load).await.unwrap();
    checks.one_after(before).await;
    driver.apply(&Update { members: vec![members("p", &[b])], ..Update::default() }).await.unwrap();
    checks.allow(u32::MAX.into());
    eventually("another HAProxy", async || match master.is_slow.load(Ordering::Relaxed) {
        true => Ok(()),
        false => Err("the one from before".to_owned()),
    })
    .await;
    let soon = Duration::from_secs(5);
    let told = tokio::time::timeout(soon, answers(port, "a.example", "/", 200, "b")).await;
    told.expect("members wait until the master has answered");
    master.goes_on.add_permits(1_000);
    driver.drain(Duration::ZERO).await;
}
