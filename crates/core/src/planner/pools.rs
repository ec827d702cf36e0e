//! Builds the pools of Service ports for a Service's own listeners and for the rules of an Ingress. Pure functions,
//! called by `service` and `ingress`; they choose no members.

use super::build::Target;
use crate::key::{ConsumerKind, ConsumerRef, ObjectKey};
use crate::objects::{Ingress, Service, ServicePort, Tuning};
use crate::outcome::Problem;
use crate::plan::{
    Backends, Limits, NodeBackends, PersistenceKey, Pool, ServicePortRef, Speaks, Transport,
    ingress_pool, service_pool,
};
use crate::resources::Amounts;
use ipnet::IpNet;
use std::sync::Arc;

/// Whether members of this port can be reached: nodes are reached only at a node port.
pub(super) fn reachable(port: &ServicePort, target: Target<'_>) -> bool {
    !target.lb.nodes || port.node_port.is_some()
}

/// The pool of a Service's own listener. UDP and SCTP have no cookies, checks or PROXY headers, and TCP without HTTP
/// has no cookies: there the Service's affinity takes the place of a cookie.
pub(super) fn for_listener(service: &Service, port: &ServicePort, target: Target<'_>) -> Pool {
    let key = &service.key;
    let name = service_pool(&key.namespace, &key.name, &port.name);
    let mut pool = pool(name, service, port, target, &service.tuning);
    if pool.persistence.is_some_and(|it| it.by == PersistenceKey::Cookie) {
        pool.persistence = service.affinity;
    }
    pool.limits = limits(ConsumerKind::Service, key, &service.uid, &service.requests, target);
    if port.transport != Transport::Tcp {
        pool.proxy_protocol = false;
        pool.health_check = None;
    }
    pool
}

/// The pool of a Service port behind an Ingress. What the Ingress leaves out, the Service decides.
pub(super) fn for_ingress(
    ingress: &Ingress,
    service: &Service,
    port: &ServicePort,
    target: Target<'_>,
) -> Pool {
    let key = &ingress.key;
    let name = ingress_pool(&key.namespace, &key.name, &service.key.name, &port.name);
    let tuning = ingress.tuning.clone();
    let own = service.tuning.clone();
    let merged = Tuning {
        algorithm: tuning.algorithm.or(own.algorithm),
        persistence: tuning.persistence.or(own.persistence),
        snat: tuning.snat.or(own.snat),
        proxy_protocol: tuning.proxy_protocol.or(own.proxy_protocol),
        health_check: tuning.health_check.or(own.health_check),
    };
    let speaks = if port.h2c { Speaks::H2c } else { Speaks::Http1 };
    let limits = limits(ConsumerKind::Ingress, key, &ingress.uid, &ingress.requests, target);
    Pool { speaks, limits, ..pool(name, service, port, target, &merged) }
}

/// The limits of a consumer, where its load balancer enforces limits. Where seats are counted they are the amounts with
/// which the consumer was admitted, whatever it requests now.
fn limits(
    kind: ConsumerKind,
    key: &ObjectKey,
    uid: &Arc<str>,
    requests: &Result<Amounts, Problem>,
    target: Target<'_>,
) -> Option<Limits> {
    let requests = match target.lb.counted {
        true => target.seat,
        false => requests.as_ref().ok().copied(),
    };
    let requests = requests.filter(|it| target.lb.enforce_limits && !it.is_empty())?;
    let ObjectKey { namespace, name } = key.clone();
    Some(Limits {
        consumer: ConsumerRef { kind, namespace, name, uid: uid.clone() },
        requests_per_second: requests.iops,
        bits_per_second: requests.bandwidth,
    })
}

fn pool(
    name: Arc<str>,
    service: &Service,
    port: &ServicePort,
    target: Target<'_>,
    tuning: &Tuning,
) -> Pool {
    let backends = match port.node_port {
        Some(node_port) if target.lb.nodes => {
            Backends::Nodes(NodeBackends { node_port, local_only: service.local_only })
        }
        _ => Backends::Pods,
    };
    Pool {
        name,
        service: ServicePortRef {
            namespace: service.key.namespace.clone(),
            name: service.key.name.clone(),
            port: port.name.clone(),
            protocol: port.transport,
        },
        backends,
        algorithm: tuning.algorithm.unwrap_or_default(),
        persistence: tuning.persistence.flatten(),
        snat: tuning.snat.unwrap_or(true),
        proxy_protocol: tuning.proxy_protocol.unwrap_or(false),
        speaks: Speaks::Http1,
        source_ranges: ranges(service).unwrap_or_default(),
        timeouts: service.timeouts.get(&port.name).copied().unwrap_or_default(),
        health_check: tuning.health_check.clone(),
        limits: None,
    }
}

/// The clients that may use a Service, sorted. Ranges that cannot be read must never become "all".
pub(super) fn ranges(service: &Service) -> Result<Vec<IpNet>, Problem> {
    let mut ranges = service.source_ranges.clone()?;
    ranges.sort_unstable();
    ranges.dedup();
    Ok(ranges)
}
