//! Tests that the driver repairs what others did to its HAProxy.

use crate::both::{signal, start};
use crate::common::{Folder, answers, backend, eventually, first, members};
use crate::{ask, options, pids, processes};
use bowline_core::update::Update;
use bowline_drivers::Driver as _;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_else_changed_is_repaired_and_a_dead_haproxy_comes_back() {
    let folder = Folder::new();
    let a = backend("a").await;
    let (port, update) = first(&[a]).await;
    let (mut driver, _) = start(options(folder.path()), &update).await;
    answers(port, "a.example", "/", 200, "a").await;
    let admin = folder.path().join("admin.sock");
    ask(&admin, "clear map maps/web.hosts.map").await.unwrap();
    answers(port, "a.example", "/", 200, "a").await;
    let server = format!("server p/{a}");
    let (ip, somewhere) = (a.ip(), backend("somewhere else").await.port());
    for what in [
        format!("set {server} state maint"),
        format!("set {server} state drain"),
        format!("set {server} addr {ip} port {somewhere}"),
        "disable frontend http:web".to_owned(),
        "shutdown frontend http:web".to_owned(),
    ] {
        ask(&admin, &what).await.unwrap();
        answers(port, "a.example", "/", 200, "a").await;
    }

    let master = processes(folder.path()).await.0;
    for pid in pids(folder.path()).await {
        signal(pid, "-KILL");
    }
    answers(port, "a.example", "/", 200, "a").await;
    assert_ne!(processes(folder.path()).await.0, master);

    std::fs::remove_file(&admin).unwrap();
    let b = backend("b").await;
    let swap = Update { members: vec![members("p", &[b])], ..Update::default() };
    // While the socket is gone an update may fail; then the driver gets everything again, as from the agent.
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
