//! Where clients reach a consumer or load balancer: at an address, or by a host name where the
//! addresses are not known. Plans have [`BY_NAME`] in place of a name; statuses and everything else
//! that people read have the name. It looks up no name.

use crate::objects::Family;
use crate::plan::BY_NAME;
use serde::{Serialize, Serializer};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// An address, or a host name in its place. Names sort first, as [`BY_NAME`] sorts before
/// addresses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Point {
    /// By this host name.
    Named(Arc<str>),
    /// At this address.
    At(IpAddr),
}

impl Point {
    /// Where these listeners are reached on a load balancer with these host names; sorted.
    pub fn all(listeners: &[IpAddr], names: &[Arc<str>]) -> Vec<Self> {
        let each = listeners.iter().flat_map(|address| match *address == BY_NAME {
            true => names.iter().cloned().map(Self::Named).collect(),
            false => vec![Self::At(*address)],
        });
        let mut all: Vec<_> = each.collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The address of its listeners in a plan.
    pub fn listener(&self) -> IpAddr {
        match self {
            Self::Named(_) => BY_NAME,
            Self::At(address) => *address,
        }
    }

    /// Whether clients of another point can come here instead. A name counts for all families.
    pub(crate) fn replaces(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::At(this), Self::At(other)) => Family::of(*this) == Family::of(*other),
            (Self::Named(_), _) | (_, Self::Named(_)) => true,
        }
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => name.fmt(f),
            Self::At(address) => address.fmt(f),
        }
    }
}

/// The name or address as text.
impl Serialize for Point {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_place_of_a_name_are_all_names_and_addresses_are_as_they_are() {
        let names: [Arc<str>; 2] = ["b.example".into(), "a.example".into()];
        let one = IpAddr::from([192, 0, 2, 1]);
        let said = |listeners: &[IpAddr], names: &[Arc<str>]| {
            Point::all(listeners, names).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(said(&[BY_NAME, one], &names), ["a.example", "b.example", "192.0.2.1"]);
        assert_eq!(said(&[one], &names), ["192.0.2.1"]);
        assert_eq!(said(&[BY_NAME], &[]), Vec::<String>::new(), "nobody knows the name");
    }
}
