//! The uids of objects that were deleted last. The answer to a write can arrive after the watch has shown that the
//! object is deleted; it must not bring the object back. The controller asks before it takes in an answer.

use std::collections::VecDeque;
use std::sync::Arc;

/// How many uids are remembered. Every write is answered before so many more objects are deleted.
const MOST: usize = 1024;

/// See the module.
#[derive(Debug, Default)]
pub struct Tombstones {
    /// The newest first.
    uids: VecDeque<Arc<str>>,
}

impl Tombstones {
    /// The object of this uid is deleted.
    pub fn bury(&mut self, uid: &Arc<str>) {
        self.uids.truncate(MOST - 1);
        self.uids.push_front(Arc::clone(uid));
    }

    /// Whether the object of this uid was deleted.
    pub fn is_buried(&self, uid: &Arc<str>) -> bool {
        self.uids.contains(uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_uids_of_the_last_deleted_objects_are_remembered_and_no_more() {
        let mut tombstones = Tombstones::default();
        let uid = |number: usize| Arc::from(number.to_string());
        (0..=MOST).for_each(|number| tombstones.bury(&uid(number)));
        assert!(!tombstones.is_buried(&uid(0)), "the oldest is forgotten");
        assert!(tombstones.is_buried(&uid(1)) && tombstones.is_buried(&uid(MOST)));
        assert_eq!(tombstones.uids.len(), MOST);
    }
}
