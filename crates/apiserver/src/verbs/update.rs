//! Replacing and patching: both compute a new object from the stored one and commit it under the
//! revision they have read. Who gave no resource version is tried again when somebody else was faster.

use super::Written;
use super::admit::Admitted;
use super::create::{Input, MODIFIED, place};
use crate::decode::Decoded;
use crate::error::{ApiError, FieldError};
use crate::http::query::FieldValidation;
use crate::kind::Kind;
use crate::meta;
use crate::patch::Patch;
use crate::server::{Server, key};
use crate::store::{Change, Expect, Guard, Write, WriteError};
use serde_json::{Value, json};

/// How often a write that named no version is repeated after losing a race.
const MOST_TRIES: usize = 30;

/// Which part of an object a write may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Everything but the status, where the kind has a status subresource.
    Object,
    /// The status only.
    Status,
    /// `spec.finalizers` of a Namespace.
    Finalize,
}

/// An object to be stored in place of another.
struct Proposal {
    object: Value,
    warnings: Vec<String>,
}

impl Server {
    /// PUT.
    pub async fn replace(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        part: Part,
        input: Input,
    ) -> Result<Written, ApiError> {
        let Admitted { object, warnings } = self.admit(kind, input.decoded, input.validation)?;
        let given = meta::name(&object);
        if given != name {
            return Err(ApiError::bad_request(if given.is_empty() {
                "name must be provided".to_owned()
            } else {
                format!(
                    "the name of the object ({given}) does not match the name on the URL ({name})"
                )
            }));
        }
        if meta::text(&object, "resourceVersion").is_empty() && !kind.strategic {
            self.load(kind, namespace, name)?;
            let error = FieldError::invalid(
                "metadata.resourceVersion",
                &json!(0),
                "must be specified for an update",
            );
            return Err(ApiError::invalid(&kind.group, &kind.kind, name, &[error]));
        }
        self.update(kind, namespace, name, part, &|_| {
            Ok(Proposal { object: object.clone(), warnings: warnings.clone() })
        })
        .await
    }

    /// PATCH.
    pub async fn patch(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        part: Part,
        patch: &Patch,
        validation: FieldValidation,
    ) -> Result<Written, ApiError> {
        self.update(kind, namespace, name, part, &|old| {
            let value = patch.apply(old, &kind.schema)?;
            if value["metadata"]["name"] != old["metadata"]["name"]
                && value["metadata"]["name"].is_string()
            {
                return Err(ApiError::bad_request(
                    "the name of the object does not match the name on the URL",
                ));
            }
            let decoded = Decoded { value, duplicates: Vec::new() };
            let Admitted { object, warnings } = self.admit(kind, decoded, validation)?;
            Ok(Proposal { object, warnings })
        })
        .await
    }

    /// The stored object in the served version, with its revision.
    pub(super) fn load(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
    ) -> Result<crate::server::Stored, ApiError> {
        let mut stored = self.read(kind, namespace, name)?;
        if kind.converts() {
            kind.rules.to_served(&mut stored.value);
        }
        Ok(stored)
    }

    async fn update(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        part: Part,
        propose: &(dyn Fn(&Value) -> Result<Proposal, ApiError> + Sync),
    ) -> Result<Written, ApiError> {
        let at = key(kind, namespace, name);
        for _ in 0..MOST_TRIES {
            let old = self.load(kind, namespace, name)?;
            let Proposal { mut object, mut warnings } = propose(&old.value)?;
            check_preconditions(kind, &object, &old.value, old.revision)?;
            place(&mut object, kind, namespace)?;
            keep_part(kind, part, &mut object, &old.value);
            keep_system_metadata(&mut object, &old.value);
            if part == Part::Object {
                kind.rules.prepare_update(&mut object, &old.value);
            }
            kind.schema.default(&mut object);
            kind.rules.default(&mut object);
            let invalid =
                |errors: &[FieldError]| ApiError::invalid(&kind.group, &kind.kind, name, errors);
            let errors = match part {
                Part::Object | Part::Finalize => self.invalidities(kind, &object, Some(&old.value)),
                Part::Status => {
                    let mut errors = if kind.strategic {
                        Vec::new()
                    } else {
                        kind.schema.validate_status(&object, &old.value)
                    };
                    errors.extend(kind.rules.validate_status(&object, &old.value));
                    errors
                }
            };
            if !errors.is_empty() {
                return Err(invalid(&errors));
            }
            if part == Part::Object {
                let taken = |claim: &str| self.store.claimed_by(claim).is_some_and(|by| by != at);
                kind.rules
                    .allocate(&mut object, Some(&old.value), &taken)
                    .map_err(|errors| invalid(&errors))?;
                warnings.extend(kind.rules.warnings(&object, Some(&old.value)));
            }
            count_generation(kind, part, &mut object, &old.value);
            meta::of(&mut object).insert("resourceVersion".into(), json!(old.revision.to_string()));
            if object == old.value && !released(kind, &object) {
                return Ok(Written { bytes: old.bytes, warnings });
            }
            let expect = Expect::Revision(old.revision);
            let result = if released(kind, &object) {
                self.remove(kind, at.clone(), expect).await
            } else {
                self.put(kind, at.clone(), expect, object).await
            };
            match result {
                Ok(bytes) => return Ok(Written { bytes, warnings }),
                Err(WriteError::Conflict { .. } | WriteError::Claimed { .. }) => {}
                Err(error) => return Err(self.refusal(kind, namespace, name, error)),
            }
        }
        Err(ApiError::conflict(&kind.group, &kind.plural, name, MODIFIED))
    }

    /// Removes an object for good.
    pub(super) async fn remove(
        &self,
        kind: &Kind,
        at: crate::store::Key,
        expect: Expect,
    ) -> Result<bytes::Bytes, WriteError> {
        let mut guards = Vec::new();
        if is_namespace(kind) {
            guards.push(Guard::NamespaceEmpty(at.name.clone()));
        }
        let write = Write { key: at, expect, change: Change::Delete, guards };
        self.store.write(write).await.map(|committed| committed.entry.bytes)
    }
}

/// Whether nothing holds an object any more whose deletion has begun.
pub(super) fn released(kind: &Kind, object: &Value) -> bool {
    meta::deleting(object)
        && meta::finalizers(object).is_empty()
        && !(is_namespace(kind)
            && object["spec"]["finalizers"].as_array().is_some_and(|list| !list.is_empty()))
        && object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0
}

pub(super) fn is_namespace(kind: &Kind) -> bool {
    kind.group.is_empty() && kind.kind == "Namespace"
}

fn check_preconditions(
    kind: &Kind,
    object: &Value,
    old: &Value,
    revision: u64,
) -> Result<(), ApiError> {
    let name = meta::name(old);
    let given = meta::text(object, "resourceVersion");
    if !given.is_empty() {
        let Ok(number) = given.parse::<u64>() else {
            let error = FieldError::invalid(
                "metadata.resourceVersion",
                &json!(given),
                "must be the resourceVersion of the object as it was read",
            );
            return Err(ApiError::invalid(&kind.group, &kind.kind, name, &[error]));
        };
        if number != revision {
            return Err(ApiError::conflict(&kind.group, &kind.plural, name, MODIFIED));
        }
    }
    let uid = meta::uid(object);
    if !uid.is_empty() && uid != meta::uid(old) {
        let why = format!(
            "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            meta::uid(old)
        );
        return Err(ApiError::conflict(&kind.group, &kind.plural, name, &why));
    }
    Ok(())
}

/// A write to one part leaves the others as they were.
fn keep_part(kind: &Kind, part: Part, object: &mut Value, old: &Value) {
    match part {
        Part::Object if kind.status => copy(object, old, "status"),
        Part::Object => {}
        Part::Status => {
            let status = object.get("status").cloned();
            let metadata = object["metadata"].take();
            *object = old.clone();
            if kind.strategic {
                // Built-in kinds let a status writer touch labels and annotations too.
                object["metadata"] = metadata;
                copy(meta_value(object), &old["metadata"], "ownerReferences");
                copy(meta_value(object), &old["metadata"], "finalizers");
            }
            match (status, object.as_object_mut()) {
                (Some(status), Some(map)) => {
                    map.insert("status".into(), status);
                }
                (None, Some(map)) => {
                    map.remove("status");
                }
                _ => {}
            }
        }
        Part::Finalize => {
            let finalizers = object["spec"]["finalizers"].take();
            *object = old.clone();
            if finalizers.is_null() {
                meta::child(object, "spec").remove("finalizers");
            } else {
                meta::child(object, "spec").insert("finalizers".into(), finalizers);
            }
        }
    }
}

fn meta_value(object: &mut Value) -> &mut Value {
    meta::of(object);
    &mut object["metadata"]
}

/// Copies a member, its absence included.
fn copy(object: &mut Value, old: &Value, field: &str) {
    let Some(map) = object.as_object_mut() else { return };
    match old.get(field) {
        Some(value) => map.insert(field.to_owned(), value.clone()),
        None => map.remove(field),
    };
}

/// What no writer may change. Managed fields stay as they were unless they were sent.
fn keep_system_metadata(object: &mut Value, old: &Value) {
    let metadata = meta_value(object);
    for field in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "generateName",
        "selfLink",
    ] {
        copy(metadata, &old["metadata"], field);
    }
    if metadata.get("managedFields").is_none() {
        copy(metadata, &old["metadata"], "managedFields");
    }
}

fn count_generation(kind: &Kind, part: Part, object: &mut Value, old: &Value) {
    let Some(generation) = old["metadata"]["generation"].as_i64() else { return };
    let changes = match part {
        Part::Object => kind.rules.generation_changes(object, old),
        Part::Status | Part::Finalize => false,
    };
    let next = if changes { generation + 1 } else { generation };
    meta::of(object).insert("generation".into(), json!(next));
}
