//! What the benchmarks of drivers have in common: so many Services, a client that sees when a change is live, and
//! what a process takes.

use bowline_core::key::{ConsumerKind, ConsumerRef};
use bowline_core::plan::{
    Action, Algorithm, Backends, Host, Listener, ListenerProtocol, PathKind, PathMatch, Pool, Rule,
    Serves, ServicePortRef, Speaks, Timeouts, Transport, WeightedPool,
};
use bowline_core::update::{
    Change, ListenerKey, Member, MemberChange, MemberState, ResolvedListener, ResolvedSite,
    SiteKey, Update,
};
use bowline_drivers::Driver as _;
use bowline_drivers::program::Driven;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// How many Services there are.
pub(crate) const SERVICES: [usize; 2] = [1_000, 5_000];
/// How many members each has.
pub(crate) const MEMBERS: u8 = 10;

/// What an argument asks for: another number of Services, or nothing of this program.
pub(crate) fn asked(program: &str) -> Vec<usize> {
    let only = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let number = |only: &str| only.strip_prefix(program)?.strip_prefix('-')?.parse().ok();
    match only {
        Some(only) if number(&only).is_some() => number(&only).into_iter().collect(),
        Some(only) if !program.contains(&only) => Vec::new(),
        _ => SERVICES.to_vec(),
    }
}

/// Writes the files that are not as they were; how many bytes all have.
pub(crate) fn write(
    folder: &Path,
    files: BTreeMap<String, Vec<u8>>,
    before: &mut BTreeMap<String, Vec<u8>>,
) -> f64 {
    for (name, bytes) in files.iter().filter(|(name, bytes)| before.get(*name) != Some(*bytes)) {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, bytes).expect("written");
    }
    *before = files;
    before.values().map(Vec::len).sum::<usize>() as f64
}

/// Brings an update into force.
pub(crate) async fn apply(driver: &mut Driven, update: &Update) {
    let mut report = driver.apply(update).await.expect("applied");
    while report.waiting {
        report = driver.changed().await;
    }
    assert_eq!(report.refused, []);
}

/// Asks until the host of the first Service is answered by this one.
pub(crate) async fn answered_by(port: u16, name: &str) {
    let until = Instant::now() + Duration::from_secs(120);
    while get(port).await.ok().as_deref() != Some(name) {
        assert!(Instant::now() < until, "{name} does not answer");
        tokio::time::sleep(Duration::from_micros(500)).await;
    }
}

async fn get(port: u16) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let request = "GET / HTTP/1.1\r\nHost: s0.example\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer.split_once("\r\n\r\n").map_or("", |(_, body)| body).to_owned())
}

/// Answers every request with its name.
pub(crate) async fn backend(name: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let at = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut buffer = [0; 4096];
                while stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {
                    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{name}");
                    if stream.write_all(answer.as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    at
}

pub(crate) async fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    listener.local_addr().expect("an address").port()
}

/// Megabytes that a process has in memory.
pub(crate) fn memory(pid: &str) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a size");
    line.split_whitespace().next().and_then(|it| it.parse::<f64>().ok()).expect("kB") / 1e3
}

pub(crate) fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

pub(crate) fn shown(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
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
        update.sites.push(site(&format!("s{i}.example"), &name));
    }
    let listener = Listener {
        address: [127, 0, 0, 1].into(),
        port,
        protocol: ListenerProtocol::Http,
        serves: Serves::Entry("web".into()),
    };
    let resolved = ResolvedListener { consumer: consumer(), listener: listener.clone() };
    update.listeners.push(Change::Put(ListenerKey::of(&listener), Arc::new(resolved)));
    update
}

fn consumer() -> ConsumerRef {
    ConsumerRef {
        kind: ConsumerKind::Ingress,
        namespace: "shop".into(),
        name: "web".into(),
        uid: "uid".into(),
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
        name: name.into(),
        service,
        backends: Backends::Pods,
        algorithm: Algorithm::RoundRobin,
        persistence: None,
        snat: true,
        proxy_protocol: false,
        speaks: Speaks::Http1,
        source_ranges: Vec::new(),
        timeouts: Timeouts { backend_ms, ..Timeouts::default() },
        health_check: None,
        limits: None,
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

pub(crate) fn site(host: &str, to: &str) -> Change<SiteKey, Arc<ResolvedSite>> {
    let rule = Rule {
        path: PathMatch { kind: PathKind::Prefix, value: "/".into() },
        method: None,
        headers: Vec::new(),
        query: Vec::new(),
        action: Action::Forward(vec![WeightedPool { pool: to.into(), weight: 1 }]),
    };
    let site = ResolvedSite { owner: "shop".into(), tls: None, rules: vec![(rule, consumer())] };
    let host = Host::Exact(host.into());
    Change::Put(SiteKey { entry: "web".into(), host }, Arc::new(site))
}
