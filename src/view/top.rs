//! What `bowline top` shows: the load balancers of a cluster, their listeners and pools with their traffic, and the last
//! changes. Pure: `cli::top` reads the cluster and the terminal, passes what it reads as values, and draws what
//! [`screen::Screen`] says.
//!
//! ```text
//!  Facts, Events, metrics pages ─▶ Frame ─▶ text, JSON      (bowline top --once)
//!                                    │
//!  keys ──────────────────────▶ Screen ─▶ a terminal's frame
//! ```

pub(crate) mod changes;
pub(crate) mod page;
mod rows;
pub(crate) mod screen;
pub(crate) mod traffic;

pub(crate) use rows::announced;

use super::facts::Facts;
use super::status_text::notes;
use super::words::columns;
use super::{View, status::Status};
use changes::Changed;
use k8s_openapi::jiff::Timestamp;
use rows::{BalancerRow, ListenerRow, PoolRow};
use serde::Serialize;
use traffic::Traffic;

/// One state of the cluster.
#[derive(Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Frame {
    /// When it was read.
    time: String,
    /// The only namespace that is shown. None: all are.
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    load_balancers: Vec<BalancerRow>,
    listeners: Vec<ListenerRow>,
    pools: Vec<PoolRow>,
    /// The newest first.
    changes: Vec<Changed>,
    notes: Vec<String>,
}

/// A table of a frame.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Table {
    pub(super) title: &'static str,
    pub(super) head: Vec<&'static str>,
    pub(super) rows: Vec<Row>,
}

/// A row of a table.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub(super) cells: Vec<String>,
    /// Whether something is wrong.
    pub(super) wrong: bool,
}

impl Frame {
    /// The state of a cluster.
    pub(crate) fn of(
        facts: &Facts,
        traffic: &Traffic,
        changes: Vec<Changed>,
        namespace: Option<&str>,
        now: Timestamp,
    ) -> Self {
        let status = Status::of(facts);
        let status = match namespace {
            Some(namespace) => status.in_namespace(namespace),
            None => status,
        };
        let shown = |it: &Changed| namespace.is_none_or(|namespace| it.concerns(namespace));
        Self {
            time: now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            namespace: namespace.map(str::to_owned),
            load_balancers: status
                .load_balancers
                .iter()
                .map(|lb| rows::balancer(lb, traffic))
                .collect(),
            listeners: rows::listeners(facts, &status, traffic, namespace),
            pools: rows::pools(facts, &status, traffic, namespace),
            changes: changes.into_iter().filter(shown).collect(),
            notes: facts.notes.clone(),
        }
    }

    /// The tables, in the order in which they are shown.
    pub(super) fn tables(&self) -> [Table; 4] {
        [
            Table {
                title: "Load balancers",
                head: rows::BALANCER.to_vec(),
                rows: self.load_balancers.iter().map(BalancerRow::row).collect(),
            },
            Table {
                title: "Listeners",
                head: rows::LISTENER.to_vec(),
                rows: self.listeners.iter().map(ListenerRow::row).collect(),
            },
            Table {
                title: "Pools",
                head: rows::POOL.to_vec(),
                rows: self.pools.iter().map(PoolRow::row).collect(),
            },
            Table {
                title: "Changes",
                head: changes::HEAD.to_vec(),
                rows: self.changes.iter().map(Changed::row).collect(),
            },
        ]
    }
}

impl View for Frame {
    fn kind(&self) -> &'static str {
        "Top"
    }

    fn text(&self) -> String {
        let mut out = format!("{}\n", self.time);
        for Table { title, head, rows } in self.tables() {
            out.push_str(&format!("\n{title}\n"));
            if rows.is_empty() {
                out.push_str("  none\n");
                continue;
            }
            let head = head.into_iter().map(str::to_owned).collect();
            let rows: Vec<_> =
                std::iter::once(head).chain(rows.into_iter().map(|it| it.cells)).collect();
            out.push_str(&columns(&rows, "  "));
        }
        notes(&mut out, &self.notes);
        out
    }
}
