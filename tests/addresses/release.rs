//! What holds an address back: nobody else gets it while an agent may still serve it, whoever leads.

use crate::stage::{Site, play};
use bowline_testing::objects::{self, path};
use bowline_testing::{eventually, net};
use serde_json::json;

const EXHAUSTED: &str = "PoolsExhausted";
const PROGRAMMED: &str = "bowline.dev/Programmed";

/// Whether a Plan has a listener at an address; and all Plans.
async fn is_planned(site: &Site, address: &str) -> (bool, String) {
    let (code, plans) = site.cluster.get(&path("Plan", "bowline-system", "")).await;
    assert_eq!(code, 200, "{plans}");
    let plans = plans.to_string();
    (plans.contains(&format!("\"address\":\"{address}\"")), plans)
}

/// Waits until no Plan has a listener at an address.
async fn is_planned_nowhere(site: &Site, address: &str) {
    eventually(&format!("no Plan has {address}"), || async {
        let (there, plans) = is_planned(site, address).await;
        if there { Err(plans) } else { Ok(()) }
    })
    .await;
}

#[test]
fn an_address_stays_with_a_service_that_an_agent_may_still_serve_over_two_changes_of_leader() {
    play(async || {
        let mut site = Site::new(&[]).await;
        let (fixed, own) = (net::vip4(), net::vip4().to_string());
        site.cluster.apply("", &objects::load_balancer("edge", &[fixed])).await;
        site.pool("public", json!({"addresses": [format!("{own}/32")]})).await;
        let agent = site.agent("edge").await;
        let annotations = json!({
            "bowline.dev/load-balancer": "edge", "bowline.dev/address-pool": "public",
        });
        site.service("a", annotations).await;
        site.shows("a", &[&own]).await;
        assert!(is_planned(&site, &own).await.0, "as Plans say it");
        agent.process.signal("STOP");
        site.controller.process.end();
        site.cluster.delete("Service", &site.namespace, "a").await;
        site.restart().await;
        // The second leader takes it out of the Plan; that is all that it has time for.
        is_planned_nowhere(&site, &own).await;
        site.restart().await;
        site.service("b", json!({})).await;
        site.says("b", PROGRAMMED, EXHAUSTED).await;
        site.records(&[(&own, &["a"])]).await;
        agent.process.signal("CONT");
        site.shows("b", &[&own]).await;
    });
}

#[test]
fn an_address_stays_with_a_load_balancer_until_its_agent_no_longer_serves_it() {
    play(async || {
        let site = Site::new(&[]).await;
        let (fixed, own) = (net::vip4(), net::vip4().to_string());
        site.pool("public", json!({"addresses": [format!("{own}/32")]})).await;
        let mut edge = objects::load_balancer("edge", &[]);
        edge["spec"]["addresses"] = json!(null);
        edge["spec"]["addressPool"] = json!("public");
        site.cluster.apply("", &edge).await;
        let agent = site.agent("edge").await;
        site.service("a", json!({"bowline.dev/load-balancer": "edge"})).await;
        site.shows("a", &[&own]).await;
        agent.process.signal("STOP");
        let fixed_now = json!({"spec": {"addresses": [fixed]}});
        site.cluster.patch("LoadBalancer", "", "edge", &fixed_now).await;
        is_planned_nowhere(&site, &own).await;
        // Nothing shows the old address any more; only the agent holds it back.
        eventually("the load balancer shows its fixed address", || async {
            let edge = site.cluster.read("LoadBalancer", "", "edge").await;
            let shown = edge["status"]["ingress"] == json!([{"ip": fixed}]);
            if shown { Ok(()) } else { Err(edge["status"].to_string()) }
        })
        .await;
        site.service("b", json!({})).await;
        site.says("b", PROGRAMMED, EXHAUSTED).await;
        site.records(&[(&own, &["edge"])]).await;
        agent.process.signal("CONT");
        site.shows("b", &[&own]).await;
        site.shows("a", &[&fixed.to_string()]).await;
    });
}
