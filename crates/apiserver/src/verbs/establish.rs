//! Establishes CustomResourceDefinitions: accepts or refuses their names, serves their kinds, and
//! writes their status. A task of the server does it after every change in the store, so it also
//! happens if the writer has gone; writers only wait for it.

use crate::crd;
use crate::kind::Kind;
use crate::meta;
use crate::registry::Registry;
use crate::server::Server;
use crate::store::{
    Change, Event, Expect, Expired, Key, ListQuery, Store, Watch, Write, WriteError,
};
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// Where the store keeps CustomResourceDefinitions.
pub(super) const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// How long to wait before sweeping again while finalizers hold unreachable objects.
const SWEEP_AGAIN: Duration = Duration::from_secs(5);

impl Server {
    /// Whether a write to this kind changes what is served.
    pub(crate) fn defines_kinds(kind: &Kind) -> bool {
        &*kind.storage == DEFINITIONS
    }

    /// Returns when everything that the stored CRDs define is served.
    pub async fn establish(&self) {
        let running = self.establishing.get_or_init(|| Establishing::start(&self.definitions));
        let newest = self.store.changed(DEFINITIONS);
        let mut done = running.done.clone();
        let reached = done.wait_for(|done| done.is_some_and(|done| done >= newest)).await;
        if reached.is_err() {
            tracing::error!("CustomResourceDefinitions no longer take effect");
        }
    }

    /// Lets a committed object of `kind` take effect. Errors here do not undo the commit, so they are
    /// not returned.
    pub(super) async fn take_effect(&self, kind: &Kind) {
        if Self::defines_kinds(kind) {
            self.establish().await;
        }
    }
}

/// The task that establishes CRDs. It ends when this handle is dropped.
pub(crate) struct Establishing {
    task: AbortHandle,
    /// The revision up to which everything has taken effect.
    done: watch::Receiver<Option<u64>>,
}

impl Establishing {
    fn start(definitions: &Arc<Definitions>) -> Self {
        let (done, receiver) = watch::channel(None);
        let task = tokio::spawn(run(Arc::downgrade(definitions), done)).abort_handle();
        Self { task, done: receiver }
    }
}

impl Drop for Establishing {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Runs until the server is dropped. It does not keep the server alive, so that the store's file is
/// released with the server.
async fn run(definitions: Weak<Definitions>, done: watch::Sender<Option<u64>>) {
    while let Some(this) = definitions.upgrade() {
        let from = this.store.revision();
        let mut ours = this.establish().await;
        done.send_replace(Some(from));
        let watches = (this.store.watch(DEFINITIONS, from), this.store.watch("namespaces", from));
        drop(this);
        // An expired history does no harm: everything is read again.
        let (Ok(mut crds), Ok(mut namespaces)) = watches else { continue };
        loop {
            let Some(this) = definitions.upgrade() else { return };
            let remains = this.sweep().await;
            drop(this);
            tokio::select! {
                events = crds.next() => {
                    let Ok(events) = events else { break };
                    let Some(this) = definitions.upgrade() else { return };
                    // The task's own writes had already taken effect.
                    let foreign = events.iter().filter(|event| !ours.remove(&event.revision)).count();
                    if foreign > 0 {
                        ours.extend(this.establish().await);
                    }
                    done.send_replace(events.last().map(|event| event.revision));
                }
                events = going(&mut namespaces) => if events.is_err() { break },
                // A write that was running when its kind ceased to be served may be committed after a
                // sweep.
                () = tokio::time::sleep(SWEEP_AGAIN), if remains => {}
            }
        }
    }
}

/// Waits until a namespace is being deleted.
async fn going(namespaces: &mut Watch) -> Result<(), Expired> {
    let deleting = |event: &Arc<Event>| {
        serde_json::from_slice(&event.object).is_ok_and(|object: Value| meta::deleting(&object))
    };
    while !namespaces.next().await?.iter().any(deleting) {}
    Ok(())
}

/// The stored CRDs and the kinds that they define.
pub(crate) struct Definitions {
    pub(super) store: Store,
    pub(super) registry: Arc<Registry>,
    /// The last compiled form of each definition, by name.
    compiled: Mutex<BTreeMap<Arc<str>, Compiled>>,
    /// Whether each definition is being deleted, by name, and at which revision this was read. Every
    /// create needs it, and definitions are large.
    terminating: Mutex<BTreeMap<Arc<str>, (u64, bool)>>,
}

/// The compiled form of a definition. It stays valid while the generation is the same.
#[derive(Clone)]
struct Compiled {
    uid: String,
    generation: Option<i64>,
    kinds: Vec<Arc<Kind>>,
    documents: Vec<Document>,
}

impl Definitions {
    pub(crate) fn new(store: Store, registry: Arc<Registry>) -> Self {
        let (compiled, terminating) = (Mutex::default(), Mutex::default());
        Self { store, registry, compiled, terminating }
    }

    /// Whether the definition at `key` is being deleted. None: there is no definition.
    pub(super) fn terminating(&self, key: &Key) -> Option<bool> {
        let entry = self.store.get(key)?;
        if let Some((revision, known)) = self.terminating.lock().get(&key.name)
            && *revision == entry.revision
        {
            return Some(*known);
        }
        let definition: Value = serde_json::from_slice(&entry.bytes).unwrap_or_default();
        let deleting = meta::deleting(&definition);
        self.terminating.lock().insert(key.name.clone(), (entry.revision, deleting));
        Some(deleting)
    }

    /// Serves the kinds of the stored CRDs. A kind is served before its status says so: a client that
    /// waits for `Established` never gets a 404 afterwards. Returns the revisions that it wrote.
    async fn establish(&self) -> BTreeSet<u64> {
        let mut definitions = self.stored();
        // The older definition gets a name. Creation times are whole seconds; with equal times the name
        // decides.
        definitions.sort_by(|(_, _, a), (_, _, b)| age(a).cmp(&age(b)));
        let mut taken: BTreeMap<(String, crd::NameSpace, String), String> = BTreeMap::new();
        let hold = |taken: &mut BTreeMap<_, _>, definition: &Value| {
            let group = definition["spec"]["group"].as_str().unwrap_or_default();
            for (space, name) in crd::accepted_names(definition) {
                let holder = meta::name(definition).to_owned();
                taken.entry((group.to_owned(), space, name)).or_insert(holder);
            }
        };
        // Names that were accepted before stay accepted.
        for (_, _, definition) in &definitions {
            hold(&mut taken, definition);
        }
        let mut kinds = Vec::new();
        let mut documents = BTreeMap::new();
        let mut writes = Vec::new();
        let mut compiled = BTreeMap::new();
        for (key, revision, mut definition) in definitions {
            let status = crd::status(
                &definition,
                &|claim| {
                    taken
                        .get(&(claim.group.clone(), claim.space, claim.name.clone()))
                        .filter(|holder| **holder != claim.definition)
                        .cloned()
                },
                jiff::Timestamp::now(),
            );
            let changed = definition.get("status") != Some(&status);
            definition["status"] = status;
            hold(&mut taken, &definition);
            if crd::established(&definition) {
                let made = self.compile(&key.name, &definition);
                kinds.extend(made.kinds.iter().cloned());
                documents.extend(made.documents.iter().cloned());
                compiled.insert(key.name.clone(), made);
            }
            if changed {
                writes.push((key, revision, definition));
            }
        }
        *self.compiled.lock() = compiled;
        self.registry.set_custom(kinds, documents);
        let mut written = BTreeSet::new();
        for (key, revision, definition) in writes {
            let change = Change::Put { object: definition, claims: Vec::new() };
            let expect = Expect::Revision(revision);
            match self.store.write(Write { key, expect, change, guards: Vec::new() }).await {
                Ok(committed) => {
                    written.insert(committed.entry.revision);
                }
                // A concurrent write is handled next.
                Err(WriteError::Conflict { .. } | WriteError::Missing) => {}
                Err(error) => {
                    tracing::error!(%error, "the status of a CustomResourceDefinition is not written");
                }
            }
        }
        written
    }

    /// Compiles a definition, if its generation has changed.
    fn compile(&self, name: &Arc<str>, definition: &Value) -> Compiled {
        let uid = meta::uid(definition);
        let generation = definition["metadata"]["generation"].as_i64();
        let known = self.compiled.lock().get(name).cloned();
        if let Some(known) =
            known.filter(|known| known.uid == uid && known.generation == generation)
        {
            return known;
        }
        let kinds = crd::kinds(definition).unwrap_or_else(|errors| {
            // Stored by an older build that accepted more. It is not served; saying why is better than
            // refusing to start.
            let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
            tracing::warn!(crd = %name, errors = errors.join("; "), "a stored CustomResourceDefinition is not served");
            Vec::new()
        });
        let documents = kinds.iter().flat_map(|kind| openapi(definition, kind)).collect();
        let kinds = kinds.into_iter().map(Arc::new).collect();
        Compiled { uid: uid.to_owned(), generation, kinds, documents }
    }

    fn stored(&self) -> Vec<(Key, u64, Value)> {
        // A list of the present never expires.
        let items = self.store.list(DEFINITIONS, &ListQuery::default()).map(|page| page.items);
        let read =
            |(key, entry): (Key, crate::store::Entry)| match serde_json::from_slice(&entry.bytes) {
                Ok(value) => Some((key, entry.revision, value)),
                Err(error) => {
                    tracing::error!(crd = %key.name, %error, "a stored object cannot be read");
                    None
                }
            };
        items.unwrap_or_default().into_iter().filter_map(read).collect()
    }
}

type Document = (String, ((String, String), Arc<Value>));

/// The OpenAPI definitions of a kind and of its list kind.
fn openapi(definition: &Value, kind: &Kind) -> [Document; 2] {
    let document = |name: &str, schema: Value| {
        let name = crd::definition_name(&kind.group, &kind.version, name);
        (name, ((kind.group.clone(), kind.version.clone()), Arc::new(schema)))
    };
    [
        document(&kind.kind, crd::openapi(definition, &kind.version)),
        document(&kind.list_kind, crd::list_openapi(definition, &kind.version)),
    ]
}

fn age(definition: &Value) -> (&str, &str) {
    (meta::text(definition, "creationTimestamp"), meta::name(definition))
}

#[cfg(test)]
#[path = "establish_tests.rs"]
mod tests;
