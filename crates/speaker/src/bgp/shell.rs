//! Drives the sessions with TCP. It holds one task for each peer, and a listener while a peer may connect. What is to
//! be announced comes in as values and the status goes out as values; it decides nothing.
//!
//! ```text
//!  set_peers, change, complete, drain ─▶ Shell ─▶ task of a peer ─▶ connection (reads, writes)
//!                                          │           │ ▲
//!                                          │       Session (decides)
//!                        status() ◀────────┴───────────┘
//! ```
//!
//! How to use it, inside a tokio runtime:
//!
//! ```no_run
//! # use bowline_speaker::bgp::{Route, Stop, shell::{Options, Peer, Shell}};
//! # use std::collections::BTreeMap;
//! # async fn example(options: Options, peers: BTreeMap<String, Peer>) {
//! let mut shell = Shell::new(options);
//! shell.set_peers(peers); // The whole set, each time it changes. Sessions of unchanged peers go on.
//! shell.change("router", [("203.0.113.1/32".parse().unwrap(), Some(Route::default()))]);
//! shell.complete(); // Everything that is known is announced: End-of-RIB is true. Again after new peers.
//! let mut status = shell.status(); // A watch channel: the status of each peer by its name.
//! status.changed().await.unwrap();
//! shell.stop(Stop::Upgrade).await;
//! # }
//! ```
//!
//! The routes of a peer belong to it: they are forgotten when it leaves the set, and a peer that enters it starts with
//! none. Routes that a peer sends are counted and dropped.

mod beside;
mod connection;
mod dial;
mod discovery;
mod interface;
mod listener;
mod peer;
mod socket;
mod task;
#[cfg(test)]
mod tests;

use super::rib_out::Route;
use super::session::{Event, Record, Stop};
use crate::dice::mix;
use beside::BfdThread;
use bowline_core::clock::Uptime;
use ipnet::IpNet;
use listener::{Expected, Listener};
pub use peer::{Bfd, Distance, Password, Peer, PeerStatus, Remote};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use task::Input;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

/// The status of each peer by its name.
pub type Statuses = BTreeMap<String, PeerStatus>;

/// What all peers have in common.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The clock; one that counts the time for which the machine is suspended.
    pub clock: fn() -> Uptime,
    /// Spreads the delays of sessions. It differs between speakers and between starts.
    pub seed: u64,
    /// Where peers connect to: 179.
    pub listen_port: u16,
}

/// All peers of a speaker, and the BFD sessions beside them. When it is dropped without [`Shell::stop`], the sessions end as if the process were killed.
#[derive(Debug)]
pub struct Shell {
    options: Options,
    runtime: Handle,
    peers: BTreeMap<String, Held>,
    /// Peers that left the set and are being told so.
    leaving: Vec<JoinHandle<()>>,
    status: watch::Sender<Statuses>,
    listener: Listener,
    bfd: BfdThread,
    draining: bool,
    record: Option<fn(&str, Record)>,
}

#[derive(Debug)]
struct Held {
    peer: Peer,
    input: mpsc::UnboundedSender<Input>,
    task: JoinHandle<()>,
}

impl Held {
    fn send(&self, input: Input) {
        // The task ends only when it is told to.
        let _ = self.input.send(input);
    }
}

impl Shell {
    /// No peers yet. It belongs to the tokio runtime that it is made in.
    pub fn new(options: Options) -> Self {
        Self {
            options,
            runtime: Handle::current(),
            peers: BTreeMap::new(),
            leaving: Vec::new(),
            status: watch::Sender::default(),
            listener: Listener::new(options.listen_port),
            bfd: BfdThread::new(options),
            draining: false,
            record: None,
        }
    }

    /// Passes all that happens to the sessions of later peers to a function, with the peer's name.
    pub fn record(&mut self, record: fn(&str, Record)) {
        self.record = Some(record);
    }

    /// These are the peers from now on, by the names of their BGPPeers. A session goes on unless its own configuration
    /// changed in a way that it cannot take over. A peer that is gone is told so and forgets the routes.
    pub fn set_peers(&mut self, mut peers: BTreeMap<String, Peer>) {
        self.leaving.retain(|task| !task.is_finished());
        let gone: Vec<_> = self.peers.extract_if(.., |name, _| !peers.contains_key(name)).collect();
        for (name, held) in gone {
            held.send(Input::End(Stop::Deconfigured));
            self.leaving.push(held.task);
            self.status.send_modify(|statuses| _ = statuses.remove(&name));
        }
        for (name, held) in &mut self.peers {
            if let Some(peer) = peers.remove(name)
                && peer != held.peer
            {
                held.peer = peer.clone();
                held.send(Input::Configure(Box::new(peer)));
            }
        }
        for (name, peer) in peers {
            let held = self.start(&name, peer);
            self.peers.insert(name, held);
        }
        let accepting = self.peers.values().filter(|held| held.peer.session.accepts);
        let expected = accepting.map(|held| Expected {
            remote: held.peer.remote.clone(),
            password: held.peer.password.clone(),
            input: held.input.clone(),
        });
        self.listener.set(expected.collect(), &self.runtime);
    }

    fn start(&self, name: &str, peer: Peer) -> Held {
        let (input, inputs) = mpsc::unbounded_channel();
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let start = task::Start {
            name: name.to_owned(),
            peer: peer.clone(),
            clock: self.options.clock,
            record: self.record,
            seed: mix(self.options.seed ^ hasher.finish()),
            status: self.status.clone(),
            draining: self.draining,
            bfd: self.bfd.clone(),
            input: input.clone(),
        };
        let task = self.runtime.spawn(start.run(inputs));
        Held { peer, input, task }
    }

    /// Changes the routes of a peer: `None` withdraws. Changes of one call are sent together. It returns `false` if there
    /// is no such peer.
    pub fn change(
        &self,
        peer: &str,
        changes: impl IntoIterator<Item = (IpNet, Option<Route>)>,
    ) -> bool {
        let Some(held) = self.peers.get(peer) else { return false };
        held.send(Input::Routes(changes.into_iter().collect()));
        true
    }

    /// All routes of the present peers have been announced since the process started, so peers that kept the routes of the
    /// process before may forget those that are not among them.
    pub fn complete(&self) {
        self.peers.values().for_each(|held| held.send(Input::Event(Event::Complete)));
    }

    /// The node is drained: all routes are marked with GRACEFUL_SHUTDOWN. Or it no longer is.
    pub fn drain(&mut self, draining: bool) {
        self.draining = draining;
        self.peers.values().for_each(|held| held.send(Input::Event(Event::Drain(draining))));
    }

    /// The status of each peer by its name. It wakes for each change; a reader that writes it to an API waits a little
    /// before it reads.
    pub fn status(&self) -> watch::Receiver<Statuses> {
        self.status.subscribe()
    }

    /// Ends all sessions and waits until the peers know, at most about a second.
    pub async fn stop(mut self, stop: Stop) {
        for (_, held) in std::mem::take(&mut self.peers) {
            held.send(Input::End(stop.clone()));
            self.leaving.push(held.task);
        }
        for task in std::mem::take(&mut self.leaving) {
            // A task that panicked has ended, too.
            let _ = task.await;
        }
        // After the connections: a router that helps this side to restart then sees that first.
        self.bfd.stop().await;
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        self.peers.values().for_each(|held| held.task.abort());
        self.leaving.iter().for_each(JoinHandle::abort);
    }
}
