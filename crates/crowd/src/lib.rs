//! Bounds the connections of clients that have not authenticated: in all, and per client. A new connection is
//! always admitted; when there are too many, the client with the most connections loses its oldest one. So one
//! client cannot keep another out. It opens and closes nothing itself. The embedded API server and the admin
//! endpoint use it.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use tokio::sync::oneshot;

/// Decides which connection has to end. It knows no socket.
#[derive(Debug)]
struct Crowd {
    most: usize,
    each: usize,
    next: u64,
    clients: BTreeMap<u64, IpAddr>,
    by_client: HashMap<IpAddr, BTreeSet<u64>>,
}

impl Crowd {
    fn new(most: usize, each: usize) -> Self {
        Self { most, each, next: 0, clients: BTreeMap::new(), by_client: HashMap::new() }
    }

    /// Admits a connection. The second value is the connection that has to end for it.
    fn enter(&mut self, from: IpAddr) -> (u64, Option<u64>) {
        let (id, client) = (self.next, client(from));
        self.next += 1;
        self.clients.insert(id, client);
        let own = self.by_client.entry(client).or_default();
        own.insert(id);
        let goes = if own.len() > self.each {
            own.first().copied()
        } else if self.clients.len() > self.most {
            let oldest = |all: &BTreeSet<u64>| all.first().copied();
            let most = self
                .by_client
                .values()
                .max_by_key(|all| (all.len(), std::cmp::Reverse(oldest(all))));
            most.and_then(oldest)
        } else {
            None
        };
        goes.into_iter().for_each(|id| self.leave(id));
        (id, goes)
    }

    fn leave(&mut self, id: u64) {
        let Some(client) = self.clients.remove(&id) else { return };
        if let Some(own) = self.by_client.get_mut(&client) {
            own.remove(&id);
            if own.is_empty() {
                self.by_client.remove(&client);
            }
        }
    }
}

/// What counts as one client: an IPv4 address, or the /64 network of an IPv6 address.
fn client(from: IpAddr) -> IpAddr {
    match from.to_canonical() {
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)))
        }
        address => address,
    }
}

/// Admits connections.
#[derive(Clone, Debug)]
pub struct Door {
    inner: Arc<Mutex<Inside>>,
}

#[derive(Debug)]
struct Inside {
    crowd: Crowd,
    told: HashMap<u64, oneshot::Sender<()>>,
}

/// The place of an admitted connection, until it is dropped.
#[derive(Debug)]
pub struct Place {
    id: u64,
    door: Door,
}

impl Door {
    /// A door that admits this many connections at once, and this many of one client.
    pub fn new(most: usize, each: usize) -> Self {
        let inside = Inside { crowd: Crowd::new(most, each), told: HashMap::new() };
        Self { inner: Arc::new(Mutex::new(inside)) }
    }

    /// Admits a connection. It has to end when the receiver gets a message; a connection that drops its place gets
    /// none.
    pub fn enter(&self, from: IpAddr) -> (Place, oneshot::Receiver<()>) {
        let (sender, receiver) = oneshot::channel();
        let mut inside = self.inner.lock();
        let (id, goes) = inside.crowd.enter(from);
        inside.told.insert(id, sender);
        if let Some(told) = goes.and_then(|id| inside.told.remove(&id)) {
            // The connection may have ended by itself.
            let _ = told.send(());
        }
        (Place { id, door: self.clone() }, receiver)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut inside = self.door.inner.lock();
        inside.crowd.leave(self.id);
        inside.told.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[test]
    fn a_newcomer_finds_a_place_whatever_one_client_does() {
        let mut crowd = Crowd::new(4, 3);
        assert_eq!(crowd.enter(from(1)), (0, None));
        assert_eq!((1..4).map(|_| crowd.enter(from(2)).1).collect::<Vec<_>>(), [None; 3]);
        // A client with all the connections that it may have loses its own oldest one.
        assert_eq!(crowd.enter(from(2)), (4, Some(1)));
        // No place is left: the client with the most connections loses its oldest one.
        assert_eq!(crowd.enter(from(3)), (5, Some(2)));
        assert_eq!(crowd.enter(from(4)), (6, Some(3)));
        // All clients have one connection: the oldest connection ends.
        assert_eq!(crowd.enter(from(5)), (7, Some(0)));
        for id in 0..10 {
            crowd.leave(id);
        }
        assert!(crowd.clients.is_empty() && crowd.by_client.is_empty());
    }

    #[test]
    fn a_client_is_an_address_or_a_network_of_ipv6() {
        let read = |text: &str| client(text.parse().unwrap());
        assert_eq!(read("2001:db8::1"), read("2001:db8::ffff:2"));
        assert_ne!(read("2001:db8::1"), read("2001:db8:0:1::1"));
        assert_eq!(read("::ffff:192.0.2.1"), from(1));
        assert_ne!(read("192.0.2.1"), read("192.0.2.2"));
    }

    #[tokio::test]
    async fn who_has_to_go_is_told_and_who_gives_its_place_back_is_not() {
        let door = Door::new(8, 1);
        let (first, told) = door.enter(from(1));
        let (second, not_told) = door.enter(from(1));
        assert_eq!(told.await, Ok(()));
        drop((first, second));
        assert!(not_told.await.is_err());
        assert!(door.inner.lock().told.is_empty());
    }
}
