//! What `bowline plan`, `explain`, `status`, `doctor` and `top` show: objects are listed once, decided by the same planner
//! and resolver that the roles run, and turned into values (for `-o json`) and then into text.
//!
//! ```text
//!  list (I/O) ─▶ facts ─┬─▶ explain ─┐
//!                       ├─▶ status  ─┼─▶ JSON, or text of 80 columns
//!                       ├─▶ plan    ─┤
//!                       ├─▶ doctor  ─┤
//!                       ├─▶ top     ─┤
//!  list of pools and addresses ───────┘
//! ```
//!
//! Only `list` reads the cluster, and nothing here writes to it. docs/json.md fixes the JSON for
//! programs: sentences in it are for people, and every decision has a field of its own.

mod address_explanation;
pub(crate) mod addresses;
mod addresses_text;
pub(crate) mod announcements;
mod announcing;
mod chain;
pub(crate) mod claim;
pub(crate) mod doctor;
mod doctor_text;
pub(crate) mod explain;
mod explain_text;
mod facts;
mod free_ports;
mod list;
mod members;
pub(crate) mod missing;
pub(crate) mod moving;
pub(crate) mod now;
pub(crate) mod plan;
mod pooled;
mod remedies;
pub(crate) mod status;
mod status_text;
pub(crate) mod top;
mod why;
mod words;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub(crate) use facts::Facts;
pub(crate) use list::{AddressLists, Lists, bowline_events};

use serde::Serialize;

/// What a command shows.
pub(crate) trait View: Serialize {
    /// Its kind in JSON.
    fn kind(&self) -> &'static str;

    /// The text for people.
    fn text(&self) -> String;

    /// The JSON for programs.
    fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(&Document {
            api_version: API_VERSION,
            kind: self.kind(),
            view: self,
        })
    }
}

/// The version of all printed JSON; a new version means that fields were removed or changed their
/// meaning.
const API_VERSION: &str = "view.bowline.dev/v1alpha1";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a, V: ?Sized> {
    api_version: &'static str,
    kind: &'static str,
    #[serde(flatten)]
    view: &'a V,
}
