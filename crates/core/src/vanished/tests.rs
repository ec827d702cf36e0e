use super::*;
use crate::key::ObjectKey;
use crate::resolver::Written;

fn at(seconds: u64) -> Uptime {
    Duration::from_secs(seconds)
}

fn exists(uid: &str) -> Look {
    Look::Exists(Some(uid.into()))
}

fn written() -> Event {
    Event::Apply(Object::Shard("edge-0".into(), 0, Written::default()))
}

const LISTED: Event = Event::Done(Kind::Shard);

fn deleted() -> Event {
    Event::Delete(Kind::Shard, ObjectKey::new("", "edge-0"))
}

/// An agent that knows a Plan, and the namespace `a`.
fn following() -> Vanished {
    let mut vanished = Vanished::new(false);
    assert!(!vanished.observe(&written(), at(0)));
    assert!(vanished.observe(&LISTED, at(0)));
    assert_eq!(vanished.looked(exists("a"), at(0)), None);
    vanished
}

fn holds(why: Why) -> Option<News> {
    Some(News { hold: Some(why), list_ends: false })
}

const FOLLOWS: Option<News> = Some(News { hold: None, list_ends: false });

#[test]
fn a_plan_that_the_leader_deletes_is_not_held() {
    let mut vanished = following();
    assert!(vanished.observe(&deleted(), at(9)));
    assert_eq!(vanished.looked(exists("a"), at(9)), None);
    assert!(!vanished.holds());
}

#[test]
fn plans_that_are_deleted_with_their_namespace_are_held_until_the_leader_has_written_them_again() {
    let mut vanished = following();
    assert_eq!(vanished.looked(Look::Gone, at(10)), holds(Why::Gone));
    // Also for hours, and where the API is away by then.
    assert_eq!(vanished.looked(Look::Unknown, at(5_000)), None);
    assert_eq!(vanished.looked(Look::Gone, at(9_999)), None);
    assert_eq!(vanished.looked(exists("b"), at(10_000)), holds(Why::Recreated));
    vanished.observe(&written(), at(10_050));
    assert_eq!(vanished.looked(exists("b"), at(10_100)), None);
    assert_eq!(vanished.looked(exists("b"), at(10_110)), FOLLOWS);
}

#[test]
fn a_hold_ends_though_the_leader_writes_a_plan_every_30_seconds() {
    let mut vanished = following();
    vanished.looked(Look::Gone, at(10));
    assert_eq!(vanished.looked(exists("b"), at(100)), holds(Why::Recreated));
    let mut ended = None;
    for now in (100..1_000).step_by(2) {
        if now % 30 == 10 {
            vanished.observe(&written(), at(now));
        }
        if vanished.looked(exists("b"), at(now)) == FOLLOWS {
            ended = Some(now);
            break;
        }
    }
    assert_eq!(ended, Some(100 + 60));
}

#[test]
fn a_hold_ends_without_a_write() {
    let mut vanished = following();
    vanished.looked(Look::Gone, at(10));
    vanished.looked(exists("b"), at(100));
    assert_eq!(vanished.looked(exists("b"), at(159)), None);
    assert_eq!(vanished.looked(Look::Unknown, at(160)), FOLLOWS);
}

#[test]
fn a_namespace_that_is_recreated_before_the_agent_looks_is_another_one() {
    let mut vanished = following();
    assert_eq!(vanished.looked(exists("b"), at(10)), holds(Why::Recreated));
    assert_eq!(vanished.looked(exists("b"), at(70)), FOLLOWS);
}

#[test]
fn a_deletion_is_held_for_a_minute_where_the_api_never_tells_whether_the_namespace_exists() {
    let mut vanished = following();
    assert!(vanished.observe(&deleted(), at(10)));
    assert_eq!(vanished.looked(Look::Unknown, at(10)), holds(Why::Unknown));
    vanished.observe(&written(), at(40));
    assert_eq!(vanished.looked(Look::Unknown, at(69)), None);
    assert_eq!(vanished.looked(Look::Unknown, at(70)), FOLLOWS);
    // The next deletion has a minute of its own.
    assert_eq!(vanished.looked(Look::Unknown, at(71)), holds(Why::Unknown));
    assert_eq!(vanished.looked(Look::Exists(None), at(130)), None);
    assert_eq!(vanished.looked(Look::Exists(None), at(131)), FOLLOWS);
}

#[test]
fn a_deletion_is_followed_as_soon_as_the_api_shows_the_namespace_of_before() {
    let mut vanished = following();
    vanished.looked(Look::Unknown, at(10));
    assert_eq!(vanished.looked(exists("a"), at(12)), FOLLOWS);
    vanished.looked(Look::Unknown, at(20));
    assert_eq!(vanished.looked(exists("b"), at(22)), holds(Why::Recreated));
}

#[test]
fn an_agent_that_knows_that_the_namespace_is_gone_holds_on_when_the_api_stops_to_tell() {
    let mut vanished = following();
    vanished.looked(Look::Unknown, at(10));
    assert_eq!(vanished.looked(Look::Gone, at(12)), holds(Why::Gone));
    assert_eq!(vanished.looked(Look::Unknown, at(9_999)), None);
}

#[test]
fn an_agent_that_knows_no_plan_holds_nothing() {
    let mut vanished = Vanished::new(false);
    assert_eq!(vanished.looked(Look::Gone, at(0)), None);
    assert!(!vanished.withholds(&LISTED));
}

#[test]
fn the_first_list_of_plans_does_not_replace_kept_state_while_the_namespace_is_gone() {
    let mut vanished = Vanished::new(true);
    assert!(vanished.observe(&LISTED, at(0)));
    assert_eq!(vanished.looked(Look::Gone, at(0)), holds(Why::Gone));
    assert!(vanished.withholds(&LISTED));
    vanished.looked(Look::Exists(None), at(10));
    assert!(!vanished.withholds(&written()));
    let ends = Some(News { hold: None, list_ends: true });
    assert_eq!(vanished.looked(Look::Exists(None), at(70)), ends);
    assert!(!vanished.withholds(&LISTED), "there is no kept state any more");
}

#[test]
fn a_list_that_starts_over_has_an_end_of_its_own() {
    let mut vanished = Vanished::new(true);
    vanished.looked(Look::Gone, at(0));
    assert!(vanished.withholds(&LISTED));
    vanished.observe(&Event::Begin(Kind::Shard), at(5));
    vanished.looked(Look::Exists(None), at(10));
    assert_eq!(vanished.looked(Look::Exists(None), at(70)), FOLLOWS);
    assert!(!vanished.withholds(&LISTED));
}

#[test]
fn the_first_list_of_plans_replaces_kept_state_where_the_namespace_exists() {
    let mut vanished = Vanished::new(true);
    assert_eq!(vanished.looked(exists("a"), at(0)), None);
    assert!(!vanished.withholds(&LISTED));
    // Later lists do not wait: the resolver serves the deleted Plans itself.
    vanished.looked(Look::Gone, at(10));
    assert!(!vanished.withholds(&LISTED));
}

/// What a look with these answers shows.
fn look(answers: &[Answer]) -> (Look, usize) {
    let mut question = Question::Read;
    for (asked, answer) in answers.iter().enumerate() {
        match question.answered(answer.clone()) {
            Step::End(look) => return (look, asked + 1),
            Step::Ask(next) => question = next,
        }
    }
    panic!("{answers:?}: {question:?} is asked, too")
}

#[test]
fn only_an_answer_that_says_so_means_that_the_namespace_is_gone() {
    use Answer::{Done, Namespace, Refused};
    const FORBIDDEN: Answer = Refused(403, false);
    let cases: [(&[Answer], Look); 17] = [
        (&[Namespace(false, Some("a".into()))], exists("a")),
        (&[Namespace(true, Some("a".into()))], Look::Gone),
        (&[Refused(404, false)], Look::Gone),
        (&[Refused(429, false)], Look::Unknown),
        (&[Answer::Silence], Look::Unknown),
        (&[FORBIDDEN, Done], Look::Exists(None)),
        (&[FORBIDDEN, Refused(409, false)], Look::Exists(None)),
        (&[FORBIDDEN, Refused(404, false)], Look::Gone),
        (&[FORBIDDEN, Refused(403, true)], Look::Gone),
        // A webhook without dry run, a failing one, and an API under load.
        (&[FORBIDDEN, Refused(400, false)], Look::Unknown),
        (&[FORBIDDEN, Refused(500, false)], Look::Unknown),
        (&[FORBIDDEN, Refused(429, false)], Look::Unknown),
        (&[FORBIDDEN, Answer::Silence], Look::Unknown),
        // A Role without this right, or a quota, and then an agent without a Role.
        (&[FORBIDDEN, FORBIDDEN, Done], Look::Unknown),
        (&[FORBIDDEN, FORBIDDEN, FORBIDDEN], Look::Gone),
        // The account of the agent is deleted.
        (&[Refused(401, false), Refused(401, false)], Look::Gone),
        (&[FORBIDDEN, FORBIDDEN, Answer::Silence], Look::Unknown),
    ];
    for (answers, expected) in cases {
        assert_eq!(look(answers), (expected, answers.len()), "{answers:?}");
    }
}
