//! Which namespaces may use a load balancer: that of its claim, or those that it allows.

use crate::key::ObjectKey;
use crate::objects::{AllowedNamespaces, LoadBalancer, Namespace};

/// Whether a load balancer may be used from a namespace. While the claim to which it is bound exists: from the claim's
/// namespace only. While it is unbound or only reserved: from the namespaces that it allows. A namespace with unknown
/// labels matches no selector, not even one that requires the absence of a label.
pub(super) fn allows(
    lb: &LoadBalancer,
    namespace: &str,
    labels: Option<&Namespace>,
    lives: impl FnOnce(&ObjectKey, &str) -> bool,
) -> bool {
    if let Some((claim, Some(uid))) = &lb.claim {
        return &*claim.namespace == namespace && lives(claim, uid);
    }
    match &lb.allowed {
        AllowedNamespaces::None => false,
        AllowedNamespaces::All => true,
        AllowedNamespaces::Selector(selector) => {
            labels.is_some_and(|labels| selector.matches(&labels.labels))
        }
    }
}
