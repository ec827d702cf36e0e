//! In any order of events, with updates taken at any time in between: a driver that applied all updates has what a
//! fresh resolver would give it.

use super::*;
use crate::cases::cases;
use crate::plan::*;
use crate::update::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// A driver that keeps what it gets, and asserts what an update promises.
#[derive(Debug, Default, PartialEq, Eq)]
struct Driver {
    certificates: BTreeMap<Arc<str>, Arc<Certificate>>,
    pools: BTreeMap<Arc<str>, Arc<Pool>>,
    members: BTreeMap<Arc<str>, Vec<Member>>,
    sites: BTreeMap<SiteKey, Arc<ResolvedSite>>,
    listeners: BTreeMap<ListenerKey, Arc<ResolvedListener>>,
    hash: PlanHash,
}

/// Applies changes. Keys are sorted and unique; puts change something, removes remove something.
fn apply<K, V>(map: &mut BTreeMap<K, V>, changes: &[Change<K, V>])
where
    K: Ord + Clone + std::fmt::Debug,
    V: PartialEq + Clone + std::fmt::Debug,
{
    let keys: Vec<&K> = changes
        .iter()
        .map(|change| match change {
            Change::Put(key, _) | Change::Remove(key) => key,
        })
        .collect();
    assert!(keys.is_sorted_by(|a, b| a < b), "{keys:?}");
    for change in changes {
        match change {
            Change::Put(key, value) => {
                assert_ne!(map.insert(key.clone(), value.clone()).as_ref(), Some(value));
            }
            Change::Remove(key) => assert!(map.remove(key).is_some(), "{key:?}"),
        }
    }
}

impl Driver {
    fn apply(&mut self, update: &Update) {
        apply(&mut self.certificates, &update.certificates);
        apply(&mut self.pools, &update.pools);
        self.members.retain(|pool, _| self.pools.contains_key(pool));
        for change in &update.members {
            assert!(self.pools.contains_key(&change.pool), "{change:?}");
            let members = self.members.entry(change.pool.clone()).or_default();
            members.retain(|member| !change.removed.contains(member));
            members.retain(|old| !change.changed.iter().any(|new| new.address == old.address));
            members.extend(change.added.iter().chain(&change.changed));
            members.sort_unstable();
            assert_eq!(members[..], change.members[..]);
        }
        self.members.retain(|_, members| !members.is_empty());
        apply(&mut self.sites, &update.sites);
        apply(&mut self.listeners, &update.listeners);
        self.hash = update.hash;
        for listener in self.listeners.values() {
            if let Serves::Pool(pool) = &listener.listener.serves {
                assert!(self.pools.contains_key(pool), "{listener:?}");
            }
        }
    }
}

/// All objects by kind and name, as a cluster would answer a list.
type Cluster = BTreeMap<(Kind, String), Object>;

fn key(kind: Kind, name: &str) -> ObjectKey {
    ObjectKey::new(if kind == Kind::Slice { "shop" } else { "" }, name)
}

/// A step of a test.
#[derive(Clone, Debug)]
enum Act {
    Set(Kind, String, Object),
    Delete(Kind, String),
    /// An object is applied again without a change.
    Repeat(usize),
    /// A kind is listed again; if the flag is set, an update is taken in the middle.
    Relist(Kind, bool),
    Take,
}

const KINDS: [Kind; 4] = [Kind::Shard, Kind::Slice, Kind::Node, Kind::Certificates];

fn service() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["web", "api", "db"])
}

fn backends() -> impl Strategy<Value = Backends> {
    let nodes = any::<bool>()
        .prop_map(|local_only| Backends::Nodes(NodeBackends { node_port: 30080, local_only }));
    prop_oneof![3 => Just(Backends::Pods), 1 => nodes]
}

fn service_fragment() -> impl Strategy<Value = Fragment> {
    let flags = any::<(bool, bool, bool)>();
    let with = (service(), service(), 80u16..83, backends(), flags);
    with.prop_map(|(name, of, port, backends, (snat, with_pool, second))| {
        let mut fragment = fragment(name, port, backends);
        fragment.pools[0].snat = snat;
        fragment.pools[0].service.name = of.into();
        if second {
            // Another object of the same name: its pool has the same name, too.
            fragment.consumer.uid = "second".into();
        }
        if !with_pool {
            fragment.pools.clear();
        }
        fragment
    })
}

fn ingress_fragment() -> impl Strategy<Value = Fragment> {
    let host = prop::sample::select(vec!["a.example", "*.example", ""]);
    let hash = prop::option::of(prop::option::of(prop::sample::select(vec!["h1", "h2", "h3"])));
    let path = prop::sample::select(vec!["/", "/a", "/a/b"]);
    let sites = prop::collection::vec((host, hash, path, service()), 1..3);
    (prop::sample::select(vec!["i1", "i2"]), sites).prop_map(|(name, sites)| {
        let sites = sites
            .into_iter()
            .map(|(host, hash, path, pool)| site(host, hash.and_then(tls), vec![rule(path, pool)]));
        web(name, sites.collect())
    })
}

fn object() -> impl Strategy<Value = (Kind, String, Object)> {
    let names = |names: &[&str]| {
        prop::sample::select(names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>())
    };
    let fragments =
        prop::collection::vec(prop_oneof![service_fragment(), ingress_fragment()], 0..4);
    let plan = (names(&["p1", "p2"]), fragments)
        .prop_map(|(name, all)| (Kind::Shard, name.clone(), shard(&name, all)));
    let conditions = prop::sample::select(vec!["rs", "st", "s", "", "rst"]);
    let node_name = prop::sample::select(vec!["n1", "n2", ""]);
    let endpoints = prop::collection::vec((1u8..5, conditions, node_name), 0..5);
    let slices = (names(&["s1", "s2", "s3"]), service(), endpoints).prop_map(|(name, of, all)| {
        let all = all.into_iter().map(|(last, how, node)| endpoint(last, how, node)).collect();
        (Kind::Slice, name.clone(), slice(&name, of, all))
    });
    let nodes = (names(&["n1", "n2"]), 1u8..4, any::<bool>())
        .prop_map(|(name, last, usable)| (Kind::Node, name.clone(), node(&name, last, usable)));
    let hashes = prop::sample::subsequence(vec!["h1", "h2", "h3"], 0..=3);
    let secrets = (names(&["t1", "t2"]), hashes)
        .prop_map(|(name, all)| (Kind::Certificates, name.clone(), secret(&name, &all)));
    prop_oneof![4 => plan, 4 => slices, 1 => nodes, 2 => secrets]
}

fn act() -> impl Strategy<Value = Act> {
    let kind = || prop::sample::select(KINDS.to_vec());
    prop_oneof![
        8 => object().prop_map(|(kind, name, object)| Act::Set(kind, name, object)),
        2 => object().prop_map(|(kind, name, _)| Act::Delete(kind, name)),
        1 => any::<usize>().prop_map(Act::Repeat),
        1 => (kind(), any::<bool>()).prop_map(|(kind, middle)| Act::Relist(kind, middle)),
        3 => Just(Act::Take),
    ]
}

fn take(resolver: &mut Resolver, driver: &mut Driver) {
    if let Some(update) = resolver.take() {
        assert!(!update.is_empty() || update.hash != driver.hash || *driver == Driver::default());
        driver.apply(&update);
    }
}

fn perform(act: Act, cluster: &mut Cluster, resolver: &mut Resolver, driver: &mut Driver) {
    match act {
        Act::Set(kind, name, object) => {
            resolver.handle(Event::Apply(object.clone()));
            cluster.insert((kind, name), object);
        }
        Act::Delete(kind, name) => {
            resolver.handle(Event::Delete(kind, key(kind, &name)));
            cluster.remove(&(kind, name));
        }
        Act::Repeat(n) => {
            if let Some(object) = cluster.values().nth(n % cluster.len().max(1)) {
                resolver.handle(Event::Apply(object.clone()));
            }
        }
        Act::Relist(kind, middle) => {
            resolver.handle(Event::Begin(kind));
            let objects = cluster.iter().filter(|((of, _), _)| *of == kind);
            for (i, (_, object)) in objects.enumerate() {
                resolver.handle(Event::Apply(object.clone()));
                if middle && i == 0 {
                    take(resolver, driver);
                }
            }
            resolver.handle(Event::Done(kind));
        }
        Act::Take => take(resolver, driver),
    }
}

/// The members of a pool, computed in the simplest way.
fn members_of(pool: &Pool, cluster: &Cluster) -> Vec<Member> {
    let mut best = BTreeMap::new();
    let mut see = |ip, port, state: MemberState| {
        let known = best.entry(std::net::SocketAddr::new(ip, port)).or_insert(state);
        *known = state.min(*known);
    };
    let nodes = |name: Option<&str>| {
        let all = cluster.values().filter_map(|object| match object {
            Object::Node(node) if node.usable => Some(node),
            _ => None,
        });
        let named: Vec<_> = all.filter(|n| name.is_none_or(|name| *n.name == *name)).collect();
        named.into_iter().map(|node| node.addresses[0]).collect::<Vec<_>>()
    };
    for object in cluster.values() {
        let Object::Slice(slice) = object else { continue };
        if slice.service.as_ref() != Some(&pool.service.name) {
            continue;
        }
        for endpoint in &slice.endpoints {
            let state = match (endpoint.ready, endpoint.serving && endpoint.terminating) {
                (true, _) => MemberState::Ready,
                (false, true) => MemberState::Draining,
                (false, false) => continue,
            };
            match &pool.backends {
                Backends::Pods => see(endpoint.address, slice.ports[0].number, state),
                Backends::Nodes(to) if to.local_only => {
                    let Some(node) = &endpoint.node else { continue };
                    nodes(Some(node)).into_iter().for_each(|ip| see(ip, to.node_port, state));
                }
                Backends::Nodes(_) => {}
            }
        }
    }
    if let Backends::Nodes(NodeBackends { node_port, local_only: false }) = pool.backends {
        nodes(None).into_iter().for_each(|ip| see(ip, node_port, MemberState::Ready));
    }
    let nobody = !best.values().any(|state| *state == MemberState::Ready);
    let member = |(address, state)| Member {
        address,
        weight: 1,
        state: if nobody { MemberState::Ready } else { state },
    };
    best.into_iter().map(member).collect()
}

/// Removes from the plan what is served for another consumer, as the leader does.
fn settle(cluster: &mut Cluster, resolver: &mut Resolver, driver: &mut Driver) {
    loop {
        let Some(Refusal { consumer, extent, .. }) = resolver.unserved().next() else { return };
        let served = |driver: &Driver| {
            let listeners = driver.listeners.iter();
            let listeners: Vec<_> =
                listeners.map(|(key, it)| (*key, it.consumer.clone())).collect();
            let sites = driver.sites.iter();
            (listeners, sites.map(|(key, it)| (key.clone(), it.owner.clone())).collect::<Vec<_>>())
        };
        let before = served(driver);
        for ((kind, _), object) in cluster.iter_mut() {
            let Object::Shard(_, _, written) = object else { continue };
            assert_eq!(*kind, Kind::Shard);
            for fragment in written.fragments.iter_mut().filter(|it| it.consumer == consumer) {
                fragment.listeners.retain(|it| extent != Extent::Listener(ListenerKey::of(it)));
                fragment.sites.retain(|it| extent != Extent::Host(it.host.clone()));
            }
            resolver.handle(Event::Apply(object.clone()));
        }
        take(resolver, driver);
        assert_eq!(before, served(driver), "what is served stays as it is");
    }
}

fn fresh(cluster: &Cluster) -> Resolver {
    let mut resolver = Resolver::new();
    cluster.values().for_each(|object| resolver.handle(Event::Apply(object.clone())));
    resolver.take();
    resolver
}

fn driver_of(resolver: &Resolver) -> Driver {
    let mut driver = Driver::default();
    driver.apply(&resolver.snapshot());
    driver
}

proptest! {
    #![proptest_config(cases(160))]

    #[test]
    fn updates_add_up_to_what_a_fresh_resolver_says(acts in prop::collection::vec(act(), 1..40)) {
        let (mut cluster, mut resolver, mut driver) = Default::default();
        for act in acts {
            perform(act, &mut cluster, &mut resolver, &mut driver);
        }
        // History may keep a certificate whose Secret is gone; with all certificates present there is no difference.
        let all = secret("t0", &["h1", "h2", "h3"]);
        let all = Act::Set(Kind::Certificates, "t0".into(), all);
        perform(all, &mut cluster, &mut resolver, &mut driver);
        take(&mut resolver, &mut driver);
        settle(&mut cluster, &mut resolver, &mut driver);
        let expected = fresh(&cluster);
        prop_assert_eq!(&driver, &driver_of(&expected));
        prop_assert_eq!(resolver.snapshot(), expected.snapshot());
        prop_assert_eq!(resolver.needs_nodes(), expected.needs_nodes());
        for (name, pool) in &driver.pools {
            let members = driver.members.get(name).cloned().unwrap_or_default();
            prop_assert_eq!(members, members_of(pool, &cluster));
        }

        // A full list of the same objects changes nothing.
        for kind in KINDS {
            perform(Act::Relist(kind, false), &mut cluster, &mut resolver, &mut driver);
        }
        prop_assert_eq!(resolver.take(), None);

        // Empty lists delete everything, and nothing is left behind.
        for kind in KINDS {
            resolver.handle(Event::Begin(kind));
            resolver.handle(Event::Done(kind));
        }
        take(&mut resolver, &mut driver);
        prop_assert_eq!(driver, Driver::default());
        prop_assert!(resolver.is_empty(), "{resolver:?}");
    }

    #[test]
    fn a_relist_of_some_is_as_good_as_deleting_the_others(
        objects in prop::collection::vec((object(), any::<bool>()), 1..30),
    ) {
        let (mut relisted, mut deleted, mut ignored) = (Resolver::new(), Resolver::new(), Driver::default());
        let mut cluster = Cluster::new();
        let mut stays = BTreeMap::new();
        for ((kind, name, object), stay) in objects {
            stays.insert((kind, name.clone()), stay);
            perform(Act::Set(kind, name, object.clone()), &mut cluster, &mut relisted, &mut ignored);
            deleted.handle(Event::Apply(object));
        }
        for ((kind, name), _) in stays.iter().filter(|(_, stay)| !**stay) {
            deleted.handle(Event::Delete(*kind, key(*kind, name)));
        }
        cluster.retain(|at, _| stays[at]);
        for kind in KINDS {
            perform(Act::Relist(kind, false), &mut cluster, &mut relisted, &mut ignored);
        }
        prop_assert_eq!(relisted.take(), deleted.take());
        prop_assert_eq!(relisted.snapshot(), fresh(&cluster).snapshot());
    }
}
