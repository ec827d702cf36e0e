//! What the benchmarks of drivers have in common: plans of so many Services. How they are measured is in [`stage`].

pub(crate) mod stage;

use bowline_core::key::{ConsumerKind, ConsumerRef};
use bowline_core::plan::{
    Action, Host, Listener, ListenerProtocol, PathKind, PathMatch, Pool, Rule, Serves,
    ServicePortRef, Timeouts, Transport, WeightedPool,
};
use bowline_core::update::{
    Change, ListenerKey, Member, MemberChange, MemberState, ResolvedListener, ResolvedSite,
    SiteKey, Update,
};
use bowline_drivers::Driver as _;
use bowline_drivers::program::Driven;
use std::net::SocketAddr;
use std::sync::Arc;

/// Brings an update into force.
pub(crate) async fn apply(driver: &mut Driven, update: &Update) {
    let mut report = driver.apply(update).await.expect("applied");
    while report.waiting {
        report = driver.changed().await.expect("news");
    }
    assert_eq!(report.refused, []);
}

/// So many Services with a host each; the first is served by this one, all others by those.
pub(crate) fn everything(
    services: usize,
    port: u16,
    first: SocketAddr,
    others: &[SocketAddr],
) -> Update {
    let first = [first];
    let mut update = Update { complete: true, ..Update::default() };
    for i in 0..services {
        let name = format!("p{i}");
        update.pools.push(pool(&name, None));
        update.members.push(members(&name, if i == 0 { &first[..] } else { others }));
        let host = Host::Exact(format!("s{i}.example").into());
        update.sites.push(site_of(host, &name, &name));
    }
    let listener = Listener {
        address: [127, 0, 0, 1].into(),
        port,
        protocol: ListenerProtocol::Http,
        serves: Serves::Entry("web".into()),
    };
    let resolved = ResolvedListener { consumer: consumer("edge"), listener: listener.clone() };
    update.listeners.push(Change::Put(ListenerKey::of(&listener), Arc::new(resolved)));
    update
}

fn consumer(name: &str) -> ConsumerRef {
    ConsumerRef {
        kind: ConsumerKind::Ingress,
        namespace: "shop".into(),
        name: name.into(),
        uid: format!("uid of {name}").into(),
    }
}

pub(crate) fn pool(name: &str, backend_ms: Option<u32>) -> Change<Arc<str>, Arc<Pool>> {
    let service = ServicePortRef {
        namespace: "shop".into(),
        name: name.into(),
        port: "".into(),
        protocol: Transport::Tcp,
    };
    let pool = Pool {
        timeouts: Timeouts { backend_ms, ..Timeouts::default() },
        ..Pool::new(name, service)
    };
    Change::Put(name.into(), Arc::new(pool))
}

pub(crate) fn members(pool: &str, at: &[SocketAddr]) -> MemberChange {
    let member =
        |address: &SocketAddr| Member { address: *address, weight: 1, state: MemberState::Ready };
    MemberChange {
        pool: pool.into(),
        members: at.iter().map(member).collect(),
        added: Vec::new(),
        changed: Vec::new(),
        removed: Vec::new(),
    }
}

/// A host that leads to a pool, by the wish of this Ingress.
pub(crate) fn site_of(host: Host, to: &str, by: &str) -> Change<SiteKey, Arc<ResolvedSite>> {
    let rule = Rule {
        path: PathMatch { kind: PathKind::Prefix, value: "/".into() },
        method: None,
        headers: Vec::new(),
        query: Vec::new(),
        action: Action::Forward(vec![WeightedPool { pool: to.into(), weight: 1 }]),
    };
    let rules = vec![(rule, consumer(by))];
    let site = ResolvedSite { owner: "shop".into(), tls: None, rules };
    Change::Put(SiteKey { entry: "web".into(), host }, Arc::new(site))
}
