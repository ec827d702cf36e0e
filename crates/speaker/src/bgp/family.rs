//! The two address families that Bowline announces: IPv4 and IPv6 unicast.

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::fmt;

/// An address family of routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Family {
    /// IPv4 unicast.
    V4,
    /// IPv6 unicast.
    V6,
}

/// Unicast: the only subsequent address family identifier here.
pub(super) const UNICAST: u8 = 1;

impl Family {
    /// Both.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// The family of a prefix.
    pub fn of(prefix: &IpNet) -> Self {
        match prefix {
            IpNet::V4(_) => Self::V4,
            IpNet::V6(_) => Self::V6,
        }
    }

    /// The address family identifier in messages.
    pub fn afi(self) -> u16 {
        match self {
            Self::V4 => 1,
            Self::V6 => 2,
        }
    }

    /// The family that a message names; `None` for families that are not announced here.
    pub(super) fn from_wire(afi: u16, safi: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|family| family.afi() == afi && safi == UNICAST)
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

/// One value for each family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PerFamily<T> {
    /// For IPv4.
    pub v4: T,
    /// For IPv6.
    pub v6: T,
}

impl<T> PerFamily<T> {
    /// The value for one family.
    pub fn get(&self, family: Family) -> &T {
        match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        }
    }

    /// The same, to change it.
    pub fn get_mut(&mut self, family: Family) -> &mut T {
        match family {
            Family::V4 => &mut self.v4,
            Family::V6 => &mut self.v6,
        }
    }

    /// Computes the value of each family.
    pub fn from_fn(mut value: impl FnMut(Family) -> T) -> Self {
        Self { v4: value(Family::V4), v6: value(Family::V6) }
    }
}

impl PerFamily<bool> {
    /// Both families.
    pub const BOTH: Self = Self { v4: true, v6: true };

    /// The families for which it is true.
    pub fn members(self) -> impl Iterator<Item = Family> {
        Family::ALL.into_iter().filter(move |family| *self.get(*family))
    }
}
