//! Addresses that this node serves by a proxy of its own are on `lo`, so that the proxy can bind them. This adds and
//! removes them, keeps the kernel from answering ARP for them (a speaker does that, on one node), and drops packets to
//! their ports without a listener, which would reach other programs of the node.
//!
//! ```text
//!  caller ── Served ──▶ thread ─┬─ first nftables: silence, closed ports
//!         ◀── News ─────┘       └─ then rtnetlink: addresses on lo
//! ```
//!
//! Addresses carry a mark, so that a later start knows them. Only addresses with the mark are removed, and not before the
//! caller has the whole view. What others change is repaired.

mod filter;
mod lo;
mod refused;

use crate::netlink::{self, Changes, RuleChanges};
use filter::Filter;
use ipnet::IpNet;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::time::{ClockId, clock_gettime};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often everything is read again, whatever happens meanwhile.
const PERIOD: Duration = Duration::from_secs(10);

/// A transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// The ports of an address that have a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ports {
    /// They are not known: every packet passes.
    All,
    /// Packets to others are dropped.
    Only(BTreeSet<(Protocol, u16)>),
}

/// What should be on `lo`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// The addresses, and their ports.
    pub addresses: BTreeMap<IpAddr, Ports>,
    /// Addresses that are not on `lo`, and for which the kernel answers no ARP all the same: speakers do.
    pub silent: BTreeSet<IpAddr>,
    /// Whether these are all. Until it is set, nothing is removed.
    pub complete: bool,
    /// Prefixes that are announced as a whole: packets to addresses of these that nothing takes are refused.
    pub refused: BTreeSet<IpNet>,
}

impl Served {
    /// Whether nothing is wanted.
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty() && self.silent.is_empty() && self.refused.is_empty()
    }
}

/// What the caller is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// These of the served addresses are on `lo`, with the kernel silent: they may be announced. An empty set after
    /// [`Served::addresses`] is empty says that nothing is left.
    Present(BTreeSet<IpAddr>),
    /// Something does not work. It is tried again.
    Trouble(String),
}

/// The running thread. When it is dropped, everything stays as it is, for the next start.
pub struct Keeper {
    commands: Option<Sender<Served>>,
    wake: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Starts the thread, in the network namespace of the calling thread. It takes CAP_NET_ADMIN and the program `nft`.
    /// Nothing is changed before the first [`Keeper::serve`]. `tell` is called on the thread.
    pub fn start(tell: impl FnMut(News) + Send + 'static) -> io::Result<Self> {
        let wake = Arc::new(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?);
        let (commands, receiver) = channel();
        let worker = Worker {
            changes: Changes::watch()?,
            // Without the right to it, what others do to the rules is found out at the next look.
            rules: RuleChanges::watch(filter::TABLE).ok(),
            served: None,
            filter: None,
            shown: String::new(),
            added: BTreeSet::new(),
            refused: None,
            present: None,
            trouble: None,
            tell: Box::new(tell),
        };
        let thread_wake = Arc::clone(&wake);
        let thread = std::thread::Builder::new()
            .name("served".into())
            .spawn(move || worker.run(&receiver, &thread_wake))?;
        Ok(Self { commands: Some(commands), wake, thread: Some(thread) })
    }

    /// Sets what should be on `lo`.
    pub fn serve(&self, served: Served) {
        if let Some(commands) = &self.commands
            && commands.send(served).is_ok()
        {
            let _ = self.wake.write(1);
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.commands = None;
        let _ = self.wake.write(1);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Worker {
    changes: Changes,
    rules: Option<RuleChanges>,
    served: Option<Served>,
    /// What was put in place last. None: it has to be put in place as a whole.
    filter: Option<Filter>,
    /// How nft showed it then.
    shown: String,
    /// The addresses that this process added. Not every kernel keeps the mark.
    added: BTreeSet<IpAddr>,
    present: Option<BTreeSet<IpAddr>>,
    /// Why what should be refused is not.
    refused: Option<String>,
    trouble: Option<String>,
    tell: Box<dyn FnMut(News) + Send>,
}

/// Time that counts suspension of the machine.
fn now() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Into::into)
}

impl Worker {
    fn run(mut self, commands: &Receiver<Served>, wake: &EventFd) {
        let mut check_at = now() + PERIOD;
        loop {
            let rules = self.rules.as_ref().map(AsFd::as_fd);
            let fds = [wake.as_fd(), self.changes.as_fd()].into_iter().chain(rules);
            let mut fds: Vec<_> = fds.map(|it| PollFd::new(it, PollFlags::POLLIN)).collect();
            let wait = check_at.saturating_sub(now()).as_millis().saturating_add(1);
            let _ = poll(&mut fds, PollTimeout::try_from(wait).unwrap_or(PollTimeout::ZERO));
            let _ = wake.read();
            let mut told = false;
            loop {
                match commands.try_recv() {
                    Ok(served) => (self.served, told) = (Some(served), true),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return,
                }
            }
            let changed = self.changes.happened();
            let touched = self.rules.as_ref().is_some_and(RuleChanges::happened);
            if touched {
                self.filter = None;
            }
            let due = now() >= check_at;
            if due {
                check_at = now() + PERIOD;
            }
            if (told || changed || touched || due)
                && let Some(served) = self.served.take()
            {
                let done = self.reconcile(&served, due, told || due);
                self.served = Some(served);
                match done {
                    Ok(present) => self.present(present),
                    Err(trouble) => self.trouble(trouble),
                }
            }
        }
    }

    /// Puts rules in place. After a failure nothing is known of what is there.
    fn put(&mut self, filter: Filter) -> Result<(), String> {
        let whole = self.filter.is_none();
        let done = nft(&filter.script(self.filter.as_ref()));
        // What this process did is no news.
        self.rules.as_ref().map(RuleChanges::happened);
        // Where nothing is wanted, nft may be missing.
        if let Err(error) = done
            && !filter.is_empty()
        {
            self.filter = None;
            return Err(format!("cannot set the nftables rules: {error}"));
        }
        if whole || self.shown.is_empty() {
            self.shown = filter::shown();
        }
        self.filter = Some(filter);
        Ok(())
    }

    /// Brings the node into the wanted state, and reads what is on `lo` then. `check`: whether others changed the rules.
    /// `routes`: also what is refused. That takes a dump of all routes, so it is not read again with each address of a Pod.
    fn reconcile(
        &mut self,
        served: &Served,
        check: bool,
        routes: bool,
    ) -> Result<BTreeSet<IpAddr>, String> {
        let read =
            || netlink::addresses().map_err(|error| format!("cannot read addresses: {error}"));
        let seen = lo::Seen::of(&read()?, &self.added);
        let (servable, taken) = seen.servable(served);
        let served = &*servable;
        let filter = Filter::of(served, &seen);
        if check
            && self.filter.as_ref().is_some_and(|it| !it.is_empty())
            && filter::shown() != self.shown
        {
            self.filter = None;
        }
        if self.filter.as_ref() != Some(&filter) {
            self.put(filter)?;
        }
        let steps = lo::steps(served, &seen);
        let mut failed = taken.map(|address| {
            format!("{address} is an address of another interface of this node: it is left alone and not announced")
        });
        for address in &steps.remove {
            match netlink::carry_out(lo::remove(*address)) {
                Ok(()) => _ = self.added.remove(address),
                Err(error) => failed = Some(format!("cannot remove {address} from lo: {error}")),
            }
        }
        for address in &steps.add {
            match netlink::carry_out(lo::add(*address)) {
                Ok(()) => _ = self.added.insert(*address),
                Err(error) => failed = Some(format!("cannot add {address} to lo: {error}")),
            }
        }
        let before = &seen;
        let again = match steps.is_empty() {
            true => None,
            false => Some(lo::Seen::of(&read()?, &self.added)),
        };
        let seen = again.as_ref().unwrap_or(before);
        if !steps.remove.is_empty() {
            // The kernel may answer for what is not there any more.
            self.put(Filter::of(served, seen))?;
        }
        if routes {
            self.refused = refused::reconcile(&served.refused, served.complete).err();
        }
        failed = self.refused.clone().or(failed);
        if let Some(failed) = failed {
            self.trouble(failed);
        } else {
            self.trouble = None;
        }
        Ok(seen.present(served))
    }

    fn present(&mut self, present: BTreeSet<IpAddr>) {
        if self.present.as_ref() != Some(&present) {
            self.present = Some(present.clone());
            (self.tell)(News::Present(present));
        }
    }

    fn trouble(&mut self, trouble: String) {
        if self.trouble.as_ref() != Some(&trouble) {
            self.trouble = Some(trouble.clone());
            (self.tell)(News::Trouble(trouble));
        }
    }
}

/// Runs a script. It is carried out as a whole or not at all.
fn nft(script: &str) -> io::Result<()> {
    let missing = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => {
            io::Error::new(io::ErrorKind::NotFound, "the program nft is missing (package nftables)")
        }
        _ => error,
    };
    let mut child = Command::new("nft")
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(missing)?;
    let written = child.stdin.take().map(|mut stdin| stdin.write_all(script.as_bytes()));
    let output = child.wait_with_output()?;
    if output.status.success() {
        return written.unwrap_or(Ok(()));
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(said.lines().next().unwrap_or("nft failed").to_owned()))
}
