//! The agent of one load balancer: follows its Plans, the EndpointSlices and its Secrets, and keeps a driver in step.
//! It decides nothing and writes nothing to the API but its Lease. While the API is away, it goes on serving what it
//! knows; with a state folder it does so also after a restart. `bowline agent` and `bowline up` start it.
//!
//! ```text
//!  watches ─▶ channel ─▶ resolver ─▶ update ─▶ driver ─▶ report ─▶ Lease
//!             (events that arrive while the driver works become the next update)
//! ```

mod deletions;
mod kept_service;
mod memory;
mod missing_load_balancer;
mod once;
mod open;
mod other_load_balancers;
mod plans;
mod reporter;
mod secrets;
mod state_folder;
mod tally;
mod watches;

pub use once::once;

use crate::clock;
use crate::metrics::Phase;
use crate::observe::Change;
use crate::random;
use crate::roles::{AgentOptions, Context, RoleError};
use crate::supervise::Keeper;
use bowline_core::backoff::Backoff;
use bowline_core::clock::in_words;
use bowline_core::hash::PlanHash;
use bowline_core::kept_state;
use bowline_core::member_rules::MemberRules;
use bowline_core::outcome::{Problem, Reason};
use bowline_core::pool_health::{self, Health};
use bowline_core::replicas::Said;
use bowline_core::report::Unlisted;
use bowline_core::resolver::{Event, Resolver};
use bowline_core::update::{Extent, Refusal, Update};
use bowline_drivers::Driver;
use kube::Client;
use memory::{Due, Memory};
use reporter::Reporter;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tally::Tally;
use tokio::sync::{self, mpsc};

/// The most events that are read before the driver gets its turn.
const BURST: usize = 16_384;

/// How long the release of the Lease may take.
const RELEASE: Duration = Duration::from_secs(2);
/// How long a certificate that the plan names may be missing before the agent reports it.
const LACKING: Duration = Duration::from_secs(3);

/// An event, and when it arrived.
#[derive(Debug)]
struct Heard {
    at: Instant,
    event: Event,
    /// The uid of the LoadBalancer object that a Plan belongs to.
    owner: Option<Box<str>>,
}

impl Heard {
    fn now(event: Event) -> Self {
        Self { at: Instant::now(), event, owner: None }
    }
}

/// Runs an agent until the context is stopped; work under way may then end within the grace. The process is not ready
/// from this call on, even before the future is first polled.
pub fn run<D: Driver>(
    client: Client,
    options: AgentOptions,
    driver: D,
    context: Context,
) -> impl Future<Output = Result<(), RoleError>> + Send {
    let first_plan = format!("the first plan of load balancer {}", options.load_balancer);
    context.readiness.awaits(first_plan.as_str());
    serve(client, options, driver, context, first_plan)
}

async fn serve<D: Driver>(
    client: Client,
    options: AgentOptions,
    driver: D,
    context: Context,
    first_plan: String,
) -> Result<(), RoleError> {
    let mut tasks = Keeper::new(&context);
    // It outlives the tasks: one that cannot send any more would count as ended by itself.
    let (sender, mut heard) = mpsc::channel(4096);
    let first = Said {
        addresses: options.addresses.clone(),
        version: Some(options.version.as_str().into()),
        admin: context.admin.and_then(|at| reached(at, &options)),
        node: options.node.as_deref().map(Into::into),
        ..Said::default()
    };
    let (report, reports) = sync::watch::channel(first);
    let (memory, identity) = Memory::open(&options, &context.metrics).await;
    let recalled = memory.kept().is_some();
    watches::follow(&client, &options, &context, &sender, &mut tasks, recalled);
    let identity = identity.unwrap_or_else(|| options.identity.clone());
    let place = Arc::new(context.agents.add(&identity, &options.load_balancer, reports.clone()));
    context.metrics.agent(&options.load_balancer, &identity);
    let reporter = Reporter::new(
        client.clone(),
        &options.namespace,
        &options.load_balancer,
        identity,
        context.metrics.clone(),
        memory.contact(),
    );
    let reports_in = reporter.clone();
    tasks.keep(format!("the report of load balancer {}", options.load_balancer), move |works| {
        reports_in.clone().run(reports.clone(), place.clone(), works)
    });
    let (open, opened) = sync::watch::channel(None);
    let hears = Arc::<AtomicBool>::default();
    let heard_by = hears.clone();
    if let Some(folder) = options.sockets.clone() {
        let name: Arc<str> = options.load_balancer.as_str().into();
        tasks.keep(format!("what is open of load balancer {name}"), move |works| {
            works.now();
            open::tell(folder.clone(), name.clone(), opened.clone(), heard_by.clone())
        });
    }
    let resolver = Resolver::with(options.members.clone()).bounded(driver.most_listeners());
    let mut agent = Agent {
        client,
        context: context.clone(),
        driver,
        resolver,
        rules: options.members.clone(),
        memory,
        tally: Tally::default(),
        health: Health::default(),
        report,
        open,
        hears,
        parting: options.parting,
        parted: None,
        follows_nodes: false,
        backoff: Backoff::new(Duration::from_millis(100), Duration::from_secs(30)),
        wrong: None,
        failed: None,
        owes_all: false,
        broken: BTreeSet::new(),
        said: bowline_core::update::Report::default(),
        given: None,
        lacking: None,
        load_balancer: options.load_balancer.clone(),
        first_plan,
    };
    let worked = agent.work(&mut heard, sender, &mut tasks).await;
    // Before the tasks have ended: after that another agent may already count under this name.
    context.metrics.forget(&options.load_balancer);
    tasks.shutdown().await;
    agent.context.readiness.reached(&agent.first_plan);
    agent.forget_kept();
    let served = agent.served();
    agent.memory.end(|| served).await;
    // The release is a courtesy to others: traffic does not wait for it, and it must not take long.
    let last = agent.report.borrow().clone();
    let release = tokio::time::timeout(RELEASE, reporter.release(&last));
    let ((), released) = tokio::join!(agent.driver.drain(options.grace), release);
    // With a state folder the next start may serve the same again before it hears from the API. While the API does not
    // answer, a container that restarts in the same Pod needs the kept state.
    let told_to_end = worked.is_ok() && released == Ok(true) && options.state_ends_with_pod;
    let keeps = || options.state.is_some() && !(told_to_end && agent.memory.forget());
    if !agent.driver.serves_on() && !keeps() {
        let _ = tokio::time::timeout(RELEASE, reporter.ended(&last)).await;
    }
    worked
}

/// Where other machines reach the admin endpoint. On all addresses of the machine: at one at which the agent listens or
/// that it reports. None: no such address is known.
fn reached(admin: SocketAddr, options: &AgentOptions) -> Option<SocketAddr> {
    if !admin.ip().is_unspecified() {
        return Some(admin);
    }
    let own = options.members.here.iter().chain(&options.addresses);
    let mut own = own.filter(|it| admin.is_ipv6() || it.is_ipv4());
    own.next().map(|it| SocketAddr::new(*it, admin.port()))
}

struct Agent<D> {
    client: Client,
    context: Context,
    driver: D,
    resolver: Resolver,
    /// Which members get no traffic.
    rules: MemberRules,
    memory: Memory,
    tally: Tally,
    /// Pools without a member that answers.
    health: Health,
    report: sync::watch::Sender<Said>,
    /// What the speaker of the node is told.
    open: sync::watch::Sender<open::Addresses>,
    /// Whether a speaker hears it.
    hears: Arc<AtomicBool>,
    parting: Duration,
    /// When the agent waited last for the speaker to withdraw.
    parted: Option<Instant>,
    follows_nodes: bool,
    backoff: Backoff,
    /// Why a Plan is refused as a whole, as it was last told.
    wrong: Option<Box<str>>,
    /// Why the driver failed last. None: its last call worked.
    failed: Option<String>,
    /// Whether the driver lacks something that the resolver has already handed out, so that it needs a complete update.
    owes_all: bool,
    /// Names of tasks that ended by themselves and do not work again yet.
    broken: BTreeSet<String>,
    /// The last report of the driver.
    said: bowline_core::update::Report,
    /// The hash of the plan that the driver was given last, in force or not.
    given: Option<PlanHash>,
    /// Certificates that the plan names are missing: when to report that, and whether it was reported.
    lacking: Option<(Instant, bool)>,
    load_balancer: String,
    /// The name under which readiness waits for the first plan.
    first_plan: String,
}

impl<D: Driver> Agent<D> {
    async fn work(
        &mut self,
        heard: &mut mpsc::Receiver<Heard>,
        sender: mpsc::Sender<Heard>,
        tasks: &mut Keeper,
    ) -> Result<(), RoleError> {
        let context = self.context.clone();
        let mut broken = tasks.broken();
        let mut batch = Vec::new();
        // When the oldest event arrived that the driver has not been given yet.
        let mut waiting: Option<Instant> = None;
        let mut retry: Option<Instant> = None;
        loop {
            let again = async {
                match retry {
                    Some(at) => tokio::time::sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            let healthy = self.broken.is_empty();
            let behind = self.resolver.is_behind() && self.resolver.synced() && retry.is_none();
            let lacks = self.lacking.filter(|(_, told)| !told).map(|(at, _)| at);
            let lacking = async {
                match lacks {
                    Some(at) => tokio::time::sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            let health_at = self.health.wake_at();
            let health = async {
                match health_at {
                    Some(at) => tokio::time::sleep(at.saturating_sub(clock::now())).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = context.stopped() => return Ok(()),
                _ = heard.recv_many(&mut batch, BURST) => {}
                () = again => retry = None,
                () = lacking => self.tell_lacking(),
                () = health => {
                    if self.health.take(clock::now()) {
                        self.reported(self.said.clone());
                    }
                }
                due = self.memory.due(healthy) => match due {
                    Due::Serve => self.serve_kept().await?,
                    Due::Withdraw => self.withdraw_kept().await?,
                    Due::Save => {
                        let served = self.served();
                        self.memory.save(served);
                    }
                },
                Ok(()) = broken.changed() => {
                    self.broken.clone_from(&broken.borrow_and_update());
                    self.tell_error();
                }
                report = self.driver.changed() => self.reported(report.map_err(RoleError::Driver)?),
                // The resolver has more updates. Last, so that nothing above waits for a tenant that changes very much.
                () = std::future::ready(()), if behind => {}
            }
            self.context.metrics.queue(&self.load_balancer, batch.len() + heard.len());
            let first = batch.first().map(|first| first.at);
            waiting = waiting.or(first);
            let begun = Instant::now();
            if batch.iter().any(|heard| kept_state::is_answer(&heard.event)) {
                self.memory.tell(kept_state::Event::Answered);
            }
            for Heard { event, owner, .. } in batch.drain(..) {
                if let Some(uid) = owner {
                    self.memory.owned(&uid);
                }
                if event == Event::Hold(true) && !self.resolver.synced() {
                    self.memory.tell(kept_state::Event::Incomplete);
                }
                self.resolver.handle(event);
            }
            self.tell_refused();
            if first.is_some() {
                self.context.metrics.took(Phase::Resolve, begun.elapsed());
            }
            self.follow_nodes(&sender, tasks);
            if !self.resolver.synced() || retry.is_some() {
                continue;
            }
            if let Some(wait) = self.apply().await? {
                retry = Some(Instant::now() + wait);
                continue;
            }
            self.tell_ready();
            if let Some(at) = waiting.take() {
                self.context.metrics.applied_after(at.elapsed());
            }
            self.context.metrics.queue(&self.load_balancer, heard.len());
        }
    }

    /// Tells that a Plan is refused as a whole, or not any more. Meanwhile the agent is not ready.
    fn tell_refused(&mut self) {
        let wrong = self.resolver.refused();
        if self.wrong.as_deref() == wrong {
            return;
        }
        self.wrong = wrong.map(Into::into);
        match &self.wrong {
            Some(wrong) => {
                tracing::error!("{wrong}");
                self.context.changes.tell(Change::Trouble(wrong.to_string()));
                self.context.readiness.awaits(self.first_plan.as_str());
            }
            None => {
                let text = format!(
                    "the agent refuses no Plan of load balancer {} any more",
                    self.load_balancer
                );
                tracing::info!("{text}");
                self.context.changes.tell(Change::Works(text));
            }
        }
        self.tell_error();
    }

    /// The agent is ready when the driver has a plan in force, of which nothing is refused as a whole.
    fn tell_ready(&self) {
        if self.given.is_some() && !self.said.waiting && self.wrong.is_none() {
            self.context.readiness.reached(&self.first_plan);
        }
    }

    /// Follows Nodes once some pool has them as members, and not before: Nodes are many and change often.
    fn follow_nodes(&mut self, sender: &mpsc::Sender<Heard>, tasks: &mut Keeper) {
        if self.follows_nodes || !self.resolver.needs_nodes() {
            return;
        }
        self.follows_nodes = true;
        watches::follow_nodes(&self.client, &self.load_balancer, &self.context, sender, tasks);
    }

    /// Gives the driver the difference. `Some`: the driver failed, and this is how long to wait. An error: a retry does
    /// not help, so the agent ends rather than report for this driver.
    async fn apply(&mut self) -> Result<Option<Duration>, RoleError> {
        let metrics = self.context.metrics.clone();
        if let Some(kept) = self.memory.kept() {
            self.resolver.recall(&kept.update);
        }
        let mut update = metrics.time(Phase::Diff, || self.resolver.take());
        for event in update.iter().flat_map(|update| self.resolver.pools_of(update)) {
            self.health.handle(event, clock::now());
        }
        if self.owes_all {
            update = Some(self.resolver.snapshot());
        }
        let left_out = self.resolver.take_left_out_changed();
        let Some(mut update) = update else {
            if left_out {
                self.reported(self.said.clone());
            }
            return Ok(None);
        };
        // Secrets may come late, or never. Until then the certificates from before a restart stay in use.
        if update.complete {
            self.memory.complete(&mut update, self.resolver.missing_certificates());
        }
        self.part(&update).await;
        let begun = Instant::now();
        let result = self.driver.apply(&update).await;
        metrics.took(Phase::Apply, begun.elapsed());
        match result {
            Ok(report) => {
                (self.failed, self.owes_all) = (None, false);
                self.backoff.worked();
                if self.memory.replaced() {
                    tracing::info!("the API has delivered everything: the kept state is replaced");
                    self.forget_kept();
                }
                if update.complete || !update.sites.is_empty() || !update.certificates.is_empty() {
                    self.look_for_certificates();
                }
                self.applied(&update, report);
                Ok(None)
            }
            Err(error) if !error.retry => Err(RoleError::Driver(error)),
            Err(error) => {
                // Kept state may be served before the next try, so the driver then needs a complete update.
                (self.failed, self.owes_all) = (Some(error.to_string()), true);
                metrics.error("Apply");
                let wait = self.backoff.failed(random::number());
                tracing::warn!(%error, wait = %in_words(wait), "the driver failed; it gets the complete update again");
                self.context.changes.tell(Change::Trouble(error.to_string()));
                self.tell_error();
                Ok(Some(wait))
            }
        }
    }

    /// Lets the speaker withdraw the addresses that this update takes away before their listeners close. Other changes wait
    /// meanwhile, so it does not happen again at once: addresses that come and go all the time hold up no other change.
    async fn part(&mut self, update: &Update) {
        let soon = |at: Instant| at.elapsed() < self.parting * 8;
        if !self.hears.load(Ordering::Relaxed) || self.parted.is_some_and(soon) {
            return;
        }
        let leaving = self.tally.leaving(update);
        let said = self.open.borrow().clone();
        let Some(said) = said.filter(|_| !leaving.is_empty()) else { return };
        let mut now = (*said).clone();
        for address in &leaving {
            if let Some(listening) = now.get_mut(address) {
                listening.open = false;
            }
        }
        self.open.send_replace(Some(now.into()));
        tokio::time::sleep(self.parting).await;
        self.parted = Some(Instant::now());
    }

    /// All that is served, with the kept certificates that the API has not delivered yet.
    fn served(&self) -> Update {
        let mut update = self.resolver.snapshot();
        self.memory.complete(&mut update, self.resolver.missing_certificates());
        update
    }

    /// What is wrong with the agent as a whole.
    fn error(&self) -> Option<String> {
        let broken = || {
            let all: Vec<_> = self.broken.iter().map(String::as_str).collect();
            let all = all.join(", ");
            format!("{all}: ended by itself and is restarted; what is served may be out of date")
        };
        let wrong = self.wrong.as_deref().map(str::to_owned);
        let failed = wrong.or_else(|| self.said.trouble.clone()).or_else(|| self.failed.clone());
        failed.or_else(|| (!self.broken.is_empty()).then(broken))
    }

    fn tell_error(&self) {
        let error = self.error();
        self.report.send_if_modified(|report| {
            let different = report.error != error;
            report.error = error;
            different
        });
    }

    /// Remembers when missing certificates must be reported: a short wait for them is common.
    fn look_for_certificates(&mut self) {
        let lacks = self.resolver.missing_certificates().next().is_some();
        self.lacking = match self.lacking {
            _ if !lacks => None,
            Some(since) => Some(since),
            None => Some((Instant::now() + LACKING, false)),
        };
    }

    /// Reports certificates that have been missing for too long.
    fn tell_lacking(&mut self) {
        if let Some((_, told)) = &mut self.lacking {
            *told = true;
        }
        self.reported(self.said.clone());
    }

    /// The driver reports something else about what it was given before.
    fn reported(&mut self, report: bowline_core::update::Report) {
        let (failing, before) = (&report.failing, &mut self.said.failing);
        if failing != before && self.given.is_some() {
            self.health.handle(pool_health::Event::Failing(failing.clone()), clock::now());
            before.clone_from(failing);
            // Health waits before it reports, so most of the time there is nothing else to do.
            if report == self.said && !self.health.take(clock::now()) {
                return;
            }
        }
        // Without a plan nothing is in force.
        if let Some(hash) = self.given {
            self.applied(&Update { hash, ..Update::default() }, report);
        }
    }

    fn applied(&mut self, update: &Update, said: bowline_core::update::Report) {
        if said.failing != self.said.failing {
            self.health.handle(pool_health::Event::Failing(said.failing.clone()), clock::now());
        }
        // What is due is a part of this report.
        self.health.take(clock::now());
        let report = self.with_own(&said);
        (self.said, self.given) = (said, Some(update.hash));
        let changes = self.tally.count(update, &report);
        self.context.metrics.members(&self.load_balancer, self.tally.members());
        for change in changes {
            tracing::debug!(%change);
            if let Change::Refused { problem, .. } = &change {
                self.context.metrics.error(problem.reason.to_string());
            }
            self.context.changes.tell(change);
        }
        // While a reload waits, what was open before is.
        if !self.said.waiting {
            let now = self.tally.addresses();
            self.open.send_if_modified(|open| {
                let same =
                    open.as_ref().is_some_and(|before| Arc::ptr_eq(before, now) || before == now);
                *open = Some(now.clone());
                !same
            });
        }
        let (said, error) = (&self.said, self.error());
        self.report.send_if_modified(|before| {
            let now = Said {
                hash: said.in_force(before.hash, update.hash),
                error,
                refused: report.refused,
                unlisted: Unlisted::default(),
                addresses: before.addresses.clone(),
                kept_since: self.memory.since(),
                version: before.version.clone(),
                admin: before.admin,
                node: before.node.clone(),
            };
            let different = *before != now;
            *before = now;
            different
        });
        self.tell_ready();
    }

    /// The driver's report with the agent's own refusals: rules that another consumer has, members that get no traffic,
    /// listeners that have no room, and certificates that have been missing for too long.
    fn with_own(&self, said: &bowline_core::update::Report) -> bowline_core::update::Report {
        let mut report = said.clone();
        report.refused.extend(self.resolver.unserved());
        report.refused.extend(self.resolver.left_out());
        report.refused.extend(self.health.refusals().cloned());
        if self.lacking.is_some_and(|(_, told)| told) {
            report.refused.extend(self.resolver.uncertified().map(|(host, consumer)| {
                let message = format!(
                    "the certificate of {host} has not reached the agent; handshakes for this host fail, or use \
                     the previous certificate"
                );
                let problem = Problem::new(Reason::SecretNotFound, message);
                Refusal { consumer: consumer.clone(), problem, extent: Extent::Part }
            }));
        }
        report.refused.sort();
        report.refused.dedup();
        report
    }
}
