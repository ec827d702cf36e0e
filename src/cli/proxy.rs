//! The built-in proxy as commands start it: its flags, its counters, its access log.

use bowline_proxy::{AccessLog, Options, Proxy};
use bowline_runtime::metrics::Metrics;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

/// How the proxy behaves.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct ProxyFlags {
    /// Print a line for every request to standard output
    #[arg(long)]
    access_log: bool,
}

impl ProxyFlags {
    /// How proxies of this process behave. Called once: they share the access log.
    pub(super) fn options(self) -> Options {
        Options { access_log: self.access_log.then(access_log), ..Options::default() }
    }
}

/// A proxy whose counters are shown among `metrics`, by the name of its load balancer.
pub(super) fn start(options: Options, metrics: &Metrics, load_balancer: &str) -> Arc<Proxy> {
    let proxy = Arc::new(Proxy::new(options));
    metrics.register(|registry| {
        let label = ("load_balancer".into(), load_balancer.to_owned().into());
        proxy.register(registry.sub_registry_with_label(label));
    });
    proxy
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
