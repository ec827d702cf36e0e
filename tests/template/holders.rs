//! A Service keeps the port that it has in the output and a namespace its names, whatever older Services ask for later.

use crate::stage::{LINES, Site, play};
use bowline_testing::objects::{self, Endpoint};
use bowline_testing::{Bowline, eventually, net, unique};
use serde_json::{Value, json};
use std::net::IpAddr;

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

/// A line per name with the namespace and the Service that it leads to, then the expressions as they are tried.
const NAMES: &str = "\
{{ range $s := .Services }}{{ range ServerNames $s $.Domain }}{{ if not .IsRegexp }}{{ . }} {{ $s.Namespace }} {{ $s.Name }}
{{ end }}{{ end }}{{ end }}{{ range .Expressions }}{{ .Name }} {{ .Service }}
{{ end }}";

/// A Service of any namespace with these annotations, and a Pod.
async fn service(site: &Site, namespace: &str, name: &str, at: IpAddr, annotations: Value) {
    let object = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "type": "LoadBalancer", "loadBalancerClass": "example.com/others",
            "loadBalancerIP": at.to_string(),
            "ports": [{"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"}],
        },
    });
    site.cluster.apply(namespace, &object).await;
    let slice = objects::slice(name, ("http", 8080, "TCP"), &[Endpoint::ready(net::pod4())]);
    site.cluster.apply(namespace, &slice).await;
}

fn names(names: &str) -> Value {
    json!({"bowline.dev/external-domains": names})
}

/// Waits until the output has these lines, and no others.
async fn becomes(site: &Site, lines: &[String]) {
    eventually(&format!("the output is {lines:?}"), || async {
        let text = site.text("out");
        let found: Vec<_> = text.lines().collect();
        if found == lines { Ok(()) } else { Err(text) }
    })
    .await;
}

#[test]
fn names_of_a_namespace_stay_with_it_whatever_another_one_asks_for_also_after_a_restart() {
    play(async || {
        let site = Site::new(NAMES).await;
        let (at, shop) = (net::vip4(), &site.namespace);
        // What is decided by name, or by age, goes to evil.
        let evil = format!("evil-{}", unique());
        assert!(evil < *shop);
        site.cluster.owns("namespace", &evil);
        let metadata = json!({"name": evil});
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
        site.cluster.apply("", &object).await;
        service(&site, &evil, "old", at, names("~^evil$")).await;
        next_second(&site).await;
        let of_shop = r"shop.example.com,~^[a-z]+\.shop$";
        service(&site, shop, "front", at, names(of_shop)).await;
        let args = ["--server-name-templates", "{{ .Service.Name }}.example.com"];
        let start = async || -> Bowline { site.agent(&args).await };
        let mut agent = start().await;
        let line =
            |name: &str, namespace: &str, service: &str| format!("{name} {namespace} {service}");
        let expression = |text: &str, namespace: &str, service: &str| {
            format!("{text} {service}_{namespace}_80_tcp_http")
        };
        let mut lines = vec![
            line("old.example.com", &evil, "old"),
            line("front.example.com", shop, "front"),
            line("shop.example.com", shop, "front"),
            expression("~^evil$", &evil, "old"),
            expression(r"~^[a-z]+\.shop$", shop, "front"),
        ];
        becomes(&site, &lines).await;

        // A name that the rule makes of a Service called shop, the name itself, and an expression for everything.
        service(&site, &evil, "shop", at, json!({})).await;
        service(&site, &evil, "old", at, names("Shop.Example.com,~^.*$,~^evil$")).await;
        lines.push(expression("~^.*$", &evil, "old"));
        becomes(&site, &lines).await;
        for name in ["shop", "old"] {
            eventually(&format!("{name} is told"), || async {
                let (_, list) = site.cluster.get(&objects::path("Event", &evil, "")).await;
                let events = list["items"].as_array().cloned().unwrap_or_default();
                let is_told = |it: &Value| {
                    it["involvedObject"]["name"] == name && it["reason"] == "HostTaken"
                };
                if events.iter().any(is_told) { Ok(()) } else { Err(list.to_string()) }
            })
            .await;
        }
        agent.process.kill();
        std::fs::remove_file(site.path("out")).expect("the output");
        let mut agent = start().await;
        becomes(&site, &lines).await;
        agent.stop();
    });
}
