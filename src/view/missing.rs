//! What `bowline explain` says of an object that does not exist: in which namespace there is one of that name, or which
//! name was probably meant. Pure. It knows only what the caller may list.

use super::explain::Subject;
use super::facts::Facts;
use super::remedies::Names;
use bowline_core::key::ObjectKey;
use bowline_core::nearest::did_you_mean;
use bowline_core::outcome::{Reason, quote};

/// The most namespaces that are named.
const MOST: usize = 3;

/// The sentence about an object that does not exist.
pub(crate) fn sentence(facts: &Facts, subject: Subject, key: &ObjectKey) -> String {
    match subject {
        Subject::LoadBalancer => {
            let names = facts.load_balancers.keys().map(String::as_str);
            let meant = did_you_mean(&key.name, names);
            let hint = if meant.is_empty() { "; see bowline status".to_owned() } else { meant };
            format!("there is no load balancer {}{hint}", quote(&key.name))
        }
        Subject::Service => in_namespace("Service", "services", facts.services.keys(), key),
        Subject::Ingress => in_namespace("Ingress", "ingresses", facts.ingresses.keys(), key),
        Subject::Claim => claim(facts, key),
        Subject::Address => format!(
            "no object has the address {}, and it does not rest; see bowline status --addresses",
            quote(&key.name)
        ),
    }
}

/// A claim can be made by whoever misses it.
fn claim(facts: &Facts, key: &ObjectKey) -> String {
    let missing = in_namespace("claim", "lbc", facts.claims.keys(), key);
    let helps = Reason::ClaimNotFound.remedy().map(|it| Names::of_claim(key).fill(it.what));
    match helps {
        Some(helps) => format!("{missing}. What helps: {helps}"),
        None => missing,
    }
}

fn in_namespace<'a>(
    kind: &str,
    plural: &str,
    known: impl Iterator<Item = &'a ObjectKey> + Clone,
    key: &ObjectKey,
) -> String {
    let ObjectKey { namespace, name } = key;
    let what = format!("there is no {kind} {} in namespace {}", quote(name), quote(namespace));
    let of_name = known.clone().filter(|it| it.name == *name).map(|it| &*it.namespace);
    let elsewhere: Vec<_> = of_name.take(MOST).map(|it| format!("-n {it}")).collect();
    if !elsewhere.is_empty() {
        return format!("{what}: there is one with {}", elsewhere.join(", or "));
    }
    let here = known.filter(|it| it.namespace == *namespace).map(|it| &*it.name);
    let meant = did_you_mean(name, here);
    let all = || format!("; `kubectl get {plural} -A` lists all");
    let hint = if meant.is_empty() { all() } else { meant };
    format!("{what}{hint}")
}
