//! Who holds an address, and who announces it: what `bowline explain address/A` prints. Pure.

use super::addresses::{AddressView, views};
use super::addresses_text::{left, who};
use super::announcing::AnnouncingView;
use super::explain::ProblemView;
use super::explain_text::listed_problems;
use super::facts::Facts;
use super::status_text::notes;
use super::words::{paragraph, row};
use bowline_api::address::address_of_name;
use serde::Serialize;
use std::net::IpAddr;

/// The explanation of an address.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct AddressExplanation {
    #[serde(flatten)]
    pub(super) address: AddressView,
    pub(super) announcing: AnnouncingView,
    pub(super) problems: Vec<ProblemView>,
    pub(super) notes: Vec<String>,
}

impl AddressExplanation {
    /// Of an address, or of the name of its Address object. None: there is no such object, and no load balancer has it.
    pub(super) fn of(facts: &Facts, name: &str) -> Option<Self> {
        let at: IpAddr = name.parse().ok().or_else(|| address_of_name(name))?;
        let recorded = views(&facts.addresses, facts.now).into_iter().find(|it| it.address == at);
        let address = match recorded {
            Some(address) => address,
            None => AddressView::own(at, facts.own([at].iter()).remove(&at)?),
        };
        let announcing = AnnouncingView {
            speakers: facts.announcing.reports.len(),
            addresses: facts.announced(&[at]),
        };
        let alone = address.holders.iter().any(|it| it.load_balancer.is_none());
        // An address that rests is to be announced by no node.
        let held = !address.holders.is_empty();
        let problems = if held { announcing.problems(facts, alone) } else { Vec::new() };
        Some(Self { address, announcing, problems, notes: facts.notes.clone() })
    }

    /// The text for people.
    pub(super) fn text(&self) -> String {
        let one = &self.address;
        let mut out = String::new();
        let pool = one.pool.as_deref().map(|pool| format!(" of pool {pool}")).unwrap_or_default();
        let until = one.left.map(|seconds| format!(", ends {}", left(seconds))).unwrap_or_default();
        paragraph(&mut out, &format!("Address {}{pool}: {:?}{until}", one.address, one.state));
        out.push('\n');
        for (index, holder) in one.holders.iter().enumerate() {
            let on = holder.load_balancer.as_deref();
            let on = on.map(|name| format!(", on load balancer {name}")).unwrap_or_default();
            let label = if index == 0 { "Held by" } else { "" };
            row(&mut out, label, &format!("{}{on}", who(holder)));
        }
        if one.holders.is_empty() {
            row(&mut out, "Held by", "no object: it rests");
        }
        self.announcing.rows(&mut out);
        listed_problems(&mut out, &self.problems, None);
        notes(&mut out, &self.notes);
        out
    }
}
