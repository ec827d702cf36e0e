//! EndpointSlices: where the Pods of a Service are, and in which state.

use super::read::{key, port, transport};
use bowline_core::objects;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};

/// The label by which a slice says whose it is.
pub const LABEL_SERVICE_NAME: &str = "kubernetes.io/service-name";

/// What the resolver knows of an EndpointSlice. Only the first address of an endpoint counts, as
/// Kubernetes says; host names instead of addresses are nothing that traffic can be sent to.
pub fn slice(slice: &EndpointSlice) -> objects::Slice {
    let labels = slice.metadata.labels.as_ref();
    let service = labels.and_then(|labels| labels.get(LABEL_SERVICE_NAME));
    let named = slice.address_type == "FQDN";
    let endpoints = slice.endpoints.iter().flatten().filter(|_| !named);
    objects::Slice {
        key: key(&slice.metadata),
        service: service.filter(|name| !name.is_empty()).map(|name| name.as_str().into()),
        ports: slice.ports.iter().flatten().filter_map(slice_port).collect(),
        endpoints: endpoints.filter_map(endpoint).collect(),
    }
}

fn slice_port(written: &EndpointPort) -> Option<objects::SlicePort> {
    Some(objects::SlicePort {
        name: written.name.as_deref().unwrap_or_default().into(),
        number: written.port.and_then(port)?,
        transport: transport(written.protocol.as_deref())?,
    })
}

fn endpoint(written: &Endpoint) -> Option<objects::Endpoint> {
    let conditions = written.conditions.as_ref();
    let ready = conditions.and_then(|c| c.ready).unwrap_or(true);
    Some(objects::Endpoint {
        address: written.addresses.first()?.parse().ok()?,
        ready,
        serving: conditions.and_then(|c| c.serving).unwrap_or(ready),
        terminating: conditions.and_then(|c| c.terminating).unwrap_or(false),
        node: written.node_name.as_deref().map(Into::into),
        target: written.target_ref.as_ref().and_then(|t| t.name.as_deref()).map(Into::into),
    })
}
