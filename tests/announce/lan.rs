//! Nodes on one Ethernet segment: each is a machine of the test with a link to a bridge, a speaker and an agent. A client
//! and a backend are on the same segment. The API is on none of them; each node has a link to it of its own.

use crate::stage::{PROGRAM, deploy, object};
use bowline_testing::objects::{self, Endpoint};
use bowline_testing::traffic::{Clients, Session, serve};
use bowline_testing::{Bowline, Cluster, Link, Machine, Scratch, Service, Stack, mac, until};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The numbers of the hosts beside the nodes.
const CLIENT: u8 = 100;
const BACKEND: u8 = 150;

/// How long one of many attempts may take.
const PATIENCE: Duration = Duration::from_millis(500);

/// A node.
pub(crate) struct Node {
    pub(crate) name: &'static str,
    number: u8,
    pub(crate) machine: Machine,
    pub(crate) api: Link,
    /// The kubeconfig of the agent; that of the link is the speaker's.
    of_agent: PathBuf,
    folder: PathBuf,
    pub(crate) speaker: Option<Service>,
    agent: Option<Service>,
    /// What the agent is started with.
    driver: Vec<String>,
}

impl Node {
    fn spawn(&self, scratch: &Scratch, role: &str, args: &[&str]) -> Service {
        let kubeconfig = if role == "agent" { &self.of_agent } else { &self.api.kubeconfig };
        let kubeconfig = kubeconfig.display().to_string();
        let mut all = vec![role.to_owned()];
        all.extend(args.iter().map(|&it| it.to_owned()));
        let log = std::env::var("BOWLINE_LOG").unwrap_or_else(|_| "info".to_owned());
        let name = format!("{role}-{}-{}", self.name, bowline_testing::unique());
        let env = [("KUBECONFIG", kubeconfig.as_str()), ("BOWLINE_LOG", &log)];
        self.machine.on(|| scratch.spawn_with(&name, Path::new(PROGRAM), &all, &env))
    }

    /// Its address.
    pub(crate) fn address(&self, family: Family) -> IpAddr {
        family.host(self.number)
    }

    /// Where the program of the agent has its files. It ends with the test, as a child of it would.
    pub(crate) fn files(&self) -> String {
        self.folder.join("files").display().to_string()
    }

    /// The value of a metric of the speaker.
    pub(crate) fn metric(&self, name: &str) -> Result<u64, String> {
        let page = self.ask("127.0.0.1:9180", "/metrics")?;
        let mut lines = page.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        lines.next().and_then(|it| it.parse().ok()).ok_or_else(|| format!("no {name}: {page}"))
    }

    /// Whether the agent has applied the plan.
    pub(crate) fn agent_is_ready(&self) -> Result<(), String> {
        let page = self.ask("127.0.0.1:9181", "/readyz")?;
        if page.starts_with("HTTP/1.0 200") || page.starts_with("HTTP/1.1 200") {
            Ok(())
        } else {
            Err(page)
        }
    }

    fn ask(&self, at: &str, path: &str) -> Result<String, String> {
        let page = self.machine.on(|| {
            let mut stream = TcpStream::connect(at)?;
            stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes())?;
            let mut page = String::new();
            stream.read_to_string(&mut page).map(|_| page)
        });
        page.map_err(|error: std::io::Error| error.to_string())
    }
}

/// The segment.
pub(crate) struct Lan {
    pub(crate) family: Family,
    pub(crate) cluster: Cluster,
    pub(crate) nodes: Vec<Node>,
    pub(crate) client: Machine,
    _controller: Bowline,
    _switch: Machine,
    scratch: Scratch,
}

/// The family of all addresses of a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    /// The address of the Service.
    pub(crate) fn vip(self) -> IpAddr {
        self.host(200)
    }

    /// The address of a host.
    pub(crate) fn host(self, number: u8) -> IpAddr {
        match self {
            Self::V4 => Ipv4Addr::new(10, 0, 0, number).into(),
            Self::V6 => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, number.into()).into(),
        }
    }

    /// A new host on the segment.
    fn joined(self, switch: &Machine, number: u8) -> Machine {
        let (machine, address) = (Machine::new(), self.host(number));
        switch.plug("segment", &machine, "eth0", number);
        match self {
            Self::V4 => machine.ip(&format!("addr add {address}/24 dev eth0")),
            // `nodad`: an address that is being checked cannot be used for about a second.
            Self::V6 => machine.ip(&format!("addr add {address}/64 dev eth0 nodad")),
        };
        machine
    }

    /// The Service, and its endpoint.
    fn service(self) -> [Value; 2] {
        let mut service = objects::service("web", "edge", &[(80, 8080)]);
        let family = if matches!(self, Self::V4) { "IPv4" } else { "IPv6" };
        service["spec"]["ipFamilies"] = json!([family]);
        let endpoints = [Endpoint::ready(self.host(BACKEND))];
        [service, objects::slice("web", ("", 8080, "TCP"), &endpoints)]
    }
}

impl Lan {
    /// Three nodes with speakers and agents of this kind of load balancer, and a Service.
    pub(crate) async fn new(
        family: Family,
        source: Value,
        driver: impl Fn(&Node) -> Vec<String>,
    ) -> Self {
        let cluster = Cluster::own(Stack::Dual).await;
        cluster.install(&deploy()).await;
        let kubeconfig = cluster.kubeconfig_of("bowline-controller").await;
        let mut controller =
            Bowline::start(&cluster, Path::new(PROGRAM), &kubeconfig, "controller", &[]);
        controller.ready().await;
        let (switch, scratch) = (Machine::new(), Scratch::new());
        switch.bridge("segment");
        let client = family.joined(&switch, CLIENT);
        let backend = family.joined(&switch, BACKEND);
        serve(&backend, family.host(BACKEND), 8080, "served");
        let account = cluster.speaker_kubeconfig(&deploy()).await;
        let agents = cluster.agent_kubeconfig(&deploy(), "edge").await;
        let mut nodes = Vec::new();
        for (name, number) in [("a", 1), ("b", 2), ("c", 3)] {
            let machine = family.joined(&switch, number);
            let api = Link::on(&machine, &cluster, &account);
            let of_agent = api.also(&cluster, &agents);
            let folder = scratch.path().join(name);
            std::fs::create_dir(&folder).expect("make a folder");
            let (speaker, agent, none) = (None, None, Vec::new());
            let mut node =
                Node { name, number, machine, api, of_agent, folder, speaker, agent, driver: none };
            node.driver = driver(&node);
            nodes.push(node);
        }
        let vip = family.vip();
        let pool = json!({"addresses": [format!("{vip}-{vip}")]});
        cluster.apply("", &object("AddressPool", "lan", pool)).await;
        let mut spec = json!({"addressPool": "lan", "allowedNamespaces": {"from": "All"}});
        spec.as_object_mut().expect("an object").extend(source.as_object().expect("one").clone());
        cluster.apply("", &object("LoadBalancer", "edge", spec)).await;
        let advertisement = json!({"addressPools": ["lan"], "l2": {}});
        cluster.apply("", &object("Advertisement", "lan", advertisement)).await;
        let namespace = cluster.namespace().await;
        for object in family.service() {
            cluster.apply(&namespace, &object).await;
        }
        let (_controller, _switch) = (controller, switch);
        let mut lan = Self { family, cluster, nodes, client, _controller, _switch, scratch };
        for at in 0..lan.nodes.len() {
            lan.start_speaker(at);
            lan.start_agent(at);
        }
        lan
    }

    pub(crate) fn start_speaker(&mut self, at: usize) {
        self.start_speaker_with(at, &[]);
    }

    /// The same with more arguments.
    pub(crate) fn start_speaker_with(&mut self, at: usize, more: &[&str]) {
        let node = &self.nodes[at];
        let folder = node.folder.display().to_string();
        let mut args = vec!["--node-name", node.name, "--grace", "5", "--sockets", &folder];
        args.extend(more);
        let speaker = node.spawn(&self.scratch, "speaker", &args);
        self.nodes[at].speaker = Some(speaker);
    }

    /// Starts the agent of a node.
    pub(crate) fn start_agent(&mut self, at: usize) {
        let node = &self.nodes[at];
        let folder = node.folder.display().to_string();
        let mut args = vec!["--load-balancer", "edge", "--sockets", &folder, "--grace", "0"];
        args.extend(["--admin", "127.0.0.1:9181"]);
        args.extend(node.driver.iter().map(String::as_str));
        let agent = node.spawn(&self.scratch, "agent", &args);
        self.nodes[at].agent = Some(agent);
    }

    /// Ends the agent of a node and what it drives, so that the node serves nothing any more.
    pub(crate) fn end_agent(&mut self, at: usize) {
        let mut agent = self.nodes[at].agent.take().expect("an agent");
        agent.signal("TERM");
        agent.wait();
    }

    fn to(&self) -> SocketAddr {
        SocketAddr::new(self.family.vip(), 80)
    }

    /// Whether the client reaches the Service.
    pub(crate) fn reaches(&self) -> Result<(), String> {
        Session::open(&self.client, self.to()).map(|_| ())
    }

    /// Waits until the client reaches the Service, and says how long that took.
    pub(crate) fn reached(&self) -> Duration {
        let begun = Instant::now();
        let attempt = || Session::within(PATIENCE, &self.client, self.to());
        until("the client reaches the Service", || attempt().map(|_| ()));
        begun.elapsed()
    }

    /// The place of the node that the client's kernel sends packets to.
    pub(crate) fn owner(&self) -> Option<usize> {
        let owner = self.client.neighbour(self.family.vip(), "eth0")?;
        self.nodes.iter().position(|node| mac(node.number) == owner)
    }

    /// Ends the speaker of a node, as an upgrade does.
    pub(crate) fn end_speaker(&mut self, at: usize) {
        let mut speaker = self.nodes[at].speaker.take().expect("a speaker");
        speaker.signal("TERM");
        assert_eq!(speaker.wait(), Some(0));
    }

    /// Ends the speaker of a node without a word.
    pub(crate) fn kill_speaker(&mut self, at: usize) {
        self.nodes[at].speaker.take().expect("a speaker").kill();
    }

    /// Lets clients connect, one connection after another, while something happens. No attempt to connect may be lost. A
    /// connection that is made just before a move may be reset by the new owner: that is no lost attempt.
    pub(crate) async fn without_a_lost_attempt(&self, happens: impl AsyncFnOnce()) {
        let clients = self.clients();
        clients.go_on();
        happens().await;
        clients.go_on();
        let seen = clients.stop();
        assert_eq!(seen.lost_attempts(), [], "{} were answered", seen.total());
    }

    /// Clients that connect, one connection after another, until they are stopped.
    pub(crate) fn clients(&self) -> Clients {
        Clients::start(&self.client, self.to(), 2)
    }

    /// A connection of the client that stays open.
    pub(crate) fn hold(&self) -> Session {
        Session::open(&self.client, self.to()).expect("a connection")
    }
}

impl Drop for Lan {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            for process in [node.agent.take(), node.speaker.take()].into_iter().flatten() {
                if std::thread::panicking() {
                    eprintln!("---- log of {} {}\n{}", node.name, process.id(), process.log());
                }
            }
            if std::thread::panicking() {
                eprintln!("---- lo of {}\n{}", node.name, node.machine.ip("addr show"));
            }
        }
    }
}
