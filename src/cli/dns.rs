//! The flags of DNS look-ups: which servers to ask, and how often. The commands that run a controller
//! share them.

use anyhow::Context as _;
use bowline_core::dns::Config;
use bowline_runtime::dns::{DnsOptions, parse_server, system_servers};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Addresses and names")]
pub(super) struct DnsFlags {
    /// A DNS server to ask for names of bowline.dev/assign-from-fqdn; several are asked in the
    /// given order [default: those of /etc/resolv.conf]
    #[arg(long = "dns-server", value_name = "ADDR:PORT", value_parser = parse_server)]
    servers: Vec<SocketAddr>,

    /// The least time between two look-ups of a name, whatever its TTL
    #[arg(long = "dns-min-ttl", value_name = "SECONDS", default_value_t = 5)]
    min: u64,

    /// The most time between two look-ups of a name, whatever its TTL
    #[arg(long = "dns-max-ttl", value_name = "SECONDS", default_value_t = 3600)]
    max: u64,
}

impl DnsFlags {
    pub(super) fn options(&self) -> anyhow::Result<DnsOptions> {
        let servers = match self.servers.is_empty() {
            true => system_servers(Path::new("/etc/resolv.conf")),
            false => self.servers.clone(),
        };
        let (min, max) = (Duration::from_secs(self.min), Duration::from_secs(self.max));
        let schedule = Config::new(min, max).context("--dns-min-ttl and --dns-max-ttl")?;
        Ok(DnsOptions { schedule, ..DnsOptions::new(servers) })
    }
}
