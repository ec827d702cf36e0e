//! Tenants write EndpointSlices: which of the addresses in them get no traffic, and who is told.

use crate::stage::{TARGET, lead_to, leads_to, play_with, tcp};
use bowline_testing::objects::{self, Endpoint};
use bowline_testing::{Backend, Cluster, eventually, net, unique};
use serde_json::Value;
use std::net::IpAddr;

/// The agent may send nothing here.
const DENIED: [u8; 4] = [10, 66, 6, 6];

fn denying(_: &str) -> Vec<String> {
    vec!["--deny-members".to_owned(), "10.66.6.0/24,fd66::/16".to_owned()]
}

/// What the condition of a Service says, once it says something of members.
async fn condition(cluster: &Cluster, namespace: &str, service: &str) -> String {
    eventually("the condition speaks of members", || async {
        let object = cluster.read("Service", namespace, service).await;
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let told = conditions.iter().find(|it| it["type"] == "bowline.dev/Programmed");
        let message = told.and_then(|it| it["message"].as_str()).unwrap_or_default().to_owned();
        let holds = told.is_some_and(|it| it["status"] == "True");
        if holds && message.contains("get no traffic") {
            Ok(message)
        } else {
            Err(Value::from(conditions).to_string())
        }
    })
    .await
}

#[test]
fn members_that_are_denied_or_load_balancers_get_no_traffic_and_their_service_is_told() {
    play_with(&denying, async |stage| {
        let good = tcp("good").await;
        let denied = IpAddr::from(DENIED);
        net::add(denied);
        let bad = Backend::tcp("bad", denied, TARGET).await;
        // A backend at an address that another load balancer gets later.
        let (other, vip) = (format!("lb-{}", unique()), net::vip4());
        let looped = Backend::tcp("looped", vip, TARGET).await;
        let all = [good.at.ip(), denied, stage.vip, vip].map(Endpoint::ready);
        stage.service("web", 80, &[&good]).await;
        stage.endpoints("web", &all).await;
        let dial = stage.dial(80);
        lead_to(&dial, &["good", "looped"]).await;
        let message = condition(&stage.cluster, &stage.namespace, "web").await;
        let said = format!("10.66.6.6:{TARGET} (in 10.66.6.0/24, which --deny-members lists)");
        assert!(message.contains(&said), "{message}");
        let said = format!("{}:{TARGET} (an address of a load balancer)", stage.vip);
        assert!(message.contains(&said), "{message}");
        let event = stage.told("Service", "web", "MemberRefused").await;
        assert!(event.contains("10.66.6.6"), "{event}");

        stage.cluster.owns("loadbalancer", &other);
        stage.cluster.apply("", &objects::load_balancer(&other, &[vip])).await;
        stage.apply(objects::service("there", &other, &[(81, TARGET)])).await;
        lead_to(&dial, &["good"]).await;
        stage.delete("Service", "there").await;
        lead_to(&dial, &["good", "looped"]).await;
        stage.cluster.delete("LoadBalancer", "", &other).await;

        assert_eq!(bad.connections(), 0, "nothing ever went to the denied one");
        drop(looped);
        stage.endpoints("web", &[Endpoint::ready(good.at.ip())]).await;
        leads_to(&dial, "good").await;
        eventually("nothing is left out any more", || async {
            let object = stage.read("Service", "web").await;
            let text = object["status"]["conditions"].to_string();
            if text.contains("get no traffic") { Err(text) } else { Ok(()) }
        })
        .await;
    });
}

#[test]
fn a_service_with_too_many_members_is_served_by_some_and_told() {
    play_with(&|_| Vec::new(), async |stage| {
        let good = tcp("good").await;
        stage.service("web", 80, &[&good]).await;
        leads_to(&stage.dial(80), "good").await;
        for number in 0..3_u8 {
            let ips = (0..1_000_u16).map(|n| [10, 77 + number, (n / 250) as u8, (n % 250) as u8]);
            let endpoints: Vec<_> = ips.map(|ip| Endpoint::ready(ip.into())).collect();
            let mut slice = objects::slice("web", ("", TARGET, "TCP"), &endpoints);
            slice["metadata"]["name"] = format!("web-{number}").into();
            stage.apply(slice).await;
        }
        let said = format!("1001 members of Service {}/web", stage.namespace);
        eventually("all that are too many are told", || async {
            let message = condition(&stage.cluster, &stage.namespace, "web").await;
            let all = message.contains(&said) && message.contains("a pool can have at most 2000");
            if all { Ok(()) } else { Err(message) }
        })
        .await;
        stage.told("Service", "web", "TooManyMembers").await;
        assert!((stage.agent.metric("bowline_members").await - 2_000.0).abs() < 0.5);
    });
}

#[test]
fn a_service_behind_many_ingresses_leaves_the_agent_room_for_the_members_of_others() {
    play_with(&|_| Vec::new(), async |stage| {
        for number in 0..2_u8 {
            let ips = (0..1_000_u16).map(|n| [10, 77 + number, (n / 250) as u8, (n % 250) as u8]);
            let endpoints: Vec<_> = ips.map(|ip| Endpoint::ready(ip.into())).collect();
            let mut slice = objects::slice("wide", ("", TARGET, "TCP"), &endpoints);
            slice["metadata"]["name"] = format!("wide-{number}").into();
            stage.apply(slice).await;
        }
        stage.apply(objects::cluster_service("wide", 80, TARGET)).await;
        for number in 0..13 {
            let (name, host) = (format!("i-{number:02}"), format!("h{number}.example"));
            stage.ingress(&name, &[(&host, "/", "Prefix", "wide")]).await;
        }
        // Ten pools of 2,000 are what a namespace may have.
        let message = stage.told("Ingress", "i-12", "TooManyMembers").await;
        let said = "claim a load balancer for the namespace to have more";
        assert!(message.contains(said), "{message}");
        let shop = stage.cluster.namespace().await;
        let good = tcp("good").await;
        stage.cluster.apply(&shop, &objects::service("web", &stage.lb, &[(81, TARGET)])).await;
        let slice = objects::slice("web", ("", TARGET, "TCP"), &[Endpoint::ready(good.at.ip())]);
        stage.cluster.apply(&shop, &slice).await;
        leads_to(&stage.dial(81), "good").await;
        eventually("the agent has as many members as namespaces may have", || async {
            let members = stage.agent.metric("bowline_members").await;
            if (members - 20_001.0).abs() < 0.5 { Ok(()) } else { Err(members.to_string()) }
        })
        .await;
    });
}
