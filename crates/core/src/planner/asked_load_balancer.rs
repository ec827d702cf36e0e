//! Which consumers belong to Bowline, which load balancer a consumer asks for, and whether it may use it. Pure
//! functions of objects; the planner calls them whenever one of those objects changes.

use super::Config;
use super::allowed_namespaces::allows;
use super::stores::Stores;
use crate::key::ObjectKey;
use crate::nearest::did_you_mean;
use crate::objects::{
    ClassParameters, Exposure, Ingress, IngressClass, LoadBalancer, Namespace, Placement, Service,
    ServiceClass,
};
use crate::outcome::{Problem, Reason, quote};
use std::sync::Arc;

/// Whether a Service or Ingress belongs to Bowline, and which load balancer it then asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// Bowline leaves it alone.
    NotOurs(NotOurs),
    /// What it asks for, or why that cannot be read.
    Asks(Result<Asked, Problem>),
}

/// Why a Service or Ingress does not belong to Bowline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotOurs {
    /// It does not exist.
    Missing,
    /// It is being deleted.
    Deleting,
    /// A Service that is reached only from inside the cluster.
    ClusterIp,
    /// A Service that is a DNS alias.
    ExternalName,
    /// A NodePort Service that names no load balancer, without a default for those.
    NodePort,
    /// A Service whose class gives each Pod an address.
    PerPod,
    /// A Service of another controller's class.
    Foreign,
    /// A Service without a class, where those do not belong to Bowline.
    Unclassed,
    /// An Ingress without a class.
    NoIngressClass,
    /// An Ingress of a class that does not exist.
    IngressClassMissing(Arc<str>),
    /// An Ingress of another controller's class.
    IngressClassForeign(Arc<str>),
}

/// The load balancer that a consumer of ours asks for, and the source of that request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The requested load balancer.
    pub ask: Ask,
    /// What names the load balancer: the consumer, its class or a flag.
    pub by: By,
}

/// What names the load balancer of a consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum By {
    /// The consumer itself.
    Itself,
    /// The IngressClass of this name.
    Class(Arc<str>),
    /// The controllers' default.
    Default,
    /// Nothing.
    Nothing,
}

/// The load balancer that a consumer asks for. It is also the edge by which a change of a load balancer finds the
/// consumer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Ask {
    /// The load balancer of this name.
    Name(Arc<str>),
    /// The load balancer to which this claim is bound.
    Claim(ObjectKey),
    /// The load balancer with this source.
    Source(Arc<str>),
    /// The only external load balancer, for `lb.zcloud.cn/vip`.
    External,
    /// None in particular, without a default.
    Nothing,
}

/// Why a consumer is not placed.
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

    /// The same for a consumer whose load balancer is named by this: one that names none cannot correct the name.
    pub(super) fn named_by(mut self, by: &By) -> Self {
        if *by == By::Default && self.problem.reason == Reason::LoadBalancerNotFound {
            let message = format!(
                "none is named, and the default one is missing: {} (--default-load-balancer of the controllers)",
                self.problem.message
            );
            self.problem.message = message.into();
        }
        self
    }
}

/// Why a Service does not belong to Bowline. None: it does.
pub(super) fn not_ours(service: &Service, config: &Config) -> Option<NotOurs> {
    if service.deleting {
        return Some(NotOurs::Deleting);
    }
    match service.exposure {
        Exposure::LoadBalancer => match service.class {
            ServiceClass::LoadBalancer => None,
            ServiceClass::Unset if config.default_class => None,
            ServiceClass::Unset => Some(NotOurs::Unclassed),
            ServiceClass::IpPerPod => Some(NotOurs::PerPod),
            ServiceClass::Foreign => Some(NotOurs::Foreign),
        },
        Exposure::NodePort => {
            let asks = service.placement != Ok(Placement::Default);
            let default = config.default_class && config.default_load_balancer.is_some();
            (!asks && !default).then_some(NotOurs::NodePort)
        }
        Exposure::ClusterIp => Some(NotOurs::ClusterIp),
        Exposure::ExternalName => Some(NotOurs::ExternalName),
    }
}

/// The load balancer that a Service of ours asks for.
pub(super) fn ask_of_service(service: &Service, config: &Config) -> Result<Asked, Problem> {
    let placement = service.placement.as_ref().map_err(Clone::clone)?;
    service.vips.as_ref().map_err(Clone::clone)?;
    // Only this annotation asks for the external load balancer. The others ask for an address, and a new load balancer
    // must not attract their Services.
    let otherwise = if service.address.of_device { Ask::External } else { Ask::Nothing };
    let asked = named(placement, &service.key).or_else(|| default(config));
    Ok(asked.unwrap_or(Asked { ask: otherwise, by: By::Nothing }))
}

/// Why an Ingress does not belong to Bowline. None: it does, and has a class.
pub(super) fn ingress_not_ours(ingress: &Ingress, class: Option<&IngressClass>) -> Option<NotOurs> {
    if ingress.deleting {
        return Some(NotOurs::Deleting);
    }
    let Some(name) = &ingress.class else { return Some(NotOurs::NoIngressClass) };
    match class {
        None => Some(NotOurs::IngressClassMissing(name.clone())),
        Some(class) if !class.ours => Some(NotOurs::IngressClassForeign(name.clone())),
        Some(_) => None,
    }
}

/// The load balancer that an Ingress of ours asks for, itself or by its class.
pub(super) fn ask_of_ingress(
    ingress: &Ingress,
    class: &IngressClass,
    config: &Config,
) -> Result<Asked, Problem> {
    let placement = ingress.placement.as_ref().map_err(Clone::clone)?;
    if let Some(asked) = named(placement, &ingress.key) {
        return Ok(asked);
    }
    let by = || By::Class(class.name.clone());
    match class.parameters.as_ref().map_err(Clone::clone)? {
        ClassParameters::None => {
            Ok(default(config).unwrap_or(Asked { ask: Ask::Nothing, by: By::Nothing }))
        }
        ClassParameters::LoadBalancer(name) => Ok(Asked { ask: Ask::Name(name.clone()), by: by() }),
        ClassParameters::Claim(claim) if claim.namespace == ingress.key.namespace => {
            Ok(Asked { ask: Ask::Claim(claim.clone()), by: by() })
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

fn named(placement: &Placement, consumer: &ObjectKey) -> Option<Asked> {
    let ask = match placement {
        Placement::Default => return None,
        Placement::Door(_) => Ask::Nothing,
        Placement::LoadBalancer(name) => Ask::Name(name.clone()),
        Placement::Claim(name) => {
            Ask::Claim(ObjectKey::new(consumer.namespace.clone(), name.clone()))
        }
        Placement::Source(source) => Ask::Source(source.clone()),
    };
    Some(Asked { ask, by: By::Itself })
}

fn default(config: &Config) -> Option<Asked> {
    let name = config.default_load_balancer.clone()?;
    Some(Asked { ask: Ask::Name(name), by: By::Default })
}

/// The requested load balancer, if the namespace may use it.
pub(super) fn place<'a>(
    Asked { ask, by }: &Asked,
    namespace: &str,
    labels: Option<&Namespace>,
    stores: &'a Stores,
) -> Result<&'a Arc<LoadBalancer>, Refusal> {
    let directory = &stores.directory;
    let lives = |claim: &ObjectKey, uid: &str| stores.lives(claim, uid);
    let may_use = |lb: &LoadBalancer| allows(lb, namespace, labels, lives);
    let not_found =
        |message: String| Refusal::nowhere(Problem::new(Reason::LoadBalancerNotFound, message));
    let lb = match ask {
        Ask::Name(name) => directory.by_name(name).ok_or_else(|| {
            // Only names that the namespace may use: the others are not its business.
            let usable = directory.names().filter(|lb| !lb.deleting && may_use(lb));
            let meant = did_you_mean(name, usable.map(|lb| &*lb.name));
            not_found(format!("load balancer {} does not exist{meant}", quote(name)))
        })?,
        Ask::Claim(claim) => stores.of_claim(claim).ok_or_else(|| {
            let name = quote(&claim.name);
            Refusal::nowhere(if stores.claims.get(claim).is_some() {
                let message = format!("claim {name} is not bound to a load balancer");
                Problem::new(Reason::ClaimNotBound, message)
            } else {
                let meant = did_you_mean(&claim.name, stores.claims_of(&claim.namespace));
                Problem::new(Reason::ClaimNotFound, format!("claim {name} does not exist{meant}"))
            })
        })?,
        Ask::Source(source) => {
            let all = || directory.by_source(source);
            let mut usable = all().filter(|lb| !lb.deleting && may_use(lb));
            match (usable.next(), usable.next()) {
                (Some(one), Some(other)) => {
                    return Err(not_found(format!(
                        "load balancers {} and {} both have source {}: name one of them by \
                         bowline.dev/load-balancer",
                        quote(&one.name),
                        quote(&other.name),
                        quote(source)
                    )));
                }
                (Some(one), None) => one,
                // None may be used. The one that is refused is then the nearest to that.
                (None, _) => all()
                    .find(|lb| may_use(lb))
                    .or_else(|| all().find(|lb| !lb.deleting))
                    .or_else(|| all().next())
                    .ok_or_else(|| {
                        not_found(format!("no load balancer has source {}", quote(source)))
                    })?,
            }
        }
        Ask::External => directory.only_external().ok_or_else(|| {
            not_found(
                "no load balancer is named, there is no default one, and there is not exactly one external one: \
                 name one by bowline.dev/load-balancer"
                    .to_owned(),
            )
        })?,
        Ask::Nothing => {
            return Err(not_found(
                "no load balancer is named, and there is no default one: name one by \
                 bowline.dev/load-balancer"
                    .to_owned(),
            ));
        }
    };
    // A load balancer that is bound to a claim stays usable as long as the claim exists.
    let held = matches!(&lb.claim, Some((_, Some(_))));
    if lb.deleting && !held {
        let problem = match by {
            By::Default => Problem::default_leaving(&lb.name),
            By::Itself | By::Class(_) | By::Nothing => Problem::leaving(&lb.name),
        };
        return Err(Refusal::nowhere(problem));
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

/// The load balancer of this name, if a consumer that Plans record on it may stay there. It may while the load balancer
/// is being deleted.
pub(super) fn may_stay<'a>(
    name: &str,
    namespace: &str,
    labels: Option<&Namespace>,
    stores: &'a Stores,
) -> Option<&'a Arc<LoadBalancer>> {
    let lives = |claim: &ObjectKey, uid: &str| stores.lives(claim, uid);
    stores.directory.by_name(name).filter(|lb| allows(lb, namespace, labels, lives))
}
