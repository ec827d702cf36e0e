//! Property tests: the schedule under any sequence of events, checked against its own effects.

use super::super::*;
use super::{failed, found, name, secs, step};
use crate::dns::{Answer, FailureKind};
use crate::objects::Family;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const AT_ONCE: usize = 4;
const NAMESPACES: [&str; 3] = ["evil", "other", "shop"];

#[derive(Clone, Debug)]
enum Act {
    /// For the namespaces at these two indexes, which may be equal.
    Want(u8, Families, [usize; 2]),
    Unwant(u8),
    /// One of the look-ups in flight is answered.
    Answer(prop::sample::Index, Result<u64, FailureKind>, Result<u64, FailureKind>),
    /// An answer that no look-up waits for.
    Stale(u8, u64),
    /// Time passes, at most until the next wake when `true`.
    Pass(u64, bool),
}

fn acts() -> impl Strategy<Value = Act> {
    let families = prop_oneof![Just(Families::V4), Just(Families::V6), Just(Families::BOTH)];
    let kind = prop_oneof![
        Just(FailureKind::Timeout),
        Just(FailureKind::NxDomain),
        Just(FailureKind::NoData)
    ];
    let outcome = prop_oneof![(0u64..10_000).prop_map(Ok), kind.prop_map(Err)];
    prop_oneof![
        3 => (0u8..6, families, prop::array::uniform2(0..NAMESPACES.len()))
            .prop_map(|(name, families, by)| Act::Want(name, families, by)),
        1 => (0u8..6).prop_map(Act::Unwant),
        6 => (any::<prop::sample::Index>(), outcome.clone(), outcome)
            .prop_map(|(which, v4, v6)| Act::Answer(which, v4, v6)),
        1 => (0u8..6, 0u64..40).prop_map(|(name, id)| Act::Stale(name, id)),
        6 => (0u64..20_000, any::<bool>()).prop_map(|(secs, wake)| Act::Pass(secs, wake)),
    ]
}

/// The state of the schedule, as its events and effects show it.
#[derive(Default)]
struct Seen {
    now: Duration,
    wanted: BTreeMap<Name, Families>,
    by: BTreeMap<Name, BTreeSet<Arc<str>>>,
    /// Name and families by id.
    flights: BTreeMap<u64, (Name, Families)>,
    /// When each name was last answered, and the reported delay until its next look-up. No entry
    /// after a family was added, which is looked up at once.
    answered: BTreeMap<Name, (Duration, Duration)>,
    ids: u64,
    /// Names that were due before this step and waited for their turn.
    in_line: Vec<Name>,
}

fn text(number: u8) -> Name {
    name(&format!("n{number}.example"))
}

fn answer(family: Family, outcome: &Result<u64, FailureKind>) -> Answer {
    match outcome {
        Ok(ttl) => found(family, *ttl),
        Err(kind) => failed(*kind),
    }
}

impl Seen {
    /// The event of an act. `Some(None)`: time passes without an event. None: the act does not
    /// apply.
    fn event(&mut self, act: Act, wake: Option<Duration>) -> Option<Option<Event>> {
        Some(Some(match act {
            Act::Want(number, families, by) => {
                let name = text(number);
                let by: BTreeSet<_> = by.iter().map(|at| Arc::from(NAMESPACES[*at])).collect();
                let namespaces = by.iter().cloned().collect();
                self.by.insert(name.clone(), by);
                let old = self.wanted.insert(name.clone(), families);
                if !old.is_some_and(|old| old.covers(families)) {
                    self.answered.remove(&name);
                }
                Event::Want { name, families, namespaces }
            }
            Act::Unwant(number) => {
                let name = text(number);
                self.wanted.remove(&name);
                self.answered.remove(&name);
                Event::Unwant { name }
            }
            Act::Answer(which, v4, v6) => {
                let ids: Vec<u64> = self.flights.keys().copied().collect();
                let id = *ids.get(which.index(ids.len().max(1)))?;
                let (name, _) = self.flights.remove(&id)?;
                let v4 = Some(answer(Family::V4, &v4));
                let v6 = Some(answer(Family::V6, &v6));
                Event::Answered { name, id, answers: Answers { v4, v6 } }
            }
            Act::Stale(number, id) if !self.flights.contains_key(&id) => {
                let v4 = Some(found(Family::V4, 1));
                Event::Answered { name: text(number), id, answers: Answers { v4, v6: None } }
            }
            Act::Stale(..) => return None,
            Act::Pass(passed, to_wake) => {
                let passed = self.now + secs(passed);
                self.now = wake.filter(|_| to_wake).map_or(passed, |wake| wake.min(passed));
                return Some(None);
            }
        }))
    }

    /// `punctual`: whether time did not jump over a wake.
    fn check(&mut self, effect: Effect, punctual: bool) -> Result<(), TestCaseError> {
        match effect {
            Effect::Look { id, name, families } => {
                prop_assert!(id > self.ids, "{id} is used again");
                self.ids = id;
                prop_assert!(
                    self.flights.values().all(|(other, _)| *other != name),
                    "{name} twice"
                );
                prop_assert_eq!(self.wanted.get(&name), Some(&families));
                if let Some((at, delay)) = self.answered.remove(&name) {
                    prop_assert!(self.now >= at + delay, "{name} is early");
                    prop_assert!(delay.is_zero() || delay >= secs(5));
                    prop_assert!(
                        !punctual || self.in_line.contains(&name) || self.now <= at + secs(3610)
                    );
                }
                self.flights.insert(id, (name, families));
                prop_assert!(self.flights.len() <= AT_ONCE);
            }
            Effect::Cancel { id } => {
                let (name, _) = self.flights.remove(&id).expect("a look-up that is under way");
                prop_assert!(!self.wanted.contains_key(&name));
            }
            Effect::Report { name, report } => {
                let wanted = self.wanted[&name];
                for (family, _) in report.answers.iter() {
                    prop_assert!(wanted.has(family));
                }
                let complete =
                    report.answers.iter().map(|(family, _)| family).collect::<Families>();
                prop_assert_eq!(report.next_check.is_zero(), !complete.covers(wanted));
                prop_assert!(report.next_check <= secs(3610));
                self.answered.insert(name, (self.now, report.next_check));
            }
        }
        Ok(())
    }
}

proptest! {
    #[test]
    fn one_look_up_per_name_within_the_limits_and_no_name_forgotten(
        acts in prop::collection::vec(acts(), 1..120),
        seed: u64,
    ) {
        let mut schedule = Schedule::new(Config { at_once: AT_ONCE, seed, ..Config::default() });
        let mut seen = Seen::default();
        for act in acts {
            let wake = schedule.next_wake();
            let Some(event) = seen.event(act, wake) else { continue };
            let punctual = wake.is_none_or(|wake| seen.now <= wake);
            for effect in step(&mut schedule, event, seen.now) {
                seen.check(effect, punctual)?;
            }
            // Every wanted name is in flight, waits for its time, or waits for its turn.
            let in_line = |(name, entry): (&Name, &Entry)| match entry.state {
                State::InLine { .. } => Some(name.clone()),
                _ => None,
            };
            let in_line: Vec<_> = schedule.names.iter().filter_map(in_line).collect();
            let waiting = seen.wanted.len() - seen.flights.len();
            prop_assert_eq!(schedule.due.len() + in_line.len(), waiting);
            prop_assert_eq!(schedule.turns.under_way(), seen.flights.len());
            prop_assert!(schedule.next_wake().is_none_or(|wake| wake > seen.now));
            // A namespace waits only if it has its share: at least as many look-ups in flight as
            // there are free ones.
            let free = AT_ONCE - seen.flights.len();
            for namespace in in_line.iter().flat_map(|name| &seen.by[name]) {
                let own = schedule.turns.under_way_of(namespace);
                prop_assert!(own >= free, "{namespace} waits with {own} under way, {free} free");
            }
            let lines: usize = schedule.turns.waiting().map(|(_, count)| count).sum();
            prop_assert_eq!(lines, in_line.iter().map(|name| seen.by[name].len()).sum::<usize>());
            seen.in_line = in_line;
        }
        // Once everything is answered and time passes, every wanted name is looked up again.
        let mut again = BTreeMap::new();
        while again.len() < seen.wanted.len() {
            let event = match seen.flights.pop_first() {
                Some((id, (name, _))) => {
                    let v4 = Some(found(Family::V4, 60));
                    let answers = Answers { v4, v6: Some(found(Family::V6, 60)) };
                    Some(Event::Answered { name, id, answers })
                }
                None => {
                    seen.now = schedule.next_wake().expect("a name waits");
                    None
                }
            };
            for effect in step(&mut schedule, event, seen.now) {
                if let Effect::Look { name, .. } = &effect {
                    again.insert(name.clone(), ());
                }
                seen.check(effect, true)?;
            }
        }
    }
}
