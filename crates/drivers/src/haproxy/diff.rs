//! The difference between what runs and what is wanted, as commands, and whether a reload must bring the rest. Pure;
//! the HAProxy driver calls it. Commands are ordered so that traffic never meets a partial change: first new objects,
//! then what leads to them, last what is removed.

mod maps;

use super::command::{CHECK, Command, Secret};
use super::text::Word;
use super::wanted::{Body, Section, Servers, Wanted, certificate_file};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// Whether a server has a health check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// It has none, and only a reload can add one.
    Absent,
    /// It has one, turned off.
    Off,
    /// It has one, turned on.
    On,
}

/// The state of a running server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Running {
    /// Its weight.
    pub weight: u16,
    /// Whether it is in maintenance.
    pub retired: bool,
    /// Whether it drains. We never ask for that.
    pub drains: bool,
    /// Whether it has another address than its name says.
    pub elsewhere: bool,
    /// Its health check.
    pub check: Check,
    /// Whether HAProxy considers it down.
    pub down: bool,
}

impl Running {
    /// A server that takes traffic and is checked.
    pub fn of(weight: u16) -> Self {
        let check = Check::On;
        Self { weight, retired: false, drains: false, elsewhere: false, check, down: false }
    }

    /// A server that takes traffic.
    fn new(weight: u16, checked: bool) -> Self {
        Self { check: if checked { Check::On } else { Check::Absent }, ..Self::of(weight) }
    }
}

/// Why a frontend accepts no connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// It is paused, and a command can resume it.
    Paused,
    /// It is stopped, and only a reload brings it back.
    Stopped,
}

/// A line of a certificate list in the running HAProxy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Line {
    /// The certificate's file.
    pub file: String,
    /// Its number.
    pub number: u32,
    /// The host names.
    pub hosts: Vec<String>,
}

/// What HAProxy has now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// Sections, as they were at the load.
    pub sections: BTreeMap<Section, Body>,
    /// Lists of address ranges, as they were at the load.
    pub ranges: BTreeMap<String, Vec<Word>>,
    /// Servers, by backend.
    pub servers: BTreeMap<Word, BTreeMap<SocketAddr, Running>>,
    /// Entries of maps, by map.
    pub maps: BTreeMap<String, BTreeMap<Word, Word>>,
    /// Files of certificates.
    pub certificates: BTreeSet<String>,
    /// Lines of certificate lists, by list.
    pub crt_lists: BTreeMap<String, Vec<Line>>,
    /// Frontends that accept no connections.
    pub closed: BTreeMap<Word, Closed>,
}

impl Observed {
    /// The state of an HAProxy that has just loaded this configuration.
    pub fn loaded(wanted: &Wanted) -> Self {
        let servers = wanted.servers.iter().map(|(backend, servers)| {
            let all = servers
                .weights
                .iter()
                .map(|(at, weight)| (*at, Running::new(*weight, !servers.unchecked.contains(at))));
            (backend.clone(), all.collect())
        });
        let lists = wanted.crt_lists.iter().map(|(list, shown)| {
            let lines = shown.iter().zip(1..).map(|((hash, host), number)| Line {
                file: certificate_file(hash),
                number,
                hosts: vec![host.as_str().to_owned()],
            });
            (list.clone(), lines.collect())
        });
        Self {
            sections: wanted.sections.clone(),
            ranges: wanted.ranges.clone(),
            servers: servers.collect(),
            maps: wanted.maps.clone(),
            certificates: wanted.certificates.keys().map(|hash| certificate_file(hash)).collect(),
            crt_lists: lists.collect(),
            closed: BTreeMap::new(),
        }
    }
}

/// The difference.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diff {
    /// Why a reload is needed. None: it is not.
    pub reload: Option<String>,
    /// The commands that can be sent now.
    pub commands: Vec<Command>,
}

/// What to do so that HAProxy has what is wanted.
pub fn diff(observed: &Observed, wanted: &Wanted) -> Diff {
    let reload = reload(observed, wanted);
    let mut coming = Vec::new();
    let mut going = Vec::new();
    for (backend, servers) in &wanted.servers {
        let section = Section::Backend(backend.clone());
        if let (Some(kind), Some(body)) =
            (kind_of_new(observed, wanted, &section), wanted.sections.get(&section))
        {
            coming.push(Command::AddBackend {
                backend: backend.clone(),
                kind: kind.clone(),
                options: body.options.clone(),
                unchecked: body.unchecked.clone(),
            });
            diff_servers(backend, body, &BTreeMap::new(), servers, &mut coming, &mut going);
        } else if let (Some(running), Some(body)) =
            (observed.servers.get(backend), observed.sections.get(&section))
        {
            // Servers of a section that must be reloaded get the running section's options until then.
            diff_servers(backend, body, running, servers, &mut coming, &mut going);
        }
    }
    let mut maps = maps::diff(observed, wanted, reload.is_some());
    // A backend that nothing leads to stays until the next reload, without servers.
    let gone = observed.servers.iter().filter(|(name, _)| !wanted.servers.contains_key(*name));
    for (backend, running) in gone {
        // Few backends are unwanted, so the frontends are searched only for these.
        let leads =
            maps.kept.contains(backend) || reload.is_some() && has_frontend(observed, backend);
        if !leads {
            let (body, none) = (Body::default(), Servers::default());
            diff_servers(backend, &body, running, &none, &mut coming, &mut going);
        }
    }
    let mut commands = certificates(observed, wanted);
    commands.append(&mut coming);
    let paused = observed.closed.iter().filter(|(_, how)| **how == Closed::Paused);
    commands.extend(paused.map(|(name, _)| Command::Open { frontend: name.clone() }));
    commands.append(&mut maps.commands);
    commands.append(&mut going);
    match reload {
        None => commands.append(&mut unshown(observed, wanted)),
        // HAProxy shows the oldest of several certificates for a name, so the certificate from before a renewal must
        // go.
        Some(_) => commands.append(&mut replaced(observed, wanted)),
    }
    Diff { reload, commands }
}

/// Whether a running frontend names a backend. A longer name that contains it counts too, which only keeps a backend
/// until the next reload.
fn has_frontend(observed: &Observed, backend: &Word) -> bool {
    observed.sections.iter().any(|(section, body)| {
        matches!(section, Section::Frontend(_)) && body.text.contains(backend.as_str())
    })
}

/// The kind of a new backend that a running HAProxy can add.
fn kind_of_new<'a>(observed: &Observed, wanted: &'a Wanted, section: &Section) -> Option<&'a Word> {
    let Body { from: Some(kind), text, .. } = wanted.sections.get(section)? else { return None };
    let defaults = Section::Kind(kind.clone());
    let known = observed
        .sections
        .get(&defaults)
        .is_some_and(|runs| wanted.sections.get(&defaults) == Some(runs));
    (known && text.is_empty() && !observed.sections.contains_key(section)).then_some(kind)
}

fn reload(observed: &Observed, wanted: &Wanted) -> Option<String> {
    let name = |section: &Section| match section {
        Section::Frontend(name) => format!("frontend {name}"),
        Section::Kind(name) => format!("kind {name}"),
        Section::Backend(name) => format!("backend {name}"),
        other => format!("{other:?}").to_lowercase(),
    };
    for (section, body) in &wanted.sections {
        match observed.sections.get(section) {
            None if kind_of_new(observed, wanted, section).is_some() => {}
            None => return Some(format!("{} is new", name(section))),
            Some(running) if running != body => return Some(format!("{} changes", name(section))),
            Some(_) => {}
        }
    }
    // A backend that no frontend uses may stay until the next reload, and so may the sections that only backends need.
    // A frontend that still listens may not.
    let gone = |section: &&Section| {
        !matches!(section, Section::Peers | Section::Kind(_) | Section::Backend(_))
            && !wanted.sections.contains_key(section)
    };
    if let Some(section) = observed.sections.keys().find(gone) {
        return Some(format!("{} is gone", name(section)));
    }
    let stopped = |name: &Word| {
        observed.closed.get(name) == Some(&Closed::Stopped)
            && wanted.sections.contains_key(&Section::Frontend(name.clone()))
    };
    if let Some(name) = observed.closed.keys().find(|name| stopped(name)) {
        return Some(format!("frontend {name} was stopped"));
    }
    let ranges =
        wanted.ranges.iter().find(|(file, ranges)| observed.ranges.get(*file) != Some(ranges));
    if ranges.is_some() {
        return Some("source ranges change".to_owned());
    }
    if wanted.certificates.iter().any(|(hash, pem)| is_too_long(observed, hash, pem)) {
        return Some("a certificate is too long for a command".to_owned());
    }
    let lacks_check = |(name, servers): &(&Word, &Servers)| {
        let running = observed.servers.get(*name);
        let absent = |(at, it): (&SocketAddr, &Running)| {
            let wanted = servers.weights.contains_key(at) && !servers.unchecked.contains(at);
            wanted && it.check == Check::Absent
        };
        running.is_some_and(|running| running.iter().any(absent))
    };
    if let Some((name, _)) = wanted.servers.iter().find(lacks_check) {
        return Some(format!("there is room for checks of backend {name} again"));
    }
    if wanted.maps.keys().any(|map| !observed.maps.contains_key(map)) {
        return Some("a map is new".to_owned());
    }
    None
}

/// Whether a certificate is new and too long for a command: HAProxy reads 16 KiB at once.
fn is_too_long(observed: &Observed, hash: &str, pem: &str) -> bool {
    pem.len() > 15_000 && !observed.certificates.contains(&certificate_file(hash))
}

/// The difference of one backend's servers. New servers get the options of `body`.
pub fn diff_servers(
    backend: &Word,
    body: &Body,
    running: &BTreeMap<SocketAddr, Running>,
    wanted: &Servers,
    coming: &mut Vec<Command>,
    going: &mut Vec<Command>,
) {
    let before = coming.len();
    for (address, weight) in &wanted.weights {
        let (backend, address, weight) = (backend.clone(), *address, *weight);
        let checked = !wanted.unchecked.contains(&address);
        match running.get(&address) {
            None => {
                let options = body.said(checked).clone();
                coming.push(Command::AddServer { backend, address, weight, options });
            }
            Some(now) => {
                if now.weight != weight {
                    coming.push(Command::Weigh { backend: backend.clone(), address, weight });
                }
                // A server that was down when its check was turned off stays down without this.
                let stuck = now.check == Check::Off && now.down && !checked;
                if stuck || matches!((now.check, checked), (Check::Off, true) | (Check::On, false))
                {
                    coming.push(Command::Check { backend: backend.clone(), address, on: checked });
                }
                if now.elsewhere {
                    coming.push(Command::Place { backend: backend.clone(), address });
                }
                if now.retired || now.drains {
                    coming.push(Command::Resume { backend, address });
                }
            }
        }
    }
    let is_new = |it: &Command| matches!(it, Command::AddServer { .. });
    if let Some(key) = body.cookie_key()
        && coming.iter().skip(before).any(is_new)
    {
        let key = Secret(key.into());
        coming.push(Command::KeyCookies { backend: backend.clone(), key });
    }
    for (address, _) in running.iter().filter(|(_, now)| !now.retired) {
        if !wanted.weights.contains_key(address) {
            going.push(Command::Retire { backend: backend.clone(), address: *address });
        }
    }
}

/// Adds certificates, and the host names that they are shown for.
fn certificates(observed: &Observed, wanted: &Wanted) -> Vec<Command> {
    let mut commands = Vec::new();
    let told = |hash: &str| {
        wanted.certificates.get(hash).is_some_and(|pem| !is_too_long(observed, hash, pem))
    };
    for (hash, pem) in wanted.certificates.iter().filter(|(hash, _)| told(hash)) {
        if !observed.certificates.contains(&certificate_file(hash)) {
            commands.push(Command::AddCertificate { hash: hash.clone(), pem: Secret(pem.clone()) });
        }
    }
    for (list, shown) in &wanted.crt_lists {
        let Some(lines) = observed.crt_lists.get(list) else { continue };
        let running: BTreeSet<(&str, &str)> = lines.iter().flat_map(names).collect();
        for (hash, host) in shown.iter().filter(|(hash, _)| told(hash)) {
            if !running.contains(&(&*certificate_file(hash), host.as_str())) {
                commands.push(Command::Show {
                    list: list.clone(),
                    hash: hash.clone(),
                    host: host.clone(),
                });
            }
        }
    }
    commands
}

fn names(line: &Line) -> impl Iterator<Item = (&str, &str)> {
    line.hosts.iter().map(|host| (&*line.file, &**host))
}

/// Hides a line of a certificate list if each of its names is shown with another certificate that HAProxy has or gets.
fn replaced(observed: &Observed, wanted: &Wanted) -> Vec<Command> {
    let mut commands = Vec::new();
    let has = |hash: &str| {
        let pem = wanted.certificates.get(hash);
        pem.is_some_and(|pem| !is_too_long(observed, hash, pem))
    };
    for (list, lines) in &observed.crt_lists {
        let Some(shown) = wanted.crt_lists.get(list) else { continue };
        let now: BTreeSet<(&str, String)> = shown
            .iter()
            .filter(|(hash, _)| has(hash))
            .map(|(hash, host)| (host.as_str(), certificate_file(hash)))
            .collect();
        let is_replaced = |(file, host): (&str, &str)| {
            let shown = now.range((host, String::new())..).next();
            shown.is_some_and(|(of, _)| *of == host) && !now.contains(&(host, file.to_owned()))
        };
        let lines = lines.iter().filter(|line| names(line).all(is_replaced));
        commands.extend(lines.map(|line| Command::Hide {
            list: list.clone(),
            file: line.file.clone(),
            line: line.number,
        }));
    }
    commands
}

/// Hides names that are no longer shown, and removes the certificates that nothing shows.
fn unshown(observed: &Observed, wanted: &Wanted) -> Vec<Command> {
    let mut commands = Vec::new();
    let mut used: BTreeSet<String> =
        wanted.certificates.keys().map(|hash| certificate_file(hash)).collect();
    for (list, lines) in &observed.crt_lists {
        let shown: BTreeSet<(String, &str)> =
            wanted.crt_lists.get(list).map_or_else(BTreeSet::new, |shown| {
                shown.iter().map(|(hash, host)| (certificate_file(hash), host.as_str())).collect()
            });
        for line in lines {
            let wanted = |(file, host): (&str, &str)| shown.contains(&(file.to_owned(), host));
            if names(line).any(wanted) {
                used.insert(line.file.clone());
            } else {
                commands.push(Command::Hide {
                    list: list.clone(),
                    file: line.file.clone(),
                    line: line.number,
                });
            }
        }
    }
    let gone = observed.certificates.iter().filter(|file| !used.contains(*file));
    commands.extend(gone.map(|file| Command::RemoveCertificate { file: file.clone() }));
    commands
}

impl Observed {
    /// Notes that HAProxy has carried out a command.
    pub fn done(&mut self, command: &Command) {
        match command {
            Command::AddCertificate { hash, .. } => {
                self.certificates.insert(certificate_file(hash));
            }
            Command::Show { list, hash, host } => {
                let lines = self.crt_lists.entry(list.clone()).or_default();
                let number = lines.iter().map(|line| line.number).max().unwrap_or(0) + 1;
                let hosts = vec![host.as_str().to_owned()];
                lines.push(Line { file: certificate_file(hash), number, hosts });
            }
            Command::AddBackend { backend, kind, options, unchecked } => {
                let body = Body::of_a_kind(kind.clone(), options.clone(), unchecked.clone());
                self.sections.insert(Section::Backend(backend.clone()), body);
                self.servers.entry(backend.clone()).or_default();
            }
            Command::AddServer { backend, address, weight, options } => {
                let servers = self.servers.entry(backend.clone()).or_default();
                servers.insert(*address, Running::new(*weight, options.contains(CHECK)));
            }
            Command::Check { backend, address, on } => {
                let check = if *on { Check::On } else { Check::Off };
                self.server(backend, address, |it| (it.check, it.down) = (check, it.down && *on));
            }
            Command::Resume { backend, address } => {
                self.server(backend, address, |it| (it.retired, it.drains) = (false, false))
            }
            Command::Place { backend, address } => {
                self.server(backend, address, |it| it.elsewhere = false)
            }
            Command::Open { frontend } => drop(self.closed.remove(frontend)),
            Command::Retire { backend, address } => {
                self.server(backend, address, |it| it.retired = true)
            }
            Command::Weigh { backend, address, weight } => {
                self.server(backend, address, |it| it.weight = *weight);
            }
            Command::RemoveServer { backend, address } => {
                if let Some(servers) = self.servers.get_mut(backend) {
                    servers.remove(address);
                }
            }
            Command::Cut { .. } | Command::KeyCookies { .. } => {}
            Command::AddEntries { map, entries } => {
                self.maps.entry(map.clone()).or_default().extend(entries.iter().cloned());
            }
            Command::Replace { map, entries } => {
                self.maps.insert(map.clone(), entries.iter().cloned().collect());
            }
            Command::SetEntry { map, key, value } => {
                self.maps.entry(map.clone()).or_default().insert(key.clone(), value.clone());
            }
            Command::RemoveEntry { map, key } => {
                if let Some(entries) = self.maps.get_mut(map) {
                    entries.remove(key);
                }
            }
            Command::Hide { list, file, line } => {
                if let Some(lines) = self.crt_lists.get_mut(list) {
                    lines.retain(|it| it.file != *file || it.number != *line);
                }
            }
            Command::RemoveCertificate { file } => {
                self.certificates.remove(file);
            }
        }
    }

    fn server(&mut self, backend: &Word, address: &SocketAddr, change: impl FnOnce(&mut Running)) {
        if let Some(running) = self.servers.get_mut(backend).and_then(|it| it.get_mut(address)) {
            change(running);
        }
    }
}

#[cfg(test)]
mod tests;
