//! What agents answer just now at their admin endpoints, beside what they reported. Pure; `crate::cli` asks them.

use super::explain::Explanation;
use super::status::{AgentView, AppliedView};
use super::words::{ago, count};
use bowline_core::hash::PlanHash;
use bowline_runtime::agents_page::{AgentNow, Reporting};
use serde::Serialize;
use std::net::SocketAddr;

/// An agent to ask.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Asked {
    pub(crate) agent: String,
    pub(crate) at: SocketAddr,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Answer {
    /// The agent answers.
    Now(AgentNow),
    /// It cannot be reached from here, for this reason.
    None(String),
}

/// An agent as it answers just now.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NowView {
    answers: bool,
    /// Why it does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    in_force: Option<InForce>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failed: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reporting: Option<Reporting>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reported_seconds_ago: Option<u64>,
}

/// The plan that an agent has in force.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
enum InForce {
    Recorded,
    Other,
    Nothing,
}

impl NowView {
    fn of(answer: &Answer, recorded: PlanHash) -> Self {
        let now = match answer {
            Answer::Now(now) => now,
            Answer::None(why) => {
                return Self {
                    answers: false,
                    why: Some(why.clone()),
                    in_force: None,
                    failed: None,
                    refused: None,
                    reporting: None,
                    reported_seconds_ago: None,
                };
            }
        };
        let in_force = match &now.plan {
            None => InForce::Nothing,
            Some(plan) if *plan == recorded.to_string() => InForce::Recorded,
            Some(_) => InForce::Other,
        };
        Self {
            answers: true,
            why: None,
            in_force: Some(in_force),
            failed: Some(now.failed),
            refused: Some(now.refused),
            reporting: Some(now.reporting),
            reported_seconds_ago: now.reported_seconds_ago,
        }
    }

    fn text(&self) -> String {
        let mut parts = vec![
            match self.in_force {
                Some(InForce::Recorded) => "the recorded plan is in force",
                Some(InForce::Other) => "another plan than the recorded one is in force",
                Some(InForce::Nothing) | None => "no plan is in force",
            }
            .to_owned(),
        ];
        if self.failed == Some(true) {
            parts.push("it failed to apply all of it".to_owned());
        }
        if let Some(refused) = self.refused.filter(|refused| *refused > 0) {
            parts.push(count(refused, "refusal"));
        }
        let last = self.reported_seconds_ago.and_then(|it| i64::try_from(it).ok()).map(ago);
        let last = last.map(|ago| format!(", the last one was written {ago}")).unwrap_or_default();
        match self.reporting {
            Some(Reporting::Forbidden) => {
                parts.push(format!("it has no right to write its report{last}"));
            }
            Some(Reporting::Failed) => parts.push(format!("it cannot write its report{last}")),
            Some(Reporting::Begins) => parts.push("it has not written a report yet".to_owned()),
            Some(Reporting::Written) | None => {}
        }
        parts.join("; ")
    }
}

/// The line on an agent that was asked. None: it was not.
pub(super) fn line(agent: &AgentView) -> Option<String> {
    let (now, at) = (agent.now.as_ref()?, agent.admin?);
    let name = &agent.holder.identity;
    Some(match &now.why {
        None => format!("{name} answers at {at}: {}", now.text()),
        Some(why) => format!(
            "{name} is not reachable from here at {at} ({why}); what is said of it is from its report of {}",
            ago(agent.holder.silent_seconds)
        ),
    })
}

impl AppliedView {
    fn asked(&self) -> Vec<Asked> {
        let agents = self.agents.iter();
        agents
            .filter_map(|it| Some(Asked { agent: it.holder.identity.clone(), at: it.admin? }))
            .collect()
    }

    fn hear(&mut self, answers: &[(Asked, Answer)]) {
        for agent in &mut self.agents {
            let found = answers.iter().find(|(asked, _)| asked.agent == agent.holder.identity);
            agent.now = found.map(|(_, answer)| NowView::of(answer, self.recorded));
        }
    }
}

impl Explanation {
    /// The agents that can say how they are now.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        match self {
            Self::Consumer(view) => {
                view.applied.as_ref().map(AppliedView::asked).unwrap_or_default()
            }
            Self::LoadBalancer(view) => view.applied.asked(),
            Self::Claim(_) | Self::Address(_) => Vec::new(),
        }
    }

    /// Adds what they answered.
    pub(crate) fn hear(&mut self, answers: &[(Asked, Answer)]) {
        match self {
            Self::Consumer(view) => {
                if let Some(applied) = &mut view.applied {
                    applied.hear(answers);
                }
            }
            Self::LoadBalancer(view) => view.applied.hear(answers),
            Self::Claim(_) | Self::Address(_) => {}
        }
    }
}
