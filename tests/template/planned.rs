//! Templates as the driver of one load balancer: a controller decides, the agent fills its template.

use crate::stage::{LINES, PROGRAM, Site, deploy, play};
use bowline_testing::objects::{self, Endpoint};
use bowline_testing::{Bowline, eventually, net};
use serde_json::json;
use std::path::Path;

#[test]
fn the_plan_of_a_load_balancer_fills_its_template_and_it_runs() {
    play(async || {
        let template = format!("{LINES}{{{{ range .Plan.sites }}}}{{{{ .host }}}}\n{{{{ end }}}}");
        let site = Site::new(&template).await;
        let cluster = &site.cluster;
        let rights = cluster.kubeconfig_of("bowline-controller").await;
        let mut controller =
            Bowline::start(cluster, Path::new(PROGRAM), &rights, "controller", &[]);
        controller.ready().await;
        let (vip, pod) = (net::vip4(), net::pod4());
        let mut lb = objects::load_balancer("printed", &[vip]);
        lb["spec"]["builtin"] = json!(null);
        lb["spec"]["template"] = json!({});
        cluster.apply("", &lb).await;
        let rights = cluster.agent_kubeconfig(&deploy(), "printed").await;
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
