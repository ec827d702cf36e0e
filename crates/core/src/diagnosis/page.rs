//! The tables as docs/troubleshooting.md has them.

use super::{Owner, Place, Reason, RoleProblem, Row, claims};
use crate::binder::ClaimReason;
use std::fmt;

fn row(reason: impl fmt::Display, row: Row) -> Option<String> {
    let remedy = row.helps?;
    let owner = match remedy.owner {
        Owner::Tenant => "the object's owner",
        Owner::Administrator => "an administrator",
    };
    let told: Vec<_> = row.told.iter().map(|place| place.name()).collect();
    // A bar would end the cell.
    let what = remedy.what.replace('|', "\\|");
    Some(format!("| `{reason}` | {} | {} | {owner} | {what} |\n", row.means, told.join(", ")))
}

fn headed(rows: impl Iterator<Item = String>) -> String {
    format!(
        "| reason | means | told in | who can help | what helps |\n|---|---|---|---|---|\n{}",
        rows.collect::<String>()
    )
}

/// The problems of Services and Ingresses.
pub fn reasons() -> String {
    headed(Reason::ALL.into_iter().filter_map(|it| row(it, it.row())))
}

/// The problems of the leader and the agents.
pub fn roles() -> String {
    headed(RoleProblem::ALL.into_iter().filter_map(|it| row(it, it.row())))
}

/// The problems of claims.
pub fn of_claims() -> String {
    headed(ClaimReason::ALL.into_iter().filter_map(|it| row(it, claims::row(it))))
}

/// The places where problems are told.
pub fn places() -> String {
    let rows = Place::ALL.into_iter().map(|it| format!("| {} | {} |\n", it.name(), it.means()));
    format!("| told in | is |\n|---|---|\n{}", rows.collect::<String>())
}
