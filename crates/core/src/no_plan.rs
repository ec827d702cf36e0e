//! What an agent says while its load balancer has no Plan, and when it looks the load balancer up: less and less often, and
//! the same line not again for a while. A name that is near is suggested only where the load balancer certainly does not
//! exist: an agent that follows the hint would serve another load balancer. No I/O; the runtime's agent looks and logs.

use crate::clock::Uptime;
use crate::lines::Reminder;
use crate::nearest::nearest;
use std::collections::BTreeSet;
use std::time::Duration;

/// How long a load balancer may have no Plan until it is looked up.
pub const FIRST: Duration = Duration::from_secs(5);
/// The longest time between two looks.
pub const LONGEST: Duration = Duration::from_secs(300);
/// How often the same is said.
const AGAIN: Duration = Duration::from_secs(600);
/// How many other load balancers a line names.
const MOST_NAMED: usize = 5;

/// What a look at the load balancer shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// It exists, and no Service or Ingress uses it yet.
    Unused,
    /// It exists, and its agents have to run something else; why this agent may not serve it.
    Other(String),
    /// It does not exist; these do.
    Missing(BTreeSet<String>),
    /// The agent may not read it.
    Forbidden,
    /// The API does not answer, or with an error.
    Failed,
}

/// A line for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// What it says.
    pub text: String,
    /// Whether the agent waits for something that an administrator has to mend.
    pub wrong: bool,
}

/// The looks of one agent at a load balancer that has no Plan.
#[derive(Debug)]
pub struct NoPlan {
    reminder: Reminder,
    wait: Duration,
}

impl Default for NoPlan {
    fn default() -> Self {
        Self { reminder: Reminder::new(AGAIN), wait: FIRST }
    }
}

impl NoPlan {
    /// How long the agent waits before the next look.
    pub fn wait(&self) -> Duration {
        self.wait
    }

    /// The load balancer has a Plan, or the Plans are not listed: it is not looked up.
    pub fn is_planned(&mut self) {
        *self = Self::default();
    }

    /// Takes what a look shows, and returns what to log. An error says nothing of the load balancer, and other lines tell of
    /// the API.
    pub fn looked(&mut self, load_balancer: &str, found: &Found, now: Uptime) -> Option<Line> {
        self.wait = (self.wait * 2).min(LONGEST);
        let (text, wrong) = match found {
            Found::Failed => return None,
            Found::Unused => {
                let text = format!(
                    "waits: load balancer {load_balancer} exists, and no Service or Ingress uses it yet"
                );
                (text, false)
            }
            Found::Other(why) => (format!("waits: {why}"), true),
            Found::Forbidden => {
                let text = format!(
                    "waits: load balancer {load_balancer} has no Plan: it does not exist, or nothing uses it yet. \
                     Which of the two is unknown: the agent may not get loadbalancers.bowline.dev {load_balancer}"
                );
                (text, true)
            }
            Found::Missing(others) => {
                let others = suggestion(load_balancer, others);
                (format!("waits: load balancer {load_balancer} does not exist{others}"), true)
            }
        };
        let says = self.reminder.says(&text.as_str().into(), now);
        says.then_some(Line { text, wrong })
    }
}

/// The load balancer that is probably meant, or the first of those that exist.
fn suggestion(load_balancer: &str, others: &BTreeSet<String>) -> String {
    let all = others.iter().map(String::as_str);
    match nearest(load_balancer, all.clone()) {
        Some(name) => format!(". Did you mean {name}?"),
        None if others.is_empty() => String::new(),
        None => {
            let more = if others.len() > MOST_NAMED { ", …" } else { "" };
            format!("; there are {}{more}", all.take(MOST_NAMED).collect::<Vec<_>>().join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn others() -> BTreeSet<String> {
        ["edge-2", "local"].map(str::to_owned).into()
    }

    fn said(load_balancer: &str, found: &Found) -> Option<(String, bool)> {
        let line = NoPlan::default().looked(load_balancer, found, Duration::ZERO)?;
        Some((line.text, line.wrong))
    }

    #[test]
    fn a_load_balancer_that_does_not_exist_is_told_with_the_nearest_that_does() {
        for (name, expected) in [
            ("lcoal", "waits: load balancer lcoal does not exist. Did you mean local?"),
            ("nosuch", "waits: load balancer nosuch does not exist; there are edge-2, local"),
        ] {
            assert_eq!(said(name, &Found::Missing(others())), Some((expected.to_owned(), true)));
        }
    }

    #[test]
    fn an_agent_that_may_not_look_is_told_which_right_it_lacks_and_no_other_name() {
        let (text, _) = said("edge-1", &Found::Forbidden).expect("a line");
        let expected = "waits: load balancer edge-1 has no Plan: it does not exist, or nothing uses it yet. Which of the \
                        two is unknown: the agent may not get loadbalancers.bowline.dev edge-1";
        assert_eq!(text, expected);
    }

    #[test]
    fn an_error_of_the_api_says_nothing_and_an_idle_load_balancer_is_no_warning() {
        assert_eq!(said("edge", &Found::Failed), None);
        let expected = "waits: load balancer edge exists, and no Service or Ingress uses it yet";
        assert_eq!(said("edge", &Found::Unused), Some((expected.to_owned(), false)));
    }

    #[test]
    fn looks_become_rarer_until_there_is_a_plan_and_the_same_line_is_said_every_ten_minutes() {
        let (mut no_plan, mut now, mut said) = (NoPlan::default(), Duration::ZERO, Vec::new());
        for _ in 0..10 {
            now += no_plan.wait();
            if no_plan.looked("edge", &Found::Unused, now).is_some() {
                said.push(now.as_secs());
            }
        }
        assert_eq!((no_plan.wait(), said), (LONGEST, vec![5, 615, 1_215]));
        no_plan.is_planned();
        assert_eq!(no_plan.wait(), FIRST);
        assert!(no_plan.looked("edge", &Found::Unused, now).is_some());
    }
}
