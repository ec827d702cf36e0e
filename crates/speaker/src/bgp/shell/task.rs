//! The task of one peer: passes what happens to the session, and does what the session wants.

use super::Statuses;
use super::beside::{BfdSession, BfdThread};
use super::connection::{Events, Happened, Link, carry};
use super::dial::dial;
use super::discovery::Discovery;
use super::interface::next_hops_of;
use super::peer::{Peer, PeerStatus, Remote};
use super::socket::{tune, words};
use crate::bfd::shell::Told;
use crate::bgp::rib_out::Route;
use crate::bgp::session::{Conn, Effect, Event, Record, Report, Session, State, Stop};
use bowline_core::clock::Uptime;
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinSet, yield_now};
use tokio::time::sleep;

/// How much of what a peer sends waits for the task, in pieces of a read.
const WAITING: usize = 8;
/// How much is passed to the session before it is asked what to do.
const BURST: usize = 64;

/// What the rest of the shell tells the task.
#[derive(Debug)]
pub(super) enum Input {
    /// Another configuration.
    Configure(Box<Peer>),
    /// Routes that are wanted, or no longer.
    Routes(Vec<(IpNet, Option<Route>)>),
    /// Something that the session understands.
    Event(Event),
    /// The peer connected.
    Accepted(TcpStream),
    /// Why the peer cannot connect; `None`: it can.
    NotListening(Option<String>),
    /// Something about the BFD session.
    Bfd(Told),
    /// The router at the interface, or why none can be heard.
    Found(Result<Ipv6Addr, String>),
    /// End the session, then the task.
    End(Stop),
}

/// What a task begins with.
pub(super) struct Start {
    pub(super) name: String,
    pub(super) peer: Peer,
    pub(super) clock: fn() -> Uptime,
    pub(super) record: Option<fn(&str, Record)>,
    pub(super) seed: u64,
    pub(super) status: watch::Sender<Statuses>,
    pub(super) draining: bool,
    pub(super) bfd: BfdThread,
    /// Where the task itself reads.
    pub(super) input: mpsc::UnboundedSender<Input>,
}

impl Start {
    pub(super) async fn run(self, mut inputs: mpsc::UnboundedReceiver<Input>) {
        let (events, mut happened) = mpsc::channel(WAITING);
        let mut task = Task::new(self, events);
        loop {
            let wake = task.take();
            if task.ended && task.carriers.is_empty() {
                return;
            }
            let late = async {
                match wake {
                    Some(at) => sleep(at.saturating_sub((task.clock)())).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some(input) = inputs.recv() => task.input(input),
                Some((id, it)) = happened.recv() => task.happened(id, it),
                Some(_) = task.carriers.join_next() => {}
                // What waits in the kernel came in time, if this task is late.
                () = late => yield_now().await,
            }
            for _ in 0..BURST {
                if let Ok(input) = inputs.try_recv() {
                    task.input(input);
                } else if let Ok((id, it)) = happened.try_recv() {
                    task.happened(id, it);
                } else {
                    break;
                }
            }
        }
    }
}

struct Task {
    name: String,
    peer: Peer,
    clock: fn() -> Uptime,
    record: Option<fn(&str, Record)>,
    session: Session,
    events: Events,
    connections: BTreeMap<Conn, Link>,
    carriers: JoinSet<()>,
    accepted: u64,
    status: watch::Sender<Statuses>,
    /// Whether the session is established, and since when that is so.
    established: (bool, Uptime),
    not_listening: Option<String>,
    bfd: BfdSession,
    /// Where the task itself reads.
    input: mpsc::UnboundedSender<Input>,
    discovery: Option<Discovery>,
    found: Option<Result<Ipv6Addr, String>>,
    ended: bool,
}

impl Task {
    fn new(start: Start, events: Events) -> Self {
        let Start { name, peer, clock, record, seed, status, draining, bfd, input } = start;
        let now = clock();
        let session = Session::new(peer.session.clone(), seed);
        if let Some(record) = record {
            record(&name, Record::Begin(Box::new(peer.session.clone()), seed));
        }
        let bfd = BfdSession::new(bfd, input.clone());
        let mut task = Self {
            name,
            peer,
            clock,
            record,
            session,
            events,
            connections: BTreeMap::new(),
            carriers: JoinSet::new(),
            accepted: 0,
            status,
            established: (false, now),
            not_listening: None,
            bfd,
            input,
            discovery: None,
            found: None,
            ended: false,
        };
        task.handle(Event::Drain(draining));
        task.handle(Event::Start);
        task.follow();
        task
    }

    /// Looks for the router where the peer is configured by interface, and has the BFD session that the peer should have.
    fn follow(&mut self) {
        let interface = match &self.peer.remote {
            Remote::Interface(interface) => Some(interface.as_str()),
            Remote::Address(_) | Remote::LinkLocal(..) => None,
        };
        if interface != self.discovery.as_ref().map(|it| it.interface.as_str()) {
            self.found = None;
            self.discovery = interface.map(|it| Discovery::start(it, self.input.clone()));
        }
        // Without an address there is none.
        let peer = self.there().unwrap_or_else(|_| self.peer.clone());
        self.bfd.configure(&peer, self.connected_from());
    }

    /// The address of this node that the established session uses.
    fn connected_from(&self) -> Option<IpAddr> {
        let is_established = self.session.status().state == State::Established;
        self.connections.values().find_map(|it| it.local).filter(|_| is_established)
    }

    /// The peer where it was found, if it has to be found.
    fn there(&self) -> Result<Peer, String> {
        match &self.found {
            Some(Ok(address)) => Ok(self.peer.found_at(*address)),
            Some(Err(why)) => Err(why.clone()),
            None => Ok(self.peer.clone()),
        }
    }

    fn handle(&mut self, event: Event) {
        let now = (self.clock)();
        if let Some(record) = self.record {
            record(&self.name, Record::Told(now, event.clone()));
        }
        self.session.handle(event, now);
    }

    fn input(&mut self, input: Input) {
        match input {
            Input::Configure(peer) => {
                let old = std::mem::replace(&mut self.peer, *peer);
                self.handle(Event::Configure(Box::new(self.peer.session.clone())));
                if self.peer.needs_other_connection(&old) {
                    self.handle(Event::Reset);
                }
                self.follow();
            }
            Input::Routes(changes) => {
                for (prefix, route) in changes {
                    self.handle(match route {
                        Some(route) => Event::Announce(prefix, route),
                        None => Event::Withdraw(prefix),
                    });
                }
            }
            Input::Event(event) => self.handle(event),
            Input::Accepted(stream) => self.accepted(stream),
            Input::NotListening(why) => self.not_listening = why,
            Input::Bfd(told) => {
                if self.bfd.told(told) {
                    self.handle(Event::BfdDown);
                }
            }
            // A second router on the link does not take over a session.
            Input::Found(_) if self.established.0 => {}
            Input::Found(found) => {
                self.found = Some(found);
                self.follow();
            }
            Input::End(stop) => {
                if stop == Stop::Deconfigured {
                    self.bfd.end();
                }
                self.handle(Event::Stop(stop));
                self.ended = true;
            }
        }
    }

    fn accepted(&mut self, stream: TcpStream) {
        let v6 = stream.local_addr().is_ok_and(|it| it.is_ipv6());
        if let Err(error) = tune(&stream, self.peer.distance, v6) {
            let (peer, why) = (&self.name, words(&error));
            tracing::warn!(peer, "a BGP peer connected, and the socket cannot be set up: {why}");
            return;
        }
        self.accepted += 1;
        let id = Conn::In(self.accepted);
        let local = next_hops_of(&stream);
        self.carry(id, stream);
        self.handle(Event::Accepted(id, local));
    }

    fn carry(&mut self, id: Conn, stream: TcpStream) {
        let (outgoing, pieces) = mpsc::unbounded_channel();
        let (mut link, dropped) = Link::new(Some(outgoing));
        link.local = stream.local_addr().ok().map(|it| it.ip().to_canonical());
        self.connections.insert(id, link);
        self.carriers.spawn(carry(id, stream, pieces, dropped, self.events.clone()));
    }

    /// Something happened to a connection. It does not matter if the session has closed that meanwhile.
    fn happened(&mut self, id: Conn, happened: Happened) {
        let Some(link) = self.connections.get(&id) else { return };
        match happened {
            Happened::Connected(stream, local) => {
                self.carry(id, stream);
                self.handle(Event::Connected(id, local));
            }
            Happened::NotConnected(why) => {
                self.connections.remove(&id);
                self.handle(Event::NotConnected(id, why));
            }
            Happened::Received(bytes) => self.handle(Event::Received(id, bytes)),
            Happened::Written(pieces) if pieces == link.pieces => self.handle(Event::Sent(id)),
            Happened::Written(_) => {}
            Happened::Closed(why) => {
                self.connections.remove(&id);
                self.handle(Event::Closed(id, why));
            }
        }
    }

    /// Does what the session wants, and says when to come again.
    fn take(&mut self) -> Option<Uptime> {
        let now = (self.clock)();
        let effects = self.session.take(now);
        if let Some(record) = self.record {
            record(&self.name, Record::Asked(now, effects.clone()));
        }
        let mut follows = false;
        for effect in effects {
            match effect {
                Effect::Connect(id) => {
                    follows = true;
                    let (link, dropped) = Link::new(None);
                    self.connections.insert(id, link);
                    self.carriers.spawn(dial(id, self.there(), dropped, self.events.clone()));
                }
                Effect::Send(id, bytes) => {
                    let link = self.connections.get_mut(&id);
                    if let Some(Link { outgoing: Some(outgoing), pieces, .. }) = link {
                        *pieces += 1;
                        // A connection that has ended says so itself.
                        let _ = outgoing.send(bytes);
                    }
                }
                Effect::Close(id) => _ = self.connections.remove(&id),
                Effect::Report(report) => {
                    self.report(&report);
                    follows = true;
                }
            }
        }
        // Its interface is there now, if it was not before, or a route from another address.
        if follows {
            self.follow();
        }
        self.publish();
        self.session.wake_at()
    }

    fn report(&self, report: &Report) {
        let (peer, remote) = (&self.name, &self.peer.remote);
        match report {
            Report::Up(it) => {
                tracing::info!(peer, %remote, asn = it.asn, "the BGP session is established");
            }
            Report::Down(why) => tracing::warn!(peer, %remote, "the BGP session ended: {why}"),
            Report::NotUp(why) => {
                tracing::warn!(peer, %remote, "the BGP session is not established: {why}");
            }
        }
    }

    fn publish(&mut self) {
        if self.ended {
            return;
        }
        let session = self.session.status();
        let established = session.state == State::Established;
        if established != self.established.0 {
            self.established = (established, (self.clock)());
        }
        let not_listening = self.not_listening.clone().filter(|_| self.peer.session.accepts);
        let (since, bfd, bfd_flaps) = (self.established.1, self.bfd.state(), self.bfd.flaps());
        let status = PeerStatus { session, since, not_listening, bfd, bfd_flaps };
        self.status.send_if_modified(|all| {
            let changed = all.get(&self.name) != Some(&status);
            if changed {
                all.insert(self.name.clone(), status);
            }
            changed
        });
    }
}
