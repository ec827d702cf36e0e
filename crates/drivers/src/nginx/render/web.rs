//! Renders servers for HTTP and HTTPS: one for each host and, for each entry, one for unknown hosts. The renderer calls
//! it.

use super::super::text::Word;
use super::super::wanted::certificate_file;
use super::routes::{Locations, answer, redirected};
use super::{Render, short_hash};
use bowline_core::outcome::{Reason, quote};
use bowline_core::plan::Host;
use bowline_core::update::{Extent, ListenerKey, ResolvedSite};
use std::collections::BTreeMap;
use std::sync::Arc;

const BAD: &str = "        if ($bowline_bad) {\n            \
                   return 400 \"The request cannot be read unambiguously.\\n\";\n        }\n";

/// The sites of an entry, by host.
type Sites<'a> = BTreeMap<&'a Host, &'a ResolvedSite>;

impl Render<'_> {
    /// The servers of an entry at these addresses, in clear text and over TLS.
    pub(super) fn web(
        &mut self,
        entry: &Arc<str>,
        clear: &[ListenerKey],
        tls: &[ListenerKey],
    ) -> String {
        let desired = self.desired;
        let own = desired.sites.iter().filter(|(key, _)| key.entry == *entry);
        let mut sites: Sites<'_> = own.map(|(key, site)| (&key.host, &**site)).collect();
        sites.retain(|host, site| self.is_usable(host, site));
        let mut text = String::new();
        if !clear.is_empty() {
            for host in sites
                .keys()
                .copied()
                .chain([&Host::Any].into_iter().filter(|it| !sites.contains_key(*it)))
            {
                let redirect = self.desired.to_https(entry);
                let redirects = sites
                    .get(host)
                    .and_then(|site| site.tls.as_ref())
                    .is_some_and(|tls| tls.redirect);
                let body = match redirected(&redirect).ok().filter(|_| redirects) {
                    Some(line) => {
                        format!("        location / {{\n            {line};\n        }}\n")
                    }
                    None => Locations::of(self, &chain(&sites, host)).text(),
                };
                text.push_str(&server(host, clear, "", &body));
            }
        }
        if !tls.is_empty() {
            text.push_str(&self.secure(entry, &sites, tls));
        }
        text
    }

    /// Whether a host can be served at all.
    fn is_usable(&mut self, host: &Host, site: &ResolvedSite) -> bool {
        let (reason, why) = match host {
            Host::Any => return true,
            Host::Exact(name) => match Word::host(name) {
                Ok(_) => return true,
                Err(why) => (Reason::BadValue, why.to_string()),
            },
            Host::Wildcard(domain) => match Word::below("~", domain) {
                Ok(_) => return true,
                Err(why) => (Reason::BadValue, why.to_string()),
            },
            Host::Regex(_) => (
                Reason::NotSupported,
                "is a regular expression, which is not supported with nginx".to_owned(),
            ),
        };
        for (_, consumer) in &site.rules {
            let message = format!("the host {} {why}", quote(&host.to_string()));
            self.refuse(consumer, reason, message, Extent::Part);
        }
        false
    }

    fn secure(&mut self, entry: &str, sites: &Sites<'_>, at: &[ListenerKey]) -> String {
        let served = |site: &ResolvedSite| {
            let certificate = site.tls.as_ref()?.certificate.as_ref()?;
            let hash = &certificate.hash;
            self.certificates.contains_key(hash).then(|| hash.clone())
        };
        // The certificate that a client was shown for the name it asked for. A host is served only to clients that were
        // shown its certificate.
        let shown = format!("bowline_shown_{}", short_hash(&[entry.as_bytes()]));
        let certificates: BTreeMap<_, _> =
            sites.iter().map(|(host, site)| (*host, served(site))).collect();
        let hash =
            |host: &Host| certificates.get(host).and_then(Option::as_deref).unwrap_or("\"\"");
        let mut text = format!(
            "\n    map $ssl_server_name ${shown} {{\n        default {};\n",
            hash(&Host::Any)
        );
        for host in sites.keys() {
            if let Some(name) = key(host) {
                text.push_str(&format!("        {name} {};\n", hash(host)));
            }
        }
        text.push_str("    }\n");
        for host in sites.iter().filter(|(_, site)| site.tls.is_some()).map(|(host, _)| *host) {
            let body = match certificates.get(host).and_then(Option::as_ref) {
                None => refused(),
                Some(hash) => {
                    let file = certificate_file(hash);
                    let locations = Locations::of(self, &chain(sites, host)).text();
                    let misdirected: String = answer(421)
                        .iter()
                        .skip(1)
                        .map(|line| format!("            {line};\n"))
                        .collect();
                    format!(
                        "        ssl_certificate {file};\n        ssl_certificate_key {file};\n        \
                         if (${shown} != {hash}) {{\n{misdirected}        }}\n{locations}"
                    )
                }
            };
            text.push_str(&server(host, at, " ssl http2", &body));
        }
        if sites.get(&Host::Any).is_none_or(|site| site.tls.is_none()) {
            text.push_str(&server(&Host::Any, at, " ssl http2", &refused()));
        }
        text
    }
}

/// A server for names without a certificate: it refuses handshakes and requests.
fn refused() -> String {
    let lines: String = answer(421).iter().map(|line| format!("            {line};\n")).collect();
    format!("        ssl_reject_handshake on;\n        location / {{\n{lines}        }}\n")
}

/// The sites whose rules apply to a host, the most specific first. All have the same owner.
fn chain<'a>(sites: &Sites<'a>, host: &'a Host) -> Vec<(&'a Host, &'a ResolvedSite)> {
    let above = match host {
        Host::Exact(name) => name.split_once('.').map(|(_, domain)| Host::Wildcard(domain.into())),
        _ => None,
    };
    let mut hosts = vec![host.clone()];
    hosts.extend(above);
    if *host != Host::Any {
        hosts.push(Host::Any);
    }
    let mut found = hosts.iter().filter_map(|host| sites.get_key_value(host)).peekable();
    let Some(owner) = found.peek().map(|(_, site)| site.owner.clone()) else { return Vec::new() };
    found.filter(|(_, site)| site.owner == owner).map(|(host, site)| (*host, *site)).collect()
}

/// The host as a server name. None: the default server.
fn name(host: &Host) -> Option<Word> {
    match host {
        Host::Exact(name) => Word::host(name).ok(),
        Host::Wildcard(domain) => Word::below("~", domain).ok(),
        Host::Any | Host::Regex(_) => None,
    }
}

/// A host as a key of a map. Maps compare without case, and reserve some words.
fn key(host: &Host) -> Option<Word> {
    match host {
        Host::Exact(name) => match &**name {
            "default" | "hostnames" | "include" | "volatile" => {
                Word::quoted(&format!("\\{name}")).ok()
            }
            name => Word::host(name).ok(),
        },
        Host::Wildcard(domain) => Word::below("~*", domain).ok(),
        Host::Any | Host::Regex(_) => None,
    }
}

fn server(host: &Host, at: &[ListenerKey], options: &str, body: &str) -> String {
    let name = name(host);
    let default = if name.is_none() { " default_server" } else { "" };
    let listen: String = at
        .iter()
        .map(|key| format!("        listen {}{default}{options};\n", Word::socket(key.socket())))
        .collect();
    let name = name.map_or_else(String::new, |name| format!("        server_name {name};\n"));
    format!("\n    server {{\n{listen}{name}{BAD}{body}    }}\n")
}
