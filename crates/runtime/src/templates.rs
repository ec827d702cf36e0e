//! The template role: follows Services, EndpointSlices and Nodes by watch, and keeps the files of a load
//! balancer that Bowline does not know in step, as kube2lb does. It decides nothing and writes nothing to the
//! API but Events. `bowline agent --template` starts it.
//!
//! ```text
//!  watches ─▶ Exposed ─▶ view ─▶ publisher: render, check, write, notify
//!              │ waits until a burst is over      └ on failure: tries again later, files in place stay
//!              └ told ─▶ Events
//! ```

mod machine;

pub use machine::machine_addresses;

use crate::event_recorder::{self, EventRecorder};
use crate::metrics::Phase;
use crate::random;
use crate::roles::{Context, RoleError};
use crate::supervise::{Alarm, Keeper};
use crate::watch::{self, Seen, Selection, What};
use bowline_api::{convert, names};
use bowline_core::backoff::Backoff;
use bowline_core::burst::Burst;
use bowline_core::clock::in_words;
use bowline_core::exposed::held::Held;
use bowline_core::exposed::view::{Machine, Settings, Told, View};
use bowline_core::exposed::{Event, Exposed, Kind, Object};
use bowline_core::key::ObjectKey;
use bowline_core::member_rules::MemberRules;
use bowline_core::outcome::Reason;
use bowline_drivers::template::{Done, Publisher, ServerNames, Subject};
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// The most events that are taken in at once.
const BURST: usize = 16_384;
/// How often to check whether an address that a Service asks for has come to this machine, as when VRRP moves
/// it.
const ADDRESSES: Duration = Duration::from_secs(5);
/// What the process waits for before it is ready.
const FIRST: &str = "the first output of the templates";

/// How the role is started.
#[derive(Clone, Debug)]
pub struct TemplateOptions {
    /// The domain of the cluster.
    pub domain: String,
    /// The mode of ports whose Service sets none.
    pub default_mode: String,
    /// The address of Services that ask for none.
    pub default_address: IpAddr,
    /// How names of servers are made.
    pub names: Arc<ServerNames>,
    /// How long no event may come for a burst to be over.
    pub settle: Duration,
    /// Whether to end once all files are in place and all notifiers have run; the duration is how long the API
    /// may take to deliver all objects.
    pub once: Option<Duration>,
    /// How long a check or a notifier may take when the role stops.
    pub grace: Duration,
    /// Which endpoints are left out.
    pub members: MemberRules,
    /// The unique name of this process.
    pub identity: String,
}

/// Runs the role until the context is stopped, or with `once` until all is done or has failed.
pub async fn run(
    client: Client,
    options: TemplateOptions,
    publisher: Publisher,
    context: Context,
) -> Result<(), RoleError> {
    context.readiness.awaits(FIRST);
    // It outlives the tasks: one that cannot send any more would count as ended by itself.
    let (sender, mut heard) = mpsc::channel(4096);
    let mut tasks = Keeper::new(&context);
    follow(&client, &context, &sender, &mut tasks);
    drop(sender);
    let identity = options.identity.clone();
    let metrics = context.metrics.clone();
    let (recorder, recording) =
        event_recorder::start(client, names::MANAGER_AGENT, identity, metrics);
    recorder.set_enabled(true);
    let mut alarm = Alarm::default();
    let recording = alarm.spawn("the writer of Events", recording);
    let mut exposed = Exposed::new();
    let holders = publisher.holders().map_err(|error| RoleError::Template(error.to_string()))?;
    if let Some(text) = holders {
        match Held::from_json(&text) {
            Some(held) => exposed.hold(held),
            None => tracing::warn!(
                "the file with the holders of ports and names cannot be read: of several Services that want the \
                 same port or name the oldest gets it"
            ),
        }
    }
    let mut role = Role {
        exposed,
        options,
        publisher,
        context,
        recorder,
        said: BTreeSet::new(),
        backoff: Backoff::new(Duration::from_millis(500), Duration::from_secs(30)),
    };
    // Files stay in place when this role ends, so it may end when a task that it needs panics.
    let done = tokio::select! {
        done = role.work(&mut heard) => done,
        what = alarm.rings() => Err(RoleError::Ended(what)),
    };
    tasks.shutdown().await;
    role.context.readiness.reached(FIRST);
    drop(role);
    // The last Events are still written, if that does not take long.
    let _ = tokio::time::timeout(Duration::from_secs(2), recording).await;
    done
}

fn follow(client: &Client, context: &Context, sender: &mpsc::Sender<Event>, tasks: &mut Keeper) {
    follow_kind(client, context, sender, tasks, Kind::Service, "Service", |service: Service| {
        match convert::exposed(&service) {
            Some(service) => Event::Apply(Object::Service(service)),
            // It may have been exposed before.
            None => Event::Delete(Kind::Service, key(&service)),
        }
    });
    follow_kind(
        client,
        context,
        sender,
        tasks,
        Kind::Slice,
        "EndpointSlice",
        |it: EndpointSlice| Event::Apply(Object::Slice(convert::slice(&it))),
    );
    follow_kind(client, context, sender, tasks, Kind::Node, "Node", |node: Node| {
        Event::Apply(Object::Node(node.name_any().into()))
    });
}

fn follow_kind<K>(
    client: &Client,
    context: &Context,
    sender: &mpsc::Sender<Event>,
    tasks: &mut Keeper,
    kind: Kind,
    label: &'static str,
    read: fn(K) -> Event,
) where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    let api: Api<K> = Api::all(client.clone());
    let (metrics, listener) = (context.metrics.clone(), sender.clone());
    tasks.keep(format!("the watch of {label}s"), move |works| {
        let (api, selection) = (api.clone(), Selection::default());
        watch::follow(api, selection, what(label), metrics.clone(), listener.clone(), move |seen| {
            works.seen(&seen);
            told(kind, seen, read)
        })
    });
}

fn what(label: &'static str) -> What {
    let remedy = format!("may not follow objects of kind {label}; apply deploy/rbac/template.yaml");
    What { label, remedy: Some(remedy) }
}

fn told<K: Resource>(kind: Kind, seen: Seen<K>, read: impl FnOnce(K) -> Event) -> Option<Event> {
    Some(match seen {
        Seen::Begin => Event::Begin(kind),
        Seen::Apply(object) => read(object),
        Seen::Delete(object) => Event::Delete(kind, key(&object)),
        Seen::Done => Event::Done(kind),
    })
}

fn key<K: Resource>(object: &K) -> ObjectKey {
    ObjectKey::new(object.namespace().unwrap_or_default(), object.name_any())
}

struct Role {
    exposed: Exposed,
    options: TemplateOptions,
    publisher: Publisher,
    context: Context,
    recorder: EventRecorder,
    /// The problems that have an Event and still hold, by object.
    said: BTreeSet<Told>,
    backoff: Backoff,
}

impl Role {
    async fn work(&mut self, heard: &mut mpsc::Receiver<Event>) -> Result<(), RoleError> {
        let context = self.context.clone();
        let mut batch = Vec::new();
        let mut unwritten: Option<Burst<Instant>> = None;
        let mut retry: Option<Instant> = None;
        let patience = self.options.once.map(|patience| (patience, Instant::now() + patience));
        loop {
            let due = unwritten.map(|burst| burst.over(self.options.settle));
            let unheard = patience.filter(|_| !self.exposed.synced()).map(|(_, until)| until);
            let next = [due, retry, unheard].into_iter().flatten().min();
            let time = async {
                match next {
                    Some(at) => tokio::time::sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = context.stopped() => return self.stopped(),
                () = time => {}
                received = heard.recv_many(&mut batch, BURST) => {
                    if received == 0 {
                        return Err(RoleError::Ended("the watches"));
                    }
                    batch.drain(..).for_each(|event| self.exposed.handle(event));
                    if self.exposed.is_dirty() && self.exposed.synced() {
                        unwritten = Some(Burst::heard(unwritten, Instant::now()));
                    }
                    continue;
                }
            }
            if let Some((patience, _)) = patience.filter(|_| !self.exposed.synced()) {
                let why = format!(
                    "the API has not delivered all Services, EndpointSlices and Nodes within {patience:?}"
                );
                return Err(RoleError::Template(why));
            }
            let begun = unwritten.take();
            let round = context.within_grace(self.options.grace, self.round()).await;
            let Some(round) = round else { return self.stopped() };
            match round {
                Ok(again) => {
                    let looks = self.lacks_addresses().then(|| Instant::now() + ADDRESSES);
                    retry = again.into_iter().chain(looks).min();
                    self.backoff.worked();
                    if let Some(begun) = begun {
                        context.metrics.applied_after(begun.first.elapsed());
                    }
                    let searches = again.is_some_and(|again| again <= Instant::now());
                    if self.options.once.is_some() && !searches {
                        self.sum_up();
                        return Ok(());
                    }
                }
                Err(why) if self.options.once.is_some() => return Err(RoleError::Template(why)),
                Err(why) => {
                    let wait = self.backoff.failed(random::number());
                    tracing::warn!(wait = %in_words(wait), "{why}; it is tried again");
                    retry = Some(Instant::now() + wait);
                }
            }
        }
    }

    /// The result of a role that is told to stop: an error only if a one-time run was not done.
    fn stopped(&self) -> Result<(), RoleError> {
        if self.options.once.is_some() { Err(RoleError::stopped()) } else { Ok(()) }
    }

    /// Brings files up to date and runs the notifiers that are due; returns when to do it again even without
    /// an event. A failure is retried with the newest state. A notifier that is due for files in place does
    /// not wait for the next write.
    async fn round(&mut self) -> Result<Option<Instant>, String> {
        let written = self.write().await;
        match (written, self.notify().await) {
            (written, Ok(())) => written,
            (Ok(_), Err(why)) => Err(why),
            (Err(first), Err(second)) => Err(format!("{first}; {second}")),
        }
    }

    /// The input of the templates, without ports on which foreign processes listen.
    async fn view(&mut self) -> View {
        let (machine, others) = machine::read();
        let in_place = self.publisher.in_place();
        let view = self.view_on(others.strangers(&in_place, None).on(&machine));
        if view.told.iter().all(|told| told.problem.reason != Reason::BindFailed) {
            return view;
        }
        let all = self.view_on(machine.clone());
        match self.publisher.filled(&Subject::exposed(all.cluster)).await {
            Some(texts) => self.view_on(others.strangers(&in_place, Some(&texts)).on(&machine)),
            None => view,
        }
    }

    fn view_on(&mut self, machine: Machine) -> View {
        let settings = Settings {
            domain: self.options.domain.as_str().into(),
            default_mode: self.options.default_mode.as_str().into(),
            default_address: self.options.default_address,
            source_ranges: self.publisher.knows().source_ranges,
            machine,
            members: self.options.members.clone(),
        };
        let names = self.options.names.clone();
        self.exposed.view(&settings, |entry| names.generated(entry, &settings.domain))
    }

    /// Brings files up to date; returns when to do it again even without an event.
    async fn write(&mut self) -> Result<Option<Instant>, String> {
        let metrics = self.context.metrics.clone();
        let failed = |reason: &str, why: &dyn std::fmt::Display| {
            metrics.error(reason);
            why.to_string()
        };
        self.publisher.reread().map_err(|error| failed("Template", &error))?;
        let begun = Instant::now();
        let view = self.view().await;
        metrics.took(Phase::Plan, begun.elapsed());
        let begun = Instant::now();
        // Before the files: the holders of ports and names in them must survive this process.
        if view.held != *self.exposed.held() {
            let kept = self.publisher.keep_holders(view.held.to_json()).await;
            kept.map_err(|error| failed("Template", &error))?;
            self.exposed.hold(view.held);
        }
        let services = view.cluster.services.len();
        let subject = Subject::exposed(view.cluster);
        let written = self.publisher.write(&subject, Instant::now()).await;
        let mut told: BTreeSet<Told> = view.told.into_iter().collect();
        let Done { changed, refused, again } = match written {
            Ok(done) => done,
            Err(error) => {
                self.tell(told);
                return Err(failed("Template", &error));
            }
        };
        metrics.took(Phase::Apply, begun.elapsed());
        told.extend(refused);
        self.tell(told);
        for file in changed {
            tracing::info!(output = %file.display(), services, "written");
        }
        self.context.readiness.reached(FIRST);
        Ok(again)
    }

    /// Runs the notifiers that are due.
    async fn notify(&mut self) -> Result<(), String> {
        let mut failures = Vec::new();
        for (notifier, came) in self.publisher.notify().await {
            match came {
                Ok(said) => tracing::info!(%notifier, said, "notified"),
                Err(why) => {
                    self.context.metrics.error("Notify");
                    failures.push(format!("--notify {notifier}: {why}"));
                }
            }
        }
        if failures.is_empty() { Ok(()) } else { Err(failures.join("; ")) }
    }

    /// Whether a Service is left out for an address that may come, or a port that may become free.
    fn lacks_addresses(&self) -> bool {
        let passes = |it: Reason| matches!(it, Reason::AddressNotAvailable | Reason::BindFailed);
        self.said.iter().any(|told| passes(told.problem.reason))
    }

    /// Logs the Services that are left out, wholly or in part.
    fn sum_up(&self) {
        let left = self.said.iter().filter(|told| !told.problem.reason.is_warning());
        let left: BTreeSet<_> = left.map(|told| told.consumer.to_string()).collect();
        if !left.is_empty() {
            let services: Vec<_> = left.iter().map(String::as_str).collect();
            tracing::warn!(services = services.join(", "), "left out, wholly or in part");
        }
    }

    /// Records an Event for each problem that has none yet.
    fn tell(&mut self, told: BTreeSet<Told>) {
        for Told { consumer, problem } in told.difference(&self.said) {
            tracing::warn!(object = %consumer, reason = %problem.reason, "{}", problem.message);
            self.context.metrics.error(problem.reason.to_string());
            if let Some(event) = problem.event(consumer) {
                self.recorder.record(event);
            }
        }
        self.said = told;
    }
}
