//! What the bench of announcing stands on: an API, two nodes with a speaker each, and a router between them.

use crate::frr::Frr;
use crate::network::Network;
use bowline_testing::objects::{self, Endpoint};
use bowline_testing::{Cluster, Machine, Scratch, Service, Stack, eventually};
use futures::StreamExt as _;
use kube::config::Kubeconfig;
use serde_json::{Value, json};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

const PROGRAM: &str = env!("CARGO_BIN_EXE_bowline");
/// The addresses of the nodes on their links to the router.
pub(crate) const A: &str = "10.0.0.1";
pub(crate) const B: &str = "10.0.1.1";
/// Many addresses.
pub(crate) const MANY: usize = 10_000;
/// How many are created at a time.
const WRITERS: usize = 20;

/// The nth address of a range.
pub(crate) fn address(range: u8, number: u32) -> IpAddr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(100, 64 + range, 0, 0)) + number + 1).into()
}

/// Median, 99th percentile and longest of some times.
pub(crate) fn spread(times: &mut [Duration]) -> String {
    times.sort_unstable();
    let at = |share: usize| times[(times.len() - 1) * share / 100].as_secs_f64() * 1e3;
    format!("p50 {:.1} ms, p99 {:.1} ms, longest {:.1} ms", at(50), at(99), at(100))
}

/// The whole.
pub(crate) struct Site {
    cluster: Cluster,
    namespace: String,
    pub(crate) router: Frr,
    nodes: [(&'static str, Machine); 2],
    scratch: Scratch,
}

/// The speaker of a node.
pub(crate) struct Speaker {
    pub(crate) process: Service,
}

impl Site {
    pub(crate) async fn new() -> Self {
        let cluster = Cluster::own(Stack::Single).await;
        cluster.install(&Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy")).await;
        let namespace = cluster.namespace().await;
        let Network { node: a, router } = Network::new();
        let b = Machine::new();
        router.link("eth1", &b, "eth0");
        for (machine, link, at) in [(&b, "eth0", B), (&router, "eth1", "10.0.1.2")] {
            machine.ip(&format!("addr add {at}/24 dev {link}"));
        }
        let server = server(&cluster);
        for node in [&a, &b] {
            relay(server, node);
        }
        let site = Self {
            router: Frr::start(&router),
            cluster,
            namespace,
            nodes: [("a", a), ("b", b)],
            scratch: Scratch::new(),
        };
        for (node, peer) in [("a", "10.0.0.2"), ("b", "10.0.1.2")] {
            let object = json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": {"name": node, "labels": {"node": node}},
            });
            site.cluster.apply("", &object).await;
            let spec = json!({
                "peerAddress": peer, "peerASN": 64513, "myASN": 64512, "connectTime": "1s",
                "nodeSelector": {"matchLabels": {"node": node}},
                "gracefulRestart": {"enabled": false},
                "bfd": {"receiveInterval": "100ms", "transmitInterval": "100ms", "detectMultiplier": 3},
            });
            site.cluster.apply("", &ours("BGPPeer", node, spec)).await;
        }
        let service = objects::service("web", "", &[(80, 8080)]);
        site.cluster.apply(&site.namespace, &service).await;
        let endpoint = Endpoint::ready([10, 244, 0, 1].into());
        let slice = objects::slice("web", ("", 8080, "TCP"), &[endpoint]);
        site.cluster.apply(&site.namespace, &slice).await;
        site
    }

    /// The speaker of a node, after its first view and with a session.
    pub(crate) async fn speaker(&self, node: &str) -> Speaker {
        let kubeconfig = self.cluster.kubeconfig_of("bowline-speaker").await;
        let (_, machine) =
            self.nodes.iter().find(|(name, _)| *name == node).expect("one of the nodes");
        let folder = self.scratch.path().join(node).display().to_string();
        let args =
            ["speaker", "--node-name", node, "--sockets", &folder, "--admin", "127.0.0.1:9180"];
        let args: Vec<String> = args.map(str::to_owned).to_vec();
        let file = kubeconfig.display().to_string();
        let process = machine.on(|| {
            let env = [("KUBECONFIG", file.as_str()), ("BOWLINE_LOG", "warn")];
            self.scratch.spawn_with(&format!("speaker-{node}"), Path::new(PROGRAM), &args, &env)
        });
        let lease =
            objects::path("Lease", bowline_testing::SYSTEM, &format!("bowline-speaker-{node}"));
        let id = process.id();
        eventually("the session is up", || async {
            let (_, lease) = self.cluster.get(&lease).await;
            let annotations = &lease["metadata"]["annotations"];
            let text = annotations.as_object().into_iter().flatten();
            let up = text.filter_map(|(_, it)| it.as_str()).any(|it| it.contains("\"up\":true"));
            if up { Ok(()) } else { Err(format!("{id}: {lease:#}")) }
        })
        .await;
        Speaker { process }
    }

    /// The Advertisement of all addresses.
    pub(crate) async fn advertise(&self, name: &str) {
        self.cluster.apply("", &ours("Advertisement", name, json!({"bgp": {}}))).await;
    }

    /// Records that the Service has an address, as the leader does.
    pub(crate) async fn record(&self, address: IpAddr) {
        let holder =
            json!({"kind": "Service", "namespace": self.namespace, "name": "web", "uid": "web"});
        let spec = json!({"pool": "public", "holders": [holder]});
        let path = objects::path("Address", "", "");
        self.cluster.create(&path, &ours("Address", &address.to_string(), spec)).await;
    }

    pub(crate) async fn record_many(&self) {
        let numbers = 0..u32::try_from(MANY).expect("many");
        let all = futures::stream::iter(numbers).map(|number| self.record(address(2, number)));
        all.buffer_unordered(WRITERS).collect::<Vec<()>>().await;
    }
}

impl Speaker {
    fn status(&self, field: &str) -> f64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.process.id()));
        let text = text.expect("its status");
        let line = text.lines().find_map(|line| line.strip_prefix(field)).expect("the field");
        let kib: f64 = line.trim_end_matches(" kB").trim().parse().expect("a number");
        kib / 1024.0
    }

    /// Its resident memory in MB.
    pub(crate) fn memory(&self) -> f64 {
        self.status("VmRSS:")
    }

    /// The most that it had.
    pub(crate) fn peak(&self) -> f64 {
        self.status("VmHWM:")
    }

    /// The CPU time that it used.
    pub(crate) fn cpu(&self) -> Duration {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.process.id()));
        let text = text.expect("its times");
        let fields: Vec<&str> = text.rsplit(") ").next().unwrap_or_default().split(' ').collect();
        let ticks = |at: usize| fields[at].parse::<u64>().expect("a number");
        Duration::from_millis((ticks(11) + ticks(12)) * 10)
    }

    /// What it uses while nothing happens.
    pub(crate) async fn at_rest(&self, rest: Duration) -> String {
        let before = self.cpu();
        tokio::time::sleep(rest).await;
        let used = self.cpu().saturating_sub(before).as_secs_f64() / rest.as_secs_f64();
        format!("{:.1} % of a core, {:.1} MB", used * 100.0, self.memory())
    }
}

fn ours(kind: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "bowline.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec,
    })
}

/// Where the API listens.
fn server(cluster: &Cluster) -> SocketAddr {
    let config = Kubeconfig::read_from(cluster.kubeconfig()).expect("a kubeconfig");
    let url = config.clusters[0].cluster.as_ref().and_then(|it| it.server.clone());
    let url = url.expect("a server");
    let authority = url.trim_start_matches("https://").trim_end_matches('/');
    authority.parse().unwrap_or_else(|e| panic!("{url}: {e}"))
}

/// Leads connections on a machine to the API, which is in the network of this bench.
fn relay(server: SocketAddr, machine: &Machine) {
    let listener = machine.on(|| TcpListener::bind(server).expect("bind the API's address there"));
    std::thread::spawn(move || {
        for inside in listener.incoming().map_while(Result::ok) {
            let Ok(outside) = TcpStream::connect(server) else { continue };
            for (from, to) in [(&inside, &outside), (&outside, &inside)] {
                let _ = from.set_nodelay(true);
                let (from, to) = (from.try_clone(), to.try_clone());
                let (mut from, mut to) = (from.expect("a socket"), to.expect("a socket"));
                std::thread::spawn(move || {
                    let _ = io::copy(&mut from, &mut to);
                    let _ = to.shutdown(std::net::Shutdown::Write);
                });
            }
        }
    });
}
