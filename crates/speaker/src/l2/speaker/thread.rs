//! The loop of the thread: waits, reads everything that is there, lets the machines decide, does what they say.

use super::ports::Ports;
use super::{Command, Config, Counts, News, Owner, Wanted, links};
use crate::l2::gossip::{self, Gossip};
use crate::l2::member::{MemberId, Profile, Standing};
use crate::l2::owners::{self, Candidate, Interfaces, Link, Owners, PAUSE};
use crate::netlink::Changes;
use bowline_core::clock::Uptime;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::EventFd;
use nix::time::{ClockId, clock_gettime};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The longest time between two turns. A turn that comes much later shows that the process did not run.
const LONGEST_WAIT: Duration = Duration::from_millis(100);
/// How many datagrams are read before others get their turn.
const DATAGRAMS_AT_ONCE: usize = 1024;
/// Interfaces are read again this often, also without news of them.
const LINKS_PERIOD: Duration = Duration::from_secs(30);
/// How many times in a turn one machine may answer what the other one said.
const ROUNDS: usize = 8;

pub(super) struct Shell {
    me: MemberId,
    name: String,
    /// Where other speakers reach this one.
    at: IpAddr,
    socket: UdpSocket,
    changes: Changes,
    /// The links that addresses may be announced on.
    links: BTreeMap<u32, Link>,
    links_read: Uptime,
    /// How many candidates name each interface.
    names: BTreeMap<String, usize>,
    ports: Ports,
    gossip: Gossip,
    owners: Owners,
    candidates: BTreeMap<IpAddr, Candidate>,
    members: BTreeSet<MemberId>,
    /// What the caller was told that members serve.
    serving: HashSet<(MemberId, IpAddr)>,
    /// The names that the caller used.
    named: BTreeMap<MemberId, String>,
    trouble: Option<String>,
    leaving: bool,
    left: bool,
    pauses: u64,
    counts: Arc<Mutex<Counts>>,
    tell: Box<dyn FnMut(News) + Send>,
}

/// The interfaces that a candidate names.
fn named(candidate: Option<&Candidate>) -> impl Iterator<Item = &String> {
    let names = candidate.and_then(|it| match &*it.interfaces {
        Interfaces::All => None,
        Interfaces::Named(names) => Some(names),
    });
    names.into_iter().flatten()
}

/// Time that counts suspension of the machine.
fn now() -> Uptime {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Uptime::ZERO, Into::into)
}

/// Microseconds of the wall clock: they tell one start from an earlier one.
fn start() -> u64 {
    let wall: Duration = clock_gettime(ClockId::CLOCK_REALTIME).map_or(Duration::ZERO, Into::into);
    u64::try_from(wall.as_micros()).unwrap_or(1).max(1)
}

impl Shell {
    pub(super) fn new(
        config: &Config,
        socket: UdpSocket,
        counts: Arc<Mutex<Counts>>,
        tell: Box<dyn FnMut(News) + Send>,
    ) -> io::Result<Self> {
        let (now, start) = (now(), start());
        let me = MemberId::of(&config.name);
        let gossip = gossip::Config {
            name: config.name.clone(),
            at: config.at,
            key: config.key.clone(),
            start,
            seed: me.0 ^ start,
        };
        let gossip = Gossip::new(&gossip, now)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        Ok(Self {
            me,
            name: config.name.clone(),
            at: config.at.ip(),
            socket,
            changes: Changes::watch()?,
            links: BTreeMap::new(),
            links_read: Uptime::ZERO,
            names: BTreeMap::new(),
            ports: Ports::default(),
            gossip,
            owners: Owners::new(me, me.0 ^ start.rotate_left(32), now),
            candidates: BTreeMap::new(),
            members: BTreeSet::new(),
            serving: HashSet::new(),
            named: BTreeMap::new(),
            trouble: None,
            leaving: false,
            left: false,
            pauses: 0,
            counts,
            tell,
        })
    }

    /// Runs until the caller drops its end.
    pub(super) fn run(mut self, commands: &Receiver<Command>, wake: &EventFd) {
        let mut before = now();
        self.read_links(before);
        self.gossip.handle(gossip::Event::Profile(self.profile()), before);
        self.act(before);
        let mut more = false;
        loop {
            self.wait(wake, more);
            let now = now();
            let gap = now.saturating_sub(before);
            before = now;
            if gap >= PAUSE {
                self.paused(gap, now);
            }
            let _ = wake.read();
            if !self.obey(commands, now) {
                return self.end();
            }
            if self.changes.happened() || now > self.links_read + LINKS_PERIOD {
                self.read_links(now);
            }
            let owners = &mut self.owners;
            more = self.ports.read(|index, frame| {
                owners.handle(owners::Event::Heard(index, frame), now);
            });
            self.read_datagrams(now);
            self.act(now);
        }
    }

    /// What was told of other speakers holds no longer.
    fn end(mut self) {
        for (member, address) in std::mem::take(&mut self.serving) {
            let name = self.name_of(&member);
            (self.tell)(News::Serves(address, name, false));
        }
        (self.tell)(News::Members(BTreeSet::new()));
    }

    fn wait(&self, wake: &EventFd, more: bool) {
        let due = self.gossip.wake_at().into_iter().chain(self.owners.wake_at()).min();
        let wait = due.map_or(LONGEST_WAIT, |at| at.saturating_sub(now()).min(LONGEST_WAIT));
        // Rounded up: a turn that comes too early finds nothing to do.
        let wait = if more { 0 } else { wait.as_micros().div_ceil(1000) };
        let fds = [wake.as_fd(), self.changes.as_fd(), self.socket.as_fd()];
        let fds = fds.into_iter().chain(self.ports.fds());
        let mut fds: Vec<_> = fds.map(|it| PollFd::new(it, PollFlags::POLLIN)).collect();
        let timeout = PollTimeout::try_from(wait).unwrap_or(PollTimeout::ZERO);
        // An interruption is a turn like any other.
        let _ = poll(&mut fds, timeout);
    }

    /// Other speakers may have taken over meanwhile. What was asked then has been answered by them.
    fn paused(&mut self, gap: Duration, now: Uptime) {
        self.pauses += 1;
        self.ports.drain();
        self.gossip.handle(gossip::Event::Paused(gap), now);
        self.owners.handle(owners::Event::Paused, now);
    }

    /// Takes what the caller said. Whether it is still there.
    fn obey(&mut self, commands: &Receiver<Command>, now: Uptime) -> bool {
        loop {
            match commands.try_recv() {
                Ok(Command::Want(wanted)) => self.want(wanted, now),
                Ok(Command::Candidate(address, candidate)) => {
                    self.candidate(address, candidate, now);
                }
                Ok(Command::Move(address, name)) => {
                    let to = MemberId::of(&name);
                    self.named.insert(to, name);
                    self.owners.handle(owners::Event::Move(address, to), now);
                }
                Ok(Command::Key(key)) => self.gossip.handle(gossip::Event::Key(key), now),
                Ok(Command::Leave) => {
                    self.leaving = true;
                    self.owners.handle(owners::Event::Leave, now);
                }
                Ok(Command::Lend) => {
                    self.leaving = true;
                    self.owners.handle(owners::Event::Lend, now);
                }
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn want(&mut self, wanted: Wanted, now: Uptime) {
        self.gossip.handle(gossip::Event::Peers(wanted.peers), now);
        let gone = self.candidates.keys().filter(|it| !wanted.candidates.contains_key(it));
        for address in gone.copied().collect::<Vec<_>>() {
            self.candidate(address, None, now);
        }
        for (address, candidate) in wanted.candidates {
            self.candidate(address, Some(candidate), now);
        }
    }

    fn candidate(&mut self, address: IpAddr, candidate: Option<Candidate>, now: Uptime) {
        let before = match &candidate {
            Some(it) => self.candidates.insert(address, it.clone()),
            None => self.candidates.remove(&address),
        };
        if before != candidate {
            self.count_names(before.as_ref(), candidate.as_ref());
            self.owners.handle(owners::Event::Candidate(address, candidate), now);
        }
    }

    /// An interface that is named for the first time is looked at in this turn.
    fn count_names(&mut self, before: Option<&Candidate>, after: Option<&Candidate>) {
        for name in named(after) {
            let count = self.names.entry(name.clone()).or_default();
            *count += 1;
            if *count == 1 {
                self.links_read = Uptime::ZERO;
            }
        }
        for name in named(before) {
            if let Some(count) = self.names.get_mut(name) {
                *count -= 1;
                if *count == 0 {
                    self.names.remove(name);
                }
            }
        }
    }

    fn read_links(&mut self, now: Uptime) {
        self.links_read = now;
        let mut links = match links::read(self.at) {
            Ok(links) => links,
            Err(error) => return self.trouble(format!("cannot read the interfaces: {error}")),
        };
        // Interfaces of Pods come and go all the time. They concern no address.
        links.retain(|_, it| it.usual || self.names.contains_key(&it.name));
        let failed = self.ports.set(&mut links);
        if let Some(error) = failed {
            self.trouble(format!("cannot open a packet socket: {error}"));
        }
        if links == self.links {
            return;
        }
        for index in self.links.keys().filter(|it| !links.contains_key(it)) {
            self.owners.handle(owners::Event::Link(*index, None), now);
        }
        for (index, link) in &links {
            self.owners.handle(owners::Event::Link(*index, Some(link.clone())), now);
        }
        self.links = links;
        self.gossip.handle(gossip::Event::Profile(self.profile()), now);
        let up = self.links.values().filter(|it| it.up);
        let names = up.map(|it| it.name.clone()).collect();
        (self.tell)(News::Interfaces(names));
    }

    fn profile(&self) -> Profile {
        let mut links: Vec<_> = self.links.values().collect();
        // If not all fit in, those are told that addresses are most likely announced on.
        links.sort_by_key(|it| !it.usual);
        let mut macs = Vec::new();
        for link in links {
            if !macs.contains(&link.mac) {
                macs.push(link.mac);
            }
        }
        Profile { name: self.name.clone(), macs, at: Some(self.at) }
    }

    fn read_datagrams(&mut self, now: Uptime) {
        let mut buffer = [0; gossip::DATAGRAM_LIMIT + 1];
        for _ in 0..DATAGRAMS_AT_ONCE {
            match self.socket.recv_from(&mut buffer) {
                Ok((length, from)) => {
                    let from = std::net::SocketAddr::new(from.ip().to_canonical(), from.port());
                    self.gossip.handle(gossip::Event::Received(from, &buffer[..length]), now);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The answer of a host without a speaker to an earlier datagram.
                Err(_) => {}
            }
        }
    }

    /// Does what the machines say.
    fn act(&mut self, now: Uptime) {
        for _ in 0..ROUNDS {
            let effects = self.owners.take(now);
            let decided = !effects.is_empty();
            for effect in effects {
                self.carry_out(effect, now);
            }
            let effects = self.gossip.take(now);
            let told = effects.iter().any(|it| matches!(it, gossip::Effect::Tell(_)));
            for effect in effects {
                match effect {
                    gossip::Effect::Send(to, bytes) => {
                        // A datagram that cannot be sent is one that is lost.
                        let _ = self.socket.send_to(&bytes, to);
                    }
                    gossip::Effect::Tell(event) => {
                        let said = match &event {
                            owners::Event::Said(member, address, stance) => {
                                Some((*member, *address, stance.standing != Standing::Out))
                            }
                            _ => None,
                        };
                        self.owners.handle(event, now);
                        if let Some((member, address, serves)) = said {
                            self.serves(member, address, serves);
                        }
                    }
                }
            }
            if !decided && !told {
                break;
            }
        }
        if self.members != *self.gossip.members() {
            self.members = self.gossip.members().clone();
            let names = self.members.iter().map(|it| self.name_of(it)).collect();
            (self.tell)(News::Members(names));
        }
        if self.leaving && !self.left && self.owners.has_left() {
            self.left = true;
            self.gossip.handle(gossip::Event::Leave, now);
            for effect in self.gossip.take(now) {
                if let gossip::Effect::Send(to, bytes) = effect {
                    let _ = self.socket.send_to(&bytes, to);
                }
            }
            (self.tell)(News::Left);
        }
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner) = Counts {
            owners: self.owners.counts(),
            gossip: self.gossip.counts(),
            owned: self.owners.owned(),
            members: self.members.len() as u64,
            pauses: self.pauses,
            lost_frames: self.ports.lost,
        };
    }

    fn serves(&mut self, member: MemberId, address: IpAddr, serves: bool) {
        let key = (member, address);
        let changed = if serves { self.serving.insert(key) } else { self.serving.remove(&key) };
        if changed {
            let name = self.name_of(&member);
            (self.tell)(News::Serves(address, name, serves));
        }
    }

    fn carry_out(&mut self, effect: owners::Effect, now: Uptime) {
        match effect {
            owners::Effect::Say(address, stance) => {
                self.gossip.handle(gossip::Event::Say(address, stance), now);
            }
            owners::Effect::Send(index, frame) => self.ports.send(index, &frame),
            owners::Effect::Listen(address, indices) => {
                if let Err(error) = self.ports.listen(address, &indices) {
                    self.trouble(format!("cannot join the group of {address}: {error}"));
                }
            }
            owners::Effect::Changed(address, owner) => {
                let owner = match owner {
                    owners::Owner::Nobody => Owner::Nobody,
                    owners::Owner::Me => Owner::Me,
                    owners::Owner::Member(member) => Owner::Member(self.name_of(&member)),
                    owners::Owner::Stranger(mac) => Owner::Stranger(mac),
                };
                (self.tell)(News::Owner(address, owner));
            }
            owners::Effect::Conflict(address, mac) => (self.tell)(News::Conflict(address, mac)),
            owners::Effect::Contradicted(address, member) => {
                let name = self.name_of(&member);
                (self.tell)(News::Contradicted(address, name));
            }
            owners::Effect::NotMoved(address, to) => {
                let name = self.name_of(&to);
                (self.tell)(News::NotMoved(address, name));
            }
        }
    }

    fn name_of(&self, member: &MemberId) -> String {
        if *member == self.me {
            return self.name.clone();
        }
        let named = || self.named.get(member).map(String::as_str);
        self.owners.name(member).or_else(named).map_or_else(|| format!("{member:?}"), str::to_owned)
    }

    /// Tells of trouble, but not of the same again and again.
    fn trouble(&mut self, trouble: String) {
        if self.trouble.as_ref() != Some(&trouble) {
            self.trouble = Some(trouble.clone());
            (self.tell)(News::Trouble(trouble));
        }
    }
}
