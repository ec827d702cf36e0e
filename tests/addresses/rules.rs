//! What an administrator rules by a pool's fields, and what ends a Service's claim on an address, as the API
//! shows it.

use crate::stage::{Site, play};
use bowline_testing::{eventually, net, objects};
use serde_json::{Value, json};
use std::io::ErrorKind;
use std::net::IpAddr;
use tokio::net::TcpStream;

const PROGRAMMED: &str = "bowline.dev/Programmed";

/// Waits until the condition Used of a pool has this reason; returns its message.
async fn pool_says(site: &Site, name: &str, reason: &str) -> String {
    eventually(&format!("pool {name} is {reason}"), || async {
        let pool = site.cluster.read("AddressPool", "", name).await;
        let mut all = pool["status"]["conditions"].as_array().into_iter().flatten();
        match all.find(|it| it["type"] == "Used" && it["reason"] == reason) {
            Some(found) => Ok(found["message"].as_str().unwrap_or_default().to_owned()),
            None => Err(pool["status"].to_string()),
        }
    })
    .await
}

/// Waits until an Address is in a state.
async fn address_is(site: &Site, name: &str, state: &str) {
    eventually(&format!("{name} is {state}"), || async {
        let address = site.cluster.read("Address", "", name).await;
        if address["status"]["state"] == state { Ok(()) } else { Err(address.to_string()) }
    })
    .await;
}

async fn edit_pool(site: &Site, name: &str, spec: Value) {
    site.cluster.patch("AddressPool", "", name, &json!({"spec": spec})).await;
}

#[test]
fn a_namespace_has_no_more_addresses_than_its_quota_and_more_once_that_is_raised() {
    play(async || {
        let site = Site::new(&[]).await;
        site.pool("public", json!({"addresses": ["192.0.2.0/28"], "perNamespaceQuota": 1})).await;
        site.service("a", json!({})).await;
        site.shows("a", &["192.0.2.0"]).await;
        site.service("b", json!({})).await;
        let message = site.says("b", PROGRAMMED, "QuotaReached").await;
        assert!(message.contains("public"), "{message}");
        assert!(site.told("b", "QuotaReached").await.contains("public"));
        // A quota that is lowered takes nothing away, one that is raised serves who waits.
        edit_pool(&site, "public", json!({"perNamespaceQuota": 0})).await;
        edit_pool(&site, "public", json!({"perNamespaceQuota": 2})).await;
        site.shows("b", &["192.0.2.1"]).await;
        site.shows("a", &["192.0.2.0"]).await;
    });
}

#[test]
fn an_address_rests_after_its_last_holder_also_over_a_restart() {
    play(async || {
        let mut site = Site::new(&[]).await;
        site.pool("public", json!({"addresses": ["192.0.2.1/32"], "reuseAfter": "1h"})).await;
        site.service("a", json!({})).await;
        site.shows("a", &["192.0.2.1"]).await;
        site.cluster.delete("Service", &site.namespace, "a").await;
        address_is(&site, "192.0.2.1", "Resting").await;
        site.restart().await;
        site.service("b", json!({})).await;
        site.says("b", PROGRAMMED, "PoolsExhausted").await;
        site.records(&[("192.0.2.1", &[])]).await;
        // An administrator who cannot wait removes the Address.
        site.cluster.delete("Address", "", "192.0.2.1").await;
        site.shows("b", &["192.0.2.1"]).await;
    });
}

#[test]
fn the_younger_of_two_pools_that_overlap_gives_nothing_until_they_do_not() {
    play(async || {
        let site = Site::new(&[]).await;
        site.pool("older", json!({"addresses": ["192.0.2.0/29"], "autoAssign": false})).await;
        pool_says(&site, "older", "Used").await;
        // Creation is told to the second: the name decides where that is the same.
        site.pool("younger", json!({"addresses": ["192.0.2.4-192.0.2.20"]})).await;
        let message = pool_says(&site, "younger", "Overlaps").await;
        assert!(message.contains("older"), "{message}");
        site.told_of_pool("younger", "Overlaps").await;
        site.service("a", json!({"bowline.dev/address-pool": "younger"})).await;
        let message = site.says("a", PROGRAMMED, "PoolNotUsed").await;
        assert!(message.contains("older"), "{message}");
        edit_pool(&site, "younger", json!({"addresses": ["192.0.2.8-192.0.2.20"]})).await;
        site.shows("a", &["192.0.2.8"]).await;
    });
}

#[test]
fn what_is_for_one_scope_is_not_given_to_the_other() {
    play(async || {
        let site = Site::new(&[]).await;
        site.pool("public", json!({"addresses": ["192.0.2.1/32"], "scope": "Internet"})).await;
        let inside = json!({
            "apiVersion": "bowline.dev/v1alpha1", "kind": "LoadBalancer",
            "metadata": {"name": "inside"},
            "spec": {"scope": "Intranet", "addressPool": "public", "builtin": {}},
        });
        site.cluster.apply("", &inside).await;
        eventually("the load balancer is told", || async {
            let lb = site.cluster.read("LoadBalancer", "", "inside").await;
            let told = lb["status"]["conditions"].to_string();
            if told.contains("NotAllowed") { Ok(()) } else { Err(lb["status"].to_string()) }
        })
        .await;
        site.records(&[]).await;
        site.cluster
            .patch("LoadBalancer", "", "inside", &json!({"spec": {"scope": "Internet"}}))
            .await;
        site.records(&[("192.0.2.1", &["inside"])]).await;
        let assigned = async |status: Option<&str>| {
            eventually(&format!("Assigned is {status:?}"), || async {
                let lb = site.cluster.read("LoadBalancer", "", "inside").await;
                let mut all = lb["status"]["conditions"].as_array().into_iter().flatten();
                let found = all.find(|it| it["type"] == "Assigned").map(|it| &it["status"]);
                let same = found.and_then(|it| it.as_str()) == status;
                if same { Ok(()) } else { Err(lb["status"].to_string()) }
            })
            .await;
        };
        assigned(Some("True")).await;
        // Who no longer asks for a pool is told nothing of it.
        let fixed = json!({"spec": {"addressPool": null, "addresses": ["198.51.100.1"]}});
        site.cluster.patch("LoadBalancer", "", "inside", &fixed).await;
        assigned(None).await;
    });
}

#[test]
fn a_service_that_no_longer_asks_for_a_pool_is_closed_there_before_the_address_is_free() {
    play(async || {
        let site = Site::new(&[]).await;
        let (fixed, own) = (net::vip4(), net::vip4());
        site.cluster.apply("", &objects::load_balancer("edge", &[fixed])).await;
        site.pool("public", json!({"addresses": [format!("{own}/32")]})).await;
        let _agent = site.agent("edge").await;
        let annotations = json!({
            "bowline.dev/load-balancer": "edge", "bowline.dev/address-pool": "public",
        });
        site.service("a", annotations).await;
        site.shows("a", &[&own.to_string()]).await;
        // Nobody is behind it, so a connection may end at once; where nothing listens it is refused.
        let open = async |address: IpAddr| {
            let made = TcpStream::connect((address, 80)).await;
            !made.is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused)
        };
        assert!(open(own).await, "{own} is open");
        let none = json!({"bowline.dev/address-pool": null});
        site.patch("a", json!({"metadata": {"annotations": none}})).await;
        site.records(&[]).await;
        assert!(!open(own).await, "{own} is free and still served");
        site.shows("a", &[&fixed.to_string()]).await;
        assert!(open(fixed).await, "{fixed} is open");
    });
}
