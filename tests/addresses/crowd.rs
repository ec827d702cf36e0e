//! Many Services at once, and a controller that is killed among them.

use crate::stage::{Site, play};
use bowline_testing::objects::{self, path};
use bowline_testing::{Call, eventually};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// Creates Services of these names, many at a time.
async fn create(site: &Site, names: &[String]) {
    for some in names.chunks(20) {
        let calls =
            some.iter().map(|name| {
                let mut service = objects::service(name, "", &[(80, 8080)]);
                service["metadata"]["annotations"] = json!({});
                let path = path("Service", &site.namespace, "");
                async move {
                    site.cluster.http(Call::new("POST", path).json(&service)).await.expect(201)
                }
            });
        futures::future::join_all(calls).await;
    }
}

/// The address that each Service shows.
async fn shown(site: &Site) -> BTreeMap<String, String> {
    let (_, list) = site.cluster.get(&path("Service", &site.namespace, "")).await;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let services = list["items"].as_array().cloned().unwrap_or_default();
    let shown = services.iter().filter_map(|it| {
        let ip = text(&it["status"]["loadBalancer"]["ingress"][0]["ip"])?;
        Some((text(&it["metadata"]["name"])?, ip))
    });
    shown.collect()
}

async fn all_shown(site: &Site, count: usize) -> BTreeMap<String, String> {
    eventually(&format!("{count} Services have addresses"), || async {
        let shown = shown(site).await;
        if shown.len() == count { Ok(shown) } else { Err(format!("{} have", shown.len())) }
    })
    .await
}

#[test]
fn many_services_at_once_get_an_address_each() {
    play(async || {
        let site = Site::new(&[]).await;
        site.pool("public", json!({"addresses": ["10.9.0.0/16"]})).await;
        let names: Vec<String> = (0..300).map(|at| format!("s{at:03}")).collect();
        let begun = Instant::now();
        create(&site, &names).await;
        let created = begun.elapsed();
        let shown = all_shown(&site, names.len()).await;
        let addressed = begun.elapsed();
        let different: BTreeSet<_> = shown.values().collect();
        assert_eq!(different.len(), names.len(), "each has its own");
        println!("created in {created:?}, all addressed after {addressed:?}");
    });
}

#[test]
fn a_controller_that_is_killed_again_and_again_gives_no_address_twice_and_takes_none_back() {
    play(async || {
        let mut site = Site::new(&["--leader-elect=false"]).await;
        site.pool("public", json!({"addresses": ["10.9.0.0/16"]})).await;
        let mut before = BTreeMap::new();
        for round in 0..3 {
            let names: Vec<String> = (0..60).map(|at| format!("r{round}-{at:02}")).collect();
            create(&site, &names).await;
            site.restart().await;
            let now = all_shown(&site, 60 * (round + 1)).await;
            let different: BTreeSet<_> = now.values().collect();
            assert_eq!(different.len(), now.len());
            assert!(before.iter().all(|(name, ip)| now.get(name) == Some(ip)), "one has moved");
            before = now;
        }
        let expected: BTreeSet<String> = before.values().cloned().collect();
        let (_, list) = site.cluster.get(&path("Address", "", "")).await;
        let records = list["items"].as_array().cloned().unwrap_or_default();
        let records = records.iter().filter_map(|it| it["metadata"]["name"].as_str());
        assert_eq!(records.map(str::to_owned).collect::<BTreeSet<_>>(), expected, "nothing leaks");
    });
}
