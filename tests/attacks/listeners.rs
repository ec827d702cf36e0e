//! Exhausting listeners: an agent can open only so many, and a tenant that asks for more than its share is told, keeps
//! none from another tenant, and gets the rest when there is room.

use crate::programs::Program;
use crate::stage::{PROGRAM, Stage, TARGET, agent_kubeconfig, is_closed, leads_to, tcp};
use crate::tenants::{Evil, shop, unharmed};
use bowline_testing::objects::{self, Endpoint};
use bowline_testing::{Backend, Bowline, eventually};
use serde_json::{Value, json};
use std::ops::Range;
use std::os::unix::fs::PermissionsExt as _;

/// So many files may the agent open: the built-in proxy has 64 listeners with that, HAProxy and nginx 128. A namespace
/// may have a quarter of them.
pub(crate) const FILES: u64 = 512;

/// Starts the agent anew, with few files.
pub(crate) async fn start_with_few_files(stage: &mut Stage, args: &[String]) {
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("bowline");
    let text = format!("#!/bin/sh\nulimit -n {FILES} && exec {PROGRAM} \"$@\"\n");
    std::fs::write(&script, text).expect("written");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&script, mode).expect("it can be run");
    stage.agent.process.end();
    let kubeconfig = agent_kubeconfig(&stage.cluster, &stage.lb).await;
    let lb = stage.lb.clone();
    let mut all = vec!["--load-balancer", lb.as_str()];
    all.extend(args.iter().map(String::as_str));
    stage.agent = Bowline::start(&stage.cluster, &script, &kubeconfig, "agent", &all);
    stage.agent.ready().await;
}

/// Evil's Service `ports` with these ports, all served by one backend.
async fn ports(stage: &Stage, evil: &Evil, backend: &Backend, ports: Range<u16>) {
    let all: Vec<_> = ports.map(|port| (port, TARGET)).collect();
    let at = [Endpoint::ready(backend.at.ip())];
    let mut slice = objects::slice("ports", ("", TARGET, "TCP"), &at);
    let named =
        all.iter().map(|(port, target)| json!({"name": format!("p{port}"), "port": target}));
    slice["ports"] = named.collect();
    evil.apply(stage, slice).await;
    evil.apply(stage, objects::service("ports", &stage.lb, &all)).await;
}

/// What the condition of evil's Service says, once it speaks of listeners that are not open.
async fn condition(stage: &Stage, evil: &Evil) -> String {
    eventually("the condition speaks of listeners", || async {
        let object = stage.cluster.read("Service", &evil.namespace, "ports").await;
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let told = conditions.iter().find(|it| it["type"] == "bowline.dev/Programmed");
        let message = told.and_then(|it| it["message"].as_str()).unwrap_or_default().to_owned();
        let speaks = message.contains("is not open");
        if speaks { Ok(message) } else { Err(Value::from(conditions).to_string()) }
    })
    .await
}

fn one_tenant_asks_for_more_listeners_than_its_share(program: Program) {
    program.play(async |stage| {
        let args = program.args(&stage.lb);
        start_with_few_files(stage, &args).await;
        let stage = &*stage;
        let evil = Evil::new(stage).await;
        let _shop = shop(stage).await;
        let [bad, good] = [tcp("evil").await, tcp("late").await];
        unharmed(&stage.dial(80), async {
            ports(stage, &evil, &bad, 7_000..7_060).await;
            let said = stage.told_in(&evil.namespace, "Service", "ports", "TooManyListeners").await;
            assert!(said.contains(&evil.namespace), "{said}");
            let said = condition(stage, &evil).await;
            assert!(said.contains("the limit per namespace"), "{said}");
            leads_to(&stage.dial(7_000), "evil").await;
            is_closed(&stage.dial(7_059)).await;
            // Another tenant's new Service is served.
            stage.service("late", 9_000, &[&good]).await;
            leads_to(&stage.dial(9_000), "late").await;
            // Those that wait are served when there is room.
            ports(stage, &evil, &bad, 7_050..7_060).await;
            leads_to(&stage.dial(7_059), "evil").await;
        })
        .await;
        leads_to(&stage.dial(9_000), "late").await;
    });
}

#[test]
fn a_tenant_with_too_many_listeners_is_told_and_another_is_served_by_the_built_in_proxy() {
    one_tenant_asks_for_more_listeners_than_its_share(Program::Builtin);
}

#[test]
fn a_tenant_with_too_many_listeners_is_told_and_another_is_served_by_haproxy() {
    one_tenant_asks_for_more_listeners_than_its_share(Program::Haproxy);
}

#[test]
fn a_tenant_with_too_many_listeners_is_told_and_another_is_served_by_nginx() {
    one_tenant_asks_for_more_listeners_than_its_share(Program::Nginx);
}

#[test]
fn the_listeners_that_were_open_are_open_again_after_a_restart_with_kept_state() {
    Program::Builtin.play(async |stage| {
        let folder = tempfile::tempdir().expect("a folder");
        let args = ["--state".to_owned(), folder.path().join("state").display().to_string()];
        start_with_few_files(stage, &args).await;
        let evil = Evil::new(stage).await;
        let bad = tcp("evil").await;
        ports(stage, &evil, &bad, 7_000..7_060).await;
        condition(stage, &evil).await;
        leads_to(&stage.dial(7_015), "evil").await;
        // Lower ports come later, and wait.
        ports(stage, &evil, &bad, 6_990..7_060).await;
        eventually("the lower ports are told", || async {
            let said = condition(stage, &evil).await;
            if said.contains(":6990 ") { Ok(()) } else { Err(said) }
        })
        .await;
        // It keeps what it serves when it ends.
        assert_eq!(stage.agent.stop(), Some(0));
        start_with_few_files(stage, &args).await;
        leads_to(&stage.dial(7_015), "evil").await;
        is_closed(&stage.dial(6_990)).await;
    });
}
