//! Who announces the addresses of a Service or load balancer, for `bowline explain`. Pure.

use super::announcements::AnnouncedView;
use super::explain::ProblemView;
use super::facts::Facts;
use super::words::{count, row};
use bowline_api::address::address_of_name;
use bowline_core::outcome::Reason;
use bowline_core::point::Point;
use serde::Serialize;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// The most nodes that are named.
const MOST_NAMED: usize = 5;

/// Who announces some addresses.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct AnnouncingView {
    /// How many speakers run.
    pub(super) speakers: usize,
    /// The addresses that an Address object records.
    pub(super) addresses: Vec<AnnouncedView>,
}

impl AnnouncingView {
    /// Of these addresses. None: none of them is recorded, or none is meant to be announced.
    pub(super) fn of(facts: &Facts, addresses: impl IntoIterator<Item = IpAddr>) -> Option<Self> {
        let addresses: Vec<_> = addresses.into_iter().collect();
        let mut views = facts.announced(&addresses);
        // An address of no pool may be one that the machines have by themselves.
        views.retain(|view| match facts.address(view.address) {
            Some(it) if it.spec.pool.is_some() => true,
            Some(_) => view.problem.as_ref().is_none_or(|it| it.reason != Reason::NotAdvertised),
            None => view.problem.is_none(),
        });
        let speakers = facts.announcing.reports.len();
        (!views.is_empty()).then_some(Self { speakers, addresses: views })
    }

    /// Of the addresses among these points.
    pub(super) fn of_points(facts: &Facts, points: &[Point]) -> Option<Self> {
        let addresses = points.iter().filter_map(|point| match point {
            Point::At(address) => Some(*address),
            Point::Named(_) => None,
        });
        Self::of(facts, addresses)
    }

    /// What keeps addresses from being announced. Without a speaker, announcing is the work of another product, unless
    /// an Advertisement says otherwise and no load balancer serves the address.
    pub(super) fn problems(&self, facts: &Facts, alone: bool) -> Vec<ProblemView> {
        let wanted = self.speakers > 0 || alone && !facts.announcing.advertisements.is_empty();
        if !wanted || !facts.announcing.known {
            return Vec::new();
        }
        let problems = self.addresses.iter().filter_map(|it| it.problem.as_ref());
        let view = |it: &super::announcements::ProblemView| ProblemView {
            reason: it.reason.to_string(),
            message: it.message.to_string(),
            remedy: it.remedy.map(str::to_owned),
        };
        let mut all: Vec<ProblemView> = problems.map(view).collect();
        all.dedup();
        all
    }

    /// The rows of the text.
    pub(super) fn rows(&self, out: &mut String) {
        const LABEL: &str = "Announced by";
        if self.speakers == 0 {
            row(out, LABEL, "no speaker runs");
            return;
        }
        let several = self.addresses.len() > 1;
        let mut label = LABEL;
        for view in &self.addresses {
            let at = if several { format!("{}: ", view.address) } else { String::new() };
            for line in lines(view) {
                row(out, label, &format!("{at}{line}"));
                label = "";
            }
        }
    }
}

/// The nodes that announce an address.
fn lines(view: &AnnouncedView) -> Vec<String> {
    let owner = view.owner.iter().map(|node| format!("node {node}, by layer 2"));
    let bgp = view.bgp.iter().take(MOST_NAMED);
    let bgp = bgp.map(|(node, peers)| format!("node {node}, by BGP to {}", peers.join(", ")));
    let mut all: Vec<_> = owner.chain(bgp).collect();
    let more = view.bgp.len().saturating_sub(MOST_NAMED);
    all.extend((more > 0).then(|| format!("{} more, by BGP", count(more, "node"))));
    if all.is_empty() {
        all.push("no node".to_owned());
    }
    all
}

/// All announcing at a glance.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Summary {
    speakers: usize,
    /// Addresses that a node announces.
    announced: usize,
    /// Addresses that an object holds.
    held: usize,
    sessions_up: usize,
    sessions_down: usize,
}

impl Summary {
    /// None: no speaker runs, and nothing is to be announced.
    pub(super) fn of(facts: &Facts) -> Option<Self> {
        let announcing = &facts.announcing;
        if announcing.reports.is_empty() && announcing.advertisements.is_empty() {
            return None;
        }
        let held = facts.addresses.iter().filter(|it| !it.spec.holders.is_empty());
        let held: BTreeSet<IpAddr> =
            held.filter_map(|it| it.metadata.name.as_deref().and_then(address_of_name)).collect();
        let reports = announcing.reports.iter();
        let announced: BTreeSet<IpAddr> = reports
            .clone()
            .flat_map(|it| it.by_bgp().map(|(at, _)| at).chain(it.owned()))
            .filter(|it| held.contains(it))
            .collect();
        let sessions = reports.flat_map(|it| it.sessions.values());
        let (up, down): (Vec<_>, Vec<_>) = sessions.partition(|it| it.up);
        Some(Self {
            speakers: announcing.reports.len(),
            announced: announced.len(),
            held: held.len(),
            sessions_up: up.len(),
            sessions_down: down.len(),
        })
    }

    /// In words.
    pub(super) fn text(&self) -> String {
        if self.speakers == 0 {
            return "no speaker runs, and Advertisements ask for one".to_owned();
        }
        let addresses = match self.held {
            1 => "1 address".to_owned(),
            held => format!("{held} addresses"),
        };
        let all = self.sessions_up + self.sessions_down;
        let sessions = match all {
            0 => String::new(),
            _ => format!(", {} of {all} BGP sessions up", self.sessions_up),
        };
        let speakers = count(self.speakers, "speaker");
        format!("{} of {addresses} announced by {speakers}{sessions}", self.announced)
    }
}
