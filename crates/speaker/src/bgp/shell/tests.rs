//! Two shells that talk over loopback. Real routers are in `tests/routers`.

mod hostile;

use super::*;
use crate::bgp::session::{Config, PeerAsn, State};
use crate::bgp::{Family, PerFamily};
use bowline_testing::eventually;
use nix::time::{ClockId, clock_gettime};
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::time::Duration;

fn clock() -> Uptime {
    clock_gettime(ClockId::CLOCK_BOOTTIME).unwrap().into()
}

fn config(asn: u32, peer_asn: u32) -> Config {
    Config {
        asn,
        router_id: Ipv4Addr::from(asn),
        peer_asn: PeerAsn::Is(peer_asn),
        families: PerFamily::BOTH,
        hold_time: 9,
        keepalive_time: None,
        connect_time: Duration::from_secs(1),
        connects: true,
        accepts: false,
        graceful_restart: None,
        next_hops: Default::default(),
    }
}

/// A peer at 127.0.0.1, which never connects by itself.
fn peer(port: u16) -> Peer {
    Peer {
        session: config(65_001, 65_002),
        remote: Remote::Address(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        port,
        source: None,
        vrf: None,
        distance: Distance::LinkProven,
        password: Password::new("secret"),
        bfd: None,
    }
}

/// The other end of that.
fn listening(port: u16) -> Peer {
    let session = Config { connects: false, accepts: true, ..config(65_002, 65_001) };
    Peer { session, ..peer(port) }
}

fn free_port() -> u16 {
    TcpListener::bind("0.0.0.0:0").unwrap().local_addr().unwrap().port()
}

fn shell(port: u16, peer: Peer) -> Shell {
    let mut shell = Shell::new(Options { clock, seed: port.into(), listen_port: port });
    shell.set_peers([("other".to_owned(), peer)].into());
    shell
}

async fn until(shell: &Shell, what: &str, wanted: impl Fn(&PeerStatus) -> bool) -> PeerStatus {
    eventually(what, || async {
        match shell.status().borrow().get("other") {
            Some(status) if wanted(status) => Ok(status.clone()),
            status => Err(format!("{status:?}")),
        }
    })
    .await
}

async fn until_established(shell: &Shell) -> PeerStatus {
    until(shell, "established", |it| it.session.state == State::Established).await
}

fn route(prefix: &str, wanted: bool) -> (IpNet, Option<Route>) {
    (prefix.parse().unwrap(), wanted.then(Route::default))
}

#[tokio::test]
async fn routes_reach_the_peer_and_changes_that_do_not_concern_the_session_keep_it() {
    let port = free_port();
    let (passive, mut active) = (shell(port, listening(port)), shell(port, peer(port)));
    assert!(active.change("other", [route("203.0.113.1/32", true), route("203.0.113.2/32", true)]));
    assert!(!active.change("nobody", [route("203.0.113.1/32", true)]));
    let status = until(&active, "both routes are told", |it| it.session.told.v4 == 2).await;
    assert!(status.since > Duration::ZERO && status.session.last_failure.is_none());
    until(&passive, "both routes came", |it| it.session.counters.routes_ignored == 2).await;
    active.change("other", [route("203.0.113.1/32", false)]);
    until(&active, "one route is left", |it| it.session.told.v4 == 1).await;

    let slower = Config { connect_time: Duration::from_secs(9), ..config(65_001, 65_002) };
    active.set_peers([("other".to_owned(), Peer { session: slower, ..peer(port) })].into());
    active.set_peers([("other".to_owned(), peer(port))].into());
    active.drain(true);
    let counters =
        until(&passive, "the route came again", |it| it.session.counters.routes_ignored == 3);
    assert_eq!(counters.await.session.counters.flaps, 0);

    let held_back = Peer { source: Some(Ipv4Addr::LOCALHOST.into()), ..peer(port) };
    active.set_peers([("other".to_owned(), held_back)].into());
    let status = until(&passive, "another source resets the session", |it| {
        it.session.counters.flaps == 1 && it.session.state == State::Established
    });
    let why = status.await.session.last_failure.unwrap();
    assert!(why.contains("other configuration change"), "{why}");
    until(&active, "the route is told again", |it| *it.session.told.get(Family::V4) == 1).await;
}

#[tokio::test]
async fn a_peer_with_another_password_is_not_heard() {
    let port = free_port();
    let wrong = Peer { password: Password::new("wrong"), ..peer(port) };
    let (passive, mut active) = (shell(port, listening(port)), shell(port, wrong));
    until(&active, "it tries", |it| it.session.state == State::Connect).await;
    assert_eq!(passive.status().borrow()["other"].session.state, State::Active);
    active.set_peers([("other".to_owned(), peer(port))].into());
    until_established(&active).await;
    until_established(&passive).await;
}

#[tokio::test]
async fn the_peer_is_told_why_the_session_ends_and_nothing_before_an_upgrade() {
    let port = free_port();
    let passive = shell(port, listening(port));
    for (stop, expected) in [
        (Stop::Leave("drained by alice".to_owned()), "drained by alice"),
        (Stop::Upgrade, "the peer closed it"),
    ] {
        let active = shell(port, peer(port));
        until_established(&active).await;
        until_established(&passive).await;
        active.stop(stop).await;
        let status = until(&passive, "ended", |it| it.session.state != State::Established).await;
        let why = status.session.last_failure.unwrap();
        assert!(why.contains(expected), "{why}");
    }
}

#[tokio::test]
async fn a_port_that_is_taken_is_told_and_tried_again() {
    let taken = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let passive = shell(port, listening(port));
    let status = until(&passive, "it cannot listen", |it| it.not_listening.is_some()).await;
    assert_eq!(
        status.not_listening.unwrap(),
        format!("this node cannot listen at port {port}: Address already in use")
    );
    drop(taken);
    until(&passive, "it listens", |it| it.not_listening.is_none()).await;
}

#[tokio::test]
async fn a_removed_peer_is_told_and_forgotten() {
    let port = free_port();
    let (passive, mut active) = (shell(port, listening(port)), shell(port, peer(port)));
    until_established(&passive).await;
    active.set_peers(BTreeMap::new());
    let status = until(&passive, "ended", |it| it.session.state != State::Established).await;
    let why = status.session.last_failure.unwrap();
    assert!(why.contains("peer deconfigured"), "{why}");
    assert!(active.status().borrow().is_empty());
}
