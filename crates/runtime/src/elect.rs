//! Carries out the effects of `bowline_core::election`: reads and writes the Lease by which controllers
//! choose their leader, and lets writers ask whether this process still leads. It knows no rule of the
//! election. The controller starts it.

mod guard;

use crate::api_timeout::answer;
use crate::clock::{Clock, since_boot};
use crate::random;
use crate::roles::ControllerOptions;
use bowline_api::names;
use bowline_core::backoff::Backoff;
use bowline_core::clock::in_words;
use bowline_core::election::{Answer, Config, Effect, Elector, Event, Record, Request, Wanted};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, Error};
use parking_lot::Mutex;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

pub(crate) use guard::guard;

/// Whether this process leads.
#[derive(Clone, Debug)]
pub(crate) struct Leadership {
    /// None: there is no election, and every controller leads.
    election: Option<Arc<Election>>,
    led: watch::Receiver<bool>,
}

#[derive(Debug)]
pub(crate) struct Election {
    elector: Mutex<Elector>,
    clock: Clock,
}

impl Election {
    /// An election that has observed nothing yet, on the clock that counts suspension.
    pub(crate) fn new(identity: &str) -> Self {
        Self { elector: Mutex::new(Elector::new(Config::new(identity))), clock: since_boot }
    }

    pub(crate) fn now(&self) -> Duration {
        (self.clock)()
    }

    fn handle(&self, event: Event) {
        let jitter = f64::from(random::number()) / f64::from(u32::MAX);
        self.elector.lock().handle(event, self.now(), jitter);
    }

    fn take(&self) -> Vec<Effect> {
        self.elector.lock().take(self.now())
    }
}

impl Leadership {
    /// Leadership without an election.
    pub(crate) fn always() -> Self {
        let (_, led) = watch::channel(true);
        Self { election: None, led }
    }

    /// Whether this process leads at this moment. A process that was suspended and resumed asks this before
    /// its next write, when no task could have told it yet that its lease has expired.
    pub(crate) fn leads(&self) -> bool {
        self.election.as_ref().is_none_or(|it| it.elector.lock().leads(it.now()))
    }

    /// The other process that leads, as far as this one knows.
    pub(crate) fn followed(&self) -> Option<Arc<str>> {
        let election = self.election.as_ref()?;
        let elector = election.elector.lock();
        elector.holder().filter(|_| !elector.leads(election.now())).cloned()
    }

    /// Whether another process leads, as far as this one knows.
    pub(crate) fn follows(&self) -> bool {
        self.followed().is_some()
    }

    /// Returns when this process starts or stops leading.
    pub(crate) async fn changed(&mut self) {
        if self.led.changed().await.is_err() {
            std::future::pending().await
        }
    }
}

/// The leader's version and settings, as annotations of its Lease: commands that look at the cluster can then plan as
/// the leader does.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings(BTreeMap<&'static str, String>);

impl Settings {
    /// An unset option is written as empty, so that no setting of an earlier leader remains.
    pub(crate) fn of(options: &ControllerOptions) -> Self {
        Self(BTreeMap::from([
            (names::ANNOTATION_VERSION, options.version.clone()),
            (names::ANNOTATION_DEFAULT_CLASS, options.default_class.to_string()),
            (
                names::ANNOTATION_DEFAULT_LOAD_BALANCER,
                options.default_load_balancer.clone().unwrap_or_default(),
            ),
        ]))
    }
}

/// Takes part in the election until shutdown. Returns the leadership to ask, and a future that must be
/// awaited at the end so that the next leader need not wait.
pub(crate) fn take_part(
    client: Client,
    namespace: &str,
    identity: &str,
    settings: Settings,
    shutdown: watch::Receiver<bool>,
) -> (Leadership, impl Future<Output = ()> + Send + 'static) {
    let election = Arc::new(Election::new(identity));
    let (leads, led) = watch::channel(false);
    let leadership = Leadership { election: Some(Arc::clone(&election)), led };
    let api = Api::namespaced(client, namespace);
    (leadership, run(api, election, Arc::new(settings), leads, shutdown))
}

/// Without an election: writes this controller's settings where the leader would write them, and nothing
/// about leadership; again when the namespace was made again (`remade`). Of two controllers with different
/// settings the last one to start wins.
pub(crate) async fn publish(
    client: Client,
    namespace: String,
    settings: Settings,
    mut remade: watch::Receiver<u64>,
    mut shutdown: watch::Receiver<bool>,
) {
    let api: Api<Lease> = Api::namespaced(client, &namespace);
    let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));
    loop {
        let said = say(&api, &settings).await;
        let again = async {
            match said {
                Ok(()) => {
                    backoff.worked();
                    if remade.changed().await.is_err() {
                        std::future::pending::<()>().await;
                    }
                }
                Err(error) => {
                    let wait = backoff.failed(random::number());
                    tracing::debug!(%error, wait = %in_words(wait), "cannot say how this controller is set");
                    tokio::time::sleep(wait).await;
                }
            }
        };
        tokio::select! {
            () = again => {}
            _ = shutdown.wait_for(|stop| *stop) => return,
        }
    }
}

async fn say(api: &Api<Lease>, settings: &Settings) -> Result<(), Error> {
    let manager = Some(names::MANAGER_CONTROLLER.to_owned());
    let patch = json!({"metadata": {"annotations": settings.0}});
    let params = PatchParams { field_manager: manager.clone(), ..PatchParams::default() };
    match answer(api.patch(names::LEASE_CONTROLLER, &params, &Patch::Merge(&patch))).await {
        Err(Error::Api(status)) if status.is_not_found() => {
            let name = names::LEASE_CONTROLLER;
            let lease = json!({"metadata": {"name": name, "annotations": settings.0}, "spec": {}});
            let lease = serde_json::from_value(lease).map_err(Error::SerdeError)?;
            let params = PostParams { field_manager: manager, ..PostParams::default() };
            answer(api.create(&params, &lease)).await.map(drop)
        }
        patched => patched.map(drop),
    }
}

async fn run(
    api: Api<Lease>,
    election: Arc<Election>,
    settings: Arc<Settings>,
    leads: watch::Sender<bool>,
    mut shutdown: watch::Receiver<bool>,
) {
    let mut requests = FuturesUnordered::new();
    let (mut leaving, mut ended) = (false, false);
    loop {
        for effect in election.take() {
            match effect {
                Effect::StartLeading => drop(leads.send(true)),
                Effect::StopLeading => drop(leads.send(false)),
                Effect::Ended => ended = true,
                Effect::Send(id, request) => {
                    let (api, settings) = (api.clone(), Arc::clone(&settings));
                    requests.push(async move { (id, ask(&api, request, &settings).await) });
                }
            }
        }
        if ended {
            // The last request releases the Lease; its answer is not used.
            while requests.next().await.is_some() {}
            return;
        }
        let wake = election.elector.lock().wake();
        let Some(wake) = wake else { return };
        // Timers stand still while the machine is suspended. The rest of this one, some seconds at most,
        // delays a renewal; it never makes this process lead.
        let wait = wake.saturating_sub(election.now());
        tokio::select! {
            Some((id, answer)) = requests.next() => election.handle(Event::Answer(id, answer)),
            () = tokio::time::sleep(wait) => {}
            _ = shutdown.wait_for(|stop| *stop), if !leaving => {
                leaving = true;
                election.handle(Event::Release);
            }
        }
    }
}

async fn ask(api: &Api<Lease>, request: Request, settings: &Settings) -> Answer {
    let params = PostParams {
        field_manager: Some(names::MANAGER_CONTROLLER.to_owned()),
        ..PostParams::default()
    };
    let patch_params =
        PatchParams { field_manager: params.field_manager.clone(), ..PatchParams::default() };
    let answered = match request {
        Request::Read => answer(api.get(names::LEASE_CONTROLLER)).await,
        Request::Create(wanted) => match lease(&wanted, None, settings) {
            Ok(lease) => answer(api.create(&params, &lease)).await,
            Err(error) => Err(Error::SerdeError(error)),
        },
        Request::Update(version, wanted) => match lease(&wanted, Some(&version), settings) {
            Ok(lease) => {
                let patch = Patch::Merge(&lease);
                answer(api.patch(names::LEASE_CONTROLLER, &patch_params, &patch)).await
            }
            Err(error) => Err(Error::SerdeError(error)),
        },
    };
    match answered {
        Ok(lease) => Answer::Lease(record(&lease)),
        Err(Error::Api(status)) if status.is_not_found() => Answer::NotFound,
        Err(Error::Api(status)) if matches!(status.code, 409) => Answer::Conflict,
        Err(error) => {
            tracing::debug!(%error, "the leader's Lease");
            Answer::Failed
        }
    }
}

/// The Lease to write. `acquireTime` is for people; a renewal leaves it out.
fn lease(
    wanted: &Wanted,
    version: Option<&str>,
    settings: &Settings,
) -> Result<Lease, serde_json::Error> {
    let now = format!("{:.6}", Timestamp::now());
    serde_json::from_value(json!({
        "metadata": {
            "name": names::LEASE_CONTROLLER,
            "resourceVersion": version,
            "annotations": settings.0,
        },
        "spec": {
            "holderIdentity": wanted.holder.as_deref().unwrap_or_default(),
            "leaseDurationSeconds": wanted.duration.as_secs().max(1),
            "leaseTransitions": wanted.transitions,
            "acquireTime": wanted.acquired.then_some(&now),
            "renewTime": now,
        },
    }))
}

fn record(lease: &Lease) -> Record {
    let spec = lease.spec.clone().unwrap_or_default();
    let seconds = spec.lease_duration_seconds.and_then(|s| u64::try_from(s).ok()).unwrap_or(15);
    Record {
        holder: spec.holder_identity.filter(|holder| !holder.is_empty()).map(Into::into),
        renewed: spec.renew_time.map(|time| time.0.to_string()).unwrap_or_default().into(),
        duration: Duration::from_secs(seconds),
        transitions: spec.lease_transitions.and_then(|t| u32::try_from(t).ok()).unwrap_or(0),
        version: lease.metadata.resource_version.clone().unwrap_or_default().into(),
    }
}
