//! The controller: hears of everything, lets the planner decide, and while it leads records what was
//! decided: addresses, what cookies are signed with, certificates, Plans, then, once the agent's Lease
//! proves it, status. `bowline controller` and `bowline up` start it. A controller that does not lead hears
//! the same and writes nothing.
//!
//! ```text
//!  watches ─▶ state: planner, what Plans and statuses say ─▶ targets that differ ─▶ writes ─▶ API
//!                ▲                                                                    │
//!                └────────────────────────── answers ◀────────────────────────────────┘
//! ```

mod binding;
mod certificates;
mod inputs;
mod packed;
mod plans;
mod provision;
mod record;
mod render;
mod shown;
mod state;
mod work;
mod writes;

use crate::announcer::{self, Announcements};
use crate::dns::{self, Dns, DnsOptions};
use crate::elect::{self, Leadership, Settings};
use crate::keep::Alarm;
use crate::metrics::Phase;
use crate::observe::Change;
use crate::random;
use crate::roles::{Context, ControllerOptions, RoleError};
use bowline_api::convert::Ground;
use bowline_api::source::{BareMetalType, LoadBalancerSource};
use bowline_core::backoff::Backoff;
use bowline_core::dns::{Event as NameEvent, Name, Report};
use bowline_core::planner::Config;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use inputs::Heard;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, PostParams};
use kube::{Client, Error};
use serde_json::json;
use state::{Next, State, Target, Tried};
use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use work::{Lane, Waiting, Work};
use writes::{Failure, Writer, Written};

/// What the process waits for before it is ready.
const FIRST_PLAN: &str = "the first plan to be written";
/// The most events that are taken in before they are planned.
const BURST: usize = 16_384;
/// How often Leases are checked for their end.
const TICK: Duration = Duration::from_millis(500);
/// After a conflict the watch shows what happened; should it not, we look again.
const CONFLICT: Duration = Duration::from_secs(2);

/// Whether this build can drive load balancers of this source.
pub fn has_driver(source: &LoadBalancerSource) -> bool {
    match source {
        LoadBalancerSource::Builtin(_) | LoadBalancerSource::Template(_) => true,
        LoadBalancerSource::BareMetalLoadBalancer(proxy) => match proxy.type_ {
            BareMetalType::Haproxy | BareMetalType::Nginx => true,
        },
        _ => false,
    }
}

/// Runs a controller until the context says stop. The process is not ready from now on, whenever the
/// future is first asked.
pub fn run(
    client: Client,
    options: ControllerOptions,
    context: Context,
) -> impl Future<Output = Result<(), RoleError>> + Send {
    context.readiness.awaits(FIRST_PLAN);
    decide(client, options, context)
}

async fn decide(
    client: Client,
    options: ControllerOptions,
    context: Context,
) -> Result<(), RoleError> {
    tokio::select! {
        () = context.stopped() => return Ok(()),
        ensured = ensure_namespace(&client, &options.namespace) => ensured?,
    }
    let (sender, heard) = mpsc::channel(4096);
    let mut watches = inputs::follow(&client, &options, &context, &sender);
    drop(sender);
    let shutdown = context.shutdown.clone();
    let settings = Settings::of(&options);
    let mut alarm = Alarm::default();
    let (leadership, election) = if options.election {
        let (leadership, election) = elect::take_part(
            client.clone(),
            &options.namespace,
            &options.identity,
            settings,
            shutdown,
        );
        (leadership, alarm.spawn("the election", election))
    } else {
        let said = elect::publish(client.clone(), options.namespace.clone(), settings, shutdown);
        (Leadership::always(), alarm.spawn("the writer of settings", said))
    };
    let client = elect::guard(&client, &leadership);
    let (announcements, announcing) = announcer::start(
        client.clone(),
        bowline_api::names::MANAGER_CONTROLLER,
        options.identity.clone(),
        context.metrics.clone(),
    );
    let announcing = alarm.spawn("the writer of Events", announcing);
    let dns = options
        .dns
        .clone()
        .unwrap_or_else(|| DnsOptions::new(dns::system_servers(Path::new("/etc/resolv.conf"))));
    let (names, wanted) = mpsc::unbounded_channel();
    let (reports, found) = mpsc::channel(64);
    let resolving = alarm.spawn("the look-up of names", Dns::new(dns)?.run(wanted, reports));
    let config = Config {
        default_class: options.default_class,
        default_load_balancer: options.default_load_balancer.as_deref().map(Into::into),
    };
    let grace = i64::try_from(options.address_grace.as_secs()).unwrap_or(i64::MAX);
    let addresses = bowline_core::addresses::Config { grace };
    let ground = match options.local_ports {
        Some((http_port, https_port)) => Ground::Machine { http_port, https_port },
        None => Ground::Cluster { namespace: options.namespace.clone() },
    };
    let controller = Controller {
        state: State::new(config, addresses).on(ground, options.images, options.deny_members),
        writer: Writer { client, namespace: options.namespace },
        leadership,
        announcements,
        names,
        context,
        writing: FuturesUnordered::new(),
        busy: HashMap::new(),
        work: Work::default(),
        waiting: Waiting::default(),
        backoffs: HashMap::new(),
        led: false,
    };
    // A task that ends by itself has failed in a way that nobody foresaw. A controller without it would
    // be blind or mute and still look alive; it serves nothing, and another one may lead.
    let failed = tokio::select! {
        () = controller.work(heard, found) => None,
        what = alarm.rings() => Some(what),
        Some(ended) = watches.join_next() => {
            tracing::error!(?ended, "a watch has ended");
            Some("a watch")
        }
    };
    watches.shutdown().await;
    announcing.abort();
    resolving.abort();
    // Letting go is a courtesy to the next leader, who else waits for the Lease to end.
    let _ = tokio::time::timeout(Duration::from_secs(3), election).await;
    failed.map_or(Ok(()), |what| Err(RoleError::Ended(what)))
}

/// Our namespace must exist before anything can be recorded in it.
async fn ensure_namespace(client: &Client, name: &str) -> Result<(), RoleError> {
    let api: Api<Namespace> = Api::all(client.clone());
    let refused = |source| RoleError::Api {
        doing: format!("cannot make namespace {name}"),
        source: Box::new(source),
    };
    // In a cluster it comes with the manifests, and we may not be allowed to look at it.
    if !matches!(api.get_opt(name).await, Ok(None)) {
        return Ok(());
    }
    let namespace = serde_json::from_value(json!({"metadata": {"name": name}}))
        .map_err(|error| refused(Error::SerdeError(error)))?;
    match api.create(&PostParams::default(), &namespace).await {
        Ok(_) => Ok(()),
        Err(Error::Api(status)) if status.code == 409 => Ok(()),
        Err(error) => Err(refused(error)),
    }
}

type Ended = (Target, Result<Written, Failure>);

struct Controller {
    state: State,
    writer: Writer,
    leadership: Leadership,
    announcements: Announcements,
    /// Where names are sent that are to be looked up.
    names: mpsc::UnboundedSender<NameEvent>,
    context: Context,
    writing: FuturesUnordered<BoxFuture<'static, Ended>>,
    /// Targets with a write under way, and the version that it replaces.
    busy: HashMap<Target, Tried>,
    /// Targets to be looked at.
    work: Work,
    /// Targets that wait for a time, or after a conflict or an error.
    waiting: Waiting,
    /// By target and, where it has several, by object.
    backoffs: HashMap<(Target, String), Backoff>,
    /// Whether we led when we last looked.
    led: bool,
}

impl Controller {
    async fn work(
        mut self,
        mut heard: mpsc::Receiver<Heard>,
        mut found: mpsc::Receiver<(Name, Report)>,
    ) {
        let context = self.context.clone();
        let mut batch = Vec::new();
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let due = self.waiting.next();
            let timer = async {
                match due {
                    Some(at) => tokio::time::sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = context.stopped() => return,
                heard = heard.recv_many(&mut batch, BURST) => if heard == 0 { return },
                Some(ended) = self.writing.next() => self.ended(ended),
                Some((name, report)) = found.recv() => self.state.found(name, report),
                () = self.leadership.changed() => {}
                _ = tick.tick() => self.state.tick(Instant::now()),
                () = timer => {}
            }
            self.lead();
            let now = Instant::now();
            let begun = (!batch.is_empty()).then_some(now);
            for heard in batch.drain(..) {
                if heard.is_unreadable() {
                    self.context.metrics.error("Unreadable");
                }
                self.release(&heard);
                self.state.hear(heard, now);
            }
            while let Some(target) = self.waiting.due(now) {
                self.state.dirty.insert(target);
            }
            if !self.state.is_complete() {
                continue;
            }
            self.state.at(Timestamp::now(), self.led);
            self.state.settle(now);
            if let Some(begun) = begun {
                self.context.metrics.took(Phase::Plan, begun.elapsed());
            }
            for event in self.state.look() {
                // Who is gone looks nothing up; what is assigned stays.
                let _ = self.names.send(event);
            }
            self.announce();
            self.write(now);
        }
    }

    /// Notes whether we lead. Who ceases to lead drops what is under way; who begins looks at everything.
    fn lead(&mut self) {
        let leads = self.leadership.leads();
        if leads == self.led {
            return;
        }
        self.led = leads;
        self.context.metrics.leads(leads);
        self.announcements.speak(leads);
        self.context.changes.tell(Change::Leading(leads));
        tracing::info!(leads, "leadership");
        if leads {
            self.state.begin();
        } else {
            self.writing = FuturesUnordered::new();
            self.busy.clear();
        }
    }

    /// What the watch shows ends the waiting after a conflict.
    fn release(&mut self, heard: &Heard) {
        if !self.waiting.holds_any() {
            return;
        }
        if let Some(target) = heard.target()
            && self.waiting.release(&target)
        {
            self.backoffs.retain(|(it, _), _| *it != target);
            self.state.dirty.insert(target);
        }
    }

    fn announce(&mut self) {
        for (reason, count) in &self.state.refused {
            // All controllers plan alike; one of them tells.
            let count = if self.led { *count } else { 0 };
            self.context.metrics.refused(reason.to_string(), count);
        }
        for change in self.state.told.drain(..) {
            self.context.changes.tell(change);
        }
        for announcement in self.state.said.drain(..) {
            if self.led {
                self.announcements.say(announcement);
            }
        }
    }

    fn write(&mut self, now: Instant) {
        if !self.led {
            // What is to be done is found out again by whoever begins to lead.
            self.state.dirty.clear();
            self.work = Work::default();
            if self.leadership.follows() {
                self.context.readiness.reached(FIRST_PLAN);
            }
            return;
        }
        let mut skipped = Vec::new();
        while let Some((lane, target)) = self.next_target() {
            if self.waiting.is_held(&target) {
                // It is looked at when it has waited, or the watch shows something.
                continue;
            }
            let twin = target.twin().is_some_and(|twin| self.busy.contains_key(&twin));
            if twin || self.busy.contains_key(&target) {
                skipped.push((lane, target));
                continue;
            }
            match self.state.next(&target, now, Timestamp::now()) {
                Next::Nothing => {}
                Next::Later(at) => self.waiting.until(at, target),
                Next::Write(write, tried) => {
                    if !self.leadership.leads() {
                        skipped.push((lane, target));
                        break;
                    }
                    self.state.sends(&target, &write);
                    self.busy.insert(target.clone(), tried);
                    let writer = self.writer.clone();
                    self.writing.push(Box::pin(async move {
                        let result = writer.perform(write).await;
                        (target, result)
                    }));
                }
            }
        }
        for (lane, target) in skipped {
            self.work.insert(&lane, target);
        }
        let busy = self.busy.keys().any(work::is_awaited);
        if !busy && !self.work.is_awaited() && !self.waiting.is_awaited() {
            self.context.readiness.reached(FIRST_PLAN);
        }
        self.context.metrics.queue("controller", self.work.len() + self.busy.len());
    }

    /// The target whose turn it is, if one more may be under way.
    fn next_target(&mut self) -> Option<(Lane, Target)> {
        for target in std::mem::take(&mut self.state.dirty) {
            let lane = self.state.lane(&target);
            self.work.insert(&lane, target);
        }
        self.work.pop(self.busy.keys())
    }

    fn ended(&mut self, (target, result): Ended) {
        let tried = self.busy.remove(&target).unwrap_or_default();
        if let Err(failure) = &result
            && failure.is_refusal()
        {
            self.state.unwritten(&target, &tried);
        }
        match result {
            Ok(written) => {
                self.backoffs.remove(&(target.clone(), tried.name));
                if let Some(change) = self.state.wrote(&target, written, Instant::now()) {
                    self.context.changes.tell(change);
                }
            }
            // What was to be made cannot be gone: where it belongs is not there.
            Err(Failure::Gone) if tried.creates() => {
                self.failed(target, &tried, &"there is no such namespace");
            }
            Err(Failure::Gone) => {}
            Err(Failure::Taken) => {
                self.state.taken(&target, &tried);
                self.failed(target, &tried, &"a Secret of another type has this name");
            }
            Err(Failure::Conflict) => {
                self.context.metrics.error("Conflict");
                if self.state.is_at(&target, &tried) {
                    self.hold(target, CONFLICT);
                } else {
                    self.state.dirty.insert(target);
                }
            }
            Err(Failure::Other(error)) => self.failed(target, &tried, &error),
        }
    }

    /// A write failed: it is tried again ever less often, and nothing else waits for it.
    fn failed(&mut self, target: Target, tried: &Tried, error: &dyn std::fmt::Display) {
        self.context.metrics.error("Write");
        let object = (target.clone(), tried.name.clone());
        let backoff = self
            .backoffs
            .entry(object)
            .or_insert_with(|| Backoff::new(Duration::from_millis(100), Duration::from_secs(60)));
        let wait = backoff.failed(random::number());
        tracing::warn!(?target, object = tried.name, %error, ?wait, "cannot write");
        let until = Instant::now() + wait;
        if self.state.refused_write(&target, tried, until) {
            self.waiting.until(until, target);
        } else {
            self.hold(target, wait);
        }
    }

    fn hold(&mut self, target: Target, wait: Duration) {
        self.waiting.hold(Instant::now() + wait, target);
    }
}

#[cfg(test)]
mod tests;
