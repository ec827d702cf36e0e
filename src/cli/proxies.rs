//! The built-in proxies of a process: their limits, counters, access log, and the driver of each. The agent and
//! `bowline up` use it.

use super::memory;
use super::proxy::ProxyFlags;
use bowline_drivers::builtin::Builtin;
use bowline_proxy::{AccessLog, Exposition, Limits, Options, Proxy, raise_descriptors};
use bowline_runtime::metrics::Metrics;
use std::convert::Infallible;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

/// A proxy with fewer places than this gets a warning.
const FEW: usize = 1_000;

/// Starts the proxies of a process. They share the access log.
#[derive(Clone)]
pub(super) struct Proxies {
    options: Options,
    exposition: Exposition,
}

impl Proxies {
    /// The proxies of this process; their counters are added to `metrics`. Called once, since it raises the
    /// process's limit of open files. The folder `state` holds the kept state. It returns a result because a build
    /// without the feature `proxy` has an error here.
    pub(super) fn new(
        flags: ProxyFlags,
        metrics: &Metrics,
        state: Option<&Path>,
    ) -> Result<Self, Infallible> {
        let descriptors = raise_descriptors();
        let left = || memory::limit().map(|memory| memory::beside(memory, state));
        let memory = flags.memory.or_else(left);
        let limits = Limits::within(descriptors, memory);
        if limits.connections < FEW {
            tracing::warn!(
                descriptors,
                memory,
                connections = limits.connections,
                "this process may open few files, or has little memory, so few clients are served at once: \
                 raise the limit of open files, or give it more memory"
            );
        } else {
            let connections = limits.connections;
            tracing::info!(descriptors, memory, connections, "the proxy's limits");
        }
        let access_log = flags.wants_access_log().then(access_log);
        let options = Options { access_log, limits, ..Options::default() };
        let exposition = Exposition::default();
        metrics.register(|registry| registry.register_collector(Box::new(exposition.clone())));
        Ok(Self { options, exposition })
    }

    /// The driver of a new proxy, whose counters have the name of its load balancer.
    pub(super) fn driver(&self, load_balancer: &str) -> Builtin {
        let proxy = Proxy::new(self.options.clone());
        self.exposition.add(load_balancer, &proxy);
        Builtin::new(Arc::new(proxy))
    }
}

/// The most lines that wait to be printed: those of a second of heavy traffic.
const WAITING: usize = 65_536;

/// The reader of the log may be slow, but traffic must not wait: lines go to a thread of their own, and are lost
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
