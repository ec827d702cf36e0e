//! A segment of two bridges that can be parted, with machines on both: network namespaces, which end with the test.

use bowline_speaker::l2::frame::{self, Frame, Mac};
use bowline_speaker::l2::owners::{Candidate, Interfaces};
use bowline_speaker::l2::speaker::{Config, GOSSIP_PORT, News, Owner, Speaker, Wanted};
use bowline_speaker::served::{self, Keeper, Ports, Served};
use bowline_sys::{PacketSocket, Protocol};
use bowline_testing::Machine;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::SockFilter;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::num::NonZeroU32;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// Addresses that the speakers announce.
pub(crate) const V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 200));
pub(crate) const V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0x200));

/// The Ethernet address of no machine.
pub(crate) const STRANGER: &str = "02:00:00:00:99:99";

/// Drops or passes the gossip that arrives at a machine.
fn block_gossip(machine: &Machine, blocked: bool) {
    if blocked {
        machine.run("nft", "add table inet block");
        machine.run("nft", "add chain inet block gossip { type filter hook input priority 0 ; }");
        let rule = format!("add rule inet block gossip udp dport {GOSSIP_PORT} drop");
        machine.run("nft", &rule);
    } else {
        machine.run("nft", "delete table inet block");
    }
}

/// Reaches `condition` within a time.
pub(crate) fn within(time: Duration, what: &str, mut condition: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < time, "not within {time:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
    start.elapsed()
}

/// A machine with a link to one of the bridges.
#[derive(Clone)]
pub(crate) struct Host {
    pub(crate) machine: Machine,
    pub(crate) mac: Mac,
    index: u32,
}

impl Host {
    fn new(switch: &Machine, side: &str, number: u8) -> Self {
        let machine = Machine::new();
        switch.plug(side, &machine, "eth0", number);
        machine.ip(&format!("addr add {}/24 dev eth0", v4(number)));
        // `nodad`: an address that is being checked cannot be used for about a second.
        machine.ip(&format!("addr add {}/64 dev eth0 nodad", v6(number)));
        Self::at(machine, number)
    }

    /// A machine whose `eth0` has this number.
    pub(crate) fn at(machine: Machine, number: u8) -> Self {
        let link = machine.ip("-o link show eth0");
        let index = link.split(':').next().and_then(|it| it.parse().ok()).expect("an index");
        Self { machine, mac: Mac([2, 0, 0, 0, 0, number]), index }
    }

    /// Which hosts answer when this one asks for an address, as its kernel does. The frames that arrive tell.
    pub(crate) fn ask(&self, address: IpAddr) -> Vec<Mac> {
        let this = self.clone();
        self.machine.on(move || {
            let index = NonZeroU32::new(this.index).expect("an index");
            let all = [SockFilter::new(0x06, 0, 0, 0xffff)];
            let protocol = if address.is_ipv4() { Protocol::Arp } else { Protocol::Ipv6 };
            let socket = PacketSocket::open(index, protocol, &all).expect("a packet socket");
            let _ = Command::new("ip")
                .args(["neigh", "del", &address.to_string(), "dev", "eth0"])
                .output();
            let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            let datagram = UdpSocket::bind(any).expect("a socket");
            let _ = datagram.send_to(b"x", (address, 9));
            let mut answers = Vec::new();
            let end = Instant::now() + Duration::from_millis(150);
            let mut buffer = [0; 2048];
            while let Some(left) = end.checked_duration_since(Instant::now()) {
                let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
                let _ = poll(&mut [PollFd::new(socket.as_fd(), PollFlags::POLLIN)], timeout);
                let Ok(length) = socket.receive(&mut buffer) else { continue };
                if buffer[..6] == this.mac.0
                    && let Ok(Frame::Claim { address: of, mac }) = frame::parse(&buffer[..length])
                    && of == address
                {
                    answers.push(mac);
                }
            }
            answers
        })
    }

    /// Sends a frame, as it is.
    pub(crate) fn send(&self, frame: &[u8]) {
        self.machine.on(|| {
            let index = NonZeroU32::new(self.index).expect("an index");
            let socket = PacketSocket::open(index, Protocol::Arp, &[SockFilter::new(6, 0, 0, 0)]);
            socket.expect("a packet socket").send(frame).expect("send");
        });
    }

    /// How long it takes until a connection is accepted.
    pub(crate) fn attempt(&self, address: IpAddr, port: u16) -> std::io::Result<Duration> {
        let start = Instant::now();
        let to = SocketAddr::new(address, port);
        self.machine.on(|| TcpStream::connect_timeout(&to, Duration::from_secs(1)))?;
        Ok(start.elapsed())
    }

    /// The name of the machine that accepts a connection.
    pub(crate) fn connect(&self, address: IpAddr, port: u16) -> Option<String> {
        self.machine.on(|| {
            let to = SocketAddr::new(address, port);
            let mut stream = TcpStream::connect_timeout(&to, Duration::from_millis(900)).ok()?;
            stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
            let mut name = String::new();
            stream.read_to_string(&mut name).ok()?;
            Some(name)
        })
    }

    /// The MAC address that the kernel has for a neighbour.
    pub(crate) fn neighbour(&self, address: IpAddr) -> Option<String> {
        self.machine.neighbour(address, "eth0")
    }
}

pub(crate) fn v4(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, number)
}

pub(crate) fn v6(number: u8) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, number.into())
}

/// What a thread told so far.
pub(crate) struct Told<T>(Mutex<Vec<T>>, Condvar);

impl<T> Default for Told<T> {
    fn default() -> Self {
        Self(Mutex::default(), Condvar::new())
    }
}

impl<T> Told<T> {
    pub(crate) fn tell(&self, news: T) {
        self.0.lock().expect("not poisoned").push(news);
        self.1.notify_all();
    }

    /// Waits until something was told that is looked for.
    pub(crate) fn wait<R>(&self, what: &str, mut look: impl FnMut(&[T]) -> Option<R>) -> R {
        let end = Instant::now() + Duration::from_secs(20);
        let mut told = self.0.lock().expect("not poisoned");
        loop {
            if let Some(found) = look(&told) {
                return found;
            }
            let left = end.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "not told: {what}");
            told = self.1.wait_timeout(told, left).expect("not poisoned").0;
        }
    }

    pub(crate) fn look<R>(&self, look: impl FnOnce(&[T]) -> R) -> R {
        look(&self.0.lock().expect("not poisoned"))
    }
}

/// A host with a speaker.
pub(crate) struct Node {
    pub(crate) host: Host,
    pub(crate) name: String,
    number: u8,
    pub(crate) speaker: Option<Speaker>,
    pub(crate) news: Arc<Told<News>>,
    keeper: Option<Keeper>,
    pub(crate) kept: Arc<Told<served::News>>,
}

impl Node {
    fn new(switch: &Machine, side: &str, number: u8) -> Self {
        let host = Host::new(switch, side, number);
        let name = format!("node-{number}");
        let answer = name.clone();
        host.machine.on(|| {
            for port in [80, 22] {
                let listener = TcpListener::bind(("::", port)).expect("listen");
                let answer = answer.clone();
                std::thread::spawn(move || {
                    for mut stream in listener.incoming().flatten() {
                        let _ = stream.write_all(answer.as_bytes());
                    }
                });
            }
        });
        let (news, kept) = (Arc::default(), Arc::default());
        Self { host, name, number, speaker: None, news, keeper: None, kept }
    }

    /// Starts the speaker, and puts the addresses on `lo` before.
    pub(crate) fn start(&mut self, key: &[u8], peers: &BTreeSet<SocketAddr>) {
        self.serve(&[V4, V6], &Ports::All, true);
        self.speak(key, peers);
    }

    pub(crate) fn speak(&mut self, key: &[u8], peers: &BTreeSet<SocketAddr>) {
        let config = Config {
            name: self.name.clone(),
            bind: SocketAddr::new(v4(self.number).into(), GOSSIP_PORT),
            at: SocketAddr::new(v4(self.number).into(), GOSSIP_PORT),
            key: key.to_vec(),
        };
        self.news = Arc::default();
        let news = Arc::clone(&self.news);
        let started = self.host.machine.on(|| Speaker::start(&config, move |it| news.tell(it)));
        let speaker = started.expect("start the speaker");
        let candidates = [V4, V6].map(|it| (it, candidate())).into();
        speaker.want(Wanted { candidates, peers: peers.clone() });
        self.speaker = Some(speaker);
    }

    /// Puts addresses on `lo`, and waits until they are there.
    pub(crate) fn serve(&mut self, addresses: &[IpAddr], ports: &Ports, complete: bool) {
        let kept = Arc::clone(&self.kept);
        if self.keeper.is_none() {
            let started = self.host.machine.on(|| Keeper::start(move |it| kept.tell(it)));
            self.keeper = Some(started.expect("start the keeper"));
        }
        let addresses: BTreeMap<_, _> = addresses.iter().map(|it| (*it, ports.clone())).collect();
        let wanted: BTreeSet<_> = addresses.keys().copied().collect();
        self.keeper.as_ref().expect("a keeper").serve(Served {
            addresses,
            complete,
            ..Served::default()
        });
        self.kept.wait("the addresses are on lo", |told| match told.last()? {
            served::News::Present(present) if *present == wanted => Some(()),
            served::News::Present(_) => None,
            served::News::Trouble(trouble) => panic!("{trouble}"),
        });
    }

    /// Has the node as it should be, without waiting for it.
    pub(crate) fn keep(&mut self, served: Served) {
        let kept = Arc::clone(&self.kept);
        if self.keeper.is_none() {
            let started = self.host.machine.on(|| Keeper::start(move |it| kept.tell(it)));
            self.keeper = Some(started.expect("start the keeper"));
        }
        self.keeper.as_ref().expect("a keeper").serve(served);
    }

    /// As a kill -9: nothing is told, and nothing is put in order.
    pub(crate) fn crash(&mut self) {
        self.speaker = None;
        self.keeper = None;
    }

    pub(crate) fn speaker(&self) -> &Speaker {
        self.speaker.as_ref().expect("it runs")
    }

    /// Which host answers for an address, as this speaker told last.
    pub(crate) fn owner_of(&self, address: IpAddr) -> Option<Owner> {
        self.news.look(|told| {
            told.iter().rev().find_map(|it| match it {
                News::Owner(of, owner) if *of == address => Some(owner.clone()),
                _ => None,
            })
        })
    }
}

pub(crate) fn candidate() -> Candidate {
    Candidate { interfaces: Arc::new(Interfaces::All), preferred: false, draining: false }
}

/// Three nodes and two clients: node 1, node 2 and client 101 at the left bridge, node 3 and client 102 at the right one.
pub(crate) struct Segment {
    switch: Machine,
    pub(crate) nodes: Vec<Node>,
    pub(crate) clients: [Host; 2],
}

impl Segment {
    pub(crate) fn new() -> Self {
        let switch = Machine::new();
        for bridge in ["left", "right"] {
            switch.bridge(bridge);
        }
        switch.ip("link add tol type veth peer name tor");
        switch.ip("link set tol master right");
        switch.ip("link set tor master left");
        switch.ip("link set tol up");
        switch.ip("link set tor up");
        let nodes = [("left", 1), ("left", 2), ("right", 3)];
        let nodes = nodes.map(|(side, number)| Node::new(&switch, side, number)).into();
        let clients = [("left", 101), ("right", 102)];
        let clients = clients.map(|(side, number)| Host::new(&switch, side, number));
        Self { switch, nodes, clients }
    }

    pub(crate) fn peers(&self) -> BTreeSet<SocketAddr> {
        (1..=3).map(|it| SocketAddr::new(v4(it).into(), GOSSIP_PORT)).collect()
    }

    /// With a running speaker on each node, and an owner of each address.
    pub(crate) fn started() -> Self {
        let mut segment = Self::new();
        let peers = segment.peers();
        for node in &mut segment.nodes {
            node.start(b"a key of the test", &peers);
        }
        within(Duration::from_secs(10), "an owner of each address", || {
            [V4, V6].iter().all(|it| segment.owner(*it).is_some())
        });
        segment
    }

    /// Parts the bridges, or joins them again. The machines keep their carrier.
    pub(crate) fn split(&self, apart: bool) {
        self.switch.ip(&format!("link set tol {}", if apart { "down" } else { "up" }));
    }

    pub(crate) fn block_gossip(&self, blocked: bool) {
        for node in &self.nodes {
            block_gossip(&node.host.machine, blocked);
        }
    }

    /// The place of the node that answers the first client, if exactly one does.
    pub(crate) fn owner(&self, address: IpAddr) -> Option<usize> {
        match self.clients[0].ask(address).as_slice() {
            [mac] => self.nodes.iter().position(|it| it.host.mac == *mac),
            _ => None,
        }
    }
}
