//! The lines that `bowline up` prints for changes: each with its time. Before the greeting only what does not pass by itself is
//! printed, and its end; with the greeting what else is wrong then. Roles send the changes; `up` starts this beside them.

use crate::cli::paint::Paint;
use crate::cli::say::say;
use crate::visible::visible;
use bowline_core::diagnosis::Place;
use bowline_runtime::observe::Change;
use k8s_openapi::jiff::Zoned;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;

/// Prints changes as they come.
pub(super) struct Teller {
    changes: Receiver<Arc<Change>>,
    greeted: watch::Sender<bool>,
    blocked: watch::Sender<bool>,
}

/// How far the start has come.
#[derive(Clone)]
pub(super) struct Progress {
    greeted: watch::Sender<bool>,
    blocked: watch::Receiver<bool>,
}

impl Progress {
    /// From now on every change is printed.
    pub(super) fn greeted(&self) {
        self.greeted.send_replace(true);
    }

    /// Returns when something is in the way that does not go by itself: a listener that cannot be opened.
    pub(super) async fn blocked(&self) {
        let mut blocked = self.blocked.clone();
        if blocked.wait_for(|blocked| *blocked).await.is_err() {
            std::future::pending().await
        }
    }
}

impl Teller {
    pub(super) fn new(changes: Receiver<Arc<Change>>) -> Self {
        Self { changes, greeted: watch::Sender::new(false), blocked: watch::Sender::new(false) }
    }

    pub(super) fn progress(&self) -> Progress {
        Progress { greeted: self.greeted.clone(), blocked: self.blocked.subscribe() }
    }

    /// Runs until there are no roles any more.
    pub(super) async fn run(mut self) {
        let paint = Paint::stdout();
        let (mut start, mut hears) = (Start::default(), self.greeted.subscribe());
        loop {
            let change = tokio::select! {
                change = self.changes.recv() => change,
                Ok(()) = hears.changed() => {
                    start.end().iter().for_each(|held| tell(held, paint));
                    continue;
                }
            };
            let greeted = *self.greeted.borrow();
            match change {
                Ok(change) => {
                    if greeted {
                        start.end().iter().for_each(|held| tell(held, paint));
                        tell(&change, paint);
                    } else if start.shows(&change) {
                        tell(&change, paint);
                    }
                    if is_blocking(&change) {
                        self.blocked.send_replace(true);
                    }
                }
                Err(RecvError::Lagged(missed)) if greeted => {
                    say(format_args!("… and {missed} more changes"));
                }
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            }
        }
    }
}

/// The time of day.
fn time() -> String {
    Zoned::now().strftime("%H:%M:%S").to_string()
}

/// Prints a change.
fn tell(change: &Change, paint: Paint) {
    say(format_args!("{} {}", paint.faint(time()), line(change, paint)));
}

/// What was wrong before the greeting. Much of it passes while objects come one after the other, and is not printed.
#[derive(Debug, Default)]
struct Start {
    /// By subject and reason.
    wrong: BTreeMap<(String, String), Arc<Change>>,
    /// What was printed.
    shown: BTreeSet<(String, String)>,
}

impl Start {
    /// Whether a change is printed before the greeting, too: what does not pass, and its end. What else is wrong is held.
    fn shows(&mut self, change: &Arc<Change>) -> bool {
        let about = match &**change {
            Change::Refused { consumer, problem } => {
                (consumer.to_string(), problem.reason.to_string())
            }
            Change::Solved { consumer, reason } => (consumer.to_string(), reason.to_string()),
            Change::State { object, .. } => (object.clone(), String::new()),
            Change::Left { consumer } => return self.ends_all(&consumer.to_string()),
            Change::Trouble(_) | Change::Works(_) => return true,
            _ => return false,
        };
        let ends = match &**change {
            Change::Solved { .. } => true,
            Change::State { state, .. } => state.well,
            _ => false,
        };
        if ends {
            self.wrong.remove(&about);
            return self.shown.remove(&about);
        }
        if is_blocking(change) {
            self.shown.insert(about);
            return true;
        }
        self.wrong.insert(about, Arc::clone(change));
        false
    }

    /// A consumer is gone, with all that was wrong with it. Whether some of that was printed.
    fn ends_all(&mut self, consumer: &str) -> bool {
        self.wrong.retain(|(about, _), _| about != consumer);
        let before = self.shown.len();
        self.shown.retain(|(about, _)| about != consumer);
        self.shown.len() < before
    }

    /// What is still wrong, and was not printed.
    fn end(&mut self) -> Vec<Arc<Change>> {
        std::mem::take(&mut self.wrong).into_values().collect()
    }
}

/// Whether waiting does not help.
fn is_blocking(change: &Change) -> bool {
    matches!(change, Change::Refused { problem, .. }
        if problem.reason.is_told(Place::Start))
}

/// A change as a line; problems stand out.
fn line(change: &Change, paint: Paint) -> String {
    let told = change.to_string();
    let line = visible(&told);
    match change {
        Change::Refused { .. } | Change::Trouble(_) => paint.bad(line),
        Change::State { state, .. } if !state.well => paint.bad(line),
        Change::Live { .. } | Change::State { .. } | Change::Works(_) => paint.good(line),
        _ => line.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_core::key::{ConsumerKind, ConsumerRef};
    use bowline_core::lines::State;
    use bowline_core::outcome::{Problem, Reason};

    fn service(name: &str) -> ConsumerRef {
        ConsumerRef {
            kind: ConsumerKind::Service,
            namespace: "shop".into(),
            name: name.into(),
            uid: "1".into(),
        }
    }

    #[test]
    fn before_the_greeting_there_is_what_does_not_pass_and_after_it_what_did_not() {
        let refused = |reason| Change::Refused {
            consumer: service("web"),
            problem: Problem::new(reason, "why".to_owned()),
        };
        let solved = |reason| Change::Solved { consumer: service("web"), reason };
        let claim = |name: &str, well| Change::State {
            object: format!("LoadBalancerClaim shop/{name}"),
            state: State { text: String::new(), well },
        };
        assert!(is_blocking(&refused(Reason::BindFailed)));
        assert!(!is_blocking(&refused(Reason::ClaimNotBound)));
        let mut start = Start::default();
        let changes = [
            (Change::Live { consumer: service("web"), points: Vec::new() }, false),
            (Change::Opened { listener: "127.0.0.1:80/TCP".to_owned() }, false),
            (refused(Reason::ClaimNotBound), false),
            (refused(Reason::BindFailed), true),
            (solved(Reason::ClaimNotBound), false),
            (solved(Reason::BindFailed), true),
            (claim("a", false), false),
            (claim("b", false), false),
            (claim("a", true), false),
            (Change::Trouble("no API".to_owned()), true),
        ];
        for (change, shown) in changes {
            let change = Arc::new(change);
            assert_eq!(start.shows(&change), shown, "{change}");
        }
        assert_eq!(start.end(), [Arc::new(claim("b", false))]);
        assert_eq!(start.end(), []);
    }

    #[test]
    fn what_was_wrong_with_a_deleted_service_is_not_printed_with_the_greeting() {
        let refused = |name: &str, reason| {
            let problem = Problem::new(reason, "why".to_owned());
            Arc::new(Change::Refused { consumer: service(name), problem })
        };
        let left = |name: &str| Arc::new(Change::Left { consumer: service(name) });
        let mut start = Start::default();
        assert!(!start.shows(&refused("a", Reason::ClaimNotBound)));
        assert!(!start.shows(&refused("b", Reason::ClaimNotBound)));
        assert!(start.shows(&refused("c", Reason::BindFailed)));
        let shown = ["a", "c", "c"].map(|name| start.shows(&left(name)));
        assert_eq!(shown, [false, true, false], "the end of what was printed");
        assert_eq!(start.end(), [refused("b", Reason::ClaimNotBound)]);
    }

    #[test]
    fn a_line_says_the_state_and_the_end_of_a_problem() {
        let lines = [
            Change::Solved { consumer: service("web"), reason: Reason::ClaimNotBound },
            Change::Left { consumer: service("web") },
            Change::State {
                object: "AddressPool public".to_owned(),
                state: bowline_core::lines::pool([].into_iter(), 0),
            },
        ]
        .map(|change| line(&change, Paint::plain()));
        assert_eq!(
            lines,
            [
                "Service shop/web: ClaimNotBound is solved",
                "Service shop/web is no longer served",
                "AddressPool public has no address left",
            ]
        );
    }
}
