//! Checks that the cluster has Bowline's kinds, of this version. Pure.

use super::{Check, Checked, Installation};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

pub(super) fn kinds(installation: &Installation) -> Vec<Checked> {
    const REMEDY: &str = "kubectl apply -f deploy/crds of the controllers' version, or: bowline crds | kubectl apply -f -";
    let Some(theirs) = &installation.kinds else {
        return Check::Kinds.unknown("you may not read CustomResourceDefinitions");
    };
    let ours = bowline_api::crds::all();
    let named = |wanted: &CustomResourceDefinition| {
        theirs.iter().find(|it| it.metadata.name == wanted.metadata.name)
    };
    let names = |all: Vec<&CustomResourceDefinition>| {
        let names: Vec<_> = all.iter().map(|it| it.spec.names.kind.as_str()).collect();
        (!names.is_empty()).then(|| names.join(", "))
    };
    let missing = names(ours.iter().filter(|it| named(it).is_none()).collect());
    let other =
        |ours: &&CustomResourceDefinition| named(ours).is_some_and(|theirs| !is_same(ours, theirs));
    let other = names(ours.iter().filter(other).collect());
    let mut found = Vec::new();
    found.extend(missing.map(|it| Check::Kinds.wrong(format!("the cluster lacks {it}"), REMEDY)));
    found.extend(other.map(|it| {
        let message = format!("{it}: the cluster has another version than this program");
        Check::Kinds.wrong(message, REMEDY)
    }));
    Check::Kinds.or_ok(found, format!("all {} are installed, of this version", ours.len()))
}

/// Whether a definition in the cluster has all that ours has. The server adds defaults.
fn is_same(ours: &CustomResourceDefinition, theirs: &CustomResourceDefinition) -> bool {
    let versions = |it: &CustomResourceDefinition| serde_json::to_value(&it.spec.versions);
    match (versions(ours), versions(theirs)) {
        (Ok(ours), Ok(theirs)) => has(&theirs, &ours),
        _ => false,
    }
}

/// Whether everything of `some` is in `all`.
fn has(all: &Value, some: &Value) -> bool {
    match (all, some) {
        (Value::Object(all), Value::Object(some)) => {
            some.iter().all(|(key, value)| all.get(key).is_some_and(|it| has(it, value)))
        }
        (Value::Array(all), Value::Array(some)) => {
            all.len() == some.len() && all.iter().zip(some).all(|(all, some)| has(all, some))
        }
        (Value::Number(all), Value::Number(some)) => all.as_f64() == some.as_f64(),
        _ => all == some,
    }
}
