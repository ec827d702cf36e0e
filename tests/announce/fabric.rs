//! Nodes and a client around one router, FRR with ECMP. Each is a machine of its own. What counts is the route in the
//! router's kernel, and what a client sees.

use bowline_testing::{Frr, Machine, Scratch, Service, eventually, until};
use std::path::Path;

pub(crate) const ROUTER_ASN: u32 = 64513;
pub(crate) const NODE_ASN: u32 = 64512;

/// The network.
pub(crate) struct Fabric {
    pub(crate) router: Machine,
    pub(crate) client: Machine,
    pub(crate) nodes: Vec<Node>,
    pub(crate) frr: Frr,
    scratch: Scratch,
}

/// A node with two addresses on its link to the router.
pub(crate) struct Node {
    pub(crate) name: &'static str,
    pub(crate) machine: Machine,
    number: usize,
}

impl Node {
    /// Its address.
    pub(crate) fn address(&self) -> String {
        format!("10.0.{}.2", self.number)
    }

    /// Another address of it.
    pub(crate) fn second(&self) -> String {
        format!("10.0.{}.3", self.number)
    }

    /// The router, as this node sees it.
    pub(crate) fn router(&self) -> String {
        format!("10.0.{}.1", self.number)
    }

    /// It says nothing to the router any more, and the router's interface does not see why.
    pub(crate) fn falls_silent(&self) {
        self.machine.ip("addr flush dev eth0");
    }

    /// It has its addresses, at first or again.
    pub(crate) fn speaks(&self) {
        for address in [self.address(), self.second()] {
            self.machine.ip(&format!("addr add {address}/24 dev eth0"));
        }
        self.machine.ip(&format!("route add default via {}", self.router()));
    }

    fn link(&self) -> String {
        format!("to-{}", self.name)
    }
}

impl Fabric {
    /// The router expects sessions from both addresses of each node.
    pub(crate) fn new(names: &[&'static str]) -> Self {
        Self::make(names, false)
    }

    /// The same with BFD, as FRR has it by default: three packets, 300 ms apart.
    pub(crate) fn with_bfd(names: &[&'static str]) -> Self {
        Self::make(names, true)
    }

    fn make(names: &[&'static str], bfd: bool) -> Self {
        let (router, client) = (Machine::new(), Machine::new());
        let nodes = names.iter().enumerate().map(|(index, name)| {
            let node = Node { name, machine: Machine::new(), number: index + 1 };
            node.machine.link("eth0", &router, &node.link());
            router.ip(&format!("addr add {}/24 dev {}", node.router(), node.link()));
            node.speaks();
            node
        });
        let nodes: Vec<_> = nodes.collect();
        client.link("eth0", &router, "to-client");
        client.ip("addr add 10.0.99.2/24 dev eth0");
        router.ip("addr add 10.0.99.1/24 dev to-client");
        client.ip("route add default via 10.0.99.1");
        router.sysctl("net.ipv4.ip_forward", "1");
        // Ports count, too: each connection has a path of its own.
        router.sysctl("net.ipv4.fib_multipath_hash_policy", "1");
        let mut bgpd = vec![
            format!("router bgp {ROUTER_ASN}"),
            "bgp router-id 10.0.99.1".to_owned(),
            "no bgp ebgp-requires-policy".to_owned(),
            "bgp bestpath as-path multipath-relax".to_owned(),
        ];
        for address in nodes.iter().flat_map(|node| [node.address(), node.second()]) {
            bgpd.push(format!("neighbor {address} remote-as {NODE_ASN}"));
            bgpd.push(format!("neighbor {address} passive"));
        }
        if bfd {
            // The router says Down to the address of a node that no session uses.
            let all = nodes.iter().flat_map(|node| [node.address(), node.second()]);
            bgpd.extend(all.map(|address| format!("neighbor {address} bfd")));
        }
        let family = ["address-family ipv4 unicast", "maximum-paths 16", "exit-address-family"];
        bgpd.extend(family.map(str::to_owned));
        let frr = Frr::start(&router, "", &bgpd, "maximum-paths 16");
        Self { router, client, nodes, frr, scratch: Scratch::new() }
    }

    /// Pulls the cable of a node, or plugs it in again.
    pub(crate) fn cable(&self, node: &Node, plugged: bool) {
        let state = if plugged { "up" } else { "down" };
        self.router.ip(&format!("link set {} {state}", node.link()));
        if plugged {
            // The node lost its route with the carrier, or not.
            node.machine.ip(&format!("route replace default via {}", node.router()));
        }
    }

    /// The nodes to which the router's kernel sends an address.
    pub(crate) fn paths(&self, address: &str) -> Vec<&'static str> {
        let route = self.router.ip(&format!("route show {address}"));
        let leads = |it: &&Node| route.contains(&format!("dev {} ", it.link()));
        self.nodes.iter().filter(leads).map(|it| it.name).collect()
    }

    /// Waits until the router's kernel sends an address to these nodes.
    pub(crate) async fn leads(&self, address: &str, nodes: &[&str]) {
        eventually(&format!("the router sends {address} to {nodes:?}"), || async {
            let found = self.paths(address);
            if found == nodes { Ok(()) } else { Err(self.frr.show("show bgp summary")) }
        })
        .await;
    }

    /// Waits until the router has, or has not, the route of an address by a session with this address of a node.
    pub(crate) async fn learns(&self, address: &str, from: &str, has: bool) {
        let what = if has { "has" } else { "has not" };
        eventually(&format!("the router {what} {address} from {from}"), || async {
            let said = self.frr.show(&format!("show bgp ipv4 unicast {address}/32"));
            if said.contains(&format!("from {from} (")) == has { Ok(()) } else { Err(said) }
        })
        .await;
    }

    /// Watches every change of a route in the router's kernel from now on.
    pub(crate) fn watch(&self) -> Routes {
        let args = ["-o".to_owned(), "monitor".to_owned(), "route".to_owned()];
        let monitor =
            self.router.on(|| self.scratch.spawn("monitor", Path::new("/sbin/ip"), &args));
        let mut marks = 0;
        until("the monitor sees routes", || {
            // A route that changes until the monitor has begun.
            marks += 1;
            self.router.ip(&format!("route replace unreachable 192.0.2.1 metric {marks}"));
            if monitor.log().contains("192.0.2.1") { Ok(()) } else { Err(monitor.log()) }
        });
        Routes(monitor)
    }
}

/// The changes of routes.
pub(crate) struct Routes(Service);

impl Routes {
    /// Those of an address.
    pub(crate) fn changes(&self, address: &str) -> Vec<String> {
        self.0.log().lines().filter(|it| it.contains(address)).map(str::to_owned).collect()
    }
}
