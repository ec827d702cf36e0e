//! What is in force: pools, certificates, sites, listeners. [`State`] applies updates, one at a time;
//! connections read [`Shared`] meanwhile. The order of an update protects traffic: new things come
//! before what refers to them, removed things go after it.

mod complete;
mod generations;
mod report;

use crate::listen::{Failed, Listener, Target};
use crate::metrics::Metrics;
use crate::options::Options;
use crate::places::Hall;
use crate::pool::failing::FailingPools;
use crate::pool::{CookieKey, Pool};
use crate::router::Router;
use crate::tls::{Certificates, Given, Hash};
use crate::workers::Workers;
use arc_swap::{ArcSwap, Guard};
use bowline_core::plan::{ListenerProtocol, Redirect, Serves, SiteTls};
use bowline_core::update::{
    Change, CookieSecret, ListenerKey, Report, ResolvedListener, ResolvedSite, SiteKey, Update,
};
use generations::Generations;
use parking_lot::RwLock;
use prometheus_client::metrics::counter::Counter;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;

/// The tables that connections read.
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) router: ArcSwap<Router>,
    pub(crate) certificates: Certificates,
    pub(crate) generations: Generations,
    pub(crate) counters: Counters,
    pub(crate) metrics: Metrics,
    /// The pools with members that fail.
    pub(crate) failing: Arc<FailingPools>,
    /// The limits and places for clients, of all proxies that share them.
    pub(crate) hall: Hall,
    /// One permit for each client connection until it is closed.
    pub(crate) open: Arc<Semaphore>,
    /// One permit for each UDP session until its socket is closed.
    pub(crate) sessions: Arc<Semaphore>,
    backends: RwLock<HashMap<Arc<str>, Arc<Backend>>>,
    connections: AtomicU64,
}

impl Shared {
    pub(crate) fn new(options: Options) -> Self {
        Self {
            hall: options.places.of(&options.limits),
            open: Arc::new(Semaphore::new(with_those_that_go(options.limits.connections))),
            sessions: Arc::new(Semaphore::new(with_those_that_go(options.limits.sessions))),
            generations: Generations::new(options.limits.member_idle_time),
            options,
            router: ArcSwap::default(),
            certificates: Certificates::new(),
            counters: Counters::default(),
            metrics: Metrics::default(),
            failing: FailingPools::new(),
            backends: RwLock::default(),
            connections: AtomicU64::new(0),
        }
    }

    /// The pool of this name.
    pub(crate) fn backend(&self, pool: &str) -> Option<Arc<Backend>> {
        self.backends.read().get(pool).cloned()
    }

    /// The certificate of a name in lower case; the empty name is a client without SNI.
    pub(crate) fn certificate(&self, entry: &str, name: &str) -> Option<Hash> {
        let router = self.router.load();
        let site = router.sites(entry, Some(name))?.first()?;
        certificate(site.tls.as_ref()).cloned()
    }

    /// Whether a connection with this TLS session may ask for the host, which has these TLS settings:
    /// the host is the name of the session, or has the same certificate. A replacement of the
    /// certificate meanwhile does not matter.
    pub(crate) fn serves(
        &self,
        entry: &str,
        given: &Given,
        host: &str,
        tls: Option<&SiteTls>,
    ) -> bool {
        let Some(certificate) = certificate(tls) else {
            return false;
        };
        *host == *given.name
            || *certificate == given.certificate
            || self.certificate(entry, &given.name).as_ref() == Some(certificate)
    }

    /// A number that no other connection has.
    pub(crate) fn number(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::Relaxed)
    }
}

/// This many, and room for those that were told to end and are not closed yet.
fn with_those_that_go(most: usize) -> usize {
    most + (most / 16).max(16)
}

fn certificate(tls: Option<&SiteTls>) -> Option<&Hash> {
    tls?.certificate.as_ref().map(|certificate| &certificate.hash)
}

/// A pool, and the counters of its responses.
pub(crate) struct Backend {
    pub(crate) pool: Arc<Pool>,
    classes: [Counter; 6],
}

impl Backend {
    /// A request got this status; 0: it got no response.
    pub(crate) fn answered(&self, status: u16) {
        if let Some(counter) = self.classes.get(usize::from(status / 100)) {
            counter.inc();
        }
    }
}

/// Classes of responses, by the first digit of the status.
const CLASSES: [&str; 6] = ["none", "1xx", "2xx", "3xx", "4xx", "5xx"];

/// Counters of requests.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    responses: RwLock<BTreeMap<Arc<str>, [Counter; 6]>>,
    own: RwLock<BTreeMap<u16, Counter>>,
}

impl Counters {
    /// A request was answered without a pool.
    pub(crate) fn refused_request(&self, status: u16) {
        if let Some(counter) = self.own.read().get(&status) {
            counter.inc();
            return;
        }
        self.own.write().entry(status).or_default().inc();
    }

    /// Responses to requests with a pool, by pool and class.
    pub(crate) fn responses(&self) -> Vec<(Arc<str>, &'static str, u64)> {
        let responses = self.responses.read();
        let of = |(pool, counters): (&Arc<str>, &[Counter; 6])| {
            let counts = CLASSES.iter().zip(counters.each_ref().map(Counter::get));
            counts.map(|(class, count)| (pool.clone(), *class, count)).collect::<Vec<_>>()
        };
        responses.iter().flat_map(of).collect()
    }

    /// Responses of the proxy itself, by status.
    pub(crate) fn own(&self) -> Vec<(u16, u64)> {
        self.own.read().iter().map(|(status, counter)| (*status, counter.get())).collect()
    }

    fn classes(&self, pool: &str) -> [Counter; 6] {
        self.responses.write().entry(pool.into()).or_default().clone()
    }

    fn forget(&self, pool: &str) {
        self.responses.write().remove(pool);
    }
}

/// Sites that listeners share.
pub(crate) struct Entry {
    pub(crate) name: Arc<str>,
    to_https: ArcSwap<Redirect>,
}

impl Entry {
    /// The redirect for requests in clear text to a site that is served only over TLS.
    pub(crate) fn to_https(&self) -> Guard<Arc<Redirect>> {
        self.to_https.load()
    }
}

/// All that is in force. It applies one update at a time.
pub(crate) struct State {
    shared: Arc<Shared>,
    /// Started with the first listener.
    workers: Option<Arc<Workers>>,
    entries: HashMap<Arc<str>, Arc<Entry>>,
    sites: BTreeMap<SiteKey, Arc<ResolvedSite>>,
    listeners: BTreeMap<ListenerKey, Wanted>,
    /// Why certificates cannot be served, by hash.
    bad_certificates: BTreeMap<Arc<str>, String>,
    /// The key that signs cookies; None: a key of this process.
    cookie_key: Option<(CookieSecret, Arc<CookieKey>)>,
    /// Listeners that could not be bound.
    unbound: BTreeSet<ListenerKey>,
    report: Report,
}

/// A listener of the plan, and whether it could be opened.
struct Wanted {
    resolved: Arc<ResolvedListener>,
    outcome: Result<Arc<Listener>, Failed>,
}

impl State {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            workers: None,
            shared,
            entries: HashMap::new(),
            sites: BTreeMap::new(),
            listeners: BTreeMap::new(),
            bad_certificates: BTreeMap::new(),
            cookie_key: None,
            unbound: BTreeSet::new(),
            report: Report::default(),
        }
    }

    fn workers(&mut self) -> Result<Arc<Workers>, Failed> {
        if let Some(workers) = &self.workers {
            return Ok(workers.clone());
        }
        let http = || crate::http::carrier(self.shared.clone());
        let workers = Workers::start(self.shared.options.workers(), http).map_err(Failed::Bind)?;
        Ok(self.workers.insert(Arc::new(workers)).clone())
    }

    pub(crate) async fn apply(&mut self, update: &Update) {
        let update = &*self.completed(update);
        for change in &update.certificates {
            if let Change::Put(hash, certificate) = change {
                match self.shared.certificates.put(hash.clone(), certificate) {
                    Ok(()) => drop(self.bad_certificates.remove(hash)),
                    Err(why) => drop(self.bad_certificates.insert(hash.clone(), why)),
                }
            }
        }
        if let Some(secret) = &update.cookie_secret
            && self.cookie_key.as_ref().is_none_or(|(known, _)| known != secret)
        {
            let key = Arc::new(CookieKey::new(secret.0));
            self.cookie_key = Some((secret.clone(), key.clone()));
            let backends = self.shared.backends.read();
            backends.values().for_each(|backend| backend.pool.set_key(key.clone()));
        }
        self.put_pools(update);
        for change in &update.members {
            if let Some(backend) = self.shared.backend(&change.pool) {
                self.shared.generations.removed(&change.removed);
                backend.pool.set_members(change);
            }
        }
        self.change_sites(update);
        // Redirects must have their target before the first client is accepted.
        if !update.listeners.is_empty() {
            self.find_https(&update.listeners);
        }
        for change in &update.listeners {
            if let Change::Put(key, listener) = change {
                self.put_listener(*key, listener.clone()).await;
            }
        }
        for change in &update.listeners {
            if let Change::Remove(key) = change {
                self.remove_listener(key).await;
            }
        }
        if !update.listeners.is_empty() {
            self.find_https(&[]);
        }
        if !update.pools.is_empty() {
            let listeners =
                self.listeners.values().filter_map(|wanted| wanted.outcome.as_ref().ok());
            listeners.for_each(|listener| listener.find_pool());
        }
        for change in &update.pools {
            if let Change::Remove(name) = change
                && let Some(backend) = self.shared.backends.write().remove(name)
            {
                // Kept connections must not be used for another member that gets one of these addresses.
                self.shared.generations.removed(&backend.pool.members());
                backend.pool.retire();
                self.shared.counters.forget(name);
            }
        }
        for change in &update.certificates {
            if let Change::Remove(hash) = change {
                self.shared.certificates.remove(hash);
                self.bad_certificates.remove(hash);
            }
        }
        // A released address may be one that could not be bound.
        let bound = self.bind_again().await;
        let structure = !update.listeners.is_empty()
            || !update.sites.is_empty()
            || !update.pools.is_empty()
            || !update.certificates.is_empty();
        if structure && !bound {
            self.report = self.refusals();
        }
    }

    /// What could not be done.
    pub(crate) fn report(&self) -> &Report {
        &self.report
    }

    fn put_pools(&self, update: &Update) {
        for change in &update.pools {
            let Change::Put(name, config) = change else { continue };
            if let Some(backend) = self.shared.backend(name) {
                backend.pool.set_config(config.clone());
                continue;
            }
            let key = self.cookie_key.as_ref().map(|(_, key)| key.clone());
            let key = key.unwrap_or_else(CookieKey::of_process);
            let hall = &self.shared.hall;
            let (checks, failing) = (hall.checks.clone(), self.shared.failing.clone());
            let pool = Pool::sharing(config.clone(), key, checks, &hall.ties, failing);
            self.shared.metrics.add_pool(&pool);
            let classes = self.shared.counters.classes(name);
            let backend = Arc::new(Backend { pool, classes });
            self.shared.backends.write().insert(name.clone(), backend);
        }
    }

    fn change_sites(&mut self, update: &Update) {
        if update.sites.is_empty() {
            return;
        }
        for change in &update.sites {
            match change {
                Change::Put(key, site) => drop(self.sites.insert(key.clone(), site.clone())),
                Change::Remove(key) => drop(self.sites.remove(key)),
            }
        }
        let router = self.shared.router.load().with(&update.sites);
        self.shared.router.store(Arc::new(router));
    }

    fn entry(&mut self, name: &Arc<str>) -> Arc<Entry> {
        let to_https = || ArcSwap::from_pointee(Redirect::to_https(name, [], []));
        let new = || Arc::new(Entry { name: name.clone(), to_https: to_https() });
        self.entries.entry(name.clone()).or_insert_with(new).clone()
    }

    async fn put_listener(&mut self, key: ListenerKey, resolved: Arc<ResolvedListener>) {
        let target = self.target(&resolved);
        if let (Some(Wanted { outcome: Ok(listener), .. }), Ok(target)) =
            (self.listeners.get(&key), &target)
        {
            let listener = listener.clone();
            listener.serve(target.clone());
            self.listeners.insert(key, Wanted { resolved, outcome: Ok(listener) });
            return;
        }
        self.remove_listener(&key).await;
        let outcome = target.and_then(|target| {
            let workers = self.workers()?;
            Listener::open(key, target, &self.shared, &workers)
        });
        if matches!(outcome, Err(Failed::Bind(_) | Failed::NoPool)) {
            self.unbound.insert(key);
        }
        self.listeners.insert(key, Wanted { resolved, outcome });
    }

    async fn remove_listener(&mut self, key: &ListenerKey) {
        self.unbound.remove(key);
        if let Some(Wanted { outcome: Ok(listener), .. }) = self.listeners.remove(key) {
            listener.close(self.drain_time(&listener)).await;
        }
    }

    fn target(&mut self, resolved: &ResolvedListener) -> Result<Target, Failed> {
        let listener = &resolved.listener;
        match (listener.protocol, &listener.serves) {
            (ListenerProtocol::Tcp, Serves::Pool(pool)) => Ok(Target::Tcp(pool.clone())),
            (ListenerProtocol::Udp, Serves::Pool(pool)) => Ok(Target::Udp(pool.clone())),
            (ListenerProtocol::Http, Serves::Entry(name)) => Ok(Target::Http(self.entry(name))),
            (ListenerProtocol::Https, Serves::Entry(name)) => Ok(Target::Https(self.entry(name))),
            (protocol, _) => Err(Failed::NotSupported(protocol)),
        }
    }

    /// Tries again to bind what could not be bound; returns whether something changed.
    pub(crate) async fn bind_again(&mut self) -> bool {
        let before = self.unbound.len();
        for key in self.unbound.clone() {
            if let Some(wanted) = self.listeners.get(&key) {
                self.put_listener(key, wanted.resolved.clone()).await;
            }
        }
        let changed = self.unbound.len() != before;
        if changed {
            self.report = self.refusals();
        }
        changed
    }

    /// Finds the redirect target for requests in clear text, from the listeners that are added and those
    /// that exist.
    fn find_https(&mut self, changes: &[Change<ListenerKey, Arc<ResolvedListener>>]) {
        let come = || {
            changes.iter().filter_map(|change| match change {
                Change::Put(_, listener) => Some(&listener.listener),
                Change::Remove(_) => None,
            })
        };
        for listener in come() {
            if let Serves::Entry(name) = &listener.serves {
                self.entry(name);
            }
        }
        for (name, entry) in &self.entries {
            let there = self.listeners.values().map(|wanted| &wanted.resolved.listener);
            let to_https = Redirect::to_https(name, come(), there);
            entry.to_https.store(Arc::new(to_https));
        }
    }

    fn drain_time(&self, listener: &Listener) -> Duration {
        listener
            .pool()
            .and_then(|pool| self.shared.backend(&pool)?.pool.config().timeouts.drain_seconds)
            .map_or(self.shared.options.limits.drain_time, |seconds| {
                Duration::from_secs(u64::from(seconds))
            })
    }

    /// Closes all listeners; returns when their connections have ended or the grace is over.
    pub(crate) async fn drain(&mut self, grace: Duration) {
        self.unbound.clear();
        let listeners = std::mem::take(&mut self.listeners);
        for wanted in listeners.into_values() {
            if let Ok(listener) = wanted.outcome {
                listener.close(grace).await;
            }
        }
        let all = with_those_that_go(self.shared.options.limits.connections);
        let ended = self.shared.open.acquire_many(u32::try_from(all).unwrap_or(u32::MAX));
        if tokio::time::timeout(grace, ended).await.is_err() {
            tracing::info!("connections were cut after the grace to drain");
        }
    }
}
