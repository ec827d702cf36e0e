//! Tests the limits of a consumer: requests and bandwidth.

use crate::both::start;
use crate::common::{
    Folder, answers, backend, consumer, exact, first, get, members, plain, pool, put, site,
};
use crate::{options, version};
use bowline_core::outcome::Reason;
use bowline_core::plan::{Limits, Pool};
use bowline_core::update::{Change, Extent, Report};
use bowline_drivers::Driver as _;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

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
