//! Compares the wanted status with the present one, and renders the patch, or nothing if they are equal.
//! Only Bowline's own fields and conditions are changed. It does no I/O.

use super::shown::{LoadBalancerShown, ServiceShown, Shown};
use bowline_api::load_balancer::{
    self, Consumer, IngressPoint, LoadBalancerPhase, LoadBalancerStatus, Refusal, Used,
};
use bowline_api::names;
use bowline_core::admission;
use bowline_core::key::{ConsumerKind, ConsumerRef};
use bowline_core::point::Point;
use bowline_core::resources::Resource;
use bowline_core::status;
use k8s_openapi::api::core::v1::LoadBalancerIngress;
use k8s_openapi::api::networking::v1::IngressLoadBalancerIngress;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Traffic must pass through the proxy, so kube-proxy must not catch it.
pub(super) const IP_MODE: &str = "Proxy";
/// No proxy of Bowline is in the path: kube-proxy handles the traffic.
pub(super) const IP_MODE_ALONE: &str = "VIP";

/// The addresses that a Service's status shows.
pub(super) fn addresses_of_service(shown: &ServiceShown) -> Vec<IpAddr> {
    shown.ingress.iter().filter_map(|point| point.ip.as_ref()?.parse().ok()).collect()
}

/// The ingress points in a Service's status.
pub(super) fn points_of_service(shown: &ServiceShown) -> Vec<Point> {
    points(shown.ingress.iter().map(|it| (it.ip.as_deref(), it.hostname.as_deref())))
}

/// The ingress points in an Ingress's status.
pub(super) fn points_of_ingress(shown: &[IngressLoadBalancerIngress]) -> Vec<Point> {
    points(shown.iter().map(|it| (it.ip.as_deref(), it.hostname.as_deref())))
}

fn points<'a>(shown: impl Iterator<Item = (Option<&'a str>, Option<&'a str>)>) -> Vec<Point> {
    let each = shown.filter_map(|(ip, hostname)| match ip {
        Some(ip) => ip.parse().ok().map(Point::At),
        None => hostname.map(|name| Point::Named(name.into())),
    });
    each.collect()
}

/// Whether Bowline's condition on a Service says that it is in force.
pub(super) fn is_programmed(shown: &ServiceShown) -> bool {
    let ours = |c: &&Condition| c.type_ == names::CONDITION_SERVICE_PROGRAMMED;
    shown.conditions.iter().find(ours).is_some_and(|condition| condition.status == "True")
}

/// A condition of this type.
pub(super) fn condition_of(all: &[Condition], type_: &str) -> Option<status::Condition> {
    let found = all.iter().find(|condition| condition.type_ == type_)?;
    Some(status::Condition {
        holds: found.status == "True",
        reason: found.reason.as_str().into(),
        message: found.message.as_str().into(),
    })
}

/// The patch of a Service's status.
pub(super) fn service(
    want: &status::ConsumerStatus,
    mode: &str,
    optional: impl IntoIterator<Item = (&'static str, Option<status::Condition>)>,
    shown: &Shown<ServiceShown>,
    now: Timestamp,
) -> Option<Value> {
    let ingress = want.points.iter().map(|point| match point {
        Point::At(address) => LoadBalancerIngress {
            ip: Some(address.to_string()),
            ip_mode: Some(mode.to_owned()),
            ..LoadBalancerIngress::default()
        },
        Point::Named(name) => LoadBalancerIngress {
            hostname: Some(name.to_string()),
            ..LoadBalancerIngress::default()
        },
    });
    let ingress: Vec<_> = ingress.collect();
    let mut conditions = with_condition(
        &shown.status.conditions,
        names::CONDITION_SERVICE_PROGRAMMED,
        &want.programmed,
        shown.generation,
        now,
    );
    for (type_, want) in optional {
        match want {
            Some(want) => {
                conditions = with_condition(&conditions, type_, &want, shown.generation, now);
            }
            None => conditions.retain(|condition| condition.type_ != type_),
        }
    }
    let status = ServiceShown { ingress, conditions };
    (status != shown.status).then(|| service_patch(&status, &shown.version))
}

/// The patch that removes Bowline's entries from the status of a Service that Bowline no longer serves.
/// `recorded` are the Service's recorded addresses; `is_ours` says whether a hostname belongs to one of
/// Bowline's load balancers.
pub(super) fn service_cleared(
    shown: &Shown<ServiceShown>,
    recorded: &[IpAddr],
    is_ours: impl Fn(&str) -> bool,
) -> Option<Value> {
    let ours = |c: &Condition| c.type_ == names::CONDITION_SERVICE_PROGRAMMED;
    if !shown.status.conditions.iter().any(ours) {
        return None;
    }
    // Another controller may already own the Service. Points with the proxy's IP mode are Bowline's.
    let written_by_us = shown.status.ingress.iter().all(|point| {
        let address = point.ip.as_ref().and_then(|ip| ip.parse().ok());
        point.ip_mode.as_deref() == Some(IP_MODE)
            || point.hostname.as_deref().is_some_and(&is_ours)
            || address.is_some_and(|address| recorded.contains(&address))
    });
    let others = [
        names::CONDITION_ADDRESS_FROM_DNS,
        names::CONDITION_SERVICE_DEGRADED,
        names::CONDITION_SERVICE_ANNOUNCED,
    ];
    let ours = |c: &Condition| ours(c) || others.contains(&&*c.type_);
    let status = ServiceShown {
        ingress: if written_by_us { Vec::new() } else { shown.status.ingress.clone() },
        conditions: shown.status.conditions.iter().filter(|c| !ours(c)).cloned().collect(),
    };
    Some(service_patch(&status, &shown.version))
}

fn service_patch(status: &ServiceShown, version: &str) -> Value {
    json!({
        "metadata": {"resourceVersion": version},
        "status": {
            "loadBalancer": {"ingress": none_if_empty(&status.ingress)},
            "conditions": none_if_empty(&status.conditions),
        },
    })
}

/// The patch that makes an Ingress show exactly these points.
pub(super) fn ingress(
    points: &[Point],
    shown: &Shown<Vec<IngressLoadBalancerIngress>>,
) -> Option<Value> {
    let points = points.iter().map(|point| {
        let (ip, hostname) = match point {
            Point::At(address) => (Some(address.to_string()), None),
            Point::Named(name) => (None, Some(name.to_string())),
        };
        IngressLoadBalancerIngress { ip, hostname, ..IngressLoadBalancerIngress::default() }
    });
    let points: Vec<_> = points.collect();
    (points != shown.status).then(|| {
        json!({
            "metadata": {"resourceVersion": &*shown.version},
            "status": {"loadBalancer": {"ingress": none_if_empty(&points)}},
        })
    })
}

/// The wanted status of a LoadBalancer. Fields of other writers stay.
pub(super) fn load_balancer(
    want: status::LoadBalancerStatus,
    names: &[Arc<str>],
    shown: &Shown<LoadBalancerShown>,
    now: Timestamp,
) -> LoadBalancerStatus {
    let before = &shown.status.status;
    let known: HashMap<&str, &Consumer> =
        before.consumers.iter().map(|consumer| (consumer.uid.as_str(), consumer)).collect();
    let counted = shown.status.seating.is_some();
    let requests = |uid: &str| known.get(uid)?.requests.clone();
    let consumers = want.consumers.iter().filter_map(|consumer| {
        Some(Consumer {
            kind: kind(consumer)?,
            namespace: consumer.namespace.to_string(),
            name: consumer.name.to_string(),
            uid: consumer.uid.to_string(),
            requests: requests(&consumer.uid),
        })
    });
    let refused = want.refused.iter().filter_map(|(consumer, problem)| {
        Some(Refusal {
            kind: kind(consumer)?,
            namespace: consumer.namespace.to_string(),
            name: consumer.name.to_string(),
            reason: problem.reason.to_string(),
            message: problem.message.to_string(),
        })
    });
    let phase = match want.phase {
        status::LoadBalancerPhase::Pending => LoadBalancerPhase::Pending,
        status::LoadBalancerPhase::Running => LoadBalancerPhase::Running,
        status::LoadBalancerPhase::Failed => LoadBalancerPhase::Failed,
    };
    LoadBalancerStatus {
        phase: Some(phase),
        message: want.message,
        ingress: Point::all(&want.addresses, names)
            .into_iter()
            .map(|point| match point {
                Point::At(ip) => IngressPoint { ip: Some(ip), hostname: None },
                Point::Named(name) => IngressPoint { ip: None, hostname: Some(name.to_string()) },
            })
            .collect(),
        // Where seats are counted, only admission records them.
        allocated: before.allocated.clone().filter(|_| counted),
        used: shown.status.seating.as_ref().and_then(used),
        consumers: if counted { before.consumers.clone() } else { consumers.collect() },
        refused: refused.collect(),
        conditions: with_condition(
            &before.conditions,
            names::CONDITION_PROGRAMMED,
            &want.programmed,
            shown.generation,
            now,
        ),
    }
}

/// Why the load balancer could not be wiped or removed, from its status.
pub(super) fn unreclaimed(shown: &LoadBalancerStatus) -> Option<&str> {
    let failed = |it: &&Condition| it.type_ == names::CONDITION_RECLAIMED && it.status == "False";
    shown.conditions.iter().find(failed).map(|it| it.message.as_str())
}

/// What the binder says of a load balancer's binding, from its status: while it is being deleted, what holds it.
pub(super) fn held(shown: &LoadBalancerStatus) -> Option<&str> {
    let bound = |it: &&Condition| it.type_ == names::CONDITION_BOUND;
    let message = shown.conditions.iter().find(bound).map(|it| it.message.as_str());
    message.filter(|message| !message.is_empty())
}

/// How much of its capacity is used. None: it has no capacity.
fn used(lb: &admission::LoadBalancer) -> Option<Used> {
    let allocated = lb.allocated();
    let percent = |resource| {
        let percent = allocated.percent(resource, &lb.capacity)?;
        Some(format!("{percent}%"))
    };
    let used = Used {
        network_bandwidth: percent(Resource::Bandwidth),
        network_iops: percent(Resource::Iops),
    };
    (used != Used::default()).then_some(used)
}

/// The patch of a LoadBalancer's status.
pub(super) fn load_balancer_patch(status: &LoadBalancerStatus, version: &str) -> Value {
    json!({
        "metadata": {"resourceVersion": version},
        "status": {
            "phase": status.phase,
            "message": status.message,
            "ingress": none_if_empty(&status.ingress),
            "allocated": super::bindings::amounts(status.allocated.clone()),
            "used": status.used.as_ref().map(|it| json!({
                "network-bandwidth": it.network_bandwidth, "network-iops": it.network_iops,
            })),
            "consumers": none_if_empty(&status.consumers),
            "refused": none_if_empty(&status.refused),
            "conditions": none_if_empty(&status.conditions),
        },
    })
}

fn kind(consumer: &ConsumerRef) -> Option<load_balancer::ConsumerKind> {
    match consumer.kind {
        ConsumerKind::Service => Some(load_balancer::ConsumerKind::Service),
        ConsumerKind::Ingress => Some(load_balancer::ConsumerKind::Ingress),
        ConsumerKind::LoadBalancer => None,
    }
}

/// Null in a merge patch removes a field; an empty list would stay as an empty list.
fn none_if_empty<T: serde::Serialize>(list: &[T]) -> Option<&[T]> {
    (!list.is_empty()).then_some(list)
}

/// Sets one of Bowline's conditions. Its time changes only with its status. A new generation of the object
/// alone causes no write.
pub(super) fn with_condition(
    before: &[Condition],
    type_: &str,
    want: &status::Condition,
    generation: i64,
    now: Timestamp,
) -> Vec<Condition> {
    let status = if want.holds { "True" } else { "False" };
    let old = before.iter().find(|condition| condition.type_ == type_);
    let same = |old: &&Condition| {
        old.status == status && old.reason == *want.reason && old.message == *want.message
    };
    let ours = match old.filter(same) {
        Some(old) => old.clone(),
        None => Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: want.reason.to_string(),
            message: want.message.to_string(),
            observed_generation: (generation > 0).then_some(generation),
            last_transition_time: match old {
                Some(old) if old.status == status => old.last_transition_time.clone(),
                // Kubernetes stores these times in whole seconds.
                _ => Time(Timestamp::from_second(now.as_second()).unwrap_or(now)),
            },
        },
    };
    let mut conditions = before.to_vec();
    match conditions.iter_mut().find(|condition| condition.type_ == type_) {
        Some(place) => *place = ours,
        None => conditions.push(ours),
    }
    conditions
}

#[cfg(test)]
mod tests {
    use super::*;

    fn want(addresses: &[&str]) -> status::ConsumerStatus {
        status::ConsumerStatus {
            points: addresses.iter().map(|a| Point::At(a.parse().unwrap())).collect(),
            programmed: status::Condition {
                holds: true,
                reason: "Programmed".into(),
                message: "yes".into(),
            },
        }
    }

    fn after(patch: &Value) -> Shown<ServiceShown> {
        let list = |value: &Value| if value.is_null() { json!([]) } else { value.clone() };
        let status = &patch["status"];
        Shown {
            version: "2".into(),
            generation: 0,
            status: ServiceShown {
                ingress: serde_json::from_value(list(&status["loadBalancer"]["ingress"])).unwrap(),
                conditions: serde_json::from_value(list(&status["conditions"])).unwrap(),
            },
        }
    }

    fn empty() -> Shown<ServiceShown> {
        Shown { version: "1".into(), generation: 0, status: ServiceShown::default() }
    }

    #[test]
    fn a_status_that_says_it_already_is_not_written_again() {
        let patch =
            service(&want(&["192.0.2.1"]), IP_MODE, [], &empty(), Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(patch["metadata"]["resourceVersion"], "1");
        let ingress = &patch["status"]["loadBalancer"]["ingress"];
        assert_eq!(*ingress, json!([{"ip": "192.0.2.1", "ipMode": "Proxy"}]));
        let later = Timestamp::from_second(100).unwrap();
        assert_eq!(service(&want(&["192.0.2.1"]), IP_MODE, [], &after(&patch), later), None);
    }

    #[test]
    fn what_is_reached_by_a_name_shows_the_name() {
        let names = ["a.cloud.example", "b.cloud.example"].map(|it| Point::Named(it.into()));
        let mut both = want(&["192.0.2.1"]);
        both.points.splice(0..0, names);
        let patch = service(&both, IP_MODE, [], &empty(), Timestamp::UNIX_EPOCH).unwrap();
        let expected = json!([
            {"hostname": "a.cloud.example"}, {"hostname": "b.cloud.example"},
            {"ip": "192.0.2.1", "ipMode": "Proxy"},
        ]);
        assert_eq!(patch["status"]["loadBalancer"]["ingress"], expected);
        let shown = after(&patch);
        assert_eq!(points_of_service(&shown.status), both.points);
        let nothing = Shown { version: "1".into(), generation: 0, status: Vec::new() };
        let patch = ingress(&both.points[1..], &nothing).unwrap();
        let expected = json!([{"hostname": "b.cloud.example"}, {"ip": "192.0.2.1"}]);
        assert_eq!(patch["status"]["loadBalancer"]["ingress"], expected);
        let ours = |name: &str| name.ends_with(".cloud.example");
        let cleared = after(&service_cleared(&shown, &[], ours).unwrap());
        assert_eq!(cleared.status.ingress, []);
        let theirs = after(&service_cleared(&shown, &[], |_| false).unwrap());
        assert_eq!(theirs.status.ingress, shown.status.ingress, "another took it over");
    }

    #[test]
    fn what_we_wrote_is_taken_back_and_what_others_wrote_stays() {
        let patch =
            service(&want(&["192.0.2.1"]), IP_MODE, [], &empty(), Timestamp::UNIX_EPOCH).unwrap();
        let mut shown = after(&patch);
        let foreign = Condition {
            type_: "example.com/Other".to_owned(),
            ..shown.status.conditions[0].clone()
        };
        shown.status.conditions.push(foreign.clone());
        let cleared = service_cleared(&shown, &[], |_| false).unwrap();
        assert_eq!(
            after(&cleared).status,
            ServiceShown { ingress: Vec::new(), conditions: vec![foreign] }
        );
        assert_eq!(service_cleared(&after(&cleared), &[], |_| false), None);
    }
}
