//! What one tenant does with addresses, and what another one keeps, as the API shows it.

use crate::stage::{Site, play};
use bowline_testing::{Call, eventually, net, objects, objects::path};
use serde_json::{Value, json};

const PROGRAMMED: &str = "bowline.dev/Programmed";

/// A Service that Bowline gives nothing, with these `externalIPs`.
fn external_ips(name: &str, addresses: impl Iterator<Item = u8>) -> Value {
    let addresses: Vec<String> = addresses.map(|last| format!("192.0.2.{last}")).collect();
    let mut service = objects::service(name, "", &[(80, 8080)]);
    let ports = service["spec"]["ports"].clone();
    service["spec"] = json!({"type": "ClusterIP", "ports": ports, "externalIPs": addresses});
    service
}

#[test]
fn external_ips_over_a_whole_pool_keep_no_other_tenant_from_an_address() {
    play(async || {
        let mut site = Site::new(&["--leader-elect=false"]).await;
        let evil = site.cluster.namespace().await;
        site.cluster.apply(&evil, &external_ips("all", 0..=15)).await;
        // A status that another controller would write is no better.
        let mut theirs = objects::service("theirs", "", &[(80, 8080)]);
        theirs["spec"]["loadBalancerClass"] = json!("example.com/lb");
        site.cluster.apply(&evil, &theirs).await;
        let points: Vec<Value> =
            (0..=15).map(|last| json!({"ip": format!("192.0.2.{last}")})).collect();
        let shown = json!({"status": {"loadBalancer": {"ingress": points}}});
        let call = Call::new("PATCH", path("Service", &evil, "theirs") + "/status")
            .body("application/merge-patch+json", shown.to_string());
        site.cluster.http(call).await.expect(200);
        site.pool("public", json!({"addresses": ["192.0.2.0/28"], "perNamespaceQuota": 2})).await;
        site.service("web", json!({})).await;
        site.shows("web", &["192.0.2.2"]).await;
        let message = site.told_in(&evil, "all", "AddressIgnored").await;
        assert_eq!(
            message,
            "192.0.2.2, 192.0.2.3, 192.0.2.4 and 11 more in externalIPs or status is ignored and may be granted \
             to others, because no pool would grant it: pool \"public\": the namespace has 2 of the 2 addresses \
             of its quota"
        );
        site.told_in(&evil, "theirs", "AddressIgnored").await;
        // Also what was there first takes nothing from a holder, and what counts stays so in another life.
        site.restart().await;
        site.service("api", json!({"bowline.dev/vip": "192.0.2.1"})).await;
        let message = site.says("api", PROGRAMMED, "AddressTaken").await;
        assert!(message.contains(&format!("Service {evil}/all uses 192.0.2.1")), "{message}");
        site.patch("api", json!({"metadata": {"annotations": {"bowline.dev/vip": null}}})).await;
        site.shows("api", &["192.0.2.3"]).await;
        site.shows("web", &["192.0.2.2"]).await;
    });
}

#[test]
fn external_ips_of_a_pool_for_others_do_not_count() {
    play(async || {
        let site = Site::new(&[]).await;
        let evil = site.cluster.namespace().await;
        site.cluster.apply(&evil, &external_ips("all", 0..=3)).await;
        let to = json!({"namespaces": [site.namespace]});
        site.pool("public", json!({"addresses": ["192.0.2.0/30"], "allocateTo": to})).await;
        for (name, address) in [("a", "192.0.2.0"), ("b", "192.0.2.1")] {
            site.service(name, json!({})).await;
            site.shows(name, &[address]).await;
        }
        let message = site.told_in(&evil, "all", "AddressIgnored").await;
        assert!(message.ends_with("pool \"public\": not for this namespace"), "{message}");
    });
}

#[test]
fn a_new_external_load_balancer_draws_no_service_that_merely_asks_for_an_address() {
    play(async || {
        let address = net::vip4();
        let site = Site::new(&[]).await;
        site.pool("public", json!({"addresses": ["192.0.2.0/28"]})).await;
        let mut field = objects::service("field", "", &[(80, 8080)]);
        field["metadata"]["annotations"] = json!({});
        field["spec"]["loadBalancerIP"] = json!("192.0.2.3");
        site.cluster.apply(&site.namespace, &field).await;
        site.service("ours", json!({"bowline.dev/vip": "192.0.2.1"})).await;
        site.service("theirs", json!({"metallb.io/loadBalancerIPs": "192.0.2.2"})).await;
        let asked = [("ours", "192.0.2.1"), ("theirs", "192.0.2.2"), ("field", "192.0.2.3")];
        for (name, address) in asked {
            site.shows(name, &[address]).await;
        }
        let device = json!({
            "apiVersion": "bowline.dev/v1alpha1", "kind": "LoadBalancer",
            "metadata": {"name": "device"},
            "spec": {
                "addresses": [address.to_string()], "allowedNamespaces": {"from": "All"},
                "external": {
                    "driver": "Webhook", "insecureSkipVerify": true,
                    "primary": {"url": "http://127.0.0.1:9"},
                },
            },
        });
        let before = site.version("ours").await;
        site.cluster.apply("", &device).await;
        // The one that asks in elb-controller's spelling goes there, and nothing else does.
        site.service("elb", json!({"lb.zcloud.cn/vip": address.to_string()})).await;
        eventually("elb is on the device, and nothing else is", || async {
            let device = site.cluster.read("LoadBalancer", "", "device").await;
            let on = device["status"]["consumers"].as_array().cloned().unwrap_or_default();
            let on: Vec<&str> = on.iter().filter_map(|it| it["name"].as_str()).collect();
            if on == ["elb"] { Ok(()) } else { Err(device.to_string()) }
        })
        .await;
        for (name, address) in asked {
            site.shows(name, &[address]).await;
        }
        let shown = site.has_shown(&before).await;
        assert!(shown.iter().all(|it| it.len() <= 1), "{shown:?}");
    });
}
