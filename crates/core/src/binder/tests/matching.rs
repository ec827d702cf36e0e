//! Which load balancer a claim gets.

use super::make::*;
use crate::addresses::Scope;
use crate::binder::best_fit::BestFit;
use crate::binder::fit::{fill, suits};
use crate::binder::*;
use crate::objects::{LabelSelector, Operator, Requirement};
use crate::outcome::{Problem, Reason};
use proptest::prelude::*;
use std::cmp::Reverse;

#[test]
fn the_one_with_the_least_to_spare_over_all_requested_resources_is_taken() {
    // To spare of 4 and 4: 6/10 + 0 = 0.6; 1/5 + 1/5 = 0.4; 0 + 5/9 = 0.555…
    let lbs = [lb("a", amounts(10, 4)), lb("b", amounts(5, 5)), lb("c", amounts(4, 9))];
    let mut api = Api::new(lbs, [claim("shop/web", amounts(4, 4))]);
    api.run();
    assert_eq!(api.home("shop/web").as_deref(), Some("b"));
    assert_eq!(api.report("shop/web").capacity, amounts(5, 5));
}

#[test]
fn of_equals_the_first_by_name_is_taken_and_one_without_a_limit_last() {
    let lbs = [lb("a", amounts(0, 0)), lb("c", amounts(5, 9)), lb("b", amounts(5, 7))];
    let claims = ["shop/1", "shop/2", "shop/3"].map(|name| claim(name, amounts(4, 0)));
    let mut api = Api::new(lbs, claims);
    api.run();
    let homes = ["shop/1", "shop/2", "shop/3"].map(|name| api.home(name).unwrap().to_string());
    assert_eq!(homes, ["b", "c", "a"]);
}

#[test]
fn selector_scope_and_class_are_part_of_the_match() {
    let mut lbs = ["a", "b", "c", "d"].map(|name| lb(name, amounts(10, 0)));
    lbs[1].labels = [("tier".into(), "gold".into())].into();
    lbs[2].scope = Scope::Intranet;
    lbs[3].class = Some("bronze".into());
    let claims = [
        asking("shop/label", |ask| ask.selector = label("tier", "gold")),
        asking("shop/scope", |ask| ask.scope = Some(Scope::Intranet)),
        asking("shop/class", |ask| ask.class = ClassWish::Named("bronze".into())),
        asking("shop/none", |ask| ask.class = ClassWish::Named("gold".into())),
    ];
    let mut api = Api::new(lbs, claims);
    api.run();
    assert_eq!(api.home("shop/label").as_deref(), Some("b"));
    assert_eq!(api.home("shop/scope").as_deref(), Some("c"));
    assert_eq!(api.home("shop/class").as_deref(), Some("d"));
    assert_eq!(api.home("shop/none"), None);
}

#[test]
fn one_that_is_named_need_not_be_selected_but_must_suit_otherwise() {
    let named = |name: &str, edit: fn(&mut Ask)| {
        asking(name, |ask| {
            ask.load_balancer = Some("edge".into());
            edit(ask);
        })
    };
    for (edit, message) in [
        ((|ask| ask.selector = label("a", "b")) as fn(&mut Ask), None),
        (|ask| ask.scope = Some(Scope::Intranet), Some("its scope is Internet")),
        (
            |ask| ask.requests = amounts(11, 0),
            Some("it has 10 network-bandwidth, and 11 is requested"),
        ),
        (|ask| ask.requests = amounts(0, 1), Some("it does not say how much network-iops it has")),
    ] {
        let mut api = Api::new([lb("edge", amounts(10, 0))], [named("shop/web", edit)]);
        api.run();
        let report = api.report("shop/web");
        match message {
            None => assert_eq!(report.load_balancer.as_deref(), Some("edge")),
            Some(message) => {
                assert_eq!(*report.message, *format!("load balancer \"edge\": {message}"));
            }
        }
    }
}

#[test]
fn one_that_is_reserved_goes_to_that_claim_and_to_no_other() {
    let reserved = ClaimRef { key: key("shop/web"), uid: None };
    let mut edge = lb("edge", amounts(100, 0));
    edge.tie.claim = Some(reserved);
    let claims = [
        claim("shop/other", amounts(5, 0)),
        asking("shop/web", |ask| {
            ask.requests = amounts(5, 0);
            ask.selector = label("no", "such");
        }),
    ];
    let mut api = Api::new([edge, lb("fits-better", amounts(5, 0))], claims);
    api.run();
    assert_eq!(api.home("shop/web").as_deref(), Some("edge"));
    assert_eq!(api.home("shop/other").as_deref(), Some("fits-better"));
}

#[test]
fn the_oldest_claim_chooses_first_and_gets_what_becomes_free() {
    let mut claims = ["shop/a", "shop/b", "shop/c"].map(|name| claim(name, amounts(5, 0)));
    (claims[0].created, claims[1].created, claims[2].created) = (3, 2, 1);
    let mut api = Api::new([lb("one", amounts(5, 0))], claims);
    api.run();
    assert_eq!(api.home("shop/c").as_deref(), Some("one"));
    api.store.put_lb(lb("two", amounts(7, 0)));
    api.run();
    assert_eq!((api.home("shop/b").as_deref(), api.home("shop/a")), (Some("two"), None));
}

#[test]
fn what_makes_no_sense_is_said_and_harms_nobody_else() {
    let mut unreadable = claim("shop/bad", amounts(1, 0));
    unreadable.ask = Err(Problem::new(Reason::BadValue, "\"-1\" is not a quantity"));
    let limits = asking("shop/limits", |ask| {
        (ask.requests, ask.limits) = (amounts(5, 0), amounts(4, 9));
    });
    let mut api = Api::new(
        [lb("edge", amounts(5, 0))],
        [unreadable, limits, claim("shop/good", amounts(5, 0))],
    );
    api.run();
    assert_eq!(api.home("shop/good").as_deref(), Some("edge"));
    let said = |name| (api.report(name).reason, api.report(name).message.to_string());
    assert_eq!(said("shop/bad"), (ClaimReason::Invalid, "\"-1\" is not a quantity".to_owned()));
    let message = "the limit of network-bandwidth is 4, less than the request of 5";
    assert_eq!(said("shop/limits"), (ClaimReason::Invalid, message.to_owned()));
}

#[test]
fn one_that_another_namespace_uses_by_name_is_not_taken_from_it() {
    let mut edge = lb("edge", amounts(5, 0));
    edge.users = vec!["bank".into()];
    let mut api =
        Api::new([edge], [claim("shop/web", amounts(5, 0)), claim("bank/web", amounts(5, 0))]);
    api.run();
    assert_eq!((api.home("shop/web"), api.home("bank/web").as_deref()), (None, Some("edge")));
}

fn any_ask() -> impl Strategy<Value = Ask> {
    let requirement = prop_oneof![
        prop::collection::vec(0u8..3, 1..3).prop_map(|values| {
            Operator::In(values.iter().map(|value| value.to_string().into()).collect())
        }),
        Just(Operator::Exists),
        Just(Operator::NotIn(vec!["1".into()])),
    ];
    let requirements = prop::collection::vec(
        (0u8..2, requirement).prop_map(|(label, operator)| Requirement {
            key: format!("l{label}").into(),
            operator,
        }),
        0..3,
    );
    (requirements, 0u64..6, 0u64..6, 0u8..3, 0u8..3).prop_map(
        |(requirements, bandwidth, iops, scope, class)| Ask {
            selector: LabelSelector { requirements },
            requests: amounts(bandwidth, iops),
            scope: [None, Some(Scope::Internet), Some(Scope::Intranet)][usize::from(scope)],
            class: match class {
                0 => ClassWish::Default,
                1 => ClassWish::Never,
                _ => ClassWish::Named("bronze".into()),
            },
            ..Ask::default()
        },
    )
}

fn any_lb() -> impl Strategy<Value = LoadBalancer> {
    let labels = prop::collection::btree_map(0u8..2, 0u8..3, 0..3);
    (labels, 0u64..9, 0u64..9, any::<bool>(), any::<bool>()).prop_map(
        |(labels, bandwidth, iops, intranet, class)| LoadBalancer {
            labels: labels
                .into_iter()
                .map(|(key, value)| (format!("l{key}").into(), value.to_string().into()))
                .collect(),
            scope: if intranet { Scope::Intranet } else { Scope::Internet },
            class: class.then(|| "bronze".into()),
            ..lb("x", amounts(bandwidth, iops))
        },
    )
}

proptest! {
    #[test]
    fn the_index_finds_what_a_look_at_all_of_them_finds(
        lbs in prop::collection::vec(any_lb(), 0..24),
        removed in prop::collection::vec(any::<bool>(), 24),
        asks in prop::collection::vec(any_ask(), 1..8),
    ) {
        let mut index = BestFit::default();
        let mut there = Vec::new();
        for (at, mut lb) in lbs.into_iter().enumerate() {
            lb.name = format!("lb{:02}", (at * 7) % 24).into();
            index.insert(&lb);
            match removed[at] {
                true => index.remove(&lb),
                false => there.push(lb),
            }
        }
        for ask in asks {
            let suitable = there.iter().filter(|lb| suits(&ask, lb, true).is_ok());
            let slow = suitable.min_by_key(|lb| (Reverse(fill(&lb.capacity, &ask.requests)), &lb.name));
            let find = |name: &std::sync::Arc<str>| there.iter().find(|lb| lb.name == *name).unwrap();
            let quick = index.best(&ask, |name| suits(&ask, find(name), true).is_ok());
            prop_assert_eq!(quick, slow.map(|lb| lb.name.clone()), "{:?} {:?}", ask, there);
        }
    }

    #[test]
    fn the_order_within_a_batch_does_not_matter(
        lbs in prop::collection::vec(any_lb(), 1..10),
        asks in prop::collection::vec((any_ask(), 0i64..3), 1..10),
        swaps in prop::collection::vec(any::<(prop::sample::Index, prop::sample::Index)>(), 0..30),
    ) {
        let lbs = lbs.into_iter().enumerate().map(|(at, mut lb)| {
            lb.name = format!("lb{at}").into();
            lb.uid = lb.name.clone();
            Object::LoadBalancer(lb)
        });
        let claims = asks.into_iter().enumerate().map(|(at, (ask, created))| {
            let made = claim(&format!("shop/c{at}"), amounts(0, 0));
            Object::Claim(Claim { ask: Ok(ask), created, ..made })
        });
        let objects: Vec<Object> = lbs.chain(claims).collect();
        let mut shuffled = objects.clone();
        for (one, other) in swaps {
            shuffled.swap(one.index(objects.len()), other.index(objects.len()));
        }
        let ops = |objects: Vec<Object>| {
            let mut machine = Binder::new();
            for object in objects {
                machine.handle(Event::Apply(Box::new(object)), NOW);
            }
            Kind::ALL.into_iter().for_each(|kind| machine.handle(Event::Done(kind), NOW));
            let mut ops: Vec<String> =
                machine.take(NOW).writes.into_iter().map(|it| format!("{:?}", it.op)).collect();
            ops.sort();
            ops
        };
        prop_assert_eq!(ops(objects), ops(shuffled));
    }
}

#[test]
fn one_for_use_by_name_is_only_for_the_claim_that_it_is_reserved_for() {
    let shared = |name| LoadBalancer { shared: true, ..lb(name, amounts(10, 0)) };
    let named = asking("bank/named", |ask| ask.load_balancer = Some("edge".into()));
    let mut api = Api::new([shared("edge")], [claim("shop/web", amounts(0, 0)), named]);
    api.run();
    let why = "edge: its allowedNamespaces let namespaces use it by name, and it is not reserved for this claim";
    let report = api.report("shop/web");
    assert!(report.message.contains(why), "{}", report.message);
    let report = api.report("bank/named");
    let why = "load balancer \"edge\": its allowedNamespaces let namespaces use it by name, and it is not \
        reserved for this claim";
    assert_eq!(*report.message, *why);
    api.edit_lb("edge", |lb| {
        lb.tie.claim = Some(ClaimRef { key: key("shop/web"), uid: None });
    });
    api.run();
    assert_eq!(api.home("shop/web").as_deref(), Some("edge"));
}

#[test]
fn one_that_another_namespace_uses_is_not_given_away_before_that_is_recorded_either() {
    let used = |namespaces: &[&str]| Event::Used {
        load_balancer: "edge".into(),
        namespaces: namespaces.iter().map(|it| (*it).into()).collect(),
    };
    let mut api = Api::new([lb("edge", amounts(0, 0))], []);
    api.tell(used(&["bank"]));
    api.run();
    api.store.put_claim(claim("shop/web", amounts(1, 0)));
    api.run();
    let report = api.report("shop/web");
    assert!(report.message.contains("edge: another namespace uses it"), "{}", report.message);
    api.tell(used(&["shop"]));
    api.run();
    assert_eq!(api.home("shop/web").as_deref(), Some("edge"));
}
