//! Which load balancers are created, for which claims, and when they are deleted again.

use super::make::*;
use crate::addresses::Scope;
use crate::binder::*;
use crate::objects::{AllowedNamespaces, Namespace};

fn default_class() -> Class {
    Class { default: true, ..class("bronze") }
}

#[test]
fn what_no_load_balancer_fits_is_made_by_the_default_class_and_bound_from_the_start() {
    let mut api = Api::new([lb("small", amounts(1, 0))], [claim("shop/web", amounts(5, 0))])
        .with_class(Class { capacity: amounts(2, 9), ..default_class() });
    api.run();
    let name = provisioned_name("u-shop-web");
    assert_eq!(api.home("shop/web"), Some(name.clone()));
    let made = &api.store.lbs[&name];
    assert_eq!(made.capacity, amounts(5, 9), "at least what is requested");
    assert_eq!((made.class.as_deref(), made.reclaim), (Some("bronze"), Reclaim::Delete));
    assert_eq!(made.scope, Scope::Internet);
    let Op::Create(new) = &api.ops[0] else { panic!("{:?}", api.ops) };
    let claim = held_by(&api.store.claims[&key("shop/web")]);
    assert_eq!(new.tie(), Tie { claim, in_use: true, cleanup: true });
}

#[test]
fn an_existing_one_that_fits_is_preferred() {
    let mut api = Api::new([lb("edge", amounts(500, 0))], [claim("shop/web", amounts(5, 0))])
        .with_class(default_class());
    api.run();
    assert_eq!(api.home("shop/web").as_deref(), Some("edge"));
}

#[test]
fn nothing_is_made_where_it_is_not_wanted_or_not_allowed() {
    let never = asking("shop/never", |ask| ask.class = ClassWish::Never);
    let named = asking("shop/named", |ask| ask.load_balancer = Some("edge".into()));
    let selects = asking("shop/selects", |ask| ask.selector = label("a", "b"));
    let missing = asking("shop/missing", |ask| ask.class = ClassWish::Named("gold".into()));
    let private = asking("shop/private", |ask| ask.class = ClassWish::Named("private".into()));
    let cloud = asking("shop/cloud", |ask| ask.class = ClassWish::Named("cloud".into()));
    let mut api = Api::new([], [never, named, selects, missing, private, cloud])
        .with_class(default_class())
        .with_class(Class {
            allowed: AllowedNamespaces::Selector(label("team", "a")),
            ..class("private")
        })
        .with_class(Class { unmakable: Some("no driver".into()), ..class("cloud") });
    api.run();
    assert!(api.store.lbs.is_empty());
    let unmade = |name| api.machine.unmade(&key(name));
    assert_eq!(unmade("shop/never"), Some(Unmade::Never));
    assert_eq!(unmade("shop/named"), Some(Unmade::Named));
    assert_eq!(unmade("shop/selects"), Some(Unmade::Selector));
    assert_eq!(unmade("shop/missing"), Some(Unmade::Missing("gold".into(), None)));
    assert_eq!(unmade("shop/private"), Some(Unmade::NotAllowed("private".into())));
    let unmakable = Unmade::NoDriver("cloud".into(), "no driver".into());
    assert_eq!(unmade("shop/cloud"), Some(unmakable));
    let labels = [("team".into(), "a".into())].into();
    api.tell(Event::Apply(Box::new(Object::Namespace(Namespace { name: "shop".into(), labels }))));
    api.run();
    assert!(api.home("shop/private").is_some());
}

#[test]
fn a_class_makes_those_of_its_scope_alone() {
    let of = |scope: Option<Scope>| move |ask: &mut Ask| ask.scope = scope;
    let any = asking("shop/any", of(None));
    let out = asking("shop/out", of(Some(Scope::Internet)));
    let inside = asking("shop/in", of(Some(Scope::Intranet)));
    for (scope, expected) in [
        (None, [Some(Scope::Internet), Some(Scope::Intranet), Some(Scope::Internet)]),
        (Some(Scope::Internet), [Some(Scope::Internet), None, Some(Scope::Internet)]),
        (Some(Scope::Intranet), [Some(Scope::Intranet), Some(Scope::Intranet), None]),
    ] {
        let mut api = Api::new([], [any.clone(), inside.clone(), out.clone()])
            .with_class(Class { scope, ..default_class() });
        api.run();
        let made = |name| Some(api.store.lbs[&api.home(name)?].scope);
        assert_eq!(["shop/any", "shop/in", "shop/out"].map(made), expected);
        for (name, _) in
            ["shop/any", "shop/in", "shop/out"].iter().zip(expected).filter(|it| it.1.is_none())
        {
            let unmade = Unmade::Scope("bronze".into(), scope.unwrap());
            assert_eq!(api.machine.unmade(&key(name)), Some(unmade));
        }
    }
}

#[test]
fn what_a_class_made_for_some_is_for_them_alone_when_it_is_free_again() {
    let private =
        || Class { allowed: AllowedNamespaces::Selector(label("team", "a")), ..class("gold") };
    let free = LoadBalancer {
        class: Some("gold".into()),
        provisioned_for: Some((key("shop/gone"), "u".into())),
        ..lb("lbc-u", amounts(5, 0))
    };
    let mut api = Api::new([free], [claim("shop/web", amounts(5, 0))]).with_class(private());
    api.run();
    assert_eq!(
        *api.report("shop/web").message,
        *"no load balancer fits: lbc-u: its class gold does not allow this namespace, or does not exist; none \
            is made, because no class is named and none is the default"
    );
    let labels = [("team".into(), "a".into())].into();
    api.tell(Event::Apply(Box::new(Object::Namespace(Namespace { name: "shop".into(), labels }))));
    api.run();
    assert_eq!(api.home("shop/web").as_deref(), Some("lbc-u"));
    api.tell(Event::Apply(Box::new(Object::Class(Class {
        allowed: AllowedNamespaces::None,
        ..private()
    }))));
    api.run();
    assert_eq!(api.home("shop/web").as_deref(), Some("lbc-u"), "who has it keeps it");
}

#[test]
fn an_administrator_may_reserve_what_a_class_made_for_others() {
    let mut free = LoadBalancer {
        class: Some("gone".into()),
        provisioned_for: Some((key("shop/gone"), "u".into())),
        ..lb("lbc-u", amounts(5, 0))
    };
    free.tie.claim = Some(ClaimRef { key: key("shop/web"), uid: None });
    let mut api = Api::new([free], [claim("shop/web", amounts(5, 0))]);
    api.run();
    assert_eq!(api.home("shop/web").as_deref(), Some("lbc-u"));
}

#[test]
fn of_two_default_classes_the_older_counts() {
    let mut api = Api::new([], [claim("shop/web", amounts(5, 0))])
        .with_class(Class { created: 2, ..default_class() })
        .with_class(Class { name: "older".into(), ..default_class() });
    api.run();
    assert_eq!(api.store.lbs[&provisioned_name("u-shop-web")].class.as_deref(), Some("older"));
}

#[test]
fn a_creation_whose_answer_was_lost_is_not_made_twice() {
    let mut api = Api::new([], [claim("shop/web", amounts(5, 0))]).with_class(default_class());
    for event in api.store.logs.concat() {
        api.tell(event);
    }
    Kind::ALL.into_iter().for_each(|kind| api.tell(Event::Done(kind)));
    let writes = api.machine.take(NOW).writes;
    let [write] = &writes[..] else { panic!("{writes:?}") };
    assert!(matches!(api.store.perform(&write.op), Ok(Written::Ok(Some(_)))));
    let event = api.store.logs[0].pop();
    api.tell(Event::Written { id: write.id, result: Written::Failed });
    let again = api.machine.take(NOW + 1).writes;
    let create = again.iter().find(|it| matches!(it.op, Op::Create(_))).unwrap();
    assert_eq!(create.op, write.op);
    let result = api.store.perform(&create.op).unwrap();
    assert!(matches!(result, Written::Conflict(Some(_))));
    api.tell(Event::Written { id: create.id, result });
    for other in again.iter().filter(|it| it.id != create.id) {
        let result = api.store.perform(&other.op).unwrap();
        api.tell(Event::Written { id: other.id, result });
    }
    api.store.logs[0].extend(event);
    api.pass(10);
    assert_eq!(api.store.lbs.len(), 1);
    assert_eq!(api.home("shop/web"), Some(provisioned_name("u-shop-web")));
}

#[test]
fn a_name_that_somebody_else_has_is_left_alone() {
    let theirs = lb(&provisioned_name("u-shop-web"), amounts(1, 0));
    let mut api =
        Api::new([theirs.clone()], [claim("shop/web", amounts(5, 0))]).with_class(default_class());
    api.run();
    assert_eq!(api.machine.unmade(&key("shop/web")), Some(Unmade::NameTaken(theirs.name.clone())));
    assert_eq!(api.store.lbs[&theirs.name].tie, Tie::default());
}

#[test]
fn what_was_made_goes_with_its_claim() {
    let mut api = Api::new([], [claim("shop/web", amounts(5, 0))]).with_class(default_class());
    api.run();
    api.edit_claim("shop/web", |claim| claim.deleting = true);
    api.run();
    assert!(api.store.lbs.is_empty() && api.store.claims.is_empty());
    assert_eq!(api.jobs, [(provisioned_name("u-shop-web"), JobKind::Deprovision)]);
}

#[test]
fn one_that_nobody_uses_for_long_goes_and_is_made_again_when_somebody_does() {
    let idle = Class { idle_timeout: Some(600), ..default_class() };
    let mut api = Api::new([], [claim("shop/web", amounts(5, 0))]).with_class(idle);
    api.wanted("shop/web", 1);
    api.pass(1_000);
    assert!(api.home("shop/web").is_some(), "somebody uses it");
    api.wanted("shop/web", 0);
    api.pass(599);
    assert!(api.home("shop/web").is_some());
    api.ops.clear();
    api.pass(2);
    let report = api.report("shop/web");
    assert_eq!((report.phase, report.reason), (Phase::Pending, ClaimReason::Idle));
    assert!(api.store.lbs.is_empty());
    let of_giving_up =
        |op: &&Op| matches!(op, Op::Release(..) | Op::ReportClaim(..) | Op::Delete(_));
    let given_up: Vec<&Op> = api.ops.iter().filter(of_giving_up).collect();
    assert!(
        matches!(&given_up[..], [Op::Release(..), Op::ReportClaim(..), Op::Delete(_)]),
        "{:?}",
        api.ops
    );
    api.pass(1_000);
    assert!(api.store.lbs.is_empty());
    api.wanted("shop/web", 1);
    api.run();
    assert_eq!(api.home("shop/web"), Some(provisioned_name("u-shop-web")));
}

#[test]
fn one_that_was_recycled_and_that_nobody_wants_goes_when_it_is_idle() {
    let class = Class { idle_timeout: Some(600), reclaim: Reclaim::Recycle, ..default_class() };
    let mut api = Api::new([], [claim("shop/web", amounts(5, 0))]).with_class(class);
    api.run();
    api.edit_claim("shop/web", |claim| claim.deleting = true);
    api.pass(100);
    assert_eq!(api.binding(&provisioned_name("u-shop-web")), Binding::Available);
    api.pass(600);
    assert!(api.store.lbs.is_empty());
}

#[test]
fn one_that_was_made_for_a_claim_that_has_another_goes() {
    let mut web = claim("shop/web", amounts(5, 0));
    let name = provisioned_name(&web.uid);
    let mut edge = lb("edge", amounts(5, 0));
    edge.tie.claim = held_by(&web);
    let mut made = lb(&name, amounts(5, 0));
    made.tie = Tie { claim: held_by(&web), in_use: true, cleanup: true };
    made.provisioned_for = Some((web.key.clone(), web.uid.clone()));
    web.report = Some(ClaimReport {
        phase: Phase::Bound,
        load_balancer: Some("edge".into()),
        capacity: amounts(5, 0),
        reason: ClaimReason::Bound,
        message: "".into(),
    });
    let mut api = Api::new([edge, made], [web]);
    api.run();
    assert_eq!(api.store.lbs.keys().map(|it| &**it).collect::<Vec<_>>(), ["edge"]);
}
