//! What becomes of a load balancer after its claim is gone.

use super::make::*;
use crate::binder::*;

fn released(reclaim: Reclaim) -> Api {
    let edge = LoadBalancer { reclaim, ..lb("edge", amounts(5, 0)) };
    let mut api = Api::new([edge], [claim("shop/web", amounts(5, 0))]);
    api.run();
    assert_eq!(api.home("shop/web").as_deref(), Some("edge"));
    api.edit_claim("shop/web", |claim| claim.deleting = true);
    api
}

#[test]
fn retain_waits_for_a_person_who_clears_the_claim_ref() {
    let mut api = released(Reclaim::Retain);
    api.run();
    assert_eq!((api.binding("edge"), &*api.jobs), (Binding::Released, &[][..]));
    let mut again = claim("shop/web", amounts(5, 0));
    again.uid = "another".into();
    api.store.put_claim(again);
    api.run();
    assert_eq!(
        *api.report("shop/web").message,
        *"no load balancer fits: edge: its claim is gone, and its claimRef has not been cleared; none is made, \
            because no class is named and none is the default"
    );
    api.edit_lb("edge", |lb| lb.tie.claim = None);
    api.run();
    assert_eq!(api.home("shop/web").as_deref(), Some("edge"));
}

#[test]
fn recycle_wipes_it_before_it_is_available() {
    let mut api = released(Reclaim::Recycle);
    api.fails = Some("the device does not answer".into());
    api.run();
    let report = api.store.lbs["edge"].report.clone().unwrap();
    assert_eq!(report.failed.as_deref(), Some("the device does not answer"));
    assert_eq!((report.binding, api.jobs.len()), (Binding::Released, 1));
    api.pass(1);
    assert_eq!(api.jobs.len(), 1);
    api.pass(2);
    assert_eq!(api.jobs.len(), 2, "it is tried again after a while");
    api.fails = None;
    api.pass(10);
    assert_eq!(api.jobs.last(), Some(&("edge".into(), JobKind::Recycle)));
    let edge = &api.store.lbs["edge"];
    assert_eq!((&edge.tie, api.binding("edge")), (&Tie::default(), Binding::Available));
    assert_eq!(edge.report.as_ref().unwrap().failed, None);
}

#[test]
fn a_wipe_that_waits_is_told_and_ends_with_the_answer_however_late() {
    let mut api = released(Reclaim::Recycle);
    api.waits = Some("its agent is silent".into());
    api.run();
    let report = api.store.lbs["edge"].report.clone().unwrap();
    assert_eq!(report.failed.as_deref(), Some("its agent is silent"));
    api.pass(3600);
    assert_eq!(api.jobs.len(), 1, "it is the same job");
    let id = api.under_way[0];
    api.tell(Event::Finished { id, result: Ok(()) });
    api.run();
    assert_eq!(api.binding("edge"), Binding::Available, "no time has to pass");
    assert_eq!(api.store.lbs["edge"].report.as_ref().unwrap().failed, None);
}

#[test]
fn delete_removes_what_is_behind_it_before_the_object_goes() {
    let mut api = released(Reclaim::Delete);
    api.fails = Some("the device does not answer".into());
    api.run();
    assert!(api.store.lbs["edge"].deleting && api.store.lbs["edge"].tie.cleanup);
    assert_eq!(api.jobs, [("edge".into(), JobKind::Deprovision)]);
    api.fails = None;
    api.pass(10);
    assert!(api.store.lbs.is_empty());
}

#[test]
fn nothing_is_wiped_or_deleted_before_a_read_says_that_the_claim_is_gone() {
    for reclaim in [Reclaim::Recycle, Reclaim::Delete] {
        // The watch has not delivered the claim.
        let web = claim("shop/web", amounts(5, 0));
        let mut edge = LoadBalancer { reclaim, ..lb("edge", amounts(5, 0)) };
        edge.tie = Tie { claim: held_by(&web), in_use: true, cleanup: true };
        let mut api = Api::new([edge], []);
        api.store.put_claim(web);
        let event = api.store.logs[1].pop();
        api.pass(100);
        assert_eq!((api.jobs.len(), api.store.lbs["edge"].deleting), (0, false));
        api.store.logs[1].extend(event);
        api.run();
        assert_eq!(api.home("shop/web").as_deref(), Some("edge"));
    }
}

#[test]
fn consumers_that_are_left_hold_it() {
    let mut api = released(Reclaim::Delete);
    api.edit_lb("edge", |lb| lb.users = vec!["shop".into()]);
    // A person removes the finalizer that holds the claim for its consumers.
    api.edit_claim("shop/web", |claim| claim.in_use = false);
    api.run();
    let report = api.store.lbs["edge"].report.clone().unwrap();
    assert_eq!(
        (report.binding, &*report.message),
        (Binding::Released, "consumers in shop still use it")
    );
    assert!(!api.store.lbs["edge"].deleting);
    api.edit_lb("edge", |lb| lb.users.clear());
    api.run();
    assert!(api.store.lbs.is_empty());
}

#[test]
fn one_that_is_used_by_name_is_held_while_it_is() {
    let mut edge = lb("edge", amounts(5, 0));
    edge.users = vec!["shop".into()];
    let mut api = Api::new([edge], []);
    api.run();
    let before = api.store.lbs["edge"].report.clone();
    api.edit_lb("edge", |lb| lb.deleting = true);
    api.run();
    let report = api.store.lbs["edge"].report.clone().unwrap();
    assert_eq!(*report.message, *"it is being deleted; consumers in shop still use it");
    let news = |before| report.event(before, &"edge".into(), &"u".into());
    let told = news(before.as_ref()).unwrap();
    assert_eq!((&*told.reason, &told.message), ("InUse", &report.message));
    assert_eq!(news(Some(&report)), None, "once");
    api.edit_lb("edge", |lb| lb.users.clear());
    api.run();
    assert!(api.store.lbs.is_empty());
}

#[test]
fn a_claim_ref_with_a_forged_uid_gives_nobody_anything() {
    let web = claim("shop/web", amounts(5, 0));
    let mut edge = lb("edge", amounts(5, 0));
    edge.tie.claim = Some(ClaimRef { key: key("bank/web"), uid: Some(web.uid.clone()) });
    let mut api = Api::new([edge], [web]);
    api.run();
    assert_eq!((api.home("shop/web"), api.binding("edge")), (None, Binding::Released));
}

#[test]
fn one_of_a_claim_that_has_another_is_let_go_before_what_is_behind_it_is_removed() {
    let mut web = claim("shop/web", amounts(5, 0));
    let mut lbs = ["edge", "spare"].map(|name| lb(name, amounts(5, 0)));
    for lb in &mut lbs {
        lb.tie = Tie { claim: held_by(&web), in_use: true, cleanup: true };
    }
    lbs[1].deleting = true;
    web.report = Some(ClaimReport {
        phase: Phase::Bound,
        load_balancer: Some("edge".into()),
        capacity: amounts(5, 0),
        reason: ClaimReason::Bound,
        message: "".into(),
    });
    let mut api = Api::new(lbs, [web]);
    for event in api.store.logs.concat() {
        api.tell(event);
    }
    Kind::ALL.into_iter().for_each(|kind| api.tell(Event::Done(kind)));
    let changes = api.machine.take(NOW);
    assert_eq!(changes.jobs, []);
    assert!(changes.writes.iter().any(|it| matches!(it.op, Op::Release(..))));
    for Write { id, op } in changes.writes {
        let result = api.store.perform(&op).unwrap();
        api.tell(Event::Written { id, result });
    }
    let jobs = api.machine.take(NOW).jobs;
    assert_eq!(jobs.iter().map(|job| job.kind).collect::<Vec<_>>(), [JobKind::Deprovision]);
}

#[test]
fn who_stops_leading_leaves_no_failure_behind() {
    let mut api = released(Reclaim::Recycle);
    api.abandons = true;
    api.run();
    assert_eq!(api.store.lbs["edge"].tie, Tie::default());
    assert_eq!(api.jobs.len(), 2, "it is begun anew, and at once");
    let failed = |op: &Op| matches!(op, Op::Report(_, report) if report.failed.is_some());
    assert!(!api.ops.iter().any(failed), "{:?}", api.ops);
}
