//! DELETE: preconditions, grace periods, finalizers and propagation. An object with finalizers or a
//! grace period is marked; any other object is removed by the commit. The HTTP shell calls it.

use super::create::MODIFIED;
use super::list::ListOptions;
use super::update::{is_namespace, released};
use crate::builtins::definitions::enforced;
use crate::error::{ApiError, FieldError};
use crate::http::query::Query;
use crate::kind::Kind;
use crate::meta;
use crate::schema::{Node, Schema};
use crate::server::{Server, key, written};
use crate::store::{Expect, WriteError};
use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use std::sync::{Arc, LazyLock};

/// What happens to an object's dependents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Propagation {
    /// They are collected after their owner is deleted.
    #[default]
    Background,
    /// They lose the reference and stay.
    Orphan,
}

/// How to delete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// The grace period of a Pod in seconds.
    pub grace: Option<i64>,
    /// What happens to dependents.
    pub propagation: Propagation,
    /// Delete only the object with this uid.
    pub uid: Option<String>,
    /// Delete only the object at this version.
    pub resource_version: Option<String>,
}

/// The result of a deletion.
#[derive(Clone, Debug, PartialEq)]
pub enum Deleted {
    /// The object is removed. These are its last bytes.
    Gone(Bytes),
    /// The object is marked as being deleted, and something still holds it.
    Marked(Bytes),
}

/// The finalizer that the garbage collector removes after it has removed the references.
const ORPHAN: &str = "orphan";

/// The finalizer of a CRD that is removed when its last object is deleted.
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

const MOST_TRIES: usize = 30;

/// Ten years. The end of a longer period could not be written.
const LONGEST_GRACE: i64 = 10 * 365 * 24 * 60 * 60;

impl DeleteOptions {
    /// Reads the body or, without a body, the query. As in kube-apiserver, the query is ignored if there
    /// is a body, and unknown members of the body are dropped silently, whatever `fieldValidation` says.
    pub fn read(query: &Query, body: Option<&Value>) -> Result<Self, ApiError> {
        let empty = json!({});
        let unasked = Query::default();
        let (query, body) = match body {
            Some(body) => (&unasked, body),
            None => (query, &empty),
        };
        if let Some(kind) = body["kind"].as_str()
            && !kind.is_empty()
            && kind != "DeleteOptions"
        {
            let version = body["apiVersion"].as_str().filter(|version| !version.is_empty());
            return Err(ApiError::bad_request(format!(
                "no kind {kind:?} is registered for version {:?}",
                version.unwrap_or("v1")
            )));
        }
        if let Some(error) = schema().type_errors(body, "DeleteOptions").first() {
            return Err(ApiError::bad_request(error.to_string()));
        }
        if body["dryRun"].as_array().is_some_and(|list| !list.is_empty()) {
            return Err(ApiError::not_implemented("dry-run (dryRun in DeleteOptions)"));
        }
        if body["ignoreStoreReadErrorWithClusterBreakingPotential"] == true {
            return Err(ApiError::not_implemented(
                "unsafe deletion (ignoreStoreReadErrorWithClusterBreakingPotential in DeleteOptions)",
            ));
        }
        let policy = body["propagationPolicy"].as_str().or(query.propagation_policy.as_deref());
        let orphan = body["orphanDependents"].as_bool().or(query.orphan_dependents);
        if policy.is_some() && orphan.is_some() {
            let error = FieldError::invalid(
                "propagationPolicy",
                &json!(policy),
                "orphanDependents and deletionPropagation cannot be both set",
            );
            return Err(ApiError::invalid("meta.k8s.io", "DeleteOptions", "", &[error]));
        }
        let propagation = match (policy, orphan) {
            (Some("Orphan"), _) | (None, Some(true)) => Propagation::Orphan,
            (Some("Background") | None, _) => Propagation::Background,
            (Some("Foreground"), _) => {
                return Err(ApiError::not_implemented(
                    "foreground deletion (propagationPolicy=Foreground)",
                ));
            }
            (Some(other), _) => {
                let error = FieldError::not_supported(
                    "propagationPolicy",
                    &json!(other),
                    &["Foreground", "Background", "Orphan", "nil"],
                );
                return Err(ApiError::invalid("meta.k8s.io", "DeleteOptions", "", &[error]));
            }
        };
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let grace = body["gracePeriodSeconds"].as_i64().or(query.grace_period_seconds);
        Ok(Self {
            grace: grace.map(|seconds| seconds.clamp(-1, LONGEST_GRACE)),
            propagation,
            uid: text(&body["preconditions"]["uid"]),
            resource_version: text(&body["preconditions"]["resourceVersion"]),
        })
    }

    fn check(&self, kind: &Kind, object: &Value) -> Result<(), ApiError> {
        let mismatch = |what: &str, wanted: &str, found: &str, maybe: &str| {
            let why = format!(
                "the {what} in the precondition ({wanted}) does not match the {what} in record \
                 ({found}). The object might have been {maybe}"
            );
            Err(ApiError::conflict(&kind.group, &kind.kind, meta::name(object), &why))
        };
        let (uid, version) = (meta::uid(object), meta::text(object, "resourceVersion"));
        match (&self.uid, &self.resource_version) {
            (Some(wanted), _) if wanted != uid => {
                mismatch("UID", wanted, uid, "deleted and then recreated")
            }
            (_, Some(wanted)) if wanted != version => {
                mismatch("ResourceVersion", wanted, version, "modified")
            }
            _ => Ok(()),
        }
    }
}

impl Server {
    /// DELETE of one object.
    pub async fn delete(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Deleted, ApiError> {
        let at = key(kind, namespace, name);
        for _ in 0..MOST_TRIES {
            let old = self.read(kind, namespace, name)?;
            options.check(kind, &old.value)?;
            if is_namespace(kind) && ["default", "kube-system", "kube-public"].contains(&name) {
                return Err(ApiError::forbidden(
                    "",
                    "namespaces",
                    name,
                    "this namespace may not be deleted",
                ));
            }
            let mut object = old.value.clone();
            mark(kind, &mut object, options, Timestamp::now());
            let expect = Expect::Revision(old.revision);
            let result = if released(kind, &object) {
                let gone = self.remove(kind, at.clone(), expect).await;
                gone.map(|bytes| Deleted::Gone(last_words(kind, &object, bytes)))
            } else if object == old.value {
                return Ok(Deleted::Marked(old.bytes));
            } else {
                // The object is already in the stored version, so nothing has to be converted.
                let claims = kind.rules.claims(&object);
                let change = crate::store::Change::Put { object, claims };
                let write =
                    crate::store::Write { key: at.clone(), expect, change, guards: Vec::new() };
                self.store.write(write).await.map(|done| Deleted::Marked(done.entry.bytes))
            };
            match result {
                Ok(deleted) => return Ok(deleted),
                Err(WriteError::Conflict { .. }) => {}
                Err(error) => return Err(self.refusal(kind, namespace, name, error)),
            }
        }
        Err(ApiError::conflict(&kind.group, &kind.plural, name, MODIFIED))
    }

    /// DELETE of a collection: every object that the selectors match. Returns the objects.
    pub async fn delete_collection(
        &self,
        kind: &Kind,
        namespace: &str,
        list: &ListOptions,
        options: &DeleteOptions,
    ) -> Result<(u64, Vec<Bytes>), ApiError> {
        let listed = self.list(kind, namespace, list).await?;
        for (key, _) in &listed.items {
            match self.delete(kind, &key.namespace, &key.name, options).await {
                Ok(_) => {}
                // Another client deleted the object first.
                Err(error) if error.code == 404 => {}
                Err(error) => return Err(error),
            }
        }
        Ok((listed.revision, listed.items.into_iter().map(|(_, bytes)| bytes).collect()))
    }
}

/// Marks an object as being deleted.
fn mark(kind: &Kind, object: &mut Value, options: &DeleteOptions, now: Timestamp) {
    let grace = kind.rules.grace(object, options.grace);
    let metadata = meta::of(object);
    if metadata.get("deletionTimestamp").is_none() {
        if options.propagation == Propagation::Orphan {
            add_finalizer(metadata, ORPHAN);
        }
        if Server::defines_kinds(kind) {
            // The generation of a definition counts only its author's changes.
            add_finalizer(metadata, CLEANUP);
        } else if let Some(generation) = metadata.get("generation").and_then(Value::as_i64) {
            metadata.insert("generation".into(), json!(generation.saturating_add(1)));
        }
    } else {
        // A second deletion may only shorten the grace period.
        let current = metadata.get("deletionGracePeriodSeconds").and_then(Value::as_i64);
        if current.unwrap_or(0) <= grace {
            return;
        }
    }
    let at = now.checked_add(SignedDuration::from_secs(grace)).unwrap_or(Timestamp::MAX);
    metadata.insert("deletionTimestamp".into(), json!(written(at)));
    if is_namespace(kind) {
        meta::child(object, "status").insert("phase".into(), json!("Terminating"));
    } else if Server::defines_kinds(kind) {
        terminating(object, now);
    } else {
        metadata.insert("deletionGracePeriodSeconds".into(), json!(grace));
    }
}

/// The condition of a CRD that waits until its objects are deleted.
fn terminating(definition: &mut Value, now: Timestamp) {
    let status = meta::child(definition, "status");
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    if let Some(list) = conditions.as_array_mut() {
        list.push(json!({
            "type": "Terminating", "status": "True", "reason": "InstanceDeletionPending",
            "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin \
                        soon",
            "lastTransitionTime": written(now),
        }));
    }
}

/// The schema of DeleteOptions.
fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        let root = enforced("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions");
        crate::schema::compile(&root.unwrap_or_default(), &enforced)
            .unwrap_or_else(|_| Schema::new(Arc::from([Node::default()]), 0))
    });
    &SCHEMA
}

fn add_finalizer(metadata: &mut serde_json::Map<String, Value>, finalizer: &str) {
    let finalizers = metadata.entry("finalizers").or_insert_with(|| json!([]));
    if let Some(list) = finalizers.as_array_mut()
        && !list.iter().any(|name| name == finalizer)
    {
        list.push(json!(finalizer));
    }
}

/// The object in the answer to a completed deletion: a Pod with the mark of its deletion, other objects
/// as they were.
fn last_words(kind: &Kind, marked: &Value, bytes: Bytes) -> Bytes {
    if !(kind.group.is_empty() && kind.kind == "Pod") {
        return bytes;
    }
    let Ok(mut object) = serde_json::from_slice::<Value>(&bytes) else { return bytes };
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "generation"] {
        if let Some(value) = marked["metadata"].get(field) {
            meta::of(&mut object).insert(field.to_owned(), value.clone());
        }
    }
    Bytes::from(object.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &str, body: Value) -> Result<DeleteOptions, ApiError> {
        DeleteOptions::read(&Query::parse(query).unwrap(), Some(&body))
    }

    #[test]
    fn unknown_members_are_dropped_in_silence_as_on_a_real_server() {
        let plain = DeleteOptions::default();
        for query in ["", "fieldValidation=Strict"] {
            assert_eq!(read(query, json!({"propagationPolice": "Orphan"})), Ok(plain.clone()));
        }
    }

    #[test]
    fn beside_a_body_the_query_counts_for_nothing() {
        let query = "propagationPolicy=Orphan&gracePeriodSeconds=5";
        assert_eq!(read(query, json!({})), Ok(DeleteOptions::default()));
        let options = DeleteOptions::read(&Query::parse(query).unwrap(), None).unwrap();
        assert_eq!((options.propagation, options.grace), (Propagation::Orphan, Some(5)));
    }

    #[test]
    fn what_is_no_delete_options_is_refused() {
        for (body, code, why) in [
            (
                json!({"kind": "ConfigMap", "apiVersion": "v1"}),
                400,
                "no kind \"ConfigMap\" is registered for version \"v1\"",
            ),
            (json!({"propagationPolicy": 5}), 400, "cannot unmarshal number"),
            (
                json!({"ignoreStoreReadErrorWithClusterBreakingPotential": true}),
                501,
                "ignoreStoreReadErrorWithClusterBreakingPotential",
            ),
        ] {
            let error = read("", body.clone()).unwrap_err();
            assert_eq!(error.code, code, "{body}: {error}");
            assert!(error.message.contains(why), "{body}: {error}");
        }
        assert!(read("", json!({"kind": "DeleteOptions", "apiVersion": "v2"})).is_ok());
    }

    #[test]
    fn extreme_graces_are_brought_within_reason() {
        let grace = |seconds: i64| read("", json!({"gracePeriodSeconds": seconds})).unwrap().grace;
        assert_eq!((grace(i64::MAX), grace(i64::MIN)), (Some(LONGEST_GRACE), Some(-1)));
    }
}
