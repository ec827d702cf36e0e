//! IngressClasses: whether one is ours, and the load balancer or claim that its parameters name.

use super::read::{bad_value, name};
use crate::names::{GROUP, INGRESS_CONTROLLER};
use bowline_core::ObjectKey;
use bowline_core::objects::{self, ClassParameters};
use bowline_core::outcome::{Problem, Reason, quote};
use k8s_openapi::api::networking::v1::{IngressClass, IngressClassParametersReference};

/// What the planner knows of an IngressClass. Parameters of somebody else's are not looked at.
pub fn ingress_class(class: &IngressClass) -> objects::IngressClass {
    let spec = class.spec.as_ref();
    let ours = spec.and_then(|spec| spec.controller.as_deref()) == Some(INGRESS_CONTROLLER);
    let written = spec.filter(|_| ours).and_then(|spec| spec.parameters.as_ref());
    objects::IngressClass {
        name: name(&class.metadata),
        ours,
        parameters: written.map_or(Ok(ClassParameters::None), parameters),
    }
}

fn parameters(written: &IngressClassParametersReference) -> Result<ClassParameters, Problem> {
    let group = written.api_group.as_deref().unwrap_or_default();
    if group != GROUP {
        let why = "is not bowline.dev";
        return Err(bad_value("spec.parameters.apiGroup", group, why));
    }
    let namespace = written.namespace.as_deref().unwrap_or_default();
    match (written.kind.as_str(), written.scope.as_deref().unwrap_or("Cluster")) {
        ("LoadBalancer", "Cluster") => {
            Ok(ClassParameters::LoadBalancer(written.name.as_str().into()))
        }
        ("LoadBalancerClaim", "Namespace") if !namespace.is_empty() => {
            Ok(ClassParameters::Claim(ObjectKey::new(namespace, written.name.as_str())))
        }
        (kind @ ("LoadBalancer" | "LoadBalancerClaim"), scope) => Err(Problem::new(
            Reason::BadValue,
            format!(
                "spec.parameters.scope: {} does not go with kind {kind}: a LoadBalancer has scope \
                 Cluster, a LoadBalancerClaim scope Namespace and a namespace",
                quote(scope)
            ),
        )),
        (kind, _) => {
            let why = "is neither LoadBalancer nor LoadBalancerClaim";
            Err(bad_value("spec.parameters.kind", kind, why))
        }
    }
}
