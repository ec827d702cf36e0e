//! Taking over: hosts and ports that are recorded for one tenant stay with it, whatever an older object of
//! another tenant asks for later, also when a controller restarts or two of them lead.

use crate::programs::Program;
use crate::stage::{Stage, is_closed, leads_to, play, play_alone, serves, start_controller, tcp};
use crate::tenants::{Evil, SHOP, shop, unharmed};
use bowline_testing::{SYSTEM, eventually, objects};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The namespaces that have a host in the Plans of the load balancer.
pub(crate) async fn recorded(stage: &Stage, host: &str) -> Vec<String> {
    let (_, list) = stage.cluster.get(&objects::path("Plan", SYSTEM, "")).await;
    let mut found = Vec::new();
    for plan in list["items"].as_array().into_iter().flatten() {
        if plan["spec"]["loadBalancer"] != stage.lb {
            continue;
        }
        for fragment in plan["spec"]["fragments"].as_array().into_iter().flatten() {
            let mut sites = fragment["sites"].as_array().into_iter().flatten();
            if sites.any(|site| site["host"] == host) {
                let namespace = fragment["consumer"]["namespace"].as_str().unwrap_or_default();
                found.push(namespace.to_owned());
            }
        }
    }
    found.sort();
    found
}

#[test]
fn an_edit_of_an_older_ingress_takes_no_host() {
    edited_ingress(Program::Builtin);
}

#[test]
fn an_edit_of_an_older_ingress_takes_no_host_on_haproxy() {
    edited_ingress(Program::Haproxy);
}

#[test]
fn an_edit_of_an_older_ingress_takes_no_host_on_nginx() {
    edited_ingress(Program::Nginx);
}

fn edited_ingress(program: Program) {
    program.play(async |stage| {
        let evil = Evil::new(stage).await;
        let _web = evil.web(stage).await;
        evil.ingress(stage, "old", &["old.example"]).await;
        serves(&stage.dial(80), "old.example", "/", "evil").await;
        next_second(stage).await;
        let _shop = shop(stage).await;
        unharmed(&stage.dial(80), async {
            evil.ingress(stage, "old", &[SHOP]).await;
            let said = stage.told_in(&evil.namespace, "Ingress", "old", "HostTaken").await;
            assert!(said.contains(SHOP) && said.contains(&stage.namespace), "{said}");
        })
        .await;
        // What shop lets go of goes to the one that waits.
        stage.delete("Ingress", "web").await;
        serves(&stage.dial(80), SHOP, "/", "evil").await;
    });
}

/// An object that is made now is younger than all that are there.
async fn next_second(stage: &Stage) {
    let (mut first, mut n) = (String::new(), 0);
    loop {
        let name = format!("second-{n}");
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        let made = stage.cluster.apply(&stage.namespace, &object).await;
        let created = made["metadata"]["creationTimestamp"].as_str().unwrap_or_default().to_owned();
        if first.is_empty() {
            first.clone_from(&created);
        }
        if created != first {
            return;
        }
        n += 1;
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

#[test]
fn an_older_service_that_is_sent_here_later_takes_no_listener() {
    play(async |stage| {
        let evil = Evil::new(stage).await;
        // An older Service, on no load balancer yet.
        let mut old = objects::cluster_service("old", 80, 80);
        old["spec"]["ports"] = json!([{"name": "a", "port": 80}, {"name": "b", "port": 5000}]);
        evil.apply(stage, old).await;
        next_second(stage).await;
        let _shop = shop(stage).await;
        let a = tcp("a").await;
        stage.service("line", 5000, &[&a]).await;
        leads_to(&stage.dial(5000), "a").await;
        unharmed(&stage.dial(80), async {
            let to_lb = json!({
                "metadata": {"annotations": {"bowline.dev/load-balancer": stage.lb}},
                "spec": {"type": "LoadBalancer", "loadBalancerClass": "bowline.dev/lb"},
            });
            stage.cluster.patch("Service", &evil.namespace, "old", &to_lb).await;
            stage.told_in(&evil.namespace, "Service", "old", "PortTaken").await;
            assert_eq!(stage.dial(5000).line().await.expect("an answer").name, "a");
        })
        .await;
        // Nor when the oldest Ingress of the shared listener goes: another one is still there.
        let more = [("more.example", "/", "Prefix", "web")];
        stage.ingress("younger", &more).await;
        serves(&stage.dial(80), "more.example", "/", "shop").await;
        stage.delete("Ingress", "web").await;
        eventually("the first Ingress is gone", || async {
            let left = recorded(stage, SHOP).await;
            if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
        })
        .await;
        serves(&stage.dial(80), "more.example", "/", "shop").await;
        // The last one lets go.
        stage.delete("Ingress", "younger").await;
        is_closed(&stage.dial(80)).await;
    });
}

#[test]
fn a_controller_that_begins_anew_keeps_what_is_recorded() {
    play_alone(async |cluster| {
        let mut controller = start_controller(&cluster, &[]).await;
        controller.ready().await;
        let stage = Stage::on(cluster).await;
        let stage = &stage;
        let evil = Evil::new(stage).await;
        let _web = evil.web(stage).await;
        evil.ingress(stage, "old", &["old.example"]).await;
        serves(&stage.dial(80), "old.example", "/", "evil").await;
        next_second(stage).await;
        let _shop = shop(stage).await;
        unharmed(&stage.dial(80), async {
            // Nobody leads while evil edits, so what begins then sees only the result.
            controller.process.kill();
            evil.ingress(stage, "old", &[SHOP]).await;
            let mut again = start_controller(&stage.cluster, &[]).await;
            again.ready().await;
            stage.told_in(&evil.namespace, "Ingress", "old", "HostTaken").await;
            assert_eq!(recorded(stage, SHOP).await, [stage.namespace.as_str()]);
            // A second one that believes to lead as well decides the same.
            let mut twin = start_controller(&stage.cluster, &["--leader-elect=false"]).await;
            twin.ready().await;
            evil.ingress(stage, "another", &[SHOP, "free.example"]).await;
            serves(&stage.dial(80), "free.example", "/", "evil").await;
            assert_eq!(recorded(stage, SHOP).await, [stage.namespace.as_str()]);
        })
        .await;
    });
}

/// A Plan of another leader, which gave what an object of shop's has to one of evil's at the same time.
async fn foreign_plan(stage: &Stage, evil: &Evil, kind: &str, name: &str) -> Value {
    let mut plan = stage.cluster.read("Plan", SYSTEM, &format!("{}-0", stage.lb)).await;
    let object = stage.cluster.read(kind, &evil.namespace, "old").await;
    let fragments = plan["spec"]["fragments"].as_array().cloned().unwrap_or_default();
    let shops = fragments.into_iter().find(|it| {
        let consumer = &it["consumer"];
        consumer["namespace"] == *stage.namespace
            && consumer["kind"] == kind
            && consumer["name"] == name
    });
    let text =
        shops.expect("shop's fragment").to_string().replace(&stage.namespace, &evil.namespace);
    let mut fragment: Value = serde_json::from_str(&text).expect("JSON");
    fragment["consumer"]["name"] = json!("old");
    fragment["consumer"]["uid"] = object["metadata"]["uid"].clone();
    let metadata = plan["metadata"].as_object_mut().expect("metadata");
    metadata.retain(|key, _| ["labels", "ownerReferences", "namespace"].contains(&key.as_str()));
    metadata.insert("name".to_owned(), json!(format!("{}-7", stage.lb)));
    plan["spec"]["fragments"] = json!([fragment]);
    plan
}

#[test]
fn of_two_plans_for_one_host_the_one_that_is_served_stays() {
    play(async |stage| {
        let evil = Evil::new(stage).await;
        let _web = evil.web(stage).await;
        evil.ingress(stage, "old", &[SHOP]).await;
        serves(&stage.dial(80), SHOP, "/", "evil").await;
        evil.ingress(stage, "old", &["old.example"]).await;
        serves(&stage.dial(80), "old.example", "/", "evil").await;
        next_second(stage).await;
        let _shop = shop(stage).await;
        evil.ingress(stage, "old", &[SHOP]).await;
        stage.told_in(&evil.namespace, "Ingress", "old", "HostTaken").await;
        unharmed(&stage.dial(80), async {
            let plan = foreign_plan(stage, &evil, "Ingress", "web").await;
            stage.cluster.apply(SYSTEM, &plan).await;
            eventually("the leader takes out what is not served", || async {
                let left = recorded(stage, SHOP).await;
                if left == [stage.namespace.as_str()] { Ok(()) } else { Err(format!("{left:?}")) }
            })
            .await;
        })
        .await;
    });
}

/// The namespaces that have a port in the Plans of the load balancer.
async fn recorded_port(stage: &Stage, port: u16) -> BTreeSet<String> {
    let (_, list) = stage.cluster.get(&objects::path("Plan", SYSTEM, "")).await;
    let plans = list["items"].as_array().cloned().unwrap_or_default();
    let ours = plans.into_iter().filter(|plan| plan["spec"]["loadBalancer"] == stage.lb);
    let fragments =
        ours.flat_map(|plan| plan["spec"]["fragments"].as_array().cloned().unwrap_or_default());
    let has = |fragment: &Value| {
        let mut listeners = fragment["listeners"].as_array().into_iter().flatten();
        listeners.any(|listener| listener["port"] == port)
    };
    let namespace = |it: Value| it["consumer"]["namespace"].as_str().unwrap_or_default().to_owned();
    fragments.filter(has).map(namespace).collect()
}

#[test]
fn of_two_plans_for_one_port_the_one_that_is_served_stays() {
    play(async |stage| {
        let evil = Evil::new(stage).await;
        evil.apply(stage, objects::service("old", &stage.lb, &[(5001, 8080)])).await;
        next_second(stage).await;
        let a = tcp("a").await;
        stage.service("line", 5000, &[&a]).await;
        leads_to(&stage.dial(5000), "a").await;
        evil.apply(stage, objects::service("old", &stage.lb, &[(5000, 8080), (5001, 8080)])).await;
        stage.told_in(&evil.namespace, "Service", "old", "PortTaken").await;
        let plan = foreign_plan(stage, &evil, "Service", "line").await;
        stage.cluster.apply(SYSTEM, &plan).await;
        eventually("the leader takes out what is not served", || async {
            assert_eq!(stage.dial(5000).line().await.expect("an answer").name, "a");
            let left = recorded_port(stage, 5000).await;
            let only = left.len() == 1 && left.contains(&stage.namespace);
            if only { Ok(()) } else { Err(format!("{left:?}")) }
        })
        .await;
    });
}
