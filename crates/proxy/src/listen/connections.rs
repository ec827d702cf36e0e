//! The connections of a listener: they are asked to end, and cut when they did not. Each is a task, and
//! is cut by stopping it, so that none has to look for that with every byte that it carries.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// The connections of a listener.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    ending: AtomicBool,
    ask: Notify,
    /// What stops each; none while it is being started.
    tasks: Mutex<BTreeMap<u64, Option<AbortHandle>>>,
}

/// One of them, until it is dropped.
pub(super) struct Held {
    of: Arc<Connections>,
    number: u64,
}

impl Connections {
    /// Whether they were asked to end.
    pub(crate) fn are_ending(&self) -> bool {
        self.ending.load(Ordering::SeqCst)
    }

    /// Resolves once they are asked to end.
    pub(crate) async fn asked(&self) {
        // Made before the look, so that it hears of what happens after it.
        let asked = self.ask.notified();
        if !self.are_ending() {
            asked.await;
        }
    }

    /// Asks all to end.
    pub(super) fn ask(&self) {
        self.ending.store(true, Ordering::SeqCst);
        self.ask.notify_waiters();
    }

    /// Starts one more, which holds on to what it is given. Its number is one that no other has. Nobody
    /// may cut meanwhile.
    pub(super) fn start<E>(
        self: &Arc<Self>,
        number: u64,
        spawn: impl FnOnce(Held) -> Result<AbortHandle, E>,
    ) -> Result<(), E> {
        let held = Held { of: self.clone(), number };
        self.tasks.lock().insert(number, None);
        let task = spawn(held)?;
        // One that has ended by now is no longer there, and stays so.
        if let Some(started) = self.tasks.lock().get_mut(&number) {
            *started = Some(task);
        }
        Ok(())
    }

    /// Ends all that are left.
    pub(super) fn cut(&self) {
        let tasks = std::mem::take(&mut *self.tasks.lock());
        for task in tasks.into_values().flatten() {
            task.abort();
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.of.tasks.lock().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use std::time::Duration;

    fn start(connections: &Arc<Connections>, number: u64, work: impl Future + Send + 'static) {
        let started: Result<_, Infallible> = connections.start(number, |held| {
            let task = async move {
                work.await;
                drop(held);
            };
            Ok(tokio::spawn(task).abort_handle())
        });
        started.unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn nothing_is_left_of_connections_that_ended_however_soon() {
        let connections = Arc::<Connections>::default();
        for number in 0..2_000 {
            start(&connections, number, std::future::ready(()));
        }
        let ended = async {
            while !connections.tasks.lock().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(30), ended).await;
        assert!(waited.is_ok(), "{:?} are left", connections.tasks.lock().keys());
    }

    #[test]
    fn nothing_is_left_of_a_connection_that_cannot_be_started() {
        let connections = Arc::<Connections>::default();
        let failed = connections.start(1, |held| {
            drop(held);
            Err("gone")
        });
        assert_eq!(failed, Err("gone"));
        assert!(connections.tasks.lock().is_empty());
    }

    #[tokio::test]
    async fn what_is_left_is_cut() {
        let connections = Arc::<Connections>::default();
        let (sender, cut) = tokio::sync::oneshot::channel::<()>();
        start(&connections, 1, async move {
            std::future::pending::<()>().await;
            drop(sender);
        });
        connections.cut();
        cut.await.unwrap_err();
    }

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
