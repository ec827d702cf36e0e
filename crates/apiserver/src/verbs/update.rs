//! PUT and PATCH: compute a new object from the stored one, and commit it with the revision that was
//! read. A write without a resource version is retried after a conflict. The HTTP shell calls it.

use super::Written;
use super::admit::Admitted;
use super::create::{Input, MODIFIED, place, refused};
use crate::decode::Decoded;
use crate::error::{ApiError, FieldError};
use crate::http::query::FieldValidation;
use crate::kind::Kind;
use crate::meta;
use crate::patch::Patch;
use crate::server::{Server, Stored, key};
use crate::store::{Change, Expect, Guard, Write, WriteError};
use bytes::Bytes;
use serde_json::{Value, json};

/// How often a write without a resource version is retried after a conflict.
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

/// An object that replaces a stored one.
pub(super) struct Proposal {
    pub(super) object: Value,
    pub(super) warnings: Vec<String>,
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
            return Err(another_name(given, name));
        }
        if meta::text(&object, "resourceVersion").is_empty() && !kind.strategic {
            self.load(kind, namespace, name)?;
            let error = FieldError::invalid(
                "metadata.resourceVersion",
                &json!(0),
                "must be specified for an update",
            );
            return Err(ApiError::invalid(&kind.group, &kind.plural, name, &[error]));
        }
        self.update(kind, namespace, name, part, false, &|_| {
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
        self.update(kind, namespace, name, part, true, &|old| {
            let value = patch.apply(old, &kind.schema)?;
            let patched = value.to_string();
            let Admitted { object, warnings } = self
                .admit(kind, Decoded::plain(value), validation)
                .map_err(|error| patched_badly(kind, &patched, error))?;
            let given = meta::name(&object);
            if given != name {
                return Err(another_name(given, name));
            }
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
    ) -> Result<Stored, ApiError> {
        let mut stored = self.read(kind, namespace, name)?;
        kind.serve(&mut stored.value);
        Ok(stored)
    }

    /// Reads, proposes and commits, and repeats this after a conflict. `propose` gets the object that
    /// its proposal replaces.
    pub(super) async fn update(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        part: Part,
        patching: bool,
        propose: &(dyn Fn(&Value) -> Result<Proposal, ApiError> + Sync),
    ) -> Result<Written, ApiError> {
        let at = key(kind, namespace, name);
        for _ in 0..MOST_TRIES {
            let old = self.load(kind, namespace, name)?;
            let Proposal { mut object, mut warnings } = propose(&old.value)?;
            check_preconditions(kind, &object, &old.value, old.revision, patching)?;
            place(&mut object, kind, namespace)?;
            keep_part(kind, part, &mut object, &old.value);
            keep_system_metadata(&mut object, &old.value);
            if part == Part::Object {
                kind.rules.prepare_update(&mut object, &old.value);
            }
            kind.schema.default(&mut object);
            kind.rules.default(&mut object);
            let invalid = |errors: &[FieldError]| refused(kind, name, errors);
            let taken = |claim: &str| self.store.claimed_by(claim).is_some_and(|by| by != at);
            let judged = match part {
                Part::Object => self.complete(kind, &mut object, Some(&old.value), &taken),
                Part::Finalize => none(self.invalidities(kind, &object, Some(&old.value))),
                Part::Status => none(status_errors(kind, &object, &old.value)),
            };
            judged.map_err(|errors| invalid(&errors))?;
            if part == Part::Object {
                warnings.extend(kind.rules.warnings(&object, Some(&old.value)));
            }
            count_generation(kind, part, &mut object, &old.value);
            meta::of(&mut object).insert("resourceVersion".into(), json!(old.revision.to_string()));
            if object == old.value && !released(kind, &object) && stored_so(kind, &object, &old) {
                return Ok(Written { bytes: old.bytes, warnings });
            }
            let expect = Expect::Revision(old.revision);
            let result = if released(kind, &object) {
                // The answer is the object as the writer left it; that version was never stored.
                let left = Bytes::from(object.to_string());
                self.remove(kind, at.clone(), expect).await.map(|_| left)
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

    /// Removes an object.
    pub(super) async fn remove(
        &self,
        kind: &Kind,
        at: crate::store::Key,
        expect: Expect,
    ) -> Result<Bytes, WriteError> {
        let mut guards = Vec::new();
        if is_namespace(kind) {
            guards.push(Guard::NamespaceEmpty(at.name.clone()));
        }
        if Self::defines_kinds(kind) {
            guards.push(Guard::ResourceEmpty(at.name.clone()));
        }
        let write = Write { key: at, expect, change: Change::Delete, guards };
        let committed = self.store.write(write).await?;
        self.take_effect(kind).await;
        Ok(committed.entry.bytes)
    }
}

/// Whether storing `object` in place of `old`, which is equal in the served form, changes nothing. An
/// object of another version or of an older schema is rewritten: this migrates objects.
fn stored_so(kind: &Kind, object: &Value, old: &Stored) -> bool {
    if kind.serves_as_stored(&old.bytes) {
        return true;
    }
    let mut object = object.clone();
    if kind.converts() {
        kind.rules.to_storage(&mut object);
    }
    serde_json::from_slice::<Value>(&old.bytes).is_ok_and(|stored| stored == object)
}

/// Whether an object is being deleted and nothing holds it any more.
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

fn none(errors: Vec<FieldError>) -> Result<(), Vec<FieldError>> {
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

fn status_errors(kind: &Kind, object: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors =
        if kind.strategic { Vec::new() } else { kind.schema.validate_status(object, old) };
    errors.extend(kind.rules.validate_status(object, old));
    errors
}

pub(super) fn another_name(given: &str, name: &str) -> ApiError {
    ApiError::bad_request(if given.is_empty() {
        format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )
    } else {
        format!("the name of the object ({given}) does not match the name on the URL ({name})")
    })
}

/// The error for a patch whose result is not an object of the kind. The patch is wrong, not the
/// request.
pub(super) fn patched_badly(kind: &Kind, patched: &str, error: ApiError) -> ApiError {
    if error.code != 400 {
        return error;
    }
    let prefix = format!(
        "{} in version \"{}\" cannot be handled as a {}: ",
        kind.kind, kind.version, kind.kind
    );
    let why = error.message.strip_prefix(&prefix).unwrap_or(&error.message);
    ApiError::invalid("", "", "", &[FieldError::invalid("patch", &json!(patched), why)])
}

/// Checks that version and uid, if the writer names them, are those of the object. A patch that changes
/// the uid does not mean another object; it changes an immutable field.
fn check_preconditions(
    kind: &Kind,
    object: &Value,
    old: &Value,
    revision: u64,
    patching: bool,
) -> Result<(), ApiError> {
    let name = meta::name(old);
    let given = meta::text(object, "resourceVersion");
    if !given.is_empty() {
        let number = given.parse::<u64>().map_err(|_| {
            ApiError::new(500, "", format!("strconv.ParseUint: parsing {given:?}: invalid syntax"))
        })?;
        if number != revision && number != 0 {
            return Err(ApiError::conflict(&kind.group, &kind.plural, name, MODIFIED));
        }
    }
    let uid = meta::uid(object);
    if uid.is_empty() || uid == meta::uid(old) {
        return Ok(());
    }
    if patching {
        let error = FieldError::invalid("metadata.uid", &json!(uid), "field is immutable");
        return Err(refused(kind, name, &[error]));
    }
    let place = [kind.plural.as_str(), meta::namespace(old), name];
    let path: Vec<&str> = place.into_iter().filter(|step| !step.is_empty()).collect();
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: /registry/{}, ResourceVersion: 0, \
         AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
        path.join("/"),
        meta::uid(old)
    );
    Err(ApiError::conflict(&kind.group, &kind.plural, name, &why))
}

/// Keeps the parts that a write to one part must not change.
fn keep_part(kind: &Kind, part: Part, object: &mut Value, old: &Value) {
    match part {
        Part::Object if kind.status => copy(object, old, "status"),
        Part::Object => {}
        Part::Status => {
            let status = object.get("status").cloned();
            let metadata = object["metadata"].take();
            *object = old.clone();
            if kind.strategic {
                // For built-in kinds, a status write may also change labels and annotations.
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

/// Copies a member. If it is absent, it is removed.
fn copy(object: &mut Value, old: &Value, field: &str) {
    let Some(map) = object.as_object_mut() else { return };
    match old.get(field) {
        Some(value) => map.insert(field.to_owned(), value.clone()),
        None => map.remove(field),
    };
}

/// Restores the fields that no writer may change. Managed fields stay unless the writer sends them.
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
    let next = if changes { generation.saturating_add(1) } else { generation };
    meta::of(object).insert("generation".into(), json!(next));
}
