//! Tests of the load balancer to which a consumer goes, and whether it may use it.

use super::make::*;
use crate::addresses::Wish;
use crate::key::ConsumerKind;
use crate::objects::{
    AllowedNamespaces, ClassParameters, Ingress, IngressClass, LabelSelector, LoadBalancer,
    Operator, Placement, Requirement, Service, ServiceClass,
};
use crate::outcome::{Problem, Reason};
use crate::planner::{Ask, Asked, By, Config, Event, Kind, NotOurs, Object, Planner, Why};

fn with_default(name: &str) -> Config {
    Config { default_class: false, default_load_balancer: Some(name.into()) }
}

fn claimed(name: &str, claim: &str) -> LoadBalancer {
    let uid = format!("uid-of-{claim}").into();
    LoadBalancer { claim: Some((key(claim), Some(uid))), ..lb(name) }
}

fn external(name: &str) -> LoadBalancer {
    LoadBalancer { external: true, ..lb(name) }
}

/// The value of a Service with `lb.zcloud.cn/vip`.
fn of_device() -> Wish {
    Wish { of_device: true, ..Wish::default() }
}

fn bad() -> Problem {
    Problem::new(Reason::BadValue, "cannot be read")
}

#[test]
fn where_a_service_goes() {
    let asks = |placement| Service { placement: Ok(placement), ..service("a/x", &[80]) };
    let named = |name: &str| asks(Placement::LoadBalancer(name.into()));
    let by_claim = |name: &str| asks(Placement::Claim(name.into()));
    let by_source = |source: &str| asks(Placement::Source(source.into()));
    let anywhere = || asks(Placement::Default);
    let any_vip = || Service { vips: Ok(vec![ip("192.0.2.1")]), ..anywhere() };
    let vip = || Service { address: of_device(), ..any_vip() };
    let none = Config::default;
    let sourced = |name, source: &str| LoadBalancer { source: source.into(), ..lb(name) };
    let nobodys = |name| LoadBalancer { allowed: AllowedNamespaces::None, ..lb(name) };
    let leaving = |name| LoadBalancer { deleting: true, ..lb(name) };
    let leaving_external = |name| LoadBalancer { deleting: true, ..external(name) };
    let reserved = |lb| LoadBalancer { claim: Some((key("a/new"), None)), ..lb };
    let on = |name: &str| format!("{name} 192.0.2.1");
    let cases: Vec<(&str, Config, Vec<LoadBalancer>, Service, String)> = vec![
        ("named", none(), vec![lb("p"), lb("q")], named("q"), on("q")),
        ("no such", none(), vec![lb("p")], named("q"), "LoadBalancerNotFound".into()),
        ("being deleted", none(), vec![leaving("p")], named("p"), "LoadBalancerDeleting".into()),
        ("for nobody", none(), vec![nobodys("p")], named("p"), "NotAllowed by p".into()),
        ("claimed by it", none(), vec![claimed("p", "a/c")], named("p"), on("p")),
        (
            "claimed by others",
            none(),
            vec![claimed("p", "b/c")],
            named("p"),
            "NotAllowed by p".into(),
        ),
        (
            "released",
            none(),
            vec![LoadBalancer { claim: Some((key("a/c"), Some("dead".into()))), ..lb("p") }],
            named("p"),
            "NotAllowed by p".into(),
        ),
        ("reserved", none(), vec![reserved(lb("p"))], named("p"), on("p")),
        (
            "reserved and for nobody",
            none(),
            vec![reserved(nobodys("p"))],
            named("p"),
            "NotAllowed by p".into(),
        ),
        ("its claim", none(), vec![lb("o"), claimed("p", "a/c")], by_claim("c"), on("p")),
        ("others' claim", none(), vec![claimed("p", "b/c")], by_claim("c"), "ClaimNotBound".into()),
        ("a source", none(), vec![sourced("p", "1"), sourced("q", "2")], by_source("2"), on("q")),
        (
            "the source it may use",
            none(),
            vec![nobodys("p"), lb("q")],
            by_source(&lb("p").source),
            on("q"),
        ),
        (
            "two of a source",
            none(),
            vec![lb("p"), lb("q")],
            by_source(&lb("p").source),
            "LoadBalancerNotFound".into(),
        ),
        (
            "a source for nobody",
            none(),
            vec![nobodys("p")],
            by_source(&lb("p").source),
            "NotAllowed by p".into(),
        ),
        ("no such source", none(), vec![lb("p")], by_source("2"), "LoadBalancerNotFound".into()),
        (
            "a source that is being deleted",
            none(),
            vec![leaving("p"), nobodys("q")],
            by_source(&lb("p").source),
            "LoadBalancerDeleting".into(),
        ),
        (
            "a source of which one is being deleted",
            none(),
            vec![leaving("p"), lb("q")],
            by_source(&lb("p").source),
            on("q"),
        ),
        (
            "the default, being deleted",
            with_default("p"),
            vec![leaving("p")],
            anywhere(),
            "LoadBalancerDeleting".into(),
        ),
        (
            "the only external, being deleted",
            none(),
            vec![leaving_external("e")],
            vip(),
            "LoadBalancerDeleting".into(),
        ),
        (
            "the only external that stays",
            none(),
            vec![leaving_external("d"), external("e")],
            vip(),
            on("e"),
        ),
        ("the default", with_default("p"), vec![lb("o"), lb("p")], anywhere(), on("p")),
        (
            "no such default",
            with_default("q"),
            vec![lb("p")],
            anywhere(),
            "LoadBalancerNotFound".into(),
        ),
        (
            "default before external",
            with_default("p"),
            vec![lb("p"), external("e")],
            vip(),
            on("p"),
        ),
        ("the only external", none(), vec![lb("p"), external("e")], vip(), on("e")),
        (
            "two external",
            none(),
            vec![external("d"), external("e")],
            vip(),
            "LoadBalancerNotFound".into(),
        ),
        ("no vip", none(), vec![external("e")], anywhere(), "LoadBalancerNotFound".into()),
        ("any spelling", none(), vec![external("e")], any_vip(), "LoadBalancerNotFound".into()),
        (
            "bad placement",
            with_default("p"),
            vec![lb("p")],
            Service { placement: Err(bad()), ..anywhere() },
            "BadValue".into(),
        ),
        (
            "bad vip",
            with_default("p"),
            vec![lb("p")],
            Service { vips: Err(bad()), ..anywhere() },
            "BadValue".into(),
        ),
    ];
    for (case, config, lbs, service, expected) in cases {
        let service: Object = service.into();
        let claims = [claim("a/c", Some("p")), claim("b/c", Some("p"))];
        let lbs = || lbs.iter().cloned().map(Object::from).chain(claims.clone().map(Object::from));
        let first = planner(config.clone(), lbs().chain([service.clone()]).collect());
        assert_eq!(service_state(&first, "a/x"), expected, "{case}");
        let last = planner(config, [service].into_iter().chain(lbs()).collect());
        assert_eq!(service_state(&last, "a/x"), expected, "{case}, load balancers later");
    }
}

#[test]
fn who_names_a_claim_goes_where_claim_and_load_balancer_name_each_other() {
    let asks = || Service { placement: Ok(Placement::Claim("c".into())), ..service("a/x", &[80]) };
    let reserved = || LoadBalancer { claim: Some((key("a/c"), None)), ..lb("p") };
    let another = || LoadBalancer { claim: Some((key("a/c"), Some("dead".into()))), ..lb("p") };
    let leaving = || LoadBalancer { deleting: true, ..claimed("p", "a/c") };
    let on = "p 192.0.2.1";
    for (case, lb, of, expected) in [
        ("both", claimed("p", "a/c"), Some(claim("a/c", Some("p"))), on),
        ("being deleted, and held", leaving(), Some(claim("a/c", Some("p"))), on),
        ("nothing said yet", claimed("p", "a/c"), Some(claim("a/c", None)), "ClaimNotBound"),
        ("no claim", claimed("p", "a/c"), None, "ClaimNotFound"),
        ("reserved only", reserved(), Some(claim("a/c", Some("p"))), "ClaimNotBound"),
        ("of one before it", another(), Some(claim("a/c", Some("p"))), "ClaimNotBound"),
        ("another one", claimed("p", "a/c"), Some(claim("a/c", Some("q"))), "ClaimNotBound"),
    ] {
        let of = of.map(Object::from);
        let objects = [Object::from(asks()), lb.into()].into_iter().chain(of.clone());
        let objects: Vec<Object> = objects.collect();
        let forth = planner(Config::default(), objects.clone());
        assert_eq!(service_state(&forth, "a/x"), expected, "{case}");
        let back = planner(Config::default(), objects.into_iter().rev().collect());
        assert_eq!(service_state(&back, "a/x"), expected, "{case}, the other way round");
    }
}

#[test]
fn the_plan_says_whether_a_load_balancer_is_claimed_for_a_service_also_when_that_changes() {
    let placement = Ok(Placement::LoadBalancer("p".into()));
    let asks = Service { placement, ..service("a/x", &[80]) };
    let of = claim("a/c", Some("p"));
    let mut planner = planner(Config::default(), vec![lb("p").into(), asks.into(), of.into()]);
    for (lb, expected) in [(lb("p"), false), (claimed("p", "a/c"), true), (lb("p"), false)] {
        planner.handle(Event::Apply(Box::new(lb.into())));
        planner.take();
        assert_eq!(service_state(&planner, "a/x"), "p 192.0.2.1");
        let parts = planner.parts(ConsumerKind::Service, &key("a/x")).iter();
        assert_eq!(parts.map(|part| part.claimed).collect::<Vec<_>>(), [expected]);
    }
}

#[test]
fn it_is_told_how_many_ask_for_a_claim_when_that_changes() {
    let asks = |name: &str| Service {
        placement: Ok(Placement::Claim("c".into())),
        ..service(name, &[80])
    };
    let mut planner = Planner::new(Config::default());
    apply(&mut planner, asks("a/x"));
    apply(&mut planner, asks("a/y"));
    apply(&mut planner, asks("b/x"));
    assert_eq!(planner.take().wanted, [(key("a/c"), 2), (key("b/c"), 1)]);
    apply(&mut planner, claim("a/c", None));
    apply(&mut planner, Service { created: 7, ..asks("a/x") });
    assert_eq!(planner.take().wanted, []);
    apply(&mut planner, service("a/x", &[80]));
    planner.handle(Event::Delete(Kind::Service, key("b/x")));
    assert_eq!(planner.take().wanted, [(key("a/c"), 1), (key("b/c"), 0)]);
}

#[test]
fn where_an_ingress_goes() {
    let ours = |parameters| IngressClass { parameters, ..class("web") };
    let to_lb = |name: &str| ours(Ok(ClassParameters::LoadBalancer(name.into())));
    let to_claim = |claim| ours(Ok(ClassParameters::Claim(key(claim))));
    let x = || ingress("a/x", vec![rule("", &[("/", "s:80")])]);
    let anywhere = || Ingress { placement: Ok(Placement::Default), ..x() };
    let lbs = || {
        let of_claim = [claimed("q", "a/c").into(), claim("a/c", Some("q")).into()];
        [lb("lb").into(), lb("p").into()].into_iter().chain(of_claim)
    };
    let cases: Vec<(&str, Config, IngressClass, Ingress, &str)> = vec![
        ("itself", with_default("p"), to_lb("p"), x(), "lb 192.0.2.1"),
        ("by its class", with_default("lb"), to_lb("p"), anywhere(), "p 192.0.2.1"),
        ("by its class's claim", with_default("lb"), to_claim("a/c"), anywhere(), "q 192.0.2.1"),
        ("others' class", with_default("lb"), to_claim("b/c"), anywhere(), "NotAllowed"),
        ("by default", with_default("p"), class("web"), anywhere(), "p 192.0.2.1"),
        ("nowhere", Config::default(), class("web"), anywhere(), "LoadBalancerNotFound"),
        ("bad class", with_default("p"), ours(Err(bad())), anywhere(), "BadValue"),
        (
            "bad placement",
            with_default("p"),
            class("web"),
            Ingress { placement: Err(bad()), ..x() },
            "BadValue",
        ),
        (
            "foreign class",
            with_default("p"),
            IngressClass { ours: false, ..class("web") },
            x(),
            "not ours",
        ),
        ("another class", with_default("p"), class("other"), x(), "not ours"),
        ("no class", with_default("p"), class("web"), Ingress { class: None, ..x() }, "not ours"),
    ];
    for (case, config, class, ingress, expected) in cases {
        let (class, ingress): (Object, Object) = (class.into(), ingress.into());
        let objects = lbs().chain([class.clone(), ingress.clone()]);
        let first = planner(config.clone(), objects.collect());
        assert_eq!(ingress_state(&first, "a/x"), expected, "{case}");
        let last = planner(config, [ingress, class].into_iter().chain(lbs()).collect());
        assert_eq!(ingress_state(&last, "a/x"), expected, "{case}, class and load balancers later");
    }
}

fn selects(operator: Operator) -> LoadBalancer {
    let requirements = vec![Requirement { key: "label".into(), operator }];
    LoadBalancer {
        allowed: AllowedNamespaces::Selector(LabelSelector { requirements }),
        ..lb("lb")
    }
}

#[test]
fn an_unclaimed_load_balancer_is_for_the_namespaces_that_its_selector_matches() {
    let values = || vec!["1".into(), "2".into()];
    for (operator, with_1, with_3) in [
        (Operator::In(values()), true, false),
        (Operator::NotIn(values()), false, true),
        (Operator::Exists, true, true),
        (Operator::DoesNotExist, false, false),
    ] {
        for (label, allowed) in [("1", with_1), ("3", with_3)] {
            let objects = vec![
                selects(operator.clone()).into(),
                namespace("a", label).into(),
                service("a/x", &[80]).into(),
            ];
            let planner = planner(Config::default(), objects);
            let expected = if allowed { "lb 192.0.2.1" } else { "NotAllowed by lb" };
            assert_eq!(service_state(&planner, "a/x"), expected, "{operator:?} {label}");
        }
    }
}

#[test]
fn a_namespace_whose_labels_are_not_known_may_use_nothing_by_selector() {
    let objects = vec![selects(Operator::DoesNotExist).into(), service("a/x", &[80]).into()];
    let planner = planner(Config::default(), objects);
    assert_eq!(service_state(&planner, "a/x"), "NotAllowed by lb");
}

fn two_namespaces() -> Planner {
    planner(
        Config::default(),
        vec![
            selects(Operator::Exists).into(),
            class("web").into(),
            namespace("a", "").into(),
            namespace("ab", "").into(),
            service("a/x", &[81]).into(),
            ingress("a/x", vec![rule("", &[("/", "x:81")])]).into(),
            service("ab/x", &[82]).into(),
        ],
    )
}

#[test]
fn a_namespace_that_changes_its_labels_moves_its_own_consumers_only() {
    let mut planner = two_namespaces();
    planner.handle(Event::Delete(Kind::Namespace, key("a")));
    planner.take();
    assert_eq!(service_state(&planner, "a/x"), "NotAllowed by lb");
    assert_eq!(ingress_state(&planner, "a/x"), "NotAllowed by lb");
    assert_eq!(service_state(&planner, "ab/x"), "lb 192.0.2.1");
}

#[test]
fn a_load_balancer_that_is_gone_takes_all_its_fragments_along() {
    let mut planner = two_namespaces();
    assert_eq!(planner.consumers("lb").count(), 3);
    planner.handle(Event::Delete(Kind::LoadBalancer, key("lb")));
    let changes = planner.take();
    assert_eq!(changes.fragments.len(), 4);
    assert!(changes.fragments.iter().all(|change| change.parts.is_empty()));
    assert_eq!(service_state(&planner, "ab/x"), "LoadBalancerNotFound");
    assert_eq!((planner.consumers("lb").count(), planner.hash("lb")), (0, Default::default()));
}

#[test]
fn the_planner_says_who_asked_or_why_it_leaves_something_alone() {
    let asks = |ask, by| Why::Asks(Ok(Asked { ask, by }));
    let name = |name: &str| Ask::Name(name.into());
    let plain = || Service {
        class: ServiceClass::LoadBalancer,
        placement: Ok(Placement::Default),
        ..service("a/x", &[80])
    };
    let named = Service { placement: Ok(Placement::LoadBalancer("q".into())), ..plain() };
    let any_vip = Service { vips: Ok(vec![ip("192.0.2.1")]), ..plain() };
    let vip = Service { address: of_device(), ..any_vip.clone() };
    let bad_placement = Service { placement: Err(bad()), ..plain() };
    let unclassed = Service { class: ServiceClass::Unset, ..plain() };
    let per_pod = Service { class: ServiceClass::IpPerPod, ..plain() };
    for (config, service, expected) in [
        (with_default("p"), named, asks(name("q"), By::Itself)),
        (with_default("p"), plain(), asks(name("p"), By::Default)),
        (Config::default(), vip, asks(Ask::External, By::Nothing)),
        (Config::default(), any_vip, asks(Ask::Nothing, By::Nothing)),
        (Config::default(), plain(), asks(Ask::Nothing, By::Nothing)),
        (with_default("p"), bad_placement, Why::Asks(Err(bad()))),
        (with_default("p"), unclassed, Why::NotOurs(NotOurs::Unclassed)),
        (with_default("p"), per_pod, Why::NotOurs(NotOurs::PerPod)),
    ] {
        let planner = planner(config, vec![service.into()]);
        assert_eq!(planner.why(ConsumerKind::Service, &key("a/x")), expected);
    }
    let by_class =
        IngressClass { parameters: Ok(ClassParameters::LoadBalancer("q".into())), ..class("ours") };
    let foreign = IngressClass { ours: false, ..class("theirs") };
    let of = |class: Option<&str>| Ingress {
        class: class.map(Into::into),
        placement: Ok(Placement::Default),
        ..ingress("a/x", Vec::new())
    };
    for (class, expected) in [
        (Some("ours"), asks(name("q"), By::Class("ours".into()))),
        (Some("theirs"), Why::NotOurs(NotOurs::IngressClassForeign("theirs".into()))),
        (Some("none"), Why::NotOurs(NotOurs::IngressClassMissing("none".into()))),
        (None, Why::NotOurs(NotOurs::NoIngressClass)),
    ] {
        let objects = vec![by_class.clone().into(), foreign.clone().into(), of(class).into()];
        let planner = planner(with_default("p"), objects);
        assert_eq!(planner.why(ConsumerKind::Ingress, &key("a/x")), expected);
    }
    let none = planner(Config::default(), Vec::new());
    assert_eq!(none.why(ConsumerKind::Service, &key("a/x")), Why::NotOurs(NotOurs::Missing));
}

#[test]
fn who_uses_a_load_balancer_by_name_leaves_it_with_the_claim_that_had_it() {
    let objects = vec![claimed("lb", "a/c").into(), service("a/x", &[80]).into()];
    let mut planner = planner(Config::default(), objects);
    assert_eq!(service_state(&planner, "a/x"), "NotAllowed by lb");
    apply(&mut planner, claim("a/c", Some("lb")));
    planner.take();
    assert_eq!(service_state(&planner, "a/x"), "lb 192.0.2.1");
    planner.handle(Event::Delete(Kind::Claim, key("a/c")));
    planner.take();
    assert_eq!(service_state(&planner, "a/x"), "NotAllowed by lb");
}
