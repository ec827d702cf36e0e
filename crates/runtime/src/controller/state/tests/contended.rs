//! What the controller tells the planner about writes of Plans and about reports, by which a contested port
//! or host is decided.

use super::*;
use crate::controller::observed::PlanSeen;
use bowline_core::key::ConsumerRef;
use bowline_core::outcome::Problem;
use bowline_core::plan::Transport;
use bowline_core::replicas::Left;
use bowline_core::report::Unlisted;
use bowline_core::update::{Extent, ListenerKey, Refusal};

fn balancer() -> Value {
    json!({
        "metadata": {"name": "edge", "uid": "u", "resourceVersion": "1"},
        "spec": {"builtin": {}, "addresses": ["192.0.2.1"], "allowedNamespaces": {"from": "All"}},
    })
}

/// A Service of this namespace with port 80, created in this year.
fn service(namespace: &str, year: u32) -> Observed {
    testing::service(json!({
        "metadata": {
            "name": "web", "namespace": namespace, "uid": namespace, "resourceVersion": "1",
            "creationTimestamp": format!("{year}-01-01T00:00:00Z"),
            "annotations": {"bowline.dev/load-balancer": "edge"},
        },
        "spec": {
            "type": "LoadBalancer", "loadBalancerClass": "bowline.dev/lb",
            "ports": [{"port": 80, "protocol": "TCP"}],
            "ipFamilies": ["IPv4"], "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"],
        },
    }))
}

fn observe(state: &mut State, all: impl IntoIterator<Item = Observed>, now: Uptime) {
    all.into_iter().for_each(|it| state.observe(it, now));
    state.decide(now);
}

/// The namespaces whose Service holds the port.
fn holders(state: &State) -> Vec<&'static str> {
    let has = |namespace: &&str| {
        let key = ObjectKey::new(*namespace, "web");
        !state.planner.parts(ConsumerKind::Service, &key).is_empty()
    };
    ["evil", "shop"].into_iter().filter(has).collect()
}

fn key_of() -> ListenerKey {
    ListenerKey { address: [192, 0, 2, 1].into(), port: 80, transport: Transport::Tcp }
}

/// A report of an agent that serves the port for another namespace, not for this one.
fn unserved(renewed: &str, namespace: &str) -> Observed {
    let consumer = ConsumerRef {
        kind: ConsumerKind::Service,
        namespace: namespace.into(),
        name: "web".into(),
        uid: namespace.into(),
    };
    let problem = Problem::new(Reason::PortTaken, "it is open for another");
    let extent = Extent::Listener(key_of());
    let mut lease = lease("bowline-agent-edge", true);
    lease.entries[0].renewed = renewed.into();
    lease.entries[0].said.refused = vec![Refusal { consumer, problem, extent }];
    Observed::Lease(Seen::Apply(lease))
}

#[test]
fn a_plan_that_is_being_written_counts_as_written_until_the_api_has_refused_it() {
    let (mut state, now) = (State::new(Config::default(), Default::default()), Uptime::default());
    observe(&mut state, [testing::load_balancer(balancer()), service("shop", 2024)], now);
    let target = Target::Plans("edge".into());
    let next = state.next(&target, now, Timestamp::UNIX_EPOCH);
    let Next::Write(write, tried) = next else { panic!("{next:?}") };
    state.sends(&target, &write);
    // An older Service wants the port while the answer is still missing.
    observe(&mut state, [service("evil", 2020)], now);
    assert_eq!(holders(&state), ["shop"]);
    state.unwritten(&target, &tried);
    state.decide(now);
    assert_eq!(holders(&state), ["evil"], "nothing is recorded, and it is older");
}

#[test]
fn a_leader_that_begins_counts_no_write_of_its_earlier_turn() {
    let (mut state, now) = (State::new(Config::default(), Default::default()), Uptime::default());
    observe(&mut state, [testing::load_balancer(balancer()), service("shop", 2024)], now);
    let target = Target::Plans("edge".into());
    let next = state.next(&target, now, Timestamp::UNIX_EPOCH);
    let Next::Write(write, _) = next else { panic!("{next:?}") };
    state.sends(&target, &write);
    observe(&mut state, [service("evil", 2020)], now);
    state.begin();
    state.decide(now);
    assert_eq!(holders(&state), ["evil"]);
}

/// Plans of two leaders, each with the port for another Service.
fn both_recorded(now: Uptime) -> State {
    let (mut state, mut plans) =
        (State::new(Config::default(), Default::default()), Vec::<PlanSeen>::new());
    for (index, namespace) in ["evil", "shop"].into_iter().enumerate() {
        let (mut other, key) =
            (State::new(Config::default(), Default::default()), ObjectKey::new(namespace, "web"));
        observe(&mut other, [testing::load_balancer(balancer()), service(namespace, 2024)], now);
        let parts = other.planner.parts(ConsumerKind::Service, &key);
        let fragments: Vec<_> = parts.iter().map(|it| (**it).clone()).collect();
        let hash = bowline_core::hash::PlanHash::of(&fragments[0]);
        plans.push(PlanSeen {
            name: format!("edge-{index}"),
            load_balancer: "edge".into(),
            version: "1".to_owned(),
            owner: Some("u".to_owned()),
            fragments,
            unread: Vec::new(),
            hash,
            driver: Some("builtin".into()),
            unreadable: false,
        });
    }
    let plans = plans.into_iter().map(|it| Observed::Plan(Seen::Apply(it)));
    let objects =
        [testing::load_balancer(balancer()), service("evil", 2020), service("shop", 2024)];
    observe(&mut state, objects.into_iter().chain(plans), now);
    state
}

#[test]
fn of_two_recorded_holders_the_report_of_an_agent_decides_and_not_their_age() {
    let now = Uptime::default();
    let mut state = both_recorded(now);
    assert_eq!(holders(&state), ["evil", "shop"], "no agent has said which it serves");
    observe(&mut state, [unserved("1", "evil")], now);
    assert_eq!(holders(&state), ["shop"]);
}

#[test]
fn what_agents_of_a_deleted_load_balancer_said_decides_nothing_for_the_next_of_its_name() {
    let now = Uptime::default();
    let mut state = both_recorded(now);
    observe(&mut state, [unserved("1", "evil")], now);
    observe(&mut state, [testing::deleted_load_balancer(balancer())], now);
    state.observe(Observed::Lease(Seen::Delete(lease("bowline-agent-edge", true))), now);
    observe(&mut state, [testing::load_balancer(balancer())], now);
    assert_eq!(holders(&state), ["evil", "shop"]);
}

#[test]
fn a_namespace_without_refusals_is_not_in_doubt_where_another_has_more_than_can_be_named() {
    let now = Uptime::default();
    let mut state = State::new(Config::default(), Default::default());
    observe(&mut state, [testing::load_balancer(balancer()), service("shop", 2024)], now);
    let doubt = |state: &mut State, unlisted: Unlisted| {
        let mut lease = lease("bowline-agent-edge", true);
        lease.entries[0].said.unlisted = unlisted;
        observe(state, [Observed::Lease(Seen::Apply(lease))], now);
        let consumer = state.planner.consumers("edge").next().unwrap().clone();
        state.undone(&"edge".into(), &consumer).1
    };
    let of = |namespaces| Unlisted { count: 7, namespaces, failing: 0 };
    assert_eq!(doubt(&mut state, of(Some(["evil".into()].into()))), 0);
    assert_eq!(doubt(&mut state, of(Some(["shop".into()].into()))), 7);
    assert_eq!(doubt(&mut state, of(None)), 7, "an agent of the version before does not say");
}

#[test]
fn an_agent_that_left_with_its_proxy_is_waited_for_by_no_address() {
    let now = Uptime::default();
    let mut state = State::new(Config::default(), Default::default());
    observe(&mut state, [testing::load_balancer(balancer()), service("shop", 2024)], now);
    let mut serves = |left| {
        let mut lease = lease("bowline-agent-edge", true);
        lease.entries[0].left = Some(left);
        observe(&mut state, [Observed::Lease(Seen::Apply(lease))], now);
        state.agents.may_serve("edge", Some(true), state.plans.change() + 1, now)
    };
    assert!(serves(Left::ProxyRuns) && !serves(Left::ProxyEnded));
}

/// A state with a recorded Plan of a Service, and that Plan.
fn recorded(load_balancer: Value, now: Uptime) -> (State, impl Fn() -> PlanSeen) {
    let mut state = State::new(Config::default(), Default::default());
    observe(&mut state, [testing::load_balancer(load_balancer), service("shop", 2024)], now);
    let key = ObjectKey::new("shop", "web");
    let parts = state.planner.parts(ConsumerKind::Service, &key);
    let fragments: Vec<_> = parts.iter().map(|it| (**it).clone()).collect();
    let plan = move || PlanSeen {
        name: "edge-0".to_owned(),
        load_balancer: "edge".into(),
        version: "7".to_owned(),
        owner: Some("u".to_owned()),
        hash: bowline_core::hash::PlanHash::of(&fragments[0]),
        fragments: fragments.clone(),
        unread: Vec::new(),
        driver: Some("builtin".into()),
        unreadable: false,
    };
    observe(&mut state, [Observed::Plan(Seen::Apply(plan()))], now);
    (state, plan)
}

/// Carries out the next write of a Plan.
fn write_plan(state: &mut State, version: &str, now: Uptime) {
    let target = Target::Plans("edge".into());
    let next = state.next(&target, now, Timestamp::UNIX_EPOCH);
    let Next::Write(Write::Plan(plan, uid), _) = next else { panic!("{next:?}") };
    state.sends(&target, &Write::Plan(plan, uid));
    let next = state.next(&target, now, Timestamp::UNIX_EPOCH);
    let Next::Write(Write::Plan(plan, _), _) = next else { panic!("{next:?}") };
    let version = (!plan.is_deletion()).then(|| version.to_owned());
    state.wrote(&target, Reply::Plan(Box::new(plan), version), now);
    state.decide(now);
}

/// The Service of a namespace is deleted.
fn gone(namespace: &str) -> Observed {
    match service(namespace, 2024) {
        Observed::Service(Seen::Apply(seen)) => Observed::Service(Seen::Delete(seen)),
        other => other,
    }
}

#[test]
fn a_plan_that_somebody_deletes_takes_no_port_from_its_holder() {
    let now = Uptime::default();
    let (mut state, plan) = recorded(balancer(), now);
    observe(&mut state, [service("evil", 2020)], now);
    assert_eq!(holders(&state), ["shop"]);
    observe(&mut state, [Observed::Plan(Seen::Delete(plan()))], now);
    assert_eq!(holders(&state), ["shop"], "it is younger, and holds the port");
    write_plan(&mut state, "8", now);
    assert_eq!(holders(&state), ["shop"]);
    observe(&mut state, [gone("shop")], now);
    write_plan(&mut state, "9", now);
    assert_eq!(holders(&state), ["evil"]);
}

#[test]
fn a_plan_that_somebody_deletes_takes_no_consumer_from_a_load_balancer_that_is_being_deleted() {
    let now = Uptime::default();
    let mut leaving = balancer();
    let (mut state, plan) = recorded(balancer(), now);
    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    leaving["metadata"]["finalizers"] = json!([names::FINALIZER_IN_USE]);
    leaving["metadata"]["resourceVersion"] = json!("2");
    observe(&mut state, [testing::load_balancer(leaving)], now);
    assert_eq!(holders(&state), ["shop"]);
    observe(&mut state, [Observed::Plan(Seen::Delete(plan()))], now);
    assert_eq!(holders(&state), ["shop"]);
    observe(&mut state, [gone("shop")], now);
    observe(&mut state, [service("shop", 2024)], now);
    assert_eq!(holders(&state), [""; 0], "it is new, and the deleted Plan's record is forgotten");
}
