//! LoadBalancers. A selector that no server would have accepted allows nobody.

use super::read::{canonical, deleting, name, uid};
use crate::LoadBalancer;
use crate::selector::{AllowedNamespaces, LabelSelector, NamespacesFrom};
use crate::source::{Backends, LoadBalancerSource};
use bowline_core::ObjectKey;
use bowline_core::objects::{self, Operator, Requirement};
use std::sync::Arc;

/// What the planner knows of a LoadBalancer.
pub fn load_balancer(load_balancer: &LoadBalancer) -> objects::LoadBalancer {
    let LoadBalancer { metadata, spec, .. } = load_balancer;
    let claim = spec.claim_ref.as_ref().map(|claim| {
        let key = ObjectKey::new(claim.namespace.as_str(), claim.name.as_str());
        (key, claim.uid.as_deref().map(Into::into))
    });
    objects::LoadBalancer {
        name: name(metadata),
        uid: uid(metadata),
        deleting: deleting(metadata),
        addresses: spec.addresses.clone(),
        http_port: spec.http_port,
        https_port: spec.https_port,
        allowed: allowed(&spec.allowed_namespaces),
        claim,
        regex_hosts: spec.regex_hosts,
        nodes: matches!(&spec.source, LoadBalancerSource::External(source) if source.backends == Backends::Nodes),
        external: matches!(spec.source, LoadBalancerSource::External(_)),
        source: canonical(&spec.source),
    }
}

fn allowed(allowed: &AllowedNamespaces) -> objects::AllowedNamespaces {
    match (allowed.from, &allowed.selector) {
        (NamespacesFrom::None, _) | (NamespacesFrom::Selector, None) => {
            objects::AllowedNamespaces::None
        }
        (NamespacesFrom::All, _) => objects::AllowedNamespaces::All,
        (NamespacesFrom::Selector, Some(selector)) => label_selector(selector)
            .map_or(objects::AllowedNamespaces::None, objects::AllowedNamespaces::Selector),
    }
}

fn label_selector(selector: &LabelSelector) -> Option<objects::LabelSelector> {
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
