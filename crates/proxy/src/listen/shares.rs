//! How many connections each client of a listener has, so that no client takes all of its places. A
//! client is an IPv4 address or the /64 of an IPv6 address: who has one has all addresses in it.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

/// What clients have.
pub(super) struct Shares {
    most: usize,
    taken: Mutex<HashMap<IpAddr, usize>>,
}

/// One connection of a client.
pub(super) struct Share {
    shares: Arc<Shares>,
    client: IpAddr,
}

impl Shares {
    /// Each client may have so many.
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, taken: Mutex::default() })
    }

    /// One more for a client, until it is dropped; nothing if it has all that it may have.
    pub(super) fn take(self: &Arc<Self>, client: IpAddr) -> Option<Share> {
        let client = whole(client);
        let mut taken = self.taken.lock();
        let count = taken.entry(client).or_default();
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(Share { shares: self.clone(), client })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = self.shares.taken.lock();
        match taken.get_mut(&self.client) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(taken.remove(&self.client)),
        }
    }
}

fn whole(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from(u128::from(address) & (u128::MAX << 64)).into(),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_its_share_and_others_have_theirs() {
        let shares = Shares::new(2);
        let take = |client: &str| shares.take(client.parse().unwrap());
        let held = [take("192.0.2.1"), take("::ffff:192.0.2.1")];
        assert!(held.iter().all(Option::is_some) && take("192.0.2.1").is_none());
        let other = [take("2001:db8::1"), take("2001:db8::2")];
        assert!(other.iter().all(Option::is_some) && take("2001:db8::3").is_none());
        assert!(take("2001:db8:0:1::1").is_some());
        drop(held);
        assert!(take("192.0.2.1").is_some());
        drop(other);
        assert_eq!(shares.taken.lock().len(), 0);
    }
}
