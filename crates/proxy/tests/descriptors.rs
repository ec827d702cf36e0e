//! Tests a process that may open no more files. It needs a process of its own, because it changes the
//! limits.
#![allow(clippy::unwrap_used, reason = "a failing test panics")]

use bowline_core::key::{ConsumerKind, ConsumerRef};
use bowline_core::plan::{Action, Listener, ListenerProtocol, PathKind, PathMatch, Rule, Serves};
use bowline_core::update::{
    Change, ListenerKey, Report, ResolvedListener, ResolvedSite, SiteKey, Update,
};
use bowline_proxy::{Options, Proxy, raise_descriptors};
use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// A listener whose requests the proxy answers itself.
fn update(at: SocketAddr) -> Update {
    let consumer = ConsumerRef {
        kind: ConsumerKind::Service,
        namespace: "test".into(),
        name: "test".into(),
        uid: "test".into(),
    };
    let listener = Listener {
        address: at.ip(),
        port: at.port(),
        protocol: ListenerProtocol::Http,
        serves: Serves::Entry("web".into()),
    };
    let rule = Rule {
        path: PathMatch { kind: PathKind::Prefix, value: "/".into() },
        method: None,
        headers: Vec::new(),
        query: Vec::new(),
        action: Action::Respond(200),
    };
    let rules = vec![(rule, consumer.clone())];
    let site = ResolvedSite { owner: "test".into(), tls: None, rules };
    let site_key = SiteKey { entry: "web".into(), host: "*".parse().unwrap() };
    let key = ListenerKey::of(&listener);
    Update {
        sites: vec![Change::Put(site_key, Arc::new(site))],
        listeners: vec![Change::Put(key, Arc::new(ResolvedListener { consumer, listener }))],
        ..Update::default()
    }
}

/// The CPU time of this process so far.
fn cpu() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_SELF).unwrap();
    let time = |at: nix::sys::time::TimeVal| {
        Duration::from_secs(at.tv_sec().unsigned_abs())
            + Duration::from_micros(at.tv_usec().unsigned_abs())
    };
    time(usage.user_time()) + time(usage.system_time())
}

#[tokio::test]
async fn clients_wait_without_cost_until_there_are_files_again() {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, 64, hard).unwrap();
    assert_eq!(raise_descriptors(), hard);
    assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap().0, hard);

    let [a, b, ..] = std::process::id().to_le_bytes();
    let at = SocketAddr::from(([127, 201, a, b], 8080));
    let proxy = Proxy::new(Options::default());
    assert_eq!(proxy.apply(&update(at)).await, Report::default());

    // The client waits in the kernel's queue: nothing else runs here before all descriptors are taken.
    let mut client = TcpStream::connect(at).unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, 64, hard).unwrap();
    let mut files = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        files.push(file);
    }
    let mut reading = tokio::task::spawn_blocking(move || {
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        text
    });
    let before = cpu();
    let wait = Duration::from_millis(1500);
    assert!(tokio::time::timeout(wait, &mut reading).await.is_err(), "there was a file left");
    let spent = cpu().saturating_sub(before);
    assert!(spent < wait / 3, "{spent:?} were spent on trying");
    drop(files);
    let text = tokio::time::timeout(Duration::from_secs(10), reading).await.unwrap().unwrap();
    assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
}
