//! LoadBalancers, claims and classes as the binder and the admission get them, and the records of a binding: read from
//! objects, and written into them. A status is read back as the same values that were written.

use super::load_balancer::{allowed, label_selector, scope};
use super::read::{bad_value, created, deleting, key, name, uid};
use crate::claim::{ClaimPhase, LoadBalancerClaimStatus};
use crate::class::LoadBalancerClassSpec;
use crate::condition::Condition;
use crate::load_balancer::{Consumer, LoadBalancerSpec, ReclaimPolicy};
use crate::quantity::{self, ResourceList};
use crate::selector::AllowedNamespaces;
use crate::source::{BareMetalSource, ClassSource, CloudSource, LoadBalancerSource};
use crate::{LoadBalancer, LoadBalancerClaim, LoadBalancerClass, load_balancer, names};
use bowline_core::ObjectKey;
use bowline_core::addresses::Scope;
use bowline_core::admission::{self, Seat};
use bowline_core::binder::{
    self, Ask, Binding, Claim, ClaimReason, ClaimRef, ClaimReport, Class, ClassWish,
    NewLoadBalancer, Phase, Reclaim, Report, Tie,
};
use bowline_core::key::{ConsumerKind, ConsumerRef};
use bowline_core::objects::{self, Version};
use bowline_core::outcome::Problem;
use bowline_core::resources::Amounts;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::sync::Arc;

/// A LoadBalancer as the binder gets it.
pub fn bindable(load_balancer: &LoadBalancer) -> binder::LoadBalancer {
    let LoadBalancer { metadata, spec, status } = load_balancer;
    let consumers = status.iter().flat_map(|status| &status.consumers);
    let mut users: Vec<Arc<str>> = consumers.map(|it| it.namespace.as_str().into()).collect();
    users.sort_unstable();
    users.dedup();
    let labels = metadata.labels.iter().flatten();
    let claim = spec.claim_ref.as_ref().map(|claim| ClaimRef {
        key: ObjectKey::new(claim.namespace.as_str(), claim.name.as_str()),
        uid: claim.uid.as_deref().map(Into::into),
    });
    let conditions = status.iter().flat_map(|status| &status.conditions);
    binder::LoadBalancer {
        name: name(metadata),
        uid: uid(metadata),
        version: version(metadata),
        deleting: deleting(metadata),
        labels: labels.map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect(),
        scope: scope(spec.scope),
        class: spec.class_name.as_deref().map(Into::into),
        capacity: capacity(spec),
        reclaim: reclaim(spec.reclaim_policy),
        shared: allowed(&spec.allowed_namespaces) != objects::AllowedNamespaces::None,
        provisioned_for: provisioned_for(metadata),
        users,
        tie: Tie {
            claim,
            in_use: has_finalizer(metadata, names::FINALIZER_IN_USE),
            cleanup: has_finalizer(metadata, names::FINALIZER_CLEANUP),
        },
        report: report(conditions.collect()),
    }
}

/// A LoadBalancer as the admission gets it. None: it counts no seats.
pub fn seating(load_balancer: &LoadBalancer) -> Option<admission::LoadBalancer> {
    let LoadBalancer { metadata, spec, status } = load_balancer;
    if spec.capacity.is_none() && !spec.require_requests {
        return None;
    }
    let seat = |it: &Consumer| Seat {
        consumer: ConsumerRef {
            kind: match it.kind {
                crate::load_balancer::ConsumerKind::Service => ConsumerKind::Service,
                crate::load_balancer::ConsumerKind::Ingress => ConsumerKind::Ingress,
            },
            namespace: it.namespace.as_str().into(),
            name: it.name.as_str().into(),
            uid: it.uid.as_str().into(),
        },
        requests: amounts(it.requests.as_ref()).unwrap_or_default(),
    };
    Some(admission::LoadBalancer {
        name: name(metadata),
        uid: uid(metadata),
        version: version(metadata),
        deleting: deleting(metadata),
        capacity: capacity(spec),
        require_requests: spec.require_requests,
        seats: status.iter().flat_map(|status| &status.consumers).map(seat).collect(),
    })
}

/// The consumers of a load balancer and their total amounts, as its status shows them.
pub fn seats(write: &admission::Write) -> (Vec<Consumer>, Option<ResourceList>) {
    let consumer = |seat: &Seat| {
        let kind = match seat.consumer.kind {
            ConsumerKind::Service => crate::load_balancer::ConsumerKind::Service,
            ConsumerKind::Ingress => crate::load_balancer::ConsumerKind::Ingress,
            ConsumerKind::LoadBalancer => return None,
        };
        Some(Consumer {
            kind,
            namespace: seat.consumer.namespace.to_string(),
            name: seat.consumer.name.to_string(),
            uid: seat.consumer.uid.to_string(),
            requests: resource_list(&seat.requests),
        })
    };
    let taken = |total: u128| (total > 0).then(|| quantity::written(total));
    let (bandwidth, iops) = (taken(write.allocated.bandwidth), taken(write.allocated.iops));
    let any = bandwidth.is_some() || iops.is_some();
    let allocated = ResourceList { network_bandwidth: bandwidth, network_iops: iops };
    (write.seats.iter().filter_map(consumer).collect(), any.then_some(allocated))
}

/// A LoadBalancerClaim as the binder gets it.
pub fn claim(claim: &LoadBalancerClaim) -> Claim {
    let LoadBalancerClaim { metadata, status, .. } = claim;
    Claim {
        key: key(metadata),
        uid: uid(metadata),
        version: version(metadata),
        created: created(metadata),
        deleting: deleting(metadata),
        ask: ask(claim),
        in_use: has_finalizer(metadata, names::FINALIZER_IN_USE),
        report: status.as_ref().and_then(claim_report),
    }
}

/// A LoadBalancerClaim as the planner gets it: with the load balancer of the consumers that name it.
pub fn claimed(claim: &LoadBalancerClaim) -> objects::LoadBalancerClaim {
    let status = claim.status.as_ref().filter(|it| it.phase == Some(ClaimPhase::Bound));
    let load_balancer = status.and_then(|status| status.load_balancer_name.as_deref());
    objects::LoadBalancerClaim {
        key: key(&claim.metadata),
        uid: uid(&claim.metadata),
        load_balancer: load_balancer.map(Into::into),
    }
}

/// A LoadBalancerClass as the binder gets it.
pub fn class(class: &LoadBalancerClass) -> Class {
    let LoadBalancerClass { metadata, spec, .. } = class;
    Class {
        name: name(metadata),
        created: created(metadata),
        deleting: deleting(metadata),
        default: spec.default,
        capacity: amounts(spec.capacity.as_ref()).unwrap_or_default(),
        reclaim: reclaim(spec.reclaim_policy),
        idle_timeout: spec
            .idle_timeout
            .map(|it| i64::try_from(std::time::Duration::from(it).as_secs()).unwrap_or(i64::MAX)),
        // The controller that gives addresses to Services without a class may give public ones.
        scope: match (spec.scope, &spec.address_pool) {
            (None, None) => Some(Scope::Internet),
            (said, _) => said.map(scope),
        },
        allowed: allowed(&spec.allowed_namespaces),
        unmakable: unmakable(&spec.source).map(Into::into),
    }
}

/// Why nothing can be made from a source. None: it can.
fn unmakable(source: &ClassSource) -> Option<&'static str> {
    match source {
        ClassSource::Builtin(_) | ClassSource::BareMetalLoadBalancer(_) => None,
        ClassSource::Template(_) => {
            Some("Bowline cannot make what a template configures: create the LoadBalancer yourself")
        }
        ClassSource::External(_) => Some("this build has no driver for external"),
        ClassSource::AwsLoadBalancer(_) => Some("this build has no driver for awsLoadBalancer"),
        ClassSource::GceLoadBalancer(_) => Some("this build has no driver for gceLoadBalancer"),
    }
}

/// Where the load balancers that classes make are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// In a cluster, by proxies behind a Service.
    Cluster {
        /// The namespace of the proxies, if the class names none.
        namespace: String,
    },
    /// On this machine, where Ingresses are served at these ports.
    Machine {
        /// In clear text.
        http_port: u16,
        /// Over TLS.
        https_port: u16,
    },
}

impl Default for Location {
    fn default() -> Self {
        Self::Cluster { namespace: names::NAMESPACE.to_owned() }
    }
}

/// The LoadBalancer that a class makes for a claim.
pub fn provisioned(
    new: &NewLoadBalancer,
    class: &LoadBalancerClassSpec,
    location: &Location,
) -> LoadBalancer {
    let (http_port, https_port, namespace) = match location {
        Location::Cluster { namespace } => {
            (80, 443, Some(class.namespace.as_ref().unwrap_or(namespace)))
        }
        Location::Machine { http_port, https_port } => (*http_port, *https_port, None),
    };
    // Behind a door, the door has the address.
    let address_pool = class.address_pool.clone().filter(|_| namespace.is_none());
    let tie = new.tie();
    let (claim, claim_uid) = &new.claim;
    let spec = LoadBalancerSpec {
        capacity: resource_list(&new.capacity),
        scope: match new.scope {
            Scope::Internet => load_balancer::Scope::Internet,
            Scope::Intranet => load_balancer::Scope::Intranet,
        },
        class_name: Some(new.class.to_string()),
        addresses: Vec::new(),
        address_pool,
        http_port,
        https_port,
        reclaim_policy: match new.reclaim {
            Reclaim::Retain => ReclaimPolicy::Retain,
            Reclaim::Recycle => ReclaimPolicy::Recycle,
            Reclaim::Delete => ReclaimPolicy::Delete,
        },
        allowed_namespaces: AllowedNamespaces::default(),
        regex_hosts: false,
        require_requests: false,
        enforce_limits: false,
        claim_ref: tie.claim.as_ref().map(claim_ref),
        source: source(&class.source, &new.name),
    };
    let mark = format!("{claim}/{claim_uid}");
    let place = namespace.map(|it| (names::ANNOTATION_PROXY_NAMESPACE.to_owned(), it.clone()));
    let marks = [(names::ANNOTATION_PROVISIONED_FOR.to_owned(), mark)].into_iter().chain(place);
    LoadBalancer {
        metadata: ObjectMeta {
            name: Some(new.name.to_string()),
            annotations: Some(marks.collect()),
            finalizers: Some(finalizers(&[], &tie)),
            ..ObjectMeta::default()
        },
        spec,
        status: None,
    }
}

/// The finalizers of a load balancer with this tie. Finalizers of other controllers stay.
pub fn finalizers(present: &[String], tie: &Tie) -> Vec<String> {
    let ours = [names::FINALIZER_IN_USE, names::FINALIZER_CLEANUP];
    let others = present.iter().filter(|it| !ours.contains(&it.as_str())).cloned();
    let wanted = ours.into_iter().zip([tie.in_use, tie.cleanup]).filter(|(_, wanted)| *wanted);
    others.chain(wanted.map(|(it, _)| it.to_owned())).collect()
}

/// A claim, as a LoadBalancer refers to it.
pub fn claim_ref(claim: &ClaimRef) -> crate::load_balancer::ClaimRef {
    crate::load_balancer::ClaimRef {
        namespace: claim.key.namespace.to_string(),
        name: claim.key.name.to_string(),
        uid: claim.uid.as_deref().map(Into::into),
    }
}

/// Amounts as quantities. None: no amount is given.
pub fn resource_list(amounts: &Amounts) -> Option<ResourceList> {
    (!amounts.is_empty()).then(|| ResourceList {
        network_bandwidth: amounts.bandwidth.map(|it| quantity::written(it.into())),
        network_iops: amounts.iops.map(|it| quantity::written(it.into())),
    })
}

/// A phase as a claim's status shows it.
pub fn claim_phase(phase: Phase) -> ClaimPhase {
    match phase {
        Phase::Pending => ClaimPhase::Pending,
        Phase::Bound => ClaimPhase::Bound,
        Phase::Lost => ClaimPhase::Lost,
    }
}

fn version(meta: &ObjectMeta) -> Version {
    Version(meta.resource_version.as_deref().unwrap_or_default().into())
}

fn has_finalizer(meta: &ObjectMeta, finalizer: &str) -> bool {
    meta.finalizers.iter().flatten().any(|it| it == finalizer)
}

fn reclaim(policy: ReclaimPolicy) -> Reclaim {
    match policy {
        ReclaimPolicy::Retain => Reclaim::Retain,
        ReclaimPolicy::Recycle => Reclaim::Recycle,
        ReclaimPolicy::Delete => Reclaim::Delete,
    }
}

/// The claim that a load balancer was made for: namespace, name and uid.
fn provisioned_for(meta: &ObjectMeta) -> Option<(ObjectKey, Arc<str>)> {
    let mark = meta.annotations.as_ref()?.get(names::ANNOTATION_PROVISIONED_FOR)?;
    let mut parts = mark.splitn(3, '/');
    let (namespace, name, uid) = (parts.next()?, parts.next()?, parts.next()?);
    Some((ObjectKey::new(namespace, name), uid.into()))
}

fn amounts(list: Option<&ResourceList>) -> Result<Amounts, quantity::QuantityError> {
    let Some(list) = list else { return Ok(Amounts::default()) };
    Ok(Amounts {
        bandwidth: list.network_bandwidth.as_ref().map(quantity::whole).transpose()?,
        iops: list.network_iops.as_ref().map(quantity::whole).transpose()?,
    })
}

/// The capacity. A server accepts no amount that cannot be read; such a one counts as no capacity.
fn capacity(spec: &LoadBalancerSpec) -> Amounts {
    let none = Amounts { bandwidth: Some(0), iops: Some(0) };
    amounts(spec.capacity.as_ref()).unwrap_or(none)
}

fn ask(claim: &LoadBalancerClaim) -> Result<Ask, Problem> {
    let spec = &claim.spec;
    let unreadable = |field: &str, error: quantity::QuantityError| {
        Problem::new(bowline_core::outcome::Reason::BadValue, format!("{field}: {error}"))
    };
    let selector = match &spec.selector {
        None => objects::LabelSelector::default(),
        Some(selector) => label_selector(selector).ok_or_else(|| {
            let text = serde_json::to_string(selector).unwrap_or_default();
            bad_value("spec.selector", &text, "is not a label selector")
        })?,
    };
    let resources = spec.resources.clone().unwrap_or_default();
    Ok(Ask {
        selector,
        requests: amounts(resources.requests.as_ref())
            .map_err(|error| unreadable("spec.resources.requests", error))?,
        limits: amounts(resources.limits.as_ref())
            .map_err(|error| unreadable("spec.resources.limits", error))?,
        load_balancer: spec.load_balancer_name.as_deref().map(Into::into),
        scope: spec.scope.map(scope),
        class: match spec.class_name.as_deref() {
            None => ClassWish::Default,
            Some("") => ClassWish::Never,
            Some(name) => ClassWish::Named(name.into()),
        },
    })
}

fn condition<'a>(all: &[&'a Condition], type_: &str) -> Option<&'a Condition> {
    all.iter().find(|condition| condition.type_ == type_).copied()
}

/// The binding in the conditions of a load balancer.
fn report(conditions: Vec<&Condition>) -> Option<Report> {
    let bound = condition(&conditions, names::CONDITION_BOUND)?;
    let binding = match bound.reason.as_str() {
        names::REASON_AVAILABLE => Binding::Available,
        names::REASON_BOUND => Binding::Bound,
        names::REASON_RELEASED => Binding::Released,
        _ => return None,
    };
    let failed = condition(&conditions, names::CONDITION_RECLAIMED);
    let failed = failed.filter(|it| it.status == "False").map(|it| it.message.as_str().into());
    let idle = condition(&conditions, names::CONDITION_IDLE).filter(|it| it.status == "True");
    Some(Report {
        binding,
        message: bound.message.as_str().into(),
        failed,
        idle_since: idle.map(|it| it.last_transition_time.0.as_second()),
    })
}

/// The report in the status of a claim.
fn claim_report(status: &LoadBalancerClaimStatus) -> Option<ClaimReport> {
    let bound = status.conditions.iter().find(|it| it.type_ == names::CONDITION_BOUND)?;
    Some(ClaimReport {
        phase: match status.phase? {
            ClaimPhase::Pending => Phase::Pending,
            ClaimPhase::Bound => Phase::Bound,
            ClaimPhase::Lost => Phase::Lost,
        },
        load_balancer: status.load_balancer_name.as_deref().map(Into::into),
        capacity: amounts(status.capacity.as_ref()).unwrap_or_default(),
        reason: ClaimReason::parse(&bound.reason)?,
        message: bound.message.as_str().into(),
    })
}

/// The source of one load balancer. Where a class leaves a name open, it is the load balancer's name.
fn source(class: &ClassSource, name: &str) -> LoadBalancerSource {
    match class {
        ClassSource::Builtin(it) => LoadBalancerSource::Builtin(*it),
        ClassSource::BareMetalLoadBalancer(it) => {
            LoadBalancerSource::BareMetalLoadBalancer(BareMetalSource {
                type_: it.type_,
                service_name: name.to_owned(),
            })
        }
        ClassSource::Template(it) => LoadBalancerSource::Template(*it),
        ClassSource::External(it) => LoadBalancerSource::External(it.clone()),
        ClassSource::AwsLoadBalancer(_) => {
            LoadBalancerSource::AwsLoadBalancer(CloudSource { lb_name: name.to_owned() })
        }
        ClassSource::GceLoadBalancer(_) => {
            LoadBalancerSource::GceLoadBalancer(CloudSource { lb_name: name.to_owned() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::testing::object;
    use bowline_core::objects::{Operator, Requirement};

    fn read(spec: &str) -> Result<Ask, Problem> {
        claim(&object(&format!("metadata: {{name: web, namespace: shop, uid: c1}}\nspec: {spec}")))
            .ask
    }

    #[test]
    fn everything_a_claim_asks_for_is_read() {
        let requirement = Requirement { key: "tier".into(), operator: Operator::Exists };
        let expected = Ask {
            selector: objects::LabelSelector { requirements: vec![requirement] },
            requests: Amounts { bandwidth: Some(1_500_000_000), iops: Some(20_000) },
            limits: Amounts { bandwidth: Some(2_000_000_000), iops: None },
            load_balancer: Some("edge".into()),
            scope: Some(Scope::Intranet),
            class: ClassWish::Named("gold".into()),
        };
        let spec = "{selector: {matchExpressions: [{key: tier, operator: Exists}]}, \
             resources: {requests: {network-bandwidth: 1.5G, network-iops: 20k}, \
             limits: {network-bandwidth: 2G}}, loadBalancerName: edge, scope: Intranet, className: gold}";
        assert_eq!(read(spec), Ok(expected));
        assert_eq!(read("{}"), Ok(Ask::default()));
        assert_eq!(read("{className: ''}").map(|ask| ask.class), Ok(ClassWish::Never));
    }

    #[test]
    fn what_no_server_would_take_is_quoted() {
        for (spec, quoted) in [
            ("{resources: {requests: {network-iops: '-1'}}}", "spec.resources.requests: \"-1\""),
            ("{resources: {limits: {network-iops: '1e99'}}}", "spec.resources.limits: \"1e99\""),
            (
                "{selector: {matchExpressions: [{key: a, operator: Like}]}}",
                "is not a label selector",
            ),
        ] {
            let problem = read(spec).unwrap_err();
            assert!(problem.message.contains(quoted), "{}", problem.message);
        }
    }

    #[test]
    fn what_is_recorded_of_a_load_balancer_is_read_back() {
        let text = "{metadata: {name: edge, uid: l1, resourceVersion: '7', labels: {tier: gold}, \
             finalizers: [other/one, bowline.dev/in-use], \
             annotations: {bowline.dev/provisioned-for: shop/web/c1}}, \
             spec: {builtin: {}, scope: Intranet, className: gold, reclaimPolicy: Recycle, \
             capacity: {network-iops: 1k}, claimRef: {namespace: shop, name: web, uid: c1}}, \
             status: {consumers: [{kind: Ingress, namespace: shop, name: b, uid: u2}, \
             {kind: Service, namespace: a, name: x, uid: u3}, \
             {kind: Service, namespace: shop, name: a, uid: u1}], conditions: [\
             {type: Bound, status: 'False', reason: Released, message: gone, lastTransitionTime: '2030-01-01T00:00:00Z'}, \
             {type: Reclaimed, status: 'False', reason: Failed, message: why, lastTransitionTime: '2030-01-01T00:00:00Z'}, \
             {type: Idle, status: 'True', reason: NoConsumers, message: '', lastTransitionTime: '1970-01-01T00:16:40Z'}]}}";
        let key = ObjectKey::new("shop", "web");
        let expected = binder::LoadBalancer {
            name: "edge".into(),
            uid: "l1".into(),
            version: Version("7".into()),
            deleting: false,
            labels: [("tier".into(), "gold".into())].into(),
            scope: Scope::Intranet,
            class: Some("gold".into()),
            capacity: Amounts { bandwidth: None, iops: Some(1_000) },
            reclaim: Reclaim::Recycle,
            shared: false,
            provisioned_for: Some((key.clone(), "c1".into())),
            users: vec!["a".into(), "shop".into()],
            tie: Tie {
                claim: Some(ClaimRef { key, uid: Some("c1".into()) }),
                in_use: true,
                cleanup: false,
            },
            report: Some(Report {
                binding: Binding::Released,
                message: "gone".into(),
                failed: Some("why".into()),
                idle_since: Some(1_000),
            }),
        };
        let lb: LoadBalancer = object(text);
        assert_eq!(bindable(&lb), expected);
        let kept = finalizers(&lb.metadata.finalizers.unwrap(), &Tie::default());
        assert_eq!(kept, ["other/one"]);
    }

    #[test]
    fn a_class_without_a_pool_makes_what_the_internet_reaches_unless_it_says_otherwise() {
        let scope = |spec: &str| {
            class(&object(&format!("{{metadata: {{name: x}}, spec: {{builtin: {{}}{spec}}}}}")))
                .scope
        };
        assert_eq!(scope(""), Some(Scope::Internet));
        assert_eq!(scope(", addressPool: p"), None);
        assert_eq!(scope(", addressPool: p, scope: Internet"), Some(Scope::Internet));
        assert_eq!(scope(", scope: Intranet"), Some(Scope::Intranet));
    }

    #[test]
    fn what_a_class_makes_is_the_claims_from_the_beginning() {
        let class: LoadBalancerClass = object(
            "{metadata: {name: gold}, spec: {bareMetalLoadBalancer: {type: Haproxy}, reclaimPolicy: Retain, addressPool: p}}",
        );
        let new = NewLoadBalancer {
            name: "lbc-c1".into(),
            class: "gold".into(),
            scope: Scope::Intranet,
            capacity: Amounts { bandwidth: Some(2_000_000_000), iops: None },
            reclaim: Reclaim::Retain,
            claim: (ObjectKey::new("shop", "web"), "c1".into()),
        };
        let machine = Location::Machine { http_port: 8080, https_port: 8443 };
        let made = provisioned(&new, &class.spec, &machine);
        let ports = (made.spec.http_port, made.spec.https_port);
        assert_eq!((ports, made.spec.address_pool.as_deref()), ((8080, 8443), Some("p")));
        let cluster = Location::Cluster { namespace: "bowline-system".to_owned() };
        let made = provisioned(&new, &class.spec, &cluster);
        let ports = (made.spec.http_port, made.spec.https_port);
        assert_eq!((ports, &made.spec.address_pool), ((80, 443), &None));
        let place = made.metadata.annotations.as_ref().unwrap();
        assert_eq!(place[names::ANNOTATION_PROXY_NAMESPACE], "bowline-system");
        let known = bindable(&made);
        assert_eq!((known.tie, known.provisioned_for), (new.tie(), Some(new.claim)));
        assert_eq!((known.capacity, known.class), (new.capacity, Some(new.class)));
        let source = serde_json::to_value(&made.spec.source).unwrap();
        let expected = serde_json::json!({"bareMetalLoadBalancer": {"type": "Haproxy", "serviceName": "lbc-c1"}});
        assert_eq!(source, expected);
    }
}
