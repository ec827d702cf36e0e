//! Creates objects: clears and sets the fields that only the server may write, generates names,
//! allocates, and commits. The HTTP shell calls it.

use super::Written;
use super::admit::Admitted;
use super::establish::DEFINITIONS;
use crate::builtins::metadata;
use crate::decode::Decoded;
use crate::error::{ApiError, Cause, FieldError, FieldErrorKind};
use crate::http::query::FieldValidation;
use crate::kind::Kind;
use crate::meta;
use crate::server::{Server, key, name_suffix, new_uid, timestamp};
use crate::store::{Change, Expect, Guard, Key, ListQuery, Write, WriteError};
use serde_json::{Value, json};

/// How often a commit is retried when a generated name or an allocated claim was taken in the meantime.
const MOST_TRIES: usize = 16;

/// A body, and how strictly it is read.
#[derive(Clone, Debug)]
pub struct Input {
    /// The body.
    pub decoded: Decoded,
    /// What to do with unknown and duplicate fields.
    pub validation: FieldValidation,
}

impl Server {
    /// Creates an object of `kind` in `namespace` (empty for cluster-scoped kinds).
    pub async fn create(
        &self,
        kind: &Kind,
        namespace: &str,
        input: Input,
    ) -> Result<Written, ApiError> {
        let Admitted { mut object, mut warnings } =
            self.admit(kind, input.decoded, input.validation)?;
        place(&mut object, kind, namespace)?;
        if !meta::text(&object, "resourceVersion").is_empty() {
            return Err(ApiError::new(
                500,
                "",
                "resourceVersion should not be set on objects to be created",
            ));
        }
        self.check_definition(kind, meta::name(&object))?;
        self.check_namespace(kind, namespace, meta::name(&object))?;
        let generate =
            meta::name(&object).is_empty() && !meta::text(&object, "generateName").is_empty();
        stamp_new(&mut object, kind)?;
        kind.rules.prepare_create(&mut object);
        kind.schema.default(&mut object);
        kind.rules.default(&mut object);
        kind.rules.complete_create(&mut object, &|resource| self.all(resource));
        warnings.extend(kind.rules.warnings(&object, None));

        for _ in 0..MOST_TRIES {
            let mut candidate = object.clone();
            if generate {
                let prefix: String = meta::text(&object, "generateName").chars().take(58).collect();
                let name = format!("{prefix}{}", name_suffix()?);
                meta::of(&mut candidate).insert("name".into(), json!(name));
            }
            let name = meta::name(&candidate).to_owned();
            let invalid = |errors: &[FieldError]| refused(kind, &name, errors);
            let at = key(kind, namespace, &name);
            let taken = |claim: &str| self.store.claimed_by(claim).is_some_and(|by| by != at);
            self.complete(kind, &mut candidate, None, &taken).map_err(|errors| invalid(&errors))?;
            match self.put(kind, at, Expect::Absent, candidate).await {
                Ok(bytes) => return Ok(Written { bytes, warnings }),
                Err(WriteError::Claimed { .. }) => {}
                Err(WriteError::Exists) if generate => {}
                Err(error) => return Err(self.refusal(kind, namespace, &name, error)),
            }
        }
        Err(ApiError::new(
            504,
            "Timeout",
            "the server could not find a free name or address; try again",
        ))
    }

    /// The objects of a resource.
    fn all(&self, resource: &str) -> Vec<Value> {
        let Ok(page) = self.store.list(resource, &ListQuery::default()) else { return Vec::new() };
        let objects = page.items.iter();
        objects.filter_map(|(_, entry)| serde_json::from_slice(&entry.bytes).ok()).collect()
    }

    /// Sets what only the server sets, and validates the result. Errors of the object are reported
    /// before errors of the allocation.
    pub(super) fn complete(
        &self,
        kind: &Kind,
        object: &mut Value,
        old: Option<&Value>,
        taken: &dyn Fn(&str) -> bool,
    ) -> Result<(), Vec<FieldError>> {
        let mut allocated = object.clone();
        let given = kind.rules.allocate(&mut allocated, old, taken);
        let errors = match &given {
            Ok(()) => self.invalidities(kind, &allocated, old),
            Err(_) => self.invalidities(kind, object, old),
        };
        if !errors.is_empty() {
            return Err(errors);
        }
        given?;
        *object = allocated;
        Ok(())
    }

    /// All errors of an object as it would be stored.
    pub(super) fn invalidities(
        &self,
        kind: &Kind,
        object: &Value,
        old: Option<&Value>,
    ) -> Vec<FieldError> {
        // In kube-apiserver, definitions are validated by a part that knows no standard finalizers.
        let check_metadata = if kind.strategic && !Self::defines_kinds(kind) {
            metadata::validate_builtin_meta
        } else {
            metadata::validate_meta
        };
        let mut errors = check_metadata(object, old, kind.rules.name_rule(), kind.namespaced);
        match old {
            // Built-in kinds were already checked by their schema while decoding; their rules check the
            // rest.
            _ if kind.strategic => {}
            Some(old) => errors.extend(kind.schema.validate_update(object, old)),
            None => errors.extend(kind.schema.validate(object)),
        }
        errors.extend(kind.rules.validate(object, old));
        errors
    }

    /// Commits an object in the stored version.
    pub(super) async fn put(
        &self,
        kind: &Kind,
        at: Key,
        expect: Expect,
        mut object: Value,
    ) -> Result<bytes::Bytes, WriteError> {
        let claims = kind.rules.claims(&object);
        let mut guards = Vec::new();
        if kind.namespaced && expect == Expect::Absent {
            guards.push(Guard::Exists(namespace_key(&at.namespace)));
        }
        if !kind.strategic && expect == Expect::Absent {
            guards.push(Guard::Exists(definition_key(kind)));
        }
        if kind.converts() {
            kind.rules.to_storage(&mut object);
        }
        let write = Write { key: at, expect, change: Change::Put { object, claims }, guards };
        let committed = self.store.write(write).await?;
        self.take_effect(kind).await;
        Ok(committed.entry.bytes)
    }

    /// Checks that the definition of a custom object exists and is not being deleted.
    fn check_definition(&self, kind: &Kind, name: &str) -> Result<(), ApiError> {
        if kind.strategic {
            return Ok(());
        }
        match self.definitions.terminating(&definition_key(kind)) {
            None => return Err(ApiError::no_page()),
            Some(false) => return Ok(()),
            Some(true) => {}
        }
        let why = "create not allowed while custom resource definition is terminating";
        Err(ApiError::forbidden(&kind.group, &kind.plural, name, why))
    }

    /// Checks that the namespace of an object exists and is not being deleted.
    fn check_namespace(&self, kind: &Kind, namespace: &str, name: &str) -> Result<(), ApiError> {
        if !kind.namespaced {
            return Ok(());
        }
        let Some(entry) = self.store.get(&namespace_key(namespace)) else {
            return Err(ApiError::not_found("", "namespaces", namespace));
        };
        let object: Value = serde_json::from_slice(&entry.bytes).map_err(ApiError::internal)?;
        if !meta::deleting(&object) {
            return Ok(());
        }
        let why = format!(
            "unable to create new content in namespace {namespace} because it is being terminated"
        );
        let mut error = ApiError::forbidden(&kind.group, &kind.plural, name, &why);
        error.details.causes.push(Cause {
            reason: "NamespaceTerminating",
            message: format!("namespace {namespace} is being terminated"),
            field: "metadata.namespace".to_owned(),
        });
        Err(error)
    }

    /// The API error for a failed commit.
    pub(super) fn refusal(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        error: WriteError,
    ) -> ApiError {
        let (group, plural) = (kind.group.as_str(), kind.plural.as_str());
        match error {
            WriteError::Exists => {
                let mut error = ApiError::already_exists(group, plural, name);
                if self.read(kind, namespace, name).is_ok_and(|old| meta::deleting(&old.value)) {
                    error.message = format!("object is being deleted: {}", error.message);
                }
                error
            }
            WriteError::Missing => ApiError::not_found(group, plural, name),
            WriteError::Conflict { .. } => ApiError::conflict(group, plural, name, MODIFIED),
            WriteError::Claimed { claim, .. } => {
                ApiError::conflict(group, plural, name, &format!("{claim} is already allocated"))
            }
            WriteError::GuardFailed(Guard::Exists(key)) if &*key.resource == DEFINITIONS => {
                ApiError::no_page()
            }
            WriteError::GuardFailed(Guard::Exists(_)) => {
                ApiError::not_found("", "namespaces", namespace)
            }
            WriteError::GuardFailed(Guard::ResourceEmpty(_)) => ApiError::conflict(
                group,
                plural,
                name,
                "there still are objects of this kind; its deletion goes on when they are gone",
            ),
            WriteError::GuardFailed(Guard::NamespaceEmpty(namespace)) => {
                let contents = self.store.namespace_contents(&namespace);
                let contents: Vec<String> = contents
                    .iter()
                    .map(|(resource, count)| format!("{resource} has {count} resource instances"))
                    .collect();
                let why = format!(
                    "the namespace still has objects in it; its deletion goes on when they are gone: {}",
                    contents.join(", ")
                );
                ApiError::conflict(group, plural, name, &why)
            }
            WriteError::Storage(why) => ApiError::internal(why),
        }
    }
}

/// 422 for an invalid object, or 500 if the server could not allocate.
pub(super) fn refused(kind: &Kind, name: &str, errors: &[FieldError]) -> ApiError {
    if let [FieldError { kind: FieldErrorKind::Internal, detail, .. }] = errors {
        return ApiError::internal(detail);
    }
    // kube-apiserver's validation treats both Event kinds as one, without a group.
    let group = if kind.group == "events.k8s.io" { "" } else { &kind.group };
    ApiError::invalid(group, &kind.kind, name, errors)
}

/// The message for an update of a stale object.
pub(super) const MODIFIED: &str = "the object has been modified; please apply your changes to the \
                                   latest version and try again";

/// The store's key of a Namespace.
pub(super) fn namespace_key(namespace: &str) -> Key {
    Key { resource: "namespaces".into(), namespace: "".into(), name: namespace.into() }
}

/// The store's key of a custom kind's definition.
fn definition_key(kind: &Kind) -> Key {
    Key { resource: DEFINITIONS.into(), namespace: "".into(), name: kind.storage.clone() }
}

/// Sets the object's namespace to that of the path. An error if the object names another one.
pub(super) fn place(object: &mut Value, kind: &Kind, namespace: &str) -> Result<(), ApiError> {
    let given = meta::namespace(object);
    if !given.is_empty() && given != namespace {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    let metadata = meta::of(object);
    if kind.namespaced {
        metadata.insert("namespace".into(), json!(namespace));
    } else {
        metadata.remove("namespace");
    }
    if let Some(map) = object.as_object_mut() {
        map.insert("apiVersion".into(), json!(kind.api_version()));
        map.insert("kind".into(), json!(kind.kind));
    }
    Ok(())
}

/// Sets the fields of a new object that only the server writes.
fn stamp_new(object: &mut Value, kind: &Kind) -> Result<(), ApiError> {
    let metadata = meta::of(object);
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        metadata.remove(field);
    }
    metadata.insert("uid".into(), json!(new_uid()?));
    metadata.insert("creationTimestamp".into(), json!(timestamp()));
    if kind.rules.has_generation() {
        metadata.insert("generation".into(), json!(1));
    }
    Ok(())
}
