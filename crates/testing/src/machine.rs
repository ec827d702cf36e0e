//! Machines of a test: network namespaces that end with it, and the links between them. A socket belongs to the namespace
//! of the thread that opens it, whoever uses it later.

use nix::sched::{CloneFlags, setns, unshare};
use std::fs::File;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::Arc;

/// A network namespace.
#[derive(Clone)]
pub struct Machine(Arc<File>);

impl Default for Machine {
    fn default() -> Self {
        Self::new()
    }
}

impl Machine {
    /// One without any link.
    pub fn new() -> Self {
        let made = std::thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET)
                .unwrap_or_else(|e| panic!("these tests make networks, which takes root: {e}"));
            File::open("/proc/thread-self/ns/net").expect("open the namespace")
        });
        let machine = Self(Arc::new(made.join().expect("a namespace")));
        machine.ip("link set lo up");
        machine
    }

    /// Runs something on this machine. Processes and sockets that it starts stay there.
    pub fn on<T: Send>(&self, run: impl FnOnce() -> T + Send) -> T {
        let inside = || {
            setns(&*self.0, CloneFlags::CLONE_NEWNET).expect("enter the namespace");
            run()
        };
        let done = std::thread::scope(|scope| scope.spawn(inside).join());
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Runs a program with these words, and returns what it says.
    pub fn run(&self, program: &str, words: &str) -> String {
        let output = self.on(|| {
            let output = Command::new(program).args(words.split_whitespace()).output();
            output.unwrap_or_else(|e| panic!("{program} is missing (scripts/setup test): {e}"))
        });
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program} {words}: {said}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs `ip` with these words.
    pub fn ip(&self, words: &str) -> String {
        self.run("ip", words)
    }

    /// Sets a value of the kernel.
    pub fn sysctl(&self, name: &str, value: &str) {
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        // The files show the namespace of the thread that opens them.
        self.on(|| std::fs::write(&path, value)).unwrap_or_else(|e| panic!("{path}: {e}"));
    }

    /// The path of its namespace, for `ip link … netns`.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    /// Makes a link: an interface here, and one on the other machine.
    pub fn link(&self, here: &str, other: &Self, there: &str) {
        let namespace = other.path();
        self.ip(&format!("link add {here} type veth peer name {there} netns {namespace}"));
        self.ip(&format!("link set {here} up"));
        other.ip(&format!("link set {there} up"));
    }
    /// Makes a bridge, the switch of an Ethernet segment.
    pub fn bridge(&self, name: &str) {
        self.ip(&format!("link add {name} type bridge mcast_snooping 0"));
        self.ip(&format!("link set {name} up"));
    }

    /// Gives a host an interface on a bridge of this machine, with the Ethernet address [`mac`] of this number. The port
    /// `pNUMBER` of the switch is its cable.
    pub fn plug(&self, bridge: &str, host: &Self, interface: &str, number: u8) {
        let (mac, path) = (mac(number), self.path());
        host.ip(&format!(
            "link add {interface} address {mac} type veth peer name p{number} netns {path}"
        ));
        self.ip(&format!("link set p{number} master {bridge}"));
        self.ip(&format!("link set p{number} up"));
        host.ip(&format!("link set {interface} up"));
    }

    /// The Ethernet address that the kernel has for a neighbour.
    pub fn neighbour(&self, address: IpAddr, interface: &str) -> Option<String> {
        let neighbours = self.ip(&format!("neigh show {address} dev {interface}"));
        let (_, rest) = neighbours.split_once("lladdr ")?;
        rest.split_whitespace().next().map(str::to_owned)
    }
}

/// The Ethernet address of an interface with this number.
pub fn mac(number: u8) -> String {
    format!("02:00:00:00:00:{number:02x}")
}
