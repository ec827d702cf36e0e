//! Three nodes with a proxy and a speaker each, behind one router with ECMP. Nodes crash, are drained and upgraded while
//! clients open connections. The truth is the route in the router's kernel, and what clients see.

use crate::fabric::{Fabric, NODE_ASN, Node, ROUTER_ASN};
use crate::stage::{PROGRAM, Site, deploy, object, play};
use crate::traffic::{Clients, Session, serve};
use bowline_testing::objects::{self, Endpoint};
use bowline_testing::{Bowline, Link, Scratch, until};
use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Instant;

const VIP: &str = "203.0.113.90";
const NAMES: [&str; 3] = ["a", "b", "c"];

/// The proxy of a node, and its speaker.
struct Host {
    _agent: Bowline,
    speaker: Option<Bowline>,
    link: Link,
    sockets: String,
}

impl Host {
    fn new(
        site: &Site,
        node: &Node,
        kubeconfig: &Path,
        scratch: &Scratch,
        driver: &[String],
    ) -> Self {
        let link = Link::on(&node.machine, &site.cluster, kubeconfig);
        let sockets = scratch.path().join(format!("sockets-{}", node.name));
        std::fs::create_dir(&sockets).expect("make a folder");
        let sockets = sockets.display().to_string();
        let mut args = vec!["--load-balancer", "edge", "--sockets", &sockets, "--grace", "0"];
        args.extend(driver.iter().map(String::as_str));
        let program = Path::new(PROGRAM);
        let agent = node
            .machine
            .on(|| Bowline::start(&site.cluster, program, &link.kubeconfig, "agent", &args));
        let mut host = Self { _agent: agent, speaker: None, link, sockets };
        host.announce(site, node, &[]);
        host
    }

    /// Starts the speaker.
    fn announce(&mut self, site: &Site, node: &Node, more: &[&str]) {
        let mut args = vec!["--node-name", node.name, "--sockets", &self.sockets];
        args.extend(if more.is_empty() { &["--grace", "0"] } else { more });
        let program = Path::new(PROGRAM);
        self.speaker = Some(node.machine.on(|| {
            Bowline::start(&site.cluster, program, &self.link.kubeconfig, "speaker", &args)
        }));
    }

    fn speaker(&mut self) -> &mut Bowline {
        self.speaker.as_mut().expect("a speaker")
    }
}

/// A load balancer on three nodes, whose address the router sends to all of them.
struct Nodes {
    site: Site,
    fabric: Fabric,
    hosts: Vec<Host>,
    _scratch: Scratch,
}

fn to() -> SocketAddr {
    format!("{VIP}:80").parse().expect("an address")
}

fn peer(node: &Node, more: &Value) -> Value {
    let mut spec = json!({
        "peerAddress": node.router(), "peerASN": ROUTER_ASN, "myASN": NODE_ASN, "connectTime": "1s",
        "nodeSelector": {"matchLabels": {"kubernetes.io/hostname": node.name}},
    });
    if let (Value::Object(spec), Value::Object(more)) = (&mut spec, more) {
        spec.extend(more.clone());
    }
    object("BGPPeer", &format!("tor-{}", node.name), spec)
}

impl Nodes {
    async fn new(fabric: Fabric, peers: Value, driver: impl Fn(&Node) -> Vec<String>) -> Self {
        let scratch = Scratch::new();
        let mut site = Site::bare().await;
        site.start_controller(&["--default-class"]).await;
        let mut lb = json!({"allowedNamespaces": {"from": "All"}});
        if driver(&fabric.nodes[0]).is_empty() {
            let pool = json!({"addresses": [format!("{VIP}/32")]});
            site.cluster.apply("", &object("AddressPool", "edge", pool)).await;
            lb["builtin"] = json!({});
            lb["addressPool"] = json!("edge");
        } else {
            // No pool has the address: it is the load balancer's own.
            lb["bareMetalLoadBalancer"] = json!({"type": "Haproxy", "serviceName": "edge"});
            lb["addresses"] = json!([VIP]);
        }
        site.cluster.apply("", &object("LoadBalancer", "edge", lb)).await;
        site.cluster.apply("", &object("Advertisement", "all", json!({"bgp": {}}))).await;
        // Every node reaches the Pod by the router.
        let pod = Ipv4Addr::new(10, 0, 99, 1).into();
        serve(&fabric.router, pod, 8080, "pod");
        let slice = objects::slice("web", ("", 8080, "TCP"), &[Endpoint::ready(pod)]);
        site.cluster.apply(&site.namespace, &objects::service("web", "edge", &[(80, 8080)])).await;
        site.cluster.apply(&site.namespace, &slice).await;
        let agent = site.cluster.agent_kubeconfig(&deploy(), "edge").await;
        let mut hosts = Vec::new();
        for node in &fabric.nodes {
            site.node(node.name).await;
            site.cluster.apply("", &peer(node, &peers)).await;
            hosts.push(Host::new(&site, node, &agent, &scratch, &driver(node)));
        }
        fabric.leads(VIP, &NAMES).await;
        Self { site, fabric, hosts, _scratch: scratch }
    }

    async fn builtin(fabric: Fabric, peers: Value) -> Self {
        Self::new(fabric, peers, |_| Vec::new()).await
    }

    fn clients(&self) -> Clients {
        Clients::start(&self.fabric.client, to(), 2)
    }
}

async fn upgrades_lose_nothing(nodes: &mut Nodes) {
    let routes = nodes.fabric.watch();
    let clients = nodes.clients();
    let open = |_| Session::open(&nodes.fabric.client, to()).expect("a connection");
    let mut sessions: Vec<_> = (0..12).map(open).collect();
    for (host, node) in nodes.hosts.iter_mut().zip(&nodes.fabric.nodes) {
        assert_eq!(host.speaker().stop(), Some(0));
        clients.go_on();
        host.announce(&nodes.site, node, &[]);
        // The router has all routes of the new speaker when it no longer keeps old ones.
        until("the routes of the new speaker are there", || {
            let said = nodes.fabric.frr.show(&format!("show bgp ipv4 unicast {VIP}/32"));
            let fresh = said.matches(" from 10.0.").count() == 3 && !said.contains("stale");
            if fresh { Ok(()) } else { Err(said) }
        });
        clients.go_on();
    }
    for session in &mut sessions {
        assert_eq!(session.ask(), Ok("pod".to_owned()), "a connection that was open");
    }
    let seen = clients.stop();
    assert_eq!(seen.failures, Vec::<String>::new());
    assert_eq!(routes.changes(VIP), Vec::<String>::new(), "the router's kernel saw nothing");
    println!("three speakers upgraded: {} requests, none failed", seen.total());
}

#[test]
fn an_upgrade_of_all_speakers_changes_no_route_and_loses_no_request() {
    play(async || {
        let mut nodes = Nodes::builtin(Fabric::new(&NAMES), json!({})).await;
        upgrades_lose_nothing(&mut nodes).await;
    });
}

#[test]
fn an_upgrade_of_all_speakers_loses_no_request_at_the_own_address_of_a_haproxy() {
    play(async || {
        // Sockets have short names.
        let folder = |node: &Node| format!("nodes-{}-{}", std::process::id(), node.name);
        let folder = |node: &Node| std::env::temp_dir().join(folder(node)).display().to_string();
        let driver = |node: &Node| {
            let args = ["--driver", "haproxy", "--exec", "--haproxy-folder", &folder(node)];
            args.map(str::to_owned).to_vec()
        };
        let mut nodes = Nodes::new(Fabric::new(&NAMES), json!({}), driver).await;
        upgrades_lose_nothing(&mut nodes).await;
        let folders: Vec<_> = nodes.fabric.nodes.iter().map(folder).collect();
        drop(nodes);
        for folder in folders {
            // What an agent that was killed leaves.
            let _ = std::fs::remove_dir_all(folder);
        }
    });
}

#[test]
fn a_drained_node_is_left_without_a_lost_connection_attempt() {
    play(async || {
        let mut nodes = Nodes::builtin(Fabric::new(&NAMES), json!({})).await;
        let node = &nodes.fabric.nodes[0];
        drop(nodes.hosts[0].speaker.take());
        nodes.hosts[0].announce(&nodes.site, node, &["--withdraw-at-end", "--grace", "2"]);
        nodes.fabric.leads(VIP, &NAMES).await;
        let clients = nodes.clients();
        clients.go_on();
        let start = Instant::now();
        nodes.hosts[0].speaker().process.signal("TERM");
        nodes.fabric.leads(VIP, &["b", "c"]).await;
        println!("a drained node has left the router after {:?}", start.elapsed());
        assert_eq!(nodes.hosts[0].speaker().process.wait(), Some(0));
        clients.go_on();
        let seen = clients.stop();
        let attempts: Vec<_> = seen.failures.iter().filter(|it| it.contains("connect")).collect();
        assert_eq!(attempts, Vec::<&String>::new());
        // A plain router moves what is under way, too: at most the request that each client had open.
        assert!(seen.failures.len() <= 2, "{:?}", seen.failures);
        println!("{} requests, {} under way moved", seen.total(), seen.failures.len());
    });
}

/// Speakers that announce by BGP alone take no part in gossip. A cordoned one withdraws while another node announces, and its
/// speaker runs on. When every node is cordoned, all announce again.
#[test]
fn a_cordoned_node_withdraws_while_others_announce_and_loses_no_connection_attempt() {
    play(async || {
        let nodes = Nodes::builtin(Fabric::new(&NAMES), json!({})).await;
        // The leader knows of all of them.
        nodes.site.recorded(VIP, &NAMES).await;
        let routes = nodes.fabric.watch();
        let clients = nodes.clients();
        clients.go_on();
        nodes.site.cordon("a", true).await;
        nodes.fabric.leads(VIP, &["b", "c"]).await;
        nodes.site.recorded(VIP, &["b", "c"]).await;
        clients.go_on();
        nodes.site.cordon("b", true).await;
        nodes.fabric.leads(VIP, &["c"]).await;
        nodes.site.recorded(VIP, &["c"]).await;
        clients.go_on();
        nodes.site.cordon("c", true).await;
        nodes.fabric.leads(VIP, &NAMES).await;
        clients.go_on();
        for name in NAMES {
            nodes.site.cordon(name, false).await;
        }
        nodes.fabric.leads(VIP, &NAMES).await;
        clients.go_on();
        let seen = clients.stop();
        let attempts: Vec<_> = seen.failures.iter().filter(|it| it.contains("connect")).collect();
        assert_eq!(attempts, Vec::<&String>::new());
        let changes = routes.changes(VIP);
        let gone: Vec<_> = changes.iter().filter(|it| it.contains("Deleted")).collect();
        assert_eq!(gone, Vec::<&String>::new(), "a path was there all the time");
        // A plain router moves what is under way, too: at each change at most the request that each client had open.
        assert!(seen.failures.len() <= 2 * changes.len(), "{:?}", seen.failures);
        println!("{} requests, {} under way moved", seen.total(), seen.failures.len());
    });
}

/// The router sends nothing to a node that crashed, and then no request fails.
async fn a_crash_is_noticed(nodes: &mut Nodes, how: &str) {
    let node = &nodes.fabric.nodes[0];
    let start = Instant::now();
    node.falls_silent();
    nodes.fabric.leads(VIP, &["b", "c"]).await;
    println!("a crash {how} is noticed after {:?}", start.elapsed());
    let clients = nodes.clients();
    clients.go_on();
    let seen = clients.stop();
    assert_eq!(seen.failures, Vec::<String>::new());
}

#[test]
fn a_node_that_crashes_is_left_by_the_router_with_bfd() {
    play(async || {
        let bfd = json!({"bfd": {}});
        let mut nodes = Nodes::builtin(Fabric::with_bfd(&NAMES), bfd).await;
        until("BFD is up", || {
            let said = nodes.fabric.frr.show("show bfd peers brief");
            let up = said.lines().filter(|line| line.trim_end().ends_with(" up")).count();
            if up == 3 { Ok(()) } else { Err(said) }
        });
        a_crash_is_noticed(&mut nodes, "with BFD").await;
    });
}

#[test]
fn a_node_that_crashes_is_left_by_the_router_without_bfd() {
    play(async || {
        let hold = json!({"holdTime": "3s"});
        let mut nodes = Nodes::builtin(Fabric::new(&NAMES), hold).await;
        a_crash_is_noticed(&mut nodes, "with a hold time of 3 s").await;
    });
}
