//! Two machines and the link between them: network namespaces, which end with the test.

use bowline_testing::Machine;

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
            machine.ip(&format!("addr add {v4}/24 dev eth0"));
            // `nodad`: an address that is being checked cannot be used for about a second.
            machine.ip(&format!("addr add {v6}/64 dev eth0 nodad"));
            machine.ip(&format!("addr add {link_local}/64 dev eth0 nodad"));
        }
        Self { node, router }
    }
}
