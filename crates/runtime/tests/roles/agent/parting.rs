//! The speaker of the node hears that an address goes before its listeners close.

use super::{listener, ours, plan};
use crate::support::{Recorder, cluster, create, eventually, start_agent};
use bowline_core::update::{Change, Update};
use bowline_runtime::AgentOptions;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::UnixListener;

#[tokio::test]
async fn an_address_is_withdrawn_before_its_listeners_close() {
    let cluster = cluster().await;
    let client = cluster.client();
    create(&client, ours()).await;
    let folder = tempfile::tempdir().unwrap();
    let speaker = UnixListener::bind(folder.path().join("speaker.sock")).unwrap();
    let driver = Recorder::default();
    let options = AgentOptions {
        sockets: Some(folder.path().to_owned()),
        // Long enough to look at what happened so far.
        parting: Duration::from_secs(4),
        ..AgentOptions::new("edge")
    };
    let agent = start_agent(client.clone(), options, driver.clone());
    let (connection, _) = speaker.accept().await.unwrap();
    let mut lines = BufReader::new(connection).lines();
    create(&client, plan(&[8080], None)).await;
    let line = async |lines: &mut tokio::io::Lines<BufReader<_>>, what: &str| loop {
        let line = lines.next_line().await.unwrap().expect("the agent talks");
        if line.contains(what) {
            return line;
        }
    };
    line(&mut lines, r#""127.0.0.1":{"open":true"#).await;

    let plans = kube::Api::<bowline_api::Plan>::namespaced(client.clone(), "bowline-system");
    plans.delete("edge-0", &kube::api::DeleteParams::default()).await.unwrap();
    line(&mut lines, r#""127.0.0.1":{"open":false"#).await;
    let closes = |update: &Update| {
        let gone = update.listeners.iter().any(|it| *it == Change::Remove(listener(8080)));
        gone || (update.complete && update.listeners.is_empty())
    };
    let has_closed = || driver.updates.lock().unwrap().iter().skip(1).any(closes);
    assert!(!has_closed(), "the listener is open while the speaker withdraws");
    eventually("the listener closes", || async {
        has_closed().then_some(()).ok_or_else(|| "it is open".to_owned())
    })
    .await;
    line(&mut lines, r#""addresses":{}"#).await;
    agent.stop().await;
}
