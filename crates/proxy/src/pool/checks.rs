//! Asks members whether they answer, for all pools that share it: so many at once, by a [`Schedule`] that
//! is fair to namespaces. It holds a socket for each check that is under way and none for the others. What
//! an answer means is the pool's decision.

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

/// How often a member that was put out is asked again.
const PROBE_EVERY: Duration = Duration::from_secs(1);
/// How long an answer may take at most.
const PATIENCE: Duration = Duration::from_secs(5);
/// So many checks of a namespace that wait are worth a line in the log.
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
    /// Whether a task starts what is due.
    runs: bool,
    /// When it was last said that checks wait.
    said: Option<Instant>,
}

impl Inner {
    /// The namespace with the most checks that wait, if they are many and it was not said of late.
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
    /// None where the time alone decides.
    question: Option<Arc<Question>>,
    every: Duration,
    /// What the answers amount to; none where one is enough.
    streak: Option<Streak>,
}

/// A check that is started.
struct Asks {
    id: Id,
    server: Weak<Server>,
    question: Option<Arc<Question>>,
}

/// A check that goes on until this is dropped.
pub(super) struct Ticket {
    checks: Weak<Checks>,
    id: Id,
}

impl Ticket {
    /// Whether it is this check.
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
    /// At most so many are under way at once.
    pub(crate) fn new(most: usize) -> Arc<Self> {
        let inner =
            Inner { schedule: Schedule::new(most), jobs: HashMap::new(), runs: false, said: None };
        Arc::new(Self { inner: Mutex::new(inner), wake: Arc::default() })
    }

    /// Checks are started on this thread's runtime from now on, if there is one and no other does it.
    pub(crate) fn start(self: &Arc<Self>) {
        let Ok(runtime) = Handle::try_current() else { return };
        if !std::mem::replace(&mut self.inner.lock().runs, true) {
            runtime.spawn(drive(Arc::downgrade(self), self.wake.clone()));
        }
    }

    /// Asks a member again and again, first at a time of its own within the interval, so that the members
    /// of a pool are not all asked at once.
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

    /// Asks a member that was put out until it answers, first when its time out is over.
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

    /// Checks that are under way, and those that are due and wait.
    pub(crate) fn count(&self) -> (usize, usize) {
        let inner = self.inner.lock();
        let waiting = inner.schedule.waiting().map(|(_, count)| count).sum();
        (inner.schedule.under_way(), waiting)
    }

    /// What is to be asked now, and when to look again.
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

    /// A member answered, or did not; nothing where nobody could be asked.
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

/// Starts what is due until nobody wants checks any more.
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
