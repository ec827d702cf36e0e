//! Which waiting claims are decided for again when a load balancer becomes available: those that it fits, the oldest
//! first, until one takes it. Otherwise every change would make all waiting claims search all load balancers. It
//! binds nothing; [`super::machine`] calls it.

use super::machine::{Age, Binder};
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

/// With more load balancers at once it is cheaper to decide for a claim than to check which of them fit it.
const FEW: usize = 16;

/// Load balancers that became available and are still free.
#[derive(Debug, Default)]
pub(super) struct Opened {
    names: BTreeSet<Arc<str>>,
    /// The youngest waiting claim to which they have been offered.
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
    /// The oldest claim to decide for: a touched one, or a waiting one that an available load balancer fits.
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
            // A claim that is decided for sees everything that is available.
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
