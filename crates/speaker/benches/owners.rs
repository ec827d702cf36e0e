//! `make bench`: how evenly addresses spread over speakers, and what one change costs, in CPU time. Prints numbers;
//! asserts nothing about time.

use bowline_speaker::l2::frame::Mac;
use bowline_speaker::l2::member::{Hold, MemberId, Profile, Stance, Standing};
use bowline_speaker::l2::owners::{Candidate, Effect, Event, Interfaces, Link, Owner, Owners};
use ipnet::{IpNet, Ipv4Net};
use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const ADDRESSES: u32 = 10_000;
const NODES: usize = 5;
const CHANGES: u32 = 1_000;

fn main() -> Result<()> {
    for addresses in [500, ADDRESSES] {
        let counts = spread(addresses);
        let mean = f64::from(addresses) / NODES as f64;
        let fullest = counts.iter().copied().max().unwrap_or(0);
        println!(
            "{addresses} addresses on {NODES} nodes: {counts:?}, the fullest {:.2} of the mean",
            fullest as f64 / mean
        );
    }
    println!("{:48}{:>14}{:>14}", "one speaker of five, 10000 addresses", "took", "for each");
    let mut speaker = Speaker::new();
    let start = Cpu::now()?;
    speaker.start();
    print("all told, and its share taken", start.elapsed()?, ADDRESSES);
    let start = Cpu::now()?;
    for number in 0..CHANGES {
        speaker.change(address(number * 7 % ADDRESSES));
    }
    print("a candidate is withdrawn and comes back", start.elapsed()?, CHANGES);
    let start = Cpu::now()?;
    for number in 0..CHANGES {
        speaker.said(address(number * 7 % ADDRESSES));
    }
    print("another speaker says something", start.elapsed()?, CHANGES);
    let start = Cpu::now()?;
    speaker.now += Duration::from_secs(5);
    speaker.owners.handle(Event::Down(id(1)), speaker.now);
    let taken = speaker.settle();
    print("another speaker crashes, its share is taken", start.elapsed()?, taken);
    Ok(())
}

fn print(what: &str, took: Duration, count: u32) {
    let milliseconds = took.as_secs_f64() * 1e3;
    let each = took.as_secs_f64() * 1e6 / f64::from(count.max(1));
    println!("{what:48}{milliseconds:>11.1} ms{each:>11.1} us");
}

fn address(number: u32) -> IpAddr {
    Ipv4Addr::from(0x0a00_0000 + number).into()
}

fn id(node: usize) -> MemberId {
    MemberId::of(&format!("node-{node}"))
}

fn candidate() -> Candidate {
    Candidate { interfaces: Arc::new(Interfaces::All), preferred: false, draining: false }
}

fn eligible() -> Stance {
    Stance { standing: Standing::Eligible, hold: Hold::None }
}

/// How many addresses each node takes when all start together.
fn spread(addresses: u32) -> Vec<u32> {
    let share = |node| {
        let mut speaker = Speaker::of(node, addresses);
        speaker.start();
        (0..addresses).filter(|it| speaker.owners.owner_of(&address(*it)) == Owner::Me).count()
            as u32
    };
    (0..NODES).map(share).collect()
}

/// One of the speakers, with what the others say.
struct Speaker {
    owners: Owners,
    me: usize,
    addresses: u32,
    now: Duration,
    said: BTreeMap<IpAddr, Stance>,
}

impl Speaker {
    fn new() -> Self {
        Self::of(0, ADDRESSES)
    }

    fn of(me: usize, addresses: u32) -> Self {
        let now = Duration::from_secs(100);
        Self { owners: Owners::new(id(me), 1, now), me, addresses, now, said: BTreeMap::new() }
    }

    fn start(&mut self) {
        let mac = Mac([2, 0, 0, 0, 0, 1]);
        let networks = vec![IpNet::from(Ipv4Net::new_assert(Ipv4Addr::new(10, 0, 0, 0), 8))];
        let name = "eth0".into();
        let link = Link { name, mac, up: true, usual: true, home: true, networks };
        self.owners.handle(Event::Link(1, Some(link)), self.now);
        for node in (0..NODES).filter(|it| *it != self.me) {
            for number in 0..self.addresses {
                self.owners.handle(Event::Said(id(node), address(number), eligible()), self.now);
            }
            let profile = Profile { name: format!("node-{node}"), macs: vec![], at: None };
            self.owners.handle(Event::Up(id(node), profile), self.now);
        }
        for number in 0..self.addresses {
            self.owners.handle(Event::Candidate(address(number), Some(candidate())), self.now);
        }
        self.settle();
    }

    /// Lets ten seconds pass. How many addresses were taken.
    fn settle(&mut self) -> u32 {
        let before = self.owners.counts().taken;
        let end = self.now + Duration::from_secs(10);
        while self.now < end {
            self.take();
            let wake = self.owners.wake_at().unwrap_or(end);
            self.now = wake.max(self.now + Duration::from_millis(1));
        }
        (self.owners.counts().taken - before) as u32
    }

    fn take(&mut self) {
        for effect in self.owners.take(self.now) {
            if let Effect::Say(address, stance) = effect {
                self.said.insert(address, stance);
            }
        }
    }

    fn change(&mut self, address: IpAddr) {
        for candidate in [None, Some(candidate())] {
            self.owners.handle(Event::Candidate(address, candidate), self.now);
            self.take();
        }
    }

    fn said(&mut self, address: IpAddr) {
        for standing in [Standing::Preferred, Standing::Eligible] {
            let stance = Stance { standing, hold: Hold::None };
            self.owners.handle(Event::Said(id(2), address, stance), self.now);
            self.take();
        }
    }
}

/// How long this process has been on a CPU: a busy machine does not count.
struct Cpu(Duration);

impl Cpu {
    fn now() -> Result<Self> {
        let schedule = fs::read_to_string("/proc/self/schedstat")?;
        let nanoseconds = schedule.split_whitespace().next().ok_or("time on a CPU")?.parse()?;
        Ok(Self(Duration::from_nanos(nanoseconds)))
    }

    fn elapsed(&self) -> Result<Duration> {
        Ok(Self::now()?.0.saturating_sub(self.0))
    }
}
