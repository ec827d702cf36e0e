//! Identifies objects: by namespace and name, and consumers of a load balancer also by kind and
//! uid. Values only, which all modules use.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// Namespace and name of an object. Its order is the order of all output.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// The namespace; empty for objects that have none.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
}

impl ObjectKey {
    /// The object of this namespace and name.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            return f.write_str(&self.name);
        }
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Kinds that bring configuration onto a load balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum ConsumerKind {
    /// A Service: listeners of its own.
    Service,
    /// An Ingress: rules on the load balancer's HTTP listeners.
    Ingress,
    /// The load balancer itself: the HTTP listeners that its Ingresses share.
    LoadBalancer,
}

impl fmt::Display for ConsumerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Who a piece of configuration is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ConsumerRef {
    /// Its kind.
    pub kind: ConsumerKind,
    /// Its namespace; left out for a LoadBalancer, which has none.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// Its uid: another object of the same name is another consumer.
    pub uid: Arc<str>,
}

impl fmt::Display for ConsumerRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            return write!(f, "{} {}", self.kind, self.name);
        }
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}
