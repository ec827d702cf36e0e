//! How speakers know of each other without the Kubernetes API: who is there, and what each says of every address. The
//! machine of one speaker, over datagrams.
//!
//! ```text
//!  datagram ─▶ seal ─┬─ Hello ──▶ sessions         who may talk to whom, safe from replays
//!                    ├─ Swim ───▶ swim (foca)      who is there
//!                    └─ Digest,   tables           what each says
//!                       Delta
//! ```
//!
//! A member that seems down, and a peer that was never heard, is asked again every second.

mod keys;
mod seal;
mod sessions;
mod swim;
mod tables;
mod wire;

use super::member::{MemberId, Profile, Stance};
use super::owners;
use crate::dice::Dice;
use bowline_core::clock::Uptime;
use keys::Keys;
use seal::{Kind, Sealer, Window};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use swim::{Change, Node, Swim};
use tables::Tables;
use wire::{Delta, Digest, Hello, Word};

pub(crate) use seal::DATAGRAM_LIMIT;

/// How often members that seem down are asked.
const ASK_PERIOD: Duration = Duration::from_secs(1);
/// How often tables are compared with those of one other member.
const COMPARE_PERIOD: Duration = Duration::from_millis(500);
/// After how long something that is missing is asked for. Datagrams that are under way may bring it.
const QUESTION_DELAY: Duration = Duration::from_millis(5);
/// After how long it is asked for again.
const QUESTION_PERIOD: Duration = Duration::from_millis(100);
/// How long the words of a new member are awaited before it counts.
const WORDS_TIME: Duration = Duration::from_secs(2);
/// How long a member that is down, and is no configured peer, is remembered.
const REMEMBER: Duration = Duration::from_secs(3600);

/// What a speaker is told at its start.
pub struct Config {
    /// Its name, usually the node's. No two speakers have the same.
    pub name: String,
    /// Where the other speakers reach it.
    pub at: SocketAddr,
    /// The key that all speakers of a cluster have.
    pub key: Vec<u8>,
    /// A number that is higher at each start: microseconds of the wall clock.
    pub start: u64,
    /// Spreads timers and choices.
    pub seed: u64,
}

/// Why there is no machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the key of the speakers is empty")]
pub struct NoKey;

/// What happens.
#[derive(Clone, Debug)]
pub enum Event<'a> {
    /// A datagram arrived.
    Received(SocketAddr, &'a [u8]),
    /// Where other speakers should be. They are asked until they answer.
    Peers(BTreeSet<SocketAddr>),
    /// This speaker has these interfaces now.
    Profile(Profile),
    /// This speaker says this of an address.
    Say(IpAddr, Stance),
    /// The speakers have another key. For a while the one before counts, too.
    Key(Vec<u8>),
    /// The process did not run for so long.
    Paused(Duration),
    /// This speaker stops.
    Leave,
}

/// What the shell has to do.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Send a datagram.
    Send(SocketAddr, Vec<u8>),
    /// Pass this on to the machine of the owners.
    Tell(owners::Event),
}

/// What was counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Datagrams that were sent.
    pub sent: u64,
    /// Datagrams that were understood.
    pub received: u64,
    /// Datagrams without the right code: of strangers, or of speakers with another key.
    pub refused: u64,
    /// Datagrams that were recorded and sent again, or are of an earlier start.
    pub replayed: u64,
    /// Datagrams of another speaker with the same name.
    pub namesakes: u64,
}

/// Another speaker, whose present start is known, and which knows this one's.
#[derive(Debug)]
struct Peer {
    at: SocketAddr,
    start: u64,
    window: Window,
    /// When it was heard last.
    heard: Uptime,
}

/// A member that does not count yet.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    until: Uptime,
    /// It said up to where its words go.
    told: bool,
}

/// The machine.
#[derive(Debug)]
pub struct Gossip {
    start: u64,
    counter: u64,
    keys: Keys,
    /// The time of the last event.
    now: Uptime,
    swim: Swim,
    tables: Tables,
    peers: HashMap<MemberId, Peer>,
    configured: BTreeSet<SocketAddr>,
    /// Members that are there, but do not count before this time, or before they said up to where their words go and
    /// all of these are known.
    waiting: BTreeMap<MemberId, Waiting>,
    /// Members that the owners were told of.
    up: BTreeSet<MemberId>,
    /// When to ask which member for the table of which one.
    questions: BTreeMap<(MemberId, MemberId), Uptime>,
    ask_at: Uptime,
    compare_at: Uptime,
    dice: Dice,
    effects: Vec<Effect>,
    news: bool,
    counts: Counts,
}

impl Gossip {
    /// The machine of a speaker that starts now.
    pub fn new(config: &Config, now: Uptime) -> Result<Self, NoKey> {
        let id = MemberId::of(&config.name);
        let me = Node { id, at: config.at, generation: config.start };
        let mut dice = Dice::new(config.seed);
        Ok(Self {
            start: config.start,
            counter: 0,
            keys: Keys::new(Sealer::new(&config.key).ok_or(NoKey)?),
            now,
            swim: Swim::new(me, seal::BODY_LIMIT, dice.roll()),
            tables: Tables::new(id, config.start),
            peers: HashMap::new(),
            configured: BTreeSet::new(),
            waiting: BTreeMap::new(),
            up: BTreeSet::new(),
            questions: BTreeMap::new(),
            ask_at: now,
            compare_at: now + COMPARE_PERIOD,
            dice,
            effects: Vec::new(),
            news: false,
            counts: Counts::default(),
        })
    }

    /// What was counted.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The other members that are there.
    pub fn members(&self) -> &BTreeSet<MemberId> {
        &self.up
    }

    /// Takes an event.
    pub fn handle(&mut self, event: Event<'_>, now: Uptime) {
        self.tick(now);
        match event {
            Event::Received(from, bytes) => self.receive(from, bytes, now),
            Event::Peers(peers) => {
                if !peers.is_subset(&self.configured) {
                    self.ask_at = now;
                }
                self.configured = peers;
            }
            Event::Profile(profile) => self.say(&Word::Profile(profile)),
            Event::Say(address, stance) => self.say(&Word::Stance(address, stance)),
            Event::Key(key) => {
                if let Some(sealer) = Sealer::new(&key) {
                    self.keys.change(sealer, now);
                }
            }
            Event::Paused(by) => self.swim.postpone(by),
            Event::Leave => self.swim.leave(now),
        }
    }

    fn tick(&mut self, now: Uptime) {
        self.now = now;
        self.keys.tick(now);
    }

    fn say(&mut self, word: &Word) {
        self.tables.say(word);
        self.news = true;
    }

    /// A member says what it has.
    fn compare(&mut self, from: MemberId, digest: &Digest, now: Uptime) {
        let live: Vec<_> = self.swim.live().map(|it| it.id).collect();
        let mut deltas = self.tables.answer(digest, &live);
        let me = self.swim.me().id;
        if digest.complete && deltas.iter().all(|it| it.to.of != me) {
            deltas.push(self.tables.end());
        }
        for delta in deltas {
            self.send(from, Kind::Delta, &delta.to_bytes());
        }
        for mark in digest.marks.iter().filter(|it| it.of != me && live.contains(&it.of)) {
            // What is not missing is left out when it is time to ask.
            self.questions.entry((from, mark.of)).or_insert(now + QUESTION_DELAY);
        }
    }

    /// A member passes on what a member says.
    fn learn(&mut self, from: MemberId, delta: &Delta, now: Uptime) {
        let of = delta.to.of;
        if !self.swim.is_live(of) {
            return;
        }
        if let Some(waiting) = self.waiting.get_mut(&of).filter(|_| from == of) {
            waiting.told = true;
        }
        let applied = self.tables.apply(delta);
        for word in applied.words {
            let event = match word {
                Word::Stance(address, stance) => owners::Event::Said(of, address, stance),
                Word::Profile(profile) if self.up.contains(&of) => owners::Event::Up(of, profile),
                Word::Profile(_) => continue,
            };
            self.effects.push(Effect::Tell(event));
        }
        if applied.behind {
            self.questions.entry((from, of)).or_insert(now + QUESTION_DELAY);
        }
    }

    /// When to call [`Gossip::take`] again.
    pub fn wake_at(&self) -> Option<Uptime> {
        if self.news || !self.effects.is_empty() {
            return Some(Uptime::ZERO);
        }
        let waits = self.waiting.values().map(|it| it.until);
        let waits = waits.chain(self.questions.values().copied());
        waits.chain([self.ask_at, self.compare_at]).chain(self.swim.wake_at()).min()
    }

    /// What has to be done now. The shell passes in every datagram that waits before, so that a late thread does not take
    /// its own delay for the silence of others.
    pub fn take(&mut self, now: Uptime) -> Vec<Effect> {
        self.tick(now);
        let (sends, changes) = self.swim.take(now);
        for change in changes {
            self.change(change, now);
        }
        for (node, bytes) in sends {
            if self.peers.contains_key(&node.id) {
                self.send(node.id, Kind::Swim, &bytes);
            } else {
                self.hello(node.at, 0, 0);
            }
        }
        if std::mem::take(&mut self.news) {
            let live: Vec<_> = self.swim.live().map(|it| it.id).collect();
            for bytes in self.tables.news().iter().map(Delta::to_bytes) {
                for member in &live {
                    self.send(*member, Kind::Delta, &bytes);
                }
            }
        }
        for ((from, of), _) in self.questions.extract_if(.., |_, at| *at <= now).collect::<Vec<_>>()
        {
            if !self.tables.is_behind(&of) || !self.swim.is_live(from) {
                continue;
            }
            let digest = self.tables.question(of);
            self.send(from, Kind::Digest, &digest.to_bytes());
            self.questions.insert((from, of), now + QUESTION_PERIOD);
        }
        if now >= self.compare_at {
            self.compare_at = now + COMPARE_PERIOD.mul_f64(self.dice.between(0.8, 1.2));
            let live: Vec<_> = self.swim.live().map(|it| it.id).collect();
            if let Some(member) = live.get(self.dice.below(live.len())) {
                let digest = self.tables.digest(&live, &mut self.dice);
                self.send(*member, Kind::Digest, &digest.to_bytes());
            }
        }
        if now >= self.ask_at {
            self.ask_at = now + ASK_PERIOD;
            self.ask(now);
        }
        self.welcome(now);
        std::mem::take(&mut self.effects)
    }

    fn change(&mut self, change: Change, now: Uptime) {
        match change {
            Change::Up(node) => {
                self.waiting.insert(node.id, Waiting { until: now + WORDS_TIME, told: false });
                let live: Vec<_> = self.swim.live().map(|it| it.id).collect();
                let digest = self.tables.digest(&live, &mut self.dice);
                self.send(node.id, Kind::Digest, &digest.to_bytes());
            }
            Change::Down(node) => {
                self.waiting.remove(&node.id);
                if self.up.remove(&node.id) {
                    self.effects.push(Effect::Tell(owners::Event::Down(node.id)));
                }
            }
        }
    }

    /// Counts members of which enough is known.
    fn welcome(&mut self, now: Uptime) {
        for (member, Waiting { until, told }) in self.waiting.clone() {
            let late = now >= until;
            let table = self.tables.get(&member);
            let profile =
                table.filter(|it| late || (told && it.is_current())).and_then(|it| it.profile());
            if let Some(profile) = profile {
                let event = owners::Event::Up(member, profile.clone());
                self.effects.push(Effect::Tell(event));
                self.waiting.remove(&member);
                self.up.insert(member);
            } else if late {
                self.waiting.insert(member, Waiting { until: now + WORDS_TIME, told });
            }
        }
    }

    /// Asks peers that are not there, and forgets those that are gone for long.
    fn ask(&mut self, now: Uptime) {
        let me = self.swim.me().at;
        let live: BTreeSet<_> = self.swim.live().map(|it| it.id).collect();
        let here: BTreeSet<_> = self.swim.live().map(|it| it.at).chain([me]).collect();
        let gone: Vec<_> = self
            .peers
            .iter()
            .filter(|(id, it)| {
                !live.contains(id) && !self.configured.contains(&it.at) && now > it.heard + REMEMBER
            })
            .map(|it| *it.0)
            .collect();
        for member in gone {
            self.peers.remove(&member);
        }
        let unknown = |it: &MemberId| !live.contains(it) && !self.peers.contains_key(it);
        for member in self.tables.members().filter(unknown).collect::<Vec<_>>() {
            for (address, _) in self.tables.forget(&member).iter().flat_map(tables::Table::stances)
            {
                let said = owners::Event::Said(member, address, Stance::NOTHING);
                self.effects.push(Effect::Tell(said));
            }
        }
        let mut asked: BTreeMap<_, _> = self.configured.iter().map(|at| (*at, (0, 0))).collect();
        asked.extend(self.peers.values().map(|it| (it.at, (it.start, it.start))));
        for (at, (to_start, known)) in asked {
            if !here.contains(&at) {
                self.hello(at, to_start, known);
            }
        }
    }
}

/// Reads a datagram body of each kind, and a sealed datagram: for fuzzing.
pub fn fuzz(bytes: &[u8]) {
    let _ = (Hello::parse(bytes), Digest::parse(bytes));
    if let Some(delta) = Delta::parse(bytes) {
        assert_eq!(delta.to_bytes(), bytes, "a delta is written as it was read");
        let mut tables = Tables::new(MemberId(1), 1);
        let _ = tables.apply(&delta);
        let _ = tables.apply(&delta);
    }
    let config = Config {
        name: "fuzz".into(),
        at: SocketAddr::from(([127, 0, 0, 1], 1)),
        key: b"fuzz".to_vec(),
        start: 1,
        seed: 1,
    };
    if let Ok(mut gossip) = Gossip::new(&config, Uptime::ZERO) {
        gossip.handle(Event::Received(config.at, bytes), Uptime::ZERO);
        gossip.swim.receive(bytes, Uptime::ZERO);
        let _ = gossip.take(Uptime::ZERO);
    }
}

#[cfg(test)]
mod tests;
