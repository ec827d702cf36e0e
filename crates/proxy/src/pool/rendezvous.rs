//! Consistent hashing by weighted rendezvous: every member draws a number for the client, and the best
//! draw wins. A lost member moves only its own clients; every proxy with the same members chooses
//! alike. Pure, called by the pool's table.

use super::live::View;
use std::net::{IpAddr, SocketAddr};

#[derive(Debug)]
pub(super) struct Rendezvous {
    seeds: Box<[u64]>,
    /// None if all are equal: then the largest draw wins, without a logarithm.
    weights: Option<Box<[u16]>>,
}

impl Rendezvous {
    pub(super) fn new(members: impl Iterator<Item = (SocketAddr, u16)>) -> Self {
        let (seeds, weights): (Vec<_>, Vec<_>) =
            members.map(|(address, weight)| (seed(address), weight)).unzip();
        let equal = weights.windows(2).all(|pair| pair[0] == pair[1]);
        Self { seeds: seeds.into(), weights: (!equal).then(|| weights.into()) }
    }

    /// The client's member among those that take clients and are not to be skipped.
    pub(super) fn pick(
        &self,
        live: View<'_>,
        client: IpAddr,
        mut skip: impl FnMut(usize) -> bool,
    ) -> Option<usize> {
        let client = hash_ip(client);
        let members = live.members().filter(|member| !skip(*member));
        let draws = members.filter_map(|i| Some((i, mix(client ^ self.seeds.get(i)?))));
        match &self.weights {
            None => draws.max_by_key(|(_, draw)| *draw).map(|(i, _)| i),
            Some(weights) => {
                let mut best = (None, f64::INFINITY);
                for (i, draw) in draws {
                    let uniform = uniform(draw);
                    let rate = f64::from(weights[i]);
                    // A logarithm is expensive, and −ln u is at least 1 − u: most members cannot win
                    // any more.
                    if (1.0 - uniform) / rate < best.1 && -uniform.ln() / rate < best.1 {
                        best = (Some(i), -uniform.ln() / rate);
                    }
                }
                best.0
            }
        }
    }
}

/// A draw as a number above 0, at most 1. Its −ln u / w is exponentially distributed with the weight as
/// rate, so each member has the least value in proportion to its weight.
fn uniform(draw: u64) -> f64 {
    ((draw >> 11) + 1) as f64 / (1u64 << 53) as f64
}

fn seed(address: SocketAddr) -> u64 {
    mix(hash_ip(address.ip()) ^ u64::from(address.port()))
}

fn hash_ip(address: IpAddr) -> u64 {
    match address.to_canonical() {
        IpAddr::V4(v4) => mix(u64::from(v4.to_bits())),
        IpAddr::V6(v6) => {
            let bits = v6.to_bits();
            mix(mix((bits >> 64) as u64) ^ bits as u64)
        }
    }
}

/// The finalizer of splitmix64: every bit of the result depends on every bit given.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::super::live::Live;
    use super::*;
    use proptest::prelude::*;

    fn address(i: u32) -> SocketAddr {
        SocketAddr::new(IpAddr::from((0x0a00_0000 + i).to_be_bytes()), 80)
    }

    fn client(i: u32) -> IpAddr {
        IpAddr::from((0xc633_6400u32 + i).to_be_bytes())
    }

    fn choices(members: &[(SocketAddr, u16)], clients: u32) -> Vec<SocketAddr> {
        let table = Rendezvous::new(members.iter().copied());
        let live = Live::new(members.iter().map(|(_, weight)| *weight).collect(), |_| true);
        let pick = |c| table.pick(live.view(), client(c), |_| false).unwrap();
        (0..clients).map(|c| members[pick(c)].0).collect()
    }

    #[test]
    fn losing_one_of_ten_members_moves_a_tenth_of_the_clients() {
        let members: Vec<_> = (0..10).map(|i| (address(i), 1)).collect();
        let (before, after) = (choices(&members, 10_000), choices(&members[1..], 10_000));
        let moved = before.iter().zip(&after).filter(|(a, b)| a != b).count();
        assert!((900..1100).contains(&moved), "{moved} of 10000");
    }

    #[test]
    fn clients_are_spread_by_weight() {
        let members = [(address(0), 1), (address(1), 2), (address(2), 5)];
        let taken = choices(&members, 16_000);
        let counts = members.map(|(a, _)| taken.iter().filter(|t| **t == a).count());
        for (count, share) in counts.iter().zip([2000usize, 4000, 10_000]) {
            assert!(count.abs_diff(share) < share / 10, "{counts:?}");
        }
    }

    #[test]
    fn a_mapped_address_is_the_same_client() {
        let table = Rendezvous::new((0..9).map(|i| (address(i), 1)));
        let mapped: IpAddr = "::ffff:192.0.2.7".parse().unwrap();
        let plain: IpAddr = "192.0.2.7".parse().unwrap();
        let live = Live::new([1; 9].into(), |_| true);
        let pick = |client| table.pick(live.view(), client, |_| false);
        assert_eq!(pick(mapped), pick(plain));
    }

    proptest! {
        #[test]
        fn a_lost_member_moves_nobody_else_and_an_equal_weight_does_not_matter(
            weights in prop::collection::vec(1u16..6, 2..12), lost: prop::sample::Index,
        ) {
            let members: Vec<_> =
                weights.iter().enumerate().map(|(i, w)| (address(i as u32), *w)).collect();
            let lost = lost.index(members.len());
            let rest: Vec<_> =
                members.iter().enumerate().filter(|(i, _)| *i != lost).map(|(_, m)| *m).collect();
            for (before, after) in choices(&members, 300).iter().zip(choices(&rest, 300)) {
                prop_assert!(*before == after || *before == members[lost].0);
            }
        }
    }
}
