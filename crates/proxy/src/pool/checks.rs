//! Runs the health checks of all pools that share it: a limited number at once, in the order of a
//! [`Schedule`] that is fair to namespaces. It holds a socket only for a check that is under way. The pool
//! decides what a result means.

use super::Pool;
use super::check::{Question, Streak};
use super::schedule::{Id, Schedule, Tenant};
use super::server::Server;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// How often an ejected member is checked.
const PROBE_EVERY: Duration = Duration::from_secs(1);
/// The longest time that an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// When more than this many checks of a namespace wait, that is logged.
const MANY: usize = 100;
const SAY_EVERY: Duration = Duration::from_secs(60);

/// The checks of all pools that share it.
pub(crate) struct Checks {
    inner: Mutex<Inner>,
    wake: Arc<Notify>,
}

struct Inner {
    schedule: Schedule,
    jobs: HashMap<Id, Job>,
    /// Whether a task starts the checks that are due.
    runs: bool,
    /// When waiting checks were logged last.
    said: Option<Instant>,
}

impl Inner {
    /// The namespace with the most waiting checks, if they are many and were not logged of late.
    fn late(&mut self, now: Instant) -> Option<(Tenant, usize)> {
        if self.said.is_some_and(|said| now.duration_since(said) < SAY_EVERY) {
            return None;
        }
        let most = self.schedule.waiting().max_by_key(|(_, count)| *count);
        let (tenant, count) = most.filter(|(_, count)| *count > MANY)?;
        let late = (tenant.clone(), count);
        self.said = Some(now);
        Some(late)
    }
}

struct Job {
    pool: Weak<Pool>,
    server: Weak<Server>,
    /// None: the member is let in after a time, without a check.
    question: Option<Arc<Question>>,
    every: Duration,
    /// Counts results in a row; None if one is enough.
    streak: Option<Streak>,
}

/// A check to run now.
struct Asks {
    id: Id,
    server: Weak<Server>,
    question: Option<Arc<Question>>,
}

/// A check that is repeated until this is dropped.
pub(super) struct Ticket {
    checks: Weak<Checks>,
    id: Id,
}

impl Ticket {
    /// Whether the ticket is for this check.
    pub(super) fn is(&self, id: Id) -> bool {
        self.id == id
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(checks) = self.checks.upgrade() {
            checks.remove(self.id);
        }
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ticket({})", self.id)
    }
}

impl Checks {
    /// Runs at most this many checks at once.
    pub(crate) fn new(most: usize) -> Arc<Self> {
        let inner =
            Inner { schedule: Schedule::new(most), jobs: HashMap::new(), runs: false, said: None };
        Arc::new(Self { inner: Mutex::new(inner), wake: Arc::default() })
    }

    /// Starts checks on this thread's runtime from now on, if there is one and no other runtime does.
    pub(crate) fn start(self: &Arc<Self>) {
        let Ok(runtime) = Handle::try_current() else { return };
        if !std::mem::replace(&mut self.inner.lock().runs, true) {
            runtime.spawn(drive(Arc::downgrade(self), self.wake.clone()));
        }
    }

    /// Checks a member repeatedly. The first check is at a member's own time within the interval, so that
    /// the members of a pool are not all checked at once.
    pub(super) fn watch(
        self: &Arc<Self>,
        pool: &Arc<Pool>,
        server: &Arc<Server>,
        question: &Arc<Question>,
        streak: Streak,
    ) -> Ticket {
        let every = question.interval;
        let job = Job {
            pool: Arc::downgrade(pool),
            server: Arc::downgrade(server),
            question: Some(question.clone()),
            every,
            streak: Some(streak),
        };
        let first = every.mul_f64(super::check::fraction(server.address));
        self.add(pool.tenant(), Instant::now() + first, job)
    }

    /// Checks an ejected member until it answers, first when its ejection time is over.
    pub(super) fn probe(
        self: &Arc<Self>,
        pool: &Arc<Pool>,
        server: &Arc<Server>,
        hold: Duration,
        question: Option<Question>,
    ) -> Ticket {
        let job = Job {
            pool: Arc::downgrade(pool),
            server: Arc::downgrade(server),
            question: question.map(Arc::new),
            every: PROBE_EVERY,
            streak: None,
        };
        self.add(pool.tenant(), Instant::now() + hold, job)
    }

    fn add(self: &Arc<Self>, tenant: Tenant, due: Instant, job: Job) -> Ticket {
        self.start();
        let mut inner = self.inner.lock();
        let sooner = inner.schedule.wakes().is_none_or(|wakes| due < wakes);
        let id = inner.schedule.add(tenant, due);
        inner.jobs.insert(id, job);
        drop(inner);
        if sooner {
            self.wake.notify_one();
        }
        Ticket { checks: Arc::downgrade(self), id }
    }

    fn remove(&self, id: Id) {
        let mut inner = self.inner.lock();
        inner.jobs.remove(&id);
        inner.schedule.remove(id);
    }

    /// The number of checks that are under way, and that are due and wait.
    pub(crate) fn count(&self) -> (usize, usize) {
        let inner = self.inner.lock();
        let waiting = inner.schedule.waiting().map(|(_, count)| count).sum();
        (inner.schedule.under_way(), waiting)
    }

    /// The checks to start now, and when to look again.
    fn take(&self) -> (Vec<Asks>, Option<Instant>) {
        let now = Instant::now();
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        let started = inner.schedule.take(now);
        if let Some((namespace, waiting)) = inner.late(now) {
            tracing::warn!(
                %namespace, waiting,
                "health checks come later than asked for: their namespace has its share under way"
            );
        }
        let started = started.into_iter().filter_map(|id| {
            let job = inner.jobs.get(&id)?;
            Some(Asks { id, server: job.server.clone(), question: job.question.clone() })
        });
        (started.collect(), inner.schedule.wakes())
    }

    /// The result of a check; None if the member could not be checked.
    fn answered(&self, id: Id, answer: Option<bool>) {
        let told = {
            let mut inner = self.inner.lock();
            let inner = &mut *inner;
            let mut told = None;
            let mut every = PROBE_EVERY;
            if let Some(job) = inner.jobs.get_mut(&id) {
                every = job.every;
                let change = match (&mut job.streak, answer) {
                    (_, None) => None,
                    (Some(streak), Some(answers)) => streak.next(answers).map(Told::Checked),
                    (None, Some(answers)) => answers.then_some(Told::Answers),
                };
                told = change.map(|it| (it, job.pool.clone(), job.server.clone()));
            }
            inner.schedule.done(id, Instant::now() + every);
            told
        };
        self.wake.notify_one();
        let Some((told, pool, server)) = told else { return };
        let (Some(pool), Some(server)) = (pool.upgrade(), server.upgrade()) else { return };
        match told {
            Told::Checked(up) => pool.checked(&server, id, up),
            Told::Answers => pool.let_in(&server, id),
        }
    }
}

impl fmt::Debug for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Checks")
    }
}

enum Told {
    Checked(bool),
    Answers,
}

impl Drop for Checks {
    fn drop(&mut self) {
        self.wake.notify_one();
    }
}

/// Starts checks that are due until the last user of checks is gone.
async fn drive(checks: Weak<Checks>, wake: Arc<Notify>) {
    loop {
        let Some(all) = checks.upgrade() else { return };
        let (started, wakes) = all.take();
        drop(all);
        for asks in started {
            tokio::spawn(ask(checks.clone(), asks));
        }
        let due = async {
            match wakes {
                Some(due) => sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = due => {}
            () = wake.notified() => {}
        }
    }
}

async fn ask(checks: Weak<Checks>, Asks { id, server, question }: Asks) {
    let address = server.upgrade().map(|server| server.address);
    let answer = match (address, question) {
        (None, _) => None,
        (Some(_), None) => Some(true),
        (Some(address), Some(question)) => {
            Some(question.ask(address, question.interval.min(PATIENCE)).await)
        }
    };
    if let Some(checks) = checks.upgrade() {
        checks.answered(id, answer);
    }
}
