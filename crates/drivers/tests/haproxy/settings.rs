//! Tests the settings of a pool as members and clients see them, also when a setting changes while the pool serves.

use super::{ask, options, processes, program};
use crate::common::{
    self, Folder, answers, backend, eventually, exact, first, free_port, get, members, plain, put,
    settled, site,
};
use bowline_core::plan::{
    CertificateRef, HealthCheck, Listener, ListenerProtocol, Pool, Serves, SiteTls, Speaks,
    Timeouts,
};
use bowline_core::update::{
    Certificate, Change, ListenerKey, Report, ResolvedListener, ResolvedSite, Update,
};
use bowline_drivers::Driver as _;
use bowline_drivers::haproxy::{Counters, Options, drive};
use bowline_drivers::program::Driven;
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

async fn started(folder: &Path, update: &Update) -> Driven {
    let mut driver = drive(options(folder), Counters::default()).await.unwrap();
    let report = driver.apply(update).await.unwrap();
    assert_eq!(settled(&mut driver, report).await, Report::default());
    driver
}

async fn change(driver: &mut Driven, pool: Pool) {
    let update = Update { pools: vec![put(pool)], ..Update::default() };
    let report = driver.apply(&update).await.unwrap();
    let report = settled(driver, report).await;
    // Members may fail their checks at once.
    assert_eq!(Report { failing: Vec::new(), ..report }, Report::default());
}

/// A backend that answers with the way in which the connection begins: `plain`, `proxied` or `h2c`.
async fn judge() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut head = [0; 12];
                if stream.read_exact(&mut head).await.is_err() {
                    return;
                }
                let said = match &head {
                    b"\r\n\r\n\0\r\nQUIT\n" => "proxied",
                    b"PRI * HTTP/2" => "h2c",
                    _ => "plain",
                };
                let length = said.len();
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{said}"
                );
                let _ = stream.write_all(answer.as_bytes()).await;
                // Unread input would reset the connection and lose the answer.
                let _ = stream.read(&mut [0; 4096]).await;
            });
        }
    });
    at
}

#[tokio::test(flavor = "multi_thread")]
async fn a_setting_that_changes_while_a_pool_serves_is_brought_into_force() {
    let folder = Folder::new();
    let at = judge().await;
    let (port, update) = first(&[at]).await;
    let mut driver = started(folder.path(), &update).await;
    answers(port, "a.example", "/", 200, "plain").await;
    change(&mut driver, Pool { proxy_protocol: true, ..plain("p") }).await;
    answers(port, "a.example", "/", 200, "proxied").await;
    change(&mut driver, plain("p")).await;
    answers(port, "a.example", "/", 200, "plain").await;
    // The member does not speak HTTP/2.
    change(&mut driver, Pool { speaks: Speaks::H2c, ..plain("p") }).await;
    eventually("HTTP/2", async || match get(port, "a.example", "/").await? {
        (502 | 503, _) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    driver.drain(Duration::from_secs(5)).await;
}

/// A backend that answers with its name. If it is not well, it answers health checks with 500.
async fn moody(name: &'static str) -> (SocketAddr, Arc<AtomicBool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let well = Arc::new(AtomicBool::new(true));
    let feels = well.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let feels = feels.clone();
            tokio::spawn(async move {
                let mut buffer = [0; 4096];
                while let Ok(read @ 1..) = stream.read(&mut buffer).await {
                    let asked = buffer[..read].starts_with(b"GET /up ");
                    let status = if asked && !feels.load(Ordering::Relaxed) { 500 } else { 200 };
                    let length = name.len();
                    let answer =
                        format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n\r\n{name}");
                    if stream.write_all(answer.as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    (at, well)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_not_well_gets_nothing_until_it_is() {
    let folder = Folder::new();
    let ((a, _), (b, well)) = (moody("a").await, moody("b").await);
    let (port, update) = first(&[a, b]).await;
    let mut driver = started(folder.path(), &update).await;
    let seen = async |names: &[&str]| {
        eventually(&format!("answers of {names:?}"), async || {
            let mut seen = std::collections::BTreeSet::new();
            for _ in 0..6 {
                seen.insert(get(port, "a.example", "/").await?.1);
            }
            if seen.iter().eq(names.iter()) { Ok(()) } else { Err(format!("{seen:?}")) }
        })
        .await;
    };
    seen(&["a", "b"]).await;
    // The pool gets its health check while it serves.
    let check = HealthCheck { http_path: Some("/up".into()), interval_ms: 200, fall: 2, rise: 2 };
    well.store(false, Ordering::Relaxed);
    change(&mut driver, Pool { health_check: Some(check), ..plain("p") }).await;
    seen(&["a"]).await;
    well.store(true, Ordering::Relaxed);
    seen(&["a", "b"]).await;
    driver.drain(Duration::from_secs(5)).await;
}

/// A backend that returns what it gets.
async fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                let _ = tokio::io::copy(&mut from, &mut to).await;
            });
        }
    });
    at
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_silent_for_too_long_ends() {
    let folder = Folder::new();
    let (at, port) = (echo().await, free_port().await);
    let timeouts = Timeouts { backend_ms: Some(700), ..Timeouts::default() };
    let listener = Listener {
        address: [127, 0, 0, 1].into(),
        port,
        protocol: ListenerProtocol::Tcp,
        serves: Serves::Pool("p".into()),
    };
    let (key, consumer) = (ListenerKey::of(&listener), common::consumer("db"));
    let update = Update {
        complete: true,
        pools: vec![put(Pool { timeouts, ..plain("p") })],
        members: vec![members("p", &[at])],
        listeners: vec![Change::Put(key, Arc::new(ResolvedListener { consumer, listener }))],
        ..Update::default()
    };
    let mut driver = started(folder.path(), &update).await;
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let mut byte = [7];
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(1) {
        stream.write_all(&byte).await.unwrap();
        stream.read_exact(&mut byte).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let end = tokio::time::timeout(Duration::from_secs(10), stream.read(&mut byte)).await;
    assert!(matches!(end.expect("it ends"), Ok(0) | Err(_)));
    driver.drain(Duration::from_secs(5)).await;
}

/// A wrapper script that runs these lines before HAProxy.
fn wrapped(folder: &Path, lines: &str) -> PathBuf {
    let path = folder.join("program");
    let mut file = std::fs::File::create(&path).unwrap();
    writeln!(file, "#!/bin/sh\n{lines}\nexec {} \"$@\"", program().display()).unwrap();
    file.set_permissions(std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[tokio::test(flavor = "multi_thread")]
async fn each_request_is_a_line_of_json_however_long_its_path() {
    let folder = Folder::new();
    let log = folder.path().join("log");
    let lines = format!("case \"$1\" in -W) exec > {};; esac", log.display());
    let (port, update) = first(&[backend("a").await]).await;
    let program = wrapped(folder.path(), &lines);
    let options = Options { program, access_log: true, ..options(folder.path()) };
    let mut driver = drive(options, Counters::default()).await.unwrap();
    let report = driver.apply(&update).await.unwrap();
    assert_eq!(settled(&mut driver, report).await, Report::default());
    let path = format!("/{}", "x".repeat(3_000));
    answers(port, "a.example", &path, 200, "a").await;
    let line = eventually("a line", async || {
        let text = std::fs::read_to_string(&log).map_err(|it| it.to_string())?;
        text.lines().next().map(str::to_owned).ok_or(text)
    })
    .await;
    let read: serde_json::Value =
        serde_json::from_str(&line).unwrap_or_else(|why| panic!("{why}: {line}"));
    assert_eq!((&read["host"], &read["path"]), (&"a.example".into(), &path.into()));
    driver.drain(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_with_a_comma_is_no_host() {
    let folder = Folder::new();
    let (port, update) = first(&[backend("a").await]).await;
    let mut driver = started(folder.path(), &update).await;
    answers(port, "a.example", "/", 200, "a").await;
    for host in ["other.example,a.example", "a.example,other.example", "a.example, "] {
        assert_eq!(get(port, host, "/").await.map(|it| it.0), Ok(400), "{host}");
    }
    driver.drain(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_haproxy_can_be_told_depends_on_the_one_that_runs() {
    let folder = Folder::new();
    let printed = "HAProxy version 3.4.0 2026/06/01 - https://haproxy.org/";
    let program = wrapped(folder.path(), &format!("[ \"$1\" = -v ] && echo '{printed}' && exit"));
    let (port, update) = first(&[backend("a").await]).await;
    let options = Options { program, ..options(folder.path()) };
    let mut driver = drive(options, Counters::default()).await.unwrap();
    let report = driver.apply(&update).await.unwrap();
    assert_eq!(settled(&mut driver, report).await, Report::default());
    answers(port, "a.example", "/", 200, "a").await;
    eventually("files for the HAProxy that runs", async || {
        let file = folder.path().join("current/haproxy.cfg");
        let text = std::fs::read_to_string(file).map_err(|it| it.to_string())?;
        if text.contains("from kind:") == (super::version() >= (3, 4)) { Ok(()) } else { Err(text) }
    })
    .await;
    let more = Update {
        pools: vec![common::pool("q")],
        members: vec![members("q", &[backend("b").await])],
        sites: vec![site(exact("b.example"), "/", "q", "b")],
        ..Update::default()
    };
    let report = driver.apply(&more).await.unwrap();
    assert_eq!(settled(&mut driver, report).await, Report::default());
    answers(port, "b.example", "/", 200, "b").await;
    driver.drain(Duration::from_secs(5)).await;
}

/// Adds a host with a certificate of its own; the number makes its hash.
fn secured(host: &str, number: u32, update: &mut Update) {
    let hash: Arc<str> = format!("{number:064x}").into();
    let issued = rcgen::generate_simple_self_signed([host.to_owned()]).unwrap();
    let (chain, key) = (issued.cert.pem().into(), issued.signing_key.serialize_pem().into());
    update.certificates.push(Change::Put(hash.clone(), Arc::new(Certificate { chain, key })));
    let tls = SiteTls { certificate: Some(CertificateRef { hash }), redirect: false };
    let Change::Put(key, open) = site(exact(host), "/", "p", host) else { panic!("a site") };
    update
        .sites
        .push(Change::Put(key, Arc::new(ResolvedSite { tls: Some(tls), ..(*open).clone() })));
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_change_again_and_again_without_a_reload() {
    let folder = Folder::new();
    let (port, mut update) = first(&[backend("a").await]).await;
    let listener = Listener {
        address: [127, 0, 0, 1].into(),
        port: free_port().await,
        protocol: ListenerProtocol::Https,
        serves: Serves::Entry("web".into()),
    };
    let (key, consumer) = (ListenerKey::of(&listener), common::consumer("edge"));
    update.listeners.push(Change::Put(key, Arc::new(ResolvedListener { consumer, listener })));
    for number in 0..3 {
        secured(&format!("h{number}.example"), number, &mut update);
    }
    let mut driver = started(folder.path(), &update).await;
    answers(port, "a.example", "/", 200, "a").await;
    let before = processes(folder.path()).await;
    for number in 3..12 {
        let mut renewed = Update::default();
        renewed.certificates.push(Change::Remove(format!("{:064x}", number - 3).into()));
        secured(&format!("h{}.example", number % 3), number, &mut renewed);
        let report = driver.apply(&renewed).await.unwrap();
        assert_eq!(settled(&mut driver, report).await, Report::default());
    }
    let shown =
        ask(&folder.path().join("admin.sock"), "show ssl crt-list certs/web.crt-list").await;
    let shown = shown.unwrap();
    let mut lines: Vec<_> = shown.lines().filter(|line| line.starts_with("certs/")).collect();
    lines.sort_unstable();
    let line = |number: u32| format!("certs/{number:064x}.pem h{}.example", number % 3);
    assert_eq!(lines, [9, 10, 11].map(line));
    assert_eq!(processes(folder.path()).await, before);
    driver.drain(Duration::from_secs(5)).await;
}
