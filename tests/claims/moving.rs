//! Who moves from one claim to another is served all the time: where it was, until it has a seat where it goes and is
//! served there, and for a while longer.

use crate::stage::{CLAIM, LB, Site, has, play};
use crate::traffic::points;
use bowline_testing::objects::{self, path};
use bowline_testing::{Cluster, Dial, eventually};
use serde_json::json;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How long who has left is still served; the argument of the controller says the same.
const GRACE: Duration = Duration::from_secs(4);
const HOST: &str = "shop.example";

/// Clients that ask for the Ingress where its status says, until they are told to stop. Says how many answers came
/// from where, and what went wrong for who knew the address for less than the grace.
async fn load(
    site: &Site,
    stop: &AtomicBool,
    asked: &AtomicUsize,
) -> (BTreeMap<IpAddr, usize>, Vec<String>) {
    let (mut answers, mut failures) = (BTreeMap::new(), Vec::new());
    let at = path("Ingress", &site.namespace, "shop");
    while !stop.load(Ordering::Relaxed) {
        let known = Instant::now();
        let (_, ingress) = Cluster::get(&site.cluster, &at).await;
        let Some(address) = points(&ingress).first().copied() else {
            failures.push(format!("it is nowhere: {ingress}"));
            break;
        };
        for _ in 0..5 {
            let answer = Dial::to(address, 80).get(HOST, "/").await;
            // Who was kept from asking for so long knows nothing of now.
            if known.elapsed() > GRACE {
                break;
            }
            match answer.and_then(|it| it.echo()) {
                Ok(_) => {
                    *answers.entry(address).or_default() += 1;
                    asked.fetch_add(1, Ordering::Relaxed);
                }
                Err(why) => failures.push(format!("{address}: {why}")),
            }
        }
    }
    (answers, failures)
}

impl Site {
    async fn seats_of(&self, lb: &str, expected: &[&str]) {
        self.until(LB, lb, &format!("seats {expected:?}"), |it| {
            let all = it["status"]["consumers"].as_array().cloned().unwrap_or_default();
            let names: Vec<_> = all.iter().filter_map(|it| it["name"].as_str()).collect();
            (names == expected).then_some(())
        })
        .await;
    }
}

#[test]
fn an_ingress_that_moves_to_another_claim_loses_no_request() {
    play(async || {
        let site = Site::with(&["--address-grace", "4"]).await;
        let (one, _a) = site.live("one", has("10G")).await;
        let (two, _b) = site.live("two", has("10G")).await;
        for name in ["one", "two"] {
            site.claim(name, json!({"loadBalancerName": name})).await;
            site.bound(name, name).await;
        }
        site.web_class().await;
        let _backend = site.backend(&site.namespace, "shop").await;
        // Where it is to go there is no room yet.
        let mut blocker = objects::service("blocker", "", &[(5000, 8080)]);
        blocker["metadata"]["annotations"] = json!({
            "bowline.dev/load-balancer-claim": "two", "bowline.dev/network-bandwidth": "6G",
        });
        site.cluster.apply(&site.namespace, &blocker).await;
        site.seats_of("two", &["blocker"]).await;
        site.ingress(&site.namespace, "shop", HOST, "one").await;
        let annotate = async |key: &str, value: &str| {
            let key = format!("bowline.dev/{key}");
            let patch = json!({"metadata": {"annotations": {key: value}}});
            site.cluster.patch("Ingress", &site.namespace, "shop", &patch).await;
        };
        annotate("network-bandwidth", "6G").await;
        site.shows("Ingress", &site.namespace, "shop", &[one]).await;
        crate::traffic::answers(one, 80, HOST).await;
        let (stop, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
        let busy = async || {
            let before = asked.load(Ordering::Relaxed);
            eventually("a hundred more are answered", || async {
                let now = asked.load(Ordering::Relaxed);
                if now >= before + 100 { Ok(()) } else { Err(now.to_string()) }
            })
            .await;
        };
        let story = async {
            busy().await;
            annotate("load-balancer-claim", "two").await;
            site.told(&site.namespace, "shop", "NoCapacity").await;
            // Its old claim is in use while it stays.
            site.cluster.delete(CLAIM, &site.namespace, "one").await;
            site.seats_of("one", &["shop"]).await;
            site.shows("Ingress", &site.namespace, "shop", &[one]).await;
            busy().await;
            site.cluster.delete("Service", &site.namespace, "blocker").await;
            site.seats_of("two", &["shop"]).await;
            site.shows("Ingress", &site.namespace, "shop", &[two]).await;
            site.seats_of("one", &[]).await;
            site.gone(CLAIM, "one").await;
            crate::traffic::silent(one, 80, HOST).await;
            busy().await;
            stop.store(true, Ordering::Relaxed);
        };
        let (first, second, ()) =
            tokio::join!(load(&site, &stop, &asked), load(&site, &stop, &asked), story);
        for (answers, failures) in [first, second] {
            assert_eq!(failures, Vec::<String>::new(), "{answers:?}");
            assert_eq!(answers.keys().copied().collect::<Vec<_>>(), [one, two], "{answers:?}");
        }
    });
}

#[test]
fn one_that_moves_to_where_nobody_serves_yet_is_served_where_it_was_over_a_crash() {
    play(async || {
        let mut site = Site::with(&["--address-grace", "4"]).await;
        let (one, _a) = site.live("one", has("10G")).await;
        let two = bowline_testing::net::vip4();
        site.lb("two", json!({"addresses": [two]})).await;
        for name in ["one", "two"] {
            site.claim(name, json!({"loadBalancerName": name})).await;
            site.bound(name, name).await;
        }
        site.web_class().await;
        let _backend = site.backend(&site.namespace, "shop").await;
        site.ingress(&site.namespace, "shop", HOST, "one").await;
        site.shows("Ingress", &site.namespace, "shop", &[one]).await;
        site.ingress(&site.namespace, "shop", HOST, "two").await;
        // It is planned there, and nobody follows the plan.
        let plans = path("Plan", "bowline-system", "");
        eventually("it is planned in both places", || async {
            let (_, list) = site.cluster.get(&plans).await;
            let items = list["items"].as_array().cloned().unwrap_or_default();
            let has = |lb: &str| {
                let of = |it: &&serde_json::Value| it["spec"]["loadBalancer"] == lb;
                items.iter().filter(of).any(|it| it.to_string().contains(HOST))
            };
            if has("one") && has("two") { Ok(()) } else { Err(list.to_string()) }
        })
        .await;
        site.kill();
        site.revive().await;
        site.controller.ready().await;
        site.shows("Ingress", &site.namespace, "shop", &[one]).await;
        assert_eq!(crate::traffic::answers(one, 80, HOST).await, "shop");
        let _b = site.agent("two").await;
        site.shows("Ingress", &site.namespace, "shop", &[two]).await;
        assert_eq!(crate::traffic::answers(two, 80, HOST).await, "shop");
        crate::traffic::silent(one, 80, HOST).await;
        site.seats_of("one", &[]).await;
    });
}
