//! The speaker of one node: follows Addresses, Advertisements, BGPPeers and what says where addresses are served, and
//! has its announcer announce what `core::announce` decides. It writes nothing to the API but its Lease. While the API
//! is away, it goes on announcing what it knows. `bowline speaker` and `bowline up --speaker` start it.
//!
//! ```text
//!  watches, agents' socket, health checks ─▶ channel ─▶ Announcements ─▶ effects ─▶ Announcer ─▶ network
//!                                                                                      │
//!                                                        Lease ◀── reporter ◀── report ┘
//! ```

mod agents;
mod announcer;
mod bgp;
mod health;
mod host;
mod l2_metrics;
mod links;
mod metrics;
mod network;
mod reporter;
mod watches;

pub use announcer::{Announcer, Ending, Gossip};
pub use bgp::Routers;
pub use host::sweep;
pub use network::Network;

use crate::roles::{Context, RoleError};
use crate::supervise::Keeper;
use bowline_core::announce::{Announcements, Effect, Event, Kind, Moves, Name, Object, Wish};
use bowline_core::clock::in_words;
use bowline_core::report::speaker::SpeakerReport;
use bowline_speaker::l2::speaker::GOSSIP_PORT;
use health::Checks;
use kube::Client;
use metrics::Gauges;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// The most events that are read before the announcer gets its turn.
const BURST: usize = 16_384;
/// How long after the first complete view agents have time to say what is open, before routers that kept routes are
/// told to forget the others.
const AGENTS_COME: Duration = Duration::from_secs(3);
/// How long the last report may take.
const RELEASE: Duration = Duration::from_secs(2);
/// How long other speakers have at least to take over addresses on links.
const HANDOVER: Duration = Duration::from_secs(2);
/// The least time between two reports.
const PAUSE: Duration = Duration::from_millis(200);

/// How a speaker is started.
#[derive(Clone, Debug)]
pub struct SpeakerOptions {
    /// The node that it announces from: the name of its Node object, where there is one.
    pub node: String,
    /// Bowline's own namespace.
    pub namespace: String,
    /// The version of this program, as the speaker's Lease tells it.
    pub version: String,
    /// How long it waits between withdrawing and its end, where it withdraws.
    pub grace: Duration,
    /// The folder of the socket at which agents say what is open. None: it has no socket.
    pub folder: Option<PathBuf>,
    /// The group of which agents may use the socket, beside this process's own user.
    pub group: Option<u32>,
    /// Whether its end means that the node leaves: all is withdrawn. Otherwise routers keep the routes for the next
    /// speaker, unless the Node object says that the node leaves.
    pub leaves: bool,
    /// Where other speakers reach this one by gossip. None: at the address of the Node, or without a Node object at the
    /// first address of the machine, and at the usual port.
    pub gossip: Option<SocketAddr>,
}

/// What the speaker hears.
#[derive(Debug)]
enum Heard {
    /// An event for the machine.
    Event(Event),
    /// A password of a BGPPeer, by the name of its Secret. None: it is gone.
    Password(Arc<str>, Option<Vec<u8>>),
    /// An event about an Address, and which node should own it.
    Address(Event, Option<Wish>),
    /// The key that all speakers have.
    Key(Vec<u8>),
    /// Where the speaker with this Lease is reached by gossip.
    Speaker(Arc<str>, Option<SocketAddr>),
}

/// Runs a speaker until the context is stopped. The process is not ready before the first complete view.
pub async fn run<A: Announcer>(
    client: Client,
    options: SpeakerOptions,
    announcer: A,
    context: Context,
) -> Result<(), RoleError> {
    let first_view = "the first view of addresses to announce";
    context.readiness.awaits(first_view);
    let mut tasks = Keeper::new(&context);
    let (sender, mut heard) = mpsc::channel(4096);
    watches::follow(&client, &options, &context, &sender, &mut tasks);
    let leases = client.clone();
    let later = sender.clone();
    let passwords =
        watches::Passwords { client: client.clone(), namespace: options.namespace.clone() };
    if let Some(folder) = &options.folder {
        agents::listen(folder.clone(), options.group, sender.clone(), &mut tasks);
    }
    let node: Arc<str> = options.node.as_str().into();
    let first =
        SpeakerReport::new(node.clone(), options.version.as_str().into(), BTreeMap::new(), [], []);
    let (report, reports) = watch::channel(first);
    let reporter = reporter::Reporter::new(client, &options, context.metrics.clone());
    let reports_in = reporter.clone();
    tasks.keep("the report of the speaker", move |works| {
        reports_in.clone().run(reports.clone(), works)
    });
    let mut speaker = Speaker {
        machine: Announcements::new(node.clone()),
        announcer,
        checks: Checks::new(sender),
        report,
        version: options.version.as_str().into(),
        node,
        gauges: Gauges::new(&context.metrics),
        completes: None,
        reports_at: None,
        moves: Moves::default(),
        key: None,
        secrets: Secrets::default(),
        speakers: BTreeMap::new(),
        gossip: options.gossip,
    };
    let follow = Leases { client: leases, namespace: options.namespace.clone() };
    let mut leases = Some(follow);
    let mut batch = Vec::new();
    let mut is_ready = false;
    loop {
        let due = speaker.due();
        let due = async {
            match due {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            count = heard.recv_many(&mut batch, BURST) => {
                if count == 0 {
                    return Err(RoleError::Ended("the watches of the speaker"));
                }
                speaker.hear(batch.drain(..));
            }
            events = speaker.announcer.changed() => {
                speaker.hear(events.into_iter().map(Heard::Event));
                speaker.report_soon();
            }
            () = due => speaker.at_last(),
            () = context.stopped() => break,
        }
        if !is_ready && speaker.machine.is_synced() {
            is_ready = true;
            speaker.gauges.synced();
            // Sessions come up, and agents say what is open. An earlier report would say that all this is gone.
            speaker.reports_at = Some(Instant::now() + AGENTS_COME);
            context.readiness.reached(first_view);
        }
        // Speakers at addresses of Nodes find each other. The others are found by their Leases.
        if is_ready
            && speaker.is_elsewhere()
            && let Some(leases) = leases.take()
        {
            watches::follow_speakers(&leases, &context, &later, &mut tasks);
        }
        for secret in std::mem::take(&mut speaker.secrets.new) {
            passwords.follow(&secret, &context, &later, &mut tasks);
        }
    }
    context.readiness.reached(first_view);
    tasks.shutdown().await;
    speaker.end(&options, reporter).await;
    Ok(())
}

struct Speaker<A> {
    machine: Announcements,
    announcer: A,
    checks: Checks,
    report: watch::Sender<SpeakerReport>,
    version: Arc<str>,
    node: Arc<str>,
    gauges: Gauges,
    /// When to tell routers that everything is announced.
    completes: Option<Instant>,
    /// When to report.
    reports_at: Option<Instant>,
    moves: Moves,
    key: Option<Vec<u8>>,
    secrets: Secrets,
    /// Where speakers say that they are reached, by Lease.
    speakers: BTreeMap<Arc<str>, SocketAddr>,
    /// Where other speakers reach this one, as the administrator says.
    gossip: Option<SocketAddr>,
}

/// The Secrets with passwords of the peers of this node.
#[derive(Default)]
struct Secrets {
    /// Those that are followed. They are until the speaker ends.
    known: BTreeSet<Arc<str>>,
    /// Those that are to be followed from now on.
    new: Vec<Arc<str>>,
}

impl Secrets {
    fn need(&mut self, secret: &Arc<str>) {
        if self.known.insert(secret.clone()) {
            self.new.push(secret.clone());
        }
    }
}

/// What the watch of the Leases of other speakers needs.
struct Leases {
    client: Client,
    namespace: String,
}

impl<A: Announcer> Speaker<A> {
    fn hear(&mut self, batch: impl Iterator<Item = Heard>) {
        let (mut finds, mut moves) = (false, Vec::new());
        for heard in batch {
            match heard {
                Heard::Event(event) => {
                    finds |= concerns_nodes(&event);
                    self.checks.observe(&event);
                    if matches!(event, Event::Agent(..)) {
                        self.report_soon();
                    }
                    self.machine.handle(event);
                }
                Heard::Password(secret, password) => self.announcer.password(secret, password),
                Heard::Address(event, wish) => {
                    moves.extend(self.wished(&event, wish));
                    self.machine.handle(event);
                }
                Heard::Key(key) => {
                    finds |= self.key.as_ref() != Some(&key);
                    self.key = Some(key);
                }
                Heard::Speaker(lease, at) => {
                    let before = match at {
                        Some(at) => self.speakers.insert(lease, at),
                        None => self.speakers.remove(&lease),
                    };
                    finds |= before != at;
                }
            }
        }
        if finds && self.machine.is_synced() {
            self.announcer.gossip(self.gossip());
        }
        let mut effects = self.machine.take();
        let before = effects.len();
        effects.retain(|effect| *effect != Effect::Complete);
        if effects.len() < before {
            self.completes = Some(Instant::now() + AGENTS_COME);
        }
        for effect in &effects {
            match effect {
                Effect::Check(service, port) => self.checks.set(service.clone(), *port),
                Effect::Peer(peer) => {
                    peer.password_secret.iter().for_each(|it| self.secrets.need(it));
                }
                _ => {}
            }
        }
        if !effects.is_empty() {
            self.announcer.carry_out(effects);
            self.report_soon();
        }
        for (address, wish) in moves {
            self.announcer.move_to(address, wish);
            self.report_soon();
        }
    }

    /// The wish that is to be carried out now.
    fn wished(&mut self, event: &Event, wish: Option<Wish>) -> Option<(IpAddr, Wish)> {
        let address = match event {
            Event::Apply(Object::Address(record, _)) => record.address,
            Event::Delete(Name::Address(address)) => *address,
            Event::Done(Kind::Address) => {
                self.moves.listed();
                return None;
            }
            _ => return None,
        };
        self.moves.observe(address, wish).map(|wish| (address, wish))
    }

    /// How this speaker and the others find each other.
    fn gossip(&self) -> Gossip {
        let own = self.machine.reached_at().and_then(|all| all.first().copied());
        let at = self.gossip.or_else(|| {
            own.or_else(first_address).map(|address| SocketAddr::new(address, GOSSIP_PORT))
        });
        let port = at.map_or(GOSSIP_PORT, |at| at.port());
        let family = at.is_some_and(|at| at.is_ipv4());
        let nodes = self.machine.others().filter(|it| it.is_ipv4() == family);
        let nodes = nodes.map(|address| SocketAddr::new(address, port));
        let peers = nodes.chain(self.speakers.values().copied());
        let peers: BTreeSet<_> = peers.filter(|it| Some(*it) != at).collect();
        Gossip { at, peers, key: self.key.clone() }
    }

    /// Whether other speakers cannot find this one by its Node object.
    fn is_elsewhere(&self) -> bool {
        self.gossip.is_some() || self.machine.reached_at().is_none_or(<[_]>::is_empty)
    }

    /// The first report is not sooner than that.
    fn report_soon(&mut self) {
        if self.machine.is_synced() {
            self.reports_at.get_or_insert_with(|| Instant::now() + PAUSE);
        }
    }

    /// When the next thing is due.
    fn due(&self) -> Option<Instant> {
        self.completes.into_iter().chain(self.reports_at).min()
    }

    fn at_last(&mut self) {
        let now = Instant::now();
        if self.completes.take_if(|at| *at <= now).is_some() {
            self.announcer.carry_out(vec![Effect::Complete]);
        }
        if self.reports_at.take_if(|at| *at <= now).is_some() {
            let now = SpeakerReport::new(
                self.node.clone(),
                self.version.clone(),
                self.announcer.sessions(),
                self.machine.told(),
                self.announcer.owned(),
            )
            .on_links(self.announcer.links())
            .hearing(self.machine.agents().cloned());
            self.gauges.show(&now);
            self.report.send_if_modified(|report| {
                let changed = *report != now;
                *report = now;
                changed
            });
        }
    }

    /// A speaker that only makes place for the next one leaves the routes with the routers.
    async fn end(mut self, options: &SpeakerOptions, reporter: reporter::Reporter) {
        let leaves = options.leaves || self.machine.leaves();
        let ending = if leaves { Ending::Leave } else { Ending::Upgrade };
        if leaves {
            self.machine.handle(Event::Leave);
            let effects = self.machine.take();
            let withdraws = effects.iter().any(|it| matches!(it, Effect::Withdraw(..)));
            self.announcer.carry_out(effects);
            if withdraws {
                tracing::info!(grace = %in_words(options.grace), "withdrawn; waiting until traffic has gone");
            }
            let grace = if withdraws { options.grace } else { Duration::ZERO };
            let left =
                tokio::time::timeout(options.grace.max(HANDOVER), self.announcer.left(ending));
            let _ = tokio::join!(tokio::time::sleep(grace), left);
        } else {
            let _ = tokio::time::timeout(HANDOVER, self.announcer.left(ending)).await;
            // What it lent stays here, as routes with routers do.
            let last = self.report.borrow().clone().owning(self.announcer.owned());
            let _ = tokio::time::timeout(RELEASE, reporter.last(&last)).await;
        }
        self.announcer.stop(ending).await;
        if leaves {
            let _ = tokio::time::timeout(RELEASE, reporter.release()).await;
        }
    }
}

/// Whether an event may change where other speakers are.
fn concerns_nodes(event: &Event) -> bool {
    matches!(event, Event::Apply(Object::Node(_)) | Event::Delete(Name::Node(_)) | Event::Done(_))
}

/// The first address of this machine at which others may reach it.
fn first_address() -> Option<IpAddr> {
    let all = nix::ifaddrs::getifaddrs().into_iter().flatten();
    let addresses =
        all.filter(|it| !it.flags.contains(nix::net::if_::InterfaceFlags::IFF_LOOPBACK));
    let addresses: Vec<IpAddr> = addresses
        .filter_map(|it| {
            let address = it.address?;
            let v4 = address.as_sockaddr_in().map(|it| it.ip().into());
            v4.or_else(|| address.as_sockaddr_in6().map(|it| it.ip().into()))
        })
        .collect();
    let v4 = addresses.iter().find(|it| matches!(it, IpAddr::V4(it) if !it.is_link_local()));
    let v6 = |it: &&IpAddr| matches!(it, IpAddr::V6(it) if !it.is_unicast_link_local());
    v4.or_else(|| addresses.iter().find(v6)).copied()
}
