//! The free addresses of one family of a pool, as a map of gaps. Its cost grows with the taken
//! addresses, not with the pool. The lowest free address is the start of the first gap. It does not
//! know which object holds an address; [`super::pools`] calls it.

use super::range::{Range, from_number, is_buggy, number};
use crate::objects::Family;
use std::collections::BTreeMap;
use std::net::IpAddr;

#[derive(Clone, Debug)]
pub(super) struct Space {
    family: Family,
    /// Whether addresses that end in .0 or .255 are never free.
    avoid_buggy: bool,
    /// All addresses: starts and ends of runs that neither touch nor overlap.
    runs: BTreeMap<u128, u128>,
    /// The free addresses in the same form. A gap neither starts nor ends with an avoided address:
    /// so a gap of avoided addresses only does not exist, and the first gap always has an address
    /// to give.
    gaps: BTreeMap<u128, u128>,
    /// How many addresses could be free. For all of IPv6 it is one less, as the number does not
    /// fit.
    total: u128,
    taken: u64,
}

impl Space {
    pub(super) fn new(family: Family, ranges: &[Range], avoid_buggy: bool) -> Self {
        let mut all: Vec<(u128, u128)> = ranges
            .iter()
            .filter(|range| range.family() == family)
            .map(|range| (number(range.first()), number(range.last())))
            .collect();
        all.sort_unstable();
        let mut runs: Vec<(u128, u128)> = Vec::new();
        for (first, last) in all {
            match runs.last_mut() {
                Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
                _ => runs.push((first, last)),
            }
        }
        let runs: BTreeMap<_, _> = runs.into_iter().collect();
        let avoid_buggy = avoid_buggy && family == Family::V4;
        let mut space =
            Self { family, avoid_buggy, gaps: BTreeMap::new(), runs, total: 0, taken: 0 };
        for (first, last) in space.runs.clone() {
            let size = (last - first).saturating_add(1);
            let avoided = if avoid_buggy { buggy_below(last + 1) - buggy_below(first) } else { 0 };
            space.total = space.total.saturating_add(size - avoided);
            space.insert_trimmed(first, last);
        }
        space
    }

    /// Whether there are addresses of this family at all.
    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// First and last addresses of runs that neither touch nor overlap.
    pub(super) fn runs(&self) -> impl Iterator<Item = Range> {
        let ends = |(first, last): (&u128, &u128)| {
            Range::new(from_number(self.family, *first), from_number(self.family, *last))
        };
        self.runs.iter().filter_map(ends)
    }

    /// The lowest free address.
    pub(super) fn lowest(&self) -> Option<IpAddr> {
        self.gaps.keys().next().map(|first| from_number(self.family, *first))
    }

    /// How many addresses are free.
    pub(super) fn available(&self) -> u128 {
        self.total - u128::from(self.taken)
    }

    /// Takes an address out. False: it was not free.
    pub(super) fn take(&mut self, address: IpAddr) -> bool {
        let at = number(address);
        let gap = self.gaps.range(..=at).next_back().map(|(first, last)| (*first, *last));
        let Some((first, last)) = gap.filter(|(_, last)| at <= *last) else { return false };
        if self.avoids(address) {
            return false;
        }
        self.gaps.remove(&first);
        if first < at {
            self.insert_trimmed(first, at - 1);
        }
        if at < last {
            self.insert_trimmed(at + 1, last);
        }
        self.taken += 1;
        true
    }

    /// Gives an address back. False: it is avoided, not in the pool, or was free.
    pub(super) fn release(&mut self, address: IpAddr) -> bool {
        let at = number(address);
        let run = self.runs.range(..=at).next_back();
        if run.is_none_or(|(_, last)| *last < at) || self.avoids(address) {
            return false;
        }
        let before = self.gaps.range(..=at).next_back().map(|(first, last)| (*first, *last));
        if before.is_some_and(|(_, last)| at <= last) {
            return false;
        }
        let (mut first, mut last) = (at, at);
        if let Some((start, end)) = before
            && end + 1 == at
        {
            first = start;
        }
        if let Some(next) = at.checked_add(1)
            && let Some(end) = self.gaps.remove(&next)
        {
            last = end;
        }
        self.gaps.insert(first, last);
        self.taken -= 1;
        true
    }

    fn avoids(&self, address: IpAddr) -> bool {
        self.avoid_buggy && is_buggy(address)
    }

    /// Inserts a gap without avoided addresses at its ends: at most two at each, .255 and the .0
    /// behind it.
    fn insert_trimmed(&mut self, mut first: u128, mut last: u128) {
        while first <= last && self.avoids(from_number(self.family, first)) {
            first += 1;
        }
        while first < last && self.avoids(from_number(self.family, last)) {
            last -= 1;
        }
        if first <= last {
            self.gaps.insert(first, last);
        }
    }
}

/// How many IPv4 addresses below this number end in .0 or .255.
fn buggy_below(number: u128) -> u128 {
    2 * (number / 256) + u128::from(!number.is_multiple_of(256))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::net::Ipv4Addr;

    fn space(entries: &[&str], avoid_buggy: bool) -> Space {
        let (ranges, errors) = Range::parse_all(entries);
        assert_eq!(errors, []);
        let family = ranges[0].family();
        Space::new(family, &ranges, avoid_buggy)
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_pool_of_any_size_costs_nothing_until_it_is_used() {
        for (entry, available) in
            [("10.0.0.0/8", 1 << 24), ("2001:db8::/64", 1 << 64), ("::/0", u128::MAX)]
        {
            let mut space = space(&[entry], false);
            assert_eq!((space.gaps.len(), space.available()), (1, available), "{entry}");
            let lowest = space.lowest().unwrap();
            assert!(space.take(lowest));
            assert_eq!((space.gaps.len(), space.available()), (1, available - 1), "{entry}");
        }
    }

    #[test]
    fn the_lowest_free_address_is_found_at_once_in_a_dense_pool() {
        let mut space = space(&["10.0.0.0/14"], true);
        let mut given = 0u32;
        while let Some(lowest) = space.lowest() {
            assert!(!is_buggy(lowest) && space.take(lowest));
            given += 1;
            assert!(space.gaps.len() <= 1, "nothing is left behind to be skipped");
        }
        assert_eq!(given, 254 * 1024);
        assert!(space.release(ip("10.2.7.9")));
        assert_eq!(space.lowest(), Some(ip("10.2.7.9")));
    }

    #[test]
    fn ranges_that_touch_or_overlap_are_one() {
        let space = space(&["192.0.2.8/30", "192.0.2.0/29", "192.0.2.4-192.0.2.9"], false);
        assert_eq!((space.runs.len(), space.available()), (1, 12));
    }

    #[test]
    fn the_ends_of_the_address_space_are_ordinary_addresses() {
        for entry in ["255.255.255.254/31", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe/127"] {
            let mut space = space(&[entry], false);
            let low = space.lowest().unwrap();
            assert!(space.take(low));
            let high = space.lowest().unwrap();
            assert!(space.take(high) && !space.take(high));
            assert_eq!((space.lowest(), space.available()), (None, 0));
            assert!(space.release(high) && space.release(low) && !space.release(low));
            assert_eq!((space.lowest(), space.available(), space.gaps.len()), (Some(low), 2, 1));
        }
    }

    #[test]
    fn a_pool_of_avoided_addresses_only_has_nothing_to_give() {
        let space = space(&["192.0.2.255-192.0.3.0"], true);
        assert_eq!((space.lowest(), space.available()), (None, 0));
    }

    proptest! {
        #[test]
        fn gaps_are_what_a_set_of_free_addresses_says(
            ranges in prop::collection::vec((0u32..1200, 0u32..400), 1..6),
            avoid: bool,
            steps in prop::collection::vec((any::<bool>(), 0u32..1600), 0..200),
        ) {
            let at = |offset: u32| IpAddr::from(Ipv4Addr::from_bits(0x0a00_0000 + offset));
            let ranges: Vec<Range> =
                ranges.iter().map(|(start, more)| Range::new(at(*start), at(start + more)).unwrap()).collect();
            let mut space = Space::new(Family::V4, &ranges, avoid);
            let all: BTreeSet<IpAddr> = (0..1600).map(at)
                .filter(|it| ranges.iter().any(|range| range.contains(*it)) && !(avoid && is_buggy(*it)))
                .collect();
            let mut free = all.clone();
            for (take, offset) in steps {
                if take {
                    prop_assert_eq!(space.take(at(offset)), free.remove(&at(offset)));
                } else {
                    let freed = all.contains(&at(offset)) && free.insert(at(offset));
                    prop_assert_eq!(space.release(at(offset)), freed);
                }
                prop_assert_eq!(space.lowest(), free.first().copied());
                prop_assert_eq!(space.available(), free.len() as u128);
            }
        }
    }
}
