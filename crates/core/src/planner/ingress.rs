//! An Ingress on a load balancer: builds its fragment from the hosts and paths that it has. Pure functions, called by
//! `index`; they do not decide which Ingress has a host.

use super::build::{Built, Target};
use super::consumer::ConsumerKey;
use super::hosts::Hosts;
use super::recorded::Records;
use super::routes::routes;
use super::web::Web;
use super::{certificates, parts, pools, tls};
use crate::key::ObjectKey;
use crate::objects::{Backend, BackendPort, Exposure, Ingress, Service, ServicePort, TlsSecret};
use crate::outcome::{Problem, Reason, quote};
use crate::plan::{
    Action, ENTRY_WEB, Fragment, Host, PathMatch, Pool, Rule, Site, Transport, WeightedPool,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The answer of a rule without a usable backend.
const UNAVAILABLE: u16 = 503;

/// The surroundings in which an Ingress is planned.
pub(super) struct Around<'a, 'r, S, T> {
    pub(super) target: Target<'a>,
    pub(super) hosts: &'a Hosts,
    pub(super) records: Records<'r>,
    pub(super) web: &'a Web,
    pub(super) service: S,
    pub(super) secret: T,
}

/// The fragment of an Ingress.
pub(super) fn build<'a, S, T>(ingress: &Ingress, around: &Around<'a, '_, S, T>) -> Built
where
    S: Fn(&ObjectKey) -> Option<&'a Service>,
    T: Fn(&ObjectKey) -> Option<&'a TlsSecret>,
{
    let routes = routes(ingress, around.target);
    let mut problems = ingress.problems.clone();
    problems.extend(routes.problems);
    let (offers, tls_problems) = tls::offers(ingress, routes.hosts.keys(), &around.secret);
    problems.extend(tls_problems);
    let reached = match &around.web.reached {
        Ok(reached) => reached.clone(),
        Err(problem) => return Built::refused(problem.clone(), problems),
    };

    let mut backends = Backends { ingress, around, pools: BTreeMap::new(), known: BTreeMap::new() };
    let mut sites = Vec::new();
    let mut taken = Vec::new();
    let mut used = BTreeSet::new();
    for (host, paths) in routes.hosts {
        let namespace = &ingress.key.namespace;
        match around.hosts.owner(&host, namespace, around.records) {
            Some(owner) if owner == namespace => {}
            owner => {
                taken.push(host_taken(&host, owner));
                continue;
            }
        }
        let (mut rules, others) = (Vec::new(), taken.len());
        for (path, backend) in paths {
            match around.hosts.holder(&host, namespace, &path) {
                Some(holder) if *holder == ingress.key => {
                    let action = backends.action(backend, &mut problems);
                    let (method, headers, query) = (None, Vec::new(), Vec::new());
                    rules.push(Rule { path, method, headers, query, action });
                }
                holder => taken.push(path_taken(&host, &path, holder)),
            }
        }
        // A site without rules, where other Ingresses of the namespace hold all paths, records that the namespace owns
        // the host, until the last Ingress that wants it is gone: a host that passes from one Plan object to another
        // always has a holder between two writes.
        if rules.is_empty() && taken.len() == others {
            continue;
        }
        rules.sort_by_cached_key(Rule::precedence);
        let chosen = around.hosts.tls(&host, namespace);
        if let (Some(own), Some((by, offer))) = (offers.get(&host), chosen)
            && own.site != offer.site
        {
            taken.push(tls_taken(&host, by));
        }
        let tls = chosen.map(|(_, offer)| offer.site.clone());
        let certificate = tls.as_ref().and_then(|tls| tls.certificate.as_ref());
        let secret = chosen.and_then(|(_, offer)| offer.secret.clone());
        let certificate = certificate.map(|it| it.hash.clone()).zip(secret);
        used.extend(certificate.map(|(hash, (secret, size))| {
            let created = ingress.created;
            certificates::Use { hash, secret, size, created }
        }));
        sites.push(Site { entry: ENTRY_WEB.into(), host, tls, rules });
    }

    let none = || Problem::new(Reason::BackendNotFound, "no rule has a backend");
    let refused = sites.iter().all(|site| site.rules.is_empty());
    let refused = refused.then(|| taken.first().cloned().unwrap_or_else(none));
    problems.extend(taken);
    if let Some(refused) = refused.clone().filter(|_| sites.is_empty()) {
        return Built::refused(refused, problems);
    }
    if refused.is_none() {
        problems.extend(around.web.http.iter().cloned());
        if sites.iter().any(|site| site.tls.is_some()) {
            problems.extend(around.web.https.iter().cloned());
        }
    }
    let fragment = Fragment {
        consumer: ConsumerKey::ingress(&ingress.key).with_uid(&ingress.uid),
        part: 0,
        claimed: around.target.is_claimed_by(&ingress.key.namespace),
        listeners: Vec::new(),
        sites,
        pools: backends.pools.into_values().collect(),
    };
    match parts::split(fragment) {
        Ok(parts) => {
            let (addresses, draining) = (refused.map_or(Ok(reached), Err), Vec::new());
            Built { addresses, draining, parts, problems, certificates: used }
        }
        Err(problem) => Built::refused(problem, problems),
    }
}

/// The pools of an Ingress, made as its rules need them.
struct Backends<'i, 'r, 'a, S, T> {
    ingress: &'i Ingress,
    around: &'r Around<'a, 'r, S, T>,
    pools: BTreeMap<Arc<str>, Pool>,
    known: BTreeMap<&'i Backend, Option<Arc<str>>>,
}

impl<'i, 'a, S, T> Backends<'i, '_, 'a, S, T>
where
    S: Fn(&ObjectKey) -> Option<&'a Service>,
{
    fn action(&mut self, backend: &'i Backend, problems: &mut Vec<Problem>) -> Action {
        let pool = match self.known.get(backend) {
            Some(known) => known.clone(),
            None => {
                let pool = self.pool(backend).map_err(|problem| problems.push(problem)).ok();
                let name = pool.as_ref().map(|pool| pool.name.clone());
                self.pools.extend(pool.map(|pool| (pool.name.clone(), pool)));
                self.known.insert(backend, name.clone());
                name
            }
        };
        match pool {
            Some(pool) => Action::Forward(vec![WeightedPool { pool, weight: 1 }]),
            None => Action::Respond(UNAVAILABLE),
        }
    }

    fn pool(&self, backend: &Backend) -> Result<Pool, Problem> {
        let unsupported = |message: String| Problem::new(Reason::BackendNotSupported, message);
        let Some(name) = &backend.service else {
            return Err(unsupported(
                "a resource as backend is not supported; name a Service".to_owned(),
            ));
        };
        let key = ObjectKey::new(self.ingress.key.namespace.clone(), name.clone());
        let service = (self.around.service)(&key).ok_or_else(|| {
            let message = format!("Service {} does not exist", quote(name));
            Problem::new(Reason::BackendNotFound, message)
        })?;
        if service.exposure == Exposure::ExternalName {
            let message =
                format!("Service {} is of type ExternalName and has no endpoints", quote(name));
            return Err(unsupported(message));
        }
        let port = port(service, &backend.port).ok_or_else(|| {
            let port = match &backend.port {
                BackendPort::Name(port) => quote(port),
                BackendPort::Number(port) => port.to_string(),
            };
            let message = format!("Service {} has no port {port}", quote(name));
            Problem::new(Reason::BackendNotFound, message)
        })?;
        if port.transport != Transport::Tcp {
            let message = format!("port {} of Service {} is not TCP", port.number, quote(name));
            return Err(unsupported(message));
        }
        pools::ranges(service)?;
        let target = self.around.target;
        if !pools::reachable(port, target) {
            let what = format!(
                "sends traffic to nodes, and port {} of Service {} has no node port: let the Service allocate \
                 node ports",
                port.number,
                quote(name)
            );
            return Err(target.problem(Reason::NoNodePort, what));
        }
        Ok(pools::for_ingress(self.ingress, service, port, target))
    }
}

/// The port of this name or number. Of two with one number the TCP port counts.
fn port<'s>(service: &'s Service, named: &BackendPort) -> Option<&'s ServicePort> {
    let fits = |port: &&ServicePort| match named {
        BackendPort::Name(name) => port.name == *name,
        BackendPort::Number(number) => port.number == *number,
    };
    let ports = || service.ports.iter().filter(fits);
    ports().find(|port| port.transport == Transport::Tcp).or_else(|| ports().next())
}

fn host_taken(host: &Host, owner: Option<&Arc<str>>) -> Problem {
    let owner = owner.map(|owner| quote(owner)).unwrap_or_default();
    let host = quote(&host.to_string());
    Problem::new(
        Reason::HostTaken,
        format!("host {host} belongs to namespace {owner}, which had it first"),
    )
}

fn path_taken(host: &Host, path: &PathMatch, holder: Option<&ObjectKey>) -> Problem {
    let holder = holder.map(ToString::to_string).unwrap_or_default();
    let (host, path) = (quote(&host.to_string()), quote(&path.value));
    let message = format!("path {path} of host {host} belongs to Ingress {holder}, which is older");
    Problem::new(Reason::PathTaken, message)
}

fn tls_taken(host: &Host, by: &ObjectKey) -> Problem {
    let host = quote(&host.to_string());
    Problem::new(
        Reason::HostTaken,
        format!("host {host} uses the TLS settings of Ingress {by}, which comes first"),
    )
}
