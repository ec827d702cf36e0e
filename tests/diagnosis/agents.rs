//! Agents that are gone.

use crate::patient::{explain, is_well, status_says, suffers_from_role, words};
use crate::printed::{command, start};
use crate::stage::{
    Stage, agent_kubeconfig, deploy, leads_to, play, start_agent, start_agent_with, tcp,
};
use bowline_core::diagnosis::RoleProblem;
use bowline_testing::{Link, eventually};
use serde_json::json;

/// Waits until a condition of the load balancer is false for this reason, and an Event says so.
async fn says_of_lb(stage: &Stage, type_: &str, reason: &str) {
    stage.told_in("default", "LoadBalancer", &stage.lb, reason).await;
    crate::patient::says(stage, "LoadBalancer", &stage.lb, type_, Some(("False", reason))).await;
}

/// Waits until the log of the agent has this.
async fn logs(stage: &Stage, text: &str) -> String {
    eventually(&format!("the agent logs {text:?}"), || async {
        let log = stage.agent.process.log();
        let line = log.lines().find(|line| line.contains(text)).map(str::to_owned);
        line.ok_or(log)
    })
    .await
}

#[test]
fn the_consumers_of_a_load_balancer_without_its_agent_are_told_and_how_to_start_one() {
    play(async |stage| {
        let a = tcp("a").await;
        stage.service("web", 5000, &[&a]).await;
        leads_to(&stage.dial(5000), "a").await;
        is_well(stage, "service/web").await;
        stage.agent.process.kill();
        stage.dial(5000).tcp().await.expect_err("nobody listens");
        let told = suffers_from_role(stage, "service/web", RoleProblem::AgentSilent).await;
        assert!(told.contains(&format!("bowline agent --load-balancer {}", stage.lb)), "{told}");
        says_of_lb(stage, "Programmed", "AgentSilent").await;
        status_says(stage, "agent silent").await;
        let kubeconfig = agent_kubeconfig(&stage.cluster, &stage.lb).await;
        let printed = command(stage, "service/web", "bowline agent").await;
        stage.agent = start(stage, &printed, &kubeconfig);
        stage.agent.ready().await;
        leads_to(&stage.dial(5000), "a").await;
        is_well(stage, "service/web").await;
    });
}

#[test]
fn an_agent_that_can_be_reached_is_asked_what_is_in_force_and_how_its_report_went() {
    play(async |stage| {
        let a = tcp("a").await;
        stage.service("web", 5000, &[&a]).await;
        leads_to(&stage.dial(5000), "a").await;
        is_well(stage, "service/web").await;
        let at = stage.agent.admin;
        let answers = format!("answers at {at}: the recorded plan is in force");
        for object in ["service/web".to_owned(), format!("lb/{}", stage.lb)] {
            let asked = words(stage, &object).await;
            assert!(asked.contains("Agent now") && asked.contains(&answers), "{asked}");
        }
        let explained = explain(stage, "service/web").await;
        let now = &explained["applied"]["agents"][0]["now"];
        assert_eq!(
            (&now["answers"], &now["inForce"]),
            (&json!(true), &json!("Recorded")),
            "{explained}"
        );
        // Cut off from the API, it serves on. Its Lease cannot say that, but the agent can.
        let kubeconfig = agent_kubeconfig(&stage.cluster, &stage.lb).await;
        let link = Link::new(&stage.cluster, &kubeconfig).await;
        stage.agent.stop();
        stage.agent = start_agent(&stage.cluster, &link.kubeconfig, &stage.lb);
        stage.agent.ready().await;
        is_well(stage, "service/web").await;
        link.cut();
        let cut_off =
            "the recorded plan is in force; it cannot write its report, the last one was written";
        eventually("the agent says that it is cut off", || async {
            let asked = words(stage, "service/web").await;
            if asked.contains(cut_off) { Ok(()) } else { Err(asked) }
        })
        .await;
        leads_to(&stage.dial(5000), "a").await;
        link.mend();
        is_well(stage, "service/web").await;
    });
}

#[test]
fn an_agent_that_stands_still_is_told_and_the_printed_remedy_repairs_it() {
    play(async |stage| {
        let a = tcp("a").await;
        stage.service("web", 5000, &[&a]).await;
        leads_to(&stage.dial(5000), "a").await;
        is_well(stage, "service/web").await;
        stage.agent.process.signal("STOP");
        // The kernel accepts connections for it, but neither clients nor `explain` get an answer.
        stage.dial(5000).tcp().await.expect("connected");
        let asked = words(stage, "service/web").await;
        assert!(
            asked.contains("(no answer within 1 s); what is said of it is from its report"),
            "{asked}"
        );
        let told = suffers_from_role(stage, "service/web", RoleProblem::AgentSilent).await;
        says_of_lb(stage, "Programmed", "AgentSilent").await;
        status_says(stage, "agent silent").await;
        let printed = words(stage, "service/web").await;
        assert!(printed.contains("does not answer: end it, and start it"), "{printed}");
        let printed = command(stage, "service/web", "bowline agent").await;
        assert!(told.contains(&printed), "{told}");
        stage.agent.process.kill();
        let kubeconfig = agent_kubeconfig(&stage.cluster, &stage.lb).await;
        stage.agent = start(stage, &printed, &kubeconfig);
        stage.agent.ready().await;
        leads_to(&stage.dial(5000), "a").await;
        is_well(stage, "service/web").await;
    });
}

#[test]
fn an_agent_that_may_not_report_serves_on_and_is_told_and_which_right_it_lacks() {
    play(async |stage| {
        let a = tcp("a").await;
        stage.service("web", 5000, &[&a]).await;
        leads_to(&stage.dial(5000), "a").await;
        is_well(stage, "service/web").await;
        // On the embedded API rights are those of a token.
        stage.agent.process.kill();
        let less = stage.cluster.kubeconfig_without_reports(&deploy(), &stage.lb).await;
        stage.agent = start_agent(&stage.cluster, &less, &stage.lb);
        leads_to(&stage.dial(5000), "a").await;
        suffers_from_role(stage, "service/web", RoleProblem::AgentSilent).await;
        says_of_lb(stage, "Programmed", "AgentSilent").await;
        // What helps: see in its log whether it has its rights.
        let line = logs(stage, "cannot write the report into the Lease").await;
        assert!(line.contains("forbidden") && line.contains("leases"), "{line}");
        leads_to(&stage.dial(5000), "a").await;
        stage.agent.process.kill();
        let kubeconfig = agent_kubeconfig(&stage.cluster, &stage.lb).await;
        stage.agent = start_agent(&stage.cluster, &kubeconfig, &stage.lb);
        stage.agent.ready().await;
        leads_to(&stage.dial(5000), "a").await;
        is_well(stage, "service/web").await;
    });
}

#[test]
fn an_agent_with_the_wrong_driver_is_told_with_the_flag_that_is_right() {
    play(async |stage| {
        let a = tcp("a").await;
        stage.service("web", 5000, &[&a]).await;
        leads_to(&stage.dial(5000), "a").await;
        is_well(stage, "service/web").await;
        stage.agent.stop();
        let kubeconfig = agent_kubeconfig(&stage.cluster, &stage.lb).await;
        let folder = stage.cluster.scratch().display().to_string();
        let wrong = ["--driver", "nginx", "--exec", "--nginx-folder", &folder];
        stage.agent = start_agent_with(&stage.cluster, &kubeconfig, &stage.lb, &wrong);
        stage.dial(5000).tcp().await.expect_err("nobody listens");
        let told = suffers_from_role(stage, "service/web", RoleProblem::AgentFailed).await;
        assert!(told.contains("the agent runs --driver nginx"), "{told}");
        assert!(told.ends_with("start it with --driver builtin"), "{told}");
        says_of_lb(stage, "Programmed", "AgentFailed").await;
        status_says(stage, "start it with --driver builtin").await;
        stage.agent.stop();
        let (_, flags) = told.rsplit_once("start it with ").expect("flags");
        let right: Vec<_> = flags.split(' ').collect();
        stage.agent = start_agent_with(&stage.cluster, &kubeconfig, &stage.lb, &right);
        stage.agent.ready().await;
        leads_to(&stage.dial(5000), "a").await;
        is_well(stage, "service/web").await;
    });
}

#[test]
fn an_agent_with_the_wrong_driver_is_told_so_before_anything_uses_its_load_balancer() {
    play(async |stage| {
        stage.agent.stop();
        let kubeconfig = agent_kubeconfig(&stage.cluster, &stage.lb).await;
        let folder = stage.cluster.scratch().display().to_string();
        let wrong = ["--driver", "nginx", "--nginx-folder", &folder];
        stage.agent = start_agent_with(&stage.cluster, &kubeconfig, &stage.lb, &wrong);
        let line = logs(stage, "waits: the agent runs --driver nginx").await;
        let (_, flags) = line.rsplit_once("start it with ").expect("flags");
        let right: Vec<_> = flags.split(' ').collect();
        stage.agent.stop();
        stage.agent = start_agent_with(&stage.cluster, &kubeconfig, &stage.lb, &right);
        let a = tcp("a").await;
        stage.service("web", 5000, &[&a]).await;
        leads_to(&stage.dial(5000), "a").await;
        is_well(stage, "service/web").await;
    });
}

#[test]
fn an_agent_without_a_plan_says_whether_its_load_balancer_is_missing_or_unused() {
    play(async |stage| {
        let kubeconfig = agent_kubeconfig(&stage.cluster, &stage.lb).await;
        let unused = "exists, and no Service or Ingress uses it yet";
        logs(stage, unused).await;
        stage.agent.stop();
        let wrong = format!("{}x", stage.lb);
        // A person starts it. The account of an agent may read its own load balancer only, and no list of them.
        let person = stage.cluster.kubeconfig().to_owned();
        stage.agent = start_agent(&stage.cluster, &person, &wrong);
        let line = logs(stage, "does not exist").await;
        let right = line.split("Did you mean ").nth(1).expect("a name").trim_end_matches('?');
        assert_eq!(right, stage.lb);
        stage.agent.stop();
        stage.agent = start_agent(&stage.cluster, &kubeconfig, right);
        let a = tcp("a").await;
        stage.service("web", 5000, &[&a]).await;
        leads_to(&stage.dial(5000), "a").await;
        is_well(stage, "service/web").await;
    });
}
