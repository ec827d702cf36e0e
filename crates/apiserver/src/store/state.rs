//! What is durable and visible: the current objects and the history of each resource, and the holders
//! of claims. It does no I/O. It changes only by [`State::publish`], which the writer calls when a
//! batch is on disk.

use super::batch::{Batch, Kept};
use super::history::History;
use super::{Entry, Event, Expired, Filter, Key, Page, stamp};
use bytes::Bytes;
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

/// The claims of one object.
pub(super) type Claims = Arc<[Arc<str>]>;

/// Everything that readers see.
#[derive(Debug)]
pub(super) struct State {
    revision: u64,
    shelves: BTreeMap<Arc<str>, Shelf>,
    /// The holder of each claim.
    claims: HashMap<Arc<str>, Key>,
    /// The claims of the few objects that have any.
    claims_of: HashMap<Key, Claims>,
}

/// One resource.
#[derive(Debug)]
struct Shelf {
    resource: Arc<str>,
    /// By `namespace/`. With the slash, the order is that of kube-apiserver's keys (`a-b/x` before
    /// `a/x`).
    rooms: BTreeMap<Box<str>, Room>,
    history: History,
}

/// The objects of one resource in one namespace, by name. Never empty.
#[derive(Debug)]
struct Room {
    namespace: Arc<str>,
    objects: BTreeMap<Arc<str>, Entry>,
}

/// Objects of a snapshot, in order.
#[derive(Debug, PartialEq)]
pub(super) struct Selection {
    /// The revision of the snapshot.
    pub(super) revision: u64,
    /// At most as many as requested.
    pub(super) items: Vec<(Key, Entry)>,
    /// The number of all selected objects.
    pub(super) total: usize,
}

/// The place of an object in the order of lists.
type Place = (Box<str>, Arc<str>);

/// Objects before they changed. `None`: they did not exist.
type Changed = BTreeMap<Place, (Key, Option<Bytes>)>;

/// An object in a walk through a shelf.
enum Found<'a> {
    Now(&'a Room, &'a Arc<str>, &'a Entry),
    Then(&'a Key, &'a Bytes),
}

impl Found<'_> {
    fn owned(&self, shelf: &Shelf) -> (Key, Entry) {
        match self {
            Self::Now(room, name, entry) => (shelf.key(room, name), (*entry).clone()),
            Self::Then(key, bytes) => {
                // Every stored object contains its revision.
                let revision = stamp::revision_of(bytes).unwrap_or_default();
                ((*key).clone(), Entry { revision, bytes: (*bytes).clone() })
            }
        }
    }
}

impl State {
    /// An empty state at `revision`.
    pub(super) fn new(revision: u64) -> Self {
        let (claims, claims_of) = (HashMap::new(), HashMap::new());
        Self { revision, shelves: BTreeMap::new(), claims, claims_of }
    }

    /// The latest revision.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// The object at `key`, with the stored form of the key.
    pub(super) fn find(&self, key: &Key) -> Option<(Key, &Entry)> {
        let shelf = self.shelves.get(&key.resource)?;
        let room = shelf.rooms.get(&*room_key(&key.namespace))?;
        let (name, entry) = room.objects.get_key_value(&key.name)?;
        Some((shelf.key(room, name), entry))
    }

    /// The holder of `claim`.
    pub(super) fn claimed_by(&self, claim: &str) -> Option<&Key> {
        self.claims.get(claim)
    }

    /// The claims of the object at `key`.
    pub(super) fn claims_of(&self, key: &Key) -> Option<&Claims> {
        self.claims_of.get(key)
    }

    /// The keys of all objects in a namespace, resource by resource.
    pub(super) fn inhabitants(&self, namespace: &str) -> impl Iterator<Item = Key> {
        let place = room_key(namespace);
        self.shelves
            .values()
            .filter_map(move |shelf| Some((shelf, shelf.rooms.get(&place)?)))
            .flat_map(|(shelf, room)| room.objects.keys().map(|name| shelf.key(room, name)))
    }

    /// The keys of all objects of a resource.
    pub(super) fn members(&self, resource: &str) -> impl Iterator<Item = Key> {
        self.shelves.get(resource).into_iter().flat_map(|shelf| {
            let rooms = shelf.rooms.values();
            rooms.flat_map(|room| room.objects.keys().map(|name| shelf.key(room, name)))
        })
    }

    /// The number of objects of each resource in a namespace.
    pub(super) fn namespace_contents(&self, namespace: &str) -> Vec<(Arc<str>, usize)> {
        let place = room_key(namespace);
        self.shelves
            .values()
            .filter_map(|shelf| {
                Some((shelf.resource.clone(), shelf.rooms.get(&place)?.objects.len()))
            })
            .collect()
    }

    /// The history of a resource. None: it never changed.
    pub(super) fn history(&self, resource: &str) -> Option<&History> {
        self.shelves.get(resource).map(|shelf| &shelf.history)
    }

    /// The events of a resource after `from`.
    pub(super) fn events(&self, resource: &str, from: u64) -> Result<Vec<Arc<Event>>, Expired> {
        match self.history(resource) {
            Some(history) => Ok(history.after(from)?.cloned().collect()),
            None => Ok(Vec::new()),
        }
    }

    /// The first `take` objects of a resource in `namespace` and after `after`, at the revision `at`.
    pub(super) fn select(
        &self,
        resource: &str,
        namespace: Option<&str>,
        at: Option<u64>,
        after: Option<(&str, &str)>,
        take: usize,
    ) -> Result<Selection, Expired> {
        let revision = at.unwrap_or(self.revision);
        let Some(shelf) = self.shelves.get(resource) else {
            return Ok(Selection { revision, items: Vec::new(), total: 0 });
        };
        let changed = shelf.changed_since(revision)?;
        let mut all = shelf.walk_past(&changed, namespace, after);
        let items: Vec<_> = all.by_ref().take(take).map(|found| found.owned(shelf)).collect();
        let total = items.len() + all.count();
        Ok(Selection { revision, items, total })
    }

    /// Makes a durable batch visible. Returns the events that were dropped, to be freed where no lock
    /// is held.
    pub(super) fn publish(&mut self, batch: Batch) -> Vec<Arc<Event>> {
        self.revision = batch.revision;
        for (key, kept) in batch.objects {
            self.put(key, kept);
        }
        for (claim, holder) in batch.claims {
            match holder {
                Some(key) => self.claims.insert(claim, key),
                None => self.claims.remove(&claim),
            };
        }
        let mut fallen = Vec::new();
        for (resource, growth) in batch.growth {
            fallen.extend(self.shelf(&resource).history.apply(growth));
        }
        fallen
    }

    /// Everything there is, as the one batch that makes it out of nothing.
    pub(super) fn whole(&self) -> Batch {
        let mut batch = Batch { revision: self.revision, ..Batch::default() };
        for shelf in self.shelves.values() {
            for room in shelf.rooms.values() {
                for (name, entry) in &room.objects {
                    let key = shelf.key(room, name);
                    let claims = self.claims_of.get(&key).cloned().unwrap_or_default();
                    batch.objects.insert(key, Some(Kept { entry: entry.clone(), claims }));
                }
            }
            batch.growth.insert(shelf.resource.clone(), shelf.history.whole());
        }
        batch
    }

    /// Puts an object read back in its place; false if one of its claims is held already.
    pub(super) fn restore_object(&mut self, key: Key, kept: Kept) -> bool {
        let free = kept
            .claims
            .iter()
            .all(|claim| self.claims.insert(claim.clone(), key.clone()).is_none());
        self.put(key, Some(kept));
        free
    }

    /// Restores the history of a resource from the file.
    pub(super) fn restore_history(&mut self, resource: &Arc<str>, history: History) {
        self.shelf(resource).history = history;
    }

    fn put(&mut self, key: Key, kept: Option<Kept>) {
        let shelf = self.shelf(&key.resource);
        let place = room_key(&key.namespace);
        let Some(kept) = kept else {
            if let Some(room) = shelf.rooms.get_mut(&place) {
                room.objects.remove(&key.name);
                if room.objects.is_empty() {
                    shelf.rooms.remove(&place);
                }
            }
            self.claims_of.remove(&key);
            return;
        };
        let namespace = key.namespace.clone();
        let room = shelf
            .rooms
            .entry(place)
            .or_insert_with(|| Room { namespace, objects: BTreeMap::new() });
        room.objects.insert(key.name.clone(), kept.entry);
        if kept.claims.is_empty() {
            self.claims_of.remove(&key);
        } else {
            self.claims_of.insert(key, kept.claims);
        }
    }

    fn shelf(&mut self, resource: &Arc<str>) -> &mut Shelf {
        self.shelves.entry(resource.clone()).or_insert_with(|| Shelf {
            resource: resource.clone(),
            rooms: BTreeMap::new(),
            history: History::default(),
        })
    }
}

impl Shelf {
    fn key(&self, room: &Room, name: &Arc<str>) -> Key {
        Key {
            resource: self.resource.clone(),
            namespace: room.namespace.clone(),
            name: name.clone(),
        }
    }

    /// The current objects in `namespace` and after `after`, in order.
    fn walk<'a>(
        &'a self,
        namespace: Option<&str>,
        after: Option<(&'a str, &'a str)>,
    ) -> impl Iterator<Item = (&'a str, &'a Room, &'a Arc<str>, &'a Entry)> {
        let only = namespace.map(room_key);
        let start = after.map(|(namespace, _)| room_key(namespace));
        let lower = start.as_deref().max(only.as_deref()).map(Box::<str>::from);
        let from = lower.map_or(Bound::Unbounded, Bound::Included);
        self.rooms
            .range((from, Bound::Unbounded))
            .take_while(move |(place, _)| only.as_ref().is_none_or(|only| *place <= only))
            .flat_map(move |(place, room)| {
                let behind = match after {
                    Some((_, name)) if start.as_ref() == Some(place) => Bound::Excluded(name),
                    _ => Bound::Unbounded,
                };
                let names = room.objects.range::<str, _>((behind, Bound::Unbounded));
                names.map(move |(name, entry)| (&**place, room, name, entry))
            })
    }

    /// The same walk at an earlier revision: an object in `changed` is replaced by what it was then.
    fn walk_past<'a>(
        &'a self,
        changed: &'a Changed,
        namespace: Option<&'a str>,
        after: Option<(&'a str, &'a str)>,
    ) -> impl Iterator<Item = Found<'a>> {
        let start = after.map(|(namespace, name)| (room_key(namespace), Arc::from(name)));
        let behind = start.map_or(Bound::Unbounded, Bound::Excluded);
        let mut now = self.walk(namespace, after).peekable();
        let mut then = changed
            .range((behind, Bound::Unbounded))
            .filter(move |(_, (key, _))| namespace.is_none_or(|only| *key.namespace == *only))
            .peekable();
        std::iter::from_fn(move || {
            loop {
                let order = match (now.peek(), then.peek()) {
                    (_, None) => Ordering::Less,
                    (None, Some(_)) => Ordering::Greater,
                    (Some((place, _, name, _)), Some(((old_place, old_name), _))) => {
                        (*place, &***name).cmp(&(&**old_place, &**old_name))
                    }
                };
                if order.is_lt() {
                    return now.next().map(|(_, room, name, entry)| Found::Now(room, name, entry));
                }
                if order.is_eq() {
                    now.next();
                }
                if let Some((_, (key, Some(before)))) = then.next() {
                    return Some(Found::Then(key, before));
                }
            }
        })
    }

    /// The objects that changed after `revision`, as they were then.
    fn changed_since(&self, revision: u64) -> Result<Changed, Expired> {
        let mut changed = BTreeMap::new();
        for event in self.history.after(revision)? {
            changed
                .entry(place(&event.key))
                .or_insert_with(|| (event.key.clone(), event.previous.clone()));
        }
        Ok(changed)
    }
}

fn room_key(namespace: &str) -> Box<str> {
    format!("{namespace}/").into()
}

fn place(key: &Key) -> Place {
    (room_key(&key.namespace), key.name.clone())
}

/// The first `limit` objects of a selection that pass `filter`.
pub(super) fn page(selection: Selection, limit: usize, filter: Option<Filter<'_>>) -> Page {
    let Selection { revision, items, total } = selection;
    let mut rest = items
        .into_iter()
        .filter(|(key, entry)| filter.is_none_or(|accepts| accepts(key, &entry.bytes)));
    let items: Vec<_> = rest.by_ref().take(limit).collect();
    let more = match filter {
        Some(_) => rest.next().is_some(),
        None => total > items.len(),
    };
    let last = items.last().map(|(key, _)| (key.namespace.clone(), key.name.clone()));
    let next = last.filter(|_| more);
    let remaining = (filter.is_none() && more).then(|| total - items.len());
    Page { revision, items, next, remaining }
}
