//! A proxy of the test's own on a loopback address of its own, and short ways to say what it should do.

use bowline_core::key::{ConsumerKind, ConsumerRef};
use bowline_core::plan::{
    Action, Algorithm, Backends, CertificateRef, Listener, ListenerProtocol, PathKind, PathMatch,
    Pool, Rule, Serves, ServicePortRef, SiteTls, Speaks, Timeouts, Transport, WeightedPool,
};
use bowline_core::update::{
    Certificate, Change, ListenerKey, Member, MemberChange, MemberState, Report, ResolvedListener,
    ResolvedSite, SiteKey, Update,
};
use bowline_proxy::{Options, Proxy};
use bowline_testing::{Backend, Dial, Issued};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

pub(crate) const HTTP: u16 = 8080;
pub(crate) const HTTPS: u16 = 8443;

/// An address on loopback that no other test uses: the process and a counter are in it.
pub(crate) fn address() -> IpAddr {
    static NEXT: AtomicU16 = AtomicU16::new(1);
    let process = std::process::id().to_le_bytes();
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    let [low, _] = next.to_le_bytes();
    IpAddr::from([127, 64 + process[1] % 128, process[0], low])
}

/// A proxy and where it is.
pub(crate) struct World {
    pub(crate) proxy: Proxy,
    pub(crate) at: IpAddr,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(Options::default())
    }

    pub(crate) fn with(options: Options) -> Self {
        Self { proxy: Proxy::new(options), at: address() }
    }

    /// Applies, and expects that all of it could be done.
    pub(crate) async fn apply(&self, wish: Wish) {
        assert_eq!(self.proxy.apply(&wish.update).await, Report::default());
    }

    pub(crate) fn wish(&self) -> Wish {
        Wish { at: self.at, update: Update::default() }
    }

    pub(crate) fn http(&self) -> Dial {
        Dial::to(self.at, HTTP)
    }

    pub(crate) fn https(&self) -> Dial {
        Dial::to(self.at, HTTPS)
    }

    /// An HTTP member on an address of its own.
    pub(crate) async fn member(&self, name: &str) -> Backend {
        Backend::http(name, address(), 80).await
    }
}

/// An update in the making.
pub(crate) struct Wish {
    at: IpAddr,
    pub(crate) update: Update,
}

impl Wish {
    /// An HTTP listener, a pool `web` and a site for every host.
    pub(crate) fn web(self, members: &[&Backend]) -> Self {
        self.listener(HTTP, ListenerProtocol::Http).pool(pool("web"), members).site(
            "*",
            None,
            [forward("/", "web")],
        )
    }

    pub(crate) fn listener(self, port: u16, protocol: ListenerProtocol) -> Self {
        self.serving(port, protocol, Serves::Entry("web".into()))
    }

    pub(crate) fn serving(mut self, port: u16, protocol: ListenerProtocol, serves: Serves) -> Self {
        let listener = Listener { address: self.at, port, protocol, serves };
        let resolved = ResolvedListener { consumer: consumer("listener"), listener };
        let key = ListenerKey::of(&resolved.listener);
        self.update.listeners.push(Change::Put(key, Arc::new(resolved)));
        self
    }

    pub(crate) fn without_listener(mut self, port: u16) -> Self {
        let key = ListenerKey { address: self.at, port, transport: Transport::Tcp };
        self.update.listeners.push(Change::Remove(key));
        self
    }

    pub(crate) fn pool(mut self, pool: Pool, members: &[&Backend]) -> Self {
        let name = pool.name.clone();
        self.update.pools.push(Change::Put(name.clone(), Arc::new(pool)));
        self.members(&name, &[], &addresses(members))
    }

    pub(crate) fn members(mut self, pool: &str, before: &[SocketAddr], now: &[SocketAddr]) -> Self {
        let (old, new) = (set(before), set(now));
        let members: Vec<_> = new.iter().copied().map(member).collect();
        self.update.members.push(MemberChange {
            pool: pool.into(),
            members: members.into(),
            added: new.difference(&old).copied().map(member).collect(),
            changed: Vec::new(),
            removed: old.difference(&new).copied().map(member).collect(),
        });
        self
    }

    pub(crate) fn site(
        mut self,
        host: &str,
        tls: Option<SiteTls>,
        rules: impl IntoIterator<Item = Rule>,
    ) -> Self {
        let mut rules: Vec<_> = rules.into_iter().map(|rule| (rule, consumer("site"))).collect();
        rules.sort_by_key(|(rule, _)| rule.precedence());
        let key = SiteKey { entry: "web".into(), host: host.parse().unwrap() };
        self.update.sites.push(Change::Put(key, Arc::new(ResolvedSite { tls, rules })));
        self
    }

    pub(crate) fn certificate(mut self, hash: &str, issued: &Issued) -> Self {
        let certificate = Certificate {
            chain: issued.certificate.as_str().into(),
            key: issued.key.as_str().into(),
        };
        self.update.certificates.push(Change::Put(hash.into(), Arc::new(certificate)));
        self
    }
}

fn set(addresses: &[SocketAddr]) -> BTreeSet<SocketAddr> {
    addresses.iter().copied().collect()
}

fn member(address: SocketAddr) -> Member {
    Member { address, weight: 1, state: MemberState::Ready }
}

pub(crate) fn addresses(members: &[&Backend]) -> Vec<SocketAddr> {
    members.iter().map(|member| member.at).collect()
}

pub(crate) fn consumer(name: &str) -> ConsumerRef {
    ConsumerRef {
        kind: ConsumerKind::Service,
        namespace: "test".into(),
        name: name.into(),
        uid: name.into(),
    }
}

pub(crate) fn pool(name: &str) -> Pool {
    Pool {
        name: name.into(),
        service: ServicePortRef {
            namespace: "test".into(),
            name: name.into(),
            port: "".into(),
            protocol: Transport::Tcp,
        },
        backends: Backends::Pods,
        algorithm: Algorithm::RoundRobin,
        persistence: None,
        snat: true,
        proxy_protocol: false,
        speaks: Speaks::Http1,
        source_ranges: Vec::new(),
        timeouts: Timeouts::default(),
        health_check: None,
    }
}

pub(crate) fn rule(prefix: &str, action: Action) -> Rule {
    Rule {
        path: PathMatch { kind: PathKind::Prefix, value: prefix.into() },
        method: None,
        headers: Vec::new(),
        query: Vec::new(),
        action,
    }
}

pub(crate) fn forward(prefix: &str, pool: &str) -> Rule {
    rule(prefix, Action::Forward(vec![WeightedPool { pool: pool.into(), weight: 1 }]))
}

pub(crate) fn tls(hash: &str, redirect: bool) -> Option<SiteTls> {
    Some(SiteTls { certificate: Some(CertificateRef { hash: hash.into() }), redirect })
}
