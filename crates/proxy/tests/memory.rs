//! Measures the memory of idle connections and incomplete requests, and tests that limits computed from
//! memory hold. The proxy runs in a process of its own, so that the memory of its clients does not
//! count.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failing test panics")]

use bowline_core::key::{ConsumerKind, ConsumerRef};
use bowline_core::plan::{
    Action, CertificateRef, Listener, ListenerProtocol, PathKind, PathMatch, Pool, Rule, Serves,
    ServicePortRef, SiteTls, Transport, WeightedPool,
};
use bowline_core::update::{
    Certificate, Change, ListenerKey, Member, MemberChange, MemberState, Report, ResolvedListener,
    ResolvedSite, SiteKey, Update,
};
use bowline_proxy::{Limits, Options, Proxy, raise_descriptors};
use bowline_testing::{Authority, Backend, Dial, Request};
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{IpAddr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

const HOST: &str = "a.example";
const MIB: u64 = 1024 * 1024;

fn update(at: IpAddr, member: SocketAddr, chain: &str, key: &str) -> Update {
    let consumer = ConsumerRef {
        kind: ConsumerKind::Service,
        namespace: "test".into(),
        name: "test".into(),
        uid: "test".into(),
    };
    let listener = Listener {
        address: at,
        port: 8443,
        protocol: ListenerProtocol::Https,
        serves: Serves::Entry("web".into()),
    };
    let pool = Pool::new(
        "web",
        ServicePortRef {
            namespace: "test".into(),
            name: "web".into(),
            port: "".into(),
            protocol: Transport::Tcp,
        },
    );
    let rule = Rule {
        path: PathMatch { kind: PathKind::Prefix, value: "/".into() },
        method: None,
        headers: Vec::new(),
        query: Vec::new(),
        action: Action::Forward(vec![WeightedPool { pool: "web".into(), weight: 1 }]),
    };
    let tls = SiteTls { certificate: Some(CertificateRef { hash: "a".into() }), redirect: true };
    let site = ResolvedSite {
        owner: "test".into(),
        tls: Some(tls),
        rules: vec![(rule, consumer.clone())],
    };
    let member = Member { address: member, weight: 1, state: MemberState::Ready };
    Update {
        certificates: vec![Change::Put(
            "a".into(),
            Arc::new(Certificate { chain: chain.into(), key: key.into() }),
        )],
        pools: vec![Change::Put("web".into(), Arc::new(pool))],
        members: vec![MemberChange {
            pool: "web".into(),
            members: vec![member].into(),
            added: vec![member],
            changed: Vec::new(),
            removed: Vec::new(),
        }],
        sites: vec![Change::Put(
            SiteKey { entry: "web".into(), host: HOST.parse().unwrap() },
            Arc::new(site),
        )],
        listeners: vec![Change::Put(
            ListenerKey::of(&listener),
            Arc::new(ResolvedListener { consumer, listener }),
        )],
        ..Update::default()
    }
}

/// The proxy's process: it ends with its standard input.
#[tokio::test]
#[ignore = "the tests start it"]
async fn proxy() {
    let of = |name: &str| std::env::var(name).unwrap();
    let memory = of("PROXY_MEMORY").parse::<u64>().ok();
    let limits = Limits::within(raise_descriptors(), memory);
    let proxy = Proxy::new(Options { limits, ..Options::default() });
    let member = of("PROXY_MEMBER").parse().unwrap();
    let update =
        update(of("PROXY_AT").parse().unwrap(), member, &of("PROXY_CHAIN"), &of("PROXY_KEY"));
    assert_eq!(proxy.apply(&update).await, Report::default());
    println!("PROXY READY {}", limits.connections);
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()))
        .await
        .unwrap()
        .unwrap();
    std::process::exit(0);
}

struct Stage {
    proxy: Child,
    at: IpAddr,
    member: Backend,
    authority: Authority,
    /// The number of places of the proxy.
    places: usize,
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = self.proxy.kill();
        let _ = self.proxy.wait();
    }
}

impl Stage {
    async fn new(memory: Option<u64>) -> Self {
        raise_descriptors();
        let [a, b, ..] = std::process::id().to_le_bytes();
        let at = IpAddr::from([127, 202, a, b]);
        let member = Backend::http("m", IpAddr::from([127, 203, a, b]), 8080).await;
        let authority = Authority::new();
        let issued = authority.issue(&[HOST]);
        let mut proxy = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "proxy", "--ignored", "--nocapture"])
            .env("PROXY_MEMORY", memory.map_or_else(String::new, |bytes| bytes.to_string()))
            .env("PROXY_AT", at.to_string())
            .env("PROXY_MEMBER", member.at.to_string())
            .env("PROXY_CHAIN", &issued.certificate)
            .env("PROXY_KEY", &issued.key)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(proxy.stdout.take().unwrap()).lines();
        let ready =
            lines.find_map(|line| Some(line.ok()?.split_once("PROXY READY ")?.1.to_owned()));
        let places = ready.expect("the proxy is ready").parse().unwrap();
        std::thread::spawn(move || lines.for_each(drop));
        Self { proxy, at, member, authority, places }
    }

    fn dial(&self, client: u16, protocol: &str) -> Dial {
        let [high, low] = client.to_be_bytes();
        let dial = Dial::to(self.at, 8443).from(IpAddr::from([127, 204, high, low]));
        dial.tls(&self.authority.trusted(&[protocol]), HOST)
    }

    /// The resident memory of the proxy now, and its peak.
    fn resident(&self) -> [u64; 2] {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.proxy.id())).unwrap();
        ["VmRSS:", "VmHWM:"].map(|name| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
        })
    }
}

#[tokio::test]
async fn many_clients_take_no_more_memory_than_limits_allow_and_another_is_served() {
    let stage = Stage::new(Some(64 * MIB)).await;
    assert_eq!(stage.places, 384);
    let other = || async { stage.dial(60_000, "http/1.1").get(HOST, "/").await };
    assert_eq!(other().await.map(|it| it.status), Ok(200));
    let before = stage.resident()[1];
    // Idle connections, a few of each client.
    let mut idle = Vec::new();
    let mut refused = 0;
    for i in 0..500 {
        match stage.dial(i % 100, "h2").connect().await {
            Ok(stream) => idle.push(stream),
            Err(_) => refused += 1,
        }
    }
    assert!(refused >= 90, "{refused} refused of 500");
    assert_eq!(other().await.map(|it| it.status), Ok(200));
    drop(idle);
    // Incomplete requests with large heads, many on a connection.
    let mut tasks = tokio::task::JoinSet::new();
    for i in 0..20 {
        let Ok(session) = stage.dial(i, "h2").http2().session().await else { continue };
        for _ in 0..60 {
            let mut session = session.beside().unwrap();
            let never = Request::slowly(HOST, "/", &["x", "y"], Duration::from_secs(600))
                .header("x", &"y".repeat(14_000));
            tasks.spawn(async move { session.send(never).await.map(|it| it.status) });
        }
    }
    let mut told = 0;
    while told < 700 {
        let first = tokio::time::timeout(Duration::from_secs(30), tasks.join_next()).await;
        let first = first.expect("most are refused").unwrap().unwrap();
        assert!(matches!(first, Ok(503) | Err(_)), "{first:?}");
        told += 1;
    }
    assert_eq!(other().await.map(|it| it.status), Ok(200));
    let most = stage.resident()[1].saturating_sub(before);
    assert!(most < 40 * MIB, "{} MiB", most / MIB);
}

#[tokio::test]
#[ignore = "it says what things cost, for the constants in options.rs"]
async fn measure() {
    let stage = Stage::new(None).await;
    assert_eq!(stage.dial(1, "http/1.1").get(HOST, "/").await.unwrap().status, 200);
    let mut before = stage.resident()[0];
    println!("base {} KiB", before / 1024);
    let mut cost = |what: &str, number: u64| {
        let now = stage.resident()[0];
        println!("{what}: {} bytes each", now.saturating_sub(before) / number);
        before = now;
    };
    let mut held: Vec<Box<dyn std::any::Any>> = Vec::new();
    for i in 0..1000 {
        held.push(Box::new(stage.dial(i, "http/1.1").connect().await.unwrap()));
    }
    cost("idle TLS, nothing sent", 1000);
    for i in 0..500 {
        let mut session = stage.dial(i, "http/1.1").session().await.unwrap();
        session.get(HOST, "/").await.unwrap();
        held.push(Box::new(session));
    }
    cost("idle TLS HTTP/1.1 after a request", 500);
    let mut sessions = Vec::new();
    for i in 0..500 {
        let dial = stage.dial(i, "h2").http2();
        let mut session = dial.session().await.unwrap();
        session.get(HOST, "/").await.unwrap();
        sessions.push(session);
    }
    cost("idle TLS HTTP/2 after a request", 500);
    for session in &sessions {
        for _ in 0..4 {
            let mut session = session.beside().unwrap();
            let never = Request::slowly(HOST, "/", &["x", "y"], Duration::from_secs(600));
            tokio::spawn(async move { session.send(never).await });
        }
    }
    tokio::time::sleep(Duration::from_secs(4)).await;
    println!("member has {}", stage.member.requests());
    cost("unfinished HTTP/2 request", 2000);
    for session in sessions.iter().take(200) {
        for _ in 0..3 {
            let mut session = session.beside().unwrap();
            let large = Request::slowly(HOST, "/", &["x", "y"], Duration::from_secs(600))
                .header("x", &"y".repeat(30_000));
            tokio::spawn(async move { session.send(large).await });
        }
    }
    tokio::time::sleep(Duration::from_secs(4)).await;
    cost("unfinished HTTP/2 request with 30 kB of headers", 600);
    drop(held);
}
