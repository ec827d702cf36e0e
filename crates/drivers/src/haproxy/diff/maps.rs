//! The difference of maps. While a reload is due, a request is sent only to a backend that runs: an entry whose backend
//! is not loaded yet is withheld, and what it replaces stays. Pure; `diff` calls it.

use super::super::command::Command;
use super::super::text::Word;
use super::super::wanted::{Section, Wanted};
use super::Observed;
use std::collections::{BTreeMap, BTreeSet};

/// A map with more changed entries than this is replaced as a whole.
const MANY: usize = 200;

/// The difference of all maps.
#[derive(Debug, Default)]
pub(super) struct Maps {
    /// The commands.
    pub(super) commands: Vec<Command>,
    /// The values of unwanted entries that stay for now.
    pub(super) kept: BTreeSet<Word>,
}

/// The meaning of a map, by the end of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Says {
    /// The namespace that owns a host.
    Owner,
    /// What to do with a path of a host.
    Action,
    /// The hosts that are not served in clear text.
    Secure,
    /// The certificate of a host.
    Certificate,
}

/// The entry that a map belongs to, and the map's meaning.
fn meaning(map: &str) -> (&str, Says) {
    let name = map.strip_prefix("maps/").unwrap_or(map);
    let (entry, kind) =
        name.strip_suffix(".map").and_then(|it| it.rsplit_once('.')).unwrap_or_default();
    let says = match kind {
        "hosts" => Says::Owner,
        "secure" => Says::Secure,
        "certificates" => Says::Certificate,
        _ => Says::Action,
    };
    (entry, says)
}

/// Finds the difference of all maps.
pub(super) fn diff(observed: &Observed, wanted: &Wanted, reloads: bool) -> Maps {
    let wait = if reloads { Wait::new(observed, wanted) } else { Wait::default() };
    let mut found = Maps::default();
    for (map, running) in &observed.maps {
        match wanted.maps.get(map) {
            Some(entries) => diff_map(map, running, entries, &wait, &mut found),
            // Its frontend stays until the reload.
            None => found.kept.extend(running.values().cloned()),
        }
    }
    found
}

/// What waits for a reload.
#[derive(Debug, Default)]
struct Wait<'a> {
    /// The running backends. None: nothing waits.
    backends: Option<BTreeSet<&'a Word>>,
    /// The hosts with an action that waits, by entry.
    hosts: BTreeMap<&'a str, BTreeSet<&'a str>>,
    /// The new texts of frontends that change, by entry.
    frontends: BTreeMap<&'a str, Vec<&'a str>>,
}

impl<'a> Wait<'a> {
    fn new(observed: &'a Observed, wanted: &'a Wanted) -> Self {
        let backends = observed.sections.keys().filter_map(|section| match section {
            Section::Backend(name) => Some(name),
            _ => None,
        });
        let mut wait = Self { backends: Some(backends.collect()), ..Self::default() };
        for (section, body) in &wanted.sections {
            if let Section::Frontend(name) = section
                && let Some((_, entry)) = name.as_str().split_once(':')
                && observed.sections.get(section) != Some(body)
            {
                wait.frontends.entry(entry).or_default().push(&body.text);
            }
        }
        for (map, entries) in &wanted.maps {
            let ((entry, Says::Action), Some(running)) = (meaning(map), observed.maps.get(map))
            else {
                continue;
            };
            let waiting = entries
                .iter()
                .filter(|(key, value)| running.get(*key) != Some(*value) && !wait.can_act(value));
            let hosts: Vec<_> = waiting.map(|(key, _)| host(key)).collect();
            wait.hosts.entry(entry).or_default().extend(hosts);
        }
        wait
    }

    /// Whether the running HAProxy can carry out an action.
    fn can_act(&self, value: &Word) -> bool {
        let Some(backends) = &self.backends else { return true };
        match value.as_str().strip_prefix('=') {
            // Every frontend has these two.
            Some(status) => matches!(status, "404" | "503"),
            None => backends.contains(value),
        }
    }

    /// Whether an entry may be sent now.
    fn leads(&self, entry: &str, says: Says, key: &Word, value: &Word) -> bool {
        match says {
            Says::Action => self.can_act(value),
            // Until the host can be served, another site answers for it.
            Says::Owner => !self.hosts.get(entry).is_some_and(|it| it.contains(host(key))),
            // The redirect may lead to a port that is not open yet.
            Says::Secure => !self.frontends.contains_key(entry),
            Says::Certificate => true,
        }
    }

    /// Whether the new answer for a host waits, so that the present one must stay.
    fn replaces(&self, entry: &str, key: &Word) -> bool {
        let gone = host(key);
        let waits = self.hosts.get(entry).into_iter().flatten();
        waits.copied().any(|it| covers(it, gone) || covers(gone, it))
            || self.frontends.get(entry).into_iter().flatten().any(|text| text.contains(gone))
    }
}

/// The host in a key.
fn host(key: &Word) -> &str {
    key.as_str().split('/').next().unwrap_or_default()
}

/// Whether requests for a host can meet the rules of a site.
fn covers(site: &str, host: &str) -> bool {
    let parent = || host.split_once('.').map(|(_, parent)| parent);
    site == host
        || site == "*"
        || site.starts_with('~')
        || site.strip_prefix("*.").is_some_and(|domain| parent() == Some(domain))
}

fn diff_map(
    map: &str,
    running: &BTreeMap<Word, Word>,
    wanted: &BTreeMap<Word, Word>,
    wait: &Wait<'_>,
    found: &mut Maps,
) {
    let (entry, says) = meaning(map);
    let (mut added, mut others) = (Vec::new(), Vec::new());
    let mut all = true;
    for (key, value) in wanted {
        let now = running.get(key);
        if now == Some(value) {
            continue;
        }
        if !wait.leads(entry, says, key, value) {
            all = false;
            found.kept.extend(now.cloned());
            continue;
        }
        match now {
            None => added.push((key.clone(), value.clone())),
            Some(_) => others.push(Command::SetEntry {
                map: map.to_owned(),
                key: key.clone(),
                value: value.clone(),
            }),
        }
    }
    for (key, value) in running.iter().filter(|(key, _)| !wanted.contains_key(*key)) {
        if wait.replaces(entry, key) {
            all = false;
            found.kept.insert(value.clone());
        } else {
            others.push(Command::RemoveEntry { map: map.to_owned(), key: key.clone() });
        }
    }
    if all && added.len() + others.len() > MANY {
        let entries = wanted.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        found.commands.push(Command::Replace { map: map.to_owned(), entries });
        return;
    }
    if !added.is_empty() {
        found.commands.push(Command::AddEntries { map: map.to_owned(), entries: added });
    }
    found.commands.append(&mut others);
}
