//! Carries out single writes and says how they ended. Every write names the version that it replaces, or
//! is an exclusive create, so that a second leader can do no harm; nothing is tried twice here.

pub(super) mod bindings;
pub(super) mod provisions;

mod addresses;

use super::certificates::{CertificatesWrite, Fetched};
use super::kinds::{Amend, KindId, KindShown, Kinds};
use super::observed::CookiesSeen;
use super::plans::PlanWrite;
use super::shown::{ClaimShown, CookiesShown, LoadBalancerShown, ServiceShown, Shown};
use crate::lease;
use crate::patience::answer;
use crate::random;
use bindings::{Step, StepReply};
use bowline_api::provisioned_objects::{Made, Wish};
use bowline_api::{LoadBalancer, Plan, convert, names};
use bowline_core::addresses::{HolderRef, WriteId};
use bowline_core::key::{ConsumerKind, ConsumerRef, ObjectKey};
use bowline_core::planner::Read;
use bowline_core::update::CookieSecret;
use bowline_core::{admission, binder};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Secret, Service};
use k8s_openapi::api::networking::v1::{Ingress, IngressLoadBalancerIngress};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{PartialObjectMeta, Request};
use kube::{Client, Error, Resource};
use provisions::Provisioned;
use serde_json::Value;
use std::sync::Arc;

/// A write, or a read that a write needs.
#[derive(Debug)]
pub(super) enum Write {
    /// The status of a Service or Ingress.
    Consumer(ConsumerKind, ObjectKey, Value),
    /// The status of a LoadBalancer.
    LoadBalancer(Arc<str>, Value),
    /// A Plan of the load balancer with this uid.
    Plan(PlanWrite, Arc<str>),
    /// A Secret of ours with certificates of the load balancer with this name and uid.
    Certificates(CertificatesWrite, Arc<str>, Arc<str>),
    /// The Secret with what cookies are signed with.
    Cookies(CookiesWrite),
    /// An Address object.
    Address(bowline_core::addresses::Write),
    /// Whether a holder of an address exists.
    Confirm(HolderRef),
    /// The status or the finalizers of an object of one of the kinds in `kinds`, under this version.
    Object(KindId, ObjectKey, Option<String>, Amend),
    /// A LoadBalancer, as the binder says.
    Binding(binder::Id, Arc<str>, Step),
    /// The seats on a LoadBalancer.
    Seats(admission::WriteId, Arc<str>, Step),
    /// Whether somebody still belongs on a load balancer, which names this claim.
    Leaver(ConsumerRef, Arc<str>, Option<ObjectKey>),
    /// A claim, as the binder says.
    BindClaim(binder::Id, ObjectKey, Step),
    /// The status of a claim.
    Claim(ObjectKey, Value),
    /// Whether something exists that seems to be gone.
    LookFor(binder::Subject),
    /// Takes the entries of these agents out of the Lease of a load balancer.
    Agents(Arc<str>, Vec<Arc<str>>),
    /// What serves a load balancer that a class made.
    Provision(Box<Wish>),
    /// The removal of that.
    Deprovision(binder::Id, Box<Made>),
    /// Certificates by hash, from one of the Secrets that should have each.
    Fetch(Vec<(Arc<str>, Vec<ObjectKey>)>),
}

/// A write of the Secret with what the cookies of a load balancer are signed with.
#[derive(Debug)]
pub(super) struct CookiesWrite {
    pub(super) load_balancer: Arc<str>,
    pub(super) uid: Arc<str>,
    /// The version that it changes. None: it is new.
    pub(super) version: Option<String>,
    /// Whether it gets another secret, or keeps the one that it has.
    pub(super) anew: bool,
}

/// What a write led to.
#[derive(Debug)]
pub(super) enum Reply {
    /// The status of a consumer or load balancer is now so.
    Status(Status),
    /// A Plan is written, under this version, or deleted.
    Plan(Box<PlanWrite>, Option<String>),
    /// A Secret is written, under this version, or deleted.
    Certificates(Box<CertificatesWrite>, Option<String>),
    /// The Secret with what cookies are signed with is now so.
    Cookies(Shown<CookiesShown>),
    /// How the write of an Address ended.
    Address(WriteId, bowline_core::addresses::Written),
    /// Whether a holder exists.
    Confirmed(HolderRef, bool),
    /// An object of one of the kinds in `kinds` is so now.
    Object(KindShown),
    /// How a write for the binder ended.
    Binding(binder::Id, StepReply),
    /// How a write of seats ended.
    Seats(admission::WriteId, StepReply),
    /// Somebody who seems to have left a load balancer, as it is. None: it is gone.
    Leaver(ConsumerRef, Arc<str>, Option<Box<Read>>),
    /// A claim is so now.
    Claim(Box<Shown<ClaimShown>>),
    /// The version of what was looked for. None: it is gone.
    LookedFor(binder::Subject, Option<bowline_core::objects::Version>),
    /// Entries of these agents are gone.
    Agents(Vec<Arc<str>>),
    /// How what serves a load balancer is.
    Provisioned(Box<Provisioned>),
    /// Whether all of it is gone, or why not.
    Deprovisioned(binder::Id, Result<bool, String>),
    /// Certificates that were found, and those that were not.
    Fetched(Fetched, Vec<(Arc<str>, Vec<ObjectKey>)>),
}

/// The status of an object after a write.
#[derive(Debug)]
pub(super) enum Status {
    Service(Shown<ServiceShown>),
    Ingress(Shown<Vec<IngressLoadBalancerIngress>>),
    LoadBalancer(Box<Shown<LoadBalancerShown>>),
}

/// Why a write did not happen.
#[derive(Debug)]
pub(super) enum Failure {
    /// Somebody else wrote first: what the watch shows next decides.
    Conflict,
    /// A Secret of another type, which no watch of ours shows, has the name of the one to be made.
    Taken,
    /// The object is gone.
    Gone,
    /// Anything else.
    Other(Error),
}

impl Failure {
    /// Whether the API has answered that it did not write. Without an answer it may have.
    pub(super) fn is_refusal(&self) -> bool {
        match self {
            Self::Conflict | Self::Taken | Self::Gone => true,
            Self::Other(Error::Api(status)) => (400..500).contains(&status.code),
            Self::Other(_) => false,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match &error {
            Error::Api(status) if status.code == 409 => Self::Conflict,
            Error::Api(status) if status.code == 404 => Self::Gone,
            _ => Self::Other(error),
        }
    }
}

/// Who writes.
#[derive(Clone)]
pub(super) struct Writer {
    pub(super) client: Client,
    pub(super) namespace: String,
}

impl Writer {
    /// Carries out one write.
    pub(super) async fn perform(&self, write: Write) -> Result<Reply, Failure> {
        match write {
            Write::Consumer(ConsumerKind::Service, key, patch) => {
                let api: Api<Service> = Api::namespaced(self.client.clone(), &key.namespace);
                let after = status(&api, &key.name, &patch).await?;
                Ok(Reply::Status(Status::Service(Shown::<ServiceShown>::of(&after))))
            }
            Write::Consumer(_, key, patch) => {
                let api: Api<Ingress> = Api::namespaced(self.client.clone(), &key.namespace);
                let after = status(&api, &key.name, &patch).await?;
                let shown = Shown::<Vec<IngressLoadBalancerIngress>>::of(&after);
                Ok(Reply::Status(Status::Ingress(shown)))
            }
            Write::LoadBalancer(name, patch) => {
                let api: Api<LoadBalancer> = Api::all(self.client.clone());
                let after = status(&api, &name, &patch).await?;
                let shown = Box::new(Shown::<LoadBalancerShown>::of(&after));
                Ok(Reply::Status(Status::LoadBalancer(shown)))
            }
            Write::Plan(write, uid) => self.plan(write, &uid).await,
            Write::Certificates(write, load_balancer, uid) => {
                self.certificates(write, &load_balancer, &uid).await
            }
            Write::Cookies(write) => self.cookies(&write).await,
            Write::Address(write) => Ok(self.address(write).await),
            Write::Confirm(holder) => {
                let exists = self.exists(&holder).await?;
                Ok(Reply::Confirmed(holder, exists))
            }
            Write::Object(kind, key, version, patch) => {
                let client = self.client.clone();
                let after = Kinds::amend(client, kind, &key, version.as_deref(), patch).await?;
                Ok(Reply::Object(after))
            }
            Write::Binding(id, name, step) => Ok(Reply::Binding(id, self.step(&name, step).await)),
            Write::Seats(id, name, step) => Ok(Reply::Seats(id, self.step(&name, step).await)),
            Write::Leaver(consumer, lb, claim) => self.leaver(consumer, lb, claim).await,
            Write::BindClaim(id, key, step) => Ok(self.bind_claim(id, &key, step).await),
            Write::Claim(key, patch) => self.claim(&key, patch).await,
            Write::LookFor(subject) => self.look_for(subject).await,
            Write::Agents(lb, dead) => {
                let api: Api<Lease> = Api::namespaced(self.client.clone(), &self.namespace);
                let patch = lease::removal(dead.iter().map(|agent| &**agent));
                let (name, patch) = (names::agent_lease(&lb), Patch::Merge(&patch));
                answer(api.patch(&name, &patch_params(), &patch)).await?;
                Ok(Reply::Agents(dead))
            }
            Write::Provision(wish) => Ok(self.provision(*wish).await),
            Write::Deprovision(id, made) => Ok(self.deprovision(id, *made).await),
            Write::Fetch(wanted) => Ok(self.fetch(wanted).await?),
        }
    }

    /// A Plan may be large and the answer is all of it again: only its metadata is read.
    async fn plan(&self, write: PlanWrite, uid: &str) -> Result<Reply, Failure> {
        let api: Api<Plan> = Api::namespaced(self.client.clone(), &self.namespace);
        if write.is_deletion() {
            delete(&api, &write.name, write.version.clone()).await?;
            return Ok(Reply::Plan(Box::new(write), None));
        }
        let body = serde_json::to_vec(&write.object(uid)).map_err(Error::SerdeError)?;
        let request = Request::new(api.resource_url());
        let request = match write.version {
            None => request.create(&params(), body),
            Some(_) => request.replace(&write.name, &params(), body),
        };
        let request = request.map_err(Error::BuildRequest)?;
        let after: PartialObjectMeta<Plan> = answer(self.client.request(request)).await?;
        Ok(Reply::Plan(Box::new(write), after.metadata.resource_version))
    }

    async fn certificates(
        &self,
        write: CertificatesWrite,
        load_balancer: &str,
        uid: &str,
    ) -> Result<Reply, Failure> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        if write.is_deletion() {
            delete(&api, &write.name, write.version.clone()).await?;
            return Ok(Reply::Certificates(Box::new(write), None));
        }
        let mut metadata = owned(&write.name, load_balancer, uid);
        metadata.annotations = Some(write.annotations());
        let after = match &write.version {
            None => {
                let secret = Secret {
                    metadata,
                    type_: Some(names::SECRET_TYPE_CERTIFICATES.to_owned()),
                    data: Some(convert::certificates_data(&write.added)),
                    ..Secret::default()
                };
                make(&api, &secret).await?
            }
            Some(version) => {
                let patch = write.patch(version, &metadata);
                answer(api.patch(&write.name, &patch_params(), &Patch::Merge(&patch))).await?
            }
        };
        Ok(Reply::Certificates(Box::new(write), after.metadata.resource_version))
    }

    async fn cookies(&self, write: &CookiesWrite) -> Result<Reply, Failure> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let name = names::cookies_secret(&write.load_balancer);
        let mut metadata = owned(&name, &write.load_balancer, &write.uid);
        metadata.resource_version.clone_from(&write.version);
        let anew = write.anew.then(random::secret).transpose();
        let anew = anew
            .map_err(|error| Error::Service(format!("cannot get random bytes: {error}").into()))?;
        let secret = Secret {
            metadata,
            type_: Some(names::SECRET_TYPE_COOKIES.to_owned()),
            data: anew.map(|secret| convert::cookie_secret_data(&CookieSecret(secret))),
            ..Secret::default()
        };
        let after = match write.version {
            None => make(&api, &secret).await?,
            Some(_) => answer(api.patch(&name, &patch_params(), &Patch::Merge(&secret))).await?,
        };
        Ok(Reply::Cookies(CookiesSeen::of(&after).shown))
    }

    async fn fetch(&self, wanted: Vec<(Arc<str>, Vec<ObjectKey>)>) -> Result<Reply, Error> {
        let mut fetched = Fetched::new();
        let mut failed = None;
        for (hash, places) in &wanted {
            for key in places {
                let api: Api<Secret> = Api::namespaced(self.client.clone(), &key.namespace);
                let secret = match answer(api.get_opt(&key.name)).await {
                    Ok(Some(secret)) => secret,
                    Ok(None) => continue,
                    Err(error) => {
                        failed = Some(error);
                        continue;
                    }
                };
                let (read, certificate) = convert::tls_secret(&secret);
                if read.certificate.is_ok_and(|it| it.hash == *hash)
                    && let Some(certificate) = certificate
                {
                    fetched.insert(Arc::clone(hash), certificate);
                    break;
                }
            }
        }
        // What could be read is used; the rest is looked for again.
        match failed {
            Some(error) if fetched.is_empty() => return Err(error),
            Some(error) => tracing::warn!(%error, "cannot read some certificates"),
            None => {}
        }
        let missed = wanted.into_iter().filter(|(hash, _)| !fetched.contains_key(hash)).collect();
        Ok(Reply::Fetched(fetched, missed))
    }
}

/// Makes a Secret of ours.
async fn make(api: &Api<Secret>, secret: &Secret) -> Result<Secret, Failure> {
    let failure = match answer(api.create(&params(), secret)).await {
        Ok(made) => return Ok(made),
        Err(error) => Failure::from(error),
    };
    let name = secret.metadata.name.as_deref().unwrap_or_default();
    if matches!(failure, Failure::Conflict)
        && let Ok(Some(found)) = answer(api.get_opt(name)).await
        && found.type_ != secret.type_
    {
        return Err(Failure::Taken);
    }
    Err(failure)
}

async fn status<K>(api: &Api<K>, name: &str, patch: &Value) -> Result<K, Error>
where
    K: Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    answer(api.patch_status(name, &patch_params(), &Patch::Merge(patch))).await
}

async fn delete<K>(api: &Api<K>, name: &str, version: Option<String>) -> Result<(), Error>
where
    K: Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let preconditions = Some(Preconditions { resource_version: version, uid: None });
    let params = DeleteParams { preconditions, ..DeleteParams::default() };
    match answer(api.delete(name, &params)).await {
        Ok(_) => Ok(()),
        Err(Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error),
    }
}

pub(super) fn params() -> PostParams {
    PostParams {
        field_manager: Some(names::MANAGER_CONTROLLER.to_owned()),
        ..PostParams::default()
    }
}

pub(super) fn patch_params() -> PatchParams {
    PatchParams {
        field_manager: Some(names::MANAGER_CONTROLLER.to_owned()),
        ..PatchParams::default()
    }
}

/// The metadata of an object that belongs to a load balancer and goes with it.
pub(super) fn owned(name: &str, load_balancer: &str, uid: &str) -> ObjectMeta {
    let label = names::load_balancer_label(load_balancer);
    ObjectMeta {
        name: Some(name.to_owned()),
        labels: Some([(names::LABEL_LOAD_BALANCER.to_owned(), label)].into()),
        owner_references: Some(vec![OwnerReference {
            api_version: LoadBalancer::api_version(&()).into_owned(),
            kind: LoadBalancer::kind(&()).into_owned(),
            name: load_balancer.to_owned(),
            uid: uid.to_owned(),
            controller: Some(true),
            block_owner_deletion: None,
        }]),
        ..ObjectMeta::default()
    }
}
