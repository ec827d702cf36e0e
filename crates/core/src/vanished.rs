//! Whether an agent goes on serving deleted Plans. The leader deletes a Plan when it plans nothing for it any more, and
//! its agent must follow. When Bowline's namespace is deleted, the API deletes all Plans with it, and traffic must not
//! end. The two look the same in the watch. So the agent shows every event of a Plan to [`Vanished`] before it passes it
//! on to the resolver, and looks at the namespace where [`Vanished::observe`] asks for that. It does no I/O.
//!
//! ```text
//!  watch ─▶ observe ─▶ (look at the namespace ─▶ looked ─▶ Hold) ─▶ withholds ─▶ resolver
//! ```

mod look;
#[cfg(test)]
mod tests;

pub use look::{Answer, Look, Question, Step};

use crate::clock::Uptime;
use crate::resolver::{Event, Kind, Object};
use std::sync::Arc;
use std::time::Duration;

/// How long the leader has to write its first Plan after the namespace is created again, and how long for the others
/// after the first one.
pub const SETTLES: Duration = Duration::from_secs(60);
/// How long deleted Plans are served where the API does not tell whether the namespace exists.
pub const UNKNOWN: Duration = Duration::from_secs(60);

/// Why deleted Plans are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The namespace is being deleted or is gone.
    Gone,
    /// The namespace was deleted and created again, and the leader may not have written all Plans yet.
    Recreated,
    /// The API does not tell whether the namespace exists.
    Unknown,
}

impl Why {
    /// A sentence for the log.
    pub fn text(self) -> &'static str {
        match self {
            Self::Gone => {
                "Bowline's namespace is being deleted or is gone: deleted Plans are served until the leader has \
                 written them again"
            }
            Self::Recreated => {
                "Bowline's namespace was deleted and exists again: deleted Plans are served until the leader has \
                 had the time to write them again"
            }
            Self::Unknown => {
                "the API does not tell whether Bowline's namespace exists: deleted Plans are served for another \
                 minute at most"
            }
        }
    }
}

/// What the agent does with deleted Plans from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct News {
    /// Why deleted Plans are served. None: they are not served any more.
    pub hold: Option<Why>,
    /// Whether the withheld end of the list of Plans is to be passed on, after the end of the hold.
    pub list_ends: bool,
}

#[derive(Debug)]
struct Hold {
    why: Why,
    /// When it ends. None: not while the namespace is gone.
    until: Option<Uptime>,
    /// Whether the leader has written a Plan since the namespace exists again.
    written: bool,
}

/// Whether deleted Plans are served.
#[derive(Debug, Default)]
pub struct Vanished {
    /// The uid of the namespace, where the agent may read it.
    uid: Option<Arc<str>>,
    /// Whether the agent has something to lose: it observed a Plan, or it has kept state.
    known: bool,
    /// Whether kept state is served until the end of the first list of Plans.
    recalled: bool,
    /// Whether the end of the first list of Plans is withheld, so that kept state is served on.
    withheld: bool,
    hold: Option<Hold>,
}

impl Vanished {
    /// Begins for an agent. `recalled`: it has kept state from before a restart.
    pub fn new(recalled: bool) -> Self {
        Self { known: recalled, recalled, ..Self::default() }
    }

    /// Whether deleted Plans are served. Then the agent looks at the namespace from time to time.
    pub fn holds(&self) -> bool {
        self.hold.is_some()
    }

    /// Takes an event of a Plan before the resolver gets it. True: the agent must look at the namespace first.
    pub fn observe(&mut self, event: &Event, now: Uptime) -> bool {
        match event {
            Event::Apply(object) => {
                self.known = true;
                if matches!(object, Object::Shard(..) | Object::Refused(..)) {
                    self.written(now);
                }
                false
            }
            Event::Begin(Kind::Shard) => {
                self.withheld = false;
                false
            }
            // The end of a list deletes the Plans that it did not deliver.
            Event::Delete(..) | Event::Done(_) => true,
            Event::Begin(_) | Event::Hold(_) => false,
        }
    }

    /// Only the first write counts: on a busy load balancer the writes never end.
    fn written(&mut self, now: Uptime) {
        if let Some(hold) = &mut self.hold
            && hold.why == Why::Recreated
            && !hold.written
        {
            (hold.written, hold.until) = (true, Some(now + SETTLES));
        }
    }

    /// Takes what a look at the namespace shows. Some: the agent treats deleted Plans otherwise from now on.
    pub fn looked(&mut self, look: Look, now: Uptime) -> Option<News> {
        let before = self.hold.as_ref().map(|hold| hold.why);
        let is_another = self.is_another(&look);
        if self.known {
            self.decide(&look, is_another, now);
        }
        let expired = |hold: &mut Hold| hold.until.is_some_and(|until| until <= now);
        self.hold.take_if(expired);
        let hold = self.hold.as_ref().map(|hold| hold.why);
        if hold == before {
            return None;
        }
        let list_ends = hold.is_none() && std::mem::take(&mut self.withheld);
        self.recalled &= !list_ends;
        Some(News { hold, list_ends })
    }

    /// Whether another namespace has this name now: it was deleted and created again between two looks.
    fn is_another(&mut self, look: &Look) -> bool {
        let Look::Exists(Some(uid)) = look else { return false };
        self.uid.replace(Arc::clone(uid)).is_some_and(|before| before != *uid)
    }

    fn decide(&mut self, look: &Look, is_another: bool, now: Uptime) {
        let why = self.hold.as_ref().map(|hold| hold.why);
        let recreated = Hold { why: Why::Recreated, until: Some(now + SETTLES), written: false };
        match (look, why) {
            (Look::Gone, Some(Why::Gone)) => {}
            (Look::Gone, _) => {
                self.hold = Some(Hold { why: Why::Gone, until: None, written: false });
            }
            // It is no news that the API does not tell. A hold has its end by then, or the namespace was gone.
            (Look::Unknown, Some(_)) => {}
            (Look::Unknown, None) => {
                let until = Some(now + UNKNOWN);
                self.hold = Some(Hold { why: Why::Unknown, until, written: false });
            }
            (Look::Exists(_), _) if is_another => self.hold = Some(recreated),
            (Look::Exists(_), Some(Why::Gone)) => self.hold = Some(recreated),
            // It is the namespace of before: the leader deleted the Plans.
            (Look::Exists(Some(_)), Some(Why::Unknown)) => self.hold = None,
            (Look::Exists(_), _) => {}
        }
    }

    /// Whether an event does not reach the resolver now. While deleted Plans are served, kept state stays in place of a
    /// list that lacks them; its end is passed on with [`News::list_ends`].
    pub fn withholds(&mut self, event: &Event) -> bool {
        if *event != Event::Done(Kind::Shard) {
            return false;
        }
        self.withheld = self.recalled && self.holds();
        self.recalled &= self.withheld;
        self.withheld
    }
}
