//! Tests over real datagrams on loopback.

use super::*;
use crate::pool::tests::{at, change, config_with, pool, until};
use bowline_core::plan::{self, Transport};
use std::sync::atomic::Ordering;
use tokio::task::JoinHandle;
use tokio::time::timeout;

struct Edge {
    address: SocketAddr,
    pool: Arc<ArcSwap<Pool>>,
    stats: Arc<ListenerStats>,
    task: JoinHandle<()>,
}

impl Drop for Edge {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::of(Places::of(1_000, 1_000))
    }
}

impl Limits {
    fn of(places: Arc<Places>) -> Self {
        let sockets = Arc::new(Semaphore::new(1_000));
        Self { places, part: Part::new(Arc::default()), sockets, idle: IDLE }
    }
}

async fn edge(bind: &str, pool: Arc<Pool>, limits: Limits) -> Edge {
    let socket = Arc::new(UdpSocket::bind(bind).await.unwrap());
    let address = socket.local_addr().unwrap();
    let pool = Arc::new(ArcSwap::new(pool));
    let stats = Arc::new(ListenerStats::default());
    let task = tokio::spawn(serve(socket, pool.clone(), limits, stats.clone()));
    Edge { address, pool, stats, task }
}

/// A member that answers each datagram with its name and what it was sent.
async fn echo(bind: &str, name: &'static str) -> SocketAddr {
    let socket = UdpSocket::bind(bind).await.unwrap();
    let address = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let mut buffer = vec![0; LARGEST];
        loop {
            let (length, client) = socket.recv_from(&mut buffer).await.unwrap();
            let answer = [name.as_bytes(), &buffer[..length]].concat();
            let _ = socket.send_to(&answer, client).await;
        }
    });
    address
}

fn udp(change: impl FnOnce(&mut plan::Pool)) -> Arc<plan::Pool> {
    config_with("p", |pool| {
        pool.service.protocol = Transport::Udp;
        change(pool);
    })
}

fn members(addresses: &[SocketAddr]) -> Vec<bowline_core::update::Member> {
    let mut members: Vec<_> = addresses.iter().map(|address| at(*address)).collect();
    members.sort();
    members
}

/// A client that accepts answers only from the listening address.
async fn client(edge: &Edge) -> UdpSocket {
    let bind = if edge.address.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" };
    let socket = UdpSocket::bind(bind).await.unwrap();
    socket.connect(edge.address).await.unwrap();
    socket
}

/// A client with an address of its own.
async fn client_at(edge: &Edge, last: u8) -> UdpSocket {
    let socket = UdpSocket::bind(SocketAddr::from(([127, 0, 0, last], 0))).await.unwrap();
    socket.connect(edge.address).await.unwrap();
    socket
}

async fn ask(client: &UdpSocket, words: &[u8]) -> Vec<u8> {
    client.send(words).await.unwrap();
    let mut answer = vec![0; LARGEST];
    let got = timeout(Duration::from_secs(10), client.recv(&mut answer)).await;
    answer.truncate(got.expect("no answer").unwrap());
    answer
}

fn active(edge: &Edge) -> u64 {
    edge.stats.active.load(Ordering::Relaxed)
}

#[tokio::test]
async fn a_clients_datagrams_go_to_one_member_and_answers_come_from_the_listener() {
    for bind in ["127.0.0.1:0", "[::1]:0"] {
        let (a, b) = (echo(bind, "a").await, echo(bind, "b").await);
        let edge = edge(bind, pool(udp(|_| {}), &members(&[a, b])), Limits::default()).await;
        let mut met = Vec::new();
        for _ in 0..2 {
            let client = client(&edge).await;
            let first = ask(&client, b"").await;
            for _ in 0..5 {
                assert_eq!(ask(&client, b"x").await, [&first[..], b"x"].concat());
            }
            met.push(first);
        }
        met.sort();
        assert_eq!(met, [b"a", b"b"]);
        assert_eq!(edge.stats.accepted.load(Ordering::Relaxed), 2);
    }
}

#[tokio::test]
async fn datagrams_of_any_size_pass_unchanged() {
    let member = echo("127.0.0.1:0", "").await;
    let edge = edge("127.0.0.1:0", pool(udp(|_| {}), &members(&[member])), Limits::default()).await;
    let client = client(&edge).await;
    for size in [0, 1, 1500, 65_507] {
        let words: Vec<u8> = (0..size).map(|i| (i % 251) as u8).collect();
        assert!(ask(&client, &words).await == words, "{size}");
    }
}

#[tokio::test]
async fn an_idle_session_ends_and_lets_go_of_its_member() {
    let member = echo("127.0.0.1:0", "").await;
    let pool = pool(udp(|_| {}), &members(&[member]));
    let limits = Limits { idle: Duration::from_millis(200), ..Limits::default() };
    let edge = edge("127.0.0.1:0", pool.clone(), limits).await;
    ask(&client(&edge).await, b"x").await;
    assert_eq!(pool.stats()[0].active, 1);
    until(|| active(&edge) == 0 && pool.stats()[0].active == 0).await;
}

#[tokio::test]
async fn listeners_that_share_places_have_no_more_sessions_in_all() {
    let member = echo("127.0.0.1:0", "a").await;
    let pool = pool(udp(|_| {}), &members(&[member]));
    let places = Places::of(2, 2);
    let edges = [
        edge("127.0.0.1:0", pool.clone(), Limits::of(places.clone())).await,
        edge("127.0.0.1:0", pool, Limits::of(places)).await,
    ];
    let (one, two) = (client(&edges[0]).await, client(&edges[1]).await);
    assert_eq!(ask(&one, b"1").await, b"a1");
    assert_eq!(ask(&two, b"2").await, b"a2");
    // Both sockets are one client, and its oldest session ends.
    let third = client(&edges[1]).await;
    assert_eq!(ask(&third, b"3").await, b"a3");
    until(|| (active(&edges[0]), active(&edges[1])) == (0, 2)).await;
    assert_eq!(ask(&one, b"4").await, b"a4");
    until(|| (active(&edges[0]), active(&edges[1])) == (1, 1)).await;
}

#[tokio::test]
async fn where_every_client_has_one_session_the_listener_with_the_most_makes_room() {
    let member = echo("127.0.0.1:0", "").await;
    let pool = pool(udp(|_| {}), &members(&[member]));
    let places = Places::of(4, 4);
    let flooded = edge("127.0.0.1:0", pool.clone(), Limits::of(places.clone())).await;
    let modest = edge("127.0.0.1:0", pool, Limits::of(places)).await;
    let first = client_at(&modest, 10).await;
    assert_eq!(ask(&first, b"x").await, b"x");
    let mut crowd = Vec::new();
    for last in 20..23 {
        let client = client_at(&flooded, last).await;
        assert_eq!(ask(&client, b"x").await, b"x");
        crowd.push(client);
    }
    let second = client_at(&modest, 11).await;
    assert_eq!(ask(&second, b"x").await, b"x");
    until(|| (active(&flooded), active(&modest)) == (2, 2)).await;
    assert_eq!(ask(&first, b"y").await, b"y");
    assert_eq!(modest.stats.accepted.load(Ordering::Relaxed), 2, "no session was begun again");
}

#[tokio::test]
async fn beyond_the_limit_the_oldest_unused_session_makes_room() {
    let member = echo("127.0.0.1:0", "").await;
    let limits = Limits::of(Places::of(1_000, 3));
    let edge = edge("127.0.0.1:0", pool(udp(|_| {}), &members(&[member])), limits).await;
    let mut clients = Vec::new();
    for _ in 0..20 {
        let client = client(&edge).await;
        assert_eq!(ask(&client, b"x").await, b"x");
        clients.push(client);
    }
    until(|| active(&edge) == 3).await;
    for client in &clients {
        assert_eq!(ask(client, b"again").await, b"again", "a new session is made");
    }
}

#[tokio::test]
async fn a_session_of_a_removed_member_drains_and_then_has_another() {
    let (a, b) = (echo("127.0.0.1:0", "a").await, echo("127.0.0.1:0", "b").await);
    let pool = pool(udp(|p| p.timeouts.drain_seconds = Some(1)), &members(&[a]));
    let edge = edge("127.0.0.1:0", pool.clone(), Limits::default()).await;
    let client = client(&edge).await;
    assert_eq!(ask(&client, b"").await, b"a");
    pool.set_members(&change(&[at(b)]));
    assert_eq!(ask(&client, b"").await, b"a", "it drains");
    until(|| active(&edge) == 0).await;
    assert_eq!(ask(&client, b"").await, b"b");
}

#[tokio::test]
async fn a_member_that_refuses_is_left_for_another_however_fast_its_client_sends() {
    for pause in [Duration::from_millis(50), Duration::ZERO] {
        let dead = UdpSocket::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let alive = echo("127.0.0.1:0", "alive").await;
        let pool = pool(udp(|_| {}), &members(&[dead, alive]));
        let edge = edge("127.0.0.1:0", pool.clone(), Limits::default()).await;
        // One of the two clients gets the dead member.
        for client in [client(&edge).await, client(&edge).await] {
            let mut answer = [0; 16];
            let answered = async {
                loop {
                    client.send(b"").await.unwrap();
                    if let Ok(Ok(length)) = timeout(pause, client.recv(&mut answer)).await {
                        return length;
                    }
                    tokio::task::yield_now().await;
                }
            };
            assert_eq!(timeout(Duration::from_secs(10), answered).await, Ok(5), "{pause:?}");
        }
        let failures = || pool.stats().iter().map(|member| member.failures).sum::<u64>();
        until(|| failures() > 0).await;
    }
}

/// The kernel reports a refusal once: to the first call that sends or receives.
#[tokio::test]
async fn a_refusal_that_a_datagram_runs_into_is_not_lost() {
    let dead = UdpSocket::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let pool = pool(udp(|_| {}), &members(&[dead]));
    let session = Session::new(connect(dead).unwrap(), Arc::downgrade(&pool), None);
    assert!(session.send(b"one"));
    assert!(!session.send(b"two"), "over loopback the refusal is there at once");
    assert!(session.ended().await);
}

#[tokio::test]
async fn a_swapped_pool_takes_over_at_once() {
    let (a, b) = (echo("127.0.0.1:0", "a").await, echo("127.0.0.1:0", "b").await);
    let edge = edge("127.0.0.1:0", pool(udp(|_| {}), &members(&[a])), Limits::default()).await;
    let client = client(&edge).await;
    assert_eq!(ask(&client, b"").await, b"a");
    edge.pool.store(pool(udp(|_| {}), &members(&[b])));
    assert_eq!(ask(&client, b"").await, b"b");
    until(|| active(&edge) == 1).await;
}

#[tokio::test]
async fn clients_outside_the_source_ranges_have_no_session() {
    let member = echo("127.0.0.1:0", "").await;
    let ranges = vec!["198.51.100.0/24".parse().unwrap()];
    let pool = pool(udp(|p| p.source_ranges = ranges), &members(&[member]));
    let edge = edge("127.0.0.1:0", pool.clone(), Limits::default()).await;
    client(&edge).await.send(b"x").await.unwrap();
    until(|| edge.stats.refused.load(Ordering::Relaxed) == 1).await;
    assert_eq!((active(&edge), pool.stats()[0].picks), (0, 0));
}

#[tokio::test]
async fn each_datagram_carries_a_proxy_header_where_members_ask_for_it() {
    let member = echo("127.0.0.1:0", "").await;
    let pool = pool(udp(|p| p.proxy_protocol = true), &members(&[member]));
    let edge = edge("127.0.0.1:0", pool, Limits::default()).await;
    let client = client(&edge).await;
    let header = Header::new(client.local_addr().unwrap(), edge.address, Carrier::Datagram);
    for words in [&b"one"[..], b"two"] {
        assert_eq!(ask(&client, words).await, [&header, words].concat());
    }
}

#[tokio::test]
async fn all_sessions_end_with_their_listener() {
    let member = echo("127.0.0.1:0", "").await;
    let pool = pool(udp(|_| {}), &members(&[member]));
    let edge = edge("127.0.0.1:0", pool.clone(), Limits::default()).await;
    ask(&client(&edge).await, b"x").await;
    edge.task.abort();
    until(|| active(&edge) == 0 && pool.stats()[0].active == 0).await;
}
