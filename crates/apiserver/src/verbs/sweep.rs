//! Deletes objects that no client can reach any more: objects of kinds that are not served, when their
//! definition or their namespace is being deleted. The controllers are clients and see served kinds
//! only, so the server does this itself, in the task that establishes definitions. It never touches a
//! served kind.

use super::establish::{DEFINITIONS, Definitions};
use crate::meta;
use crate::server::timestamp;
use crate::store::{Change, Expect, Key, ListQuery, Write, WriteError};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

impl Definitions {
    /// Deletes all such objects. Returns whether some remain because finalizers hold them.
    pub(super) async fn sweep(&self) -> bool {
        let kinds = self.registry.kinds();
        let served: BTreeSet<&str> = kinds.iter().map(|kind| &*kind.storage).collect();
        let mut unreachable = Vec::new();
        for name in self.names(DEFINITIONS) {
            if !served.contains(&*name)
                && self.terminating(&Key::new(DEFINITIONS, "", name.clone())) == Some(true)
            {
                unreachable.extend(self.keys(&name, None));
            }
        }
        for namespace in self.names("namespaces") {
            let mut hidden = self.store.namespace_contents(&namespace);
            hidden.retain(|(resource, _)| !served.contains(&**resource));
            if !hidden.is_empty() && self.going(&Key::new("namespaces", "", namespace.clone())) {
                for (resource, _) in hidden {
                    unreachable.extend(self.keys(&resource, Some(&namespace)));
                }
            }
        }
        for key in &unreachable {
            if let Err(error) = self.let_go(key).await {
                tracing::warn!(%error, resource = %key.resource, name = %key.name, "cannot be deleted");
            }
        }
        unreachable.iter().any(|key| self.store.get(key).is_some())
    }

    fn names(&self, resource: &str) -> Vec<Arc<str>> {
        self.keys(resource, None).map(|key| key.name).collect()
    }

    fn keys(&self, resource: &str, namespace: Option<&str>) -> impl Iterator<Item = Key> + use<> {
        let query = ListQuery { namespace, ..ListQuery::default() };
        // A list of the present never expires.
        let items = self.store.list(resource, &query).map(|page| page.items);
        items.unwrap_or_default().into_iter().map(|(key, _)| key)
    }

    fn going(&self, key: &Key) -> bool {
        self.store.get(key).is_some_and(|entry| {
            serde_json::from_slice(&entry.bytes).is_ok_and(|object: Value| meta::deleting(&object))
        })
    }

    /// Deletes an object, or marks it as being deleted while it has finalizers.
    async fn let_go(&self, key: &Key) -> Result<(), WriteError> {
        loop {
            let Some(entry) = self.store.get(key) else { return Ok(()) };
            let mut object: Value = serde_json::from_slice(&entry.bytes)
                .map_err(|error| WriteError::Storage(error.to_string()))?;
            let change = if meta::finalizers(&object).is_empty() {
                Change::Delete
            } else if meta::deleting(&object) {
                return Ok(());
            } else {
                let metadata = meta::of(&mut object);
                metadata.insert("deletionTimestamp".into(), json!(timestamp()));
                metadata.insert("deletionGracePeriodSeconds".into(), json!(0));
                if let Some(generation) = metadata.get("generation").and_then(Value::as_i64) {
                    metadata.insert("generation".into(), json!(generation + 1));
                }
                // Custom objects have no claims.
                Change::Put { object, claims: Vec::new() }
            };
            let expect = Expect::Revision(entry.revision);
            let write = Write { key: key.clone(), expect, change, guards: Vec::new() };
            match self.store.write(write).await {
                Err(WriteError::Conflict { .. }) => {}
                Ok(_) | Err(WriteError::Missing) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}
