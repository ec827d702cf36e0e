//! A session as it happened, written down: what it was told, when it was asked, and what it answered. The same events at
//! the same times give the same answers again, so a recording of a real router is a test, and one of a failure shows it.

use super::config::Config;
use super::event::{Effect, Event};
use bowline_core::clock::Uptime;
use serde::{Deserialize, Serialize};

/// An entry of a recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record {
    /// A session of this configuration and seed begins.
    Begin(Box<Config>, u64),
    /// It was told this.
    Told(Uptime, Event),
    /// It was asked what to do, and answered this.
    Asked(Uptime, Vec<Effect>),
}
