//! What `bowline controller` and `bowline agent` share: flags, the admin endpoint, and the way from a
//! signal to an orderly end.

use super::signals;
use anyhow::Context as _;
use bowline_runtime::admin::Admin;
use bowline_runtime::roles::{Context, RoleError};
use std::net::SocketAddr;

/// Where health and metrics are served.
#[derive(Debug, clap::Args)]
pub(super) struct AdminFlag {
    /// Serve /livez, /readyz and /metrics here; port 0 takes any that is free
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:9180")]
    pub(super) admin: SocketAddr,
}

/// Runs a role to its end: its own, or the one that a signal asks for.
pub(super) fn run<R>(
    admin: SocketAddr,
    role: impl AsyncFnOnce(Context) -> anyhow::Result<R>,
) -> anyhow::Result<()>
where
    R: Future<Output = Result<(), RoleError>>,
{
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the async runtime")?;
    runtime.block_on(async {
        let interrupted = signals::shutdown()?;
        let admin = Admin::bind(admin).await?;
        let (context, stop) = Context::new();
        let mut role = std::pin::pin!(role(context.clone()).await?);
        tracing::info!(admin = %admin.address, "started");
        let serving = tokio::spawn(admin.serve(
            context.metrics.clone(),
            context.readiness.clone(),
            context.shutdown.clone(),
        ));
        let done = tokio::select! {
            done = &mut role => done,
            () = interrupted => {
                tracing::info!("stopping");
                let _ = stop.send(true);
                role.await
            }
        };
        let _ = stop.send(true);
        let _ = serving.await;
        done.map_err(Into::into)
    })
}
