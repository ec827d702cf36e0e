//! Nodes on one Ethernet segment: each is a machine of the test with a link to a bridge, a speaker and an agent. A client
//! and a backend are on the same segment. The API is on none of them; each node has a link to it of its own.

use crate::stage::{PROGRAM, deploy, object};
use bowline_testing::objects::{self, Endpoint};
use bowline_testing::{Bowline, Cluster, Link, Machine, Scratch, Service, Stack, until};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The address of the Service.
pub(crate) const VIP: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 200));
const BACKEND: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 150);
/// How the error of a connection begins that was not made.
const LOST: &str = "no connection";
const PATIENCE: Duration = Duration::from_secs(2);

/// A node.
pub(crate) struct Node {
    pub(crate) name: &'static str,
    number: u8,
    pub(crate) machine: Machine,
    pub(crate) api: Link,
    folder: PathBuf,
    pub(crate) speaker: Option<Service>,
    agent: Option<Service>,
}

impl Node {
    fn spawn(&self, scratch: &Scratch, role: &str, args: &[&str]) -> Service {
        let kubeconfig = self.api.kubeconfig.display().to_string();
        let mut all = vec![role.to_owned()];
        all.extend(args.iter().map(|&it| it.to_owned()));
        let log = std::env::var("BOWLINE_LOG").unwrap_or_else(|_| "info".to_owned());
        let name = format!("{role}-{}-{}", self.name, bowline_testing::unique());
        let env = [("KUBECONFIG", kubeconfig.as_str()), ("BOWLINE_LOG", &log)];
        self.machine.on(|| scratch.spawn_with(&name, Path::new(PROGRAM), &all, &env))
    }

    /// The value of a metric of the speaker.
    pub(crate) fn metric(&self, name: &str) -> Result<u64, String> {
        let page = self.machine.on(|| {
            let mut stream = TcpStream::connect("127.0.0.1:9180")?;
            stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
            let mut page = String::new();
            stream.read_to_string(&mut page).map(|_| page)
        });
        let page = page.map_err(|error: std::io::Error| error.to_string())?;
        let mut lines = page.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        lines.next().and_then(|it| it.parse().ok()).ok_or_else(|| format!("no {name}: {page}"))
    }

    fn mac(&self) -> String {
        format!("02:00:00:00:00:{:02x}", self.number)
    }
}

/// The segment.
pub(crate) struct Lan {
    pub(crate) cluster: Cluster,
    pub(crate) nodes: Vec<Node>,
    pub(crate) client: Machine,
    _controller: Bowline,
    _switch: Machine,
    scratch: Scratch,
}

fn joined(switch: &Machine, number: u8) -> Machine {
    let machine = Machine::new();
    let (mac, path) = (format!("02:00:00:00:00:{number:02x}"), switch.path());
    machine.ip(&format!("link add eth0 address {mac} type veth peer name p{number} netns {path}"));
    switch.ip(&format!("link set p{number} master segment"));
    switch.ip(&format!("link set p{number} up"));
    machine.ip("link set eth0 up");
    machine.ip(&format!("addr add 10.0.0.{number}/24 dev eth0"));
    machine
}

impl Lan {
    /// Three nodes with speakers and agents of this kind of load balancer, and a Service with the address [`VIP`].
    pub(crate) async fn new(source: Value, agent: impl Fn(&Node) -> Vec<String>) -> Self {
        let cluster = Cluster::own(Stack::Dual).await;
        cluster.install(&deploy()).await;
        let kubeconfig = cluster.kubeconfig_of("bowline-controller").await;
        let mut controller =
            Bowline::start(&cluster, Path::new(PROGRAM), &kubeconfig, "controller", &[]);
        controller.ready().await;
        let (switch, scratch) = (Machine::new(), Scratch::new());
        switch.ip("link add segment type bridge mcast_snooping 0");
        switch.ip("link set segment up");
        let client = joined(&switch, 100);
        let backend = joined(&switch, 150);
        backend.on(|| serve(&TcpListener::bind((BACKEND, 8080)).expect("listen")));
        let account = cluster.kubeconfig_of("bowline-speaker").await;
        let mut nodes = Vec::new();
        for (name, number) in [("a", 1), ("b", 2), ("c", 3)] {
            let machine = joined(&switch, number);
            let api = Link::on(&machine, &cluster, &account);
            let folder = scratch.path().join(name);
            std::fs::create_dir(&folder).expect("make a folder");
            let (speaker, agent) = (None, None);
            nodes.push(Node { name, number, machine, api, folder, speaker, agent });
        }
        let pool = json!({"addresses": [format!("{VIP}/32")]});
        cluster.apply("", &object("AddressPool", "lan", pool)).await;
        let mut spec = json!({"addressPool": "lan", "allowedNamespaces": {"from": "All"}});
        spec.as_object_mut().expect("an object").extend(source.as_object().expect("one").clone());
        cluster.apply("", &object("LoadBalancer", "edge", spec)).await;
        let advertisement = json!({"addressPools": ["lan"], "l2": {}});
        cluster.apply("", &object("Advertisement", "lan", advertisement)).await;
        let namespace = cluster.namespace().await;
        cluster.apply(&namespace, &objects::service("web", "edge", &[(80, 8080)])).await;
        let endpoints = [Endpoint::ready(BACKEND.into())];
        cluster.apply(&namespace, &objects::slice("web", ("", 8080, "TCP"), &endpoints)).await;
        let mut lan =
            Self { cluster, nodes, client, _controller: controller, _switch: switch, scratch };
        for at in 0..lan.nodes.len() {
            lan.start_speaker(at);
            let node = &lan.nodes[at];
            let folder = node.folder.display().to_string();
            let more = agent(node);
            let mut args = vec!["--load-balancer", "edge", "--sockets", &folder];
            args.extend(["--admin", "127.0.0.1:9181"]);
            args.extend(more.iter().map(String::as_str));
            let agent = node.spawn(&lan.scratch, "agent", &args);
            lan.nodes[at].agent = Some(agent);
        }
        lan
    }

    /// Where an agent of a node has its files.
    pub(crate) fn files(node: &Node) -> String {
        // Short: sockets have short names.
        let folder = format!("l2-{}-{}", std::process::id(), node.name);
        std::env::temp_dir().join(folder).display().to_string()
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

    /// Ends the agent of a node, so that it serves nothing any more.
    pub(crate) fn end_agent(&mut self, at: usize) {
        self.nodes[at].agent.take().expect("an agent").kill();
    }

    /// Whether the client reaches the Service.
    pub(crate) fn reaches(&self) -> Result<(), String> {
        self.client.on(|| attempt(PATIENCE))
    }

    /// Waits until the client reaches the Service, and says how long that took.
    pub(crate) fn reached(&self) -> Duration {
        let begun = Instant::now();
        until("the client reaches the Service", || self.client.on(|| attempt(PATIENCE / 4)));
        begun.elapsed()
    }

    /// The place of the node that the client's kernel sends packets to.
    pub(crate) fn owner(&self) -> Option<usize> {
        let neighbours = self.client.ip(&format!("neigh show {VIP} dev eth0"));
        self.nodes.iter().position(|node| neighbours.contains(&node.mac()))
    }

    /// Ends the speaker of a node without a word.
    pub(crate) fn kill_speaker(&mut self, at: usize) {
        self.nodes[at].speaker.take().expect("a speaker").kill();
    }

    /// Attempts to connect, one after another, while something happens. Returns the attempts that failed, and how many
    /// there were. A connection that is made just before a move may be reset by the new owner: that is no lost attempt.
    pub(crate) async fn meanwhile(&self, happens: impl AsyncFnOnce()) -> (Vec<String>, usize) {
        let attempts = self.attempts();
        happens().await;
        tokio::task::spawn_blocking(move || attempts.stop()).await.expect("a task")
    }

    /// Begins to attempt to connect, one attempt after another.
    pub(crate) fn attempts(&self) -> Attempts {
        let stop = Arc::new(AtomicBool::new(false));
        let (client, stopped) = (self.client.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            client.on(|| {
                let (mut failures, mut count) = (Vec::new(), 0);
                while !stopped.load(Ordering::Relaxed) {
                    failures.extend(attempt(PATIENCE).err().filter(|it| it.starts_with(LOST)));
                    count += 1;
                }
                (failures, count)
            })
        });
        Attempts { stop, thread }
    }

    /// A connection of the client that waits for its request.
    pub(crate) fn hold(&self) -> Held {
        Held(self.client.on(connected).expect("a connection"))
    }
}

/// Attempts of a client.
pub(crate) struct Attempts {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<(Vec<String>, usize)>,
}

impl Attempts {
    /// The attempts that failed, and how many there were.
    pub(crate) fn stop(self) -> (Vec<String>, usize) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the attempts")
    }
}

/// A connection that is open.
pub(crate) struct Held(TcpStream);

impl Held {
    /// Its only request.
    pub(crate) fn ask(self) -> Result<(), String> {
        ask(self.0)
    }
}

fn connected() -> std::io::Result<TcpStream> {
    TcpStream::connect_timeout(&SocketAddr::new(VIP, 80), PATIENCE)
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

/// A request of its own connection.
fn attempt(patience: Duration) -> Result<(), String> {
    let to = SocketAddr::new(VIP, 80);
    ask(TcpStream::connect_timeout(&to, patience).map_err(|error| format!("{LOST}: {error}"))?)
}

fn ask(mut stream: TcpStream) -> Result<(), String> {
    let mut ask = || -> std::io::Result<String> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"hello\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    match ask() {
        Ok(answer) if answer == "served" => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

/// Answers each connection once, on a thread of its own: a proxy may open a connection and never send a byte.
fn serve(listener: &TcpListener) {
    let listener = listener.try_clone().expect("a socket");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut line = [0; 6];
                if stream.read_exact(&mut line).is_ok() {
                    let _ = stream.write_all(b"served");
                }
            });
        }
    });
}
