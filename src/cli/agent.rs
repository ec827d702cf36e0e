//! `bowline agent`: follows what is recorded for one load balancer, with the proxy that is built in.

use super::connect::Connect;
use super::proxy::ProxyFlags;
use super::role::{self, AdminFlag, GraceFlag};
use bowline_drivers::builtin::Builtin;
use bowline_runtime::agent;
use bowline_runtime::roles::AgentOptions;
use std::net::IpAddr;

/// Carry the traffic of one load balancer on this machine.
///
/// Follows the Plans of the load balancer and the EndpointSlices, and keeps the built-in proxy in step.
/// When the API goes away, it goes on with what it knows.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bowline agent --load-balancer edge
  bowline agent --load-balancer edge --address 192.0.2.10 --access-log")]
pub(super) struct Agent {
    /// The LoadBalancer whose traffic it carries
    #[arg(long, value_name = "NAME")]
    load_balancer: String,

    /// Address to report for a load balancer without addresses of its own; may be repeated
    #[arg(long = "address", value_name = "IP")]
    addresses: Vec<IpAddr>,

    #[command(flatten)]
    grace: GraceFlag,

    #[command(flatten)]
    proxy: ProxyFlags,

    #[command(flatten)]
    admin: AdminFlag,

    #[command(flatten)]
    connect: Connect,
}

impl Agent {
    pub(super) fn run(self) -> anyhow::Result<()> {
        role::run(self.admin.admin, async |context| {
            let client = self.connect.client().await?;
            let proxy = self.proxy.proxies(&context.metrics).start(&self.load_balancer);
            let options = AgentOptions {
                namespace: self.connect.namespace,
                addresses: self.addresses,
                grace: self.grace.time(),
                ..AgentOptions::new(self.load_balancer)
            };
            Ok(agent::run(client, options, Builtin::new(proxy), context))
        })
    }
}
