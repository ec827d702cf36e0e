//! Members that do not answer, for every program: what the driver reports of them, and when no longer.

use crate::both::start;
use crate::common::{
    Folder, answers, backend, eventually, exact, first, get, members, pool, settled, site,
};
use crate::options;
use bowline_core::update::{FailingPool, Update};
use bowline_drivers::Driver;
use bowline_drivers::program::Driven;
use std::net::SocketAddr;
use tokio::net::TcpListener;

/// An address at which nothing listens.
async fn nowhere() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

/// Sends requests until the driver reports these pools.
async fn told(driver: &mut Driven, port: u16, expected: &[FailingPool]) {
    eventually("the report", async || {
        let _ = get(port, "a.example", "/").await;
        let report = driver.apply(&Update::default()).await.map_err(|it| it.to_string())?;
        if report.failing == expected { Ok(()) } else { Err(format!("{report:?}")) }
    })
    .await;
}

fn failing(at: &[SocketAddr]) -> FailingPool {
    let (count, named) = (u32::try_from(at.len()).unwrap(), at.to_vec());
    FailingPool { pool: "p".into(), count, named }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_does_not_answer_is_told_until_it_does() {
    let folder = Folder::new();
    let (a, gone) = (backend("a").await, nowhere().await);
    let (port, update) = first(&[a, gone]).await;
    let (mut driver, _) = start(options(folder.path()), &update).await;
    told(&mut driver, port, &[failing(&[gone])]).await;
    assert_eq!(get(port, "a.example", "/").await, Ok((200, "a".to_owned())));
    let _back = TcpListener::bind(gone).await.unwrap();
    told(&mut driver, port, &[]).await;
    driver.drain(std::time::Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_of_which_no_member_answers_is_told_also_after_a_reload_and_not_once_they_are_removed()
 {
    let folder = Folder::new();
    let (a, gone) = (backend("a").await, nowhere().await);
    let (port, update) = first(&[gone]).await;
    let (mut driver, _) = start(options(folder.path()), &update).await;
    told(&mut driver, port, &[failing(&[gone])]).await;
    // A pool of its own, so that every program has to be reloaded.
    let more = Update {
        pools: vec![pool("q")],
        members: vec![members("q", &[a])],
        sites: vec![site(exact("b.example"), "/", "q", "b")],
        ..Update::default()
    };
    let mut report = driver.apply(&more).await.unwrap();
    while report.waiting {
        assert_eq!(report.failing, [failing(&[gone])]);
        report = driver.changed().await.unwrap();
    }
    assert_eq!(report.failing, [failing(&[gone])]);
    answers(port, "b.example", "/", 200, "a").await;
    let moved = Update { members: vec![members("p", &[a])], ..Update::default() };
    let report = driver.apply(&moved).await.unwrap();
    settled(&mut driver, report).await;
    told(&mut driver, port, &[]).await;
    driver.drain(std::time::Duration::from_secs(5)).await;
}
