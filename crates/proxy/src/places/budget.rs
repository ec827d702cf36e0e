//! Bytes that the concurrent requests of one HTTP/2 connection share for their heads. It only
//! counts; the connection loop takes from it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The bytes that are left.
#[derive(Debug)]
pub(crate) struct Budget(AtomicUsize);

/// Bytes that are taken until this is dropped.
#[derive(Debug)]
pub(crate) struct Taken {
    from: Arc<Budget>,
    bytes: usize,
}

impl Budget {
    pub(crate) fn new(bytes: usize) -> Arc<Self> {
        Arc::new(Self(AtomicUsize::new(bytes)))
    }

    /// Takes this many bytes, or none.
    pub(crate) fn take(self: &Arc<Self>, bytes: usize) -> Option<Taken> {
        let less = |left: usize| left.checked_sub(bytes);
        let enough = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok();
        enough.then(|| Taken { from: self.clone(), bytes })
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
        let first = budget.take(7).unwrap();
        assert!(budget.take(4).is_none());
        let second = budget.take(3).unwrap();
        drop(first);
        assert!(budget.take(7).is_some() && budget.take(8).is_none());
        drop(second);
        assert!(budget.take(10).is_some());
    }
}
