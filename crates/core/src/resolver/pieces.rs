//! The places in fragments that describe one pool, site or listener. Mostly there is one. Where there are several, as
//! after two leaders gave a port or host to different consumers, the one that is served stays (see `listeners` and
//! `sites`); before anything is served, the order of the consumers decides.

use super::shards::Part;
use std::cmp::Ordering;
use std::sync::Arc;

/// Places in fragments, sorted by consumer.
#[derive(Debug, Default)]
pub(super) struct Pieces(Vec<(Arc<Part>, usize)>);

impl Pieces {
    /// Adds the place at an index of a fragment.
    pub(super) fn add(&mut self, part: &Arc<Part>, index: usize) {
        let order = |(other, at): &(Arc<Part>, usize)| -> Ordering {
            other.key.cmp(&part.key).then(at.cmp(&index))
        };
        let at = self.0.partition_point(|other| order(other) == Ordering::Less);
        self.0.insert(at, (part.clone(), index));
    }

    /// Removes all places of a fragment.
    pub(super) fn remove(&mut self, part: &Arc<Part>) {
        self.0.retain(|(other, _)| !Arc::ptr_eq(other, part));
    }

    /// The first one, which counts where nothing is served yet.
    pub(super) fn first(&self) -> Option<(&Part, usize)> {
        self.iter().next()
    }

    /// All of them, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Part, usize)> {
        self.0.iter().map(|(part, index)| (&**part, *index))
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
