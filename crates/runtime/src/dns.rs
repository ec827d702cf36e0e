//! Looks DNS names up when the schedule in `bowline_core::dns` says so, and reports the results. It
//! decides neither when to ask nor what to do with an address. The controller sends it the names that
//! Services want and receives the reports.

mod failure;
mod lookup;
mod servers;
#[cfg(test)]
mod tests;

pub use servers::{BadServer, parse_server, system_servers};

use bowline_core::clock::Uptime;
use bowline_core::dns::{Answers, Config, Effect, Event, Families, Name, Report, Schedule};
use futures::future::{AbortHandle, Abortable};
use futures::stream::{FuturesUnordered, StreamExt as _};
use lookup::Resolver;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// The DNS servers to ask, and how often.
#[derive(Clone, Debug)]
pub struct DnsOptions {
    /// Servers in the order in which they are asked; the next one only if the one before fails.
    /// [`system_servers`] has those of this machine. With no server, every look-up fails and says so.
    pub servers: Vec<SocketAddr>,
    /// How long one server may take to find a name, with all its aliases.
    pub timeout: Duration,
    /// Limits of TTLs and of concurrent look-ups.
    pub schedule: Config,
}

impl DnsOptions {
    /// These servers, five seconds each as in resolv.conf, and the usual limits.
    pub fn new(servers: Vec<SocketAddr>) -> Self {
        Self { servers, timeout: Duration::from_secs(5), schedule: Config::default() }
    }
}

/// Looks names up as long as it runs.
pub struct Dns {
    resolver: Arc<Resolver>,
    schedule: Config,
}

/// The resolver could not be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot prepare to ask the DNS server {server}: {why}")]
pub struct DnsError {
    server: SocketAddr,
    why: String,
}

impl Dns {
    /// Prepares the resolver. Nothing is sent yet.
    pub fn new(options: DnsOptions) -> Result<Self, DnsError> {
        let resolver = Resolver::new(&options.servers, options.timeout)?;
        Ok(Self { resolver: Arc::new(resolver), schedule: options.schedule })
    }

    /// Runs until one of the channels is closed. `wants` brings [`Event::Want`] and [`Event::Unwant`],
    /// which [`Wants`](bowline_core::dns::Wants) makes from the wishes of single Services. It is
    /// unbounded so that one task may both fill it and empty `reports`.
    pub async fn run(
        self,
        wants: mpsc::UnboundedReceiver<Event>,
        reports: mpsc::Sender<(Name, Report)>,
    ) {
        let resolver = self.resolver;
        let ask = |name, families| {
            let resolver = resolver.clone();
            async move { resolver.ask(&name, families).await }
        };
        drive(Schedule::new(self.schedule), Monotonic(Instant::now()), ask, wants, reports).await;
    }
}

/// Time since the start; tests replace it, so that they need not wait.
trait Clock {
    fn now(&self) -> Uptime;
    fn until(&self, at: Uptime) -> impl Future<Output = ()>;
}

struct Monotonic(Instant);

impl Clock for Monotonic {
    fn now(&self) -> Uptime {
        self.0.elapsed()
    }

    fn until(&self, at: Uptime) -> impl Future<Output = ()> {
        tokio::time::sleep_until(self.0 + at)
    }
}

/// Carries out the effects of the schedule, with `ask` as the resolver.
async fn drive<A, F>(
    mut schedule: Schedule,
    clock: impl Clock,
    ask: A,
    mut wants: mpsc::UnboundedReceiver<Event>,
    reports: mpsc::Sender<(Name, Report)>,
) where
    A: Fn(Name, Families) -> F,
    F: Future<Output = Answers>,
{
    let mut flights = FuturesUnordered::new();
    let mut handles: HashMap<u64, AbortHandle> = HashMap::new();
    loop {
        let wake = schedule.next_wake();
        let event = tokio::select! {
            event = wants.recv() => match event {
                Some(event) => Some(event),
                None => return,
            },
            () = reports.closed() => return,
            Some(answered) = flights.next() => match answered {
                Ok(answered) => Some(answered),
                // The look-up was cancelled, which the schedule knows.
                Err(futures::future::Aborted) => continue,
            },
            () = clock.until(wake.unwrap_or_default()), if wake.is_some() => None,
        };
        if let Some(Event::Answered { id, .. }) = &event {
            handles.remove(id);
        }
        let now = clock.now();
        if let Some(event) = event {
            schedule.handle(event, now);
        }
        for effect in schedule.take(now) {
            match effect {
                Effect::Look { id, name, families } => {
                    let (handle, registration) = AbortHandle::new_pair();
                    let answers = ask(name.clone(), families);
                    let flight =
                        async move { Event::Answered { name, id, answers: answers.await } };
                    flights.push(Abortable::new(flight, registration));
                    handles.insert(id, handle);
                }
                Effect::Cancel { id } => {
                    if let Some(handle) = handles.remove(&id) {
                        handle.abort();
                    }
                }
                Effect::Report { name, report } => {
                    tracing::debug!(%name, ?report, "looked up");
                    if reports.send((name, report)).await.is_err() {
                        return;
                    }
                }
            }
        }
    }
}
