//! Tests TLS by SNI, HTTP/2, and the response when host and certificate do not belong together.

use crate::kit::{HTTP, HTTPS, Scripted, World, consumer, forward, pool, tls};
use bowline_core::outcome::{Problem, Reason};
use bowline_core::plan::{ListenerProtocol, SiteTls, Speaks};
use bowline_core::update::{Extent, Refusal, Report};
use bowline_testing::{Authority, Issued, Request};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

/// Two hosts with a certificate each, one whose certificate is missing, one without TLS.
async fn two_hosts(world: &World, authority: &Authority) -> [Issued; 2] {
    let issued =
        [authority.issue(&["a.example", "also-a.example"]), authority.issue(&["b.example"])];
    let none = SiteTls { certificate: None, redirect: true };
    let wish = world
        .wish()
        .listener(HTTP, ListenerProtocol::Http)
        .listener(HTTPS, ListenerProtocol::Https)
        .certificate("a", &issued[0])
        .certificate("b", &issued[1])
        .site("a.example", tls("a", true), [forward("/", "web")])
        .site("also-a.example", tls("a", false), [forward("/", "web")])
        .site("b.example", tls("b", true), [forward("/", "web")])
        .site("none.example", Some(none), [forward("/", "web")])
        .site("clear.example", None, [forward("/", "web")]);
    world.apply(wish).await;
    issued
}

fn der(issued: &Issued) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap()
}

#[tokio::test]
async fn a_connection_is_shown_the_certificate_of_the_name_it_asks_for_or_none() {
    let (world, authority) = (World::new(), Authority::new());
    let issued = two_hosts(&world, &authority).await;
    let trusted = authority.trusted(&[]);
    let shown = |name: &str| {
        let dial = world.https().tls(&trusted, name);
        async move { dial.certificate().await }
    };
    assert_eq!(shown("a.example").await, Ok(der(&issued[0])));
    assert_eq!(shown("b.example").await, Ok(der(&issued[1])));
    for name in ["none.example", "clear.example", "unknown.example"] {
        assert!(shown(name).await.is_err(), "{name}");
    }
}

#[tokio::test]
async fn clear_text_is_sent_to_https_unless_the_site_says_otherwise() {
    let (world, authority) = (World::new(), Authority::new());
    two_hosts(&world, &authority).await;
    let member = world.member("m").await;
    world.apply(world.wish().pool(pool("web"), &[&member])).await;
    let mut session = world.http().session().await.unwrap();
    for host in ["a.example", "a.example:8080", "none.example"] {
        let answer = session.get(host, "/x%20y/?z=1").await.unwrap();
        let name = host.split(':').next().unwrap();
        let location = format!("https://{name}:{HTTPS}/x%20y/?z=1");
        assert_eq!((answer.status, answer.header("location")), (308, location.as_str()));
    }
    for host in ["also-a.example", "clear.example"] {
        assert_eq!(session.get(host, "/").await.unwrap().status, 200, "{host}");
    }
}

#[tokio::test]
async fn a_host_with_another_certificate_than_the_connection_is_answered_with_421() {
    let (world, authority) = (World::new(), Authority::new());
    two_hosts(&world, &authority).await;
    let member = world.member("m").await;
    world.apply(world.wish().pool(pool("web"), &[&member])).await;
    for http2 in [false, true] {
        let offered: &[&str] = if http2 { &["h2"] } else { &["http/1.1"] };
        let mut dial = world.https().tls(&authority.trusted(offered), "a.example");
        if http2 {
            dial = dial.http2();
        }
        let mut session = dial.session().await.unwrap();
        for (host, status) in [
            ("a.example", 200),
            ("also-a.example", 200),
            ("b.example", 421),
            ("clear.example", 421),
            ("none.example", 421),
        ] {
            let answer = session.get(host, "/").await.unwrap();
            assert_eq!(answer.status, status, "{host}: {}", answer.text());
        }
    }
}

#[tokio::test]
async fn http2_comes_by_alpn_or_by_its_preface_and_goes_on_as_the_member_speaks() {
    let (world, authority) = (World::new(), Authority::new());
    two_hosts(&world, &authority).await;
    let member = world.member("m").await;
    let mut h2c = pool("h2c");
    h2c.speaks = Speaks::H2c;
    let wish = world
        .wish()
        .pool(pool("web"), &[&member])
        .pool(h2c, &[&member])
        .site("clear.example", None, [forward("/", "web"), forward("/h2c", "h2c")])
        .site("a.example", tls("a", true), [forward("/", "web"), forward("/h2c", "h2c")]);
    world.apply(wish).await;
    let trusted = authority.trusted(&["h2"]);
    let dials = [
        (world.http(), "clear.example", "http"),
        (world.http().http2(), "clear.example", "http"),
        (world.https().tls(&trusted, "a.example").http2(), "a.example", "https"),
    ];
    for (dial, host, proto) in dials {
        let mut session = dial.session().await.unwrap();
        for (path, version) in [("/", "HTTP/1.1"), ("/h2c", "HTTP/2.0")] {
            let echo = session.get(host, path).await.unwrap().echo().unwrap();
            let told =
                (echo.version.as_str(), echo.host.as_str(), echo.header("x-forwarded-proto"));
            assert_eq!(told, (version, host, proto), "{path}");
        }
    }
}

#[tokio::test]
async fn a_replaced_certificate_is_shown_to_new_connections_and_ends_no_old_one() {
    let (world, authority) = (World::new(), Authority::new());
    two_hosts(&world, &authority).await;
    let member = world.member("m").await;
    world.apply(world.wish().pool(pool("web"), &[&member])).await;
    let dial = world.https().tls(&authority.trusted(&[]), "a.example");
    let mut session = dial.session().await.unwrap();
    assert_eq!(session.get("a.example", "/").await.unwrap().status, 200);

    let newer = authority.issue(&["a.example"]);
    let wish = world.wish().certificate("newer", &newer).site(
        "a.example",
        tls("newer", true),
        [forward("/", "web")],
    );
    world.apply(wish).await;
    assert_eq!(dial.certificate().await, Ok(der(&newer)));
    assert_eq!(session.get("a.example", "/").await.unwrap().status, 200);
    assert_eq!(session.get("b.example", "/").await.unwrap().status, 421);
}

#[tokio::test]
async fn a_certificate_that_cannot_be_read_is_told_to_those_who_use_it_and_harms_no_other() {
    let (world, authority) = (World::new(), Authority::new());
    two_hosts(&world, &authority).await;
    let bad = Issued { certificate: "no certificate".into(), key: "no key".into() };
    let wish = world.wish().certificate("bad", &bad).site(
        "bad.example",
        tls("bad", true),
        [forward("/", "web")],
    );
    let report = world.proxy.apply(&wish.update).await;
    let message = "the certificate of bad.example cannot be served: the chain is empty";
    let problem = Problem::new(Reason::BadCertificate, message);
    let refusal = Refusal { consumer: consumer("site"), problem, extent: Extent::Part };
    assert_eq!(report, Report { refused: vec![refusal], ..Report::default() });
    let trusted = authority.trusted(&[]);
    assert!(world.https().tls(&trusted, "bad.example").certificate().await.is_err());
    assert!(world.https().tls(&trusted, "a.example").certificate().await.is_ok());
}

#[tokio::test]
async fn bodies_and_websockets_pass_through_tls_and_http2() {
    let (world, authority) = (World::new(), Authority::new());
    two_hosts(&world, &authority).await;
    let member = world.member("m").await;
    world.apply(world.wish().pool(pool("web"), &[&member])).await;
    let one = world.https().tls(&authority.trusted(&["http/1.1"]), "a.example");
    let two = world.https().tls(&authority.trusted(&["h2"]), "a.example").http2();
    for dial in [&one, &two] {
        let mut session = dial.session().await.unwrap();
        let post = Request::post("a.example", "/", vec![b'x'; 300_000]);
        assert_eq!(session.send(post).await.unwrap().echo().unwrap().body, 300_000);
        let answer = session.get("a.example", "/?bytes=300000").await.unwrap();
        assert_eq!(answer.body.len(), 300_000);
    }
    let mut socket = one.websocket("a.example", "/").await.unwrap();
    assert_eq!(socket.ask("x").await.unwrap(), "m:x");
}

#[tokio::test]
async fn an_http2_request_with_too_large_a_header_harms_only_itself() {
    let (world, authority) = (World::new(), Authority::new());
    two_hosts(&world, &authority).await;
    let member = world.member("m").await;
    world.apply(world.wish().pool(pool("web"), &[&member])).await;
    let dial = world.https().tls(&authority.trusted(&["h2"]), "a.example").http2();
    let mut session = dial.session().await.unwrap();
    let large = Request::get("a.example", "/").header("x", &"y".repeat(100_000));
    let refused = session.send(large).await.map(|answer| answer.status);
    assert!(matches!(refused, Ok(431) | Err(_)), "{refused:?}");
    // On the same connection.
    assert_eq!(session.get("a.example", "/").await.unwrap().status, 200);
    assert_eq!(member.requests(), 1);
}

#[tokio::test]
async fn cookies_of_an_http2_request_reach_an_http1_member_as_one_field() {
    let world = World::new();
    let member = Scripted::new("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    let two = world.member("h2c").await;
    let mut h2c = pool("h2c");
    h2c.speaks = Speaks::H2c;
    let wish = world.wish().web(&[]).members("web", &[], &[member.at]).pool(h2c, &[&two]).site(
        "two.example",
        None,
        [forward("/", "h2c")],
    );
    world.apply(wish).await;
    let request = |host| {
        let fields = ["session=1", "", "theme=dark; lang=en", "last=\"x\""];
        let request = Request::get(host, "/");
        fields.into_iter().fold(request, |request, field| request.header("cookie", field))
    };
    for dial in [world.http().http2(), world.http()] {
        assert_eq!(dial.send(request("one.example")).await.unwrap().status, 200);
    }
    let cookies = |head: &String| -> Vec<String> {
        let fields = head.lines().filter(|line| line.to_ascii_lowercase().starts_with("cookie:"));
        fields.filter_map(|line| Some(line.split_once(": ")?.1.to_owned())).collect()
    };
    let seen: Vec<_> = member.heads().iter().map(cookies).collect();
    let one = vec!["session=1; theme=dark; lang=en; last=\"x\"".to_owned()];
    assert_eq!(seen, [one.clone(), one]);
    // HTTP/2 members may get several cookie fields; a backend joins them with a comma.
    let echo = world.http().http2().send(request("two.example")).await.unwrap().echo().unwrap();
    let told = (echo.version.as_str(), echo.header("cookie"));
    assert_eq!(told, ("HTTP/2.0", "session=1, , theme=dark; lang=en, last=\"x\""));
}
