//! Many clients that want all there is, on an agent with little memory: it refuses before it has too much,
//! and serves who wants little.

use crate::stage::{Stage, http, play_with, serves};
use bowline_testing::{Authority, Backend, Dial, Request, eventually, objects};
use futures::StreamExt as _;
use rustls::ClientConfig;
use serde_json::json;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

const HOST: &str = "web.example";
const LIMIT: u64 = 256;

/// A host with TLS, served by one backend.
async fn secured(stage: &Stage, authority: &Authority) -> Backend {
    let backend = http("a").await;
    stage.behind("web", &[&backend]).await;
    stage.apply(objects::tls_secret("web-tls", &authority.issue(&[HOST]))).await;
    let mut ingress = objects::ingress("web", &stage.lb, &[(HOST, "/", "Prefix", "web")]);
    ingress["spec"]["tls"] = json!([{"hosts": [HOST], "secretName": "web-tls"}]);
    stage.apply(ingress).await;
    serves(&stage.dial(443).tls(&authority.trusted(&[]), HOST), HOST, "/", "a").await;
    backend
}

/// A client with an address of its own.
fn client(stage: &Stage, number: u16, config: &Arc<ClientConfig>) -> Dial {
    let [high, low] = number.to_be_bytes();
    stage.dial(443).from(IpAddr::from([127, 9, high, low])).tls(config, HOST)
}

/// The most that the agent had in memory, in MiB.
fn most_resident(stage: &Stage) -> u64 {
    let path = format!("/proc/{}/status", stage.agent.process.id());
    let text = std::fs::read_to_string(path).expect("the agent lives");
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
    line.trim().trim_end_matches("kB").trim().parse::<u64>().expect("a number") / 1024
}

#[test]
fn idle_connections_and_unfinished_requests_are_refused_before_memory_is_gone() {
    let args = |_: &str| vec!["--memory".to_owned(), format!("{LIMIT}Mi")];
    play_with(&args, async |stage| {
        let authority = Authority::new();
        let _backend = secured(stage, &authority).await;
        let (one, two) = (authority.trusted(&["http/1.1"]), authority.trusted(&["h2"]));
        let modest = async |when: &str| {
            let answer = client(stage, 60_000, &one).get(HOST, "/").await;
            assert_eq!(answer.map(|it| it.status), Ok(200), "{when}");
        };
        modest("in quiet").await;

        // Idle TLS connections, six of each client; there is place for 1,536.
        let connections = futures::stream::iter(0..1_800u16)
            .map(|i| client(stage, i % 300, &two))
            .map(|dial| async move { dial.connect().await })
            .buffer_unordered(16);
        let connections: Vec<_> = connections.collect().await;
        let (idle, refused): (Vec<_>, Vec<_>) = connections.into_iter().partition(Result::is_ok);
        assert!(refused.len() >= 150, "{} of 1,800 were refused", refused.len());
        assert!(idle.len() > 1_000, "{} connections are open", idle.len());
        modest("beside idle connections").await;
        drop(idle);
        eventually("their places are free again", || async {
            let active = stage.agent.metric("bowline_proxy_listener_active").await;
            if active < 100.0 { Ok(()) } else { Err(active.to_string()) }
        })
        .await;

        // Requests that never end, with large heads, side by side on HTTP/2.
        let mut sessions = Vec::new();
        for number in 0..40 {
            let session = client(stage, number, &two).http2().session().await;
            sessions.push(session.expect("there are places"));
        }
        let mut requests = tokio::task::JoinSet::new();
        for session in &sessions {
            for _ in 0..48 {
                let mut session = session.beside().expect("HTTP/2");
                let never = Request::slowly(HOST, "/", &["x", "y"], Duration::from_secs(600))
                    .header("x", &"y".repeat(14_000));
                requests.spawn(async move { session.send(never).await.map(|it| it.status) });
            }
        }
        for _ in 0..250 {
            let told = tokio::time::timeout(Duration::from_secs(60), requests.join_next()).await;
            let told = told.expect("most are refused").expect("a request").expect("an end");
            assert!(matches!(told, Ok(503) | Err(_)), "{told:?}");
        }
        // A debug build takes a while over all these requests, and a handshake waits its turn.
        eventually("another client is served beside unfinished requests", || async {
            let answer = client(stage, 60_000, &one).get(HOST, "/").await?;
            if answer.status == 200 { Ok(()) } else { Err(answer.status.to_string()) }
        })
        .await;
        let most = most_resident(stage);
        assert!(most < LIMIT, "the agent had {most} MiB");
        println!("the agent had {most} MiB at most");
        assert!(stage.agent.metric("bowline_proxy_listener_refused_total").await > 0.0);
    });
}
