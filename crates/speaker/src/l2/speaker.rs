//! The shell of layer 2: a thread that drives the machines of gossip and owners with sockets, the interfaces of this node
//! and the clock. It takes values and tells news; it knows neither Kubernetes nor why an address is a candidate.
//!
//! ```text
//!  caller ── Wanted, moves, leave ──▶ thread ──▶ ARP, NDP (packet sockets), gossip (UDP)
//!         ◀── News ─────────────────┘    └── netlink: interfaces that come and go
//! ```

mod links;
mod ports;
mod thread;

use super::frame::Mac;
use super::gossip;
use super::owners::{self, Candidate};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// The UDP port of gossip, unless the administrator chooses another one.
pub const GOSSIP_PORT: u16 = 7949;

/// What a speaker is told at its start.
#[derive(Clone)]
pub struct Config {
    /// Its name, usually the node's. No two speakers have the same.
    pub name: String,
    /// Where gossip is received.
    pub bind: SocketAddr,
    /// Where the other speakers reach it: the node's address.
    pub at: SocketAddr,
    /// The key that all speakers of a cluster have, from a Secret. Not empty; 32 random bytes are good.
    pub key: Vec<u8>,
}

/// What should be so, as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The addresses that this node may answer for.
    pub candidates: BTreeMap<IpAddr, Candidate>,
    /// Where other speakers should be. While the API is away the caller leaves it as it was; members that were heard are
    /// remembered besides.
    pub peers: BTreeSet<SocketAddr>,
}

/// Which host answers for an address, as far as this speaker knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// None.
    Nobody,
    /// This node.
    Me,
    /// The speaker of this name.
    Member(String),
    /// A host that is no speaker of this cluster. This node does not take the address.
    Stranger(Mac),
}

/// What the caller is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// Another host answers for an address than before.
    Owner(IpAddr, Owner),
    /// A host that is no speaker of this cluster claims an address that this node may answer for.
    Conflict(IpAddr, Mac),
    /// The node of this name answers for an address although its speaker says that it does not own it.
    Contradicted(IpAddr, String),
    /// The speaker that should own an address could not take it: it is not there, or may not.
    NotMoved(IpAddr, String),
    /// The speaker of this name says that its node serves an address and may own it, or no longer.
    Serves(IpAddr, String, bool),
    /// The speakers that are there, without this one.
    Members(BTreeSet<String>),
    /// The interfaces on which addresses can be announced.
    Interfaces(BTreeSet<String>),
    /// Something does not work. The thread goes on with the rest, and tries again when interfaces change.
    Trouble(String),
    /// After [`Speaker::leave`]: every address has another owner, or no other speaker may own it.
    Left,
}

/// What was counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// By the machine of the owners.
    pub owners: owners::Counts,
    /// By gossip.
    pub gossip: gossip::Counts,
    /// How many addresses this node answers for now.
    pub owned: u64,
    /// How many other speakers are there.
    pub members: u64,
    /// How often the process did not run for so long that other speakers could have taken over.
    pub pauses: u64,
    /// Frames that could not be sent.
    pub lost_frames: u64,
}

enum Command {
    Want(Wanted),
    Candidate(IpAddr, Option<Candidate>),
    Move(IpAddr, String),
    Key(Vec<u8>),
    Leave,
    Lend,
}

/// A running speaker. When it is dropped it stops without a word to others, as in a crash; see [`Speaker::leave`]. The
/// caller is told that it hears of no other speaker any more.
pub struct Speaker {
    commands: Option<Sender<Command>>,
    wake: Arc<EventFd>,
    counts: Arc<Mutex<Counts>>,
    thread: Option<JoinHandle<()>>,
}

impl Speaker {
    /// Starts the thread, in the network namespace of the calling thread. It takes CAP_NET_RAW. `tell` is called on the
    /// speaker's thread and must not block.
    pub fn start(config: &Config, tell: impl FnMut(News) + Send + 'static) -> io::Result<Self> {
        let socket = UdpSocket::bind(config.bind)?;
        socket.set_nonblocking(true)?;
        let wake = Arc::new(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?);
        let counts = Arc::new(Mutex::new(Counts::default()));
        let (commands, receiver): (_, Receiver<Command>) = channel();
        let shell = thread::Shell::new(config, socket, Arc::clone(&counts), Box::new(tell))?;
        let thread_wake = Arc::clone(&wake);
        let thread = std::thread::Builder::new()
            .name("l2".into())
            .spawn(move || shell.run(&receiver, &thread_wake))?;
        Ok(Self { commands: Some(commands), wake, counts, thread: Some(thread) })
    }

    /// Sets everything that should be so. What is not mentioned is no candidate any more.
    pub fn want(&self, wanted: Wanted) {
        self.command(Command::Want(wanted));
    }

    /// Changes one candidate, at a cost that does not depend on the number of the others.
    pub fn candidate(&self, address: IpAddr, candidate: Option<Candidate>) {
        self.command(Command::Candidate(address, candidate));
    }

    /// Another speaker should own the address. Only the present owner acts on it, so every speaker may be told. The new
    /// owner announces itself before this one stops to answer.
    pub fn move_to(&self, address: IpAddr, name: &str) {
        self.command(Command::Move(address, name.to_owned()));
    }

    /// The speakers have another key. For some minutes the one before counts, too.
    pub fn key(&self, key: Vec<u8>) {
        self.command(Command::Key(key));
    }

    /// This speaker is about to stop: the others should take its addresses, and it answers until they do. News::Left
    /// follows; the caller waits for it as long as it likes and then drops this.
    pub fn leave(&self) {
        self.command(Command::Leave);
    }

    /// This speaker is about to be replaced by another one of this node: another speaker tells who asks where the addresses
    /// are, and they stay here. News::Left follows, as for [`Speaker::leave`].
    pub fn lend(&self) {
        self.command(Command::Lend);
    }

    /// What was counted.
    pub fn counts(&self) -> Counts {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn command(&self, command: Command) {
        // Without the thread, which ends only with this value, there is nothing to tell.
        if let Some(commands) = &self.commands
            && commands.send(command).is_ok()
        {
            let _ = self.wake.write(1);
        }
    }
}

impl Drop for Speaker {
    fn drop(&mut self) {
        self.commands = None;
        let _ = self.wake.write(1);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
