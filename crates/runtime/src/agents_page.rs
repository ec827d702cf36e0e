//! The page `/agents` of the admin endpoint: what each agent of this process has in force now, for `bowline explain`. Every
//! client that reaches the endpoint can read it, so it names no consumer and has no text of an error.

use bowline_core::replicas::Said;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// The agents of a process. A clone shares them.
#[derive(Clone, Debug, Default)]
pub struct AgentsPage(Arc<Mutex<BTreeMap<String, Agent>>>);

#[derive(Debug)]
struct Agent {
    load_balancer: String,
    said: watch::Receiver<Said>,
    reporting: Reporting,
    written: Option<Instant>,
}

/// What an agent says about itself, as the page has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentNow {
    /// Its name among the agents, as in its report.
    pub agent: String,
    /// The load balancer that it serves.
    pub load_balancer: String,
    /// The hash of the plan in force. None: no plan yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// Whether something is wrong with the agent as a whole.
    pub failed: bool,
    /// How many things it refuses or cannot do.
    pub refused: usize,
    /// How its last try to write its report ended.
    pub reporting: Reporting,
    /// Seconds since it last wrote its report. None: it has not written one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported_seconds_ago: Option<u64>,
}

/// How an agent's last try to write its report ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reporting {
    /// The first one is under way.
    #[default]
    Begins,
    /// It was written.
    Written,
    /// The API server says that the agent has no right to write it.
    Forbidden,
    /// It was not written for another reason, such as an API server that is out of reach.
    Failed,
}

/// The page.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// The agents of the process, by name.
    pub agents: Vec<AgentNow>,
}

/// An agent's place on the page. It leaves the page when this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    page: AgentsPage,
    agent: String,
}

impl AgentsPage {
    /// Puts an agent on the page, with what it will say.
    pub(crate) fn add(
        &self,
        agent: &str,
        load_balancer: &str,
        said: watch::Receiver<Said>,
    ) -> Place {
        let load_balancer = load_balancer.to_owned();
        let reporting = Reporting::Begins;
        let entry = Agent { load_balancer, said, reporting, written: None };
        self.0.lock().insert(agent.to_owned(), entry);
        Place { page: self.clone(), agent: agent.to_owned() }
    }

    /// The page now.
    pub fn page(&self) -> Page {
        let agents = self.0.lock();
        let agents = agents.iter().map(|(name, agent)| {
            let said = agent.said.borrow();
            AgentNow {
                agent: name.clone(),
                load_balancer: agent.load_balancer.clone(),
                plan: said.hash.map(|hash| hash.to_string()),
                failed: said.error.is_some(),
                refused: said.refused.len(),
                reporting: agent.reporting,
                reported_seconds_ago: agent.written.map(|at| at.elapsed()).map(whole_seconds),
            }
        });
        Page { agents: agents.collect() }
    }
}

fn whole_seconds(time: Duration) -> u64 {
    time.as_secs()
}

impl Place {
    /// A try to write the report has ended so.
    pub(crate) fn reported(&self, how: Reporting) {
        if let Some(agent) = self.page.0.lock().get_mut(&self.agent) {
            agent.reporting = how;
            if how == Reporting::Written {
                agent.written = Some(Instant::now());
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.page.0.lock().remove(&self.agent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_core::hash::PlanHash;

    #[tokio::test(start_paused = true)]
    async fn the_page_has_what_an_agent_says_now_and_how_its_report_went() {
        let page = AgentsPage::default();
        let (say, said) = watch::channel(Said::default());
        let place = page.add("vm_1", "edge", said);
        let before = AgentNow {
            agent: "vm_1".into(),
            load_balancer: "edge".into(),
            plan: None,
            failed: false,
            refused: 0,
            reporting: Reporting::Begins,
            reported_seconds_ago: None,
        };
        assert_eq!(page.page().agents, std::slice::from_ref(&before));
        place.reported(Reporting::Written);
        tokio::time::advance(Duration::from_secs(7)).await;
        place.reported(Reporting::Forbidden);
        let error = Some("the text of it is nobody's business".to_owned());
        say.send_replace(Said { hash: Some(PlanHash::default()), error, ..Said::default() });
        let now = AgentNow {
            plan: Some(PlanHash::default().to_string()),
            failed: true,
            reporting: Reporting::Forbidden,
            reported_seconds_ago: Some(7),
            ..before
        };
        assert_eq!(page.page().agents, [now]);
        let text = serde_json::to_string(&page.page()).unwrap();
        assert!(!text.contains("nobody's business"), "{text}");
        drop(place);
        assert_eq!(page.page(), Page::default());
    }
}
