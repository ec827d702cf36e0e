//! FRR: zebra, bgpd and bfdd.

use crate::network::Network;
use crate::router::{ROUTER_ASN, Router, Seen, Setup};
use serde_json::Value;

pub(crate) struct Frr {
    pub(crate) frr: bowline_testing::Frr,
    node: &'static str,
}

impl Frr {
    /// Starts the daemons with this configuration of bgpd, which has IPv6 last. It may have BFD with an address that is no
    /// neighbor of bgpd.
    pub(crate) fn with(
        network: &Network,
        node: &'static str,
        bgpd: &[String],
        bfd_beside: Option<&str>,
    ) -> Self {
        let beside = bfd_beside.map(|it| format!(" peer {it}\n  profile fast\n exit\n"));
        let bfdd = format!(
            "bfd\n profile fast\n  receive-interval 100\n  transmit-interval 100\n exit\n{}",
            beside.unwrap_or_default()
        );
        let last = "address-family ipv6";
        Self { frr: bowline_testing::Frr::start(&network.router, &bfdd, bgpd, last), node }
    }

    pub(crate) fn json(&self, command: &str) -> Value {
        serde_json::from_str(&self.frr.show(command)).unwrap_or(Value::Null)
    }
}

impl Router for Frr {
    fn start(network: &Network, setup: &Setup) -> Self {
        let node = setup.node();
        let mut lines = vec![
            format!("router bgp {ROUTER_ASN}"),
            "bgp router-id 10.0.0.2".to_owned(),
            "no bgp ebgp-requires-policy".to_owned(),
            "no bgp network import-check".to_owned(),
            format!("neighbor {node} remote-as {}", setup.asn()),
            format!("neighbor {node} timers connect 1"),
            format!("neighbor {node} timers 3 {}", setup.hold_time),
        ];
        if setup.graceful_restart {
            // Helping is FRR's default.
            lines.push("bgp graceful-restart restart-time 60".to_owned());
        }
        if setup.passive {
            lines.push(format!("neighbor {node} passive"));
        }
        if let Some(password) = setup.password {
            lines.push(format!("neighbor {node} password {password}"));
        }
        if setup.proven {
            lines.push(format!("neighbor {node} ttl-security hops 1"));
        }
        if setup.bfd {
            lines.push(format!("neighbor {node} bfd profile fast"));
        }
        for family in ["ipv4", "ipv6"] {
            lines.push(format!("address-family {family} unicast"));
            lines.push(format!("neighbor {node} activate"));
            lines.push("exit-address-family".to_owned());
        }
        Self::with(network, node, &lines, setup.bfd_beside)
    }

    fn route(&self, prefix: &str) -> Option<Seen> {
        let family = if prefix.contains(':') { "ipv6" } else { "ipv4" };
        let answer = self.json(&format!("show bgp {family} unicast {prefix} json"));
        let path = answer["paths"].get(0)?;
        let words = |value: &Value| -> Vec<String> {
            value["string"].as_str().unwrap_or("").split_whitespace().map(str::to_owned).collect()
        };
        let number = |value: &Value| value.as_u64().map(|it| it as u32);
        let large = words(&path["largeCommunity"]).into_iter().map(|it| format!("large:{it}"));
        Some(Seen {
            next_hop: path["nexthops"][0]["ip"].as_str().unwrap_or("").to_owned(),
            path: words(&path["aspath"]).iter().filter_map(|it| it.parse().ok()).collect(),
            communities: words(&path["community"]).into_iter().chain(large).collect(),
            local_pref: number(&path["locPrf"]),
            med: number(&path["metric"]),
        })
    }

    fn count(&self) -> (usize, usize) {
        let of = |family: &str| {
            let answer = self.json(&format!("show bgp {family} unicast summary json"));
            let peers =
                answer.get("peers").or_else(|| answer[format!("{family}Unicast")].get("peers"));
            peers.and_then(|it| it[self.node]["pfxRcd"].as_u64()).unwrap_or(0) as usize
        };
        (of("ipv4"), of("ipv6"))
    }

    fn refresh(&self) -> bool {
        self.frr.show(&format!("clear bgp {} soft in", self.node));
        true
    }

    fn reset(&self) {
        self.frr.show(&format!("clear bgp {}", self.node));
    }

    fn is_up(&self) -> bool {
        let answer = self.json(&format!("show bgp neighbors {} json", self.node));
        answer[self.node]["bgpState"] == "Established"
    }

    fn log(&self) -> String {
        format!("{}\n{}", self.frr.log(), self.frr.show("show bgp neighbors"))
    }
}
