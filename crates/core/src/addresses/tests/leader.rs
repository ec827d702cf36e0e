//! A leader of the cloud: a machine, what its watches and lists have delivered, and what it has begun. A write of it
//! is sent, performed and answered at three different times, or not at all.

use super::causes::Chosen;
use super::cloud::{World, node, resolved};
use super::make::*;
use super::places::{Places, Planned, place_of};
use super::steps::WATCHES;
use crate::addresses::*;
use crate::objects::Timestamp;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

pub(super) const POOLS: usize = 0;
pub(super) const REQUESTS: usize = 1;
pub(super) const RECORDS: usize = 2;
pub(super) const NODES: usize = 3;

/// The kinds that a watch delivers.
const KINDS: [&[Kind]; WATCHES] = [
    &[Kind::Pool, Kind::Namespace],
    &[Kind::Service, Kind::LoadBalancer, Kind::ExternalIp],
    &[Kind::Address],
    &[Kind::Node],
];

/// A leader, what its watches have delivered, and what it has not done yet.
pub(super) struct Leader {
    pub(super) machine: Addresses,
    pub(super) view: Rc<World>,
    pub(super) heard: [usize; WATCHES],
    lists: [List; WATCHES],
    /// How much of the log of Addresses a list or the watch has delivered to it.
    records: usize,
    /// Sent, and not performed.
    pub(super) writes: Vec<(Write, Decided)>,
    /// Performed, and not answered.
    pub(super) answers: Vec<(WriteId, IpAddr, Written)>,
    /// Given up by the leader, but still in flight.
    pub(super) late: Vec<(Write, Decided)>,
    /// What it had heard when it first chose an address for a holder: writes are repeated.
    pub(super) chosen: BTreeMap<(Arc<str>, IpAddr), Chosen>,
    /// The newest decision of each holder with a status that has not been written.
    pub(super) decisions: BTreeMap<HolderRef, Option<Arc<Decision>>>,
    pub(super) planned: Planned,
}

/// A list that is delivered page by page: what was there when it began.
#[derive(Default)]
struct List {
    pages: VecDeque<Event>,
    world: Option<Rc<World>>,
}

/// What a leader knew when it decided on a write.
#[derive(Clone, Debug)]
pub(super) struct Decided {
    pub(super) view: Rc<World>,
    /// How much of the log of Addresses it had heard.
    pub(super) records: usize,
    /// Addresses about which it does not believe the watch before its own writes are answered, also those to come.
    pub(super) in_flight: Rc<[IpAddr]>,
}

impl Leader {
    /// A leader that has observed nothing.
    pub(super) fn new(world: Rc<World>) -> Self {
        Self {
            machine: Addresses::new(Config { grace: GRACE }),
            view: world,
            heard: [0; WATCHES],
            lists: Default::default(),
            records: 0,
            writes: Vec::new(),
            answers: Vec::new(),
            late: Vec::new(),
            chosen: BTreeMap::new(),
            decisions: BTreeMap::new(),
            planned: Planned::default(),
        }
    }

    /// A watch starts over: it delivers a list of all objects, and then the rest of the log.
    pub(super) fn list(
        &mut self,
        watch: usize,
        world: &Rc<World>,
        records: &BTreeMap<IpAddr, Record>,
        log: usize,
    ) {
        let apply = |object| Event::Apply(Box::new(object));
        let mut pages: VecDeque<Event> = KINDS[watch].iter().copied().map(Event::Begin).collect();
        match watch {
            POOLS => pages.extend(world.pools.values().cloned().map(|it| apply(Object::Pool(it)))),
            REQUESTS => {
                pages.extend(world.requests.values().cloned().map(|it| apply(Object::Request(it))));
                pages.extend(resolved(world));
            }
            RECORDS => pages.extend(records.values().cloned().map(Event::Recorded)),
            _ => pages.push_back(node(world.node)),
        }
        pages.extend(KINDS[watch].iter().copied().map(Event::Done));
        self.lists[watch] = List { pages, world: Some(world.clone()) };
        self.heard[watch] = log;
    }

    /// Delivers the next event of a watch.
    pub(super) fn hear(&mut self, watch: usize, log: &[Event], now: Timestamp) -> bool {
        let listed = self.lists[watch].pages.pop_front();
        let event = match &listed {
            Some(event) => event,
            None => {
                let Some(event) = log.get(self.heard[watch]) else { return false };
                self.heard[watch] += 1;
                event
            }
        };
        let view = Rc::make_mut(&mut self.view);
        view.hear(event);
        self.machine.handle(event.clone(), now);
        if matches!(event, Event::Done(_))
            && let Some(world) = self.lists[watch].world.take()
        {
            // An object that was not in the list is gone.
            match watch {
                POOLS => view.pools = world.pools.clone(),
                REQUESTS => view.requests = world.requests.clone(),
                _ => {}
            }
        }
        if self.lists[RECORDS].pages.is_empty() {
            self.records = self.heard[RECORDS];
        }
        true
    }

    /// Addresses of which it has sent a write that has not been answered.
    fn unanswered(&self) -> impl Iterator<Item = IpAddr> {
        let sent = self.writes.iter().map(|(write, _)| write.address);
        sent.chain(self.answers.iter().map(|(_, address, _)| *address))
    }

    /// Addresses with a recorded holder that should no longer have them: to be written as soon as that is possible.
    fn given_up(&self) -> impl Iterator<Item = IpAddr> {
        let entries = self.machine.ledger.entries.iter();
        let left = entries.filter(|(_, entry)| {
            let mut recorded = entry.recorded.iter().flat_map(|(it, _)| &it.holders);
            let held = |uid: &str| entry.held.as_ref().is_some_and(|held| held.has(uid));
            recorded.any(|it| !held(&it.holder.uid))
        });
        left.map(|(address, _)| *address)
    }

    /// What the leader knows before it decides.
    pub(super) fn decided(&self) -> Decided {
        let in_flight = self.unanswered().chain(self.given_up()).collect();
        Decided { view: self.view.clone(), records: self.records, in_flight }
    }

    /// All holders, each with the addresses that it should have.
    pub(super) fn wanted(&self, changes: &Changes) -> Vec<(Arc<str>, IpAddr)> {
        let requests = self.view.requests.values().map(|it| it.holder.clone());
        // An address that is chosen while another write of it is in flight is written after that.
        let wanted = requests.flat_map(|it| {
            self.machine.addresses_of(&it).into_iter().map(move |at| (it.uid.clone(), at))
        });
        let written = changes.writes.iter().filter_map(|write| match &write.op {
            Op::Create(content) | Op::Update { content, .. } => Some((write.address, content)),
            Op::Delete { .. } => None,
        });
        let written = written.flat_map(|(address, content)| {
            content.holders.iter().map(move |it| (it.holder.uid.clone(), address))
        });
        wanted.chain(written).collect()
    }

    /// Tells the machine what agents have done, as far as it must know. True: there is news.
    pub(super) fn follow(&mut self, places: &Places, now: Timestamp) -> bool {
        let news = self.planned.follow(&self.machine, places);
        let any = !news.is_empty();
        news.into_iter().for_each(|event| self.machine.handle(event, now));
        any
    }

    /// Plans what was decided, and enqueues each status that is not as it should be. True: a plan changed.
    pub(super) fn plan(&mut self, places: &mut Places, now: Timestamp) -> bool {
        let served = self.view.requests.values().filter_map(|request| {
            let grant = self.machine.decision(&request.holder)?.grant();
            Some((place_of(request)?, request.holder.clone(), grant.served()))
        });
        let served = served.filter(|(_, _, addresses)| !addresses.is_empty());
        let news = self.planned.plan(served, places);
        let any = !news.is_empty();
        news.into_iter().for_each(|event| self.machine.handle(event, now));
        for request in self.view.requests.values().filter(|it| place_of(it).is_some()) {
            let decision = self.machine.decision(&request.holder);
            if self.status(request, decision, &request.status, Some(places)) != request.status {
                let decision = decision.cloned().map(Arc::new);
                self.decisions.entry(request.holder.clone()).or_insert(decision);
            }
        }
        any
    }

    /// What a status should show, given what it shows.
    pub(super) fn status(
        &self,
        request: &AddressRequest,
        decision: Option<&Decision>,
        written: &[IpAddr],
        places: Option<&Places>,
    ) -> Vec<IpAddr> {
        let Some(decision) = decision else { return Vec::new() };
        match (place_of(request), places) {
            (Some(at), Some(places)) => {
                self.planned.status(at, &request.holder, decision, written, places)
            }
            _ => shown_by(decision),
        }
    }
}
