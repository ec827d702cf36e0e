//! Bytes of request heads, for all clients together. Each client has a share, as with places: it may have
//! most of the bytes while no other client needs them. When too few are left, a client that asks for less
//! than another holds gets them from the client (or the IPv6 network) that holds the most. So a head that
//! fits into its client's equal share always gets its bytes.

use super::client::Client;
use super::holders::Holders;
use super::ledger::Id;
use super::said::Said;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::Notify;

/// Bytes for heads.
#[derive(Debug)]
pub(crate) struct Heads {
    account: Mutex<Account<Arc<Notify>>>,
    said: Said,
}

/// The bytes of a head, until this is dropped or another client gets them.
#[derive(Debug)]
pub(crate) struct HeadBytes {
    from: Arc<Heads>,
    id: Id,
    bytes: usize,
    lost: Arc<Notify>,
}

impl Heads {
    /// A budget of this many bytes. One client may have three quarters of them, and always one head of the
    /// largest size.
    pub(crate) fn new(bytes: usize, largest: usize) -> Arc<Self> {
        let client = (bytes - bytes / 4).max(largest).min(bytes);
        let account = Mutex::new(Account::new(bytes, client));
        Arc::new(Self { account, said: Said::default() })
    }

    /// Takes this many bytes for a head of a client, or none.
    pub(crate) fn take(self: &Arc<Self>, client: IpAddr, bytes: usize) -> Option<HeadBytes> {
        let lost = Arc::new(Notify::new());
        let id = self.account.lock().enter(client.into(), lost.clone());
        let mut taken = HeadBytes { from: self.clone(), id, bytes: 0, lost };
        taken.grow_to(bytes).then_some(taken)
    }

    fn grow(&self, id: Id, more: usize) -> bool {
        let mut account = self.account.lock();
        let Some(client) = account.client(id) else { return false };
        let given = account.grow(id, more);
        drop(account);
        match given {
            Some(given) => {
                for (_, lost) in given {
                    self.said.displaced("heads", client);
                    lost.notify_one();
                }
                true
            }
            None => {
                self.said.refused("heads", client);
                false
            }
        }
    }
}

impl HeadBytes {
    /// Takes more bytes until the head has this many; returns whether it has them.
    pub(crate) fn grow_to(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        let enough = more == 0 || self.from.grow(self.id, more);
        if enough {
            self.bytes += more;
        }
        enough
    }

    /// Resolves when another client got the bytes.
    pub(crate) async fn lost(&self) {
        self.lost.notified().await;
    }
}

impl Drop for HeadBytes {
    fn drop(&mut self) {
        self.from.account.lock().leave(self.id);
    }
}

/// Which client has how many bytes. It decides with values alone.
#[derive(Debug)]
struct Account<V> {
    most: usize,
    client: usize,
    holders: Holders,
    heads: HashMap<Id, (Client, V)>,
    next: Id,
}

impl<V> Account<V> {
    fn new(most: usize, client: usize) -> Self {
        Self { most, client, holders: Holders::default(), heads: HashMap::new(), next: 0 }
    }

    /// Adds a head of a client, without any bytes yet.
    fn enter(&mut self, client: Client, value: V) -> Id {
        let id = self.next;
        self.next += 1;
        self.heads.insert(id, (client, value));
        id
    }

    /// The client of a head that still has its bytes.
    fn client(&self, id: Id) -> Option<Client> {
        self.heads.get(&id).map(|(client, _)| *client)
    }

    /// Gives a head more bytes, and returns the heads that lost theirs for it. None if the client has its
    /// share; then no head loses bytes.
    fn grow(&mut self, id: Id, more: usize) -> Option<Vec<(Id, V)>> {
        let client = self.client(id)?;
        let wants = self.holders.amount(client).checked_add(more)?;
        if wants > self.client {
            return None;
        }
        let mut given = Vec::new();
        while self.most - self.holders.total() < more {
            let giver = self.holders.giver(client, more);
            let newest = giver.and_then(|giver| self.holders.ids(giver).next_back());
            let Some((from, newest)) = newest.and_then(|id| Some((self.client(id)?, id))) else {
                for (from, id, bytes) in given {
                    self.holders.add(from, id, bytes);
                }
                return None;
            };
            given.push((from, newest, self.holders.remove(from, newest)));
        }
        self.holders.add(client, id, more);
        let lost = |(_, id, _)| self.heads.remove(&id).map(|(_, value)| (id, value));
        Some(given.into_iter().filter_map(lost).collect())
    }

    /// Removes a head.
    fn leave(&mut self, id: Id) {
        if let Some((client, _)) = self.heads.remove(&id) {
            self.holders.remove(client, id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    const GREEDY: Client = Client::V4(9);

    /// Adds a head of a client and gives it bytes.
    fn take(account: &mut Account<()>, client: Client, bytes: usize) -> (Id, Option<Vec<Id>>) {
        let id = account.enter(client, ());
        let given = account.grow(id, bytes);
        if given.is_none() {
            account.leave(id);
        }
        (id, given.map(|given| given.into_iter().map(|(id, ())| id).collect()))
    }

    #[test]
    fn no_client_takes_more_than_its_most_and_all_of_it_comes_back() {
        let mut account = Account::new(16, 12);
        assert_eq!(take(&mut account, GREEDY, 8), (0, Some(vec![])));
        assert_eq!(take(&mut account, GREEDY, 5), (1, None));
        assert_eq!(account.grow(0, 4), Some(vec![]));
        assert_eq!(account.grow(0, 1), None);
        account.leave(0);
        account.leave(0);
        assert_eq!((account.holders.total(), account.heads.len()), (0, 0));
    }

    #[test]
    fn a_newcomer_gets_the_newest_heads_of_the_client_that_holds_most() {
        let mut account = Account::new(16, 16);
        (0..4).for_each(|id| assert_eq!(take(&mut account, GREEDY, 4), (id, Some(vec![]))));
        assert_eq!(take(&mut account, Client::V4(1), 6), (4, Some(vec![3, 2])));
        assert_eq!(account.client(3), None);
        assert_eq!(account.grow(3, 1), None, "a head without its bytes gets no more");
        assert_eq!(take(&mut account, GREEDY, 4), (5, None), "the greedy client has its share");
        assert_eq!(take(&mut account, Client::V4(2), 4), (6, Some(vec![1])));
    }

    #[test]
    fn a_head_that_is_refused_takes_nothing_of_others() {
        let mut account = Account::new(16, 16);
        for (client, bytes) in [(1, 5), (2, 5), (3, 6)] {
            assert!(take(&mut account, Client::V4(client), bytes).1.is_some());
        }
        let before: Vec<_> = account.holders.shares().collect();
        assert_eq!(take(&mut account, Client::V4(4), 7), (3, None));
        // One head is large enough to give way, but its bytes are not enough.
        let more = account.enter(Client::V4(2), ());
        assert_eq!(account.grow(more, 9), None);
        assert_eq!(account.holders.shares().collect::<Vec<_>>(), before);
    }

    #[test]
    fn many_clients_of_one_ipv6_network_leave_bytes_for_a_newcomer() {
        let mut account = Account::new(16, 16);
        for n in 0..8 {
            assert!(take(&mut account, Client::V6(7 << 16 | n), 2).1.is_some());
        }
        assert_eq!(take(&mut account, Client::V6(7 << 16 | 8), 2), (8, None));
        assert_eq!(take(&mut account, Client::V6(8 << 16), 2), (9, Some(vec![7])));
        assert_eq!(take(&mut account, GREEDY, 3), (10, Some(vec![6, 5])));
    }

    #[tokio::test]
    async fn a_head_is_told_that_it_lost_its_bytes() {
        let heads = Heads::new(100, 10);
        let [greedy, other] = [[192, 0, 2, 9], [192, 0, 2, 1]].map(IpAddr::from);
        let first = heads.take(greedy, 40).unwrap();
        let mut second = heads.take(greedy, 35).unwrap();
        let third = heads.take(other, 30).unwrap();
        second.lost().await;
        assert!(!second.grow_to(36));
        drop((first, second, third));
        assert_eq!(heads.account.lock().holders.total(), 0);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Take(u32, usize),
        Grow(prop::sample::Index, usize),
        Leave(prop::sample::Index),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let index = any::<prop::sample::Index>;
        let step = prop_oneof![
            3 => (0..6u32, 1..9usize).prop_map(|(client, bytes)| Step::Take(client, bytes)),
            1 => (index(), 1..9usize).prop_map(|(which, more)| Step::Grow(which, more)),
            1 => index().prop_map(Step::Leave),
        ];
        prop::collection::vec(step, 0..200)
    }

    proptest! {
        #[test]
        fn a_head_within_its_clients_equal_share_finds_room(
            steps in steps(), most in 8usize..40, client in 8usize..40,
        ) {
            let mut account = Account::new(most, client);
            let mut open: BTreeMap<Id, (u32, usize)> = BTreeMap::new();
            for step in steps {
                let pick = |which: prop::sample::Index| open.keys().nth(which.index(open.len())).copied();
                let (id, who, more) = match step {
                    Step::Take(who, bytes) => (account.enter(Client::V4(who), ()), who, bytes),
                    Step::Grow(which, more) if !open.is_empty() => {
                        let id = pick(which).unwrap();
                        (id, open[&id].0, more)
                    }
                    Step::Leave(which) if !open.is_empty() => {
                        let id = pick(which).unwrap();
                        account.leave(id);
                        open.remove(&id);
                        continue;
                    }
                    _ => continue,
                };
                let clients: BTreeSet<_> = open.values().map(|(who, _)| *who).chain([who]).collect();
                let held = |of: u32| open.values().filter(|it| it.0 == of).map(|it| it.1).sum::<usize>();
                let fits = held(who) + more <= (most / clients.len()).min(client);
                match account.grow(id, more) {
                    Some(given) => {
                        for (id, ()) in given {
                            let (of, _) = open.remove(&id).unwrap();
                            prop_assert!(of != who, "a client took its own head");
                        }
                        open.entry(id).or_insert((who, 0)).1 += more;
                    }
                    None => {
                        prop_assert!(!fits, "{more} bytes for {who}, of {open:?}");
                        if !open.contains_key(&id) {
                            account.leave(id);
                        }
                    }
                }
                let total: usize = open.values().map(|(_, bytes)| *bytes).sum();
                prop_assert_eq!(account.holders.total(), total);
                prop_assert!(total <= most);
                prop_assert_eq!(account.heads.len(), open.len());
            }
        }
    }
}
