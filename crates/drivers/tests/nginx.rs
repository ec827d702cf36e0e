//! The driver against a real nginx on loopback: updates in, requests through it, and its processes. What
//! the whole agent does with it is proven in the workspace's `tests/nginx`.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod common;

use bowline_core::outcome::Reason;
use bowline_core::plan::{CertificateRef, Pool, Serves, SiteTls, Timeouts};
use bowline_core::update::{Certificate, Change, Report, ResolvedSite, Update};
use bowline_drivers::Driver as _;
use bowline_drivers::nginx::{Counters, Options, drive};
use bowline_drivers::program::Driven;
use common::{
    answers, ask, backend, consumer, eventually, exact, first, get, listener, members, plain, pool,
    put, settled, site, slow,
};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UnixStream};

fn program() -> PathBuf {
    let usual = Path::new("/usr/sbin/nginx");
    if usual.exists() { usual.into() } else { "nginx".into() }
}

fn options(folder: &Path) -> Options {
    Options {
        program: program(),
        exec: true,
        folder: folder.to_owned(),
        min_reload_interval: Duration::from_millis(300),
        shutdown_timeout: Duration::from_secs(60),
        access_log: false,
    }
}

/// The pid of a process of nginx that takes connections.
async fn worker(folder: &Path) -> Result<u32, String> {
    let asking = async {
        let mut stream = UnixStream::connect(folder.join("status.sock")).await?;
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    let answer = asking.await.map_err(|error| error.to_string())?;
    answer.trim_end().rsplit(' ').next().and_then(|it| it.parse().ok()).ok_or(answer)
}

async fn master(folder: &Path) -> u32 {
    eventually("a master", async || {
        let worker = worker(folder).await?;
        let status = std::fs::read_to_string(format!("/proc/{worker}/status"));
        let status = status.map_err(|it| it.to_string())?;
        let parent = status.lines().find_map(|it| it.strip_prefix("PPid:")?.trim().parse().ok());
        let parent: u32 = parent.ok_or(status)?;
        // One whose master was killed is somebody else's.
        let title = std::fs::read_to_string(format!("/proc/{parent}/cmdline"));
        let title = title.map_err(|it| it.to_string())?;
        if title.starts_with("nginx: master") { Ok(parent) } else { Err(title) }
    })
    .await
}

fn signal(pid: u32, name: &str) {
    let sent = std::process::Command::new("kill").args([name, &pid.to_string()]).status();
    assert!(sent.unwrap().success());
}

async fn start(options: Options, update: &Update) -> (Driven, Report) {
    let mut driver = drive(options, Counters::default()).await.unwrap();
    let report = driver.apply(update).await.unwrap();
    let report = settled(&mut driver, report).await;
    (driver, report)
}

const NOTHING: &str = "No rule matches this host and path.\n";

#[tokio::test(flavor = "multi_thread")]
async fn what_is_reported_is_served_and_a_burst_is_one_reload() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (backend("a").await, backend("b").await);
    let (port, update) = first(&[a]).await;
    let (mut driver, report) = start(options(folder.path()), &update).await;
    assert_eq!(report, Report::default());
    assert_eq!(get(port, "a.example", "/x").await, Ok((200, "a".to_owned())));
    assert_eq!(get(port, "b.example", "/x").await, Ok((404, NOTHING.to_owned())));
    let before = master(folder.path()).await;

    // No request meets an old process once the new ones are reported.
    for round in 0..10 {
        let at = if round % 2 == 0 { b } else { a };
        let swap = Update { members: vec![members("p", &[at])], ..Update::default() };
        let report = driver.apply(&swap).await.unwrap();
        assert_eq!(settled(&mut driver, report).await, Report::default());
        let name = if round % 2 == 0 { "b" } else { "a" };
        for _ in 0..20 {
            assert_eq!(get(port, "a.example", "/").await, Ok((200, name.to_owned())));
        }
    }

    let began = Instant::now();
    let mut report = Report::default();
    for round in 0..100 {
        let at = if round % 2 == 0 { a } else { b };
        let swap = Update { members: vec![members("p", &[at])], ..Update::default() };
        report = driver.apply(&swap).await.unwrap();
    }
    settled(&mut driver, report).await;
    answers(port, "a.example", "/", 200, "b").await;
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());

    let more = Update {
        pools: vec![pool("q")],
        members: vec![members("q", &[a])],
        sites: vec![site(exact("c.example"), "/odd;'$%20", "q", "c")],
        ..Update::default()
    };
    let report = driver.apply(&more).await.unwrap();
    assert_eq!(settled(&mut driver, report).await, Report::default());
    answers(port, "c.example", "/odd;'$%20/y", 200, "a").await;
    answers(port, "c.example", "/od", 404, NOTHING).await;
    assert_eq!(master(folder.path()).await, before, "one master");
    driver.drain(Duration::from_secs(5)).await;
    worker(folder.path()).await.expect_err("it has ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nginx_refuses_is_found_and_told_and_the_rest_goes_live() {
    let folder = tempfile::tempdir().unwrap();
    let a = backend("a").await;
    let (port, mut update) = first(&[a]).await;
    for i in 0..20 {
        update.sites.push(site(exact(&format!("h{i}.example")), "/", "p", &format!("h{i}")));
    }
    // A member that no connection can be made to, and a certificate that is none.
    update.pools.push(pool("q"));
    update.members.push(members("q", &[([127, 0, 0, 1], 0).into()]));
    update.sites.push(site(exact("bad.example"), "/", "q", "bad"));
    let hash: Arc<str> = "ab".repeat(32).into();
    let block = |label: &str| format!("-----BEGIN {label}-----\nAAAA\n-----END {label}-----\n");
    let certificate =
        Certificate { chain: block("CERTIFICATE").into(), key: block("PRIVATE KEY").into() };
    update.certificates.push(Change::Put(hash.clone(), Arc::new(certificate)));
    let tls = SiteTls { certificate: Some(CertificateRef { hash }), redirect: false };
    let Change::Put(key, plain) = site(exact("tls.example"), "/", "p", "tls") else { panic!() };
    let secure = ResolvedSite { tls: Some(tls), ..(*plain).clone() };
    update.sites.push(Change::Put(key, Arc::new(secure)));
    let Change::Put(key, clear) = listener(([127, 0, 0, 1], 1).into()) else { panic!() };
    let mut https = (*clear).clone();
    https.listener.protocol = bowline_core::plan::ListenerProtocol::Https;
    https.listener.port =
        TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    https.listener.serves = Serves::Entry("web".into());
    let key = bowline_core::update::ListenerKey { port: https.listener.port, ..key };
    update.listeners.push(Change::Put(key, Arc::new(https)));

    let (mut driver, report) = start(options(folder.path()), &update).await;
    let told: Vec<_> = report.refused.iter().map(|it| (&it.consumer, it.problem.reason)).collect();
    assert_eq!(
        told,
        [(&consumer("bad"), Reason::NotSupported), (&consumer("tls"), Reason::BadCertificate)],
        "{report:?}"
    );
    answers(port, "h19.example", "/", 200, "a").await;
    answers(port, "tls.example", "/", 200, "a").await;
    answers(port, "bad.example", "/", 404, NOTHING).await;

    // It is tried again when it asks for something else.
    let better = Update {
        members: vec![members("q", &[a])],
        sites: vec![site(exact("bad.example"), "/better", "q", "bad")],
        ..Update::default()
    };
    let report = driver.apply(&better).await.unwrap();
    let report = settled(&mut driver, report).await;
    assert_eq!(report.refused.len(), 1, "{report:?}");
    answers(port, "bad.example", "/better", 200, "a").await;
    driver.drain(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn why_nginx_does_not_load_what_it_accepted_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let a = backend("a").await;
    let (port, update) = first(&[a]).await;
    // Its check can be made to accept everything.
    let (lie, script) = (folder.path().join("lie"), folder.path().join("program"));
    let real = program();
    let (lies, real) = (lie.display(), real.display());
    let text =
        format!("#!/bin/sh\n[ \"$3\" = -t ] && [ -e {lies} ] && exit 0\nexec {real} \"$@\"\n");
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let options = Options { program: script, ..options(folder.path()) };
    let (mut driver, _) = start(options, &update).await;

    std::fs::write(&lie, "").unwrap();
    let bad = Update {
        pools: vec![pool("q")],
        members: vec![members("q", &[([127, 0, 0, 1], 0).into()])],
        sites: vec![site(exact("bad.example"), "/", "q", "bad")],
        ..Update::default()
    };
    let _ = driver.apply(&bad).await;
    let mut report = Report::default();
    while report.trouble.is_none() {
        report = tokio::time::timeout(Duration::from_secs(30), driver.changed()).await.unwrap();
    }
    let trouble = "loading nginx's file: invalid port in upstream \"127.0.0.1:0\"".to_owned();
    assert_eq!((report.waiting, report.trouble), (true, Some(trouble)));
    assert_eq!(get(port, "a.example", "/").await, Ok((200, "a".to_owned())));

    std::fs::remove_file(&lie).unwrap();
    let waiting = Report { waiting: true, ..Report::default() };
    let report = settled(&mut driver, waiting).await;
    let told: Vec<_> = report.refused.iter().map(|it| &it.consumer).collect();
    assert_eq!((told, report.trouble), (vec![&consumer("bad")], None));
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
    let (mut driver, report) = start(options(folder.path()), &update).await;
    assert_eq!(report.refused.len(), 1, "{report:?}");
    answers(port, "a.example", "/", 200, "a").await;
    drop(held);
    answers(taken.port(), "a.example", "/", 200, "a").await;
    driver.drain(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_nginx_that_is_killed_or_whose_socket_is_removed_loads_what_comes() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (backend("a").await, backend("b").await);
    let (port, update) = first(&[a]).await;
    let (mut driver, _) = start(options(folder.path()), &update).await;
    let remove_socket = || std::fs::remove_file(folder.path().join("status.sock")).unwrap();
    let mut now = b;
    for hidden in [true, false] {
        let before = master(folder.path()).await;
        signal(before, "-KILL");
        // Its processes live on, and hold its addresses; by their socket they can be found no more.
        if hidden {
            remove_socket();
        }
        eventually("another master", async || match master(folder.path()).await {
            now if now == before => Err("the same".to_owned()),
            _ => get(port, "a.example", "/").await.map(drop),
        })
        .await;
        // It may be that the driver has not asked there yet.
        remove_socket();
        let swap = Update { members: vec![members("p", &[now])], ..Update::default() };
        eventually("the update", async || driver.apply(&swap).await.map_err(|it| it.to_string()))
            .await;
        answers(port, "a.example", "/", 200, if now == a { "a" } else { "b" }).await;
        // There is another socket now, until that one is gone.
        std::fs::remove_file(folder.path().join("status-2.sock")).unwrap();
        eventually("a socket", async || worker(folder.path()).await).await;
        now = a;
    }
    driver.drain(Duration::from_secs(5)).await;
    get(port, "a.example", "/").await.expect_err("it has ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_else_made_it_load_is_repaired() {
    let folder = tempfile::tempdir().unwrap();
    let a = backend("a").await;
    let (port, update) = first(&[a]).await;
    let (mut driver, _) = start(options(folder.path()), &update).await;
    let file = folder.path().join("current/nginx.conf");
    let text = std::fs::read_to_string(&file).unwrap();
    let other =
        text.replace("bowline-", "other-").replace("server_name a.example;", "server_name x;");
    std::fs::write(&file, other).unwrap();
    signal(master(folder.path()).await, "-HUP");
    answers(port, "a.example", "/", 404, NOTHING).await;
    answers(port, "a.example", "/", 200, "a").await;
    driver.drain(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_nginx_that_somebody_else_runs_is_driven_and_left_running() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (backend("a").await, backend("b").await);
    let (port, update) = first(&[a]).await;
    let options = Options { exec: false, ..options(folder.path()) };
    let mut driver = drive(options, Counters::default()).await.unwrap();
    let error = driver.apply(&update).await.unwrap_err();
    assert!(error.retry, "{error}");

    // As the error says: with the file that was just written.
    let mut nginx = tokio::process::Command::new(program())
        .args(["-e", "stderr", "-g", "daemon off;", "-c"])
        .arg(folder.path().join("current/nginx.conf"))
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    eventually("the update", async || driver.apply(&update).await.map_err(|it| it.to_string()))
        .await;
    answers(port, "a.example", "/", 200, "a").await;
    let swap = Update { members: vec![members("p", &[b])], ..Update::default() };
    eventually("the update", async || driver.apply(&swap).await.map_err(|it| it.to_string())).await;
    answers(port, "a.example", "/", 200, "b").await;
    driver.drain(Duration::from_secs(5)).await;
    assert_eq!(get(port, "a.example", "/").await, Ok((200, "b".to_owned())));
    signal(nginx.id().unwrap(), "-QUIT");
    nginx.wait().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_answers_to_one_client_take_no_member_from_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (slow("a").await, slow("b").await);
    let (port, mut update) = first(&[a.at, b.at]).await;
    let timeouts = Timeouts { backend_ms: Some(300), ..Timeouts::default() };
    update.pools = vec![put(Pool { timeouts, ..plain("p") })];
    let (mut driver, _) = start(options(folder.path()), &update).await;
    for _ in 0..12 {
        assert_eq!(get(port, "a.example", "/slow").await.map(|it| it.0), Ok(504));
        assert_eq!(get(port, "a.example", "/").await.map(|it| it.0), Ok(200));
    }
    // Nor is what took too long done again by another.
    assert_eq!(a.slow() + b.slow(), 12);
    driver.drain(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_may_have_64_kib_and_a_target_no_fragment() {
    let folder = tempfile::tempdir().unwrap();
    let a = backend("a").await;
    let (port, update) = first(&[a]).await;
    let (mut driver, _) = start(options(folder.path()), &update).await;
    let long = format!("X-Long: {}\r\n", "x".repeat(60_000));
    let answer = ask(port, "a.example", "/", &long).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    for path in ["/a#/../b", "/a#", "/a?b#/../c", "/a/../b", "/a/..;x"] {
        assert_eq!(get(port, "a.example", path).await.map(|it| it.0), Ok(400), "{path}");
    }
    assert_eq!(get(port, "a.example", "/a?b=/../c").await.map(|it| it.0), Ok(200));
    driver.drain(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_may_open_as_many_files_as_the_machine_lets_them() {
    let folder = tempfile::tempdir().unwrap();
    let a = backend("a").await;
    let (_, update) = first(&[a]).await;
    let mut program = std::fs::File::create(folder.path().join("program")).unwrap();
    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt as _;
    writeln!(program, "#!/bin/sh\nulimit -S -n 256\nexec {} \"$@\"", self::program().display())
        .unwrap();
    program.set_permissions(std::fs::Permissions::from_mode(0o755)).unwrap();
    drop(program);
    let program = folder.path().join("program");
    let (mut driver, _) = start(Options { program, ..options(folder.path()) }, &update).await;
    let worker = worker(folder.path()).await.unwrap();
    let limits = std::fs::read_to_string(format!("/proc/{worker}/limits")).unwrap();
    let line = limits.lines().find(|it| it.starts_with("Max open files")).unwrap();
    let soft: u64 = line.split_whitespace().nth(3).unwrap().parse().unwrap();
    assert!(soft > 1_024, "{line}");
    driver.drain(Duration::from_secs(5)).await;
}
