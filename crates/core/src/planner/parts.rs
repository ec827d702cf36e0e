//! Splits a fragment that would not fit into a Plan object beside others. Each part has some of the
//! listeners and rules, and the pools that these need. `service` and `ingress` call it.

use crate::outcome::{Problem, Reason};
use crate::plan::{Action, Fragment, Listener, Pool, Rule, Serves, Site};
use crate::shard::json_size;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The size up to which a part grows.
const PART: usize = 128 * 1024;

/// The largest part that is recorded. Only a single rule or pool can be larger than [`PART`].
const LARGEST: usize = 256 * 1024;

/// The fragment in parts, numbered from 0; mostly one. An error if a single piece is too large.
pub(super) fn split(fragment: Fragment) -> Result<Vec<Fragment>, Problem> {
    if json_size(&fragment) <= PART {
        return Ok(vec![fragment]);
    }
    let mut splitter = Splitter::new(&fragment);
    for listener in &fragment.listeners {
        splitter.listener(listener);
    }
    for site in &fragment.sites {
        // Field by field: a copy of the whole site would copy all its rules.
        let (entry, host, tls) = (site.entry.clone(), site.host.clone(), site.tls.clone());
        let header = Site { entry, host, tls, rules: Vec::new() };
        let size = json_size(&header);
        if site.rules.is_empty() {
            splitter.site(&header, size);
        }
        for rule in &site.rules {
            splitter.rule(&header, size, rule);
        }
    }
    let parts = splitter.finish();
    match parts.iter().map(json_size).max() {
        Some(largest) if largest > LARGEST => Err(Problem::new(
            Reason::NotSupported,
            format!(
                "one port or rule of it takes {largest} bytes in a plan with its pools: at most {LARGEST} \
                are possible"
            ),
        )),
        _ => Ok(parts),
    }
}

struct Splitter<'a> {
    pools: BTreeMap<&'a str, &'a Pool>,
    empty: Fragment,
    done: Vec<Fragment>,
    part: Fragment,
    has: BTreeSet<Arc<str>>,
    size: usize,
}

impl<'a> Splitter<'a> {
    fn new(fragment: &'a Fragment) -> Self {
        let empty = Fragment {
            consumer: fragment.consumer.clone(),
            part: 0,
            claimed: fragment.claimed,
            listeners: Vec::new(),
            sites: Vec::new(),
            pools: Vec::new(),
        };
        Self {
            pools: fragment.pools.iter().map(|pool| (&*pool.name, pool)).collect(),
            done: Vec::new(),
            part: empty.clone(),
            has: BTreeSet::new(),
            size: json_size(&empty),
            empty,
        }
    }

    fn listener(&mut self, listener: &Listener) {
        let needs: Vec<&Arc<str>> = match &listener.serves {
            Serves::Pool(pool) => vec![pool],
            Serves::Entry(_) => Vec::new(),
        };
        self.make_room(json_size(listener), &needs);
        self.part.listeners.push(listener.clone());
    }

    /// Adds a site without rules.
    fn site(&mut self, header: &Site, size: usize) {
        self.make_room(size, &[]);
        self.part.sites.push(header.clone());
    }

    /// Adds a rule to the site of this header, which itself has no rules.
    fn rule(&mut self, header: &Site, header_size: usize, rule: &Rule) {
        let needs: Vec<&Arc<str>> = match &rule.action {
            Action::Forward(pools) => pools.iter().map(|weighted| &weighted.pool).collect(),
            Action::Redirect(_) | Action::Respond(_) => Vec::new(),
        };
        self.make_room(json_size(rule) + header_size, &needs);
        match self.part.sites.last_mut() {
            Some(last) if last.host == header.host && last.entry == header.entry => {
                last.rules.push(rule.clone());
            }
            _ => self.part.sites.push(Site { rules: vec![rule.clone()], ..header.clone() }),
        }
    }

    /// Starts a new part where the current one would grow too large, and adds the needed pools.
    fn make_room(&mut self, piece: usize, needs: &[&Arc<str>]) {
        let mut size = self.size + piece + self.missing(needs);
        if size > PART && (!self.part.listeners.is_empty() || !self.part.sites.is_empty()) {
            self.close();
            size = self.size + piece + self.missing(needs);
        }
        self.size = size;
        for name in needs {
            if let Some(pool) = self.pools.get(&***name)
                && self.has.insert((*name).clone())
            {
                self.part.pools.push((*pool).clone());
            }
        }
    }

    fn missing(&self, needs: &[&Arc<str>]) -> usize {
        let missing = needs.iter().filter(|name| !self.has.contains(**name));
        missing.filter_map(|name| self.pools.get(&***name)).map(|pool| json_size(*pool)).sum()
    }

    fn close(&mut self) {
        let mut part = std::mem::replace(&mut self.part, self.empty.clone());
        part.part = self.done.len().try_into().unwrap_or(u32::MAX);
        part.pools.sort_by(|a, b| a.name.cmp(&b.name));
        self.done.push(part);
        self.has.clear();
        self.size = json_size(&self.empty);
    }

    fn finish(mut self) -> Vec<Fragment> {
        self.close();
        self.done
    }
}
