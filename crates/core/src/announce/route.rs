//! What a router is told with a prefix. An Advertisement gives it, and the speaker writes it into updates.

use super::Community;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// What is announced with a prefix. Routes with the same content share messages.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Route {
    /// The preference inside the AS. Only told to peers of the same AS.
    pub local_pref: Option<u32>,
    /// The multi-exit discriminator.
    pub med: Option<u32>,
    /// How many more times the own AS number stands in the path. Only told to peers of another AS: in a path inside the AS
    /// it would be a loop.
    pub prepend: u8,
    /// Marks for the peer's policy.
    pub communities: BTreeSet<Community>,
}

impl Route {
    /// The most communities of a route, so that attributes and at least one prefix fit into a message.
    pub const MOST_COMMUNITIES: usize = 100;
    /// The longest prepend, so that no path needs a second segment.
    pub const MOST_PREPENDS: u8 = 100;

    /// The route with no more than a message can hold.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        self.prepend = self.prepend.min(Self::MOST_PREPENDS);
        while self.communities.len() > Self::MOST_COMMUNITIES {
            self.communities.pop_last();
        }
        self
    }
}
