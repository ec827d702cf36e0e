//! Which client holds which places, and whether a client may have one more. It decides with values alone;
//! [`super`] cuts the connections that lose a place and wakes those that wait.
//!
//! Places are limited in all and per listener. A client may have most of them while no other client needs
//! them. When none is left, a client that holds fewer than another gets a place from the client that holds
//! the most, as long as that brings the two closer together; if no client holds enough, the same applies
//! to IPv6 networks. So a client below its equal share always gets a place. A client that holds nothing
//! while no client holds more than one waits for the next free place.

use super::client::Client;
use super::holders::{Giver, Holders};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Identifies a place; a later place has a greater id.
pub(crate) type Id = u64;

/// How many places of the client that gives way are checked for one that is not in use.
const CHANCES: usize = 8;

/// How many places there are. No bound is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// In all.
    pub(crate) whole: usize,
    /// At one listener, so that no listener takes all.
    pub(crate) part: usize,
    /// For one client.
    pub(crate) client: usize,
}

/// Which of its places a client loses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gives {
    /// The newest. A client that has its share gets no more.
    Newest,
    /// The oldest that is not in use. A client that has its share loses one of its own.
    Oldest,
}

/// The client that asks, and its listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seat {
    pub(crate) part: u64,
    pub(crate) client: Client,
}

/// Where places are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    Part,
    Whole,
}

/// The answer to a request for a place.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict<V> {
    /// The client has this place, and these were taken for it: none if there was room.
    Admitted(Id, Vec<(Id, V)>),
    /// Every other client holds at most one place: the request waits until one is free at this level.
    Wait(Level),
    /// The client has its share.
    Refused,
}

/// Which client holds which places.
#[derive(Debug)]
pub(crate) struct Ledger<V> {
    bounds: Bounds,
    gives: Gives,
    whole: Holders,
    parts: HashMap<u64, Holders>,
    /// Listeners by the number of places held there.
    by_total: BTreeSet<(usize, u64)>,
    held: BTreeMap<Id, (Seat, V)>,
    next: Id,
}

enum Judged {
    Room,
    From(Level, Giver),
    Wait(Level),
    Enough(Level),
}

impl<V> Ledger<V> {
    pub(crate) fn new(bounds: Bounds, gives: Gives) -> Self {
        Self {
            bounds,
            gives,
            whole: Holders::default(),
            parts: HashMap::new(),
            by_total: BTreeSet::new(),
            held: BTreeMap::new(),
            next: 0,
        }
    }

    /// Gives a client a place, if it may have one. `in_use` is called when the oldest place is taken.
    pub(crate) fn admit(
        &mut self,
        seat: Seat,
        value: V,
        in_use: impl Fn(&V) -> bool,
    ) -> Verdict<V> {
        let mut taken = Vec::new();
        loop {
            let (level, from) = match self.judge(seat) {
                Judged::Room => break,
                Judged::From(level, giver) => (level, giver),
                Judged::Enough(level) if self.gives == Gives::Oldest => {
                    (level, Giver::Client(seat.client))
                }
                Judged::Enough(_) => return Verdict::Refused,
                Judged::Wait(level) => return Verdict::Wait(level),
            };
            let given = self.given(level, seat.part, from, &in_use);
            let Some(given) = given.and_then(|id| Some((id, self.release(id)?))) else {
                return Verdict::Refused;
            };
            taken.push(given);
        }
        let id = self.next;
        self.next += 1;
        self.whole.add(seat.client, id, 1);
        self.change(seat.part, |part| part.add(seat.client, id, 1));
        self.held.insert(id, (seat, value));
        Verdict::Admitted(id, taken)
    }

    fn judge(&self, seat: Seat) -> Judged {
        // A client that is refused must not take a place of others first. A client that gives up one of
        // its own does so last, so that it does not give one up and then wait.
        let has_its_most = self.whole.amount(seat.client) >= self.bounds.client;
        if has_its_most && self.gives == Gives::Newest {
            return Judged::Enough(Level::Whole);
        }
        let part = self.parts.get(&seat.part);
        for (level, holders, most) in [
            (Level::Part, part, self.bounds.part),
            (Level::Whole, Some(&self.whole), self.bounds.whole),
        ] {
            let Some(holders) = holders.filter(|holders| holders.total() >= most) else { continue };
            return match holders.giver(seat.client, 1) {
                Some(giver) => Judged::From(level, giver),
                None if holders.amount(seat.client) == 0 => Judged::Wait(level),
                None => Judged::Enough(level),
            };
        }
        if has_its_most { Judged::Enough(Level::Whole) } else { Judged::Room }
    }

    /// The place that is taken, at this listener or anywhere.
    fn given(
        &self,
        level: Level,
        part: u64,
        giver: Giver,
        in_use: impl Fn(&V) -> bool,
    ) -> Option<Id> {
        let holders = match level {
            Level::Part => self.parts.get(&part)?,
            Level::Whole => &self.whole,
        };
        let mut ids = holders.ids(giver);
        if self.gives == Gives::Newest {
            return ids.next_back();
        }
        let idle = |id: &Id| self.held.get(id).is_some_and(|(_, value)| !in_use(value));
        ids.take(CHANCES).find(idle).or_else(|| holders.ids(giver).next())
    }

    /// Releases a place, if it is still held.
    pub(crate) fn release(&mut self, id: Id) -> Option<V> {
        let (seat, value) = self.held.remove(&id)?;
        self.whole.remove(seat.client, id);
        self.change(seat.part, |part| _ = part.remove(seat.client, id));
        Some(value)
    }

    fn change(&mut self, number: u64, how: impl FnOnce(&mut Holders)) {
        let part = self.parts.entry(number).or_default();
        self.by_total.remove(&(part.total(), number));
        how(part);
        if part.total() == 0 {
            self.parts.remove(&number);
        } else {
            self.by_total.insert((part.total(), number));
        }
    }

    /// The value stored for a place, while it is held.
    pub(crate) fn value(&mut self, id: Id) -> Option<&mut V> {
        self.held.get_mut(&id).map(|(_, value)| value)
    }

    /// A value stored for a place at the listener at which the most are held.
    pub(crate) fn at_fullest(&self) -> Option<&V> {
        let (_, number) = self.by_total.last()?;
        let id = self.parts.get(number)?.all().next()?;
        self.held.get(&id).map(|(_, value)| value)
    }

    /// All places that are held at a listener.
    pub(crate) fn at(&self, part: u64) -> Vec<Id> {
        let holders = self.parts.get(&part);
        holders.map_or_else(Vec::new, |it| it.all().collect())
    }

    /// The number of places that are held.
    pub(crate) fn total(&self) -> usize {
        self.whole.total()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seat(part: u64, client: u32) -> Seat {
        Seat { part, client: Client::V4(client) }
    }

    fn ledger(whole: usize, part: usize, client: usize, gives: Gives) -> Ledger<()> {
        Ledger::new(Bounds { whole, part, client }, gives)
    }

    /// The answer to each request, in order.
    fn play(ledger: &mut Ledger<()>, wishes: &[Seat]) -> Vec<Verdict<()>> {
        wishes.iter().map(|seat| ledger.admit(*seat, (), |()| false)).collect()
    }

    fn room(id: Id) -> Verdict<()> {
        Verdict::Admitted(id, Vec::new())
    }

    fn instead(id: Id, of: Id) -> Verdict<()> {
        Verdict::Admitted(id, vec![(of, ())])
    }

    #[test]
    fn a_client_on_many_listeners_has_one_share_of_all() {
        let mut ledger = ledger(8, 8, 3, Gives::Newest);
        let told = play(&mut ledger, &[seat(1, 1), seat(2, 1), seat(3, 1), seat(4, 1), seat(4, 2)]);
        assert_eq!(told, [room(0), room(1), room(2), Verdict::Refused, room(3)]);
    }

    #[test]
    fn where_all_is_taken_a_newcomer_gets_the_newest_place_of_the_client_that_has_most() {
        let mut ledger = ledger(4, 4, 4, Gives::Newest);
        let greedy = [seat(1, 9); 4];
        assert_eq!(play(&mut ledger, &greedy), [room(0), room(1), room(2), room(3)]);
        let told = play(&mut ledger, &[seat(2, 1), seat(2, 1), seat(2, 1), seat(3, 2)]);
        let expected = [instead(4, 3), instead(5, 2), Verdict::Refused, instead(6, 1)];
        // Clients 9 and 1 have two places each, and the greater address loses one first.
        assert_eq!(told, expected);
        assert_eq!(ledger.total(), 4);
    }

    #[test]
    fn a_newcomer_waits_where_every_client_holds_one() {
        let mut ledger = ledger(2, 2, 2, Gives::Newest);
        let told = play(&mut ledger, &[seat(1, 1), seat(1, 2), seat(1, 3), seat(1, 1)]);
        assert_eq!(told, [room(0), room(1), Verdict::Wait(Level::Part), Verdict::Refused]);
        let mut ledger = Ledger::new(Bounds { whole: 2, part: 1, client: 2 }, Gives::Newest);
        let told = play(&mut ledger, &[seat(1, 1), seat(2, 2), seat(3, 3)]);
        assert_eq!(told, [room(0), room(1), Verdict::Wait(Level::Whole)]);
    }

    #[test]
    fn many_clients_of_one_ipv6_network_leave_places_for_a_newcomer() {
        let v6 = |bits| Seat { part: 1, client: Client::V6(bits) };
        let mut ledger = ledger(4, 4, 4, Gives::Newest);
        let crowd: Vec<_> = (0..4).map(|n| v6(7 << 16 | n)).collect();
        assert_eq!(play(&mut ledger, &crowd), [room(0), room(1), room(2), room(3)]);
        let told = play(&mut ledger, &[v6(7 << 16 | 4), v6(8 << 16), seat(1, 1), v6(9 << 16)]);
        let waits = Verdict::Wait(Level::Part);
        assert_eq!(told, [waits, instead(4, 3), instead(5, 2), instead(6, 1)]);
        // Each network has one place now.
        assert_eq!(play(&mut ledger, &[v6(10 << 16)]), [Verdict::Wait(Level::Part)]);
    }

    #[test]
    fn the_fullest_listener_is_known() {
        let mut ledger = Ledger::new(Bounds { whole: 9, part: 9, client: 9 }, Gives::Oldest);
        assert_eq!(ledger.at_fullest(), None);
        for (part, client) in [(1, 1), (2, 2), (2, 3)] {
            ledger.admit(seat(part, client), part, |_| false);
        }
        assert_eq!(ledger.at_fullest(), Some(&2));
        ledger.release(1);
        ledger.release(2);
        assert_eq!(ledger.at_fullest(), Some(&1));
    }

    #[test]
    fn a_full_listener_takes_nothing_of_the_others() {
        let mut ledger = ledger(8, 3, 8, Gives::Newest);
        let told = play(&mut ledger, &[seat(2, 9), seat(2, 9), seat(1, 9), seat(1, 9), seat(1, 9)]);
        assert_eq!(told, [room(0), room(1), room(2), room(3), room(4)]);
        assert_eq!(play(&mut ledger, &[seat(1, 1)]), [instead(5, 4)]);
    }

    #[test]
    fn sessions_of_a_client_that_has_its_share_follow_each_other() {
        let mut ledger = Ledger::new(Bounds { whole: 4, part: 4, client: 2 }, Gives::Oldest);
        let mut admit = |used| ledger.admit(seat(1, 1), used, |used| *used);
        assert_eq!(admit(true), Verdict::Admitted(0, vec![]));
        assert_eq!(admit(false), Verdict::Admitted(1, vec![]));
        // The oldest place is in use.
        assert_eq!(admit(true), Verdict::Admitted(2, vec![(1, false)]));
        // All places are in use.
        assert_eq!(admit(true), Verdict::Admitted(3, vec![(0, true)]));
        assert_eq!(ledger.total(), 2);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Ask(Seat),
        Leave(prop::sample::Index),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        // Some IPv6 clients share a network.
        let client = (0..6u32).prop_map(|n| match n {
            0..3 => Client::V4(n),
            _ => Client::V6(u64::from(n / 2) << 16 | u64::from(n)),
        });
        let seats = (0..3u64, client).prop_map(|(part, client)| Step::Ask(Seat { part, client }));
        let leave = any::<prop::sample::Index>().prop_map(Step::Leave);
        prop::collection::vec(prop_oneof![3 => seats, 1 => leave], 0..200)
    }

    /// The number of clients that hold something there, with the one that asks, and what this one holds.
    fn shares(open: &BTreeMap<Id, Seat>, seat: Seat, part: bool) -> (usize, usize) {
        let there = open.values().filter(|other| !part || other.part == seat.part);
        let clients: BTreeSet<_> = there.clone().map(|it| it.client).chain([seat.client]).collect();
        (clients.len(), there.filter(|other| other.client == seat.client).count())
    }

    proptest! {
        #[test]
        fn a_client_below_its_share_is_admitted_and_totals_are_what_is_open(
            steps in steps(),
            whole in 1usize..12,
            part in 1usize..12,
            client in 1usize..12,
            oldest: bool,
        ) {
            let gives = if oldest { Gives::Oldest } else { Gives::Newest };
            let bounds = Bounds { whole, part, client };
            let mut ledger = ledger(whole, part, client, gives);
            let mut open = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Leave(which) => {
                        if !open.is_empty() {
                            let id = *open.keys().nth(which.index(open.len())).unwrap();
                            open.remove(&id);
                            prop_assert_eq!(ledger.release(id), Some(()));
                            prop_assert_eq!(ledger.release(id), None);
                        }
                    }
                    Step::Ask(seat) => {
                        let (clients, held) = shares(&open, seat, false);
                        let (clients_here, held_here) = shares(&open, seat, true);
                        let below = held < (whole / clients).min(client)
                            && held_here < part / clients_here;
                        let verdict = ledger.admit(seat, (), |()| false);
                        match verdict {
                            Verdict::Admitted(id, taken) => {
                                for (id, ()) in taken {
                                    let gone = open.remove(&id);
                                    prop_assert!(gone.is_some(), "{id} was not open");
                                }
                                open.insert(id, seat);
                            }
                            refused => prop_assert!(!below, "{refused:?} for {seat:?}"),
                        }
                    }
                }
                // The open places are the held ones, at every level.
                prop_assert_eq!(ledger.held.keys().collect::<Vec<_>>(), open.keys().collect::<Vec<_>>());
                prop_assert_eq!(ledger.total(), open.len());
                prop_assert!(open.len() <= bounds.whole);
                for part in 0..3 {
                    let here: Vec<_> = open.iter().filter(|(_, seat)| seat.part == part).collect();
                    prop_assert!(here.len() <= bounds.part);
                    let mut at = ledger.at(part);
                    at.sort_unstable();
                    prop_assert_eq!(at, here.into_iter().map(|(id, _)| *id).collect::<Vec<_>>());
                }
                let totals: usize = ledger.by_total.iter().map(|(total, _)| total).sum();
                prop_assert_eq!(totals, open.len());
                let counted: usize = ledger.whole.shares().map(|(count, _)| count).sum();
                prop_assert_eq!(counted, open.len());
                for (count, client) in ledger.whole.shares() {
                    prop_assert_eq!(count, ledger.whole.amount(client));
                    prop_assert!(count <= bounds.client);
                }
            }
        }
    }
}
