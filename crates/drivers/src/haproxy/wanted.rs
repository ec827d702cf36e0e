//! The wanted configuration of HAProxy: a value that is rendered from the plan, compared with what runs, and written to
//! files. Its structure follows what HAProxy can change: sections need a reload; servers, map entries and certificates
//! do not. It decides and sends nothing; the driver keeps one.

use super::failing::RING;
use super::text::Word;
use bowline_core::update::{Member, MemberState};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

/// The name of the main file.
pub const CONFIG: &str = "haproxy.cfg";

/// A section of the configuration. Their order is the order in the file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Section {
    /// `global`.
    Global,
    /// `ring`: the lines that say which servers go down and come up.
    Ring,
    /// `defaults`.
    Defaults,
    /// `peers`: an old process tells the new one which client belongs to which member, where members are tied to
    /// clients.
    Peers,
    /// `frontend`.
    Frontend(Word),
    /// `defaults` with the settings that all backends of one kind share. A running HAProxy can add another backend of
    /// that kind.
    Kind(Word),
    /// `backend`.
    Backend(Word),
}

impl Section {
    fn head(&self) -> String {
        match self {
            Self::Global => "global".to_owned(),
            Self::Ring => format!("ring {RING}"),
            Self::Defaults => format!("defaults {COMMON}"),
            Self::Peers => "peers bowline".to_owned(),
            Self::Frontend(name) => format!("frontend {name}"),
            Self::Kind(name) => format!("defaults {name}"),
            Self::Backend(name) => format!("backend {name}"),
        }
    }
}

/// The name of the `defaults` section with the settings that all sections share.
pub const COMMON: &str = "common";

/// The content of a section.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Body {
    /// The `defaults` section that it starts from. None: the last one above it.
    pub from: Option<Word>,
    /// Its lines.
    pub text: String,
    /// The options of its servers with a health check, with a leading space. HAProxy has no command that changes them.
    pub options: Arc<str>,
    /// The options of its servers without a health check.
    pub unchecked: Arc<str>,
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Self { text, ..Self::default() }
    }
}

impl Body {
    /// A backend of a kind, with these options for its servers.
    pub fn of_a_kind(kind: Word, options: Arc<str>, unchecked: Arc<str>) -> Self {
        Self { from: Some(kind), text: String::new(), options, unchecked }
    }

    /// The options of a server.
    pub fn said(&self, checked: bool) -> &Arc<str> {
        if checked { &self.options } else { &self.unchecked }
    }

    /// The key that gives its servers their cookies, if they have any.
    pub fn cookie_key(&self) -> Option<&str> {
        self.text.lines().find_map(|line| line.trim_start().strip_prefix(COOKIE_KEY))
    }
}

/// The keyword before the cookie key.
pub const COOKIE_KEY: &str = "dynamic-cookie-key ";

/// The servers of a backend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Servers {
    /// Their weights, by address.
    pub weights: BTreeMap<SocketAddr, u16>,
    /// The servers without a health check, because HAProxy may open too few files.
    pub unchecked: BTreeSet<SocketAddr>,
}

/// The largest weight of a server.
const HEAVIEST: u32 = 256;

impl Servers {
    /// Makes servers of members. A draining member has weight 0: it gets no new clients, except those that persistence
    /// ties to it.
    pub fn new(members: &[Member]) -> Self {
        let most = members.iter().map(|member| u32::from(member.weight)).max().unwrap_or(1);
        let weight = |member: &Member| match member.state {
            MemberState::Draining => 0,
            MemberState::Ready if member.weight == 0 => 0,
            MemberState::Ready if most <= HEAVIEST => member.weight,
            MemberState::Ready => (u32::from(member.weight) * HEAVIEST / most).max(1) as u16,
        };
        let weights = members.iter().map(|member| (member.address, weight(member))).collect();
        Self { weights, unchecked: BTreeSet::new() }
    }

    /// The servers after a membership change. Known servers keep their check; in a pool that is short of checks a new
    /// server gets none.
    pub fn after(&self, members: &[Member]) -> Self {
        let new = Self::new(members);
        let unchecked = |at: &&SocketAddr| match self.weights.contains_key(at) {
            true => self.unchecked.contains(at),
            false => !self.unchecked.is_empty(),
        };
        let unchecked = new.weights.keys().filter(unchecked).copied().collect();
        Self { unchecked, ..new }
    }

    /// How many have a health check.
    pub fn checks(&self) -> usize {
        self.weights.len() - self.unchecked.len()
    }
}

/// Which certificate is shown for which host name.
pub type Shown = BTreeSet<(Arc<str>, Word)>;

/// The complete configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Sections without their servers.
    pub sections: BTreeMap<Section, Body>,
    /// Servers, by backend.
    pub servers: BTreeMap<Word, Servers>,
    /// Maps, by file name.
    pub maps: BTreeMap<String, BTreeMap<Word, Word>>,
    /// Lists of address ranges, by file name.
    pub ranges: BTreeMap<String, Vec<Word>>,
    /// Certificates with their keys, by hash.
    pub certificates: BTreeMap<Arc<str>, Arc<str>>,
    /// Certificate lists, by file name.
    pub crt_lists: BTreeMap<String, Shown>,
    /// How many servers have a health check: each check needs a file descriptor.
    pub checks: usize,
    /// How many servers may have one.
    pub most_checks: usize,
    /// How many servers have none, because HAProxy may open too few files.
    pub unchecked: usize,
}

/// The file of a certificate.
pub fn certificate_file(hash: &str) -> String {
    format!("certs/{hash}.pem")
}

impl Wanted {
    /// Replaces the servers of a backend, and keeps the totals correct.
    pub fn replace_servers(&mut self, backend: &Word, servers: Servers) {
        let Some(now) = self.servers.get_mut(backend) else { return };
        self.checks = self.checks + servers.checks() - now.checks();
        self.unchecked = self.unchecked + servers.unchecked.len() - now.unchecked.len();
        *now = servers;
    }

    /// A hash of the sections and address ranges, which HAProxy reads only at a load. It is in HAProxy's configuration,
    /// and HAProxy reports it.
    pub fn mark(&self) -> String {
        let mut digest = Sha256::new();
        for (section, body) in &self.sections {
            let from = body.from.as_ref().map_or("", Word::as_str);
            // The options of unchecked servers follow from those of checked servers.
            for part in [section.head().as_str(), from, &body.text, &body.options] {
                digest.update(part);
                digest.update([0]);
            }
        }
        for (file, ranges) in &self.ranges {
            digest.update(file);
            for range in ranges {
                digest.update([0]);
                digest.update(range.as_str());
            }
            digest.update([0]);
        }
        let bytes = digest.finalize();
        bytes.iter().take(16).fold("bowline-".to_owned(), |mark, byte| format!("{mark}{byte:02x}"))
    }

    /// The main file.
    pub fn config(&self) -> String {
        let mut file = String::from(
            "# Written by Bowline. What is changed here by hand is lost at the next change.\n",
        );
        for (section, body) in &self.sections {
            let from = body.from.as_ref().map_or_else(String::new, |from| format!(" from {from}"));
            // Writing into a String cannot fail.
            let _ = write!(file, "\n{}{from}\n", section.head());
            if *section == Section::Global {
                let _ = writeln!(file, "    description {}", self.mark());
            }
            file.push_str(&body.text);
            let Section::Backend(name) = section else { continue };
            let Some(servers) = self.servers.get(name) else { continue };
            for (address, weight) in &servers.weights {
                let (name, at) = (Word::named(*address), Word::socket(*address));
                let said = body.said(!servers.unchecked.contains(address));
                let _ = writeln!(file, "    server {name} {at} weight {weight}{said}");
            }
        }
        file
    }

    /// All files, by name.
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let mut files = BTreeMap::from([(CONFIG.to_owned(), self.config().into_bytes())]);
        for (name, entries) in &self.maps {
            let text: String =
                entries.iter().map(|(key, value)| format!("{key} {value}\n")).collect();
            files.insert(name.clone(), text.into_bytes());
        }
        for (name, ranges) in &self.ranges {
            let text: String = ranges.iter().map(|range| format!("{range}\n")).collect();
            files.insert(name.clone(), text.into_bytes());
        }
        for (hash, pem) in &self.certificates {
            files.insert(certificate_file(hash), pem.as_bytes().to_vec());
        }
        for (name, shown) in &self.crt_lists {
            let line =
                |(hash, host): &(Arc<str>, Word)| format!("{} {host}\n", certificate_file(hash));
            files.insert(name.clone(), shown.iter().map(line).collect::<String>().into_bytes());
        }
        files
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_over_all_servers_stay_true_when_members_change() {
        let members = |range: std::ops::Range<u8>| -> Vec<Member> {
            let at = |n| ([10, 0, 0, n], 80).into();
            range.map(|n| Member { address: at(n), weight: 1, state: MemberState::Ready }).collect()
        };
        let [short, all] = ["short", "all"].map(|name| Word::name(name).unwrap());
        let mut wanted = Wanted { checks: 12, unchecked: 8, ..Wanted::default() };
        let unchecked = members(2..10).iter().map(|it| it.address).collect();
        let few = Servers { unchecked, ..Servers::new(&members(0..10)) };
        wanted.servers =
            [(short.clone(), few), (all.clone(), Servers::new(&members(0..10)))].into();
        for (backend, range) in
            [(&short, 0..20), (&all, 5..7), (&short, 9..12), (&all, 0..30), (&short, 0..0)]
        {
            let servers = wanted.servers[backend].after(&members(range));
            wanted.replace_servers(backend, servers);
            let count = |of: fn(&Servers) -> usize| wanted.servers.values().map(of).sum::<usize>();
            let sums = (count(Servers::checks), count(|it| it.unchecked.len()));
            assert_eq!((wanted.checks, wanted.unchecked), sums);
        }
        wanted.replace_servers(&Word::name("unknown").unwrap(), Servers::default());
        assert_eq!((wanted.checks, wanted.unchecked), (30, 0));
    }

    #[test]
    fn weights_keep_their_proportion_within_what_haproxy_can() {
        let member = |last: u8, weight, state| Member {
            address: ([10, 0, 0, last], 80).into(),
            weight,
            state,
        };
        let weights = |members: &[Member]| {
            let servers = Servers::new(members);
            servers.weights.into_values().collect::<Vec<_>>()
        };
        use MemberState::{Draining, Ready};
        assert_eq!(
            weights(&[member(1, 1, Ready), member(2, 3, Ready), member(3, 3, Draining)]),
            [1, 3, 0]
        );
        assert_eq!(
            weights(&[member(1, 1024, Ready), member(2, 512, Ready), member(3, 1, Ready)]),
            [256, 128, 1]
        );
    }
}
