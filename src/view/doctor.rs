//! What is wrong with an installation, and what helps: what `bowline doctor` prints. Each check is a function of facts;
//! `cli::doctor` gathers them. Pure. Where a fact cannot be known, the check says so and finds nothing.

mod addresses;
mod clocks;
pub(super) mod ip_mode;
mod kinds;
mod processes;
mod rights;
mod speakers;

use super::facts::Facts;
use super::list::ListError;
use super::{View, doctor_text};
use addresses::{addresses, pools};
use bowline_api::AddressPool;
use clocks::clocks;
use ip_mode::ip_mode;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::jiff::Timestamp;
use kinds::kinds;
use processes::{agents, leader, versions};
use rights::rights;
use serde::Serialize;
use speakers::speakers;
use std::collections::{BTreeMap, BTreeSet};

/// The most things of one sort that are named; the others are counted.
const MOST_NAMED: usize = 5;

/// The facts about an installation.
pub(crate) struct Installation {
    /// Bowline's own namespace.
    pub(crate) system: String,
    /// The version of this program.
    pub(crate) version: String,
    /// The definitions of Bowline's kinds that the cluster has. None: they may not be read.
    pub(crate) kinds: Option<Vec<CustomResourceDefinition>>,
    /// The objects of the cluster; or why they cannot be listed.
    pub(crate) facts: Result<Facts, ListError>,
    /// The kinds that may not be listed.
    pub(crate) hidden: BTreeSet<&'static str>,
    /// None: they may not be read.
    pub(crate) pools: Option<Vec<AddressPool>>,
    /// The Leases in Bowline's own namespace.
    pub(crate) leases: Vec<Lease>,
    pub(crate) rights: Rights,
    /// By how many seconds the API server's clock is ahead of this machine's. None: the server does not tell the time.
    pub(crate) server_ahead: Option<i64>,
    /// The time, by the API server's clock where that is known.
    pub(crate) now: Timestamp,
}

impl Installation {
    /// The results of a check that needs lists of these kinds; unknown if one may not be listed.
    fn unless_hidden(
        &self,
        check: Check,
        needs: &[&str],
        results: &dyn Fn() -> Vec<Checked>,
    ) -> Vec<Checked> {
        match needs.iter().find(|it| self.hidden.contains(**it)) {
            Some(kind) => check.unknown(format!("you may not list {kind}")),
            None => results(),
        }
    }
}

/// What is known about the rights of Bowline's processes.
pub(crate) enum Rights {
    /// What they lack, by ServiceAccount.
    Known(BTreeMap<String, Vec<String>>),
    /// Why nothing is known.
    Unknown(String),
}

/// The result of all checks.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Diagnosis {
    pub(super) checks: Vec<Checked>,
    pub(super) notes: Vec<String>,
}

/// One result of a check. A check that finds several things has several.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Checked {
    pub(super) check: Check,
    pub(super) state: State,
    pub(super) message: String,
    /// What helps, where something is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) remedy: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) enum Check {
    Kinds,
    Rights,
    Leader,
    Agents,
    Versions,
    Pools,
    Addresses,
    Speakers,
    IpMode,
    Clocks,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) enum State {
    Ok,
    Wrong,
    /// It cannot be checked.
    Unknown,
}

impl Check {
    fn found(self, state: State, message: impl Into<String>) -> Checked {
        Checked { check: self, state, message: message.into(), remedy: None }
    }

    fn ok(self, message: impl Into<String>) -> Vec<Checked> {
        vec![self.found(State::Ok, message)]
    }

    fn unknown(self, message: impl Into<String>) -> Vec<Checked> {
        vec![self.found(State::Unknown, message)]
    }

    fn wrong(self, message: impl Into<String>, remedy: impl Into<String>) -> Checked {
        Checked { remedy: Some(remedy.into()), ..self.found(State::Wrong, message) }
    }

    /// What was found; if that is nothing, all is well.
    fn or_ok(self, found: Vec<Checked>, message: impl Into<String>) -> Vec<Checked> {
        if found.is_empty() { self.ok(message) } else { found }
    }
}

impl Diagnosis {
    /// Checks an installation.
    pub(crate) fn of(installation: &Installation) -> Self {
        let mut checks = kinds(installation);
        checks.extend(rights(installation));
        let mut notes = Vec::new();
        match &installation.facts {
            Ok(facts) => {
                let (leases, balancers) = ("leases", "loadbalancers.bowline.dev");
                let (advertisements, peers) =
                    ("advertisements.bowline.dev", "bgppeers.bowline.dev");
                let known = |check, needs: &[&str], results: &dyn Fn() -> Vec<Checked>| {
                    installation.unless_hidden(check, needs, results)
                };
                let results = [
                    known(Check::Leader, &[leases], &|| leader(facts, installation)),
                    known(Check::Agents, &[leases, balancers], &|| agents(facts)),
                    known(Check::Versions, &[leases], &|| versions(facts, &installation.version)),
                    pools(installation.pools.as_deref()),
                    known(Check::Addresses, &[leases, balancers, "addresses.bowline.dev"], &|| {
                        addresses(facts)
                    }),
                    known(Check::Speakers, &[leases, advertisements, peers, balancers], &|| {
                        speakers(facts, &installation.leases, installation.now)
                    }),
                    known(Check::IpMode, &["nodes", "addresses.bowline.dev"], &|| ip_mode(facts)),
                ];
                checks.extend(results.into_iter().flatten());
                notes.clone_from(&facts.notes);
            }
            Err(why @ (ListError::NotInstalled(_) | ListError::NoNamespace(_))) => {
                checks.push(Check::Leader.wrong(
                    why.to_string(),
                    "install Bowline (docs/install.md), then run this again: the other checks need it",
                ));
            }
            Err(why) => {
                checks.extend(Check::Leader.unknown(format!("{why}: the other checks need it")));
            }
        }
        checks.extend(clocks(installation));
        Self { checks, notes }
    }

    /// Whether something is wrong.
    pub(crate) fn is_wrong(&self) -> bool {
        self.checks.iter().any(|it| it.state == State::Wrong)
    }
}

/// Some by name, and how many more there are.
fn some<T: AsRef<str>>(all: &[T]) -> String {
    let named: Vec<_> = all.iter().take(MOST_NAMED).map(AsRef::as_ref).collect();
    let more = all.len() - named.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", named.join(", "))
}

/// The first results; the last one says how many were left out.
fn bounded(mut found: Vec<Checked>) -> Vec<Checked> {
    let more = found.len().saturating_sub(MOST_NAMED);
    found.truncate(MOST_NAMED);
    if let Some(last) = found.last_mut().filter(|_| more > 0) {
        last.message = format!("{} (and {more} more like this)", last.message);
    }
    found
}

impl View for Diagnosis {
    fn kind(&self) -> &'static str {
        "Diagnosis"
    }

    fn text(&self) -> String {
        doctor_text::diagnosis(self)
    }
}
