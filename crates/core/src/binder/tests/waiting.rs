//! Which waiting claims are decided for again, and what that costs.

use super::make::*;
use crate::binder::*;
use crate::objects::{LabelSelector, Namespace, Operator, Requirement};
use crate::resources::Amounts;

/// This many claims wait for a label that no load balancer has.
fn waiting(claims: usize) -> Api {
    let selector = LabelSelector {
        requirements: vec![Requirement { key: "gpu".into(), operator: Operator::Exists }],
    };
    let asks = |at| asking(&format!("shop/{at:03}"), |ask| ask.selector = selector.clone());
    let mut api = Api::new([lb("a", Amounts::default())], (0..claims).map(asks));
    api.run();
    assert_eq!(api.home("shop/000"), None);
    api
}

/// How many claims and load balancers are visited when this load balancer comes.
fn cost(api: &mut Api, lb: LoadBalancer) -> u64 {
    let before = api.machine.visited();
    api.store.put_lb(lb);
    api.run();
    api.machine.visited() - before
}

fn with_gpu(name: &str) -> LoadBalancer {
    LoadBalancer { labels: [("gpu".into(), "yes".into())].into(), ..lb(name, Amounts::default()) }
}

#[test]
fn what_suits_nobody_has_nobody_look_again_and_is_told_in_a_while() {
    let (mut few, mut many) = (waiting(3), waiting(300));
    let other = || lb("b", Amounts::default());
    assert_eq!(cost(&mut few, other()), cost(&mut many, other()));
    let told = |api: &Api| api.report("shop/000").message.contains("b: its labels do not match");
    assert!(!told(&many), "{:?}", many.report("shop/000"));
    many.pass(30);
    assert!(told(&many), "{:?}", many.report("shop/000"));
}

#[test]
fn what_suits_all_is_the_oldests_and_the_others_do_not_look() {
    let (mut few, mut many) = (waiting(3), waiting(300));
    many.edit_claim("shop/299", |claim| claim.created = 0);
    many.run();
    assert_eq!(cost(&mut few, with_gpu("b")), cost(&mut many, with_gpu("b")));
    assert_eq!(few.home("shop/000").as_deref(), Some("b"));
    assert_eq!(many.home("shop/299").as_deref(), Some("b"));
    assert_eq!(many.home("shop/000"), None);
}

#[test]
fn several_that_come_at_once_go_to_the_oldest_and_nobody_is_forgotten() {
    let mut api = waiting(40);
    for at in 0..30 {
        api.store.put_lb(with_gpu(&format!("g-{at:02}")));
    }
    api.run();
    let bound = |api: &Api, at: usize| api.home(&format!("shop/{at:03}")).is_some();
    assert!((0..30).all(|at| bound(&api, at)));
    assert!((30..40).all(|at| !bound(&api, at)));
    api.edit_lb("a", |lb| lb.labels = [("gpu".into(), "yes".into())].into());
    api.run();
    assert_eq!(api.home("shop/030").as_deref(), Some("a"), "one that changes counts as well");
}

#[test]
fn the_labels_of_a_namespace_concern_who_waits_there() {
    let allowed = crate::objects::AllowedNamespaces::Selector(label("team", "a"));
    let bronze = Class { default: true, allowed, ..class("bronze") };
    let claims = ["shop/web", "blog/web"].map(|name| claim(name, Amounts::default()));
    let mut api = Api::new([], claims).with_class(bronze);
    api.run();
    let namespace = Namespace { name: "shop".into(), labels: [("team".into(), "a".into())].into() };
    api.tell(Event::Apply(Box::new(Object::Namespace(namespace))));
    api.run();
    assert_eq!(api.home("shop/web").as_deref(), Some("lbc-u-shop-web"));
    assert_eq!(api.home("blog/web"), None);
}

#[test]
fn the_claims_of_a_namespace_that_is_deleted_learn_that_no_class_allows_them() {
    let allowed = crate::objects::AllowedNamespaces::Selector(label("team", "a"));
    let unmakable = Some("no driver".into());
    let bronze = Class { default: true, allowed, unmakable, ..class("bronze") };
    let mut api = Api::new([], [claim("shop/web", Amounts::default())]).with_class(bronze);
    let namespace = Namespace { name: "shop".into(), labels: [("team".into(), "a".into())].into() };
    let apply = || Event::Apply(Box::new(Object::Namespace(namespace.clone())));
    let why = |api: &Api| api.report("shop/web").message.to_string();
    let delete = Event::Delete { kind: Kind::Namespace, key: key("shop"), uid: "".into() };
    let relist = [Event::Begin(Kind::Namespace), Event::Done(Kind::Namespace)];
    for events in [vec![delete], relist.to_vec()] {
        api.tell(apply());
        api.pass(30);
        assert!(why(&api).contains("class bronze cannot make one: no driver"), "{}", why(&api));
        events.into_iter().for_each(|event| api.tell(event));
        api.pass(30);
        assert!(why(&api).contains("class bronze does not allow this namespace"), "{}", why(&api));
    }
}
