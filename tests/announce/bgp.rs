//! A router learns the addresses of Services by BGP.

use crate::stage::{Site, play};
use serde_json::json;

#[test]
fn a_router_learns_the_address_of_a_service_while_it_is_covered_and_has_an_endpoint() {
    play(async || {
        let site = Site::new().await;
        let _speaker = site.speaker(&[]).await;
        let address = site.pool("public").await;
        let route = format!("{address}/32");
        site.service("web", "public").await;
        site.endpoint("web", true).await;
        site.advertise("other", json!({"addressPools": ["other"], "bgp": {}})).await;
        site.router().has(&[]).await;
        site.advertise("public", json!({"addressPools": ["public"], "bgp": {}})).await;
        site.router().has(std::slice::from_ref(&route)).await;
        site.endpoint("web", false).await;
        site.router().has(&[]).await;
        site.endpoint("web", true).await;
        site.router().has(std::slice::from_ref(&route)).await;
        let spec =
            json!({"addressPools": ["public"], "bgp": {"communities": ["65000:7"], "med": 3}});
        site.advertise("public", spec).await;
        bowline_testing::eventually("the router knows the community", || async {
            let said = site.router().route(&route);
            let has = said.contains("(65000,7)") && said.contains("BGP.med: 3");
            if has { Ok(()) } else { Err(said) }
        })
        .await;
        site.cluster.delete("Service", &site.namespace, "web").await;
        site.router().has(&[]).await;
    });
}

#[test]
fn routes_stay_over_an_upgrade_and_go_with_a_node_that_leaves() {
    play(async || {
        let site = Site::new().await;
        let address = site.pool("public").await;
        let route = format!("{address}/32");
        site.service("web", "public").await;
        site.endpoint("web", true).await;
        site.advertise("public", json!({"bgp": {}})).await;
        let mut speaker = site.speaker(&[]).await;
        site.router().has(std::slice::from_ref(&route)).await;
        assert_eq!(speaker.stop(), Some(0));
        let said = site.router().route(&route);
        assert!(said.contains(&address.to_string()), "the route is gone: {said}");
        let mut speaker = site.speaker(&["--withdraw-at-end"]).await;
        site.router().has(std::slice::from_ref(&route)).await;
        assert_eq!(speaker.stop(), Some(0));
        site.router().has(&[]).await;
    });
}
