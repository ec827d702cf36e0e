//! Turns a decision into the conditions of its holder's status, and into the grant for the planner. Pure functions
//! that decide nothing; the controller calls them when a decision changes.

use super::Answer;
use super::verdict::{Decision, family_name};
use crate::diagnosis::Place;
use crate::dns;
use crate::outcome::{Problem, Reason};
use crate::planner::Grant;
use crate::status::Condition;
use std::net::IpAddr;

impl Answer {
    /// The addresses of both families that a look-up found, or why it found none.
    pub fn of(answers: &dns::Answers) -> Self {
        let found = answers.iter().filter_map(|(_, answer)| answer.as_ref().ok());
        let found: Vec<IpAddr> = found.flat_map(|it| it.addresses()).copied().collect();
        if !found.is_empty() {
            return Self::Addresses(found);
        }
        Self::Failed { reason: failures(answers).into() }
    }
}

fn failures(answers: &dns::Answers) -> String {
    let failed = answers.iter().filter_map(|(_, answer)| answer.as_ref().err());
    let mut told: Vec<String> = failed.map(ToString::to_string).collect();
    told.dedup();
    told.join("; ")
}

/// The condition of a holder that takes its address from a DNS name: with the name, the answer, its TTL, when it is
/// looked up again, and what is wrong. The condition `before`, if it is about this name, stays until the name has
/// been looked up: a controller that just started knows nothing better.
pub fn from_name(
    name: &str,
    report: Option<&dns::Report>,
    decision: Option<&Decision>,
    before: Option<Condition>,
) -> Condition {
    let of_name =
        |it: &Condition| it.message.strip_prefix(name).is_some_and(|it| it.starts_with(' '));
    if let Some(before) = before.filter(|it| report.is_none() && of_name(it)) {
        return before;
    }
    let mut told = vec![match report {
        None => format!("{name} has not been looked up yet"),
        Some(report) => {
            let found: Vec<&dns::Found> =
                report.answers.iter().filter_map(|(_, answer)| answer.as_ref().ok()).collect();
            let texts: Vec<String> =
                found.iter().flat_map(|it| it.addresses()).map(ToString::to_string).collect();
            let ttl = found.iter().map(|it| it.ttl()).min();
            let again = report.next_check.as_secs();
            match ttl {
                Some(ttl) => {
                    let failed = report.answers.iter().filter_map(|(family, answer)| {
                        let failure = answer.as_ref().err()?;
                        Some(format!("; {}: {failure}", family_name(family)))
                    });
                    format!(
                        "{name} is {} (TTL {}s, looked up again after {again}s){}",
                        texts.join(", "),
                        ttl.as_secs(),
                        failed.collect::<String>()
                    )
                }
                None => format!(
                    "{name} cannot be looked up: {} ({})",
                    failures(&report.answers),
                    tried_again(report)
                ),
            }
        }
    }];
    let Some(decision) = decision else {
        let reason = Reason::NamePending.to_string().into();
        return Condition { holds: false, reason, message: told.concat().into() };
    };
    let reason = decision.verdict.reason;
    let holds = reason == Reason::Assigned;
    if !holds && !matches!(reason, Reason::NameFailed | Reason::NamePending) {
        told.push(decision.verdict.message.clone());
    }
    let has: Vec<String> = decision.addresses.iter().map(|it| it.address.to_string()).collect();
    match (holds, has.is_empty()) {
        (true, _) => {}
        (false, true) => told.push("no address is assigned".to_owned()),
        (false, false) => told.push(format!("still assigned: {}", has.join(" and "))),
    }
    told.extend(decision.verdict.remedy.filter(|_| !holds).map(str::to_owned));
    let reason = if holds { "Resolved".to_owned() } else { reason.to_string() };
    Condition { holds, reason: reason.into(), message: told.join("; ").into() }
}

/// The condition that says whether a holder has its addresses. The condition `before` stays while nothing is decided,
/// or while the problem is one that passes in a moment.
pub fn assigned(decision: Option<&Decision>, before: Option<Condition>) -> Option<Condition> {
    let passing = |it: &Decision| it.problem().is_some_and(|it| !it.reason.is_told(Place::Event));
    match decision.filter(|it| !passing(it)) {
        Some(decision) => Some(decision.condition(before)),
        None => before,
    }
}

/// When a failing name is looked up again. The text is written once and not at every retry, so it holds for all of
/// them.
fn tried_again(report: &dns::Report) -> String {
    let (next, most) = (report.next_check.as_secs(), report.retried_within.as_secs());
    match next < most {
        true => format!("tried again after {next}s, then at growing intervals of at most {most}s"),
        false => format!("tried again within {most}s"),
    }
}

impl Decision {
    /// The addresses that a status shows if no load balancer serves them, draining ones included.
    pub fn shown(&self) -> Vec<IpAddr> {
        let drain = self.draining.iter().map(|it| it.address);
        self.addresses.iter().map(|it| it.address).chain(drain).collect()
    }

    /// The grant for the planner: what a load balancer has to serve.
    pub fn grant(&self) -> Grant {
        Grant {
            addresses: self.addresses.iter().map(|it| it.address).collect(),
            draining: self.draining.iter().map(|it| it.address).collect(),
            problem: self.problem(),
        }
    }

    /// The condition that says whether the holder has its addresses. The condition `before`, if it holds, stays while
    /// the holder has an address and its name has not been looked up yet.
    pub fn condition(&self, before: Option<Condition>) -> Condition {
        let pending = self.verdict.reason == Reason::NamePending && !self.addresses.is_empty();
        if let Some(before) = before.filter(|it| pending && it.holds) {
            return before;
        }
        Condition {
            holds: !self.addresses.is_empty(),
            reason: self.verdict.reason.to_string().into(),
            message: self.message().into(),
        }
    }

    /// Why the holder does not have what it asks for.
    pub fn problem(&self) -> Option<Problem> {
        match self.verdict.reason {
            Reason::Assigned | Reason::Released => None,
            // The holder keeps its addresses, and the new ones follow in a moment.
            Reason::Recording | Reason::NamePending if !self.addresses.is_empty() => None,
            reason => Some(Problem::new(reason, self.message())),
        }
    }

    fn message(&self) -> String {
        match self.verdict.remedy {
            None => self.verdict.message.clone(),
            Some(remedy) => format!("{}; {remedy}", self.verdict.message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addresses::{Granted, Verdict};

    fn has(reason: Reason) -> Decision {
        let granted = Granted { address: [192, 0, 2, 1].into(), pool: None };
        let verdict = Verdict::new(reason, "because");
        Decision { addresses: vec![granted], draining: Vec::new(), verdict }
    }

    fn said(message: &str) -> Condition {
        Condition { holds: true, reason: "Said".into(), message: message.into() }
    }

    #[test]
    fn what_was_said_of_a_name_counts_until_it_has_been_looked_up() {
        let (pending, before) = (has(Reason::NamePending), said("a.example is 192.0.2.1"));
        let told =
            |name, before: &Condition| from_name(name, None, Some(&pending), Some(before.clone()));
        assert_eq!(told("a.example", &before), before);
        assert_eq!(&*told("b.example", &before).reason, "NamePending", "that was another name");
        assert_eq!(&*told("a.exam", &before).reason, "NamePending", "and so was that");
        assert_eq!(&*from_name("a.example", None, Some(&pending), None).reason, "NamePending");
        assert_eq!(pending.condition(Some(before.clone())), before);
        assert_eq!(pending.problem(), None, "nothing is wrong");
        assert_eq!(&*has(Reason::NameFailed).condition(Some(before)).reason, "NameFailed");
    }

    #[test]
    fn what_was_said_of_addresses_counts_until_something_is_decided() {
        let before = said("192.0.2.1 of pool public");
        let none = |reason| Decision { addresses: Vec::new(), ..has(reason) };
        assert_eq!(assigned(None, None), None);
        assert_eq!(assigned(None, Some(before.clone())).as_ref(), Some(&before));
        let recording = none(Reason::Recording);
        assert_eq!(assigned(Some(&recording), Some(before.clone())).as_ref(), Some(&before));
        let refused = none(Reason::NotAllowed);
        let told = assigned(Some(&refused), Some(before)).unwrap();
        assert_eq!((told.holds, &*told.reason), (false, "NotAllowed"));
    }

    #[test]
    fn what_the_table_tells_of_a_name_is_the_reason_of_its_condition() {
        for reason in Reason::ALL.into_iter().filter(|it| it.is_told(Place::AddressFromDns)) {
            let condition = from_name("a.example", None, Some(&has(reason)), None);
            assert_eq!(*condition.reason, *reason.to_string());
        }
    }

    #[test]
    fn a_name_that_fails_is_told_when_it_is_tried_again_at_the_latest() {
        use crate::dns::{Answers, Failure, FailureKind, Report};
        use std::time::Duration;
        let failed = |next: u64, most: u64| {
            let failure = Err(Failure::new(FailureKind::NxDomain, ""));
            let report = Report {
                answers: Answers { v4: Some(failure), v6: None },
                next_check: Duration::from_secs(next),
                retried_within: Duration::from_secs(most),
            };
            from_name("a.example", Some(&report), None, None).message.to_string()
        };
        assert_eq!(
            failed(5, 66),
            "a.example cannot be looked up: the name does not exist (NXDOMAIN) (tried again after 5s, then at \
             growing intervals of at most 66s)"
        );
        assert!(failed(66, 66).ends_with("(tried again within 66s)"));
    }
}
