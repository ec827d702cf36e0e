//! Asks the connections of a listener to end. It cuts none: a connection that stays is cut through
//! its place ([`crate::places`]).

use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Notify;

/// The connections of a listener.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    ending: AtomicBool,
    ask: Notify,
}

impl Connections {
    /// Whether the connections were asked to end.
    pub(crate) fn are_ending(&self) -> bool {
        self.ending.load(Ordering::SeqCst)
    }

    /// Resolves once the connections are asked to end.
    pub(crate) async fn asked(&self) {
        // Created before the check, so that a later request to end is not missed.
        let asked = self.ask.notified();
        if !self.are_ending() {
            asked.await;
        }
    }

    /// Asks all connections to end.
    pub(super) fn ask(&self) {
        self.ending.store(true, Ordering::SeqCst);
        self.ask.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[tokio::test]
    async fn who_waits_and_who_comes_later_are_both_asked() {
        let connections = Arc::<Connections>::default();
        let waiting = tokio::spawn({
            let connections = connections.clone();
            async move { connections.asked().await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        connections.ask();
        waiting.await.unwrap();
        connections.asked().await;
    }
}
