//! A node with two uplinks, whose default route leads by the first one. Addresses are of the network of the second one. What
//! leaves the node by which interface is seen by closing the other one for it.

use crate::segment::{Host, Told, candidate};
use bowline_speaker::l2::frame::Mac;
use bowline_speaker::l2::owners::{Candidate, Interfaces};
use bowline_speaker::l2::speaker::{Config, GOSSIP_PORT, News, Owner, Speaker, Wanted};
use bowline_speaker::served::{self, Keeper, Ports, Served};
use bowline_testing::traffic::{Session, serve};
use bowline_testing::{Machine, page, until};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// How long one of many attempts may take.
const PATIENCE: Duration = Duration::from_millis(500);

/// The addresses of one family. The page docs/announce.md has those of IPv4.
struct Family {
    vip: &'static str,
    /// The node's addresses at both uplinks, the router beyond the first one, which forwards nothing, and the one beyond
    /// the second one.
    node: [&'static str; 2],
    gateway: &'static str,
    router: &'static str,
    /// Clients at the first uplink, at the second one, and behind the router.
    clients: [&'static str; 3],
    behind_router: &'static str,
    length: u8,
    /// From the words of the page.
    written: fn(&str) -> String,
}

const V4: Family = Family {
    vip: "192.0.2.200",
    node: ["10.0.0.1", "192.0.2.2"],
    gateway: "10.0.0.254",
    router: "192.0.2.1",
    clients: ["10.0.0.101", "192.0.2.102", "198.51.100.103"],
    behind_router: "198.51.100.1",
    length: 24,
    written: str::to_owned,
};

const V6: Family = Family {
    vip: "fd00:2::200",
    node: ["fd00:1::1", "fd00:2::2"],
    gateway: "fd00:1::fe",
    router: "fd00:2::1",
    clients: ["fd00:1::101", "fd00:2::102", "fd00:3::103"],
    behind_router: "fd00:3::1",
    length: 64,
    written: |words| {
        let words = words.replace("ip r", "ip -6 r").replace("192.0.2.192/26", "fd00:2::200/120");
        words.replace("192.0.2.1 ", "fd00:2::1 ")
    },
};

impl Family {
    fn vip(&self) -> IpAddr {
        self.vip.parse().expect("an address")
    }

    fn give(&self, machine: &Machine, interface: &str, address: &str) {
        let nodad = if self.vip().is_ipv6() { "nodad" } else { "" };
        machine.ip(&format!("addr add {address}/{} dev {interface} {nodad}", self.length));
    }
}

/// The node and what is around it.
struct Site {
    family: Family,
    node: Machine,
    /// At the first uplink, at the second one, and behind the router of the second one.
    near: [Host; 2],
    far: Machine,
    _parts: (Machine, Machine, Machine, Speaker, Keeper),
}

impl Site {
    fn new(family: Family) -> Self {
        let [switch, node, router, gateway, far] = std::array::from_fn(|_| Machine::new());
        let near = [("first", 101), ("second", 102)];
        for (at, (bridge, number)) in near.iter().enumerate() {
            switch.bridge(bridge);
            let interface = format!("eth{at}");
            switch.plug(bridge, &node, &interface, number - 100);
            family.give(&node, &interface, family.node[at]);
        }
        switch.plug("first", &gateway, "eth0", 104);
        family.give(&gateway, "eth0", family.gateway);
        switch.plug("second", &router, "eth0", 103);
        family.give(&router, "eth0", family.router);
        router.link("eth1", &far, "eth0");
        family.give(&router, "eth1", family.behind_router);
        router.sysctl("net.ipv4.ip_forward", "1");
        router.sysctl("net.ipv6.conf.all.forwarding", "1");
        family.give(&far, "eth0", family.clients[2]);
        far.ip(&format!("route add default via {}", family.behind_router));
        node.ip(&format!("route add default via {}", family.gateway));
        let near = [0, 1].map(|at| {
            let (bridge, number) = near[at];
            let machine = Machine::new();
            switch.plug(bridge, &machine, "eth0", number);
            family.give(&machine, "eth0", family.clients[at]);
            Host::at(machine, number)
        });
        // The address is not of the first uplink's network.
        near[0].machine.ip(&format!("route add {} dev eth0", family.vip));

        let vip = family.vip();
        let kept = Arc::new(Told::default());
        let told = Arc::clone(&kept);
        let keeper = node.on(|| Keeper::start(move |it| told.tell(it))).expect("start the keeper");
        keeper.serve(Served {
            addresses: [(vip, Ports::All)].into(),
            complete: true,
            ..Served::default()
        });
        kept.wait("the address is on lo", |told| {
            let is_there = |it: &_| matches!(it, served::News::Present(all) if all.contains(&vip));
            told.last().is_some_and(is_there).then_some(())
        });
        serve(&node, Ipv6Addr::UNSPECIFIED.into(), 80, "node");
        let at = SocketAddr::new(family.node[0].parse().expect("an address"), GOSSIP_PORT);
        let config = Config { name: "node".to_owned(), bind: at, at, key: b"a key".to_vec() };
        let news = Arc::new(Told::default());
        let told = Arc::clone(&news);
        let speaker = node.on(|| Speaker::start(&config, move |it| told.tell(it)));
        let speaker = speaker.expect("start the speaker");
        // Both are named: of its own an address belongs to the links of its network.
        let named = ["eth0", "eth1"].map(str::to_owned).into();
        let both = Candidate { interfaces: Interfaces::Named(named).into(), ..candidate() };
        let candidates = [(vip, both)].into();
        speaker.want(Wanted { candidates, peers: [at].into() });
        news.wait("the node owns the address", |told| {
            told.contains(&News::Owner(vip, Owner::Me)).then_some(())
        });
        Self { family, node, near, far, _parts: (switch, router, gateway, speaker, keeper) }
    }

    /// Whether a client is served while nothing from the address leaves by the other interface than this one.
    fn serves_by(&self, interface: usize, client: &Machine) -> Result<(), String> {
        let ip = if self.family.vip().is_ipv4() { "ip" } else { "ip6" };
        let (vip, other) = (self.family.vip, 1 - interface);
        self.node.run("nft", "add table inet closed");
        self.node.run("nft", "add chain inet closed out { type filter hook output priority 0 ; }");
        let rule = format!("add rule inet closed out oifname eth{other} {ip} saddr {vip} drop");
        self.node.run("nft", &rule);
        let session = Session::within(PATIENCE, client, SocketAddr::new(self.family.vip(), 80));
        self.node.run("nft", "delete table inet closed");
        session.map(|_| ())
    }

    fn serves_both_segments(&self) {
        for (at, client) in self.near.iter().enumerate() {
            let what = format!("the client at eth{at} is served by eth{at}");
            until(&what, || self.serves_by(at, &client.machine));
        }
    }
}

fn replies_leave_where_requests_came_in(family: Family) {
    let site = Site::new(family);
    for (number, client) in (1..).zip(&site.near) {
        let answers = client.ask(site.family.vip());
        assert_eq!(answers, [Mac([2, 0, 0, 0, 0, number])], "the interface that was asked");
    }
    site.serves_both_segments();
    // The routes of the node lead elsewhere.
    assert!(site.serves_by(1, &site.far).is_err(), "the default route is by eth0");
    let section = "Nodes with several uplinks";
    let typed = page::typed(include_str!("../../../../docs/announce.md"), section);
    for line in (site.family.written)(&typed).lines() {
        let (program, words) = line.split_once(' ').expect("a command");
        site.node.run(program, words);
    }
    // The strictest check of the node itself.
    for interface in ["all", "eth0", "eth1"] {
        site.node.sysctl(&format!("net.ipv4.conf.{interface}.rp_filter"), "1");
    }
    until("the client behind the router is served", || site.serves_by(1, &site.far));
    site.serves_both_segments();
}

#[test]
fn replies_leave_by_the_interface_of_the_request_with_the_rules_of_the_page() {
    replies_leave_where_requests_came_in(V4);
}

#[test]
fn replies_over_ipv6_leave_by_the_interface_of_the_request_with_the_rules_of_the_page() {
    replies_leave_where_requests_came_in(V6);
}
