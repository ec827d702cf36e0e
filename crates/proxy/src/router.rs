//! Which rule a request meets. A router is made from sites and never altered; a change makes another
//! that shares all sites that stayed. It forwards nothing: the HTTP part asks, and does what the rule
//! says.
//!
//! A rule counts if its host and its path both match, as the Ingress specification has it, so a
//! request whose own host has no rule for its path goes on to the wildcard above it, then to regular
//! expressions, then to the sites of any host, where default backends are. How a request is served
//! over TLS is for its most specific site to say: [`Router::site`].

mod host;
mod pattern;
mod site;
#[cfg(test)]
mod tests;

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
    /// The `Host` header or `:authority`, as it was sent.
    pub host: Option<&'a str>,
    /// The path, without the query.
    pub path: &'a str,
    /// The method.
    pub method: &'a str,
    /// The headers.
    pub headers: &'a http::HeaderMap,
    /// The query, without the question mark.
    pub query: Option<&'a str>,
}

/// The rule that a request meets.
#[derive(Clone, Copy, Debug)]
pub struct Matched<'a> {
    /// The host it is of.
    pub host: &'a Host,
    /// The site it is of.
    pub site: &'a Arc<ResolvedSite>,
    /// The rule.
    pub rule: &'a Rule,
    /// Whose rule it is.
    pub consumer: &'a ConsumerRef,
}

/// A rule or host that is not used.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unused {
    /// Whose.
    pub consumer: ConsumerRef,
    /// On which host.
    pub host: Host,
    /// What it says.
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
    /// By expression: their order is the order in which they are tried.
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

    /// The router after these changes. Sites that are not among them are shared.
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

    /// The first rule of the entry that the request meets.
    pub fn route(&self, entry: &str, request: &Request<'_>) -> Option<Matched<'_>> {
        let entry = self.entries.get(entry)?;
        let name = request.host.map(host::normalize);
        let mut places = entry.places(name.as_deref());
        places.find_map(|placed| {
            let index = placed.compiled.route(request)?;
            let (rule, consumer) = placed.compiled.site.rules.get(index)?;
            Some(Matched { host: &placed.host, site: &placed.compiled.site, rule, consumer })
        })
    }

    /// The most specific site of a host, whether or not it has a rule for a path: the one that says
    /// how the host is served over TLS.
    pub fn site(&self, entry: &str, host: Option<&str>) -> Option<&Arc<ResolvedSite>> {
        let entry = self.entries.get(entry)?;
        let name = host.map(host::normalize);
        entry.places(name.as_deref()).next().map(|placed| &placed.compiled.site)
    }

    /// What is not used, and why.
    pub fn unused(&self) -> Vec<Unused> {
        let mut unused: Vec<_> = self.entries.values().flat_map(|entry| entry.unused()).collect();
        unused.sort_unstable();
        unused.dedup();
        unused
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

    /// The sites that answer for a host, the most specific first. Regular expressions are not tried
    /// before the others were, so that they cannot slow down hosts that are written out.
    fn places<'a, 'h>(
        &'a self,
        host: Option<&'h str>,
    ) -> impl Iterator<Item = &'a Placed> + use<'a, 'h> {
        let host = host.filter(|host| !host.is_empty());
        let exact = host.and_then(|host| self.exact.get(host));
        let above =
            host.and_then(|host| host.split_once('.')).filter(|(label, _)| !label.is_empty());
        let wildcard = above.and_then(|(_, domain)| self.wildcard.get(domain));
        let regex = host.into_iter().flat_map(|host| self.regexes.patterns.matches(host));
        exact.into_iter().chain(wildcard).chain(regex).chain(&self.any).map(|placed| &**placed)
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
