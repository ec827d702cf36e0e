//! The load balancers of `bowline up`: an agent with a proxy for every LoadBalancer that is built in, as
//! long as the object is there.

use crate::cli::proxy::Proxies;
use bowline_api::LoadBalancer;
use bowline_api::source::LoadBalancerSource;
use bowline_drivers::builtin::Builtin;
use bowline_runtime::agent;
use bowline_runtime::roles::{AgentOptions, Context};
use futures::StreamExt as _;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use std::collections::BTreeMap;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What the process waits for before it can wait for the plans of its load balancers.
const LISTED: &str = "the list of load balancers";

/// The agents that run.
pub(super) struct Agents {
    client: Client,
    context: Context,
    namespace: String,
    proxies: Proxies,
    running: BTreeMap<String, Running>,
}

struct Running {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Agents {
    pub(super) fn new(
        client: Client,
        context: Context,
        namespace: String,
        proxies: Proxies,
    ) -> Self {
        context.readiness.awaits(LISTED);
        Self { client, context, namespace, proxies, running: BTreeMap::new() }
    }

    /// Runs agents until the context says stop; returns when all have drained.
    pub(super) async fn run(mut self) {
        let api: Api<LoadBalancer> = Api::all(self.client.clone());
        let events = watcher(api, watcher::Config::default()).default_backoff();
        let mut events = std::pin::pin!(events);
        let context = self.context.clone();
        let mut seen = Vec::new();
        loop {
            let event = tokio::select! {
                event = events.next() => event,
                () = context.stopped() => break,
            };
            match event {
                None => break,
                Some(Err(error)) => tracing::warn!("cannot watch LoadBalancers: {error}"),
                Some(Ok(watcher::Event::Init)) => seen.clear(),
                Some(Ok(watcher::Event::InitApply(object))) => {
                    seen.push(object.name_any());
                    self.apply(&object);
                }
                Some(Ok(watcher::Event::InitDone)) => {
                    self.running.retain(|name, agent| {
                        seen.contains(name) || agent.stop.send(true).is_err()
                    });
                    context.readiness.reached(LISTED);
                }
                Some(Ok(watcher::Event::Apply(object))) => self.apply(&object),
                Some(Ok(watcher::Event::Delete(object))) => self.stop(&object.name_any()),
            }
        }
        for agent in self.running.values() {
            let _ = agent.stop.send(true);
        }
        for (_, agent) in std::mem::take(&mut self.running) {
            let _ = agent.task.await;
        }
    }

    fn apply(&mut self, object: &LoadBalancer) {
        let name = object.name_any();
        if !matches!(object.spec.source, LoadBalancerSource::Builtin(_)) {
            return;
        }
        if self.running.contains_key(&name) {
            return;
        }
        let (stop, shutdown) = watch::channel(false);
        let context = Context { shutdown, ..self.context.clone() };
        let options =
            AgentOptions { namespace: self.namespace.clone(), ..AgentOptions::new(name.clone()) };
        let driver = Builtin::new(self.proxies.start(&name));
        // Made here, so that the process is not ready before this load balancer is.
        let role = agent::run(self.client.clone(), options, driver, context);
        let whose = name.clone();
        let task = tokio::spawn(async move {
            if let Err(error) = role.await {
                tracing::error!("the agent of load balancer {whose} ended: {error}");
            }
        });
        self.running.insert(name, Running { stop, task });
    }

    fn stop(&mut self, name: &str) {
        if let Some(agent) = self.running.remove(name) {
            let _ = agent.stop.send(true);
        }
    }
}
