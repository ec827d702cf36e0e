//! The loop around every controller: feeds watch events into the controller's index, coalesces them,
//! carries out the actions that the index plans, and retries failed ones. It decides nothing; each
//! controller's `run` calls it.

use super::queue::Queue;
use super::table::Record;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use jiff::Timestamp;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::future::Future;
use std::pin::pin;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

/// How long a changed key waits for further changes of the same key.
const COALESCE: Duration = Duration::from_millis(20);
/// The longest delay before a failed key is retried.
const LONGEST_RETRY: Duration = Duration::from_secs(30);
/// The longest delay before requeueing a key whose actions only need more time.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// The most keys that are worked on at once.
const WORKERS: usize = 16;
/// The most events that wait between the watches and the index.
const BACKLOG: usize = 1024;

/// The pure part of a controller: what was observed, and what to do about it.
pub(super) trait Index: Send {
    /// An event of a watch.
    type Event: Send;
    /// What is planned and retried on its own.
    type Key: Ord + Clone + Debug + Send;
    /// An action of a plan.
    type Action: Debug + Send;

    /// Takes in an event. Returns the keys that it concerns.
    fn observe(&mut self, event: Self::Event) -> Vec<Self::Key>;

    /// Whether the index has observed enough to plan.
    fn ready(&self) -> bool;

    /// What to do about a key.
    fn plan(&self, key: &Self::Key, now: Timestamp) -> Plan<Self::Action>;
}

/// What the index plans for a key.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Plan<A> {
    /// Nothing until an event.
    Idle,
    /// Nothing before this time; then the key is due again.
    At(Timestamp),
    /// These actions, in this order.
    Do(Vec<A>),
}

/// The result of an action that did not fail.
#[derive(Debug)]
pub(super) enum Outcome<E> {
    /// Done. The index gets these events now, before the watch delivers them.
    Done(Vec<E>),
    /// Not finished yet: the key is requeued.
    Again,
}

/// The part of a controller that talks to the API.
pub(super) trait Act<I: Index>: Clone + Send {
    /// Carries an action out.
    fn act(
        &self,
        action: I::Action,
    ) -> impl Future<Output = Result<Outcome<I::Event>, kube::Error>> + Send;
}

/// The watches of a controller. They end when this value is dropped.
pub(super) struct Sources<E> {
    sender: mpsc::Sender<E>,
    receiver: mpsc::Receiver<E>,
    tasks: JoinSet<()>,
}

impl<E: Send + 'static> Sources<E> {
    pub(super) fn new() -> Self {
        let (sender, receiver) = mpsc::channel(BACKLOG);
        Self { sender, receiver, tasks: JoinSet::new() }
    }

    /// Watches a kind. Each object is converted to a small record at once, and `event` wraps it in the
    /// index's event type.
    pub(super) fn watch<K, Key, V>(
        mut self,
        api: Api<K>,
        config: watcher::Config,
        record: fn(K) -> (Key, V),
        event: fn(Event<(Key, V)>) -> E,
    ) -> Self
    where
        K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
        Key: Send + 'static,
        V: Record + Send + 'static,
    {
        self.tasks.spawn(follow(api, config, record, event, self.sender.clone()));
        self
    }

    /// Adds another source of events. It must run until the channel is closed.
    pub(super) fn feed<F>(mut self, source: impl FnOnce(mpsc::Sender<E>) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.tasks.spawn(source(self.sender.clone()));
        self
    }
}

/// Sends the events of a watch until the receiver is dropped.
pub(super) async fn follow<K, T, E>(
    api: Api<K>,
    config: watcher::Config,
    record: impl Fn(K) -> T,
    event: impl Fn(Event<T>) -> E,
    sender: mpsc::Sender<E>,
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let path = api.resource_url().to_owned();
    let mut stream = pin!(watcher(api, config.streaming_lists()).default_backoff());
    while let Some(item) = stream.next().await {
        let item = match item {
            Ok(Event::Init) => Event::Init,
            Ok(Event::InitApply(object)) => Event::InitApply(record(object)),
            Ok(Event::InitDone) => Event::InitDone,
            Ok(Event::Apply(object)) => Event::Apply(record(object)),
            Ok(Event::Delete(object)) => Event::Delete(record(object)),
            Err(error) => {
                tracing::debug!(path, %error, "watch interrupted, resuming");
                continue;
            }
        };
        if sender.send(event(item)).await.is_err() {
            return;
        }
    }
}

/// Runs a controller until it is told to stop.
pub(super) async fn run<I: Index>(
    name: &'static str,
    index: I,
    mut sources: Sources<I::Event>,
    actor: impl Act<I>,
    mut stop: watch::Receiver<bool>,
) {
    tokio::select! {
        _ = stop.wait_for(|stop| *stop) => tracing::debug!(controller = name, "stopped"),
        () = work(name, index, &mut sources.receiver, actor) => {}
    }
    // When this function returns, the watches must have dropped their clients.
    sources.tasks.shutdown().await;
}

async fn work<I: Index>(
    name: &'static str,
    mut index: I,
    events: &mut mpsc::Receiver<I::Event>,
    actor: impl Act<I>,
) {
    let mut queue = Queue::default();
    let mut running = FuturesUnordered::new();
    let mut batch = Vec::new();
    loop {
        while index.ready() && running.len() < WORKERS {
            let Some(key) = queue.take(Instant::now()) else { break };
            let now = Timestamp::now();
            match index.plan(&key, now) {
                Plan::Idle => queue.finish(&key),
                Plan::At(time) => {
                    queue.finish(&key);
                    queue.add(key, Instant::now() + until(now, time));
                }
                Plan::Do(actions) => running.push(carry_out(key, actions, &actor)),
            }
        }
        // While the index is not ready no key is taken, so waiting for a due key would spin.
        let next = queue.next().filter(|_| index.ready() && running.len() < WORKERS);
        tokio::select! {
            received = events.recv_many(&mut batch, BACKLOG) => {
                if received == 0 {
                    return;
                }
                let due = Instant::now() + COALESCE;
                for key in batch.drain(..).flat_map(|event| index.observe(event)) {
                    queue.add(key, due);
                }
            }
            Some((key, learnt, result)) = running.next() => {
                let learnt: Vec<I::Event> = learnt;
                for key in learnt.into_iter().flat_map(|event| index.observe(event)) {
                    queue.add(key, Instant::now() + COALESCE);
                }
                settle(name, &mut queue, key, result);
            }
            () = tokio::time::sleep_until(next.unwrap_or_else(Instant::now).into()),
                if next.is_some() => {}
        }
    }
}

fn until(now: Timestamp, time: Timestamp) -> Duration {
    Duration::try_from(time.duration_since(now)).unwrap_or_default()
}

/// Carries out the actions of one key until one does not succeed. Returns the learnt events, and
/// whether the key must be requeued.
async fn carry_out<I: Index>(
    key: I::Key,
    actions: Vec<I::Action>,
    actor: &impl Act<I>,
) -> (I::Key, Vec<I::Event>, Result<bool, kube::Error>) {
    let mut events = Vec::new();
    for action in actions {
        tracing::trace!(?action, "acting");
        match actor.act(action).await {
            Ok(Outcome::Done(learnt)) => events.extend(learnt),
            Ok(Outcome::Again) => return (key, events, Ok(true)),
            Err(error) => return (key, events, Err(error)),
        }
    }
    (key, events, Ok(false))
}

fn settle<K: Ord + Clone + Debug>(
    name: &str,
    queue: &mut Queue<K>,
    key: K,
    result: Result<bool, kube::Error>,
) {
    let now = Instant::now();
    match result {
        Ok(false) => queue.finish(&key),
        Ok(true) => {
            queue.fail(key, now, LONGEST_WAIT);
        }
        Err(error) => {
            let delay = queue.fail(key.clone(), now, LONGEST_RETRY);
            if expected(&error) {
                tracing::debug!(controller = name, ?key, %error, ?delay, "overtaken, again later");
            } else {
                tracing::warn!(controller = name, ?key, %error, ?delay, "failed, again later");
            }
        }
    }
}

/// Whether an error is normal with several writers: a conflict, or an object or namespace that is being
/// deleted.
fn expected(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => {
            matches!(status.code, 404 | 409)
                || status.details.as_ref().is_some_and(|details| {
                    details.causes.iter().any(|cause| cause.reason == "NamespaceTerminating")
                })
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;
    use parking_lot::Mutex;
    use std::sync::Arc;

    /// Acts on every key that it observes, once it is open. The result depends on the key.
    #[derive(Clone, Default)]
    struct Fake {
        open: bool,
        log: Arc<Mutex<Vec<&'static str>>>,
    }

    #[derive(Clone)]
    enum News {
        Open,
        Key(&'static str),
    }

    impl Index for Fake {
        type Event = News;
        type Key = &'static str;
        type Action = &'static str;

        fn observe(&mut self, event: News) -> Vec<&'static str> {
            match event {
                News::Open => {
                    self.open = true;
                    Vec::new()
                }
                News::Key(key) => vec![key],
            }
        }

        fn ready(&self) -> bool {
            self.open
        }

        fn plan(&self, key: &&'static str, _now: Timestamp) -> Plan<&'static str> {
            Plan::Do(vec![*key])
        }
    }

    impl Act<Fake> for Fake {
        async fn act(&self, key: &'static str) -> Result<Outcome<News>, kube::Error> {
            let tried = {
                let mut log = self.log.lock();
                log.push(key);
                log.iter().filter(|known| **known == key).count()
            };
            match (key, tried) {
                ("conflict", 1) => {
                    let status = Status::failure("changed", "Conflict").with_code(409);
                    Err(kube::Error::Api(status.boxed()))
                }
                ("slow", 1 | 2) => Ok(Outcome::Again),
                ("stuck", _) => std::future::pending().await,
                ("teaches", 1) => Ok(Outcome::Done(vec![News::Key("taught")])),
                _ => Ok(Outcome::Done(Vec::new())),
            }
        }
    }

    /// The actions that these events lead to in the end.
    async fn done(events: Vec<News>, expected: &[&'static str]) {
        let fake = Fake::default();
        let log = fake.log.clone();
        let (stop, stopped) = watch::channel(false);
        let sources = Sources::new().feed(|sender| async move {
            for event in events {
                let _ = sender.send(event).await;
            }
            sender.closed().await;
        });
        let task = tokio::spawn(run("fake", fake.clone(), sources, fake, stopped));
        let sorted = || {
            let mut log = log.lock().clone();
            log.sort_unstable();
            log
        };
        let limit = Instant::now() + Duration::from_secs(10);
        while sorted() != expected && Instant::now() < limit {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(sorted(), expected);
        stop.send(true).unwrap();
        task.await.unwrap();
    }

    #[tokio::test]
    async fn a_burst_about_a_key_is_one_action() {
        done(vec![News::Open, News::Key("a"), News::Key("a"), News::Key("a")], &["a"]).await;
    }

    #[tokio::test]
    async fn what_fails_or_takes_longer_is_tried_again() {
        let events = vec![News::Open, News::Key("conflict"), News::Key("slow")];
        done(events, &["conflict", "conflict", "slow", "slow", "slow"]).await;
    }

    #[tokio::test]
    async fn a_key_that_is_stuck_holds_up_neither_others_nor_the_end() {
        done(vec![News::Open, News::Key("stuck"), News::Key("a")], &["a", "stuck"]).await;
    }

    #[tokio::test]
    async fn what_an_action_teaches_is_acted_upon() {
        done(vec![News::Open, News::Key("teaches")], &["taught", "teaches"]).await;
    }

    #[tokio::test]
    async fn nothing_is_done_before_the_index_is_ready_and_what_was_heard_is_done_then() {
        done(vec![News::Key("a"), News::Open], &["a"]).await;
    }
}
