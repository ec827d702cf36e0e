//! Plans a group of writes: each is checked against the state after the writes before it. The result
//! is a value that can be made durable and then published, or discarded. It does no I/O; the writer
//! calls [`plan`].

use super::history::{Growth, History};
use super::names::Names;
use super::stamp::{self, Unstamped};
use super::state::{Claims, State};
use super::{
    Change, Committed, Entry, Event, EventKind, Expect, Guard, Key, Limits, Write, WriteError,
};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// A write whose object is already encoded, on its caller's thread.
#[derive(Debug)]
pub(super) struct Request {
    key: Key,
    expect: Expect,
    put: Option<(Unstamped, Claims)>,
    guards: Vec<Guard>,
}

/// An object to store.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Kept {
    /// The object.
    pub(super) entry: Entry,
    /// Its claims, sorted.
    pub(super) claims: Claims,
}

/// The effects of a group of writes.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// The revision after the batch.
    pub(super) revision: u64,
    /// The final object at every changed key. None: deleted.
    pub(super) objects: BTreeMap<Key, Option<Kept>>,
    /// The final holder of every changed claim. None: released.
    pub(super) claims: HashMap<Arc<str>, Option<Key>>,
    /// The growth of the histories, by resource.
    pub(super) growth: BTreeMap<Arc<str>, Growth>,
}

/// The result of one write, valid when the batch is durable.
pub(super) type Answer = Result<Committed, WriteError>;

impl Request {
    /// Encodes the object of a write.
    pub(super) fn prepare(write: Write) -> Result<Self, WriteError> {
        let Write { key, expect, change, guards } = write;
        let put = match change {
            Change::Delete => None,
            Change::Put { object, mut claims } => {
                let object = Unstamped::encode(object).map_err(WriteError::Storage)?;
                claims.sort();
                claims.dedup();
                Some((object, claims.into_iter().map(Arc::from).collect()))
            }
        };
        Ok(Self { key, expect, put, guards })
    }

    /// The approximate number of bytes that it adds.
    pub(super) fn weight(&self) -> usize {
        self.put.as_ref().map_or(0, |(object, _)| object.len())
    }
}

/// Applies `requests` in order to `state`, without changing it. Returns the batch and an answer for
/// each.
pub(super) fn plan(
    state: &State,
    names: &mut Names,
    limits: Limits,
    requests: impl IntoIterator<Item = Request>,
) -> (Batch, Vec<Answer>) {
    let batch = Batch { revision: state.revision(), ..Batch::default() };
    let mut draft = Draft { state, names, batch, events: BTreeMap::new() };
    let answers = requests.into_iter().map(|request| draft.take(request)).collect();
    let Draft { mut batch, events, .. } = draft;
    for (resource, events) in events {
        let growth = match state.history(&resource) {
            Some(history) => history.grow(events, limits),
            None => History::default().grow(events, limits),
        };
        batch.growth.insert(resource, growth);
    }
    (batch, answers)
}

/// The state with the effects of the batch so far.
struct Draft<'a> {
    state: &'a State,
    names: &'a mut Names,
    batch: Batch,
    events: BTreeMap<Arc<str>, Vec<Arc<Event>>>,
}

impl Draft<'_> {
    fn take(&mut self, request: Request) -> Answer {
        if let Some(guard) = request.guards.iter().find(|guard| !self.holds(guard)) {
            return Err(WriteError::GuardFailed(guard.clone()));
        }
        let current = self.find(&request.key);
        let current = match (request.expect, current) {
            (Expect::Absent, Some(_)) => return Err(WriteError::Exists),
            (Expect::Revision(_), None) => return Err(WriteError::Missing),
            (Expect::Revision(expected), Some((_, entry))) if entry.revision != expected => {
                return Err(WriteError::Conflict { current: entry.revision });
            }
            (_, current) => current,
        };
        let revision = self.batch.revision + 1;
        match (request.put, current) {
            (None, None) => Err(WriteError::Missing),
            (None, Some((key, previous))) => {
                let object = stamp::restamp(&previous.bytes, revision).ok_or_else(|| {
                    WriteError::Storage("the stored object cannot be read".to_owned())
                })?;
                self.hold(&key, &[]);
                self.batch.objects.insert(key.clone(), None);
                let event = Event {
                    revision,
                    key,
                    kind: EventKind::Deleted,
                    object,
                    previous: Some(previous.bytes),
                };
                Ok(self.record(event))
            }
            (Some((object, claims)), current) => {
                self.free(&request.key, &claims)?;
                let (key, previous) = match current {
                    Some((key, entry)) => (key, Some(entry.bytes)),
                    None => (self.adopt(request.key), None),
                };
                let object = object.stamp(revision);
                self.hold(&key, &claims);
                let entry = Entry { revision, bytes: object.clone() };
                self.batch.objects.insert(key.clone(), Some(Kept { entry, claims }));
                let kind = if previous.is_some() { EventKind::Modified } else { EventKind::Added };
                Ok(self.record(Event { revision, key, kind, object, previous }))
            }
        }
    }

    /// Counts the change and adds it to the history of its resource.
    fn record(&mut self, event: Event) -> Committed {
        self.batch.revision = event.revision;
        let entry = Entry { revision: event.revision, bytes: event.object.clone() };
        let resource = event.key.resource.clone();
        self.events.entry(resource).or_default().push(Arc::new(event));
        Committed { entry }
    }

    /// A key in its stored form, which shares the names that many objects have in common.
    fn adopt(&mut self, key: Key) -> Key {
        Key {
            resource: self.names.intern(&key.resource),
            namespace: self.names.intern(&key.namespace),
            name: key.name,
        }
    }

    fn find(&self, key: &Key) -> Option<(Key, Entry)> {
        match self.batch.objects.get_key_value(key) {
            Some((key, kept)) => Some((key.clone(), kept.as_ref()?.entry.clone())),
            None => self.state.find(key).map(|(key, entry)| (key, entry.clone())),
        }
    }

    fn holds(&self, guard: &Guard) -> bool {
        match guard {
            Guard::Exists(key) => self.find(key).is_some(),
            Guard::NamespaceEmpty(namespace) => {
                self.none(|key| key.namespace == *namespace, self.state.inhabitants(namespace))
            }
            Guard::ResourceEmpty(resource) => {
                self.none(|key| key.resource == *resource, self.state.members(resource))
            }
        }
    }

    /// Whether no object has such a key. `before`: the keys in the state before the batch.
    fn none(&self, such: impl Fn(&Key) -> bool, mut before: impl Iterator<Item = Key>) -> bool {
        let touched = &self.batch.objects;
        let came = touched.iter().any(|(key, kept)| kept.is_some() && such(key));
        !came && !before.any(|key| !touched.contains_key(&key))
    }

    /// Whether no other key than `key` holds any of `claims`.
    fn free(&self, key: &Key, claims: &[Arc<str>]) -> Result<(), WriteError> {
        for claim in claims {
            let holder = match self.batch.claims.get(claim) {
                Some(holder) => holder.as_ref(),
                None => self.state.claimed_by(claim),
            };
            if let Some(by) = holder.filter(|by| *by != key) {
                return Err(WriteError::Claimed { claim: claim.to_string(), by: by.clone() });
            }
        }
        Ok(())
    }

    /// Replaces the claims that `key` holds.
    fn hold(&mut self, key: &Key, claims: &[Arc<str>]) {
        let held = match self.batch.objects.get(key) {
            Some(kept) => kept.as_ref().map(|kept| kept.claims.clone()),
            None => self.state.claims_of(key).cloned(),
        };
        for claim in held.iter().flat_map(|held| held.iter()) {
            self.batch.claims.insert(claim.clone(), None);
        }
        for claim in claims {
            self.batch.claims.insert(claim.clone(), Some(key.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{WIDE, create, delete, thing, update};
    use super::*;

    fn planned(state: &State, writes: Vec<Write>) -> (Batch, Vec<Result<u64, WriteError>>) {
        let requests = writes.into_iter().map(|write| Request::prepare(write).unwrap());
        let (batch, answers) = plan(state, &mut Names::default(), WIDE, requests);
        (batch, answers.into_iter().map(|answer| answer.map(|done| done.entry.revision)).collect())
    }

    #[test]
    fn each_write_is_checked_against_what_the_ones_before_it_leave() {
        let (a, b) = (thing("n/a"), thing("n/b"));
        let empty = Guard::NamespaceEmpty("n".into());
        let (batch, answers) = planned(
            &State::new(1),
            vec![
                create(&a, 1).claiming(&["c"]),
                create(&a, 1),
                create(&b, 1).claiming(&["c"]),
                create(&b, 1).if_only(empty.clone()),
                update(&a, 2, 2).claiming(&["d"]),
                create(&b, 1).claiming(&["c"]),
                delete(&a, 2),
                delete(&a, 3),
                delete(&b, 4),
                create(&a, 3).if_only(empty.clone()),
            ],
        );
        assert_eq!(
            answers,
            [
                Ok(2),
                Err(WriteError::Exists),
                Err(WriteError::Claimed { claim: "c".to_owned(), by: a.clone() }),
                Err(WriteError::GuardFailed(empty)),
                Ok(3),
                Ok(4),
                Err(WriteError::Conflict { current: 3 }),
                Ok(5),
                Ok(6),
                Ok(7),
            ]
        );
        assert_eq!(batch.revision, 7);
        let left =
            batch.objects.iter().map(|(k, kept)| (k, kept.as_ref().map(|k| k.entry.revision)));
        assert_eq!(left.collect::<Vec<_>>(), [(&a, Some(7)), (&b, None)]);
        assert_eq!(batch.claims.into_iter().filter(|(_, holder)| holder.is_some()).count(), 0);
        let revisions = batch.growth["things"].events.iter().map(|event| event.revision);
        assert_eq!(revisions.collect::<Vec<_>>(), [2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn a_resource_is_empty_when_its_last_object_goes_wherever_that_is() {
        let (a, b) = (thing("n/a"), thing("m/b"));
        let other = Key::new("others", "n", "o");
        let empty = Guard::ResourceEmpty("things".into());
        let mut state = State::new(1);
        let (batch, _) = planned(&state, vec![create(&a, 1)]);
        state.publish(batch);
        let (_, answers) = planned(
            &state,
            vec![
                create(&other, 1).if_only(empty.clone()),
                create(&b, 1),
                delete(&a, 2),
                create(&other, 1).if_only(empty.clone()),
                delete(&b, 3),
                create(&other, 1).if_only(empty.clone()),
            ],
        );
        let refused = || Err(WriteError::GuardFailed(empty.clone()));
        assert_eq!(answers, [refused(), Ok(3), Ok(4), refused(), Ok(5), Ok(6)]);
    }

    #[test]
    fn a_plan_changes_nothing_until_it_is_published() {
        let (a, mut state) = (thing("n/a"), State::new(1));
        let (batch, _) = planned(&state, vec![create(&a, 1).claiming(&["c"])]);
        assert_eq!((state.revision(), state.find(&a), state.claimed_by("c")), (1, None, None));
        state.publish(batch);
        assert_eq!((state.revision(), state.claimed_by("c")), (2, Some(&a)));
        let (batch, answers) = planned(&state, vec![create(&a, 2)]);
        assert_eq!((batch.growth.len(), answers), (0, vec![Err(WriteError::Exists)]));
    }
}
