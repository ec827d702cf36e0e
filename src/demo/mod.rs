//! The demo of `bowline up --demo`: manifests that come with the binary, and a kubelet that plays their
//! Pods. Nothing else of Bowline knows that it exists.

mod backend;
mod kubelet;

pub(crate) use kubelet::Kubelet;

use bowline_runtime::manifests::{self, Manifest, ManifestError};
use std::path::Path;

/// `examples/demo`, as it was when this was built.
const FILES: [(&str, &str); 4] = [
    ("examples/demo/00-namespace.yaml", include_str!("../../examples/demo/00-namespace.yaml")),
    ("examples/demo/10-pods.yaml", include_str!("../../examples/demo/10-pods.yaml")),
    ("examples/demo/20-service.yaml", include_str!("../../examples/demo/20-service.yaml")),
    ("examples/demo/30-ingress.yaml", include_str!("../../examples/demo/30-ingress.yaml")),
];

/// The objects of the demo.
pub(crate) fn objects() -> Result<Vec<Manifest>, ManifestError> {
    let mut all = Vec::new();
    for (file, text) in FILES {
        all.extend(manifests::parse(Path::new(file), text)?);
    }
    Ok(all)
}
