//! A pool in use: chooses the member for the next connection or request, skips members that failed, and
//! keeps clients with their members. Members and configuration are swapped while it runs; counters, health
//! and ties of members that stay are kept. It opens no client's connection itself: the HTTP, TCP and UDP
//! parts pick a member here and report back.

mod check;
pub(crate) mod checks;
mod cookie;
pub(crate) mod failing;
mod least;
mod live;
mod passive;
mod ranges;
mod rendezvous;
mod rotation;
mod schedule;
mod server;
mod table;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod ties;

pub use cookie::CookieKey;

use arc_swap::{ArcSwap, Guard};
use bowline_core::plan::{self, Persistence, PersistenceKey};
use bowline_core::update::{FailingPool, Member, MemberChange, MemberState};
use check::{Question, Streak};
use checks::Checks;
use failing::FailingPools;
use parking_lot::Mutex;
use ranges::Ranges;
use server::Server;
use std::collections::HashMap;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use table::{Entry, Table};
use ties::{PoolTies, Ties};
use tokio::time::Instant;

/// How long connections of a removed member go on if the plan does not say.
const DRAIN: Duration = Duration::from_secs(30);

/// Concurrent checks, and ties, of a pool that shares them with no other.
const CHECKS: usize = 64;
const TIES: usize = 65_536;

/// A destination of traffic.
#[derive(Debug)]
pub struct Pool {
    settings: ArcSwap<Settings>,
    table: ArcSwap<Table>,
    /// Counts picks, for algorithms that take turns.
    counter: AtomicU64,
    /// Locked while a client that may be tied gets a member, so that it is tied to only one.
    ties: Mutex<PoolTies>,
    /// Locked while members, their health or the settings change.
    members: Mutex<Members>,
    checks: Arc<Checks>,
    failing: Arc<FailingPools>,
}

#[derive(Debug)]
struct Settings {
    config: Arc<plan::Pool>,
    ranges: Ranges,
}

#[derive(Debug)]
struct Members {
    /// The key that signs cookies.
    key: Arc<CookieKey>,
    list: Arc<[Member]>,
    /// The members of the list, in its order.
    servers: Vec<Arc<Server>>,
    /// Members that were removed and may still have connections.
    leaving: HashMap<SocketAddr, Arc<Server>>,
    /// How many members of the list are ejected.
    out: usize,
}

/// Whether clients are tied to members by a cookie.
fn by_cookie(config: &plan::Pool) -> bool {
    config.persistence.is_some_and(|it| it.by == PersistenceKey::Cookie)
}

/// Members by address, each once. A list of the resolver is already sorted, and is shared with it.
fn in_order(list: Arc<[Member]>) -> Arc<[Member]> {
    if list.is_sorted_by(|a, b| a.address < b.address) {
        return list;
    }
    let mut list = list.to_vec();
    list.sort_by_key(|member| member.address);
    list.dedup_by_key(|member| member.address);
    list.into()
}

/// The client to serve.
#[derive(Clone, Copy, Debug)]
pub struct Client<'a> {
    /// Its address.
    pub addr: IpAddr,
    /// The value of the cookie called [`Pool::cookie_name`] that it sent.
    pub cookie: Option<&'a str>,
}

/// How a member failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It could not be connected to.
    Connect,
    /// It broke the connection before it had answered.
    Reset,
    /// It did not answer in time.
    Timeout,
    /// It answered with this status. It is counted, but never ejects a member: a member that answers is
    /// alive, and the status may be the client's fault.
    Status(u16),
}

/// Whether a member takes new clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Condition {
    /// It takes new clients.
    Ready,
    /// It is going away.
    Draining,
    /// Failures have ejected it until it answers again.
    Ejected,
    /// Health checks fail.
    Down,
}

/// The counters of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberStats {
    /// The member.
    pub address: SocketAddr,
    /// Whether it takes new clients.
    pub condition: Condition,
    /// Connections or requests that it has now.
    pub active: usize,
    /// Connections or requests that it was given.
    pub picks: u64,
    /// Connections or requests that failed.
    pub failures: u64,
    /// How often it was ejected.
    pub ejections: u64,
}

impl Pool {
    /// A pool without members, with a cookie key of this process and checks of its own. The checks run on
    /// the tokio runtime in which members are set.
    pub fn new(config: Arc<plan::Pool>) -> Arc<Self> {
        Self::with_key(config, CookieKey::of_process())
    }

    /// A pool without members, with this cookie key and checks of its own.
    pub fn with_key(config: Arc<plan::Pool>, key: Arc<CookieKey>) -> Arc<Self> {
        Self::sharing(config, key, Checks::new(CHECKS), &Ties::new(TIES), FailingPools::new())
    }

    /// A pool without members that shares its checks, and the room for ties, with other pools.
    pub(crate) fn sharing(
        config: Arc<plan::Pool>,
        key: Arc<CookieKey>,
        checks: Arc<Checks>,
        ties: &Arc<Ties>,
        failing: Arc<FailingPools>,
    ) -> Arc<Self> {
        let ties = ties.of_pool(config.service.namespace.clone());
        let table = Table::new(Box::default(), config.algorithm);
        let mut start = [0; 4];
        // Without randomness, proxies that start together begin with the same member.
        let _ = getrandom::fill(&mut start);
        Arc::new(Self {
            settings: ArcSwap::from_pointee(Settings::new(config)),
            table: ArcSwap::from_pointee(table),
            counter: AtomicU64::new(u64::from(u32::from_ne_bytes(start))),
            ties: Mutex::new(ties),
            members: Mutex::new(Members {
                key,
                list: Arc::default(),
                servers: Vec::new(),
                leaving: HashMap::new(),
                out: 0,
            }),
            checks,
            failing,
        })
    }

    /// The namespace that its checks count for.
    fn tenant(&self) -> Arc<str> {
        self.settings.load().config.service.namespace.clone()
    }

    /// The configuration from the plan.
    pub fn config(&self) -> Arc<plan::Pool> {
        self.settings.load().config.clone()
    }

    /// Replaces the configuration; members stay.
    pub fn set_config(self: &Arc<Self>, config: Arc<plan::Pool>) {
        let mut members = self.members.lock();
        let before = self.config();
        if before.persistence != config.persistence {
            self.ties.lock().clear();
        }
        let recheck = before.health_check != config.health_check
            || before.proxy_protocol != config.proxy_protocol
            || before.speaks != config.speaks;
        self.settings.store(Arc::new(Settings::new(config)));
        if recheck && before.health_check.is_some() {
            for server in &members.servers {
                server.change(|health| {
                    health.down = false;
                    health.checker = None;
                });
            }
        }
        self.publish(&mut members);
    }

    /// Signs cookies with this key from now on; cookies with another key are ignored.
    pub fn set_key(self: &Arc<Self>, key: Arc<CookieKey>) {
        let mut members = self.members.lock();
        members.key = key;
        if by_cookie(&self.config()) {
            self.publish(&mut members);
        }
    }

    /// Replaces the members. Removed ones get nothing new, and their connections end after the pool's drain
    /// time.
    pub fn set_members(self: &Arc<Self>, change: &MemberChange) {
        self.replace_members(change.members.clone());
    }

    /// The current members.
    pub fn members(&self) -> Arc<[Member]> {
        self.members.lock().list.clone()
    }

    /// Removes all members, as when the pool is removed: their connections drain.
    pub fn retire(self: &Arc<Self>) {
        self.replace_members(Arc::default());
    }

    fn replace_members(self: &Arc<Self>, list: Arc<[Member]>) {
        let now = Instant::now();
        let mut members = self.members.lock();
        let list = in_order(list);
        members.leaving.retain(|_, server| server.ends().is_none_or(|ends| now < ends));
        let mut before: HashMap<_, _> =
            members.servers.drain(..).map(|server| (server.address, server)).collect();
        let servers = list.iter().map(|member| {
            let address = member.address;
            before.remove(&address).unwrap_or_else(|| match members.leaving.remove(&address) {
                Some(server) => {
                    server.come_back();
                    server
                }
                None => Arc::new(Server::new(address)),
            })
        });
        let servers = servers.collect();
        let ends = now + self.drain_time();
        for (address, server) in before {
            server.leave(ends);
            members.leaving.insert(address, server);
        }
        let is_out = |server: &&Arc<Server>| server.look(|health| health.passive.is_out());
        members.servers = servers;
        members.out = members.servers.iter().filter(is_out).count();
        members.list = list;
        self.publish(&mut members);
    }

    fn drain_time(&self) -> Duration {
        let seconds = self.settings.load().config.timeouts.drain_seconds;
        seconds.map_or(DRAIN, |seconds| Duration::from_secs(u64::from(seconds)))
    }

    /// Builds the table from members, their health and the settings, and starts and stops their checks. A
    /// change of health alone needs no new table.
    fn publish(self: &Arc<Self>, members: &mut Members) {
        let config = self.config();
        let entries = members.list.iter().zip(&members.servers).map(|(member, server)| Entry {
            server: server.clone(),
            weight: member.weight,
            state: member.state,
        });
        let mut table = Table::new(entries.collect(), config.algorithm);
        if by_cookie(&config) {
            table = table.with_cookies(&members.key, &config.name, &self.table.load());
        }
        self.table.store(Arc::new(table));
        self.report_failing(members);
        let Some((question, check)) = Question::of(&config) else { return };
        let (question, streak) = (Arc::new(question), Streak::new(check.fall, check.rise));
        for server in &members.servers {
            if server.look(|health| health.checker.is_none()) {
                let ticket = self.checks.watch(self, server, &question, streak);
                server.change(|health| health.checker = Some(ticket));
            }
        }
    }

    /// Whether the source ranges admit clients at this address.
    pub fn allows(&self, client: IpAddr) -> bool {
        self.settings.load().ranges.admit(client)
    }

    /// The name of the cookie that ties clients to members, if the pool uses one.
    pub fn cookie_name(&self) -> Option<Arc<str>> {
        self.table.load().cookies.as_ref().map(|cookies| cookies.name.clone())
    }

    /// The member for a client, except the excluded ones, which were already tried in vain. None if no
    /// member is left.
    pub fn pick(self: &Arc<Self>, client: &Client<'_>, exclude: &[SocketAddr]) -> Option<Pick> {
        let settings = self.settings.load();
        let table = self.table.load();
        let choose = || table.choose(client.addr, exclude, &self.counter);
        let (server, cookie) = match settings.config.persistence {
            None => (choose()?, None),
            Some(Persistence { by: PersistenceKey::SourceIp, timeout_seconds }) => {
                let timeout = Duration::from_secs(u64::from(timeout_seconds));
                let address = client.addr.to_canonical();
                let now = Instant::now();
                let ties = self.ties.lock();
                let tied = ties.get(address, timeout, now);
                let server = tied.and_then(|at| table.tied(at, exclude)).or_else(choose)?;
                ties.put(address, server.address, timeout, now);
                (server, None)
            }
            Some(Persistence { by: PersistenceKey::Cookie, timeout_seconds }) => {
                self.pick_by_cookie(&settings, &table, client, exclude, timeout_seconds, choose)?
            }
        };
        server.begin();
        Some(Pick { pool: self.clone(), server: server.clone(), cookie })
    }

    fn pick_by_cookie<'a>(
        &self,
        settings: &Settings,
        table: &'a Guard<Arc<Table>>,
        client: &Client<'_>,
        exclude: &[SocketAddr],
        timeout_seconds: u32,
        choose: impl FnOnce() -> Option<&'a Arc<Server>>,
    ) -> Option<(&'a Arc<Server>, Option<String>)> {
        // The settings may be a moment ahead of the table.
        let Some(cookies) = &table.cookies else {
            return choose().map(|server| (server, None));
        };
        let pool = &*settings.config.name;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let timeout = u64::from(timeout_seconds.max(1));
        let read = client.cookie.and_then(|cookie| cookies.key.read(pool, cookie, now));
        let tied = read.and_then(|(id, ends)| Some((table.named(&id, exclude)?, ends)));
        // A cookie lasts a little longer than the timeout, so that the proxy need not set it again on every
        // request to keep the client tied for the timeout after each.
        let lasts = timeout + timeout.div_ceil(8);
        match tied {
            Some((server, ends)) if ends >= now + timeout => Some((server, None)),
            tied => {
                let server = tied.map(|(server, _)| server).or_else(choose)?;
                let value = cookies.key.sign(pool, table.id(server.address)?, now + lasts);
                let name = &cookies.name;
                let cookie =
                    format!("{name}={value}; Path=/; Max-Age={lasts}; HttpOnly; SameSite=Lax");
                Some((server, Some(cookie)))
            }
        }
    }

    /// The counters of each member.
    pub fn stats(&self) -> Vec<MemberStats> {
        let table = self.table.load();
        table.all.iter().map(|entry| stats(&entry.server, entry.state)).collect()
    }

    fn failed(self: &Arc<Self>, server: &Arc<Server>, failure: Failure) {
        server.failures.fetch_add(1, Ordering::Relaxed);
        if matches!(failure, Failure::Status(_)) {
            return;
        }
        let now = Instant::now();
        if !server.failed(now) {
            return;
        }
        let mut members = self.members.lock();
        // Another failure may have ejected the member while this one waited for the lock.
        if server.ends().is_some() || server.look(|health| health.passive.is_out()) {
            return;
        }
        // A member that cannot be connected to is ejected however many are; if all are, the table uses all.
        // Other failures may be the clients' fault, and eject at most half of the members.
        if failure != Failure::Connect && (members.out + 1) * 2 > members.servers.len() {
            return;
        }
        let config = self.config();
        let hold = server.change(|health| health.passive.put_out(now));
        members.out += 1;
        server.count_ejection();
        let ticket = self.checks.probe(self, server, hold, Question::connect(&config));
        server.change(|health| health.prober = Some(ticket));
        tracing::debug!(pool = %config.name, member = %server.address, "member left out");
        self.turn(&members, server);
    }

    /// This check found that an ejected member answers.
    fn let_in(&self, server: &Server, check: u64) {
        let mut members = self.members.lock();
        // A check that was given up may just have found something out; no later check would correct it.
        let let_in = server.change(|health| {
            let prober = health.prober.take_if(|prober| prober.is(check));
            if prober.is_some() {
                health.passive.let_in(Instant::now());
            }
            prober
        });
        if let_in.is_some() {
            members.out = members.out.saturating_sub(1);
            self.turn(&members, server);
        }
    }

    /// Health checks found that a member answers, or does not.
    fn checked(&self, server: &Server, check: u64, up: bool) {
        let members = self.members.lock();
        let mine = server.change(|health| {
            let mine = health.checker.as_ref().is_some_and(|checker| checker.is(check));
            if mine {
                health.down = !up;
            }
            mine
        });
        if mine {
            self.turn(&members, server);
        }
    }

    /// Shows the health of a member in the table. The caller holds the lock of the members.
    fn turn(&self, members: &Members, server: &Server) {
        self.table.load().turn(server.address, server.is_healthy());
        self.report_failing(members);
    }

    /// Reports which ready members take no clients. The caller holds the lock of the members.
    fn report_failing(&self, members: &Members) {
        let failing =
            members.list.iter().zip(&members.servers).filter(|(member, server)| {
                member.state == MemberState::Ready && !server.is_healthy()
            });
        let (mut count, mut named) = (0, Vec::new());
        for (member, _) in failing {
            count += 1;
            if named.len() < FailingPool::NAMED {
                named.push(member.address);
            }
        }
        let pool = &self.settings.load().config.name;
        let failing = FailingPool { pool: pool.clone(), count, named };
        self.failing.set(pool, (count > 0).then_some(failing));
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // Connections may hold a member longer than its pool.
        let members = self.members.get_mut();
        for server in members.servers.iter().chain(members.leaving.values()) {
            server.stop_checks();
        }
    }
}

impl Settings {
    fn new(config: Arc<plan::Pool>) -> Self {
        Self { ranges: Ranges::new(&config.source_ranges), config }
    }
}

fn stats(server: &Server, state: MemberState) -> MemberStats {
    let condition = server.look(|health| match state {
        _ if health.passive.is_out() => Condition::Ejected,
        _ if health.down => Condition::Down,
        MemberState::Draining => Condition::Draining,
        MemberState::Ready => Condition::Ready,
    });
    MemberStats {
        address: server.address,
        condition,
        active: server.active.load(Ordering::Relaxed),
        picks: server.picks.load(Ordering::Relaxed),
        failures: server.failures.load(Ordering::Relaxed),
        ejections: server.ejections(),
    }
}

/// The chosen member. It counts as a connection or request of the member while it lives.
#[derive(Debug)]
pub struct Pick {
    pool: Arc<Pool>,
    server: Arc<Server>,
    cookie: Option<String>,
}

impl Pick {
    /// The address to connect to.
    pub fn address(&self) -> SocketAddr {
        self.server.address
    }

    /// The value of a `Set-Cookie` header that ties the client to the member, if one is needed. Over TLS
    /// the caller should add `; Secure`.
    pub fn cookie_to_set(&self) -> Option<String> {
        self.cookie.clone()
    }

    /// The member answered.
    pub fn succeeded(&self) {
        self.server.succeeded();
    }

    /// The member failed.
    pub fn failed(&self, failure: Failure) {
        self.pool.failed(&self.server, failure);
    }

    /// Resolves when the member has been removed and its drain time is over.
    pub fn cancelled(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        self.server.ended()
    }
}

impl Drop for Pick {
    fn drop(&mut self) {
        self.server.end();
    }
}
