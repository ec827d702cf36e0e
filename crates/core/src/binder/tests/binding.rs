//! How a binding comes about write by write, how it is repaired after any of them, and how it ends.

use super::make::*;
use crate::binder::*;
use std::collections::BTreeSet;

fn named(op: &Op) -> &'static str {
    match op {
        Op::Bind(..) => "Bind",
        Op::Release(..) => "Release",
        Op::Guard(..) => "Guard",
        Op::Report(..) => "Report",
        Op::Create(_) => "Create",
        Op::Delete(_) => "Delete",
        Op::GuardClaim(..) => "GuardClaim",
        Op::ReportClaim(..) => "ReportClaim",
    }
}

fn names(api: &Api) -> Vec<&'static str> {
    api.ops.iter().map(named).collect()
}

#[test]
fn a_binding_is_recorded_on_the_load_balancer_before_the_claim_says_so() {
    let mut api = Api::new([lb("edge", amounts(5, 0))], [claim("shop/web", amounts(5, 0))]);
    api.run();
    assert_eq!(names(&api), ["Bind", "GuardClaim", "Report", "ReportClaim"]);
    let edge = &api.store.lbs["edge"];
    let claim = held_by(&api.store.claims[&key("shop/web")]);
    assert_eq!(edge.tie, Tie { claim, in_use: true, cleanup: false });
    assert_eq!(api.binding("edge"), Binding::Bound);
}

#[test]
fn a_controller_that_dies_after_any_write_is_replaced_by_one_that_ends_in_the_same_state() {
    let whole = || {
        let mut api = Api::new([lb("edge", amounts(5, 0))], [claim("shop/web", amounts(5, 0))]);
        api.run();
        api
    };
    let end = whole();
    for writes in 0..4 {
        let mut store =
            Api::new([lb("edge", amounts(5, 0))], [claim("shop/web", amounts(5, 0))]).store;
        let versionless = |op: &Op, store: &Store| match op.clone() {
            Op::Bind(target, tie) => {
                let version = store.lbs["edge"].version.clone();
                Op::Bind(Target { version, ..target }, tie)
            }
            Op::ReportClaim(target, report) => {
                let version = store.claims[&key("shop/web")].version.clone();
                Op::ReportClaim(Target { version, ..target }, report)
            }
            Op::GuardClaim(target, in_use) => {
                let version = store.claims[&key("shop/web")].version.clone();
                Op::GuardClaim(Target { version, ..target }, in_use)
            }
            other => other,
        };
        for op in &end.ops[..writes] {
            let op = versionless(op, &store);
            assert!(matches!(store.perform(&op), Ok(Written::Ok(_))));
        }
        let mut api = Api::new(store.lbs.into_values(), store.claims.into_values());
        api.run();
        // Writes of the claim and of the load balancer do not wait for each other.
        let sorted = |names: &[&'static str]| names.iter().copied().collect::<BTreeSet<_>>();
        assert_eq!(sorted(&names(&api)), sorted(&names(&end)[writes..]), "after {writes}");
        assert_eq!(api.store.lbs["edge"].tie, end.store.lbs["edge"].tie);
        assert_eq!(api.report("shop/web"), end.report("shop/web"));
    }
}

#[test]
fn a_claim_that_two_leaders_bound_twice_keeps_the_one_that_its_status_names() {
    let web = claim("shop/web", amounts(5, 0));
    let mut lbs = ["a", "b"].map(|name| lb(name, amounts(5, 0)));
    lbs.iter_mut().for_each(|lb| lb.tie.claim = held_by(&web));
    let report = ClaimReport {
        phase: Phase::Bound,
        load_balancer: Some("b".into()),
        capacity: amounts(5, 0),
        reason: ClaimReason::Bound,
        message: "".into(),
    };
    let mut api = Api::new(lbs, [Claim { report: Some(report), ..web }]);
    api.run();
    assert_eq!(api.home("shop/web").as_deref(), Some("b"));
    assert_eq!((api.binding("a"), api.binding("b")), (Binding::Available, Binding::Bound));
    assert_eq!(api.store.lbs["a"].tie, Tie::default());
}

#[test]
fn a_write_that_lost_against_another_claim_is_followed_by_the_next_best() {
    let mut api = Api::new(
        [lb("a", amounts(5, 0)), lb("b", amounts(6, 0))],
        [claim("shop/web", amounts(5, 0))],
    );
    // The other leader was quicker, and no watch has delivered it.
    let mut taken = api.store.lbs["a"].clone();
    let other = claim("bank/web", amounts(5, 0));
    taken.tie.claim = held_by(&other);
    let mut store = api.store.clone();
    store.put_claim(other);
    store.put_lb(taken);
    for event in api.store.logs.concat() {
        api.machine.handle(event, NOW);
    }
    Kind::ALL.into_iter().for_each(|kind| api.tell(Event::Done(kind)));
    let mut bound = Vec::new();
    for _ in 0..3 {
        for Write { id, op } in api.machine.take(NOW).writes {
            if let Op::Bind(target, _) = &op {
                bound.push(target.key.name.to_string());
            }
            let result = store.perform(&op).unwrap();
            api.tell(Event::Written { id, result });
        }
    }
    assert_eq!(bound, ["a", "b"]);
    assert_eq!(store.lbs["b"].tie.claim, held_by(&store.claims[&key("shop/web")]));
}

#[test]
fn a_load_balancer_that_is_gone_leaves_its_claim_lost_until_it_is_back() {
    let mut api = Api::new([lb("edge", amounts(5, 0))], [claim("shop/web", amounts(5, 0))]);
    api.run();
    // A person removed the finalizers.
    api.edit_lb("edge", |lb| (lb.deleting, lb.tie.in_use) = (true, false));
    api.run();
    let report = api.report("shop/web");
    assert_eq!((report.phase, report.reason), (Phase::Lost, ClaimReason::LoadBalancerGone));
    assert_eq!(report.load_balancer.as_deref(), Some("edge"));
    api.store.put_lb(lb("edge", amounts(5, 0)));
    api.run();
    assert_eq!(api.home("shop/web").as_deref(), Some("edge"));
}

#[test]
fn a_load_balancer_that_no_watch_has_told_of_is_not_lost() {
    let mut web = claim("shop/web", amounts(5, 0));
    web.report = Some(ClaimReport {
        phase: Phase::Bound,
        load_balancer: Some("edge".into()),
        capacity: amounts(5, 0),
        reason: ClaimReason::Bound,
        message: "bound to load balancer edge".into(),
    });
    let mut api = Api::new([], [web.clone()]);
    let mut edge = lb("edge", amounts(5, 0));
    (edge.tie.claim, edge.tie.in_use) = (held_by(&web), true);
    api.store.put_lb(edge);
    let event = api.store.logs[0].pop();
    api.run();
    assert_eq!(api.report("shop/web").phase, Phase::Bound);
    api.store.logs[0].extend(event);
    api.run();
    assert_eq!(names(&api), ["GuardClaim", "Report"]);
}

#[test]
fn a_claim_ref_that_was_cleared_under_a_live_claim_is_written_again() {
    let mut api = Api::new([lb("edge", amounts(5, 0))], [claim("shop/web", amounts(5, 0))]);
    api.run();
    api.edit_lb("edge", |lb| lb.tie.claim = None);
    api.run();
    assert_eq!(api.home("shop/web").as_deref(), Some("edge"));
    assert!(api.store.lbs["edge"].tie.uid().is_some());
    // It was given to another claim instead: then the claim is Lost.
    let other = ClaimRef { key: key("bank/web"), uid: None };
    api.edit_lb("edge", |lb| lb.tie.claim = Some(other));
    api.run();
    assert_eq!(api.report("shop/web").reason, ClaimReason::LoadBalancerTaken);
}

#[test]
fn a_claim_in_use_stays_until_its_consumers_let_go() {
    let mut api = Api::new([lb("edge", amounts(5, 0))], [claim("shop/web", amounts(5, 0))]);
    api.wanted("shop/web", 1);
    api.run();
    assert!(api.store.claims[&key("shop/web")].in_use);
    api.edit_claim("shop/web", |claim| claim.deleting = true);
    api.run();
    assert_eq!(api.home("shop/web").as_deref(), Some("edge"), "it goes on being bound");
    api.wanted("shop/web", 0);
    api.run();
    assert!(api.store.claims.is_empty());
    assert_eq!(api.binding("edge"), Binding::Released);
}

#[test]
fn a_bound_load_balancer_that_is_deleted_stays_until_its_claim_is_gone() {
    let mut api = Api::new([lb("edge", amounts(5, 0))], [claim("shop/web", amounts(5, 0))]);
    api.run();
    api.edit_lb("edge", |lb| lb.deleting = true);
    api.run();
    assert_eq!(api.home("shop/web").as_deref(), Some("edge"));
    let message = api.store.lbs["edge"].report.as_ref().unwrap().message.to_string();
    assert_eq!(message, "it is being deleted, and claim shop/web holds it");
    api.edit_claim("shop/web", |claim| claim.deleting = true);
    api.run();
    assert!(api.store.lbs.is_empty() && api.store.claims.is_empty());
}

#[test]
fn a_bound_claim_keeps_its_load_balancer_when_it_requests_more_and_is_told() {
    let mut api = Api::new([lb("edge", amounts(5, 0))], [claim("shop/web", amounts(5, 0))]);
    api.run();
    api.edit_claim("shop/web", |claim| claim.ask.as_mut().unwrap().requests = amounts(6, 0));
    api.pass(60);
    let message =
        "bound to load balancer edge, which has 5 network-bandwidth; 6 is requested by now";
    assert_eq!(*api.report("shop/web").message, *message);
    assert_eq!(api.home("shop/web").as_deref(), Some("edge"));
}

#[test]
fn what_is_failed_is_tried_again_after_a_while() {
    let mut api = Api::new([lb("edge", amounts(5, 0))], [claim("shop/web", amounts(5, 0))]);
    for event in api.store.logs.concat() {
        api.tell(event);
    }
    Kind::ALL.into_iter().for_each(|kind| api.tell(Event::Done(kind)));
    let first = api.machine.take(NOW).writes;
    api.tell(Event::Written { id: first[0].id, result: Written::Failed });
    assert_eq!(api.machine.take(NOW).writes, []);
    assert_eq!(api.machine.wake_at(), Some(NOW + 1));
    let again = api.machine.take(NOW + 1).writes;
    assert_eq!(again[0].op, first[0].op);
}

#[test]
fn what_was_meant_for_a_claim_that_is_gone_by_now_is_not_written_again() {
    let web = claim("shop/web", amounts(5, 0));
    let mut api = Api::new([lb("edge", amounts(5, 0))], [web.clone()]);
    for event in api.store.logs.concat() {
        api.tell(event);
    }
    Kind::ALL.into_iter().for_each(|kind| api.tell(Event::Done(kind)));
    let first = api.machine.take(NOW).writes;
    api.tell(Event::Written { id: first[0].id, result: Written::Failed });
    api.tell(Event::Delete { kind: Kind::Claim, key: web.key, uid: web.uid });
    let again = api.machine.take(NOW + 1).writes;
    assert!(!again.iter().any(|it| matches!(it.op, Op::Bind(..))), "{again:?}");
    assert_eq!(api.machine.tie("edge"), Some(&Tie::default()));
}

#[test]
fn a_claim_is_held_from_before_anybody_can_use_it_and_let_go_when_nobody_does() {
    let mut api = Api::new([lb("edge", amounts(5, 0))], [claim("shop/web", amounts(5, 0))]);
    api.run();
    assert!(api.store.claims[&key("shop/web")].in_use);
    api.wanted("shop/web", 1);
    api.run();
    api.edit_claim("shop/web", |claim| claim.deleting = true);
    api.run();
    assert_eq!(api.home("shop/web").as_deref(), Some("edge"), "somebody uses it");
    api.wanted("shop/web", 0);
    api.run();
    assert!(api.store.claims.is_empty());
}

#[test]
fn a_write_that_changes_nothing_is_repeated_ever_less_often() {
    let mut api = Api::new([lb("edge", amounts(5, 0))], [claim("shop/web", amounts(5, 0))]);
    api.run();
    // An API that does not store the status of the load balancer.
    api.edit_lb("edge", |lb| lb.report = None);
    let edge = api.store.lb("edge").unwrap();
    api.tell(Event::Apply(edge.clone()));
    let mut tried = Vec::new();
    for _ in 0..5 {
        let writes = api.machine.take(api.now).writes;
        let [Write { id, op: Op::Report(..) }] = &writes[..] else { panic!("{writes:?}") };
        tried.push(api.now - NOW);
        let result = Written::Ok(Some(edge.clone()));
        api.tell(Event::Written { id: *id, result });
        assert_eq!(api.machine.take(api.now), Changes::default());
        api.now = api.machine.wake_at().expect("another try");
    }
    assert_eq!(tried, [0, 1, 3, 7, 15]);
}

#[test]
fn a_claim_whose_binding_the_api_refuses_is_told_why_until_it_works() {
    let mut api = Api::new([lb("edge", amounts(5, 0))], [claim("shop/web", amounts(5, 0))]);
    for event in api.store.logs.concat() {
        api.tell(event);
    }
    Kind::ALL.into_iter().for_each(|kind| api.tell(Event::Done(kind)));
    let writes = api.machine.take(api.now).writes;
    let id = |op: fn(&Op) -> bool| writes.iter().find(|it| op(&it.op)).expect("the write").id;
    let bind = id(|op| matches!(op, Op::Bind(..)));
    api.tell(Event::Written { id: bind, result: Written::Refused("a webhook says no".into()) });
    let told = api.machine.take(api.now).writes;
    let message = "load balancer edge cannot be bound: a webhook says no; it is tried again";
    let Some(Op::ReportClaim(_, report)) = told.first().map(|it| &it.op) else {
        panic!("{told:?}")
    };
    assert_eq!((report.reason, &*report.message), (ClaimReason::Refused, message));
    let result = api.store.perform(&told[0].op).unwrap();
    api.tell(Event::Written { id: told[0].id, result });
    api.pass(2);
    assert_eq!(api.home("shop/web").as_deref(), Some("edge"));
}

#[test]
fn a_list_without_a_claim_counts_while_a_write_of_it_is_under_way() {
    let mut api = Api::new([], [claim("shop/web", amounts(5, 0))]);
    for event in api.store.logs.concat() {
        api.tell(event);
    }
    Kind::ALL.into_iter().for_each(|kind| api.tell(Event::Done(kind)));
    let writes = api.machine.take(NOW).writes;
    assert!(matches!(writes[..], [Write { op: Op::ReportClaim(..), .. }]), "{writes:?}");
    api.tell(Event::Begin(Kind::Claim));
    api.tell(Event::Done(Kind::Claim));
    api.tell(Event::Written { id: writes[0].id, result: Written::Failed });
    let bronze = Class { default: true, ..class("bronze") };
    api.tell(Event::Apply(Box::new(Object::Class(bronze))));
    assert_eq!(api.machine.take(NOW + 60), Changes::default(), "nobody asks for anything");
}

#[test]
fn what_was_meant_for_a_claim_and_is_gone_does_not_count_as_its_own() {
    let bronze = Class { default: true, idle_timeout: Some(60), ..class("bronze") };
    let mut api = Api::new([lb("edge", amounts(5, 0))], []).with_class(bronze);
    for event in api.store.logs.concat() {
        api.tell(event);
    }
    Kind::ALL.into_iter().for_each(|kind| api.tell(Event::Done(kind)));
    let writes = api.machine.take(NOW).writes;
    assert!(matches!(writes[..], [Write { op: Op::Report(..), .. }]), "{writes:?}");
    // It is meant for a claim as soon as that write is answered: the answer says that it is gone.
    let web = claim("shop/web", amounts(5, 0));
    api.store.put_claim(web.clone());
    api.tell(Event::Apply(Box::new(Object::Claim(api.store.claims[&web.key].clone()))));
    assert_eq!(api.machine.take(NOW), Changes::default());
    api.edit_lb("edge", |lb| lb.deleting = true);
    api.tell(Event::Written { id: writes[0].id, result: Written::Conflict(None) });
    api.run();
    assert_eq!(api.home("shop/web"), Some(provisioned_name(&web.uid)));
    // A claim that seemed to have two load balancers would never be idle.
    api.pass(120);
    assert_eq!(api.report("shop/web").reason, ClaimReason::Idle);
}
