//! The roles of `bowline up` in one process: started from what is recorded, and stopped in an order in
//! which no role misses another. When one ends by itself, all end: a half of them would only look alive.

use super::Up;
use super::agents::Agents;
use super::folders::Folders;
use super::ingress_class;
use super::programs::Programs;
use crate::cli::proxies::Proxies;
use crate::cli::version;
use crate::demo::{Kubelet, Served};
use anyhow::{Context as _, anyhow};
use bowline_api::names;
use bowline_core::member_rules::MemberRules;
use bowline_runtime::admin::Admin;
use bowline_runtime::controller;
use bowline_runtime::observe::Change;
use bowline_runtime::roles::{Context, ControllerOptions};
#[cfg(feature = "speaker")]
use bowline_runtime::speaker::{self, Network, SpeakerOptions};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, DeleteParams};
use kube::{Client, Error};
use std::net::SocketAddr;
use std::sync::Arc;
#[cfg(feature = "speaker")]
use std::time::Duration;
use tokio::sync::broadcast::Receiver;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

/// All roles.
pub(super) struct Roles {
    pub(super) context: Context,
    stop: watch::Sender<bool>,
    stop_pods: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
    pods: Option<JoinHandle<()>>,
    failed: mpsc::Receiver<anyhow::Error>,
    /// Whether a speaker puts addresses on this machine.
    #[cfg(feature = "speaker")]
    announces: bool,
    /// The demo's members, as far as agents have reported them.
    pub(super) demo: Option<Served>,
    /// All changes since the start.
    pub(super) changes: Option<Receiver<Arc<Change>>>,
}

impl Roles {
    /// Starts all roles.
    pub(super) async fn start(
        up: &Up,
        client: &Client,
        api: SocketAddr,
        admin: Admin,
    ) -> anyhow::Result<Self> {
        let mut local = None;
        if up.default_load_balancer.is_none() && !up.no_default_load_balancer {
            local = up.local.ensure(client).await?;
            up.local.tell_unopened(client).await;
        }
        ingress_class::ensure(client, !up.no_default_load_balancer).await?;
        let namespace = up.old.clone().or(up.system.clone());
        forget_leader(client, &namespace).await?;
        let (mut context, stop) = Context::new();
        context.admin = Some(admin.address);
        version::count(&context.metrics);
        let changes = Some(context.changes.listen());
        let demo = up.demo.then(|| Served::listen(&context.changes));
        let (stop_pods, pods_stopped) = watch::channel(false);
        let pods = up.demo.then(|| {
            tokio::spawn(Kubelet::run(client.clone(), context.changes.clone(), pods_stopped))
        });
        let agents = Agents::new(
            client.clone(),
            context.clone(),
            namespace.clone(),
            up.grace.time(),
            // Without a cluster, members are mostly processes on this machine.
            MemberRules { loopback: true, ..up.members.rules(&[admin.address, api]) },
            Proxies::new(up.proxy, &context.metrics, up.data.as_deref()).ok(),
            Programs::new(up.programs_folder(), up.proxy.wants_access_log(), &context.metrics),
        );
        let agents = agents.keeping(up.data.as_deref().map(Folders::in_data)).telling(up.sockets());
        let agents = async move {
            agents.run().await;
            anyhow::Ok(())
        };
        let options = ControllerOptions {
            namespace,
            version: version::BUILD.to_owned(),
            default_class: up.class.default_class.unwrap_or(true),
            default_load_balancer: up.default_load_balancer(),
            dns: Some(up.dns.options()?),
            address_grace: up.address_grace.time(),
            local_ports: Some(up.local.ports()),
            ..ControllerOptions::default()
        };
        let controller = controller::run(client.clone(), options, context.clone());
        let controller = async move { controller.await.map_err(Into::into) };
        let admin = admin.serve(
            context.metrics.clone(),
            context.readiness.clone(),
            context.agents.clone(),
            context.shutdown.clone(),
        );
        let admin = async move {
            admin.await;
            anyhow::Ok(())
        };
        if let Some(local) = local {
            let (client, context) = (client.clone(), context.clone());
            tokio::spawn(async move {
                tokio::select! {
                    () = local.run(client) => {}
                    () = context.stopped() => {}
                }
            });
        }
        let (failure, failed) = mpsc::channel(1);
        #[cfg(feature = "speaker")]
        let speaker = match up.speaker {
            true => Some(speaker(up, client, &context)?),
            false => None,
        };
        #[cfg_attr(not(feature = "speaker"), expect(unused_mut, reason = "nothing is added"))]
        let mut tasks = vec![
            watched("the load balancers", agents, &context, &failure),
            watched("the controller", controller, &context, &failure),
            watched("the admin endpoint", admin, &context, &failure),
        ];
        #[cfg(feature = "speaker")]
        tasks.extend(speaker.map(|it| watched("the speaker", it, &context, &failure)));
        Ok(Self {
            context,
            stop,
            stop_pods,
            tasks,
            pods,
            failed,
            #[cfg(feature = "speaker")]
            announces: up.speaker,
            demo,
            changes,
        })
    }

    /// Resolves when a role has ended by itself, with the reason.
    pub(super) async fn failed(&mut self) -> anyhow::Error {
        match self.failed.recv().await {
            Some(error) => error,
            None => std::future::pending().await,
        }
    }

    /// Stops all roles: load balancers drain first, and only then their members end.
    pub(super) async fn stop(self) {
        let _ = self.stop.send(true);
        for task in self.tasks {
            let _ = task.await;
        }
        // Nothing listens any more at the addresses that the speaker put on the machine.
        #[cfg(feature = "speaker")]
        if self.announces {
            speaker::sweep().await;
        }
        let _ = self.stop_pods.send(true);
        if let Some(pods) = self.pods {
            let _ = pods.await;
        }
    }
}

/// The speaker of this machine. With this process everything ends that it announces, so it withdraws.
#[cfg(feature = "speaker")]
fn speaker(
    up: &Up,
    client: &Client,
    context: &Context,
) -> anyhow::Result<impl Future<Output = anyhow::Result<()>> + Send + use<>> {
    let node = up.node_name.clone().or_else(bowline_runtime::roles::host_name);
    let node = node.context("this host has no name: give --node-name")?;
    let announcer = Network::new(&node, &context.metrics);
    let options = SpeakerOptions {
        node,
        namespace: up.old.clone().or(up.system.clone()),
        version: version::BUILD.to_owned(),
        grace: Duration::ZERO,
        folder: up.sockets(),
        group: None,
        leaves: true,
        gossip: up.gossip,
    };
    let running = speaker::run(client.clone(), options, announcer, context.clone());
    Ok(async move { running.await.map_err(Into::into) })
}

/// Runs a role, and reports if it ends before it is asked to.
fn watched(
    name: &'static str,
    role: impl Future<Output = anyhow::Result<()>> + Send + 'static,
    context: &Context,
    failure: &mpsc::Sender<anyhow::Error>,
) -> JoinHandle<()> {
    let (shutdown, failure) = (context.shutdown.clone(), failure.clone());
    tokio::spawn(async move {
        let why = match tokio::spawn(role).await {
            Ok(Ok(())) if *shutdown.borrow() => return,
            Ok(Ok(())) => anyhow!("{name} ended by itself"),
            Ok(Err(error)) => error.context(format!("{name} ended")),
            Err(panic) => anyhow!(panic).context(format!("{name} ended")),
        };
        let _ = failure.try_send(why);
    })
}

/// The leader before this process is gone, since only this process uses the data. A Lease that it left
/// would only delay the election.
async fn forget_leader(client: &Client, namespace: &str) -> anyhow::Result<()> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    match leases.delete(names::LEASE_CONTROLLER, &DeleteParams::default()).await {
        Ok(_) => Ok(()),
        Err(Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error).context("cannot become the leader"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn why(role: impl Future<Output = anyhow::Result<()>> + Send + 'static) -> String {
        let (context, _stop) = Context::new();
        let (failure, mut failed) = mpsc::channel(1);
        watched("it", role, &context, &failure).await.expect("it is watched to its end");
        let error = failed.try_recv().expect("its end is told");
        format!("{error:#}")
    }

    #[tokio::test]
    async fn a_role_that_ends_fails_or_panics_is_noticed() {
        assert_eq!(why(async { Ok(()) }).await, "it ended by itself");
        assert_eq!(why(async { Err(anyhow!("no API")) }).await, "it ended: no API");
        let panicked = why(async { panic!("a test of panics") }).await;
        assert!(panicked.contains("it ended: ") && panicked.contains("panicked"), "{panicked}");
    }

    #[tokio::test]
    async fn a_role_that_was_asked_to_end_is_no_failure() {
        let (context, stop) = Context::new();
        let (failure, mut failed) = mpsc::channel(1);
        stop.send(true).expect("somebody listens");
        watched("it", async { Ok(()) }, &context, &failure).await.expect("its end");
        assert!(failed.try_recv().is_err());
    }
}
