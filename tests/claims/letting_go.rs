//! What holds what, and what becomes of what is let go.

use crate::stage::{CLAIM, LB, Site, has, message, play, reason, wants};
use crate::traffic::{answers, silent};
use bowline_testing::objects::{self, Endpoint};
use bowline_testing::{Backend, Dial, Flavour, SYSTEM, net};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};

fn deleting(object: &Value) -> Option<()> {
    object["metadata"]["deletionTimestamp"].as_str().map(|_| ())
}

#[test]
fn a_load_balancer_that_a_claim_has_stays_until_the_claim_goes() {
    play(async || {
        let site = Site::new().await;
        site.lb("edge-1", has("5G")).await;
        site.claim("web", wants("2G")).await;
        site.bound("web", "edge-1").await;
        site.cluster.delete(LB, "", "edge-1").await;
        site.until(LB, "edge-1", "is being deleted", deleting).await;
        let message = site.until(LB, "edge-1", "says who holds it", |it| {
            let all = it["status"]["conditions"].as_array()?;
            let bound = all.iter().find(|it| it["type"] == "Bound")?["message"].as_str()?;
            bound.contains("being deleted").then(|| bound.to_owned())
        });
        let expected = format!("it is being deleted, and claim {}/web holds it", site.namespace);
        assert_eq!(message.await, expected);
        site.bound("web", "edge-1").await;
        site.cluster.delete(CLAIM, &site.namespace, "web").await;
        site.gone(CLAIM, "web").await;
        site.gone(LB, "edge-1").await;
    });
}

#[test]
fn a_load_balancer_that_is_deleted_serves_its_consumers_until_the_last_one_is_gone() {
    play(async || {
        let site = Site::new().await;
        let spec = json!({"allowedNamespaces": {"from": "All"}});
        let (vip, _agent) = site.live("edge", spec).await;
        let pod = net::pod4();
        let _backend = Backend::http("shop", pod, 8080).await;
        let service = objects::service("shop", "edge", &[(80, 8080)]);
        site.cluster.apply(&site.namespace, &service).await;
        let slice = objects::slice("shop", ("", 8080, "TCP"), &[Endpoint::ready(pod)]);
        site.cluster.apply(&site.namespace, &slice).await;
        answers(vip, 80, "shop.example").await;
        site.until(LB, "edge", "is held", |it| {
            let finalizers = it["metadata"]["finalizers"].as_array()?;
            finalizers.contains(&json!("bowline.dev/in-use")).then_some(())
        })
        .await;
        let stop = AtomicBool::new(false);
        let clients = async {
            let (mut asked, mut lost) = (0, Vec::new());
            while !stop.load(Ordering::Relaxed) {
                let answer = Dial::to(vip, 80).get("shop.example", "/").await;
                lost.extend(answer.and_then(|it| it.echo()).err());
                asked += 1;
            }
            (asked, lost)
        };
        let removal = async {
            site.cluster.delete(LB, "", "edge").await;
            site.until(LB, "edge", "is being deleted", deleting).await;
            let says = format!("it is being deleted; consumers in {} still use it", site.namespace);
            site.until(LB, "edge", "says so", |it| (message(it, "Bound") == says).then_some(()))
                .await;
            site.hears("default", "edge", &says).await;
            site.until(LB, "edge", "runs, and says in its status what holds it", |it| {
                (it["status"]["message"] == says && it["status"]["phase"] == "Running")
                    .then_some(())
            })
            .await;
            let late = objects::service("late", "edge", &[(81, 8080)]);
            site.cluster.apply(&site.namespace, &late).await;
            let told = site.told(&site.namespace, "late", "LoadBalancerDeleting").await;
            assert!(
                told.contains("\"edge\" is being deleted and takes no new consumers"),
                "{told}"
            );
            let told = site.told(&site.namespace, "shop", "LoadBalancerDeleting").await;
            assert!(told.contains("name another one"), "{told}");
            stop.store(true, Ordering::Relaxed);
        };
        let ((asked, lost), ()) = tokio::join!(clients, removal);
        assert_eq!(lost, Vec::<String>::new(), "of {asked}");
        answers(vip, 80, "shop.example").await;
        site.cluster.delete("Service", &site.namespace, "shop").await;
        site.gone(LB, "edge").await;
        silent(vip, 80, "shop.example").await;
    });
}

#[test]
fn a_claim_in_use_stays_until_its_consumers_let_go() {
    play(async || {
        let site = Site::new().await;
        let spec = json!({"reclaimPolicy": "Delete", "addresses": ["203.0.113.10"]});
        site.lb("edge-1", spec).await;
        site.claim("web", json!({})).await;
        site.bound("web", "edge-1").await;
        let mut service = objects::service("shop", "", &[(80, 8080)]);
        service["metadata"]["annotations"] = json!({"bowline.dev/load-balancer-claim": "web"});
        site.cluster.apply(&site.namespace, &service).await;
        site.until(LB, "edge-1", "has a consumer", |it| {
            (it["status"]["consumers"][0]["name"] == "shop").then_some(())
        })
        .await;
        let held = |it: &Value| {
            let finalizers = it["metadata"]["finalizers"].as_array()?;
            finalizers.contains(&json!("bowline.dev/in-use")).then_some(())
        };
        site.until(CLAIM, "web", "is held", held).await;
        site.cluster.delete(CLAIM, &site.namespace, "web").await;
        site.until(CLAIM, "web", "is being deleted", deleting).await;
        site.bound("web", "edge-1").await;
        site.cluster.delete("Service", &site.namespace, "shop").await;
        site.gone(CLAIM, "web").await;
        site.gone(LB, "edge-1").await;
    });
}

#[test]
fn a_retained_load_balancer_is_for_nobody_until_a_person_clears_it() {
    play(async || {
        let site = Site::new().await;
        site.lb("edge-1", has("5G")).await;
        site.claim("web", wants("2G")).await;
        site.bound("web", "edge-1").await;
        site.cluster.delete(CLAIM, &site.namespace, "web").await;
        site.gone(CLAIM, "web").await;
        let message = site.stands("edge-1", "Released").await;
        assert_eq!(message, "its claim is gone: clear claimRef to make it available");
        // Nor for one of the same name.
        site.claim("web", wants("2G")).await;
        let message = site.says("web", "Pending", "NoMatch").await;
        assert!(message.contains("edge-1: its claim is gone"), "{message}");
        let mut service = objects::service("shop", "", &[(80, 8080)]);
        service["metadata"]["annotations"] = json!({"bowline.dev/load-balancer-claim": "web"});
        site.cluster.apply(&site.namespace, &service).await;
        let message = site.told(&site.namespace, "shop", "ClaimNotBound").await;
        assert_eq!(message, "claim \"web\" is not bound to a load balancer");
        site.cluster.patch(LB, "", "edge-1", &json!({"spec": {"claimRef": null}})).await;
        site.bound("web", "edge-1").await;
    });
}

#[test]
fn a_recycled_load_balancer_goes_to_the_next_claim() {
    play(async || {
        let site = Site::new().await;
        let spec = json!({"reclaimPolicy": "Recycle", "capacity": {"network-bandwidth": "5G"}});
        site.lb("edge-1", spec).await;
        site.claim("web", wants("2G")).await;
        site.bound("web", "edge-1").await;
        site.claim("next", wants("2G")).await;
        site.says("next", "Pending", "NoMatch").await;
        site.cluster.delete(CLAIM, &site.namespace, "web").await;
        site.bound("next", "edge-1").await;
    });
}

#[test]
fn what_a_class_made_goes_with_its_claim_also_where_an_agent_waits_for_a_plan() {
    play(async || {
        let site = Site::new().await;
        let class = json!({
            "apiVersion": "bowline.dev/v1alpha1", "kind": "LoadBalancerClass",
            "metadata": {"name": "bronze"}, "spec": {"builtin": {}},
        });
        site.cluster.apply("", &class).await;
        let made = site.claim("web", json!({"className": "bronze"})).await;
        let name = format!("lbc-{}", made["metadata"]["uid"].as_str().expect("a uid"));
        site.bound("web", &name).await;
        let _agent = site.agent(&name).await;
        site.until(LB, &name, "has heard of its agent", |it| {
            (reason(it, "Programmed") == Some("Programmed")).then_some(())
        })
        .await;
        site.cluster.delete(CLAIM, &site.namespace, "web").await;
        site.gone(CLAIM, "web").await;
        site.gone(LB, &name).await;
    });
}

#[test]
fn a_claim_whose_load_balancer_disappears_is_lost_and_moves_nowhere() {
    play(async || {
        let site = Site::new().await;
        site.lb("edge-1", has("5G")).await;
        site.claim("web", wants("2G")).await;
        site.bound("web", "edge-1").await;
        site.lb("edge-2", has("5G")).await;
        site.stands("edge-2", "Available").await;
        site.cluster.delete(LB, "", "edge-1").await;
        site.cluster.patch(LB, "", "edge-1", &json!({"metadata": {"finalizers": null}})).await;
        site.gone(LB, "edge-1").await;
        let message = site.says("web", "Lost", "LoadBalancerGone").await;
        assert_eq!(message, "load balancer edge-1 is gone");
        site.told(&site.namespace, "web", "LoadBalancerGone").await;
        site.stands("edge-2", "Available").await;
    });
}

#[test]
fn a_removal_that_is_held_up_is_tried_until_it_is_done_also_over_a_crash() {
    play(async || {
        let mut site = Site::new().await;
        site.class("bronze", json!({"builtin": {}})).await;
        let made = site.claim("web", json!({"className": "bronze"})).await;
        let name = format!("lbc-{}", made["metadata"]["uid"].as_str().expect("a uid"));
        site.bound("web", &name).await;
        let proxy = objects::path("Deployment", "bowline-system", &name);
        let until = async |what: &str, ask: fn(&Value) -> Option<()>| {
            bowline_testing::eventually(what, || async {
                let (code, found) = site.cluster.get(&proxy).await;
                ask(&found).ok_or_else(|| format!("{code}: {found}"))
            })
            .await;
        };
        until("its proxy is there", |it| it["metadata"]["uid"].as_str().map(|_| ())).await;
        let hold = json!({"metadata": {"finalizers": ["test.example/hold"]}});
        site.cluster.patch("Deployment", "bowline-system", &name, &hold).await;
        site.cluster.delete(CLAIM, &site.namespace, "web").await;
        site.gone(CLAIM, "web").await;
        until("its proxy is being deleted", deleting).await;
        site.kill();
        site.revive().await;
        site.controller.ready().await;
        let lb = site.cluster.read(LB, "", &name).await;
        let finalizers = lb["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        assert!(finalizers.contains(&json!("bowline.dev/cleanup")), "{lb}");
        let free = json!({"metadata": {"finalizers": null}});
        site.cluster.patch("Deployment", "bowline-system", &name, &free).await;
        site.gone(LB, &name).await;
    });
}

#[test]
fn a_removal_that_the_api_refuses_is_told_and_done_once_it_is_allowed() {
    play(async || {
        let site = Site::new().await;
        let why = "all roles have the same rights, and nothing is refused";
        if site.cluster.leaves_out(Flavour::Embedded, why) {
            return;
        }
        site.class("bronze", json!({"builtin": {}})).await;
        let made = site.claim("web", json!({"className": "bronze"})).await;
        let name = format!("lbc-{}", made["metadata"]["uid"].as_str().expect("a uid"));
        site.bound("web", &name).await;
        site.until(LB, &name, "has its proxy", |it| reason(it, "Provisioned").map(|_| ())).await;
        let role = site.cluster.read("Role", SYSTEM, "bowline-provisioner").await;
        let rules = role["rules"].as_array().cloned().unwrap_or_default();
        let fewer: Vec<_> = rules
            .iter()
            .cloned()
            .map(|mut rule| {
                if let Some(verbs) = rule["verbs"].as_array_mut() {
                    verbs.retain(|verb| verb != "delete");
                }
                rule
            })
            .collect();
        let may = async |rules: &[Value]| {
            let rules = json!({"rules": rules});
            site.cluster.patch("Role", SYSTEM, "bowline-provisioner", &rules).await;
        };
        may(&fewer).await;
        site.cluster.delete(CLAIM, &site.namespace, "web").await;
        site.gone(CLAIM, "web").await;
        let message = site
            .until(LB, &name, "has failed", |it| {
                let failed = it["status"]["phase"] == "Failed";
                failed.then(|| it["status"]["message"].as_str().unwrap_or_default().to_owned())
            })
            .await;
        assert!(message.contains("forbidden") || message.contains("may not"), "{message}");
        let lb = site.cluster.read(LB, "", &name).await;
        let finalizers = lb["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        assert!(finalizers.contains(&json!("bowline.dev/cleanup")), "{lb}");
        may(&rules).await;
        site.gone(LB, &name).await;
        for kind in ["Deployment", "Service", "ServiceAccount"] {
            assert_eq!(site.cluster.read(kind, SYSTEM, &name).await, Value::Null, "{kind} is left");
        }
    });
}
