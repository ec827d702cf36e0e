//! Tests members, hosts and rules that change while HAProxy runs: where this needs a reload, and that no request fails.

use crate::both::start;
use crate::common::{
    self, Folder, answers, backend, eventually, exact, first, get, meanwhile, members, plain, pool,
    put, settled, site, site_at,
};
use crate::{ask, crowd, foreign, has_servers, options, processes, version};
use bowline_core::plan::{PathKind, Persistence, PersistenceKey, Pool};
use bowline_core::update::{Change, Report, Update};
use bowline_drivers::Driver as _;
use std::time::Duration;

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
