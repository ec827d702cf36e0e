//! Claims that wait.

use crate::patient::{Wrong, all_tell, explain, is_well};
use crate::printed::{Shell, command};
use crate::stage::{TARGET, annotate, is_closed, leads_to, play, tcp};
use bowline_core::binder::ClaimReason;
use bowline_core::diagnosis::claims;
use bowline_core::diagnosis::remedy::with_names;
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
            helps: "see why the claim waits",
        };
        all_tell(stage, unbound, broken).await;
        // What helps: see why the claim waits.
        let ask = command(stage, "service/web", "bowline explain").await;
        let shell = Shell::new(stage, &[]);
        let told = shell.follow(&ask, &[]).await;
        assert!(told.starts_with(&format!("Claim {}/mine waits", stage.namespace)), "{told}");
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
        let names = [("CLAIM", "mine"), ("NAMESPACE", &*stage.namespace)];
        assert_eq!(explained["remedy"], with_names(what, &names));
        let list = command(stage, "lbc/mine", "kubectl get lb").await;
        let listed = shell.follow(&list, &[]).await;
        assert!(listed.contains(&stage.lb), "{listed}");
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

#[test]
fn a_service_whose_claim_does_not_exist_is_told_how_to_make_it() {
    play(async |stage| {
        let a = tcp("a").await;
        // A load balancer that is open to namespaces is not bound to claims.
        let none = json!({"spec": {"allowedNamespaces": {"from": "None"}}});
        stage.cluster.patch("LoadBalancer", "", &stage.lb, &none).await;
        let mut service = objects::service("web", "", &[(5000, TARGET)]);
        service["metadata"]["annotations"] = json!({});
        annotate(&mut service, "bowline.dev/load-balancer-claim", "mine");
        let broken = Instant::now();
        stage.apply(service).await;
        stage.served_by("web", &[&a]).await;
        is_closed(&stage.dial(5000)).await;
        let missing = Wrong {
            kind: "Service",
            name: "web",
            reason: Reason::ClaimNotFound,
            helps: "or make this one",
        };
        let told = all_tell(stage, missing, broken).await;
        assert!(told.contains("claim \"mine\" does not exist"), "{told}");
        let make = command(stage, "service/web", "echo").await;
        Shell::new(stage, &[]).follow(&make, &[]).await;
        leads_to(&stage.dial(5000), "a").await;
        is_well(stage, "service/web").await;
        stage.delete("Service", "web").await;
        stage.delete("LoadBalancerClaim", "mine").await;
    });
}
