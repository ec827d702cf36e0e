//! The driver against a real HAProxy on loopback: updates in, requests through it, and its process list.
//! What the whole agent does with it is proven in the workspace's `tests/haproxy`.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

use bowline_core::key::{ConsumerKind, ConsumerRef};
use bowline_core::plan::{
    Action, Algorithm, Backends, Host, Listener, ListenerProtocol, PathKind, PathMatch, Pool, Rule,
    Serves, ServicePortRef, Speaks, Timeouts, Transport, WeightedPool,
};
use bowline_core::update::{
    Change, ListenerKey, Member, MemberChange, MemberState, Report, ResolvedListener, ResolvedSite,
    SiteKey, Update,
};
use bowline_drivers::Driver as _;
use bowline_drivers::haproxy::{Counters, Haproxy, Options};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};

fn program() -> PathBuf {
    let usual = Path::new("/usr/sbin/haproxy");
    if usual.exists() { usual.into() } else { "haproxy".into() }
}

fn options(folder: &Path) -> Options {
    Options {
        program: program(),
        exec: true,
        folder: folder.to_owned(),
        admin_socket: folder.join("admin.sock"),
        master_socket: folder.join("master.sock"),
        min_reload_interval: Duration::from_millis(500),
        compare_every: Duration::from_secs(1),
        access_log: false,
    }
}

/// Answers every request with its name.
async fn backend(name: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut buffer = [0; 4096];
                while stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {
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

async fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port()
}

/// Status and body of an answer.
async fn get(port: u16, host: &str, path: &str) -> Result<(u16, String), String> {
    let asking = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    let answer = asking.await.map_err(|error| error.to_string())?;
    let status = answer.split(' ').nth(1).and_then(|it| it.parse().ok()).ok_or("no status")?;
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    Ok((status, body.to_owned()))
}

async fn eventually<T>(what: &str, mut probe: impl AsyncFnMut() -> Result<T, String>) -> T {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        match probe().await {
            Ok(value) => return value,
            Err(why) if Instant::now() >= until => panic!("{what}: {why}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

async fn answers(port: u16, host: &str, path: &str, status: u16, body: &str) {
    eventually(&format!("{host}{path} is answered {status} {body}"), async || {
        let found = get(port, host, path).await?;
        if found == (status, body.to_owned()) { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
}

async fn ask(socket: &Path, message: &str) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(socket).await?;
    stream.write_all(format!("{message}\n").as_bytes()).await?;
    stream.shutdown().await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// Master and workers.
async fn processes(folder: &Path) -> (u32, Vec<u32>) {
    // A master that reloads is away for a moment.
    let answer = eventually("a master", async || {
        ask(&folder.join("master.sock"), "show proc").await.map_err(|it| it.to_string())
    })
    .await;
    let of = |kind: &str| -> Vec<u32> {
        let lines = answer.lines().map(|it| it.split_whitespace().collect::<Vec<_>>());
        lines.filter(|it| it.get(1) == Some(&kind)).filter_map(|it| it[0].parse().ok()).collect()
    };
    (of("master")[0], of("worker"))
}

fn consumer(name: &str) -> ConsumerRef {
    ConsumerRef {
        kind: ConsumerKind::Ingress,
        namespace: "shop".into(),
        name: name.into(),
        uid: name.into(),
    }
}

fn pool(name: &str) -> Change<Arc<str>, Arc<Pool>> {
    let service = ServicePortRef {
        namespace: "shop".into(),
        name: "web".into(),
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
        timeouts: Timeouts::default(),
        health_check: None,
    };
    Change::Put(name.into(), Arc::new(pool))
}

fn members(pool: &str, at: &[SocketAddr]) -> MemberChange {
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

fn site(host: Host, path: &str, to: &str, by: &str) -> Change<SiteKey, Arc<ResolvedSite>> {
    let rule = Rule {
        path: PathMatch { kind: PathKind::Prefix, value: path.into() },
        method: None,
        headers: Vec::new(),
        query: Vec::new(),
        action: Action::Forward(vec![WeightedPool { pool: to.into(), weight: 1 }]),
    };
    let site = ResolvedSite { owner: "shop".into(), tls: None, rules: vec![(rule, consumer(by))] };
    Change::Put(SiteKey { entry: "web".into(), host }, Arc::new(site))
}

fn exact(host: &str) -> Host {
    Host::Exact(host.into())
}

fn listener(at: SocketAddr) -> Change<ListenerKey, Arc<ResolvedListener>> {
    let listener = Listener {
        address: at.ip(),
        port: at.port(),
        protocol: ListenerProtocol::Http,
        serves: Serves::Entry("web".into()),
    };
    let consumer = consumer("edge");
    Change::Put(ListenerKey::of(&listener), Arc::new(ResolvedListener { consumer, listener }))
}

/// One host, one pool, these members.
async fn first(at: &[SocketAddr]) -> (u16, Update) {
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

async fn settled(driver: &mut Haproxy, mut report: Report) -> Report {
    while report.waiting {
        report =
            tokio::time::timeout(Duration::from_secs(30), driver.changed()).await.expect("news");
    }
    report
}

#[tokio::test(flavor = "multi_thread")]
async fn members_and_hosts_change_without_a_reload_and_pools_with_one() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (backend("a").await, backend("b").await);
    let (port, update) = first(&[a]).await;
    let mut driver = Haproxy::new(options(folder.path()), Counters::default()).await.unwrap();
    let report = driver.apply(&update).await.unwrap();
    assert_eq!(settled(&mut driver, report).await, Report::default());
    answers(port, "a.example", "/x", 200, "a").await;
    answers(port, "b.example", "/x", 404, "No rule matches this host and path.").await;
    let before = processes(folder.path()).await;

    let swap = Update { members: vec![members("p", &[b])], ..Update::default() };
    assert_eq!(driver.apply(&swap).await.unwrap(), Report::default());
    for _ in 0..10 {
        assert_eq!(get(port, "a.example", "/").await, Ok((200, "b".to_owned())));
    }
    let host = Update {
        sites: vec![site(exact("b.example"), "/odd;'$%25", "p", "b")],
        ..Update::default()
    };
    assert_eq!(driver.apply(&host).await.unwrap(), Report::default());
    answers(port, "b.example", "/odd;'$%25/y", 200, "b").await;
    answers(port, "b.example", "/od", 404, "No rule matches this host and path.").await;
    assert_eq!(processes(folder.path()).await, before);

    let more = Update {
        pools: vec![pool("q")],
        members: vec![members("q", &[a])],
        sites: vec![site(exact("c.example"), "/", "q", "c")],
        ..Update::default()
    };
    let report = driver.apply(&more).await.unwrap();
    assert_eq!(settled(&mut driver, report).await, Report::default());
    answers(port, "c.example", "/", 200, "a").await;
    answers(port, "b.example", "/odd;'$%25", 200, "b").await;
    let after = processes(folder.path()).await;
    assert_eq!(after.0, before.0, "one master");
    assert_ne!(after.1.first(), before.1.first(), "another worker");
    driver.drain(Duration::from_secs(5)).await;
    ask(&folder.path().join("master.sock"), "show proc").await.expect_err("it has ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_haproxy_refuses_is_found_and_told_and_the_rest_goes_live() {
    let folder = tempfile::tempdir().unwrap();
    let a = backend("a").await;
    let (port, mut update) = first(&[a]).await;
    for i in 0..20 {
        update.sites.push(site(exact(&format!("h{i}.example")), "/", "p", &format!("h{i}")));
    }
    // An expression of Rust's that is none of PCRE's.
    update.sites.push(site(Host::Regex(r"\x{1F600}".into()), "/", "p", "bad"));
    let mut driver = Haproxy::new(options(folder.path()), Counters::default()).await.unwrap();
    let report = driver.apply(&update).await.unwrap();
    let report = settled(&mut driver, report).await;
    let told: Vec<_> = report.refused.iter().map(|it| &it.consumer).collect();
    assert_eq!(told, [&consumer("bad")], "{report:?}");
    answers(port, "h19.example", "/", 200, "a").await;
    driver.drain(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_cannot_be_bound_is_told_and_served_when_it_can() {
    let folder = tempfile::tempdir().unwrap();
    let a = backend("a").await;
    let (port, mut update) = first(&[a]).await;
    let held = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let taken = held.local_addr().unwrap();
    update.listeners.push(listener(taken));
    let mut driver = Haproxy::new(options(folder.path()), Counters::default()).await.unwrap();
    let report = driver.apply(&update).await.unwrap();
    let report = settled(&mut driver, report).await;
    assert_eq!(report.refused.len(), 1, "{report:?}");
    answers(port, "a.example", "/", 200, "a").await;
    drop(held);
    answers(taken.port(), "a.example", "/", 200, "a").await;
    driver.drain(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_else_changed_is_repaired_and_a_dead_haproxy_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let a = backend("a").await;
    let (port, update) = first(&[a]).await;
    let mut driver = Haproxy::new(options(folder.path()), Counters::default()).await.unwrap();
    let report = driver.apply(&update).await.unwrap();
    settled(&mut driver, report).await;
    answers(port, "a.example", "/", 200, "a").await;
    let admin = folder.path().join("admin.sock");
    ask(&admin, "clear map maps/web.hosts.map").await.unwrap();
    answers(port, "a.example", "/", 200, "a").await;
    ask(&admin, &format!("set server p/{a} state maint")).await.unwrap();
    answers(port, "a.example", "/", 200, "a").await;

    let (master, workers) = processes(folder.path()).await;
    for pid in workers.into_iter().chain([master]) {
        let killed = std::process::Command::new("kill").args(["-KILL", &pid.to_string()]).status();
        // A master ends by itself when its worker does.
        killed.unwrap();
    }
    answers(port, "a.example", "/", 200, "a").await;
    assert_ne!(processes(folder.path()).await.0, master);

    std::fs::remove_file(&admin).unwrap();
    let b = backend("b").await;
    let swap = Update { members: vec![members("p", &[b])], ..Update::default() };
    // While the socket is away an update may fail: then everything comes again, as the agent does it.
    if driver.apply(&swap).await.is_err() {
        let (_, mut again) = first(&[b]).await;
        again.listeners.clone_from(&update.listeners);
        eventually("the update", async || driver.apply(&again).await.map_err(|it| it.to_string()))
            .await;
    }
    answers(port, "a.example", "/", 200, "b").await;
    let swap = Update { members: vec![members("p", &[a])], ..Update::default() };
    eventually("commands", async || driver.apply(&swap).await.map_err(|it| it.to_string())).await;
    answers(port, "a.example", "/", 200, "a").await;
    driver.drain(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_haproxy_that_somebody_else_runs_is_driven_and_left_running() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (backend("a").await, backend("b").await);
    let (port, update) = first(&[a]).await;
    let options = Options { exec: false, ..options(folder.path()) };
    let mut driver = Haproxy::new(options, Counters::default()).await.unwrap();
    let error = driver.apply(&update).await.unwrap_err();
    assert!(error.retry, "{error}");

    // As the error says: with the files that were just written.
    let mut haproxy = tokio::process::Command::new(program())
        .args(["-W", "-S", &format!("{},level,admin", folder.path().join("master.sock").display())])
        .arg("-f")
        .arg(folder.path().join("current/haproxy.cfg"))
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    eventually("the update", async || driver.apply(&update).await.map_err(|it| it.to_string()))
        .await;
    answers(port, "a.example", "/", 200, "a").await;
    let before = processes(folder.path()).await;
    let swap = Update { members: vec![members("p", &[b])], ..Update::default() };
    eventually("commands", async || driver.apply(&swap).await.map_err(|it| it.to_string())).await;
    answers(port, "a.example", "/", 200, "b").await;
    assert_eq!(processes(folder.path()).await, before, "nothing needed a reload");
    driver.drain(Duration::from_secs(5)).await;
    assert_eq!(get(port, "a.example", "/").await, Ok((200, "b".to_owned())));
    for pid in before.1 {
        // The master ends with its worker.
        std::process::Command::new("kill").arg(pid.to_string()).status().unwrap();
    }
    haproxy.wait().await.unwrap();
}
