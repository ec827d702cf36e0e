//! What `bowline plan`, `explain` and `status` show: objects listed once, decided by the same planner and
//! resolver that the roles run, put into values (for `-o json`) and from there into text.
//!
//! ```text
//!  list (I/O) ─▶ facts ─┬─▶ explain ─┐
//!                       ├─▶ status  ─┼─▶ JSON, or text of 80 columns
//!                       └─▶ plan    ─┘
//! ```
//!
//! Only `list` asks the cluster, and nothing here writes to it.

pub(crate) mod explain;
mod explain_text;
mod facts;
mod list;
mod members;
pub(crate) mod plan;
pub(crate) mod status;
mod status_text;
mod why;
mod words;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub(crate) use facts::Facts;
pub(crate) use list::Lists;
