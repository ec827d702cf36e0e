//! Services, as the planner gets them. Annotations come before the fields that say the same. Source ranges that cannot
//! be read close the Service; they never open it.

use super::address::wish;
use super::read::{
    Annotations, SERVICE_PLACEMENT, bad_tuning, bad_value, created, deleting, flag, key, placement,
    port, requests, transport, tuned, uid,
};
use super::tuning::{On, SOURCE_IP_SECONDS, tuning};
use crate::annotation_keys::{self, BACKEND_TIMEOUT, IP_PER_POD, SOURCE_RANGES, VIP};
use crate::names::{CLASS_IP_PER_POD, CLASS_LOAD_BALANCER, GROUP, VERSION};
use bowline_core::objects::{self, Exposure, Family, Placement, ServiceClass};
use bowline_core::outcome::{Problem, Reason, quote};
use bowline_core::plan::{Persistence, PersistenceKey, Timeouts};
use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// The most milliseconds that a member may be silent: a day.
const LONGEST_TIMEOUT_MS: u32 = 24 * 3600 * 1000;
/// The most source ranges of a Service: each of its pools has all of them.
const MOST_RANGES: usize = 1000;

/// A Service as the planner gets it.
pub fn service(service: &Service) -> objects::Service {
    let (no_spec, no_annotations) = (ServiceSpec::default(), Annotations::new());
    let spec = service.spec.as_ref().unwrap_or(&no_spec);
    let meta = &service.metadata;
    let all = meta.annotations.as_ref().unwrap_or(&no_annotations);
    let exposure = exposure(spec);
    let mut problems = Vec::new();
    let ports = spec.ports.iter().flatten();
    let ports: Vec<_> = ports.filter_map(|port| service_port(port, &mut problems)).collect();
    let affinity = affinity(spec);
    problems.extend(annotation_keys::unknown(all));
    let (class, unclear) = class(spec, all);
    objects::Service {
        key: key(meta),
        uid: uid(meta),
        created: created(meta),
        deleting: deleting(meta),
        exposure,
        class,
        families: families(spec),
        local_only: spec.external_traffic_policy.as_deref() == Some("Local"),
        source_ranges: source_ranges(spec, all),
        placement: match unclear.map_or_else(|| placement(all, SERVICE_PLACEMENT), Err) {
            Ok(Placement::Default) => Ok(door_of(meta).map_or(Placement::Default, Placement::Door)),
            placement => placement,
        },
        vips: vips(spec, all),
        address: wish(meta, spec, all),
        tuning: tuning(all, On::Service(affinity), &mut problems),
        affinity: affinity
            .map(|timeout_seconds| Persistence { by: PersistenceKey::SourceIp, timeout_seconds }),
        timeouts: timeouts(all, &ports, &mut problems),
        ports,
        requests: requests(all),
        problems,
    }
}

/// The uid of the load balancer of which the Service says that it is the door. Such a Service is placed on no load
/// balancer.
fn door_of(meta: &ObjectMeta) -> Option<Arc<str>> {
    let ours = format!("{GROUP}/{VERSION}");
    let mut owners = meta.owner_references.iter().flatten();
    let owner = owners.find(|it| it.kind == "LoadBalancer" && it.api_version == ours)?;
    Some(owner.uid.as_str().into())
}

pub(super) fn exposure(spec: &ServiceSpec) -> Exposure {
    match spec.type_.as_deref() {
        Some("LoadBalancer") => Exposure::LoadBalancer,
        Some("NodePort") => Exposure::NodePort,
        Some("ExternalName") => Exposure::ExternalName,
        _ => Exposure::ClusterIp,
    }
}

/// The class, or the problem that keeps the Service from being placed: whether a user wants an address per Pod must be
/// known before any address is granted.
fn class(spec: &ServiceSpec, all: &Annotations) -> (ServiceClass, Option<Problem>) {
    let class = match spec.load_balancer_class.as_deref() {
        None | Some("") => ServiceClass::Unset,
        Some(CLASS_LOAD_BALANCER) => ServiceClass::LoadBalancer,
        Some(CLASS_IP_PER_POD) => ServiceClass::IpPerPod,
        Some(_) => return (ServiceClass::Foreign, None),
    };
    let Some(found) = annotation_keys::read(all, &IP_PER_POD) else { return (class, None) };
    match flag(found) {
        Ok(true) => (ServiceClass::IpPerPod, None),
        Ok(false) => (class, None),
        Err(why) => (class, Some(bad_value(found.key, found.value, &why))),
    }
}

pub(super) fn service_port(
    written: &ServicePort,
    problems: &mut Vec<Problem>,
) -> Option<objects::ServicePort> {
    let name = written.name.as_deref().unwrap_or_default();
    let Some(number) = port(written.port) else {
        let why = "is not a port: a number from 1 to 65535";
        problems.push(bad_value("spec.ports.port", &written.port.to_string(), why));
        return None;
    };
    let Some(transport) = transport(written.protocol.as_deref()) else {
        let protocol = written.protocol.as_deref().unwrap_or_default();
        problems.push(bad_value("spec.ports.protocol", protocol, "is not TCP, UDP or SCTP"));
        return None;
    };
    Some(objects::ServicePort {
        name: name.into(),
        number,
        transport,
        node_port: written.node_port.and_then(port),
        h2c: written.app_protocol.as_deref() == Some("kubernetes.io/h2c"),
    })
}

/// The families. Servers set `ipFamilies` where a Service has a cluster IP; before that its own addresses decide.
pub(super) fn families(spec: &ServiceSpec) -> Vec<Family> {
    let named = spec.ip_families.iter().flatten().filter_map(|family| match family.as_str() {
        "IPv4" => Some(Family::V4),
        "IPv6" => Some(Family::V6),
        _ => None,
    });
    let own = spec.cluster_ips.iter().flatten().chain(&spec.cluster_ip);
    let own = own.filter_map(|ip| ip.parse().ok().map(Family::of));
    let mut families = Vec::new();
    for family in named {
        if !families.contains(&family) {
            families.push(family);
        }
    }
    if families.is_empty() {
        for family in own {
            if !families.contains(&family) {
                families.push(family);
            }
        }
    }
    if families.is_empty() {
        families.push(Family::V4);
    }
    families
}

/// The seconds of `sessionAffinity: ClientIP`.
fn affinity(spec: &ServiceSpec) -> Option<u32> {
    (spec.session_affinity.as_deref() == Some("ClientIP")).then(|| {
        spec.session_affinity_config
            .as_ref()
            .and_then(|config| config.client_ip.as_ref()?.timeout_seconds)
            .and_then(|seconds| u32::try_from(seconds).ok())
            .filter(|seconds| *seconds > 0)
            .unwrap_or(SOURCE_IP_SECONDS)
    })
}

/// The source ranges. The field comes before the annotation, as in Kubernetes. A blank annotation counts as not set.
pub(super) fn source_ranges(spec: &ServiceSpec, all: &Annotations) -> Result<Vec<IpNet>, Problem> {
    let written = spec.load_balancer_source_ranges.as_deref().unwrap_or_default();
    let ranges: Result<Vec<IpNet>, Problem> = if !written.is_empty() {
        written.iter().map(|text| range("spec.loadBalancerSourceRanges", text)).collect()
    } else {
        match annotation_keys::read(all, &SOURCE_RANGES) {
            Some(found) if !found.value.trim().is_empty() => {
                found.value.split(',').map(|text| range(found.key, text)).collect()
            }
            _ => Ok(Vec::new()),
        }
    };
    match ranges {
        Ok(ranges) if ranges.len() > MOST_RANGES => Err(Problem::new(
            Reason::BadValue,
            format!("{} source ranges are more than {MOST_RANGES}", ranges.len()),
        )),
        ranges => ranges,
    }
}

fn range(field: &str, text: &str) -> Result<IpNet, Problem> {
    let read = text.trim().parse::<IpNet>().map(|net| net.trunc());
    read.map_err(|_| bad_value(field, text, "is not a network such as 203.0.113.0/24"))
}

/// The requested addresses. Every spelling counts; if several are used, they must not contradict the first.
pub(super) fn vips(spec: &ServiceSpec, all: &Annotations) -> Result<Vec<IpAddr>, Problem> {
    let keys = std::iter::once(VIP.name).chain(VIP.alternatives.iter().copied());
    let annotations = keys.filter_map(|key| Some((key, all.get(key)?.as_str())));
    let field = spec.load_balancer_ip.as_deref().filter(|ip| !ip.is_empty());
    let written: Vec<_> = annotations.chain(field.map(|ip| ("spec.loadBalancerIP", ip))).collect();
    let Some((first_key, first)) = written.first().copied() else { return Ok(Vec::new()) };
    let asked = addresses(first_key, first)?;
    for (key, value) in written.into_iter().skip(1) {
        if addresses(key, value)?.iter().any(|ip| !asked.contains(ip)) {
            let why = format!("contradicts {first_key}: {}; write one of them", quote(first));
            return Err(bad_value(key, value, &why));
        }
    }
    Ok(asked)
}

/// Addresses separated by commas, at most one of each family.
fn addresses(key: &str, value: &str) -> Result<Vec<IpAddr>, Problem> {
    let mut vips: Vec<IpAddr> = Vec::new();
    for text in value.split(',') {
        let Ok(ip) = text.trim().parse::<IpAddr>() else {
            let why = "is not an address such as 203.0.113.10, nor one IPv4 and one IPv6 address with a comma \
                between";
            return Err(bad_value(key, value, why));
        };
        if vips.iter().any(|other| other.is_ipv4() == ip.is_ipv4()) {
            return Err(bad_value(
                key,
                value,
                "has two addresses of one family: write one of each",
            ));
        }
        vips.push(ip);
    }
    Ok(vips)
}

/// kube2lb's map of port names to milliseconds. A name that no port has is reported; the others count.
pub(super) fn timeouts(
    all: &Annotations,
    ports: &[objects::ServicePort],
    problems: &mut Vec<Problem>,
) -> BTreeMap<Arc<str>, Timeouts> {
    let read = tuned(all, &BACKEND_TIMEOUT, problems, |found| {
        let map = serde_json::from_str::<BTreeMap<String, u32>>(found.value).ok();
        map.filter(|map| map.values().all(|ms| (1..=LONGEST_TIMEOUT_MS).contains(ms))).ok_or_else(
            || {
                "is not a JSON map of port names to milliseconds from 1 to 86400000, such as \
                 {\"http\":5000}"
                    .into()
            },
        )
    });
    let mut timeouts = BTreeMap::new();
    let mut strangers = Vec::new();
    for (name, ms) in read.into_iter().flatten() {
        match ports.iter().find(|port| *port.name == *name) {
            Some(port) => {
                let timeout = Timeouts { backend_ms: Some(ms), ..Timeouts::default() };
                timeouts.insert(port.name.clone(), timeout);
            }
            None => strangers.push(name),
        }
    }
    if let (Some(name), Some(found)) =
        (strangers.first(), annotation_keys::read(all, &BACKEND_TIMEOUT))
    {
        problems.push(bad_tuning(
            found,
            &format!("names {}, which is not a port of the Service", quote(name)),
        ));
    }
    timeouts
}

#[cfg(test)]
mod tests;
