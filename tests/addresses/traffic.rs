//! Addresses of pools that a load balancer serves: a client reaches them.

use crate::stage::{Site, play};
use bowline_testing::objects::{self, Endpoint};
use bowline_testing::{Backend, Dial, eventually, net};
use serde_json::json;
use std::net::IpAddr;

const TARGET: u16 = 8080;

async fn leads_to(address: IpAddr, name: &str) {
    let dial = Dial::to(address, 80);
    eventually(&format!("a connection to {name}"), || async {
        let line = dial.line().await?;
        if line.name == name { Ok(()) } else { Err(format!("it leads to {}", line.name)) }
    })
    .await;
}

async fn backend(site: &Site, service: &str) -> Backend {
    let backend = Backend::tcp(service, net::pod4(), TARGET).await;
    let slice = objects::slice(service, ("", TARGET, "TCP"), &[Endpoint::ready(backend.at.ip())]);
    site.cluster.apply(&site.namespace, &slice).await;
    backend
}

#[test]
fn a_service_that_names_a_pool_is_served_at_an_address_of_it() {
    play(async || {
        let site = Site::new(&[]).await;
        let (fixed, own) = (net::vip4(), net::vip4());
        site.cluster.apply("", &objects::load_balancer("edge", &[fixed])).await;
        site.pool("public", json!({"addresses": [format!("{own}/32")]})).await;
        let _agent = site.agent("edge").await;
        let _a = backend(&site, "a").await;
        let annotations = json!({
            "bowline.dev/load-balancer": "edge", "bowline.dev/address-pool": "public",
        });
        site.service("a", annotations).await;
        leads_to(own, "a").await;
        let points = site.shows("a", &[&own.to_string()]).await;
        assert_eq!(points, json!([{"ip": own, "ipMode": "Proxy"}]));
        // Another one has to wait, and is told why.
        let annotations = json!({
            "bowline.dev/load-balancer": "edge", "bowline.dev/address-pool": "public",
        });
        site.service("b", annotations).await;
        let message = site.says("b", "bowline.dev/Programmed", "PoolsExhausted").await;
        assert!(message.contains("pool \"public\": no free IPv4 address"), "{message}");
        assert_eq!(site.told("b", "PoolsExhausted").await, message);
        site.told("a", "AddressAssigned").await;
        assert_eq!(site.warnings("a").await, [""; 0], "that it was being recorded is no news");
        let _b = backend(&site, "b").await;
        site.cluster.delete("Service", &site.namespace, "a").await;
        leads_to(own, "b").await;
        site.shows("b", &[&own.to_string()]).await;
    });
}

#[test]
fn an_address_that_an_agent_may_still_serve_goes_to_nobody_else() {
    play(async || {
        let site = Site::new(&[]).await;
        let (fixed, own) = (net::vip4(), net::vip4());
        site.cluster.apply("", &objects::load_balancer("edge", &[fixed])).await;
        site.pool("public", json!({"addresses": [format!("{own}/32")]})).await;
        let mut agent = site.agent("edge").await;
        let _a = backend(&site, "a").await;
        let annotations = json!({
            "bowline.dev/load-balancer": "edge", "bowline.dev/address-pool": "public",
        });
        site.service("a", annotations).await;
        site.shows("a", &[&own.to_string()]).await;
        agent.process.end();
        site.cluster.delete("Service", &site.namespace, "a").await;
        site.service("b", json!({})).await;
        let message = site.says("b", "bowline.dev/Programmed", "PoolsExhausted").await;
        assert!(message.contains("pool \"public\": no free IPv4 address"), "{message}");
        let _agent = site.agent("edge").await;
        site.shows("b", &[&own.to_string()]).await;
    });
}

#[test]
fn a_controller_that_takes_over_gives_nobody_an_address_that_an_agent_may_still_serve() {
    play(async || {
        let mut site = Site::new(&[]).await;
        let (fixed, own) = (net::vip4(), net::vip4());
        site.cluster.apply("", &objects::load_balancer("edge", &[fixed])).await;
        site.pool("public", json!({"addresses": [format!("{own}/32")]})).await;
        let agent = site.agent("edge").await;
        let _a = backend(&site, "a").await;
        let annotations = json!({
            "bowline.dev/load-balancer": "edge", "bowline.dev/address-pool": "public",
        });
        site.service("a", annotations).await;
        site.shows("a", &[&own.to_string()]).await;
        agent.process.signal("STOP");
        site.controller.process.end();
        site.cluster.delete("Service", &site.namespace, "a").await;
        site.service("b", json!({})).await;
        site.restart().await;
        let message = site.says("b", "bowline.dev/Programmed", "PoolsExhausted").await;
        assert!(message.contains("pool \"public\": no free IPv4 address"), "{message}");
        site.records(&[(&own.to_string(), &["a"])]).await;
        agent.process.signal("CONT");
        site.shows("b", &[&own.to_string()]).await;
    });
}

#[test]
fn a_load_balancer_with_a_pool_has_an_address_of_it_and_serves_there() {
    play(async || {
        let site = Site::new(&[]).await;
        let own = net::vip4();
        let mut edge = objects::load_balancer("edge", &[]);
        edge["spec"]["addresses"] = json!(null);
        edge["spec"]["addressPool"] = json!("public");
        site.pool("public", json!({"addresses": [format!("{own}/32")]})).await;
        site.cluster.apply("", &edge).await;
        let _agent = site.agent("edge").await;
        let _a = backend(&site, "a").await;
        site.service("a", json!({"bowline.dev/load-balancer": "edge"})).await;
        leads_to(own, "a").await;
        site.shows("a", &[&own.to_string()]).await;
        site.records(&[(&own.to_string(), &["edge"])]).await;
        eventually("the load balancer shows its address", || async {
            let edge = site.cluster.read("LoadBalancer", "", "edge").await;
            let shown = edge["status"]["ingress"] == json!([{"ip": own}]);
            if shown { Ok(()) } else { Err(edge.to_string()) }
        })
        .await;
    });
}
