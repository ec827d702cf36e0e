//! What people and their tools are told of announcements: statuses, metrics, `explain` and `doctor`.

use crate::stage::{Site, play};
use bowline_testing::{Dial, eventually, objects};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The metrics of docs/metrics.md that only speakers have.
fn documented() -> BTreeSet<String> {
    let page = include_str!("../../docs/metrics.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let names = rows.filter_map(|rest| Some(rest.split_once('`')?.0));
    names.filter(|it| is_of_speakers(it)).map(str::to_owned).collect()
}

fn is_of_speakers(metric: &str) -> bool {
    metric.starts_with("bowline_speaker_") || metric.starts_with("bowline_l2_")
}

#[test]
fn statuses_metrics_and_explain_tell_who_announces_an_address_and_that_no_node_does() {
    play(async || {
        let site = Site::new().await;
        let address = site.pool("public").await;
        site.service("web", "public").await;
        site.endpoint("web", true).await;
        site.bfd().await;
        site.advertise("public", json!({"addressPools": ["public"], "bgp": {}})).await;
        let speaker = site.speaker(&[]).await;
        site.router().has(&[format!("{address}/32")]).await;

        let by = json!({"bgpNodes": 1, "firstBGPNodes": ["a"]});
        site.shows("Address", "", &address.to_string(), "the Address names the node", |it| {
            it["status"]["announcedBy"] == by
        })
        .await;
        let announced = |state: &'static str| {
            move |it: &Value| {
                let conditions = it["status"]["conditions"].as_array().cloned().unwrap_or_default();
                let ours = conditions.iter().find(|it| it["type"] == "bowline.dev/Announced");
                ours.is_some_and(|it| it["status"] == state)
            }
        };
        let namespace = site.namespace.clone();
        let what = "the Service is announced";
        site.shows("Service", &namespace, "web", what, announced("True")).await;
        let told = site.bowline(&["explain", "service/web", "-n", &namespace]);
        assert!(told.contains("Announced by node a, by BGP to tor"), "{told}");
        let told = site.bowline(&["explain", &format!("address/{address}")]);
        assert!(told.contains("Announced by node a, by BGP to tor"), "{told}");
        assert!(told.contains("Problems     none"), "{told}");
        let told = site.bowline(&["status"]);
        assert!(told.contains("Announcing: 1 of 1 address announced by 1 speaker"), "{told}");

        let dial = Dial::to(speaker.admin.ip(), speaker.admin.port());
        let text = dial.get("localhost", "/metrics").await.expect("metrics").text();
        let names = text.lines().filter_map(|line| line.split([' ', '{']).next());
        let names = names.filter(|it| is_of_speakers(it));
        assert_eq!(names.map(str::to_owned).collect::<BTreeSet<_>>(), documented());
        assert!(speaker.metric("bowline_speaker_synced").await > 0.0);
        eventually("the metrics count the address", || async {
            let up = speaker.metric("bowline_speaker_session_up").await;
            let addresses = speaker.metric("bowline_speaker_addresses").await;
            if (up, addresses) == (1.0, 1.0) { Ok(()) } else { Err(format!("{up} {addresses}")) }
        })
        .await;
        assert!(speaker.metric("bowline_speaker_updates_sent_total").await > 0.0);

        site.endpoint("web", false).await;
        let what = "the Service is not announced";
        site.shows("Service", &namespace, "web", what, announced("False")).await;
        site.shows("Address", "", &address.to_string(), "the Address names no node", |it| {
            it["status"].get("announcedBy").is_none()
        })
        .await;
        let told = site.bowline(&["explain", "service/web", "-n", &namespace]);
        assert!(told.contains("Announced by no node"), "{told}");
        assert!(told.contains("- NotServed: node \"a\" does not serve"), "{told}");
        assert!(told.contains("What helps: see that Pods"), "{told}");

        let gone = objects::service("gone", "", &[(80, 8080)]);
        site.cluster.apply(&namespace, &gone).await;
        site.advertise("gone", json!({"addressPools": ["gone"], "bgp": {}})).await;
        let told = site.bowline(&["doctor"]);
        let said = "Advertisement gone names what does not exist: AddressPool gone";
        assert!(told.contains(said), "{told}");
    });
}
