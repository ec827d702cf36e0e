//! What is wrong with the leader or the load balancer, as far as it concerns a consumer. Pure.

use super::ProblemView;
use crate::view::facts::Facts;
use crate::view::status::{Applied, AppliedView};
use crate::view::words;
use bowline_core::diagnosis::RoleProblem;

/// Why what is planned stays unrecorded, if that is because no controller leads.
pub(super) fn no_leader(facts: &Facts) -> Option<ProblemView> {
    let why = match &facts.controller {
        None => "none runs, or none is known (`--leader-elect=false`)".to_owned(),
        Some(holder) if holder.overdue => {
            format!("{} was last seen {}", holder.identity, words::ago(holder.silent_seconds))
        }
        Some(_) => return None,
    };
    let message = format!("what is planned is not recorded, and no controller leads: {why}");
    Some(ProblemView::of_role(RoleProblem::NoLeader, message))
}

/// Whether this build has no driver for a load balancer.
pub(super) fn no_driver(facts: &Facts, load_balancer: &str) -> Option<ProblemView> {
    let applied = AppliedView::of(facts, load_balancer);
    applied.problem(load_balancer).filter(|_| applied.state == Applied::NoDriver)
}
