//! FRR on the router of a bench: zebra, bfdd and bgpd.

use crate::site::{A, B};
use bowline_testing::{Machine, Vty};
use serde_json::Value;
use std::time::{Duration, Instant};

/// A running FRR.
pub(crate) struct Frr {
    frr: bowline_testing::Frr,
    machine: Machine,
}

impl Frr {
    /// It expects both nodes.
    pub(crate) fn start(machine: &Machine) -> Self {
        let fast = "bfd\n profile fast\n  receive-interval 100\n  transmit-interval 100\n";
        let mut lines = vec![
            "router bgp 64513".to_owned(),
            "bgp router-id 10.0.0.2".to_owned(),
            "no bgp ebgp-requires-policy".to_owned(),
            "bgp graceful-restart-disable".to_owned(),
        ];
        for node in [A, B] {
            lines.push(format!("neighbor {node} remote-as 64512"));
            lines.push(format!("neighbor {node} passive"));
            lines.push(format!("neighbor {node} bfd profile fast"));
        }
        lines.push("address-family ipv4 unicast".to_owned());
        lines.push("maximum-paths 2".to_owned());
        lines.push("exit-address-family".to_owned());
        let frr = bowline_testing::Frr::start(machine, fast, &lines, "maximum-paths 2");
        Self { frr, machine: machine.clone() }
    }

    /// A connection to look at the BGP table.
    pub(crate) fn table(&self) -> Table {
        Table(self.frr.vty("bgpd"))
    }

    /// Waits until the BGP table has this many prefixes.
    pub(crate) fn until_routes(&self, count: usize) {
        let mut vty = self.frr.vty("bgpd");
        wait(&format!("{count} routes"), || {
            let said = vty.ask("show bgp ipv4 unicast summary json");
            let read: Value =
                serde_json::from_str(said.trim_matches(['\0', '\n'])).unwrap_or_default();
            let peers = read["peers"].as_object().into_iter().flatten();
            let most = peers.filter_map(|(_, peer)| peer["pfxRcd"].as_u64()).max().unwrap_or(0);
            if most == count as u64 { Ok(()) } else { Err(format!("{most}")) }
        });
    }

    /// Waits until BFD with both nodes is up.
    pub(crate) fn until_bfd(&self) {
        let mut vty = self.frr.vty("bfdd");
        wait("BFD is up", || {
            let said = vty.ask("show bfd peers json");
            let read: Value =
                serde_json::from_str(said.trim_matches(['\0', '\n'])).unwrap_or_default();
            let up = read.as_array().into_iter().flatten().filter(|it| it["status"] == "up");
            if up.count() == 2 { Ok(()) } else { Err(said) }
        });
    }

    /// Waits until the kernel's routes are as wanted.
    pub(crate) fn until_kernel(&self, what: &str, wanted: impl Fn(&Routes) -> bool) {
        wait(what, || {
            let routes = Routes(self.machine.ip("-4 route show proto bgp"));
            if wanted(&routes) { Ok(()) } else { Err(routes.0) }
        });
    }
}

/// The routes of the kernel, as `ip` prints them.
pub(crate) struct Routes(String);

impl Routes {
    /// How many of them lead to a node.
    pub(crate) fn through(&self, node: &str) -> usize {
        let via = format!("via {node} ");
        self.0.lines().filter(|line| line.contains(&via)).count()
    }
}

/// Polls without a pause: a bench measures milliseconds.
fn wait(what: &str, mut is: impl FnMut() -> Result<(), String>) {
    let begun = Instant::now();
    while let Err(why) = is() {
        assert!(begun.elapsed() < Duration::from_secs(120), "{what}: {why}");
    }
}

/// A connection to look at the BGP table.
pub(crate) struct Table(Vty);

impl Table {
    /// Waits until the BGP table has this address.
    pub(crate) fn until(&mut self, address: &str) {
        let command = format!("show bgp ipv4 unicast {address}/32 json");
        wait(address, || match self.0.ask(&command) {
            said if said.contains("nexthops") => Ok(()),
            said => Err(said),
        });
    }
}
