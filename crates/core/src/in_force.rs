//! What the joint report of a load balancer's agents means: for one consumer, for the load balancer's own listeners, and
//! for the addresses that its status may show. It reads reports; `replicas` joins them and `status` words them. The
//! controller calls it before it renders a status.

mod shared_listeners;

pub use shared_listeners::SharedListeners;

use crate::diagnosis::Place;
use crate::key::{ConsumerKind, ConsumerRef};
use crate::outcome::{Problem, Reason};
use crate::programmed::Verdict;
use crate::replicas::Joint;
use crate::status::{self, Condition, Undone};
use crate::update::{Extent, ListenerKey, Refusal};
use std::net::IpAddr;

/// The refusals that concern a consumer, and the number of refusals that agents do not name and that may concern it.
/// `withheld` are the refusals of the leader itself. Clients reach an Ingress at `listeners` of the load balancer, so a refusal of these
/// concerns it too.
pub fn undone(
    joint: &Joint,
    withheld: &[Refusal],
    consumer: &ConsumerRef,
    listeners: impl IntoIterator<Item = ListenerKey>,
) -> (Undone, usize) {
    let shared = consumer.kind == ConsumerKind::Ingress;
    let refusals = joint.refused.iter().chain(withheld).filter(|refusal| {
        shared && refusal.consumer.kind == ConsumerKind::LoadBalancer
            || refusal.consumer == *consumer
    });
    // Endpoints that do not answer leave the plan in force: see `degraded`.
    let refusals = refusals.filter(|refusal| refusal.problem.reason.is_told(Place::Programmed));
    (Undone::of(refusals, listeners), joint.unlisted.may_concern(consumer))
}

/// What is wrong with the endpoints of a consumer whose plan is in force. None: nothing that an agent knows of.
pub fn degraded(joint: &Joint, consumer: &ConsumerRef) -> Option<Condition> {
    let failing = joint.refused.iter().filter(|it| it.problem.reason.is_told(Place::Degraded));
    let problems: Vec<_> =
        failing.filter(|it| it.consumer == *consumer).map(|it| it.problem.clone()).collect();
    status::first_few(&problems).map(|(reason, message)| Condition { holds: true, reason, message })
}

/// The `Degraded` condition of a load balancer: true if a listener is closed or a pool has no endpoint that answers, as
/// far as the agents report.
pub fn load_balancer_degraded(joint: &Joint) -> Condition {
    let counts = |it: &&Refusal| {
        let fails = it.closes().is_some() || it.problem.reason.is_outage();
        fails && it.problem.reason.is_told(Place::LoadBalancerDegraded)
    };
    let problems: Vec<_> =
        joint.refused.iter().filter(counts).map(|it| it.problem.clone()).collect();
    let unlisted = match joint.unlisted.failing {
        0 => None,
        1 => Some("1 more pool has no endpoint that answers".to_owned()),
        more => Some(format!("{more} more pools have no endpoint that answers")),
    };
    match (status::first_few(&problems), unlisted) {
        (Some((reason, message)), None) => Condition { holds: true, reason, message },
        (Some((reason, message)), Some(more)) => {
            Condition { holds: true, reason, message: format!("{message}; {more}").into() }
        }
        (None, Some(more)) => {
            let reason = Reason::EndpointsDown.to_string().into();
            Condition { holds: true, reason, message: more.into() }
        }
        (None, None) => Condition {
            holds: false,
            reason: "AllServed".into(),
            message: "every listener is open, and every pool has an endpoint that answers, as far as agents know"
                .into(),
        },
    }
}

/// Why no listener of a load balancer is open. None: one is, or there is none to open.
pub fn closed_entirely(
    joint: &Joint,
    listeners: impl IntoIterator<Item = ListenerKey>,
) -> Option<&Problem> {
    let mut listeners = listeners.into_iter().peekable();
    let first = *listeners.peek()?;
    if joint.shut.is_empty() || !listeners.all(|key| joint.shut.contains(&key)) {
        return None;
    }
    let why = joint.refused.iter().find(|it| it.closes() == Some(first));
    why.map(|it| &it.problem)
}

/// What agents could not open of all `listeners` on a load balancer, and how many refusals they do not name. A listener
/// that is served for another consumer is open.
pub fn closed(joint: &Joint, listeners: impl IntoIterator<Item = ListenerKey>) -> (Undone, usize) {
    let shut = |it: &&Refusal| matches!(it.extent, Extent::Listener(_)) && it.unserved().is_none();
    (Undone::of(joint.refused.iter().filter(shut), listeners), joint.unlisted.count)
}

/// The addresses that a load balancer has.
#[derive(Clone, Copy, Debug)]
pub struct OwnAddresses<'a> {
    /// Those that are planned.
    pub planned: &'a [IpAddr],
    /// Those that are still served until their successor is.
    pub draining: &'a [IpAddr],
    /// Those that its status shows.
    pub shown: &'a [IpAddr],
    /// The change that planned its addresses of AddressPools last. None: it has no such address.
    pub change: Option<u64>,
}

/// The addresses that the status of a load balancer shows. An address of an AddressPool is shown once the agents have
/// applied a plan with it; until then the status shows the earlier addresses that it still has. `closed` is asked only while an address drains.
pub fn addresses_in_force(
    own: OwnAddresses<'_>,
    verdict: Option<&Verdict>,
    closed: impl FnOnce() -> (Undone, usize),
) -> Vec<IpAddr> {
    let (Some(change), Some(verdict)) = (own.change, verdict) else { return own.planned.to_vec() };
    let (undone, unlisted) = if own.draining.is_empty() { Default::default() } else { closed() };
    let progress = status::progress(Some(verdict), change, undone, unlisted);
    status::in_force(&progress, own.planned, own.draining, own.shown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Transport;
    use crate::programmed::{Pending, Phase};
    use crate::report::Unlisted;

    fn consumer(kind: ConsumerKind, name: &str) -> ConsumerRef {
        ConsumerRef { kind, namespace: "shop".into(), name: name.into(), uid: name.into() }
    }

    fn listener(port: u16) -> ListenerKey {
        ListenerKey { address: [192, 0, 2, 1].into(), port, transport: Transport::Tcp }
    }

    fn refusal(consumer: &ConsumerRef, reason: Reason, port: u16) -> Refusal {
        let problem = Problem::new(reason, "");
        Refusal { consumer: consumer.clone(), problem, extent: Extent::Listener(listener(port)) }
    }

    fn joint(refused: Vec<Refusal>) -> Joint {
        Joint { refused, ..Joint::default() }
    }

    #[test]
    fn a_closed_listener_of_the_load_balancer_concerns_its_ingresses_and_no_service() {
        let lb = consumer(ConsumerKind::LoadBalancer, "edge");
        let joint = joint(vec![refusal(&lb, Reason::BindFailed, 80)]);
        let of = |kind| undone(&joint, &[], &consumer(kind, "web"), [listener(80)]).0;
        assert!(!of(ConsumerKind::Ingress).is_nothing());
        assert!(of(ConsumerKind::Service).is_nothing());
    }

    #[test]
    fn a_certificate_that_is_withheld_concerns_its_ingress_alone() {
        let web = consumer(ConsumerKind::Ingress, "web");
        let problem = Problem::new(Reason::TooManyCertificates, "");
        let withheld = [Refusal { consumer: web.clone(), problem, extent: Extent::Part }];
        let of = |name| {
            let consumer = consumer(ConsumerKind::Ingress, name);
            undone(&Joint::default(), &withheld, &consumer, []).0
        };
        assert!(!of("web").is_nothing());
        assert!(of("other").is_nothing());
    }

    #[test]
    fn a_listener_that_is_served_for_another_consumer_is_open() {
        let web = consumer(ConsumerKind::Service, "web");
        let taken = joint(vec![refusal(&web, Reason::PortTaken, 80)]);
        assert!(closed(&taken, [listener(80)]).0.is_nothing());
        let failed = joint(vec![refusal(&web, Reason::BindFailed, 80)]);
        assert!(!closed(&failed, [listener(80)]).0.is_nothing());
    }

    #[test]
    fn endpoints_that_do_not_answer_degrade_a_consumer_whose_plan_is_in_force() {
        let web = consumer(ConsumerKind::Service, "web");
        let problem = Problem::new(Reason::EndpointsDown, "no endpoint answers");
        let failing = Refusal { consumer: web.clone(), problem, extent: Extent::Part };
        let joint = joint(vec![failing]);
        assert!(undone(&joint, &[], &web, [listener(80)]).0.is_nothing());
        let (reason, message) = ("EndpointsDown".into(), "no endpoint answers".into());
        assert_eq!(degraded(&joint, &web), Some(Condition { holds: true, reason, message }));
        assert_eq!(degraded(&joint, &consumer(ConsumerKind::Service, "other")), None);
        assert!(load_balancer_degraded(&joint).holds);
        assert!(!load_balancer_degraded(&Joint::default()).holds);
    }

    #[test]
    fn pools_that_the_report_has_no_room_for_are_counted_in_the_condition() {
        let web = consumer(ConsumerKind::Service, "web");
        let problem = Problem::new(Reason::EndpointsDown, "no endpoint answers");
        let failing = Refusal { consumer: web, problem, extent: Extent::Part };
        let unlisted = |failing| Unlisted { failing, ..Unlisted::default() };
        let of = |refused, failing| {
            let joint = Joint { refused, unlisted: unlisted(failing), ..Joint::default() };
            let condition = load_balancer_degraded(&joint);
            (condition.holds, condition.message.to_string())
        };
        let more = "no endpoint answers; 7 more pools have no endpoint that answers".to_owned();
        assert_eq!(of(vec![failing], 7), (true, more));
        assert_eq!(of(vec![], 1), (true, "1 more pool has no endpoint that answers".to_owned()));
    }

    #[test]
    fn a_load_balancer_is_closed_when_none_of_its_listeners_is_open() {
        let lb = consumer(ConsumerKind::LoadBalancer, "edge");
        let closed = refusal(&lb, Reason::BindFailed, 80);
        let (why, shut) = (closed.problem.clone(), [listener(80)].into());
        let joint = Joint { refused: vec![closed], shut, ..Joint::default() };
        assert_eq!(closed_entirely(&joint, [listener(80)]), Some(&why));
        assert_eq!(closed_entirely(&joint, [listener(80), listener(443)]), None);
        assert_eq!(closed_entirely(&joint, []), None);
        assert_eq!(closed_entirely(&Joint::default(), [listener(80)]), None);
        // Another agent has opened it.
        let one = Joint { shut: Default::default(), ..joint };
        assert_eq!(closed_entirely(&one, [listener(80)]), None);
    }

    #[test]
    fn an_address_of_a_pool_is_shown_once_agents_have_applied_its_plan() {
        let (old, new): (IpAddr, IpAddr) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
        let shown = |change, verdict: Option<&Verdict>| {
            let (planned, draining, shown) = ([new], [old], [old]);
            let own =
                OwnAddresses { planned: &planned, draining: &draining, shown: &shown, change };
            addresses_in_force(own, verdict, Default::default)
        };
        let behind = Verdict { phase: Phase::Pending(Pending::AgentBehind), applied: Some(1) };
        let applied = Verdict { phase: Phase::Running, applied: Some(2) };
        assert_eq!(shown(Some(2), Some(&behind)), [old]);
        assert_eq!(shown(Some(2), Some(&applied)), [new]);
        // A fixed address waits for no agent.
        assert_eq!(shown(None, Some(&behind)), [new]);
        assert_eq!(shown(Some(2), None), [new]);
    }
}
