//! The order in which the rules of one host are tried, as Ingress and Gateway API both define it: the more specific
//! path first, then the rule with more conditions. It sorts nothing itself; the planner and the resolver sort by it.

use super::{PathKind, PathMatch, Rule};
use std::cmp::Reverse;

/// The sort key of a rule; the smallest is tried first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Precedence {
    kind: u8,
    length: Reverse<usize>,
    method: Reverse<bool>,
    headers: Reverse<usize>,
    query: Reverse<usize>,
    path: PathMatch,
}

impl Rule {
    /// The position of the rule among the rules of its host.
    pub fn precedence(&self) -> Precedence {
        Precedence {
            kind: match self.path.kind {
                PathKind::Exact => 0,
                PathKind::Regex => 1,
                PathKind::Prefix => 2,
            },
            length: Reverse(self.path.value.len()),
            method: Reverse(self.method.is_some()),
            headers: Reverse(self.headers.len()),
            query: Reverse(self.query.len()),
            path: self.path.clone(),
        }
    }
}
