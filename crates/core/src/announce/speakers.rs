//! The leader's view of all speakers, from the reports in their Leases: which sessions with a peer are up, and where an
//! address is announced. A Lease that is not renewed for its duration counts as gone; that is measured by the
//! leader's own clock. When all fall silent at once it is the API that is away, for speakers or for the leader, and not
//! the speakers: nothing changes then. It costs what a report changes, not what it holds of unchanged addresses.

use crate::clock::Uptime;
use crate::outcome::{Problem, Reason};
use crate::relist::Missing;
use crate::report::speaker::{Session, SpeakerReport};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// How much longer Leases count when all speakers are silent.
const ALL_SILENT: Duration = Duration::from_secs(300);

/// A speaker's Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpeakerLease {
    /// Its report. None: the speaker has given up the Lease.
    pub report: Option<SpeakerReport>,
    /// The time of the last renewal, as the speaker wrote it.
    pub renewed: Arc<str>,
    /// How long a renewal lasts.
    pub lasts: Duration,
}

/// What the Services that hold an address are told when a host claims it that is no speaker.
pub fn conflict(address: IpAddr, host: &str) -> Problem {
    let remedy = Reason::AddressConflict.remedy().map_or("", |it| it.what);
    Problem::new(
        Reason::AddressConflict,
        format!(
            "host {host} claims {address} and is no speaker of this cluster: clients may reach it instead of the \
             Service; no node takes the address while it answers. What helps: {remedy}"
        ),
    )
}

#[derive(Debug)]
struct Known {
    lease: SpeakerLease,
    /// When it was last seen renewed. None: it has expired.
    since: Option<Uptime>,
}

/// Where an address is announced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnnouncedBy {
    /// The nodes that own it on their links: one, except for moments.
    pub owners: BTreeSet<Arc<str>>,
    /// The nodes that announce it by BGP.
    pub bgp: BTreeSet<Arc<str>>,
}

/// What changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpeakerNews {
    /// Peers whose sessions changed.
    pub peers: BTreeSet<Arc<str>>,
    /// Addresses that are announced elsewhere, or no longer.
    pub addresses: BTreeSet<IpAddr>,
    /// Addresses that a host claims which is no speaker, with its Ethernet address, since a node has begun to say so.
    pub conflicts: BTreeSet<(IpAddr, Arc<str>)>,
}

/// All speakers.
#[derive(Debug, Default)]
pub struct Speakers {
    leases: BTreeMap<Arc<str>, Known>,
    missing: Missing<Arc<str>>,
    addresses: FxHashMap<IpAddr, AnnouncedBy>,
    peers: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Session>>,
    /// How many nodes say that this host claims an address.
    conflicts: BTreeMap<(IpAddr, Arc<str>), usize>,
    news: SpeakerNews,
}

impl Speakers {
    /// A list of Leases begins.
    pub fn begin(&mut self) {
        self.missing.begin(self.leases.keys().cloned());
    }

    /// A Lease as it is now.
    pub fn apply(&mut self, name: Arc<str>, lease: SpeakerLease, now: Uptime) {
        self.missing.observe(&name);
        let is_renewed =
            self.leases.get(&name).is_none_or(|known| known.lease.renewed != lease.renewed);
        let before = self.leases.remove(&name).filter(|known| known.since.is_some());
        let since = match &before {
            Some(known) if !is_renewed => known.since,
            None if !is_renewed => None,
            _ => Some(now),
        };
        let since = since.filter(|_| lease.report.is_some());
        let after = lease.report.clone().filter(|_| since.is_some());
        self.change(before.and_then(|known| known.lease.report), after);
        self.leases.insert(name, Known { lease, since });
    }

    /// A Lease is deleted.
    pub fn delete(&mut self, name: &str) {
        let known = self.leases.remove(name).filter(|known| known.since.is_some());
        self.change(known.and_then(|known| known.lease.report), None);
    }

    /// The list has ended.
    pub fn done(&mut self) {
        for name in self.missing.done() {
            self.delete(&name);
        }
    }

    /// Lets renewals expire.
    pub fn tick(&mut self, now: Uptime) {
        let mut expired = Vec::new();
        let more = if self.are_all_silent(now) { ALL_SILENT } else { Duration::ZERO };
        for known in self.leases.values_mut() {
            let lasts = known.lease.lasts + more;
            if known.since.is_some_and(|since| now.saturating_sub(since) > lasts) {
                known.since = None;
                expired.push(known.lease.report.clone());
            }
        }
        for report in expired {
            self.change(report, None);
        }
    }

    /// Whether several speakers run, and none of them has renewed its Lease for half of its time, which each does several
    /// times. A single one that is silent may just have crashed.
    fn are_all_silent(&self, now: Uptime) -> bool {
        let live = || self.leases.values().filter_map(|it| Some((it.since?, it.lease.lasts)));
        live().nth(1).is_some()
            && live().all(|(since, lasts)| now.saturating_sub(since) > lasts / 2)
    }

    fn change(&mut self, before: Option<SpeakerReport>, after: Option<SpeakerReport>) {
        if before == after {
            return;
        }
        let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
        let bgp = |it: &SpeakerReport| it.by_bgp().map(|(at, _)| at).collect::<BTreeSet<_>>();
        let owned = |it: &SpeakerReport| it.owned().collect::<BTreeSet<_>>();
        let nodes = [&before, &after];
        let sets = nodes.map(|it| (bgp(it), owned(it)));
        for address in sets[0].0.symmetric_difference(&sets[1].0) {
            let by = self.addresses.entry(*address).or_default();
            match sets[1].0.contains(address) {
                true => by.bgp.insert(after.node.clone()),
                false => by.bgp.remove(&before.node),
            };
            self.news.addresses.insert(*address);
        }
        for address in sets[0].1.symmetric_difference(&sets[1].1) {
            let by = self.addresses.entry(*address).or_default();
            match sets[1].1.contains(address) {
                true => by.owners.insert(after.node.clone()),
                false => by.owners.remove(&before.node),
            };
            self.news.addresses.insert(*address);
        }
        for address in &self.news.addresses {
            if self.addresses.get(address) == Some(&AnnouncedBy::default()) {
                self.addresses.remove(address);
            }
        }
        let claims = |it: &SpeakerReport| -> BTreeSet<(IpAddr, Arc<str>)> {
            it.links.conflicts.iter().map(|(address, host)| (*address, host.clone())).collect()
        };
        let (old, new) = (claims(&before), claims(&after));
        for claim in new.difference(&old) {
            let nodes = self.conflicts.entry(claim.clone()).or_default();
            *nodes += 1;
            // Each node of the segment sees it: it is told once.
            if *nodes == 1 {
                self.news.conflicts.insert(claim.clone());
            }
        }
        for claim in old.difference(&new) {
            if let Some(nodes) = self.conflicts.get_mut(claim) {
                *nodes -= 1;
                if *nodes == 0 {
                    self.conflicts.remove(claim);
                }
            }
        }
        let peers: BTreeSet<_> = before.sessions.keys().chain(after.sessions.keys()).collect();
        for peer in peers {
            let (old, new) = (before.sessions.get(peer), after.sessions.get(peer));
            if old == new {
                continue;
            }
            let nodes = self.peers.entry(peer.clone()).or_default();
            match new {
                Some(session) => nodes.insert(after.node.clone(), session.clone()),
                None => nodes.remove(&before.node),
            };
            if nodes.is_empty() {
                self.peers.remove(peer);
            }
            self.news.peers.insert(peer.clone());
        }
    }

    /// What changed since the last call.
    pub fn take(&mut self) -> SpeakerNews {
        std::mem::take(&mut self.news)
    }

    /// The sessions with a peer, by node.
    pub fn sessions(&self, peer: &str) -> impl Iterator<Item = (&Arc<str>, &Session)> {
        self.peers.get(peer).into_iter().flatten()
    }

    /// Where an address is announced. None: nowhere.
    pub fn announced_by(&self, address: IpAddr) -> Option<&AnnouncedBy> {
        self.addresses.get(&address)
    }

    /// Whether any speaker runs.
    pub fn any(&self) -> bool {
        self.leases.values().any(|known| known.since.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LASTS: Duration = Duration::from_secs(15);

    fn lease(node: &str, renewed: &str, address: &str, up: bool) -> SpeakerLease {
        let session = Session { up, routes: 1, reason: None };
        let told = [(address.parse().unwrap(), ["tor".into()].into())];
        let sessions = [("tor".into(), session)].into();
        let report = SpeakerReport::new(node.into(), "1".into(), sessions, told, []);
        SpeakerLease { report: Some(report), renewed: renewed.into(), lasts: LASTS }
    }

    fn at(seconds: u64) -> Uptime {
        Duration::from_secs(seconds)
    }

    fn up(speakers: &Speakers) -> Vec<(&str, bool)> {
        speakers.sessions("tor").map(|(node, session)| (&**node, session.up)).collect()
    }

    fn bgp<'a>(speakers: &'a Speakers, address: &str) -> Vec<&'a str> {
        let by = speakers.announced_by(address.parse().unwrap());
        by.into_iter().flat_map(|by| by.bgp.iter().map(|node| &**node)).collect()
    }

    fn news(peers: &[&str], addresses: &[&str]) -> SpeakerNews {
        SpeakerNews {
            peers: peers.iter().map(|it| (*it).into()).collect(),
            addresses: addresses.iter().map(|it| it.parse().unwrap()).collect(),
            conflicts: BTreeSet::new(),
        }
    }

    #[test]
    fn what_speakers_report_is_known_by_address_and_by_peer() {
        let mut speakers = Speakers::default();
        assert!(!speakers.any());
        speakers.apply("l-a".into(), lease("a", "1", "192.0.2.1", true), at(0));
        speakers.apply("l-b".into(), lease("b", "1", "192.0.2.1", true), at(0));
        assert_eq!(speakers.take(), news(&["tor"], &["192.0.2.1"]));
        assert_eq!(bgp(&speakers, "192.0.2.1"), ["a", "b"]);
        assert_eq!(up(&speakers), [("a", true), ("b", true)]);
        speakers.apply("l-a".into(), lease("a", "2", "192.0.2.2", true), at(1));
        assert_eq!(speakers.take(), news(&[], &["192.0.2.1", "192.0.2.2"]));
        assert_eq!(bgp(&speakers, "192.0.2.1"), ["b"]);
        speakers.apply("l-b".into(), lease("b", "2", "192.0.2.1", false), at(1));
        assert_eq!(speakers.take(), news(&["tor"], &["192.0.2.1"]));
        assert_eq!(bgp(&speakers, "192.0.2.1"), [""; 0]);
        assert_eq!(up(&speakers), [("a", true), ("b", false)]);
        speakers.apply("l-b".into(), lease("b", "3", "192.0.2.1", false), at(2));
        assert_eq!(speakers.take(), SpeakerNews::default());
    }

    #[test]
    fn a_lease_that_is_not_renewed_announces_nothing_until_it_is() {
        let mut speakers = Speakers::default();
        speakers.apply("l-a".into(), lease("a", "1", "192.0.2.1", true), at(0));
        speakers.tick(at(15));
        assert_eq!(bgp(&speakers, "192.0.2.1"), ["a"]);
        speakers.tick(at(16));
        assert_eq!(bgp(&speakers, "192.0.2.1"), [""; 0]);
        assert_eq!(up(&speakers), []);
        assert!(!speakers.any());
        // The same renewal, delivered again by a relist, proves nothing.
        speakers.apply("l-a".into(), lease("a", "1", "192.0.2.1", true), at(17));
        assert_eq!(bgp(&speakers, "192.0.2.1"), [""; 0]);
        speakers.apply("l-a".into(), lease("a", "2", "192.0.2.1", true), at(18));
        assert_eq!(bgp(&speakers, "192.0.2.1"), ["a"]);
    }

    #[test]
    fn a_host_that_claims_an_address_is_told_once_for_all_nodes_until_it_is_over() {
        use crate::report::speaker::OnLinks;
        let mut speakers = Speakers::default();
        let mut version = 0;
        let mut says = |speakers: &mut Speakers, node: &str, host: Option<&str>| {
            version += 1;
            let one = lease(node, &version.to_string(), "192.0.2.1", true);
            let address = "192.0.2.9".parse().unwrap();
            let conflicts = host.map(|host| (address, host.into())).into_iter().collect();
            let links = OnLinks { conflicts, ..OnLinks::default() };
            let report = one.report.clone().map(|it| it.on_links(links));
            speakers.apply(node.into(), SpeakerLease { report, ..one }, at(version));
            speakers.take().conflicts.into_iter().map(|it| it.1.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(says(&mut speakers, "a", Some("02::1")), ["02::1"]);
        assert_eq!(says(&mut speakers, "b", Some("02::1")), [""; 0]);
        assert_eq!(says(&mut speakers, "a", Some("02::2")), ["02::2"], "another host");
        assert_eq!(says(&mut speakers, "a", None), [""; 0]);
        assert_eq!(says(&mut speakers, "b", None), [""; 0]);
        assert_eq!(says(&mut speakers, "b", Some("02::1")), ["02::1"], "again");
    }

    #[test]
    fn when_all_fall_silent_at_once_nothing_changes_for_minutes() {
        let mut speakers = Speakers::default();
        let nodes = ["a", "b", "c"];
        let renew = |speakers: &mut Speakers, version: &str, from: u64| {
            for (number, node) in (0..).zip(nodes) {
                let lease = lease(node, version, "192.0.2.1", true);
                // Each at a time of its own.
                speakers.apply(node.into(), lease, at(from + 2 * number));
            }
        };
        renew(&mut speakers, "1", 0);
        speakers.take();
        (5..200).for_each(|second| speakers.tick(at(second)));
        assert_eq!(speakers.take(), SpeakerNews::default());
        assert!(speakers.any());
        renew(&mut speakers, "2", 200);
        speakers.tick(at(205));
        assert_eq!(speakers.take(), SpeakerNews::default(), "as if nothing had been");
        // For good.
        (206..600).for_each(|second| speakers.tick(at(second)));
        assert_eq!(speakers.take(), news(&["tor"], &["192.0.2.1"]));
        assert!(!speakers.any());
    }

    #[test]
    fn one_of_several_that_falls_silent_announces_nothing() {
        let mut speakers = Speakers::default();
        for second in 0..20_u64 {
            speakers.apply("l-a".into(), lease("a", "1", "192.0.2.1", true), at(second));
            let renewed = second.to_string();
            speakers.apply("l-b".into(), lease("b", &renewed, "192.0.2.1", true), at(second));
            speakers.tick(at(second));
        }
        assert_eq!(bgp(&speakers, "192.0.2.1"), ["b"]);
    }

    #[test]
    fn a_speaker_that_gives_up_its_lease_or_whose_lease_is_gone_announces_nothing() {
        for end in ["given up", "deleted", "not listed"] {
            let mut speakers = Speakers::default();
            speakers.apply("l-a".into(), lease("a", "1", "192.0.2.1", true), at(0));
            speakers.take();
            match end {
                "given up" => {
                    let lease = SpeakerLease { report: None, ..lease("a", "2", "192.0.2.1", true) };
                    speakers.apply("l-a".into(), lease, at(1));
                }
                "deleted" => speakers.delete("l-a"),
                _ => {
                    speakers.begin();
                    speakers.done();
                }
            }
            assert_eq!(speakers.take(), news(&["tor"], &["192.0.2.1"]), "{end}");
            assert_eq!(bgp(&speakers, "192.0.2.1"), [""; 0], "{end}");
        }
    }
}
