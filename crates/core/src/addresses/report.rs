//! What the status of an AddressPool says: its counts, whether it is used and readable; and the finalizer that keeps
//! it. Pure values; [`super::pools`] fills them in and the controller writes them.

use super::range::{Range, RangeError};
use crate::status::Condition;
use std::sync::Arc;

/// The report of a pool, for its status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolReport {
    /// Its name.
    pub name: Arc<str>,
    /// Whether it is used.
    pub used: PoolUse,
    /// Entries that could not be read; the others are used.
    pub refused: Vec<RangeError>,
    /// Its IPv4 addresses. None: it has none.
    pub ipv4: Option<Counts>,
    /// Its IPv6 addresses. None: it has none.
    pub ipv6: Option<Counts>,
}

impl PoolReport {
    /// Whether an address of it is held or rests. Then the pool must not be removed.
    pub fn in_use(&self) -> bool {
        let busy = |counts: &Counts| counts.assigned + counts.resting > 0;
        [&self.ipv4, &self.ipv6].into_iter().flatten().any(busy)
    }
}

/// What to do with the finalizer of a pool or of a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// Nothing.
    Keep,
    /// Add it.
    Add,
    /// Remove it: the pool, or the holder, may go.
    Remove,
}

impl Guard {
    /// A requester has the finalizer before it gets an address, and until it has none.
    pub fn of_holder(held: bool, guarded: bool, deleting: bool) -> Self {
        match (guarded, deleting) {
            (false, false) => Self::Add,
            (true, true) if !held => Self::Remove,
            _ => Self::Keep,
        }
    }
}

impl PoolReport {
    /// A pool stays until no address of it is held or rests. No finalizer can be added to an object that is being
    /// deleted.
    pub fn guard(&self, guarded: bool, deleting: bool) -> Guard {
        match (self.in_use(), guarded, deleting) {
            (true, false, false) => Guard::Add,
            (false, true, true) => Guard::Remove,
            _ => Guard::Keep,
        }
    }

    /// Whether new addresses are given from it, as a condition.
    pub fn used_condition(&self) -> Condition {
        let (holds, reason, message) = match &self.used {
            PoolUse::Used => (true, "Used", "addresses are granted from this pool".to_owned()),
            PoolUse::Overlaps { pool, range } => (
                false,
                "Overlaps",
                format!(
                    "{}-{} overlaps the older AddressPool {pool}: no new addresses are granted from this pool \
                     until they have no address in common",
                    range.first(),
                    range.last(),
                ),
            ),
            PoolUse::Deleting if self.in_use() => (
                false,
                "InUse",
                "it is being deleted, and goes when its last address is released: `kubectl get addresses` shows \
                 the holders"
                    .to_owned(),
            ),
            PoolUse::Deleting => (false, "Deleting", "it is being deleted".to_owned()),
        };
        Condition { holds, reason: reason.into(), message: message.into() }
    }

    /// Whether all its entries can be read, as a condition; some of those that cannot are quoted.
    pub fn readable_condition(&self) -> Condition {
        const MOST_QUOTED: usize = 5;
        let told: Vec<_> = self.refused.iter().take(MOST_QUOTED).map(ToString::to_string).collect();
        let (reason, message) = match told.is_empty() {
            true => ("Readable", "all entries are used".to_owned()),
            false => ("BadEntries", format!("left out: {}", told.join("; "))),
        };
        Condition { holds: told.is_empty(), reason: reason.into(), message: message.into() }
    }

    /// The conditions to send as Events: what is wrong now and was not before. A pool that is being deleted and not
    /// in use is no news.
    pub fn news(&self, before: Option<&Self>) -> impl Iterator<Item = Condition> {
        let wrong = |it: &Self| {
            let goes = it.used == PoolUse::Deleting && !it.in_use();
            let used = (!goes).then(|| it.used_condition());
            let both = used.into_iter().chain([it.readable_condition()]);
            both.filter(|it| !it.holds).collect::<Vec<_>>()
        };
        let old = before.map(wrong).unwrap_or_default();
        wrong(self).into_iter().filter(move |it| !old.contains(it))
    }
}

/// Whether new addresses are granted from a pool. Granted addresses stay either way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolUse {
    /// It is used.
    Used,
    /// It has addresses in common with an older one.
    Overlaps {
        /// The older pool.
        pool: Arc<str>,
        /// The range of this pool that overlaps it.
        range: Range,
    },
    /// It is being deleted.
    Deleting,
}

/// Counts of a pool's addresses of one family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Addresses with a holder.
    pub assigned: u64,
    /// Addresses that rest.
    pub resting: u64,
    /// Addresses that can be granted now.
    pub available: u128,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(used: PoolUse, assigned: u64, resting: u64) -> PoolReport {
        let counts = Counts { assigned, resting, available: 7 };
        PoolReport { name: "p".into(), used, refused: Vec::new(), ipv4: Some(counts), ipv6: None }
    }

    #[test]
    fn a_pool_is_guarded_while_somebody_has_an_address_of_it_or_one_rests() {
        for (assigned, resting) in [(1, 0), (0, 1)] {
            let used = report(PoolUse::Used, assigned, resting);
            assert_eq!(used.guard(false, false), Guard::Add);
            assert_eq!(used.guard(true, false), Guard::Keep);
            assert_eq!(used.guard(true, true), Guard::Keep);
            assert_eq!(used.guard(false, true), Guard::Keep, "it is too late");
        }
        let idle = report(PoolUse::Used, 0, 0);
        assert_eq!(idle.guard(true, false), Guard::Keep, "it would be put on again soon");
        assert_eq!(idle.guard(true, true), Guard::Remove);
    }

    #[test]
    fn a_holder_is_guarded_before_it_gets_an_address_and_until_it_has_none() {
        assert_eq!(Guard::of_holder(false, false, false), Guard::Add);
        assert_eq!(Guard::of_holder(true, true, false), Guard::Keep);
        assert_eq!(Guard::of_holder(true, true, true), Guard::Keep);
        assert_eq!(Guard::of_holder(false, true, true), Guard::Remove);
        assert_eq!(Guard::of_holder(false, false, true), Guard::Keep, "it is too late");
    }

    #[test]
    fn what_is_wrong_with_a_pool_is_news_once() {
        let reasons = |one: &PoolReport, before: Option<&PoolReport>| -> Vec<Arc<str>> {
            one.news(before).map(|it| it.reason).collect()
        };
        let (_, refused) = Range::parse_all(["garbage"]);
        let good = report(PoolUse::Used, 0, 0);
        let bad = PoolReport { refused, ..good.clone() };
        assert_eq!(reasons(&good, None), []);
        assert_eq!(reasons(&bad, None), ["BadEntries".into()]);
        assert_eq!(reasons(&bad, Some(&good)), ["BadEntries".into()]);
        assert_eq!(reasons(&bad, Some(&bad)), []);
        assert_eq!(reasons(&report(PoolUse::Deleting, 1, 0), Some(&good)), ["InUse".into()]);
        assert_eq!(reasons(&report(PoolUse::Deleting, 0, 0), Some(&good)), []);
    }

    #[test]
    fn conditions_say_what_is_wrong_with_a_pool() {
        let (_, refused) = Range::parse_all(["192.0.2.9-192.0.2.8", "garbage"]);
        let bad = PoolReport { refused, ..report(PoolUse::Used, 0, 0) };
        let readable = bad.readable_condition();
        assert_eq!((readable.holds, &*readable.reason), (false, "BadEntries"));
        assert!(readable.message.contains("garbage"), "{}", readable.message);
        let range = Range::parse_all(["192.0.2.0/24"]).0[0];
        let overlaps = PoolUse::Overlaps { pool: "older".into(), range };
        let cases = [
            (report(PoolUse::Used, 1, 0), true, "Used"),
            (report(overlaps, 0, 0), false, "Overlaps"),
            (report(PoolUse::Deleting, 1, 0), false, "InUse"),
            (report(PoolUse::Deleting, 0, 0), false, "Deleting"),
        ];
        for (report, holds, reason) in cases {
            let used = report.used_condition();
            assert_eq!((used.holds, &*used.reason), (holds, reason));
            assert_eq!(&*report.readable_condition().reason, "Readable");
        }
    }
}
