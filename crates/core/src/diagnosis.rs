//! The table of everything that can be wrong: what it means, where it is told, which code words it, who can help and what
//! helps. [`reasons`] has the rows of Services and Ingresses, [`roles`] those of the leader and the agents, [`claims`] those
//! of claims. Statuses, Events, `bowline explain` and docs/troubleshooting.md read it; the message of a problem says what is
//! wrong with which value. Nothing here decides whether there is a problem.

pub mod claims;
pub mod page;
mod places;
pub mod reasons;
pub mod remedy;
pub mod roles;
#[cfg(test)]
mod tests;

pub use places::Place;
pub use reasons::Reason;
pub use remedy::{Owner, Remedy};
pub use roles::RoleProblem;

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// What is wrong, in general.
    pub means: &'static str,
    /// Where it is told. No other code decides that.
    pub told: &'static [Place],
    /// The functions that word it for one object, or modules of them. A test compares them with the sources.
    pub words: &'static [&'static str],
    /// What helps, and who can do it. None: nothing has to be done, or this version does not know what.
    pub helps: Option<Remedy>,
}

impl Row {
    /// Whether it is told there.
    pub fn is_told(&self, place: Place) -> bool {
        self.told.contains(&place)
    }
}

/// The row of a problem whose reason is known only as the word in a condition.
pub fn of_word(reason: &str) -> Option<Row> {
    let known = Reason::ALL.into_iter().find(|it| it.to_string() == reason);
    let role = || RoleProblem::ALL.into_iter().find(|it| it.to_string() == reason);
    known.map(Reason::row).or_else(|| role().map(RoleProblem::row))
}
