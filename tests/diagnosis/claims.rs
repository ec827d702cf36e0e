//! Claims that wait.

use crate::patient::{Wrong, all_tell, explain, is_well};
use crate::stage::{TARGET, annotate, is_closed, leads_to, play, tcp};
use bowline_core::binder::ClaimReason;
use bowline_core::diagnosis::claims;
use bowline_core::outcome::Reason;
use bowline_testing::{eventually, objects};
use serde_json::json;
use std::time::Instant;

#[test]
fn a_service_whose_claim_names_a_class_that_is_gone_is_led_to_the_remedy() {
    play(async |stage| {
        let a = tcp("a").await;
        let claim = |spec: serde_json::Value| {
            json!({
                "apiVersion": "bowline.dev/v1alpha1", "kind": "LoadBalancerClaim",
                "metadata": {"name": "mine"}, "spec": spec,
            })
        };
        let class = format!("class-{}", stage.lb);
        stage.apply(claim(json!({"className": class, "scope": "Internet"}))).await;
        let mut service = objects::service("web", "", &[(5000, TARGET)]);
        service["metadata"]["annotations"] = json!({});
        annotate(&mut service, "bowline.dev/load-balancer-claim", "mine");
        let broken = Instant::now();
        stage.apply(service.clone()).await;
        stage.served_by("web", &[&a]).await;
        is_closed(&stage.dial(5000)).await;
        let unbound = Wrong {
            kind: "Service",
            name: "web",
            reason: Reason::ClaimNotBound,
            helps: "`bowline explain lbc/NAME`",
        };
        all_tell(stage, unbound, broken).await;
        // What helps: see why the claim waits.
        let explained = eventually("the claim is explained", || async {
            let explained = explain(stage, "lbc/mine").await;
            if explained["reason"] == "NoMatch" {
                Ok(explained)
            } else {
                Err(explained.to_string())
            }
        })
        .await;
        let why = explained["unmade"].as_str().unwrap_or_default();
        assert!(why.contains(&format!("class {class} does not exist")), "{explained}");
        let what = claims::row(ClaimReason::NoMatch).helps.expect("a remedy").what;
        assert_eq!(explained["remedy"], what);
        stage.told("LoadBalancerClaim", "mine", "NoMatch").await;
        // What helps: name a load balancer that exists. It must be open to claims.
        stage.delete("Service", "web").await;
        stage.delete("LoadBalancerClaim", "mine").await;
        let none = json!({"spec": {"allowedNamespaces": {"from": "None"}}});
        stage.cluster.patch("LoadBalancer", "", &stage.lb, &none).await;
        eventually("the old claim is gone", || async {
            let path = objects::path("LoadBalancerClaim", &stage.namespace, "mine");
            let (status, found) = stage.cluster.get(&path).await;
            if status == 404 { Ok(()) } else { Err(found.to_string()) }
        })
        .await;
        stage.apply(claim(json!({"loadBalancerName": stage.lb}))).await;
        stage.apply(service).await;
        leads_to(&stage.dial(5000), "a").await;
        is_well(stage, "service/web").await;
        assert_eq!(explain(stage, "lbc/mine").await["remedy"], json!(null));
        stage.delete("Service", "web").await;
        stage.delete("LoadBalancerClaim", "mine").await;
    });
}
