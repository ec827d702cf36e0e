//! Who decides: two controllers, one of which dies, sleeps or does not know of the other. Each test has a
//! cluster for itself, since it disturbs the controllers.

use crate::stage::{
    PROGRAM, Stage, TARGET, agent_kubeconfig, leads_to, play_alone, start_agent, start_controller,
    tcp,
};
use bowline_testing::{Bowline, Cluster, Recorder, SYSTEM, eventually, objects};
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

/// A lease lasts 15 s. How exactly it is kept is proved with a clock of its own (`bowline_core::election`);
/// here a busy machine may take as long again.
const TWO_LEASES: Duration = Duration::from_secs(30);

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
            assert!(killed.elapsed() < TWO_LEASES, "nobody took over");
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
fn a_leader_that_was_stopped_in_the_middle_of_its_writes_sends_none_after_its_lease() {
    play_alone(async |cluster| {
        let recorder = Recorder::new(&cluster).await;
        let program = Path::new(PROGRAM);
        let mut first = Bowline::start(&cluster, program, &recorder.kubeconfig, "controller", &[]);
        first.ready().await;
        let leader = holder(&cluster).await;
        let mut second = start_controller(&cluster, &[]).await;
        second.ready().await;
        let namespace = cluster.namespace().await;
        let pool = json!({
            "apiVersion": "bowline.dev/v1alpha1", "kind": "AddressPool",
            "metadata": {"name": "public"}, "spec": {"addresses": ["192.0.2.0/24"]},
        });
        cluster.apply("", &pool).await;
        // Events are written one after another: while one has no answer, others wait to be sent.
        recorder.hold("/events");
        let names: Vec<String> = (0..20).map(|at| format!("s{at}")).collect();
        for name in &names {
            let mut service = objects::service(name, "", &[(80, TARGET)]);
            service["metadata"]["annotations"] = json!({});
            cluster.apply(&namespace, &service).await;
        }
        let shown = async |name: &str| {
            eventually("it has an address", || async {
                let service = cluster.read("Service", &namespace, name).await;
                let ip = &service["status"]["loadBalancer"]["ingress"][0]["ip"];
                ip.as_str().map(str::to_owned).ok_or_else(|| service.to_string())
            })
            .await
        };
        for name in &names {
            shown(name).await;
        }
        first.process.signal("STOP");
        recorder.release();
        eventually("another one leads", || async {
            let now = holder(&cluster).await;
            if now == leader { Err(now) } else { Ok(()) }
        })
        .await;
        let before = recorder.asked().len();
        first.process.signal("CONT");
        // It is awake when it has looked at the Lease, and done when it says that it follows.
        eventually("the first one follows", || async {
            let asked = recorder.asked().split_off(before);
            let looked = asked.iter().any(|it| it.path.ends_with("/leases/bowline-controller"));
            if looked && first.metric("bowline_leader").await == 0.0 { Ok(()) } else { Err(asked) }
                .map_err(|asked| format!("{asked:?}"))
        })
        .await;
        for at in 20..24 {
            let mut service = objects::service(&format!("s{at}"), "", &[(80, TARGET)]);
            service["metadata"]["annotations"] = json!({});
            cluster.apply(&namespace, &service).await;
            shown(&format!("s{at}")).await;
        }
        let asked = recorder.asked().split_off(before);
        let writes: Vec<_> = asked.iter().filter(|it| it.is_write()).collect();
        assert!(writes.is_empty(), "sent after its lease: {writes:?}");
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
fn a_load_balancer_whose_agent_died_is_not_called_running_by_controllers_that_come_late() {
    play_alone(async |cluster| {
        let election_off = ["--leader-elect=false"];
        let mut before = start_controller(&cluster, &election_off).await;
        before.ready().await;
        let mut stage = Stage::on(cluster).await;
        let a = tcp("a").await;
        stage.service("web", 5000, &[&a]).await;
        stage.has_addresses("Service", "web", &[stage.vip]).await;
        phase(&stage, |phase| phase == "Running").await;
        stage.agent.process.kill();
        assert_eq!(before.stop(), Some(0));
        // The Lease looks as fresh as ever to who has not watched it grow old.
        let mut first = start_controller(&stage.cluster, &election_off).await;
        first.ready().await;
        phase(&stage, |phase| phase != "Running").await;
        let mut second = start_controller(&stage.cluster, &election_off).await;
        second.ready().await;
        // Whatever it believes, it has to say so within a lease.
        let ready = Instant::now();
        let settled = versions(&stage).await;
        while ready.elapsed() < Duration::from_secs(18) {
            assert_eq!(versions(&stage).await, settled, "they write against each other");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        phase(&stage, |phase| phase != "Running").await;
        // What was given is not taken back: the agent may serve on, cut off from the API.
        stage.has_addresses("Service", "web", &[stage.vip]).await;
        let kubeconfig = agent_kubeconfig(&stage.cluster, &stage.lb).await;
        stage.agent = start_agent(&stage.cluster, &kubeconfig, &stage.lb);
        phase(&stage, |phase| phase == "Running").await;
    });
}

#[test]
fn what_was_told_is_not_told_again_by_the_next_controller() {
    play_alone(async |cluster| {
        let mut first = start_controller(&cluster, &[]).await;
        first.ready().await;
        let stage = Stage::on(cluster).await;
        let a = tcp("a").await;
        stage.service("web", 5000, &[&a]).await;
        stage.service("z-rival", 5000, &[&a]).await;
        stage.told("Service", "z-rival", "PortTaken").await;
        let before = warnings(&stage).await;
        assert_eq!(first.stop(), Some(0));
        let mut second = start_controller(&stage.cluster, &[]).await;
        second.ready().await;
        // Events are written one after another: once this one is there, all before it are.
        stage.service("zz-late", 5000, &[&a]).await;
        stage.told("Service", "zz-late", "PortTaken").await;
        let mut after = warnings(&stage).await;
        after.retain(|event| event["about"] != "zz-late");
        assert_eq!(after, before);
    });
}

/// The Events of the stage's namespace: about whom, why, how often and when last.
async fn warnings(stage: &Stage) -> Vec<Value> {
    let (_, list) = stage.cluster.get(&objects::path("Event", &stage.namespace, "")).await;
    let events = list["items"].as_array().expect("Events").iter();
    let ours = events.filter(|it| it["source"]["component"] != "endpoint-slice-controller");
    let short = ours.map(|it| {
        json!({
            "about": it["involvedObject"]["name"], "reason": it["reason"], "count": it["count"],
            "last": it["lastTimestamp"], "name": it["metadata"]["name"],
        })
    });
    short.collect()
}

#[test]
fn an_agent_serves_what_is_recorded_before_it_has_heard_from_any_controller() {
    play_alone(async |cluster| {
        let mut controller = start_controller(&cluster, &[]).await;
        controller.ready().await;
        let mut stage = Stage::on(cluster).await;
        let (a, b) = (tcp("a").await, tcp("b").await);
        stage.service("web", 5000, &[&a]).await;
        leads_to(&stage.dial(5000), "a").await;
        controller.process.kill();
        stage.agent.process.kill();
        let kubeconfig = agent_kubeconfig(&stage.cluster, &stage.lb).await;
        stage.agent = start_agent(&stage.cluster, &kubeconfig, &stage.lb);
        stage.agent.ready().await;
        assert_eq!(stage.dial(5000).line().await.expect("a connection").name, "a");
        // Endpoints need nobody's decision.
        stage.served_by("web", &[&b]).await;
        leads_to(&stage.dial(5000), "b").await;
    });
}

#[test]
fn many_changes_at_once_are_few_writes() {
    play_alone(async |cluster| {
        let mut controller = start_controller(&cluster, &[]).await;
        controller.ready().await;
        let stage = Stage::on(cluster).await;
        let many = 5000..5060u16;
        // Meanwhile it sleeps, so that it hears of all of them together.
        controller.process.signal("STOP");
        for port in many.clone() {
            stage.apply(objects::service(&format!("s{port}"), &stage.lb, &[(port, TARGET)])).await;
        }
        controller.process.signal("CONT");
        let writes = eventually("all are planned", || async {
            let (_, plans) = stage.cluster.get(&objects::path("Plan", SYSTEM, "")).await;
            let plans = plans["items"].as_array().cloned().unwrap_or_default();
            let all = plans.iter().flat_map(|plan| plan["spec"]["fragments"].as_array());
            let planned: usize = all.map(Vec::len).sum();
            let writes = plans.iter().filter_map(|plan| plan["metadata"]["generation"].as_u64());
            if planned == many.len() { Ok(writes.sum::<u64>()) } else { Err(planned.to_string()) }
        })
        .await;
        assert!((1..=10).contains(&writes), "{writes} writes for {} changes", many.len());
    });
}

/// Waits until the phase of the stage's load balancer is as wanted.
async fn phase(stage: &Stage, wanted: impl Fn(&str) -> bool) {
    eventually("the phase", || async {
        let lb = stage.cluster.read("LoadBalancer", "", &stage.lb).await;
        let phase = lb["status"]["phase"].as_str().unwrap_or_default();
        if wanted(phase) { Ok(()) } else { Err(lb["status"].to_string()) }
    })
    .await;
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
        assert!(started.elapsed() < TWO_LEASES, "no rest: {before} became {now}");
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
