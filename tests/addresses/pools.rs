//! Addresses from pools, as the API shows them.

use crate::stage::{Site, play};
use bowline_testing::eventually;
use serde_json::json;

const PROGRAMMED: &str = "bowline.dev/Programmed";

#[test]
fn a_service_on_no_load_balancer_gets_an_address_of_a_pool_and_keeps_it() {
    play(async || {
        let mut site = Site::new(&[]).await;
        site.pool("public", json!({"addresses": ["192.0.2.0/30"]})).await;
        site.service("a", json!({})).await;
        let points = site.shows("a", &["192.0.2.0"]).await;
        assert_eq!(points, json!([{"ip": "192.0.2.0", "ipMode": "VIP"}]));
        assert_eq!(site.says("a", PROGRAMMED, "Assigned").await, "192.0.2.0 of pool public");
        assert_eq!(site.told("a", "AddressAssigned").await, "assigned 192.0.2.0 of pool public");
        site.service("b", json!({})).await;
        site.shows("b", &["192.0.2.1"]).await;
        site.spoil("b", "192.0.2.3").await;
        site.shows("b", &["192.0.2.1"]).await;
        site.cluster.delete("Address", "", "192.0.2.1").await;
        site.records(&[("192.0.2.0", &["a"]), ("192.0.2.1", &["b"])]).await;
        site.cluster.delete("Service", &site.namespace, "a").await;
        site.records(&[("192.0.2.1", &["b"])]).await;
        site.restart().await;
        site.service("c", json!({})).await;
        site.shows("c", &["192.0.2.0"]).await;
        site.shows("b", &["192.0.2.1"]).await;
    });
}

#[test]
fn a_service_gets_the_address_or_the_pool_that_it_asks_for_in_every_spelling() {
    play(async || {
        let site = Site::new(&[]).await;
        site.pool("public", json!({"addresses": ["192.0.2.0/28"]})).await;
        let own = json!({"addresses": ["198.51.100.0/24"], "autoAssign": false});
        site.pool("own", own).await;
        site.service("a", json!({"bowline.dev/vip": "192.0.2.7"})).await;
        site.shows("a", &["192.0.2.7"]).await;
        site.service("b", json!({"metallb.io/loadBalancerIPs": "192.0.2.8"})).await;
        site.shows("b", &["192.0.2.8"]).await;
        site.service("c", json!({"metallb.io/address-pool": "own"})).await;
        site.shows("c", &["198.51.100.0"]).await;
        site.service("d", json!({"bowline.dev/vip": "192.0.2.7"})).await;
        let message = site.says("d", PROGRAMMED, "AddressTaken").await;
        assert!(message.contains("192.0.2.7 is held by Service"), "{message}");
        // What is asked for and cannot be had changes nothing but the condition.
        site.patch(
            "b",
            json!({"metadata": {"annotations": {"metallb.io/loadBalancerIPs": "192.0.2.7"}}}),
        )
        .await;
        site.says("b", PROGRAMMED, "AddressTaken").await;
        site.shows("b", &["192.0.2.8"]).await;
        site.cluster.delete("Service", &site.namespace, "a").await;
        // The older of the two has it; and for a while what it had before.
        site.shows("b", &["192.0.2.7", "192.0.2.8"]).await;
    });
}

#[test]
fn a_service_that_is_no_longer_ours_gives_its_address_back() {
    play(async || {
        let site = Site::new(&[]).await;
        site.pool("public", json!({"addresses": ["192.0.2.0/30"]})).await;
        site.service("a", json!({})).await;
        site.shows("a", &["192.0.2.0"]).await;
        let spec = json!({"type": "ClusterIP", "loadBalancerClass": null});
        site.patch("a", json!({"spec": spec})).await;
        site.records(&[]).await;
        site.shows("a", &[]).await;
    });
}

#[test]
fn a_pool_in_use_stays_until_nobody_has_an_address_of_it() {
    play(async || {
        let site = Site::new(&[]).await;
        let entries = json!(["192.0.2.0/30", "192.0.2.9-192.0.2.8"]);
        site.pool("public", json!({"addresses": entries})).await;
        site.service("a", json!({})).await;
        site.shows("a", &["192.0.2.0"]).await;
        let pool = eventually("the pool is counted", || async {
            let pool = site.cluster.read("AddressPool", "", "public").await;
            match pool["status"]["ipv4"]["assigned"] == 1 {
                true if pool["metadata"]["finalizers"].is_array() => Ok(pool),
                _ => Err(pool.to_string()),
            }
        })
        .await;
        assert_eq!(pool["metadata"]["finalizers"], json!(["bowline.dev/in-use"]));
        assert_eq!(pool["status"]["ipv4"], json!({"assigned": 1, "resting": 0, "available": 3}));
        let readable = pool["status"]["conditions"][1].clone();
        assert_eq!(readable["reason"], "BadEntries", "{readable}");
        site.cluster.delete("AddressPool", "", "public").await;
        eventually("the pool says why it stays", || async {
            let pool = site.cluster.read("AddressPool", "", "public").await;
            let used = pool["status"]["conditions"][0].clone();
            if used["reason"] == "InUse" { Ok(()) } else { Err(pool.to_string()) }
        })
        .await;
        site.cluster.delete("Service", &site.namespace, "a").await;
        eventually("the pool goes", || async {
            let path = bowline_testing::objects::path("AddressPool", "", "public");
            match site.cluster.get(&path).await {
                (404, _) => Ok(()),
                (_, pool) => Err(pool.to_string()),
            }
        })
        .await;
    });
}
