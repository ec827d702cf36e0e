//! The links of the node: hands addresses that the node may own to the speaker of layer 2, and reads back which it owns and
//! what other speakers say. The speaker starts when the first address is offered, so that a node which announces by BGP
//! alone needs neither its rights nor the key. `network` calls it.

use super::announcer::{Ending, Gossip};
use super::l2_metrics::Counters;
use super::network::Said;
use crate::metrics::Metrics;
use bowline_core::announce::{self, Effect, Event, Wish};
use bowline_core::report::speaker::{NotMoved, OnLinks};
use bowline_speaker::l2::owners::{Candidate, Interfaces};
use bowline_speaker::l2::speaker::{Config, News, Owner, Speaker, Wanted};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

/// When a start that failed is tried again.
const AGAIN: Duration = Duration::from_secs(5);
/// How long a claim of another host is reported, after the last one.
const CLAIM_LASTS: Duration = Duration::from_secs(300);

/// A host that claims an address and is no speaker of this cluster.
struct Claim {
    host: Arc<str>,
    /// None: while it answers for the address.
    until: Option<Instant>,
}

/// The links of this node.
pub(super) struct Links {
    node: Arc<str>,
    said: UnboundedSender<Said>,
    gossip: Gossip,
    /// What the running speaker was started with.
    started: Option<Gossip>,
    speaker: Arc<Mutex<Option<Speaker>>>,
    /// Which speaker it is: news of an earlier one count no more.
    generation: u64,
    candidates: BTreeMap<IpAddr, Candidate>,
    owned: BTreeSet<IpAddr>,
    members: BTreeSet<String>,
    conflicts: BTreeMap<IpAddr, Claim>,
    /// The node that answers for an address although its speaker does not own it, and until when it is told.
    contradictions: BTreeMap<IpAddr, (String, Instant)>,
    moves: BTreeMap<IpAddr, Wish>,
    not_moved: BTreeMap<IpAddr, NotMoved>,
    /// What does not work of the running speaker.
    trouble: Option<String>,
    /// Why there is no running speaker although one is wanted.
    missing: Option<String>,
    again: Option<Instant>,
    left: bool,
}

impl Links {
    pub(super) fn new(node: &str, said: UnboundedSender<Said>, metrics: &Metrics) -> Self {
        let speaker = Arc::<Mutex<Option<Speaker>>>::default();
        metrics.register(|it| {
            it.register_collector(Box::new(Counters::new(Arc::clone(&speaker))));
        });
        Self {
            node: node.into(),
            said,
            gossip: Gossip::default(),
            started: None,
            speaker,
            generation: 0,
            candidates: BTreeMap::new(),
            owned: BTreeSet::new(),
            members: BTreeSet::new(),
            conflicts: BTreeMap::new(),
            contradictions: BTreeMap::new(),
            moves: BTreeMap::new(),
            not_moved: BTreeMap::new(),
            trouble: None,
            missing: None,
            again: None,
            left: false,
        }
    }

    /// Carries out the effects that concern links.
    pub(super) fn carry_out(&mut self, effects: &[Effect]) {
        for effect in effects {
            match effect {
                Effect::Offer(address, offer) => {
                    let offer = candidate(offer);
                    if let Some(speaker) = &*self.speaker.lock() {
                        speaker.candidate(*address, Some(offer.clone()));
                    }
                    self.candidates.insert(*address, offer);
                }
                Effect::Decline(address) => {
                    if let Some(speaker) = &*self.speaker.lock() {
                        speaker.candidate(*address, None);
                    }
                    self.candidates.remove(address);
                    self.conflicts.remove(address);
                    self.contradictions.remove(address);
                }
                _ => {}
            }
        }
        if self.started.is_none() {
            self.start();
        }
    }

    /// How speakers find each other now. At another address it is another speaker.
    pub(super) fn gossip(&mut self, gossip: Gossip) {
        let before = std::mem::replace(&mut self.gossip, gossip);
        let Some(started) = &mut self.started else { return self.start() };
        if let Some(key) = &self.gossip.key
            && started.key.as_ref() != Some(key)
        {
            tracing::info!("the key of speakers has changed");
            started.key = Some(key.clone());
            if let Some(speaker) = &*self.speaker.lock() {
                speaker.key(key.clone());
            }
        }
        if self.gossip.at.is_some() && started.at != self.gossip.at {
            tracing::info!("the address of gossip has changed");
            self.end();
            self.start();
        } else if before.peers != self.gossip.peers {
            self.want();
        }
    }

    fn want(&self) {
        if let Some(speaker) = &*self.speaker.lock() {
            let (candidates, peers) = (self.candidates.clone(), self.gossip.peers.clone());
            speaker.want(Wanted { candidates, peers });
        }
    }

    fn end(&mut self) {
        *self.speaker.lock() = None;
        self.started = None;
        self.owned.clear();
        self.conflicts.clear();
        self.contradictions.clear();
        self.trouble = None;
    }

    /// Starts the speaker, if an address needs one.
    fn start(&mut self) {
        self.again = None;
        if self.candidates.is_empty() {
            self.missing = None;
            return;
        }
        let missing = match (&self.gossip.key, self.gossip.at) {
            (None, _) => {
                "Secret bowline-gossip with the key of speakers is missing; the controller makes it"
                    .to_owned()
            }
            (_, None) => "this node has no address for gossip: give --gossip".to_owned(),
            (Some(key), Some(at)) => {
                let config = Config { name: self.node.to_string(), bind: at, at, key: key.clone() };
                self.generation += 1;
                let (said, generation) = (self.said.clone(), self.generation);
                // The receiver is gone when the role ends.
                let tell = move |news| _ = said.send(Said::Links(generation, news));
                match Speaker::start(&config, tell) {
                    Ok(speaker) => {
                        tracing::info!(%at, "announces on links");
                        *self.speaker.lock() = Some(speaker);
                        self.started = Some(self.gossip.clone());
                        self.missing = None;
                        self.want();
                        return;
                    }
                    Err(error) => {
                        self.again = Some(Instant::now() + AGAIN);
                        format!("gossip at {at} cannot start: {error}")
                    }
                }
            }
        };
        if self.missing.as_ref() != Some(&missing) {
            tracing::warn!(missing, "no address is announced on links");
        }
        self.missing = Some(missing);
    }

    /// Returns when a start should be tried again, or a claim is over.
    pub(super) fn due(&self) -> impl Future<Output = ()> + Send + use<> {
        let claims = self.conflicts.values().filter_map(|it| it.until);
        let contradictions = self.contradictions.values().map(|it| it.1);
        let due = claims.chain(contradictions).chain(self.again).min();
        async move {
            match due {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        }
    }

    /// Does what is due.
    pub(super) fn try_again(&mut self) {
        let now = Instant::now();
        self.conflicts.retain(|_, it| it.until.is_none_or(|until| now < until));
        self.contradictions.retain(|_, it| now < it.1);
        if self.again.is_some_and(|at| at <= now) {
            self.start();
        }
    }

    /// A node should own an address.
    pub(super) fn move_to(&mut self, address: IpAddr, wish: Wish) {
        self.not_moved.remove(&address);
        // Only the owner acts, so only it can tell that it did not come about.
        if !self.owned.contains(&address) || wish.node() == &*self.node {
            return;
        }
        tracing::info!(%address, to = wish.node(), "moves the address as wished");
        if let Some(speaker) = &*self.speaker.lock() {
            speaker.move_to(address, wish.node());
        }
        self.moves.insert(address, wish);
    }

    /// Takes in what the speaker says.
    pub(super) fn hear(&mut self, generation: u64, news: News) -> Vec<Event> {
        // What an earlier speaker said of others ends with it: it says so itself, before the next one says anything.
        let of_others = matches!(news, News::Serves(..) | News::Members(_));
        if generation != self.generation && !of_others {
            return Vec::new();
        }
        match news {
            News::Owner(address, owner) => {
                match owner {
                    Owner::Me => _ = self.owned.insert(address),
                    _ => {
                        self.owned.remove(&address);
                        self.moves.remove(&address);
                    }
                }
                match owner {
                    Owner::Stranger(mac) => self.conflict(address, &mac.to_string(), None),
                    _ => _ = self.conflicts.remove(&address),
                }
                Vec::new()
            }
            News::Conflict(address, mac) => {
                self.conflict(address, &mac.to_string(), Some(Instant::now() + CLAIM_LASTS));
                Vec::new()
            }
            News::Contradicted(address, node) => {
                let text = contradiction(address, &node);
                let until = Instant::now() + CLAIM_LASTS;
                if self.contradictions.insert(address, (node, until)).is_none() {
                    tracing::warn!("{text}");
                }
                Vec::new()
            }
            News::NotMoved(address, to) => {
                let Some(wish) = self.moves.remove(&address) else { return Vec::new() };
                let reason = match self.members.contains(&to) {
                    true => {
                        format!("node {to} may not own {address} now, or did not take it in time")
                    }
                    false => format!("no speaker of node {to} is heard"),
                };
                tracing::warn!(%address, to, reason, "the address could not be moved");
                let not_moved = NotMoved { wish: wish.text().clone(), reason: reason.into() };
                self.not_moved.insert(address, not_moved);
                Vec::new()
            }
            News::Serves(address, node, serves) => {
                vec![Event::ServedAt(address, node.into(), serves)]
            }
            News::Members(members) => {
                let before = std::mem::replace(&mut self.members, members);
                let event = |node: &String, runs| Event::Speaker(node.as_str().into(), runs);
                let gone = before.difference(&self.members).map(|node| event(node, false));
                gone.chain(self.members.difference(&before).map(|node| event(node, true))).collect()
            }
            News::Interfaces(interfaces) => {
                tracing::debug!(?interfaces, "links");
                self.trouble = interfaces.is_empty().then(|| {
                    "no Ethernet interface of this node is up, or frames cannot be sent from any (this takes the \
                     capability NET_RAW)"
                        .to_owned()
                });
                Vec::new()
            }
            News::Trouble(trouble) => {
                tracing::warn!(trouble, "announcing on links");
                self.trouble = Some(trouble);
                Vec::new()
            }
            News::Left => {
                self.left = true;
                Vec::new()
            }
        }
    }

    fn conflict(&mut self, address: IpAddr, host: &str, until: Option<Instant>) {
        let before = self.conflicts.get(&address);
        let answers = before.is_some_and(|it| it.until.is_none());
        let known = before.is_some_and(|it| &*it.host == host);
        let claim = Claim { host: host.into(), until: until.filter(|_| !answers) };
        self.conflicts.insert(address, claim);
        if !known {
            tracing::warn!(%address, host, "a host that is no speaker of this cluster claims the address");
        }
    }

    /// The addresses that the node owns.
    pub(super) fn owned(&self) -> impl Iterator<Item = IpAddr> {
        self.owned.iter().copied()
    }

    /// What there is to say of the links.
    pub(super) fn report(&self) -> OnLinks {
        let troubles =
            [&self.missing, &self.trouble].into_iter().flatten().map(|it| it.as_str().into());
        let contradictions =
            self.contradictions.iter().map(|(address, it)| contradiction(*address, &it.0).into());
        OnLinks {
            gossip: self.started.as_ref().and_then(|it| it.at),
            members: self.members.len(),
            conflicts: self.conflicts.iter().map(|(at, it)| (*at, it.host.clone())).collect(),
            not_moved: self.not_moved.clone(),
            troubles: troubles.chain(contradictions).collect(),
        }
    }

    /// Asks other speakers to take over, or to stand in until the next speaker of this node is there.
    pub(super) fn leave(&self, ending: Ending) {
        if let Some(speaker) = &*self.speaker.lock() {
            match ending {
                Ending::Leave => speaker.leave(),
                Ending::Upgrade => speaker.lend(),
            }
        }
    }

    /// Whether they have, or there is nothing to take over.
    pub(super) fn has_left(&self) -> bool {
        self.left || self.started.is_none()
    }
}

fn contradiction(address: IpAddr, node: &str) -> String {
    format!(
        "node {node} answers for {address} although its speaker does not own it: kube-proxy in IPVS mode needs \
         strictARP, or another host forges frames of the node"
    )
}

fn candidate(offer: &announce::Candidate) -> Candidate {
    let interfaces = match offer.interfaces.is_empty() {
        true => Interfaces::All,
        false => Interfaces::Named(offer.interfaces.iter().map(ToString::to_string).collect()),
    };
    Candidate {
        interfaces: Arc::new(interfaces),
        preferred: offer.preferred,
        draining: offer.draining,
    }
}
