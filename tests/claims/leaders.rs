//! Two controllers, of which one leads and is killed while claims are being bound.

use crate::stage::{CLAIM, LB, Site, play, start_elected};
use bowline_testing::objects::path;
use bowline_testing::{SYSTEM, eventually};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

const CLAIMS: usize = 24;

/// Every other claim is for one load balancer that it fits exactly, and the rest for what a class makes.
fn spec(number: usize) -> Value {
    let requests = json!({"requests": {"network-bandwidth": format!("{}M", number + 1)}});
    let class = if number.is_multiple_of(2) { "" } else { "bronze" };
    json!({"className": class, "resources": requests})
}

async fn list(site: &Site, kind: &str, namespace: &str) -> Vec<Value> {
    let (_, list) = site.cluster.get(&path(kind, namespace, "")).await;
    list["items"].as_array().cloned().unwrap_or_default()
}

/// The claims that say that they are bound, by uid, and to what.
async fn bound(site: &Site) -> BTreeMap<String, String> {
    let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
    let claims = list(site, CLAIM, &site.namespace).await;
    let bound = claims.iter().filter(|it| it["status"]["phase"] == "Bound");
    bound
        .map(|it| (text(&it["metadata"]["uid"]), text(&it["status"]["loadBalancerName"])))
        .collect()
}

async fn leader(site: &Site) -> Option<String> {
    let lease = site.cluster.read("Lease", SYSTEM, "bowline-controller").await;
    lease["spec"]["holderIdentity"].as_str().map(str::to_owned)
}

#[test]
fn every_claim_has_one_load_balancer_when_the_leader_dies_while_they_bind() {
    play(async || {
        let mut site = Site::elected().await;
        let first = eventually("somebody leads", || async {
            leader(&site).await.ok_or_else(|| "nobody".to_owned())
        })
        .await;
        let mut second = start_elected(&site.cluster, &[]).await;
        second.ready().await;
        site.class("bronze", json!({"builtin": {}})).await;
        for number in (0..CLAIMS).step_by(2) {
            let capacity = json!({"network-bandwidth": format!("{}M", number + 1)});
            site.lb(&format!("lb-{number}"), json!({"capacity": capacity})).await;
        }
        for number in 0..CLAIMS / 2 {
            site.claim(&format!("claim-{number}"), spec(number)).await;
        }
        eventually("some are bound", || async {
            if bound(&site).await.is_empty() { Err("none is".to_owned()) } else { Ok(()) }
        })
        .await;
        site.kill();
        for number in CLAIMS / 2..CLAIMS {
            site.claim(&format!("claim-{number}"), spec(number)).await;
        }
        let bound = eventually("all are bound", || async {
            let bound = bound(&site).await;
            if bound.len() == CLAIMS { Ok(bound) } else { Err(format!("{bound:#?}")) }
        })
        .await;
        let now = leader(&site).await;
        assert!(now.is_some() && now != Some(first), "the other one leads");
        let different: BTreeSet<_> = bound.values().collect();
        assert_eq!(different.len(), CLAIMS, "one each: {bound:#?}");
        // And each load balancer says the same; none was made for nobody.
        let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
        let all = list(&site, LB, "").await;
        let held = all
            .iter()
            .map(|it| (text(&it["spec"]["claimRef"]["uid"]), text(&it["metadata"]["name"])));
        assert_eq!(held.collect::<BTreeMap<_, _>>(), bound);
        assert_eq!(all.len(), CLAIMS);
    });
}
