//! Bytes that requests share, so that all heads together stay below what memory allows.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that are left.
#[derive(Debug)]
pub(crate) struct Budget(AtomicUsize);

/// Bytes that were taken, until this is dropped.
#[derive(Debug)]
pub(crate) struct Taken {
    from: Arc<Budget>,
    bytes: usize,
}

impl Budget {
    pub(crate) fn new(bytes: usize) -> Arc<Self> {
        Arc::new(Self(AtomicUsize::new(bytes)))
    }

    /// So many bytes, or none.
    pub(crate) fn take(self: &Arc<Self>, bytes: usize) -> Option<Taken> {
        let mut taken = Taken { from: self.clone(), bytes: 0 };
        taken.grow_to(bytes).then_some(taken)
    }

    fn try_take(&self, bytes: usize) -> bool {
        let less = |left: usize| left.checked_sub(bytes);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }
}

impl Taken {
    /// Takes as much more as it takes to have so many; says whether there was enough.
    pub(crate) fn grow_to(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        let enough = more == 0 || self.from.try_take(more);
        if enough {
            self.bytes += more;
        }
        enough
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.from.0.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_taken_than_there_is_and_all_of_it_comes_back() {
        let budget = Budget::new(10);
        let mut first = budget.take(4).unwrap();
        assert!(first.grow_to(7) && first.grow_to(2));
        assert!(budget.take(4).is_none() && !first.grow_to(11));
        let second = budget.take(3).unwrap();
        drop(first);
        assert!(budget.take(7).is_some() && budget.take(8).is_none());
        drop(second);
        assert!(budget.take(10).is_some());
    }
}
