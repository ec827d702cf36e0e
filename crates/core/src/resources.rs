//! Exact amounts of network resources: the capacity of a load balancer, the requests on it, and how much of the
//! capacity a request fills. The binder and the admission calculate with them; nothing is rounded.

use std::cmp::Ordering;
use std::fmt;

/// A network resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// Bits per second.
    Bandwidth,
    /// Operations per second.
    Iops,
}

impl Resource {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Bandwidth, Self::Iops];
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bandwidth => "network-bandwidth",
            Self::Iops => "network-iops",
        })
    }
}

/// Suffixes of quantities, each with the largest amount that the schema accepts and with the value of the unit.
const UNITS: [(&str, u128, u128); 11] = [
    ("P", 999, 1_000_000_000_000_000),
    ("T", 999_999, 1_000_000_000_000),
    ("G", 999_999, 1_000_000_000),
    ("M", 999_999_999_999, 1_000_000),
    ("k", 999_999_999_999, 1_000),
    ("Pi", 999, 1 << 50),
    ("Ti", 999_999, 1 << 40),
    ("Gi", 999_999, 1 << 30),
    ("Mi", 999_999_999_999, 1 << 20),
    ("Ki", 999_999_999_999, 1 << 10),
    ("", 999_999_999_999_999_999, 1),
];

/// An amount as people write it: a Kubernetes quantity that the schema of amounts accepts, in the largest decimal unit of
/// which it is a multiple. An amount beyond that, such as a sum, is written in the unit that gives the shortest number.
/// Either way it is exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantity(pub u128);

impl Quantity {
    /// Whether the schema of amounts accepts exactly this amount. Sums have a wider schema.
    pub fn is_accepted(self) -> bool {
        self.unit().is_some()
    }

    fn unit(self) -> Option<(&'static str, u128, u128)> {
        let Self(amount) = self;
        let says = |(_, most, unit): &&(&str, u128, u128)| {
            amount.is_multiple_of(*unit) && amount / unit <= *most && (amount != 0 || *unit == 1)
        };
        UNITS.iter().find(says).copied()
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(amount) = *self;
        let divisors = UNITS.iter().filter(|(_, _, unit)| amount.is_multiple_of(*unit));
        let shortest = || divisors.max_by_key(|(_, _, unit)| *unit).copied();
        let (suffix, _, unit) = self.unit().or_else(shortest).unwrap_or(("", 0, 1));
        write!(f, "{}{suffix}", amount / unit)
    }
}

impl From<u64> for Quantity {
    fn from(amount: u64) -> Self {
        Self(amount.into())
    }
}

/// An amount of each resource. None: not given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Amounts {
    /// Bits per second.
    pub bandwidth: Option<u64>,
    /// Operations per second.
    pub iops: Option<u64>,
}

impl Amounts {
    /// The amount of a resource, if given.
    pub fn of(&self, resource: Resource) -> Option<u64> {
        match resource {
            Resource::Bandwidth => self.bandwidth,
            Resource::Iops => self.iops,
        }
    }

    /// The amount of a resource; 0 if not given.
    pub fn amount(&self, resource: Resource) -> u64 {
        self.of(resource).unwrap_or(0)
    }

    /// Whether no amount is given.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The larger amount of each resource.
    pub fn at_least(&self, other: &Self) -> Self {
        Self { bandwidth: self.bandwidth.max(other.bandwidth), iops: self.iops.max(other.iops) }
    }

    /// The first resource of which another amount is larger. A resource that is missing on one side is skipped.
    pub fn exceeded_by(&self, other: &Self) -> Option<Resource> {
        let less = |it: &Resource| {
            self.of(*it).zip(other.of(*it)).is_some_and(|(this, other)| other > this)
        };
        Resource::ALL.into_iter().find(less)
    }
}

impl fmt::Display for Amounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = Resource::ALL.into_iter().filter_map(|it| Some((it, self.of(it)?)));
        for (at, (resource, amount)) in said.enumerate() {
            let amount = Quantity::from(amount);
            write!(f, "{}{resource} {amount}", if at == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

/// Sums of amounts. A sum may be larger than any single amount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Bits per second.
    pub bandwidth: u128,
    /// Operations per second.
    pub iops: u128,
}

impl Totals {
    /// How much of a capacity is taken, in whole percent, at least 1 if anything is. None: there is no limit.
    pub fn percent(&self, resource: Resource, capacity: &Amounts) -> Option<u128> {
        let (taken, most) = (self.of(resource), u128::from(capacity.of(resource)?));
        match taken {
            0 => Some(0),
            taken => Some((taken.saturating_mul(100) / most.max(1)).max(1)),
        }
    }

    /// The sum of a resource.
    pub fn of(&self, resource: Resource) -> u128 {
        match resource {
            Resource::Bandwidth => self.bandwidth,
            Resource::Iops => self.iops,
        }
    }

    /// Adds amounts. Sums of fewer than 2^64 amounts are exact.
    pub fn add(&mut self, amounts: &Amounts) {
        self.bandwidth += u128::from(amounts.amount(Resource::Bandwidth));
        self.iops += u128::from(amounts.amount(Resource::Iops));
    }

    /// Subtracts amounts that were added.
    pub fn remove(&mut self, amounts: &Amounts) {
        let less = |total: u128, amount: u64| total.saturating_sub(u128::from(amount));
        self.bandwidth = less(self.bandwidth, amounts.amount(Resource::Bandwidth));
        self.iops = less(self.iops, amounts.amount(Resource::Iops));
    }
}

/// How full a request would make a load balancer: the sum of request / capacity over the requested resources. Of two
/// load balancers the fuller one has less to spare, by exactly the difference.
#[derive(Clone, Copy, Debug)]
pub struct Fill {
    whole: u8,
    part: u128,
    of: u128,
}

impl Fill {
    /// Nothing is filled: there is no limit.
    pub const NONE: Self = Self { whole: 0, part: 0, of: 1 };

    /// Of one resource. A request beyond the capacity counts as the capacity.
    pub fn one(request: u64, capacity: u64) -> Self {
        Self::reduced(false, request.min(capacity).into(), u128::from(capacity))
    }

    /// Of two resources. A request beyond the capacity counts as the capacity.
    pub fn two(first: (u64, u64), second: (u64, u64)) -> Self {
        let ((a, b), (c, d)) = (first, second);
        let [a, b, c, d] = [a.min(b), b, c.min(d), d].map(u128::from);
        let (part, carried) = (a * d).overflowing_add(c * b);
        Self::reduced(carried, part, b * d)
    }

    /// The sum is at most two. Its whole part is counted apart, so that the rest always fits.
    fn reduced(carried: bool, part: u128, of: u128) -> Self {
        let mut fill = Self { whole: 0, part, of: of.max(1) };
        let mut carried = carried;
        while carried || fill.part >= fill.of {
            fill.part = fill.part.wrapping_sub(fill.of);
            fill.whole += 1;
            carried = false;
        }
        fill
    }
}

impl Ord for Fill {
    fn cmp(&self, other: &Self) -> Ordering {
        let parts = || product(self.part, other.of).cmp(&product(other.part, self.of));
        self.whole.cmp(&other.whole).then_with(parts)
    }
}

impl PartialOrd for Fill {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Fill {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Fill {}

/// The product of two numbers, as its high and its low half.
fn product(one: u128, other: u128) -> (u128, u128) {
    const HALF: u32 = 64;
    const LOW: u128 = (1 << HALF) - 1;
    let (a, b, c, d) = (one >> HALF, one & LOW, other >> HALF, other & LOW);
    let low = b * d;
    let (middle, carried) = (a * d).overflowing_add(b * c);
    let (low, over) = low.overflowing_add(middle << HALF);
    let high = a * c + (middle >> HALF) + (u128::from(carried) << HALF) + u128::from(over);
    (high, low)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_taken_is_told_in_whole_percent() {
        let capacity = Amounts { bandwidth: Some(1000), iops: None };
        let percent =
            |bandwidth: u128| Totals { bandwidth, iops: 5 }.percent(Resource::Bandwidth, &capacity);
        let told: Vec<_> = [0, 1, 309, 999, 1000, 1500].into_iter().map(percent).collect();
        assert_eq!(told, [0, 1, 30, 99, 100, 150].map(Some));
        let taken = Totals { bandwidth: 0, iops: 5 };
        assert_eq!(taken.percent(Resource::Iops, &capacity), None);
    }

    #[test]
    fn the_fuller_one_is_found_where_a_float_sees_no_difference() {
        let large = u64::MAX;
        assert!(Fill::one(large - 2, large - 1) < Fill::one(large - 1, large));
        assert!(Fill::two((1, 3), (1, 3)) > Fill::two((1, 3), (333_333_333, 1_000_000_000)));
        assert_eq!(Fill::two((1, 3), (2, 3)), Fill::one(7, 7));
        assert_eq!(Fill::two((large, large), (large, large)), Fill::two((1, 1), (2, 2)));
        assert!(Fill::NONE < Fill::one(1, large));
    }

    #[test]
    fn a_resource_of_which_nothing_is_said_exceeds_nothing() {
        let some = Amounts { bandwidth: Some(1), iops: None };
        let more = Amounts { bandwidth: Some(1), iops: Some(5) };
        assert_eq!(some.exceeded_by(&more), None);
        assert_eq!(more.exceeded_by(&Amounts { iops: Some(6), ..some }), Some(Resource::Iops));
    }

    /// Long multiplication, bit by bit.
    fn slow(one: u128, other: u128) -> (u128, u128) {
        let (mut high, mut low) = (0u128, 0u128);
        for bit in (0..128).rev() {
            high = (high << 1) | (low >> 127);
            low <<= 1;
            if (one >> bit) & 1 == 1 {
                let (sum, over) = low.overflowing_add(other);
                (low, high) = (sum, high + u128::from(over));
            }
        }
        (high, low)
    }

    proptest! {
        #[test]
        fn products_are_exact(one: u128, other: u128) {
            prop_assert_eq!(product(one, other), slow(one, other));
        }

        #[test]
        fn small_fills_compare_as_fractions(
            a in 1u64..50, b in 0u64..50, c in 1u64..50, d in 0u64..50,
            e in 1u64..50, f in 0u64..50, g in 1u64..50, h in 0u64..50,
        ) {
            let pair = |less: u64, more: u64| (less, less + more);
            let exact = |(r1, c1): (u64, u64), (r2, c2): (u64, u64)| (r1 * c2 + r2 * c1, c1 * c2);
            let ((n1, d1), (n2, d2)) =
                (exact(pair(a, b), pair(c, d)), exact(pair(e, f), pair(g, h)));
            let one = Fill::two(pair(a, b), pair(c, d));
            let other = Fill::two(pair(e, f), pair(g, h));
            prop_assert_eq!(one.cmp(&other), (n1 * d2).cmp(&(n2 * d1)));
        }
    }
}
