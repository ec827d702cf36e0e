//! What consumers say they will use, against what a load balancer can carry.

use crate::stage::{CLAIM, LB, Site, play};
use bowline_testing::objects;
use serde_json::{Value, json};

/// Who has a seat, with how much, and what they take together.
fn seats(lb: &Value) -> (Vec<String>, Value) {
    let consumers = lb["status"]["consumers"].as_array().cloned().unwrap_or_default();
    let seat = |it: &Value| {
        let amount = it["requests"]["network-bandwidth"].as_str().unwrap_or("-");
        format!("{} {amount}", it["name"].as_str().unwrap_or_default())
    };
    (consumers.iter().map(seat).collect(), lb["status"]["allocated"]["network-bandwidth"].clone())
}

impl Site {
    /// A Service that names a claim, says how much it will use, and has a port of its own.
    async fn consumer(&self, name: &str, port: u16, bandwidth: &str) {
        let mut service = objects::service(name, "", &[(port, 8080)]);
        service["metadata"]["annotations"] = json!({
            "bowline.dev/load-balancer-claim": "web", "bowline.dev/network-bandwidth": bandwidth,
        });
        self.cluster.apply(&self.namespace, &service).await;
    }

    async fn have_seats(&self, expected: &[&str], allocated: &str) {
        self.until(LB, "edge-1", &format!("seats {expected:?}"), |it| {
            let (found, sum) = seats(it);
            (found.iter().eq(expected.iter()) && sum == allocated).then_some(())
        })
        .await;
    }

    async fn refused(&self, name: &str, reason: &str) -> String {
        self.until("Service", name, &format!("is refused: {reason}"), |it| {
            let all = it["status"]["conditions"].as_array()?;
            let ours = all.iter().find(|it| it["type"] == "bowline.dev/Programmed")?;
            (ours["reason"] == reason).then(|| ours["message"].as_str().unwrap_or("").to_owned())
        })
        .await
    }
}

async fn site(spec: Value) -> Site {
    let site = Site::new().await;
    let mut with = json!({"addresses": ["203.0.113.10"], "capacity": {"network-bandwidth": "10G"}});
    with.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    site.lb("edge-1", with).await;
    site.claim("web", json!({})).await;
    site.bound("web", "edge-1").await;
    site
}

#[test]
fn nobody_gets_more_than_there_is_and_what_is_free_goes_to_who_has_waited_longest() {
    play(async || {
        let mut site = site(json!({})).await;
        site.consumer("first", 5001, "6G").await;
        site.have_seats(&["first 6G"], "6G").await;
        site.until(LB, "edge-1", "says how full it is", |it| {
            (it["status"]["used"] == json!({"network-bandwidth": "60%"})).then_some(())
        })
        .await;
        let table = site.cluster.kubectl(&["get", "lb", "edge-1", "-o", "wide"], "").ok();
        assert!(table.contains("BANDWIDTH-USED") && table.contains(" 60% "), "{table}");
        site.consumer("second", 5002, "5G").await;
        let message = site.refused("second", "NoCapacity").await;
        let left = "has 4G of 10G network-bandwidth left, and 5G is requested";
        assert!(message.contains(left), "{message}");
        assert!(site.told(&site.namespace, "second", "NoCapacity").await.contains(left));
        site.until(LB, "edge-1", "says whom it refused", |it| {
            (it["status"]["refused"][0]["reason"] == "NoCapacity").then_some(())
        })
        .await;
        // What is left is kept for it.
        site.consumer("third", 5003, "4G").await;
        let message = site.refused("third", "NoCapacity").await;
        assert!(message.contains("kept for a consumer that has waited longer"), "{message}");
        // An increase that does not fit leaves the old request in force.
        site.consumer("first", 5001, "11G").await;
        site.told(&site.namespace, "first", "NoCapacity").await;
        site.have_seats(&["first 6G"], "6G").await;
        // A leader that comes later finds the same.
        site.kill();
        site.revive().await;
        // Of the same second, the first by name counts as older.
        site.consumer("younger", 5004, "6G").await;
        site.cluster.delete("Service", &site.namespace, "first").await;
        site.have_seats(&["second 5G", "third 4G"], "9G").await;
        site.refused("younger", "NoCapacity").await;
    });
}

#[test]
fn where_it_is_required_who_does_not_say_what_it_will_use_is_refused_and_so_is_nonsense() {
    play(async || {
        let site = site(json!({"requireRequests": true})).await;
        for (name, port, amount) in [
            ("negative", 5001, "-1"),
            ("absurd", 5002, "99999999999999999999P"),
            ("text", 5003, "lots"),
        ] {
            site.consumer(name, port, amount).await;
            let message = site.refused(name, "BadValue").await;
            assert!(message.contains(&format!("{amount:?}")), "{message}");
        }
        let mut service = objects::service("silent", "", &[(5004, 8080)]);
        service["metadata"]["annotations"] = json!({"bowline.dev/load-balancer-claim": "web"});
        site.cluster.apply(&site.namespace, &service).await;
        let message = site.refused("silent", "RequestsRequired").await;
        assert!(message.contains("bowline.dev/network-bandwidth"), "{message}");
        site.consumer("good", 5005, "1G").await;
        site.have_seats(&["good 1G"], "1G").await;
    });
}

#[test]
fn another_namespace_gets_nothing_by_naming_what_is_not_its_own() {
    play(async || {
        let site = site(json!({})).await;
        let other = site.cluster.namespace().await;
        for (name, annotation) in
            [("by-claim", "load-balancer-claim"), ("by-name", "load-balancer")]
        {
            let mut service = objects::service(name, "", &[(5001, 8080)]);
            let target = if name == "by-claim" { "web" } else { "edge-1" };
            let key = format!("bowline.dev/{annotation}");
            service["metadata"]["annotations"] = json!({key: target});
            site.cluster.apply(&other, &service).await;
        }
        let message = site.told(&other, "by-claim", "ClaimNotFound").await;
        assert_eq!(message, "claim \"web\" does not exist");
        site.told(&other, "by-name", "NotAllowed").await;
        // A claim of theirs that names it gets nothing, either.
        site.claim_in(&other, "web", json!({"loadBalancerName": "edge-1"})).await;
        let message = site.told(&other, "web", "NoMatch").await;
        assert_eq!(message, "load balancer \"edge-1\": another claim has it");
        site.until(LB, "edge-1", "has nobody", |it| seats(it).0.is_empty().then_some(())).await;
        site.until(CLAIM, "web", "keeps what it has", |it| {
            (it["status"]["phase"] == "Bound").then_some(())
        })
        .await;
    });
}
