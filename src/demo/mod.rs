//! The demo of `bowline up --demo`: manifests in the binary, and a kubelet that runs their Pods. No
//! other part of Bowline knows the demo.

mod backend;
mod kubelet;
mod served;

pub(crate) use kubelet::Kubelet;
pub(crate) use served::Served;

use bowline_runtime::manifests::{self, Manifest, ManifestError};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};
use std::path::Path;

/// `examples/demo` at build time.
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

/// The objects of the demo.
pub(crate) fn objects() -> Result<Vec<Manifest>, ManifestError> {
    let mut all = Vec::new();
    for (file, text) in FILES {
        all.extend(manifests::parse(Path::new(file), text)?);
    }
    Ok(all)
}
