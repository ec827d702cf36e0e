//! Carries out single writes and returns their results. Every write names the version that it replaces,
//! or is an exclusive create, so a second leader can do no harm. It decides nothing and retries nothing;
//! the turn calls it.

pub(super) mod bindings;
pub(super) mod provisions;

mod addresses;

use super::certificates::{CertificatesWrite, Fetched};
use super::kinds::{Amend, KindId, KindShown, Kinds};
use super::observed::{AddressSeen, CookiesSeen};
use super::plans::PlanWrite;
use super::shown::{ClaimShown, CookiesShown, LoadBalancerShown, ServiceShown, Shown};
use crate::api_timeout::answer;
use crate::lease;
use crate::random;
use bindings::{Step, StepReply};
use bowline_api::address::{Address, address_name};
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
use std::net::IpAddr;
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
    /// A certificate Secret of the load balancer with this name and uid.
    Certificates(CertificatesWrite, Arc<str>, Arc<str>),
    /// A cookie Secret.
    Cookies(CookiesWrite),
    /// An Address object.
    Address(bowline_core::addresses::Write),
    /// What the status of an Address says of its announcement.
    Announced(IpAddr, Value),
    /// A read that tells whether a holder of an address exists.
    Confirm(HolderRef),
    /// The status or the finalizers of an object of one of the kinds in `kinds`, with the version that
    /// it replaces.
    Object(KindId, ObjectKey, Option<String>, Amend),
    /// A write of a LoadBalancer for the binder.
    Binding(binder::Id, Arc<str>, Step),
    /// The seats on a LoadBalancer.
    Seats(admission::WriteId, Arc<str>, Step),
    /// A read that tells whether a consumer still belongs on a load balancer, which is bound to this
    /// claim.
    Leaver(ConsumerRef, Arc<str>, Option<ObjectKey>),
    /// A write of a claim for the binder.
    BindClaim(binder::Id, ObjectKey, Step),
    /// The status of a claim.
    Claim(ObjectKey, Value),
    /// A read that tells whether a claim or load balancer that seems to be deleted still exists.
    LookFor(binder::Subject),
    /// Removes the entries of these agents from the Lease of a load balancer.
    Agents(Arc<str>, Vec<Arc<str>>),
    /// Creates and repairs the provisioned objects of a load balancer.
    Provision(Box<Wish>),
    /// Removes the provisioned objects of a load balancer.
    Deprovision(binder::Id, Box<Made>),
    /// Reads certificates: each hash with the users' Secrets that should contain it.
    Fetch(Vec<(Arc<str>, Vec<ObjectKey>)>),
}

/// A write of the cookie Secret of a load balancer.
#[derive(Debug)]
pub(super) struct CookiesWrite {
    pub(super) load_balancer: Arc<str>,
    pub(super) uid: Arc<str>,
    /// The version that it replaces. None: the Secret is created.
    pub(super) version: Option<String>,
    /// Whether it gets a new key, or keeps the one that it has.
    pub(super) anew: bool,
}

/// The result of a write.
#[derive(Debug)]
pub(super) enum Reply {
    /// The status of a consumer or load balancer after the write.
    Status(Status),
    /// A Plan is written at this version. None: it is deleted.
    Plan(Box<PlanWrite>, Option<String>),
    /// A certificate Secret is written at this version. None: it is deleted.
    Certificates(Box<CertificatesWrite>, Option<String>),
    /// The cookie Secret after the write.
    Cookies(Shown<CookiesShown>),
    /// The result of the write of an Address.
    Address(WriteId, bowline_core::addresses::Written),
    /// An Address after its status was written.
    Announced(Option<AddressSeen>),
    /// Whether the holder exists.
    Confirmed(HolderRef, bool),
    /// An object of one of the kinds in `kinds` after the write.
    Object(KindShown),
    /// The result of a write for the binder.
    Binding(binder::Id, StepReply),
    /// The result of a write of seats.
    Seats(admission::WriteId, StepReply),
    /// A consumer that seems to have left a load balancer, as it was read. None: it does not exist.
    Leaver(ConsumerRef, Arc<str>, Option<Box<Read>>),
    /// A claim after the write.
    Claim(Box<Shown<ClaimShown>>),
    /// The version of the object that was looked for. None: it is deleted.
    LookedFor(binder::Subject, Option<bowline_core::objects::Version>),
    /// The entries of these agents are removed.
    Agents(Vec<Arc<str>>),
    /// The observed state of a load balancer's provisioned objects.
    Provisioned(Box<Provisioned>),
    /// Whether all provisioned objects are gone, or why they cannot be removed.
    Deprovisioned(binder::Id, Result<bool, String>),
    /// The certificates that were found, and those that were not.
    Fetched(Fetched, Vec<(Arc<str>, Vec<ObjectKey>)>),
}

/// The status of an object after a write.
#[derive(Debug)]
pub(super) enum Status {
    Service(Shown<ServiceShown>),
    Ingress(Shown<Vec<IngressLoadBalancerIngress>>),
    LoadBalancer(Box<Shown<LoadBalancerShown>>),
}

/// Why a write did not succeed.
#[derive(Debug)]
pub(super) enum Failure {
    /// Another writer was first. The watch's next event decides.
    Conflict,
    /// A Secret of another type has the name of the Secret to create. The watches do not show it.
    Taken,
    /// The object does not exist.
    Gone,
    /// Any other error.
    Other(Error),
}

impl Failure {
    /// Whether the API answered that it did not write. Without an answer the write may have happened.
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

/// Carries out writes.
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
            Write::Announced(address, patch) => {
                let api: Api<Address> = Api::all(self.client.clone());
                let after = status(&api, &address_name(address), &patch).await?;
                Ok(Reply::Announced(AddressSeen::of(&after)))
            }
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

    /// A Plan can be large and the answer contains all of it, so only the answer's metadata is read.
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
        // Use the certificates that were read; the others are looked for again.
        match failed {
            Some(error) if fetched.is_empty() => return Err(error),
            Some(error) => tracing::warn!(%error, "cannot read some certificates"),
            None => {}
        }
        let missed = wanted.into_iter().filter(|(hash, _)| !fetched.contains_key(hash)).collect();
        Ok(Reply::Fetched(fetched, missed))
    }
}

/// Creates one of Bowline's Secrets.
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

/// The metadata of an object that a load balancer owns and that is deleted with it.
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
