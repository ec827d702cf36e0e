//! Keeps the tasks of a role running. A task that panics or ends by itself is started again; until it works
//! again, the process is not ready and the role can report what it does not see. Agents use it, because
//! ending the process would end what they serve. The controller serves no traffic, so it ends instead (see
//! [`Alarm`]), and another one leads.

use crate::admin::Readiness;
use crate::metrics::{self, Metrics};
use crate::random;
use crate::roles::Context;
use crate::watch::Seen;
use bowline_core::backoff::Backoff;
use bowline_core::clock::in_words;
use futures::FutureExt as _;
use std::any::Any;
use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};

/// A task that ran for this long did not fail at its start, so its backoff begins anew.
const LONG: Duration = Duration::from_secs(60);
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(15);

/// The tasks of one role. Dropping it ends them.
pub(crate) struct Keeper {
    readiness: Readiness,
    metrics: Metrics,
    broken: Arc<watch::Sender<BTreeSet<String>>>,
    tasks: JoinSet<()>,
}

impl Keeper {
    pub(crate) fn new(context: &Context) -> Self {
        Self {
            readiness: context.readiness.clone(),
            metrics: context.metrics.clone(),
            broken: Arc::new(watch::Sender::new(BTreeSet::new())),
            tasks: JoinSet::new(),
        }
    }

    /// The names of the tasks that ended by themselves and have not worked since.
    pub(crate) fn broken(&self) -> watch::Receiver<BTreeSet<String>> {
        self.broken.subscribe()
    }

    /// Starts a task, and starts it again whenever it ends. The task calls [`Works`] when it does its work.
    pub(crate) fn keep<F>(
        &mut self,
        name: impl Into<String>,
        mut start: impl FnMut(Works) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send,
    {
        let works = Works {
            name: name.into().into(),
            readiness: self.readiness.clone(),
            broken: Arc::clone(&self.broken),
        };
        let metrics = self.metrics.clone();
        self.tasks.spawn(async move {
            let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
            loop {
                let begun = Instant::now();
                let run = AssertUnwindSafe(async { start(works.clone()).await });
                let ended = run.catch_unwind().await;
                works.broke();
                metrics.error(metrics::TASK_ENDED);
                if begun.elapsed() > LONG {
                    backoff.worked();
                }
                let wait = backoff.failed(random::number());
                let (task, why) = (&*works.name, why(&ended));
                tracing::error!(task, why, wait = %in_words(wait), "a task has ended by itself; it is restarted");
                tokio::time::sleep(wait).await;
            }
        });
    }

    /// Ends all tasks.
    pub(crate) async fn shutdown(&mut self) {
        self.tasks.shutdown().await;
        for name in self.broken.send_replace(BTreeSet::new()) {
            self.readiness.reached(&awaited(&name));
        }
    }
}

/// The handle by which a task reports that it works.
#[derive(Clone)]
pub(crate) struct Works {
    name: Arc<str>,
    readiness: Readiness,
    broken: Arc<watch::Sender<BTreeSet<String>>>,
}

impl Works {
    /// The task works.
    pub(crate) fn now(&self) {
        if self.broken.send_if_modified(|broken| broken.remove(&*self.name)) {
            self.readiness.reached(&awaited(&self.name));
            tracing::info!(task = &*self.name, "it works again");
        }
    }

    /// A watch works once it has delivered all objects.
    pub(crate) fn seen<K>(&self, seen: &Seen<K>) {
        if matches!(seen, Seen::Done) {
            self.now();
        }
    }

    /// For a task that no keeper runs.
    #[cfg(test)]
    pub(crate) fn of_nobody() -> Self {
        let (readiness, broken) = (Readiness::default(), watch::Sender::new(BTreeSet::new()));
        Self { name: "a test".into(), readiness, broken: Arc::new(broken) }
    }

    fn broke(&self) {
        // Readiness first: a reader that sees the broken task must also see that the process is not ready.
        self.readiness.awaits(awaited(&self.name));
        self.broken.send_if_modified(|broken| broken.insert(self.name.to_string()));
    }
}

fn awaited(name: &str) -> String {
    format!("{name} to work again")
}

fn why(ended: &Result<(), Box<dyn Any + Send>>) -> &str {
    let Err(panic) = ended else { return "it returned" };
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic")
}

/// Reports that a task of a role has panicked, for roles that end then.
pub(crate) struct Alarm {
    sender: mpsc::Sender<&'static str>,
    receiver: mpsc::Receiver<&'static str>,
}

impl Default for Alarm {
    fn default() -> Self {
        let (sender, receiver) = mpsc::channel(1);
        Self { sender, receiver }
    }
}

impl Alarm {
    /// Spawns a task. A normal return is no alarm.
    pub(crate) fn spawn(
        &self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        let sender = self.sender.clone();
        tokio::spawn(async move {
            let ended = AssertUnwindSafe(task).catch_unwind().await;
            if ended.is_err() {
                tracing::error!(task = name, why = why(&ended), "a task has ended by itself");
                let _ = sender.try_send(name);
            }
        })
    }

    /// Resolves with the name of the first task that panicked.
    pub(crate) async fn rings(&mut self) -> &'static str {
        match self.receiver.recv().await {
            Some(name) => name,
            // Not reached: this value holds a sender itself.
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[tokio::test(start_paused = true)]
    async fn a_task_that_panics_is_begun_again_and_not_ready_until_it_works() {
        let (context, _stop) = Context::new();
        context.readiness.awaits("a plan");
        context.readiness.reached("a plan");
        let mut keeper = Keeper::new(&context);
        let mut broken = keeper.broken();
        let starts = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&starts);
        let (go, gone) = watch::channel(false);
        keeper.keep("the watch", move |works| {
            let (number, mut gone) = (counted.fetch_add(1, Ordering::SeqCst), gone.clone());
            async move {
                match number {
                    0 => panic!("a test of panics"),
                    1 => {}
                    _ => {
                        gone.wait_for(|go| *go).await.unwrap();
                        works.now();
                        std::future::pending::<()>().await;
                    }
                }
            }
        });
        while starts.load(Ordering::SeqCst) < 3 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(context.readiness.missing(), ["the watch to work again"]);
        assert_eq!(*broken.borrow_and_update(), BTreeSet::from(["the watch".to_owned()]));
        assert!(context.metrics.text().contains("bowline_errors_total{reason=\"TaskEnded\"} 2"));
        go.send(true).unwrap();
        broken.changed().await.unwrap();
        assert!(broken.borrow().is_empty());
        assert_eq!(context.readiness.missing(), Vec::<String>::new());
    }

    #[tokio::test]
    async fn a_role_that_ends_waits_for_none_of_its_tasks() {
        let (context, _stop) = Context::new();
        let mut keeper = Keeper::new(&context);
        keeper.keep("the watch", |_| async { panic!("a test of panics") });
        keeper.broken().wait_for(|broken| !broken.is_empty()).await.unwrap();
        keeper.shutdown().await;
        assert_eq!(context.readiness.missing(), Vec::<String>::new());
    }

    #[tokio::test]
    async fn only_a_panic_is_an_alarm() {
        let mut alarm = Alarm::default();
        alarm.spawn("one that returns", async {}).await.unwrap();
        alarm.spawn("one that panics", async { panic!("a test of panics") }).await.unwrap();
        assert_eq!(alarm.rings().await, "one that panics");
    }
}
