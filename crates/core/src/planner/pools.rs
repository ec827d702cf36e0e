//! Pools of Service ports, as a Service's own listeners and the rules of an Ingress need them.

use super::build::Target;
use crate::key::ObjectKey;
use crate::objects::{Service, ServicePort, Tuning};
use crate::outcome::Problem;
use crate::plan::{
    Backends, NodeBackends, PersistenceKey, Pool, ServicePortRef, Speaks, Transport, ingress_pool,
    service_pool,
};
use ipnet::IpNet;

/// Whether members of this port can be reached: nodes need a node port.
pub(super) fn reachable(port: &ServicePort, target: Target<'_>) -> bool {
    !target.lb.nodes || port.node_port.is_some()
}

/// The pool of a Service's own listener. Datagrams have no cookies, checks or PROXY headers, and
/// connections that nobody looks into have no cookies: there the Service's affinity counts.
pub(super) fn for_listener(service: &Service, port: &ServicePort, target: Target<'_>) -> Pool {
    let key = &service.key;
    let name = service_pool(&key.namespace, &key.name, &port.name);
    let mut pool = pool(name, service, port, target, &service.tuning);
    if pool.persistence.is_some_and(|it| it.by == PersistenceKey::Cookie) {
        pool.persistence = service.affinity;
    }
    if port.transport != Transport::Tcp {
        pool.proxy_protocol = false;
        pool.health_check = None;
    }
    pool
}

/// The pool of a Service port behind an Ingress; what the Ingress does not say, the Service does.
pub(super) fn for_ingress(
    ingress: &ObjectKey,
    tuning: &Tuning,
    service: &Service,
    port: &ServicePort,
    target: Target<'_>,
) -> Pool {
    let name = ingress_pool(&ingress.namespace, &ingress.name, &service.key.name, &port.name);
    let tuning = tuning.clone();
    let own = service.tuning.clone();
    let merged = Tuning {
        algorithm: tuning.algorithm.or(own.algorithm),
        persistence: tuning.persistence.or(own.persistence),
        snat: tuning.snat.or(own.snat),
        proxy_protocol: tuning.proxy_protocol.or(own.proxy_protocol),
        health_check: tuning.health_check.or(own.health_check),
    };
    let speaks = if port.h2c { Speaks::H2c } else { Speaks::Http1 };
    Pool { speaks, ..pool(name, service, port, target, &merged) }
}

fn pool(
    name: std::sync::Arc<str>,
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
    }
}

/// The clients that may use a Service, sorted. Ranges that cannot be read must never become "all".
pub(super) fn ranges(service: &Service) -> Result<Vec<IpNet>, Problem> {
    let mut ranges = service.source_ranges.clone()?;
    ranges.sort_unstable();
    ranges.dedup();
    Ok(ranges)
}
