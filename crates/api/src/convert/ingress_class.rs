//! IngressClasses: whether the controller is Bowline, and the load balancer or claim that the
//! parameters name. Called by the runtime on every event.

use super::read::{bad_value, name};
use crate::names::{GROUP, INGRESS_CONTROLLER};
use bowline_core::ObjectKey;
use bowline_core::objects::{self, ClassParameters};
use bowline_core::outcome::{Problem, Reason, quote};
use k8s_openapi::api::networking::v1::{IngressClass, IngressClassParametersReference};

/// An IngressClass as the planner gets it. The parameters of other controllers are not read.
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
                "spec.parameters.scope: {} does not fit kind {kind}: a LoadBalancer has scope Cluster, a \
                 LoadBalancerClaim has scope Namespace and needs a namespace",
                quote(scope)
            ),
        )),
        (kind, _) => {
            let why = "is neither LoadBalancer nor LoadBalancerClaim";
            Err(bad_value("spec.parameters.kind", kind, why))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::testing::{bad_value, object};

    fn class(controller: &str, parameters: &str) -> objects::IngressClass {
        ingress_class(&object(&format!(
            "metadata: {{name: c}}\nspec: {{controller: {controller}, parameters: {parameters}}}"
        )))
    }

    fn read(parameters: Result<ClassParameters, Problem>) -> objects::IngressClass {
        objects::IngressClass { name: "c".into(), ours: true, parameters }
    }

    #[test]
    fn parameters_name_a_load_balancer_or_a_claim_of_one_namespace() {
        let ours = |parameters: &str| class("bowline.dev/ingress", parameters);
        assert_eq!(ours("null"), read(Ok(ClassParameters::None)));
        for scope in ["", ", scope: Cluster"] {
            let lb =
                ours(&format!("{{apiGroup: bowline.dev, kind: LoadBalancer, name: edge{scope}}}"));
            assert_eq!(lb, read(Ok(ClassParameters::LoadBalancer("edge".into()))));
        }
        let claim = "{apiGroup: bowline.dev, kind: LoadBalancerClaim, name: web, namespace: shop, scope: Namespace}";
        let expected = ClassParameters::Claim(ObjectKey::new("shop", "web"));
        assert_eq!(ours(claim), read(Ok(expected)));
    }

    #[test]
    fn parameters_of_another_kind_or_scope_are_refused() {
        let scope = |kind, scope| {
            format!(
                "spec.parameters.scope: {scope:?} does not fit kind {kind}: a LoadBalancer has scope Cluster, a \
                 LoadBalancerClaim has scope Namespace and needs a namespace"
            )
        };
        for (parameters, message) in [
            (
                "{kind: ConfigMap, name: x}",
                "spec.parameters.apiGroup: \"\" is not bowline.dev".to_owned(),
            ),
            (
                "{apiGroup: bowline.dev, kind: Address, name: x}",
                "spec.parameters.kind: \"Address\" is neither LoadBalancer nor LoadBalancerClaim"
                    .to_owned(),
            ),
            (
                "{apiGroup: bowline.dev, kind: LoadBalancerClaim, name: x}",
                scope("LoadBalancerClaim", "Cluster"),
            ),
            (
                "{apiGroup: bowline.dev, kind: LoadBalancerClaim, name: x, scope: Namespace}",
                scope("LoadBalancerClaim", "Namespace"),
            ),
            (
                "{apiGroup: bowline.dev, kind: LoadBalancer, name: x, namespace: y, scope: Namespace}",
                scope("LoadBalancer", "Namespace"),
            ),
        ] {
            assert_eq!(class("bowline.dev/ingress", parameters), read(Err(bad_value(&message))));
        }
    }

    #[test]
    fn nobody_else_s_class_is_looked_into() {
        let foreign = class("example.com/other", "{kind: ConfigMap, name: x}");
        let expected = objects::IngressClass { ours: false, ..read(Ok(ClassParameters::None)) };
        assert_eq!(foreign, expected);
    }
}
