//! Tests over real connections on loopback.

use super::*;
use crate::pool::tests::{at, change, config, config_with, pool};
use bowline_core::plan;
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// A listener whose connections are served, and how each ended.
struct Edge {
    address: SocketAddr,
    ended: mpsc::UnboundedReceiver<Ended>,
    stats: Arc<ListenerStats>,
    task: JoinHandle<()>,
}

impl Drop for Edge {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn edge(pool: &Arc<Pool>, limits: Limits) -> Edge {
    edge_at("127.0.0.1:0", pool, limits).await
}

async fn edge_at(bind: &str, pool: &Arc<Pool>, limits: Limits) -> Edge {
    let listener = TcpListener::bind(bind).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (report, ended) = mpsc::unbounded_channel();
    let stats = Arc::new(ListenerStats::default());
    let (pool, counted) = (pool.clone(), stats.clone());
    let task = tokio::spawn(async move {
        loop {
            let (stream, client) = listener.accept().await.unwrap();
            let (pool, limits, stats) = (pool.clone(), limits.clone(), counted.clone());
            let report = report.clone();
            tokio::spawn(async move {
                let ended = serve(stream, client, address, pool, &limits, &stats).await;
                let _ = report.send(ended);
            });
        }
    });
    Edge { address, ended, stats, task }
}

/// A member that answers, once its client is done, with its name and all that it was sent.
async fn echo(bind: &str, name: &'static str) -> SocketAddr {
    let listener = TcpListener::bind(bind).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut sent = name.as_bytes().to_vec();
                if stream.read_to_end(&mut sent).await.is_ok() {
                    let _ = stream.write_all(&sent).await;
                }
            });
        }
    });
    address
}

/// A member that accepts and sends nothing.
async fn silent() -> (SocketAddr, mpsc::UnboundedReceiver<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (accepted, streams) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let _ = accepted.send(stream);
        }
    });
    (address, streams)
}

/// An address without a listener.
async fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

async fn say(edge: &Edge, words: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(edge.address).await.unwrap();
    stream.write_all(words).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    answer
}

fn one(config: Arc<plan::Pool>, address: SocketAddr) -> Arc<Pool> {
    pool(config, &[at(address)])
}

#[tokio::test]
async fn a_client_that_is_done_sending_still_gets_its_answer() {
    let pool = one(config("p"), echo("127.0.0.1:0", "a:").await);
    let mut edge = edge(&pool, Limits::default()).await;
    assert_eq!(say(&edge, b"hello").await, b"a:hello");
    assert_eq!(edge.ended.recv().await, Some(Ended::Closed));
    let counted = [&edge.stats.accepted, &edge.stats.bytes_in, &edge.stats.bytes_out]
        .map(|counter| counter.load(Ordering::Relaxed));
    assert_eq!(counted, [1, 5, 7]);
    assert_eq!((edge.stats.active.load(Ordering::Relaxed), pool.stats()[0].active), (0, 0));
}

#[tokio::test]
async fn much_more_than_a_buffer_passes_both_ways_unchanged() {
    let pool = one(config("p"), echo("127.0.0.1:0", "").await);
    let edge = edge(&pool, Limits::default()).await;
    let words: Vec<u8> = (0..5_000_000u32).map(|i| (i * 7 % 251) as u8).collect();
    assert!(say(&edge, &words).await == words);
}

#[tokio::test]
async fn a_receiver_that_does_not_read_stops_its_sender() {
    let (address, mut streams) = silent().await;
    let pool = one(config("p"), address);
    let edge = edge(&pool, Limits::default()).await;
    let client = TcpStream::connect(edge.address).await.unwrap();
    let mut member = streams.recv().await.unwrap();
    let chunk = vec![1; 1 << 20];
    let mut sent = 0;
    // Until all buffers in between stay full for a while.
    while let Ok(Ok(())) = timeout(Duration::from_millis(500), client.writable()).await {
        sent += client.try_write(&chunk).unwrap_or(0);
        assert!(sent < 200 << 20, "nothing holds it back");
    }
    drop(client);
    let mut received = vec![0; sent];
    member.read_exact(&mut received).await.unwrap();
    assert_eq!(member.read(&mut [0]).await.unwrap(), 0);
}

#[tokio::test]
async fn ipv6_works_and_families_may_differ() {
    let pool = one(config("p"), echo("127.0.0.1:0", "four:").await);
    let edge = edge_at("[::1]:0", &pool, Limits::default()).await;
    assert_eq!(say(&edge, b"six").await, b"four:six");
}

#[tokio::test]
async fn another_member_is_tried_where_one_cannot_be_connected_to() {
    let (dead, alive) = (nobody().await, echo("127.0.0.1:0", "alive").await);
    let mut members = [at(dead), at(alive)];
    members.sort();
    let pool = pool(config("p"), &members);
    let edge = edge(&pool, Limits::default()).await;
    for _ in 0..8 {
        assert_eq!(say(&edge, b"").await, b"alive");
    }
    let dead = pool.stats().into_iter().find(|m| m.address == dead).unwrap();
    assert_eq!((dead.failures, dead.ejections), (3, 1), "after three it was no longer tried");
}

#[tokio::test]
async fn a_client_is_sent_away_where_there_is_nobody() {
    let pool = one(config("p"), nobody().await);
    let mut edge = edge(&pool, Limits::default()).await;
    let mut stream = TcpStream::connect(edge.address).await.unwrap();
    assert!(stream.read(&mut [0]).await.is_err(), "reset");
    assert_eq!(edge.ended.recv().await, Some(Ended::NoMember));
}

#[tokio::test]
async fn clients_outside_the_source_ranges_are_closed_at_once() {
    let (address, _streams) = silent().await;
    let ranges = vec!["198.51.100.0/24".parse().unwrap()];
    let closed = one(config_with("p", |p| p.source_ranges = ranges), address);
    let mut forbidding = edge(&closed, Limits::default()).await;
    let mut stream = TcpStream::connect(forbidding.address).await.unwrap();
    assert!(stream.read(&mut [0]).await.is_err());
    assert_eq!(forbidding.ended.recv().await, Some(Ended::Forbidden));
    assert_eq!(closed.stats()[0].picks, 0);
    assert_eq!(forbidding.stats.refused.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_silent_connection_is_closed_sooner_while_places_are_wanted() {
    let (address, _streams) = silent().await;
    let pool = one(config("p"), address);
    let limits = Limits {
        crowded: Duration::from_millis(200),
        is_crowded: Arc::new(|| true),
        ..Limits::default()
    };
    let mut edge = edge(&pool, limits).await;
    let mut client = TcpStream::connect(edge.address).await.unwrap();
    assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
    assert_eq!(edge.ended.recv().await, Some(Ended::Idle));
}

#[tokio::test]
async fn a_connection_that_is_silent_both_ways_is_closed() {
    let (address, _streams) = silent().await;
    let pool = one(config("p"), address);
    let limits = Limits { idle: Duration::from_millis(200), ..Limits::default() };
    let mut edge = edge(&pool, limits).await;
    let mut client = TcpStream::connect(edge.address).await.unwrap();
    assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
    assert_eq!(edge.ended.recv().await, Some(Ended::Idle));
    assert_eq!(pool.stats()[0].active, 0);
}

#[tokio::test]
async fn connections_of_a_removed_member_go_on_for_its_drain_time_and_others_forever() {
    let (gone, mut gone_streams) = silent().await;
    let (stays, mut stay_streams) = silent().await;
    let mut members = [at(gone), at(stays)];
    members.sort();
    let pool = pool(config_with("p", |p| p.timeouts.drain_seconds = Some(1)), &members);
    let mut edge = edge(&pool, Limits::default()).await;
    let mut clients = Vec::new();
    for _ in 0..2 {
        clients.push(TcpStream::connect(edge.address).await.unwrap());
    }
    let mut on_gone = gone_streams.recv().await.unwrap();
    let mut on_stays = stay_streams.recv().await.unwrap();
    pool.set_members(&change(&[at(stays)]));
    for (i, client) in clients.iter_mut().enumerate() {
        client.write_all(&[i as u8]).await.unwrap();
    }
    on_gone.read_exact(&mut [0]).await.expect("it drains");
    assert_eq!(edge.ended.recv().await, Some(Ended::Drained));
    assert_eq!(on_gone.read(&mut [0]).await.unwrap_or(0), 0);
    on_stays.write_all(b"x").await.unwrap();
    on_stays.read_exact(&mut [0]).await.expect("it stays");
    assert!(edge.ended.try_recv().is_err());
}

#[tokio::test]
async fn a_member_that_breaks_connections_before_it_answers_is_counted_as_failing() {
    let (address, mut streams) = silent().await;
    let pool = one(config("p"), address);
    let mut edge = edge(&pool, Limits::default()).await;
    let mut client = TcpStream::connect(edge.address).await.unwrap();
    reset(&streams.recv().await.unwrap());
    assert_eq!(edge.ended.recv().await, Some(Ended::Broken));
    assert!(client.read(&mut [0]).await.is_err(), "the client is told");
    assert_eq!(pool.stats()[0].failures, 1);
}

#[tokio::test]
async fn members_that_ask_for_it_are_told_the_client_in_a_proxy_header() {
    for bind in ["127.0.0.1:0", "[::1]:0"] {
        let pool = one(config_with("p", |p| p.proxy_protocol = true), echo(bind, "").await);
        let edge = edge_at(bind, &pool, Limits::default()).await;
        let mut stream = TcpStream::connect(edge.address).await.unwrap();
        stream.write_all(b"hello").await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        let (source, destination, rest) = parse(&answer);
        let told = (source, destination, rest);
        assert_eq!(told, (stream.local_addr().unwrap(), edge.address, &b"hello"[..]));
    }
}

/// Parses a version 2 header as its specification says.
fn parse(bytes: &[u8]) -> (SocketAddr, SocketAddr, &[u8]) {
    assert_eq!(bytes[..13], *b"\r\n\r\n\0\r\nQUIT\n\x21");
    let length = usize::from(u16::from_be_bytes([bytes[14], bytes[15]]));
    let (body, rest) = bytes[16..].split_at(length);
    let size = match bytes[13] {
        0x11 => 4,
        0x21 => 16,
        other => panic!("family and transport {other:x}"),
    };
    let ip = |bytes: &[u8]| match size {
        4 => IpAddr::from(<[u8; 4]>::try_from(bytes).unwrap()),
        _ => IpAddr::from(<[u8; 16]>::try_from(bytes).unwrap()),
    };
    let port = |at: usize| u16::from_be_bytes([body[at], body[at + 1]]);
    let source = SocketAddr::new(ip(&body[..size]), port(2 * size));
    let destination = SocketAddr::new(ip(&body[size..2 * size]), port(2 * size + 2));
    (source, destination, rest)
}
