//! The store: objects as canonical bytes under revisions, their history, and who may watch it.

use bytes::Bytes;
use std::sync::Arc;

/// Where an object is kept.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The resource's storage name, such as `services` or `ingresses.networking.k8s.io`.
    pub resource: Arc<str>,
    /// Namespace, empty for cluster-scoped objects.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
}

/// An object as stored: canonical JSON with `metadata.resourceVersion` in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The revision that wrote it.
    pub revision: u64,
    /// Canonical JSON.
    pub bytes: Bytes,
}
