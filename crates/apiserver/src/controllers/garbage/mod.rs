//! Garbage collection by owner references. An object whose owners are all gone is deleted. If another
//! owner lives, only the references to gone owners are removed. If a deletion asked to orphan, the
//! references of its dependents are removed first. Foreground deletion is not implemented.
//!
//! The index finds candidates; [`act`] verifies each of them against the API before it writes.

mod act;
mod watch;

#[cfg(test)]
mod tests;

use super::catalog::Served;
use super::shell::{self, Plan, Sources};
use super::table::{Record, Table};
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use kube::core::ObjectMeta;
use kube::runtime::watcher::Event;
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use tokio::sync::watch::Receiver;

/// The finalizer that asks to orphan the dependents.
const ORPHAN: &str = "orphan";
/// How many deleted objects are remembered by uid.
const REMEMBERED: usize = 10_000;
/// When an object is due again if its owner's kind is still being listed.
const SOON: SignedDuration = SignedDuration::from_millis(250);
/// When an object is due again if its owner's kind is not served.
const LATER: SignedDuration = SignedDuration::from_secs(60);

type Uid = Arc<str>;
/// An object: the id of its resource type, and its uid.
type Key = (Arc<str>, Uid);

/// An event of the watches.
#[derive(Clone, Debug)]
enum Seen {
    /// All resource types that are served now.
    Kinds(Vec<Served>),
    /// An object of the resource type with this id.
    Object(Arc<str>, Event<(Uid, Object)>),
}

/// What is kept of an object.
#[derive(Clone, Debug, PartialEq)]
struct Object {
    namespace: String,
    name: String,
    owners: Vec<Owner>,
    deleting: bool,
    orphan: bool,
}

impl Record for Object {}

/// A reference to an owner.
#[derive(Clone, Debug, PartialEq)]
struct Owner {
    group: String,
    kind: String,
    name: String,
    uid: Uid,
}

fn record(mut meta: ObjectMeta) -> (Uid, Object) {
    let references = meta.owner_references.take().into_iter().flatten();
    let owners = references.map(|reference| Owner {
        group: group(&reference.api_version).to_owned(),
        kind: reference.kind,
        name: reference.name,
        uid: reference.uid.into(),
    });
    let object = Object {
        owners: owners.collect(),
        deleting: meta.deletion_timestamp.is_some(),
        orphan: meta.finalizers.iter().flatten().any(|finalizer| finalizer == ORPHAN),
        namespace: meta.namespace.unwrap_or_default(),
        name: meta.name.unwrap_or_default(),
    };
    (meta.uid.unwrap_or_default().into(), object)
}

fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// What can be done.
#[derive(Clone, Debug, PartialEq)]
enum Action {
    /// Look up an object's owners; delete the object or remove its references accordingly.
    Collect { object: Target, owners: Vec<(Uid, Lookup)> },
    /// Remove the references of the object's dependents, which may be of any of these types, then
    /// remove the finalizer.
    Orphan { object: Target, kinds: Arc<[Served]> },
}

/// An object to act upon.
#[derive(Clone, Debug, PartialEq)]
struct Target {
    served: Served,
    namespace: String,
    name: String,
    uid: Uid,
}

/// How to find out whether an owner exists.
#[derive(Clone, Debug, PartialEq)]
enum Lookup {
    /// It does not: its deletion was observed.
    Gone,
    /// Read this object.
    At(Box<Target>),
}

/// All records.
#[derive(Default)]
struct Index {
    kinds: Arc<[Served]>,
    tables: BTreeMap<Arc<str>, Table<Uid, Object>>,
    dependents: BTreeMap<Uid, BTreeSet<Key>>,
    gone: Gone,
}

/// The uids of objects whose deletion was observed last, oldest first. A uid is never used again.
#[derive(Default)]
struct Gone {
    order: VecDeque<Uid>,
    uids: HashSet<Uid>,
}

impl Gone {
    fn add(&mut self, uid: Uid) {
        if self.uids.insert(uid.clone()) {
            self.order.push_back(uid);
        }
        if self.order.len() > REMEMBERED {
            self.order.pop_front().map(|oldest| self.uids.remove(&oldest));
        }
    }
}

impl shell::Index for Index {
    type Event = Seen;
    type Key = Key;
    type Action = Action;

    fn observe(&mut self, event: Seen) -> Vec<Key> {
        match event {
            Seen::Kinds(kinds) => self.serve(kinds.into()),
            Seen::Object(id, event) => {
                // Late events of a type that is no longer served are ignored.
                if !self.kinds.iter().any(|kind| kind.id == id) {
                    return Vec::new();
                }
                let changes = self.tables.entry(id.clone()).or_default().observe(event);
                changes.into_iter().flat_map(|(uid, old)| self.relate(&id, uid, old)).collect()
            }
        }
    }

    fn ready(&self) -> bool {
        !self.kinds.is_empty()
    }

    fn plan(&self, (id, uid): &Key, now: Timestamp) -> Plan<Action> {
        let Some(object) = self.tables.get(id).and_then(|table| table.get(uid)) else {
            return Plan::Idle;
        };
        let Some(served) = self.kinds.iter().find(|kind| kind.id == *id) else { return Plan::Idle };
        let target = Target {
            served: served.clone(),
            namespace: object.namespace.clone(),
            name: object.name.clone(),
            uid: uid.clone(),
        };
        if object.deleting {
            return match object.orphan {
                true => {
                    Plan::Do(vec![Action::Orphan { object: target, kinds: self.kinds.clone() }])
                }
                false => Plan::Idle,
            };
        }
        if object.owners.iter().all(|owner| self.known(object, owner)) {
            return Plan::Idle;
        }
        let mut owners = Vec::new();
        for owner in &object.owners {
            match self.lookup(object, owner) {
                Ok(lookup) => owners.push((owner.uid.clone(), lookup)),
                Err(Some(wait)) => return Plan::At(now.saturating_add(wait).unwrap_or(now)),
                Err(None) => return Plan::Idle,
            }
        }
        Plan::Do(vec![Action::Collect { object: target, owners }])
    }
}

impl Index {
    /// Takes in the served types. Returns the objects whose owners are of a newly served type.
    fn serve(&mut self, kinds: Arc<[Served]>) -> Vec<Key> {
        let before = std::mem::replace(&mut self.kinds, kinds);
        let served: BTreeSet<_> = self.kinds.iter().map(|kind| kind.id.clone()).collect();
        let ended: Vec<_> = self.tables.extract_if(.., |id, _| !served.contains(id)).collect();
        // A type that is not served may come back: its objects are hidden, not deleted.
        for (id, table) in ended {
            for (uid, old) in table.into_changes() {
                self.unrelate(&(id.clone(), uid), old.as_ref());
            }
        }
        let known: BTreeSet<_> = before.iter().map(|kind| &kind.id).collect();
        let new = |owner: &Owner| self.kind(owner).is_some_and(|kind| !known.contains(&kind.id));
        let concerned = |id: &Arc<str>, table: &Table<Uid, Object>| {
            let objects = table.iter().filter(|(_, object)| object.owners.iter().any(new));
            objects.map(|(uid, _)| (id.clone(), uid.clone())).collect::<Vec<_>>()
        };
        if self.kinds.iter().all(|kind| known.contains(&kind.id)) {
            return Vec::new();
        }
        self.tables.iter().flat_map(|(id, table)| concerned(id, table)).collect()
    }

    /// Updates `dependents` after a change. Returns the objects that the change concerns.
    fn relate(&mut self, id: &Arc<str>, uid: Uid, old: Option<Object>) -> Vec<Key> {
        let key = (id.clone(), uid.clone());
        self.unrelate(&key, old.as_ref());
        match self.tables.get(id).and_then(|table| table.get(&uid)) {
            Some(new) => {
                for owner in &new.owners {
                    self.dependents.entry(owner.uid.clone()).or_default().insert(key.clone());
                }
                let concerned = if new.deleting { new.orphan } else { !new.owners.is_empty() };
                concerned.then_some(key).into_iter().collect()
            }
            None => {
                self.gone.add(uid.clone());
                self.dependents.get(&uid).into_iter().flatten().cloned().collect()
            }
        }
    }

    fn unrelate(&mut self, key: &Key, old: Option<&Object>) {
        for owner in old.into_iter().flat_map(|old| &old.owners) {
            if let Some(dependents) = self.dependents.get_mut(&owner.uid) {
                dependents.remove(key);
                if dependents.is_empty() {
                    self.dependents.remove(&owner.uid);
                }
            }
        }
    }

    fn kind(&self, owner: &Owner) -> Option<&Served> {
        let is =
            |kind: &&Served| kind.resource.group == owner.group && kind.resource.kind == owner.kind;
        self.kinds.iter().find(is)
    }

    /// Whether an owner is known to exist where the dependent may have it: in its namespace, or
    /// cluster-scoped.
    fn known(&self, dependent: &Object, owner: &Owner) -> bool {
        let Some(kind) = self.kind(owner) else { return false };
        let owner_seen = self.tables.get(&kind.id).and_then(|table| table.get(&owner.uid));
        owner_seen.is_some_and(|seen| {
            seen.name == owner.name && (!kind.namespaced || seen.namespace == dependent.namespace)
        })
    }

    /// How to look up an owner. Otherwise how long to wait, or nothing if it can never be looked up.
    fn lookup(&self, dependent: &Object, owner: &Owner) -> Result<Lookup, Option<SignedDuration>> {
        if self.gone.uids.contains(&owner.uid) {
            return Ok(Lookup::Gone);
        }
        let kind = self.kind(owner).ok_or(Some(LATER))?;
        if kind.namespaced && dependent.namespace.is_empty() {
            // A cluster-scoped object cannot have a namespaced owner, so it is never judged by it.
            return Err(None);
        }
        let listed = |table: &Table<Uid, Object>| table.complete();
        if kind.watchable && !self.tables.get(&kind.id).is_some_and(listed) {
            return Err(Some(SOON));
        }
        Ok(Lookup::At(Box::new(Target {
            namespace: if kind.namespaced { dependent.namespace.clone() } else { String::new() },
            served: kind.clone(),
            name: owner.name.clone(),
            uid: owner.uid.clone(),
        })))
    }
}

pub(super) async fn run(client: Client, stop: Receiver<bool>) {
    let sources = Sources::new().feed(|sender| watch::everything(client.clone(), sender));
    shell::run("garbage", Index::default(), sources, act::Actor(client), stop).await;
}
