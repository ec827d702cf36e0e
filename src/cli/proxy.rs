//! The built-in proxy as commands start it: its flags, its counters, its access log.

use super::memory;
use bowline_proxy::{AccessLog, Exposition, Limits, Options, Proxy, raise_descriptors};
use bowline_runtime::metrics::Metrics;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

/// A proxy with fewer places than this is worth a warning.
const FEW: usize = 1_000;

/// How the proxy behaves.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct ProxyFlags {
    /// Print a line for every request to standard output
    #[arg(long)]
    access_log: bool,

    /// Memory that the built-in proxy may count on, such as 512Mi, instead of what the cgroup or the machine has
    #[arg(long, value_name = "SIZE", value_parser = memory::size, hide = true)]
    memory: Option<u64>,
}

impl ProxyFlags {
    /// Whether a line is to be printed for every request.
    pub(super) fn wants_access_log(self) -> bool {
        self.access_log
    }

    /// The proxies of this process; what they count is shown among `metrics`. Called once: the process may
    /// open as many files as it can get from now on. What it serves is kept in the folder `state`.
    pub(super) fn proxies(self, metrics: &Metrics, state: Option<&Path>) -> Proxies {
        let descriptors = raise_descriptors();
        let left = || memory::limit().map(|memory| memory::beside(memory, state));
        let memory = self.memory.or_else(left);
        let limits = Limits::within(descriptors, memory);
        if limits.connections < FEW {
            tracing::warn!(
                descriptors,
                memory,
                connections = limits.connections,
                "this process may open few files, or has little memory, so few clients are served at once: raise its limit"
            );
        } else {
            let connections = limits.connections;
            tracing::info!(descriptors, memory, connections, "the proxy's limits");
        }
        let access_log = self.access_log.then(access_log);
        let options = Options { access_log, limits, ..Options::default() };
        let exposition = Exposition::default();
        metrics.register(|registry| registry.register_collector(Box::new(exposition.clone())));
        Proxies { options, exposition }
    }
}

/// Starts the proxies of a process. They share the access log.
#[derive(Clone)]
pub(super) struct Proxies {
    options: Options,
    exposition: Exposition,
}

impl Proxies {
    /// A proxy that counts by the name of its load balancer.
    pub(super) fn start(&self, load_balancer: &str) -> Arc<Proxy> {
        let proxy = Proxy::new(self.options.clone());
        self.exposition.add(load_balancer, &proxy);
        Arc::new(proxy)
    }
}

/// Lines that wait to be printed: what a second of heavy traffic brings.
const WAITING: usize = 65_536;

/// Printing may wait for whoever reads, traffic may not: lines go to a thread of their own, and are lost
/// when it cannot keep up.
fn access_log() -> AccessLog {
    let (lines, waiting): (SyncSender<String>, _) = sync_channel(WAITING);
    std::thread::spawn(move || {
        let mut out = std::io::stdout();
        for line in waiting {
            if writeln!(out, "{line}").is_err() {
                return;
            }
        }
    });
    AccessLog::new(move |line| drop(lines.try_send(line.to_owned())))
}
