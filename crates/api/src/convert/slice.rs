//! EndpointSlices, as the resolver gets them: the addresses of a Service's Pods, and their state.

use super::read::{key, port, transport};
use bowline_core::objects;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};

/// The label with the name of the Service to which a slice belongs.
pub const LABEL_SERVICE_NAME: &str = "kubernetes.io/service-name";

/// An EndpointSlice as the resolver gets it. Only the first address of an endpoint counts, as
/// Kubernetes specifies. Host names in place of addresses cannot be destinations of traffic and are
/// left out.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::testing::object;
    use bowline_core::ObjectKey;
    use bowline_core::plan::Transport;

    #[test]
    fn a_slice_is_read_with_what_is_left_out_filled_in() {
        let read = slice(&object(
            "
metadata: {namespace: shop, name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}, {port: 53, protocol: UDP}, {name: all}, {port: 0}, {port: 1, protocol: X}]
endpoints:
  - {addresses: [10.0.0.1, 10.0.0.9], nodeName: n1, targetRef: {kind: Pod, name: web-a}}
  - {addresses: [10.0.0.2], conditions: {ready: false}}
  - {addresses: [10.0.0.3], conditions: {ready: false, serving: true, terminating: true}}
  - {addresses: [nowhere]}
  - {addresses: []}
",
        ));
        let endpoint = |address: &str, ready, serving, terminating| objects::Endpoint {
            address: address.parse().unwrap(),
            ready,
            serving,
            terminating,
            node: None,
            target: None,
        };
        let port = |name: &str, number, transport| objects::SlicePort {
            name: name.into(),
            number,
            transport,
        };
        let expected = objects::Slice {
            key: ObjectKey::new("shop", "web-1"),
            service: Some("web".into()),
            ports: vec![port("http", 8080, Transport::Tcp), port("", 53, Transport::Udp)],
            endpoints: vec![
                objects::Endpoint {
                    node: Some("n1".into()),
                    target: Some("web-a".into()),
                    ..endpoint("10.0.0.1", true, true, false)
                },
                endpoint("10.0.0.2", false, false, false),
                endpoint("10.0.0.3", false, true, true),
            ],
        };
        assert_eq!(read, expected);
    }

    #[test]
    fn a_slice_of_host_names_has_no_endpoints_and_one_without_a_label_is_nobodys() {
        let read = slice(&object(
            "metadata: {namespace: shop, name: web-1}\naddressType: FQDN\nendpoints: [{addresses: [10.0.0.1]}]",
        ));
        let expected = objects::Slice {
            key: ObjectKey::new("shop", "web-1"),
            service: None,
            ports: vec![],
            endpoints: vec![],
        };
        assert_eq!(read, expected);
    }
}
