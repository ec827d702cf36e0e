//! From all that is desired to nginx's file. A pure function: the same plan gives the same file. What
//! nginx cannot do is left out and told on the object that asked for it.

mod everywhere;
mod pool;
mod routes;
mod web;

use super::text::{BadText, Word};
use super::wanted::Wanted;
use crate::desired::Desired;
use crate::program::{Excluded, pem};
use bowline_core::key::ConsumerRef;
use bowline_core::outcome::{Problem, Reason, quote};
use bowline_core::plan::{ListenerProtocol, Pool, Serves, Transport};
use bowline_core::update::{Extent, ListenerKey, Refusal, ResolvedListener};
pub(super) use everywhere::LOG;
use pool::Upstreams;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

/// How nginx is to run, whatever its plan says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The folder of its own files.
    pub folder: PathBuf,
    /// Where it says what it has loaded.
    pub status_socket: PathBuf,
    /// Where it sends a line for each request; none: nowhere.
    pub log_socket: Option<PathBuf>,
    /// Whether it is started by root, and stays that.
    pub root: bool,
    /// How it carries TCP and UDP.
    pub stream: Stream,
    /// Seconds that old processes may take to finish what they have.
    pub shutdown_seconds: u64,
    /// How many files each of its processes may open.
    pub files: u64,
}

/// How nginx carries TCP and UDP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stream {
    /// By itself.
    BuiltIn,
    /// With this module.
    Module(PathBuf),
    /// Not at all.
    Missing,
}

/// What nginx is to have, and what of the plan is not in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rendered {
    /// What nginx is to have.
    pub wanted: Wanted,
    /// What it will not do, sorted.
    pub refused: Vec<Refusal>,
}

/// Renders everything. An error is in the settings, not in the plan.
pub fn render(
    desired: &Desired,
    excluded: &Excluded,
    settings: &Settings,
) -> Result<Rendered, BadText> {
    let mut render = Render {
        desired,
        excluded,
        settings,
        certificates: BTreeMap::new(),
        refused: BTreeSet::new(),
        http: Upstreams::default(),
        stream: Upstreams::default(),
        keys: BTreeMap::new(),
        zones: BTreeSet::new(),
    };
    render.exclusions();
    render.certificates();
    let (http, stream) = render.listeners();
    let mut tail = everywhere::after_mark(settings)?;
    tail.push_str(&render.http.text());
    for (name, map) in &render.keys {
        // Writing into a String cannot fail.
        let _ = write!(tail, "\n    # {name}\n{map}");
    }
    tail.extend(render.zones.iter().map(String::as_str));
    tail.push_str(&http);
    tail.push_str("}\n");
    if !stream.is_empty() {
        tail.push_str(&everywhere::stream(settings)?);
        tail.push_str(&render.stream.text());
        tail.push_str(&stream);
        tail.push_str("}\n");
    }
    let head = everywhere::before_mark(settings, !stream.is_empty())?;
    let wanted = Wanted { head, tail, certificates: render.certificates };
    Ok(Rendered { wanted, refused: render.refused.into_iter().collect() })
}

struct Render<'a> {
    desired: &'a Desired,
    excluded: &'a Excluded,
    settings: &'a Settings,
    certificates: BTreeMap<Arc<str>, Arc<str>>,
    refused: BTreeSet<Refusal>,
    http: Upstreams,
    stream: Upstreams,
    /// What clients with a cookie are known by, by pool.
    keys: BTreeMap<Word, String>,
    /// Where requests of who is held to limits are counted.
    zones: BTreeSet<String>,
}

impl Render<'_> {
    fn refuse(&mut self, consumer: &ConsumerRef, reason: Reason, message: String, extent: Extent) {
        let problem = Problem::new(reason, message);
        self.refused.insert(Refusal { consumer: consumer.clone(), problem, extent });
    }

    fn exclusions(&mut self) {
        for (consumer, why) in &self.excluded.consumers {
            let message = format!("nginx refuses its configuration: {why}");
            self.refuse(consumer, Reason::NotSupported, message, Extent::All);
        }
    }

    fn is_excluded(&self, consumer: &ConsumerRef) -> bool {
        self.excluded.consumers.contains_key(consumer)
    }

    fn certificates(&mut self) {
        let desired = self.desired;
        for (hash, certificate) in &desired.certificates {
            let digits = hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
            let bundle = match self.excluded.certificates.get(hash) {
                Some(why) => Err(format!("nginx refuses it: {why}")),
                None if !digits => Err("its hash is none".to_owned()),
                None => pem::bundle(&certificate.chain, &certificate.key).map_err(str::to_owned),
            };
            match bundle {
                Ok(pem) => drop(self.certificates.insert(hash.clone(), pem.into())),
                Err(why) => self.refuse_certificate(hash, &why),
            }
        }
    }

    fn refuse_certificate(&mut self, hash: &str, why: &str) {
        let desired = self.desired;
        for (key, site) in &desired.sites {
            let certificate = site.tls.as_ref().and_then(|tls| tls.certificate.as_ref());
            if certificate.is_none_or(|it| *it.hash != *hash) {
                continue;
            }
            for (_, consumer) in &site.rules {
                let message = format!("the certificate of {} cannot be served: {why}", key.host);
                self.refuse(consumer, Reason::BadCertificate, message, Extent::Part);
            }
        }
    }

    /// Servers of `http` and of `stream`.
    fn listeners(&mut self) -> (String, String) {
        let desired = self.desired;
        let mut entries: BTreeMap<(Arc<str>, bool), Vec<ListenerKey>> = BTreeMap::new();
        let mut stream = String::new();
        for (key, resolved) in &desired.listeners {
            if self.is_excluded(&resolved.consumer) {
                continue;
            }
            if let Some(why) = self.excluded.listeners.get(key) {
                let message = format!("{} cannot be bound: {why}", key.socket());
                let extent = Extent::Listener(*key);
                self.refuse(&resolved.consumer, Reason::BindFailed, message, extent);
                continue;
            }
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
                (_, protocol) => {
                    let protocol = format!("{protocol:?}").to_uppercase();
                    let message = format!("{}: nginx does not carry {protocol}", key.socket());
                    let extent = Extent::Listener(*key);
                    self.refuse(&resolved.consumer, Reason::NotSupported, message, extent);
                }
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

    /// A listener whose connections or datagrams are passed through.
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
            (None, _) => (Reason::BackendNotFound, "it has no pool".to_owned()),
            (_, Err(why)) => (Reason::BadValue, format!("the pool {} {why}", quote(pool))),
            (Some(config), Ok(name)) => {
                self.tell(&resolved.consumer, config);
                if config.limits.as_ref().is_some_and(|it| it.requests_per_second.is_some()) {
                    let message = "nginx holds nobody to a number of connections a second";
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
            // Whoever connects is let go at once.
            false => lines.push("return \"\"".to_owned()),
            true => lines.extend(pool::stream(pool, name, udp)),
        }
        let body: String = lines.iter().map(|line| format!("        {line};\n")).collect();
        format!("\n    server {{\n{body}    }}\n")
    }

    /// What nginx does not do for a pool as it is asked, though it serves it.
    fn tell(&mut self, consumer: &ConsumerRef, pool: &Pool) {
        let mut told = Vec::new();
        if pool.health_check.is_some() {
            told.push("nginx checks no members: what one does not take is tried with another");
        }
        if pool.proxy_protocol {
            told.push("nginx tells members of clients in version 1 of the PROXY protocol only");
        }
        if pool.limits.as_ref().is_some_and(|it| it.bits_per_second.is_some()) {
            told.push(
                "it is not held to its network-bandwidth: nginx counts each connection alone",
            );
        }
        for message in told {
            self.refuse(consumer, Reason::NotSupported, message.to_owned(), Extent::Part);
        }
    }
}

/// Sixteen digits that stand for these texts.
fn short_hash(parts: &[&[u8]]) -> String {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    digest.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
