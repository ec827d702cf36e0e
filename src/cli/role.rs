//! What `bowline controller` and `bowline agent` share: flags, the admin endpoint, and the orderly end after
//! a signal.

use super::signals::{AT_ONCE, Signals};
use super::version;
use anyhow::Context as _;
use bowline_runtime::admin::Admin;
use bowline_runtime::roles::{Context, RoleError};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;
use tracing::field::display;

/// Where health and metrics are served.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Process")]
pub(super) struct AdminFlag {
    /// Serve /livez, /readyz and /metrics here; port 0 takes any that is free [default: 127.0.0.1:9180]
    #[arg(long, value_name = "ADDR:PORT", value_parser = address)]
    admin: Option<SocketAddr>,
}

impl AdminFlag {
    const DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9180);

    /// The address of a process that runs on.
    pub(super) fn address(&self) -> SocketAddr {
        self.admin.unwrap_or(Self::DEFAULT)
    }

    /// The address of a process that ends by itself: none unless one is given.
    pub(super) fn given(&self) -> Option<SocketAddr> {
        self.admin
    }
}

/// Parses an address and a port. An address of either family may have brackets: a manifest that inserts the
/// address of a node does not know its family.
fn address(text: &str) -> Result<SocketAddr, String> {
    let bracketed = || {
        let (ip, port) = text.strip_prefix('[')?.split_once("]:")?;
        Some(SocketAddr::new(ip.parse().ok()?, port.parse().ok()?))
    };
    let read = text.parse().ok().or_else(bracketed);
    read.ok_or_else(|| {
        "write an address and a port, such as 127.0.0.1:9180 or [::1]:9180".to_owned()
    })
}

/// How long an end may take.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Process")]
pub(super) struct GraceFlag {
    /// How long requests under way may take when the process stops; a second signal ends it at once
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
#[command(next_help_heading = "Addresses and names")]
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

/// Runs a role until it ends by itself or after a signal. Without an address it serves no admin endpoint.
pub(super) fn run<R>(
    admin: Option<SocketAddr>,
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
        let admin = match admin {
            Some(address) => Some(Admin::bind(address).await?),
            None => None,
        };
        let (mut context, stop) = Context::new();
        context.admin = admin.as_ref().map(|it| it.address);
        version::count(&context.metrics);
        let mut role = std::pin::pin!(role(context.clone()).await?);
        let address = admin.as_ref().map(|it| display(it.address));
        tracing::info!(version = version::BUILD, admin = address, "started");
        let serving = admin.map(|admin| {
            tokio::spawn(admin.serve(
                context.metrics.clone(),
                context.readiness.clone(),
                context.agents.clone(),
                context.shutdown.clone(),
            ))
        });
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
        if let Some(serving) = serving {
            let _ = serving.await;
        }
        done.map_err(Into::into)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_either_version_may_have_brackets() {
        let read = |text| address(text).map(|address| address.to_string());
        for (text, expected) in [
            ("127.0.0.1:9180", "127.0.0.1:9180"),
            ("[192.0.2.1]:9180", "192.0.2.1:9180"),
            ("[::]:9180", "[::]:9180"),
        ] {
            assert_eq!(read(text).as_deref(), Ok(expected));
        }
        for bad in ["", "::1", "[192.0.2.1]", "[x]:1", "192.0.2.1:99999"] {
            assert!(address(bad).is_err(), "{bad}");
        }
    }
}
