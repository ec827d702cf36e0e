//! Tests what happens while HAProxy checks files and loads them, and what it refuses.

use crate::both::{Checks, start};
use crate::common::{
    Folder, answers, backend, consumer, eventually, exact, first, get, members, plain, pool, put,
    settled, site,
};
use crate::{Options, foreign, options, refused};
use bowline_core::plan::Pool;
use bowline_core::update::{Report, Update};
use bowline_drivers::Driver as _;
use std::time::Duration;

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
