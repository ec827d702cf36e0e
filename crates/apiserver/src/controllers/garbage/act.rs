//! Verifies the index's findings against the API and acts on them. Every write names the object's uid,
//! and its revision if the decision depends on it.

use super::super::catalog::{self, Meta, Served};
use super::super::shell::{Act, Outcome};
use super::{Action, Index, Lookup, ORPHAN, Seen, Target, Uid};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::core::ObjectMeta;
use kube::{Api, Client};
use serde_json::{Value, json};
use std::collections::HashSet;

/// What happens to an object.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    Keep,
    /// Keep only these references.
    Cut(Vec<OwnerReference>),
    Delete,
}

/// Judges an object by its references. `gone`: the uids of owners that do not exist. An owner that was
/// not looked for counts as living.
pub(super) fn judge(references: Vec<OwnerReference>, gone: &HashSet<Uid>) -> Verdict {
    let total = references.len();
    let living: Vec<_> =
        references.into_iter().filter(|reference| !gone.contains(&*reference.uid)).collect();
    match living.len() {
        living if living == total => Verdict::Keep,
        0 => Verdict::Delete,
        _ => Verdict::Cut(living),
    }
}

#[derive(Clone)]
pub(super) struct Actor(pub(super) Client);

impl Act<Index> for Actor {
    async fn act(&self, action: Action) -> Result<Outcome<Seen>, kube::Error> {
        match action {
            Action::Collect { object, owners } => self.collect(object, owners).await?,
            Action::Orphan { object, kinds } => {
                for kind in kinds.iter() {
                    self.cut_loose(kind, &object).await?;
                }
                self.release(&object).await?;
            }
        }
        Ok(Outcome::Done(Vec::new()))
    }
}

impl Actor {
    fn api(&self, target: &Target) -> Api<Meta> {
        target.served.api(&self.0, &target.namespace)
    }

    /// The metadata of the object, if it still exists with this uid.
    async fn live(&self, target: &Target) -> Result<Option<ObjectMeta>, kube::Error> {
        let live = self.api(target).get_opt(&target.name).await?.map(|object| object.metadata);
        Ok(live.filter(|meta| meta.uid.as_deref() == Some(&*target.uid)))
    }

    async fn collect(&self, object: Target, owners: Vec<(Uid, Lookup)>) -> Result<(), kube::Error> {
        let Some(meta) = self.live(&object).await? else { return Ok(()) };
        if meta.deletion_timestamp.is_some() {
            return Ok(());
        }
        let mut gone = HashSet::new();
        for (uid, lookup) in owners {
            let lives = match lookup {
                Lookup::Gone => false,
                Lookup::At(owner) => self.live(&owner).await?.is_some(),
            };
            if !lives {
                gone.insert(uid);
            }
        }
        let api = self.api(&object);
        match judge(meta.owner_references.unwrap_or_default(), &gone) {
            Verdict::Keep => {}
            Verdict::Cut(living) => {
                let change = json!({"ownerReferences": living});
                write(&api, &object.name, meta.uid, meta.resource_version, change).await?;
            }
            Verdict::Delete => {
                let orphan = meta.finalizers.iter().flatten().any(|one| one == ORPHAN);
                let how = if orphan { DeleteParams::orphan() } else { DeleteParams::background() };
                let this = Preconditions { uid: meta.uid, resource_version: meta.resource_version };
                tracing::debug!(name = object.name, namespace = object.namespace,
                    resource = %object.served.id, "owners gone, deleting");
                let deleted = api.delete(&object.name, &how.preconditions(this)).await;
                catalog::gone_is_fine(deleted)?;
            }
        }
        Ok(())
    }

    /// Removes the references to an owner from its dependents of one type. They are listed again: a
    /// dependent that the index has not observed yet would otherwise be deleted after its owner.
    async fn cut_loose(&self, kind: &Served, owner: &Target) -> Result<(), kube::Error> {
        if !kind.namespaced && !owner.namespace.is_empty() {
            return Ok(());
        }
        let mut dependents = Vec::new();
        let owned = |meta: &ObjectMeta| {
            let mut references = meta.owner_references.iter().flatten();
            references.any(|reference| *reference.uid == *owner.uid)
        };
        let everywhere = kind.api(&self.0, &owner.namespace);
        let listed = catalog::list(&everywhere, |meta| {
            if owned(&meta) {
                dependents.push(meta)
            }
        });
        catalog::gone_is_fine(listed.await)?;
        for meta in dependents {
            let references = meta.owner_references.into_iter().flatten();
            let kept: Vec<_> = references.filter(|one| *one.uid != *owner.uid).collect();
            let api = kind.api(&self.0, &meta.namespace.unwrap_or_default());
            let name = meta.name.unwrap_or_default();
            let change = json!({"ownerReferences": kept});
            let written = write(&api, &name, meta.uid, meta.resource_version, change).await;
            catalog::gone_is_fine(written)?;
        }
        Ok(())
    }

    async fn release(&self, object: &Target) -> Result<(), kube::Error> {
        let Some(meta) = self.live(object).await? else { return Ok(()) };
        let finalizers = meta.finalizers.into_iter().flatten();
        let kept: Vec<String> = finalizers.filter(|finalizer| finalizer != ORPHAN).collect();
        let change = json!({"finalizers": kept});
        write(&self.api(object), &object.name, meta.uid, meta.resource_version, change).await
    }
}

/// Changes the metadata of exactly this object at exactly this revision.
async fn write(
    api: &Api<Meta>,
    name: &str,
    uid: Option<String>,
    version: Option<String>,
    mut change: Value,
) -> Result<(), kube::Error> {
    change["uid"] = json!(uid);
    change["resourceVersion"] = json!(version);
    let patch = Patch::Merge(json!({"metadata": change}));
    api.patch(name, &PatchParams::default(), &patch).await?;
    Ok(())
}
