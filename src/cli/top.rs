//! `bowline top`: what goes on in a cluster. It reads flags, the cluster and the agents' metrics; `view::top` decides what is
//! shown.

use super::look::{Look, patiently};
use super::signals::Signals;
use super::terminal::{self, Terminal};
use super::told;
use crate::view::top::changes::{Changed, changes};
use crate::view::top::page::Page;
use crate::view::top::screen::{Course, Event, Screen};
use crate::view::top::traffic::{Announced, Traffic};
use crate::view::top::{Frame, announced};
use crate::view::{Facts, bowline_events};
use anyhow::Context as _;
use futures::StreamExt as _;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// How long a metrics page may take. Most that are not reachable refuse at once.
const ANSWER: Duration = Duration::from_secs(1);
/// How long all objects may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest metrics page that is read.
const LONGEST_PAGE: u64 = 64 << 20;
/// This many pages are read at once.
const AT_ONCE: usize = 32;

/// Show load balancers, listeners, pools, requests per second and the last changes, live in the terminal.
///
/// Keys: Tab and arrows choose a table and a row, / filters, ? helps, q quits.
///
/// Requests and connections per second come from the metrics of agents with the built-in proxy, where this machine
/// reaches them (--admin of the agents); elsewhere there is a dash. Members are then those of the EndpointSlices.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bowline top
  bowline top --namespace shop
  bowline top --once -o json | jq '.loadBalancers[] | {name, requests}'")]
pub(super) struct Top {
    /// Print one frame as text and exit; so it is without a terminal, and with -o json, too
    #[arg(long)]
    once: bool,

    /// Show only what concerns this namespace [default: all namespaces]
    #[arg(short = 'n', long, value_name = "NAME")]
    namespace: Option<String>,

    /// How often the traffic is read, and over which time rates are measured
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = interval)]
    interval: Duration,

    #[command(flatten)]
    look: Look,
}

/// Parses a time that is long enough to measure a rate.
fn interval(text: &str) -> Result<Duration, String> {
    let seconds: Option<f64> = text.parse().ok();
    let seconds = seconds.filter(|it| (0.1..=3600.0).contains(it));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "write seconds from 0.1 to 3600".to_owned())
}

impl Top {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let Self { once, namespace, interval, look } = self;
        let live = !once && look.is_text() && terminal::is_one();
        look.block_on(async |look, client| {
            let mut reader = Reader::new(look, client, namespace, interval);
            // An error now is told as by every other command.
            patiently(reader.read_cluster()).await?;
            if live {
                return show(&mut reader).await;
            }
            reader.read_traffic().await;
            tokio::time::sleep(interval).await;
            reader.read_traffic().await;
            look.print(&reader.frame()?)
        })
    }
}

/// Shows the live view until a key or a signal ends it.
async fn show(reader: &mut Reader<'_>) -> anyhow::Result<()> {
    let mut signals = Signals::new()?;
    let mut terminal = Terminal::begin()?;
    let mut keys = terminal::keys();
    let mut screen = Screen::default();
    let mut pause = Duration::ZERO;
    loop {
        {
            let mut reading = std::pin::pin!(reader.step(pause));
            loop {
                terminal.draw(|to| screen.draw(to))?;
                let key = tokio::select! {
                    () = &mut reading => break,
                    () = signals.next() => return Ok(()),
                    key = keys.recv() => key,
                };
                // Without keys there is no terminal any more.
                let Some(key) = key else { return Ok(()) };
                let course = key.map(|key| screen.handle(Event::Key(key)));
                if course == Some(Course::Ends) {
                    return Ok(());
                }
            }
        }
        screen.handle(Event::Seen(Box::new(reader.frame()?)));
        if let Some(why) = reader.failure.clone() {
            screen.handle(Event::Failed(why));
        }
        pause = reader.interval;
    }
}

/// Reads the cluster and its traffic, and remembers both.
struct Reader<'a> {
    look: &'a Look,
    client: Client,
    namespace: Option<String>,
    interval: Duration,
    begun: Instant,
    /// When to read the cluster again.
    due: Instant,
    /// Why the last read of the cluster failed.
    failure: Option<String>,
    facts: Option<Facts>,
    changes: Vec<Changed>,
    traffic: Traffic,
}

impl<'a> Reader<'a> {
    fn new(look: &'a Look, client: Client, namespace: Option<String>, interval: Duration) -> Self {
        Self {
            look,
            client,
            namespace,
            interval,
            begun: Instant::now(),
            due: Instant::now(),
            failure: None,
            facts: None,
            changes: Vec::new(),
            traffic: Traffic::default(),
        }
    }

    /// Reads the traffic after a pause, and before it the cluster if that is due: at most a tenth of the time, because in a
    /// large cluster it costs much.
    async fn step(&mut self, pause: Duration) {
        tokio::time::sleep(pause).await;
        if self.due <= Instant::now() {
            let begun = Instant::now();
            let read = tokio::time::timeout(PATIENCE, self.read_cluster()).await;
            self.failure = match read {
                Ok(read) => read.err().map(|error| told(&error)),
                Err(_) => Some("the cluster does not answer".to_owned()),
            };
            self.due = Instant::now() + self.interval.max(begun.elapsed() * 9);
        }
        self.read_traffic().await;
    }

    /// Reads all objects and Events.
    async fn read_cluster(&mut self) -> anyhow::Result<()> {
        self.facts = Some(self.look.facts_about(&self.client, self.namespace.as_deref()).await?);
        self.changes = changes(&bowline_events(&self.client).await?);
        Ok(())
    }

    /// Reads the metrics of all agents that can be reached.
    async fn read_traffic(&mut self) {
        let agents = self.facts.as_ref().map(announced).unwrap_or_default();
        let pages = pages(&agents).await;
        self.traffic.take(&agents, &pages, self.begun.elapsed());
    }

    /// What was read last.
    fn frame(&self) -> anyhow::Result<Frame> {
        let facts = self.facts.as_ref().context("nothing was read")?;
        let namespace = self.namespace.as_deref();
        Ok(Frame::of(facts, &self.traffic, self.changes.clone(), namespace, Timestamp::now()))
    }
}

/// The metrics pages that these agents announce, as far as they answer in time.
async fn pages(agents: &[Announced]) -> BTreeMap<SocketAddr, Page> {
    let addresses: BTreeSet<SocketAddr> = agents.iter().filter_map(|it| it.admin).collect();
    let read = async |address| {
        let page = tokio::time::timeout(ANSWER, page(address)).await.ok()?;
        Some((address, Page::read(&page.ok()?)))
    };
    futures::stream::iter(addresses.into_iter().map(read))
        .buffer_unordered(AT_ONCE)
        .filter_map(std::future::ready)
        .collect()
        .await
}

/// The metrics page at an address.
async fn page(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    // An answer to HTTP/1.0 is not chunked.
    let request = format!("GET /metrics HTTP/1.0\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(LONGEST_PAGE).read_to_end(&mut answer).await?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    let is_ok = head.split(' ').nth(1) == Some("200");
    Ok(if is_ok { body.to_owned() } else { String::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_long_enough_to_measure() {
        assert_eq!(interval("0.5"), Ok(Duration::from_millis(500)));
        for bad in ["0", "-1", "NaN", "x", "1e9"] {
            assert!(interval(bad).is_err(), "{bad}");
        }
    }
}
