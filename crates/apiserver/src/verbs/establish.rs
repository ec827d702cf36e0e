//! CustomResourceDefinitions take effect here: their names are accepted or refused, their kinds served,
//! and their status written. Runs after every write to a CRD and once at the start.

use crate::crd;
use crate::error::ApiError;
use crate::kind::Kind;
use crate::server::Server;
use crate::store::{Change, Expect, Key, ListQuery, Write, WriteError};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Where the store keeps CustomResourceDefinitions.
const STORAGE: &str = "customresourcedefinitions.apiextensions.k8s.io";

impl Server {
    /// Whether a write to this kind changes what is served.
    pub(crate) fn defines_kinds(kind: &Kind) -> bool {
        &*kind.storage == STORAGE
    }

    /// Serves what the stored CRDs say. A kind is served before its status says so: who waits for
    /// `Established` never meets a 404 afterwards.
    pub async fn establish(&self) -> Result<(), ApiError> {
        let _one_at_a_time = self.establishing.lock().await;
        let mut definitions = self.stored_definitions()?;
        // The older definition has the names; creation times are whole seconds, so names decide ties.
        definitions.sort_by(|(_, _, a), (_, _, b)| age(a).cmp(&age(b)));
        let mut taken: BTreeMap<(String, crd::NameSpace, String), String> = BTreeMap::new();
        let hold = |taken: &mut BTreeMap<_, _>, definition: &Value| {
            let group = definition["spec"]["group"].as_str().unwrap_or_default();
            for (space, name) in crd::accepted_names(definition) {
                let holder = crate::meta::name(definition).to_owned();
                taken.entry((group.to_owned(), space, name)).or_insert(holder);
            }
        };
        // Names that were given stay with whom they were given to.
        for (_, _, definition) in &definitions {
            hold(&mut taken, definition);
        }
        let mut kinds = Vec::new();
        let mut documents = BTreeMap::new();
        let mut writes = Vec::new();
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
                match crd::kinds(&definition) {
                    Ok(list) => {
                        documents.extend(list.iter().flat_map(|kind| openapi(&definition, kind)));
                        kinds.extend(list.into_iter().map(Arc::new));
                    }
                    // Stored by an older build that accepted more. It is not served; saying why is
                    // better than refusing to start.
                    Err(errors) => tracing::warn!(
                        crd = %key.name, ?errors, "a stored CustomResourceDefinition is not served"
                    ),
                }
            }
            if changed {
                writes.push((key, revision, definition));
            }
        }
        self.registry.set_custom(kinds, documents);
        for (key, revision, definition) in writes {
            let change = Change::Put { object: definition, claims: Vec::new() };
            let expect = Expect::Revision(revision);
            match self.store.write(Write { key, expect, change, guards: Vec::new() }).await {
                // Whoever wrote meanwhile establishes again.
                Ok(_) | Err(WriteError::Conflict { .. } | WriteError::Missing) => {}
                Err(error) => return Err(ApiError::internal(format!("{error:?}"))),
            }
        }
        Ok(())
    }

    fn stored_definitions(&self) -> Result<Vec<(Key, u64, Value)>, ApiError> {
        let page = self
            .store
            .list(STORAGE, &ListQuery::default())
            .map_err(|expired| ApiError::internal(format!("{expired:?}")))?;
        page.items
            .into_iter()
            .map(|(key, entry)| {
                let value = serde_json::from_slice(&entry.bytes).map_err(ApiError::internal)?;
                Ok((key, entry.revision, value))
            })
            .collect()
    }
}

type Document = (String, ((String, String), Arc<Value>));

/// The OpenAPI definitions of a kind and of its list.
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
    (crate::meta::text(definition, "creationTimestamp"), crate::meta::name(definition))
}
