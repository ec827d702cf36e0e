//! The agents of `bowline up`: one, with a proxy, for every LoadBalancer that is builtin or that a class made, as
//! long as the object exists. `roles` starts them.

use super::folders::Folders;
use super::programs::Programs;
use crate::cli::proxies::Proxies;
use crate::cli::version;
use bowline_api::LoadBalancer;
use bowline_api::names;
use bowline_api::source::{BareMetalType, LoadBalancerSource};
use bowline_core::member_rules::MemberRules;
use bowline_runtime::roles::{AgentOptions, Context, RoleError};
use bowline_runtime::{agent, lease};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{DeleteParams, Preconditions};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// What the process waits for until it knows which load balancers to wait for.
const LISTED: &str = "the list of load balancers";

/// How long until an agent that ended by itself is started again.
const AGAIN: Duration = Duration::from_secs(1);

/// The running agents.
pub(super) struct Agents {
    client: Client,
    context: Context,
    namespace: String,
    grace: Duration,
    members: MemberRules,
    /// None: this build has no built-in proxy.
    proxies: Option<Proxies>,
    programs: Programs,
    /// The folders in which agents keep what they serve; None: they keep nothing.
    folders: Option<Folders>,
    /// Where the speaker of this process hears what is open. None: there is no speaker.
    sockets: Option<PathBuf>,
    running: BTreeMap<String, Running>,
    /// Agents of load balancers that are gone, until they have ended; each returns the load balancer's name.
    stopping: JoinSet<String>,
    /// The addresses of load balancers.
    taken: BTreeMap<String, Vec<IpAddr>>,
}

/// What carries the traffic of a load balancer.
enum Carrier {
    Builtin(Proxies),
    Program(Programs, BareMetalType),
}

struct Running {
    /// The uid of the LoadBalancer object.
    uid: String,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Agents {
    pub(super) fn new(
        client: Client,
        context: Context,
        namespace: String,
        grace: Duration,
        members: MemberRules,
        proxies: Option<Proxies>,
        programs: Programs,
    ) -> Self {
        context.readiness.awaits(LISTED);
        Self {
            client,
            context,
            namespace,
            grace,
            members,
            proxies,
            programs,
            folders: None,
            sockets: None,
            running: BTreeMap::new(),
            stopping: JoinSet::new(),
            taken: BTreeMap::new(),
        }
    }

    /// The same, with agents that keep what they serve, each in a folder of its own in this one.
    pub(super) fn keeping(self, folders: Option<Folders>) -> Self {
        Self { folders, ..self }
    }

    /// The same, with agents that say in this folder what is open.
    pub(super) fn telling(self, sockets: Option<PathBuf>) -> Self {
        Self { sockets, ..self }
    }

    /// Runs agents until the context is stopped; returns when all have drained.
    pub(super) async fn run(mut self) {
        let api: Api<LoadBalancer> = Api::all(self.client.clone());
        let events = watcher(api, watcher::Config::default()).default_backoff();
        let mut events = std::pin::pin!(events);
        let context = self.context.clone();
        let mut seen = Vec::new();
        loop {
            let event = tokio::select! {
                event = events.next() => event,
                Some(ended) = self.stopping.join_next() => {
                    if let Ok(name) = ended {
                        self.clean_up(&name).await;
                    }
                    continue;
                }
                () = context.stopped() => break,
            };
            match event {
                None => break,
                Some(Err(error)) => tracing::warn!("cannot watch LoadBalancers: {error}"),
                Some(Ok(watcher::Event::Init)) => seen.clear(),
                Some(Ok(watcher::Event::InitApply(object))) => seen.push(object),
                Some(Ok(watcher::Event::InitDone)) => {
                    let names: BTreeSet<_> = seen.iter().map(|object| object.name_any()).collect();
                    let gone = self.running.keys().filter(|name| !names.contains(*name));
                    let gone: Vec<_> = gone.cloned().collect();
                    gone.iter().for_each(|name| self.stop(name));
                    self.taken.retain(|name, _| names.contains(name));
                    // No address may be given twice, so first all addresses in use are noted.
                    seen.iter().for_each(|object| self.note(object));
                    seen.drain(..).for_each(|object| self.apply(&object));
                    self.sweep_folders().await;
                    context.readiness.reached(LISTED);
                }
                Some(Ok(watcher::Event::Apply(object))) => {
                    self.note(&object);
                    self.apply(&object);
                }
                Some(Ok(watcher::Event::Delete(object))) => {
                    self.taken.remove(&object.name_any());
                    self.stop(&object.name_any());
                }
            }
        }
        for agent in self.running.values() {
            let _ = agent.stop.send(true);
        }
        for agent in self.running.values_mut() {
            let _ = (&mut agent.task).await;
        }
        while let Some(ended) = self.stopping.join_next().await {
            if let Ok(name) = ended {
                self.clean_up(&name).await;
            }
        }
    }

    fn apply(&mut self, object: &LoadBalancer) {
        let name = object.name_any();
        let carrier = match (&object.spec.source, &self.proxies) {
            (LoadBalancerSource::Builtin(_), Some(proxies)) => Carrier::Builtin(proxies.clone()),
            // The proxy of a load balancer that no class made runs elsewhere.
            (LoadBalancerSource::BareMetalLoadBalancer(it), _) if is_made(object) => {
                Carrier::Program(self.programs.clone(), it.type_)
            }
            _ => return,
        };
        let uid = object.uid().unwrap_or_default();
        match self.running.get(&name) {
            Some(agent) if agent.uid == uid => return,
            // The load balancer was deleted and created again while the watch was away.
            Some(_) => self.stop(&name),
            None => {}
        }
        let (stop, shutdown) = watch::channel(false);
        let context = Context { shutdown, ..self.context.clone() };
        let options = AgentOptions {
            namespace: self.namespace.clone(),
            version: version::BUILD.to_owned(),
            addresses: self.address(object),
            grace: self.grace,
            state: self.folders.as_ref().map(|folders| folders.of(&uid)),
            uid: Some(uid.clone()),
            sockets: self.sockets.clone(),
            members: self.members.clone(),
            ..AgentOptions::new(name.clone())
        };
        let (client, stopped) = (self.client.clone(), context.clone());
        let start = move || -> BoxFuture<'static, Result<(), RoleError>> {
            let (client, options, context) = (client.clone(), options.clone(), context.clone());
            match &carrier {
                Carrier::Program(programs, type_) => {
                    Box::pin(programs.clone().run(*type_, client, options, context))
                }
                Carrier::Builtin(proxies) => {
                    let driver = proxies.driver(&options.load_balancer);
                    Box::pin(agent::run(client, options, driver, context))
                }
            }
        };
        // Called here and not in the task, so that the process is not ready before this load balancer is.
        let task = tokio::spawn(keep_up(name.clone(), start(), start, stopped, AGAIN));
        self.running.insert(name, Running { uid, stop, task });
    }

    /// Notes the addresses of a load balancer.
    fn note(&mut self, object: &LoadBalancer) {
        let shown = object.status.iter().flat_map(|status| &status.ingress);
        let shown = shown.filter_map(|point| point.ip);
        let all: Vec<_> = object.spec.addresses.iter().copied().chain(shown).collect();
        if !all.is_empty() {
            self.taken.insert(object.name_any(), all);
        }
    }

    /// The address that the agent of a load balancer reports. For one that a class made without a pool it is the
    /// address that it has, or a free one on loopback; the status shows it from then on.
    fn address(&mut self, object: &LoadBalancer) -> Vec<IpAddr> {
        let (spec, made) = (&object.spec, is_made(object));
        if !made || !spec.addresses.is_empty() || spec.address_pool.is_some() {
            return Vec::new();
        }
        let name = object.name_any();
        if let Some(had) = self.taken.get(&name) {
            return had.clone();
        }
        let taken: BTreeSet<_> = self.taken.values().flatten().copied().collect();
        let free = free_loopback(&taken);
        self.taken.insert(name, free.into_iter().collect());
        free.into_iter().collect()
    }

    /// Stops the agent of a load balancer that is gone, and deletes the agent's Lease.
    fn stop(&mut self, name: &str) {
        let Some((name, agent)) = self.running.remove_entry(name) else { return };
        let _ = agent.stop.send(true);
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), &self.namespace);
        self.stopping.spawn(async move {
            let _ = agent.task.await;
            if let Err(error) = forget(&leases, &names::agent_lease(&name)).await {
                tracing::warn!(load_balancer = name, %error, "cannot delete the Lease of its agent");
            }
            name
        });
    }

    /// Removes the files of an agent that has ended, unless the next one with the same name uses them.
    async fn clean_up(&self, name: &str) {
        if !self.running.contains_key(name) {
            // Most load balancers have none.
            let _ = tokio::fs::remove_dir_all(self.programs.folder(name)).await;
        }
        self.sweep_folders().await;
    }

    /// Removes kept state of load balancers that are gone. An agent that is still stopping writes none: a folder is
    /// created only when an agent starts.
    async fn sweep_folders(&self) {
        if let Some(folders) = self.folders.clone() {
            let uids = self.running.values().map(|agent| agent.uid.clone()).collect();
            folders.sweep(uids).await;
        }
    }
}

/// Whether a class made a load balancer.
fn is_made(object: &LoadBalancer) -> bool {
    let marks = object.metadata.annotations.as_ref();
    marks.is_some_and(|all| all.contains_key(names::ANNOTATION_PROVISIONED_FOR))
}

/// Deletes the Lease of an agent that is gone, unless another agent uses it by now.
async fn forget(leases: &Api<Lease>, name: &str) -> Result<(), kube::Error> {
    let Some(lease) = leases.get_opt(name).await? else { return Ok(()) };
    if lease::entries(&lease).iter().any(|entry| entry.left.is_none()) {
        return Ok(());
    }
    let preconditions =
        Some(Preconditions { resource_version: lease.resource_version(), uid: lease.uid() });
    let params = DeleteParams { preconditions, ..DeleteParams::default() };
    match leases.delete(name, &params).await {
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        deleted => deleted.map(drop),
    }
}

/// The first address for load balancers that classes make, and how many there are. Linux has all of them on loopback
/// by default.
const FIRST: Ipv4Addr = Ipv4Addr::new(127, 1, 0, 1);
const MOST: u32 = 0xfffe;

/// A free address on loopback. None: none is left.
fn free_loopback(taken: &BTreeSet<IpAddr>) -> Option<IpAddr> {
    let first = u32::from(FIRST);
    let mut all = (first..first + MOST).map(|it| IpAddr::V4(it.into()));
    all.find(|address| !taken.contains(address))
}

/// Runs an agent until it is asked to stop; an agent that ends earlier is started again.
async fn keep_up<R>(
    name: String,
    first: R,
    start: impl Fn() -> R,
    context: Context,
    again: Duration,
) where
    R: Future<Output = Result<(), RoleError>> + Send + 'static,
{
    let mut role = first;
    loop {
        match tokio::spawn(role).await {
            Ok(Ok(())) if *context.shutdown.borrow() => return,
            Ok(Ok(())) => tracing::error!("the agent of load balancer {name} ended by itself"),
            Ok(Err(error)) => tracing::error!("the agent of load balancer {name} ended: {error}"),
            Err(panic) => tracing::error!("the agent of load balancer {name} ended: {panic}"),
        }
        if tokio::time::timeout(again, context.stopped()).await.is_ok() {
            return;
        }
        role = start();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn the_first_address_is_given_that_nobody_has() {
        let taken = [IpAddr::from([127, 1, 0, 1]), IpAddr::from([127, 1, 0, 2])].into();
        assert_eq!(free_loopback(&taken), Some(IpAddr::from([127, 1, 0, 3])));
    }

    #[tokio::test]
    async fn an_agent_that_fails_or_panics_is_started_again() {
        let (context, stop) = Context::new();
        let starts = std::sync::Arc::new(AtomicUsize::new(0));
        let (counted, shared) = (starts.clone(), context.clone());
        let start = move || {
            let (number, context) = (counted.fetch_add(1, Ordering::SeqCst), shared.clone());
            async move {
                match number {
                    0 => Err(RoleError::Ended("a watch")),
                    1 => panic!("a test of panics"),
                    _ => {
                        context.stopped().await;
                        Ok(())
                    }
                }
            }
        };
        let running = tokio::spawn(keep_up("edge".into(), start(), start, context, Duration::ZERO));
        while starts.load(Ordering::SeqCst) < 3 {
            tokio::task::yield_now().await;
        }
        stop.send(true).expect("it listens");
        running.await.expect("it ends");
        assert_eq!(starts.load(Ordering::SeqCst), 3);
    }
}
