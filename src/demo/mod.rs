//! The demo of `bowline up --demo`: manifests that come with the binary, and a kubelet that plays their
//! Pods. Nothing else of Bowline knows that it exists.

mod backend;
mod kubelet;

pub(crate) use kubelet::Kubelet;

use bowline_runtime::manifests::{self, Manifest, ManifestError};
use k8s_openapi::api::core::v1::{Namespace, Service};
use kube::{Api, Client};
use std::path::Path;

/// `examples/demo`, as it was when this was built.
const FILES: [(&str, &str); 4] = [
    ("examples/demo/00-namespace.yaml", include_str!("../../examples/demo/00-namespace.yaml")),
    ("examples/demo/10-pods.yaml", include_str!("../../examples/demo/10-pods.yaml")),
    ("examples/demo/20-service.yaml", include_str!("../../examples/demo/20-service.yaml")),
    ("examples/demo/30-ingress.yaml", include_str!("../../examples/demo/30-ingress.yaml")),
];

/// Whether the demo has been set up.
pub(crate) async fn exists(client: &Client) -> kube::Result<bool> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    Ok(namespaces.get_opt(kubelet::NAMESPACE).await?.is_some())
}

/// Whether its Service has an address, or there is none to have one.
pub(crate) async fn is_served(client: &Client) -> bool {
    let services: Api<Service> = Api::namespaced(client.clone(), kubelet::NAMESPACE);
    let Ok(Some(service)) = services.get_opt("hello").await else { return true };
    let status = service.status.and_then(|status| status.load_balancer);
    status.is_some_and(|status| status.ingress.is_some_and(|points| !points.is_empty()))
}

/// The objects of the demo.
pub(crate) fn objects() -> Result<Vec<Manifest>, ManifestError> {
    let mut all = Vec::new();
    for (file, text) in FILES {
        all.extend(manifests::parse(Path::new(file), text)?);
    }
    Ok(all)
}
