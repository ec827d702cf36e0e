//! Who of those who wait looks again when a load balancer becomes available: whom it suits, the oldest first, and
//! for as long as nobody has taken it. All who wait would otherwise look through all that there is, whatever
//! changes.

use super::machine::{Age, Binder};
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

/// With more than so many at once it is cheaper to look than to ask of each whether it suits.
const FEW: usize = 16;

/// What became available and is still free.
#[derive(Debug, Default)]
pub(super) struct Opened {
    names: BTreeSet<Arc<str>>,
    /// Who waits has been asked up to this one.
    asked: Option<Age>,
}

impl Opened {
    pub(super) fn add(&mut self, name: &Arc<str>) {
        self.names.insert(name.clone());
        self.asked = None;
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.names.remove(name);
    }
}

impl Binder {
    /// The oldest claim that has to look again: one that is touched, or one that waits for what is there now.
    pub(super) fn next_claim(&mut self) -> Option<Age> {
        loop {
            let touched = self.dirty_claims.first();
            let waits = match self.opened.names.is_empty() {
                true => None,
                false => {
                    let asked = self.opened.asked.as_ref();
                    let after = asked.map_or(Bound::Unbounded, Bound::Excluded);
                    self.pending.range((after, Bound::Unbounded)).next()
                }
            };
            let (age, is_touched) = match (touched, waits) {
                (None, None) => {
                    self.opened = Opened::default();
                    return None;
                }
                (Some(touched), None) => (touched.clone(), true),
                (Some(touched), Some(waits)) if touched <= waits => (touched.clone(), true),
                (_, Some(waits)) => (waits.clone(), false),
            };
            if is_touched {
                self.dirty_claims.remove(&age);
            }
            // Whoever looks sees all that is there.
            if self.opened.asked.as_ref() < Some(&age) {
                self.opened.asked = Some(age.clone());
            }
            if is_touched || self.is_offered(&age) {
                return Some(age);
            }
        }
    }

    /// Whether something that became available suits a claim.
    fn is_offered(&self, age: &Age) -> bool {
        let Some(slot) = self.claims.get(&age.key) else { return false };
        let Ok(ask) = &slot.seen.ask else { return false };
        if self.opened.names.len() > FEW {
            return true;
        }
        let suits = |name: &Arc<str>| match &ask.load_balancer {
            Some(named) => named == name,
            None => self.fits(&slot.seen, ask, name, true).is_ok(),
        };
        self.opened.names.iter().any(suits)
    }
}
