//! A script of claims that come and go, once undisturbed and once while the controller is killed again and again,
//! wherever it is: both end in the same state. Forty claims and ten kills; 200 and 50 with BOWLINE_LONG=1.

use crate::stage::{CLAIM, LB, Site, play, reason, start};
use bowline_testing::objects::path;
use bowline_testing::{Cluster, eventually};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// What is made for a claim beside its load balancer.
const PARTS: [&str; 5] = ["Deployment", "Service", "ServiceAccount", "Role", "RoleBinding"];

/// How many claims there are, and how often the controller is killed.
fn size() -> (usize, usize) {
    match std::env::var_os("BOWLINE_LONG").is_some_and(|it| it == "1") {
        true => (200, 50),
        false => (40, 10),
    }
}

/// What every third claim is for: one load balancer that only it fits exactly, one that a class makes, or one
/// that there is none of.
fn spec(number: usize) -> Value {
    let requests = json!({"requests": {"network-bandwidth": format!("{}M", number + 1)}});
    match number % 3 {
        0 => json!({"className": "", "scope": "Internet", "resources": requests}),
        1 => json!({"className": "bronze", "resources": requests}),
        _ => json!({"className": "", "scope": "Intranet", "resources": requests}),
    }
}

fn policy(number: usize) -> &'static str {
    ["Retain", "Recycle", "Delete"][number / 3 % 3]
}

/// Whether a claim goes again.
fn goes(number: usize) -> bool {
    number % 4 == 3
}

/// The script: all that people do.
async fn script(cluster: &Cluster, namespace: &str, claims: usize) {
    let make = async |kind: &str, name: &str, spec: Value| {
        let object = json!({
            "apiVersion": "bowline.dev/v1alpha1", "kind": kind,
            "metadata": {"name": name}, "spec": spec,
        });
        let namespace = if kind == CLAIM { namespace } else { "" };
        cluster.apply(namespace, &object).await;
    };
    let lets_go = async |number: usize| {
        let name = format!("claim-{number}");
        let at = path(CLAIM, namespace, &name);
        eventually(&format!("{name} has what it asked for"), || async {
            let (_, claim) = cluster.get(&at).await;
            let waits = number % 3 == 2;
            match waits || claim["status"]["phase"] == "Bound" {
                true => Ok(()),
                false => Err(claim.to_string()),
            }
        })
        .await;
        cluster.delete(CLAIM, namespace, &name).await;
    };
    make("LoadBalancerClass", "bronze", json!({"builtin": {}})).await;
    for number in (0..claims).filter(|it| it % 3 == 0) {
        let spec = json!({
            "builtin": {},
            "capacity": {"network-bandwidth": format!("{}M", number + 1)},
            "reclaimPolicy": policy(number),
        });
        make(LB, &format!("lb-{number}"), spec).await;
    }
    for number in 0..claims {
        make(CLAIM, &format!("claim-{number}"), spec(number)).await;
        if let Some(before) = number.checked_sub(5).filter(|it| goes(*it)) {
            lets_go(before).await;
        }
    }
    for number in claims.saturating_sub(5)..claims {
        if goes(number) {
            lets_go(number).await;
        }
    }
}

/// All that there is in the end, by names that do not depend on uids: where each claim is, to whom each load balancer
/// belongs, and what was made.
async fn state(site: &Site) -> BTreeMap<String, String> {
    let list = async |kind: &str, namespace: &str| {
        let (_, list) = site.cluster.get(&path(kind, namespace, "")).await;
        list["items"].as_array().cloned().unwrap_or_default()
    };
    let text = |it: &Value| it.as_str().unwrap_or("-").to_owned();
    let claims = list(CLAIM, &site.namespace).await;
    let claim_of = |lb: &str| {
        let uid = lb.strip_prefix("lbc-")?;
        let claim = claims.iter().find(|it| it["metadata"]["uid"] == uid)?;
        Some(format!("made for {}", text(&claim["metadata"]["name"])))
    };
    let named = |lb: &str| claim_of(lb).unwrap_or_else(|| lb.to_owned());
    let mut all = BTreeMap::new();
    for claim in &claims {
        let status = &claim["status"];
        let lb = named(&text(&status["loadBalancerName"]));
        let why = reason(claim, "Bound").unwrap_or("-");
        let deleting = claim["metadata"]["deletionTimestamp"].is_string();
        let said = format!("{} {why} {lb} {deleting}", text(&status["phase"]));
        all.insert(text(&claim["metadata"]["name"]), said);
    }
    for lb in list(LB, "").await {
        let deleting = lb["metadata"]["deletionTimestamp"].is_string();
        let holder = text(&lb["spec"]["claimRef"]["name"]);
        let finalizers = lb["metadata"]["finalizers"].to_string();
        let said = format!("{:?} {holder} {finalizers} {deleting}", reason(&lb, "Bound"));
        all.insert(named(&text(&lb["metadata"]["name"])), said);
    }
    for kind in PARTS {
        for object in list(kind, "bowline-system").await {
            let name = text(&object["metadata"]["name"]);
            let of = name.strip_prefix("bowline-proxy-").unwrap_or(&name);
            if let Some(made) = claim_of(of) {
                all.insert(format!("{kind} {made}"), String::new());
            } else if of.starts_with("lbc-") {
                all.insert(format!("{kind} {of}"), "nobody's".to_owned());
            }
        }
    }
    all
}

/// What the state is bound to become.
fn is_settled(state: &BTreeMap<String, String>, claims: usize) -> bool {
    let stays = (0..claims).filter(|it| !goes(*it));
    let right = stays.clone().all(|number| {
        let said = state.get(&format!("claim-{number}")).map(String::as_str).unwrap_or_default();
        match number % 3 {
            0 => said == format!("Bound Bound lb-{number} false"),
            1 => said == format!("Bound Bound made for claim-{number} false"),
            _ => said.starts_with("Pending NoMatch"),
        }
    });
    let held = stays
        .clone()
        .filter(|it| it % 3 == 0)
        .all(|number| state.get(&format!("lb-{number}")).is_some_and(|it| it.contains("Bound")));
    let gone = (0..claims).filter(|it| goes(*it));
    let left = gone.clone().all(|number| !state.contains_key(&format!("claim-{number}")));
    let freed = gone.filter(|it| it % 3 == 0).all(|number| {
        let lb = state.get(&format!("lb-{number}")).map(String::as_str);
        match policy(number) {
            "Retain" => lb.is_some_and(|it| it.contains("Released")),
            "Recycle" => lb.is_some_and(|it| it.contains("Available")),
            _ => lb.is_none(),
        }
    });
    let roles = stays.filter(|it| it % 3 == 1).count();
    let made = |kind: &str| {
        let of = format!("{kind} made");
        state.keys().filter(|it| it.starts_with(&of)).count()
    };
    let made = PARTS.into_iter().all(|kind| made(kind) == roles);
    let nobodys = state.keys().any(|it| it.contains("lbc-"));
    right && held && left && freed && made && !nobodys
}

async fn settled(site: &Site, claims: usize) -> BTreeMap<String, String> {
    eventually("all claims are where they belong", || async {
        let state = state(site).await;
        if is_settled(&state, claims) { Ok(state) } else { Err(format!("{state:#?}")) }
    })
    .await
}

#[test]
fn a_controller_that_is_killed_at_random_ends_in_the_same_state_as_one_that_is_not() {
    play(async || {
        let (claims, kills) = size();
        let undisturbed = Site::new().await;
        script(&undisturbed.cluster, &undisturbed.namespace, claims).await;
        let expected = settled(&undisturbed, claims).await;
        drop(undisturbed);
        let mut site = Site::new().await;
        let Site { cluster, namespace, controller, .. } = &mut site;
        let killing = async {
            let mut random: u64 = 0x5eed;
            for _ in 0..kills {
                // Some live long enough to finish, some not long enough to begin.
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                tokio::time::sleep(Duration::from_millis((random >> 33) % 700)).await;
                controller.process.end();
                *controller = start(cluster, &[]).await;
            }
        };
        tokio::join!(script(cluster, namespace, claims), killing);
        let last = settled(&site, claims).await;
        eventually("it is as without", || async {
            let state = state(&site).await;
            if state == expected { Ok(()) } else { Err(format!("{state:#?}\n{last:#?}")) }
        })
        .await;
    });
}
