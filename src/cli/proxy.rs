//! Flags of proxies. Only the access log is for every proxy; the other flags are for the built-in one.

#[cfg(feature = "proxy")]
use super::memory;

/// How the proxy behaves.
#[derive(Clone, Copy, Debug, clap::Args)]
#[command(next_help_heading = "Proxy")]
pub(super) struct ProxyFlags {
    /// Print a line for every request to standard output
    #[arg(long)]
    access_log: bool,

    /// Memory that the built-in proxy may count on, such as 512Mi, instead of what the cgroup or the machine has
    #[cfg(feature = "proxy")]
    #[arg(long, value_name = "SIZE", value_parser = memory::size, hide = true)]
    pub(super) memory: Option<u64>,
}

impl ProxyFlags {
    /// Whether to print a line for every request.
    pub(super) fn wants_access_log(self) -> bool {
        self.access_log
    }
}
