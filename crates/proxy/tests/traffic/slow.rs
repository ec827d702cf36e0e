//! Tests slow, silent or many clients and members: each takes its own place and no other client's.

use crate::kit::{Scripted, World, forward, pool, rest};
use bowline_core::plan::{ListenerProtocol, Speaks, Timeouts};
use bowline_proxy::Options;
use bowline_testing::{Dial, Request};
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpSocket, TcpStream};

fn options(change: impl FnOnce(&mut bowline_proxy::Limits)) -> Options {
    let mut options = Options::default();
    change(&mut options.limits);
    options
}

#[tokio::test]
async fn more_listeners_than_places_are_all_served() {
    let world = World::with(options(|limits| limits.connections = 4));
    let member = world.member("a").await;
    let ports = 9000..9012;
    let mut wish = world.wish().web(&[&member]);
    for port in ports.clone() {
        wish = wish.listener(port, ListenerProtocol::Http);
    }
    world.apply(wish).await;
    // The last port first: freed places would go to connections in the order in which they began to
    // wait.
    for port in ports.rev() {
        let answer = Dial::to(world.at, port).get("a", "/").await;
        assert_eq!(answer.map(|answer| answer.status), Ok(200), "{port}");
    }
}

#[tokio::test]
async fn slow_clients_of_one_listener_take_no_place_of_another() {
    let world = World::with(options(|limits| {
        limits.connections = 6;
        limits.listener_connections = 4;
    }));
    let member = world.member("a").await;
    world.apply(world.wish().web(&[&member]).listener(9000, ListenerProtocol::Http)).await;
    let mut slow = Vec::new();
    for _ in 0..8 {
        // Some are refused at once.
        let Ok(mut stream) = world.http().tcp().await else { continue };
        let _ = stream.write_all(b"GET / HTTP/1.1\r\n").await;
        slow.push(stream);
    }
    let answer = Dial::to(world.at, 9000).get("a", "/").await;
    assert_eq!(answer.map(|answer| answer.status), Ok(200));
}

#[tokio::test]
async fn one_client_takes_its_share_and_no_more() {
    let world = World::with(options(|limits| {
        limits.listener_connections = 8;
        limits.client_connections = 2;
    }));
    let member = world.member("a").await;
    world.apply(world.wish().web(&[&member])).await;
    let (greedy, other) = (crate::kit::address(), crate::kit::address());
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut session = world.http().from(greedy).session().await.unwrap();
        assert_eq!(session.get("a", "/").await.unwrap().status, 200);
        held.push(session);
    }
    assert!(world.http().from(greedy).get("a", "/").await.is_err());
    assert_eq!(world.http().from(other).get("a", "/").await.unwrap().status, 200);
    assert_eq!(world.counted("proxy_listener_refused"), 1.0);
}

#[tokio::test]
async fn clients_that_say_nothing_or_do_not_go_on_are_let_go() {
    let brief = Duration::from_millis(300);
    let world = World::with(options(|limits| {
        limits.idle_time = brief;
        limits.body_time = brief;
        limits.header_time = brief;
    }));
    let member = world.member("a").await;
    world.apply(world.wish().web(&[&member])).await;
    for request in [
        "",
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nx",
    ] {
        world.raw(request).await;
    }
}

/// A connection with a small receive buffer.
async fn narrow(world: &World) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(2048).unwrap();
    socket.connect((world.at, crate::kit::HTTP).into()).await.unwrap()
}

/// Writes the same bytes again and again and reads nothing, until the proxy ends the connection.
async fn never_read(mut stream: TcpStream, bytes: &[u8]) {
    let ended = tokio::time::timeout(Duration::from_secs(30), async {
        while stream.write_all(bytes).await.is_ok() {}
    });
    ended.await.expect("the connection is ended");
}

#[tokio::test]
async fn a_client_that_never_reads_is_let_go_whatever_it_is_sent() {
    let chunk = format!("1000\r\n{}\r\n0\r\n\r\n", "x".repeat(4096));
    for answer in [
        format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}"),
        format!("HTTP/1.1 204 No Content\r\nX: {}\r\n\r\n", "x".repeat(4096)),
        format!("HTTP/1.1 200 OK\r\nContent-Length: 4096\r\n\r\n{}", "x".repeat(4096)),
    ] {
        let world = World::with(options(|limits| limits.write_time = Duration::from_millis(300)));
        let member = Scripted::new(answer).await;
        world.apply(world.wish().web(&[]).members("web", &[], &[member.at])).await;
        never_read(narrow(&world).await, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    }
}

#[tokio::test]
async fn an_http2_client_that_never_reads_is_let_go() {
    let world = World::with(options(|limits| limits.write_time = Duration::from_millis(300)));
    let member = world.member("a").await;
    world.apply(world.wish().web(&[&member])).await;
    let mut stream = narrow(&world).await;
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    // A request without an end keeps the connection from being idle: POST, http, /, authority a.
    let head = b"\x83\x86\x84\x41\x01a";
    stream.write_all(&[b"\0\0\x06\x01\x04\0\0\0\x01", &head[..]].concat()).await.unwrap();
    let ping = b"\0\0\x08\x06\0\0\0\0\0pingpong".repeat(64);
    never_read(stream, &ping).await;
}

/// A pool with a short timeout, reached over `speaks`.
async fn hasty(world: &World, speaks: Speaks) -> bowline_testing::Backend {
    let member = world.member("a").await;
    let mut hasty = pool("web");
    hasty.speaks = speaks;
    hasty.timeouts = Timeouts { backend_ms: Some(400), ..Timeouts::default() };
    world.apply(world.wish().web(&[]).pool(hasty, &[&member])).await;
    member
}

#[tokio::test]
async fn a_client_that_does_not_send_its_body_is_told_so_and_no_member_is_blamed() {
    for speaks in [Speaks::Http1, Speaks::H2c] {
        let world = World::with(options(|limits| limits.body_time = Duration::from_millis(800)));
        let _member = hasty(&world, speaks).await;
        let answer = world.raw("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nx").await;
        assert!(answer.starts_with("HTTP/1.1 408 "), "{speaks:?}: {answer}");
        assert_eq!(world.counted("proxy_member_failures"), 0.0, "{speaks:?}");
    }
}

#[tokio::test]
async fn an_http2_client_that_does_not_send_its_body_is_told_so_and_no_member_is_blamed() {
    for speaks in [Speaks::Http1, Speaks::H2c] {
        let world = World::with(options(|limits| limits.body_time = Duration::from_millis(800)));
        let _member = hasty(&world, speaks).await;
        let never = Request::slowly("a", "/", &["x", "y"], Duration::from_secs(60));
        let answer = world.http().http2().send(never).await;
        match speaks {
            Speaks::Http1 => assert_eq!(answer.map(|answer| answer.status), Ok(408)),
            // A stream to such a member cannot get a response any more; it is reset.
            Speaks::H2c => assert!(answer.is_err(), "{answer:?}"),
        }
        assert_eq!(world.counted("proxy_member_failures"), 0.0, "{speaks:?}");
    }
}

#[tokio::test]
async fn a_body_may_take_longer_than_a_member_may_be_silent() {
    for speaks in [Speaks::Http1, Speaks::H2c] {
        let world = World::new();
        let _member = hasty(&world, speaks).await;
        let pieces = ["a"; 10];
        for dial in [world.http(), world.http().http2()] {
            let slow = Request::slowly("a", "/", &pieces, Duration::from_millis(100));
            let echo = dial.send(slow).await.unwrap().echo();
            assert_eq!(echo.map(|echo| echo.body), Ok(10), "{speaks:?}");
        }
    }
}

#[tokio::test]
async fn a_member_that_is_silent_after_the_body_is_answered_for_with_504() {
    for speaks in [Speaks::Http1, Speaks::H2c] {
        let world = World::new();
        let _member = hasty(&world, speaks).await;
        let post = Request::post("a", "/?delay=5000", "body");
        let answer = world.http().send(post).await.unwrap();
        assert_eq!(answer.status, 504, "{speaks:?}: {}", answer.text());
        // The client gets its response before the failure is counted.
        bowline_testing::eventually("the member is blamed", || async {
            let failures = world.counted("proxy_member_failures");
            if failures == 1.0 { Ok(()) } else { Err(format!("{speaks:?}: {failures}")) }
        })
        .await;
    }
}

#[tokio::test]
async fn an_upgrade_header_that_is_none_changes_no_timeout() {
    let world = World::with(options(|limits| limits.body_time = Duration::from_millis(400)));
    let _member = hasty(&world, Speaks::Http1).await;
    for request in [
        "POST / HTTP/1.1\r\nHost: a\r\nUpgrade: x\r\nContent-Length: 10\r\n\r\n",
        "GET /?delay=60000 HTTP/1.1\r\nHost: a\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    ] {
        let mut stream = world.http().tcp().await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let answer = rest(&mut stream).await;
        let status = answer.split(' ').nth(1);
        assert!(matches!(status, Some("408" | "504")), "{request}: {answer}");
    }
}

#[tokio::test]
async fn hosts_of_another_owner_get_nothing_that_a_host_has_no_rule_for() {
    let world = World::new();
    let (shop, evil) = (world.member("shop").await, world.member("evil").await);
    let wish = world
        .wish()
        .web(&[])
        .pool(pool("shop"), &[&shop])
        .pool(pool("evil"), &[&evil])
        .site_of("shop", "a.example.com", None, [forward("/api", "shop")])
        .site_of("evil", "*.example.com", None, [forward("/", "evil")])
        .site_of("shop", "*", None, [forward("/else", "shop")]);
    world.apply(wish).await;
    let met = |path| {
        let dial = world.http();
        async move {
            let answer = dial.get("a.example.com", path).await.unwrap();
            answer.echo().map(|echo| echo.name).map_err(|_| answer.status)
        }
    };
    assert_eq!(met("/api").await, Ok("shop".to_owned()));
    assert_eq!(met("/login").await, Err(404));
    assert_eq!(met("/else").await, Ok("shop".to_owned()));
}
