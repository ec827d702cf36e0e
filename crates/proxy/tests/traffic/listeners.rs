//! Tests how addresses are bound, refused, released and bound again.

use crate::kit::{self, HTTP, World, consumer, pool};
use bowline_core::outcome::Reason;
use bowline_core::plan::{ListenerProtocol, Pool, Serves, Transport};
use bowline_core::update::{Extent, ListenerKey, Report};
use bowline_proxy::Options;
use bowline_testing::{Backend, Dial, eventually};
use std::time::{Duration, Instant};

#[tokio::test]
async fn an_address_that_is_taken_is_reported_on_its_own_object_and_bound_once_it_is_free() {
    let world = World::new();
    let member = world.member("a").await;
    let taken = std::net::TcpListener::bind((world.at, 9000)).unwrap();
    let wish = world.wish().web(&[&member]).listener(9000, ListenerProtocol::Http);
    let report = world.proxy.apply(&wish.update).await;
    let [refusal] = report.refused.as_slice() else { panic!("{report:?}") };
    let key = ListenerKey { address: world.at, port: 9000, transport: Transport::Tcp };
    assert_eq!(
        (&refusal.consumer, refusal.problem.reason, refusal.extent.clone()),
        (&consumer("listener"), Reason::BindFailed, Extent::Listener(key))
    );
    assert!(refusal.problem.message.contains(":9000 cannot be bound"), "{refusal:?}");
    assert_eq!(world.http().get("a", "/").await.unwrap().status, 200);

    drop(taken);
    let mut report = world.proxy.report();
    report.wait_for(|report| *report == Report::default()).await.unwrap();
    assert_eq!(Dial::to(world.at, 9000).get("a", "/").await.unwrap().status, 200);
}

#[tokio::test]
async fn a_protocol_that_is_not_carried_is_refused_and_forgotten_with_its_listener() {
    let world = World::new();
    let serves = Serves::Pool("web".into());
    let mut wish =
        world.wish().pool(pool("web"), &[]).serving(9000, ListenerProtocol::Sctp, serves);
    let report = world.proxy.apply(&wish.update).await;
    assert_eq!(report.refused[0].problem.reason, Reason::NotSupported);
    wish = world.wish();
    let key = ListenerKey { address: world.at, port: 9000, transport: Transport::Sctp };
    wish.update.listeners.push(bowline_core::update::Change::Remove(key));
    world.apply(wish).await;
}

#[tokio::test]
async fn tcp_and_udp_pass_through_and_change_pools_without_binding_anew() {
    let world = World::new();
    let mut members = Vec::new();
    for name in ["a", "b"] {
        let tcp = Backend::tcp(name, kit::address(), kit::MEMBER).await;
        let udp = Backend::udp(name, kit::address(), kit::MEMBER).await;
        members.push((tcp, udp));
    }
    let [(tcp_a, udp_a), (tcp_b, udp_b)] = members.as_slice() else { panic!() };
    let mut datagrams = ["udp-a", "udp-b"].map(pool);
    for pool in &mut datagrams {
        pool.service.protocol = Transport::Udp;
    }
    let [udp_pool_a, udp_pool_b] = datagrams;
    let on = |name: &str| Serves::Pool(name.into());
    let wish = world
        .wish()
        .pool(pool("a"), &[tcp_a])
        .pool(pool("b"), &[tcp_b])
        .pool(udp_pool_a, &[udp_a])
        .pool(udp_pool_b, &[udp_b])
        .serving(HTTP, ListenerProtocol::Tcp, on("a"))
        .serving(HTTP, ListenerProtocol::Udp, on("udp-a"));
    world.apply(wish).await;
    let dial = world.http();
    let mut line = dial.line().await.unwrap();
    assert_eq!(line.name, "a");
    assert_eq!(dial.datagram("x").await.unwrap(), "a:x");

    let wish = world.wish().serving(HTTP, ListenerProtocol::Tcp, on("b")).serving(
        HTTP,
        ListenerProtocol::Udp,
        on("udp-b"),
    );
    world.apply(wish).await;
    assert_eq!(dial.line().await.unwrap().name, "b");
    assert_eq!(dial.datagram("y").await.unwrap(), "b:y");
    assert_eq!(line.ask("still there").await.unwrap(), "still there");
}

#[tokio::test]
async fn a_port_can_change_from_tcp_to_http_and_back() {
    let world = World::new();
    let (lines, web) =
        (Backend::tcp("t", kit::address(), kit::MEMBER).await, world.member("h").await);
    let tcp =
        |wish: kit::Wish| wish.serving(HTTP, ListenerProtocol::Tcp, Serves::Pool("lines".into()));
    world.apply(tcp(world.wish().pool(pool("lines"), &[&lines]))).await;
    assert_eq!(world.http().line().await.unwrap().name, "t");
    world.apply(world.wish().web(&[&web])).await;
    assert_eq!(world.http().get("a", "/").await.unwrap().echo().unwrap().name, "h");
    world.apply(tcp(world.wish())).await;
    assert_eq!(world.http().line().await.unwrap().name, "t");
}

#[tokio::test]
async fn a_port_that_is_removed_and_added_again_is_there_at_once() {
    let world = World::new();
    let member = world.member("a").await;
    world.apply(world.wish().web(&[&member])).await;
    let _kept = world.http().session().await.unwrap().get("a", "/").await.unwrap();
    for _ in 0..5 {
        world.apply(world.wish().without_listener(HTTP)).await;
        world.apply(world.wish().listener(HTTP, ListenerProtocol::Http)).await;
        assert_eq!(world.http().get("a", "/").await.unwrap().status, 200);
    }
}

#[tokio::test]
async fn what_a_removed_listener_has_goes_on_for_its_drain_time_and_is_cut_then() {
    let mut options = Options::default();
    options.limits.drain_time = Duration::from_secs(1);
    let world = World::with(options);
    let (lines, web) =
        (Backend::tcp("t", kit::address(), kit::MEMBER).await, world.member("h").await);
    let serves = Serves::Pool("lines".into());
    let wish = world.wish().web(&[&web]).pool(pool("lines"), &[&lines]);
    world.apply(wish.serving(9000, ListenerProtocol::Tcp, serves)).await;
    let mut line = Dial::to(world.at, 9000).line().await.unwrap();
    let mut socket = world.http().websocket("a", "/").await.unwrap();

    let removed = Instant::now();
    world.apply(world.wish().without_listener(HTTP).without_listener(9000)).await;
    assert_eq!(line.ask("x").await.unwrap(), "x");
    assert_eq!(socket.ask("x").await.unwrap(), "h:x");
    let cut = async {
        while line.ask("still there").await.is_ok() {
            tokio::task::yield_now().await;
        }
        while socket.ask("still there").await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), cut).await.expect("both are cut");
    assert!(removed.elapsed() >= Duration::from_secs(1), "{:?}", removed.elapsed());
}

#[tokio::test]
async fn counters_and_the_access_log_say_what_happened() {
    let (options, lines) = kit::logging();
    let world = World::with(options);
    let member = world.member("a").await;
    world.apply(world.wish().web(&[&member])).await;
    assert_eq!(world.http().get("Shop.Example:8080", "/x?y=1").await.unwrap().status, 200);
    let line = eventually("a line is written", || async {
        lines.lock().unwrap().first().cloned().ok_or_else(|| "none".to_owned())
    })
    .await;
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    let said = ["host", "method", "path", "protocol", "pool", "member"]
        .map(|key| line[key].as_str().unwrap());
    let at = member.at.to_string();
    assert_eq!(said, ["shop.example", "GET", "/x?y=1", "HTTP/1.1", "web", &at]);
    assert_eq!((line["status"].as_u64(), line["tries"].as_u64()), (Some(200), Some(1)));

    let mut registry = prometheus_client::registry::Registry::default();
    let exposition = bowline_proxy::Exposition::default();
    exposition.add("edge", &world.proxy);
    registry.register_collector(Box::new(exposition));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    for sample in [
        "proxy_responses_total{load_balancer=\"edge\",pool=\"web\",class=\"2xx\"} 1\n".to_owned(),
        format!(
            "proxy_listener_accepted_total{{load_balancer=\"edge\",address=\"{}:{HTTP}\",protocol=\"http\"}} 1\n",
            world.at
        ),
    ] {
        assert!(text.contains(&sample), "{sample} is not in {text}");
    }
    let sent = text.lines().find(|line| line.starts_with("proxy_listener_bytes_out_total"));
    assert!(sent.is_some_and(|line| !line.ends_with(" 0")), "{sent:?}");
}

#[tokio::test]
async fn what_a_complete_update_does_not_have_is_gone() {
    let world = World::new();
    let (member, other) = (world.member("a").await, world.member("b").await);
    world
        .apply(
            world
                .wish()
                .web(&[&member, &other])
                .listener(9000, ListenerProtocol::Http)
                .pool(pool("old"), &[&other])
                .site("old.example", None, [kit::forward("/", "old")]),
        )
        .await;
    assert_eq!(world.http().get("old.example", "/").await.unwrap().echo().unwrap().name, "b");

    let mut wish = world.wish().web(&[&member]);
    wish.update.complete = true;
    world.apply(wish).await;
    for _ in 0..4 {
        assert_eq!(world.http().get("old.example", "/").await.unwrap().echo().unwrap().name, "a");
    }
    assert!(Dial::to(world.at, 9000).get("a", "/").await.is_err());

    // A complete update does not mention a pool without members.
    let mut wish = world.wish().web(&[]);
    (wish.update.complete, wish.update.members) = (true, Vec::new());
    world.apply(wish).await;
    assert_eq!(world.http().get("a", "/").await.unwrap().status, 503);
}

#[tokio::test]
async fn a_client_address_that_cannot_be_shown_is_told_and_served_all_the_same() {
    let world = World::new();
    let member = world.member("a").await;
    let shown = Pool { snat: false, ..pool("tcp") };
    let serves = Serves::Pool("tcp".into());
    let wish =
        world.wish().pool(shown, &[&member]).serving(9000, ListenerProtocol::Tcp, serves.clone());
    let report = world.proxy.apply(&wish.update).await;
    let [refusal] = report.refused.as_slice() else { panic!("{report:?}") };
    assert_eq!(
        (&refusal.consumer, refusal.problem.reason, refusal.extent.clone()),
        (&consumer("listener"), Reason::NotSupported, Extent::Part)
    );
    assert_eq!(Dial::to(world.at, 9000).get("a", "/").await.unwrap().status, 200);
    // Only the pool changes: no refusal is left.
    world.apply(world.wish().pool(pool("tcp"), &[&member])).await;
}
