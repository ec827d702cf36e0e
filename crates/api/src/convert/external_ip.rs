//! ExternalIPs, as the address allocator gets them: only their address requests.

use super::read::{created, deleting, key};
use crate::external_ip::ExternalIP;
use crate::names;
use bowline_core::addresses::{AddressRequest, Ask, Families, HolderKind, HolderRef};
use bowline_core::objects::Family;

/// The address request of an ExternalIP: one address of each family that its AddressPool has; without an AddressPool,
/// of each family that is available. It requests nothing before it has its finalizer, so that it is never deleted while
/// its address stays held, and nothing any more while it is being deleted.
pub fn external_ip(object: &ExternalIP) -> AddressRequest {
    let ExternalIP { metadata, spec, status } = object;
    let finalizers = metadata.finalizers.iter().flatten();
    let ready = finalizers.into_iter().any(|it| it == names::FINALIZER_CLEANUP);
    let pool = spec.address_pool.as_deref();
    let labels = metadata.labels.iter().flatten();
    AddressRequest {
        holder: HolderRef {
            key: key(metadata),
            kind: HolderKind::ExternalIp,
            uid: metadata.uid.as_deref().unwrap_or_default().into(),
        },
        created: created(metadata),
        labels: labels.map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect(),
        scope: None,
        ask: Ok(match pool {
            _ if !ready || deleting(metadata) => Ask::Nothing,
            Some(pool) => Ask::Pool(pool.into()),
            None => Ask::Any,
        }),
        door: false,
        load_balancer: None,
        families: pool.map_or(Families::Prefer(Family::V4), |_| Families::OfPool),
        sharing: None,
        status: status.as_ref().map(|status| status.ips.clone()).unwrap_or_default(),
        uses: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    #[test]
    fn an_external_ip_asks_once_it_cannot_go_unnoticed_and_until_it_goes() {
        let read = |finalizers: &[&str], deleted: bool, pool: Option<&str>| {
            let time = deleted.then_some("2026-01-01T00:00:00Z");
            let object: ExternalIP = serde_json::from_value(serde_json::json!({
                "apiVersion": "bowline.dev/v1alpha1", "kind": "ExternalIP",
                "metadata": {
                    "name": "game-0", "namespace": "shop", "uid": "u",
                    "finalizers": finalizers, "deletionTimestamp": time,
                },
                "spec": {"serviceName": "game", "podName": "game-0", "addressPool": pool},
                "status": {"ips": ["192.0.2.1"]},
            }))
            .unwrap();
            let request = external_ip(&object);
            assert_eq!(request.holder.to_string(), "ExternalIP shop/game-0");
            assert_eq!(request.status, ["192.0.2.1".parse::<IpAddr>().unwrap()]);
            (request.ask.unwrap(), request.families)
        };
        let ours = [names::FINALIZER_CLEANUP];
        let pool = (Ask::Pool("p".into()), Families::OfPool);
        assert_eq!(read(&ours, false, Some("p")), pool);
        assert_eq!(read(&ours, false, None), (Ask::Any, Families::Prefer(Family::V4)));
        assert_eq!(read(&["other"], false, Some("p")), (Ask::Nothing, Families::OfPool));
        assert_eq!(read(&ours, true, Some("p")), (Ask::Nothing, Families::OfPool));
    }
}
