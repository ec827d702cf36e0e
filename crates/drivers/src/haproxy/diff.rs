//! What is different between what runs and what is wanted, as commands; and whether only a reload can bring
//! the rest. A pure function. Commands are in the order in which traffic never meets half of something:
//! what is new first, what leads to it then, what is gone last.

use super::command::{Command, Pem};
use super::text::Word;
use super::wanted::{Body, Section, Servers, Wanted, certificate_file};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// A server as it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Running {
    /// Its weight.
    pub weight: u16,
    /// Whether it is in maintenance.
    pub retired: bool,
}

/// A line of a certificate list as it runs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Line {
    /// The certificate's file.
    pub file: String,
    /// Its number.
    pub number: u32,
    /// The names.
    pub hosts: Vec<String>,
}

/// What HAProxy has now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// Sections, as they were when it was loaded.
    pub sections: BTreeMap<Section, Body>,
    /// Lists of ranges, as they were then.
    pub ranges: BTreeMap<String, Vec<Word>>,
    /// Servers, by backend.
    pub servers: BTreeMap<Word, BTreeMap<SocketAddr, Running>>,
    /// Entries of maps, by map.
    pub maps: BTreeMap<String, BTreeMap<Word, Word>>,
    /// Files of certificates.
    pub certificates: BTreeSet<String>,
    /// Lines of certificate lists, by list.
    pub crt_lists: BTreeMap<String, Vec<Line>>,
}

impl Observed {
    /// What HAProxy has when it has just loaded this.
    pub fn loaded(wanted: &Wanted) -> Self {
        let servers = wanted.servers.iter().map(|(backend, servers)| {
            let running = |weight: &u16| Running { weight: *weight, retired: false };
            let all = servers.weights.iter().map(|(at, weight)| (*at, running(weight)));
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
        }
    }
}

/// What is to be done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diff {
    /// What only a reload can bring; none: nothing.
    pub reload: Option<String>,
    /// What commands can bring, now.
    pub commands: Vec<Command>,
}

/// A map is replaced rather than changed where so many of its entries change.
const MANY: usize = 200;

/// What is to be done so that HAProxy has what is wanted.
pub fn diff(observed: &Observed, wanted: &Wanted) -> Diff {
    let reload = reload(observed, wanted);
    let mut coming = Vec::new();
    let mut going = Vec::new();
    for (backend, servers) in &wanted.servers {
        let section = Section::Backend(backend.clone());
        if let Some(kind) = kind_of_new(observed, wanted, &section) {
            coming.push(Command::AddBackend { backend: backend.clone(), kind: kind.clone() });
            diff_servers(backend, &BTreeMap::new(), servers, &mut coming, &mut going);
        } else if let Some(running) = observed.servers.get(backend) {
            // A backend that must be loaded anew is kept in step as far as its servers are the same kind.
            if observed.sections.get(&section) == wanted.sections.get(&section) {
                diff_servers(backend, running, servers, &mut coming, &mut going);
            }
        }
    }
    // What nothing leads to any more stays until the next reload, without servers.
    for (backend, running) in &observed.servers {
        if !wanted.servers.contains_key(backend) {
            diff_servers(backend, running, &Servers::default(), &mut coming, &mut going);
        }
    }
    let mut commands = certificates(observed, wanted);
    commands.append(&mut coming);
    for (map, entries) in &wanted.maps {
        if let Some(running) = observed.maps.get(map) {
            diff_map(
                map,
                running,
                entries,
                |value| leads(observed, value, reload.is_some()),
                &mut commands,
            );
        }
    }
    commands.append(&mut going);
    if reload.is_none() {
        commands.append(&mut unshown(observed, wanted));
    }
    Diff { reload, commands }
}

/// The kind of a backend that is new and that HAProxy can be told of while it runs.
fn kind_of_new<'a>(observed: &Observed, wanted: &'a Wanted, section: &Section) -> Option<&'a Word> {
    let Body { from: Some(kind), text } = wanted.sections.get(section)? else { return None };
    let defaults = Section::Kind(kind.clone());
    let known = observed
        .sections
        .get(&defaults)
        .is_some_and(|runs| wanted.sections.get(&defaults) == Some(runs));
    (known && text.is_empty() && !observed.sections.contains_key(section)).then_some(kind)
}

/// Whether what stands in a map can be done by what runs.
fn leads(observed: &Observed, value: &Word, reloads: bool) -> bool {
    match value.as_str().strip_prefix('=') {
        // Those that every frontend has.
        Some("404" | "503") => true,
        Some(_) => !reloads,
        None => !reloads || observed.sections.contains_key(&Section::Backend(value.clone())),
    }
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
    // Backends that nothing leads to harm nobody, nor what only they need; what still listens does.
    let gone = |section: &&Section| {
        !matches!(section, Section::Peers | Section::Kind(_) | Section::Backend(_))
            && !wanted.sections.contains_key(section)
    };
    if let Some(section) = observed.sections.keys().find(gone) {
        return Some(format!("{} is gone", name(section)));
    }
    let ranges =
        wanted.ranges.iter().find(|(file, ranges)| observed.ranges.get(*file) != Some(ranges));
    if ranges.is_some() {
        return Some("source ranges change".to_owned());
    }
    if wanted.certificates.iter().any(|(hash, pem)| is_too_long(observed, hash, pem)) {
        return Some("a certificate is too long for a command".to_owned());
    }
    if wanted.maps.keys().any(|map| !observed.maps.contains_key(map)) {
        return Some("a map is new".to_owned());
    }
    None
}

/// Whether a certificate is new and cannot be told: HAProxy reads 16 KiB at once.
fn is_too_long(observed: &Observed, hash: &str, pem: &str) -> bool {
    pem.len() > 15_000 && !observed.certificates.contains(&certificate_file(hash))
}

/// The difference of one backend's servers.
pub fn diff_servers(
    backend: &Word,
    running: &BTreeMap<SocketAddr, Running>,
    wanted: &Servers,
    coming: &mut Vec<Command>,
    going: &mut Vec<Command>,
) {
    for (address, weight) in &wanted.weights {
        let (backend, address, weight) = (backend.clone(), *address, *weight);
        match running.get(&address) {
            None => {
                let options = wanted.options.clone();
                coming.push(Command::AddServer { backend, address, weight, options });
            }
            Some(now) => {
                if now.weight != weight {
                    coming.push(Command::Weigh { backend: backend.clone(), address, weight });
                }
                if now.retired {
                    coming.push(Command::Resume { backend, address });
                }
            }
        }
    }
    for (address, _) in running.iter().filter(|(_, now)| !now.retired) {
        if !wanted.weights.contains_key(address) {
            going.push(Command::Retire { backend: backend.clone(), address: *address });
        }
    }
}

fn diff_map(
    map: &str,
    running: &BTreeMap<Word, Word>,
    wanted: &BTreeMap<Word, Word>,
    leads: impl Fn(&Word) -> bool,
    commands: &mut Vec<Command>,
) {
    let (mut added, mut others) = (Vec::new(), Vec::new());
    let mut all = true;
    for (key, value) in wanted {
        let now = running.get(key);
        if now == Some(value) {
            continue;
        }
        if !leads(value) {
            all = false;
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
    let gone = running.keys().filter(|key| !wanted.contains_key(*key));
    others.extend(gone.map(|key| Command::RemoveEntry { map: map.to_owned(), key: key.clone() }));
    if all && added.len() + others.len() > MANY {
        let entries = wanted.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        commands.push(Command::Replace { map: map.to_owned(), entries });
        return;
    }
    if !added.is_empty() {
        commands.push(Command::AddEntries { map: map.to_owned(), entries: added });
    }
    commands.append(&mut others);
}

/// Certificates that come, and the names they are shown for.
fn certificates(observed: &Observed, wanted: &Wanted) -> Vec<Command> {
    let mut commands = Vec::new();
    let told = |hash: &str| {
        wanted.certificates.get(hash).is_some_and(|pem| !is_too_long(observed, hash, pem))
    };
    for (hash, pem) in wanted.certificates.iter().filter(|(hash, _)| told(hash)) {
        if !observed.certificates.contains(&certificate_file(hash)) {
            commands.push(Command::AddCertificate { hash: hash.clone(), pem: Pem(pem.clone()) });
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

/// Names that are no longer shown, and certificates that go with them.
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
    /// What HAProxy has once it has done this.
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
            Command::AddBackend { backend, kind } => {
                let body = Body { from: Some(kind.clone()), text: String::new() };
                self.sections.insert(Section::Backend(backend.clone()), body);
                self.servers.entry(backend.clone()).or_default();
            }
            Command::AddServer { backend, address, weight, .. } => {
                let running = Running { weight: *weight, retired: false };
                self.servers.entry(backend.clone()).or_default().insert(*address, running);
            }
            Command::Resume { backend, address } => {
                self.server(backend, address, |it| it.retired = false)
            }
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
            Command::Cut { .. } => {}
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
mod tests {
    use super::super::render::tests::settings;
    use super::super::render::{Settings, render};
    use super::super::version::Version;
    use super::*;
    use crate::desired::Desired;
    use crate::program::Excluded;
    use crate::samples::{everything, member, pool, prefix};
    use bowline_core::plan::{Host, Pool};
    use proptest::prelude::*;
    use std::path::Path;

    fn wanted(desired: &Desired) -> Wanted {
        wanted_by(desired, false)
    }

    /// What a HAProxy is to have that can be told of backends, or cannot.
    fn wanted_by(desired: &Desired, adds_backends: bool) -> Wanted {
        let version = if adds_backends { Version(3, 4) } else { Version(2, 6) };
        let settings = Settings { version, ..settings(Path::new("/run")) };
        render(desired, &Excluded::default(), &settings).expect("settings").wanted
    }

    const POOL: &str = "ingress/shop/web/web/http";

    #[test]
    fn what_runs_as_wanted_needs_nothing() {
        let wanted = wanted(&everything());
        assert_eq!(diff(&Observed::loaded(&wanted), &wanted), Diff::default());
    }

    #[test]
    fn members_come_before_members_go_and_nothing_is_reloaded() {
        let mut desired = everything();
        let observed = Observed::loaded(&wanted(&desired));
        desired.put_pool(pool(POOL), &[member(2), member(9)]);
        let found = diff(&observed, &wanted(&desired));
        let backend = Word::pool(POOL).expect("a name");
        let options = wanted(&desired).servers[&backend].options.clone();
        let expected = vec![
            Command::AddServer {
                backend: backend.clone(),
                address: member(9).address,
                weight: 1,
                options,
            },
            Command::Retire { backend, address: member(1).address },
        ];
        assert_eq!(found, Diff { reload: None, commands: expected });
    }

    #[test]
    fn a_new_host_on_a_known_pool_is_an_entry_and_on_a_new_pool_a_reload() {
        let mut desired = everything();
        let observed = Observed::loaded(&wanted(&desired));
        desired.put_site(Host::Exact("new.example".into()), None, "new", vec![prefix("/", POOL)]);
        let found = diff(&observed, &wanted(&desired));
        assert_eq!((found.reload, found.commands.len()), (None, 2));
        desired.put_site(
            Host::Exact("more.example".into()),
            None,
            "more",
            vec![prefix("/", "ingress/n")],
        );
        desired.put_pool(pool("ingress/n"), &[member(1)]);
        let found = diff(&observed, &wanted(&desired));
        assert_eq!(found.reload.as_deref(), Some("backend ingress:n is new"));
        let text = format!("{:?}", found.commands);
        assert!(text.contains("new.example/") && !text.contains("more.example/"), "{text}");
    }

    #[test]
    fn a_pool_like_others_is_told_where_that_can_be_and_one_of_its_own_is_a_reload() {
        let mut desired = everything();
        desired.put_site(Host::Exact("one.example".into()), None, "n", vec![prefix("/", "in/one")]);
        desired.put_pool(pool("in/one"), &[member(1)]);
        let observed = Observed::loaded(&wanted_by(&desired, true));
        desired.put_site(Host::Exact("two.example".into()), None, "n", vec![prefix("/", "in/two")]);
        desired.put_pool(pool("in/two"), &[member(2)]);
        let wanted = wanted_by(&desired, true);
        let backend = Word::pool("in/two").expect("a name");
        let kind = wanted.sections[&Section::Backend(backend.clone())].from.clone();
        let kind = kind.expect("it is like the other");
        let found = diff(&observed, &wanted);
        let (address, options) = (member(2).address, wanted.servers[&backend].options.clone());
        let expected = [
            Command::AddBackend { backend: backend.clone(), kind },
            Command::AddServer { backend, address, weight: 1, options },
        ];
        assert_eq!((found.reload, found.commands.get(..2)), (None, Some(&expected[..])));

        let alone =
            Pool { source_ranges: vec!["10.0.0.0/8".parse().expect("a range")], ..pool("in/two") };
        desired.put_pool(alone, &[member(2)]);
        let found = diff(&observed, &wanted_by(&desired, true));
        assert_eq!(found.reload.as_deref(), Some("backend in:two is new"));
    }

    #[test]
    fn a_pool_that_nothing_leads_to_is_emptied_and_not_reloaded_for() {
        let mut desired = everything();
        let observed = Observed::loaded(&wanted(&desired));
        desired.sites.retain(|key, _| key.host != Host::Exact("secure.example".into()));
        let found = diff(&observed, &wanted(&desired));
        assert_eq!(found.reload, None);
        let text = format!("{:?}", found.commands);
        assert!(text.contains("Retire") && text.contains("Hide"), "{text}");
    }

    #[test]
    fn many_changes_of_a_map_replace_it_at_once() {
        let mut desired = everything();
        let observed = Observed::loaded(&wanted(&desired));
        for i in 0..300 {
            let host = Host::Exact(format!("h{i}.example").into());
            desired.put_site(host, None, "many", vec![prefix("/", POOL)]);
        }
        let found = diff(&observed, &wanted(&desired));
        let replaced =
            found.commands.iter().filter(|it| matches!(it, Command::Replace { .. })).count();
        assert_eq!((found.reload, replaced, found.commands.len()), (None, 2, 2));
    }

    proptest! {
        /// Doing what the difference says leaves no difference, whatever ran before.
        #[test]
        fn what_was_told_is_what_was_wanted(
            before in prop::collection::btree_map(0u8..12, 0u8..6, 0..12),
            after in prop::collection::btree_map(0u8..12, 0u8..6, 0..12),
            retired in prop::collection::vec(0u8..12, 0..4),
            adds_backends: bool,
        ) {
            let plan = |hosts: &BTreeMap<u8, u8>| {
                let mut desired = everything();
                for (host, last) in hosts {
                    let host = Host::Exact(format!("h{host}.example").into());
                    // Where a pool need not be loaded, hosts bring theirs along.
                    let to = if adds_backends { format!("in/{last}") } else { POOL.to_owned() };
                    desired.put_site(host, None, "h", vec![prefix(&format!("/{last}"), &to)]);
                    if adds_backends {
                        desired.put_pool(pool(&to), &[member(*last)]);
                    }
                }
                let members: Vec<_> = hosts.keys().map(|last| member(*last)).collect();
                desired.put_pool(pool(POOL), &members);
                wanted_by(&desired, adds_backends)
            };
            let (before, after) = (plan(&before), plan(&after));
            let mut observed = Observed::loaded(&before);
            for last in retired {
                let backend = Word::pool(POOL).expect("a name");
                observed.done(&Command::Retire { backend, address: member(last).address });
            }
            let found = diff(&observed, &after);
            prop_assert_eq!(&found.reload, &None);
            found.commands.iter().for_each(|command| observed.done(command));
            prop_assert_eq!(diff(&observed, &after), Diff::default());
        }
    }
}
