//! FRR: zebra, bgpd and bfdd.

use crate::network::{Machine, Network};
use crate::router::{ROUTER_ASN, Router, Seen, Setup, output, program};
use bowline_testing::{Scratch, Service, until};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

const PACKAGE: &str = "frr";

pub(crate) struct Frr {
    scratch: Scratch,
    services: Vec<Service>,
    machine: Machine,
    node: &'static str,
}

impl Frr {
    /// Starts the daemons with this configuration of bgpd.
    pub(crate) fn with(network: &Network, node: &'static str, bgpd: &str) -> Self {
        let mut frr = Self {
            scratch: Scratch::new(),
            services: Vec::new(),
            machine: network.router.clone(),
            node,
        };
        frr.scratch.write("zebra.conf", "no zebra nexthop kernel enable\n");
        let fast = "bfd\n profile fast\n  receive-interval 100\n  transmit-interval 100\n";
        frr.scratch.write("bfdd.conf", fast);
        frr.scratch.write("bgpd.conf", bgpd);
        // The daemons are of a user of their own.
        let owned = Command::new("chown").args(["-R", "frr:frr"]).arg(frr.scratch.path()).status();
        assert!(owned.is_ok_and(|it| it.success()), "FRR needs root, and its user: chown frr:frr");
        for daemon in ["zebra", "bfdd", "bgpd"] {
            frr.daemon(daemon);
        }
        // It listens before it has read its whole configuration, and each further line would reset a session.
        until("bgpd has read its configuration", || {
            let running = frr.show("show running-config");
            if running.contains("address-family ipv6") { Ok(()) } else { Err(running) }
        });
        frr
    }

    fn dir(&self) -> String {
        self.scratch.path().display().to_string()
    }

    fn daemon(&mut self, name: &str) {
        let dir = self.dir();
        let file = |it: &str| format!("{dir}/{it}");
        let (config, pid, zserv) =
            (file(&format!("{name}.conf")), file(&format!("{name}.of-frr")), file("zserv.api"));
        let mut args = vec!["-f", &config, "-i", &pid, "-z", &zserv, "--vty_socket", &dir];
        args.extend(["-P", "0", "--log", "stdout"]);
        // Its control socket would be at one place for all tests.
        let control = file("bfdd.sock");
        if name == "bfdd" {
            args.extend(["--bfdctl", &control]);
        }
        let args: Vec<_> = args.into_iter().map(str::to_owned).collect();
        let daemon = program(name, PACKAGE);
        let mut service = self.machine.on(|| self.scratch.spawn(name, &daemon, &args));
        let socket = self.socket(name);
        until(&format!("{name} answers"), || {
            service.assert_alive();
            match std::os::unix::net::UnixStream::connect(&socket) {
                Ok(_) => Ok(()),
                Err(error) => Err(error.to_string()),
            }
        });
        self.services.push(service);
    }

    /// Where a daemon takes commands.
    pub(crate) fn socket(&self, daemon: &str) -> PathBuf {
        self.scratch.path().join(format!("{daemon}.vty"))
    }

    /// What `show …` prints.
    pub(crate) fn show(&self, command: &str) -> String {
        let vtysh: PathBuf = program("vtysh", PACKAGE);
        output(&vtysh, &["--vty_socket", &self.dir(), "-c", command])
    }

    /// Adds lines to the configuration.
    fn configure(&self, lines: &[&str]) {
        let (vtysh, dir) = (program("vtysh", PACKAGE), self.dir());
        let lines = ["configure terminal"].iter().chain(lines).flat_map(|it| ["-c", *it]);
        let args: Vec<_> = ["--vty_socket", &dir].into_iter().chain(lines).collect();
        let said = output(&vtysh, &args);
        assert_eq!(said, "", "FRR takes its configuration");
    }

    pub(crate) fn json(&self, command: &str) -> Value {
        serde_json::from_str(&self.show(command)).unwrap_or(Value::Null)
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
        let frr = Self::with(network, node, &lines.join("\n"));
        if let Some(address) = setup.bfd_beside {
            let peer = format!("peer {address}");
            frr.configure(&["bfd", &peer, "profile fast"]);
        }
        frr
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
        self.show(&format!("clear bgp {} soft in", self.node));
        true
    }

    fn reset(&self) {
        self.show(&format!("clear bgp {}", self.node));
    }

    fn is_up(&self) -> bool {
        let answer = self.json(&format!("show bgp neighbors {} json", self.node));
        answer[self.node]["bgpState"] == "Established"
    }

    fn log(&self) -> String {
        let logs: Vec<_> = self.services.iter().map(Service::log).collect();
        format!("{}\n{}", logs.concat(), self.show("show bgp neighbors"))
    }
}
