//! Decides when an agent saves what it serves, and when it serves kept state after a restart. After a start the API has
//! a moment to deliver everything, and more time while it answers; then kept state is served until the API has
//! delivered everything. Kept state that is too old or of another load balancer is refused, and withdrawn where that
//! shows later. It reads no file and no clock: the runtime's agent feeds it events with the time since boot, and
//! carries out the effects of [`KeptState::take`].

use crate::clock::Uptime;
use crate::resolver::{self, Kind};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

/// How long the agent waits for the API after a start, and after each answer. A kept member may be another tenant's Pod
/// by now, so kept state is not served where the API can deliver. Longer than an agent waits for Secrets.
pub const PATIENCE: Duration = Duration::from_secs(4);
/// The longest wait for an API that answers but does not deliver everything.
pub const LONGEST: Duration = Duration::from_secs(60);
/// Older state is refused: after so long most of its members are other Pods.
pub const MAX_AGE: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// The least time between the end of one write and the next.
pub const GAP: Duration = Duration::from_secs(1);
/// After a write, this many times its duration passes before the next: writing takes at most a twentieth of the time.
const SHARE: u32 = 20;
/// When a failed write is tried again.
const AGAIN: Duration = Duration::from_secs(30);
/// How often kept state is confirmed as still true.
const CONFIRM: Duration = Duration::from_secs(60);
/// The API is reachable if it answered within this time.
const RECENT: Duration = Duration::from_secs(15);

/// The load balancer to which kept state belongs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Origin {
    /// Its name.
    pub load_balancer: String,
    /// Bowline's namespace in that cluster.
    pub namespace: String,
    /// Marks of the cluster that the agent is configured for: one for each CA of its API, or one of its URL where there
    /// is no CA. Empty: the agent runs inside the cluster.
    pub cluster: BTreeSet<String>,
    /// The uid of the LoadBalancer object. None: not known yet.
    pub uid: Option<String>,
}

impl Origin {
    /// Why the agent of this load balancer does not use the kept state of `kept`.
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

    /// Whether these are marks of the same cluster. During a CA rotation both the old and the new CA are configured, so
    /// one common mark is enough.
    fn is_same_cluster(&self, marks: &BTreeSet<String>) -> bool {
        let none = self.cluster.is_empty() && marks.is_empty();
        none || !self.cluster.is_disjoint(marks)
    }
}

/// Why kept state is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// It belongs to a load balancer with this name and namespace.
    Name(String, String),
    /// It belongs to another cluster.
    Cluster,
    /// It belongs to an earlier load balancer of this name.
    Uid,
    /// It was last confirmed this long ago.
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

/// An event of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The agent has a folder, without usable state in it.
    Opened,
    /// The agent has a folder with state in it, which was last confirmed this long ago.
    Found(Origin, Duration),
    /// The API delivered an object, all objects of a kind, or accepted a report.
    Answered,
    /// The API delivered less than is served: Plans were deleted with their namespace. The agent does not follow it.
    Incomplete,
    /// A Plan belongs to the LoadBalancer object with this uid.
    Owner(String),
    /// The agent's configuration now has these marks of the cluster.
    Configured(BTreeSet<String>),
    /// Whether all watches work.
    Watching(bool),
    /// The driver serves kept state.
    Serves,
    /// The driver could not serve kept state. It is tried again after this long.
    ServeFailed(Duration),
    /// The driver serves nothing in place of kept state.
    Withdrawn,
    /// The driver could not be made to serve nothing. It is tried again after this long.
    WithdrawFailed(Duration),
    /// The driver serves what the API delivered.
    Followed,
    /// A write ended: whether it worked, and how long it took.
    Written(bool, Duration),
}

/// An action for the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Forget kept state, and say why.
    Forget(Unusable),
    /// Serve kept state.
    Serve,
    /// Serve nothing: kept state belongs to a load balancer that is gone.
    Withdraw,
    /// Save what is served.
    Save,
    /// Confirm kept state as true now.
    Confirm,
}

/// Whether an event proves that the API answered. A list begins before the API answers, and the list of certificates
/// ends without an answer.
pub fn is_answer(event: &resolver::Event) -> bool {
    match event {
        resolver::Event::Apply(_) | resolver::Event::Delete(..) => true,
        resolver::Event::Done(kind) => *kind != Kind::Certificates,
        resolver::Event::Begin(_) | resolver::Event::Hold(_) => false,
    }
}

/// Whether and when one agent saves and serves state.
#[derive(Debug, Default)]
pub struct KeptState {
    origin: Origin,
    /// Whether there is a folder.
    keeps: bool,
    /// The load balancer of the state that was found. None: none was found, or the driver follows the API.
    kept: Option<Origin>,
    refused: Option<Unusable>,
    opened: Duration,
    serve_at: Option<Duration>,
    /// Whether waiting for the API does not help.
    incomplete: bool,
    serving: bool,
    withdraw_at: Option<Duration>,
    /// The marks of the cluster at the agent's start.
    started: BTreeSet<String>,
    save_at: Option<Duration>,
    next_save: Duration,
    writing: bool,
    /// Whether this process has written what is in the folder.
    written: bool,
    confirm_at: Option<Duration>,
    answered: Option<Duration>,
    watching: bool,
}

impl KeptState {
    /// Begins for the agent of this load balancer, without a folder.
    pub fn new(origin: Origin) -> Self {
        Self { started: origin.cluster.clone(), origin, watching: true, ..Self::default() }
    }

    /// The load balancer, as far as it is known.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Whether there is kept state that belongs to this load balancer, as far as is known, and is not replaced yet.
    pub fn keeps_some(&self) -> bool {
        self.kept.is_some()
    }

    /// Whether kept state is served.
    pub fn serves(&self) -> bool {
        self.serving
    }

    /// Takes an event.
    pub fn handle(&mut self, event: Event, now: Uptime) {
        match event {
            Event::Opened => self.open(now),
            Event::Found(origin, age) => self.found(origin, age, now),
            Event::Answered => self.answer(now),
            Event::Incomplete => {
                self.incomplete = true;
                self.serve_at = self.serve_at.map(|at| at.min(now));
            }
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
                    // The state changed during the write.
                    at => at.map(|at| at.max(self.next_save)),
                };
            }
        }
    }

    /// The effects that are due. After [`Effect::Save`] a write is under way until [`Event::Written`].
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

    /// When the next effect is due. None: not before another event.
    pub fn wake(&self) -> Option<Uptime> {
        if self.refused.is_some() {
            return Some(Duration::ZERO);
        }
        let disk = if self.writing { [None, None] } else { [self.save_at, self.confirm_at] };
        disk.into_iter().chain([self.serve_at, self.withdraw_at]).flatten().min()
    }

    /// The agent ends. True: it has to save what it serves before, even if the save is not due yet.
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

    /// An API that answers slowly is reachable, so the wait goes on. It ends after [`LONGEST`].
    fn answer(&mut self, now: Uptime) {
        self.answered = Some(now);
        if let Some(at) = &mut self.serve_at
            && !self.serving
            && !self.incomplete
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

    /// A new mark beside a known one, in one configuration, is a mark of the same cluster. Marks without a known one
    /// are ignored: the configuration may be meant for another cluster from the next start on.
    fn configure(&mut self, marks: &BTreeSet<String>, now: Uptime) {
        if !self.origin.is_same_cluster(marks) {
            return;
        }
        let known = self.started.union(marks).cloned().collect();
        let before = std::mem::replace(&mut self.origin.cluster, known);
        // Before this process has written anything, the first write includes the marks.
        let wrote = self.written || self.writing;
        if before != self.origin.cluster && wrote && self.save_at.is_none() {
            self.save_at = Some(self.next_save.max(now));
        }
    }

    /// Whether the folder holds what the API delivers now.
    fn is_current(&self, now: Uptime) -> bool {
        let recent = |at: Duration| now.saturating_sub(at) <= RECENT;
        let followed = self.kept.is_none() && self.save_at.is_none() && self.written;
        followed && self.watching && self.answered.is_some_and(recent)
    }
}

#[cfg(test)]
mod tests;
