//! CustomResourceDefinitions take effect here: their names are accepted or refused, their kinds served,
//! and their status written. Runs after every write to a CRD and once at the start.

use crate::crd;
use crate::error::ApiError;
use crate::kind::Kind;
use crate::server::Server;
use crate::store::{Change, Expect, Key, ListQuery, Write, WriteError};
use serde_json::Value;
use std::collections::BTreeMap;

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
        let mut taken: BTreeMap<crd::NameClaim, String> = BTreeMap::new();
        let mut kinds = Vec::new();
        let mut documents = BTreeMap::new();
        let mut writes = Vec::new();
        for (key, revision, definition) in definitions {
            let now = jiff::Timestamp::now();
            let status = crd::status(&definition, &|claim| taken.get(claim).cloned(), now);
            for claim in crd::accepted_names(&definition, &status) {
                taken.entry(claim).or_insert_with(|| key.name.to_string());
            }
            if crd::established(&status) {
                match crd::kinds(&definition) {
                    Ok(list) => {
                        for kind in &list {
                            let (name, document) = crd::openapi(&definition, &kind.version);
                            let place = (kind.group.clone(), kind.version.clone());
                            documents.insert(name, (place, document));
                        }
                        kinds.extend(list);
                    }
                    // Stored by an older build that accepted more. It is not served; saying why is
                    // better than refusing to start.
                    Err(errors) => tracing::warn!(
                        crd = %key.name, ?errors, "a stored CustomResourceDefinition is not served"
                    ),
                }
            }
            if definition.get("status") != Some(&status) {
                writes.push((key, revision, definition, status));
            }
        }
        self.registry.set_custom(kinds, documents);
        self.documents.lock().clear();
        for (key, revision, mut definition, status) in writes {
            definition["status"] = status;
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

fn age(definition: &Value) -> (&str, &str) {
    (crate::meta::text(definition, "creationTimestamp"), crate::meta::name(definition))
}
