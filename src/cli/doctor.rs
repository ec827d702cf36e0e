//! `bowline doctor`: checks an installation. It gathers the facts from the cluster and changes nothing; `view::doctor`
//! decides what is wrong.

mod rights;

use super::look::Look;
use super::version;
use crate::view::Lists;
use crate::view::doctor::{Diagnosis, Installation};
use k8s_openapi::jiff::{Timestamp, fmt::rfc2822};
use kube::Client;
use kube::client::Body;
use std::process::ExitCode;

/// Check an installation, and say for each finding what helps.
///
/// Looks at Bowline's kinds, the rights of its controllers and agents, the leader, the agents and their versions,
/// pools that overlap, addresses that no agent serves, speakers and their sessions, and clocks. Changes nothing. Exits with 1 if something is
/// wrong, and with 0 if not.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bowline doctor
  bowline doctor -o json | jq '.checks[] | select(.state == \"Wrong\")'")]
pub(super) struct Doctor {
    #[command(flatten)]
    look: Look,
}

impl Doctor {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        self.look.block_on(async |look, client| {
            let diagnosis = Diagnosis::of(&gather(look, &client).await?);
            look.print(&diagnosis)?;
            Ok(if diagnosis.is_wrong() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
        })
    }
}

async fn gather(look: &Look, client: &Client) -> anyhow::Result<Installation> {
    let system = look.system().to_owned();
    let kinds = super::look::patiently(Lists::kinds(client)).await?;
    let server_ahead = server_ahead(client).await;
    // Ages are told by the clock that all of them share.
    let ahead = server_ahead.unwrap_or_default();
    let now = Timestamp::now();
    let now = Timestamp::from_second(now.as_second() + ahead).unwrap_or(now);
    let lists = Lists::read(client, &system).await;
    let seen = lists.as_ref().ok();
    let (leases, pools) = (
        seen.map(|it| it.leases.clone()).unwrap_or_default(),
        seen.and_then(|it| it.pools.clone()),
    );
    let names = seen.into_iter().flat_map(|it| &it.load_balancers);
    let names: Vec<&str> = names.filter_map(|lb| lb.metadata.name.as_deref()).collect();
    Ok(Installation {
        rights: rights::check(client, &system, &names).await,
        hidden: seen.map(|it| it.hidden.clone()).unwrap_or_default(),
        facts: lists.map(|lists| look.facts_of(lists, now)),
        version: version::BUILD.to_owned(),
        system,
        kinds,
        pools,
        leases,
        server_ahead,
        now,
    })
}

/// By how many seconds the API server's clock is ahead of this machine's.
async fn server_ahead(client: &Client) -> Option<i64> {
    let request = http::Request::get("/version").body(Body::empty()).ok()?;
    let answer = client.send(request).await.ok()?;
    let date = answer.headers().get(http::header::DATE)?.to_str().ok()?;
    let server = rfc2822::parse(date).ok()?.timestamp();
    Some(server.as_second() - Timestamp::now().as_second())
}
