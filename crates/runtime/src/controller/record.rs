//! Carries out what the address machine says: writes of Address objects, reads of their holders, and what
//! an AddressPool or an ExternalIP is told. Each write is exclusive or under a version; what is there after a conflict is
//! read and reported, never overruled.

use super::inputs::ExternalIpSeen;
use super::shown::{PoolShown, Shown};
use super::writes::{Amend, Failure, Writer, Written, params, patch_params};
use crate::patience::answer;
use bowline_api::address::{Address, address_name};
use bowline_api::address_pool::AddressPool;
use bowline_api::external_ip::ExternalIP;
use bowline_api::{LoadBalancer, convert};
use bowline_core::addresses::{self, Content, HolderKind, HolderRef, Op, Version};
use bowline_core::key::ObjectKey;
use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, DeleteParams, Patch, Preconditions};
use kube::{Error, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::net::IpAddr;

impl Writer {
    /// Writes an Address object, and says how that ended.
    pub(super) async fn address(&self, write: addresses::Write) -> Written {
        let result = match self.write_address(&write).await {
            Ok(version) => addresses::Written::Ok(version),
            Err(Error::Api(status)) if matches!(status.code, 404 | 409) => {
                self.found(write.address).await
            }
            Err(error) => failed(write.address, &error),
        };
        Written::Address(write.id, result)
    }

    async fn write_address(&self, write: &addresses::Write) -> Result<Version, Error> {
        let api: Api<Address> = Api::all(self.client.clone());
        let name = address_name(write.address);
        match &write.op {
            Op::Create(content) => {
                let object = convert::address_object(write.address, None, content);
                let after = answer(api.create(&params(), &object)).await?;
                self.state(&api, after, write.address, content).await
            }
            Op::Update { version, content } => {
                let object = convert::address_object(write.address, Some(version), content);
                let after = answer(api.replace(&name, &params(), &object)).await?;
                self.state(&api, after, write.address, content).await
            }
            Op::Delete { version } => {
                let preconditions = Preconditions {
                    resource_version: Some(version.0.to_string()),
                    ..Preconditions::default()
                };
                let params =
                    DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
                answer(api.delete(&name, &params)).await?;
                Ok(version.clone())
            }
        }
    }

    /// The state is behind the status subresource: where it is another one it takes a write of its own.
    /// One that is not there means Active.
    async fn state(
        &self,
        api: &Api<Address>,
        after: Address,
        address: IpAddr,
        content: &Content,
    ) -> Result<Version, Error> {
        let version = Version(after.resource_version().unwrap_or_default().into());
        if convert::record(&after).is_some_and(|record| record.content.state == content.state) {
            return Ok(version);
        }
        let object = convert::address_object(address, Some(&version), content);
        let name = address_name(address);
        let after = answer(api.replace_status(&name, &params(), &object)).await?;
        Ok(Version(after.resource_version().unwrap_or_default().into()))
    }

    /// What there is in place of what was to be written.
    async fn found(&self, address: IpAddr) -> addresses::Written {
        let api: Api<Address> = Api::all(self.client.clone());
        match answer(api.get_opt(&address_name(address))).await {
            Ok(found) => addresses::Written::Conflict(found.as_ref().and_then(convert::record)),
            Err(error) => failed(address, &error),
        }
    }

    /// Whether somebody of whom an Address speaks is there.
    pub(super) async fn exists(&self, holder: &HolderRef) -> Result<bool, Error> {
        let (namespace, name) = (&*holder.key.namespace, &*holder.key.name);
        let client = self.client.clone();
        let uid = match holder.kind {
            HolderKind::Service => {
                let api: Api<Service> = Api::namespaced(client, namespace);
                answer(api.get_opt(name)).await?.and_then(|it| it.uid())
            }
            HolderKind::LoadBalancer => {
                let api: Api<LoadBalancer> = Api::all(client);
                answer(api.get_opt(name)).await?.and_then(|it| it.uid())
            }
            HolderKind::ExternalIp => {
                let api: Api<ExternalIP> = Api::namespaced(client, namespace);
                answer(api.get_opt(name)).await?.and_then(|it| it.uid())
            }
        };
        Ok(uid.as_deref() == Some(&*holder.uid))
    }

    pub(super) async fn pool(&self, name: &str, write: Amend) -> Result<Written, Failure> {
        let api: Api<AddressPool> = Api::all(self.client.clone());
        let after = amend(&api, name, write).await?;
        Ok(Written::Pool(Box::new(Shown::<PoolShown>::of(&after))))
    }

    pub(super) async fn external_ip(
        &self,
        key: &ObjectKey,
        write: Amend,
    ) -> Result<Written, Failure> {
        let api: Api<ExternalIP> = Api::namespaced(self.client.clone(), &key.namespace);
        let after = amend(&api, &key.name, write).await?;
        Ok(Written::ExternalIp(Box::new(ExternalIpSeen::of(&after))))
    }
}

async fn amend<K>(api: &Api<K>, name: &str, write: Amend) -> Result<K, Error>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    match write {
        Amend::Finalizers(patch) => {
            answer(api.patch(name, &patch_params(), &Patch::Merge(&patch))).await
        }
        Amend::Status(patch) => {
            answer(api.patch_status(name, &patch_params(), &Patch::Merge(&patch))).await
        }
    }
}

fn failed(address: IpAddr, error: &Error) -> addresses::Written {
    tracing::warn!(%address, %error, "cannot write an Address");
    addresses::Written::Failed
}
