//! Which members get no traffic: the flag, and the addresses of this process, which must not be
//! members.

use bowline_core::member_rules::{MemberRules, network};
use bowline_runtime::templates::machine_addresses;
use ipnet::IpNet;
use std::net::{IpAddr, SocketAddr};

/// Which members get no traffic.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Members")]
pub(super) struct MembersFlag {
    /// Send no traffic to members in these networks, separated by commas or repeated; Events tell
    /// their Services. Loopback, link-local and load balancers' addresses are left out without it, too
    #[arg(long, value_name = "CIDR", value_delimiter = ',', value_parser = network)]
    deny_members: Vec<IpNet>,
}

impl MembersFlag {
    /// The networks.
    pub(super) fn networks(&self) -> Vec<IpNet> {
        self.deny_members.clone()
    }

    /// The rules of a process that itself listens at these addresses.
    pub(super) fn rules(&self, listening: &[SocketAddr]) -> MemberRules {
        let machine = machine_addresses().unwrap_or_default().into_iter();
        MemberRules {
            loopback: false,
            denied: self.networks(),
            listening: listening.to_vec(),
            machine: machine.filter(|address: &IpAddr| !address.is_unspecified()).collect(),
            here: Vec::new(),
        }
    }
}
