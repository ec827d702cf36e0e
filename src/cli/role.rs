//! What `bowline controller` and `bowline agent` share: flags, the admin endpoint, and the way from a
//! signal to an orderly end.

use super::signals::{AT_ONCE, Signals};
use anyhow::Context as _;
use bowline_runtime::admin::Admin;
use bowline_runtime::roles::{Context, RoleError};
use std::net::SocketAddr;
use std::time::Duration;

/// Where health and metrics are served.
#[derive(Debug, clap::Args)]
pub(super) struct AdminFlag {
    /// Serve /livez, /readyz and /metrics here; port 0 takes any that is free
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:9180")]
    pub(super) admin: SocketAddr,
}

/// How long an end may take.
#[derive(Debug, clap::Args)]
pub(super) struct GraceFlag {
    /// How long requests under way may take when it stops; a second signal ends them at once
    #[arg(long = "grace", value_name = "SECONDS", default_value_t = 10)]
    seconds: u64,
}

impl GraceFlag {
    pub(super) fn time(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

/// How long a move to another address takes.
#[derive(Debug, clap::Args)]
pub(super) struct AddressGraceFlag {
    /// How long a Service or LoadBalancer that moves to another address is still served at the old one: 0
    /// for not at all, at most a day
    #[arg(
        long = "address-grace",
        value_name = "SECONDS",
        default_value_t = 60,
        value_parser = clap::value_parser!(u64).range(..=86_400)
    )]
    address_grace: u64,
}

impl AddressGraceFlag {
    pub(super) fn time(&self) -> Duration {
        Duration::from_secs(self.address_grace)
    }
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
        let mut signals = Signals::new()?;
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
            () = signals.next() => {
                tracing::info!("stopping; a second signal ends it at once");
                let _ = stop.send(true);
                tokio::select! {
                    done = &mut role => done,
                    () = signals.next() => std::process::exit(AT_ONCE),
                }
            }
        };
        let _ = stop.send(true);
        let _ = serving.await;
        done.map_err(Into::into)
    })
}
