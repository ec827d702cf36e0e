//! The rules of an Ingress as hosts and paths, without duplicates: what it wants on a load
//! balancer, whether or not other Ingresses want the same. Pure functions, called by `index` and
//! `ingress`.

use super::build::Target;
use super::hosts::HostWant;
use super::tls;
use crate::diagnosis::Place;
use crate::key::ObjectKey;
use crate::objects::{Backend, Ingress, TlsSecret};
use crate::outcome::{Problem, Reason, quote};
use crate::plan::{Host, PathKind, PathMatch};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// The longest path: no client sends a longer one, and no proxy takes one.
const LONGEST_PATH: usize = 4096;

/// The backends of an Ingress, by host and path.
pub(super) struct Routes<'a> {
    pub(super) hosts: BTreeMap<Host, BTreeMap<PathMatch, &'a Backend>>,
    pub(super) problems: Vec<Problem>,
}

/// The routes of an Ingress. If a host and path occurs twice, the first counts. The default backend
/// serves every host without a rule, and hosts that have rules without paths.
pub(super) fn routes<'a>(ingress: &'a Ingress, target: Target<'_>) -> Routes<'a> {
    let mut hosts: BTreeMap<Host, BTreeMap<PathMatch, &Backend>> = BTreeMap::new();
    let mut problems = Vec::new();
    let mut to_default = Vec::new();
    for rule in &ingress.rules {
        if matches!(rule.host, Host::Regex(_)) && !target.lb.regex_hosts {
            let what =
                format!("takes no regular expression as host: {}", quote(&rule.host.to_string()));
            problems.push(target.problem(Reason::NotSupported, what));
            continue;
        }
        if rule.paths.is_empty() {
            to_default.push(&rule.host);
        }
        for path in &rule.paths {
            let value = quote(&path.path.value);
            if path.path.value.len() > LONGEST_PATH {
                let message = format!("path {value} is longer than {LONGEST_PATH} bytes");
                problems.push(Problem::new(Reason::NotSupported, message));
                continue;
            }
            match hosts.entry(rule.host.clone()).or_default().entry(normal(&path.path)) {
                Entry::Vacant(place) => {
                    place.insert(&path.backend);
                }
                Entry::Occupied(_) => {
                    let message = format!(
                        "path {value} of host {} is there twice: the first counts",
                        quote(&rule.host.to_string())
                    );
                    problems.push(Problem::new(Reason::PathTaken, message));
                }
            }
        }
    }
    if let Some(backend) = &ingress.default_backend {
        for host in to_default.into_iter().chain([&Host::Any]) {
            let everything = PathMatch { kind: PathKind::Prefix, value: "/".into() };
            hosts.entry(host.clone()).or_default().entry(everything).or_insert(backend);
        }
    }
    hosts.retain(|_, paths| !paths.is_empty());
    Routes { hosts, problems }
}

/// A prefix is compared element by element, so `/a/` is the same as `/a`.
fn normal(path: &PathMatch) -> PathMatch {
    if path.kind != PathKind::Prefix {
        return path.clone();
    }
    match path.value.trim_end_matches('/') {
        "" => PathMatch { kind: path.kind, value: "/".into() },
        trimmed if trimmed.len() == path.value.len() => path.clone(),
        trimmed => PathMatch { kind: path.kind, value: trimmed.into() },
    }
}

/// What an Ingress wants for the hosts of a load balancer, or why it can have nothing at all.
pub(super) fn wants<'a>(
    ingress: &Ingress,
    target: Target<'_>,
    secret: impl Fn(&ObjectKey) -> Option<&'a TlsSecret>,
) -> Result<BTreeMap<Host, HostWant>, Problem> {
    let routes = routes(ingress, target);
    if routes.hosts.is_empty() {
        let mut all = routes.problems.iter().chain(&ingress.problems);
        let first = all.find(|problem| problem.reason.is_told(Place::Refused));
        return Err(first
            .cloned()
            .unwrap_or_else(|| Problem::new(Reason::BackendNotFound, "no rule has a backend")));
    }
    let (mut offers, _) = tls::offers(ingress, routes.hosts.keys(), secret);
    let want = |(host, paths): (Host, BTreeMap<PathMatch, _>)| {
        let tls = offers.remove(&host);
        (host, HostWant { paths: paths.into_keys().collect(), tls })
    };
    Ok(routes.hosts.into_iter().map(want).collect())
}
