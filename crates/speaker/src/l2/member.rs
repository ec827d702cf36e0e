//! Speakers as they know each other, and what each says of an address. It decides nothing but the order of members.

use super::frame::Mac;
use crate::dice::mix;
use std::fmt;
use std::net::IpAddr;

/// Identifies a speaker: a hash of its name, the same on every node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u64);

impl MemberId {
    /// The speaker of this name.
    pub fn of(name: &str) -> Self {
        Self(mix(fold(name.as_bytes())))
    }
}

impl fmt::Debug for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// FNV-1a.
fn fold(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// What a speaker tells of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// Its name, usually the node's.
    pub name: String,
    /// The addresses of its interfaces. They tell its frames from those of strangers.
    pub macs: Vec<Mac>,
    /// Where its node is reached. The kernel there answers for this address also while no speaker runs.
    pub at: Option<IpAddr>,
}

/// Whether a member may own an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Standing {
    /// It may not.
    #[default]
    Out,
    /// It may, if no member can that has a link in a network of the address.
    Apart,
    /// Likewise, but before others of these.
    ApartPreferred,
    /// It may, if no preferred member can.
    Eligible,
    /// It may, before others.
    Preferred,
}

/// Whether a member owns an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hold {
    /// It does not.
    #[default]
    None,
    /// It did before its process stopped for a while. It does not answer until it knows that no other member does.
    Verifies,
    /// It does.
    Owns,
    /// It answers until another member takes over: this one, or the first that is eligible.
    Offers(Option<MemberId>),
    /// It answers until this member stands in for it, while its speaker is replaced.
    Lends(MemberId),
    /// It stands in for this member: it tells who asks that the other one has the address.
    StandsIn(MemberId),
}

/// What a member says of one address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stance {
    /// Whether it may own the address.
    pub standing: Standing,
    /// Whether it owns the address.
    pub hold: Hold,
}

impl Stance {
    /// A member that says nothing of an address has this one.
    pub const NOTHING: Self = Self { standing: Standing::Out, hold: Hold::None };
}

/// The order of members for one address: the highest comes first.
pub(crate) type Rank = (Standing, u64, MemberId);

/// The rank of a member for an address: preferred ones before others, then by rendezvous hash. So each address has an
/// order of its own, and a member that comes or goes does not change the order of the others.
pub(crate) fn rank(address: IpAddr, standing: Standing, member: MemberId) -> Rank {
    let hash = match address {
        IpAddr::V4(it) => fold(&it.octets()),
        IpAddr::V6(it) => fold(&it.octets()),
    };
    (standing, mix(mix(hash) ^ member.0), member)
}

#[cfg(test)]
mod tests {
    use super::{MemberId, Standing, rank};
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    fn nodes(count: usize) -> Vec<MemberId> {
        (0..count).map(|it| MemberId::of(&format!("node-{it}"))).collect()
    }

    fn addresses(count: u32) -> impl Iterator<Item = IpAddr> {
        (0..count).map(|it| {
            let (a, b) = (it as u16 / 2, it as u8 / 2);
            if it % 2 == 0 {
                Ipv4Addr::new(192, 0, 2 + (a >> 8) as u8, b).into()
            } else {
                Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, a).into()
            }
        })
    }

    fn first(address: IpAddr, members: &[MemberId]) -> MemberId {
        let rank = |it: &&MemberId| rank(address, Standing::Eligible, **it);
        *members.iter().max_by_key(rank).expect("a member")
    }

    #[test]
    fn five_hundred_addresses_spread_over_five_nodes() {
        let nodes = nodes(5);
        let mut counts = [0; 5];
        for address in addresses(500) {
            let owner = first(address, &nodes);
            counts[nodes.iter().position(|it| *it == owner).expect("one of them")] += 1;
        }
        assert!(counts.iter().all(|it| *it <= 130), "at most 1.3 of the mean: {counts:?}");
    }

    #[test]
    fn only_the_addresses_of_a_node_move_when_it_goes() {
        let all = nodes(5);
        let (gone, left) = all.split_first().expect("five");
        for address in addresses(500) {
            let before = first(address, &all);
            let after = first(address, left);
            assert!(before == *gone || before == after, "{address}: {before:?}, {after:?}");
        }
    }
}
