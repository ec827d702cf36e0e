//! What is wrong with an installation, and what helps: what `bowline doctor` prints. Each check is a function of facts;
//! `cli::doctor` gathers them. Pure. Where a fact cannot be known, the check says so and finds nothing.

use super::facts::{Facts, Holder};
use super::words::{ago, count};
use super::{View, doctor_text};
use bowline_api::{Address, AddressPool, convert, names};
use bowline_core::outcome::quote;
use bowline_runtime::controller::has_driver;
use bowline_runtime::lease;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The most things of one sort that are named; the others are counted.
const MOST_NAMED: usize = 5;

/// Clocks that differ by this many seconds are no matter.
const CLOCKS_AGREE: i64 = 5;

/// The facts about an installation.
pub(crate) struct Installation {
    /// Bowline's own namespace.
    pub(crate) system: String,
    /// The version of this program.
    pub(crate) version: String,
    /// The definitions of Bowline's kinds that the cluster has. None: they may not be read.
    pub(crate) kinds: Option<Vec<CustomResourceDefinition>>,
    /// The objects of the cluster; or why they cannot be listed.
    pub(crate) facts: Result<Facts, String>,
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
                checks.extend(leader(facts, installation));
                checks.extend(agents(facts));
                checks.extend(versions(facts, &installation.version));
                checks.extend(pools(installation.pools.as_deref()));
                checks.extend(addresses(facts));
                notes.clone_from(&facts.notes);
            }
            Err(why) => checks.push(Check::Leader.wrong(
                why.clone(),
                "install Bowline (docs/install.md), then run this again: the other checks need it",
            )),
        }
        checks.extend(clocks(installation));
        Self { checks, notes }
    }

    /// Whether something is wrong.
    pub(crate) fn is_wrong(&self) -> bool {
        self.checks.iter().any(|it| it.state == State::Wrong)
    }
}

fn kinds(installation: &Installation) -> Vec<Checked> {
    const REMEDY: &str = "kubectl apply -f deploy/crds of the controllers' version, or: bowline crds | kubectl apply -f -";
    let Some(theirs) = &installation.kinds else {
        return Check::Kinds.unknown("you may not read CustomResourceDefinitions");
    };
    let ours = bowline_api::crds::all();
    let named = |wanted: &CustomResourceDefinition| {
        theirs.iter().find(|it| it.metadata.name == wanted.metadata.name)
    };
    let names = |all: Vec<&CustomResourceDefinition>| {
        let names: Vec<_> = all.iter().map(|it| it.spec.names.kind.as_str()).collect();
        (!names.is_empty()).then(|| names.join(", "))
    };
    let missing = names(ours.iter().filter(|it| named(it).is_none()).collect());
    let other =
        |ours: &&CustomResourceDefinition| named(ours).is_some_and(|theirs| !is_same(ours, theirs));
    let other = names(ours.iter().filter(other).collect());
    let mut found = Vec::new();
    found.extend(missing.map(|it| Check::Kinds.wrong(format!("the cluster lacks {it}"), REMEDY)));
    found.extend(other.map(|it| {
        let message = format!("{it}: the cluster has another version than this program");
        Check::Kinds.wrong(message, REMEDY)
    }));
    Check::Kinds.or_ok(found, format!("all {} are installed, of this version", ours.len()))
}

/// Whether a definition in the cluster has all that ours has. The server adds defaults.
fn is_same(ours: &CustomResourceDefinition, theirs: &CustomResourceDefinition) -> bool {
    let versions = |it: &CustomResourceDefinition| serde_json::to_value(&it.spec.versions);
    match (versions(ours), versions(theirs)) {
        (Ok(ours), Ok(theirs)) => has(&theirs, &ours),
        _ => false,
    }
}

/// Whether everything of `some` is in `all`.
fn has(all: &Value, some: &Value) -> bool {
    match (all, some) {
        (Value::Object(all), Value::Object(some)) => {
            some.iter().all(|(key, value)| all.get(key).is_some_and(|it| has(it, value)))
        }
        (Value::Array(all), Value::Array(some)) => {
            all.len() == some.len() && all.iter().zip(some).all(|(all, some)| has(all, some))
        }
        (Value::Number(all), Value::Number(some)) => all.as_f64() == some.as_f64(),
        _ => all == some,
    }
}

fn rights(installation: &Installation) -> Vec<Checked> {
    let lacking = match &installation.rights {
        Rights::Unknown(why) => return Check::Rights.unknown(why),
        Rights::Known(lacking) => lacking,
    };
    let found = lacking.iter().filter(|(_, all)| !all.is_empty()).map(|(account, all)| {
        let message = format!("ServiceAccount {account} may not {}", some(all));
        Check::Rights.wrong(
            message,
            "helm upgrade with the chart of the controllers' version, or: kubectl apply -f deploy/rbac",
        )
    });
    let accounts: Vec<_> = lacking.keys().map(String::as_str).collect();
    let fine = format!("{} may do what they need", accounts.join(", "));
    Check::Rights.or_ok(found.collect(), fine)
}

fn leader(facts: &Facts, installation: &Installation) -> Vec<Checked> {
    let Installation { system, leases, .. } = installation;
    let remedy = format!(
        "kubectl -n {system} get pods,leases; kubectl -n {system} logs deployment/bowline-controller"
    );
    match &facts.controller {
        // A controller without an election writes its settings into the Lease, and never renews it.
        None if leases.iter().any(is_never_renewed) => Check::Leader
            .unknown("controllers run with --leader-elect=false: whether one runs cannot be seen"),
        None => vec![Check::Leader.wrong("no controller leads", remedy)],
        Some(holder) if holder.overdue => {
            let message = format!("{} led and was {}", holder.identity, seen(holder));
            vec![Check::Leader.wrong(message, remedy)]
        }
        Some(holder) => Check::Leader.ok(format!("{} leads, {}", holder.identity, seen(holder))),
    }
}

/// Whether a Lease is that of controllers without an election.
fn is_never_renewed(lease: &Lease) -> bool {
    let renewed = lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref());
    lease.metadata.name.as_deref() == Some(names::LEASE_CONTROLLER) && renewed.is_none()
}

fn seen(holder: &Holder) -> String {
    format!("last seen {}", ago(holder.silent_seconds))
}

/// Whether an agent of this load balancer lives.
fn is_carried(facts: &Facts, load_balancer: &str) -> bool {
    let agents = facts.agents.get(load_balancer).map(|it| it.all.as_slice()).unwrap_or_default();
    agents.iter().any(|agent| agent.holder.as_ref().is_some_and(|holder| !holder.overdue))
}

fn agents(facts: &Facts) -> Vec<Checked> {
    let ours = facts.load_balancers.iter().filter(|(_, it)| has_driver(&it.spec.source));
    let ours: Vec<&String> = ours.map(|(name, _)| name).collect();
    let without = ours.iter().filter(|name| !is_carried(facts, name)).map(|name| {
        let agents = facts.agents.get(*name).into_iter().flat_map(|it| &it.all);
        let last = agents.filter_map(|it| it.holder.as_ref()).next();
        let message = match last {
            Some(holder) => format!("agent {} of {name} was {}", holder.identity, seen(holder)),
            None => format!("load balancer {name} has no agent: nothing carries its traffic"),
        };
        let remedy = format!(
            "start it: bowline agent --load-balancer {name}, or kubectl get pods --all-namespaces to see why its \
             Pod does not run"
        );
        Check::Agents.wrong(message, remedy)
    });
    let found = bounded(without.collect());
    Check::Agents.or_ok(found, format!("{} with live agents", count(ours.len(), "load balancer")))
}

/// Whether two builds are different: their versions are, or their commits where both say one.
fn differ(one: &str, other: &str) -> bool {
    let parts = |it: &str| {
        let (version, commit) = it.split_once('+').unwrap_or((it, ""));
        (version.to_owned(), commit.to_owned())
    };
    let ((version, commit), (other, another)) = (parts(one), parts(other));
    version != other || (![&commit, &another].contains(&&String::new()) && commit != another)
}

fn versions(facts: &Facts, own: &str) -> Vec<Checked> {
    const REMEDY: &str = "upgrade what is older: docs/install.md, Upgrading";
    let Some(leader) = facts.controller.as_ref() else { return Vec::new() };
    let Some(version) = leader.version.as_deref() else {
        let message = "the leader does not say its version: it is older than this program";
        return vec![Check::Versions.wrong(message, REMEDY)];
    };
    let mut others: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for agent in facts.agents.values().flat_map(|it| &it.all) {
        let Some(holder) = agent.holder.as_ref().filter(|holder| !holder.overdue) else { continue };
        let of = holder.version.as_deref().unwrap_or("an unknown version");
        if differ(of, version) {
            others.entry(of).or_default().insert(&holder.identity);
        }
    }
    let found = others.iter().map(|(of, agents)| {
        let agents: Vec<_> = agents.iter().collect();
        let message = format!("{} of {of}, the leader of {version}", some(&agents));
        Check::Versions.wrong(message, REMEDY)
    });
    let mut found = Check::Versions.or_ok(found.collect(), format!("all are of {version}"));
    if differ(own, version) {
        let message =
            format!("this program is of {own}: its checks may not fit the leader's {version}");
        found.push(Check::Versions.found(State::Unknown, message));
    }
    found
}

fn pools(pools: Option<&[AddressPool]>) -> Vec<Checked> {
    let Some(pools) = pools else {
        return Check::Pools.unknown("you may not list addresspools.bowline.dev");
    };
    let all: Vec<_> = pools.iter().map(convert::pool).collect();
    let mut found = Vec::new();
    for (index, one) in all.iter().enumerate() {
        for entry in &one.refused {
            let message = format!("AddressPool {}: {entry}", one.name);
            found.push(Check::Pools.wrong(message, "correct the entry in spec.addresses"));
        }
        for other in &all[index + 1..] {
            let both = one.ranges.iter().find(|it| other.ranges.iter().any(|or| it.overlaps(or)));
            let Some(range) = both else { continue };
            let message = format!(
                "AddressPools {} and {} overlap in {range}: the younger one grants no new addresses",
                one.name, other.name
            );
            found.push(
                Check::Pools.wrong(message, "take the addresses out of spec.addresses of one"),
            );
        }
    }
    let fine = format!("{}, none overlap", count(all.len(), "AddressPool"));
    Check::Pools.or_ok(bounded(found), fine)
}

fn addresses(facts: &Facts) -> Vec<Checked> {
    let mut silent: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut all = 0;
    for address in &facts.addresses {
        for name in carriers(address) {
            all += 1;
            if !is_carried(facts, name) {
                silent.entry(name).or_default().push(plain(address));
            }
        }
    }
    let found = silent.iter().map(|(name, addresses)| {
        let (message, remedy) = match facts.load_balancers.contains_key(*name) {
            true => (
                format!("no live agent of {name} serves {}", some(addresses)),
                format!("bring its agent back: bowline agent --load-balancer {name}"),
            ),
            false => (
                format!("load balancer {} does not exist and has {}", quote(name), some(addresses)),
                "wait for the leader to release them, or see its log".to_owned(),
            ),
        };
        Check::Addresses.wrong(message, remedy)
    });
    let fine = format!("{} on load balancers, all with a live agent", count_addresses(all));
    Check::Addresses.or_ok(bounded(found.collect()), fine)
}

/// The load balancers on which an address is in use.
fn carriers(address: &Address) -> BTreeSet<&str> {
    use bowline_api::address::HolderKind;
    let holders = address.spec.holders.iter();
    holders
        .filter_map(|holder| match holder.kind {
            HolderKind::LoadBalancer => Some(holder.name.as_str()),
            _ => holder.load_balancer.as_deref(),
        })
        .collect()
}

fn plain(address: &Address) -> String {
    let name = address.metadata.name.as_deref().unwrap_or_default();
    let read = bowline_api::address::address_of_name(name);
    read.map_or_else(|| name.to_owned(), |it| it.to_string())
}

fn count_addresses(number: usize) -> String {
    if number == 1 { "1 address".to_owned() } else { format!("{number} addresses") }
}

fn clocks(installation: &Installation) -> Vec<Checked> {
    const REMEDY: &str = "synchronize it by NTP (timedatectl set-ntp true)";
    let mut found = Vec::new();
    if let Some(ahead) = installation.server_ahead.filter(|it| it.abs() > CLOCKS_AGREE) {
        let word = if ahead > 0 { "behind" } else { "ahead of" };
        let message = format!("this machine's clock is {} s {word} the API server's", ahead.abs());
        found.push(Check::Clocks.wrong(message, REMEDY));
    }
    // A renewal from the future has only one reason. One of the past has many.
    let renewals = installation.leases.iter().flat_map(renewals);
    for (process, renewed) in renewals {
        let ahead = renewed.as_second() - installation.now.as_second();
        if ahead > CLOCKS_AGREE {
            let message = format!("the clock of {process} is {ahead} s ahead");
            found.push(Check::Clocks.wrong(message, REMEDY));
        }
    }
    if found.is_empty() && installation.server_ahead.is_none() {
        return Check::Clocks.unknown("the API server does not tell the time");
    }
    Check::Clocks.or_ok(bounded(found), "they agree, as far as Leases show")
}

/// Who has renewed a Lease, and when by its own clock.
fn renewals(lease: &Lease) -> Vec<(String, Timestamp)> {
    let name = lease.metadata.name.as_deref();
    if name == Some(names::LEASE_CONTROLLER) {
        let spec = lease.spec.iter();
        return spec
            .filter_map(|it| Some((it.holder_identity.clone()?, it.renew_time.as_ref()?.0)))
            .collect();
    }
    let entries = lease::entries(lease).into_iter().filter(|it| it.left.is_none());
    entries.filter_map(|it| Some((it.agent.to_string(), it.renewed.parse().ok()?))).collect()
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
