//! The members of a pool as picks see them: made whole whenever a member or its health changes, then
//! never altered, so that a pick takes no lock.

use super::cookie::{CookieKey, MemberId};
use super::least;
use super::rendezvous::Rendezvous;
use super::rotation::Rotation;
use super::server::Server;
use bowline_core::plan::Algorithm;
use bowline_core::update::MemberState;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug)]
pub(crate) struct Table {
    /// All, by address.
    pub(crate) all: Box<[Entry]>,
    /// Those that take new clients.
    usable: Box<[Usable]>,
    balance: Balance,
    /// Where cookies tie clients to members.
    pub(super) cookies: Option<Cookies>,
}

/// What cookies are called, and what members are called in them.
#[derive(Debug)]
pub(super) struct Cookies {
    pub(super) key: Arc<CookieKey>,
    pub(super) name: Arc<str>,
    /// Of all members, in their order.
    ids: Box<[MemberId]>,
    by_id: HashMap<MemberId, u32>,
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) server: Arc<Server>,
    pub(crate) weight: u16,
    pub(crate) state: MemberState,
    pub(crate) healthy: bool,
}

#[derive(Debug)]
struct Usable {
    server: Arc<Server>,
    weight: u16,
}

#[derive(Debug)]
enum Balance {
    Rotation(Rotation),
    Least { heaviest: u16 },
    Hash(Rendezvous),
}

impl Table {
    /// A table of these members, sorted by address. Clients are given to ready members that are
    /// healthy and have a weight; if there are none, to all that are ready: a check that condemns
    /// everybody is more likely wrong than right.
    pub(super) fn new(all: Box<[Entry]>, algorithm: Algorithm) -> Self {
        let ready = || all.iter().filter(|entry| entry.state == MemberState::Ready);
        let usable = |healthy: bool, weighty: bool| -> Box<[Usable]> {
            ready()
                .filter(|entry| (entry.healthy || !healthy) && (entry.weight > 0 || !weighty))
                .map(|entry| Usable { server: entry.server.clone(), weight: entry.weight.max(1) })
                .collect()
        };
        let usable = [(true, true), (false, true), (false, false)]
            .into_iter()
            .map(|(healthy, weighty)| usable(healthy, weighty))
            .find(|usable| !usable.is_empty())
            .unwrap_or_default();
        let weights = usable.iter().map(|member| member.weight);
        let balance = match algorithm {
            Algorithm::RoundRobin => Balance::Rotation(Rotation::new(weights.collect())),
            Algorithm::LeastConnections => Balance::Least { heaviest: weights.max().unwrap_or(1) },
            Algorithm::SourceIp => Balance::Hash(Rendezvous::new(
                usable.iter().map(|member| (member.server.address, member.weight)),
            )),
        };
        Self { all, usable, balance, cookies: None }
    }

    /// The same, with members found by what cookies of this key call them. What the table before has
    /// worked out already is taken from there.
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

    /// What a member is called in cookies.
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
        let skip = |i: usize| exclude.contains(&self.usable[i].server.address);
        let index = match &self.balance {
            Balance::Rotation(rotation) => rotation.pick(counter, skip),
            Balance::Hash(rendezvous) => rendezvous.pick(client, skip),
            Balance::Least { heaviest } => {
                least::pick(self.usable.len(), *heaviest, counter, |i| {
                    let member = &self.usable[i];
                    let active = member.server.active.load(Ordering::Relaxed);
                    (!skip(i)).then_some((active, member.weight))
                })
            }
        };
        index.map(|i| &self.usable[i].server).or_else(|| self.last_resort(exclude))
    }

    /// When all others were tried in vain, one that was left out is better than nobody.
    fn last_resort(&self, exclude: &[SocketAddr]) -> Option<&Arc<Server>> {
        let ready = self.all.iter().filter(|e| e.state == MemberState::Ready && e.weight > 0);
        let mut servers = ready.map(|entry| &entry.server);
        servers.find(|server| !exclude.contains(&server.address))
    }

    /// The member of this address, if a client that is tied to it may still go there.
    pub(super) fn tied(&self, address: SocketAddr, exclude: &[SocketAddr]) -> Option<&Arc<Server>> {
        self.may_stay(&self.all[self.index(address)?], exclude)
    }

    /// The member that a cookie names, if a client that is tied to it may still go there.
    pub(super) fn named(&self, id: &MemberId, exclude: &[SocketAddr]) -> Option<&Arc<Server>> {
        let index = *self.cookies.as_ref()?.by_id.get(id)?;
        self.may_stay(self.all.get(index as usize)?, exclude)
    }

    fn may_stay<'a>(&self, entry: &'a Entry, exclude: &[SocketAddr]) -> Option<&'a Arc<Server>> {
        (entry.healthy && !exclude.contains(&entry.server.address)).then_some(&entry.server)
    }
}
