//! BFD beside BGP: how fast a router and a speaker notice that the other one is gone.

use crate::bird::Bird;
use crate::frr::Frr;
use crate::network::{NODE_TOO, NODE_TOO_V6, Network};
use crate::process::{PeerOf, Speaker};
use crate::sessions::{VIP, started};
use crate::{Router, Setup};
use bowline_speaker::bgp::session::State;
use bowline_speaker::bgp::{Route, Stop};
use bowline_testing::until;
use std::time::{Duration, Instant};

/// The detection time is 0.3 s. What the router does afterwards, and the polling of its table, take the rest; BGP's own
/// hold time would take ten seconds.
const SOON: Duration = Duration::from_secs(3);

fn setup(v6: bool) -> Setup {
    Setup { v6, bfd: true, passive: true, hold_time: 30, ..Setup::default() }
}

/// A router and a speaker that announces a route, and BFD is up.
fn running<R: Router>(network: &Network, setup: &Setup) -> (R, Speaker) {
    let router = R::start(network, setup);
    let mut speaker = started(network, setup);
    speaker.announce(VIP, Route::default());
    speaker.complete();
    router.until_there(VIP);
    until("BFD is up", || match speaker.status() {
        Some(status) if status.bfd == "Up" => Ok(()),
        status => Err(format!("{status:?}\n{}", router.log())),
    });
    (router, speaker)
}

/// The speaker falls silent and its TCP connection stays: only BFD can tell.
fn silence_is_noticed<R: Router>(v6: bool) {
    let network = Network::new();
    let (router, speaker) = running::<R>(&network, &setup(v6));
    let began = Instant::now();
    speaker.freeze();
    router.until_gone(VIP);
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}

/// A speaker is killed, and its routes are gone within the detection time.
fn death_is_noticed<R: Router>(graceful_restart: bool) {
    let network = Network::new();
    let setup = Setup { graceful_restart, ..setup(false) };
    let (router, speaker) = running::<R>(&network, &setup);
    let began = Instant::now();
    speaker.kill();
    router.until_gone(VIP);
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}

/// The link dies. The speaker notices, says why, and comes back with the link.
fn a_dead_link_is_noticed<R: Router>() {
    let network = Network::new();
    let (router, speaker) = running::<R>(&network, &setup(false));
    let began = Instant::now();
    network.router.ip("link set eth0 down");
    let down = speaker.until("the session ends", |it| it.state != State::Established);
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    assert_eq!(down.failure, "BFD says that the peer is not reached");
    network.router.ip("link set eth0 up");
    speaker.until_established();
    router.until_there(VIP);
}

/// An upgrade is no failure: the router keeps the routes with BFD, too.
fn an_upgrade_is_no_failure<R: Router>() {
    let network = Network::new();
    let setup = Setup { graceful_restart: true, graceful_bfd: true, ..setup(false) };
    let (router, speaker) = running::<R>(&network, &setup);
    speaker.stop(Stop::Upgrade);
    let ended = Instant::now();
    let is_there = || assert!(router.route(VIP).is_some(), "{VIP} is lost\n{}", router.log());
    until("the detection time passes", || {
        is_there();
        if ended.elapsed() > SOON && !router.is_up() { Ok(()) } else { Err(router.log()) }
    });
    let mut speaker = started(&network, &setup);
    speaker.announce(VIP, Route::default());
    speaker.complete();
    until("the next speaker announces its routes", || {
        is_there();
        match speaker.status() {
            Some(status) if status.told.0 == 1 => Ok(()),
            status => Err(format!("{status:?}\n{}", router.log())),
        }
    });
}

/// The router has BFD with two addresses of a node. First the speaker uses one of them, then both. The router says Down for
/// the address that is not used about once a second, and the session of the other address does not hear it. Detection
/// takes three seconds, so that no busy machine ends a session.
fn addresses_of_one_node_have_a_session_each<R: Router>(v6: bool) {
    let network = Network::new();
    let beside = if v6 { NODE_TOO_V6 } else { NODE_TOO };
    network.node.ip(&if v6 {
        format!("addr add {beside}/64 dev eth0 nodad")
    } else {
        format!("addr add {beside}/24 dev eth0")
    });
    let setup = Setup { bfd_beside: Some(beside), ..setup(v6) };
    let router = R::start(&network, &setup);
    let mut speaker = Speaker::start(&network.node);
    let from = |address: &str| PeerOf {
        source: Some(address.parse().expect("an address")),
        bfd: Some(1000),
        ..setup.peer()
    };
    let up = |speaker: &Speaker, peer: &str| match speaker.status_of(peer) {
        Some(status) if status.bfd == "Up" => Ok(()),
        status => Err(format!("{peer}: {status:?}\n{}", router.log())),
    };
    let stays = |speaker: &Speaker, peers: &[&str]| {
        let began = Instant::now();
        until("the router says Down a few times", || {
            for peer in peers {
                let status = speaker.status_of(peer).expect("a status");
                assert_eq!((status.bfd.as_str(), status.bfd_flaps), ("Up", 0), "{peer}");
            }
            if began.elapsed() > SOON { Ok(()) } else { Err("too early".to_owned()) }
        });
    };
    speaker.peers([("router", from(setup.node()))]);
    until("the session of the first address is up", || up(&speaker, "router"));
    stays(&speaker, &["router"]);
    speaker.peers([("router", from(setup.node())), ("second", from(beside))]);
    until("the session of the second address is up, too", || up(&speaker, "second"));
    stays(&speaker, &["router", "second"]);
}

#[test]
fn frr_has_sessions_with_two_addresses_of_one_node_over_ipv4() {
    addresses_of_one_node_have_a_session_each::<Frr>(false);
}

#[test]
fn frr_has_sessions_with_two_addresses_of_one_node_over_ipv6() {
    addresses_of_one_node_have_a_session_each::<Frr>(true);
}

#[test]
fn bird_has_sessions_with_two_addresses_of_one_node_over_ipv4() {
    addresses_of_one_node_have_a_session_each::<Bird>(false);
}

#[test]
fn bird_has_sessions_with_two_addresses_of_one_node_over_ipv6() {
    addresses_of_one_node_have_a_session_each::<Bird>(true);
}

#[test]
fn frr_notices_a_speaker_that_falls_silent_over_ipv4() {
    silence_is_noticed::<Frr>(false);
}

#[test]
fn frr_notices_a_speaker_that_falls_silent_over_ipv6() {
    silence_is_noticed::<Frr>(true);
}

#[test]
fn bird_notices_a_speaker_that_falls_silent_over_ipv4() {
    silence_is_noticed::<Bird>(false);
}

#[test]
fn bird_notices_a_speaker_that_falls_silent_over_ipv6() {
    silence_is_noticed::<Bird>(true);
}

/// FRR sees the end of the TCP connection first. With graceful restart it would keep the routes for the restart time, and
/// BFD would not change that.
#[test]
fn frr_notices_that_a_speaker_without_graceful_restart_is_killed() {
    death_is_noticed::<Frr>(false);
}

/// BIRD listens to BFD also while it keeps the routes of a speaker that restarts.
#[test]
fn bird_notices_that_a_speaker_with_graceful_restart_is_killed() {
    death_is_noticed::<Bird>(true);
}

#[test]
fn a_speaker_notices_that_the_link_to_frr_is_dead() {
    a_dead_link_is_noticed::<Frr>();
}

#[test]
fn a_speaker_notices_that_the_link_to_bird_is_dead() {
    a_dead_link_is_noticed::<Bird>();
}

#[test]
fn frr_keeps_routes_in_an_upgrade_with_bfd() {
    an_upgrade_is_no_failure::<Frr>();
}

/// BIRD takes AdminDown for a failure, but with `bfd graceful` it keeps routes for the restart time.
#[test]
fn bird_keeps_routes_in_an_upgrade_with_graceful_bfd() {
    an_upgrade_is_no_failure::<Bird>();
}
