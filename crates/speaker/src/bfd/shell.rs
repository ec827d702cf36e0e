//! Drives all BFD sessions with UDP, on a thread of its own: what else the process does cannot make a session late. It
//! opens a port with the first session that needs it, so that without BFD another daemon can have it.
//!
//! BGP's shell is what uses it: it says which sessions there are, and hears their states through a function that the
//! thread calls.

mod receive;
mod send;

use super::packet::{Diagnostic, State};
use super::sessions::{Effect, Event, Hops, Peer, SessionKey, Sessions};
use bowline_core::clock::Uptime;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use receive::Inbox;
use send::Outbox;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;
use tokio::sync::oneshot;

/// A session that should be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The peer and its timers.
    pub peer: Peer,
    /// Packets are sent in this VRF.
    pub vrf: Option<String>,
}

/// What is told of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// It has a new state.
    Changed {
        /// Its state.
        state: State,
        /// Why it is not up any more.
        diagnostic: Diagnostic,
        /// What the peer said last of its own.
        peer: State,
    },
    /// It cannot run, for this reason. It is tried again.
    Failed(String),
}

/// Called on the thread of BFD. It must not wait.
pub type Tell = Box<dyn Fn(Told) + Send>;

enum Order {
    Watch(Wanted, Tell),
    Forget(SessionKey),
    Stop(oneshot::Sender<()>),
}

/// The sessions of a speaker. The thread ends when the last of these is dropped.
#[derive(Clone)]
pub struct Shell {
    orders: Sender<Order>,
    wake: Arc<EventFd>,
}

impl fmt::Debug for Shell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bfd::Shell")
    }
}

impl Shell {
    /// Starts the thread. The clock is one that counts the time for which the machine is suspended; the seed differs
    /// between speakers.
    pub fn start(clock: fn() -> Uptime, seed: u64) -> io::Result<Self> {
        let wake = Arc::new(EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?);
        let (orders, received) = mpsc::channel();
        let thread = Thread {
            clock,
            orders: received,
            wake: wake.clone(),
            sessions: Sessions::new(seed),
            told: BTreeMap::new(),
            inbox: Inbox::default(),
            outbox: Outbox::new(seed),
        };
        std::thread::Builder::new().name("bfd".to_owned()).spawn(move || thread.run())?;
        Ok(Self { orders, wake })
    }

    fn order(&self, order: Order) {
        // The thread ends after the last shell.
        let _ = self.orders.send(order);
        let _ = self.wake.write(1);
    }

    /// There should be this session. One with the same key takes over the parameters and stays up.
    pub fn watch(&self, wanted: Wanted, tell: Tell) {
        self.order(Order::Watch(wanted, tell));
    }

    /// There should be no such session. The peer is told that it does not mean a failure.
    pub fn forget(&self, key: SessionKey) {
        self.order(Order::Forget(key));
    }

    /// Tells all peers that the end of the sessions means no failure, and ends the thread.
    pub async fn stop(self) {
        let (done, stopped) = oneshot::channel();
        self.order(Order::Stop(done));
        // A thread that is gone has stopped.
        let _ = stopped.await;
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // If this is the last, the thread sees that there is nobody left to give orders.
        let _ = self.wake.write(1);
    }
}

struct Thread {
    clock: fn() -> Uptime,
    orders: Receiver<Order>,
    wake: Arc<EventFd>,
    sessions: Sessions,
    told: BTreeMap<SessionKey, Tell>,
    inbox: Inbox,
    outbox: Outbox,
}

/// The longest wait, after which the thread looks whether it is still needed.
const IDLE: Duration = Duration::from_secs(10);

impl Thread {
    fn run(mut self) {
        loop {
            self.wait();
            let _ = self.wake.read();
            // What has arrived comes first, so that the thread does not take its own delay for a peer's silence.
            let now = (self.clock)();
            let sessions = &mut self.sessions;
            self.inbox.receive(|datagram| sessions.handle(Event::Received(datagram), now));
            loop {
                match self.orders.try_recv() {
                    Ok(order) => {
                        if self.obey(order).is_none() {
                            return;
                        }
                    }
                    Err(mpsc::TryRecvError::Empty) => break,
                    Err(mpsc::TryRecvError::Disconnected) => return,
                }
            }
            self.take();
        }
    }

    fn wait(&self) {
        let now = (self.clock)();
        let wake = self.sessions.wake_at().into_iter().chain(self.inbox.retry_at()).min();
        let wait = wake.map_or(IDLE, |at| at.saturating_sub(now).min(IDLE));
        // A part of a millisecond longer, else the loop would spin until the time has come.
        let milliseconds = wait.as_micros().div_ceil(1000) as u16;
        let mut ready = vec![PollFd::new(self.wake.as_fd(), PollFlags::POLLIN)];
        ready.extend(self.inbox.sockets().map(|it| PollFd::new(it, PollFlags::POLLIN)));
        // A signal only wakes it early.
        let _ = poll(&mut ready, PollTimeout::from(milliseconds));
    }

    /// `None` at the end.
    fn obey(&mut self, order: Order) -> Option<()> {
        let now = (self.clock)();
        match order {
            Order::Watch(wanted, tell) => {
                let key = wanted.peer.key;
                self.sessions.handle(Event::Configured(wanted.peer), now);
                self.outbox.set(wanted);
                self.told.insert(key, tell);
                self.inbox.want(key);
            }
            Order::Forget(key) => {
                self.told.remove(&key);
                self.sessions.handle(Event::Removed(key), now);
            }
            Order::Stop(done) => {
                for key in self.outbox.keys() {
                    self.sessions.handle(Event::Removed(key), now);
                }
                self.take();
                let _ = done.send(());
                return None;
            }
        }
        Some(())
    }

    fn take(&mut self) {
        let now = (self.clock)();
        if let Err(failed) = self.inbox.open(now) {
            for (key, tell) in &self.told {
                if Inbox::needs(*key) == failed.port {
                    tell(Told::Failed(failed.why.clone()));
                }
            }
        }
        for effect in self.sessions.take(now) {
            match effect {
                Effect::Send { key, bytes } => {
                    if let Err(why) = self.outbox.send(key, &bytes)
                        && let Some(tell) = self.told.get(&key)
                    {
                        tell(Told::Failed(why));
                    }
                }
                Effect::Changed { key, state, diagnostic, peer } => {
                    if let Some(tell) = self.told.get(&key) {
                        tell(Told::Changed { state, diagnostic, peer });
                    }
                }
                Effect::Closed(key) => {
                    self.outbox.remove(&key);
                    let keys: Vec<_> = self.outbox.keys().collect();
                    self.inbox.keep(&keys);
                }
            }
        }
    }
}

/// The destination port of a session.
fn port(hops: Hops) -> u16 {
    match hops {
        Hops::Single => super::SINGLE_HOP_PORT,
        Hops::Multi => super::MULTIHOP_PORT,
    }
}
