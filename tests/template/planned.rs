//! Templates as the driver of one load balancer: a controller decides, the agent fills its template.

use crate::stage::{LINES, PROGRAM, Site, deploy, play};
use bowline_testing::objects::{self, Endpoint};
use bowline_testing::{Bowline, SYSTEM, eventually, net};
use serde_json::json;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// A load balancer for templates at this address, a controller that plans it, and its agent's rights.
pub(crate) async fn planned(site: &Site, name: &str, vip: IpAddr) -> (Bowline, PathBuf) {
    let cluster = &site.cluster;
    let rights = cluster.kubeconfig_of("bowline-controller").await;
    let mut controller = Bowline::start(cluster, Path::new(PROGRAM), &rights, "controller", &[]);
    controller.ready().await;
    let mut lb = objects::load_balancer(name, &[vip]);
    lb["spec"]["builtin"] = json!(null);
    lb["spec"]["template"] = json!({});
    cluster.apply("", &lb).await;
    (controller, cluster.agent_kubeconfig(&deploy(), name).await)
}

/// The names in our namespace of the objects of a kind that have something in their name.
async fn ours(site: &Site, kind: &str, part: &str) -> Vec<String> {
    let (_, list) = site.cluster.get(&objects::path(kind, SYSTEM, "")).await;
    let items = list["items"].as_array().cloned().unwrap_or_default();
    let names = items.iter().filter_map(|item| item["metadata"]["name"].as_str());
    names.filter(|name| name.contains(part)).map(str::to_owned).collect()
}

#[test]
fn the_plan_of_a_load_balancer_fills_its_template_and_it_runs() {
    play(async || {
        let template = format!("{LINES}{{{{ range .Plan.sites }}}}{{{{ .host }}}}\n{{{{ end }}}}");
        let site = Site::new(&template).await;
        let cluster = &site.cluster;
        let (vip, pod) = (net::vip4(), net::pod4());
        let (_controller, rights) = planned(&site, "printed", vip).await;
        let (template, output, notify) = (site.path("t.tmpl"), site.path("out"), site.counter());
        let args = [
            "--load-balancer",
            "printed",
            "--template",
            &template,
            "--output",
            &output,
            "--notify",
            &notify,
            "--settle",
            "3000",
        ];
        let mut agent = Bowline::start(cluster, Path::new(PROGRAM), &rights, "agent", &args);
        agent.ready().await;
        let before = site.count();
        cluster.apply(&site.namespace, &objects::service("web", "printed", &[(90, 8080)])).await;
        let slice = objects::slice("web", ("", 8080, "TCP"), &[Endpoint::ready(pod)]);
        cluster.apply(&site.namespace, &slice).await;
        cluster.apply("", &objects::ingress_class("printed", "printed")).await;
        let ingress =
            objects::ingress("shop", "printed", &[("shop.example", "/", "Prefix", "shop")]);
        cluster.apply(&site.namespace, &ingress).await;
        let std::net::IpAddr::V4(four) = vip else { panic!("{vip}") };
        let port = four.octets().map(|byte| format!("{byte:02x}")).concat();
        let ends = format!("web {port}_90_tcp_tcp {pod}:8080\nshop.example\n");
        eventually("the file has the Service and the host", || async {
            let text = site.text("out");
            if text.ends_with(&ends) && site.count() > before { Ok(()) } else { Err(text) }
        })
        .await;
        assert_eq!(site.count(), before + 1, "a burst is one notification");
        eventually("the load balancer runs", || async {
            let lb = cluster.read("LoadBalancer", "", "printed").await;
            if lb["status"]["phase"] == "Running" { Ok(()) } else { Err(lb["status"].to_string()) }
        })
        .await;
    });
}

#[test]
fn once_writes_the_plan_of_a_load_balancer_notifies_and_says_how_it_went() {
    play(async || {
        let site = Site::new(LINES).await;
        let (cluster, name) = (&site.cluster, "printed-once");
        let (vip, pod) = (net::vip4(), net::pod4());
        let (_controller, rights) = planned(&site, name, vip).await;
        cluster.apply(&site.namespace, &objects::service("web", name, &[(90, 8080)])).await;
        let slice = objects::slice("web", ("", 8080, "TCP"), &[Endpoint::ready(pod)]);
        cluster.apply(&site.namespace, &slice).await;
        eventually("it is planned", || async {
            let plans = ours(&site, "Plan", name).await;
            if plans.is_empty() { Err("no Plan".to_owned()) } else { Ok(()) }
        })
        .await;
        let (template, output, notify) = (site.path("t.tmpl"), site.path("out"), site.counter());
        let once = |name: &str, more: &[&str]| {
            let mut args = vec!["--load-balancer", name, "--once"];
            args.extend(["--template", &template, "--output", &output]);
            args.extend(more);
            let mut agent = Bowline::start(cluster, Path::new(PROGRAM), &rights, "agent", &args);
            (agent.process.wait(), agent.process.log())
        };
        let (status, log) = once(name, &["--notify", &notify, "--check", "grep -q web {}"]);
        assert_eq!(status, Some(0), "{log}");
        let std::net::IpAddr::V4(four) = vip else { panic!("{vip}") };
        let port = four.octets().map(|byte| format!("{byte:02x}")).concat();
        let good = format!("web {port}_90_tcp_tcp {pod}:8080\n");
        assert_eq!((site.text("out"), site.count()), (good.clone(), 1), "{log}");
        let (status, log) = once(name, &["--notify", &notify]);
        assert_eq!(
            (status, site.count()),
            (Some(0), 1),
            "what is the same is told to nobody: {log}"
        );
        assert_eq!(ours(&site, "Lease", name).await, [""; 0], "it does not say that it serves");
        let slice = objects::slice("web", ("", 8080, "TCP"), &[]);
        cluster.apply(&site.namespace, &slice).await;
        let (status, log) = once(name, &["--check", "echo never; false {}"]);
        assert_eq!((status, site.text("out")), (Some(1), good), "{log}");
        assert!(log.contains("it printed: never; the files in place stay"), "{log}");
        let (status, log) = once(name, &["--notify", "command:echo no; exit 3"]);
        assert_eq!(status, Some(1), "{log}");
        assert!(log.contains("exit status: 3; it printed: no"), "{log}");
        let (status, log) = once("printed-nowhere", &[]);
        assert_eq!((status, site.text("out")), (Some(0), String::new()), "{log}");
        assert!(log.contains("or no load balancer has this name"), "{log}");
    });
}
