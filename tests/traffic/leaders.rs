//! Who decides: two controllers, one of which dies, sleeps or does not know of the other. Each test has a
//! cluster for itself, since it disturbs the controllers.

use crate::stage::{Stage, TARGET, deploy, leads_to, start_controller, tcp};
use bowline_testing::{Bowline, Cluster, SYSTEM, Stack, eventually, net, objects};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Longer than a lease, much shorter than a test's patience.
const ONE_LEASE: Duration = Duration::from_secs(25);

fn play_alone(test: impl AsyncFnOnce(Cluster)) {
    net::in_namespace(|| async {
        let cluster = Cluster::own(Stack::Dual).await;
        cluster.install(&deploy()).await;
        test(cluster).await;
    });
}

/// Which of these processes has the leader's Lease. A process is known by its own word for it: the
/// holder of the Lease changes, so it is the one whose end makes it change.
async fn holder(cluster: &Cluster) -> String {
    eventually("somebody leads", || async {
        let lease = cluster.read("Lease", SYSTEM, "bowline-controller").await;
        match lease["spec"]["holderIdentity"].as_str() {
            Some(holder) if !holder.is_empty() => Ok(holder.to_owned()),
            _ => Err(lease.to_string()),
        }
    })
    .await
}

/// Starts the first controller, waits until it leads, then starts the second.
async fn two(cluster: &Cluster) -> (Bowline, Bowline, String) {
    let mut first = start_controller(cluster, &[]).await;
    first.ready().await;
    let leader = holder(cluster).await;
    let second = start_controller(cluster, &[]).await;
    (first, second, leader)
}

#[test]
fn another_controller_takes_over_from_one_that_was_killed() {
    play_alone(async |cluster| {
        let (mut first, _second, leader) = two(&cluster).await;
        let stage = Stage::on(cluster).await;
        let a = tcp("a").await;
        stage.service("before", 5000, &[&a]).await;
        leads_to(&stage.dial(5000), "a").await;
        first.process.kill();
        let killed = Instant::now();
        stage.service("after", 5001, &[&a]).await;
        let dial = stage.dial(5000);
        while stage.dial(5001).line().await.is_err() {
            assert_eq!(dial.line().await.expect("traffic goes on").name, "a");
            assert!(killed.elapsed() < ONE_LEASE, "nobody took over");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_ne!(holder(&stage.cluster).await, leader);
    });
}

#[test]
fn a_controller_that_leaves_politely_is_replaced_at_once() {
    play_alone(async |cluster| {
        let (mut first, mut second, leader) = two(&cluster).await;
        second.ready().await;
        assert_eq!(first.stop(), Some(0));
        let left = Instant::now();
        eventually("another leader", || async {
            let now = holder(&cluster).await;
            if now == leader { Err(now) } else { Ok(()) }
        })
        .await;
        assert!(left.elapsed() < Duration::from_secs(8), "after {:?}", left.elapsed());
    });
}

#[test]
fn a_controller_that_slept_through_its_lease_wakes_up_as_a_follower() {
    play_alone(async |cluster| {
        let (first, _second, leader) = two(&cluster).await;
        let stage = Stage::on(cluster).await;
        let (a, b) = (tcp("a").await, tcp("b").await);
        stage.service("web", 5000, &[&a]).await;
        leads_to(&stage.dial(5000), "a").await;
        first.process.signal("STOP");
        stage.service("meanwhile", 5001, &[&b]).await;
        leads_to(&stage.dial(5001), "b").await;
        let next = holder(&stage.cluster).await;
        assert_ne!(next, leader);
        first.process.signal("CONT");
        // Every change is made by the one that leads now, and none is undone.
        for port in 5002..5006 {
            stage.service(&format!("later-{port}"), port, &[&b]).await;
            leads_to(&stage.dial(port), "b").await;
        }
        assert_eq!(holder(&stage.cluster).await, next);
        leads_to(&stage.dial(5000), "a").await;
        leads_to(&stage.dial(5001), "b").await;
    });
}

#[test]
fn two_controllers_that_both_believe_to_lead_agree_and_come_to_rest() {
    play_alone(async |cluster| {
        let mut both = Vec::new();
        for _ in 0..2 {
            both.push(start_controller(&cluster, &["--leader-elect=false"]).await);
        }
        for controller in &mut both {
            controller.ready().await;
        }
        let stage = Stage::on(cluster).await;
        let a = tcp("a").await;
        let ports = 5000..5030u16;
        for port in ports.clone() {
            let name = format!("web-{port}");
            stage.apply(objects::service(&name, &stage.lb, &[(port, TARGET)])).await;
            stage.served_by(&name, &[&a]).await;
            // And a rival for every port.
            let rival = format!("z-rival-{port}");
            stage.apply(objects::service(&rival, &stage.lb, &[(port, TARGET)])).await;
        }
        for port in ports.clone() {
            leads_to(&stage.dial(port), "a").await;
            stage.has_addresses("Service", &format!("web-{port}"), &[stage.vip]).await;
        }
        rests(&stage).await;
        for port in ports.step_by(2) {
            stage.delete("Service", &format!("web-{port}")).await;
            let rival = format!("z-rival-{port}");
            stage.served_by(&rival, &[&a]).await;
            leads_to(&stage.dial(port), "a").await;
            stage.has_addresses("Service", &rival, &[stage.vip]).await;
        }
        rests(&stage).await;
        consumers_are_planned_once(&stage).await;
    });
}

#[test]
fn who_asks_for_nothing_in_particular_goes_where_the_controller_is_told() {
    play_alone(async |cluster| {
        let mut controller =
            start_controller(&cluster, &["--default-class", "--default-load-balancer", "edge"])
                .await;
        controller.ready().await;
        let stage = Stage::named(cluster, "edge").await;
        let a = tcp("a").await;
        let mut service = objects::service("plain", "", &[(5000, TARGET)]);
        service["metadata"] = json!({"name": "plain"});
        service["spec"].as_object_mut().expect("a spec").remove("loadBalancerClass");
        stage.apply(service).await;
        stage.served_by("plain", &[&a]).await;
        leads_to(&stage.dial(5000), "a").await;
        stage.has_addresses("Service", "plain", &[stage.vip]).await;
    });
}

/// Waits until nothing but Leases and Events is written any more: for a second, no version changes.
async fn rests(stage: &Stage) {
    let mut before = versions(stage).await;
    let started = Instant::now();
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = versions(stage).await;
        if now == before {
            return;
        }
        assert!(started.elapsed() < ONE_LEASE, "no rest: {before} became {now}");
        before = now;
    }
}

/// The versions of all objects that controllers write.
async fn versions(stage: &Stage) -> Value {
    let mut all = Vec::new();
    for list in [
        objects::path("Plan", SYSTEM, ""),
        objects::path("Service", &stage.namespace, ""),
        objects::path("LoadBalancer", "", ""),
    ] {
        let (_, list) = stage.cluster.get(&list).await;
        let items = list["items"].as_array().cloned().unwrap_or_default();
        all.extend(items.iter().map(|it| {
            json!([it["kind"], it["metadata"]["name"], it["metadata"]["resourceVersion"]])
        }));
    }
    Value::Array(all)
}

/// Every fragment is in one Plan object only.
async fn consumers_are_planned_once(stage: &Stage) {
    let (_, plans) = stage.cluster.get(&objects::path("Plan", SYSTEM, "")).await;
    let mut seen = std::collections::BTreeSet::new();
    for plan in plans["items"].as_array().expect("plans") {
        for fragment in plan["spec"]["fragments"].as_array().into_iter().flatten() {
            let key = format!("{} {}", fragment["consumer"], fragment["part"]);
            assert!(seen.insert(key.clone()), "twice: {key}");
        }
    }
}
