//! GoBGP. It has no BFD.

use crate::network::{Network, ROUTER};
use crate::router::{ROUTER_ASN, Router, Seen, Setup, output, program};
use bowline_testing::{Machine, Scratch, Service, until};
use serde_json::Value;

const PACKAGE: &str = "gobgpd";

pub(crate) struct GoBgp {
    service: Service,
    machine: Machine,
    node: &'static str,
    _scratch: Scratch,
}

impl GoBgp {
    fn ask(&self, args: &[&str]) -> String {
        let gobgp = program("gobgp", PACKAGE);
        self.machine.on(|| output(&gobgp, args))
    }
}

impl Router for GoBgp {
    fn start(network: &Network, setup: &Setup) -> Self {
        let restart = setup.graceful_restart;
        let family = |name: &str| {
            format!(
                "[[neighbors.afi-safis]]
                 [neighbors.afi-safis.config]
                 afi-safi-name = \"{name}\"
                 [neighbors.afi-safis.mp-graceful-restart.config]
                 enabled = {restart}\n"
            )
        };
        let password = setup.password.map(|it| format!("auth-password = \"{it}\""));
        let config = format!(
            "[global.config]
             as = {ROUTER_ASN}
             router-id = \"{ROUTER}\"
             [[neighbors]]
             [neighbors.config]
             neighbor-address = \"{}\"
             peer-as = {}
             {}
             [neighbors.timers.config]
             connect-retry = 1
             hold-time = {}
             [neighbors.transport.config]
             passive-mode = {}
             [neighbors.ttl-security.config]
             enabled = {}
             ttl-min = 255
             [neighbors.graceful-restart.config]
             enabled = {restart}
             restart-time = 60
             {}{}",
            setup.node(),
            setup.asn(),
            password.unwrap_or_default(),
            setup.hold_time,
            setup.passive,
            setup.proven,
            family("ipv4-unicast"),
            family("ipv6-unicast"),
        );
        let scratch = Scratch::new();
        let file = scratch.write("gobgpd.toml", &config).display().to_string();
        let args =
            ["-f", &file, "--api-hosts", "127.0.0.1:50051", "-l", "debug", "-p"].map(str::to_owned);
        let gobgpd = program("gobgpd", PACKAGE);
        let machine = network.router.clone();
        let mut service = machine.on(|| scratch.spawn("gobgpd", &gobgpd, &args));
        until("GoBGP answers", || {
            service.assert_alive();
            let asked = || std::net::TcpStream::connect("127.0.0.1:50051");
            machine.on(asked).map(drop).map_err(|e| e.to_string())
        });
        Self { service, machine, node: setup.node(), _scratch: scratch }
    }

    fn route(&self, prefix: &str) -> Option<Seen> {
        let family = if prefix.contains(':') { "ipv6" } else { "ipv4" };
        let text = self.ask(&["global", "rib", "-a", family, prefix, "-j"]);
        let answer: Value = serde_json::from_str(&text).ok()?;
        let path = answer.get(prefix)?.get(0)?;
        let attributes = path["attrs"].as_array()?;
        let attribute = |kind: u64| attributes.iter().find(|it| it["type"].as_u64() == Some(kind));
        let numbers = |value: Option<&Value>| -> Vec<u32> {
            let list = value.and_then(Value::as_array).into_iter().flatten();
            list.filter_map(|it| it.as_u64().map(|it| it as u32)).collect()
        };
        let number = |kind: u64, name: &str| {
            attribute(kind).and_then(|it| it[name].as_u64()).map(|it| it as u32)
        };
        let next_hop = attribute(3).or_else(|| attribute(14)).map(|it| it["nexthop"].clone());
        let standard = numbers(attribute(8).and_then(|it| it.get("communities")))
            .into_iter()
            .map(|it| format!("{}:{}", it >> 16, it & 0xffff));
        let large = attribute(32).and_then(|it| it["value"].as_array()).into_iter().flatten();
        let large = large
            .map(|it| format!("large:{}:{}:{}", it["ASN"], it["LocalData1"], it["LocalData2"]));
        Some(Seen {
            next_hop: next_hop.and_then(|it| it.as_str().map(str::to_owned)).unwrap_or_default(),
            path: numbers(attribute(2).and_then(|it| it["as_paths"].get(0)?.get("asns"))),
            communities: standard.chain(large).collect(),
            local_pref: number(5, "value"),
            med: number(4, "metric"),
        })
    }

    fn count(&self) -> (usize, usize) {
        let of = |family: &str| {
            let text = self.ask(&["global", "rib", "summary", "-a", family, "-j"]);
            let answer: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
            answer["num_path"].as_u64().unwrap_or(0) as usize
        };
        (of("ipv4"), of("ipv6"))
    }

    fn refresh(&self) -> bool {
        // It keeps all that it was told, and looks at that again.
        false
    }

    fn reset(&self) {
        // After `reset` it refuses connections for half a minute, whatever its configuration says.
        self.ask(&["neighbor", self.node, "disable"]);
        self.ask(&["neighbor", self.node, "enable"]);
    }

    fn is_up(&self) -> bool {
        self.ask(&["neighbor"]).contains(" Establ ")
    }

    fn log(&self) -> String {
        format!("{}\n{}", self.service.log(), self.ask(&["neighbor"]))
    }
}
