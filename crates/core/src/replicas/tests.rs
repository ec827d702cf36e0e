//! Tests of which agents count, what they report together, and which entries are removed.

use super::*;
use crate::key::{ConsumerKind, ConsumerRef};
use crate::outcome::{Problem, Reason};
use crate::plan::Transport;
use crate::programmed::{History, Pending, Phase};
use crate::update::ListenerKey;

const LASTS: Duration = Duration::from_secs(15);

fn hash(n: u16) -> PlanHash {
    format!("{n:064x}").parse().unwrap()
}

fn entry(agent: &str, renewed: &str, said: Said) -> Entry {
    let (agent, renewed) = (agent.into(), renewed.into());
    Entry { agent, renewed, lasts: LASTS, left: None, whole: false, said }
}

fn applied(n: u16) -> Said {
    Said { hash: Some(hash(n)), ..Said::default() }
}

fn shut(address: [u8; 4], addresses: &[[u8; 4]]) -> Said {
    let consumer = ConsumerRef {
        kind: ConsumerKind::Service,
        namespace: "shop".into(),
        name: "web".into(),
        uid: "u".into(),
    };
    let key = ListenerKey { address: address.into(), port: 80, transport: Transport::Tcp };
    let problem = Problem::new(Reason::BindFailed, "address in use");
    Said {
        refused: vec![Refusal { consumer, problem, extent: Extent::Listener(key) }],
        addresses: addresses.iter().map(|it| IpAddr::from(*it)).collect(),
        ..applied(1)
    }
}

fn seconds(start: Uptime, seconds: u64) -> Uptime {
    start + Duration::from_secs(seconds)
}

#[test]
fn one_that_is_behind_keeps_all_from_running_until_its_time_is_up() {
    let (mut history, mut replicas, begun) =
        (History::default(), Replicas::default(), Uptime::default());
    history.record(&"lb".into(), hash(1), 1);
    history.record(&"lb".into(), hash(2), 2);
    let both = |renewed: &str| vec![entry("a", "1", applied(1)), entry("b", renewed, applied(2))];
    assert!(replicas.show(both("1"), true, 0, begun));
    let verdict = |replicas: &Replicas, now| history.judge("lb", &replicas.reports(now));
    let behind = verdict(&replicas, begun);
    assert_eq!(behind.phase, Phase::Pending(Pending::AgentBehind));
    assert!(behind.covers(1) && !behind.covers(2), "every live one must have it");

    // Only b renews.
    for second in [5, 10] {
        assert!(!replicas.show(both(&second.to_string()), true, 0, seconds(begun, second)));
        assert!(!replicas.tick(seconds(begun, second)));
    }
    let later = seconds(begun, 16);
    replicas.show(both("16"), true, 0, later);
    assert!(replicas.tick(later), "a is silent");
    let verdict = verdict(&replicas, later);
    assert_eq!((verdict.phase.clone(), verdict.covers(2)), (Phase::Running, true));
    // No time proves that the silent agent does not serve: addresses that it may serve are not
    // released.
    let last = seconds(begun, 30 * 24 * 3600);
    replicas.show(both("31"), true, 0, last);
    assert!(history.may_serve("lb", Some(true), &replicas.reports(last), 2));
    assert_eq!(replicas.dead(false, last), Vec::<Arc<str>>::new());
    // An administrator, who knows that the agent is gone, removes its entry.
    assert!(replicas.show(vec![entry("b", "31", applied(2))], true, 0, last));
    assert!(!history.may_serve("lb", Some(true), &replicas.reports(last), 2));
}

/// This entry and, a while later, a live agent on machine `m1`.
fn beside(gone: Entry, after: u64) -> (Replicas, Uptime) {
    let (mut replicas, begun) = (Replicas::default(), Uptime::default());
    let now = seconds(begun, after);
    replicas.show(vec![gone.clone()], true, 0, begun);
    replicas.show(vec![gone, entry("m1_2", "1", applied(1))], true, 0, now);
    (replicas, now)
}

#[test]
fn an_agent_that_has_ended_with_its_proxy_holds_nothing_back_and_its_entry_goes() {
    let mut history = History::default();
    history.record(&"lb".into(), hash(1), 1);
    history.record(&"lb".into(), hash(2), 2);
    let left = |left| Entry { left: Some(left), ..entry("m9_1", "1", applied(1)) };
    for (how, serves) in [(Left::ProxyEnded, false), (Left::ProxyRuns, true)] {
        let mut replicas = Replicas::default();
        replicas.show(vec![left(how)], true, 0, Uptime::default());
        let reports = replicas.reports(Uptime::default());
        assert_eq!(history.may_serve("lb", Some(true), &reports, 2), serves, "{how:?}");
    }
    let dead = |how, after| {
        let (replicas, now) = beside(left(how), after);
        replicas.dead(false, now).len()
    };
    assert_eq!([dead(Left::ProxyEnded, 29), dead(Left::ProxyEnded, 31)], [0, 1]);
    assert_eq!(dead(Left::ProxyRuns, 1000), 0);
    assert_eq!(dead(Left::Unsaid, 31), 1, "as the version before has it");
}

#[test]
fn an_agent_on_the_same_machine_takes_the_place_of_one_that_is_silent() {
    for (gone, expected) in [("m1_1", 1), ("m2_1", 0), ("m1", 0)] {
        let (replicas, now) = beside(entry(gone, "1", applied(1)), 31);
        assert_eq!(replicas.dead(false, now).len(), expected, "{gone}");
    }
    // Before the new agent has a plan in force, the proxy is as the previous agent left it.
    let (mut replicas, now) = beside(entry("m1_1", "1", applied(1)), 31);
    let starting = entry("m1_2", "2", Said::default());
    replicas.show(vec![entry("m1_1", "1", applied(1)), starting], true, 0, now);
    assert_eq!(replicas.dead(false, now).len(), 0);
}

#[test]
fn behind_a_service_a_silent_agent_is_gone_after_a_minute() {
    let dead = |after| {
        let (replicas, now) = beside(entry("pod-9_1", "1", applied(1)), after);
        [true, false].map(|fronted| replicas.dead(fronted, now).len())
    };
    assert_eq!([dead(59), dead(61)], [[0, 0], [1, 0]]);
}

#[test]
fn entries_of_silent_agents_do_not_pile_up() {
    let (mut replicas, begun) = (Replicas::default(), Uptime::default());
    let silent = |n: u64| entry(&format!("vm{n}_1"), "1", applied(1));
    for n in 0..20 {
        replicas.show((0..=n).map(silent).collect(), true, 0, seconds(begun, n));
    }
    let later = seconds(begun, 1000);
    let live = entry("vm99_1", "1", applied(1));
    replicas.show((0..20).map(silent).chain([live]).collect(), true, 0, later);
    let expected: Vec<Arc<str>> = (0..4).map(|n| format!("vm{n}_1").into()).collect();
    assert_eq!(replicas.dead(false, later), expected);
}

#[test]
fn the_address_of_an_agent_that_is_lost_is_not_shown_while_another_lives() {
    let (mut replicas, begun) = (Replicas::default(), Uptime::default());
    let at = |last| Said { addresses: vec![[192, 0, 2, last].into()], ..applied(1) };
    let both = |renewed: &str| vec![entry("a", "1", at(1)), entry("b", renewed, at(2))];
    replicas.show(both("1"), true, 0, begun);
    for (after, shown) in [(16, 2), (31, 1)] {
        let now = seconds(begun, after);
        replicas.show(both(&after.to_string()), true, 0, now);
        assert!(replicas.tick(now));
        assert_eq!(replicas.joint().addresses.len(), shown);
    }
}

#[test]
fn the_last_one_is_never_dead_and_what_it_said_stays() {
    let (mut replicas, begun) = (Replicas::default(), Uptime::default());
    let said = Said { addresses: vec![[192, 0, 2, 1].into()], ..applied(1) };
    replicas.show(vec![entry("a", "1", said.clone())], true, 0, begun);
    let later = seconds(begun, 1000);
    assert!(replicas.tick(later));
    assert_eq!(replicas.dead(false, later), Vec::<Arc<str>>::new());
    let left = Entry { left: Some(Left::ProxyRuns), ..entry("a", "2", said) };
    replicas.show(vec![left.clone()], true, 0, later);
    assert_eq!(replicas.joint().addresses, [IpAddr::from([192, 0, 2, 1])]);
    // The address of an agent that left goes when there is another agent.
    let other = Said { addresses: vec![[192, 0, 2, 2].into()], ..applied(1) };
    replicas.show(vec![left, entry("b", "1", other)], true, 0, later);
    assert_eq!(replicas.joint().addresses, [IpAddr::from([192, 0, 2, 2])]);
}

#[test]
fn what_one_live_replica_does_not_open_is_not_open() {
    let (mut replicas, begun) = (Replicas::default(), Uptime::default());
    let refusing = shut([10, 0, 0, 1], &[]);
    replicas.show(
        vec![entry("a", "1", applied(1)), entry("b", "1", refusing.clone())],
        true,
        0,
        begun,
    );
    assert_eq!(replicas.joint().refused, refusing.refused);
    // Both refuse the same: it is reported once.
    replicas.show(
        vec![entry("a", "2", refusing.clone()), entry("b", "1", refusing.clone())],
        true,
        0,
        begun,
    );
    assert_eq!(replicas.joint().refused, refusing.refused);
    // Agent b is silent: only a counts.
    let later = seconds(begun, 16);
    replicas.show(vec![entry("a", "3", applied(1)), entry("b", "1", refusing)], true, 0, later);
    replicas.tick(later);
    assert_eq!(replicas.joint().refused, []);
}

#[test]
fn the_address_of_another_machine_is_for_that_machine_to_open() {
    let (mut replicas, begun) = (Replicas::default(), Uptime::default());
    let (one, two) = ([192, 0, 2, 1], [192, 0, 2, 2]);
    replicas.show(
        vec![entry("a", "1", shut(two, &[one])), entry("b", "1", shut(one, &[two]))],
        true,
        0,
        begun,
    );
    let joint = Joint { addresses: vec![one.into(), two.into()], ..Joint::default() };
    assert_eq!(*replicas.joint(), joint);
    let own = shut(one, &[one]);
    replicas.show(vec![entry("a", "2", own.clone()), entry("b", "1", applied(1))], true, 0, begun);
    assert_eq!(replicas.joint().refused, own.refused);
}

#[test]
fn a_starting_agent_holds_no_address_back_and_the_phase_says_that_it_is_not_there_yet() {
    let (mut history, mut replicas, now) =
        (History::default(), Replicas::default(), Uptime::default());
    history.record(&"lb".into(), hash(1), 1);
    replicas.show(
        vec![entry("a", "1", applied(1)), entry("b", "1", Said::default())],
        true,
        0,
        now,
    );
    let verdict = history.judge("lb", &replicas.reports(now));
    assert_eq!(verdict.phase, Phase::Pending(Pending::AgentBehind));
    assert!(verdict.covers(1), "it is not ready, so nobody is sent to it");
}

#[test]
fn agents_of_before_share_a_lease_with_new_ones_and_each_counts() {
    let (mut history, mut replicas, begun) =
        (History::default(), Replicas::default(), Uptime::default());
    history.record(&"lb".into(), hash(1), 1);
    history.record(&"lb".into(), hash(2), 2);
    let old = |n| Entry { whole: true, ..entry("old", "o", applied(n)) };
    let new = |renewed: &str| entry("new", renewed, applied(2));
    replicas.show(vec![new("1"), old(1)], true, 0, begun);
    // The new agent writes next. The Lease no longer shows the old agent, which is still live.
    replicas.show(vec![new("2")], true, 0, seconds(begun, 5));
    let phase = |replicas: &Replicas, now| history.judge("lb", &replicas.reports(now)).phase;
    let now = seconds(begun, 5);
    assert_eq!(phase(&replicas, now), Phase::Pending(Pending::AgentBehind));
    let now = seconds(begun, 16);
    replicas.show(vec![new("3")], true, 0, now);
    assert_eq!(phase(&replicas, now), Phase::Running, "its time is up");
}

#[test]
fn a_list_proves_nobody_alive_and_a_renewal_does() {
    let (mut replicas, begun) = (Replicas::default(), Uptime::default());
    replicas.show(vec![entry("a", "1", applied(1)), entry("b", "1", applied(1))], false, 0, begun);
    assert!(replicas.are_unsure());
    assert!(replicas.show(vec![entry("a", "2", applied(1))], true, 0, begun));
    assert!(!replicas.are_unsure());
}
