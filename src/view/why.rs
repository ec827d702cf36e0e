//! Why a Service or Ingress is, or is not, Bowline's, and how its load balancer was found: the planner's
//! rules in words. Pure; it decides nothing.

use super::facts::Facts;
use bowline_api::{convert, names};
use bowline_core::key::{ConsumerKind, ObjectKey};
use bowline_core::objects::{ClassParameters, Exposure, Placement, ServiceClass};
use bowline_core::outcome::{Problem, quote};

/// That something is not Bowline's: why, and what would make it so.
pub(super) struct NotOurs {
    pub(super) why: String,
    pub(super) remedy: Option<String>,
}

impl NotOurs {
    fn new(why: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { why: why.into(), remedy: Some(remedy.into()) }
    }
}

/// Why a Service that the planner left alone is not Bowline's.
pub(super) fn service_is_not_ours(facts: &Facts, key: &ObjectKey) -> NotOurs {
    let Some(object) = facts.services.get(key) else {
        return NotOurs { why: "it does not exist".into(), remedy: None };
    };
    let service = convert::service(object);
    if service.deleting {
        return NotOurs { why: "it is being deleted".into(), remedy: None };
    }
    match (service.exposure, service.class) {
        (Exposure::ClusterIp, _) => NotOurs::new(
            "its type is ClusterIP, which is reached from inside the cluster only",
            "make it type LoadBalancer, or let an Ingress send requests to it",
        ),
        (Exposure::ExternalName, _) => NotOurs {
            why: "its type is ExternalName, which is a name and nothing to balance".into(),
            remedy: None,
        },
        (Exposure::NodePort, _) => NotOurs::new(
            "it is of type NodePort and names no load balancer, and the controller has no default \
             one for those",
            "name one with the annotation bowline.dev/load-balancer",
        ),
        (Exposure::LoadBalancer, ServiceClass::IpPerPod) => NotOurs {
            why: "an address for each Pod (its loadBalancerClass) is not in this version yet"
                .into(),
            remedy: None,
        },
        (Exposure::LoadBalancer, ServiceClass::Foreign) => {
            let class = object.spec.as_ref().and_then(|spec| spec.load_balancer_class.as_deref());
            NotOurs::new(
                format!(
                    "its loadBalancerClass is {}, somebody else's",
                    quote(class.unwrap_or_default())
                ),
                format!("make it anew with loadBalancerClass: {}", names::CLASS_LOAD_BALANCER),
            )
        }
        (Exposure::LoadBalancer, ServiceClass::Unset | ServiceClass::LoadBalancer) => NotOurs::new(
            "it has no loadBalancerClass, and the controller serves those without one only with \
             --default-class",
            format!("make it anew with loadBalancerClass: {}", names::CLASS_LOAD_BALANCER),
        ),
    }
}

/// Why an Ingress that the planner left alone is not Bowline's.
pub(super) fn ingress_is_not_ours(facts: &Facts, key: &ObjectKey) -> NotOurs {
    let Some(object) = facts.ingresses.get(key) else {
        return NotOurs { why: "it does not exist".into(), remedy: None };
    };
    let ingress = convert::ingress(object);
    if ingress.deleting {
        return NotOurs { why: "it is being deleted".into(), remedy: None };
    }
    let ours = || {
        let mut all = facts.classes.values().filter(|class| convert::ingress_class(class).ours);
        match all.next().and_then(|class| class.metadata.name.as_deref()) {
            Some(name) => format!("set ingressClassName: {name}"),
            None => format!("make an IngressClass with controller: {}", names::INGRESS_CONTROLLER),
        }
    };
    match ingress.class.as_deref() {
        None => NotOurs::new("it has no ingressClassName", ours()),
        Some(name) => match facts.classes.get(name) {
            None => NotOurs::new(format!("there is no IngressClass {}", quote(name)), ours()),
            Some(class) => {
                let controller = class.spec.as_ref().and_then(|spec| spec.controller.as_deref());
                NotOurs::new(
                    format!(
                        "its IngressClass {} belongs to {}",
                        quote(name),
                        quote(controller.unwrap_or_default())
                    ),
                    ours(),
                )
            }
        },
    }
}

/// How the load balancer of a consumer of ours was found.
pub(super) fn asked(facts: &Facts, kind: ConsumerKind, key: &ObjectKey) -> String {
    let (placement, class) = match kind {
        ConsumerKind::Service => {
            (facts.services.get(key).map(|it| convert::service(it).placement), None)
        }
        ConsumerKind::Ingress => match facts.ingresses.get(key).map(convert::ingress) {
            Some(ingress) => (Some(ingress.placement), ingress.class),
            None => (None, None),
        },
        ConsumerKind::LoadBalancer => (None, None),
    };
    match placement {
        Some(Ok(Placement::LoadBalancer(name))) => {
            format!("it asks for {name} by annotation")
        }
        Some(Ok(Placement::Claim(name))) => format!("it asks for the claim {name} by annotation"),
        Some(Ok(Placement::Source(_))) => "it asks for a load balancer by its source".to_owned(),
        Some(Err(Problem { message, .. })) => message.to_string(),
        Some(Ok(Placement::Default)) | None => {
            class.and_then(|class| by_class(facts, &class)).unwrap_or_else(|| by_default(facts))
        }
    }
}

fn by_class(facts: &Facts, name: &str) -> Option<String> {
    let class = convert::ingress_class(facts.classes.get(name)?);
    match class.parameters {
        Ok(ClassParameters::None) => None,
        Ok(ClassParameters::LoadBalancer(lb)) => {
            Some(format!("its IngressClass {name} names {lb}"))
        }
        Ok(ClassParameters::Claim(claim)) => {
            Some(format!("its IngressClass {name} names the claim {claim}"))
        }
        Err(problem) => Some(problem.message.to_string()),
    }
}

fn by_default(facts: &Facts) -> String {
    match &facts.config.default_load_balancer {
        Some(name) => format!("it names none; the default is {name}"),
        None => "it names none, and the controller has no --default-load-balancer".to_owned(),
    }
}
