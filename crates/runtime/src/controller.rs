//! The controller: observes everything, decides, and while it leads records what was decided: addresses, keys that sign
//! cookies, certificates, Plans, then, once the agents' Leases prove it, status. `bowline controller` and `bowline up`
//! start it. A controller that does not lead observes the same and writes nothing. This file starts and ends its tasks;
//! what it does is `turn`.
//!
//! ```text
//!  watches ─▶ turn: state.observe ─▶ state.decide ─▶ state.next ─▶ writer ─▶ API
//!                        ▲                                           │
//!                        └────────────── state.wrote ◀───────────────┘
//! ```

mod addresses;
mod agents;
mod bindings;
mod boards;
mod certificate_book;
mod certificates;
mod consumers;
mod gossip_key;
mod kinds;
mod namespace;
mod observed;
mod outbox;
mod packed;
mod plan_book;
mod plans;
mod provisions;
mod render;
mod seats;
mod shown;
mod state;
mod target;
#[cfg(test)]
mod testing;
mod turn;
mod watches;
mod write_queue;
mod writer;

use crate::dns::{self, Dns, DnsOptions};
use crate::elect::{self, Leadership, Settings};
use crate::event_recorder;
use crate::roles::{Context, ControllerOptions, RoleError};
use crate::supervise::Alarm;
use bowline_api::LoadBalancerClass;
use bowline_api::convert::{self, Location};
use bowline_api::source::{BareMetalType, ClassSource, LoadBalancerSource};
use bowline_core::binder::Class;
use bowline_core::planner::Config;
use kube::Client;
use state::State;
use std::path::Path;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use turn::Turn;
use writer::Writer;

/// What the process waits for before it is ready.
const FIRST_PLAN: &str = "the first plan to be written";

/// Whether this build can drive load balancers of this source.
pub fn has_driver(source: &LoadBalancerSource) -> bool {
    match source {
        LoadBalancerSource::Builtin(_) => cfg!(feature = "proxy"),
        LoadBalancerSource::Template(_) => true,
        LoadBalancerSource::BareMetalLoadBalancer(proxy) => match proxy.type_ {
            BareMetalType::Haproxy | BareMetalType::Nginx => true,
        },
        _ => false,
    }
}

/// A LoadBalancerClass as the binder takes it. A class whose source this build cannot drive provisions nothing.
pub fn class(class: &LoadBalancerClass) -> Class {
    let known = convert::class(class);
    match class.spec.source {
        ClassSource::Builtin(_) if !cfg!(feature = "proxy") => {
            Class { unmakable: Some("this build has no driver for builtin".into()), ..known }
        }
        _ => known,
    }
}

/// Runs a controller until the context is stopped. The process is not ready from this call on, even before the future
/// is first polled.
pub fn run(
    client: Client,
    options: ControllerOptions,
    context: Context,
) -> impl Future<Output = Result<(), RoleError>> + Send {
    context.readiness.awaits(FIRST_PLAN);
    lead(client, options, context)
}

async fn lead(
    client: Client,
    options: ControllerOptions,
    context: Context,
) -> Result<(), RoleError> {
    tokio::select! {
        () = context.stopped() => return Ok(()),
        ensured = namespace::ensure(&client, &options.namespace) => ensured?,
    }
    let (sender, observed) = mpsc::channel(4096);
    let mut watches = watches::follow(&client, &options, &context, &sender);
    drop(sender);
    let shutdown = context.shutdown.clone();
    let settings = Settings::of(&options);
    let mut alarm = Alarm::default();
    let (made, remade) = watch::channel(0);
    let own =
        namespace::keep(client.clone(), options.namespace.clone(), context.metrics.clone(), made);
    let keeping = alarm.spawn("the keeper of the namespace", own);
    let (leadership, election) = if options.election {
        let (leadership, election) = elect::take_part(
            client.clone(),
            &options.namespace,
            &options.identity,
            settings,
            shutdown,
        );
        (leadership, alarm.spawn("the election", election))
    } else {
        let said =
            elect::publish(client.clone(), options.namespace.clone(), settings, remade, shutdown);
        (Leadership::always(), alarm.spawn("the writer of settings", said))
    };
    let client = elect::guard(&client, &leadership);
    let (recorder, recording) = event_recorder::start(
        client.clone(),
        bowline_api::names::MANAGER_CONTROLLER,
        options.identity.clone(),
        context.metrics.clone(),
    );
    let recording = alarm.spawn("the writer of Events", recording);
    let dns = options
        .dns
        .clone()
        .unwrap_or_else(|| DnsOptions::new(dns::system_servers(Path::new("/etc/resolv.conf"))));
    let (names, wanted) = mpsc::unbounded_channel();
    let (reports, found) = mpsc::channel(64);
    let resolving = alarm.spawn("the look-up of names", Dns::new(dns)?.run(wanted, reports));
    let config = Config {
        default_class: options.default_class,
        default_load_balancer: options.default_load_balancer.as_deref().map(Into::into),
    };
    let grace = i64::try_from(options.address_grace.as_secs()).unwrap_or(i64::MAX);
    let addresses = bowline_core::addresses::Config { grace };
    let location = match options.local_ports {
        Some((http_port, https_port)) => Location::Machine { http_port, https_port },
        None => Location::Cluster { namespace: options.namespace.clone() },
    };
    let key = gossip_key::keep(client.clone(), options.namespace.clone(), context.metrics.clone());
    let keying = alarm.spawn("the keeper of the speakers' key", key);
    let turn = Turn::new(
        State::new(config, addresses).on(location, options.images, options.deny_members),
        Writer { client, namespace: options.namespace },
        leadership,
        recorder,
        names,
        context,
    );
    // A task that ends by itself has failed in an unforeseen way. Without it the controller would miss events or write
    // nothing, and still look alive. It serves no traffic, and another controller can lead: so it ends.
    let failed = tokio::select! {
        () = turn.run(observed, found) => None,
        what = alarm.rings() => Some(what),
        Some(ended) = watches.join_next() => {
            let why = ended.err().map(|error| error.to_string());
            tracing::error!(why, "a watch has ended");
            Some("a watch")
        }
    };
    watches.shutdown().await;
    keeping.abort();
    recording.abort();
    keying.abort();
    resolving.abort();
    // The release is a courtesy to the next leader, which otherwise waits for the Lease to expire.
    let _ = tokio::time::timeout(Duration::from_secs(3), election).await;
    failed.map_or(Ok(()), |what| Err(RoleError::Ended(what)))
}
