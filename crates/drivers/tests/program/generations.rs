//! Tests processes from before a reload that hold connections: how many there are, and what they cost the changes and
//! connections of other namespaces. Compiled once for each program.

use crate::both::start;
use crate::common::{
    Folder, Slow, answers, backend, eventually, exact, first, members, plain, pool, put, settled,
    site, slow,
};
use crate::{Options, options, pids, workers_of_a_load};
use bowline_core::plan::Algorithm;
use bowline_core::update::Update;
use bowline_drivers::Driver as _;
use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

/// Sends a request that is never answered.
pub(crate) async fn hold(port: u16, host: &str, at: &Slow) -> TcpStream {
    let before = at.slow();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let request = format!("GET /slow HTTP/1.1\r\nHost: {host}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    eventually("the request is under way", async || match at.slow() > before {
        true => Ok(()),
        false => Err("it is not".to_owned()),
    })
    .await;
    stream
}

fn is_open(stream: &TcpStream) -> bool {
    matches!(stream.try_read(&mut [0; 1]), Err(why) if why.kind() == ErrorKind::WouldBlock)
}

/// A change of a setting of this namespace's pool, which needs a reload.
pub(crate) fn setting(name: &str, namespace: &str, round: usize) -> Update {
    let mut pool = plain(name);
    pool.service.namespace = namespace.into();
    let other =
        if round.is_multiple_of(2) { Algorithm::LeastConnections } else { Algorithm::RoundRobin };
    pool.algorithm = other;
    Update { pools: vec![put(pool)], ..Update::default() }
}

/// The number of processes of a master and this many generations of workers.
fn most(generations: usize) -> usize {
    1 + generations * workers_of_a_load()
}

async fn has_at_most(folder: &Path, generations: usize) {
    eventually(&format!("{generations} generations at most"), async || {
        let pids = pids(folder).await;
        if pids.len() <= most(generations) { Ok(()) } else { Err(format!("{pids:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_needs_reloads_all_the_time_leaves_few_processes_and_delays_no_other() {
    let folder = Folder::new();
    let (mine, theirs, b) = (slow("mine").await, slow("theirs").await, backend("b").await);
    let (port, mut update) = first(&[mine.at]).await;
    let evil = setting("e", "evil", 1).pools.remove(0);
    update.pools.push(evil);
    update.members.push(members("e", &[theirs.at]));
    update.sites.push(site(exact("evil.example"), "/", "e", "e"));
    let options = Options {
        min_reload_interval: Duration::from_millis(100),
        shutdown_timeout: Duration::from_secs(3600),
        ..options(folder.path())
    };
    let (mut driver, _) = start(options, &update).await;
    let kept = hold(port, "a.example", &mine).await;
    let mut held = Vec::new();
    for round in 0..30 {
        held.push(hold(port, "evil.example", &theirs).await);
        driver.apply(&setting("e", "evil", round)).await.unwrap();
        // Enough time for a reload, if one may start.
        let soon = tokio::time::timeout(Duration::from_millis(300), driver.changed());
        let _ = soon.await.map(Result::unwrap);
    }
    let found = pids(folder.path()).await;
    assert!(found.len() <= most(13), "{found:?}");

    let begun = Instant::now();
    let more = Update {
        pools: vec![pool("q")],
        members: vec![members("q", &[b])],
        sites: vec![site(exact("b.example"), "/", "q", "b")],
        ..Update::default()
    };
    driver.apply(&more).await.unwrap();
    answers(port, "b.example", "/", 200, "b").await;
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(4), "another namespace's change took {took:?}");
    assert!(is_open(&kept), "a connection of another namespace was cut");
    driver.drain(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn thirty_reloads_with_a_held_connection_each_leave_as_many_processes_as_are_allowed() {
    let folder = Folder::new();
    let mine = slow("mine").await;
    let (port, update) = first(&[mine.at]).await;
    let options = Options {
        min_reload_interval: Duration::from_millis(20),
        max_old_generations: 3,
        ..options(folder.path())
    };
    let (mut driver, _) = start(options, &update).await;
    let mut held = Vec::new();
    for round in 0..30 {
        held.push(hold(port, "a.example", &mine).await);
        let report = driver.apply(&setting("p", "shop", round)).await.unwrap();
        settled(&mut driver, report).await;
        has_at_most(folder.path(), 4).await;
    }
    eventually("a connection is open in each generation that is left", async || {
        let open = held.iter().filter(|it| is_open(it)).count();
        if open == 3 { Ok(()) } else { Err(format!("{open} are open")) }
    })
    .await;
    driver.drain(Duration::ZERO).await;
}
