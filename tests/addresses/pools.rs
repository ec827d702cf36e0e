//! Addresses from pools, as the API shows them.

use crate::stage::{Site, play};
use bowline_testing::objects::{self, path};
use bowline_testing::{Call, eventually};
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
        let address = site.cluster.read("Address", "", "192.0.2.0").await;
        assert_eq!(address["status"]["state"], "Active");
        assert_eq!(address["spec"]["heldBy"], format!("Service {}/a", site.namespace));
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
        let told = "released 192.0.2.0: it no longer asks for an address of a pool";
        assert_eq!(site.told("a", "AddressReleased").await, told);
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
        assert_eq!(site.told_of_pool("public", "BadEntries").await, readable["message"]);
        site.cluster.delete("AddressPool", "", "public").await;
        eventually("the pool says why it stays", || async {
            let pool = site.cluster.read("AddressPool", "", "public").await;
            let used = pool["status"]["conditions"][0].clone();
            if used["reason"] == "InUse" { Ok(()) } else { Err(pool.to_string()) }
        })
        .await;
        site.cluster.delete("Service", &site.namespace, "a").await;
        eventually("the pool goes", || async {
            match site.cluster.get(&path("AddressPool", "", "public")).await {
                (404, _) => Ok(()),
                (_, pool) => Err(pool.to_string()),
            }
        })
        .await;
    });
}

#[test]
fn a_service_that_comes_to_have_two_families_gets_its_second_address() {
    play(async || {
        let site = Site::new(&[]).await;
        site.pool("public", json!({"addresses": ["192.0.2.0/30", "2001:db8::/126"]})).await;
        site.service("a", json!({})).await;
        site.shows("a", &["192.0.2.0"]).await;
        let both = json!({"spec": {"ipFamilyPolicy": "PreferDualStack"}});
        site.patch("a", both).await;
        site.shows("a", &["192.0.2.0", "2001:db8::"]).await;
    });
}

#[test]
fn an_address_asked_for_in_two_ways_that_differ_is_not_given_and_what_is_had_stays() {
    play(async || {
        let site = Site::new(&[]).await;
        site.pool("public", json!({"addresses": ["192.0.2.0/29"]})).await;
        site.service("a", json!({"bowline.dev/vip": "192.0.2.5"})).await;
        site.shows("a", &["192.0.2.5"]).await;
        site.patch("a", json!({"spec": {"loadBalancerIP": "192.0.2.6"}})).await;
        let message = site.says("a", PROGRAMMED, "BadValue").await;
        let contradicts = "spec.loadBalancerIP: \"192.0.2.6\" contradicts bowline.dev/vip: \
                           \"192.0.2.5\"; write one of them";
        assert!(message.starts_with(contradicts), "{message}");
        assert_eq!(site.told("a", "BadValue").await, message);
        site.shows("a", &["192.0.2.5"]).await;
        // One that never had an address gets none; and the same said twice is no contradiction.
        let mut both = objects::service("b", "", &[(80, 8080)]);
        both["metadata"]["annotations"] = json!({"metallb.io/loadBalancerIPs": "192.0.2.2"});
        both["spec"]["loadBalancerIP"] = json!("192.0.2.3");
        site.cluster.apply(&site.namespace, &both).await;
        site.says("b", PROGRAMMED, "BadValue").await;
        site.records(&[("192.0.2.5", &["a"])]).await;
        site.patch("b", json!({"spec": {"loadBalancerIP": "192.0.2.2"}})).await;
        site.shows("b", &["192.0.2.2"]).await;
        site.patch("a", json!({"metadata": {"annotations": {"bowline.dev/vip": null}}})).await;
        site.shows("a", &["192.0.2.6", "192.0.2.5"]).await;
        let message = site.told("a", "AddressChanged").await;
        let moved =
            "changed from 192.0.2.5 to 192.0.2.6 of pool public: it asks for another address";
        assert_eq!(message, moved);
    });
}

#[test]
fn what_others_use_of_a_pool_is_taken_until_they_do_not() {
    play(async || {
        let site = Site::new(&[]).await;
        let mut theirs = objects::service("theirs", "", &[(80, 8080)]);
        theirs["spec"]["loadBalancerClass"] = json!("example.com/lb");
        site.cluster.apply(&site.namespace, &theirs).await;
        site.spoil("theirs", "192.0.2.0").await;
        let mut external = objects::service("external", "", &[(80, 8080)]);
        external["spec"] = json!({
            "type": "ClusterIP", "ports": external["spec"]["ports"], "externalIPs": ["192.0.2.1"],
        });
        site.cluster.apply(&site.namespace, &external).await;
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "far"}});
        site.cluster.apply("", &node).await;
        let has =
            json!({"status": {"addresses": [{"type": "ExternalIP", "address": "192.0.2.2"}]}});
        let call = Call::new("PATCH", path("Node", "", "far") + "/status")
            .body("application/merge-patch+json", has.to_string());
        site.cluster.http(call).await.expect(200);
        site.pool("public", json!({"addresses": ["192.0.2.0/30"]})).await;
        site.service("a", json!({})).await;
        site.shows("a", &["192.0.2.3"]).await;
        for (name, address, user) in [
            ("b", "192.0.2.0", format!("Service {}/theirs", site.namespace)),
            ("c", "192.0.2.1", format!("Service {}/external", site.namespace)),
            ("d", "192.0.2.2", "Node far".to_owned()),
        ] {
            site.service(name, json!({"bowline.dev/vip": address})).await;
            let message = site.says(name, PROGRAMMED, "AddressTaken").await;
            assert!(message.contains(&format!("{user} uses {address}; ")), "{message}");
            assert!(message.ends_with("ask for another address, or free it there"), "{message}");
        }
        site.cluster.delete("Service", &site.namespace, "theirs").await;
        site.shows("b", &["192.0.2.0"]).await;
        site.cluster.delete("Node", "", "far").await;
        site.shows("d", &["192.0.2.2"]).await;
        site.records(&[("192.0.2.0", &["b"]), ("192.0.2.2", &["d"]), ("192.0.2.3", &["a"])]).await;
    });
}
