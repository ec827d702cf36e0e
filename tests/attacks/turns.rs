//! Turns: a tenant that changes much, or is told much, keeps no change of another tenant from the Plans, and no Event
//! and no entry of `status.refused` from another tenant.

use crate::stage::{Stage, play, serves};
use crate::takeover::recorded;
use crate::tenants::{Evil, SHOP, shop};
use bowline_testing::{SYSTEM, eventually, objects};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Does something while evil writes without a pause, as soon as it has written twice: `write` is told how often it
/// wrote before.
async fn meanwhile<T>(write: impl AsyncFn(usize), something: impl Future<Output = T>) -> T {
    let round = AtomicUsize::new(0);
    let attack = async {
        loop {
            write(round.fetch_add(1, Ordering::Relaxed)).await;
        }
    };
    let something = async {
        while round.load(Ordering::Relaxed) < 3 {
            tokio::task::yield_now().await;
        }
        something.await
    };
    tokio::select! {
        value = something => value,
        () = attack => unreachable!("it never ends"),
    }
}

/// Waits until the Plan objects of the load balancer are at least so many.
async fn plans(stage: &Stage, least: usize) {
    eventually("the Plans", || async {
        let (_, list) = stage.cluster.get(&objects::path("Plan", SYSTEM, "")).await;
        let all = list["items"].as_array().into_iter().flatten();
        let count = all.filter(|plan| plan["spec"]["loadBalancer"] == stage.lb).count();
        if count >= least { Ok(()) } else { Err(format!("{count} Plans")) }
    })
    .await;
}

/// An Ingress with these hosts that takes about 9 KiB of a Plan: its first host has long paths.
fn wide(stage: &Stage, name: &str, hosts: &[&str]) -> Value {
    let long: Vec<_> = (0..10).map(|n| format!("/{n}{}", "a".repeat(900))).collect();
    let mut rules: Vec<_> = hosts.iter().map(|host| (*host, "/", "Prefix", "web")).collect();
    rules.extend(long.iter().map(|path| (hosts[0], path.as_str(), "Prefix", "web")));
    objects::ingress(name, &stage.lb, &rules)
}

#[test]
fn a_tenant_that_changes_all_its_ingresses_all_the_time_keeps_no_change_of_another_from_the_plan() {
    play(async |stage| {
        let evil = Evil::new(stage).await;
        let _web = evil.web(stage).await;
        // One Service behind all of them: one write changes all their fragments, in all their Plans.
        for n in 0..60 {
            let host = format!("evil-{n:02}.example");
            evil.apply(stage, wide(stage, &format!("evil-{n:02}"), &[&host])).await;
        }
        plans(stage, 8).await;
        let _shop = shop(stage).await;
        // It finds no room in the first Plans.
        stage.apply(wide(stage, "wide", &["wide.example", "second.example"])).await;
        serves(&stage.dial(80), "second.example", "/", "shop").await;
        let first = async || {
            let plan = stage.cluster.read("Plan", SYSTEM, &format!("{}-0", stage.lb)).await;
            plan["metadata"]["resourceVersion"].clone()
        };
        // As soon as its first Plan is written, evil makes all of them stale again.
        let toggle = async |round: usize| {
            let before = first().await;
            let algorithm =
                if round.is_multiple_of(2) { "least-connections" } else { "round-robin" };
            let patch = json!({"metadata": {"annotations": {"bowline.dev/algorithm": algorithm}}});
            stage.cluster.patch("Service", &evil.namespace, "web", &patch).await;
            while first().await == before {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let added = "added.example";
        meanwhile(toggle, async {
            stage.apply(wide(stage, "wide", &["wide.example", "second.example", added])).await;
            eventually("shop's host is in a Plan", || async {
                let found = recorded(stage, added).await;
                if found == [&*stage.namespace] { Ok(()) } else { Err(format!("{found:?}")) }
            })
            .await;
        })
        .await;
        serves(&stage.dial(80), added, "/", "shop").await;
    });
}

#[test]
fn a_tenant_that_is_refused_all_the_time_silences_no_other() {
    play(async |stage| {
        let evil = Evil::new(stage).await;
        let _web = evil.web(stage).await;
        evil.ingress(stage, "own", &["evil.example"]).await;
        let _shop = shop(stage).await;
        stage.ingress("other", &[("other.example", "/", "Prefix", "web")]).await;
        serves(&stage.dial(80), "other.example", "/", "shop").await;
        serves(&stage.dial(80), "evil.example", "/", "evil").await;
        let refused = async |round: usize| {
            let host = if (round / 300).is_multiple_of(2) { SHOP } else { "other.example" };
            evil.ingress(stage, &format!("refused-{:03}", round % 300), &[host]).await;
        };
        // All that may be said at once is used up.
        for round in 0..300 {
            refused(round).await;
        }
        stage.told_in(&evil.namespace, "Ingress", "refused-000", "HostTaken").await;
        meanwhile(async |round| refused(round + 300).await, async {
            stage.ingress("late", &[("evil.example", "/", "Prefix", "web")]).await;
            let said = stage.told("Ingress", "late", "HostTaken").await;
            assert!(said.contains("evil.example"), "{said}");
            eventually("the status lists shop's refusal", || async {
                let balancer = stage.cluster.read("LoadBalancer", "", &stage.lb).await;
                let refused = &balancer["status"]["refused"];
                let mut all = refused.as_array().into_iter().flatten();
                let ours =
                    all.any(|it| it["namespace"] == *stage.namespace && it["name"] == "late");
                if ours { Ok(()) } else { Err(format!("{refused}")) }
            })
            .await;
        })
        .await;
    });
}
