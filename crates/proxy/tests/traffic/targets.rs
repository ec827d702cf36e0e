//! Tests which request targets are accepted, and that members get the target that was matched.

use crate::kit::{Scripted, World, forward, pool};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// One host with a member, and no rule for other hosts.
async fn shop(world: &World) -> Scripted {
    let member = Scripted::new(OK).await;
    let wish = world
        .wish()
        .web(&[])
        .pool(pool("shop"), &[])
        .members("shop", &[], &[member.at])
        .site("shop.example", None, [forward("/", "shop")])
        .site("*", None, []);
    world.apply(wish).await;
    member
}

async fn status(world: &World, request: &str) -> String {
    let answer = world.raw(request).await;
    answer.split(' ').nth(1).unwrap_or_default().to_owned()
}

#[tokio::test]
async fn a_target_that_could_be_read_in_two_ways_is_refused_and_reaches_no_member() {
    let world = World::new();
    let member = shop(&world).await;
    for target in [
        "admin",
        "../../etc/passwd",
        "x:opaque",
        "?a=1",
        "*",
        "ftp://shop.example/",
        "http:/shop.example/",
        "http:///a",
        "http://shop.example\\a",
        "http://other.example/",
        "http://user@shop.example/",
        "http://shop.example/../a",
    ] {
        let request =
            format!("GET {target} HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n");
        assert_eq!(status(&world, &request).await, "400", "{target}");
    }
    assert_eq!(member.heads(), Vec::<String>::new());
}

#[tokio::test]
async fn members_are_sent_the_path_that_was_matched() {
    let world = World::new();
    let member = shop(&world).await;
    let host = "Host: shop.example\r\nConnection: close\r\n\r\n";
    for (line, sent) in [
        ("GET /a?b HTTP/1.1", "GET /a?b HTTP/1.1"),
        ("GET http://shop.example/a?b HTTP/1.1", "GET /a?b HTTP/1.1"),
        ("GET HTTP://shop.example HTTP/1.1", "GET / HTTP/1.1"),
        ("GET https://shop.example?b HTTP/1.1", "GET /?b HTTP/1.1"),
        ("GET /a#b HTTP/1.1", "GET /a HTTP/1.1"),
    ] {
        let request = format!("{line}\r\n{host}");
        assert_eq!(status(&world, &request).await, "200", "{line}");
        assert_eq!(member.last_line(), sent);
    }
}

#[tokio::test]
async fn the_host_of_an_absolute_target_is_the_host_of_the_request() {
    let world = World::new();
    let member = shop(&world).await;
    assert_eq!(status(&world, "GET http://shop.example/a HTTP/1.0\r\n\r\n").await, "200");
    assert_eq!(status(&world, "GET http://other.example/a HTTP/1.0\r\n\r\n").await, "404");
    // No rule is for the server as a whole.
    assert_eq!(status(&world, "OPTIONS * HTTP/1.0\r\n\r\n").await, "404");
    let heads = member.heads();
    let [head] = heads.as_slice() else { panic!("{heads:?}") };
    assert!(head.starts_with("GET /a HTTP/1.1\r\n"), "{head}");
    assert!(head.to_ascii_lowercase().contains("\r\nhost: shop.example\r\n"), "{head}");
}

#[tokio::test]
async fn a_path_that_a_member_could_resolve_to_another_is_refused() {
    let world = World::new();
    let member = shop(&world).await;
    for path in ["/a/..;/b", "/..;x=1/b", "/a/%2e%2e%3bx/b", "/./b", "/a/.", "/a/%2e;/b"] {
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n");
        assert_eq!(status(&world, &request).await, "400", "{path}");
    }
    assert_eq!(member.heads(), Vec::<String>::new());
}
