//! Peers that refuse, reset, send garbage or more than is wanted.

use super::*;
use crate::bgp::attributes::{Attributes, Origin, Segment};
use crate::bgp::framer::Framer;
use crate::bgp::message::Message;
use crate::bgp::notification::Kind;
use crate::bgp::open::{Capabilities, Open};
use crate::bgp::update::Update;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

fn plain(port: u16) -> Peer {
    Peer { distance: Distance::Link, password: None, ..peer(port) }
}

/// A listener that plays the peer, and the speaker's side.
async fn stage() -> (TcpListener, Shell) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, shell(port, plain(port)))
}

async fn failure(shell: &Shell, text: &str) -> String {
    let status = until(shell, text, |it| {
        it.session.last_failure.as_ref().is_some_and(|why| why.contains(text))
    });
    status.await.session.last_failure.unwrap()
}

/// The messages up to the end of the connection.
async fn heard(mut stream: TcpStream) -> Vec<Message> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.unwrap();
    let mut framer = Framer::default();
    framer.push(&bytes);
    let frames = std::iter::from_fn(|| framer.next_frame().unwrap());
    frames.map(|frame| Message::decode(&frame, true).unwrap()).collect()
}

#[tokio::test]
async fn a_peer_that_refuses_is_named_and_tried_again() {
    let port = free_port();
    let shell = shell(port, plain(port));
    let why = failure(&shell, "refused").await;
    assert_eq!(why, format!("cannot connect to 127.0.0.1 at port {port}: Connection refused"));
    let at: SocketAddr = (Ipv4Addr::LOCALHOST, port).into();
    TcpListener::bind(at).await.unwrap().accept().await.expect("it comes again");
}

#[tokio::test]
async fn a_peer_that_resets_connections_may_not_know_this_node() {
    let (listener, shell) = stage().await;
    let (mut stream, _) = listener.accept().await.unwrap();
    // With its OPEN, the speaker has noticed that the connection was made.
    stream.read_u8().await.unwrap();
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    drop(stream);
    let why = failure(&shell, "before its OPEN").await;
    assert!(why.contains("reset by peer") && why.contains("this node's address"), "{why}");
}

#[tokio::test]
async fn a_peer_that_is_something_else_hears_why_and_is_left_alone() {
    let (listener, shell) = stage().await;
    let (mut stream, _) = listener.accept().await.unwrap();
    stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
    let [Message::Open(_), Message::Notification(notification)] = &heard(stream).await[..] else {
        panic!("an OPEN and a NOTIFICATION")
    };
    assert_eq!(notification.kind, Kind::NOT_SYNCHRONIZED);
    failure(&shell, "bytes that are not BGP").await;
    let again = tokio::time::timeout(Duration::from_secs(2), listener.accept()).await;
    assert!(again.is_err(), "the pause after an error is at least two seconds and a half");
}

/// Establishes a session as the peer.
async fn established(listener: &TcpListener) -> TcpStream {
    let (mut stream, _) = listener.accept().await.unwrap();
    let capabilities = Capabilities {
        families: Some(PerFamily::BOTH),
        four_octet: true,
        ..Capabilities::default()
    };
    let open = Open { asn: 65_002, hold_time: 0, id: Ipv4Addr::LOCALHOST, capabilities };
    stream.write_all(&Message::Open(open).bytes()).await.unwrap();
    stream.write_all(&Message::KeepAlive.bytes()).await.unwrap();
    stream
}

const MESSAGES: u32 = 200;
const EACH: u32 = 500;

#[tokio::test]
async fn routes_of_a_peer_are_counted_and_dropped() {
    let (listener, shell) = stage().await;
    let mut stream = established(&listener).await;
    until_established(&shell).await;
    for message in 0..MESSAGES {
        let prefix =
            |it: u32| ipnet::Ipv4Net::new(Ipv4Addr::from((10 << 24) + message * EACH + it), 32);
        let update = Update {
            attributes: Attributes {
                origin: Some(Origin::Igp),
                as_path: Some(vec![Segment::Sequence(vec![65_002])]),
                next_hop: Some(Ipv4Addr::LOCALHOST),
                ..Attributes::default()
            },
            announced: (0..EACH).map(|it| prefix(it).unwrap().into()).collect(),
            ..Update::default()
        };
        stream.write_all(&Message::Update(Box::new(update)).bytes()).await.unwrap();
    }
    let all = u64::from(MESSAGES * EACH);
    until(&shell, "all came", |it| it.session.counters.routes_ignored == all).await;
    assert_eq!(until_established(&shell).await.session.counters.flaps, 0);
}
