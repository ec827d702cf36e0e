//! LoadBalancers, as the planner gets them. A selector that no server would have accepted allows no
//! namespace.

use super::read::{canonical, created, deleting, name, uid};
use crate::provisioned_objects::Made;
use crate::selector::{AllowedNamespaces, LabelSelector, NamespacesFrom};
use crate::source::{Backends, BareMetalType, LoadBalancerSource};
use crate::{LoadBalancer, names};
use bowline_core::ObjectKey;
use bowline_core::addresses::Scope;
use bowline_core::objects::Carrier;
use bowline_core::objects::{self, Operator, Requirement};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource as _;
use std::sync::Arc;

/// A LoadBalancer as the planner gets it.
pub fn load_balancer(load_balancer: &LoadBalancer) -> objects::LoadBalancer {
    let LoadBalancer { metadata, spec, .. } = load_balancer;
    let claim = spec.claim_ref.as_ref().map(|claim| {
        let key = ObjectKey::new(claim.namespace.as_str(), claim.name.as_str());
        (key, claim.uid.as_deref().map(Into::into))
    });
    objects::LoadBalancer {
        name: name(metadata),
        uid: uid(metadata),
        created: created(metadata),
        deleting: deleting(metadata),
        addresses: spec.addresses.clone(),
        address_pool: spec.address_pool.as_deref().map(Into::into),
        scope: Some(scope(spec.scope)),
        http_port: spec.http_port,
        https_port: spec.https_port,
        allowed: allowed(&spec.allowed_namespaces),
        claim,
        counted: spec.capacity.is_some() || spec.require_requests,
        regex_hosts: spec.regex_hosts,
        enforce_limits: spec.enforce_limits,
        nodes: matches!(&spec.source, LoadBalancerSource::External(source) if source.backends == Backends::Nodes),
        external: matches!(spec.source, LoadBalancerSource::External(_)),
        source: canonical(&spec.source),
        carrier: carrier(&spec.source),
        door: Made::of(load_balancer).map(|it| ObjectKey::new(it.namespace, it.service)),
    }
}

/// What agents run for a source. None: no agent drives it.
pub fn carrier(source: &LoadBalancerSource) -> Option<Carrier> {
    match source {
        LoadBalancerSource::Builtin(_) => Some(Carrier::Builtin),
        LoadBalancerSource::BareMetalLoadBalancer(proxy) => Some(match proxy.type_ {
            BareMetalType::Haproxy => Carrier::Haproxy,
            BareMetalType::Nginx => Carrier::Nginx,
        }),
        LoadBalancerSource::Template(_) => Some(Carrier::Template),
        _ => None,
    }
}

/// A scope as core has it.
pub(super) fn scope(scope: crate::load_balancer::Scope) -> Scope {
    match scope {
        crate::load_balancer::Scope::Internet => Scope::Internet,
        crate::load_balancer::Scope::Intranet => Scope::Intranet,
    }
}

pub(super) fn allowed(allowed: &AllowedNamespaces) -> objects::AllowedNamespaces {
    match (allowed.from, &allowed.selector) {
        (NamespacesFrom::None, _) | (NamespacesFrom::Selector, None) => {
            objects::AllowedNamespaces::None
        }
        (NamespacesFrom::All, _) => objects::AllowedNamespaces::All,
        (NamespacesFrom::Selector, Some(selector)) => label_selector(selector)
            .map_or(objects::AllowedNamespaces::None, objects::AllowedNamespaces::Selector),
    }
}

pub(crate) fn label_selector(selector: &LabelSelector) -> Option<objects::LabelSelector> {
    let labels = selector.match_labels.iter().flatten();
    let labels = labels.map(|(key, value)| {
        let operator = Operator::In(vec![value.as_str().into()]);
        Some(Requirement { key: key.as_str().into(), operator })
    });
    let expressions = selector.match_expressions.iter().flatten().map(|expression| {
        let values = expression.values.iter().flatten();
        let values: Vec<Arc<str>> = values.map(|value| value.as_str().into()).collect();
        let operator = match (expression.operator.as_str(), values.is_empty()) {
            ("In", false) => Operator::In(values),
            ("NotIn", false) => Operator::NotIn(values),
            ("Exists", true) => Operator::Exists,
            ("DoesNotExist", true) => Operator::DoesNotExist,
            _ => return None,
        };
        Some(Requirement { key: expression.key.as_str().into(), operator })
    });
    let requirements = labels.chain(expressions).collect::<Option<_>>()?;
    Some(objects::LabelSelector { requirements })
}

/// The uid of the load balancer of this name that an object names as its owner. None: it names no
/// such owner, or its label names another load balancer.
pub fn owner_uid(meta: &ObjectMeta, load_balancer: &str) -> Option<String> {
    let label = meta.labels.as_ref()?.get(names::LABEL_LOAD_BALANCER)?;
    let owners = meta.owner_references.as_ref()?;
    let kind = LoadBalancer::kind(&());
    let ours = |it: &&OwnerReference| it.kind == kind && it.name == load_balancer;
    let owner = owners.iter().find(ours)?;
    (*label == names::load_balancer_label(load_balancer)).then(|| owner.uid.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::testing::object;
    use bowline_core::objects::Timestamp;

    fn read(spec: &str) -> objects::LoadBalancer {
        load_balancer(&object(&format!("metadata: {{name: edge, uid: u1}}\nspec: {spec}")))
    }

    fn builtin() -> objects::LoadBalancer {
        objects::LoadBalancer {
            name: "edge".into(),
            uid: "u1".into(),
            created: Timestamp::MAX,
            deleting: false,
            addresses: vec![],
            address_pool: None,
            scope: Some(Scope::Internet),
            http_port: 80,
            https_port: 443,
            allowed: objects::AllowedNamespaces::None,
            claim: None,
            counted: false,
            regex_hosts: false,
            enforce_limits: false,
            nodes: false,
            external: false,
            source: "{\"builtin\":{}}".into(),
            carrier: Some(Carrier::Builtin),
            door: None,
        }
    }

    #[test]
    fn a_load_balancer_that_says_nothing_is_for_nobody() {
        assert_eq!(read("{builtin: {}}"), builtin());
    }

    #[test]
    fn one_that_a_class_made_in_a_cluster_has_a_service_in_front() {
        let made = |annotations: &str| {
            let lb: LoadBalancer = object(&format!(
                "{{metadata: {{name: lbc-1, uid: u1, annotations: {{{annotations}}}}}, spec: {{builtin: {{}}}}}}"
            ));
            load_balancer(&lb).door
        };
        let both = "bowline.dev/provisioned-for: shop/web/c, bowline.dev/proxy-namespace: ours";
        assert_eq!(made(both), Some(ObjectKey::new("ours", "lbc-1")));
        assert_eq!(made("bowline.dev/provisioned-for: shop/web/c"), None);
    }

    #[test]
    fn everything_a_load_balancer_says_is_read() {
        let device = "{driver: Alteon, primary: {url: 'https://lb'}}";
        let spec = format!(
            "{{addresses: [203.0.113.10, '2001:db8::1'], httpPort: 8080, httpsPort: 8443, regexHosts: true, \
             allowedNamespaces: {{from: All}}, claimRef: {{namespace: shop, name: web, uid: c1}}, \
             external: {device}}}"
        );
        let expected = objects::LoadBalancer {
            addresses: vec!["203.0.113.10".parse().unwrap(), "2001:db8::1".parse().unwrap()],
            http_port: 8080,
            https_port: 8443,
            allowed: objects::AllowedNamespaces::All,
            claim: Some((ObjectKey::new("shop", "web"), Some("c1".into()))),
            regex_hosts: true,
            enforce_limits: false,
            nodes: true,
            external: true,
            carrier: None,
            source: concat!(
                r#"{"external":{"driver":"Alteon","primary":{"url":"https://lb"},"#,
                r#""insecureSkipVerify":false,"mode":"Failover","backends":"Nodes","#,
                r#""onConflict":"Overwrite"}}"#
            )
            .into(),
            ..builtin()
        };
        assert_eq!(read(&spec), expected);
        assert!(!read(&spec.replace("driver", "backends: Pods, driver")).nodes);
    }

    #[test]
    fn namespaces_are_selected_by_labels_and_expressions() {
        let requirement = |key: &str, operator| Requirement { key: key.into(), operator };
        let allowed = |selector: &str| {
            read(&format!(
                "{{builtin: {{}}, allowedNamespaces: {{from: Selector, selector: {selector}}}}}"
            ))
            .allowed
        };
        assert_eq!(
            allowed(
                "{matchLabels: {team: web}, matchExpressions: [{key: a, operator: In, values: [x, y]}, \
                 {key: b, operator: NotIn, values: [z]}, {key: c, operator: Exists}, \
                 {key: d, operator: DoesNotExist}]}"
            ),
            objects::AllowedNamespaces::Selector(objects::LabelSelector {
                requirements: vec![
                    requirement("team", Operator::In(vec!["web".into()])),
                    requirement("a", Operator::In(vec!["x".into(), "y".into()])),
                    requirement("b", Operator::NotIn(vec!["z".into()])),
                    requirement("c", Operator::Exists),
                    requirement("d", Operator::DoesNotExist),
                ],
            })
        );
        let everybody = objects::LabelSelector::default();
        assert_eq!(allowed("{}"), objects::AllowedNamespaces::Selector(everybody));
        for bad in ["In", "NotIn", "Gt", ""] {
            let selector = format!("{{matchExpressions: [{{key: a, operator: '{bad}'}}]}}");
            assert_eq!(allowed(&selector), objects::AllowedNamespaces::None, "{bad:?}");
        }
        assert_eq!(
            read("{builtin: {}, allowedNamespaces: {from: Selector}}").allowed,
            objects::AllowedNamespaces::None
        );
    }
}
