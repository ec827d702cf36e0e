//! Tests how responses are framed for each kind of client, and what follows them on the connection.

use crate::kit::{HTTPS, Scripted, World, logging, pool, rest, tls};
use bowline_core::plan::{Action, ListenerProtocol, Speaks, Timeouts};
use bowline_proxy::Options;
use bowline_testing::{Authority, Request, eventually};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Reads until the text has this end.
async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut text = Vec::new();
    let reading = async {
        while !text.ends_with(end.as_bytes()) {
            text.push(stream.read_u8().await.unwrap());
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(10), reading).await;
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(in_time.is_ok(), "{text}");
    text
}

#[tokio::test]
async fn an_http_1_0_client_gets_no_chunks() {
    for answer in [
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    ] {
        let world = World::new();
        let member = Scripted::new(answer).await;
        world.apply(world.wish().web(&[]).members("web", &[], &[member.at])).await;
        let text = world.raw("GET / HTTP/1.0\r\n\r\n").await;
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert_eq!(body, "hello", "{text}");
        assert!(!head.to_ascii_lowercase().contains("transfer-encoding"), "{head}");
    }
}

#[tokio::test]
async fn answers_without_a_body_leave_the_connection_in_order() {
    let world = World::new();
    let member = world.member("a").await;
    world.apply(world.wish().web(&[&member])).await;
    for dial in [world.http(), world.http().http2()] {
        let mut session = dial.session().await.unwrap();
        for (method, path, status) in
            [("HEAD", "/", 200), ("GET", "/?status=204", 204), ("GET", "/?status=304", 304)]
        {
            let answer = session.send(Request::method(method, "a", path)).await.unwrap();
            assert_eq!((answer.status, answer.body.len()), (status, 0), "{method} {path}");
        }
        assert_eq!(session.get("a", "/").await.unwrap().echo().unwrap().name, "a");
    }
}

#[tokio::test]
async fn a_client_that_waits_to_be_told_to_continue_is_told() {
    let world = World::new();
    let member = world.member("a").await;
    world.apply(world.wish().web(&[&member])).await;
    let mut stream = world.http().tcp().await.unwrap();
    let head = "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\
                Connection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let told = read_until(&mut stream, "\r\n\r\n").await;
    assert!(told.starts_with("HTTP/1.1 100 "), "{told}");
    stream.write_all(b"hello").await.unwrap();
    let answer = rest(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("\"body\":5"), "{answer}");
}

#[tokio::test]
async fn trailers_reach_a_client_of_http2() {
    let world = World::new();
    let member = world.member("a").await;
    let mut h2c = pool("web");
    h2c.speaks = Speaks::H2c;
    world.apply(world.wish().web(&[]).pool(h2c, &[&member])).await;
    let call = Request::post("a", "/?trailer=7", "body")
        .header("te", "trailers")
        .header("content-type", "application/grpc");
    let answer = world.http().http2().send(call).await.unwrap();
    let status = answer.trailers.get("grpc-status").map(|status| status.to_str().unwrap());
    assert_eq!((answer.status, status), (200, Some("7")));
    assert_eq!(answer.echo().unwrap().header("te"), "trailers");
}

#[tokio::test]
async fn a_request_right_after_a_chunked_body_is_the_next_one() {
    let world = World::new();
    let member = world.member("a").await;
    world.apply(world.wish().web(&[&member])).await;
    let post = "POST /1?delay=200 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
                5\r\nhello\r\n0\r\n\r\n";
    let get = "GET /2 HTTP/1.1\r\nHost: a\r\nUpgrade: x\r\n\r\n";
    let last = "GET /3 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    for pause in [false, true] {
        let mut stream = world.http().tcp().await.unwrap();
        let before = member.requests();
        stream.write_all(post.as_bytes()).await.unwrap();
        if pause {
            eventually("the first is there", || async {
                (member.requests() > before).then_some(()).ok_or_else(|| "no".to_owned())
            })
            .await;
        }
        stream.write_all(format!("{get}{last}").as_bytes()).await.unwrap();
        let text = rest(&mut stream).await;
        let paths: Vec<_> =
            text.split("\"path\":\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        assert_eq!(paths, ["/1?delay=200", "/2", "/3"], "{text}");
    }
}

/// A site that redirects all to HTTPS.
async fn redirecting(world: &World) {
    let authority = Authority::new();
    let wish = world
        .wish()
        .web(&[])
        .listener(HTTPS, ListenerProtocol::Https)
        .certificate("h", &authority.issue(&["a.example"]))
        .site("a.example", tls("h", true), [crate::kit::rule("/", Action::Respond(200))]);
    world.apply(wish).await;
}

#[tokio::test]
async fn an_answer_of_our_own_to_a_small_body_keeps_the_connection() {
    let world = World::new();
    redirecting(&world).await;
    let mut stream = world.http().tcp().await.unwrap();
    let post = "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\n\r\nhello";
    for _ in 0..2 {
        stream.write_all(post.as_bytes()).await.unwrap();
        let answer = read_until(&mut stream, "See the location.\n").await;
        assert!(answer.starts_with("HTTP/1.1 308 "), "{answer}");
        assert!(answer.to_ascii_lowercase().contains("connection: keep-alive"), "{answer}");
    }
}

#[tokio::test]
async fn an_answer_of_our_own_to_a_large_body_is_not_taken_back() {
    let world = World::new();
    redirecting(&world).await;
    let mut stream = world.http().tcp().await.unwrap();
    let size = 10_000_000;
    let head = format!("PUT / HTTP/1.1\r\nHost: a.example\r\nContent-Length: {size}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let (mut reads, mut writes) = stream.split();
    let sending = async {
        let _ = writes.write_all(&vec![b'x'; size]).await;
    };
    let mut text = Vec::new();
    let (_, read) = tokio::join!(sending, reads.read_to_end(&mut text));
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(read.is_ok() && text.starts_with("HTTP/1.1 308 "), "{read:?} {text}");
    assert!(text.ends_with("See the location.\n"), "{text}");
}

#[tokio::test]
async fn who_is_asked_to_leave_is_told_so_in_the_answer() {
    let mut options = Options::default();
    options.limits.listener_connections = 10;
    let world = World::with(options);
    let member = world.member("a").await;
    world.apply(world.wish().web(&[&member])).await;
    let mut first = world.http().session().await.unwrap();
    assert_eq!(first.get("a", "/").await.unwrap().header("connection"), "keep-alive");
    // Nine more: no place is left.
    let mut others = Vec::new();
    for _ in 0..9 {
        let mut stream = world.http().tcp().await.unwrap();
        stream.write_all(b"GET /?delay=60000 HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        others.push(stream);
    }
    eventually("all are under way", || async {
        (member.requests() == 10).then_some(()).ok_or_else(|| member.requests().to_string())
    })
    .await;
    assert_eq!(first.get("a", "/").await.unwrap().header("connection"), "close");
}

#[tokio::test]
async fn a_request_that_is_cut_is_answered_counted_and_logged() {
    let (options, lines) = logging();
    let world = World::with(options);
    let member = world.member("a").await;
    let mut brief = pool("web");
    brief.timeouts = Timeouts { drain_seconds: Some(1), ..Timeouts::default() };
    world.apply(world.wish().web(&[]).pool(brief, &[&member])).await;
    let ask = |dial: bowline_testing::Dial| async move { dial.get("a", "/?delay=60000").await };
    let one = tokio::spawn(ask(world.http()));
    let two = tokio::spawn(ask(world.http().http2()));
    eventually("both are there", || async {
        (member.requests() == 2).then_some(()).ok_or_else(|| member.requests().to_string())
    })
    .await;
    world.apply(world.wish().members("web", &[member.at], &[])).await;
    assert_eq!(one.await.unwrap().map(|answer| answer.status), Ok(504));
    assert!(two.await.unwrap().is_err(), "a stream that cannot be answered is reset");
    let said = eventually("both are logged", || async {
        let lines = lines.lock().unwrap().clone();
        if lines.len() == 2 { Ok(lines) } else { Err(format!("{lines:?}")) }
    })
    .await;
    assert!(said.iter().all(|line| line.contains("\"error\":\"Drained\"")), "{said:?}");
    let mut statuses: Vec<u64> = said
        .iter()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["status"].as_u64())
        .map(Option::unwrap)
        .collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [0, 504]);
    assert_eq!(world.counted("proxy_responses_total"), 2.0);
}
