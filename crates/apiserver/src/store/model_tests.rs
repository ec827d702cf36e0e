//! Random histories of a store, compared with a simple model that keeps a full copy of every revision:
//! refusals, lists at every revision, watches from every revision, restarts, killed processes and power
//! cuts.

use super::testing::{Medium, coin, few, parse};
use super::*;
use futures::FutureExt;
use futures::future::join_all;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const RESOURCES: [&str; 2] = ["things", "namespaces"];
/// With names that are prefixes of others, and one empty namespace.
const NAMESPACES: [&str; 4] = ["", "a", "a-b", "b"];
const NAMES: [&str; 3] = ["x", "x-y", "y"];
const CLAIMS: [&str; 3] = ["1", "2", "3"];
const HISTORY: usize = 6;

#[derive(Clone, Debug)]
struct Attempt {
    key: Key,
    /// The revision that it expects: the right one, none, or another.
    expect: Aim,
    put: Option<(u8, Vec<String>)>,
    guard: Option<Guard>,
}

#[derive(Clone, Copy, Debug)]
enum Aim {
    Right,
    Absent,
    Off(u64),
}

#[derive(Clone, Copy, Debug)]
enum End {
    Closed,
    Dropped,
    Killed,
    PowerLost(u64),
}

#[derive(Clone, Debug)]
enum Step {
    /// Writes that are sent together.
    Write(Vec<Attempt>),
    /// The end of a process, and the start of the next one.
    Restart(End),
    /// A watcher reads its events.
    Look(usize),
}

fn a_key() -> impl Strategy<Value = Key> {
    let resource = prop::sample::select(&RESOURCES[..]);
    let namespace = prop::sample::select(&NAMESPACES[..]);
    let name = prop::sample::select(&NAMES[..]);
    (resource, namespace, name).prop_map(|(r, ns, n)| Key::new(r, ns, n))
}

fn an_attempt() -> impl Strategy<Value = Attempt> {
    let expect = prop_oneof![
        6 => Just(Aim::Right),
        1 => Just(Aim::Absent),
        1 => (0..40u64).prop_map(Aim::Off),
    ];
    let claims = prop::sample::subsequence(&CLAIMS[..], 0..=2)
        .prop_map(|claims| claims.into_iter().map(str::to_owned).collect());
    let put = prop_oneof![3 => (any::<u8>(), claims).prop_map(Some), 1 => Just(None)];
    let empty = prop::sample::select(&NAMESPACES[..])
        .prop_map(|namespace| Guard::NamespaceEmpty(namespace.into()));
    let guard = prop_oneof![
        6 => Just(None),
        1 => a_key().prop_map(|key| Some(Guard::Exists(key))),
        1 => empty.prop_map(Some),
        1 => a_key().prop_map(|key| Some(Guard::ResourceEmpty(key.resource))),
    ];
    (a_key(), expect, put, guard).prop_map(|(key, expect, put, guard)| Attempt {
        key,
        expect,
        put,
        guard,
    })
}

fn a_step() -> impl Strategy<Value = Step> {
    let end = prop_oneof![
        Just(End::Closed),
        Just(End::Dropped),
        Just(End::Killed),
        any::<u64>().prop_map(End::PowerLost),
    ];
    prop_oneof![
        6 => prop::collection::vec(an_attempt(), 1..2).prop_map(Step::Write),
        3 => prop::collection::vec(an_attempt(), 2..9).prop_map(Step::Write),
        1 => end.prop_map(Step::Restart),
        3 => (0..RESOURCES.len()).prop_map(Step::Look),
    ]
}

#[derive(Clone, Debug, PartialEq)]
struct Thing {
    revision: u64,
    object: Value,
    claims: Vec<String>,
}

type World = BTreeMap<Key, Thing>;

/// Every revision.
struct Model {
    /// `worlds[r]` holds all objects at revision r. Nothing happened before 1.
    worlds: Vec<World>,
    /// (revision, key, kind, object, previous)
    events: Vec<(u64, Key, EventKind, Value, Option<Value>)>,
}

impl Model {
    fn new() -> Self {
        Self { worlds: vec![World::new(), World::new()], events: Vec::new() }
    }

    fn revision(&self) -> u64 {
        self.worlds.len() as u64 - 1
    }

    fn now(&self) -> &World {
        &self.worlds[self.worlds.len() - 1]
    }

    fn write(&mut self, write: &Write) -> Result<(u64, Value), WriteError> {
        let mut world = self.now().clone();
        let revision = self.revision() + 1;
        for guard in &write.guards {
            let holds = match guard {
                Guard::Exists(key) => world.contains_key(key),
                Guard::NamespaceEmpty(namespace) => {
                    !world.keys().any(|key| key.namespace == *namespace)
                }
                Guard::ResourceEmpty(resource) => {
                    !world.keys().any(|key| key.resource == *resource)
                }
            };
            if !holds {
                return Err(WriteError::GuardFailed(guard.clone()));
            }
        }
        let before = world.get(&write.key).cloned();
        match (write.expect, &before) {
            (Expect::Absent, Some(_)) => return Err(WriteError::Exists),
            (Expect::Revision(_), None) => return Err(WriteError::Missing),
            (Expect::Revision(r), Some(thing)) if thing.revision != r => {
                return Err(WriteError::Conflict { current: thing.revision });
            }
            _ => {}
        }
        let (kind, mut object) = match &write.change {
            Change::Delete => {
                world.remove(&write.key);
                let last = before.as_ref().ok_or(WriteError::Missing)?;
                (EventKind::Deleted, last.object.clone())
            }
            Change::Put { object, claims } => {
                for claim in claims {
                    let holder = world.iter().find(|(_, thing)| thing.claims.contains(claim));
                    if let Some((by, _)) = holder.filter(|(by, _)| **by != write.key) {
                        return Err(WriteError::Claimed { claim: claim.clone(), by: by.clone() });
                    }
                }
                let mut object = object.clone();
                object["metadata"]["resourceVersion"] = json!(revision.to_string());
                let thing = Thing { revision, object: object.clone(), claims: claims.clone() };
                world.insert(write.key.clone(), thing);
                (if before.is_some() { EventKind::Modified } else { EventKind::Added }, object)
            }
        };
        object["metadata"]["resourceVersion"] = json!(revision.to_string());
        self.worlds.push(world);
        let previous = before.map(|thing| thing.object);
        self.events.push((revision, write.key.clone(), kind, object.clone(), previous));
        Ok((revision, object))
    }

    /// The events of a resource after a revision, or the oldest revision after which all events are
    /// kept.
    fn events(&self, resource: &str, from: u64) -> Result<Vec<SeenEvent>, u64> {
        let all: Vec<_> = self.events.iter().filter(|e| *e.1.resource == *resource).collect();
        let kept = all.len().saturating_sub(HISTORY);
        match all[..kept].last().map(|event| event.0) {
            Some(oldest) if from < oldest => Err(oldest),
            _ => Ok(all.into_iter().filter(|event| event.0 > from).cloned().collect()),
        }
    }

    /// The objects at a revision, in list order.
    fn list(&self, resource: &str, at: u64, namespace: Option<&str>) -> Vec<(Key, u64, Value)> {
        let mut found: Vec<_> = self.worlds[at as usize]
            .iter()
            .filter(|(key, _)| *key.resource == *resource)
            .filter(|(key, _)| namespace.is_none_or(|namespace| *key.namespace == *namespace))
            .map(|(key, thing)| (key.clone(), thing.revision, thing.object.clone()))
            .collect();
        found.sort_by_key(|(key, _, _)| format!("{}/{}", key.namespace, key.name));
        found
    }
}

type SeenEvent = (u64, Key, EventKind, Value, Option<Value>);

fn seen(event: &Event) -> SeenEvent {
    let previous = event.previous.as_ref().map(|bytes| parse(bytes));
    (event.revision, event.key.clone(), event.kind, parse(&event.object), previous)
}

fn listed(page: &Page) -> Vec<(Key, u64, Value)> {
    page.items.iter().map(|(k, entry)| (k.clone(), entry.revision, parse(&entry.bytes))).collect()
}

/// The write of an attempt, for the present objects.
fn aimed(attempt: &Attempt, world: &World) -> Write {
    let expect = match (attempt.expect, world.get(&attempt.key)) {
        (Aim::Right, Some(thing)) => Expect::Revision(thing.revision),
        (Aim::Right | Aim::Absent, _) => Expect::Absent,
        (Aim::Off(revision), _) => Expect::Revision(revision),
    };
    let change = match &attempt.put {
        None => Change::Delete,
        Some((spec, claims)) => Change::Put {
            object: json!({"metadata": {"name": &*attempt.key.name}, "spec": spec}),
            claims: claims.clone(),
        },
    };
    let guards = attempt.guard.iter().cloned().collect();
    Write { key: attempt.key.clone(), expect, change, guards }
}

/// Compares every answer of the store with the model.
fn compare(store: &Store, model: &Model) -> Result<(), TestCaseError> {
    prop_assert_eq!(store.revision(), model.revision());
    for resource in RESOURCES {
        for at in 1..=model.revision() {
            let expected = model.events(resource, at);
            let watched = match store.watch(resource, at) {
                Ok(mut watch) => Ok(watch.next().now_or_never().transpose().unwrap()),
                Err(expired) => Err(expired.oldest),
            };
            let watched = watched.map(|events| {
                events.unwrap_or_default().iter().map(|event| seen(event)).collect::<Vec<_>>()
            });
            prop_assert_eq!(&watched, &expected);
            compare_lists(store, model, resource, at, expected.is_ok())?;
        }
        for key in model.worlds.iter().flat_map(|world| world.keys()) {
            let got = store.get(key).map(|entry| (entry.revision, parse(&entry.bytes)));
            let expected = model.now().get(key).map(|t| (t.revision, t.object.clone()));
            prop_assert_eq!(got, expected);
        }
    }
    for claim in CLAIMS {
        let holds = |(_, thing): &(&Key, &Thing)| thing.claims.iter().any(|held| held == claim);
        let holder = model.now().iter().find(holds).map(|(key, _)| key.clone());
        prop_assert_eq!(store.claimed_by(claim), holder);
    }
    for namespace in NAMESPACES {
        let mut count = BTreeMap::<Arc<str>, usize>::new();
        for key in model.now().keys().filter(|key| &*key.namespace == namespace) {
            *count.entry(key.resource.clone()).or_default() += 1;
        }
        prop_assert_eq!(store.namespace_contents(namespace), count.into_iter().collect::<Vec<_>>());
    }
    Ok(())
}

fn compare_lists(
    store: &Store,
    model: &Model,
    resource: &str,
    at: u64,
    kept: bool,
) -> Result<(), TestCaseError> {
    for namespace in [None, Some("a"), Some("a-b"), Some("c")] {
        let query = ListQuery { at: Some(at), namespace, ..ListQuery::default() };
        let Ok(whole) = store.list(resource, &query) else {
            prop_assert!(!kept);
            continue;
        };
        prop_assert!(kept);
        let expected = model.list(resource, at, namespace);
        prop_assert_eq!(listed(&whole), expected.clone());
        prop_assert_eq!((whole.revision, whole.next, whole.remaining), (at, None, None));

        let accepts = |_: &Key, object: &[u8]| parse(object)["spec"].as_u64() < Some(128);
        let filtered = ListQuery { filter: Some(&accepts), ..query };
        let low = expected.iter().filter(|(_, _, o)| o["spec"].as_u64() < Some(128)).cloned();
        prop_assert_eq!(in_pages(store, resource, &filtered), low.collect::<Vec<_>>());
        prop_assert_eq!(in_pages(store, resource, &query), expected);
    }
    Ok(())
}

/// The same list in pages of two.
fn in_pages(store: &Store, resource: &str, query: &ListQuery<'_>) -> Vec<(Key, u64, Value)> {
    let (mut all, mut next) = (Vec::new(), None::<(Arc<str>, Arc<str>)>);
    loop {
        let after = next.as_ref().map(|(namespace, name)| (&**namespace, &**name));
        let query = ListQuery { limit: Some(2), after, ..*query };
        let page = store.list(resource, &query).unwrap();
        all.extend(listed(&page));
        next = page.next;
        if next.is_none() {
            return all;
        }
    }
}

/// A watcher that exists as long as the store.
struct Witness {
    resource: &'static str,
    watch: Watch,
}

impl Witness {
    fn look(&mut self, store: &Store, model: &Model) -> Result<(), TestCaseError> {
        let from = self.watch.position();
        match self.watch.next().now_or_never() {
            None => {
                prop_assert_eq!(model.events(self.resource, from), Ok(vec![]));
                prop_assert_eq!(self.watch.position(), model.revision());
            }
            Some(Ok(events)) => {
                let events = events.iter().map(|event| seen(event)).collect();
                prop_assert_eq!(Ok(events), model.events(self.resource, from));
                prop_assert_eq!(self.watch.position(), model.revision());
            }
            Some(Err(expired)) => {
                prop_assert_eq!(Err(expired.oldest), model.events(self.resource, from));
                self.watch = store.watch(self.resource, expired.oldest).unwrap();
                return self.look(store, model);
            }
        }
        Ok(())
    }
}

async fn live(steps: Vec<Step>, mut medium: Option<Medium>) -> Result<(), TestCaseError> {
    let limits = few(HISTORY);
    let mut store = match &medium {
        Some(medium) => medium.open(limits),
        None => Store::memory(limits),
    };
    let mut model = Model::new();
    let witness = |resource, store: &Store| Witness {
        resource,
        watch: store.watch(resource, store.revision()).unwrap(),
    };
    let mut witnesses = RESOURCES.map(|resource| witness(resource, &store));
    for step in steps {
        match step {
            Step::Write(attempts) => {
                let world = model.now().clone();
                let writes: Vec<_> = attempts.iter().map(|a| aimed(a, &world)).collect();
                let answers = join_all(writes.iter().cloned().map(|w| store.write(w))).await;
                for (write, answer) in writes.iter().zip(answers) {
                    let got = answer.map(|done| (done.entry.revision, parse(&done.entry.bytes)));
                    prop_assert_eq!(got, model.write(write));
                }
            }
            Step::Look(which) => witnesses[which].look(&store, &model)?,
            Step::Restart(end) => {
                let Some(old) = &medium else { continue };
                for witness in &mut witnesses {
                    witness.look(&store, &model)?;
                }
                let new = match end {
                    End::Closed => {
                        store.close().await;
                        old.clone()
                    }
                    End::Dropped => {
                        drop(store);
                        old.clone()
                    }
                    End::Killed => old.killed(),
                    End::PowerLost(seed) => old.power_cut(coin(seed)),
                };
                store = new.open(limits);
                medium = Some(new);
                witnesses = RESOURCES.map(|resource| witness(resource, &store));
                compare(&store, &model)?;
            }
        }
    }
    for witness in &mut witnesses {
        witness.look(&store, &model)?;
    }
    compare(&store, &model)
}

fn run(steps: Vec<Step>, medium: Option<Medium>) -> Result<(), TestCaseError> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(live(steps, medium))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn a_store_in_memory_does_what_the_model_does(steps in prop::collection::vec(a_step(), 1..40)) {
        run(steps, None)?;
    }

    #[test]
    fn a_store_on_disk_does_what_the_model_does_and_survives_every_end(
        steps in prop::collection::vec(a_step(), 1..40),
    ) {
        run(steps, Some(Medium::default()))?;
    }
}
