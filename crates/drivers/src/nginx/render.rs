//! Renders the desired state as nginx's file. Pure: the same plan gives the same file. What nginx cannot do is left out
//! and reported on the object that asks for it. The task in [`crate::program`] calls it through the driver.

mod clients;
mod everywhere;
mod pool;
mod routes;
mod web;

use super::text::{BadText, Word};
use super::wanted::Wanted;
use crate::desired::Desired;
use crate::program::Excluded;
use crate::program::render_filter::{RenderFilter, short_hash};
use bowline_core::key::ConsumerRef;
use bowline_core::outcome::{Reason, quote};
use bowline_core::plan::{ListenerProtocol, Pool, Serves, Transport};
use bowline_core::update::{Extent, ListenerKey, ResolvedListener};
use clients::Clients;
pub(super) use everywhere::LOG;
use pool::Upstreams;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

/// Settings that do not come from the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The folder of its own files.
    pub folder: PathBuf,
    /// The socket where it reports what it has loaded.
    pub status_socket: PathBuf,
    /// The socket to which it sends a line for each request. None: no lines.
    pub log_socket: Option<PathBuf>,
    /// Whether root starts it; then its workers run as root, too.
    pub root: bool,
    /// How it forwards TCP and UDP.
    pub stream: Stream,
    /// How many seconds old processes may take to finish their connections.
    pub shutdown_seconds: u64,
    /// How many files each of its processes may open.
    pub files: u64,
}

/// How an nginx forwards TCP and UDP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stream {
    /// The stream module is built in.
    BuiltIn,
    /// It must load the stream module from this file.
    Module(PathBuf),
    /// It has no stream module.
    Missing,
}

/// How many connections each nginx process may have. A listener uses one of them.
const CONNECTIONS: u64 = 8192;

/// How many listeners nginx can have. With as many listeners as connections it would not start.
pub fn most_listeners(settings: &Settings) -> usize {
    usize::try_from((CONNECTIONS / 2).min(settings.files / 4)).unwrap_or(usize::MAX)
}

/// The wanted configuration, and what of the plan it does not contain.
pub type Rendered = crate::program::Rendered<Wanted>;

/// Renders everything. An error is in the settings, not in the plan.
pub fn render(
    desired: &Desired,
    excluded: &Excluded,
    settings: &Settings,
) -> Result<Rendered, BadText> {
    let mut render = Render {
        desired,
        filter: RenderFilter::new("nginx", desired, excluded),
        settings,
        certificates: BTreeMap::new(),
        http: Upstreams::default(),
        stream: Upstreams::default(),
        keys: BTreeMap::new(),
        zones: BTreeSet::new(),
    };
    render.certificates = render.filter.certificates();
    let (servers, passed_through) = render.listeners();
    let mut http = render.http.text();
    for (name, map) in &render.keys {
        // Writing into a String cannot fail.
        let _ = write!(http, "\n    # {name}\n{map}");
    }
    http.extend(render.zones.iter().map(String::as_str));
    http.push_str(&servers);
    let streams = !passed_through.is_empty();
    let stream = if streams { render.stream.text() + &passed_through } else { String::new() };
    let file = short_hash(&[http.as_bytes(), stream.as_bytes()]);
    let clients = Clients::new(settings, desired.listeners.len(), file);
    let mut tail = everywhere::after_mark(settings)?;
    tail.push_str(&clients.http()?);
    tail.push_str(&http);
    tail.push_str("}\n");
    if streams {
        tail.push_str(&everywhere::stream(settings)?);
        tail.push_str(&clients.stream()?);
        tail.push_str(&stream);
        tail.push_str("}\n");
    }
    let head = everywhere::before_mark(settings, streams)?;
    let wanted = Wanted { head, tail, certificates: render.certificates };
    Ok(render.filter.rendered(wanted))
}

struct Render<'a> {
    desired: &'a Desired,
    filter: RenderFilter<'a>,
    settings: &'a Settings,
    certificates: BTreeMap<Arc<str>, Arc<str>>,
    http: Upstreams,
    stream: Upstreams,
    /// The maps that find a client by its cookie, by pool.
    keys: BTreeMap<Word, String>,
    /// The zones that count the requests of consumers with rate limits.
    zones: BTreeSet<String>,
}

impl Render<'_> {
    fn refuse(&mut self, consumer: &ConsumerRef, reason: Reason, message: String, extent: Extent) {
        self.filter.refuse(consumer, reason, message, extent);
    }

    fn is_excluded(&self, consumer: &ConsumerRef) -> bool {
        self.filter.is_excluded(consumer)
    }

    /// The servers of `http` and of `stream`.
    fn listeners(&mut self) -> (String, String) {
        let mut entries: BTreeMap<(Arc<str>, bool), Vec<ListenerKey>> = BTreeMap::new();
        let mut stream = String::new();
        for (key, resolved) in self.filter.listeners() {
            match (&resolved.listener.serves, resolved.protocol()) {
                (Serves::Entry(entry), ListenerProtocol::Http) => {
                    entries.entry((entry.clone(), false)).or_default().push(*key);
                }
                (Serves::Entry(entry), ListenerProtocol::Https) => {
                    entries.entry((entry.clone(), true)).or_default().push(*key);
                }
                (Serves::Pool(pool), ListenerProtocol::Tcp | ListenerProtocol::Udp) => {
                    stream.push_str(&self.stream_server(key, resolved, pool));
                }
                _ => self.filter.refuse_protocol(key, resolved),
            }
        }
        let mut http = String::new();
        let names: BTreeSet<_> = entries.keys().map(|(entry, _)| entry.clone()).collect();
        for entry in names {
            let of = |secure| entries.get(&(entry.clone(), secure)).map_or(&[][..], Vec::as_slice);
            http.push_str(&self.web(&entry, of(false), of(true)));
        }
        (http, stream)
    }

    /// Renders a listener that forwards connections or datagrams.
    fn stream_server(
        &mut self,
        key: &ListenerKey,
        resolved: &ResolvedListener,
        pool: &str,
    ) -> String {
        let desired = self.desired;
        let refused = match (desired.pools.get(pool), Word::pool(pool)) {
            _ if self.settings.stream == Stream::Missing => (
                Reason::NotSupported,
                "this nginx has no stream module (on Debian: libnginx-mod-stream)".to_owned(),
            ),
            (None, _) => (Reason::BackendNotFound, "the listener has no pool".to_owned()),
            (_, Err(why)) => (Reason::BadValue, format!("the pool {} {why}", quote(pool))),
            (Some(config), Ok(name)) => {
                self.tell(&resolved.consumer, config);
                if config.limits.as_ref().is_some_and(|it| it.requests_per_second.is_some()) {
                    let message = "nginx cannot limit connections per second";
                    let consumer = &resolved.consumer;
                    self.refuse(consumer, Reason::NotSupported, message.into(), Extent::Part);
                }
                return self.passed_through(key, config, &name);
            }
        };
        let message = format!("{}: {}", key.socket(), refused.1);
        self.refuse(&resolved.consumer, refused.0, message, Extent::Listener(*key));
        String::new()
    }

    fn passed_through(&mut self, key: &ListenerKey, pool: &Pool, name: &Word) -> String {
        let udp = key.transport == Transport::Udp;
        let mut lines = vec![match udp {
            true => format!("listen {} udp reuseport", Word::socket(key.socket())),
            false => format!("listen {} so_keepalive=on", Word::socket(key.socket())),
        }];
        lines.extend(pool::ranges(pool));
        match self.stream.put(name, pool, self.desired.members(&pool.name), pool::Mode::Stream) {
            // Connections are closed at once.
            false => lines.push("return \"\"".to_owned()),
            true => lines.extend(pool::stream(pool, name, udp)),
        }
        let body: String = lines.iter().map(|line| format!("        {line};\n")).collect();
        format!("\n    server {{\n{body}    }}\n")
    }

    /// Reports the settings of a pool that nginx ignores, though it serves the pool.
    fn tell(&mut self, consumer: &ConsumerRef, pool: &Pool) {
        let mut told = Vec::new();
        if pool.health_check.is_some() {
            told.push("nginx does not check members: what one member does not accept is tried with another");
        }
        if pool.proxy_protocol {
            told.push("nginx speaks only version 1 of the PROXY protocol with members");
        }
        if pool.limits.as_ref().is_some_and(|it| it.bits_per_second.is_some()) {
            told.push("its network-bandwidth is not enforced: nginx counts each connection alone");
        }
        for message in told {
            self.refuse(consumer, Reason::NotSupported, message.to_owned(), Extent::Part);
        }
    }
}

#[cfg(test)]
mod tests;
