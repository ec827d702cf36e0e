//! Three nodes with a proxy and a speaker each, behind one router with ECMP. Nodes crash, are drained and upgraded while
//! clients open connections. The truth is the route in the router's kernel, and what clients see.

use crate::fabric::{Fabric, NODE_ASN, Node, ROUTER_ASN};
use crate::stage::{PROGRAM, Site, deploy, object, play};
use bowline_testing::objects::{self, Endpoint};
use bowline_testing::traffic::{Clients, Session, serve};
use bowline_testing::{Backend, Bowline, Link, Machine, Scratch, Service, until};
use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const VIP: &str = "203.0.113.90";
const NAMES: [&str; 3] = ["a", "b", "c"];

/// What serves the address on the nodes.
#[derive(Clone, Copy, PartialEq)]
enum Proxy {
    Builtin,
    Haproxy,
}

/// The proxy of a node, and its speaker.
struct Host {
    agent: Option<Bowline>,
    speaker: Option<Bowline>,
    api: Link,
    /// The kubeconfig of the speaker; that of the link is the agent's.
    of_speaker: PathBuf,
    /// The sockets of both, and the files of what the agent drives.
    folder: PathBuf,
    driver: Vec<String>,
}

impl Host {
    /// The kubeconfigs are those of the agent and the speaker.
    fn new(
        site: &Site,
        node: &Node,
        [agent, speaker]: [&Path; 2],
        scratch: &Scratch,
        proxy: Proxy,
    ) -> Self {
        let api = Link::on(&node.machine, &site.cluster, agent);
        let of_speaker = api.also(&site.cluster, speaker);
        let folder = scratch.path().join(node.name);
        std::fs::create_dir(&folder).expect("make a folder");
        let driver = match proxy {
            Proxy::Builtin => Vec::new(),
            Proxy::Haproxy => {
                let files = folder.join("files").display().to_string();
                let args = ["--driver", "haproxy", "--exec", "--haproxy-folder", &files];
                args.map(str::to_owned).to_vec()
            }
        };
        let mut host = Self { agent: None, speaker: None, api, of_speaker, folder, driver };
        host.serve(site, node);
        host.announce(site, node, &[]);
        host
    }

    /// Starts the agent.
    fn serve(&mut self, site: &Site, node: &Node) {
        let sockets = self.folder.display().to_string();
        let mut args = vec!["--load-balancer", "edge", "--sockets", &sockets, "--grace", "0"];
        args.extend(self.driver.iter().map(String::as_str));
        self.agent = Some(self.start(site, node, "agent", &args));
    }

    /// Starts the speaker.
    fn announce(&mut self, site: &Site, node: &Node, more: &[&str]) {
        let sockets = self.folder.display().to_string();
        let mut args = vec!["--node-name", node.name, "--sockets", &sockets];
        args.extend(if more.is_empty() { &["--grace", "0"] } else { more });
        self.speaker = Some(self.start(site, node, "speaker", &args));
    }

    fn start(&self, site: &Site, node: &Node, role: &str, args: &[&str]) -> Bowline {
        let program = Path::new(PROGRAM);
        let kubeconfig = if role == "speaker" { &self.of_speaker } else { &self.api.kubeconfig };
        node.machine.on(|| Bowline::start(&site.cluster, program, kubeconfig, role, args))
    }

    /// Kills both.
    fn crash(&mut self) {
        for mut it in [self.agent.take(), self.speaker.take()].into_iter().flatten() {
            it.process.kill();
        }
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
    scratch: Scratch,
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
    async fn new(fabric: Fabric, peers: Value, proxy: Proxy) -> Self {
        let scratch = Scratch::new();
        let mut site = Site::bare().await;
        site.start_controller(&["--default-class"]).await;
        let mut lb = json!({"allowedNamespaces": {"from": "All"}});
        if proxy == Proxy::Builtin {
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
        let speaker = site.cluster.speaker_kubeconfig(&deploy()).await;
        let mut hosts = Vec::new();
        for node in &fabric.nodes {
            site.node(node.name).await;
            site.cluster.apply("", &peer(node, &peers)).await;
            hosts.push(Host::new(&site, node, [&agent, &speaker], &scratch, proxy));
        }
        fabric.leads(VIP, &NAMES).await;
        Self { site, fabric, hosts, scratch }
    }

    async fn builtin(fabric: Fabric, peers: Value) -> Self {
        Self::new(fabric, peers, Proxy::Builtin).await
    }

    /// Takes the API away from controller, agents and speakers, or gives it back.
    fn api(&self, there: bool) {
        let links = self.hosts.iter().map(|it| &it.api).chain([self.site.api()]);
        links.for_each(if there { Link::mend } else { Link::cut });
    }

    /// Waits until the Address and the BGPPeers say that all three nodes announce the address.
    async fn all_is_told(&self) {
        let all = json!({"bgpNodes": 3, "firstBGPNodes": NAMES});
        let what = "the Address names three nodes";
        self.site.shows("Address", "", VIP, what, |it| it["status"]["announcedBy"] == all).await;
        for name in NAMES {
            let (tor, what) = (format!("tor-{name}"), "the BGPPeer has a session");
            self.site.shows("BGPPeer", "", &tor, what, |it| it["status"]["up"] == 1).await;
        }
    }

    fn clients(&self) -> Clients {
        Clients::start(&self.fabric.client, to(), 2)
    }
}

/// `wrk` on a machine: eight clients that open a connection for each request, at a pace that leaves ports and time.
struct Wrk(Service);

impl Wrk {
    fn start(scratch: &Scratch, machine: &Machine, url: &str) -> Self {
        let pace = "wrk.headers['Connection'] = 'close'\nfunction delay() return 20 end\n";
        let script = scratch.write("pace.lua", pace).display().to_string();
        let mut args = vec!["-t", "1", "-c", "8", "-d", "300", "-s", &script];
        // An answer that is late on a busy machine is none that is missing.
        args.extend(["--timeout", "60s", url]);
        let args: Vec<_> = args.into_iter().map(str::to_owned).collect();
        Self(machine.on(|| scratch.spawn("wrk", Path::new("wrk"), &args)))
    }

    /// Ends it. Returns how many requests were answered with 200, and says so if any was not.
    fn stop(mut self) -> usize {
        self.0.signal("INT");
        self.0.wait();
        let said = self.0.log();
        assert!(!said.contains("Socket errors") && !said.contains("Non-2xx"), "{said}");
        let mut lines = said.lines().filter_map(|line| line.trim().split_once(" requests in "));
        lines.next().and_then(|it| it.0.parse().ok()).expect(&said)
    }
}

/// A web server behind the same address, at port 8000.
async fn pages(nodes: &Nodes) -> Backend {
    let runtime = tokio::runtime::Handle::current();
    let pod = Ipv4Addr::new(10, 0, 99, 1).into();
    let served = nodes.fabric.router.on(|| runtime.block_on(Backend::http("pages", pod, 8081)));
    let slice = objects::slice("pages", ("", 8081, "TCP"), &[Endpoint::ready(pod)]);
    let (site, service) = (&nodes.site, objects::service("pages", "edge", &[(8000, 8081)]));
    site.cluster.apply(&site.namespace, &service).await;
    site.cluster.apply(&site.namespace, &slice).await;
    for node in &nodes.fabric.nodes {
        // Each node asks itself: the address is on its `lo`.
        until(&format!("node {} serves the pages", node.name), || {
            let to = SocketAddr::new(to().ip(), 8000);
            let made = node.machine.on(|| std::net::TcpStream::connect(to));
            made.map(|_| ()).map_err(|error| error.to_string())
        });
    }
    served
}

async fn upgrades_lose_nothing(nodes: &mut Nodes) {
    let _pages = pages(nodes).await;
    let routes = nodes.fabric.watch();
    let clients = nodes.clients();
    let wrk = Wrk::start(&nodes.scratch, &nodes.fabric.client, &format!("http://{VIP}:8000/"));
    let open = |_| Session::open(&nodes.fabric.client, to()).expect("a connection");
    let mut sessions: Vec<_> = (0..12).map(open).collect();
    let frr = &nodes.fabric.frr;
    let keeps_old = |wanted: bool| {
        let said = frr.show(&format!("show bgp ipv4 unicast {VIP}/32"));
        let all = said.matches(" from 10.0.").count() == 3;
        if all && said.contains("stale") == wanted { Ok(()) } else { Err(said) }
    };
    for (host, node) in nodes.hosts.iter_mut().zip(&nodes.fabric.nodes) {
        assert_eq!(host.speaker().stop(), Some(0));
        // A busy FRR that sees the end of the old connection after the beginning of the new one closes the new one.
        until("the router keeps the routes of the old speaker", || keeps_old(true));
        clients.go_on();
        host.announce(&nodes.site, node, &[]);
        // The router has all routes of the new speaker when it no longer keeps old ones.
        until("the routes of the new speaker are there", || keeps_old(false));
        clients.go_on();
    }
    for session in &mut sessions {
        assert_eq!(session.ask(), Ok("pod".to_owned()), "a connection that was open");
    }
    let seen = clients.stop();
    assert_eq!(seen.failures, []);
    assert_eq!(routes.changes(VIP), Vec::<String>::new(), "the router's kernel saw nothing");
    let by_wrk = wrk.stop();
    assert!(by_wrk > 0, "wrk had no answer");
    println!("three speakers upgraded: {} and {by_wrk} requests, none failed", seen.total());
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
        let mut nodes = Nodes::new(Fabric::new(&NAMES), json!({}), Proxy::Haproxy).await;
        upgrades_lose_nothing(&mut nodes).await;
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
        assert_eq!(seen.lost_attempts(), []);
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
        assert_eq!(seen.lost_attempts(), []);
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
    assert_eq!(seen.failures, []);
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

/// How long the API is away.
fn outage() -> Duration {
    let long = std::env::var_os("BOWLINE_LONG").is_some();
    Duration::from_secs(if long { 600 } else { 3 })
}

#[test]
fn while_the_api_is_away_a_node_that_crashes_is_left_and_the_others_serve_on() {
    play(async || {
        // Long enough that a busy machine ends no session.
        let hold = json!({"holdTime": "9s"});
        let mut nodes = Nodes::builtin(Fabric::new(&NAMES), hold.clone()).await;
        nodes.all_is_told().await;
        nodes.api(false);
        let clients = nodes.clients();
        clients.go_on();
        assert_eq!(clients.stop().failures, []);
        // Without power: not even its kernel says good-bye.
        nodes.fabric.nodes[0].falls_silent();
        nodes.hosts[0].crash();
        nodes.fabric.leads(VIP, &["b", "c"]).await;

        let (routes, clients) = (nodes.fabric.watch(), nodes.clients());
        let begun = Instant::now();
        while begun.elapsed() < outage() {
            clients.go_on();
        }
        nodes.api(true);
        clients.go_on();
        let seen = clients.stop();
        assert_eq!(seen.failures, []);
        assert_eq!(nodes.fabric.paths(VIP), ["b", "c"]);
        assert_eq!(routes.changes(VIP), Vec::<String>::new(), "nothing moved");
        println!("the API was away: {} requests, none failed", seen.total());

        // Speakers follow the API again: the BGPPeer of one is taken from its node, and given back.
        let (fabric, site) = (&nodes.fabric, &nodes.site);
        let given = peer(&fabric.nodes[1], &hold);
        let mut taken = given.clone();
        taken["spec"]["nodeSelector"]["matchLabels"]["kubernetes.io/hostname"] = json!("nowhere");
        site.cluster.apply("", &taken).await;
        fabric.leads(VIP, &["c"]).await;
        site.cluster.apply("", &given).await;
        fabric.leads(VIP, &["b", "c"]).await;

        // The node is back.
        fabric.nodes[0].speaks();
        nodes.hosts[0].serve(site, &fabric.nodes[0]);
        nodes.hosts[0].announce(site, &fabric.nodes[0], &[]);
        fabric.leads(VIP, &NAMES).await;
        nodes.all_is_told().await;
        let clients = nodes.clients();
        clients.go_on();
        assert_eq!(clients.stop().failures, []);
    });
}
