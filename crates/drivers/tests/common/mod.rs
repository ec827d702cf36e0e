//! Shared by the tests of programs' drivers: members that answer with their name, plans, requests.
#![allow(dead_code, reason = "each test uses its part")]

pub(crate) mod folder;

pub(crate) use folder::{Folder, running};

use bowline_core::key::{ConsumerKind, ConsumerRef};
use bowline_core::plan::{
    Action, Host, Listener, ListenerProtocol, PathKind, PathMatch, Pool, Rule, Serves,
    ServicePortRef, Transport, WeightedPool,
};
use bowline_core::update::{
    Change, ListenerKey, Member, MemberChange, MemberState, Report, ResolvedListener, ResolvedSite,
    SiteKey, Update,
};
use bowline_drivers::Driver;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// A backend that answers every request with its name.
pub(crate) async fn backend(name: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut head = Vec::new();
                while stream.read_buf(&mut head).await.is_ok_and(|read| read > 0) {
                    if !head.ends_with(b"\r\n\r\n") {
                        continue;
                    }
                    head.clear();
                    let length = name.len();
                    let answer =
                        format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{name}");
                    if stream.write_all(answer.as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    at
}

/// A backend that answers every request with its name. It leaves requests for `/slow` unanswered and counts them.
pub(crate) struct Slow {
    pub(crate) at: SocketAddr,
    asked: Arc<AtomicUsize>,
}

impl Slow {
    /// How many requests for `/slow` it got.
    pub(crate) fn slow(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

pub(crate) async fn slow(name: &'static str) -> Slow {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let counted = counted.clone();
            tokio::spawn(async move {
                let mut buffer = [0; 4096];
                while let Ok(read @ 1..) = stream.read(&mut buffer).await {
                    if buffer[..read].starts_with(b"GET /slow ") {
                        counted.fetch_add(1, Ordering::Relaxed);
                        continue;
                    }
                    let length = name.len();
                    let answer =
                        format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{name}");
                    if stream.write_all(answer.as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    Slow { at, asked }
}

/// A free port, outside the range from which the kernel takes ports for port 0.
pub(crate) async fn free_port() -> u16 {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    loop {
        // Test processes that run at once start at different ports.
        let next = std::process::id() as usize * 101 + NEXT.fetch_add(1, Ordering::Relaxed);
        let port = u16::try_from(10_000 + next % 20_000).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).await.is_ok() {
            return port;
        }
    }
}

/// Status and body of an answer.
pub(crate) async fn get(port: u16, host: &str, path: &str) -> Result<(u16, String), String> {
    let answer = ask(port, host, path, "").await?;
    let status = answer.split(' ').nth(1).and_then(|it| it.parse().ok()).ok_or("no status")?;
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    Ok((status, body.to_owned()))
}

/// The whole answer to a request with these additional lines.
pub(crate) async fn ask(port: u16, host: &str, path: &str, lines: &str) -> Result<String, String> {
    let asking = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{lines}Connection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    let asking = tokio::time::timeout(Duration::from_secs(10), asking);
    asking.await.map_err(|_| "no answer".to_owned())?.map_err(|error| error.to_string())
}

/// Sends requests without a pause while something else happens. Returns the number of good answers, and the failures.
pub(crate) async fn meanwhile<T>(
    port: u16,
    host: &str,
    path: &str,
    something: impl Future<Output = T>,
) -> (T, usize, Vec<String>) {
    let over = AtomicBool::new(false);
    let (mut good, mut bad) = (0, Vec::new());
    let client = async {
        while !over.load(Ordering::Relaxed) {
            match get(port, host, path).await {
                Ok((200, _)) => good += 1,
                other => bad.push(format!("{other:?}")),
            }
        }
    };
    let happens = async {
        let value = something.await;
        over.store(true, Ordering::Relaxed);
        value
    };
    let (value, ()) = tokio::join!(happens, client);
    bad.dedup();
    (value, good, bad)
}

pub(crate) async fn eventually<T>(
    what: &str,
    mut probe: impl AsyncFnMut() -> Result<T, String>,
) -> T {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        match probe().await {
            Ok(value) => return value,
            Err(why) if Instant::now() >= until => panic!("{what}: {why}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

pub(crate) async fn answers(port: u16, host: &str, path: &str, status: u16, body: &str) {
    eventually(&format!("{host}{path} is answered {status} {body}"), async || {
        let found = get(port, host, path).await?;
        if found == (status, body.to_owned()) { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
}

pub(crate) fn consumer(name: &str) -> ConsumerRef {
    ConsumerRef {
        kind: ConsumerKind::Ingress,
        namespace: "shop".into(),
        name: name.into(),
        uid: name.into(),
    }
}

pub(crate) fn pool(name: &str) -> Change<Arc<str>, Arc<Pool>> {
    put(plain(name))
}

pub(crate) fn put(pool: Pool) -> Change<Arc<str>, Arc<Pool>> {
    Change::Put(pool.name.clone(), Arc::new(pool))
}

pub(crate) fn plain(name: &str) -> Pool {
    let service = ServicePortRef {
        namespace: "shop".into(),
        name: "web".into(),
        port: "".into(),
        protocol: Transport::Tcp,
    };
    Pool::new(name, service)
}

pub(crate) fn members(pool: &str, at: &[SocketAddr]) -> MemberChange {
    let mut members: Vec<_> = at
        .iter()
        .map(|address| Member { address: *address, weight: 1, state: MemberState::Ready })
        .collect();
    members.sort();
    MemberChange {
        pool: pool.into(),
        members: members.into(),
        added: Vec::new(),
        changed: Vec::new(),
        removed: Vec::new(),
    }
}

pub(crate) fn site(
    host: Host,
    path: &str,
    to: &str,
    by: &str,
) -> Change<SiteKey, Arc<ResolvedSite>> {
    site_at(host, PathKind::Prefix, path, to, by)
}

pub(crate) fn site_at(
    host: Host,
    kind: PathKind,
    path: &str,
    to: &str,
    by: &str,
) -> Change<SiteKey, Arc<ResolvedSite>> {
    let rule = Rule {
        path: PathMatch { kind, value: path.into() },
        method: None,
        headers: Vec::new(),
        query: Vec::new(),
        action: Action::Forward(vec![WeightedPool { pool: to.into(), weight: 1 }]),
    };
    let site = ResolvedSite { owner: "shop".into(), tls: None, rules: vec![(rule, consumer(by))] };
    Change::Put(SiteKey { entry: "web".into(), host }, Arc::new(site))
}

pub(crate) fn exact(host: &str) -> Host {
    Host::Exact(host.into())
}

pub(crate) fn listener(at: SocketAddr) -> Change<ListenerKey, Arc<ResolvedListener>> {
    let listener = Listener {
        address: at.ip(),
        port: at.port(),
        protocol: ListenerProtocol::Http,
        serves: Serves::Entry("web".into()),
    };
    let consumer = consumer("edge");
    Change::Put(ListenerKey::of(&listener), Arc::new(ResolvedListener { consumer, listener }))
}

/// An update with one host and one pool with these members.
pub(crate) async fn first(at: &[SocketAddr]) -> (u16, Update) {
    let port = free_port().await;
    let update = Update {
        complete: true,
        pools: vec![pool("p")],
        members: vec![members("p", at)],
        sites: vec![site(exact("a.example"), "/", "p", "a")],
        listeners: vec![listener(([127, 0, 0, 1], port).into())],
        ..Update::default()
    };
    (port, update)
}

pub(crate) async fn settled(driver: &mut impl Driver, mut report: Report) -> Report {
    while report.waiting {
        let news = tokio::time::timeout(Duration::from_secs(30), driver.changed()).await;
        report = news.expect("news in time").expect("a driver");
    }
    report
}
