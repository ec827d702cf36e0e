//! Carries out the address machine's writes of Address objects and its reads of holders. Each write is an exclusive
//! create or names the version that it replaces. After a conflict the current object is read and reported, never
//! overwritten. `Writer::perform` calls it.

use super::{Reply, Writer, params};
use crate::api_timeout::answer;
use crate::causes::causes;
use bowline_api::address::{Address, address_name};
use bowline_api::external_ip::ExternalIP;
use bowline_api::{LoadBalancer, convert};
use bowline_core::addresses::{self, Content, HolderKind, HolderRef, Op};
use bowline_core::objects::Version;
use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, DeleteParams, Preconditions};
use kube::{Error, ResourceExt as _};
use std::net::IpAddr;

impl Writer {
    /// Writes an Address object, and returns the result.
    pub(in crate::controller) async fn address(&self, write: addresses::Write) -> Reply {
        let result = match self.write_address(&write).await {
            Ok(written) => written,
            // For a create only 409 is a conflict; 404 means that the kind itself does not exist.
            Err(Error::Api(status))
                if status.code == 409
                    || status.code == 404 && !matches!(write.op, Op::Create(_)) =>
            {
                self.found(write.address).await
            }
            Err(error) => failed(write.address, &error),
        };
        Reply::Address(write.id, result)
    }

    async fn write_address(&self, write: &addresses::Write) -> Result<addresses::Written, Error> {
        let api: Api<Address> = Api::all(self.client.clone());
        let name = address_name(write.address);
        match &write.op {
            Op::Create(content) => {
                let object = convert::address_object(write.address, None, content);
                let after = answer(api.create(&params(), &object)).await?;
                self.state(&api, object, after, content).await
            }
            Op::Update { version, content } => {
                let object = convert::address_object(write.address, Some(version), content);
                let after = answer(api.replace(&name, &params(), &object)).await?;
                self.state(&api, object, after, content).await
            }
            Op::Delete { version } => {
                let preconditions = Preconditions {
                    resource_version: Some(version.0.to_string()),
                    ..Preconditions::default()
                };
                let params =
                    DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
                answer(api.delete(&name, &params)).await?;
                Ok(addresses::Written::Ok(version.clone()))
            }
        }
    }

    /// The state is behind the status subresource: where it differs, it takes a write of its own. A missing state means
    /// Active.
    async fn state(
        &self,
        api: &Api<Address>,
        mut sent: Address,
        after: Address,
        content: &Content,
    ) -> Result<addresses::Written, Error> {
        let version = |it: &Address| Version(it.resource_version().unwrap_or_default().into());
        let name = sent.name_any();
        if !is_kept(&sent, &after) {
            tracing::warn!(
                address = name,
                "the server drops fields of an Address: apply the current CustomResourceDefinitions"
            );
            return Ok(addresses::Written::Failed);
        }
        if convert::record(&after).is_some_and(|record| record.content.state == content.state) {
            return Ok(addresses::Written::Ok(version(&after)));
        }
        sent.metadata.resource_version = after.resource_version();
        if let (Some(sent), Some(after)) = (&mut sent.status, after.status) {
            sent.announced_by = after.announced_by;
        }
        let after = answer(api.replace_status(&name, &params(), &sent)).await?;
        Ok(addresses::Written::Ok(version(&after)))
    }

    /// The conflict, with the Address object as it is now.
    async fn found(&self, address: IpAddr) -> addresses::Written {
        let api: Api<Address> = Api::all(self.client.clone());
        match answer(api.get_opt(&address_name(address))).await {
            Ok(found) => addresses::Written::Conflict(found.as_ref().and_then(convert::record)),
            Err(error) => failed(address, &error),
        }
    }

    /// Whether the holder that an Address names exists.
    pub(in crate::controller) async fn exists(&self, holder: &HolderRef) -> Result<bool, Error> {
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
}

/// Whether the API kept all that it was sent. An API with an older CRD drops fields that it does not know; writing them
/// again at once would never end.
fn is_kept(sent: &Address, after: &Address) -> bool {
    let said = |it| convert::record(it).map(|it| (it.content.pool, it.content.holders));
    said(sent) == said(after)
}

fn failed(address: IpAddr, error: &Error) -> addresses::Written {
    tracing::warn!(%address, error = causes(error), "cannot write an Address");
    addresses::Written::Failed
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_core::addresses::{AddressState, Holder};
    use bowline_core::key::ObjectKey;
    use serde_json::{Value, json};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    /// An API that keeps what it is sent, except for these fields of holders. Answers one request.
    async fn server(drops: &'static [&'static str]) -> Writer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut read = Vec::new();
            let mut object: Value = loop {
                stream.read_buf(&mut read).await.unwrap();
                let text = String::from_utf8_lossy(&read);
                let body = text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
                if let Some(object) = body.and_then(|it| serde_json::from_str(&it).ok()) {
                    break object;
                }
            };
            object["metadata"]["resourceVersion"] = json!("7");
            for holder in object["spec"]["holders"].as_array_mut().unwrap() {
                drops.iter().for_each(|it| drop(holder.as_object_mut().unwrap().remove(*it)));
            }
            let (body, json) = (object.to_string(), "content-type: application/json");
            let head = format!("HTTP/1.1 200 OK\r\n{json}\r\ncontent-length: {}", body.len());
            stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).await.unwrap();
        });
        let client = kube::Client::try_from(kube::Config::new(url.parse().unwrap())).unwrap();
        Writer { client, namespace: "bowline-system".to_owned() }
    }

    /// An API that has no objects.
    async fn empty_server() -> Writer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            let status = json!({"kind": "Status", "status": "Failure", "code": 404,
                "reason": "NotFound", "message": "not found"})
            .to_string();
            let head =
                "HTTP/1.1 404 Not Found\r\nconnection: close\r\ncontent-type: application/json";
            let reply = format!("{head}\r\ncontent-length: {}\r\n\r\n{status}", status.len());
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.read(&mut [0; 4096]).await;
                let _ = stream.write_all(reply.as_bytes()).await;
                let _ = stream.shutdown().await;
                let _ = stream.read_to_end(&mut Vec::new()).await;
            }
        });
        let client = kube::Client::try_from(kube::Config::new(url.parse().unwrap())).unwrap();
        Writer { client, namespace: "bowline-system".to_owned() }
    }

    #[tokio::test]
    async fn that_nothing_can_be_created_is_a_failure_and_that_it_is_gone_is_a_conflict() {
        let content = Content { pool: None, holders: Vec::new(), state: AddressState::Active };
        let version = Version("6".into());
        for (op, expected) in [
            (Op::Create(content.clone()), addresses::Written::Failed),
            (Op::Update { version: version.clone(), content }, addresses::Written::Conflict(None)),
            (Op::Delete { version }, addresses::Written::Conflict(None)),
        ] {
            let address = IpAddr::from([192, 0, 2, 1]);
            let write = addresses::Write { id: addresses::WriteId(1), address, op };
            let Reply::Address(_, result) = empty_server().await.address(write).await else {
                panic!("an Address was written")
            };
            assert_eq!(result, expected);
        }
    }

    #[tokio::test]
    async fn a_write_of_which_the_server_drops_a_part_has_failed() {
        let holder = Holder {
            holder: HolderRef {
                key: ObjectKey::new("shop", "web"),
                kind: HolderKind::Service,
                uid: "u".into(),
            },
            ports: Vec::new(),
            key: None,
            load_balancer: Some("edge".into()),
            since: 1_000,
        };
        let content = Content { pool: None, holders: vec![holder], state: AddressState::Active };
        let address = IpAddr::from([192, 0, 2, 1]);
        let write =
            |op: &Op| addresses::Write { id: addresses::WriteId(1), address, op: op.clone() };
        let ok = addresses::Written::Ok(Version("7".into()));
        let ops =
            [Op::Create(content.clone()), Op::Update { version: Version("6".into()), content }];
        for op in &ops {
            for (drops, expected) in
                [(&[][..], &ok), (&["loadBalancer"][..], &addresses::Written::Failed)]
            {
                let Reply::Address(_, result) = server(drops).await.address(write(op)).await else {
                    panic!("an Address was written")
                };
                assert_eq!(result, *expected, "{drops:?}");
            }
        }
    }
}
