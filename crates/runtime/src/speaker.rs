//! The speaker of one node: follows Addresses, Advertisements, BGPPeers and what says where addresses are served, and
//! has its announcer announce what `core::announce` decides. It writes nothing to the API but its Lease. While the API
//! is away, it goes on announcing what it knows. `bowline speaker` and `bowline up --speaker` start it.
//!
//! ```text
//!  watches, agents' socket, health checks ─▶ channel ─▶ Announcements ─▶ effects ─▶ Announcer ─▶ network
//!                                                                                      │
//!                                                        Lease ◀── reporter ◀── report ┘
//! ```

mod agents;
mod announcer;
mod bgp;
mod health;
mod metrics;
mod reporter;
mod watches;

pub use announcer::{Announcer, Ending};
pub use bgp::Routers;

use crate::roles::{Context, RoleError};
use crate::supervise::Keeper;
use bowline_core::announce::{Announcements, Effect, Event};
use bowline_core::report::speaker::SpeakerReport;
use health::Checks;
use kube::Client;
use metrics::Gauges;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// The most events that are read before the announcer gets its turn.
const BURST: usize = 16_384;
/// How long after the first complete view agents have time to say what is open, before routers that kept routes are
/// told to forget the others.
const AGENTS_COME: Duration = Duration::from_secs(3);
/// How long the last report may take.
const RELEASE: Duration = Duration::from_secs(2);
/// The least time between two reports.
const PAUSE: Duration = Duration::from_millis(200);

/// How a speaker is started.
#[derive(Clone, Debug)]
pub struct SpeakerOptions {
    /// The node that it announces from: the name of its Node object, where there is one.
    pub node: String,
    /// Bowline's own namespace.
    pub namespace: String,
    /// The version of this program, as the speaker's Lease tells it.
    pub version: String,
    /// How long it waits between withdrawing and its end, where it withdraws.
    pub grace: Duration,
    /// The folder of the socket at which agents say what is open. None: it has no socket.
    pub folder: Option<PathBuf>,
    /// Whether its end means that the node leaves: all is withdrawn. Otherwise routers keep the routes for the next
    /// speaker, unless the Node object says that the node leaves.
    pub leaves: bool,
}

/// What the speaker hears.
#[derive(Debug)]
enum Heard {
    /// An event for the machine.
    Event(Event),
    /// A password of a BGPPeer, by the name of its Secret. None: it is gone.
    Password(Arc<str>, Option<Vec<u8>>),
}

/// Runs a speaker until the context is stopped. The process is not ready before the first complete view.
pub async fn run<A: Announcer>(
    client: Client,
    options: SpeakerOptions,
    announcer: A,
    context: Context,
) -> Result<(), RoleError> {
    let first_view = "the first view of addresses to announce";
    context.readiness.awaits(first_view);
    let mut tasks = Keeper::new(&context);
    let (sender, mut heard) = mpsc::channel(4096);
    watches::follow(&client, &options, &context, &sender, &mut tasks);
    if let Some(folder) = &options.folder {
        agents::listen(folder.clone(), sender.clone(), &mut tasks);
    }
    let node: Arc<str> = options.node.as_str().into();
    let first =
        SpeakerReport::new(node.clone(), options.version.as_str().into(), BTreeMap::new(), [], []);
    let (report, reports) = watch::channel(first);
    let reporter = reporter::Reporter::new(client, &options, context.metrics.clone());
    let reports_in = reporter.clone();
    tasks.keep("the report of the speaker", move |works| {
        reports_in.clone().run(reports.clone(), works)
    });
    let mut speaker = Speaker {
        machine: Announcements::new(node.clone()),
        announcer,
        checks: Checks::new(sender),
        report,
        version: options.version.as_str().into(),
        node,
        gauges: Gauges::new(&context.metrics),
        completes: None,
        reports_at: None,
    };
    let mut batch = Vec::new();
    let mut is_ready = false;
    loop {
        let due = speaker.due();
        let due = async {
            match due {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            count = heard.recv_many(&mut batch, BURST) => {
                if count == 0 {
                    return Err(RoleError::Ended("the watches of the speaker"));
                }
                speaker.hear(batch.drain(..));
            }
            () = speaker.announcer.changed() => speaker.report_soon(),
            () = due => speaker.at_last(),
            () = context.stopped() => break,
        }
        if !is_ready && speaker.machine.is_synced() {
            is_ready = true;
            speaker.gauges.synced();
            speaker.report_soon();
            context.readiness.reached(first_view);
        }
    }
    context.readiness.reached(first_view);
    tasks.shutdown().await;
    speaker.end(&options, reporter).await;
    Ok(())
}

struct Speaker<A> {
    machine: Announcements,
    announcer: A,
    checks: Checks,
    report: watch::Sender<SpeakerReport>,
    version: Arc<str>,
    node: Arc<str>,
    gauges: Gauges,
    /// When to tell routers that everything is announced.
    completes: Option<Instant>,
    /// When to report.
    reports_at: Option<Instant>,
}

impl<A: Announcer> Speaker<A> {
    fn hear(&mut self, batch: impl Iterator<Item = Heard>) {
        for heard in batch {
            match heard {
                Heard::Event(event) => {
                    if matches!(event, Event::Agent(..)) {
                        self.report_soon();
                    }
                    self.machine.handle(event);
                }
                Heard::Password(secret, password) => self.announcer.password(secret, password),
            }
        }
        let mut effects = self.machine.take();
        let before = effects.len();
        effects.retain(|effect| *effect != Effect::Complete);
        if effects.len() < before {
            self.completes = Some(Instant::now() + AGENTS_COME);
        }
        for effect in &effects {
            if let Effect::Check(service, port) = effect {
                self.checks.set(service.clone(), *port);
            }
        }
        if !effects.is_empty() {
            self.announcer.carry_out(effects);
            self.report_soon();
        }
    }

    fn report_soon(&mut self) {
        self.reports_at.get_or_insert_with(|| Instant::now() + PAUSE);
    }

    /// When the next thing is due.
    fn due(&self) -> Option<Instant> {
        self.completes.into_iter().chain(self.reports_at).min()
    }

    fn at_last(&mut self) {
        let now = Instant::now();
        if self.completes.take_if(|at| *at <= now).is_some() {
            self.announcer.carry_out(vec![Effect::Complete]);
        }
        if self.reports_at.take_if(|at| *at <= now).is_some() {
            let now = SpeakerReport::new(
                self.node.clone(),
                self.version.clone(),
                self.announcer.sessions(),
                self.machine.told(),
                self.announcer.owned(),
            )
            .hearing(self.machine.agents().cloned());
            self.gauges.show(&now);
            self.report.send_if_modified(|report| {
                let changed = *report != now;
                *report = now;
                changed
            });
        }
    }

    /// A speaker that only makes place for the next one leaves the routes with the routers.
    async fn end(mut self, options: &SpeakerOptions, reporter: reporter::Reporter) {
        let leaves = options.leaves || self.machine.leaves();
        if leaves {
            self.machine.handle(Event::Leave);
            let effects = self.machine.take();
            if !effects.is_empty() {
                self.announcer.carry_out(effects);
                tracing::info!(grace = ?options.grace, "withdrawn; waiting until traffic has gone");
                tokio::time::sleep(options.grace).await;
            }
        }
        let ending = if leaves { Ending::Leave } else { Ending::Upgrade };
        self.announcer.stop(ending).await;
        if leaves {
            let _ = tokio::time::timeout(RELEASE, reporter.release()).await;
        }
    }
}
