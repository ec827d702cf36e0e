//! The desired state of a load balancer: the sum of all updates so far. Drivers that write whole
//! files render it and compare the result with what runs. It decides nothing and does no I/O.

use bowline_core::hash::PlanHash;
use bowline_core::plan::{Listener, Pool, Redirect};
use bowline_core::update::{
    Certificate, Change, CookieSecret, ListenerKey, Member, ResolvedListener, ResolvedSite,
    SiteKey, Update,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Everything that the updates have put and not removed. A clone shares the large values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Desired {
    /// Certificates, by hash.
    pub certificates: BTreeMap<Arc<str>, Arc<Certificate>>,
    /// The secret that signs persistence cookies. None: no update has brought it yet.
    pub cookie_secret: Option<CookieSecret>,
    /// Pools, by name.
    pub pools: BTreeMap<Arc<str>, Arc<Pool>>,
    /// Members by pool, sorted by address. A pool without members has no entry.
    pub members: BTreeMap<Arc<str>, Arc<[Member]>>,
    /// Sites, by entry and host.
    pub sites: BTreeMap<SiteKey, Arc<ResolvedSite>>,
    /// Listeners, by address, port and transport.
    pub listeners: BTreeMap<ListenerKey, Arc<ResolvedListener>>,
    /// The hash of the plan that this state is.
    pub hash: PlanHash,
}

impl Desired {
    /// Applies an update. A complete update replaces everything except the cookie secret, which
    /// stays until an update brings another.
    pub fn apply(&mut self, update: &Update) {
        if update.complete {
            let cookie_secret = self.cookie_secret.take();
            *self = Self { cookie_secret, ..Self::default() };
        }
        change(&mut self.certificates, &update.certificates);
        if let Some(secret) = &update.cookie_secret {
            self.cookie_secret = Some(secret.clone());
        }
        change(&mut self.pools, &update.pools);
        for change in &update.members {
            if change.members.is_empty() {
                self.members.remove(&change.pool);
            } else {
                self.members.insert(change.pool.clone(), change.members.clone());
            }
        }
        for change in &update.pools {
            if let Change::Remove(name) = change {
                self.members.remove(name);
            }
        }
        change(&mut self.sites, &update.sites);
        change(&mut self.listeners, &update.listeners);
        self.hash = update.hash;
    }

    /// The members of a pool. Empty if the pool has none or does not exist.
    pub fn members(&self, pool: &str) -> &[Member] {
        self.members.get(pool).map_or(&[], |members| members)
    }

    /// The redirect for a request in clear text to a site of this entry that is served over TLS.
    pub fn to_https(&self, entry: &str) -> Redirect {
        let listeners = self.listeners.values().map(|resolved| &resolved.listener);
        Redirect::to_https(entry, listeners, std::iter::empty::<&Listener>())
    }
}

fn change<K: Ord + Clone, V: Clone>(all: &mut BTreeMap<K, V>, changes: &[Change<K, V>]) {
    for change in changes {
        match change {
            Change::Put(key, value) => all.insert(key.clone(), value.clone()),
            Change::Remove(key) => all.remove(key),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_core::plan::{ListenerProtocol, Serves, ServicePortRef, Transport};
    use bowline_core::update::{MemberChange, MemberState};

    fn pool(name: &str) -> Arc<Pool> {
        Arc::new(Pool::new(
            name,
            ServicePortRef {
                namespace: "shop".into(),
                name: "web".into(),
                port: "".into(),
                protocol: Transport::Tcp,
            },
        ))
    }

    fn member(last: u8) -> Member {
        Member { address: ([10, 0, 0, last], 80).into(), weight: 1, state: MemberState::Ready }
    }

    fn members(pool: &str, members: &[Member]) -> MemberChange {
        MemberChange {
            pool: pool.into(),
            members: members.into(),
            added: Vec::new(),
            changed: Vec::new(),
            removed: Vec::new(),
        }
    }

    fn put(names: &[&str]) -> Vec<Change<Arc<str>, Arc<Pool>>> {
        names.iter().map(|name| Change::Put((*name).into(), pool(name))).collect()
    }

    #[test]
    fn updates_add_up_to_what_one_complete_update_says() {
        let mut desired = Desired::default();
        desired.apply(&Update {
            complete: true,
            pools: put(&["a", "b"]),
            members: vec![members("a", &[member(1)]), members("b", &[member(2)])],
            ..Update::default()
        });
        desired.apply(&Update {
            pools: vec![Change::Remove("b".into()), Change::Put("c".into(), pool("c"))],
            members: vec![members("a", &[member(1), member(3)]), members("c", &[])],
            ..Update::default()
        });
        let mut whole = Desired::default();
        whole.apply(&Update {
            complete: true,
            pools: put(&["a", "c"]),
            members: vec![members("a", &[member(1), member(3)])],
            ..Update::default()
        });
        assert_eq!(desired, whole);
        assert_eq!(desired.members("a"), [member(1), member(3)]);
        assert_eq!(desired.members("b"), []);
    }

    #[test]
    fn a_complete_update_leaves_nothing_from_before_but_the_cookie_secret() {
        let mut desired = Desired::default();
        let secret = Some(CookieSecret([7; 32]));
        desired.apply(&Update {
            cookie_secret: secret.clone(),
            pools: put(&["a"]),
            members: vec![members("a", &[member(1)])],
            ..Update::default()
        });
        desired.apply(&Update { complete: true, ..Update::default() });
        assert_eq!(desired, Desired { cookie_secret: secret, ..Desired::default() });
    }

    #[test]
    fn clear_text_is_sent_to_the_listener_that_serves_the_entry_over_tls() {
        let listener = Listener {
            address: [192, 0, 2, 1].into(),
            port: 8443,
            protocol: ListenerProtocol::Https,
            serves: Serves::Entry("web".into()),
        };
        let consumer = bowline_core::key::ConsumerRef {
            kind: bowline_core::key::ConsumerKind::LoadBalancer,
            namespace: "".into(),
            name: "edge".into(),
            uid: "1".into(),
        };
        let key = ListenerKey::of(&listener);
        let resolved = Arc::new(ResolvedListener { consumer, listener });
        let mut desired = Desired::default();
        desired.apply(&Update { listeners: vec![Change::Put(key, resolved)], ..Update::default() });
        assert_eq!(desired.to_https("web").port, Some(8443));
        assert_eq!(desired.to_https("other").port, Some(443));
    }
}
