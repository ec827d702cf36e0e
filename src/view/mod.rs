//! What `bowline plan`, `explain` and `status` show: objects listed once, decided by the same planner and
//! resolver that the roles run, put into values (for `-o json`) and from there into text.
//!
//! ```text
//!  list (I/O) ─▶ facts ─┬─▶ explain ─┐
//!                       ├─▶ status  ─┼─▶ JSON, or text of 80 columns
//!                       ├─▶ plan    ─┤
//!  list of pools and addresses ───────┘
//! ```
//!
//! Only `list` asks the cluster, and nothing here writes to it. What programs get is fixed by
//! docs/json.md: sentences in it are for people, and everything that is decided has a field of its own.

pub(crate) mod addresses;
mod addresses_text;
mod chain;
pub(crate) mod claim;
pub(crate) mod explain;
mod explain_text;
mod facts;
mod list;
mod members;
pub(crate) mod plan;
mod pooled;
pub(crate) mod status;
mod status_text;
mod why;
mod words;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub(crate) use facts::Facts;
pub(crate) use list::{AddressLists, Lists};

use serde::Serialize;

/// What a command shows.
pub(crate) trait View: Serialize {
    /// What it is called in JSON.
    fn kind(&self) -> &'static str;

    /// For people.
    fn text(&self) -> String;

    /// For programs.
    fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(&Document {
            api_version: API_VERSION,
            kind: self.kind(),
            view: self,
        })
    }
}

/// The version of all JSON that is printed; another one means that fields have gone or mean something
/// else.
const API_VERSION: &str = "view.bowline.dev/v1alpha1";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a, V: ?Sized> {
    api_version: &'static str,
    kind: &'static str,
    #[serde(flatten)]
    view: &'a V,
}
