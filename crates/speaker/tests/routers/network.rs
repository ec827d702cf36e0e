//! Two machines and the link between them: network namespaces, which end with the test.

use nix::sched::{CloneFlags, setns, unshare};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::Arc;

/// A network namespace.
#[derive(Clone)]
pub(crate) struct Machine(Arc<File>);

impl Machine {
    /// One without any link.
    pub(crate) fn new() -> Self {
        let made = std::thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET)
                .unwrap_or_else(|e| panic!("these tests make networks, which takes root: {e}"));
            File::open("/proc/thread-self/ns/net").expect("open the namespace")
        });
        let machine = Self(Arc::new(made.join().expect("a namespace")));
        machine.ip("link set lo up");
        machine
    }

    /// Runs something on this machine. Processes that it starts stay there.
    pub(crate) fn on<T: Send>(&self, run: impl FnOnce() -> T + Send) -> T {
        let inside = || {
            setns(&self.0, CloneFlags::CLONE_NEWNET).expect("enter the namespace");
            run()
        };
        let done = std::thread::scope(|scope| scope.spawn(inside).join());
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Runs `ip` with these words.
    pub(crate) fn ip(&self, words: &str) {
        let output =
            self.on(|| Command::new("ip").args(words.split(' ')).output().expect("run ip"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "ip {words}: {said}");
    }

    /// Sets a value of the kernel.
    pub(crate) fn sysctl(&self, name: &str, value: &str) {
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        // The files show the namespace of the thread that opens them.
        self.on(|| std::fs::write(&path, value)).unwrap_or_else(|e| panic!("{path}: {e}"));
    }

    /// Lays a link to another machine. Both ends are down.
    pub(crate) fn link(&self, name: &str, other: &Self, there: &str) {
        let path = other.path();
        self.ip(&format!("link add {name} type veth peer name {there} netns {path}"));
    }

    fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }
}

/// The node and the router, each with an `eth0` to the other.
pub(crate) struct Network {
    pub(crate) node: Machine,
    pub(crate) router: Machine,
}

pub(crate) const NODE: &str = "10.0.0.1";
/// A second address of the node, which a test may add.
pub(crate) const NODE_TOO: &str = "10.0.0.3";
pub(crate) const NODE_TOO_V6: &str = "fd00::3";
pub(crate) const ROUTER: &str = "10.0.0.2";
pub(crate) const NODE_V6: &str = "fd00::1";
pub(crate) const ROUTER_V6: &str = "fd00::2";
pub(crate) const NODE_LINK_LOCAL: &str = "fe80::1";
pub(crate) const ROUTER_LINK_LOCAL: &str = "fe80::2";

impl Network {
    pub(crate) fn new() -> Self {
        let (node, router) = (Machine::new(), Machine::new());
        for machine in [&node, &router] {
            machine.sysctl("net.ipv6.conf.default.addr_gen_mode", "1");
        }
        node.link("eth0", &router, "eth0");
        let of_node = (&node, [NODE, NODE_V6, NODE_LINK_LOCAL]);
        let of_router = (&router, [ROUTER, ROUTER_V6, ROUTER_LINK_LOCAL]);
        for (machine, [v4, v6, link_local]) in [of_node, of_router] {
            machine.ip("link set eth0 up");
            machine.ip(&format!("addr add {v4}/24 dev eth0"));
            // `nodad`: an address that is being checked cannot be used for about a second.
            machine.ip(&format!("addr add {v6}/64 dev eth0 nodad"));
            machine.ip(&format!("addr add {link_local}/64 dev eth0 nodad"));
        }
        Self { node, router }
    }
}
