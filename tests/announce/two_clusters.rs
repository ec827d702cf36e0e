//! One DNS name, two clusters: both take its address and announce it to one router. Each cluster is a `bowline up` on a
//! machine of its own: the Kubernetes API, the controller, the built-in proxy and the speaker. The truth is the route in the
//! router's kernel, and what clients see.

use crate::fabric::{Fabric, NODE_ASN, Node, ROUTER_ASN};
use crate::stage::{PROGRAM, play};
use bowline_testing::traffic::{Clients, Session, serve};
use bowline_testing::{Bind, Machine, Scratch, Service, page, until};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};

const NAME: &str = "global.example.test";
const FIRST: &str = "203.0.113.5";
const SECOND: &str = "203.0.113.6";

/// A cluster that runs.
struct Cluster {
    up: Service,
    machine: Machine,
    kubeconfig: String,
}

impl Cluster {
    fn start(scratch: &Scratch, node: &Node, dns: SocketAddr) -> Self {
        let Node { name, machine, .. } = node;
        let objects = format!(
            "apiVersion: bowline.dev/v1alpha1\nkind: AddressPool\nmetadata: {{name: global}}\n\
             spec: {{addresses: [203.0.113.0/28], autoAssign: false, allowedDomains: [example.test]}}\n---\n\
             apiVersion: bowline.dev/v1alpha1\nkind: Advertisement\nmetadata: {{name: global}}\n\
             spec: {{addressPools: [global], bgp: {{}}}}\n---\n\
             apiVersion: bowline.dev/v1alpha1\nkind: BGPPeer\nmetadata: {{name: router}}\n\
             spec: {{peerAddress: {router}, peerASN: {ROUTER_ASN}, myASN: {NODE_ASN}, connectTime: 1s}}\n---\n\
             apiVersion: v1\nkind: Service\nmetadata: {{name: web, namespace: default, annotations: \
             {{metallb.io/assign-from-fqdn: {NAME}}}}}\n\
             spec: {{type: LoadBalancer, ports: [{{port: 80, targetPort: 9376}}]}}\n---\n\
             apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: web-1, namespace: default, \
             labels: {{kubernetes.io/service-name: web}}}}\naddressType: IPv4\n\
             ports: [{{port: 9376, protocol: TCP}}]\nendpoints: [{{addresses: [127.0.0.1], conditions: {{ready: true}}}}]\n",
            router = node.router(),
        );
        let file = scratch.write(&format!("{name}.yaml"), &objects).display().to_string();
        let kubeconfig = scratch.path().join(format!("{name}.kubeconfig")).display().to_string();
        let dns = dns.to_string();
        let args = ["up", "--speaker", "--node-name", name, "--kubeconfig", &kubeconfig];
        let more = ["--dns-server", &dns, "-f", &file, "--address-grace", "30"];
        let args: Vec<_> = args.iter().chain(&more).map(|it| (*it).to_owned()).collect();
        let up = machine.on(|| {
            scratch.spawn(&format!("up-{}", bowline_testing::unique()), Path::new(PROGRAM), &args)
        });
        Self { up, machine: machine.clone(), kubeconfig }
    }

    fn kubectl(&self, args: &[&str]) -> String {
        let output = self.machine.on(|| {
            let mut command = Command::new("kubectl");
            command.args(["--kubeconfig", &self.kubeconfig]).args(args);
            command.stdin(Stdio::null()).env("NO_PROXY", "*").output().expect("run kubectl")
        });
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Waits until the Service has this address.
    fn shows(&self, address: &str) {
        let path = "jsonpath={.status.loadBalancer.ingress[0].ip}";
        until(&format!("the Service shows {address}"), || {
            match self.kubectl(&["get", "service", "web", "-o", path]) {
                found if found == address => Ok(()),
                found => Err(format!("{found:?}: {}", self.up.log())),
            }
        });
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("---- log of {}\n{}", self.kubeconfig, self.up.log());
        }
    }
}

fn at(address: &str) -> SocketAddr {
    format!("{address}:80").parse().expect("an address")
}

/// Connections to both clusters, each with the name of its cluster.
fn sessions(fabric: &Fabric, address: &str) -> Vec<Session> {
    let open = || Session::open(&fabric.client, at(address)).expect("a connection");
    let all: Vec<_> = (0..16).map(|_| open()).collect();
    for name in ["one", "two"] {
        assert!(all.iter().any(|it| it.name == name), "no connection of 16 to cluster {name}");
    }
    all
}

#[test]
fn two_clusters_serve_one_name_and_the_end_of_either_breaks_only_its_own_connections() {
    play(async || {
        let fabric = Fabric::new(&["one", "two"]);
        let scratch = Scratch::new();
        let router: IpAddr = Ipv4Addr::new(10, 0, 99, 1).into();
        let mut bind = Bind::on(&fabric.router, router);
        bind.set(NAME, "A", 5, &[FIRST]);
        for node in &fabric.nodes {
            serve(&node.machine, Ipv4Addr::LOCALHOST.into(), 9376, node.name);
        }
        let start = |node: &Node| Cluster::start(&scratch, node, bind.address());
        let mut clusters: Vec<_> = fabric.nodes.iter().map(start).collect();
        clusters.iter().for_each(|it| it.shows(FIRST));
        fabric.leads(FIRST, &["one", "two"]).await;

        // The record moves: make before break.
        let clients = Clients::start(&fabric.client, at(FIRST), 2);
        let mut old = sessions(&fabric, FIRST);
        bind.set(NAME, "A", 5, &[SECOND]);
        fabric.leads(SECOND, &["one", "two"]).await;
        clients.go_on();
        assert_eq!(fabric.paths(FIRST), ["one", "two"], "the old address is served meanwhile");
        for session in &mut old {
            let name = session.name.clone();
            assert_eq!(session.ask(), Ok(name), "a connection to the old address");
        }
        let seen = clients.stop();
        assert_eq!(seen.failures, []);
        assert!(seen.answers.keys().eq(["one", "two"]), "{:?}", seen.answers);
        println!("the record moved: {} requests, none failed", seen.total());
        clusters.iter().for_each(|it| it.shows(SECOND));
        fabric.leads(FIRST, &[]).await;

        // The DNS is away: nothing moves.
        let routes = fabric.watch();
        bind.stop();
        for cluster in &clusters {
            until("the condition says it", || {
                let path = "jsonpath={.status.conditions[?(@.type==\"AddressFromDNS\")].status}";
                match cluster.kubectl(&["get", "service", "web", "-o", path]).as_str() {
                    "False" => Ok(()),
                    other => Err(other.to_owned()),
                }
            });
            cluster.shows(SECOND);
        }
        assert_eq!(routes.changes(SECOND), Vec::<String>::new());
        drop(routes);

        // Either dies, and the other one serves.
        for (dead, left) in [(0, 1), (1, 0)] {
            let (node, name) = (&fabric.nodes[dead], fabric.nodes[left].name);
            let mut all = sessions(&fabric, SECOND);
            // Its machine is gone, and says nothing to anybody.
            fabric.cable(node, false);
            clusters[dead].up.kill();
            fabric.leads(SECOND, &[name]).await;
            let clients = Clients::start(&fabric.client, at(SECOND), 2);
            clients.go_on();
            for session in all.iter_mut().filter(|it| it.name == name) {
                assert_eq!(session.ask(), Ok(name.to_owned()), "a connection of the other cluster");
            }
            let seen = clients.stop();
            assert_eq!(seen.failures, []);
            assert!(seen.answers.keys().eq([name]), "{:?}", seen.answers);
            if dead == 0 {
                // It comes back with nothing but its objects, and asks the DNS again.
                bind.start();
                fabric.cable(node, true);
                clusters[dead] = Cluster::start(&scratch, node, bind.address());
                clusters[dead].shows(SECOND);
                fabric.leads(SECOND, &["one", "two"]).await;
            }
        }
    });
}

#[test]
fn the_example_with_two_clusters_runs_as_printed() {
    let scratch = Scratch::new();
    // Its own folder, so that two tests can run at once.
    let root = scratch.path();
    let here = root.join("two");
    let folder = Path::new("examples/two-clusters");
    std::fs::create_dir_all(root.join(folder)).expect("make a folder");
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    for file in std::fs::read_dir(example).expect("the example") {
        let file = file.expect("a file");
        let text = std::fs::read_to_string(file.path()).expect("a text");
        let copy = root.join(folder).join(file.file_name());
        std::fs::write(&copy, text.replace("/tmp/two-clusters", &here.display().to_string()))
            .expect("write a copy");
        let mode = file.metadata().expect("its mode").permissions();
        std::fs::set_permissions(copy, mode).expect("set its mode");
    }
    // Names of network namespaces are files, and its programs are processes: both end with this one.
    let alone = "mkdir -p /run/netns && mount -t tmpfs netns /run/netns && exec timeout 120 bash -e -c \"$0\"";
    let words = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let words = [&words[..], &["bash", "-c", alone]].concat();
    let folder = &folder.display().to_string();
    let writes = "/tmp/two-clusters";
    let ran =
        page::Example { root, folder, writes, here: &here }.run_by(&words, Path::new(PROGRAM));
    let (said, all) = (&ran.said, &ran.all);
    assert!(ran.succeeded, "{all}");
    // How many requests each cluster answered, before and after one has died.
    let served: Vec<Vec<&str>> = said
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|words| words.len() == 5 && words[1..4] == ["served", "by", "cluster"])
        .collect();
    let names: Vec<_> = served.iter().map(|words| words[4]).collect();
    assert_eq!(names, ["one", "two", "two"], "{all}");
    assert_eq!(served[2][0], "20", "{all}");
    for line in ["Draining", "condition met", "still assigned: 203.0.113.6"] {
        assert!(said.contains(line), "{line:?} is not in:\n{all}");
    }
}
