//! Peers by interface: no address is configured on either side, and IPv4 routes have an IPv6 next hop (RFC 8950).

use crate::bird::Bird;
use crate::frr::Frr;
use crate::network::{NODE_LINK_LOCAL, Network, ROUTER_LINK_LOCAL};
use crate::process::{PeerOf, Speaker};
use crate::router::ROUTER_ASN;
use crate::sessions::{VIP, VIP_V6};
use crate::{Router, Setup};
use bowline_speaker::bgp::Route;
use bowline_testing::{Machine, until};

fn announced(network: &Network, password: Option<&str>) -> Speaker {
    let setup = Setup::default();
    let mut speaker = Speaker::start(&network.node);
    let (interface, password) = (Some("eth0".to_owned()), password.map(str::to_owned));
    let peer = PeerOf { address: None, interface, password, ..setup.peer() };
    speaker.peers([("router", peer)]);
    speaker.announce(VIP, Route::default());
    speaker.announce(VIP_V6, Route::default());
    speaker
}

fn without_ipv4(network: &Network) {
    for machine in [&network.node, &network.router] {
        machine.ip("-4 addr flush dev eth0");
    }
}

fn leads_to_the_node(router: &impl Router) {
    for prefix in [VIP, VIP_V6] {
        assert_eq!(router.until_there(prefix).next_hop, NODE_LINK_LOCAL, "{}", router.log());
    }
}

fn in_the_kernel(machine: &Machine, prefix: &str, what: &str) {
    let address = prefix.split('/').next().expect("an address");
    until(&format!("{prefix} is {what}"), || {
        let said = machine.ip(&format!("route show {address}"));
        if said.contains(what) { Ok(()) } else { Err(said) }
    });
}

#[test]
fn frr_and_the_speaker_find_each_other_by_interface() {
    let network = Network::new();
    without_ipv4(&network);
    let lines = [
        format!("router bgp {ROUTER_ASN}"),
        "bgp router-id 10.0.0.2".to_owned(),
        "no bgp ebgp-requires-policy".to_owned(),
        "neighbor eth0 interface remote-as external".to_owned(),
        "neighbor eth0 timers connect 1".to_owned(),
        "address-family ipv6 unicast".to_owned(),
        "neighbor eth0 activate".to_owned(),
        "exit-address-family".to_owned(),
    ];
    let frr = Frr::with(&network, "eth0", &lines, None);
    let speaker = announced(&network, None);
    leads_to_the_node(&frr);
    // To an IPv4 address that FRR makes up for the neighbour's link-layer address.
    in_the_kernel(&network.router, VIP, "dev eth0 proto bgp");
    assert_eq!(speaker.until_established().flaps, 0);
}

#[test]
fn a_router_is_found_by_interface_and_has_a_password() {
    let network = Network::new();
    without_ipv4(&network);
    let config = format!(
        "log stderr all;
         router id 10.0.0.2;
         protocol device {{ scan time 1; }}
         protocol radv {{ interface \"eth0\" {{ min ra interval 3; max ra interval 4; }}; }}
         protocol bgp node {{
           local {ROUTER_LINK_LOCAL} as {ROUTER_ASN};
           neighbor {NODE_LINK_LOCAL}%eth0 as 65001;
           passive on;
           password \"secret\";
           ipv4 {{ import all; export none; extended next hop on; }};
           ipv6 {{ import all; export none; }};
         }}"
    );
    let bird = Bird::with(&network.router, &config);
    let _speaker = announced(&network, Some("secret"));
    leads_to_the_node(&bird);
}

#[test]
fn an_interface_without_a_router_and_one_that_is_missing_are_told() {
    let network = Network::new();
    let mut speaker = announced(&network, None);
    let heard = "no router has been heard on eth0 (no router advertisement)";
    speaker.until("no router is heard", |it| it.failure == heard);
    let missing =
        PeerOf { address: None, interface: Some("eth7".to_owned()), ..Setup::default().peer() };
    speaker.peers([("router", missing)]);
    speaker.until("it is missing", |it| it.failure == "this node has no interface eth7");
}
