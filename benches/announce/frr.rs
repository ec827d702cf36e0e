//! FRR on the router of a bench: zebra, bfdd and bgpd.

use crate::network::Machine;
use crate::site::{A, B};
use bowline_testing::{Scratch, Service, until};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A running FRR.
pub(crate) struct Frr {
    machine: Machine,
    scratch: Scratch,
    services: Vec<Service>,
}

impl Frr {
    /// It expects both nodes.
    pub(crate) fn start(machine: &Machine) -> Self {
        let mut frr =
            Self { machine: machine.clone(), scratch: Scratch::new(), services: Vec::new() };
        frr.scratch.write("zebra.conf", "no zebra nexthop kernel enable\n");
        let fast = "bfd\n profile fast\n  receive-interval 100\n  transmit-interval 100\n";
        frr.scratch.write("bfdd.conf", fast);
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
        frr.scratch.write("bgpd.conf", &lines.join("\n"));
        // The daemons are of a user of their own.
        let owned = Command::new("chown").args(["-R", "frr:frr"]).arg(frr.scratch.path()).status();
        assert!(owned.is_ok_and(|it| it.success()), "FRR needs root, and its user: chown frr:frr");
        for daemon in ["zebra", "bfdd", "bgpd"] {
            frr.daemon(daemon);
        }
        until("bgpd has read its configuration", || {
            let running = frr.vty("bgpd").ask("show running-config");
            if running.contains("maximum-paths 2") { Ok(()) } else { Err(running) }
        });
        frr
    }

    fn daemon(&mut self, name: &str) {
        let dir = self.scratch.path().display().to_string();
        let file = |it: &str| format!("{dir}/{it}");
        let (config, pid, zserv, control) = (
            file(&format!("{name}.conf")),
            file(&format!("{name}.of-frr")),
            file("zserv.api"),
            file("bfdd.sock"),
        );
        let mut args = vec!["-f", &config, "-i", &pid, "-z", &zserv, "--vty_socket", &dir];
        args.extend(["-P", "0", "--log", "stdout"]);
        if name == "bfdd" {
            args.extend(["--bfdctl", &control]);
        }
        let args: Vec<_> = args.into_iter().map(str::to_owned).collect();
        let program = find(name);
        let mut service = self.machine.on(|| self.scratch.spawn(name, &program, &args));
        let socket = self.socket(name);
        until(&format!("{name} answers"), || {
            service.assert_alive();
            UnixStream::connect(&socket).map(|_| ()).map_err(|error| error.to_string())
        });
        self.services.push(service);
    }

    fn socket(&self, daemon: &str) -> PathBuf {
        self.scratch.path().join(format!("{daemon}.vty"))
    }

    fn vty(&self, daemon: &str) -> Vty {
        let mut vty = Vty(UnixStream::connect(self.socket(daemon)).expect("connect to FRR"));
        vty.ask("enable");
        vty
    }

    /// A connection to look at the BGP table.
    pub(crate) fn table(&self) -> Vty {
        self.vty("bgpd")
    }

    /// Waits until the BGP table has this many prefixes.
    pub(crate) fn until_routes(&self, count: usize) {
        let mut vty = self.table();
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
        let mut vty = self.vty("bfdd");
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
            let output = self
                .machine
                .on(|| Command::new("ip").args(["-4", "route", "show", "proto", "bgp"]).output());
            let text = String::from_utf8_lossy(&output.expect("run ip").stdout).into_owned();
            let routes = Routes(text);
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

/// A connection to a daemon, as vtysh has one for each command.
pub(crate) struct Vty(UnixStream);

impl Vty {
    /// What a command prints. Three zeros and the result follow it.
    fn ask(&mut self, command: &str) -> String {
        self.0.write_all(command.as_bytes()).and_then(|()| self.0.write_all(&[0])).expect("ask");
        let (mut answer, mut buffer) = (Vec::new(), [0; 65_536]);
        while !matches!(answer.as_slice(), [.., 0, 0, 0, _]) {
            let length = self.0.read(&mut buffer).expect("an answer");
            assert!(length > 0, "FRR has ended");
            answer.extend_from_slice(&buffer[..length]);
        }
        answer.truncate(answer.len() - 4);
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Waits until the BGP table has this address.
    pub(crate) fn until(&mut self, address: &str) {
        let command = format!("show bgp ipv4 unicast {address}/32 json");
        wait(address, || match self.ask(&command) {
            said if said.contains("nexthops") => Ok(()),
            said => Err(said),
        });
    }
}

fn find(program: &str) -> PathBuf {
    let found = Path::new("/usr/lib/frr").join(program);
    assert!(found.is_file(), "{program} is not installed: sudo apt-get install -y frr");
    found
}
