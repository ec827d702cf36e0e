//! What holds whatever happens: users and administrators that create, edit and delete, consumers that come and go,
//! leaders that are killed between any two writes, watches that lag, answers that are lost, jobs that fail, and two
//! leaders at once.

use super::cloud::Cloud;
use super::steps::{Step, step};
use crate::cases::cases;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

fn run(leaders: usize, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut cloud = Cloud::new(leaders);
    for step in steps {
        cloud.step(step)?;
    }
    cloud.settle()?;
    cloud.check_rest()
}

proptest! {
    #![proptest_config(cases(100))]

    #[test]
    fn one_leader_that_may_die_ends_with_every_claim_bound_or_told_why(
        steps in prop::collection::vec(step(1), 0..100)
    ) {
        run(1, steps)?;
    }

    #[test]
    fn two_leaders_end_with_every_claim_bound_or_told_why(
        steps in prop::collection::vec(step(2), 0..140)
    ) {
        run(2, steps)?;
    }
}
