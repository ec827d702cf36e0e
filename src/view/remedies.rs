//! The names that the commands of a remedy get: those of the object that is explained, and of what it asks for. Pure.

use super::facts::Facts;
use bowline_api::annotation_keys;
use bowline_api::selector::NamespacesFrom;
use bowline_core::diagnosis::remedy::with_names;
use bowline_core::key::{ConsumerKind, ObjectKey};
use bowline_core::nearest::nearest;
use bowline_core::planner::{Ask, Why};
use std::collections::BTreeSet;

/// Names by placeholder.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Names(Vec<(&'static str, String)>);

impl Names {
    /// The names of a Service or Ingress and of its load balancer.
    pub(super) fn of_object(
        kind: ConsumerKind,
        key: &ObjectKey,
        load_balancer: Option<&str>,
    ) -> Self {
        let mut names = vec![
            ("KIND", kind.to_string().to_lowercase()),
            ("NAME", key.name.to_string()),
            ("NAMESPACE", key.namespace.to_string()),
        ];
        names.extend(load_balancer.map(|it| ("LB", it.to_owned())));
        Self(names)
    }

    /// The same with the names of what it asks for.
    pub(super) fn of_consumer(
        facts: &Facts,
        kind: ConsumerKind,
        key: &ObjectKey,
        load_balancer: Option<&str>,
    ) -> Self {
        let Self(mut names) = Self::of_object(kind, key, load_balancer);
        let asked = match facts.planner.why(kind, key) {
            Why::Asks(Ok(asked)) => Some(asked.ask),
            _ => None,
        };
        if let Some(Ask::Claim(claim)) = &asked {
            names.push(("CLAIM", claim.name.to_string()));
        }
        let asked = match &asked {
            Some(Ask::Name(name)) => Some(&**name),
            _ => None,
        };
        names.extend(other(facts, asked.or(load_balancer)).map(|it| ("OTHER", it)));
        names.extend(secret(facts, kind, key).map(|it| ("SECRET", it)));
        names.extend(annotation(facts, kind, key).map(|it| ("ANNOTATION", it)));
        Self(names)
    }

    /// The names for a claim.
    pub(super) fn of_claim(key: &ObjectKey) -> Self {
        Self(vec![("CLAIM", key.name.to_string()), ("NAMESPACE", key.namespace.to_string())])
    }

    /// The names for a load balancer.
    pub(super) fn of_load_balancer(name: &str) -> Self {
        Self(vec![("LB", name.to_owned())])
    }

    /// A remedy with these names.
    pub(super) fn fill(&self, remedy: &str) -> String {
        let names: Vec<_> = self.0.iter().map(|(key, name)| (*key, name.as_str())).collect();
        with_names(remedy, &names)
    }
}

/// The load balancer to name in place of the one that is asked for: the one that was probably meant, else the only other
/// one that is open to all.
fn other(facts: &Facts, asked: Option<&str>) -> Option<String> {
    let lives = facts.load_balancers.iter().filter(|(name, lb)| {
        lb.metadata.deletion_timestamp.is_none() && asked != Some(name.as_str())
    });
    let open = lives.filter(|(_, lb)| lb.spec.allowed_namespaces.from == NamespacesFrom::All);
    let open: Vec<&str> = open.map(|(name, _)| name.as_str()).collect();
    // One that exists is no slip.
    let slip = asked.filter(|it| !facts.load_balancers.contains_key(*it));
    if let Some(meant) = slip.and_then(|it| nearest(it, open.iter().copied())) {
        return Some(meant.to_owned());
    }
    match open[..] {
        [only] => Some(only.to_owned()),
        _ => None,
    }
}

/// The only annotation of an object that does not exist.
fn annotation(facts: &Facts, kind: ConsumerKind, key: &ObjectKey) -> Option<String> {
    let all = match kind {
        ConsumerKind::Service => facts.services.get(key)?.metadata.annotations.as_ref()?,
        ConsumerKind::Ingress => facts.ingresses.get(key)?.metadata.annotations.as_ref()?,
        ConsumerKind::LoadBalancer => return None,
    };
    let is_unknown = |(key, value): &(&String, &String)| {
        let alone = [((*key).clone(), (*value).clone())].into();
        annotation_keys::unknown(&alone).is_some()
    };
    let mut unknown = all.iter().filter(is_unknown).map(|(key, _)| key.clone());
    unknown.next().filter(|_| unknown.next().is_none())
}

/// The Secret of an Ingress that names one.
fn secret(facts: &Facts, kind: ConsumerKind, key: &ObjectKey) -> Option<String> {
    let ingress = facts.ingresses.get(key).filter(|_| kind == ConsumerKind::Ingress)?;
    let all = ingress.spec.iter().flat_map(|it| it.tls.iter().flatten());
    let all: BTreeSet<&String> = all.filter_map(|it| it.secret_name.as_ref()).collect();
    match Vec::from_iter(all)[..] {
        [only] => Some(only.clone()),
        _ => None,
    }
}
