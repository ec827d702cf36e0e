//! Who is ours, which load balancer a consumer asks for, and whether it may use that one. Pure
//! functions of objects; the planner calls them whenever one of those objects changes.

use super::Config;
use super::directory::Directory;
use crate::key::ObjectKey;
use crate::objects::{
    AllowedNamespaces, ClassParameters, Exposure, Ingress, IngressClass, LabelSelector,
    LoadBalancer, Namespace, Operator, Placement, Service, ServiceClass,
};
use crate::outcome::{Problem, Reason, quote};
use std::sync::Arc;

/// What a consumer asks for: the edge by which a change of a load balancer finds it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Ask {
    /// The load balancer of this name.
    Name(Arc<str>),
    /// The one that this claim is bound to.
    Claim(ObjectKey),
    /// The one with this source.
    Source(Arc<str>),
    /// The only external one.
    External,
    /// None in particular, and there is no default.
    Nothing,
}

/// Why a consumer is nowhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) load_balancer: Option<Arc<str>>,
    pub(super) problem: Problem,
}

impl Refusal {
    pub(super) fn nowhere(problem: Problem) -> Self {
        Self { load_balancer: None, problem }
    }

    pub(super) fn by(lb: &LoadBalancer, problem: Problem) -> Self {
        Self { load_balancer: Some(lb.name.clone()), problem }
    }
}

/// Whether a Service is ours.
pub(super) fn is_ours(service: &Service, config: &Config) -> bool {
    !service.deleting
        && match service.exposure {
            Exposure::LoadBalancer => match service.class {
                ServiceClass::LoadBalancer => true,
                ServiceClass::Unset => config.default_class,
                ServiceClass::IpPerPod | ServiceClass::Foreign => false,
            },
            Exposure::NodePort => {
                service.placement != Ok(Placement::Default)
                    || config.default_class && config.default_load_balancer.is_some()
            }
            Exposure::ClusterIp | Exposure::ExternalName => false,
        }
}

/// What a Service of ours asks for.
pub(super) fn ask_of_service(service: &Service, config: &Config) -> Result<Ask, Problem> {
    let placement = service.placement.as_ref().map_err(Clone::clone)?;
    let vips = service.vips.as_ref().map_err(Clone::clone)?;
    let otherwise = if vips.is_empty() { Ask::Nothing } else { Ask::External };
    Ok(named(placement, &service.key).or_else(|| default(config)).unwrap_or(otherwise))
}

/// What an Ingress asks for, itself or by its class. None: it is not ours.
pub(super) fn ask_of_ingress(
    ingress: &Ingress,
    class: &IngressClass,
    config: &Config,
) -> Option<Result<Ask, Problem>> {
    let ours = class.ours && !ingress.deleting;
    ours.then(|| ask_with_class(ingress, class, config))
}

fn ask_with_class(
    ingress: &Ingress,
    class: &IngressClass,
    config: &Config,
) -> Result<Ask, Problem> {
    let placement = ingress.placement.as_ref().map_err(Clone::clone)?;
    if let Some(ask) = named(placement, &ingress.key) {
        return Ok(ask);
    }
    match class.parameters.as_ref().map_err(Clone::clone)? {
        ClassParameters::None => Ok(default(config).unwrap_or(Ask::Nothing)),
        ClassParameters::LoadBalancer(name) => Ok(Ask::Name(name.clone())),
        ClassParameters::Claim(claim) if claim.namespace == ingress.key.namespace => {
            Ok(Ask::Claim(claim.clone()))
        }
        ClassParameters::Claim(claim) => Err(Problem::new(
            Reason::NotAllowed,
            format!(
                "ingress class {} serves namespace {} only",
                quote(&class.name),
                quote(&claim.namespace)
            ),
        )),
    }
}

fn named(placement: &Placement, consumer: &ObjectKey) -> Option<Ask> {
    match placement {
        Placement::Default => None,
        Placement::LoadBalancer(name) => Some(Ask::Name(name.clone())),
        Placement::Claim(name) => {
            Some(Ask::Claim(ObjectKey::new(consumer.namespace.clone(), name.clone())))
        }
        Placement::Source(source) => Some(Ask::Source(source.clone())),
    }
}

fn default(config: &Config) -> Option<Ask> {
    config.default_load_balancer.clone().map(Ask::Name)
}

/// The load balancer that is asked for, if the namespace may use it.
pub(super) fn place<'a>(
    ask: &Ask,
    namespace: &str,
    labels: Option<&Namespace>,
    directory: &'a Directory,
) -> Result<&'a Arc<LoadBalancer>, Refusal> {
    let may_use = |lb: &LoadBalancer| allows(lb, namespace, labels);
    let not_found =
        |message: String| Refusal::nowhere(Problem::new(Reason::LoadBalancerNotFound, message));
    let lb = match ask {
        Ask::Name(name) => directory
            .by_name(name)
            .ok_or_else(|| not_found(format!("load balancer {} does not exist", quote(name))))?,
        Ask::Claim(claim) => directory.by_claim(claim).ok_or_else(|| {
            Refusal::nowhere(Problem::new(
                Reason::ClaimNotBound,
                format!("claim {} is not bound to a load balancer", quote(&claim.name)),
            ))
        })?,
        Ask::Source(source) => directory
            .by_source(source)
            .find(|lb| may_use(lb))
            .or_else(|| directory.by_source(source).next())
            .ok_or_else(|| not_found(format!("no load balancer is {}", quote(source))))?,
        Ask::External => directory.only_external().ok_or_else(|| {
            not_found(
                "no load balancer is asked for, there is no default, and not exactly one external"
                    .to_owned(),
            )
        })?,
        Ask::Nothing => {
            return Err(not_found(
                "no load balancer is asked for, and there is no default".to_owned(),
            ));
        }
    };
    if lb.deleting {
        return Err(not_found(format!("load balancer {} is being deleted", quote(&lb.name))));
    }
    if !may_use(lb) {
        let message = format!(
            "load balancer {} may not be used from namespace {}",
            quote(&lb.name),
            quote(namespace)
        );
        return Err(Refusal::by(lb, Problem::new(Reason::NotAllowed, message)));
    }
    Ok(lb)
}

/// Whether a load balancer may be used from a namespace. One whose labels are not known is in no
/// selector, not even in one that asks for a label's absence.
pub(super) fn allows(lb: &LoadBalancer, namespace: &str, labels: Option<&Namespace>) -> bool {
    match (&lb.claim, &lb.allowed) {
        (Some((claim, _)), _) => &*claim.namespace == namespace,
        (None, AllowedNamespaces::None) => false,
        (None, AllowedNamespaces::All) => true,
        (None, AllowedNamespaces::Selector(selector)) => {
            labels.is_some_and(|labels| selects(selector, labels))
        }
    }
}

fn selects(selector: &LabelSelector, namespace: &Namespace) -> bool {
    selector.requirements.iter().all(|requirement| {
        let value = namespace.labels.get(&requirement.key);
        match &requirement.operator {
            Operator::In(values) => value.is_some_and(|value| values.contains(value)),
            Operator::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
        }
    })
}
