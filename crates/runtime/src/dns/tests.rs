//! Tests the loop with a clock that jumps to the awaited time and a resolver that answers from a
//! script.

use super::*;
use bowline_core::dns::{Answer, Failure, FailureKind, Found};
use bowline_core::objects::Family;
use parking_lot::Mutex;
use std::collections::VecDeque;

/// What the loop has asked, and the answers that it will get.
#[derive(Clone, Default)]
struct World {
    now: Arc<Mutex<Duration>>,
    script: Arc<Mutex<VecDeque<Answer>>>,
    /// Times of the questions, in seconds.
    asked: Arc<Mutex<Vec<u64>>>,
    given_up: Arc<Mutex<usize>>,
}

impl Clock for World {
    fn now(&self) -> Duration {
        *self.now.lock()
    }

    async fn until(&self, at: Duration) {
        // Other ready tasks run first.
        tokio::task::yield_now().await;
        let mut now = self.now.lock();
        *now = at.max(*now);
    }
}

/// Counts a question that is dropped before its answer.
struct GivenUp(World);

impl Drop for GivenUp {
    fn drop(&mut self) {
        *self.0.given_up.lock() += 1;
    }
}

impl World {
    fn new(script: impl IntoIterator<Item = Answer>) -> Self {
        let world = Self::default();
        world.script.lock().extend(script);
        world
    }

    /// Answers from the script; never, once the script is empty.
    async fn ask(self) -> Answers {
        self.asked.lock().push(self.now().as_secs());
        let answer = self.script.lock().pop_front();
        let Some(answer) = answer else {
            let _counted = GivenUp(self);
            return futures::future::pending().await;
        };
        Answers { v4: Some(answer), v6: None }
    }

    fn start(&self) -> (mpsc::UnboundedSender<Event>, mpsc::Receiver<(Name, Report)>) {
        let world = self.clone();
        let ask = move |_, _| world.clone().ask();
        let (want, wants) = mpsc::unbounded_channel();
        let (reports, heard) = mpsc::channel(16);
        let mut config = Config::default();
        config.most_late = Duration::ZERO;
        tokio::spawn(drive(Schedule::new(config), self.clone(), ask, wants, reports));
        (want, heard)
    }
}

fn found(ttl: u64) -> Answer {
    let address = "192.0.2.1".parse().unwrap();
    Found::new(Family::V4, [address], Duration::from_secs(ttl))
}

fn timeout() -> Answer {
    Err(Failure::new(FailureKind::Timeout, ""))
}

fn name() -> Name {
    "a.example".parse().unwrap()
}

fn want() -> Event {
    Event::Want { name: name(), families: Families::V4, namespaces: ["shop".into()].into() }
}

/// Lets the loop run until the condition holds, which takes a few turns.
async fn until(what: impl Fn() -> bool) {
    for _ in 0..1_000 {
        if what() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("it never happened");
}

#[tokio::test]
async fn names_are_asked_for_when_they_are_wanted_and_when_their_ttl_ends() {
    let world = World::new([found(30), timeout(), timeout(), found(0), found(86_400)]);
    let (wants, mut reports) = world.start();
    wants.send(want()).unwrap();
    let mut next = Vec::new();
    for _ in 0..5 {
        let (heard, report) = reports.recv().await.unwrap();
        assert_eq!(heard, name());
        next.push(report.next_check.as_secs());
    }
    assert_eq!(next, [30, 5, 10, 5, 3600]);
    until(|| world.asked.lock().len() == 6).await;
    assert_eq!(*world.asked.lock(), [0, 30, 35, 45, 50, 3650]);
}

#[tokio::test]
async fn a_look_up_is_dropped_when_nobody_wants_the_name_any_more() {
    let world = World::new([]);
    let (wants, mut reports) = world.start();
    wants.send(want()).unwrap();
    until(|| world.asked.lock().len() == 1).await;
    wants.send(Event::Unwant { name: name() }).unwrap();
    until(|| *world.given_up.lock() == 1).await;
    world.script.lock().push_back(found(30));
    wants.send(want()).unwrap();
    assert_eq!(reports.recv().await.unwrap().1.next_check, Duration::from_secs(30));
}

#[tokio::test]
async fn it_ends_when_nobody_sends_or_nobody_listens() {
    let (wants, mut reports) = World::new([]).start();
    drop(wants);
    assert_eq!(reports.recv().await, None);
    let (wants, reports) = World::new([]).start();
    drop(reports);
    wants.closed().await;
}
