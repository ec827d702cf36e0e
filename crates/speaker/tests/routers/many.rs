//! A router that sends its whole table: a hundred thousand routes, with `BOWLINE_LONG=1` a million. None is kept.

use crate::bird::Bird;
use crate::network::{NODE, Network, ROUTER};
use crate::router::ROUTER_ASN;
use crate::sessions::{VIP, started};
use crate::{Router, Setup};
use bowline_speaker::bgp::Route;
use bowline_testing::until;
use std::fmt::Write as _;
use std::net::Ipv4Addr;

#[test]
fn the_whole_table_of_a_router_costs_no_memory_and_disturbs_nothing() {
    let count: u32 = if std::env::var_os("BOWLINE_LONG").is_some() { 1_000_000 } else { 100_000 };
    let network = Network::new();
    let mut config = format!(
        "log stderr all;
         router id {ROUTER};
         protocol device {{ scan time 1; }}
         protocol bgp node {{
           local {ROUTER} as {ROUTER_ASN};
           neighbor {NODE} as 65001;
           passive on;
           hold time 9;
           ipv4 {{ import all; export all; next hop self; }};
         }}
         protocol static many {{ ipv4;\n"
    );
    for number in 0..count {
        let prefix = Ipv4Addr::from(0x0b00_0000 + number);
        writeln!(config, "route {prefix}/32 blackhole;").expect("a String takes all");
    }
    config.push_str("}\n");
    let bird = Bird::with(&network.router, &config);
    let setup = Setup { passive: true, ..Setup::default() };
    let mut speaker = started(&network, &setup);
    speaker.announce(VIP, Route::default());
    speaker.until("the session is known", |_| true);
    let before = speaker.memory();
    until("all routes came", || match speaker.status() {
        Some(status) if status.ignored >= count.into() => Ok(()),
        status => Err(format!("{status:?}\n{}", bird.log())),
    });
    bird.until_there(VIP);
    let grown = speaker.memory().saturating_sub(before);
    // As prefixes alone they would take 3.2 MB, or 32 MB.
    assert!(grown < 4_000, "{grown} KiB for {count} routes");
    assert_eq!(speaker.until_established().flaps, 0);
}
