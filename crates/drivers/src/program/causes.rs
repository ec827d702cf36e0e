//! Finds the namespaces that an update changes something for: if the change needs a reload, they wait for it. Pure; the
//! task calls it.

use super::reload_pace::Sizes;
use crate::desired::Desired;
use bowline_core::update::{Change, ResolvedSite, Update};
use std::collections::BTreeSet;
use std::sync::Arc;

type Namespaces = BTreeSet<Arc<str>>;

/// The namespaces that an update changes something for. A program that takes members without a load does not load for a
/// namespace with changes of members only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changed {
    /// Namespaces with changes of pools, rules or listeners.
    pub(crate) structure: Namespaces,
    /// Namespaces with changes of members.
    pub(crate) members: Namespaces,
}

impl Changed {
    /// Namespaces with any change.
    pub(super) fn all(self) -> Namespaces {
        let Self { mut structure, mut members } = self;
        structure.append(&mut members);
        without_shared(structure)
    }
}

/// The load balancer's own objects, such as a listener that Ingresses share, have the empty namespace. It counts only
/// if no other namespace has changes.
fn without_shared(mut namespaces: Namespaces) -> Namespaces {
    if namespaces.len() > 1 {
        namespaces.remove("");
    }
    namespaces
}

/// The namespaces with something else after the update than before it.
pub(super) fn namespaces(before: &Desired, update: &Update, after: &Desired) -> Changed {
    let Changed { structure: mut found, members: mut of_members } = Changed::default();
    let pool_of = |desired: &Desired, pool: &str| {
        desired.pools.get(pool).map(|it| it.service.namespace.clone())
    };
    let all = update.complete;
    let pools = keys(all, before.pools.keys(), after.pools.keys(), &update.pools);
    let members = before.members.keys().chain(after.members.keys()).filter(|_| all);
    let members = members.chain(update.members.iter().map(|it| &it.pool));
    for pool in pools.iter().chain(members) {
        let namespaces = [before, after].into_iter().filter_map(|it| pool_of(it, pool));
        if before.pools.get(pool) != after.pools.get(pool) {
            found.extend(namespaces.clone());
        }
        if before.members(pool) != after.members(pool) {
            of_members.extend(namespaces);
        }
    }
    for site in keys(all, before.sites.keys(), after.sites.keys(), &update.sites) {
        site_of(before.sites.get(&site), after.sites.get(&site), &mut found);
    }
    for key in keys(all, before.listeners.keys(), after.listeners.keys(), &update.listeners) {
        let [was, is] = [before, after].map(|it| it.listeners.get(&key));
        if was != is {
            let consumers = [was, is].into_iter().flatten().map(|it| &it.consumer);
            found.extend(consumers.map(|it| it.namespace.clone()));
        }
    }
    Changed { structure: without_shared(found), members: of_members }
}

/// The same for an update of members only: the namespaces of their pools.
pub(super) fn of_members(update: &Update, desired: &Desired) -> Changed {
    let pools = update.members.iter().filter_map(|it| desired.pools.get(&it.pool));
    let members = pools.map(|pool| pool.service.namespace.clone()).collect();
    Changed { members, ..Changed::default() }
}

/// Whether an update changes members only.
pub(crate) fn is_of_members(update: &Update) -> bool {
    !update.complete
        && update.certificates.is_empty()
        && update.cookie_secret.is_none()
        && update.pools.is_empty()
        && update.sites.is_empty()
        && update.listeners.is_empty()
}

/// Whether the pools belong to more than one namespace.
pub(super) fn is_shared(desired: &Desired) -> bool {
    let mut all = desired.pools.values().map(|it| &it.service.namespace);
    let first = all.next();
    all.any(|it| Some(it) != first)
}

/// How many pools and members each namespace has.
pub(super) fn sizes(desired: &Desired) -> Sizes {
    let mut sizes = Sizes::new();
    for (name, pool) in &desired.pools {
        let size = u32::try_from(1 + desired.members(name).len()).unwrap_or(u32::MAX);
        let of = sizes.entry(pool.service.namespace.clone()).or_default();
        *of = of.saturating_add(size);
    }
    sizes
}

fn keys<'a, K: Ord + Clone + 'a, V>(
    all: bool,
    before: impl Iterator<Item = &'a K>,
    after: impl Iterator<Item = &'a K>,
    changes: &[Change<K, V>],
) -> BTreeSet<K> {
    if all {
        return before.chain(after).cloned().collect();
    }
    let key = |change: &Change<K, V>| match change {
        Change::Put(key, _) | Change::Remove(key) => key.clone(),
    };
    changes.iter().map(key).collect()
}

/// A site may have rules of several namespaces: the namespaces of changed rules count. If no rule has changed, the
/// owner of the site counts.
fn site_of(
    before: Option<&Arc<ResolvedSite>>,
    after: Option<&Arc<ResolvedSite>>,
    found: &mut Namespaces,
) {
    if before == after {
        return;
    }
    let rules = |site: Option<&Arc<ResolvedSite>>| {
        site.into_iter().flat_map(|it| it.rules.clone()).collect::<Vec<_>>()
    };
    let (was, is) = (rules(before), rules(after));
    let gone = was.iter().filter(|rule| !is.contains(rule));
    let new = is.iter().filter(|rule| !was.contains(rule));
    let changed: Namespaces = gone.chain(new).map(|(_, it)| it.namespace.clone()).collect();
    match changed.is_empty() {
        true => found.extend([before, after].into_iter().flatten().map(|it| it.owner.clone())),
        false => found.extend(changed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{ingress, member, pool, prefix};
    use bowline_core::key::ConsumerRef;
    use bowline_core::plan::{Host, ListenerProtocol, Serves};
    use bowline_core::update::{MemberChange, SiteKey};

    /// Two namespaces, each with a host, behind a listener that they share.
    fn two_namespaces() -> Desired {
        let mut desired = Desired::default();
        let edge = ConsumerRef { namespace: "".into(), ..ingress("edge") };
        let serves = Serves::Entry("web".into());
        desired.put_listener("127.0.0.1:80", ListenerProtocol::Http, serves, edge);
        for namespace in ["evil", "shop"] {
            let mut pool = pool(namespace);
            pool.service.namespace = namespace.into();
            desired.put_pool(pool, &[member(1)]);
            let consumer = ConsumerRef { namespace: namespace.into(), ..ingress("web") };
            let rules = vec![(prefix("/", namespace), consumer)];
            let site = ResolvedSite { owner: namespace.into(), tls: None, rules };
            let host = Host::Exact(format!("{namespace}.example").into());
            desired.sites.insert(SiteKey { entry: "web".into(), host }, Arc::new(site));
        }
        desired
    }

    /// The namespaces that the update changes, found from a partial and from a complete update.
    fn told(before: &Desired, update: &Update) -> Vec<String> {
        let mut after = before.clone();
        after.apply(update);
        let found = namespaces(before, update, &after);
        let mut whole = Update { complete: true, ..Update::default() };
        whole.hash = update.hash;
        assert_eq!(namespaces(before, &whole, &after), found, "told as a part of everything");
        found.all().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_namespace_of_which_members_change_waits_for_no_load_beside_another_with_a_setting() {
        let before = two_namespaces();
        let pool_of = |namespace: &str| {
            let pool = before.pools.values().find(|it| *it.service.namespace == *namespace);
            pool.expect("a pool").clone()
        };
        let mut evil = (*pool_of("evil")).clone();
        evil.proxy_protocol = !evil.proxy_protocol;
        let gone = MemberChange {
            pool: pool_of("shop").name.clone(),
            members: [].into(),
            added: Vec::new(),
            changed: Vec::new(),
            removed: Vec::new(),
        };
        let pools = vec![Change::Put(evil.name.clone(), Arc::new(evil))];
        let both = Update { pools, members: vec![gone], ..Update::default() };
        let mut after = before.clone();
        after.apply(&both);
        let [structure, members] = ["evil", "shop"].map(|it| Namespaces::from([it.into()]));
        assert_eq!(namespaces(&before, &both, &after), Changed { structure, members });
    }

    #[test]
    fn an_update_counts_for_the_namespaces_that_have_something_else_after_it() {
        let desired = two_namespaces();
        let of = |namespace: &str| {
            let pool = desired.pools.values().find(|it| *it.service.namespace == *namespace);
            pool.expect("a pool").clone()
        };
        let (shop, evil) = (of("shop"), of("evil"));
        let put =
            |pool: &Arc<bowline_core::plan::Pool>| Change::Put(pool.name.clone(), pool.clone());
        let same = Update { pools: vec![put(&shop), put(&evil)], ..Update::default() };
        assert_eq!(told(&desired, &same), [""; 0], "what is as before");

        let mut other = (*evil).clone();
        other.proxy_protocol = !other.proxy_protocol;
        let setting = Update { pools: vec![put(&Arc::new(other))], ..Update::default() };
        assert_eq!(told(&desired, &setting), ["evil"]);
        let removed = Change::Remove(shop.name.clone());
        let both = Update { pools: vec![removed, setting.pools[0].clone()], ..Update::default() };
        assert_eq!(told(&desired, &both), ["evil", "shop"]);

        let gone = MemberChange {
            pool: shop.name.clone(),
            members: [].into(),
            added: Vec::new(),
            changed: Vec::new(),
            removed: Vec::new(),
        };
        let members = Update { members: vec![gone], ..Update::default() };
        assert_eq!(told(&desired, &members), ["shop"]);

        let sites = desired.sites.keys().map(|key| Change::Remove(key.clone())).collect();
        assert_eq!(told(&desired, &Update { sites, ..Update::default() }), ["evil", "shop"]);
        let listeners: Vec<_> = desired.listeners.keys().map(|key| Change::Remove(*key)).collect();
        let alone = Update { listeners: listeners.clone(), ..Update::default() };
        assert_eq!(told(&desired, &alone), [""], "the listener that all share");
        let with = Update { listeners, ..setting };
        assert_eq!(told(&desired, &with), ["evil"]);
        assert!(is_shared(&desired));
        assert_eq!(sizes(&desired), [("evil".into(), 2), ("shop".into(), 2)].into());
        assert!(!is_shared(&Desired::default()));
    }
}
