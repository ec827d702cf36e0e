//! The example of two machines outside the cluster, with real keepalived: each machine has an agent as the unit starts it, and
//! the example's own files. The address moves when the machine that has it fails, and comes back. What counts is the Ethernet
//! address that clients on the segment send to, and that they are served.

use crate::tools::{program, repository, text};
use crate::vms::{UNIT, command};
use bowline_testing::objects::{self, Endpoint};
use bowline_testing::traffic::{Session, serve};
use bowline_testing::{
    Bowline, Cluster, Link, Machine, Scratch, Service, Stack, eventually, mac, net, until,
};
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const PROGRAM: &str = env!("CARGO_BIN_EXE_bowline");
const VIP: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 10);
const POD: u8 = 150;

/// How long one of many attempts may take.
const PATIENCE: Duration = Duration::from_millis(500);

fn host(number: u8) -> IpAddr {
    Ipv4Addr::new(192, 0, 2, number).into()
}

/// The load balancer as the README makes it by Helm.
fn load_balancer() -> Value {
    let page = text("examples/vms/README.md");
    let (_, rest) = page.split_once("<<'YAML'\n").expect("values");
    let (values, _) = rest.split_once("\nYAML").expect("their end");
    let values: Value = serde_saphyr::from_str(values).expect("YAML");
    let lb = &values["loadBalancers"][0];
    json!({
        "apiVersion": "bowline.dev/v1alpha1", "kind": "LoadBalancer",
        "metadata": {"name": lb["name"]}, "spec": lb["spec"],
    })
}

/// One of the two machines.
struct Vm {
    number: u8,
    machine: Machine,
    api: Link,
    scratch: Scratch,
    agent: Option<Service>,
    keepalived: Option<Service>,
}

impl Vm {
    fn new(lan: &Lan, number: u8, kubeconfig: &Path) -> Self {
        let machine = lan.host(number);
        for line in text("examples/vms/60-bowline.conf").lines() {
            if let Some((name, value)) = line.split_once(" = ") {
                machine.sysctl(name, value);
            }
        }
        let api = Link::on(&machine, &lan.cluster, kubeconfig);
        let (scratch, agent, keepalived) = (Scratch::new(), None, None);
        let mut vm = Self { number, machine, api, scratch, agent, keepalived };
        vm.start_agent();
        vm
    }

    /// Starts the agent with the unit's command.
    fn start_agent(&mut self) {
        let state = self.scratch.path().display().to_string();
        let kubeconfig = self.api.kubeconfig.display().to_string();
        let args = command(UNIT).into_iter().skip(1).filter(|it| it != "$BOWLINE_ARGS");
        let args = args.map(|it| {
            it.replace("${CREDENTIALS_DIRECTORY}/kubeconfig", &kubeconfig)
                .replace("${STATE_DIRECTORY}", &state)
        });
        let args: Vec<_> = args.collect();
        let name = format!("agent-{}", bowline_testing::unique());
        self.agent = Some(self.machine.on(|| self.scratch.spawn(&name, Path::new(PROGRAM), &args)));
    }

    /// Starts keepalived with the example's file.
    fn start_keepalived(&mut self, priority: &str) {
        let file = text("examples/vms/keepalived.conf").replace("priority 100", priority);
        let file = self.scratch.write("keepalived.conf", &file).display().to_string();
        let [main, vrrp, checkers] =
            ["main", "vrrp", "checkers"].map(|it| self.pid_file(it).display().to_string());
        let args = ["--dont-fork", "--log-console", "--log-detail", "--use-file", &file];
        let files = ["--pid", &main, "--vrrp_pid", &vrrp, "--checkers_pid", &checkers];
        let args: Vec<_> = args.iter().chain(&files).map(|it| (*it).to_owned()).collect();
        let name = format!("keepalived-{}", bowline_testing::unique());
        let keepalived = program("keepalived");
        self.keepalived = Some(self.machine.on(|| self.scratch.spawn(&name, &keepalived, &args)));
    }

    /// The file in which a process of keepalived says its id.
    fn pid_file(&self, name: &str) -> std::path::PathBuf {
        self.scratch.path().join(format!("{name}.of-keepalived"))
    }

    /// Kills both processes of keepalived, so that neither can say a word or start the other again.
    fn kill_keepalived(&mut self) {
        let mut main = self.keepalived.take().expect("it runs");
        let vrrp = std::fs::read_to_string(self.pid_file("vrrp")).expect("its other process");
        main.signal("STOP");
        let killed = Command::new("kill").args(["-KILL", vrrp.trim()]).status();
        assert!(killed.is_ok_and(|it| it.success()), "kill {vrrp}");
        main.kill();
    }

    fn has_the_address(&self) -> bool {
        self.machine.ip("-o addr show dev eth0").contains(&format!(" {VIP}/"))
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for it in [&self.agent, &self.keepalived].into_iter().flatten() {
                eprintln!("---- log of {} on {}\n{}", it.id(), self.number, it.log());
            }
        }
    }
}

/// The segment of both machines, with the cluster's controller and a Pod on it.
struct Lan {
    cluster: Cluster,
    switch: Machine,
    _controller: Bowline,
}

impl Lan {
    async fn new() -> Self {
        let cluster = Cluster::own(Stack::Dual).await;
        cluster.install(&repository("deploy")).await;
        let kubeconfig = cluster.kubeconfig_of("bowline-controller").await;
        let program = Path::new(PROGRAM);
        let mut controller = Bowline::start(&cluster, program, &kubeconfig, "controller", &[]);
        controller.ready().await;
        let switch = Machine::new();
        switch.bridge("segment");
        let lan = Self { cluster, switch, _controller: controller };
        serve(&lan.host(POD), host(POD), 8080, "pod");
        lan.cluster.apply("", &load_balancer()).await;
        let namespace = lan.cluster.namespace().await;
        let slice = objects::slice("web", ("", 8080, "TCP"), &[Endpoint::ready(host(POD))]);
        lan.cluster.apply(&namespace, &objects::service("web", "edge", &[(80, 8080)])).await;
        lan.cluster.apply(&namespace, &slice).await;
        lan
    }

    fn host(&self, number: u8) -> Machine {
        let machine = Machine::new();
        self.switch.plug("segment", &machine, "eth0", number);
        machine.ip(&format!("addr add {}/24 dev eth0", host(number)));
        machine
    }

    /// Pulls the cable of a machine, or plugs it in again.
    fn cable(&self, vm: &Vm, plugged: bool) {
        let state = if plugged { "up" } else { "down" };
        self.switch.ip(&format!("link set p{} {state}", vm.number));
    }
}

/// A client that connects, and one that only listens. The second one knew the address before, so its kernel never asks:
/// what it has since then was announced to it.
struct Clients {
    connects: Machine,
    listens: Machine,
}

impl Clients {
    /// Waits until both know this machine by the address, and the first one is served.
    fn reach(&self, vm: &Vm, what: &str) {
        let begun = std::time::Instant::now();
        until(what, || {
            let known = self.listens.neighbour(VIP.into(), "eth0");
            if known != Some(mac(vm.number)) || !vm.has_the_address() {
                return Err(format!("the address is at {known:?}"));
            }
            let session = Session::within(PATIENCE, &self.connects, SocketAddr::from((VIP, 80)))?;
            assert_eq!(session.name, "pod");
            // The first client may have asked before, or have heard it, too.
            let known = self.connects.neighbour(VIP.into(), "eth0");
            if known == Some(mac(vm.number)) { Ok(()) } else { Err(format!("{known:?}")) }
        });
        println!("{what}: after {:?}", begun.elapsed());
    }
}

/// Whether root owns what it owns outside, too. keepalived runs no script of files that are not root's.
fn is_root() -> bool {
    std::fs::metadata("/usr").expect("a folder").uid() == 0
}

#[test]
fn the_address_moves_when_a_machine_fails_and_comes_back_with_it() {
    if Cluster::is_out_of_reach() {
        return;
    }
    net::in_namespace(|| async {
        let lan = Lan::new().await;
        let clients = Clients { connects: lan.host(100), listens: lan.host(101) };
        let kubeconfig = lan.cluster.agent_kubeconfig(&repository("deploy"), "edge").await;
        let [mut first, mut second] = [2, 3].map(|it| Vm::new(&lan, it, &kubeconfig));
        for vm in [&first, &second] {
            ready(vm).await;
        }
        // A client of before: it takes the address for the second machine's.
        let old = mac(second.number);
        clients.listens.ip(&format!("neigh add {VIP} lladdr {old} dev eth0 nud stale"));
        first.start_keepalived("priority 100");
        second.start_keepalived("priority 90");
        clients.reach(&first, "the first machine has the address");

        if is_root() {
            // The agent does not answer, though its port is open.
            first.agent.as_ref().expect("an agent").signal("STOP");
            clients.reach(&second, "the agent of the first machine is not ready");
            first.agent.as_ref().expect("an agent").signal("CONT");
            clients.reach(&first, "the agent of the first machine is ready");
            let mut agent = first.agent.take().expect("an agent");
            agent.signal("TERM");
            clients.reach(&second, "the agent of the first machine is stopped");
            assert_eq!(agent.wait(), Some(0));
            first.start_agent();
            clients.reach(&first, "the agent of the first machine runs");
        } else {
            println!("left out: keepalived runs no scripts, as root here is not root outside");
        }

        // Nobody takes the address off the first machine: the other one has it as well, and clients know.
        first.kill_keepalived();
        clients.reach(&second, "keepalived of the first machine is killed");
        assert!(first.has_the_address());
        first.start_keepalived("priority 100");
        clients.reach(&first, "keepalived of the first machine runs");
        until("only one machine has the address", || {
            if second.has_the_address() { Err("both".to_owned()) } else { Ok(()) }
        });

        lan.cable(&first, false);
        clients.reach(&second, "the cable of the first machine is pulled");
        lan.cable(&first, true);
        clients.reach(&first, "the first machine is plugged in");
    });
}

/// Waits until the agent says so where the scripts of keepalived ask it.
async fn ready(vm: &Vm) {
    eventually("the agent is ready", || async {
        let url = "http://127.0.0.1:9180/readyz";
        let asked = vm.machine.on(|| Command::new("curl").args(["-fsS", url]).output());
        let asked = asked.map_err(|error| error.to_string())?;
        let why = String::from_utf8_lossy(&asked.stderr).into_owned();
        if asked.status.success() { Ok(()) } else { Err(why) }
    })
    .await;
}
