//! Who gets which load balancer, and what who gets none is told.

use crate::stage::{CLAIM, LB, Site, has, play, wants};
use serde_json::json;

#[test]
fn a_claim_gets_the_load_balancer_with_the_least_to_spare_and_says_where_it_is_reached() {
    play(async || {
        let site = Site::new().await;
        site.lb("large", has("10G")).await;
        site.lb(
            "middle",
            json!({"capacity": {"network-bandwidth": "3G"}, "addresses": ["203.0.113.10"]}),
        )
        .await;
        site.lb("small", has("1G")).await;
        site.claim("web", wants("2G")).await;
        site.bound("web", "middle").await;
        site.until(CLAIM, "web", "shows what it has", |it| {
            let status = &it["status"];
            (status["capacity"] == json!({"network-bandwidth": "3G"})
                && status["ingress"] == json!([{"ip": "203.0.113.10"}]))
            .then_some(())
        })
        .await;
        assert_eq!(
            site.told(&site.namespace, "web", "Bound").await,
            "bound to load balancer middle"
        );
        assert_eq!(site.stands("large", "Available").await, "");
        // And kubectl tells the story.
        let table = site.cluster.kubectl(&["get", "lb,lbc", "-A"], "").ok();
        let row = |name: &str| {
            let line = table.lines().find(|line| line.contains(name));
            line.unwrap_or_else(|| panic!("{name}: {table}")).split_whitespace().collect::<Vec<_>>()
        };
        assert!(row("/middle").windows(2).any(|it| it == ["Bound", "web"]), "{table}");
        assert!(row("/web").windows(3).any(|it| it == ["Bound", "Bound", "middle"]), "{table}");
    });
}

#[test]
fn who_waits_is_told_why_of_each_and_gets_what_comes() {
    play(async || {
        let site = Site::new().await;
        site.lb("inner", json!({"scope": "Intranet"})).await;
        site.lb("small", has("1G")).await;
        site.lb("taken", has("5G")).await;
        site.claim("first", wants("5G")).await;
        site.bound("first", "taken").await;
        let mut spec = wants("2G");
        spec["scope"] = json!("Internet");
        site.claim("web", spec).await;
        let message = site.says("web", "Pending", "NoMatch").await;
        for why in [
            "inner: its scope is Intranet",
            "small: it has 1G network-bandwidth, and 2G is requested",
            "taken: another claim has it",
            "none is made, because no class is named and none is the default",
        ] {
            assert!(message.contains(why), "{why}: {message}");
        }
        let event = site.told(&site.namespace, "web", "NoMatch").await;
        assert!(event.contains("its scope is Intranet"), "{event}");
        site.lb("large", has("10G")).await;
        site.bound("web", "large").await;
    });
}

#[test]
fn each_side_may_name_the_other_and_an_empty_class_or_a_selector_makes_nothing() {
    play(async || {
        let site = Site::new().await;
        let class = json!({
            "apiVersion": "bowline.dev/v1alpha1", "kind": "LoadBalancerClass",
            "metadata": {"name": "bronze"}, "spec": {"builtin": {}, "default": true},
        });
        site.cluster.apply("", &class).await;
        let reserved = json!({"claimRef": {"namespace": site.namespace, "name": "mine"}});
        site.lb("reserved", reserved).await;
        site.claim("never", json!({"className": "", "scope": "Internet"})).await;
        let message = site.says("never", "Pending", "NoMatch").await;
        assert!(message.contains("reserved: it is reserved for another claim"), "{message}");
        assert!(message.contains("none is made, because className is empty"), "{message}");
        site.claim("choosy", json!({"selector": {"matchLabels": {"tier": "gold"}}})).await;
        let message = site.says("choosy", "Pending", "NoMatch").await;
        assert!(message.contains("none is made, because selector is set"), "{message}");
        site.claim("mine", json!({})).await;
        site.bound("mine", "reserved").await;
        site.claim("named", json!({"loadBalancerName": "later"})).await;
        let message = site.says("named", "Pending", "NoMatch").await;
        assert_eq!(message, "load balancer \"later\": does not exist");
        site.lb("later", json!({"scope": "Intranet"})).await;
        site.bound("named", "later").await;
        site.lb("free", json!({})).await;
        site.bound("never", "free").await;
    });
}

#[test]
fn a_class_makes_one_of_a_name_of_its_own_and_never_a_second() {
    play(async || {
        let mut site = Site::new().await;
        let class = json!({
            "apiVersion": "bowline.dev/v1alpha1", "kind": "LoadBalancerClass",
            "metadata": {"name": "bronze"},
            "spec": {"builtin": {}, "capacity": {"network-iops": "10k"}},
        });
        site.cluster.apply("", &class).await;
        let mut spec = wants("2G");
        spec["className"] = json!("bronze");
        let made = site.claim("web", spec).await;
        let name = format!("lbc-{}", made["metadata"]["uid"].as_str().expect("a uid"));
        site.bound("web", &name).await;
        let lb = site.cluster.read(LB, "", &name).await;
        let capacity = json!({"network-bandwidth": "2G", "network-iops": "10k"});
        assert_eq!(lb["spec"]["capacity"], capacity);
        assert_eq!(lb["spec"]["reclaimPolicy"], "Delete");
        site.kill();
        site.revive().await;
        site.claim("other", json!({"className": "no-such"})).await;
        let message = site.says("other", "Pending", "NoMatch").await;
        assert!(
            message.contains("none is made, because class no-such does not exist"),
            "{message}"
        );
        site.bound("web", &name).await;
        let (_, all) = site.cluster.get(&bowline_testing::objects::path(LB, "", "")).await;
        let names = all["items"].as_array().into_iter().flatten();
        let names = names.filter_map(|it| it["metadata"]["name"].as_str());
        let made: Vec<&str> = names.filter(|it| it.starts_with("lbc-")).collect();
        assert_eq!(made, [name.as_str()]);
    });
}
