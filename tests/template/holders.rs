//! A Service keeps the port that it has in the output, whatever an older one asks for later.

use crate::stage::{LINES, Site, play};
use bowline_testing::{eventually, net, unique};
use serde_json::json;

/// Waits until an object that is made now is younger than all that are there.
async fn next_second(site: &Site) {
    let made = || async {
        let metadata = json!({"name": format!("clock-{}", unique())});
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
        let made = site.cluster.apply(&site.namespace, &object).await;
        made["metadata"]["creationTimestamp"].to_string()
    };
    let first = made().await;
    eventually("the next second", || async {
        let now = made().await;
        if now == first { Err(now) } else { Ok(()) }
    })
    .await;
}

#[test]
fn an_older_service_takes_no_port_also_when_the_agent_is_started_again() {
    play(async || {
        let site = Site::new(LINES).await;
        let (ours, other) = (net::vip4().to_string(), net::vip4().to_string());
        let tcp = || json!({"bowline.dev/port-mode": "{\"http\":\"tcp\"}"});
        site.service("old", &other, tcp()).await;
        next_second(&site).await;
        site.service("young", &ours, tcp()).await;
        let pods = [net::pod4(), net::pod4()];
        site.endpoints("old", &pods[..1]).await;
        site.endpoints("young", &pods[1..]).await;
        let has = async |what: &str, lines: usize| {
            eventually(&format!("{lines} lines, one of them {what}"), || async {
                let text = site.text("out");
                let good = text.lines().count() == lines && text.contains(what);
                if good { Ok(()) } else { Err(text) }
            })
            .await;
        };
        let mut agent = site.agent(&[]).await;
        has("young", 2).await;
        let here = json!({"spec": {"loadBalancerIP": ours}});
        site.cluster.patch("Service", &site.namespace, "old", &here).await;
        site.told("old", "PortTaken").await;
        has("young", 1).await;
        agent.process.kill();
        let mut agent = site.agent(&[]).await;
        has("young", 1).await;
        assert!(site.text(".out.holders").contains("young"), "{}", site.text(".out.holders"));
        // What it lets go of goes to the one that waits.
        site.cluster.delete("Service", &site.namespace, "young").await;
        has("old", 1).await;
        agent.stop();
    });
}
