//! The BFD session beside a BGP session: which one there should be, and when it ends the BGP session.

use super::Options;
use super::peer::Peer;
use super::task::Input;
use crate::bfd::shell::{Shell, Told, Wanted};
use crate::bfd::{SessionKey, State};
use parking_lot::Mutex;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::mpsc;

/// The thread of BFD, which starts with the first session.
#[derive(Clone, Debug)]
pub(super) struct BfdThread {
    options: Options,
    shell: Arc<Mutex<Option<Shell>>>,
}

impl BfdThread {
    pub(super) fn new(options: Options) -> Self {
        Self { options, shell: Arc::default() }
    }

    fn shell(&self) -> Result<Shell, String> {
        let mut shell = self.shell.lock();
        if let Some(shell) = &*shell {
            return Ok(shell.clone());
        }
        let started = Shell::start(self.options.clock, self.options.seed);
        let started = started.map_err(|e| format!("cannot start the thread of BFD: {e}"))?;
        Ok(shell.insert(started).clone())
    }

    /// Tells all peers that the end of the sessions means no failure.
    pub(super) async fn stop(&self) {
        let shell = self.shell.lock().take();
        if let Some(shell) = shell {
            shell.stop().await;
        }
    }
}

/// The BFD session of one peer.
#[derive(Debug)]
pub(super) struct BfdSession {
    thread: BfdThread,
    input: mpsc::UnboundedSender<Input>,
    wanted: Option<Wanted>,
    state: Option<Result<State, String>>,
    up: bool,
    flaps: u64,
}

impl BfdSession {
    pub(super) fn new(thread: BfdThread, input: mpsc::UnboundedSender<Input>) -> Self {
        Self { thread, input, wanted: None, state: None, up: false, flaps: 0 }
    }

    /// Makes the session be as the peer's configuration says. `connected` is the address of this node that the BGP session
    /// uses, while it is established.
    pub(super) fn configure(&mut self, peer: &Peer, connected: Option<IpAddr>) {
        let wanted = match peer.wanted_bfd(connected) {
            Ok(wanted) => wanted,
            Err(why) => {
                self.end();
                self.state = Some(Err(why));
                return;
            }
        };
        if wanted == self.wanted {
            return;
        }
        if self.key().is_some() && self.key() != wanted.as_ref().map(|it| it.peer.key) {
            self.end();
        }
        let Some(wanted) = wanted else { return };
        match self.thread.shell() {
            Ok(shell) => {
                let input = self.input.clone();
                // The task of a peer may have ended.
                let tell = move |told| _ = input.send(Input::Bfd(told));
                shell.watch(wanted.clone(), Box::new(tell));
                self.state.get_or_insert(Ok(State::Down));
                self.wanted = Some(wanted);
            }
            Err(why) => self.state = Some(Err(why)),
        }
    }

    fn key(&self) -> Option<SessionKey> {
        self.wanted.as_ref().map(|it| it.peer.key)
    }

    /// There should be none any more. The peer is told that this is no failure.
    pub(super) fn end(&mut self) {
        self.state = None;
        self.up = false;
        if let Some(wanted) = self.wanted.take()
            && let Ok(shell) = self.thread.shell()
        {
            shell.forget(wanted.peer.key);
        }
    }

    /// Takes note of what the thread told. Returns whether the peer is not reached any more. If an administrator ended the
    /// session there, it may well be (RFC 5882, section 3.2).
    pub(super) fn told(&mut self, told: Told) -> bool {
        if self.wanted.is_none() {
            return false;
        }
        match told {
            Told::Failed(why) => {
                self.state = Some(Err(why));
                false
            }
            Told::Changed { state, peer, .. } => {
                self.state = Some(Ok(state));
                let was_up = std::mem::replace(&mut self.up, state == State::Up);
                let ended = was_up && !self.up;
                self.flaps += u64::from(ended);
                ended && peer != State::AdminDown
            }
        }
    }

    /// How often a session that was up ended.
    pub(super) fn flaps(&self) -> u64 {
        self.flaps
    }

    pub(super) fn state(&self) -> Option<Result<State, String>> {
        self.state.clone()
    }
}
