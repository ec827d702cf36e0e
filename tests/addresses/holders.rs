//! Holders that are neither Services nor load balancers.

use crate::stage::{Site, play};
use bowline_testing::eventually;
use bowline_testing::objects::path;
use serde_json::{Value, json};

async fn external_ip(site: &Site, name: &str, pool: &str) {
    let object = json!({
        "apiVersion": "bowline.dev/v1alpha1", "kind": "ExternalIP", "metadata": {"name": name},
        "spec": {"serviceName": "game", "podName": name, "addressPool": pool},
    });
    site.cluster.apply(&site.namespace, &object).await;
}

/// Waits until an ExternalIP is in a phase with these addresses; returns it.
async fn is(site: &Site, name: &str, phase: &str, ips: Value) -> Value {
    eventually(&format!("{name} is {phase} with {ips}"), || async {
        let object = site.cluster.read("ExternalIP", &site.namespace, name).await;
        let status = &object["status"];
        let there = status["phase"] == phase && status["ips"] == ips;
        if there { Ok(object.clone()) } else { Err(object.to_string()) }
    })
    .await
}

#[test]
fn an_external_ip_has_an_address_of_each_family_of_its_pool_until_it_goes() {
    play(async || {
        let mut site = Site::new(&[]).await;
        site.pool("games", json!({"addresses": ["192.0.2.8/32", "2001:db8::8/128"]})).await;
        external_ip(&site, "game-0", "games").await;
        let both = json!(["192.0.2.8", "2001:db8::8"]);
        let object = is(&site, "game-0", "Assigned", both.clone()).await;
        assert_eq!(object["metadata"]["finalizers"], json!(["bowline.dev/cleanup"]));
        let six = "2001-0db8-0000-0000-0000-0000-0000-0008";
        site.records(&[("192.0.2.8", &["game-0"]), (six, &["game-0"])]).await;
        let address = site.cluster.read("Address", "", "192.0.2.8").await;
        assert_eq!(address["spec"]["holders"][0]["kind"], "ExternalIP");
        // The next one waits, over a restart too, and is told why.
        external_ip(&site, "game-1", "games").await;
        site.restart().await;
        let waits = is(&site, "game-1", "Pending", Value::Null).await;
        let condition = &waits["status"]["conditions"][0];
        assert_eq!(
            (&condition["type"], &condition["reason"]),
            (&json!("Assigned"), &json!("PoolsExhausted"))
        );
        is(&site, "game-0", "Assigned", both.clone()).await;
        site.cluster.delete("ExternalIP", &site.namespace, "game-0").await;
        is(&site, "game-1", "Assigned", both).await;
        site.cluster.delete("ExternalIP", &site.namespace, "game-1").await;
        site.records(&[]).await;
        eventually("the ExternalIP goes", || async {
            match site.cluster.get(&path("ExternalIP", &site.namespace, "game-1")).await {
                (404, _) => Ok(()),
                (_, object) => Err(object.to_string()),
            }
        })
        .await;
    });
}
