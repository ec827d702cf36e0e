//! What each router has to understand, one after the other.

use crate::bird::Bird;
use crate::frr::Frr;
use crate::gobgp::GoBgp;
use crate::network::Network;
use crate::process::Speaker;
use crate::{Router, Seen, Setup};
use bowline_speaker::bgp::Route;

pub(crate) const VIP: &str = "203.0.113.1/32";
pub(crate) const VIP_V6: &str = "2001:db8::1/128";

pub(crate) fn started(network: &Network, setup: &Setup) -> Speaker {
    let mut speaker = Speaker::start(&network.node);
    speaker.peers([("router", setup.peer())]);
    speaker
}

fn marked() -> Route {
    Route {
        local_pref: Some(200),
        med: Some(30),
        prepend: 1,
        communities: ["65001:100", "no-export", "large:65001:1:2"]
            .map(|it| it.parse().expect("a community"))
            .into(),
    }
}

/// Both families over a session of one family, with everything that a route may carry; changes and withdrawals.
fn exchange<R: Router>(setup: &Setup) {
    let network = Network::new();
    let router = R::start(&network, setup);
    let mut speaker = started(&network, setup);
    speaker.announce(VIP, Route::default());
    speaker.announce(VIP_V6, Route::default());
    speaker.announce("198.51.100.0/24", marked());
    let asn = setup.asn();
    let path = |length: usize| vec![asn; if setup.internal { 0 } else { length }];
    let inside = |it: u32| setup.internal.then_some(it);

    let seen = router.until_there(VIP);
    assert_eq!((seen.next_hop.as_str(), &seen.path), ("10.0.0.1", &path(1)), "{}", router.log());
    assert_eq!(seen.local_pref.filter(|_| setup.internal), inside(100));
    let seen = router.until_there(VIP_V6);
    assert_eq!((seen.next_hop.as_str(), &seen.path), ("fd00::1", &path(1)), "{}", router.log());

    let seen = router.until_there("198.51.100.0/24");
    assert_eq!((seen.path, seen.med), (path(2), Some(30)));
    assert_eq!(seen.local_pref.filter(|_| setup.internal), inside(200));
    let no_export = |it: &String| it == "no-export" || it == "65535:65281" || it == "noExport";
    let has = |wanted: &str| seen.communities.iter().any(|it| it == wanted);
    assert!(has("65001:100") && has("large:65001:1:2"), "{:?}", seen.communities);
    assert!(seen.communities.iter().any(no_export), "{:?}", seen.communities);
    assert_eq!(seen.communities.len(), 3);
    assert_eq!(router.count(), (2, 1));

    speaker.announce(VIP, Route { med: Some(7), ..Route::default() });
    router.until(VIP, "has the new MED", |seen| seen.med == Some(7));
    speaker.drain(true);
    let drained = |seen: &Seen| {
        seen.communities
            .iter()
            .any(|it| it == "graceful-shutdown" || it == "65535:0" || it == "gracefulShutdown")
    };
    router.until(VIP_V6, "is marked with GRACEFUL_SHUTDOWN", drained);
    speaker.withdraw(VIP);
    speaker.withdraw(VIP_V6);
    router.until_gone(VIP);
    router.until_gone(VIP_V6);
    let status = speaker.until_established();
    assert_eq!(status.flaps, 0, "a change is an update, never a flap: {status:?} {}", router.log());
}

macro_rules! for_each_router {
    ($($name:ident: $setup:expr;)*) => { $(
        mod $name {
            use super::*;
            #[test]
            fn frr() {
                exchange::<Frr>(&$setup);
            }
            #[test]
            fn bird() {
                exchange::<Bird>(&$setup);
            }
            #[test]
            fn gobgp() {
                exchange::<GoBgp>(&$setup);
            }
        }
    )* };
}

for_each_router! {
    routes_of_both_families_are_exchanged_over_ipv4: Setup::default();
    routes_of_both_families_are_exchanged_over_ipv6: Setup { v6: true, ..Setup::default() };
    routes_are_exchanged_inside_an_as: Setup { internal: true, ..Setup::default() };
    a_session_over_ipv4_has_a_password_and_ttl_security:
        Setup { password: Some("secret"), proven: true, ..Setup::default() };
    a_session_over_ipv6_has_a_password_and_ttl_security:
        Setup { v6: true, password: Some("secret"), proven: true, ..Setup::default() };
    a_router_connects_over_ipv4_to_a_speaker_that_listens:
        Setup { listen: true, password: Some("secret"), proven: true, ..Setup::default() };
    a_router_connects_over_ipv6_to_a_speaker_that_listens:
        Setup { listen: true, v6: true, password: Some("secret"), proven: true, ..Setup::default() };
}
