//! Support for the tests: a proxy on a loopback address of its own, and short ways to write updates for
//! it.

use bowline_core::key::{ConsumerKind, ConsumerRef};
use bowline_core::plan::{
    Action, CertificateRef, Listener, ListenerProtocol, PathKind, PathMatch, Pool, Rule, Serves,
    ServicePortRef, SiteTls, Transport, WeightedPool,
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
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

pub(crate) const HTTP: u16 = 8080;
pub(crate) const HTTPS: u16 = 8443;

/// The port of members: one that needs no root.
pub(crate) const MEMBER: u16 = 8080;

/// A loopback address that no other test uses: made from the process id and a counter.
pub(crate) fn address() -> IpAddr {
    static NEXT: AtomicU16 = AtomicU16::new(1);
    let process = std::process::id().to_le_bytes();
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    let [low, _] = next.to_le_bytes();
    IpAddr::from([127, 64 + process[1] % 128, process[0], low])
}

/// A proxy and its address.
pub(crate) struct World {
    pub(crate) proxy: Proxy,
    pub(crate) at: IpAddr,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(Options::default())
    }

    pub(crate) fn with(options: Options) -> Self {
        // Clients, proxy and members share one process here.
        bowline_proxy::raise_descriptors();
        Self { proxy: Proxy::new(options), at: address() }
    }

    /// Applies the update and expects no refusal.
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

    /// The sum of all samples of a counter.
    pub(crate) fn counted(&self, name: &str) -> f64 {
        let mut registry = prometheus_client::registry::Registry::default();
        let exposition = bowline_proxy::Exposition::default();
        exposition.add("edge", &self.proxy);
        registry.register_collector(Box::new(exposition));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let samples = text.lines().filter(|line| line.starts_with(name));
        samples.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
    }

    /// The response to these bytes on a new connection, until the proxy closes it.
    pub(crate) async fn raw(&self, bytes: &str) -> String {
        let mut stream = self.http().tcp().await.unwrap();
        stream.write_all(bytes.as_bytes()).await.unwrap();
        rest(&mut stream).await
    }

    /// An HTTP member on an address of its own.
    pub(crate) async fn member(&self, name: &str) -> Backend {
        Backend::http(name, address(), MEMBER).await
    }
}

/// An update under construction.
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
        self,
        host: &str,
        tls: Option<SiteTls>,
        rules: impl IntoIterator<Item = Rule>,
    ) -> Self {
        self.site_of("test", host, tls, rules)
    }

    pub(crate) fn site_of(
        mut self,
        owner: &str,
        host: &str,
        tls: Option<SiteTls>,
        rules: impl IntoIterator<Item = Rule>,
    ) -> Self {
        let mut rules: Vec<_> = rules.into_iter().map(|rule| (rule, consumer("site"))).collect();
        rules.sort_by_key(|(rule, _)| rule.precedence());
        let key = SiteKey { entry: "web".into(), host: host.parse().unwrap() };
        self.update
            .sites
            .push(Change::Put(key, Arc::new(ResolvedSite { owner: owner.into(), tls, rules })));
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
    Pool::new(
        name,
        ServicePortRef {
            namespace: "test".into(),
            name: name.into(),
            port: "".into(),
            protocol: Transport::Tcp,
        },
    )
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

/// Options with an access log, and its lines.
pub(crate) fn logging() -> (Options, Arc<std::sync::Mutex<Vec<String>>>) {
    let lines = Arc::new(std::sync::Mutex::new(Vec::new()));
    let sink = lines.clone();
    let log = bowline_proxy::AccessLog::new(move |line| sink.lock().unwrap().push(line.to_owned()));
    (Options { access_log: Some(log), ..Options::default() }, lines)
}

/// All that comes until the other side ends the connection. A reset ends it, too.
pub(crate) async fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut bytes))
        .await
        .expect("the connection ends");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A member that answers every head with the same bytes, and keeps the heads.
pub(crate) struct Scripted {
    pub(crate) at: SocketAddr,
    heads: Arc<std::sync::Mutex<Vec<String>>>,
}

impl Scripted {
    pub(crate) async fn new(answer: impl Into<String>) -> Self {
        let answer: Arc<str> = answer.into().into();
        let listener = TcpListener::bind((address(), MEMBER)).await.unwrap();
        let at = listener.local_addr().unwrap();
        let heads = Arc::new(std::sync::Mutex::new(Vec::new()));
        let kept = heads.clone();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let (answer, kept) = (answer.clone(), kept.clone());
                tokio::spawn(async move {
                    let mut head = Vec::new();
                    while let Ok(byte) = stream.read_u8().await {
                        head.push(byte);
                        if head.ends_with(b"\r\n\r\n") {
                            let text = String::from_utf8(std::mem::take(&mut head)).unwrap();
                            kept.lock().unwrap().push(text);
                            stream.write_all(answer.as_bytes()).await.unwrap();
                        }
                    }
                });
            }
        });
        Self { at, heads }
    }

    pub(crate) fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }

    /// The first line of the last head.
    pub(crate) fn last_line(&self) -> String {
        let heads = self.heads();
        heads.last().and_then(|head| head.lines().next()).unwrap_or_default().to_owned()
    }
}
