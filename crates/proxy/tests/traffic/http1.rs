//! HTTP/1.1 from a client through the proxy to members, over real sockets.

use crate::kit::{self, World, forward, pool, rule};
use bowline_core::plan::{Action, Redirect, WeightedPool};
use bowline_testing::{Request, eventually};
use std::collections::BTreeMap;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

#[tokio::test]
async fn requests_of_one_connection_take_turns_among_members() {
    let world = World::new();
    let (a, b) = (world.member("a").await, world.member("b").await);
    world.apply(world.wish().web(&[&a, &b])).await;

    let mut session = world.http().session().await.unwrap();
    let mut seen = BTreeMap::<String, usize>::new();
    for _ in 0..10 {
        let echo = session.get("shop.example", "/path?q=1").await.unwrap().echo().unwrap();
        assert_eq!(echo.path, "/path?q=1");
        *seen.entry(echo.name).or_default() += 1;
    }
    assert_eq!(seen, [("a".to_owned(), 5), ("b".to_owned(), 5)].into());
}

#[tokio::test]
async fn members_are_told_who_the_client_is_and_not_what_it_says_it_is() {
    let world = World::new();
    let member = world.member("a").await;
    world.apply(world.wish().web(&[&member])).await;
    let client = kit::address();

    let request = Request::get("shop.example:8080", "/")
        .header("x-forwarded-for", "10.9.9.9")
        .header("x-forwarded-proto", "https")
        .header("x-forwarded-host", "evil.example")
        .header("x-real-ip", "10.9.9.9")
        .header("forwarded", "for=10.9.9.9")
        .header("x_forwarded_proto", "https")
        .header("X_Real_IP", "10.9.9.9")
        .header("x-forwarded-ssl", "on")
        .header("x_own", "stays")
        .header("te", "trailers");
    let echo = world.http().from(client).send(request).await.unwrap().echo().unwrap();
    let names = ["for", "proto", "host", "port"].map(|name| format!("x-forwarded-{name}"));
    let told = names.each_ref().map(|name| echo.header(name));
    let chain = format!("10.9.9.9, {client}");
    assert_eq!(told, [&chain, "http", "shop.example:8080", "8080"]);
    assert_eq!(echo.header("x-real-ip"), client.to_string());
    for dropped in ["forwarded", "x_forwarded_proto", "x_real_ip", "x-forwarded-ssl"] {
        assert_eq!(echo.header(dropped), "", "{dropped}");
    }
    assert_eq!(echo.header("x_own"), "stays");
    assert_eq!(echo.host, "shop.example:8080");
}

#[tokio::test]
async fn rules_forward_redirect_answer_or_are_missing() {
    let world = World::new();
    let (a, b) = (world.member("a").await, world.member("b").await);
    let redirect = Redirect {
        scheme: None,
        host: Some("new.example".into()),
        port: None,
        path: None,
        status: 302,
    };
    let both = ["a", "b"].map(|pool| WeightedPool { pool: pool.into(), weight: 1 });
    let wish = world
        .wish()
        .web(&[])
        .pool(pool("a"), &[&a])
        .pool(pool("b"), &[&b])
        .site(
            "shop.example",
            None,
            [
                forward("/a", "a"),
                forward("/b", "b"),
                rule("/both", Action::Forward(both.to_vec())),
                rule("/old", Action::Redirect(redirect)),
                rule("/teapot", Action::Respond(418)),
                forward("/gone", "nowhere"),
            ],
        )
        .site("*", None, []);
    world.apply(wish).await;

    let mut session = world.http().session().await.unwrap();
    let name = |answer: bowline_testing::Answer| answer.echo().unwrap().name;
    assert_eq!(name(session.get("shop.example", "/a/x").await.unwrap()), "a");
    assert_eq!(name(session.get("Shop.Example:80", "/b").await.unwrap()), "b");
    let mut seen = BTreeMap::<String, usize>::new();
    for _ in 0..20 {
        *seen.entry(name(session.get("shop.example", "/both").await.unwrap())).or_default() += 1;
    }
    assert_eq!(seen.len(), 2, "{seen:?}");
    let old = session.get("shop.example", "/old/x?y=1").await.unwrap();
    assert_eq!((old.status, old.header("location")), (302, "http://new.example:8080/old/x?y=1"));
    for (path, status) in [("/teapot", 418), ("/gone", 503), ("/none", 404), ("/ab", 404)] {
        let answer = session.get("shop.example", path).await.unwrap();
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
    }
    assert_eq!(session.get("other.example", "/a").await.unwrap().status, 404);
}

#[tokio::test]
async fn a_body_arrives_whole_in_both_directions() {
    let world = World::new();
    let member = world.member("a").await;
    world.apply(world.wish().web(&[&member])).await;
    let mut session = world.http().session().await.unwrap();
    for size in [0, 1, 100_000, 3_000_000] {
        let post = Request::post("shop.example", "/", vec![b'x'; size]);
        let echo = session.send(post).await.unwrap().echo().unwrap();
        assert_eq!((echo.method.as_str(), echo.body), ("POST", size));
        let answer = session.get("shop.example", &format!("/?bytes={size}")).await.unwrap();
        assert_eq!(answer.body.len(), size);
    }
}

#[tokio::test]
async fn requests_sent_without_waiting_are_answered_in_order() {
    let world = World::new();
    let member = world.member("a").await;
    world.apply(world.wish().web(&[&member])).await;
    let mut stream = world.http().tcp().await.unwrap();
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
    let post = "POST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello";
    let last = "GET /4 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let all = format!("{}{post}{}{last}", get("/1?delay=50"), get("/3"));
    stream.write_all(all.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    let paths: Vec<_> =
        text.split("\"path\":\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert_eq!(paths, ["/1?delay=50", "/2", "/3", "/4"], "{text}");
}

#[tokio::test]
async fn what_is_ambiguous_too_large_or_too_slow_is_refused_and_harms_nobody() {
    let mut options = bowline_proxy::Options::default();
    options.limits.header_time = std::time::Duration::from_millis(300);
    let world = World::with(options);
    let member = world.member("a").await;
    world.apply(world.wish().web(&[&member])).await;
    let long = "x".repeat(100_000);
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), "400"),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n".to_owned(), "400"),
        ("GET /../etc HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), "400"),
        ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n".to_owned(), "400"),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
                .to_owned(),
            "400",
        ),
        (format!("GET / HTTP/1.1\r\nHost: a\r\nX: {long}\r\n\r\n"), "431"),
        ("GET / HTTP/1.1\r\nHost: a\r\n".to_owned(), "408"),
        ("CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n".to_owned(), "405"),
    ] {
        let mut stream = world.http().tcp().await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).await.unwrap();
        let head = String::from_utf8_lossy(&head).into_owned();
        assert_eq!(head, format!("HTTP/1.1 {status}"), "{}", &request[..request.len().min(80)]);
        assert!(world.http().get("a", "/").await.unwrap().echo().is_ok());
    }
    assert_eq!(member.requests(), 8);
}

#[tokio::test]
async fn a_websocket_carries_messages_both_ways() {
    let world = World::new();
    let member = world.member("a").await;
    world.apply(world.wish().web(&[&member])).await;
    let mut socket = world.http().websocket("shop.example", "/chat").await.unwrap();
    for text in ["one", "two"] {
        assert_eq!(socket.ask(text).await.unwrap(), format!("a:{text}"));
    }
}

#[tokio::test]
async fn a_pool_with_nobody_in_it_is_answered_with_503() {
    let world = World::new();
    world.apply(world.wish().web(&[])).await;
    let answer = world.http().get("shop.example", "/").await.unwrap();
    assert_eq!((answer.status, answer.text().as_str()), (503, "No member is available.\n"));
}

#[tokio::test]
async fn only_clients_in_the_source_ranges_are_served() {
    let world = World::new();
    let member = world.member("a").await;
    let (inside, outside) = (kit::address(), kit::address());
    let mut narrow = pool("web");
    narrow.source_ranges = vec![inside.into()];
    world.apply(world.wish().web(&[]).pool(narrow, &[&member])).await;
    let status = |from| {
        let dial = world.http().from(from);
        async move { dial.get("a", "/").await.unwrap().status }
    };
    assert_eq!((status(inside).await, status(outside).await), (200, 403));
}

#[tokio::test]
async fn a_listener_that_is_removed_releases_its_address() {
    let world = World::new();
    let member = world.member("a").await;
    world.apply(world.wish().web(&[&member])).await;
    assert_eq!(world.http().get("a", "/").await.unwrap().status, 200);
    world.apply(world.wish().without_listener(kit::HTTP)).await;
    assert!(world.http().tcp().await.is_err());
    eventually("the address is free", || async {
        std::net::TcpListener::bind((world.at, kit::HTTP)).map_err(|error| error.to_string())
    })
    .await;
}
