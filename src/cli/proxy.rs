//! Flags of the built-in proxy. The access log is a matter of every proxy.

#[cfg(feature = "proxy")]
use super::memory;

/// How the proxy behaves.
#[derive(Clone, Copy, Debug, clap::Args)]
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
    /// Whether a line is to be printed for every request.
    pub(super) fn wants_access_log(self) -> bool {
        self.access_log
    }
}
