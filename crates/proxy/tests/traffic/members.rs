//! Tests requests while members come, go, fail or are slow.

use crate::kit::{self, World, addresses, forward, pool};
use bowline_core::plan::{Persistence, PersistenceKey, Timeouts};
use bowline_testing::{Backend, Preamble, Request, eventually};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

/// A member that takes connections, reads a request and closes without an answer.
async fn mute() -> SocketAddr {
    let listener = TcpListener::bind((kit::address(), kit::MEMBER)).await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 1024]).await;
        }
    });
    at
}

#[tokio::test]
async fn a_member_that_cannot_be_connected_to_costs_no_request() {
    let world = World::new();
    let member = world.member("a").await;
    let nobody = SocketAddr::new(kit::address(), kit::MEMBER);
    let wish = world.wish().web(&[]).members("web", &[], &[member.at, nobody]);
    world.apply(wish).await;
    let mut session = world.http().session().await.unwrap();
    for _ in 0..6 {
        assert!(session.get("a", "/").await.unwrap().echo().is_ok());
        let post = Request::post("a", "/", "body");
        assert_eq!(session.send(post).await.unwrap().echo().unwrap().body, 4);
    }
}

#[tokio::test]
async fn what_was_sent_is_sent_again_only_if_it_may_be() {
    let world = World::new();
    let member = world.member("a").await;
    let mute = mute().await;
    world.apply(world.wish().web(&[]).members("web", &[], &[member.at, mute])).await;
    let (mut gets, mut posts) = (BTreeSet::new(), BTreeSet::new());
    for _ in 0..2 {
        gets.insert(world.http().get("a", "/").await.unwrap().status);
    }
    for _ in 0..2 {
        let post = Request::post("a", "/", "body");
        posts.insert(world.http().send(post).await.unwrap().status);
    }
    assert_eq!((gets, posts), ([200].into(), [200, 502].into()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_stops_before_anybody_is_told_costs_no_request() {
    let world = Arc::new(World::new());
    let stays = world.member("stays").await;
    let mut stops = world.member("stops").await;
    world.apply(world.wish().web(&[&stays, &stops])).await;
    for _ in 0..2 {
        let stopped = Arc::new(AtomicBool::new(false));
        let clients: Vec<_> = (0..16)
            .map(|_| {
                let (world, stopped) = (world.clone(), stopped.clone());
                tokio::spawn(async move {
                    let mut session = world.http().session().await.unwrap();
                    let mut after = 0;
                    while after < 10 {
                        let answer = session.get("a", "/").await.unwrap();
                        assert_eq!(answer.status, 200, "{}", answer.text());
                        after += usize::from(stopped.load(Ordering::Relaxed));
                    }
                })
            })
            .collect();
        eventually("traffic on both", || async {
            if stops.requests() > 50 { Ok(()) } else { Err(stops.requests().to_string()) }
        })
        .await;
        let at = stops.at;
        stops.stop().await;
        stopped.store(true, Ordering::Relaxed);
        for client in clients {
            client.await.unwrap();
        }
        stops = Backend::http("stops", at.ip(), at.port()).await;
    }
}

#[tokio::test]
async fn a_member_that_is_silent_for_too_long_is_answered_for_with_504() {
    let world = World::new();
    let member = world.member("a").await;
    let mut hasty = pool("web");
    hasty.timeouts = Timeouts { backend_ms: Some(200), ..Timeouts::default() };
    world.apply(world.wish().web(&[]).pool(hasty, &[&member])).await;
    let answer = world.http().get("a", "/?delay=2000").await.unwrap();
    assert_eq!(answer.status, 504, "{}", answer.text());
    assert_eq!(member.requests(), 1);
}

#[tokio::test]
async fn a_cookie_ties_a_client_to_its_member() {
    let world = World::new();
    let members = [world.member("a").await, world.member("b").await, world.member("c").await];
    let mut tied = pool("web");
    tied.persistence = Some(Persistence { by: PersistenceKey::Cookie, timeout_seconds: 60 });
    world.apply(world.wish().web(&[]).pool(tied, &members.each_ref())).await;
    let first = world.http().get("a", "/").await.unwrap();
    let set = first.header("set-cookie").to_owned();
    assert!(
        set.contains("; Path=/") && set.contains("; HttpOnly") && set.contains("; SameSite=Lax")
    );
    assert!(!set.contains("Secure"), "{set}");
    let name = first.echo().unwrap().name;
    let pair = set.split(';').next().unwrap();
    for _ in 0..6 {
        let request = Request::get("a", "/").header("cookie", &format!("x=y; {pair}"));
        let answer = world.http().send(request).await.unwrap();
        assert_eq!((answer.header("set-cookie"), answer.echo().unwrap().name), ("", name.clone()));
    }
}

#[tokio::test]
async fn members_are_told_the_client_by_proxy_protocol_and_share_no_connection() {
    let world = World::new();
    let member = Backend::http_with("a", kit::address(), kit::MEMBER, Preamble::ProxyV2).await;
    let mut announced = pool("web");
    announced.proxy_protocol = true;
    world.apply(world.wish().web(&[]).pool(announced, &[&member])).await;
    let mut told = Vec::new();
    for client in [kit::address(), kit::address()] {
        let mut session = world.http().from(client).session().await.unwrap();
        for _ in 0..2 {
            let echo = session.get("a", "/").await.unwrap().echo().unwrap();
            let proxy = echo.proxy.unwrap();
            assert!(proxy.contains(&client.to_string()), "{proxy}");
            told.push(proxy);
        }
    }
    assert_eq!(told.iter().collect::<BTreeSet<_>>().len(), 2, "{told:?}");
    assert_eq!(member.connections(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_and_rules_change_under_traffic_without_a_failed_request() {
    let world = Arc::new(World::new());
    let mut members = Vec::new();
    for name in ["a", "b", "c", "d"] {
        members.push(world.member(name).await);
    }
    let all: Vec<_> = members.iter().collect();
    world.apply(world.wish().web(&all)).await;

    let stop = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let (world, stop) = (world.clone(), stop.clone());
            tokio::spawn(async move {
                let mut done = 0;
                let mut session = world.http().session().await.unwrap();
                while !stop.load(Ordering::Relaxed) {
                    let post = Request::post("a", "/", "body");
                    let answer = session.send(post).await.unwrap();
                    assert_eq!(answer.status, 200, "{}", answer.text());
                    done += 1;
                }
                done
            })
        })
        .collect();
    let all = addresses(&all);
    let mut before = all.clone();
    for turn in 0..200 {
        let now = vec![all[turn % 4], all[(turn + 1) % 4]];
        let mut wish = world.wish().members("web", &before, &now);
        if turn % 10 == 0 {
            wish = wish.site("*", None, [forward("/", "web"), forward(&format!("/{turn}"), "web")]);
        }
        world.apply(wish).await;
        before = now;
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        assert!(client.await.unwrap() > 10);
    }
    // No request succeeded only because another member was tried.
    assert_eq!(world.counted("proxy_member_failures"), 0.0);
}

#[tokio::test]
async fn a_removed_member_ends_what_it_has_and_is_cut_when_its_time_is_over() {
    let world = World::new();
    let member = world.member("a").await;
    let other = world.member("b").await;
    let mut brief = pool("web");
    brief.timeouts = Timeouts { drain_seconds: Some(1), ..Timeouts::default() };
    world.apply(world.wish().web(&[]).pool(brief, &[&member])).await;

    let dial = world.http();
    let short = tokio::spawn({
        let dial = dial.clone();
        async move { dial.get("a", "/?delay=500").await }
    });
    let long = tokio::spawn({
        let dial = dial.clone();
        async move { dial.get("a", "/?delay=60000").await }
    });
    let mut socket = dial.websocket("a", "/").await.unwrap();
    assert_eq!(socket.ask("x").await.unwrap(), "a:x");
    eventually("both requests are there", || async {
        (member.requests() >= 3).then_some(()).ok_or_else(|| member.requests().to_string())
    })
    .await;
    world.apply(world.wish().members("web", &[member.at], &[other.at])).await;
    assert_eq!(dial.get("a", "/").await.unwrap().echo().unwrap().name, "b");
    assert_eq!(short.await.unwrap().unwrap().echo().unwrap().name, "a");
    assert_eq!(socket.ask("y").await.unwrap(), "a:y");
    assert_eq!(long.await.unwrap().map(|answer| answer.status), Ok(504));
    assert!(socket.ask("z").await.is_err());
}

#[tokio::test]
async fn draining_answers_what_is_under_way_and_accepts_nothing_new() {
    let world = Arc::new(World::new());
    let member = world.member("a").await;
    world.apply(world.wish().web(&[&member])).await;
    let dial = world.http();
    let mut sessions =
        [dial.session().await.unwrap(), dial.clone().http2().session().await.unwrap()];
    for session in &mut sessions {
        assert_eq!(session.get("a", "/").await.unwrap().status, 200);
    }
    let [mut one, mut two] = sessions;
    let under_way = tokio::spawn(async move {
        tokio::join!(one.get("a", "/?delay=500"), two.get("a", "/?delay=500"))
    });
    eventually("both are under way", || async {
        (member.requests() == 4).then_some(()).ok_or_else(|| member.requests().to_string())
    })
    .await;
    let started = std::time::Instant::now();
    world.proxy.drain(std::time::Duration::from_secs(30)).await;
    assert!(started.elapsed() < std::time::Duration::from_secs(20));
    assert!(dial.tcp().await.is_err());
    let (one, two) = under_way.await.unwrap();
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_eq!((one.status, one.header("connection"), two.status), (200, "close", 200));
}
