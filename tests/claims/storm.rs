//! Work on one load balancer causes none on another: counted are the Plans that are written and what agents apply.

use crate::stage::{LB, Site, play, reason};
use crate::traffic::{answers, silent};
use bowline_testing::objects::path;
use bowline_testing::{Bowline, eventually};
use serde_json::{Value, json};
use std::collections::BTreeMap;

impl Site {
    /// The Plans of a load balancer, with the version of each: a write makes another one.
    async fn plans(&self, lb: &str) -> BTreeMap<String, String> {
        let (_, list) = self.cluster.get(&path("Plan", "bowline-system", "")).await;
        let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
        let items = list["items"].as_array().cloned().unwrap_or_default();
        let of = items.iter().filter(|it| it["spec"]["loadBalancer"] == lb);
        let meta = of.map(|it| &it["metadata"]);
        meta.map(|it| (text(&it["name"]), text(&it["resourceVersion"]))).collect()
    }
}

/// How often an agent has looked for differences, and how often its driver was given something to do.
async fn work(agent: &Bowline) -> [f64; 2] {
    let mut counts = [0.0; 2];
    for (count, name) in counts.iter_mut().zip(["diff", "apply"]) {
        *count = agent.metric(&format!("bowline_{name}_seconds_count")).await;
    }
    counts
}

#[test]
fn rules_of_one_load_balancer_are_work_for_its_agent_alone() {
    play(async || {
        let site = Site::new().await;
        site.web_class().await;
        let (busy, busy_agent) = site.live("busy", json!({})).await;
        let (quiet, quiet_agent) = site.live("quiet", json!({})).await;
        for name in ["busy", "quiet"] {
            site.claim(name, json!({"loadBalancerName": name})).await;
            site.bound(name, name).await;
        }
        let _backends = [
            site.backend(&site.namespace, "shop").await,
            site.backend(&site.namespace, "still").await,
        ];
        site.ingress(&site.namespace, "still", "still.example", "quiet").await;
        site.ingress(&site.namespace, "shop", "shop-0.example", "busy").await;
        answers(quiet, 80, "still.example").await;
        answers(busy, 80, "shop-0.example").await;
        for lb in ["busy", "quiet"] {
            site.until(LB, lb, "runs the plan of now", |it| {
                (reason(it, "Programmed") == Some("Programmed")).then_some(())
            })
            .await;
        }
        let before = (site.plans("quiet").await, work(&quiet_agent).await);
        let (busy_plans, busy_work) = (site.plans("busy").await, work(&busy_agent).await);
        const ROUNDS: usize = 20;
        for round in 1..=ROUNDS {
            let host = format!("shop-{round}.example");
            site.ingress(&site.namespace, "shop", &host, "busy").await;
            answers(busy, 80, &host).await;
        }
        silent(busy, 80, "shop-0.example").await;
        assert_eq!((site.plans("quiet").await, work(&quiet_agent).await), before);
        assert_ne!(site.plans("busy").await, busy_plans);
        // And there each change was one, whatever else came with it.
        eventually("the busy one has worked", || async {
            let done = work(&busy_agent).await[1] - busy_work[1];
            let expected = ROUNDS as f64;
            match (expected..=2.0 * expected).contains(&done) {
                true => Ok(()),
                false => Err(format!("{done} times for {ROUNDS} changes")),
            }
        })
        .await;
    });
}
