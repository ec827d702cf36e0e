//! The agent's `--once` with templates: writes what a load balancer has to do now into files, once. It
//! writes no Lease, since no agent stays, and no Events; refused consumers are in the log. `bowline agent`
//! runs it.

use super::watches::{follow, follow_nodes};
use super::{BURST, Heard, LACKING};
use crate::roles::{AgentOptions, Context, RoleError};
use crate::supervise::Keeper;
use bowline_core::resolver::Resolver;
use bowline_core::update::{Refusal, Update};
use bowline_drivers::template::Templates;
use kube::Client;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

/// Writes the files and notifies once. The API has `patience` to deliver all objects. Every failure is an
/// error; a refused consumer is not.
pub async fn once(
    client: Client,
    options: AgentOptions,
    mut templates: Templates,
    context: Context,
    patience: Duration,
) -> Result<(), RoleError> {
    let update = tokio::select! {
        biased;
        () = context.stopped() => return Err(RoleError::stopped()),
        update = gather(&client, &options, &context, patience) => update?,
    };
    if update.listeners.is_empty() {
        tracing::warn!(
            load_balancer = options.load_balancer,
            "the Plans of this load balancer are missing or empty: it has no consumers, no controller has \
             planned it, or no load balancer has this name"
        );
    }
    let written = context.within_grace(options.grace, templates.once(&update)).await;
    let written = written.ok_or_else(RoleError::stopped)?;
    sum_up(&written.map_err(|error| RoleError::Template(error.to_string()))?);
    Ok(())
}

/// Collects all Plans of the load balancer, and its certificates as far as they come.
async fn gather(
    client: &Client,
    options: &AgentOptions,
    context: &Context,
    patience: Duration,
) -> Result<Update, RoleError> {
    let begun = Instant::now();
    let (sender, mut heard) = mpsc::channel(4096);
    // The watches end when this function returns.
    let mut tasks = Keeper::new(context);
    follow(client, options, context, &sender, &mut tasks, false);
    let mut resolver = Resolver::with(options.members.clone());
    let mut follows_nodes = false;
    let mut batch = Vec::new();
    let mut synced = None;
    loop {
        let until = synced.unwrap_or(begun + patience);
        tokio::select! {
            biased;
            _ = heard.recv_many(&mut batch, BURST) => {}
            () = sleep_until(until) => match synced {
                Some(_) => break,
                None => return Err(RoleError::Template(format!(
                    "the API has not delivered all Plans, EndpointSlices and Secrets within {patience:?}"
                ))),
            },
        }
        batch.drain(..).for_each(|heard: Heard| resolver.handle(heard.event));
        if let Some(wrong) = resolver.refused() {
            return Err(RoleError::Template(wrong.to_owned()));
        }
        if resolver.needs_nodes() && !std::mem::replace(&mut follows_nodes, true) {
            follow_nodes(client, &options.load_balancer, context, &sender, &mut tasks);
        }
        if resolver.synced() {
            synced = synced.or(Some(Instant::now() + LACKING));
            // The resolver knows which certificates are missing only after `take`.
            let _ = resolver.take();
            if resolver.missing_certificates().next().is_none() {
                break;
            }
        }
    }
    for Refusal { consumer, problem, .. } in resolver.left_out() {
        tracing::warn!(object = %consumer, reason = %problem.reason, "{}", problem.message);
    }
    for (host, consumer) in resolver.uncertified() {
        tracing::warn!(%host, object = %consumer, "its certificate has not arrived");
    }
    Ok(resolver.snapshot())
}

/// Logs which consumers are left out.
fn sum_up(refused: &[Refusal]) {
    for Refusal { consumer, problem, .. } in refused {
        tracing::warn!(object = %consumer, reason = %problem.reason, "{}", problem.message);
    }
    let objects: BTreeSet<_> = refused.iter().map(|refused| refused.consumer.to_string()).collect();
    if !objects.is_empty() {
        let objects: Vec<_> = objects.iter().map(String::as_str).collect();
        tracing::warn!(objects = objects.join(", "), "left out, wholly or in part");
    }
}
