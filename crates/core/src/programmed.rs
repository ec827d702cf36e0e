//! Proof from lease reports: whether all live agents of a load balancer run the current plan, and which consumers are
//! in force at all of them. The leader keeps the last hashes of each plan, so that a Lease that is slightly behind
//! still proves the consumers that did not change since. It reads no Lease and no clock.

use crate::hash::PlanHash;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The number of hashes that are remembered per load balancer. An agent may be this many changes behind in a burst and
/// still prove what it has applied.
const REMEMBERED: usize = 1024;
/// The same for written plans. Writes are fewer than changes, and agents can report only what is written. Many changes
/// cannot push these hashes out.
const REMEMBERED_WRITTEN: usize = 4096;

/// The last hashes of each plan, each with the number of the change that led to it.
#[derive(Clone, Debug, Default)]
pub struct History {
    plans: BTreeMap<Arc<str>, Past>,
    /// The hashes of the plans that were written.
    written: BTreeMap<Arc<str>, Past>,
}

/// The last hashes of one load balancer, and the newest change of each hash: a report is judged by one look-up, however
/// much has changed since.
#[derive(Clone, Debug, Default)]
struct Past {
    hashes: VecDeque<(PlanHash, u64)>,
    newest: HashMap<PlanHash, u64>,
    /// How many hashes have been forgotten.
    forgotten: u64,
}

impl Past {
    fn push(&mut self, hash: PlanHash, change: u64, most: usize) {
        match self.hashes.back_mut() {
            Some((last, number)) if *last == hash => *number = change.max(*number),
            _ => self.hashes.push_back((hash, change)),
        }
        let newest = self.newest.entry(hash).or_default();
        *newest = change.max(*newest);
        if self.hashes.len() > most
            && let Some((old, change)) = self.hashes.pop_front()
        {
            self.forgotten += 1;
            if self.newest.get(&old) == Some(&change) {
                self.newest.remove(&old);
            }
        }
    }

    /// How many hashes there have been.
    fn count(&self) -> u64 {
        self.forgotten.saturating_add(self.hashes.len() as u64)
    }

    /// Why a report of this hash may be out of date; `count` hashes were written when it came. A plan may have been written,
    /// then another one, then the first again; a report of the first may then be older than the other. None: the
    /// report came after the last write of another hash.
    fn doubt(&self, hash: PlanHash, count: u64) -> Option<Doubt> {
        let other = self.hashes.iter().rposition(|(it, _)| *it != hash)?;
        let turn = self.forgotten.saturating_add(other as u64).saturating_add(1);
        if count > turn {
            return None;
        }
        let from = usize::try_from(count.saturating_sub(self.forgotten)).unwrap_or(other);
        let mut later = self.hashes.range(from.min(other)..=other);
        let limit = later.find(|(it, _)| *it != hash).map(|(_, change)| *change)?;
        // Plans of one load balancer are written one at a time, so a report can be ahead of one answer.
        Some(Doubt { limit, quick: count == turn })
    }

    /// The newest change with this hash, up to `limit`.
    fn newest(&self, hash: PlanHash, limit: Option<u64>) -> Option<u64> {
        let newest = self.newest.get(&hash).copied()?;
        let within = |change: u64| limit.is_none_or(|limit| change <= limit);
        if within(newest) {
            return Some(newest);
        }
        let mut past = self.hashes.iter().rev();
        past.find(|(it, change)| *it == hash && within(*change)).map(|(_, change)| *change)
    }

    fn last(&self) -> Option<(PlanHash, u64)> {
        self.hashes.back().copied()
    }
}

/// Why a report does not prove the last occurrence of its plan.
struct Doubt {
    /// The report proves nothing after this change.
    limit: u64,
    /// Whether the report came after the last write of another plan, and before the answer to the write that brought
    /// this one back. It then counts for the newest plan if it proves no earlier change.
    quick: bool,
}

/// The report of one agent in the Lease of its load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseReport {
    /// The agent.
    pub agent: Arc<str>,
    /// The plan that it has applied.
    pub hash: Option<PlanHash>,
    /// Why it could not apply the plan after that.
    pub error: Option<Arc<str>>,
    /// How long its Lease entry has not been renewed, on our own clock.
    pub age: Duration,
    /// How long a renewal counts.
    pub lasts: Duration,
    /// How many writes of the plan were known ([`History::writes`]) when it reported this.
    pub after: u64,
    /// Whether the agent has ended together with its proxy, so that it serves nothing.
    pub ended: bool,
}

impl LeaseReport {
    fn is_live(&self) -> bool {
        self.age <= self.lasts
    }
}

/// The conclusion from the reports of all agents of a load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Whether the load balancer runs.
    pub phase: Phase,
    /// Up to which change all of them have applied the plan, as far as is known.
    pub applied: Option<u64>,
}

impl Verdict {
    /// Whether a consumer that last changed with this change is in force. A silent agent revokes nothing: what it
    /// applied stays in force, and the phase says that the agent is silent.
    pub fn covers(&self, changed: u64) -> bool {
        self.applied.is_some_and(|applied| changed <= applied)
    }
}

/// Whether a load balancer runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// At least one agent is live, and each live one has applied the current plan.
    Running,
    /// An agent has not, or it is not known.
    Pending(Pending),
}

/// Why a load balancer does not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pending {
    /// There is no plan yet.
    NoPlan,
    /// No agent has ever reported.
    NoAgent,
    /// The agent has not renewed its Lease in time.
    AgentSilent,
    /// The agent could not apply the plan.
    AgentFailed(Arc<str>),
    /// The agent has not applied the current plan yet.
    AgentBehind,
}

impl Pending {
    /// One word for programs.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoPlan => "NoPlan",
            Self::NoAgent => "NoAgent",
            Self::AgentSilent => "AgentSilent",
            Self::AgentFailed(_) => "AgentFailed",
            Self::AgentBehind => "AgentBehind",
        }
    }
}

impl fmt::Display for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPlan => f.write_str("there is no plan yet"),
            Self::NoAgent => f.write_str("no agent has reported yet"),
            Self::AgentSilent => f.write_str("the agent has stopped reporting"),
            Self::AgentFailed(error) => write!(f, "the agent could not apply the plan: {error}"),
            Self::AgentBehind => f.write_str("the agent has not applied the current plan yet"),
        }
    }
}

impl History {
    /// Notes the hash of a plan after a change. Changes are numbered upwards.
    pub fn record(&mut self, load_balancer: &Arc<str>, hash: PlanHash, change: u64) {
        let plans = self.plans.entry(load_balancer.clone()).or_default();
        plans.push(hash, change, REMEMBERED);
    }

    /// Notes the hash of a written plan that is not, or not wholly, the current one. It contains all changes up to
    /// `change`. An agent that reports the hash proves those.
    pub fn record_written(&mut self, load_balancer: &str, hash: PlanHash, change: u64) {
        let Some((name, plans)) = self.plans.get_key_value(load_balancer) else { return };
        // The current plan is written wholly.
        let change = plans.last().filter(|(now, _)| *now == hash).map_or(change, |(_, last)| last);
        let written = self.written.entry(Arc::clone(name)).or_default();
        written.push(hash, change, REMEMBERED_WRITTEN);
    }

    /// Notes the plan that the API shows, also where another leader wrote it. Only the current plan is recognized by
    /// its hash; which changes are in any other plan is not known.
    pub fn record_shown(&mut self, load_balancer: &str, hash: PlanHash) {
        let now = self.plans.get(load_balancer).and_then(Past::last);
        if let Some((_, change)) = now.filter(|(now, _)| *now == hash) {
            self.record_written(load_balancer, hash, change);
        }
    }

    /// How many different plans have been written for a load balancer.
    pub fn writes(&self, load_balancer: &str) -> u64 {
        self.written.get(load_balancer).map_or(0, Past::count)
    }

    /// Forgets a load balancer.
    pub fn forget(&mut self, load_balancer: &str) {
        self.plans.remove(load_balancer);
        self.written.remove(load_balancer);
    }

    /// Whether a load balancer may still serve what a change removes, by the reports of its agents, silent ones
    /// included. A load balancer without agents, or without a driver, serves nothing. A deleted load balancer (`driven`
    /// is None) serves on until its agents have applied an empty plan, or have left.
    pub fn may_serve(
        &self,
        load_balancer: &str,
        driven: Option<bool>,
        reports: &[LeaseReport],
        change: u64,
    ) -> bool {
        let may = |report: &LeaseReport| match driven {
            _ if report.ended => false,
            Some(false) => false,
            Some(true) => {
                self.applied(load_balancer, report).is_none_or(|applied| applied < change)
            }
            None => {
                // An agent without a hash may drive a proxy that outlived an earlier agent.
                let applied = report.hash == Some(PlanHash::default());
                !applied && report.is_live()
            }
        };
        reports.iter().any(may)
    }

    /// The newest change that an agent has applied. Changes with equal plans count together. If a plan was written, then
    /// another one, then the first again, only a report that came after the last write proves it: the agent may have
    /// applied the other plan after an earlier report.
    fn applied(&self, load_balancer: &str, report: &LeaseReport) -> Option<u64> {
        let hash = report.hash?;
        let (plans, written) = (self.plans.get(load_balancer), self.written.get(load_balancer));
        let newest = |limit| {
            let of = |past: Option<&Past>| past?.newest(hash, limit);
            of(plans).max(of(written))
        };
        match written.and_then(|past| past.doubt(hash, report.after)) {
            None => newest(None),
            Some(doubt) => {
                newest(Some(doubt.limit)).or_else(|| newest(None).filter(|_| doubt.quick))
            }
        }
    }

    /// What the agents of a load balancer prove together. A consumer is in force if every live agent serves it, since a
    /// client may reach any of them. An agent that has nothing in force yet is not ready and gets no clients: it delays
    /// no consumer, but the load balancer does not run before it has. Where no agent is live, what all of them have
    /// applied stays in force.
    pub fn judge(&self, load_balancer: &str, reports: &[LeaseReport]) -> Verdict {
        let live: Vec<_> = reports.iter().filter(|report| report.is_live()).collect();
        let counted = if live.is_empty() { reports.iter().collect() } else { live.clone() };
        let begun = counted.iter().filter(|report| report.hash.is_some());
        let applied = begun.map(|report| self.applied(load_balancer, report)).min().flatten();
        let now = self.plans.get(load_balancer).and_then(Past::last).map(|(_, change)| change);
        let failed = live.iter().find_map(|report| Some((report, report.error.as_ref()?)));
        let pending = match (now, failed) {
            (None, _) => Some(Pending::NoPlan),
            _ if reports.is_empty() => Some(Pending::NoAgent),
            _ if live.is_empty() => Some(Pending::AgentSilent),
            (_, Some((_, error))) if live.len() == 1 => {
                Some(Pending::AgentFailed(Arc::clone(error)))
            }
            (_, Some((report, error))) => {
                Some(Pending::AgentFailed(format!("{}: {error}", report.agent).into()))
            }
            (now, None) => {
                let behind = |report: &&&LeaseReport| self.applied(load_balancer, report) < now;
                live.iter().any(|report| behind(&report)).then_some(Pending::AgentBehind)
            }
        };
        Verdict { phase: pending.map_or(Phase::Running, Phase::Pending), applied }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(n: u16) -> PlanHash {
        format!("{n:064x}").parse().unwrap()
    }

    fn history(hashes: &[u16]) -> History {
        let mut history = History::default();
        for (change, n) in (1..).zip(hashes) {
            history.record(&"lb".into(), hash(*n), change);
        }
        history
    }

    fn report(n: u16) -> LeaseReport {
        let (age, lasts) = (Duration::from_secs(2), Duration::from_secs(15));
        LeaseReport {
            agent: "a".into(),
            hash: Some(hash(n)),
            error: None,
            age,
            lasts,
            after: u64::MAX,
            ended: false,
        }
    }

    fn pending(pending: Pending, applied: Option<u64>) -> Verdict {
        Verdict { phase: Phase::Pending(pending), applied }
    }

    #[test]
    fn a_live_agent_with_the_plan_of_now_runs() {
        let verdict = history(&[1, 2]).judge("lb", &[report(2)]);
        assert_eq!(verdict, Verdict { phase: Phase::Running, applied: Some(2) });
        assert!(verdict.covers(2) && !verdict.covers(3));
    }

    #[test]
    fn an_older_plan_still_proves_what_has_not_changed_since() {
        let verdict = history(&[1, 2, 3]).judge("lb", &[report(2)]);
        assert_eq!(verdict, pending(Pending::AgentBehind, Some(2)));
        assert!(verdict.covers(1) && verdict.covers(2) && !verdict.covers(3));
    }

    #[test]
    fn what_is_written_of_a_plan_proves_what_it_holds_and_is_not_the_plan_of_now() {
        let mut history = history(&[1, 2, 3]);
        history.record_written("lb", hash(7), 2);
        let verdict = history.judge("lb", &[report(7)]);
        assert_eq!(verdict, pending(Pending::AgentBehind, Some(2)));
        history.record_written("lb", hash(3), 1);
        let verdict = history.judge("lb", &[report(3)]);
        assert_eq!(verdict, Verdict { phase: Phase::Running, applied: Some(3) });
    }

    #[test]
    fn what_was_written_is_remembered_however_many_changes_follow() {
        let mut history = history(&[1]);
        history.record_written("lb", hash(1), 1);
        for n in 2..3000 {
            history.record(&"lb".into(), hash(n), n.into());
        }
        let verdict = history.judge("lb", &[report(1)]);
        assert_eq!(verdict, pending(Pending::AgentBehind, Some(1)));
    }

    #[test]
    fn what_is_forgotten_leaves_nothing_behind_and_what_came_again_is_still_known() {
        let mut history = history(&[1, 2, 3]);
        history.record(&"lb".into(), hash(1), 4);
        for n in 5..1026 {
            history.record(&"lb".into(), hash(n), n.into());
        }
        let sizes = |it: &History| (it.plans["lb"].hashes.len(), it.plans["lb"].newest.len());
        assert_eq!(sizes(&history), (1024, 1024));
        let expected = pending(Pending::AgentBehind, Some(4));
        assert_eq!(history.judge("lb", &[report(1)]), expected);
        history.record(&"lb".into(), hash(2000), 1026);
        assert_eq!(sizes(&history), (1024, 1024));
        let expected = pending(Pending::AgentBehind, None);
        assert_eq!(history.judge("lb", &[report(2)]), expected);
    }

    #[test]
    fn a_plan_that_nobody_remembers_proves_nothing() {
        let long: Vec<u16> = (1..=1025).collect();
        let expected = pending(Pending::AgentBehind, None);
        assert_eq!(history(&long).judge("lb", &[report(1)]), expected);
        assert_eq!(history(&long).judge("lb", &[report(9999)]), expected);
    }

    #[test]
    fn silence_and_errors_are_not_running_but_take_nothing_back() {
        let history = history(&[1]);
        let silent = LeaseReport { age: Duration::from_secs(16), ..report(1) };
        assert_eq!(history.judge("lb", &[silent]), pending(Pending::AgentSilent, Some(1)));
        let failed = LeaseReport { error: Some("no room".into()), ..report(1) };
        let expected = pending(Pending::AgentFailed("no room".into()), Some(1));
        assert_eq!(history.judge("lb", &[failed]), expected);
    }

    #[test]
    fn what_a_change_takes_away_may_be_served_until_the_agent_has_applied_it() {
        let history = history(&[1, 2]);
        let serves = |driven, report: Option<LeaseReport>| {
            history.may_serve("lb", driven, report.as_slice(), 2)
        };
        let silent = |n| LeaseReport { age: Duration::from_secs(16), ..report(n) };
        assert!(serves(Some(true), Some(report(1))));
        assert!(serves(Some(true), Some(report(9))), "a plan of a former leader");
        assert!(serves(Some(true), Some(silent(1))), "it may be cut off and serve on");
        assert!(!serves(Some(true), Some(report(2))));
        assert!(!serves(Some(true), None));
        assert!(!serves(Some(false), Some(report(1))), "nothing drives it");
        assert!(serves(None, Some(report(2))), "its agent does not know yet that it is gone");
        assert!(!serves(None, Some(report(0))), "its agent has applied an empty plan");
        assert!(
            serves(None, Some(LeaseReport { hash: None, ..report(0) })),
            "its proxy may have outlived it"
        );
        assert!(!serves(None, Some(silent(2))));
        assert!(!serves(None, None));
    }

    #[test]
    fn without_plan_or_lease_nothing_runs() {
        assert_eq!(history(&[]).judge("lb", &[report(1)]), pending(Pending::NoPlan, None));
        assert_eq!(history(&[1]).judge("lb", &[]), pending(Pending::NoAgent, None));
    }

    #[test]
    fn a_plan_that_comes_back_counts_as_its_newest_change() {
        let verdict = history(&[1, 2, 1]).judge("lb", &[report(1)]);
        assert_eq!(verdict, Verdict { phase: Phase::Running, applied: Some(3) });
    }

    #[test]
    fn a_report_from_before_another_plan_does_not_prove_that_the_plan_came_back() {
        let mut history = history(&[1]);
        history.record_written("lb", hash(1), 1);
        let early = LeaseReport { after: history.writes("lb"), ..report(1) };
        for (n, change) in [(2, 2), (1, 3)] {
            history.record(&"lb".into(), hash(n), change);
            history.record_written("lb", hash(n), change);
        }
        let expected = pending(Pending::AgentBehind, Some(1));
        assert_eq!(history.judge("lb", std::slice::from_ref(&early)), expected);
        assert!(history.may_serve("lb", Some(true), std::slice::from_ref(&early), 3));
        // Until the other plan is replaced, an agent that has not seen it may report the first one at any time.
        let between = LeaseReport { after: history.writes("lb") - 1, ..early.clone() };
        assert_eq!(history.judge("lb", &[between]), expected);
        let later = LeaseReport { after: history.writes("lb"), ..early };
        let verdict = history.judge("lb", &[later]);
        assert_eq!(verdict, Verdict { phase: Phase::Running, applied: Some(3) });
    }

    #[test]
    fn a_plan_that_came_back_is_proved_though_the_answer_to_its_write_was_lost() {
        let mut history = history(&[1]);
        history.record_written("lb", hash(1), 1);
        history.record(&"lb".into(), hash(2), 2);
        history.record_written("lb", hash(2), 2);
        history.record(&"lb".into(), hash(1), 3);
        history.record_shown("lb", hash(2));
        let early = LeaseReport { after: history.writes("lb"), ..report(1) };
        let expected = pending(Pending::AgentBehind, Some(1));
        assert_eq!(history.judge("lb", &[early]), expected);
        history.record_shown("lb", hash(1));
        let later = LeaseReport { after: history.writes("lb"), ..report(1) };
        let running = Verdict { phase: Phase::Running, applied: Some(3) };
        assert_eq!(history.judge("lb", &[later]), running);
    }

    #[test]
    fn a_new_leader_does_not_take_an_old_report_for_one_of_a_plan_that_came_back() {
        let mut history = history(&[2]);
        history.record_written("lb", hash(2), 1);
        history.record(&"lb".into(), hash(1), 2);
        history.record_written("lb", hash(1), 2);
        let before = LeaseReport { after: 0, ..report(1) };
        assert_eq!(history.judge("lb", &[before]), pending(Pending::AgentBehind, None));
    }

    #[test]
    fn a_report_of_a_new_plan_counts_before_the_answer_to_its_write_does() {
        let mut history = history(&[1]);
        history.record_written("lb", hash(1), 1);
        history.record(&"lb".into(), hash(2), 2);
        let quick = LeaseReport { after: history.writes("lb"), ..report(2) };
        let running = Verdict { phase: Phase::Running, applied: Some(2) };
        assert_eq!(history.judge("lb", std::slice::from_ref(&quick)), running);
        history.record_written("lb", hash(2), 2);
        assert_eq!(history.judge("lb", &[quick]), running);
    }

    #[test]
    fn a_plan_that_was_never_written_casts_no_doubt_on_a_report() {
        let mut history = history(&[1]);
        history.record_written("lb", hash(1), 1);
        let early = LeaseReport { after: history.writes("lb"), ..report(1) };
        history.record(&"lb".into(), hash(2), 2);
        history.record(&"lb".into(), hash(1), 3);
        let verdict = history.judge("lb", &[early]);
        assert_eq!(verdict, Verdict { phase: Phase::Running, applied: Some(3) });
    }

    #[test]
    fn a_change_that_leaves_the_plan_as_it_is_needs_no_new_report() {
        let verdict = history(&[1, 1]).judge("lb", &[report(1)]);
        assert_eq!(verdict, Verdict { phase: Phase::Running, applied: Some(2) });
    }
}
