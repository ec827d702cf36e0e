//! Exhausting by reloads: each leaves processes behind while a connection lasts that they carry. The tenant that needs reloads
//! all the time waits for its own; the other's changes and connections do not.

use crate::changes::{Changes, Kind};
use crate::programs::Program;
use crate::stage::{TARGET, leads_to, tcp};
use crate::tenants::{Evil, shop, unharmed};
use bowline_testing::objects::{self, Endpoint};
use serde_json::json;
use std::time::Duration;

/// Evil changes a setting of its pool twice a second, and holds a connection each time.
fn held_connections(program: Program) {
    program.play(async |stage| {
        let evil = Evil::new(stage).await;
        let theirs = tcp("evil").await;
        evil.apply(stage, objects::service("line", &stage.lb, &[(6000, TARGET)])).await;
        let at = [Endpoint::ready(theirs.at.ip())];
        evil.apply(stage, objects::slice("line", ("", TARGET, "TCP"), &at)).await;
        leads_to(&stage.dial(6000), "evil").await;
        let _shop = shop(stage).await;
        let mut changes = Changes::new(stage).await;
        let ours = tcp("ours").await;
        stage.service("line", 5000, &[&ours]).await;
        leads_to(&stage.dial(5000), "ours").await;
        let mut kept = stage.dial(5000).line().await.expect("a connection");
        let took = unharmed(&stage.dial(80), async {
            let mut held = Vec::new();
            let mut ticks = tokio::time::interval(Duration::from_millis(500));
            for round in 0..40 {
                ticks.tick().await;
                held.push(stage.dial(6000).line().await.expect("a connection"));
                let algorithm = ["round-robin", "least-connections"][round % 2];
                let patch =
                    json!({"metadata": {"annotations": {"bowline.dev/algorithm": algorithm}}});
                stage.cluster.patch("Service", &evil.namespace, "line", &patch).await;
            }
            let found = program.processes(&stage.lb);
            let most = 1 + 10 * program.workers_of_a_load();
            assert!(found.len() <= most, "{} processes: {found:?}", found.len());
            changes.change(stage, Kind::Port).await
        })
        .await;
        assert!(took < Duration::from_secs(8), "shop's change took {took:?}");
        assert_eq!(kept.ask("still there").await.as_deref(), Ok("still there"));
    });
}

#[test]
fn reloads_under_held_connections_leave_few_processes_on_haproxy() {
    held_connections(Program::Haproxy);
}

#[test]
fn reloads_under_held_connections_leave_few_processes_on_nginx() {
    held_connections(Program::Nginx);
}
