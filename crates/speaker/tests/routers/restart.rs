//! What becomes of the routes when the speaker ends: killed, upgraded, or because its node leaves.

use crate::bird::Bird;
use crate::frr::Frr;
use crate::gobgp::GoBgp;
use crate::network::Network;
use crate::process::Speaker;
use crate::sessions::{VIP, VIP_V6, started};
use crate::{Router, Setup};
use bowline_speaker::bgp::{Route, Stop};
use bowline_testing::until;

const WITHDRAWN: &str = "203.0.113.2/32";

fn setup(graceful_restart: bool) -> Setup {
    Setup { graceful_restart, passive: true, ..Setup::default() }
}

fn announced(network: &Network, setup: &Setup, prefixes: &[&str]) -> Speaker {
    let mut speaker = started(network, setup);
    for prefix in prefixes {
        speaker.announce(prefix, Route::default());
    }
    speaker
}

/// A speaker ends in some way, and another one comes that announces one route less. The router has the routes all the
/// time.
fn keeps_routes<R: Router>(end: impl FnOnce(Speaker)) {
    let (network, setup) = (Network::new(), setup(true));
    let router = R::start(&network, &setup);
    let all = [VIP, VIP_V6, WITHDRAWN];
    let mut speaker = announced(&network, &setup, &all);
    speaker.complete();
    for prefix in all {
        router.until_there(prefix);
    }
    end(speaker);
    until_while_there(&router, &all, "the router notices that the speaker is gone", || {
        !router.is_up()
    });

    let mut speaker = announced(&network, &setup, &[VIP, VIP_V6]);
    let told = || speaker.status().is_some_and(|it| it.told == (1, 1)) && router.is_up();
    until_while_there(&router, &all, "the next speaker announces its routes", told);
    speaker.complete();
    let gone = || router.route(WITHDRAWN).is_none();
    let others = [VIP, VIP_V6];
    until_while_there(&router, &others, "the router forgets what the next speaker has not", gone);
    let status = speaker.until_established();
    assert_eq!(status.flaps, 0, "{status:?} {}", router.log());
}

fn until_while_there<R: Router>(
    router: &R,
    prefixes: &[&str],
    what: &str,
    mut wanted: impl FnMut() -> bool,
) {
    until(what, || {
        for prefix in prefixes {
            assert!(
                router.route(prefix).is_some(),
                "{prefix} is lost before {what}\n{}",
                router.log()
            );
        }
        if wanted() { Ok(()) } else { Err(router.log()) }
    });
}

/// A speaker ends in some way, and its routes are soon gone.
fn loses_routes<R: Router>(setup: &Setup, end: impl FnOnce(Speaker)) {
    let network = Network::new();
    let router = R::start(&network, setup);
    let mut speaker = announced(&network, setup, &[VIP, VIP_V6]);
    speaker.complete();
    router.until_there(VIP);
    router.until_there(VIP_V6);
    end(speaker);
    router.until_gone(VIP);
    router.until_gone(VIP_V6);
}

macro_rules! for_each_router {
    ($($name:ident: $test:ident($($argument:expr),*);)*) => { $(
        mod $name {
            use super::*;
            #[test]
            fn frr() {
                $test::<Frr>($($argument),*);
            }
            #[test]
            fn bird() {
                $test::<Bird>($($argument),*);
            }
            #[test]
            fn gobgp() {
                $test::<GoBgp>($($argument),*);
            }
        }
    )* };
}

for_each_router! {
    a_router_keeps_the_routes_of_a_killed_speaker: keeps_routes(Speaker::kill);
    a_router_keeps_the_routes_in_an_upgrade: keeps_routes(|it| it.stop(Stop::Upgrade));
    a_router_forgets_the_routes_of_a_node_that_leaves:
        loses_routes(&setup(true), |it| it.stop(Stop::Leave("drained".to_owned())));
    without_graceful_restart_a_killed_speaker_loses_its_routes:
        loses_routes(&setup(false), Speaker::kill);
}
