//! The prefixes that Advertisements contribute on this node, the routes that follow for each peer, and what each peer
//! has been told. A route is computed from the Advertisements that announce its prefix to that peer, whatever the order
//! in which they came.

use super::{Advertisement, Effect, Peer, Route};
use ipnet::IpNet;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The prefixes of one Advertisement, each with the number of addresses that need it.
#[derive(Debug, Default)]
struct Contribution {
    prefixes: FxHashMap<IpNet, u32>,
}

#[derive(Debug)]
struct PeerHere {
    peer: Arc<Peer>,
    told: BTreeMap<IpNet, Arc<Route>>,
}

/// The routes of this node.
#[derive(Debug, Default)]
pub(super) struct Routes {
    contributions: BTreeMap<Arc<str>, Contribution>,
    peers: BTreeMap<Arc<str>, PeerHere>,
    /// Prefixes of several addresses that are announced.
    refused: BTreeSet<IpNet>,
    dirty: BTreeSet<IpNet>,
    dirty_peers: BTreeSet<Arc<str>>,
    /// Routes that are computed once and shared by peers and prefixes.
    shared: BTreeSet<Arc<Route>>,
}

impl Routes {
    /// An address needs a prefix of an Advertisement.
    pub(super) fn add(&mut self, advertisement: &Arc<str>, prefix: IpNet) {
        let contribution = self.contributions.entry(advertisement.clone()).or_default();
        let count = contribution.prefixes.entry(prefix).or_default();
        *count += 1;
        if *count == 1 {
            self.dirty.insert(prefix);
        }
    }

    /// An address no longer needs it.
    pub(super) fn remove(&mut self, advertisement: &Arc<str>, prefix: IpNet) {
        let Some(contribution) = self.contributions.get_mut(advertisement) else { return };
        let Some(count) = contribution.prefixes.get_mut(&prefix) else { return };
        *count -= 1;
        if *count == 0 {
            contribution.prefixes.remove(&prefix);
            self.dirty.insert(prefix);
            if contribution.prefixes.is_empty() {
                self.contributions.remove(advertisement);
            }
        }
    }

    /// What an Advertisement says about its routes changed.
    pub(super) fn touch(&mut self, advertisement: &Arc<str>) {
        let contribution = self.contributions.get(advertisement);
        self.dirty.extend(contribution.into_iter().flat_map(|it| it.prefixes.keys()));
    }

    /// A session with the peer is wanted on this node, or no longer.
    pub(super) fn peer(&mut self, name: &Arc<str>, peer: Option<Arc<Peer>>, out: &mut Vec<Effect>) {
        match (peer, self.peers.get_mut(name)) {
            (Some(peer), Some(known)) if known.peer != peer => {
                known.peer = peer.clone();
                out.push(Effect::Peer(peer));
            }
            (Some(peer), None) => {
                let here = PeerHere { peer: peer.clone(), told: BTreeMap::new() };
                self.peers.insert(name.clone(), here);
                self.dirty_peers.insert(name.clone());
                out.push(Effect::Peer(peer));
            }
            (None, Some(_)) => {
                self.peers.remove(name);
                // A prefix may now be announced to no peer.
                self.dirty.extend(self.refused.iter().copied());
                out.push(Effect::Forget(name.clone()));
            }
            (Some(_), Some(_)) | (None, None) => {}
        }
    }

    /// The peers of this node that are told a prefix.
    pub(super) fn told(&self, prefix: &IpNet) -> impl Iterator<Item = &Arc<str>> {
        let telling = self.peers.iter().filter(move |(_, it)| it.told.contains_key(prefix));
        telling.map(|(name, _)| name)
    }

    /// Tells peers what changed since the last take.
    pub(super) fn take(
        &mut self,
        advertisements: &BTreeMap<Arc<str>, Arc<Advertisement>>,
        out: &mut Vec<Effect>,
    ) {
        let dirty = std::mem::take(&mut self.dirty);
        let fresh = std::mem::take(&mut self.dirty_peers);
        let names: Vec<_> = self.peers.keys().cloned().collect();
        for prefix in &dirty {
            for name in &names {
                self.settle(name, *prefix, advertisements, out);
            }
        }
        for name in &fresh {
            let all: BTreeSet<_> =
                self.contributions.values().flat_map(|it| it.prefixes.keys().copied()).collect();
            for prefix in all {
                self.settle(name, prefix, advertisements, out);
                self.refuse(prefix, out);
            }
        }
        for prefix in dirty {
            self.refuse(prefix, out);
        }
        self.shared.retain(|route| Arc::strong_count(route) > 1);
    }

    /// Tells a peer of a prefix what changed.
    fn settle(
        &mut self,
        name: &Arc<str>,
        prefix: IpNet,
        advertisements: &BTreeMap<Arc<str>, Arc<Advertisement>>,
        out: &mut Vec<Effect>,
    ) {
        let contributing =
            self.contributions.iter().filter(|(_, it)| it.prefixes.contains_key(&prefix));
        let by_bgp = contributing.filter_map(|(name, _)| advertisements.get(name)?.bgp.as_ref());
        let for_peer = by_bgp.filter(|it| it.peers.is_empty() || it.peers.contains(name));
        let route = merged(for_peer.map(|it| &it.route));
        let route = route.map(|route| match self.shared.get(&route) {
            Some(known) => known.clone(),
            None => {
                let route = Arc::new(route);
                self.shared.insert(route.clone());
                route
            }
        });
        let Some(peer) = self.peers.get_mut(name) else { return };
        match route {
            Some(route) if peer.told.get(&prefix) != Some(&route) => {
                peer.told.insert(prefix, route.clone());
                out.push(Effect::Announce(name.clone(), prefix, route));
            }
            None if peer.told.remove(&prefix).is_some() => {
                out.push(Effect::Withdraw(name.clone(), prefix));
            }
            _ => {}
        }
    }

    /// A prefix of several addresses attracts packets to those that nobody holds.
    fn refuse(&mut self, prefix: IpNet, out: &mut Vec<Effect>) {
        if prefix.prefix_len() == prefix.max_prefix_len() {
            return;
        }
        let wanted = self.told(&prefix).next().is_some();
        if wanted && self.refused.insert(prefix) {
            out.push(Effect::Refuse(prefix));
        }
        if !wanted && self.refused.remove(&prefix) {
            out.push(Effect::Accept(prefix));
        }
    }
}

/// The route that several Advertisements make together, in the order of their names: the first that has a preference
/// decides it, communities add up. None: there is no Advertisement.
fn merged<'a>(routes: impl Iterator<Item = &'a Route>) -> Option<Route> {
    routes.fold(None, |sum: Option<Route>, next| {
        let Some(mut sum) = sum else { return Some(next.clone()) };
        sum.local_pref = sum.local_pref.or(next.local_pref);
        sum.med = sum.med.or(next.med);
        if sum.prepend == 0 {
            sum.prepend = next.prepend;
        }
        sum.communities.extend(&next.communities);
        Some(sum.bounded())
    })
}
