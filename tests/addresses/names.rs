//! Addresses from DNS names, with a real BIND; `nsupdate` plays external-dns.

use crate::stage::{Site, play};
use bowline_testing::objects;
use bowline_testing::{Bind, net};
use serde_json::json;

const FROM_DNS: &str = "AddressFromDNS";
const NAME: &str = "myglobal.example.test";

/// A cluster that asks this server, with a pool of its own for names.
async fn site(bind: &Bind) -> Site {
    let server = bind.address().to_string();
    let site = Site::new(&["--dns-server", &server, "--dns-min-ttl", "1"]).await;
    let pool = json!({"addresses": ["192.0.2.0/28"], "autoAssign": false});
    site.pool("global", pool).await;
    site
}

fn annotations() -> serde_json::Value {
    json!({"metallb.io/assign-from-fqdn": NAME})
}

#[test]
fn two_clusters_get_the_address_of_one_name_and_follow_it() {
    play(async || {
        let bind = Bind::new();
        bind.set(NAME, "A", 1, &["192.0.2.5"]);
        let (one, other) = (site(&bind).await, site(&bind).await);
        one.service("web", annotations()).await;
        other.service("web", annotations()).await;
        one.shows("web", &["192.0.2.5"]).await;
        other.shows("web", &["192.0.2.5"]).await;
        let message = one.says("web", FROM_DNS, "Resolved").await;
        assert!(message.starts_with("myglobal.example.test is 192.0.2.5 (TTL 1s, "), "{message}");
        // The new one is there before the old one goes.
        bind.set(NAME, "A", 1, &["192.0.2.6"]);
        one.shows("web", &["192.0.2.6", "192.0.2.5"]).await;
        other.shows("web", &["192.0.2.6", "192.0.2.5"]).await;
        let message = one.told("web", "AddressChanged").await;
        assert!(message.contains("changed from 192.0.2.5 to 192.0.2.6"), "{message}");
    });
}

#[test]
fn a_name_that_changes_never_leaves_a_service_on_a_load_balancer_without_an_address() {
    play(async || {
        let bind = Bind::new();
        let site = site(&bind).await;
        let (fixed, old, new) = (net::vip4(), net::vip4(), net::vip4());
        let [old, new] = [old, new].map(|it| it.to_string());
        site.cluster.apply("", &objects::load_balancer("edge", &[fixed])).await;
        let both = json!({"addresses": [format!("{old}/32"), format!("{new}/32")]});
        site.pool("public", both).await;
        let agent = site.agent("edge").await;
        bind.set(NAME, "A", 1, &[&old]);
        let annotations = json!({
            "bowline.dev/load-balancer": "edge", "bowline.dev/assign-from-fqdn": NAME,
        });
        site.service("web", annotations).await;
        site.shows("web", &[&old]).await;
        let version = site.version("web").await;
        // While the agent sleeps nobody listens at the new one.
        agent.process.signal("STOP");
        bind.set(NAME, "A", 1, &[&new]);
        site.says("web", "bowline.dev/Programmed", "AgentBehind").await;
        site.shows("web", &[&old]).await;
        agent.process.signal("CONT");
        site.shows("web", &[&new]).await;
        assert_eq!(site.has_shown(&version).await, [[old], [new]]);
    });
}

#[test]
fn what_one_cluster_gave_is_found_by_the_other_once_it_is_in_the_dns() {
    play(async || {
        let bind = Bind::new();
        let (one, other) = (site(&bind).await, site(&bind).await);
        one.service("web", json!({"bowline.dev/address-pool": "global"})).await;
        other.service("web", json!({"bowline.dev/assign-from-fqdn": NAME})).await;
        let message = other.says("web", FROM_DNS, "NameFailed").await;
        assert!(message.contains("NXDOMAIN"), "{message}");
        assert!(message.contains("; no address is assigned; "), "{message}");
        one.shows("web", &["192.0.2.0"]).await;
        bind.set(NAME, "A", 60, &["192.0.2.0"]);
        other.shows("web", &["192.0.2.0"]).await;
    });
}

#[test]
fn an_answer_that_cannot_be_used_or_had_changes_nothing_that_is_assigned() {
    play(async || {
        let mut bind = Bind::new();
        let site = site(&bind).await;
        bind.set(NAME, "A", 1, &["192.0.2.5"]);
        site.service("web", annotations()).await;
        site.shows("web", &["192.0.2.5"]).await;
        bind.remove(NAME, "A");
        let message = site.says("web", FROM_DNS, "NameFailed").await;
        assert!(message.contains("; still assigned: 192.0.2.5; "), "{message}");
        bind.set(NAME, "A", 1, &["203.0.113.1"]);
        let message = site.says("web", FROM_DNS, "NameUnusable").await;
        assert!(message.contains("203.0.113.1 is in no pool"), "{message}");
        site.shows("web", &["192.0.2.5"]).await;
        bind.set(NAME, "A", 1, &["192.0.2.5"]);
        site.says("web", FROM_DNS, "Resolved").await;
        // Somebody else wants the same.
        site.service("other", annotations()).await;
        let message = site.says("other", FROM_DNS, "NameUnusable").await;
        assert!(message.contains("192.0.2.5 is held by Service"), "{message}");
        site.shows("other", &[]).await;
        bind.stop();
        let message = site.says("web", FROM_DNS, "NameFailed").await;
        assert!(message.contains("; still assigned: 192.0.2.5; "), "{message}");
        site.shows("web", &["192.0.2.5"]).await;
        site.service("late", json!({"bowline.dev/assign-from-fqdn": "late.example.test"})).await;
        site.says("late", FROM_DNS, "NameFailed").await;
        site.shows("late", &[]).await;
        bind.start();
        site.says("web", FROM_DNS, "Resolved").await;
    });
}

#[test]
fn a_name_that_cannot_be_or_would_feed_itself_is_told_and_gets_nothing() {
    play(async || {
        let bind = Bind::new();
        let site = site(&bind).await;
        let names = ["", "192.0.2.1", ".example.test", "a..example.test", "two names"];
        for (at, name) in names.iter().enumerate() {
            let service = format!("bad-{at}");
            site.service(&service, json!({"bowline.dev/assign-from-fqdn": name})).await;
            site.says(&service, "bowline.dev/Programmed", "BadValue").await;
        }
        let itself = json!({
            "bowline.dev/assign-from-fqdn": NAME,
            "external-dns.alpha.kubernetes.io/hostname": NAME,
        });
        bind.set(NAME, "A", 1, &["192.0.2.5"]);
        site.service("itself", itself).await;
        let message = site.says("itself", "bowline.dev/Programmed", "BadValue").await;
        assert!(message.contains("external-dns would write the address"), "{message}");
        site.records(&[]).await;
    });
}

#[test]
fn two_clusters_that_see_different_answers_keep_a_vip_and_agree_in_the_end() {
    play(async || {
        let (bind, other_bind) = (Bind::new(), Bind::new());
        bind.set(NAME, "A", 1, &["192.0.2.5"]);
        other_bind.set(NAME, "A", 1, &["192.0.2.5"]);
        let (one, other) = (site(&bind).await, site(&other_bind).await);
        one.service("web", annotations()).await;
        other.service("web", annotations()).await;
        one.shows("web", &["192.0.2.5"]).await;
        other.shows("web", &["192.0.2.5"]).await;
        let since = [one.version("web").await, other.version("web").await];
        // One server knows it earlier than the other.
        bind.set(NAME, "A", 1, &["192.0.2.6"]);
        one.shows("web", &["192.0.2.6", "192.0.2.5"]).await;
        other.shows("web", &["192.0.2.5"]).await;
        other_bind.set(NAME, "A", 1, &["192.0.2.6"]);
        other.shows("web", &["192.0.2.6", "192.0.2.5"]).await;
        one.shows("web", &["192.0.2.6", "192.0.2.5"]).await;
        // Neither was without, or had another one, in between.
        let both: [&[&str]; 2] = [&["192.0.2.5"], &["192.0.2.6", "192.0.2.5"]];
        for (site, since) in [&one, &other].into_iter().zip(&since) {
            assert_eq!(site.has_shown(since).await, both);
        }
    });
}

#[test]
fn of_several_records_the_current_one_is_kept_else_the_lowest_that_can_be_had() {
    play(async || {
        let bind = Bind::new();
        let site = site(&bind).await;
        let all: Vec<String> = (1..=50).map(|last| format!("203.0.113.{last}")).collect();
        let mut all: Vec<&str> = all.iter().map(String::as_str).collect();
        all.extend(["192.0.2.9", "192.0.2.7"]);
        bind.set(NAME, "A", 1, &all);
        site.service("web", annotations()).await;
        site.shows("web", &["192.0.2.7"]).await;
        bind.set(NAME, "A", 1, &["192.0.2.3", "192.0.2.7"]);
        let message = "192.0.2.3, 192.0.2.7";
        bowline_testing::eventually("the new answer is told", || async {
            let told = site.says("web", FROM_DNS, "Resolved").await;
            if told.contains(message) { Ok(()) } else { Err(told) }
        })
        .await;
        site.shows("web", &["192.0.2.7"]).await;
    });
}

#[test]
fn servfail_refusals_and_loops_of_aliases_leave_a_service_without_an_address_and_say_so() {
    play(async || {
        let bind = Bind::new();
        let site = site(&bind).await;
        bind.set("loop.example.test", "CNAME", 1, &["loop2.example.test."]);
        bind.set("loop2.example.test", "CNAME", 1, &["loop.example.test."]);
        bind.set("alias.example.test", "CNAME", 1, &["real.example.test."]);
        bind.set("real.example.test", "A", 1, &["192.0.2.4"]);
        for (service, name, told) in [
            ("fails", "web.broken.test", "SERVFAIL"),
            ("refused", "web.elsewhere.test", "REFUSED"),
            ("loops", "loop.example.test", "CNAME loop"),
        ] {
            site.service(service, json!({"bowline.dev/assign-from-fqdn": name})).await;
            let message = site.says(service, FROM_DNS, "NameFailed").await;
            assert!(message.contains(told), "{message}");
            site.shows(service, &[]).await;
        }
        let alias = json!({"bowline.dev/assign-from-fqdn": "alias.example.test"});
        site.service("alias", alias).await;
        site.shows("alias", &["192.0.2.4"]).await;
        site.records(&[("192.0.2.4", &["alias"])]).await;
    });
}
