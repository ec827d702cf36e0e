//! When an agent keeps what it serves, and when it serves what it kept before a restart. After a start the API has
//! a moment to tell everything, and more while it answers; then kept state is served until the API has told all.
//! It refuses state that is too old or of another load balancer, and withdraws it where that shows later. It reads no file and no clock: the runtime's agent
//! feeds it, with the time since the machine was started, and does what [`Recall::take`] says.

use crate::clock::Uptime;
use crate::resolver::{self, Kind};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

/// The API has this long after a start, and after each answer. A kept member may be another tenant's Pod by now, so
/// kept state is not served where the API can tell. Longer than an agent waits for Secrets.
pub const PATIENCE: Duration = Duration::from_secs(4);
/// The longest wait for an API that answers and does not tell everything.
pub const LONGEST: Duration = Duration::from_secs(60);
/// Older state is refused: after so long most of its members are other Pods.
pub const MAX_AGE: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// The least time between two writes,
pub const GAP: Duration = Duration::from_secs(1);
/// and so many times as long as a write took: a large state costs no more than a twentieth of the time.
const SHARE: u32 = 20;
/// When a write that failed is tried again.
const AGAIN: Duration = Duration::from_secs(30);
/// How often it is noted that kept state is still true.
const CONFIRM: Duration = Duration::from_secs(60);
/// The API is there if it answered within this.
const RECENT: Duration = Duration::from_secs(15);

/// The load balancer that state is of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Origin {
    /// Its name.
    pub load_balancer: String,
    /// Bowline's namespace there.
    pub namespace: String,
    /// Marks of the cluster that the agent is configured for: one for each CA of its API, or one of its URL where there
    /// is no CA. None: the agent is part of it.
    pub cluster: BTreeSet<String>,
    /// The uid of the LoadBalancer object. None: not known yet.
    pub uid: Option<String>,
}

impl Origin {
    /// Why the agent of this load balancer does not use state of that one.
    fn refuse(&self, kept: &Self) -> Option<Unusable> {
        if (&kept.load_balancer, &kept.namespace) != (&self.load_balancer, &self.namespace) {
            let (name, namespace) = (kept.load_balancer.clone(), kept.namespace.clone());
            return Some(Unusable::Name(name, namespace));
        }
        if !self.is_same_cluster(&kept.cluster) {
            return Some(Unusable::Cluster);
        }
        let uids = kept.uid.as_ref().zip(self.uid.as_ref());
        uids.is_some_and(|(kept, now)| kept != now).then_some(Unusable::Uid)
    }

    /// Whether these are marks of the same cluster. A CA is rotated by way of both, the old one and the new one, so one
    /// mark in common is enough.
    fn is_same_cluster(&self, marks: &BTreeSet<String>) -> bool {
        let none = self.cluster.is_empty() && marks.is_empty();
        none || !self.cluster.is_disjoint(marks)
    }
}

/// Why kept state is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// It is of a load balancer with this name and namespace.
    Name(String, String),
    /// It is of another cluster.
    Cluster,
    /// It is of an earlier load balancer of this name.
    Uid,
    /// It was last known to be true this long ago.
    Age(Duration),
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name, namespace) => {
                write!(f, "it is of load balancer {name:?} in namespace {namespace:?}")
            }
            Self::Cluster => f.write_str(
                "it is of another cluster: neither a CA of its API nor its URL is known here (a running agent \
                 learns of a new CA when its kubeconfig has both the old and the new one for two minutes)",
            ),
            Self::Uid => f.write_str("it is of a load balancer of the same name and another uid"),
            Self::Age(age) => {
                let (hours, most) = (age.as_secs() / 3600, MAX_AGE.as_secs() / 3600);
                write!(
                    f,
                    "it is {hours} hours old, and state older than {most} hours is not served"
                )
            }
        }
    }
}

/// What happens to an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The agent has a folder, and no usable state in it.
    Opened,
    /// The agent has a folder with state in it, which was known to be true this long ago.
    Found(Origin, Duration),
    /// The API told an object, all objects of a kind, or accepted a report.
    Answered,
    /// A Plan belongs to the LoadBalancer object with this uid.
    Owner(String),
    /// The agent's configuration has these marks of the cluster now.
    Configured(BTreeSet<String>),
    /// Whether all watches work.
    Watching(bool),
    /// The driver serves kept state.
    Serves,
    /// The driver could not serve kept state: not before this long from now again.
    ServeFailed(Duration),
    /// The driver serves nothing instead of kept state.
    Withdrawn,
    /// The driver could not be told to serve nothing: not before this long from now again.
    WithdrawFailed(Duration),
    /// The driver serves what the API told.
    Followed,
    /// A write ended: whether it worked, and how long it took.
    Written(bool, Duration),
}

/// What the agent is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Forget kept state, and tell why.
    Forget(Unusable),
    /// Serve kept state.
    Serve,
    /// Serve nothing: kept state is of a load balancer that is gone.
    Withdraw,
    /// Keep what is served.
    Save,
    /// Note that kept state is true now.
    Confirm,
}

/// Whether the API must have answered for an event to come about. A listing begins before it does, and that of
/// certificates ends without it.
pub fn is_answer(event: &resolver::Event) -> bool {
    match event {
        resolver::Event::Apply(_) | resolver::Event::Delete(..) => true,
        resolver::Event::Done(kind) => *kind != Kind::Certificates,
        resolver::Event::Begin(_) => false,
    }
}

/// When one agent keeps, and serves what it kept.
#[derive(Debug, Default)]
pub struct Recall {
    origin: Origin,
    /// Whether there is a folder.
    keeps: bool,
    /// State was kept, and the driver does not follow the API yet: of which load balancer.
    kept: Option<Origin>,
    refused: Option<Unusable>,
    opened: Duration,
    serve_at: Option<Duration>,
    serving: bool,
    withdraw_at: Option<Duration>,
    /// The marks of the cluster with which the agent has started.
    started: BTreeSet<String>,
    save_at: Option<Duration>,
    next_save: Duration,
    writing: bool,
    /// This process has written what is in the folder.
    written: bool,
    confirm_at: Option<Duration>,
    answered: Option<Duration>,
    watching: bool,
}

impl Recall {
    /// For the agent of this load balancer, without a folder so far.
    pub fn new(origin: Origin) -> Self {
        Self { started: origin.cluster.clone(), origin, watching: true, ..Self::default() }
    }

    /// The load balancer, as far as it is known.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Whether there is kept state that is of this load balancer, as far as is known, and is not replaced yet.
    pub fn keeps_some(&self) -> bool {
        self.kept.is_some()
    }

    /// Whether kept state is served.
    pub fn serves(&self) -> bool {
        self.serving
    }

    /// Takes in what happens.
    pub fn handle(&mut self, event: Event, now: Uptime) {
        match event {
            Event::Opened => self.open(now),
            Event::Found(origin, age) => self.found(origin, age, now),
            Event::Answered => self.answer(now),
            Event::Owner(uid) => self.own(uid, now),
            Event::Configured(marks) => self.configure(&marks, now),
            Event::Watching(works) => self.watching = works,
            Event::Serves => self.serving = true,
            Event::ServeFailed(wait) => {
                self.serve_at = self.kept.is_some().then_some(now + wait);
            }
            Event::Withdrawn => self.serving = false,
            Event::WithdrawFailed(wait) => {
                self.withdraw_at = self.serving.then_some(now + wait);
            }
            Event::Followed => {
                (self.kept, self.serve_at, self.serving) = (None, None, false);
                self.withdraw_at = None;
                if self.keeps && self.save_at.is_none() {
                    self.save_at = Some(self.next_save.max(now));
                }
            }
            Event::Written(worked, took) => {
                self.writing = false;
                self.written |= worked;
                self.next_save = now + GAP.max(took * SHARE);
                self.save_at = match self.save_at {
                    _ if !worked => Some(now + AGAIN),
                    // It changed while it was written.
                    at => at.map(|at| at.max(self.next_save)),
                };
            }
        }
    }

    /// What is due. A write is under way from then on until [`Event::Written`] comes.
    pub fn take(&mut self, now: Uptime) -> Vec<Effect> {
        let mut effects: Vec<_> = self.refused.take().map(Effect::Forget).into_iter().collect();
        let due = |at: &mut Option<Duration>| at.take_if(|at| *at <= now).is_some();
        if due(&mut self.serve_at) {
            effects.push(Effect::Serve);
        }
        if due(&mut self.withdraw_at) {
            effects.push(Effect::Withdraw);
        }
        if !self.writing {
            if due(&mut self.save_at) {
                self.writing = true;
                effects.push(Effect::Save);
            }
            if due(&mut self.confirm_at) {
                self.confirm_at = Some(now + CONFIRM);
                if self.is_current(now) {
                    effects.push(Effect::Confirm);
                }
            }
        }
        effects
    }

    /// When something is due. None: not before something happens.
    pub fn wake(&self) -> Option<Uptime> {
        if self.refused.is_some() {
            return Some(Duration::ZERO);
        }
        let disk = if self.writing { [None, None] } else { [self.save_at, self.confirm_at] };
        disk.into_iter().chain([self.serve_at, self.withdraw_at]).flatten().min()
    }

    /// The agent ends: whether what is served has to be kept before, whenever that was due.
    pub fn end(&mut self) -> bool {
        self.save_at.take().is_some()
    }

    fn open(&mut self, now: Uptime) {
        (self.keeps, self.opened) = (true, now);
        self.confirm_at = Some(now + CONFIRM);
    }

    fn found(&mut self, kept: Origin, age: Duration, now: Uptime) {
        self.open(now);
        self.refused = self.origin.refuse(&kept);
        if self.refused.is_none() && age > MAX_AGE {
            self.refused = Some(Unusable::Age(age));
        }
        if self.refused.is_none() {
            (self.kept, self.serve_at) = (Some(kept), Some(now + PATIENCE));
        }
    }

    /// An API that answers slowly is not away. One that never ends is not waited for.
    fn answer(&mut self, now: Uptime) {
        self.answered = Some(now);
        if let Some(at) = &mut self.serve_at
            && !self.serving
        {
            *at = (*at).max((now + PATIENCE).min(self.opened + LONGEST));
        }
    }

    fn own(&mut self, uid: String, now: Uptime) {
        self.origin.uid = Some(uid);
        let refused = self.kept.as_ref().and_then(|kept| self.origin.refuse(kept));
        if refused.is_some() {
            (self.refused, self.kept, self.serve_at) = (refused, None, None);
            self.withdraw_at = self.serving.then_some(now);
        }
    }

    /// A mark beside a known one in one configuration is of the same cluster. Others are not taken in: the configuration
    /// may be meant for another cluster from the next start on.
    fn configure(&mut self, marks: &BTreeSet<String>, now: Uptime) {
        if !self.origin.is_same_cluster(marks) {
            return;
        }
        let known = self.started.union(marks).cloned().collect();
        let before = std::mem::replace(&mut self.origin.cluster, known);
        // Before this process writes anything, the first write takes the marks along.
        let wrote = self.written || self.writing;
        if before != self.origin.cluster && wrote && self.save_at.is_none() {
            self.save_at = Some(self.next_save.max(now));
        }
    }

    /// Whether the folder has what the API says now.
    fn is_current(&self, now: Uptime) -> bool {
        let recent = |at: Duration| now.saturating_sub(at) <= RECENT;
        let followed = self.kept.is_none() && self.save_at.is_none() && self.written;
        followed && self.watching && self.answered.is_some_and(recent)
    }
}

#[cfg(test)]
mod tests;
