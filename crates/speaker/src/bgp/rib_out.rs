//! What one peer is to be told (the Adj-RIB-Out): the wanted routes, the routes that the peer has been told on this
//! session, and the updates that lead from one to the other. A change that is taken back before it is sent sends
//! nothing. The cost of a change does not depend on the number of routes.

use super::attributes::{Attributes, MpNextHop, Origin, Reach, Segment, Unreach};
use super::family::{Family, PerFamily};
use super::message::{HEADER, LONGEST, Message};
use super::update::Update;
use super::wire::prefix_size;
use bowline_core::announce::Community;
pub use bowline_core::announce::Route;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// Where announced routes lead: addresses of this machine that the peer reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NextHops {
    /// For IPv4 routes.
    pub v4: Option<Ipv4Addr>,
    /// For IPv6 routes, and for IPv4 routes where there is no IPv4 address and the peer can (RFC 8950).
    pub v6: Option<Ipv6Addr>,
    /// The same on a link without other addresses.
    pub link_local: Option<Ipv6Addr>,
}

/// What both sides of a session agreed on, as far as updates depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The families that both have.
    pub families: PerFamily<bool>,
    /// Where the routes lead.
    pub next_hops: NextHops,
    /// IPv4 routes may have an IPv6 next hop.
    pub extended_next_hop: bool,
    /// AS numbers have four bytes.
    pub four_octet: bool,
    /// The own AS.
    pub asn: u32,
    /// Both are in one AS.
    pub internal: bool,
}

/// The next hop of a family's routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextHop {
    Classic(Ipv4Addr),
    Mp(MpNextHop),
}

impl Terms {
    /// `None` where routes of the family cannot be told.
    fn next_hop(&self, family: Family) -> Option<NextHop> {
        let hops = self.next_hops;
        let v6 = match (hops.v6, hops.link_local) {
            (Some(global), Some(link)) => Some(MpNextHop::V6Both(global, link)),
            (Some(only), None) | (None, Some(only)) => Some(MpNextHop::V6(only)),
            (None, None) => None,
        };
        let may = *self.families.get(family);
        let next_hop = match (family, hops.v4) {
            (Family::V4, Some(v4)) => Some(NextHop::Classic(v4)),
            (Family::V4, None) => v6.filter(|_| self.extended_next_hop).map(NextHop::Mp),
            (Family::V6, _) => v6.map(NextHop::Mp),
        };
        next_hop.filter(|_| may)
    }
}

#[derive(Debug, Default)]
struct Entry {
    wanted: Option<Arc<Route>>,
    told: Option<Arc<Route>>,
    /// To be told again, also where nothing has changed.
    again: bool,
}

/// The routes of one peer.
#[derive(Debug, Default)]
pub struct RibOut {
    entries: BTreeMap<IpNet, Entry>,
    /// To be announced, perhaps: `wanted` may differ from `told`.
    announce: BTreeSet<IpNet>,
    /// To be withdrawn, perhaps. After everything that is announced, so that traffic has a route all the time.
    withdraw: BTreeSet<IpNet>,
    /// All routes carry GRACEFUL_SHUTDOWN.
    draining: bool,
    terms: Option<Terms>,
    /// How many routes are told, and how many are wanted.
    counts: PerFamily<usize>,
    wanted: PerFamily<usize>,
}

/// At most this many routes are grouped at a time, so that a take has a bound.
const GROUPED: usize = 4096;

impl RibOut {
    /// The route is wanted. Nothing happens if it is so already.
    pub fn announce(&mut self, prefix: IpNet, route: Route) {
        let entry = self.entries.entry(prefix.trunc()).or_default();
        let route = route.bounded();
        if entry.wanted.as_deref() != Some(&route) {
            *self.wanted.get_mut(Family::of(&prefix)) += usize::from(entry.wanted.is_none());
            entry.wanted = Some(Arc::new(route));
            self.announce.insert(prefix.trunc());
            self.withdraw.remove(&prefix.trunc());
        }
    }

    /// The route is no longer wanted.
    pub fn withdraw(&mut self, prefix: IpNet) {
        let prefix = prefix.trunc();
        if let Some(entry) = self.entries.get_mut(&prefix) {
            let was_wanted = entry.wanted.take().is_some();
            *self.wanted.get_mut(Family::of(&prefix)) -= usize::from(was_wanted);
            self.announce.remove(&prefix);
            if entry.told.is_some() {
                self.withdraw.insert(prefix);
            } else {
                self.entries.remove(&prefix);
            }
        }
    }

    /// Marks all routes with GRACEFUL_SHUTDOWN, or removes that mark.
    pub fn drain(&mut self, draining: bool) {
        if std::mem::replace(&mut self.draining, draining) != draining {
            Family::ALL.into_iter().for_each(|family| self.resend(family));
        }
    }

    /// A session is established: the peer knows nothing.
    pub fn begin(&mut self, terms: Terms) {
        self.end();
        self.terms = Some(terms);
        Family::ALL.into_iter().for_each(|family| self.resend(family));
    }

    /// The session is over.
    pub fn end(&mut self) {
        self.terms = None;
        self.announce.clear();
        self.withdraw.clear();
        self.counts = PerFamily::default();
        self.entries.retain(|_, entry| {
            entry.told = None;
            entry.wanted.is_some()
        });
    }

    /// Tells the peer all routes of a family again, as it asks with ROUTE-REFRESH.
    pub fn resend(&mut self, family: Family) {
        let of_family = self.entries.iter_mut().filter(|(prefix, _)| Family::of(prefix) == family);
        for (prefix, entry) in of_family.filter(|(_, entry)| entry.wanted.is_some()) {
            entry.again = true;
            self.announce.insert(*prefix);
            self.withdraw.remove(prefix);
        }
    }

    /// Other addresses of this machine are where routes lead.
    pub fn set_next_hops(&mut self, next_hops: NextHops) {
        if let Some(terms) = self.terms.as_mut().filter(|terms| terms.next_hops != next_hops) {
            terms.next_hops = next_hops;
            Family::ALL.into_iter().for_each(|family| self.resend(family));
        }
    }

    /// Whether the peer has been told everything.
    pub fn is_told(&self) -> bool {
        self.announce.is_empty() && self.withdraw.is_empty()
    }

    /// How many routes the peer has been told.
    pub fn told(&self) -> PerFamily<usize> {
        self.counts
    }

    /// How many routes are wanted.
    pub fn wanted(&self) -> PerFamily<usize> {
        self.wanted
    }

    /// Why routes of a family cannot be told on this session.
    pub fn held_back(&self, family: Family) -> Option<String> {
        let terms = self.terms.as_ref().filter(|terms| terms.next_hop(family).is_none())?;
        Some(match terms.families.get(family) {
            false => format!("the peer does not exchange {family} routes"),
            true => format!(
                "this node has no {family} address that the peer could send traffic to; set nextHop"
            ),
        })
    }

    /// Writes the next updates, until about `room` bytes are written. Returns how many messages.
    pub fn write(&mut self, out: &mut Vec<u8>, room: usize) -> usize {
        let Some(terms) = self.terms else {
            self.announce.clear();
            return 0;
        };
        let (begin, mut messages) = (out.len(), 0);
        while !self.announce.is_empty() && out.len() - begin < room {
            messages += self.write_announced(&terms, out);
        }
        while !self.withdraw.is_empty() && out.len() - begin < room {
            messages += self.write_withdrawn(&terms, out);
        }
        messages
    }

    fn write_announced(&mut self, terms: &Terms, out: &mut Vec<u8>) -> usize {
        let mut groups: BTreeMap<(Family, Arc<Route>), Vec<IpNet>> = BTreeMap::new();
        for _ in 0..GROUPED {
            let Some(prefix) = self.announce.pop_first() else { break };
            let (family, Some(entry)) = (Family::of(&prefix), self.entries.get_mut(&prefix)) else {
                continue;
            };
            let again = std::mem::take(&mut entry.again);
            if terms.next_hop(family).is_none() {
                if entry.told.is_some() {
                    self.withdraw.insert(prefix);
                }
                continue;
            }
            if entry.wanted == entry.told && !again {
                continue;
            }
            *self.counts.get_mut(family) += usize::from(entry.told.is_none());
            entry.told.clone_from(&entry.wanted);
            if let Some(route) = entry.told.clone() {
                groups.entry((family, route)).or_default().push(prefix);
            }
        }
        let mut messages = 0;
        for ((family, route), prefixes) in groups {
            if let Some(next_hop) = terms.next_hop(family) {
                let attributes = attributes(&route, terms, self.draining);
                messages += pack_announced(&attributes, family, next_hop, &prefixes, terms, out);
            }
        }
        messages
    }

    fn write_withdrawn(&mut self, terms: &Terms, out: &mut Vec<u8>) -> usize {
        let mut gone = PerFamily::<Vec<IpNet>>::default();
        for _ in 0..GROUPED {
            let Some(prefix) = self.withdraw.pop_first() else { break };
            if let btree_map::Entry::Occupied(mut entry) = self.entries.entry(prefix) {
                entry.get_mut().told = None;
                if entry.get().wanted.is_none() {
                    entry.remove();
                }
            }
            let family = Family::of(&prefix);
            *self.counts.get_mut(family) -= 1;
            gone.get_mut(family).push(prefix);
        }
        let families = Family::ALL.into_iter();
        families.map(|family| pack_withdrawn(family, gone.get(family), terms, out)).sum()
    }
}

fn attributes(route: &Route, terms: &Terms, draining: bool) -> Attributes {
    let mut communities = route.communities.clone();
    if draining {
        communities.insert(Community::GRACEFUL_SHUTDOWN);
    }
    let own = if terms.internal { 0 } else { 1 + usize::from(route.prepend) };
    Attributes {
        origin: Some(Origin::Igp),
        as_path: Some(if own == 0 {
            vec![]
        } else {
            vec![Segment::Sequence(vec![terms.asn; own])]
        }),
        med: route.med,
        // RFC 4271: always there inside an AS, where 100 is every router's default. RFC 8326: 0 before a shutdown.
        local_pref: terms
            .internal
            .then(|| if draining { 0 } else { route.local_pref.unwrap_or(100) }),
        communities: communities
            .iter()
            .filter_map(|it| if let Community::Standard(value) = it { Some(*value) } else { None })
            .collect(),
        large_communities: communities
            .iter()
            .filter_map(
                |it| if let Community::Large(a, b, c) = it { Some([*a, *b, *c]) } else { None },
            )
            .collect(),
        ..Attributes::default()
    }
}

/// Header, two lengths.
const FRAME: usize = HEADER + 4;
/// Flags, code, a length of two bytes, family, length of the next hop, reserved byte.
const MP_FRAME: usize = 4 + 3 + 1 + 1;

fn pack_announced(
    attributes: &Attributes,
    family: Family,
    next_hop: NextHop,
    prefixes: &[IpNet],
    terms: &Terms,
    out: &mut Vec<u8>,
) -> usize {
    let mut attributes = attributes.clone();
    if let NextHop::Classic(address) = next_hop {
        attributes.next_hop = Some(address);
    }
    let mut fixed = Vec::new();
    attributes.encode(&mut fixed, terms.four_octet);
    // 32 bytes for the longest next hop.
    let room = LONGEST - FRAME - MP_FRAME - 32 - fixed.len();
    pack(prefixes, room, |some| {
        let mut update = Update { attributes: attributes.clone(), ..Update::default() };
        match next_hop {
            NextHop::Classic(_) => update.announced = some.to_vec(),
            NextHop::Mp(next_hop) => {
                update.attributes.reach = Some(Reach { family, next_hop, prefixes: some.to_vec() });
            }
        }
        Message::Update(Box::new(update)).encode(out, terms.four_octet);
    })
}

fn pack_withdrawn(family: Family, prefixes: &[IpNet], terms: &Terms, out: &mut Vec<u8>) -> usize {
    pack(prefixes, LONGEST - FRAME - MP_FRAME, |some| {
        let mut update = Update::default();
        match family {
            Family::V4 => update.withdrawn = some.to_vec(),
            Family::V6 => {
                update.attributes.unreach = Some(Unreach { family, prefixes: some.to_vec() });
            }
        }
        Message::Update(Box::new(update)).encode(out, terms.four_octet);
    })
}

/// Hands out as many prefixes at a time as fit. Returns how often.
fn pack(mut prefixes: &[IpNet], room: usize, mut message: impl FnMut(&[IpNet])) -> usize {
    let mut messages = 0;
    while !prefixes.is_empty() {
        let mut size = 0;
        let fit = prefixes.iter().take_while(|prefix| {
            size += prefix_size(prefix);
            size <= room
        });
        let (now, later) = prefixes.split_at(fit.count().max(1));
        message(now);
        messages += 1;
        prefixes = later;
    }
    messages
}

#[cfg(test)]
mod tests;
