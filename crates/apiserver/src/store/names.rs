//! Shares one allocation for each resource and namespace name among all objects. The writer owns it
//! and passes every key through it; readers never see it.

use std::collections::HashSet;
use std::sync::Arc;

/// Below this number of names there is no sweep.
const SWEEP_FROM: usize = 1024;

/// The shared names.
#[derive(Debug)]
pub(super) struct Names {
    known: HashSet<Arc<str>>,
    sweep_at: usize,
}

impl Default for Names {
    fn default() -> Self {
        Self { known: HashSet::new(), sweep_at: SWEEP_FROM }
    }
}

impl Names {
    /// The shared form of `name`.
    pub(super) fn intern(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.known.get(name) {
            return known.clone();
        }
        if self.known.len() >= self.sweep_at {
            self.known.retain(|name| Arc::strong_count(name) > 1);
            self.sweep_at = SWEEP_FROM.max(self.known.len() * 2);
        }
        let name: Arc<str> = name.into();
        self.known.insert(name.clone());
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_name_is_the_same_allocation() {
        let mut names = Names::default();
        let (first, again) = (names.intern("default"), names.intern("default"));
        assert!(Arc::ptr_eq(&first, &again));
        assert!(!Arc::ptr_eq(&first, &names.intern("other")));
    }

    #[test]
    fn names_that_nobody_uses_any_more_are_forgotten() {
        let mut names = Names::default();
        let kept = names.intern("kept");
        for i in 0..10 * SWEEP_FROM {
            names.intern(&format!("gone-{i}"));
        }
        assert!(names.known.len() <= SWEEP_FROM + 1, "{}", names.known.len());
        assert!(Arc::ptr_eq(&kept, &names.intern("kept")));
    }
}
