//! The roles of `bowline up` in one process: started on what is recorded, stopped in the order in which
//! nobody misses another.

use super::Up;
use super::agents::Agents;
use super::local;
use crate::demo::Kubelet;
use anyhow::Context as _;
use bowline_api::names;
use bowline_runtime::admin::Admin;
use bowline_runtime::controller;
use bowline_runtime::roles::{Context, ControllerOptions};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, DeleteParams};
use kube::{Client, Error};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// All of them.
pub(super) struct Roles {
    pub(super) context: Context,
    stop: watch::Sender<bool>,
    stop_pods: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
    pods: Option<JoinHandle<()>>,
}

impl Roles {
    /// Starts them.
    pub(super) async fn start(up: &Up, client: &Client, admin: Admin) -> anyhow::Result<Self> {
        if up.default_load_balancer.is_none() {
            up.local.ensure(client).await?;
        }
        forget_leader(client, &up.namespace).await?;
        let (context, stop) = Context::new();
        let (stop_pods, pods_stopped) = watch::channel(false);
        let pods = up.demo.then(|| {
            tokio::spawn(Kubelet::run(client.clone(), context.changes.clone(), pods_stopped))
        });
        let agents = Agents::new(
            client.clone(),
            context.clone(),
            up.namespace.clone(),
            up.proxy.proxies(&context.metrics),
        );
        let options = ControllerOptions {
            namespace: up.namespace.clone(),
            default_class: up.class.default_class.unwrap_or(true),
            default_load_balancer: Some(
                up.default_load_balancer.clone().unwrap_or_else(|| local::NAME.to_owned()),
            ),
            ..ControllerOptions::default()
        };
        let controller = controller::run(client.clone(), options, context.clone());
        let controller = async move {
            if let Err(error) = controller.await {
                eprintln!("bowline: the controller ended: {error}");
            }
        };
        let admin = admin.serve(
            context.metrics.clone(),
            context.readiness.clone(),
            context.shutdown.clone(),
        );
        let tasks = vec![tokio::spawn(agents.run()), tokio::spawn(controller), tokio::spawn(admin)];
        Ok(Self { context, stop, stop_pods, tasks, pods })
    }

    /// Stops them: load balancers let what is under way end, and only then their members go.
    pub(super) async fn stop(self) {
        let _ = self.stop.send(true);
        for task in self.tasks {
            let _ = task.await;
        }
        let _ = self.stop_pods.send(true);
        if let Some(pods) = self.pods {
            let _ = pods.await;
        }
    }
}

/// Who led before this process is gone: the data is ours alone. A Lease that it left would only delay us.
async fn forget_leader(client: &Client, namespace: &str) -> anyhow::Result<()> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    match leases.delete(names::LEASE_CONTROLLER, &DeleteParams::default()).await {
        Ok(_) => Ok(()),
        Err(Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error).context("cannot become the leader"),
    }
}
