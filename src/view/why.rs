//! Why a Service or Ingress is, or is not, Bowline's, and how its load balancer was found: the planner's
//! decision, in words. Pure; it decides nothing.

use super::facts::Facts;
use bowline_api::{convert, names};
use bowline_core::key::{ConsumerKind, ObjectKey};
use bowline_core::outcome::quote;
use bowline_core::planner::{Ask, Asked, By, NotOurs, Why};

/// A reason and a remedy.
#[derive(Debug, PartialEq)]
pub(super) struct Words {
    pub(super) why: String,
    pub(super) remedy: Option<String>,
}

impl Words {
    fn new(why: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { why: why.into(), remedy: Some(remedy.into()) }
    }

    fn only(why: impl Into<String>) -> Self {
        Self { why: why.into(), remedy: None }
    }
}

/// Why a consumer is where it is, or is not handled.
pub(super) fn words(facts: &Facts, kind: ConsumerKind, key: &ObjectKey) -> Words {
    match facts.planner.why(kind, key) {
        Why::NotOurs(why) => not_ours(facts, key, &why),
        Why::Asks(Ok(asked)) => Words::only(asks(&asked)),
        // The problem itself is shown among the problems.
        Why::Asks(Err(_)) => Words::only("what it asks for cannot be read"),
    }
}

fn not_ours(facts: &Facts, key: &ObjectKey, why: &NotOurs) -> Words {
    let anew = format!("create it again with loadBalancerClass: {}", names::CLASS_LOAD_BALANCER);
    match why {
        NotOurs::Missing => Words::only("it does not exist"),
        NotOurs::Deleting => Words::only("it is being deleted"),
        NotOurs::ClusterIp => Words::new(
            "its type is ClusterIP, which is reached from inside the cluster only",
            "make it type LoadBalancer, or let an Ingress send requests to it",
        ),
        NotOurs::ExternalName => {
            Words::only("its type is ExternalName, which is a name and nothing to balance")
        }
        NotOurs::NodePort => Words::new(
            "it is of type NodePort and names no load balancer, and the controller has no default \
             one for those",
            "name one with the annotation bowline.dev/load-balancer",
        ),
        NotOurs::PerPod => {
            Words::only("it asks for an address for each Pod, which is not in this version yet")
        }
        NotOurs::Foreign => {
            let service = facts.services.get(key).and_then(|it| it.spec.as_ref());
            let class = service.and_then(|spec| spec.load_balancer_class.as_deref());
            let class = quote(class.unwrap_or_default());
            Words::new(format!("its loadBalancerClass is {class}, which is not Bowline's"), anew)
        }
        NotOurs::Unclassed => Words::new(
            "it has no loadBalancerClass, and the controller serves those without one only with \
             --default-class",
            anew,
        ),
        NotOurs::NoIngressClass => Words::new("it has no ingressClassName", our_class(facts)),
        NotOurs::IngressClassMissing(name) => {
            Words::new(format!("there is no IngressClass {}", quote(name)), our_class(facts))
        }
        NotOurs::IngressClassForeign(name) => {
            let class = facts.classes.get(&**name).and_then(|class| class.spec.as_ref());
            let controller = class.and_then(|spec| spec.controller.as_deref());
            let controller = quote(controller.unwrap_or_default());
            let why = format!("its IngressClass {} belongs to {controller}", quote(name));
            Words::new(why, our_class(facts))
        }
    }
}

/// How an Ingress gets a class of Bowline's.
fn our_class(facts: &Facts) -> String {
    let mut all = facts.classes.values().filter(|class| convert::ingress_class(class).ours);
    match all.next().and_then(|class| class.metadata.name.as_deref()) {
        Some(name) => format!("set ingressClassName: {name}"),
        None => format!("make an IngressClass with controller: {}", names::INGRESS_CONTROLLER),
    }
}

fn asks(asked: &Asked) -> String {
    let whom = match &asked.ask {
        Ask::Name(name) => name.to_string(),
        Ask::Claim(claim) => format!("the claim {}", claim.name),
        Ask::Source(source) => format!("a load balancer that is {source}"),
        Ask::External => {
            return "it names no load balancer but has lb.zcloud.cn/vip, and there is no default one: it goes to \
                    the only external one"
                .to_owned();
        }
        Ask::Nothing => {
            return "it names no load balancer, and the controller has no --default-load-balancer"
                .to_owned();
        }
    };
    match &asked.by {
        By::Itself => format!("it asks for {whom} by annotation"),
        By::Class(class) => format!("its IngressClass {class} names {whom}"),
        By::Default | By::Nothing => format!("it names no load balancer; the default is {whom}"),
    }
}
