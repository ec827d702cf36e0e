//! Tests of the status of consumers and load balancers.

use super::*;
use crate::objects::Carrier;
use crate::outcome::{Origin, Reason};

fn web() -> ConsumerRef {
    ConsumerRef {
        kind: ConsumerKind::Service,
        namespace: "shop".into(),
        name: "web".into(),
        uid: "u".into(),
    }
}

fn planned(addresses: &[&str]) -> Outcome {
    moved(&[], addresses)
}

/// The outcome of a consumer at these addresses, while the draining ones still serve it.
fn moved(draining: &[&str], addresses: &[&str]) -> Outcome {
    let ips = |all: &[&str]| all.iter().map(|a| a.parse().unwrap()).collect();
    let (addresses, draining) = (ips(addresses), ips(draining));
    let state =
        State::Planned { load_balancer: "edge".into(), addresses, draining, before: Vec::new() };
    Outcome { consumer: web(), state, problems: Vec::new(), unmet: None }
}

fn at(address: &str) -> Point {
    Point::At(address.parse().unwrap())
}

/// The status where no load balancer has a host name.
fn told(outcome: &Outcome, progress: &Progress, written: Before<'_>) -> ConsumerStatus {
    consumer(outcome, progress, written, |_| &[], None)
}

fn serves() -> Condition {
    served_by("edge", [])
}

fn applied() -> Progress {
    Progress::Applied(Undone::default())
}

fn listener(address: &str, port: u16) -> ListenerKey {
    let address = address.parse().unwrap();
    ListenerKey { address, port, transport: crate::plan::Transport::Tcp }
}

fn refusal(extent: Extent, message: &str) -> Refusal {
    Refusal { consumer: web(), problem: Problem::new(Reason::BindFailed, message), extent }
}

fn behind() -> Progress {
    Progress::Waiting(Waiting::Agent(Pending::AgentBehind))
}

#[test]
fn an_address_is_shown_only_once_it_is_served() {
    let outcome = planned(&["192.0.2.1"]);
    let status = told(&outcome, &behind(), Before::default());
    assert_eq!((status.points, status.programmed.holds), (vec![], false));
    let status = told(&outcome, &applied(), Before::default());
    let expected = ConsumerStatus { points: vec![at("192.0.2.1")], programmed: serves() };
    assert_eq!(status, expected);
}

#[test]
fn a_change_on_its_way_takes_nothing_back_but_what_is_no_longer_planned() {
    let shown = [at("192.0.2.1"), at("192.0.2.2")];
    let written = Before { points: &shown, programmed: true };
    let same = told(&planned(&["192.0.2.1", "192.0.2.2"]), &behind(), written);
    assert_eq!(
        same,
        ConsumerStatus { points: shown.to_vec(), programmed: serves() },
        "nothing to write"
    );
    let moved = told(&planned(&["192.0.2.2", "192.0.2.3"]), &behind(), written);
    assert_eq!((moved.points, moved.programmed.holds), (vec![shown[1].clone()], false));
}

#[test]
fn an_address_that_drains_is_shown_until_its_successor_is_served() {
    let (old, new) = (&at("192.0.2.2"), &at("192.0.2.1"));
    let outcome = moved(&["192.0.2.2"], &["192.0.2.1"]);
    let shown = |progress: &Progress, written: &[&Point]| {
        let written = &written.iter().copied().cloned().collect::<Vec<_>>();
        let status = told(&outcome, progress, Before { points: written, programmed: true });
        (status.points, status.programmed.holds)
    };
    let silent = Progress::Waiting(Waiting::Agent(Pending::AgentSilent));
    assert_eq!(shown(&behind(), &[old]), (vec![old.clone()], false));
    assert_eq!(shown(&silent, &[old]), (vec![old.clone()], false));
    let dead = Progress::Waiting(Waiting::Agent(Pending::NoAgent));
    assert_eq!(shown(&dead, &[old]), (vec![], false), "nobody serves it any more");
    assert_eq!(shown(&applied(), &[old]), (vec![new.clone()], true));
    assert_eq!(shown(&behind(), &[new]), (vec![new.clone()], true), "it does not come back");
    assert_eq!(shown(&behind(), &[old, new]), (vec![new.clone(), old.clone()], false));
}

#[test]
fn who_is_refused_has_no_address_and_is_told_why() {
    let problem = Problem::new(Reason::PortTaken, "shop/old has 192.0.2.1:80/TCP");
    let state = State::Refused { load_balancer: None, problem: problem.clone() };
    let outcome = Outcome { consumer: web(), state, problems: Vec::new(), unmet: None };
    let refused = ConsumerStatus {
        points: Vec::new(),
        programmed: Condition {
            holds: false,
            reason: "PortTaken".into(),
            message: "shop/old has 192.0.2.1:80/TCP".into(),
        },
    };
    assert_eq!(told(&outcome, &applied(), Before::default()), refused);
    let refusal = Refusal { consumer: web(), problem, extent: Extent::All };
    let by_agent = Progress::Applied(Undone::of([&refusal], []));
    assert_eq!(told(&planned(&["192.0.2.1"]), &by_agent, Before::default()), refused);
}

#[test]
fn an_address_stays_while_one_listener_at_it_is_open() {
    let outcome = planned(&["192.0.2.1", "192.0.2.2"]);
    let all = [
        listener("192.0.2.1", 80),
        listener("192.0.2.1", 443),
        listener("192.0.2.2", 80),
        listener("192.0.2.2", 443),
    ];
    let shut: Vec<_> = all.map(|key| refusal(Extent::Listener(key), "no")).into();
    let status = |refusals: &[Refusal]| {
        let status =
            told(&outcome, &Progress::Applied(Undone::of(refusals, all)), Before::default());
        let addresses: Vec<_> = status.points.iter().map(ToString::to_string).collect();
        (addresses, status.programmed.holds, status.programmed.message.to_string())
    };
    let both = || vec!["192.0.2.1".to_owned(), "192.0.2.2".to_owned()];
    assert_eq!(status(&shut[1..2]), (both(), false, "no; the rest is served".into()));
    let second = vec!["192.0.2.2".to_owned()];
    assert_eq!(status(&shut[..2]), (second, false, "no; no; the rest is served".into()));
    assert_eq!(status(&shut), (vec![], false, "no; no; no; and 1 more".into()));
}

#[test]
fn a_part_that_is_not_done_takes_no_address() {
    let part = refusal(Extent::Part, "the certificate of a.example has not come");
    let undone = Undone::of([&part], [listener("192.0.2.1", 80)]);
    let status = told(&planned(&["192.0.2.1"]), &Progress::Applied(undone), Before::default());
    let message = "load balancer edge serves it; the certificate of a.example has not come";
    let programmed = Condition { message: message.into(), ..serves() };
    assert_eq!(status, ConsumerStatus { points: vec![at("192.0.2.1")], programmed });
}

#[test]
fn who_is_not_named_waits_while_an_agent_cannot_name_all_that_it_refused() {
    let verdict = Verdict { phase: Phase::Running, applied: Some(1) };
    let waits = progress(Some(&verdict), 1, Undone::default(), 7);
    assert_eq!(waits, Progress::Waiting(Waiting::Unlisted(7)));
    let outcome = planned(&["192.0.2.1"]);
    let status = told(&outcome, &waits, Before::default());
    assert_eq!((status.points, status.programmed.holds), (vec![], false));
    let points = vec![at("192.0.2.1")];
    let written = Before { points: &points, programmed: true };
    let status = told(&outcome, &waits, written);
    assert_eq!((status.points, status.programmed), (points, serves()));
    let undone = Undone::of([&refusal(Extent::All, "no")], []);
    let named = progress(Some(&verdict), 1, undone.clone(), 7);
    assert_eq!(named, Progress::Applied(undone));
}

/// The facts about a load balancer without consumers.
fn known(
    verdict: Option<&Verdict>,
) -> Known<'_, std::iter::Empty<&ConsumerRef>, std::iter::Empty<&Outcome>> {
    Known {
        name: "edge",
        carrier: Some(Carrier::Builtin),
        verdict,
        addresses: Vec::new(),
        consumers: std::iter::empty(),
        refused: std::iter::empty(),
        undone: &[],
        catching_up: false,
        unreclaimed: None,
        made: None,
        assigned: None,
        closed: None,
        held: None,
    }
}

fn pending(why: Pending) -> Verdict {
    Verdict { phase: Phase::Pending(why), applied: None }
}

#[test]
fn a_load_balancer_shows_no_more_addresses_than_its_status_can_hold() {
    let verdict = Verdict { phase: Phase::Running, applied: Some(1) };
    let addresses = (0..20).map(|n| IpAddr::from([192, 0, 2, n])).collect();
    let status = load_balancer(Known { addresses, ..known(Some(&verdict)) });
    assert_eq!((status.phase, status.addresses.len()), (LoadBalancerPhase::Running, 16));
}

#[test]
fn a_load_balancer_that_runs_without_its_addresses_says_why() {
    let verdict = Verdict { phase: Phase::Running, applied: Some(1) };
    let told = |holds| {
        let assigned = Condition { holds, reason: "NotAllowed".into(), message: "no".into() };
        load_balancer(Known { assigned: Some(&assigned), ..known(Some(&verdict)) }).message
    };
    assert_eq!((told(false).as_deref(), told(true)), (Some("no"), None));
}

#[test]
fn a_load_balancer_without_an_agent_says_how_to_start_one() {
    let status = load_balancer(known(Some(&pending(Pending::NoAgent))));
    let message = "no agent has reported yet: start one with `bowline agent --load-balancer edge`";
    assert_eq!(
        (status.phase, status.message.as_deref()),
        (LoadBalancerPhase::Pending, Some(message))
    );
    assert_eq!((status.programmed.holds, &*status.programmed.reason), (false, "NoAgent"));
    for (carrier, flags) in [
        (Carrier::Haproxy, " --driver haproxy"),
        (Carrier::Nginx, " --driver nginx"),
        (Carrier::Template, " --template FILE --output FILE"),
    ] {
        let waits = pending(Pending::NoAgent);
        let known = Known { carrier: Some(carrier), ..known(Some(&waits)) };
        let message = load_balancer(known).message.unwrap();
        assert!(
            message.ends_with(&format!("`bowline agent --load-balancer edge{flags}`")),
            "{message}"
        );
    }
}

#[test]
fn a_load_balancer_that_is_being_deleted_and_serves_says_what_holds_it() {
    let running = Verdict { phase: Phase::Running, applied: Some(1) };
    let held = "it is being deleted, and claim shop/web holds it";
    let status = load_balancer(Known { held: Some(held), ..known(Some(&running)) });
    assert_eq!((status.phase, status.message.as_deref()), (LoadBalancerPhase::Running, Some(held)));
}

#[test]
fn a_source_without_a_driver_is_said_to_have_none() {
    assert_eq!(load_balancer(known(None)).programmed.reason, "NoDriver".into());
}

#[test]
fn what_could_not_be_reclaimed_is_told_before_all_else_and_then_what_could_not_be_made() {
    let (running, waits) =
        (Verdict { phase: Phase::Running, applied: Some(1) }, pending(Pending::NoAgent));
    let unmade = Condition { holds: false, reason: "Coming".into(), message: "no Pod yet".into() };
    let said = |known: Known<'_, _, _>| {
        let status = load_balancer(known);
        (status.phase, status.message, status.programmed.holds)
    };
    let failed = (LoadBalancerPhase::Failed, Some("the API refuses".to_owned()));
    for (verdict, in_force) in [(&running, true), (&waits, false)] {
        let (unreclaimed, made) = (Some("the API refuses"), Some(&unmade));
        let known = Known { unreclaimed, made, ..known(Some(verdict)) };
        assert_eq!(said(known), (failed.0, failed.1.clone(), in_force));
    }
    let made = Some(&unmade);
    let coming = (LoadBalancerPhase::Pending, Some("no Pod yet".to_owned()), false);
    assert_eq!(said(Known { made, ..known(Some(&waits)) }), coming);
    let runs = (LoadBalancerPhase::Running, None, true);
    assert_eq!(said(Known { made, ..known(Some(&running)) }), runs, "one Pod of two is there");
}

#[test]
fn an_agent_that_is_a_moment_behind_is_taken_to_have_caught_up() {
    let behind = pending(Pending::AgentBehind);
    let status = load_balancer(Known { catching_up: true, ..known(Some(&behind)) });
    assert_eq!(
        (status.phase, status.message, status.programmed.holds),
        (LoadBalancerPhase::Running, None, true)
    );
}

#[test]
fn what_is_shown_of_new_addresses_waits_for_the_plan_that_has_them() {
    let ip = |last: u8| IpAddr::from([192, 0, 2, last]);
    let shown = |progress, shown: &[IpAddr]| in_force(&progress, &[ip(2), ip(3)], &[ip(1)], shown);
    assert_eq!(shown(applied(), &[ip(1)]), [ip(2), ip(3)]);
    assert_eq!(shown(behind(), &[ip(1)]), [ip(1)], "the old one is still served");
    assert_eq!(shown(behind(), &[ip(1), ip(3)]), [ip(1), ip(3)]);
    assert!(shown(behind(), &[ip(9)]).is_empty(), "what it has not is never shown");
}

#[test]
fn an_address_that_drains_stays_while_its_successor_cannot_be_opened() {
    let (old, new) = (IpAddr::from([192, 0, 2, 2]), IpAddr::from([192, 0, 2, 1]));
    let outcome = moved(&["192.0.2.2"], &["192.0.2.1"]);
    let all = [listener("192.0.2.1", 80), listener("192.0.2.2", 80)];
    let shut = |keys: &[ListenerKey]| {
        let refusals: Vec<_> =
            keys.iter().map(|key| refusal(Extent::Listener(*key), "no")).collect();
        Progress::Applied(Undone::of(&refusals, all))
    };
    let shown = |progress: &Progress, written: &[IpAddr]| {
        let points = Point::all(written, &[]);
        let status = told(&outcome, progress, Before { points: &points, programmed: true });
        let all = in_force(progress, &[new], &[old], written);
        let points: Vec<_> = status.points.iter().map(Point::listener).collect();
        assert_eq!(points, all, "so it is for a load balancer");
        (all, status.programmed.holds)
    };
    assert_eq!(shown(&shut(&all[..1]), &[old]), (vec![old], false));
    assert_eq!(
        shown(&shut(&all[..1]), &[]),
        (vec![], false),
        "what is not shown does not come back"
    );
    assert_eq!(shown(&shut(&all), &[old]), (vec![], false), "nor is it open");
    assert_eq!(shown(&shut(&all[1..]), &[old]), (vec![new], false), "the new one is open");
}

#[test]
fn who_moves_shows_the_name_that_serves_it_until_it_is_served_by_the_other() {
    let by_name = |name: &str| vec![Point::Named(name.into())];
    let (edge, old) = (["edge.example".into()], ["old.example".into()]);
    let names = |lb: &str| if lb == "edge" { &edge[..] } else { &old[..] };
    let mut outcome = planned(&["0.0.0.0"]);
    if let State::Planned { before, addresses, .. } = &mut outcome.state {
        *before = vec![Origin { load_balancer: "old".into(), addresses: addresses.clone() }];
    }
    let shown = |progress: &Progress, shown: &[Point]| {
        let written = Before { points: shown, programmed: true };
        let status = consumer(&outcome, progress, written, names, None);
        (status.points, status.programmed.holds)
    };
    assert_eq!(shown(&behind(), &by_name("old.example")), (by_name("old.example"), false));
    let key = listener("0.0.0.0", 80);
    let undone = Undone::of([&refusal(Extent::Listener(key), "no")], [key]);
    let shut = Progress::Applied(undone);
    assert_eq!(shown(&shut, &by_name("old.example")), (by_name("old.example"), false));
    assert_eq!(shown(&applied(), &by_name("old.example")), (by_name("edge.example"), true));
    assert_eq!(shown(&behind(), &by_name("edge.example")), (by_name("edge.example"), true));
    let address = vec![at("192.0.2.1")];
    assert_eq!(shown(&behind(), &address), (vec![], false), "of neither of them");
}

#[test]
fn a_namespace_with_many_refusals_hides_those_of_no_other() {
    let verdict = Verdict { phase: Phase::Running, applied: Some(1) };
    let refused = |namespace: &str, name: String| {
        let consumer = ConsumerRef { namespace: namespace.into(), name: name.into(), ..web() };
        Refusal { consumer, ..refusal(Extent::Part, "taken") }
    };
    let shown = |evil: usize| {
        let crowd = (0..evil).map(|n| refused("evil", format!("{n:03}")));
        let undone: Vec<_> = crowd.chain([refused("shop", "web".to_owned())]).collect();
        let status = load_balancer(Known { undone: &undone, ..known(Some(&verdict)) });
        status.refused.into_iter().map(|(consumer, _)| consumer.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(shown(300).len(), MOST_REFUSED);
    assert_eq!(shown(300).last(), Some(&web().to_string()));
    // More refusals of the namespace change nothing that is shown.
    assert_eq!(shown(300), shown(20));
}
