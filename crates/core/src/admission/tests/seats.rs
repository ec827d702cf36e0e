//! Which consumers get a seat, which keep it, and which wait.

use super::make::*;
use crate::admission::*;
use crate::objects::Version;
use crate::outcome::{Problem, Reason};
use crate::resources::{Amounts, Totals};

fn waiting(reason: Reason, message: &str) -> Option<Decision> {
    let problem = Problem::new(reason, message);
    Some(Decision::Waiting { load_balancer: "edge".into(), problem })
}

fn admitted(amount: u64) -> Option<Decision> {
    let requests = bandwidth(amount);
    Some(Decision::Admitted { load_balancer: "edge".into(), requests, short: None })
}

#[test]
fn the_oldest_are_admitted_and_what_is_left_is_kept_for_the_first_who_waits() {
    let mut api = Api::new([lb("edge", bandwidth(10))]);
    api.wants([want("e", 5, 0), want("a", 1, 6), want("b", 2, 5), want("c", 3, 3)]);
    let told = api.run();
    assert_eq!(api.seats(), [seat("a", 6), seat("e", 0)], "who wants none of it need not wait");
    assert_eq!(told[&consumer("a")], admitted(6));
    let left = "load balancer edge has 4 of 10 network-bandwidth left";
    let told_of = |name| told[&consumer(name)].clone();
    let requested = format!("{left}, and 5 is requested");
    assert_eq!(told_of("b"), waiting(Reason::NoCapacity, &requested));
    let kept = format!("{left}, kept for a consumer that has waited longer");
    assert_eq!(told_of("c"), waiting(Reason::NoCapacity, &kept));
    api.wants([want("a", 1, 5)]);
    api.run();
    assert_eq!(api.seats(), [seat("a", 5), seat("e", 0), seat("b", 5)]);
}

#[test]
fn who_would_not_fit_into_the_empty_load_balancer_holds_up_nobody() {
    let mut api = Api::new([lb("edge", bandwidth(10))]);
    api.wants([want("huge", 1, 11), want("a", 2, 6), want("b", 3, 4)]);
    api.run();
    assert_eq!(api.seats(), [seat("a", 6), seat("b", 4)]);
}

#[test]
fn what_becomes_free_goes_to_the_oldest_who_waits() {
    let mut api = Api::new([lb("edge", bandwidth(10))]);
    api.wants([want("a", 9, 10)]);
    api.run();
    api.wants([want("c", 3, 6), want("b", 2, 6)]);
    assert_eq!(api.run().len(), 2);
    assert_eq!(api.seats(), [seat("a", 10)], "newcomers never evict, however old they are");
    api.tell(Event::Leaves(consumer("a")));
    let told = api.run();
    assert_eq!(api.seats(), [seat("b", 6)]);
    assert_eq!(told[&consumer("a")], None);
    assert_eq!(told[&consumer("b")], admitted(6));
}

#[test]
fn an_increase_that_does_not_fit_keeps_the_old_request_and_is_made_once_it_does() {
    let mut api = Api::new([lb("edge", bandwidth(10))]);
    api.wants([want("a", 1, 4), want("b", 2, 4)]);
    api.run();
    api.wants([want("a", 1, 7)]);
    let told = api.run();
    assert_eq!(api.seats(), [seat("a", 4), seat("b", 4)]);
    let Some(Decision::Admitted { requests, short: Some(short), .. }) = &told[&consumer("a")]
    else {
        panic!("{told:?}")
    };
    assert_eq!((*requests, short.reason), (bandwidth(4), Reason::NoCapacity));
    api.wants([want("b", 2, 3)]);
    let told = api.run();
    assert_eq!(api.seats(), [seat("a", 7), seat("b", 3)]);
    assert_eq!(told[&consumer("a")], admitted(7));
}

#[test]
fn a_raise_of_one_resource_is_not_given_without_the_other() {
    let both = |bandwidth, iops| Amounts { bandwidth: Some(bandwidth), iops: Some(iops) };
    let mut api = Api::new([lb("edge", both(10, 10))]);
    let with = |amounts| Want { requests: Ok(amounts), ..want("a", 1, 0) };
    api.wants([with(both(5, 5))]);
    api.run();
    api.wants([with(both(8, 11))]);
    api.run();
    assert_eq!(api.seats()[0].requests, both(5, 5));
    api.wants([with(both(4, 10))]);
    api.run();
    assert_eq!(api.seats()[0].requests, both(4, 10));
}

#[test]
fn seats_outlast_a_capacity_that_became_too_small() {
    let mut api = Api::new([lb("edge", bandwidth(10))]);
    api.wants([want("a", 1, 6), want("b", 2, 4)]);
    api.run();
    api.edit("edge", |lb| lb.capacity = bandwidth(3));
    api.wants([want("c", 0, 1), want("free", 9, 0), want("a", 1, 5)]);
    api.run();
    assert_eq!(api.seats(), [seat("a", 5), seat("b", 4), seat("free", 0)]);
}

#[test]
fn who_must_say_what_it_uses_and_does_not_waits() {
    let mut api = Api::new([lb("edge", bandwidth(10))]);
    let silent = Want { requests: Ok(Amounts::default()), ..want("a", 1, 0) };
    api.wants([silent.clone()]);
    api.run();
    api.edit("edge", |lb| lb.require_requests = true);
    api.wants([Want { consumer: consumer("b"), ..silent }, want("c", 3, 0)]);
    let told = api.run();
    assert_eq!(api.seats().len(), 2, "one that has a seat keeps it, and nothing is an amount");
    let Some(Decision::Waiting { problem, .. }) = &told[&consumer("b")] else { panic!("{told:?}") };
    assert_eq!(problem.reason, Reason::RequestsRequired);
}

#[test]
fn who_must_say_what_it_uses_and_says_nothing_any_more_keeps_what_it_said() {
    let mut api = Api::new([LoadBalancer { require_requests: true, ..lb("edge", bandwidth(10)) }]);
    api.wants([want("a", 1, 6)]);
    api.run();
    api.wants([Want { requests: Ok(Amounts::default()), ..want("a", 1, 0) }, want("b", 2, 5)]);
    let told = api.run();
    assert_eq!(api.seats(), [seat("a", 6)], "nobody else gets what it goes on using");
    let Some(Decision::Admitted { requests, short: Some(short), .. }) = &told[&consumer("a")]
    else {
        panic!("{told:?}")
    };
    assert_eq!((*requests, short.reason), (bandwidth(6), Reason::RequestsRequired));
    api.wants([want("a", 1, 2)]);
    api.run();
    assert_eq!(api.seats(), [seat("a", 2), seat("b", 5)]);
}

#[test]
fn a_request_that_cannot_be_read_gives_no_seat_and_takes_none() {
    let unreadable = Problem::new(Reason::BadValue, "\"many\" is not a quantity");
    let mut api = Api::new([lb("edge", bandwidth(10))]);
    api.wants([want("a", 1, 4)]);
    api.run();
    let bad = |name| Want { requests: Err(unreadable.clone()), ..want(name, 1, 0) };
    api.wants([bad("a"), bad("b")]);
    let told = api.run();
    assert_eq!(api.seats(), [seat("a", 4)]);
    assert_eq!(told[&consumer("b")], waiting(Reason::BadValue, "\"many\" is not a quantity"));
}

#[test]
fn no_more_than_a_thousand_have_a_seat_where_capacity_is_set() {
    let mut api = Api::new([lb("edge", bandwidth(1))]);
    api.wants((0..1_001).map(|at| want(&format!("c{at:04}"), at, 0)));
    let told = api.run();
    assert_eq!(api.seats().len(), MOST_SEATS);
    assert_eq!(
        told[&consumer("c1000")],
        waiting(
            Reason::TooManyConsumers,
            "load balancer edge has 1000 consumers already, the most that it can have"
        )
    );
}

#[test]
fn without_a_capacity_everybody_is_admitted() {
    let mut api = Api::new([lb("edge", Amounts::default())]);
    api.wants((0..1_002).map(|at| want(&format!("c{at:04}"), at, u64::MAX)));
    let told = api.run();
    assert_eq!(api.seats().len(), MOST_SEATS);
    assert!(told.values().all(|it| matches!(it, Some(Decision::Admitted { .. }))));
}

#[test]
fn sums_are_exact_beyond_any_single_amount() {
    let mut api = Api::new([lb("edge", Amounts::default())]);
    api.wants([want("a", 1, u64::MAX), want("b", 1, u64::MAX)]);
    Kind::ALL.into_iter().for_each(|kind| api.tell(Event::Done(kind)));
    let writes = api.machine.take(NOW).writes;
    let bandwidth = 2 * u128::from(u64::MAX);
    assert_eq!(writes[0].allocated, Totals { bandwidth, iops: 0 });
    let mut api = Api::new([lb("edge", super::make::bandwidth(u64::MAX))]);
    api.wants([want("a", 1, u64::MAX), want("b", 1, 1)]);
    api.run();
    assert_eq!(api.seats(), [seat("a", u64::MAX)]);
}

#[test]
fn a_seat_of_one_that_no_watch_has_told_of_stays_until_a_read_says_that_it_left() {
    let mut edge = lb("edge", bandwidth(10));
    edge.seats = vec![seat("stranger", 10)];
    let mut api = Api::new([edge]);
    api.belongs = vec![consumer("stranger")];
    api.wants([want("a", 1, 1)]);
    api.run();
    assert_eq!(api.seats(), [seat("stranger", 10)]);
    api.tell(Event::Confirmed {
        consumer: consumer("stranger"),
        load_balancer: "edge".into(),
        wants: false,
    });
    api.run();
    assert_eq!(api.seats(), [seat("a", 1)]);
}

#[test]
fn who_moves_leaves_one_seat_and_has_another() {
    let mut api = Api::new([lb("edge", bandwidth(10)), lb("other", bandwidth(10))]);
    api.wants([want("a", 1, 4)]);
    api.run();
    api.wants([Want { load_balancer: "other".into(), ..want("a", 1, 4) }]);
    let Some(Decision::Admitted { load_balancer, .. }) = &api.run()[&consumer("a")] else {
        panic!("not admitted")
    };
    assert_eq!(&**load_balancer, "other");
    api.edit("edge", |_| {});
    api.run();
    assert_eq!((api.seats(), &*api.lbs["other"].seats), (&[][..], &[seat("a", 4)][..]));
}

#[test]
fn a_load_balancer_that_goes_takes_its_decisions_along() {
    let mut api = Api::new([lb("edge", bandwidth(10))]);
    api.wants([want("a", 1, 4)]);
    api.run();
    api.tell(Event::LoadBalancerGone("edge".into()));
    assert_eq!(api.run(), [(consumer("a"), None)].into());
}

#[test]
fn work_on_one_load_balancer_causes_none_on_another() {
    let lbs = (0..100).map(|at| lb(&format!("lb{at}"), bandwidth(10)));
    let mut api = Api::new(lbs.chain([lb("edge", bandwidth(10))]));
    api.run();
    let before = api.machine.visited();
    api.wants([want("a", 1, 4)]);
    api.run();
    assert!(api.machine.visited() - before <= 3);
}

#[test]
fn a_write_of_seats_that_changes_nothing_is_repeated_after_a_while() {
    let mut api = Api::new([lb("edge", bandwidth(10))]);
    api.wants([want("a", 1, 6)]);
    Kind::ALL.into_iter().for_each(|kind| api.tell(Event::Done(kind)));
    let writes = api.machine.take(NOW).writes;
    let [Write { id, version, .. }] = &writes[..] else { panic!("{writes:?}") };
    api.tell(Event::Written { id: *id, result: Written::Ok(version.clone()) });
    assert_eq!(api.machine.take(NOW), Changes::default());
    assert_eq!(api.machine.wake_at(), Some(NOW + 1));
}

#[test]
fn an_old_answer_that_counts_no_seats_withdraws_none() {
    let mut api = Api::new([lb("edge", bandwidth(10))]);
    api.wants([want("a", 1, 6)]);
    api.run();
    api.tell(Event::Uncounted("edge".into(), Version("1".into())));
    assert_eq!(api.run(), <_>::default());
    assert_eq!(api.machine.decision(&consumer("a")).cloned(), admitted(6));
    let newer = Version("1000".into());
    api.tell(Event::Uncounted("edge".into(), newer));
    assert_eq!(api.run(), [(consumer("a"), None)].into());
}

#[test]
fn who_moves_keeps_its_seat_until_it_has_one_where_it_goes() {
    let mut api = Api::new([lb("edge", bandwidth(10)), lb("other", bandwidth(10))]);
    let at_other = |want: Want| Want { load_balancer: "other".into(), ..want };
    api.wants([want("a", 1, 6), at_other(want("b", 2, 6))]);
    api.run();
    let moving = Want { keeps: vec!["edge".into()], ..at_other(want("a", 1, 6)) };
    api.wants([moving.clone(), want("c", 3, 6)]);
    let told = api.run();
    assert_eq!(api.seats(), [seat("a", 6)]);
    assert!(matches!(told[&consumer("a")], Some(Decision::Waiting { .. })), "{told:?}");
    api.tell(Event::Leaves(consumer("b")));
    api.run();
    assert_eq!(api.lbs["other"].seats, [seat("a", 6)]);
    assert_eq!(api.stays, [((consumer("a"), "edge".into()), bandwidth(6))].into());
    assert_eq!(api.seats(), [seat("a", 6)], "until it is told that it is there");
    api.wants([Want { keeps: Vec::new(), ..moving }]);
    api.run();
    assert_eq!(api.seats(), [seat("c", 6)]);
    assert_eq!(api.stays, [].into());
}

#[test]
fn a_list_without_a_load_balancer_counts_while_a_write_of_it_is_under_way() {
    let mut api = Api::new([lb("edge", bandwidth(10))]);
    api.run();
    api.wants([want("a", 1, 6), want("huge", 2, 11)]);
    let writes = api.machine.take(NOW).writes;
    assert_eq!(writes.len(), 1);
    api.tell(Event::Begin(Kind::LoadBalancer));
    api.tell(Event::Done(Kind::LoadBalancer));
    api.tell(Event::Written { id: writes[0].id, result: Written::Failed });
    api.machine.take(NOW + 60);
    assert_eq!(api.machine.decision(&consumer("huge")), None, "there is nothing to wait for");
}

#[test]
fn what_was_read_before_its_end_was_told_does_not_bring_a_load_balancer_back() {
    let mut api = Api::new([lb("edge", bandwidth(10))]);
    api.run();
    api.wants([want("a", 1, 6)]);
    let writes = api.machine.take(NOW).writes;
    let read = LoadBalancer { version: Version("99".into()), ..lb("edge", bandwidth(10)) };
    api.tell(Event::LoadBalancerGone("edge".into()));
    let result = Written::Conflict(Some(Box::new(read)));
    api.tell(Event::Written { id: writes[0].id, result });
    assert_eq!(api.machine.take(NOW + 60).writes, []);
    assert_eq!(api.machine.decision(&consumer("a")), None);
}
