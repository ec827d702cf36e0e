//! Tests of pools through their public functions, and builders that other tests use.

use super::*;
use bowline_core::plan::{Algorithm, HealthCheck, ServicePortRef, Transport};
use std::collections::BTreeMap;
use std::net::TcpListener as StdListener;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::timeout;

pub(crate) fn config(name: &str) -> Arc<plan::Pool> {
    config_with(name, |_| {})
}

pub(crate) fn config_with(name: &str, change: impl FnOnce(&mut plan::Pool)) -> Arc<plan::Pool> {
    let mut pool = plan::Pool::new(
        name,
        ServicePortRef {
            namespace: "shop".into(),
            name: "web".into(),
            port: "".into(),
            protocol: Transport::Tcp,
        },
    );
    change(&mut pool);
    Arc::new(pool)
}

pub(crate) fn member(address: &str) -> Member {
    at(address.parse().unwrap())
}

pub(crate) fn at(address: SocketAddr) -> Member {
    Member { address, weight: 1, state: MemberState::Ready }
}

pub(crate) fn change(members: &[Member]) -> MemberChange {
    MemberChange {
        pool: "p".into(),
        members: members.into(),
        added: Vec::new(),
        changed: Vec::new(),
        removed: Vec::new(),
    }
}

pub(crate) fn pool(config: Arc<plan::Pool>, members: &[Member]) -> Arc<Pool> {
    let pool = Pool::new(config);
    pool.set_members(&change(members));
    pool
}

/// Waits until a condition holds.
pub(crate) async fn until(what: impl Fn() -> bool) {
    let wait = async {
        while !what() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(20), wait).await.expect("it never came");
}

const A: &str = "10.0.0.1:80";
const B: &str = "10.0.0.2:80";
const C: &str = "10.0.0.3:80";

fn client(last: u8) -> Client<'static> {
    Client { addr: IpAddr::from([192, 0, 2, last]), cookie: None }
}

fn pick(pool: &Arc<Pool>, client: &Client<'_>) -> String {
    pool.pick(client, &[]).unwrap().address().to_string()
}

/// How often each member is picked in this many picks.
fn spread(pool: &Arc<Pool>, picks: usize) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for _ in 0..picks {
        *counts.entry(pick(pool, &client(1))).or_default() += 1;
    }
    counts
}

fn counts<const N: usize>(expected: [(&str, usize); N]) -> BTreeMap<String, usize> {
    expected.into_iter().map(|(address, count)| (address.to_string(), count)).collect()
}

fn weighing(address: &str, weight: u16) -> Member {
    Member { weight, ..member(address) }
}

fn draining(address: &str) -> Member {
    Member { state: MemberState::Draining, ..member(address) }
}

fn sticking(by: PersistenceKey) -> Arc<plan::Pool> {
    config_with("p", |p| p.persistence = Some(Persistence { by, timeout_seconds: 600 }))
}

fn conditions(pool: &Pool) -> Vec<Condition> {
    pool.stats().iter().map(|member| member.condition).collect()
}

#[test]
fn a_pool_without_members_gives_nobody() {
    assert!(pool(config("p"), &[]).pick(&client(1), &[]).is_none());
}

#[test]
fn members_take_turns_by_weight_and_those_without_weight_get_nothing() {
    let even = pool(config("p"), &[member(A), member(B)]);
    assert_eq!(spread(&even, 10), counts([(A, 5), (B, 5)]));
    let uneven = pool(config("p"), &[weighing(A, 3), weighing(B, 1), weighing(C, 0)]);
    assert_eq!(spread(&uneven, 400), counts([(A, 300), (B, 100)]));
    let weightless = pool(config("p"), &[weighing(A, 0), weighing(B, 0)]);
    assert_eq!(spread(&weightless, 10), counts([(A, 5), (B, 5)]));
}

#[test]
fn draining_members_get_no_new_clients() {
    let pool = pool(config("p"), &[draining(A), member(B)]);
    assert_eq!(spread(&pool, 10), counts([(B, 10)]));
}

#[test]
fn excluded_members_are_not_picked_again() {
    for algorithm in [Algorithm::RoundRobin, Algorithm::LeastConnections, Algorithm::SourceIp] {
        let pool = pool(config_with("p", |p| p.algorithm = algorithm), &[member(A), member(B)]);
        let tried = [A.parse().unwrap()];
        for _ in 0..5 {
            assert_eq!(pool.pick(&client(1), &tried).unwrap().address(), B.parse().unwrap());
        }
        assert!(pool.pick(&client(1), &[tried[0], B.parse().unwrap()]).is_none());
    }
}

#[test]
fn least_connections_counts_picks_while_they_live() {
    let config = config_with("p", |p| p.algorithm = Algorithm::LeastConnections);
    let pool = pool(config, &[member(A), member(B)]);
    let first = pool.pick(&client(1), &[]).unwrap();
    let second = pool.pick(&client(1), &[]).unwrap();
    assert_ne!(first.address(), second.address());
    let freed = first.address();
    drop(first);
    assert_eq!(pool.pick(&client(1), &[]).unwrap().address(), freed);
    assert_eq!(pool.stats().iter().map(|m| m.active).sum::<usize>(), 1);
}

#[test]
fn counters_of_members_that_stay_are_kept() {
    let pool = pool(config("p"), &[member(A), member(B)]);
    let kept = pool.pick(&client(1), &[B.parse().unwrap()]).unwrap();
    pool.set_members(&change(&[weighing(A, 5), member(C)]));
    let stats = pool.stats();
    assert_eq!((stats[0].active, stats[0].picks, stats[1].picks), (1, 1, 0));
    drop(kept);
    assert_eq!(pool.stats()[0].active, 0);
}

#[test]
fn a_client_stays_by_its_address_over_changes_and_while_its_member_drains() {
    let pool = pool(sticking(PersistenceKey::SourceIp), &[member(A), member(B)]);
    let mine = pick(&pool, &client(1));
    let other = if mine == A { B } else { A };
    pool.set_members(&change(&[member(A), member(B), member(C)]));
    assert_eq!(spread(&pool, 9), counts([(&mine, 9)]));
    let mut both = [draining(&mine), member(other)];
    both.sort();
    pool.set_members(&change(&both));
    assert_eq!(spread(&pool, 9), counts([(&mine, 9)]));
    assert_eq!(pick(&pool, &client(2)), other);
    pool.set_members(&change(&[member(other)]));
    pool.set_members(&change(&[member(A), member(B)]));
    assert_eq!(spread(&pool, 9), counts([(&mine, 9)]), "nobody came in between");
}

#[test]
fn a_client_whose_member_is_gone_is_tied_to_another() {
    let pool = pool(sticking(PersistenceKey::SourceIp), &[member(A), member(B)]);
    let mine = pick(&pool, &client(1));
    let other = if mine == A { B } else { A };
    pool.set_members(&change(&[member(other)]));
    assert_eq!(pick(&pool, &client(1)), other);
    pool.set_members(&change(&[member(A), member(B)]));
    assert_eq!(spread(&pool, 9), counts([(other, 9)]));
}

#[test]
fn a_flood_of_addresses_at_the_pools_of_a_namespace_unties_no_client_of_another() {
    let ties = Ties::new(100);
    let of = |namespace: &str| {
        let mut config = (*sticking(PersistenceKey::SourceIp)).clone();
        config.service.namespace = namespace.into();
        let pool = Pool::sharing(
            config.into(),
            CookieKey::of_process(),
            Checks::new(1),
            &ties,
            FailingPools::new(),
        );
        pool.set_members(&change(&[member(A), member(B), member(C)]));
        pool
    };
    let shop = of("shop");
    let mine: Vec<_> = (0..20).map(|last| pick(&shop, &client(last))).collect();
    let evil: Vec<_> = (0..50).map(|_| of("evil")).collect();
    for source in 0..20_000u32 {
        let forged = Client { addr: IpAddr::from(source.to_be_bytes()), cookie: None };
        pick(&evil[source as usize % 50], &forged);
    }
    let still: Vec<_> = (0..20).map(|last| pick(&shop, &client(last))).collect();
    assert_eq!(still, mine);
}

/// The cookie that a browser would send back.
fn cookie_of(pick: &Pick) -> String {
    let set = pick.cookie_to_set().expect("a cookie is due");
    let (name, rest) = set.split_once('=').unwrap();
    assert_eq!(Some(name), pick.pool.cookie_name().as_deref());
    rest.split_once(';').unwrap().0.to_string()
}

#[test]
fn a_client_stays_by_its_cookie_and_is_not_given_it_again_at_once() {
    let pool = pool(sticking(PersistenceKey::Cookie), &[member(A), member(B), member(C)]);
    let first = pool.pick(&client(1), &[]).unwrap();
    let cookie = cookie_of(&first);
    for i in 0..9 {
        let with = Client { addr: IpAddr::from([198, 51, 100, i]), cookie: Some(&cookie) };
        let again = pool.pick(&with, &[]).unwrap();
        assert_eq!((again.address(), again.cookie_to_set()), (first.address(), None));
    }
}

#[test]
fn a_forged_cookie_or_one_of_another_pool_is_as_none() {
    let pool_a = pool(sticking(PersistenceKey::Cookie), &[member(A), member(B)]);
    let foreign = CookieKey::new([9; 32]);
    let id = foreign.member_id("p", A.parse().unwrap());
    let forged = foreign.sign("p", &id, u64::MAX);
    // A cookie of a pool with the same key and members, under another name.
    let mut other = (*sticking(PersistenceKey::Cookie)).clone();
    other.name = "q".into();
    let pool_b = Pool::with_key(Arc::new(other), pool_a.members.lock().key.clone());
    pool_b.set_members(&change(&[member(A), member(B)]));
    let anothers = cookie_of(&pool_b.pick(&client(1), &[]).unwrap());
    for cookie in [forged.as_str(), &anothers, "", "garbage", "10.0.0.1:80"] {
        let with = Client { cookie: Some(cookie), ..client(1) };
        assert!(pool_a.pick(&with, &[]).unwrap().cookie_to_set().is_some(), "{cookie}");
    }
}

#[test]
fn a_cookie_tells_nothing_of_its_member() {
    // The same member under two keys: the ids differ in most bytes.
    let ids = [[1; 32], [2; 32]].map(|key| CookieKey::new(key).member_id("p", A.parse().unwrap()));
    assert!(ids[0].iter().zip(&ids[1]).filter(|(a, b)| a == b).count() < ids[0].len() / 2);
    let here = CookieKey::new([1; 32]);
    let others = [("p", B), ("q", A)].map(|(pool, at)| here.member_id(pool, at.parse().unwrap()));
    assert!(!others.contains(&ids[0]));
}

#[test]
fn proxies_with_one_key_accept_each_others_cookies() {
    let key = Arc::new(CookieKey::new([7; 32]));
    let pools = [(); 2].map(|()| {
        let pool = Pool::with_key(sticking(PersistenceKey::Cookie), key.clone());
        pool.set_members(&change(&[member(A), member(B), member(C)]));
        pool
    });
    let first = pools[0].pick(&client(1), &[]).unwrap();
    let cookie = cookie_of(&first);
    let with = Client { cookie: Some(&cookie), ..client(2) };
    assert_eq!(pools[1].pick(&with, &[]).unwrap().address(), first.address());
}

#[test]
fn with_the_key_before_a_cookie_is_good_again_and_with_another_it_is_as_none() {
    let keys = [[7; 32], [8; 32]].map(|secret| Arc::new(CookieKey::new(secret)));
    let pool = Pool::with_key(sticking(PersistenceKey::Cookie), keys[0].clone());
    pool.set_members(&change(&[member(A), member(B), member(C)]));
    let first = pool.pick(&client(1), &[]).unwrap();
    let cookie = cookie_of(&first);
    let with = Client { cookie: Some(&cookie), ..client(2) };
    pool.set_key(keys[1].clone());
    let other = pool.pick(&with, &[]).unwrap();
    assert_ne!(cookie_of(&other), cookie);
    // Members that come later get their ids from the same key.
    pool.set_members(&change(&[member(B), member(C)]));
    let tied = cookie_of(&pool.pick(&client(3), &[]).unwrap());
    pool.set_members(&change(&[member(A), member(B), member(C)]));
    let tied = Client { cookie: Some(&tied), ..client(3) };
    assert_eq!(pool.pick(&tied, &[]).unwrap().cookie_to_set(), None);
    pool.set_key(keys[0].clone());
    let again = pool.pick(&with, &[]).unwrap();
    assert_eq!((again.address(), again.cookie_to_set()), (first.address(), None));
}

#[test]
fn source_ranges_follow_the_configuration() {
    let pool = pool(config("p"), &[]);
    let client = IpAddr::from([192, 0, 2, 1]);
    assert!(pool.allows(client));
    let range = "198.51.100.0/24".parse().unwrap();
    pool.set_config(config_with("p", |p| p.source_ranges = vec![range]));
    assert!(!pool.allows(client));
    assert!(pool.allows(IpAddr::from([198, 51, 100, 9])));
}

#[tokio::test]
async fn what_a_removed_member_has_ends_after_its_drain_time_unless_it_comes_back() {
    let config = config_with("p", |p| p.timeouts.drain_seconds = Some(1));
    let pool = pool(config, &[member(A), member(B)]);
    let on_a = pool.pick(&client(1), &[B.parse().unwrap()]).unwrap();
    let on_b = pool.pick(&client(1), &[A.parse().unwrap()]).unwrap();
    let left = std::time::Instant::now();
    pool.set_members(&change(&[]));
    pool.set_members(&change(&[member(B)]));
    let stays = on_b.cancelled();
    on_a.cancelled().await;
    assert!(left.elapsed() >= Duration::from_secs(1));
    assert!(timeout(Duration::from_millis(200), stays).await.is_err(), "it is a member again");
}

#[tokio::test]
async fn a_member_that_fails_is_left_out_until_it_answers_and_keeps_no_client() {
    let listener = StdListener::bind("127.0.0.1:0").unwrap();
    let failing = listener.local_addr().unwrap();
    drop(listener);
    let good: SocketAddr = "10.0.0.2:80".parse().unwrap();
    let pool = pool(sticking(PersistenceKey::SourceIp), &[at(good), at(failing)]);
    let on_failing = pool.pick(&client(1), &[good]).unwrap();
    assert_eq!(pick(&pool, &client(1)), failing.to_string(), "tied");
    (0..3).for_each(|_| on_failing.failed(Failure::Connect));
    assert_eq!(conditions(&pool), [Condition::Ready, Condition::Ejected]);
    assert_eq!(spread(&pool, 5), counts([("10.0.0.2:80", 5)]));
    let _listener = StdListener::bind(failing).unwrap();
    until(|| conditions(&pool) == [Condition::Ready; 2]).await;
    assert_eq!(pool.stats()[1].ejections, 1);
}

#[tokio::test]
async fn when_all_members_are_left_out_all_are_used() {
    let pool = pool(config("p"), &[member("127.0.0.1:1"), member("127.0.0.2:1")]);
    let both = [(); 2].map(|()| pool.pick(&client(1), &[]).unwrap());
    for pick in &both {
        (0..3).for_each(|_| pick.failed(Failure::Connect));
    }
    assert_eq!(conditions(&pool), [Condition::Ejected; 2]);
    assert_eq!(spread(&pool, 4), counts([("127.0.0.1:1", 2), ("127.0.0.2:1", 2)]));
}

#[tokio::test]
async fn a_member_that_was_left_out_is_tried_when_all_others_were_in_vain() {
    let pool = pool(config("p"), &[member("127.0.0.1:1"), member(B)]);
    let pick = pool.pick(&client(1), &[B.parse().unwrap()]).unwrap();
    (0..3).for_each(|_| pick.failed(Failure::Connect));
    assert_eq!(spread(&pool, 4), counts([(B, 4)]));
    let last = pool.pick(&client(1), &[B.parse().unwrap()]).unwrap();
    assert_eq!(last.address(), pick.address());
}

#[tokio::test]
async fn a_member_that_comes_back_while_it_drains_is_not_held_to_what_it_did_before() {
    let pool = pool(config("p"), &[member("127.0.0.1:1"), member(B)]);
    let pick = pool.pick(&client(1), &[B.parse().unwrap()]).unwrap();
    (0..3).for_each(|_| pick.failed(Failure::Connect));
    pool.set_members(&change(&[member(B)]));
    pool.set_members(&change(&[member("127.0.0.1:1"), member(B)]));
    assert_eq!(conditions(&pool), [Condition::Ready; 2]);
    assert_eq!(pool.stats()[1].active, 1, "what it has still counts");
}

#[tokio::test]
async fn failures_that_may_be_a_clients_doing_cost_at_most_half_of_the_members() {
    let members = [A, B, C].map(member);
    let pool = pool(config("p"), &members);
    for pick in [(); 3].map(|()| pool.pick(&client(1), &[]).unwrap()) {
        (0..3).for_each(|_| pick.failed(Failure::Timeout));
    }
    let out = conditions(&pool).iter().filter(|c| **c == Condition::Ejected).count();
    assert_eq!(out, 1);
}

#[tokio::test]
async fn answers_and_successes_in_between_put_nobody_out() {
    let pool = pool(config("p"), &[member(A), member(B)]);
    let pick = pool.pick(&client(1), &[]).unwrap();
    for _ in 0..10 {
        pick.failed(Failure::Status(503));
        pick.failed(Failure::Reset);
        pick.failed(Failure::Reset);
        pick.succeeded();
    }
    assert_eq!(conditions(&pool), [Condition::Ready; 2]);
    assert_eq!(pool.stats().iter().map(|m| m.failures).sum::<u64>(), 30);
}

fn checking(path: Option<&str>) -> Arc<plan::Pool> {
    let check = HealthCheck { http_path: path.map(Into::into), interval_ms: 100, fall: 2, rise: 2 };
    config_with("p", |p| p.health_check = Some(check))
}

#[tokio::test]
async fn a_tcp_check_takes_a_member_out_and_brings_it_back() {
    let listener = StdListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let up = StdListener::bind("127.0.0.2:0").unwrap();
    let pool = pool(checking(None), &[at(address), at(up.local_addr().unwrap())]);
    drop(listener);
    until(|| conditions(&pool) == [Condition::Down, Condition::Ready]).await;
    assert_ne!(pick(&pool, &client(1)), address.to_string());
    let _listener = StdListener::bind(address).unwrap();
    until(|| conditions(&pool) == [Condition::Ready; 2]).await;
}

#[tokio::test]
async fn an_http_check_wants_a_good_status_and_ends_with_the_pool() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let status = Arc::new(Mutex::new("500"));
    let answer = status.clone();
    let (asked, mut requests) = tokio::sync::mpsc::unbounded_channel();
    let server = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 1024];
            let length = stream.read(&mut request).await.unwrap();
            let _ = asked.send(String::from_utf8_lossy(&request[..length]).into_owned());
            let head = format!("HTTP/1.1 {} Whatever\r\n\r\n", *answer.lock());
            let _ = stream.write_all(head.as_bytes()).await;
        }
    });
    let pool = pool(checking(Some("/healthz")), &[at(address)]);
    until(|| conditions(&pool) == [Condition::Down]).await;
    assert!(
        requests.recv().await.unwrap().starts_with("GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:")
    );
    *status.lock() = "302";
    until(|| conditions(&pool) == [Condition::Ready]).await;
    drop(pool);
    tokio::time::sleep(Duration::from_millis(50)).await;
    while requests.try_recv().is_ok() {}
    assert!(timeout(Duration::from_millis(400), requests.recv()).await.is_err(), "still asked");
    server.abort();
}

#[tokio::test]
async fn without_its_check_a_member_that_was_down_is_used_again() {
    let pool = pool(checking(None), &[member("127.0.0.1:1")]);
    until(|| conditions(&pool) == [Condition::Down]).await;
    pool.set_config(config("p"));
    assert_eq!(conditions(&pool), [Condition::Ready]);
}

#[tokio::test]
async fn a_change_of_health_makes_no_table() {
    for members in [3u16, 3_000] {
        let members: Vec<_> = (1..=members).map(|i| at(([127, 0, 0, 1], i).into())).collect();
        let pool = pool(config("p"), &members);
        let table = pool.table.load_full();
        let pick = pool.pick(&client(1), &[]).unwrap();
        (0..3).for_each(|_| pick.failed(Failure::Connect));
        assert!(Arc::ptr_eq(&table, &pool.table.load_full()));
        let met = spread(&pool, members.len() * 2);
        assert_eq!(met.len(), members.len() - 1);
        assert!(!met.contains_key(&pick.address().to_string()));
    }
}

/// A member that accepts connections at all addresses of this machine and sends nothing; counts the
/// open ones.
async fn silent() -> (u16, Arc<[AtomicU64; 2]>) {
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let counts = Arc::new([const { AtomicU64::new(0) }; 2]);
    let (open, most) = (counts.clone(), counts.clone());
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let now = open[0].fetch_add(1, Ordering::SeqCst) + 1;
            most[1].fetch_max(now, Ordering::SeqCst);
            let open = open.clone();
            tokio::spawn(async move {
                let mut bytes = [0; 512];
                while stream.read(&mut bytes).await.is_ok_and(|read| read > 0) {}
                open[0].fetch_sub(1, Ordering::SeqCst);
            });
        }
    });
    (port, counts)
}

#[tokio::test]
async fn two_thousand_silent_members_of_a_namespace_delay_no_check_of_another() {
    let (port, counts) = silent().await;
    let checks = Checks::new(64);
    let of = |namespace: &str, interval_ms| {
        let check = HealthCheck { http_path: Some("/".into()), interval_ms, fall: 2, rise: 2 };
        let config = config_with(namespace, |p| {
            p.service.namespace = namespace.into();
            p.health_check = Some(check);
        });
        Pool::sharing(
            config,
            CookieKey::of_process(),
            checks.clone(),
            &Ties::new(1),
            FailingPools::new(),
        )
    };
    let evil = of("evil", 5_000);
    let members: Vec<_> = (0..2_000u16)
        .map(|i| {
            let [high, low] = i.to_be_bytes();
            at(([127, 3, high, low], port).into())
        })
        .collect();
    evil.set_members(&change(&members));
    until(|| checks.count().1 > 100).await;
    let shop = of("shop", 100);
    let gone = StdListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let began = Instant::now();
    shop.set_members(&change(&[at(gone)]));
    until(|| conditions(&shop) == [Condition::Down]).await;
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    let most = counts[1].load(Ordering::SeqCst);
    assert!((16..=64).contains(&most), "{most} checks at once");
    // When the pool is dropped, its waiting checks are gone.
    drop(evil);
    until(|| checks.count().1 == 0 && counts[0].load(Ordering::SeqCst) <= 64).await;
}
