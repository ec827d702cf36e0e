//! The schedule under any sequence of events, against what the effects say about themselves.

use super::tests::{failed, found, name, secs};
use super::*;
use crate::dns::{Answer, FailureKind};
use crate::objects::Family;
use proptest::prelude::*;
use std::collections::BTreeMap;

const AT_ONCE: usize = 3;

#[derive(Clone, Debug)]
enum Act {
    Want(u8, Families),
    Unwant(u8),
    /// One of the look-ups that are under way is answered.
    Answer(prop::sample::Index, Result<u64, FailureKind>, Result<u64, FailureKind>),
    /// An answer that is not waited for.
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
        3 => (0u8..6, families).prop_map(|(name, families)| Act::Want(name, families)),
        1 => (0u8..6).prop_map(Act::Unwant),
        6 => (any::<prop::sample::Index>(), outcome.clone(), outcome)
            .prop_map(|(which, v4, v6)| Act::Answer(which, v4, v6)),
        1 => (0u8..6, 0u64..40).prop_map(|(name, id)| Act::Stale(name, id)),
        6 => (0u64..20_000, any::<bool>()).prop_map(|(secs, wake)| Act::Pass(secs, wake)),
    ]
}

/// What an outsider sees.
#[derive(Default)]
struct Seen {
    now: Duration,
    wanted: BTreeMap<Name, Families>,
    /// Name and families by id.
    flights: BTreeMap<u64, (Name, Families)>,
    /// When each name was last answered, and how soon it said that it would be looked up again; none
    /// after a family was added, which is looked up at once.
    answered: BTreeMap<Name, (Duration, Duration)>,
    ids: u64,
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
    fn event(&mut self, act: Act, wake: Option<Duration>) -> Option<Event> {
        Some(match act {
            Act::Want(number, families) => {
                let name = text(number);
                let old = self.wanted.insert(name.clone(), families);
                if !old.is_some_and(|old| old.covers(families)) {
                    self.answered.remove(&name);
                }
                Event::Want { name, families }
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
                Event::Tick
            }
        })
    }

    /// `punctual`: whether time never jumped over a wake.
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
                        !punctual
                            || self.flights.len() >= AT_ONCE - 1
                            || self.now <= at + secs(3610)
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
            for effect in schedule.step(event, seen.now) {
                seen.check(effect, punctual)?;
            }
            // Whatever is wanted is in flight or waits; and what waits has a time, or waits for a slot.
            let waiting = seen.wanted.len() - seen.flights.len();
            prop_assert_eq!(schedule.due.len(), waiting);
            prop_assert_eq!(schedule.in_flight, seen.flights.len());
            let free = seen.flights.len() < AT_ONCE;
            prop_assert_eq!(schedule.next_wake().is_some(), free && waiting > 0);
            prop_assert!(schedule.next_wake().is_none_or(|wake| wake > seen.now));
        }
        // Once everything is answered and time passes, every wanted name is looked up again.
        let mut again = BTreeMap::new();
        while again.len() < seen.wanted.len() {
            let event = match seen.flights.pop_first() {
                Some((id, (name, _))) => {
                    let v4 = Some(found(Family::V4, 60));
                    Event::Answered { name, id, answers: Answers { v4, v6: Some(found(Family::V6, 60)) } }
                }
                None => {
                    seen.now = schedule.next_wake().expect("a name waits");
                    Event::Tick
                }
            };
            for effect in schedule.step(event, seen.now) {
                if let Effect::Look { name, .. } = &effect {
                    again.insert(name.clone(), ());
                }
                seen.check(effect, true)?;
            }
        }
    }
}
