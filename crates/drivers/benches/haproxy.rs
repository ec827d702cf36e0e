//! `make bench`: how soon HAProxy has what changed, at 1,000 and 5,000 Services with ten members each: by the
//! driver's commands, and, in the same run, by a full render and a reload for every change, as a template and a
//! notifier do it. Asserts nothing about time.
//! `cargo bench -p bowline-drivers --bench haproxy -- haproxy-50` measures another number of Services.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a benchmark fails by panicking"
)]

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
use bowline_drivers::desired::Desired;
use bowline_drivers::haproxy::render::{Settings, render};
use bowline_drivers::haproxy::{Counters, Options, Version, drive};
use bowline_drivers::program::{Driven, Excluded};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};

const SERVICES: [usize; 2] = [1_000, 5_000];
const MEMBERS: u8 = 10;
/// Changes that are measured, by commands and by reloads.
const CHANGES: usize = 50;
const RELOADS: usize = 5;

#[tokio::main]
async fn main() {
    let only = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let asked = only.as_deref().and_then(|only| only.strip_prefix("haproxy-")?.parse().ok());
    match (asked, only) {
        (Some(services), _) => measure(services).await,
        (None, Some(only)) if !"haproxy".contains(&only) => {}
        _ => {
            for services in SERVICES {
                measure(services.min(possible(services))).await;
            }
        }
    }
}

/// HAProxy sets a file aside for each member: as many Services as the limit allows.
fn possible(services: usize) -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").expect("limits");
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let hard = line.and_then(|line| line.split_whitespace().nth(1));
    let hard: usize = hard.and_then(|it| it.parse().ok()).unwrap_or(usize::MAX);
    let possible = hard.saturating_sub(2_000) / usize::from(MEMBERS);
    if possible < services {
        println!("haproxy-{services}   needs more files than {hard} (ulimit -Hn): fewer Services");
    }
    possible
}

async fn measure(services: usize) {
    let (a, b) = (backend("a").await, backend("b").await);
    // They must be there: HAProxy would be busy with looking for them.
    let mut others = Vec::new();
    for _ in 0..MEMBERS {
        others.push(backend("other").await);
    }
    let name = format!("haproxy-{services}");
    println!("{name}   {services} Services with {MEMBERS} members each, {}", version());
    let reloaded = by_reloads(&name, services, [a, b], &others).await;
    let told = by_commands(&name, services, [a, b], &others).await;
    println!(
        "{name}   change to live: {} by commands, {} by render and reload: {:.0} × as long",
        shown(told),
        shown(reloaded),
        reloaded.as_secs_f64() / told.as_secs_f64()
    );
}

/// The driver, with its commands. The median time from a change until a client meets it.
async fn by_commands(
    name: &str,
    services: usize,
    [a, b]: [SocketAddr; 2],
    others: &[SocketAddr],
) -> Duration {
    let folder = tempfile::tempdir().expect("a folder");
    let options = Options {
        program: program(),
        exec: true,
        folder: folder.path().to_owned(),
        admin_socket: folder.path().join("admin.sock"),
        master_socket: folder.path().join("master.sock"),
        min_reload_interval: Duration::ZERO,
        compare_every: Duration::from_secs(3600),
        access_log: false,
    };
    let port = free_port().await;
    let before = memory("self");
    let mut driver = drive(options, Counters::default()).await.expect("a driver");
    let begun = Instant::now();
    apply(&mut driver, &everything(services, port, a, others)).await;
    answered_by(port, "a").await;
    println!("{name}   from nothing to live: {}", shown(begun.elapsed()));

    let mut times = Vec::new();
    for round in 0..CHANGES {
        let (at, by) = if round.is_multiple_of(2) { (b, "b") } else { (a, "a") };
        let begun = Instant::now();
        apply(&mut driver, &Update { members: vec![members("p0", &[at])], ..Update::default() })
            .await;
        answered_by(port, by).await;
        times.push(begun.elapsed());
    }
    let told = median(&mut times);
    println!("{name}   longest change by commands: {}", shown(*times.last().expect("some")));
    times.clear();
    for round in 0..RELOADS {
        let begun = Instant::now();
        let pool = pool(&format!("new{round}"), Some(1000));
        let site = site(&format!("new{round}.example"), &format!("new{round}"));
        let update = Update { pools: vec![pool], sites: vec![site], ..Update::default() };
        apply(&mut driver, &update).await;
        times.push(begun.elapsed());
    }
    println!("{name}   a new pool, checked and reloaded: {}", shown(median(&mut times)));
    let worker = worker(&folder.path().join("master.sock")).await;
    println!(
        "{name}   memory: {:.0} MB for the driver, {:.0} MB for HAProxy",
        memory("self") - before,
        memory(&worker.to_string())
    );
    driver.drain(Duration::from_secs(10)).await;
    told
}

/// Everything rendered, and HAProxy reloaded, for each change; without a check, which would take as long again.
async fn by_reloads(
    name: &str,
    services: usize,
    [a, b]: [SocketAddr; 2],
    others: &[SocketAddr],
) -> Duration {
    let folder = tempfile::tempdir().expect("a folder");
    let port = free_port().await;
    let mut desired = Desired::default();
    desired.apply(&everything(services, port, a, others));
    let mut written = BTreeMap::new();
    let begun = Instant::now();
    let size = write(folder.path(), &desired, &mut written);
    println!("{name}   render and write: {}, {:.1} MB", shown(begun.elapsed()), size / 1e6);
    let master = folder.path().join("master.sock");
    let mut process = start(folder.path(), &master);
    answered_by(port, "a").await;
    let (mut times, mut rendered) = (Vec::new(), Vec::new());
    for round in 0..RELOADS {
        let (at, by) = if round.is_multiple_of(2) { (b, "b") } else { (a, "a") };
        let begun = Instant::now();
        desired.apply(&Update { members: vec![members("p0", &[at])], ..Update::default() });
        write(folder.path(), &desired, &mut written);
        rendered.push(begun.elapsed());
        ask(&master, "reload").await;
        answered_by(port, by).await;
        times.push(begun.elapsed());
    }
    println!("{name}   of which render and write again: {}", shown(median(&mut rendered)));
    let pid = process.id().to_string();
    Command::new("kill").args(["-TERM", &pid]).status().expect("kill");
    process.wait().expect("ended");
    median(&mut times)
}

/// Writes the files that are not as they were; how large all are.
fn write(folder: &Path, desired: &Desired, before: &mut BTreeMap<String, Vec<u8>>) -> f64 {
    let settings = Settings {
        admin_socket: folder.join("admin.sock"),
        peers_socket: folder.join("peers.sock"),
        access_log: false,
        version: Version(2, 6),
    };
    let wanted = render(desired, &Excluded::default(), &settings).expect("settings").wanted;
    let files = wanted.files();
    for (name, bytes) in files.iter().filter(|(name, bytes)| before.get(*name) != Some(*bytes)) {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, bytes).expect("written");
    }
    *before = files;
    before.values().map(Vec::len).sum::<usize>() as f64
}

fn start(folder: &Path, master: &Path) -> Child {
    let socket = format!("{},level,admin", master.display());
    let mut command = Command::new(program());
    command.args(["-W", "-S", &socket, "-f"]).arg(folder.join("haproxy.cfg"));
    command.spawn().expect("start HAProxy; apt-get install -y haproxy")
}

/// Brings an update into force.
async fn apply(driver: &mut Driven, update: &Update) {
    let mut report = driver.apply(update).await.expect("applied");
    while report.waiting {
        report = driver.changed().await;
    }
    assert_eq!(report.refused, []);
}

/// Asks until the host of the first Service is answered by this one.
async fn answered_by(port: u16, name: &str) {
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
async fn backend(name: &'static str) -> SocketAddr {
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

async fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    listener.local_addr().expect("an address").port()
}

async fn ask(socket: &Path, message: &str) -> String {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let asking = async {
            let mut stream = UnixStream::connect(socket).await?;
            stream.write_all(format!("{message}\n").as_bytes()).await?;
            stream.shutdown().await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            std::io::Result::Ok(answer)
        };
        match asking.await {
            Ok(answer) => return answer,
            Err(why) => assert!(Instant::now() < until, "{}: {why}", socket.display()),
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// The pid of HAProxy's worker.
async fn worker(master: &Path) -> u32 {
    let answer = ask(master, "show proc").await;
    let lines = answer.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let mut workers = lines.filter(|line| line.get(1) == Some(&"worker"));
    workers.next().and_then(|line| line[0].parse().ok()).expect("a worker")
}

/// Megabytes that a process has in memory.
fn memory(pid: &str) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a size");
    line.split_whitespace().next().and_then(|it| it.parse::<f64>().ok()).expect("kB") / 1e3
}

fn program() -> PathBuf {
    let usual = Path::new("/usr/sbin/haproxy");
    if usual.exists() { usual.into() } else { "haproxy".into() }
}

fn version() -> String {
    let output = Command::new(program()).arg("-v").output().expect("HAProxy");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split(" - ").next().unwrap_or_default().trim().to_owned()
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn shown(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

/// So many Services with a host each; the first is served by this one, all others by those.
fn everything(services: usize, port: u16, first: SocketAddr, others: &[SocketAddr]) -> Update {
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

fn pool(name: &str, backend_ms: Option<u32>) -> Change<Arc<str>, Arc<Pool>> {
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

fn members(pool: &str, at: &[SocketAddr]) -> MemberChange {
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

fn site(host: &str, to: &str) -> Change<SiteKey, Arc<ResolvedSite>> {
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
