//! Tests clients that take all they can get beside one that wants little: it gets its place.

use crate::kit::{Scripted, World, address, forward, pool};
use bowline_core::plan::{ListenerProtocol, Serves, Transport};
use bowline_proxy::{Limits, Options};
use bowline_testing::{Backend, Dial, Request, ask, eventually};
use std::net::IpAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

fn options(change: impl FnOnce(&mut Limits)) -> Options {
    let mut options = Options::default();
    change(&mut options.limits);
    options
}

/// A connection that sends the start of a request and no more.
async fn slow(to: &Dial) -> Option<TcpStream> {
    let mut stream = to.tcp().await.ok()?;
    stream.write_all(b"GET / HTTP/1.1\r\n").await.ok()?;
    Some(stream)
}

async fn is_open(stream: &mut TcpStream) -> bool {
    let mut byte = [0; 1];
    let read = tokio::time::timeout(Duration::from_millis(20), stream.read(&mut byte)).await;
    read.is_err()
}

#[tokio::test]
async fn a_client_on_six_listeners_leaves_a_place_for_a_newcomer_at_each() {
    let world = World::with(options(|limits| {
        limits.connections = 24;
        limits.listener_connections = 24;
        limits.client_connections = 24;
    }));
    let member = world.member("a").await;
    let ports = 9000..9006;
    let mut wish = world.wish().web(&[&member]);
    for port in ports.clone() {
        wish = wish.listener(port, ListenerProtocol::Http);
    }
    world.apply(wish).await;
    let (greedy, other) = (address(), address());
    let mut held = Vec::new();
    for port in ports.clone().cycle().take(60) {
        held.extend(slow(&Dial::to(world.at, port).from(greedy)).await);
    }
    eventually("all places are taken", || async {
        let active = world.counted("proxy_listener_active");
        (active == 24.0).then_some(()).ok_or_else(|| active.to_string())
    })
    .await;
    for round in 0..3 {
        for port in ports.clone() {
            let answer = Dial::to(world.at, port).from(other).get("a", "/").await;
            assert_eq!(answer.map(|it| it.status), Ok(200), "{port}, {round}");
        }
        // The other client keeps trying.
        for _ in 0..30 {
            held.extend(slow(&Dial::to(world.at, 9000).from(greedy)).await);
        }
    }
    assert!(world.counted("proxy_listener_displaced") >= 3.0);
    assert!(world.counted("proxy_listener_refused") > 0.0);
    assert!(world.counted("proxy_listener_active") <= 24.0);
}

#[tokio::test]
async fn what_gives_way_on_a_tcp_listener_is_reset_so_that_it_does_not_look_complete() {
    let world = World::with(options(|limits| {
        limits.connections = 2;
        limits.listener_connections = 2;
        limits.client_connections = 2;
    }));
    let member = Scripted::new("hello").await;
    let wish = world.wish().pool(pool("tcp"), &[]).members("tcp", &[], &[member.at]).serving(
        9000,
        ListenerProtocol::Tcp,
        Serves::Pool("tcp".into()),
    );
    world.apply(wish).await;
    let (greedy, other) = (address(), address());
    let dial = Dial::to(world.at, 9000);
    let mut streams = Vec::new();
    for from in [greedy, greedy, other] {
        let mut stream = dial.clone().from(from).tcp().await.unwrap();
        stream.write_all(b"\r\n\r\n").await.unwrap();
        let mut hello = [0; 5];
        stream.read_exact(&mut hello).await.unwrap();
        streams.push(stream);
    }
    let mut rest = Vec::new();
    let end = streams[1].read_to_end(&mut rest).await;
    assert_eq!(end.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    assert!(is_open(&mut streams[0]).await && is_open(&mut streams[2]).await);
}

#[tokio::test]
async fn requests_beside_each_other_on_http2_count_as_connections() {
    let world = World::with(options(|limits| {
        limits.connections = 8;
        limits.listener_connections = 8;
        limits.client_connections = 8;
    }));
    let member = world.member("a").await;
    world.apply(world.wish().web(&[&member])).await;
    let (greedy, other) = (address(), address());
    let session = world.http().http2().from(greedy).session().await.unwrap();
    let mut crowd = tokio::task::JoinSet::new();
    for _ in 0..40 {
        let mut session = session.beside().unwrap();
        crowd.spawn(async move { session.get("a", "/?delay=60000").await.map(|it| it.status) });
    }
    for _ in 0..32 {
        assert_eq!(crowd.join_next().await.unwrap().unwrap(), Ok(503));
    }
    eventually("the others are under way", || async {
        (member.requests() == 8).then_some(()).ok_or_else(|| member.requests().to_string())
    })
    .await;
    for _ in 0..3 {
        let answer = world.http().from(other).get("a", "/").await;
        assert_eq!(answer.map(|answer| answer.status), Ok(200));
    }
    assert!(world.counted("proxy_listener_displaced") >= 1.0);
    // One request lost its place, not the connection.
    let reset = crowd.join_next().await.unwrap().unwrap();
    assert!(reset.is_err(), "{reset:?}");
    eventually("the connection is served on", || async {
        match session.beside()?.get("a", "/").await?.status {
            200 => Ok(()),
            other => Err(other.to_string()),
        }
    })
    .await;
}

#[tokio::test]
async fn a_client_that_holds_many_large_heads_leaves_bytes_for_those_of_others() {
    let world = World::with(options(|limits| limits.all_header_bytes = limits.header_bytes));
    let member = world.member("a").await;
    world.apply(world.wish().web(&[&member])).await;
    let (greedy, other) = (address(), address());
    // Each takes twelve kilobytes of sixty-four.
    let large = "y".repeat(20 * 1024);
    let mut held = Vec::new();
    for _ in 0..9 {
        let mut stream = slow(&world.http().from(greedy)).await.unwrap();
        stream.write_all(format!("Host: a\r\nX: {large}").as_bytes()).await.unwrap();
        held.push(stream);
    }
    eventually("all bytes are taken", || async {
        let refused = world.counted("proxy_own_responses");
        (refused >= 4.0).then_some(()).ok_or_else(|| refused.to_string())
    })
    .await;
    for round in 0..3 {
        for dial in [world.http(), world.http().http2()] {
            let request = Request::get("a", "/").header("x", &large);
            let answer = dial.from(other).send(request).await;
            assert_eq!(answer.map(|answer| answer.status), Ok(200), "round {round}");
        }
        // The greedy client keeps trying.
        let request = Request::get("a", "/").header("x", &large);
        let answer = world.http().from(greedy).send(request).await;
        assert!(answer.is_ok_and(|answer| [200, 503].contains(&answer.status)));
    }
    // No more of the greedy client's heads gave way than necessary.
    let mut open = 0;
    for stream in &mut held {
        open += usize::from(is_open(stream).await);
    }
    assert!(open >= 3, "{open}");
}

#[tokio::test]
async fn a_client_with_many_sessions_of_datagrams_leaves_places_for_others() {
    let world = World::with(options(|limits| {
        limits.sessions = 16;
        limits.listener_sessions = 16;
    }));
    let member = Backend::udp("u", address(), 5353).await;
    let mut udp = pool("udp");
    udp.service.protocol = Transport::Udp;
    let mut wish = world.wish().pool(udp, &[&member]);
    let ports = 9000..9004;
    for port in ports.clone() {
        wish = wish.serving(port, ListenerProtocol::Udp, Serves::Pool("udp".into()));
    }
    world.apply(wish).await;
    let dial = |port, from: IpAddr| Dial::to(world.at, port).from(from);
    let (greedy, other) = (address(), address());
    let modest = dial(9000, other).udp().await.unwrap();
    let first = ask(&modest, "x").await.unwrap();
    let mut held = Vec::new();
    for port in ports.clone().cycle().take(200) {
        let socket = dial(port, greedy).udp().await.unwrap();
        socket.send(b"x").await.unwrap();
        held.push(socket);
    }
    eventually("many sessions were made", || async {
        let begun = world.counted("proxy_listener_accepted");
        (begun > 150.0).then_some(()).ok_or_else(|| begun.to_string())
    })
    .await;
    // The session of the other client is still the same, and it may begin more.
    assert_eq!(ask(&modest, "x").await.unwrap(), first);
    let accepted = world.counted("proxy_listener_accepted");
    assert_eq!(ask(&modest, "x").await.unwrap(), first);
    assert_eq!(world.counted("proxy_listener_accepted"), accepted, "no session was begun again");
    for port in ports {
        assert!(dial(port, other).datagram("x").await.is_ok(), "{port}");
    }
    assert!(world.counted("proxy_listener_displaced") > 100.0);
}

#[tokio::test]
async fn proxies_of_one_process_share_places() {
    let options = options(|limits| {
        limits.connections = 6;
        limits.listener_connections = 6;
        limits.client_connections = 4;
    });
    let worlds = [World::with(options.clone()), World::with(options)];
    let member = worlds[0].member("a").await;
    for world in &worlds {
        let wish = world.wish().web(&[&member]).site("a", None, [forward("/", "web")]);
        world.apply(wish).await;
    }
    let (greedy, other) = (address(), address());
    let mut held = Vec::new();
    for world in worlds.iter().cycle().take(4) {
        let mut session = world.http().from(greedy).session().await.unwrap();
        assert_eq!(session.get("a", "/").await.unwrap().status, 200);
        held.push(session);
    }
    for world in &worlds {
        assert!(world.http().from(greedy).get("a", "/").await.is_err());
        assert_eq!(world.http().from(other).get("a", "/").await.unwrap().status, 200);
    }
}
