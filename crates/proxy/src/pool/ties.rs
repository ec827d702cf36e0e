//! Ties of client addresses to members, which last for the pool's timeout after the last visit. All pools of a process
//! share limited room for ties, because the source address of a datagram can be forged. When no room is left, the
//! namespace with the most ties gives way: in its pool with the most ties, the least recently used tie is dropped. So
//! a namespace with many ties takes none from a namespace with few.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The room for ties that pools share.
pub(crate) struct Ties(Mutex<Ledger>);

impl Ties {
    /// Room for at most this many ties.
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Ledger::new(most))))
    }

    /// The ties of a pool of this namespace.
    pub(super) fn of_pool(self: &Arc<Self>, namespace: Arc<str>) -> PoolTies {
        let pool = self.0.lock().add(namespace);
        PoolTies { ties: self.clone(), pool }
    }
}

impl fmt::Debug for Ties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ties")
    }
}

/// The ties of a pool. Dropping it drops them.
#[derive(Debug)]
pub(super) struct PoolTies {
    ties: Arc<Ties>,
    pool: Id,
}

impl PoolTies {
    /// The client's member, unless its last visit is too long ago.
    pub(super) fn get(
        &self,
        client: IpAddr,
        timeout: Duration,
        now: Instant,
    ) -> Option<SocketAddr> {
        self.ties.0.lock().get(self.pool, client, timeout, now)
    }

    /// The client visits this member now.
    pub(super) fn put(&self, client: IpAddr, member: SocketAddr, timeout: Duration, now: Instant) {
        let gave_way = self.ties.0.lock().put(self.pool, client, member, timeout, now);
        if let Some(namespace) = gave_way {
            tracing::warn!(
                %namespace,
                "no room for more ties of clients to members: this namespace has the most, and forgets clients \
                 that were away for longest; said once a minute"
            );
        }
    }

    /// Drops all ties of the pool.
    pub(super) fn clear(&self) {
        self.ties.0.lock().clear(self.pool);
    }
}

impl Drop for PoolTies {
    fn drop(&mut self) {
        self.ties.0.lock().remove(self.pool);
    }
}

/// Identifies a pool.
type Id = u64;

/// The most expired ties that each new tie removes.
const SWEPT: usize = 2;
/// The shortest time between two log lines that a namespace gives way.
const SAID: Duration = Duration::from_secs(60);

/// All ties of a process. It decides with values alone.
struct Ledger {
    most: usize,
    all: usize,
    next: Id,
    /// Counts uses.
    turn: u64,
    pools: HashMap<Id, Held>,
    namespaces: HashMap<Arc<str>, Standing>,
    /// Namespaces that have ties, by how many.
    ranks: BTreeSet<(usize, Arc<str>)>,
    /// When it was last logged that a namespace gave way.
    said: Option<Instant>,
}

/// The ties of a pool. Trees, because they release memory.
struct Held {
    namespace: Arc<str>,
    ties: BTreeMap<IpAddr, Tie>,
    /// Clients by their last use.
    order: BTreeMap<u64, IpAddr>,
}

#[derive(Clone, Copy)]
struct Tie {
    member: SocketAddr,
    used: Instant,
    turn: u64,
}

#[derive(Default)]
struct Standing {
    ties: usize,
    /// Pools that have ties, by how many.
    pools: BTreeSet<(usize, Id)>,
}

impl Ledger {
    fn new(most: usize) -> Self {
        Self {
            most,
            all: 0,
            next: 0,
            turn: 0,
            pools: HashMap::new(),
            namespaces: HashMap::new(),
            ranks: BTreeSet::new(),
            said: None,
        }
    }

    fn add(&mut self, namespace: Arc<str>) -> Id {
        let id = self.next;
        self.next += 1;
        let (ties, order) = (BTreeMap::new(), BTreeMap::new());
        self.pools.insert(id, Held { namespace, ties, order });
        id
    }

    fn get(&self, pool: Id, client: IpAddr, timeout: Duration, now: Instant) -> Option<SocketAddr> {
        let tie = self.pools.get(&pool)?.ties.get(&client)?;
        (now.saturating_duration_since(tie.used) < timeout).then_some(tie.member)
    }

    /// The client visits this member. Some: this namespace has given way, and that should be logged.
    fn put(
        &mut self,
        pool: Id,
        client: IpAddr,
        member: SocketAddr,
        timeout: Duration,
        now: Instant,
    ) -> Option<Arc<str>> {
        self.turn += 1;
        let turn = self.turn;
        let held = self.pools.get_mut(&pool)?;
        if let Some(tie) = held.ties.get_mut(&client) {
            held.order.remove(&tie.turn);
            held.order.insert(turn, client);
            *tie = Tie { member, used: now, turn };
            return None;
        }
        let namespace = held.namespace.clone();
        for _ in 0..SWEPT {
            let oldest = self.pools.get(&pool).and_then(Held::oldest);
            if oldest.is_some_and(|tie| now.saturating_duration_since(tie.used) >= timeout) {
                self.forget_oldest(pool);
            }
        }
        let mut gave_way = None;
        if self.all >= self.most {
            gave_way = Some(self.make_room(&namespace)?);
        }
        if let Some(held) = self.pools.get_mut(&pool) {
            held.order.insert(turn, client);
            held.ties.insert(client, Tie { member, used: now, turn });
        }
        self.count(pool, 1, 0);
        let rests = self.said.is_some_and(|said| now.saturating_duration_since(said) < SAID);
        let gave_way = gave_way.filter(|_| !rests)?;
        self.said = Some(now);
        Some(gave_way)
    }

    /// Drops a tie so that this namespace can have another; returns the namespace that lost it. None: there was no
    /// tie.
    fn make_room(&mut self, namespace: &Arc<str>) -> Option<Arc<str>> {
        let own = self.namespaces.get(namespace).map_or(0, |it| it.ties);
        let most = self.ranks.last().filter(|(ties, _)| *ties > own);
        let from = most.map_or(namespace, |(_, namespace)| namespace).clone();
        let pool = self.namespaces.get(&from).and_then(|it| it.pools.last()).map(|(_, pool)| *pool);
        pool.is_some_and(|pool| self.forget_oldest(pool)).then_some(from)
    }

    /// Drops the least recently used tie of a pool. Returns whether there was one.
    fn forget_oldest(&mut self, pool: Id) -> bool {
        let Some(held) = self.pools.get_mut(&pool) else { return false };
        let Some((_, client)) = held.order.pop_first() else { return false };
        held.ties.remove(&client);
        self.count(pool, 0, 1);
        true
    }

    fn clear(&mut self, pool: Id) {
        let Some(held) = self.pools.get_mut(&pool) else { return };
        let gone = held.ties.len();
        held.ties.clear();
        held.order.clear();
        self.count(pool, 0, gone);
    }

    fn remove(&mut self, pool: Id) {
        self.clear(pool);
        self.pools.remove(&pool);
    }

    /// This many ties of a pool were added and removed.
    fn count(&mut self, pool: Id, come: usize, gone: usize) {
        let Some(held) = self.pools.get(&pool) else { return };
        let now = held.ties.len();
        let before = now + gone - come;
        let standing = self.namespaces.entry(held.namespace.clone()).or_default();
        self.ranks.remove(&(standing.ties, held.namespace.clone()));
        standing.pools.remove(&(before, pool));
        standing.ties = standing.ties + come - gone;
        self.all = self.all + come - gone;
        if now > 0 {
            standing.pools.insert((now, pool));
        }
        match standing.ties {
            0 => _ = self.namespaces.remove(&held.namespace),
            ties => _ = self.ranks.insert((ties, held.namespace.clone())),
        }
    }
}

impl Held {
    fn oldest(&self) -> Option<&Tie> {
        let (_, client) = self.order.first_key_value()?;
        self.ties.get(client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TIMEOUT: Duration = Duration::from_secs(60);

    fn client(i: u32) -> IpAddr {
        IpAddr::from(i.to_be_bytes())
    }

    fn member(i: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], i))
    }

    fn all(ties: &Arc<Ties>) -> usize {
        ties.0.lock().all
    }

    #[test]
    fn a_tie_lasts_for_the_timeout_after_the_last_visit() {
        let (pool, start) = (Ties::new(100).of_pool("shop".into()), Instant::now());
        pool.put(client(1), member(1), TIMEOUT, start);
        let later = start + TIMEOUT / 2;
        pool.put(client(1), member(1), TIMEOUT, later);
        let at = |after| pool.get(client(1), TIMEOUT, later + after);
        assert_eq!(at(TIMEOUT - Duration::from_millis(1)), Some(member(1)));
        assert_eq!(at(TIMEOUT), None);
    }

    #[test]
    fn a_flood_of_clients_takes_bounded_room_and_spares_those_that_come_often() {
        let ties = Ties::new(100);
        let (pool, now) = (ties.of_pool("shop".into()), Instant::now());
        for i in 0..10_000 {
            pool.put(client(i), member(1), TIMEOUT, now);
            pool.put(client(u32::MAX), member(2), TIMEOUT, now);
            assert!(all(&ties) <= 100, "{}", all(&ties));
        }
        assert_eq!(pool.get(client(u32::MAX), TIMEOUT, now), Some(member(2)));
        assert_eq!(pool.get(client(1), TIMEOUT, now), None);
    }

    #[test]
    fn a_flood_to_a_thousand_pools_of_a_namespace_takes_no_tie_of_another() {
        let ties = Ties::new(1_000);
        let (shop, now) = (ties.of_pool("shop".into()), Instant::now());
        for i in 0..300 {
            shop.put(client(i), member(1), TIMEOUT, now);
        }
        let evil: Vec<_> = (0..1_000).map(|_| ties.of_pool("evil".into())).collect();
        for i in 0..50_000 {
            evil[i as usize % 1_000].put(client(i), member(2), TIMEOUT, now);
        }
        assert_eq!(all(&ties), 1_000);
        let kept = (0..300).filter(|i| shop.get(client(*i), TIMEOUT, now).is_some()).count();
        assert_eq!(kept, 300);
        // A namespace with fewer ties gets what it needs from the one with the most.
        for i in 300..400 {
            shop.put(client(i), member(1), TIMEOUT, now);
        }
        let kept = (0..400).filter(|i| shop.get(client(*i), TIMEOUT, now).is_some()).count();
        assert_eq!((kept, all(&ties)), (400, 1_000));
        drop(evil);
        assert_eq!(all(&ties), 400);
    }

    #[test]
    fn a_flood_to_one_pool_takes_no_tie_of_a_smaller_pool_of_its_namespace() {
        let ties = Ties::new(100);
        let now = Instant::now();
        let [small, flooded] = [(); 2].map(|()| ties.of_pool("shop".into()));
        for i in 0..40 {
            small.put(client(i), member(1), TIMEOUT, now);
        }
        for i in 0..1_000 {
            flooded.put(client(i), member(2), TIMEOUT, now);
        }
        let kept = (0..40).filter(|i| small.get(client(*i), TIMEOUT, now).is_some()).count();
        assert_eq!((kept, all(&ties)), (40, 100));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Put(usize, u32, u16, u64),
        Clear(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let put = (0..4usize, 0u32..6, 0u16..3, 0u64..40)
            .prop_map(|(pool, who, to, passes)| Step::Put(pool, who, to, passes));
        prop::collection::vec(prop_oneof![20 => put, 1 => (0..4usize).prop_map(Step::Clear)], 0..80)
    }

    proptest! {
        #[test]
        fn with_room_it_answers_as_an_unbounded_table_would(steps in steps()) {
            let (ties, mut now) = (Ties::new(100), Instant::now());
            let pools = ["a", "a", "b", "c"].map(|it| ties.of_pool(it.into()));
            let mut naive: HashMap<(usize, u32), (u16, Instant)> = HashMap::new();
            for step in steps {
                match step {
                    Step::Put(pool, who, to, passes) => {
                        now += Duration::from_secs(passes);
                        let expected = naive.get(&(pool, who));
                        let expected = expected.filter(|(_, used)| now - *used < TIMEOUT);
                        let got = pools[pool].get(client(who), TIMEOUT, now);
                        prop_assert_eq!(got, expected.map(|(to, _)| member(*to)));
                        pools[pool].put(client(who), member(to), TIMEOUT, now);
                        naive.insert((pool, who), (to, now));
                    }
                    Step::Clear(pool) => {
                        pools[pool].clear();
                        naive.retain(|(of, _), _| *of != pool);
                    }
                }
            }
        }

        #[test]
        fn without_room_no_namespace_loses_a_tie_to_one_that_has_as_many(
            steps in steps(), most in 0usize..8,
        ) {
            let (ties, mut now) = (Ties::new(most), Instant::now());
            let names = ["a", "a", "b", "c"];
            let pools = names.map(|it| ties.of_pool(it.into()));
            let counts = || {
                let ledger = ties.0.lock();
                let of = |name: &str| ledger.namespaces.get(name).map_or(0, |it| it.ties);
                (["a", "b", "c"].map(of), ledger.all)
            };
            for step in steps {
                let (before, _) = counts();
                match step {
                    // No timeouts: a tie is dropped only for lack of room.
                    Step::Put(pool, who, to, _) => {
                        now += Duration::from_millis(1);
                        pools[pool].put(client(who), member(to), TIMEOUT, now);
                        let (after, all) = counts();
                        prop_assert!(all <= most && after.iter().sum::<usize>() == all);
                        prop_assert!(most == 0 || pools[pool].get(client(who), TIMEOUT, now).is_some());
                        let own = ["a", "b", "c"].iter().position(|it| *it == names[pool]).unwrap();
                        for (other, (was, is)) in before.iter().zip(&after).enumerate() {
                            let lost = other != own && is < was;
                            prop_assert!(!lost || *was > before[own], "{before:?} {after:?}");
                        }
                    }
                    Step::Clear(pool) => pools[pool].clear(),
                }
            }
            drop(pools);
            let ledger = ties.0.lock();
            prop_assert!(ledger.pools.is_empty() && ledger.ranks.is_empty());
            prop_assert!(ledger.namespaces.is_empty() && ledger.all == 0);
        }
    }
}
