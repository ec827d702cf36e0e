//! Carries out the binder's and admission's writes of LoadBalancers and claims, and the reads that confirm a
//! deletion or a leave. Each write is an exclusive create or names the version that it replaces. After a
//! conflict the current object is read and reported, never overwritten. `Writer::perform` calls it.

use super::super::shown::{ClaimShown, LoadBalancerShown, Shown};
use super::{Failure, Reply, Writer, params, patch_params};
use crate::api_timeout::answer;
use crate::causes::causes;
use bowline_api::{LoadBalancer, LoadBalancerClaim, convert};
use bowline_core::binder::{self, Id, Subject};
use bowline_core::key::{ConsumerKind, ConsumerRef, ObjectKey};
use bowline_core::objects::{Ingress, Version};
use bowline_core::planner::{Object, Read};
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::networking::v1::{self as networking, IngressClass};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DeleteParams, Patch, Preconditions};
use kube::{Error, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt::Debug;
use std::sync::Arc;

/// An operation on a LoadBalancer or a claim.
#[derive(Debug)]
pub(in crate::controller) enum Step {
    /// Create it. If it exists, that is a conflict.
    Create(Box<LoadBalancer>),
    /// Patch it.
    Amend(Value),
    /// Patch its status.
    Status(Value),
    /// Delete it, if uid and version are still these.
    Delete {
        /// Its uid.
        uid: Arc<str>,
        /// Its version.
        version: Version,
    },
}

/// A LoadBalancer or claim as it was read.
#[derive(Debug)]
pub(in crate::controller) enum Current {
    LoadBalancer(Box<Shown<LoadBalancerShown>>),
    Claim(Box<Shown<ClaimShown>>),
}

impl Current {
    /// The object in the binder's terms.
    pub(in crate::controller) fn object(&self) -> Box<binder::Object> {
        Box::new(match self {
            Self::LoadBalancer(shown) => binder::Object::LoadBalancer(shown.status.known.clone()),
            Self::Claim(shown) => binder::Object::Claim(shown.status.known.clone()),
        })
    }
}

/// The result of a step.
#[derive(Debug)]
pub(in crate::controller) enum StepReply {
    /// It succeeded; this is the object now. None: it is deleted.
    Ok(Option<Current>),
    /// The object has changed; this is the object now. None: it does not exist.
    Conflict(Option<Current>),
    /// It failed, or its result is unknown.
    Failed,
    /// The API refused it with this message.
    Refused(Arc<str>),
}

impl StepReply {
    /// The result in the binder's terms.
    pub(in crate::controller) fn written(&self) -> binder::Written {
        let object = |found: &Option<Current>| found.as_ref().map(Current::object);
        match self {
            Self::Ok(found) => binder::Written::Ok(object(found)),
            Self::Conflict(found) => binder::Written::Conflict(object(found)),
            Self::Failed => binder::Written::Failed,
            Self::Refused(why) => binder::Written::Refused(Arc::clone(why)),
        }
    }
}

impl Writer {
    /// Carries out a step on a LoadBalancer.
    pub(in crate::controller) async fn step(&self, name: &str, step: Step) -> StepReply {
        let api: Api<LoadBalancer> = Api::all(self.client.clone());
        let shown =
            |it: &LoadBalancer| Current::LoadBalancer(Box::new(Shown::<LoadBalancerShown>::of(it)));
        let done = match step {
            Step::Create(object) => answer(api.create(&params(), &object)).await.map(Some),
            step => amend(&api, name, step).await,
        };
        settled(&api, name, done, shown).await
    }

    pub(in crate::controller) async fn bind_claim(
        &self,
        id: Id,
        key: &ObjectKey,
        step: Step,
    ) -> Reply {
        let api: Api<LoadBalancerClaim> = Api::namespaced(self.client.clone(), &key.namespace);
        let shown = |it: &LoadBalancerClaim| Current::Claim(Box::new(Shown::<ClaimShown>::of(it)));
        let done = amend(&api, &key.name, step).await;
        Reply::Binding(id, settled(&api, &key.name, done, shown).await)
    }

    /// Patches the status of a claim.
    pub(in crate::controller) async fn claim(
        &self,
        key: &ObjectKey,
        patch: Value,
    ) -> Result<Reply, Failure> {
        let api: Api<LoadBalancerClaim> = Api::namespaced(self.client.clone(), &key.namespace);
        let after = amend(&api, &key.name, Step::Status(patch)).await?.ok_or(Failure::Gone)?;
        Ok(Reply::Claim(Box::new(Shown::<ClaimShown>::of(&after))))
    }

    /// Reads a Service or Ingress that seems to have left a load balancer, with all that decides whether it
    /// still belongs there; the load balancer is bound to this claim. The answer has no object if the
    /// consumer does not exist or has another uid.
    pub(in crate::controller) async fn leaver(
        &self,
        consumer: ConsumerRef,
        lb: Arc<str>,
        claim: Option<ObjectKey>,
    ) -> Result<Reply, Failure> {
        let (client, namespace) = (self.client.clone(), &*consumer.namespace);
        let same = |meta: &ObjectMeta| meta.uid.as_deref() == Some(&*consumer.uid);
        let found = match consumer.kind {
            ConsumerKind::Service => {
                let api: Api<Service> = Api::namespaced(client, namespace);
                let found = answer(api.get_opt(&consumer.name)).await?;
                let found = found.filter(|it| same(&it.metadata));
                found.map(|it| Object::Service(convert::service(&it)))
            }
            ConsumerKind::Ingress => {
                let api: Api<networking::Ingress> = Api::namespaced(client, namespace);
                let found = answer(api.get_opt(&consumer.name)).await?;
                let found = found.filter(|it| same(&it.metadata));
                found.map(|it| Object::Ingress(convert::ingress(&it)))
            }
            ConsumerKind::LoadBalancer => None,
        };
        let Some(found) = found else { return Ok(Reply::Leaver(consumer, lb, None)) };
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let namespace = answer(namespaces.get_opt(namespace)).await?;
        let class = match &found {
            Object::Ingress(Ingress { class: Some(class), .. }) => {
                let classes: Api<IngressClass> = Api::all(self.client.clone());
                answer(classes.get_opt(class)).await?
            }
            _ => None,
        };
        let claim = match claim {
            Some(claim) => {
                let claims: Api<LoadBalancerClaim> =
                    Api::namespaced(self.client.clone(), &claim.namespace);
                answer(claims.get_opt(&claim.name)).await?
            }
            None => None,
        };
        let read = Read {
            consumer: found,
            namespace: namespace.as_ref().map(convert::namespace),
            class: class.as_ref().map(convert::ingress_class),
            claim: claim.as_ref().map(convert::claimed),
        };
        Ok(Reply::Leaver(consumer, lb, Some(Box::new(read))))
    }

    /// Reads a claim or load balancer that seems to be deleted.
    pub(in crate::controller) async fn look_for(&self, subject: Subject) -> Result<Reply, Failure> {
        let version = match &subject {
            Subject::Claim { key, uid, .. } => {
                let api: Api<LoadBalancerClaim> =
                    Api::namespaced(self.client.clone(), &key.namespace);
                let found = answer(api.get_opt(&key.name)).await?;
                found.filter(|it| it.uid().as_deref() == Some(&**uid)).map(|it| version(&it))
            }
            Subject::LoadBalancer { name, .. } => {
                let api: Api<LoadBalancer> = Api::all(self.client.clone());
                answer(api.get_opt(name)).await?.map(|it| version(&it))
            }
        };
        Ok(Reply::LookedFor(subject, version))
    }
}

fn version(object: &impl Resource) -> Version {
    Version(object.meta().resource_version.as_deref().unwrap_or_default().into())
}

/// Carries out a step on an existing object, and returns the object. None: it is deleted.
async fn amend<K>(api: &Api<K>, name: &str, step: Step) -> Result<Option<K>, Error>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    match step {
        Step::Amend(patch) => {
            answer(api.patch(name, &patch_params(), &Patch::Merge(&patch))).await.map(Some)
        }
        Step::Status(patch) => {
            answer(api.patch_status(name, &patch_params(), &Patch::Merge(&patch))).await.map(Some)
        }
        Step::Delete { uid, version } => {
            let preconditions = Preconditions {
                resource_version: Some(version.0.to_string()),
                uid: Some(uid.to_string()),
            };
            let params =
                DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
            let deleted = answer(api.delete(name, &params)).await?;
            // While finalizers hold the object, the answer still contains it.
            Ok(deleted.left())
        }
        Step::Create(_) => Ok(None),
    }
}

/// The result of a step. After a conflict it reads the current object.
async fn settled<K>(
    api: &Api<K>,
    name: &str,
    done: Result<Option<K>, Error>,
    shown: impl Fn(&K) -> Current,
) -> StepReply
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let error = match done {
        Ok(after) => return StepReply::Ok(after.as_ref().map(shown)),
        Err(error) => error,
    };
    let conflict = matches!(&error, Error::Api(status) if matches!(status.code, 404 | 409));
    if conflict && let Ok(found) = answer(api.get_opt(name)).await {
        return StepReply::Conflict(found.as_ref().map(shown));
    }
    tracing::warn!(name, error = causes(&error), "cannot write what binds a claim");
    match error {
        Error::Api(status) if !conflict => StepReply::Refused(status.message.as_str().into()),
        _ => StepReply::Failed,
    }
}
