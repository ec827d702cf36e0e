//! The built-in data plane: HTTP/1.1, HTTP/2 and WebSocket by pingora, TCP and UDP beside it.
//!
//! It gets [`Update`]s and swaps them in memory: no restart, and a change drops no connection that it
//! does not concern. It knows neither Kubernetes nor files. The built-in driver calls it.
//!
//! ```text
//!  apply(Update) ─▶ state ─▶ listen   binds, releases, accepts
//!                     │         │
//!                     │         ├─▶ tls ─▶ http ─▶ router ─▶ pool ─▶ member
//!                     │         └─▶ tcp, udp ──────────────▶ pool ─▶ member
//!                     └─▶ tables that connections look into: routers, certificates, pools
//! ```

mod descriptors;
mod http;
mod listen;
mod options;
mod places;
mod state;
mod tcp;
mod tls;
mod udp;
mod workers;

pub mod metrics;
pub mod pool;
pub mod proxy_protocol;
pub mod router;

pub use descriptors::raise as raise_descriptors;
pub use metrics::Exposition;
pub use options::{AccessLog, Limits, Options};
pub use places::Places;

use bowline_core::update::{FailingPool, Report, Update};
use state::State;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, watch};

/// Reads bytes as a connection would, and panics if the parsers disagree. Only the fuzzer calls it.
#[cfg(feature = "fuzzing")]
pub fn fuzz_head(bytes: &[u8]) {
    http::fuzz_head(bytes);
}

/// How often addresses that could not be bound are tried again.
const TRY_AGAIN: Duration = Duration::from_secs(2);

/// A running data plane. It serves nothing until it is given an update.
pub struct Proxy {
    state: Arc<Mutex<State>>,
    report: watch::Sender<Report>,
    shared: Arc<state::Shared>,
}

impl Proxy {
    /// A new proxy; it uses the tokio runtime that it is made in.
    pub fn new(options: Options) -> Self {
        let shared = Arc::new(state::Shared::new(options));
        shared.hall.checks.start();
        let state = Arc::new(Mutex::new(State::new(shared.clone())));
        let report = watch::Sender::new(Report::default());
        let (again, told) = (Arc::downgrade(&state), report.clone());
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(TRY_AGAIN).await;
                let Some(state) = again.upgrade() else { return };
                let mut state = state.lock().await;
                if state.bind_again().await {
                    told.send_replace(state.report().clone());
                }
            }
        });
        Self { state, report, shared }
    }

    /// The limits that it enforces.
    pub fn limits(&self) -> &Limits {
        &self.shared.options.limits
    }

    /// Applies an update and reports what could not be done.
    pub async fn apply(&self, update: &Update) -> Report {
        let mut state = self.state.lock().await;
        state.apply(update).await;
        let report = state.report().clone();
        self.report.send_if_modified(|before| {
            let changed = *before != report;
            before.clone_from(&report);
            changed
        });
        report
    }

    /// What cannot be done now. It also changes between updates: an address that could not be bound is
    /// tried again every two seconds.
    pub fn report(&self) -> watch::Receiver<Report> {
        self.report.subscribe()
    }

    /// The pools with ready members that take no clients now, because they failed or their health checks fail.
    pub fn failing(&self) -> Vec<FailingPool> {
        self.shared.failing.all()
    }

    /// Resolves at each change of [`Self::failing`].
    pub fn failing_changes(&self) -> watch::Receiver<()> {
        self.shared.failing.changes()
    }

    /// Accepts nothing more, and returns when all connections have ended or the grace is over.
    pub async fn drain(&self, grace: Duration) {
        self.state.lock().await.drain(grace).await;
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy").finish_non_exhaustive()
    }
}
