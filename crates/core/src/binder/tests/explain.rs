//! Why a claim waits.

use super::make::*;
use crate::addresses::Scope;
use crate::binder::*;
use crate::resources::Resource;

#[test]
fn each_load_balancer_that_was_looked_at_has_its_one_reason_and_names_nobody_elses_claim() {
    let mut lbs = ["class", "deleting", "labels", "reserved", "scope", "small", "taken", "used"]
        .map(|name| {
            let mut lb = lb(name, amounts(10, 0));
            lb.class = Some("bronze".into());
            lb.labels = [("tier".into(), "gold".into())].into();
            lb
        });
    lbs[0].class = None;
    (lbs[1].deleting, lbs[1].tie.cleanup, lbs[1].users) = (true, true, vec!["bank".into()]);
    lbs[2].labels.clear();
    lbs[3].tie.claim = Some(ClaimRef { key: key("bank/secret"), uid: None });
    lbs[4].scope = Scope::Intranet;
    lbs[5].capacity = amounts(1, 0);
    let other = claim("bank/secret-too", amounts(1, 0));
    lbs[6].tie.claim = held_by(&other);
    lbs[7].users = vec!["bank".into()];
    let web = asking("shop/web", |ask| {
        ask.requests = amounts(5, 0);
        ask.scope = Some(Scope::Internet);
        ask.selector = label("tier", "gold");
        ask.class = ClassWish::Named("bronze".into());
    });
    let mut api = Api::new(lbs, [web, other]);
    api.run();
    let unfit = |name: &str, unfit: Unfit| (name.into(), unfit);
    let (resource, capacity, request) = (Resource::Bandwidth, 1, 5);
    assert_eq!(
        api.machine.explain(&key("shop/web")).first,
        [
            unfit("class", Unfit::Class(None)),
            unfit("labels", Unfit::Labels),
            unfit("scope", Unfit::Scope(Scope::Intranet)),
            unfit("small", Unfit::TooSmall { resource, capacity, request }),
            unfit("used", Unfit::InUse),
            unfit("deleting", Unfit::Deleting),
            unfit("reserved", Unfit::Reserved),
            unfit("taken", Unfit::Taken),
        ]
    );
    assert!(!api.report("shop/web").message.contains("secret"));
}

#[test]
fn the_status_tells_of_ten_and_how_many_more_there_are() {
    let lbs = (0..25).map(|at| lb(&format!("lb{at:02}"), amounts(1, 0)));
    let mut api = Api::new(lbs, [claim("shop/web", amounts(5, 0))]);
    api.run();
    let message = api.report("shop/web").message;
    assert!(
        message.contains(
            "lb09: it has 1 network-bandwidth, and 5 is requested; and 15 more; none is made"
        ),
        "{message}"
    );
    assert!(!message.contains("lb10"));
    assert_eq!(api.machine.explain(&key("shop/web")).first.len(), 25);
}

#[test]
fn what_a_waiting_claim_was_told_is_told_anew_but_not_all_the_time() {
    let mut api = Api::new([], [claim("shop/web", amounts(5, 0))]);
    api.run();
    assert_eq!(
        *api.report("shop/web").message,
        *"there are no load balancers; none is made, because no class is named and none is the default"
    );
    let before = api.ops.len();
    for at in 0..20 {
        api.store.put_lb(lb(&format!("lb{at:02}"), amounts(1, 0)));
        api.run();
    }
    let reports =
        |api: &Api| api.ops[before..].iter().filter(|op| matches!(op, Op::ReportClaim(..))).count();
    assert_eq!(reports(&api), 0);
    api.pass(60);
    assert_eq!(reports(&api), 1);
    assert!(api.report("shop/web").message.contains("and 10 more"));
}
