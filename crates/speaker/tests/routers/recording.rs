//! A whole session with each router: up, changes, a request for all routes, ended by the router, up again, left. With
//! `BOWLINE_RECORD=1` it is written down for the tests of the machine, which play it again without a router.

use crate::bird::Bird;
use crate::frr::Frr;
use crate::gobgp::GoBgp;
use crate::network::Network;
use crate::process::Speaker;
use crate::sessions::{VIP, VIP_V6};
use crate::{Router, Setup};
use bowline_speaker::bgp::session::State;
use bowline_speaker::bgp::{Route, Stop};
use std::path::PathBuf;

fn whole_session<R: Router>(name: &str) {
    let network = Network::new();
    let setup = Setup { passive: true, ..Setup::default() };
    let router = R::start(&network, &setup);
    let file =
        format!("{}/src/bgp/session/tests/recordings/{name}.jsonl", env!("CARGO_MANIFEST_DIR"));
    let wanted = std::env::var_os("BOWLINE_RECORD").map(|_| PathBuf::from(file));
    let mut speaker = Speaker::recorded(&network.node, wanted.as_deref());
    speaker.peers([("router", setup.peer())]);
    for prefix in [VIP, VIP_V6, "198.51.100.0/24"] {
        speaker.announce(prefix, Route::default());
    }
    speaker.complete();
    router.until_there("198.51.100.0/24");
    router.until_there(VIP_V6);
    let communities = ["65001:7".parse().expect("a community")].into();
    speaker.announce(VIP, Route { med: Some(7), communities, ..Route::default() });
    speaker.withdraw("198.51.100.0/24");
    router.until(VIP, "has the new MED", |seen| seen.med == Some(7));
    router.until_gone("198.51.100.0/24");

    let before = speaker.until_established().updates;
    if router.refresh() {
        speaker.until("the routes of both families are sent again", |it| it.updates >= before + 2);
    }
    router.reset();
    let down = speaker.until("the router ends the session", |it| it.flaps == 1);
    assert!(down.failure.starts_with("the peer ended the session: "), "{down:?}");
    speaker.until("the session comes back", |it| it.state == State::Established);
    router.until_there(VIP);
    speaker.stop(Stop::Leave("drained".to_owned()));
    router.until_gone(VIP);
}

#[test]
fn frr_asks_again_and_resets_and_is_left() {
    whole_session::<Frr>("frr");
}

#[test]
fn bird_asks_again_and_resets_and_is_left() {
    whole_session::<Bird>("bird");
}

#[test]
fn gobgp_asks_again_and_resets_and_is_left() {
    whole_session::<GoBgp>("gobgp");
}
