//! What fragments say about one thing: a pool, a site, a listener. Mostly one fragment speaks of it. When
//! several do, as where two leaders each gave a port or host to another consumer, what is served stays
//! (see `listeners` and `sites`), and before anything is served the order of the consumers decides.

use super::shards::Part;
use std::cmp::Ordering;
use std::sync::Arc;

/// Places in fragments, sorted by whose they are.
#[derive(Debug, Default)]
pub(super) struct Pieces(Vec<(Arc<Part>, usize)>);

impl Pieces {
    /// Adds what a fragment says at an index.
    pub(super) fn add(&mut self, part: &Arc<Part>, index: usize) {
        let order = |(other, at): &(Arc<Part>, usize)| -> Ordering {
            other.key.cmp(&part.key).then(at.cmp(&index))
        };
        let at = self.0.partition_point(|other| order(other) == Ordering::Less);
        self.0.insert(at, (part.clone(), index));
    }

    /// Takes out all that a fragment says.
    pub(super) fn remove(&mut self, part: &Arc<Part>) {
        self.0.retain(|(other, _)| !Arc::ptr_eq(other, part));
    }

    /// The one that counts.
    pub(super) fn first(&self) -> Option<(&Part, usize)> {
        self.iter().next()
    }

    /// All of them, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Part, usize)> {
        self.0.iter().map(|(part, index)| (&**part, *index))
    }

    /// Whether nobody says anything.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
