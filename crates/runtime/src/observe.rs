//! Changes for people who look on: one line per change, as `bowline up` prints them. Roles send changes
//! and never wait for a listener; a slow listener misses lines.

use bowline_core::key::{ConsumerRef, ObjectKey};
use bowline_core::lines::State;
use bowline_core::outcome::{Problem, Reason};
use bowline_core::point::Point;
use std::fmt;
use std::sync::Arc;
use tokio::sync::broadcast;

/// A change that a person may want to see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A load balancer accepts connections at a listener.
    Opened {
        /// The address and port with its protocol, such as `127.0.0.1:8080/TCP`.
        listener: String,
    },
    /// A load balancer no longer accepts connections at a listener.
    Closed {
        /// The address and port with its protocol.
        listener: String,
    },
    /// The members of a Service's pools have changed.
    Members {
        /// The Service.
        service: ObjectKey,
        /// How many there were.
        before: usize,
        /// How many there are.
        after: usize,
    },
    /// The rules of a host have changed.
    Site {
        /// The host.
        host: String,
        /// How many rules it has now; 0: it is gone.
        rules: usize,
    },
    /// A consumer can be reached.
    Live {
        /// The consumer.
        consumer: ConsumerRef,
        /// Where it can be reached.
        points: Vec<Point>,
    },
    /// A consumer was refused, or does not get all that it asks for.
    Refused {
        /// The consumer.
        consumer: ConsumerRef,
        /// Why.
        problem: Problem,
    },
    /// A consumer can be reached no more.
    Left {
        /// The consumer.
        consumer: ConsumerRef,
    },
    /// A problem of a consumer has ended.
    Solved {
        /// The consumer.
        consumer: ConsumerRef,
        /// What it was refused for.
        reason: Reason,
    },
    /// A claim or pool is in another state.
    State {
        /// Its kind and name.
        object: String,
        /// The state.
        state: State,
    },
    /// This process has become the leader, or has ceased to be.
    Leading(bool),
    /// Something failed and will be tried again.
    Trouble(String),
    /// What failed works.
    Works(String),
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Opened { listener } => write!(f, "listener {listener} open"),
            Self::Closed { listener } => write!(f, "listener {listener} closed"),
            Self::Members { service, before, after } => {
                let word = if *after == 1 { "member" } else { "members" };
                write!(f, "{service}: {before} → {after} {word}")
            }
            Self::Site { host, rules: 0 } => write!(f, "host {host}: gone"),
            Self::Site { host, rules: 1 } => write!(f, "host {host}: 1 rule"),
            Self::Site { host, rules } => write!(f, "host {host}: {rules} rules"),
            Self::Live { consumer, points } => {
                write!(f, "{consumer} is live at ")?;
                let texts: Vec<_> = points.iter().map(ToString::to_string).collect();
                f.write_str(&texts.join(", "))
            }
            Self::Refused { consumer, problem } => {
                write!(f, "{consumer}: {}: {}", problem.reason, problem.message)
            }
            Self::Left { consumer } => write!(f, "{consumer} is no longer served"),
            Self::Solved { consumer, reason } => write!(f, "{consumer}: {reason} is solved"),
            Self::State { object, state } => write!(f, "{object}{}", state.text),
            Self::Leading(true) => f.write_str("this controller leads"),
            Self::Leading(false) => f.write_str("this controller no longer leads"),
            Self::Trouble(what) | Self::Works(what) => f.write_str(what),
        }
    }
}

/// The channel of changes: roles send them, listeners subscribe.
#[derive(Clone, Debug)]
pub struct Changes {
    sender: broadcast::Sender<Arc<Change>>,
}

impl Default for Changes {
    fn default() -> Self {
        Self { sender: broadcast::Sender::new(1024) }
    }
}

impl Changes {
    /// Subscribes to all changes from now on.
    pub fn listen(&self) -> broadcast::Receiver<Arc<Change>> {
        self.sender.subscribe()
    }

    /// Whether there is a listener: a change that is costly to describe is described only then.
    pub fn is_heard(&self) -> bool {
        self.sender.receiver_count() > 0
    }

    /// Sends a change to the listeners, if there are any.
    pub fn tell(&self, change: Change) {
        // No listener is the normal case.
        let _ = self.sender.send(Arc::new(change));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_read_as_short_lines() {
        let service = ObjectKey::new("shop", "web");
        let lines = [
            Change::Members { service, before: 3, after: 2 },
            Change::Opened { listener: "127.0.0.1:8080/TCP".to_owned() },
            Change::Site { host: "shop.example".to_owned(), rules: 1 },
        ]
        .map(|change| change.to_string());
        assert_eq!(
            lines,
            [
                "shop/web: 3 → 2 members",
                "listener 127.0.0.1:8080/TCP open",
                "host shop.example: 1 rule",
            ]
        );
    }
}
