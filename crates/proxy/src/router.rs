//! Finds the rule of a request. A router is built from sites and never changed; an update builds
//! another one that shares all sites that stay. It forwards nothing: the HTTP part asks it, and
//! carries out the rule.
//!
//! The most specific site of a host comes first: the one of its name, of the wildcard above it, of a
//! regular expression, of any host. It says how the host is served over TLS. If it has no rule for a
//! request, less specific sites of the same owner are tried, and never sites of another owner.

mod host;
mod pattern;
mod site;
#[cfg(test)]
mod tests;

pub use host::host;
pub use pattern::BadPattern;

use bowline_core::key::ConsumerRef;
use bowline_core::plan::{Host, Rule};
use bowline_core::update::{Change, ResolvedSite, SiteKey};
use pattern::Patterns;
use site::Compiled;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// What a request is routed by.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The path, without the query.
    pub path: &'a str,
    /// The method.
    pub method: &'a str,
    /// The headers.
    pub headers: &'a http::HeaderMap,
    /// The query, without the question mark.
    pub query: Option<&'a str>,
}

/// A rule or host that is not used.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unused {
    /// The consumer.
    pub consumer: ConsumerRef,
    /// The host.
    pub host: Host,
    /// The regular expression.
    pub pattern: Arc<str>,
    /// Why.
    pub why: BadPattern,
}

/// Finds rules.
#[derive(Clone, Debug, Default)]
pub struct Router {
    entries: HashMap<Arc<str>, Arc<Entry>>,
}

/// The sites of one entry.
#[derive(Clone, Debug, Default)]
struct Entry {
    exact: HashMap<Arc<str>, Arc<Placed>>,
    wildcard: HashMap<Arc<str>, Arc<Placed>>,
    /// By expression, in the order in which they are tried.
    regex: BTreeMap<Arc<str>, Arc<Placed>>,
    any: Option<Arc<Placed>>,
    regexes: Arc<Regexes>,
}

#[derive(Debug, Default)]
struct Regexes {
    patterns: Patterns<Arc<Placed>>,
    bad: Vec<(Arc<Placed>, BadPattern)>,
}

#[derive(Debug)]
struct Placed {
    host: Host,
    compiled: Compiled,
}

impl Router {
    /// A router for these sites.
    pub fn build<'a>(
        sites: impl IntoIterator<Item = (&'a SiteKey, &'a Arc<ResolvedSite>)>,
    ) -> Self {
        let puts = sites.into_iter().map(|(key, site)| (key, Some(site)));
        Self::default().changed(puts)
    }

    /// The router after these changes. All other sites are shared.
    #[must_use]
    pub fn with(&self, changes: &[Change<SiteKey, Arc<ResolvedSite>>]) -> Self {
        self.changed(changes.iter().map(|change| match change {
            Change::Put(key, site) => (key, Some(site)),
            Change::Remove(key) => (key, None),
        }))
    }

    fn changed<'a>(
        &self,
        changes: impl Iterator<Item = (&'a SiteKey, Option<&'a Arc<ResolvedSite>>)>,
    ) -> Self {
        let mut by_entry: BTreeMap<&Arc<str>, Vec<_>> = BTreeMap::new();
        for (key, site) in changes {
            by_entry.entry(&key.entry).or_default().push((&key.host, site));
        }
        let mut router = self.clone();
        for (name, changes) in by_entry {
            let mut entry = router.entries.get(name).map_or_else(Entry::default, |e| (**e).clone());
            entry.change(changes);
            if entry.is_empty() {
                router.entries.remove(name);
            } else {
                router.entries.insert(name.clone(), Arc::new(entry));
            }
        }
        router
    }

    /// The sites of an entry for a host in the form that [`host`] returns.
    pub fn sites<'a>(&'a self, entry: &str, host: Option<&'a str>) -> Option<Sites<'a>> {
        let entry = self.entries.get(entry)?;
        let host = host.filter(|host| !host.is_empty());
        let above =
            host.and_then(|host| host.split_once('.')).filter(|(label, _)| !label.is_empty());
        Some(Sites {
            exact: host.and_then(|host| entry.exact.get(host)),
            wildcard: above.and_then(|(_, domain)| entry.wildcard.get(domain)),
            host,
            entry,
        })
    }

    /// Rules and hosts that are not used, and why.
    pub fn unused(&self) -> Vec<Unused> {
        let mut unused: Vec<_> = self.entries.values().flat_map(|entry| entry.unused()).collect();
        unused.sort_unstable();
        unused.dedup();
        unused
    }
}

/// The sites for a host.
#[derive(Clone, Copy, Debug)]
pub struct Sites<'a> {
    exact: Option<&'a Arc<Placed>>,
    wildcard: Option<&'a Arc<Placed>>,
    host: Option<&'a str>,
    entry: &'a Entry,
}

impl<'a> Sites<'a> {
    /// The most specific site, whether or not it has a rule for a path: it says how the host is served
    /// over TLS.
    pub fn first(&self) -> Option<&'a Arc<ResolvedSite>> {
        self.places().next().map(|placed| &placed.compiled.site)
    }

    /// The first rule that the request matches.
    pub fn route(&self, request: &Request<'_>) -> Option<&'a Rule> {
        let mut places = self.places().peekable();
        let owner = &places.peek()?.compiled.site.owner;
        places.filter(|placed| placed.compiled.site.owner == *owner).find_map(|placed| {
            let index = placed.compiled.route(request)?;
            placed.compiled.site.rules.get(index).map(|(rule, _)| rule)
        })
    }

    /// The sites, the most specific first. Regular expressions are tried after exact and wildcard
    /// hosts, so that they cannot slow those down.
    fn places(&self) -> impl Iterator<Item = &'a Placed> + use<'a> {
        let (entry, host) = (self.entry, self.host);
        let regex = host.into_iter().flat_map(|host| entry.regexes.patterns.matches(host));
        let written = self.exact.into_iter().chain(self.wildcard);
        written.chain(regex).chain(&entry.any).map(|placed| &**placed)
    }
}

impl Entry {
    fn change(&mut self, changes: Vec<(&Host, Option<&Arc<ResolvedSite>>)>) {
        let mut regexes_changed = false;
        for (host, site) in changes {
            let placed = site.map(|site| {
                Arc::new(Placed { host: host.clone(), compiled: Compiled::new(site.clone()) })
            });
            match host {
                Host::Exact(name) => put(&mut self.exact, name, placed),
                Host::Wildcard(domain) => put(&mut self.wildcard, domain, placed),
                Host::Any => self.any = placed,
                Host::Regex(pattern) => {
                    regexes_changed = true;
                    match placed {
                        Some(placed) => self.regex.insert(pattern.clone(), placed),
                        None => self.regex.remove(pattern),
                    };
                }
            }
        }
        if regexes_changed {
            let sites = self.regex.iter().map(|(pattern, placed)| (&**pattern, placed.clone()));
            let (patterns, bad) = Patterns::new(sites);
            self.regexes = Arc::new(Regexes { patterns, bad });
        }
    }

    fn is_empty(&self) -> bool {
        self.exact.is_empty()
            && self.wildcard.is_empty()
            && self.regex.is_empty()
            && self.any.is_none()
    }

    fn unused(&self) -> Vec<Unused> {
        let mut unused = Vec::new();
        for (placed, why) in &self.regexes.bad {
            let Host::Regex(pattern) = &placed.host else { continue };
            unused.extend(placed.compiled.site.rules.iter().map(|(_, consumer)| Unused {
                consumer: consumer.clone(),
                host: placed.host.clone(),
                pattern: pattern.clone(),
                why: *why,
            }));
        }
        let all = self.exact.values().chain(self.wildcard.values()).chain(self.regex.values());
        for placed in all.chain(&self.any) {
            for (index, why) in &placed.compiled.bad {
                let Some((rule, consumer)) = placed.compiled.site.rules.get(*index as usize) else {
                    continue;
                };
                unused.push(Unused {
                    consumer: consumer.clone(),
                    host: placed.host.clone(),
                    pattern: rule.path.value.clone(),
                    why: *why,
                });
            }
        }
        unused
    }
}

fn put(map: &mut HashMap<Arc<str>, Arc<Placed>>, key: &Arc<str>, placed: Option<Arc<Placed>>) {
    match placed {
        Some(placed) => map.insert(key.clone(), placed),
        None => map.remove(key),
    };
}
