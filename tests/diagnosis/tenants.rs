//! What an administrator takes away from tenants, and what a tenant may not do.

use crate::patient::{Wrong, all_tell, is_well, says};
use crate::printed::{Shell, command};
use crate::stage::{TARGET, agent_kubeconfig, is_closed, leads_to, play, start_agent, tcp};
use bowline_core::outcome::Reason;
use bowline_testing::objects::{self, Endpoint};
use bowline_testing::{Dial, net, unique};
use serde_json::json;
use std::time::Instant;

#[test]
fn a_service_of_a_namespace_that_is_shut_out_is_told_and_served_once_it_is_let_in() {
    play(async |stage| {
        let shut = json!({"spec": {"allowedNamespaces": {"from": "None"}}});
        stage.cluster.patch("LoadBalancer", "", &stage.lb, &shut).await;
        let a = tcp("a").await;
        let broken = Instant::now();
        stage.service("web", 5000, &[&a]).await;
        is_closed(&stage.dial(5000)).await;
        let shut_out = Wrong {
            kind: "Service",
            name: "web",
            reason: Reason::NotAllowed,
            helps: "open the load balancer to all namespaces",
        };
        all_tell(stage, shut_out, broken).await;
        let programmed = "bowline.dev/Programmed";
        says(stage, "Service", "web", programmed, Some(("False", "NotAllowed"))).await;
        // What helps: open the load balancer.
        let open = command(stage, "service/web", "kubectl patch lb").await;
        Shell::new(stage, &[]).follow(&open, &[]).await;
        leads_to(&stage.dial(5000), "a").await;
        is_well(stage, "service/web").await;
    });
}

#[test]
fn a_service_is_told_that_its_load_balancer_is_being_deleted_and_moves_without_an_outage() {
    play(async |stage| {
        let a = tcp("a").await;
        stage.service("web", 5000, &[&a]).await;
        leads_to(&stage.dial(5000), "a").await;
        is_well(stage, "service/web").await;
        stage.cluster.kubectl(&["delete", "lb", &stage.lb, "--wait=false"], "").ok();
        let broken = Instant::now();
        let leaving = Wrong {
            kind: "Service",
            name: "web",
            reason: Reason::LoadBalancerDeleting,
            helps: "name another load balancer",
        };
        all_tell(stage, leaving, broken).await;
        leads_to(&stage.dial(5000), "a").await;
        // What helps: name another load balancer.
        let (other, vip) = (format!("lb-{}", unique()), net::vip4());
        stage.cluster.owns("loadbalancer", &other);
        stage.cluster.apply("", &objects::load_balancer(&other, &[vip])).await;
        let kubeconfig = agent_kubeconfig(&stage.cluster, &other).await;
        let mut agent = start_agent(&stage.cluster, &kubeconfig, &other);
        agent.ready().await;
        let printed = command(stage, "service/web", "kubectl annotate").await;
        // With a third load balancer, the name is left to the person.
        Shell::new(stage, &[]).follow(&printed, &[("OTHER", &other)]).await;
        leads_to(&Dial::to(vip, 5000), "a").await;
        is_well(stage, "service/web").await;
        std::mem::swap(&mut stage.agent, &mut agent);
        stage.lb = other;
    });
}

#[test]
fn a_service_with_an_endpoint_that_leads_back_to_the_load_balancer_is_told_that_it_gets_no_traffic()
{
    play(async |stage| {
        let a = tcp("a").await;
        let here = Endpoint::ready(stage.vip);
        let broken = Instant::now();
        stage.apply(objects::service("web", &stage.lb, &[(5000, TARGET)])).await;
        stage.endpoints("web", &[here]).await;
        is_closed(&stage.dial(5000)).await;
        let refused = Wrong {
            kind: "Service",
            name: "web",
            reason: Reason::MemberRefused,
            helps: "correct the EndpointSlice",
        };
        let told = all_tell(stage, refused, broken).await;
        assert!(told.contains(&stage.vip.to_string()), "{told}");
        // What helps: correct the EndpointSlice.
        let list = command(stage, "service/web", "kubectl get endpointslices").await;
        let listed = Shell::new(stage, &[]).follow(&list, &[]).await;
        assert!(listed.contains(&stage.vip.to_string()), "{listed}");
        stage.served_by("web", &[&a]).await;
        leads_to(&stage.dial(5000), "a").await;
        is_well(stage, "service/web").await;
    });
}
