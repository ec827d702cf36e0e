//! Agents that are gone.

use crate::patient::{is_well, problems};
use crate::stage::{agent_kubeconfig, leads_to, play, start_agent, tcp};
use bowline_testing::eventually;

#[test]
fn the_consumers_of_a_load_balancer_without_its_agent_are_told_and_how_to_start_one() {
    play(async |stage| {
        let a = tcp("a").await;
        stage.service("web", 5000, &[&a]).await;
        leads_to(&stage.dial(5000), "a").await;
        is_well(stage, "service/web").await;
        stage.agent.process.kill();
        stage.dial(5000).tcp().await.expect_err("nobody listens");
        let start = format!("bowline agent --load-balancer {}", stage.lb);
        eventually("the silence is told", || async {
            let found = problems(stage, "service/web").await;
            let told = |it: &crate::patient::Found| {
                it.reason == "AgentSilent" && it.message.contains(&start)
            };
            if found.iter().any(told) { Ok(()) } else { Err(format!("{found:?}")) }
        })
        .await;
        let kubeconfig = agent_kubeconfig(&stage.cluster, &stage.lb).await;
        stage.agent = start_agent(&stage.cluster, &kubeconfig, &stage.lb);
        stage.agent.ready().await;
        leads_to(&stage.dial(5000), "a").await;
        is_well(stage, "service/web").await;
    });
}
