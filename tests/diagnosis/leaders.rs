//! A leader that is gone, and what leaders are started with.

use crate::patient::{Wrong, all_tell, is_well, run, status_says, suffers_from_role, words};
use crate::printed::{Shell, command, start};
use crate::stage::{Stage, is_closed, leads_to, play_alone, start_controller, tcp};
use bowline_core::diagnosis::RoleProblem;
use bowline_core::outcome::Reason;
use bowline_testing::objects;
use serde_json::json;
use std::time::Instant;

#[test]
fn a_service_that_no_leader_plans_is_told_so_while_others_are_served() {
    play_alone(async |cluster| {
        let mut leader = start_controller(&cluster, &[]).await;
        leader.ready().await;
        let stage = &Stage::on(cluster).await;
        let a = tcp("a").await;
        stage.service("web", 5000, &[&a]).await;
        leads_to(&stage.dial(5000), "a").await;
        is_well(stage, "service/web").await;
        leader.process.signal("STOP");
        stage.service("new", 5001, &[&a]).await;
        is_closed(&stage.dial(5001)).await;
        let told = suffers_from_role(stage, "service/new", RoleProblem::NoLeader).await;
        assert!(told.contains("was last seen"), "{told}");
        status_says(stage, "that is longer than a Lease lasts").await;
        // The other Service is served as before.
        leads_to(&stage.dial(5000), "a").await;
        is_well(stage, "service/web").await;
        let printed = words(stage, "service/new").await;
        assert!(printed.contains("What helps: start `bowline controller`"), "{printed}");
        let printed = command(stage, "service/new", "bowline controller").await;
        let kubeconfig = stage.cluster.kubeconfig_of("bowline-controller").await;
        let mut other = start(stage, &printed, &kubeconfig);
        other.ready().await;
        leads_to(&stage.dial(5001), "a").await;
        is_well(stage, "service/new").await;
        // The controller that stood still does not disturb the new leader.
        leader.process.signal("CONT");
        stage.service("more", 5002, &[&a]).await;
        leads_to(&stage.dial(5002), "a").await;
        is_well(stage, "service/more").await;
    });
}

#[test]
fn a_service_without_a_load_balancer_is_told_that_the_default_one_is_gone() {
    play_alone(async |cluster| {
        let mut leader = start_controller(&cluster, &["--default-load-balancer", "main"]).await;
        leader.ready().await;
        let stage = &Stage::named(cluster, "main").await;
        let a = tcp("a").await;
        let plain = |name: &str, port| {
            let mut service = objects::service(name, "", &[(port, 8080)]);
            service["metadata"]["annotations"] = json!({});
            service
        };
        stage.apply(plain("first", 5000)).await;
        stage.served_by("first", &[&a]).await;
        leads_to(&stage.dial(5000), "a").await;
        is_well(stage, "service/first").await;
        stage.delete("Service", "first").await;
        stage.cluster.delete("LoadBalancer", "", "main").await;
        let broken = Instant::now();
        stage.apply(plain("web", 5000)).await;
        stage.served_by("web", &[&a]).await;
        let gone = Wrong {
            kind: "Service",
            name: "web",
            reason: Reason::LoadBalancerNotFound,
            helps: "name a load balancer that exists",
        };
        let told = all_tell(stage, gone, broken).await;
        assert!(told.contains("\"main\"") && told.contains("the default one is missing"), "{told}");
        is_closed(&stage.dial(5000)).await;
        let note = run(stage, &["explain", "service/web", "-n", &stage.namespace]).await;
        assert!(note.contains("--default-load-balancer"), "{note}");
        // What helps: name one that exists.
        let other = objects::load_balancer("other", &[stage.vip]);
        stage.cluster.apply("", &other).await;
        let kubeconfig = crate::stage::agent_kubeconfig(&stage.cluster, "other").await;
        let mut agent = crate::stage::start_agent(&stage.cluster, &kubeconfig, "other");
        agent.ready().await;
        let printed = command(stage, "service/web", "kubectl annotate").await;
        Shell::new(stage, &[]).follow(&printed, &[]).await;
        leads_to(&stage.dial(5000), "a").await;
        is_well(stage, "service/web").await;
    });
}
