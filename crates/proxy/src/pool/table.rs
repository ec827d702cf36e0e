//! The members of a pool as picks see them. A change of members builds a new table. A change of health
//! changes one member in place ([`super::live`]), so that a pick takes no lock and health needs no new
//! table.

use super::cookie::{CookieKey, MemberId};
use super::live::Live;
use super::rendezvous::Rendezvous;
use super::server::Server;
use super::{least, rotation};
use bowline_core::plan::Algorithm;
use bowline_core::update::MemberState;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug)]
pub(crate) struct Table {
    /// All members, by address.
    pub(crate) all: Box<[Entry]>,
    /// Members that may take new clients, as indices of `all`.
    usable: Box<[u32]>,
    /// Which of the usable members take new clients now.
    live: Live,
    balance: Balance,
    /// The cookies, if they tie clients to members.
    pub(super) cookies: Option<Cookies>,
}

/// The name of the cookie, and the ids of members in it.
#[derive(Debug)]
pub(super) struct Cookies {
    pub(super) key: Arc<CookieKey>,
    pub(super) name: Arc<str>,
    /// The ids of all members, in their order.
    ids: Box<[MemberId]>,
    by_id: HashMap<MemberId, u32>,
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) server: Arc<Server>,
    pub(crate) weight: u16,
    pub(crate) state: MemberState,
}

#[derive(Debug)]
enum Balance {
    Rotation,
    Least,
    Hash(Rendezvous),
}

impl Table {
    /// A table of these members, sorted by address. Clients go to ready members that are healthy and have a
    /// weight; if there are none, to all ready members: a check that fails everywhere is more likely wrong
    /// than right.
    pub(super) fn new(all: Box<[Entry]>, algorithm: Algorithm) -> Self {
        let ready = |weighty: bool| -> Box<[u32]> {
            let ready = all.iter().zip(0..).filter(|(entry, _)| {
                entry.state == MemberState::Ready && (entry.weight > 0 || !weighty)
            });
            ready.map(|(_, index)| index).collect()
        };
        let weighty = ready(true);
        // If no member has a weight, health does not matter either.
        let (usable, by_health) =
            if weighty.is_empty() { (ready(false), false) } else { (weighty, true) };
        let entry = |member: usize| &all[usable[member] as usize];
        let weights = (0..usable.len()).map(|member| entry(member).weight.max(1));
        let balance = match algorithm {
            Algorithm::RoundRobin => Balance::Rotation,
            Algorithm::LeastConnections => Balance::Least,
            Algorithm::SourceIp => {
                let members = (0..usable.len()).map(entry);
                Balance::Hash(Rendezvous::new(
                    members.map(|entry| (entry.server.address, entry.weight.max(1))),
                ))
            }
        };
        let live =
            Live::new(weights.collect(), |member| !by_health || entry(member).server.is_healthy());
        Self { all, usable, live, balance, cookies: None }
    }

    /// A member has become healthy or unhealthy. This changes one member, not the table.
    pub(super) fn turn(&self, address: SocketAddr, healthy: bool) {
        let Some(index) = self.index(address) else { return };
        if self.all[index].weight > 0
            && let Ok(member) = self.usable.binary_search(&(index as u32))
        {
            self.live.set(member, healthy);
        }
    }

    /// Adds the ids of members under this key. Ids that the previous table has computed are taken from it.
    pub(super) fn with_cookies(mut self, key: &Arc<CookieKey>, pool: &str, before: &Self) -> Self {
        let known = before.cookies.as_ref().filter(|known| Arc::ptr_eq(&known.key, key));
        let id = |entry: &Entry| {
            let address = entry.server.address;
            let known = known.and_then(|_| before.id(address)).copied();
            known.unwrap_or_else(|| key.member_id(pool, address))
        };
        let ids: Box<[_]> = self.all.iter().map(id).collect();
        let name = known.map(|known| known.name.clone());
        self.cookies = Some(Cookies {
            key: key.clone(),
            name: name.unwrap_or_else(|| key.cookie_name(pool).into()),
            by_id: ids.iter().copied().zip(0..).collect(),
            ids,
        });
        self
    }

    /// The id of a member in cookies.
    pub(super) fn id(&self, address: SocketAddr) -> Option<&MemberId> {
        self.cookies.as_ref()?.ids.get(self.index(address)?)
    }

    fn index(&self, address: SocketAddr) -> Option<usize> {
        self.all.binary_search_by_key(&address, |entry| entry.server.address).ok()
    }

    pub(super) fn choose(
        &self,
        client: IpAddr,
        exclude: &[SocketAddr],
        counter: &AtomicU64,
    ) -> Option<&Arc<Server>> {
        let server = |member: usize| &self.all[self.usable[member] as usize].server;
        let skip = |member: usize| exclude.contains(&server(member).address);
        let live = self.live.view();
        let member = match &self.balance {
            Balance::Rotation => rotation::pick(live, counter, skip),
            Balance::Hash(rendezvous) => rendezvous.pick(live, client, skip),
            Balance::Least => least::pick(live, counter, |member| {
                (!skip(member)).then(|| server(member).active.load(Ordering::Relaxed))
            }),
        };
        member.map(server).or_else(|| self.last_resort(exclude))
    }

    /// When all others were tried in vain, a skipped member is better than none.
    fn last_resort(&self, exclude: &[SocketAddr]) -> Option<&Arc<Server>> {
        let ready = self.all.iter().filter(|e| e.state == MemberState::Ready && e.weight > 0);
        let mut servers = ready.map(|entry| &entry.server);
        servers.find(|server| !exclude.contains(&server.address))
    }

    /// The member at this address, if a client that is tied to it may still go there.
    pub(super) fn tied(&self, address: SocketAddr, exclude: &[SocketAddr]) -> Option<&Arc<Server>> {
        self.may_stay(&self.all[self.index(address)?], exclude)
    }

    /// The member that a cookie names, if a client that is tied to it may still go there.
    pub(super) fn named(&self, id: &MemberId, exclude: &[SocketAddr]) -> Option<&Arc<Server>> {
        let index = *self.cookies.as_ref()?.by_id.get(id)?;
        self.may_stay(self.all.get(index as usize)?, exclude)
    }

    fn may_stay<'a>(&self, entry: &'a Entry, exclude: &[SocketAddr]) -> Option<&'a Arc<Server>> {
        (entry.server.is_healthy() && !exclude.contains(&entry.server.address))
            .then_some(&entry.server)
    }
}
