//! What the speaker of one node says in its Lease: its sessions with BGPPeers, and which addresses it announces to
//! which of them. Addresses are written as ranges, so that ten thousand of a pool take a few bytes. The text is
//! bounded; what it has no room for is counted. Speakers write it, the leader and the commands read it.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

/// The API allows 256 KiB for all annotations of an object together.
pub const MOST_BYTES: usize = 192 * 1024;
/// The most load balancers that are named.
const MOST_AGENTS: usize = 64;
/// The most bytes of a reason.
const LONGEST_REASON: usize = 512;
/// The most conflicts, moves and troubles that are told, of each.
const MOST_NOTES: usize = 20;

/// The session with one peer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Whether it is established.
    pub up: bool,
    /// How many routes the peer has been told.
    #[serde(default)]
    pub routes: u32,
    /// Why it is not established, or what is held back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Arc<str>>,
}

/// Addresses that are announced to the same peers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Told {
    peers: Vec<Arc<str>>,
    addresses: Vec<AddressRange>,
}

/// What a speaker says about the links of its node and about the node itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OnLinks {
    /// Where other speakers reach it by gossip. None: it takes no part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gossip: Option<SocketAddr>,
    /// How many other speakers it hears.
    #[serde(default)]
    pub members: usize,
    /// Addresses that a host claims that is no speaker of this cluster, with its Ethernet address.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub conflicts: BTreeMap<IpAddr, Arc<str>>,
    /// What could not be moved by hand lately.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub not_moved: BTreeMap<IpAddr, NotMoved>,
    /// What does not work.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub troubles: Vec<Arc<str>>,
}

/// A move by hand that did not come about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotMoved {
    /// What was wished, as it is written at the Address.
    pub wish: Arc<str>,
    /// Why not.
    pub reason: Arc<str>,
}

impl OnLinks {
    fn bounded(mut self) -> Self {
        fn first<V>(map: BTreeMap<IpAddr, V>) -> BTreeMap<IpAddr, V> {
            map.into_iter().take(MOST_NOTES).collect()
        }
        self.conflicts = first(self.conflicts);
        self.not_moved = first(self.not_moved);
        self.troubles.truncate(MOST_NOTES);
        self.troubles.iter_mut().for_each(cut);
        self
    }
}

/// Cuts a reason that is too long.
fn cut(reason: &mut Arc<str>) {
    if reason.len() > LONGEST_REASON {
        *reason = reason.chars().take(LONGEST_REASON / 4).collect::<String>().into();
    }
}

/// The report of a speaker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpeakerReport {
    /// The node.
    pub node: Arc<str>,
    /// The version of the program.
    #[serde(default)]
    pub version: Arc<str>,
    /// The sessions by BGPPeer.
    #[serde(default)]
    pub sessions: BTreeMap<Arc<str>, Session>,
    #[serde(default)]
    told: Vec<Told>,
    /// The addresses that the node owns on its links.
    #[serde(default)]
    owned: Vec<AddressRange>,
    /// How many addresses there was no room for.
    #[serde(default)]
    pub unlisted: usize,
    /// About the links of the node.
    #[serde(default)]
    pub links: OnLinks,
    /// The load balancers of which an agent on the node says what is open: the first of them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub agents: BTreeSet<Arc<str>>,
}

impl SpeakerReport {
    /// A report of a node. `told`: the peers to which each address is announced. `owned`: the addresses that the node
    /// owns on its links.
    pub fn new(
        node: Arc<str>,
        version: Arc<str>,
        sessions: BTreeMap<Arc<str>, Session>,
        told: impl IntoIterator<Item = (IpAddr, BTreeSet<Arc<str>>)>,
        owned: impl IntoIterator<Item = IpAddr>,
    ) -> Self {
        let mut by_peers = BTreeMap::<Vec<Arc<str>>, BTreeSet<IpAddr>>::new();
        for (address, peers) in told.into_iter().filter(|(_, peers)| !peers.is_empty()) {
            by_peers.entry(peers.into_iter().collect()).or_default().insert(address);
        }
        let told = by_peers
            .into_iter()
            .map(|(peers, addresses)| Told { peers, addresses: AddressRange::of(&addresses) });
        let owned = AddressRange::of(&owned.into_iter().collect());
        let sessions = sessions.into_iter().map(|(name, mut session)| {
            session.reason.iter_mut().for_each(cut);
            (name, session)
        });
        Self {
            node,
            version,
            sessions: sessions.collect(),
            told: told.collect(),
            owned,
            unlisted: 0,
            links: OnLinks::default(),
            agents: BTreeSet::new(),
        }
        .bounded(MOST_BYTES)
    }

    /// The same of a speaker that ends and owns these addresses on its links.
    pub fn owning(self, owned: impl IntoIterator<Item = IpAddr>) -> Self {
        let owned = AddressRange::of(&owned.into_iter().collect());
        Self { owned, links: OnLinks::default(), ..self }.bounded(MOST_BYTES)
    }

    /// The same with what is said about the links of the node.
    pub fn on_links(self, links: OnLinks) -> Self {
        Self { links: links.bounded(), ..self }
    }

    /// The same of a speaker that hears agents of these load balancers.
    pub fn hearing(self, agents: impl IntoIterator<Item = Arc<str>>) -> Self {
        Self { agents: agents.into_iter().take(MOST_AGENTS).collect(), ..self }
    }

    /// Whether peers are told of an address once their sessions are established.
    pub fn tells(&self, address: IpAddr) -> bool {
        let mut ranges = self.told.iter().flat_map(|told| &told.addresses);
        ranges.any(|range| range.contains(address))
    }

    /// The report with as many addresses as have room.
    fn bounded(mut self, room: usize) -> Self {
        let mut size = super::json_size(&self) + 16;
        while size > room {
            let mut lists: Vec<&mut Vec<AddressRange>> =
                self.told.iter_mut().map(|it| &mut it.addresses).collect();
            lists.push(&mut self.owned);
            let longest = lists.into_iter().max_by_key(|list| list.len());
            let Some(dropped) = longest.and_then(Vec::pop) else { break };
            size -= dropped.to_string().len() + 2;
            self.unlisted = self.unlisted.saturating_add(dropped.len());
        }
        self
    }

    /// The addresses that are announced by BGP, with the peers that are told; those of established sessions only.
    pub fn by_bgp(&self) -> impl Iterator<Item = (IpAddr, &[Arc<str>])> {
        let is_up = |peer: &Arc<str>| self.sessions.get(peer).is_some_and(|session| session.up);
        let up = self.told.iter().filter(move |told| told.peers.iter().any(is_up));
        up.flat_map(|told| {
            let addresses = told.addresses.iter().flat_map(AddressRange::addresses);
            addresses.map(|address| (address, told.peers.as_slice()))
        })
    }

    /// The addresses that the node owns on its links.
    pub fn owned(&self) -> impl Iterator<Item = IpAddr> {
        self.owned.iter().flat_map(AddressRange::addresses)
    }
}

/// Addresses from one to another. Written `192.0.2.1-192.0.2.9`, or as a single address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
struct AddressRange {
    first: IpAddr,
    last: IpAddr,
}

/// The most addresses of a range: a text from elsewhere must not make a reader count to 2¹²⁸.
const LONGEST_RANGE: u128 = 1 << 20;

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(u32::from(v4)),
        IpAddr::V6(v6) => u128::from(v6),
    }
}

impl AddressRange {
    fn of(addresses: &BTreeSet<IpAddr>) -> Vec<Self> {
        let mut ranges: Vec<Self> = Vec::new();
        for address in addresses {
            match ranges.last_mut() {
                Some(range)
                    if range.last.is_ipv4() == address.is_ipv4()
                        && number(range.last) + 1 == number(*address)
                        && (range.len() as u128) < LONGEST_RANGE =>
                {
                    range.last = *address;
                }
                _ => ranges.push(Self { first: *address, last: *address }),
            }
        }
        ranges
    }

    fn len(&self) -> usize {
        usize::try_from(number(self.last) - number(self.first) + 1).unwrap_or(usize::MAX)
    }

    fn contains(&self, address: IpAddr) -> bool {
        self.first.is_ipv4() == address.is_ipv4()
            && (number(self.first)..=number(self.last)).contains(&number(address))
    }

    fn addresses(&self) -> impl Iterator<Item = IpAddr> + use<> {
        let v4 = self.first.is_ipv4();
        (number(self.first)..=number(self.last)).map(move |number| match v4 {
            true => IpAddr::V4(Ipv4Addr::from(number as u32)),
            false => IpAddr::V6(Ipv6Addr::from(number)),
        })
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first == self.last {
            true => write!(f, "{}", self.first),
            false => write!(f, "{}-{}", self.first, self.last),
        }
    }
}

/// Text that is not a range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a range of addresses")]
struct NotARange(String);

impl FromStr for AddressRange {
    type Err = NotARange;

    fn from_str(text: &str) -> Result<Self, NotARange> {
        let read = || {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            let (first, last): (IpAddr, IpAddr) = (first.parse().ok()?, last.parse().ok()?);
            let ordered = first.is_ipv4() == last.is_ipv4()
                && number(first) <= number(last)
                && number(last) - number(first) < LONGEST_RANGE;
            ordered.then_some(Self { first, last })
        };
        read().ok_or_else(|| NotARange(text.to_owned()))
    }
}

impl TryFrom<String> for AddressRange {
    type Error = NotARange;

    fn try_from(text: String) -> Result<Self, NotARange> {
        text.parse()
    }
}

impl From<AddressRange> for String {
    fn from(range: AddressRange) -> Self {
        range.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(
        told: impl IntoIterator<Item = (IpAddr, BTreeSet<Arc<str>>)>,
        up: bool,
    ) -> SpeakerReport {
        let session = Session { up, routes: 1, reason: None };
        let sessions = [("tor".into(), session)].into();
        SpeakerReport::new("a".into(), "1".into(), sessions, told, [])
    }

    fn tor() -> BTreeSet<Arc<str>> {
        ["tor".into()].into()
    }

    #[test]
    fn a_report_is_read_back_as_it_was() {
        let addresses = ["192.0.2.1", "192.0.2.2", "192.0.2.4", "2001:db8::1", "2001:db8::2"];
        let addresses = addresses.map(|it| it.parse::<IpAddr>().unwrap());
        let report = report(addresses.map(|it| (it, tor())), true);
        let text = serde_json::to_string(&report).unwrap();
        assert!(text.contains("192.0.2.1-192.0.2.2"), "{text}");
        let read: SpeakerReport = serde_json::from_str(&text).unwrap();
        assert_eq!(read, report);
        let announced: Vec<_> = read.by_bgp().map(|(address, _)| address).collect();
        assert_eq!(announced, addresses);
    }

    #[test]
    fn a_session_that_is_down_announces_nothing_and_would_tell_its_addresses() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let both = ["192.0.2.1", "192.0.2.2"].map(|it| (address(it), tor()));
        let report = report(both, false);
        assert_eq!(report.by_bgp().count(), 0);
        let tells = ["192.0.2.0", "192.0.2.1", "192.0.2.2", "192.0.2.3", "::"]
            .map(|it| report.tells(address(it)));
        assert_eq!(tells, [false, true, true, false, false]);
    }

    #[test]
    fn load_balancers_with_agents_have_a_bound() {
        let agents = (0..1000).map(|n| format!("lb-{n}").into());
        let report = report([], true).hearing(agents);
        assert_eq!(report.agents.len(), MOST_AGENTS);
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<SpeakerReport>(&text).unwrap(), report);
    }

    #[test]
    fn ten_thousand_addresses_of_a_pool_are_a_few_bytes_and_scattered_ones_have_a_bound() {
        let all = |step: u32| {
            (0..20_000).map(move |n| (IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + n * step)), tor()))
        };
        let text = serde_json::to_string(&report(all(1), true)).unwrap();
        assert!(text.len() < 300, "{text}");
        let scattered = report(all(2), true);
        let text = serde_json::to_string(&scattered).unwrap();
        assert!(text.len() <= MOST_BYTES, "{}", text.len());
        assert_eq!(scattered.by_bgp().count() + scattered.unlisted, 20_000);
        assert!(scattered.unlisted > 0);
    }

    #[test]
    fn no_text_makes_a_reader_count_forever() {
        for text in [
            "",
            "-",
            "192.0.2.2-192.0.2.1",
            "::-ffff::",
            "192.0.2.1-::1",
            "0.0.0.0-255.255.255.255",
        ] {
            assert!(text.parse::<AddressRange>().is_err(), "{text:?}");
        }
    }
}
