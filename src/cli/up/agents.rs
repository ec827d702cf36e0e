//! The load balancers of `bowline up`: an agent with a proxy for every LoadBalancer that is built in, as
//! long as the object is there.

use crate::cli::proxy::Proxies;
use crate::running::sweep;
use bowline_api::LoadBalancer;
use bowline_api::source::LoadBalancerSource;
use bowline_drivers::builtin::Builtin;
use bowline_runtime::agent;
use bowline_runtime::roles::{AgentOptions, Context, RoleError};
use futures::StreamExt as _;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What the process waits for before it can wait for the plans of its load balancers.
const LISTED: &str = "the list of load balancers";

/// How long until an agent that ended by itself is started again.
const AGAIN: Duration = Duration::from_secs(1);

/// The agents that run.
pub(super) struct Agents {
    client: Client,
    context: Context,
    namespace: String,
    grace: Duration,
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
        grace: Duration,
        proxies: Proxies,
    ) -> Self {
        context.readiness.awaits(LISTED);
        Self { client, context, namespace, grace, proxies, running: BTreeMap::new() }
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
                    sweep(&mut self.running, &seen, |agent| agent.stop.send(true));
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
        let options = AgentOptions {
            namespace: self.namespace.clone(),
            grace: self.grace,
            ..AgentOptions::new(name.clone())
        };
        let (client, proxies, stopped) =
            (self.client.clone(), self.proxies.clone(), context.clone());
        let start = move || {
            let driver = Builtin::new(proxies.start(&options.load_balancer));
            agent::run(client.clone(), options.clone(), driver, context.clone())
        };
        // Made here, so that the process is not ready before this load balancer is.
        let task = tokio::spawn(keep_up(name.clone(), start(), start, stopped, AGAIN));
        self.running.insert(name, Running { stop, task });
    }

    fn stop(&mut self, name: &str) {
        if let Some(agent) = self.running.remove(name) {
            let _ = agent.stop.send(true);
        }
    }
}

/// Runs an agent until it is asked to stop; one that ends before that is started again.
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
