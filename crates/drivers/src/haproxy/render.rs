//! Renders the desired state as HAProxy's wanted configuration. Pure: the same plan gives the same files. What HAProxy
//! cannot do is left out and reported on the object that asks for it. The task in [`crate::program`] calls it through
//! the driver.

mod backend;
mod clients;
mod frontend;
mod routes;

use super::descriptor_budget::{self, Held, Need};
use super::diff::{Check, Running};
use super::failing::RING;
use super::text::{BadText, Word};
use super::version::Version;
use super::wanted::{Body, COMMON, Section, Servers, Wanted};
use crate::desired::Desired;
use crate::program::Excluded;
use crate::program::render_filter::{RenderFilter, short_hash};
use backend::Mode;
use bowline_core::key::ConsumerRef;
use bowline_core::outcome::{Reason, quote};
use bowline_core::plan::{Action, Limits, ListenerProtocol, Pool, Serves};
use bowline_core::update::{Extent, ListenerKey, Member, ResolvedListener};
use routes::Routes;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// Settings that do not come from the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The socket where it takes commands.
    pub admin_socket: PathBuf,
    /// The socket where an old process tells the new one which client belongs to which member.
    pub peers_socket: PathBuf,
    /// Whether it prints a line for each request.
    pub access_log: bool,
    /// HAProxy's version.
    pub version: Version,
    /// How many seconds old processes may take to finish their connections.
    pub shutdown_seconds: u64,
    /// How many file descriptors it may have open.
    pub descriptors: usize,
}

/// The wanted configuration, and what of the plan it does not contain.
pub type Rendered = crate::program::Rendered<Wanted>;

/// The backend for pools that do not exist. No pool has this name.
const NOBODY: &str = ":nobody";
const DEFAULTS: &str = "    mode http
    option dontlognull
    option redispatch 1
    retries 3
    retry-on conn-failure empty-response
    timeout connect 5s
    timeout client 60s
    timeout client-fin 30s
    timeout http-request 15s
    timeout http-keep-alive 75s
    timeout server 60s
    timeout server-fin 30s
    timeout tunnel 1h
    timeout queue 5s
    timeout check 5s
";

/// The ring of lines about servers. The time tells two lines apart.
const LINES: &str = "    format timed\n    maxlen 1024\n    size 65536\n";

/// Renders everything. If there are too few file descriptors for all health checks, `held` says which servers keep
/// theirs. An error is in the settings, not in the plan.
pub fn render(
    desired: &Desired,
    excluded: &Excluded,
    settings: &Settings,
    held: &Held,
) -> Result<Rendered, BadText> {
    let mut render = Render {
        desired,
        filter: RenderFilter::new("HAProxy", desired, excluded),
        settings,
        held,
        wanted: Wanted::default(),
        pools: BTreeMap::new(),
    };
    render.everywhere()?;
    render.find_pools();
    render.wanted.certificates = render.filter.certificates();
    render.listeners();
    render.backends();
    Ok(render.filter.rendered(render.wanted))
}

struct Render<'a> {
    desired: &'a Desired,
    filter: RenderFilter<'a>,
    settings: &'a Settings,
    held: &'a Held,
    wanted: Wanted,
    /// The pools that a rule or listener leads to.
    pools: Pools,
}

/// By name of the pool: its backend, its mode, and the first consumer that leads to it.
type Pools = BTreeMap<Arc<str>, (Word, Mode, ConsumerRef)>;

impl Render<'_> {
    fn refuse(&mut self, consumer: &ConsumerRef, reason: Reason, message: String, extent: Extent) {
        self.filter.refuse(consumer, reason, message, extent);
    }

    fn everywhere(&mut self) -> Result<(), BadText> {
        let mut global = format!(
            "    default-path config\n    localpeer bowline\n    stats socket {} mode 600 level admin \
             expose-fd listeners\n    stats timeout 1m\n    hard-stop-after {}s\n    \
             ssl-default-bind-options ssl-min-ver TLSv1.2\n    tune.ssl.default-dh-param 2048\n",
            Word::path(&self.settings.admin_socket)?,
            self.settings.shutdown_seconds.max(1),
        );
        if self.settings.access_log {
            // Long enough for a line with a long path: a truncated line is not valid JSON.
            global.push_str("    log stdout len 65535 format raw local0 info\n");
        }
        // Backends say here which servers go down and come up. Frontends take it back: see [`frontend`].
        let defaults = format!("{DEFAULTS}    log ring@{RING} local0 notice\n");
        // Only pools with a table use it; without one it would only delay HAProxy's exit.
        let peers = format!(
            "    bind unix@{}\n    server bowline\n",
            Word::path(&self.settings.peers_socket)?
        );
        let tables = self.desired.pools.values().any(|pool| backend::has_table(pool));
        let nobody = "    http-request return status 503 content-type text/plain hdr Cache-Control \
                      no-store string 'No member is available.'\n";
        self.wanted.sections.insert(Section::Global, global.into());
        self.wanted.sections.insert(Section::Ring, LINES.to_owned().into());
        self.wanted.sections.insert(Section::Defaults, defaults.into());
        if tables {
            self.wanted.sections.insert(Section::Peers, peers.into());
        }
        let nobody = Body { text: nobody.to_owned(), ..Body::default() };
        self.insert_proxy(Section::Backend(Word::section(NOBODY)?), nobody)?;
        self.tables_of_clients()
    }

    /// Adds a backend. If it is of a kind and HAProxy can add backends at run time, its settings go into the `defaults`
    /// section of its kind.
    fn insert_backend(
        &mut self,
        name: Word,
        body: Body,
        kind: Option<String>,
    ) -> Result<(), BadText> {
        let section = Section::Backend(name);
        let Some(kind) = kind.filter(|_| self.settings.version.adds_backends()) else {
            return self.insert_proxy(section, body);
        };
        let kind = Word::section(&kind)?;
        self.insert_proxy(Section::Kind(kind.clone()), body.text.into())?;
        let like_others = Body::of_a_kind(kind, body.options, body.unchecked);
        self.wanted.sections.insert(section, like_others);
        Ok(())
    }

    /// Adds a section that starts from the common defaults. It must name them once there are other `defaults` sections.
    fn insert_proxy(&mut self, section: Section, body: Body) -> Result<(), BadText> {
        let from = self.settings.version.adds_backends().then(|| Word::name(COMMON)).transpose()?;
        self.wanted.sections.insert(section, Body { from, ..body });
        Ok(())
    }

    /// Adds the table that counts a consumer's traffic, and refuses a limit that HAProxy cannot enforce.
    fn limits(&mut self, limits: &Limits) {
        let version = self.settings.version;
        // A hash is always a valid name.
        let _ = Word::section(&backend::counted(limits)).and_then(|name| {
            self.insert_proxy(Section::Backend(name), backend::counts(version).into())
        });
        if limits.bits_per_second.is_some() && !version.shapes_bandwidth() {
            let message = "its network-bandwidth is not enforced: HAProxy does so from 2.7 on";
            let (reason, extent) = (Reason::NotSupported, Extent::Part);
            self.refuse(&limits.consumer, reason, message.to_owned(), extent);
        }
    }

    fn is_excluded(&self, consumer: &ConsumerRef) -> bool {
        self.filter.is_excluded(consumer)
    }

    /// Finds the pools that rules and listeners lead to. A pool has one mode; what leads to it in the other mode is
    /// refused there.
    fn find_pools(&mut self) {
        for site in self.desired.sites.values() {
            for (rule, consumer) in &site.rules {
                let Action::Forward(pools) = &rule.action else { continue };
                if self.is_excluded(consumer) {
                    continue;
                }
                for to in pools {
                    self.find_pool(&to.pool, Mode::Http, consumer);
                }
            }
        }
        for resolved in self.desired.listeners.values() {
            if let Serves::Pool(pool) = &resolved.listener.serves
                && resolved.protocol() == ListenerProtocol::Tcp
                && !self.is_excluded(&resolved.consumer)
            {
                self.find_pool(pool, Mode::Tcp, &resolved.consumer);
            }
        }
    }

    fn find_pool(&mut self, pool: &Arc<str>, mode: Mode, consumer: &ConsumerRef) {
        if !self.desired.pools.contains_key(pool) || self.pools.contains_key(pool) {
            return;
        }
        match Word::pool(pool) {
            Ok(name) => {
                if let Some((reason, why)) =
                    self.desired.pools.get(pool).and_then(|it| backend::unasked(it))
                {
                    let message = format!(
                        "the health check of pool {} {why}: members are checked by a connection only",
                        quote(pool)
                    );
                    self.refuse(consumer, reason, message, Extent::Part);
                }
                self.pools.insert(pool.clone(), (name, mode, consumer.clone()));
            }
            Err(why) => {
                let message = format!("the pool {} {why}", quote(pool));
                self.refuse(consumer, Reason::BadValue, message, Extent::Part);
            }
        }
    }

    /// The backend of a pool, if it can be used in this mode.
    fn backend(&self, pool: &str, mode: Mode) -> Option<&Word> {
        self.pools.get(pool).filter(|(_, has, _)| *has == mode).map(|(name, ..)| name)
    }

    fn listeners(&mut self) {
        let mut entries: BTreeMap<(Arc<str>, bool), Vec<&ResolvedListener>> = BTreeMap::new();
        for (key, resolved) in self.filter.listeners() {
            match (&resolved.listener.serves, resolved.protocol()) {
                (Serves::Entry(entry), ListenerProtocol::Http) => {
                    entries.entry((entry.clone(), false)).or_default().push(resolved);
                }
                (Serves::Entry(entry), ListenerProtocol::Https) => {
                    entries.entry((entry.clone(), true)).or_default().push(resolved);
                }
                (Serves::Pool(pool), ListenerProtocol::Tcp) => {
                    self.tcp_listener(key, resolved, pool);
                }
                _ => self.filter.refuse_protocol(key, resolved),
            }
        }
        let names: BTreeSet<_> = entries.keys().map(|(entry, _)| entry.clone()).collect();
        for entry in names {
            let (Ok(name), true) = (Word::name(&entry), entry.len() <= 100) else {
                let of = |secure| entries.get(&(entry.clone(), secure)).into_iter().flatten();
                for resolved in of(false).chain(of(true)) {
                    let message = format!("the entry {} cannot be named", quote(&entry));
                    let extent = Extent::Listener(ListenerKey::of(&resolved.listener));
                    self.refuse(&resolved.consumer, Reason::BadValue, message, extent);
                }
                continue;
            };
            let used = [false, true].map(|secure| entries.contains_key(&(entry.clone(), secure)));
            let routes = Routes::of(self, &entry, &name, used.into());
            for secure in [false, true] {
                if let Some(listeners) = entries.get(&(entry.clone(), secure)) {
                    self.web_frontend(&entry, &name, listeners, secure, &routes);
                }
            }
        }
    }

    fn tcp_listener(&mut self, key: &ListenerKey, resolved: &ResolvedListener, pool: &str) {
        let desired = self.desired;
        let name = self.backend(pool, Mode::Tcp).cloned();
        let (Some(name), Some(config)) = (name, desired.pools.get(pool)) else {
            let message = format!("{} has no pool that can be used", key.socket());
            let extent = Extent::Listener(*key);
            self.refuse(&resolved.consumer, Reason::BackendNotFound, message, extent);
            return;
        };
        let text = frontend::tcp(key, config, &name, self.settings);
        // An address is always a valid name.
        let _ = Word::section(&format!("tcp:{}", Word::named(key.socket())))
            .and_then(|name| self.insert_proxy(Section::Frontend(name), text.into()));
    }

    fn backends(&mut self) {
        let (desired, version) = (self.desired, self.settings.version);
        let pools = std::mem::take(&mut self.pools);
        let mut unchecked = self.unchecked(&pools);
        for (pool, (name, mode, consumer)) in pools {
            let Some(config) = desired.pools.get(&pool) else { continue };
            let unchecked = unchecked.remove(&pool).unwrap_or_default();
            if !unchecked.is_empty() {
                let message = format!(
                    "members of pool {} are not checked: HAProxy may open {} files here, too few for all checks; \
                     raise its limit of open files, or have fewer members",
                    quote(&pool),
                    self.settings.descriptors,
                );
                self.refuse(&consumer, Reason::NoDescriptors, message, Extent::Part);
            }
            let servers = Servers { unchecked, ..Servers::new(desired.members(&pool)) };
            self.wanted.checks += servers.checks();
            let text = backend::text(config, mode, desired.cookie_secret.as_ref(), version);
            let kind = backend::is_of_a_kind(config, mode);
            let kind = kind.then(|| format!("kind:{}", short_hash(&[text.as_bytes()])));
            let [options, unchecked] = [true, false].map(|it| backend::options(config, it).into());
            let body = Body { from: None, text, options, unchecked };
            if self.insert_backend(name.clone(), body, kind).is_err() {
                continue;
            }
            if let Some(limits) = &config.limits {
                self.limits(limits);
            }
            if !config.source_ranges.is_empty() {
                let ranges = config.source_ranges.iter().map(Word::range).collect();
                self.wanted.ranges.insert(ranges_file(config), ranges);
            }
            self.wanted.unchecked += servers.unchecked.len();
            self.wanted.servers.insert(name, servers);
        }
    }

    /// The members without a health check, by pool, if HAProxy has too few file descriptors to check all.
    fn unchecked(&mut self, pools: &Pools) -> BTreeMap<Arc<str>, BTreeSet<SocketAddr>> {
        let (desired, held) = (self.desired, self.held);
        let descriptors = self.settings.descriptors;
        let listeners = desired.listeners.len().min(descriptor_budget::most_listeners(descriptors));
        let most = descriptor_budget::most_checks(descriptors, listeners);
        self.wanted.most_checks = most;
        let runs = |name: &Word, member: &Member| -> Option<Running> {
            held.get(name)?.get(&member.address).filter(|it| !it.retired).copied()
        };
        let is =
            |name: &Word, it: &Member, check| runs(name, it).is_some_and(|it| it.check == check);
        let needs = pools.iter().map(|(pool, (name, _, consumer))| {
            let members = desired.members(pool);
            let held = members.iter().filter(|it| is(name, it, Check::On)).count();
            let (namespace, key) = (consumer.namespace.clone(), pool.clone());
            Need { namespace, key, servers: members.len(), held }
        });
        let short = descriptor_budget::allot(needs, most);
        let (mut unchecked, mut checks) = (BTreeMap::new(), 0);
        // Members that only a reload can give a check.
        let mut returning = Vec::new();
        for (pool, (name, ..)) in pools {
            let mut members: Vec<_> = desired.members(pool).iter().collect();
            if let Some(most) = short.get(pool) {
                members.sort_by_key(|it| (!is(name, it, Check::On), is(name, it, Check::Absent)));
                let without = members.split_off((*most).min(members.len()));
                let without: BTreeSet<_> = without.into_iter().map(|it| it.address).collect();
                unchecked.insert(pool.clone(), without);
            }
            checks += members.len();
            let absent = members.into_iter().filter(|it| is(name, it, Check::Absent));
            returning.extend(absent.map(|it| (pool, it.address)));
        }
        if !descriptor_budget::is_worth_a_load(returning.len(), most.saturating_sub(checks), most) {
            for (pool, address) in returning {
                unchecked.entry(pool.clone()).or_default().insert(address);
            }
        }
        unchecked
    }
}

/// The file with the address ranges that may use a pool.
fn ranges_file(pool: &Pool) -> String {
    format!("ranges/{}.lst", short_hash(&[pool.name.as_bytes()]))
}

#[cfg(test)]
pub(super) mod tests;
