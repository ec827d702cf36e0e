//! Several namespaces with real traffic: each has what it claimed and nothing of anybody else's, and leaves nothing
//! behind when it goes.

use crate::stage::{CLAIM, LB, Site, has, play, reason};
use crate::traffic::{answers, points, silent};
use bowline_testing::objects::{self, path};
use bowline_testing::{eventually, net};
use serde_json::{Value, json};

impl Site {
    /// Waits until a claim of any namespace has a load balancer, and says which.
    async fn bound_in(&self, namespace: &str, claim: &str) -> String {
        eventually(&format!("claim {namespace}/{claim} is bound"), || async {
            let (_, object) = self.cluster.get(&path(CLAIM, namespace, claim)).await;
            match (reason(&object, "Bound"), object["status"]["loadBalancerName"].as_str()) {
                (Some("Bound"), Some(name)) => Ok(name.to_owned()),
                _ => Err(object.to_string()),
            }
        })
        .await
    }

    /// The cloud gives the Service of a load balancer that a class made an address, and leads from there to the Pod
    /// in which its agent is.
    async fn made_live(&self, lb: &str) -> (std::net::IpAddr, bowline_testing::Bowline) {
        let pod = net::pod4();
        self.exists("Service", "bowline-system", lb).await;
        let status = json!({"loadBalancer": {"ingress": [{"ip": pod}]}});
        self.play_status("Service", lb, status).await;
        self.exists("ServiceAccount", "bowline-system", lb).await;
        (pod, self.made_agent(lb, &pod.to_string()).await)
    }

    async fn exists(&self, kind: &str, namespace: &str, name: &str) {
        eventually(&format!("{kind} {name} exists"), || async {
            match self.cluster.get(&path(kind, namespace, name)).await {
                (200, _) => Ok(()),
                (code, object) => Err(format!("{code}: {object}")),
            }
        })
        .await;
    }

    async fn is_gone(&self, kind: &str, namespace: &str, name: &str) {
        eventually(&format!("{kind} {name} is gone"), || async {
            match self.cluster.get(&path(kind, namespace, name)).await {
                (404, _) => Ok(()),
                (code, object) => Err(format!("{code}: {object}")),
            }
        })
        .await;
    }
}

fn of_class(class: &str) -> Value {
    json!({"className": class})
}

#[test]
fn a_namespace_takes_its_claims_along_and_nothing_of_anybody_elses() {
    play(async || {
        let site = Site::new().await;
        site.web_class().await;
        let other = site.cluster.namespace().await;
        // One that is there and one that is made, for each of two namespaces.
        site.class("bronze", json!({"builtin": {}})).await;
        let mut served = Vec::new();
        for (namespace, lb) in [(site.namespace.clone(), "one"), (other.clone(), "two")] {
            let (vip, agent) = site.live(lb, json!({"className": "static"})).await;
            site.claim_in(&namespace, "there", of_class("static")).await;
            assert_eq!(site.bound_in(&namespace, "there").await, lb);
            site.claim_in(&namespace, "made", of_class("bronze")).await;
            let made = site.bound_in(&namespace, "made").await;
            let (pod, made_agent) = site.made_live(&made).await;
            let backend = site.backend(&namespace, "shop").await;
            // The same host everywhere: each load balancer has its own rules.
            site.ingress(&namespace, "shop", "shop.example", "there").await;
            let second = site.backend(&namespace, "second").await;
            site.ingress(&namespace, "second", "shop.example", "made").await;
            assert_eq!(answers(vip, 80, "shop.example").await, "shop");
            assert_eq!(answers(pod, 80, "shop.example").await, "second");
            site.shows("Ingress", &namespace, "shop", &[vip]).await;
            site.shows("Ingress", &namespace, "second", &[pod]).await;
            served.push((vip, pod, made, [agent, made_agent], [backend, second]));
        }
        site.cluster.delete("Namespace", "", &site.namespace).await;
        site.is_gone("Namespace", "", &site.namespace).await;
        let (mine, theirs) = (&served[0], &served[1]);
        site.is_gone(LB, "", &mine.2).await;
        site.is_gone("Service", "bowline-system", &mine.2).await;
        let message = site.stands("one", "Released").await;
        assert!(message.contains("clear claimRef"), "{message}");
        silent(mine.0, 80, "shop.example").await;
        // Of the other one nothing is different.
        assert_eq!(answers(theirs.0, 80, "shop.example").await, "shop");
        assert_eq!(answers(theirs.1, 80, "shop.example").await, "second");
        assert_eq!(site.bound_in(&other, "there").await, "two");
        assert_eq!(site.bound_in(&other, "made").await, theirs.2);
    });
}

#[test]
fn one_host_inside_and_outside_are_separate_rules_and_scopes_do_not_mix() {
    play(async || {
        let site = Site::new().await;
        site.web_class().await;
        let (outer, inner) = (net::vip4(), net::vip4());
        for (name, scope, vip) in [("public", "Internet", outer), ("inside", "Intranet", inner)] {
            let pool = json!({
                "apiVersion": "bowline.dev/v1alpha1", "kind": "AddressPool",
                "metadata": {"name": name},
                "spec": {"addresses": [format!("{vip}/32")], "scope": scope},
            });
            site.cluster.apply("", &pool).await;
        }
        // An Intranet load balancer that names a pool of the Internet gets nothing of it.
        site.lb("wrong", json!({"scope": "Intranet", "addressPool": "public"})).await;
        for (name, scope, pool) in
            [("outer", "Internet", "public"), ("inner", "Intranet", "inside")]
        {
            site.lb(name, json!({"scope": scope, "addressPool": pool})).await;
            site.claim(name, json!({"scope": scope, "loadBalancerName": name})).await;
            site.bound(name, name).await;
        }
        let _agents = [site.agent("outer").await, site.agent("inner").await];
        let mut backends = Vec::new();
        for name in ["outer", "inner"] {
            backends.push(site.backend(&site.namespace, name).await);
            site.ingress(&site.namespace, name, "shop.example", name).await;
        }
        site.shows("Ingress", &site.namespace, "outer", &[outer]).await;
        site.shows("Ingress", &site.namespace, "inner", &[inner]).await;
        assert_eq!(answers(outer, 80, "shop.example").await, "outer");
        assert_eq!(answers(inner, 80, "shop.example").await, "inner");
        site.hears("default", "wrong", "has another scope").await;
        // Nor does a Service on it.
        let mut service = objects::service("eager", "", &[(5000, 8080)]);
        service["metadata"]["annotations"] = json!({
            "bowline.dev/load-balancer-claim": "inner", "bowline.dev/address-pool": "public",
        });
        site.cluster.apply(&site.namespace, &service).await;
        site.hears(&site.namespace, "eager", "has another scope").await;
        for name in ["wrong", "eager"] {
            let kind = if name == "wrong" { LB } else { "Service" };
            let namespace = if name == "wrong" { "" } else { &site.namespace };
            let object = site.cluster.read(kind, namespace, name).await;
            assert_eq!(points(&object), [] as [std::net::IpAddr; 0], "{object}");
        }
    });
}

#[test]
fn one_that_is_recycled_serves_nothing_of_before_and_then_the_next() {
    play(async || {
        let site = Site::new().await;
        site.web_class().await;
        let other = site.cluster.namespace().await;
        let mut spec = has("5G");
        spec["reclaimPolicy"] = json!("Recycle");
        let (vip, agent) = site.live("edge", spec).await;
        site.claim("web", json!({})).await;
        site.bound("web", "edge").await;
        site.claim_in(&other, "next", json!({})).await;
        let backend = site.backend(&site.namespace, "shop").await;
        site.ingress(&site.namespace, "shop", "shop.example", "web").await;
        assert_eq!(answers(vip, 80, "shop.example").await, "shop");
        // While its agent is away nobody can say that it serves nothing any more.
        drop(agent);
        site.cluster.delete(CLAIM, &site.namespace, "web").await;
        site.cluster.delete("Ingress", &site.namespace, "shop").await;
        site.gone(CLAIM, "web").await;
        site.stands("edge", "Released").await;
        let _agent = site.agent("edge").await;
        assert_eq!(site.bound_in(&other, "next").await, "edge");
        let next = site.backend(&other, "next").await;
        site.ingress(&other, "next", "next.example", "next").await;
        assert_eq!(answers(vip, 80, "next.example").await, "next");
        silent(vip, 80, "shop.example").await;
        drop((backend, next));
    });
}

#[test]
fn an_ingress_class_may_name_a_claim_for_its_namespace_only() {
    play(async || {
        let site = Site::new().await;
        let other = site.cluster.namespace().await;
        let (vip, _agent) = site.live("edge", json!({})).await;
        site.claim("web", json!({})).await;
        site.bound("web", "edge").await;
        let class = json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "IngressClass",
            "metadata": {"name": "ours"},
            "spec": {
                "controller": "bowline.dev/ingress",
                "parameters": {
                    "apiGroup": "bowline.dev", "kind": CLAIM, "name": "web",
                    "scope": "Namespace", "namespace": site.namespace,
                },
            },
        });
        site.cluster.apply("", &class).await;
        let mut backends = Vec::new();
        for (namespace, host) in [(&site.namespace, "shop.example"), (&other, "other.example")] {
            backends.push(site.backend(namespace, "shop").await);
            let ingress = objects::ingress("shop", "ours", &[(host, "/", "Prefix", "shop")]);
            site.cluster.apply(namespace, &ingress).await;
        }
        site.shows("Ingress", &site.namespace, "shop", &[vip]).await;
        assert_eq!(answers(vip, 80, "shop.example").await, "shop");
        let message = site.told(&other, "shop", "NotAllowed").await;
        assert!(
            message.contains(&format!("serves namespace {:?} only", site.namespace)),
            "{message}"
        );
        silent(vip, 80, "other.example").await;
    });
}

#[test]
fn a_forged_claim_ref_a_foreign_host_and_a_forged_status_give_nothing() {
    play(async || {
        let site = Site::new().await;
        site.web_class().await;
        let other = site.cluster.namespace().await;
        let (vip, _agent) = site.live("edge", json!({"allowedNamespaces": {"from": "All"}})).await;
        let (mine, _other_agent) = site.live("mine", json!({})).await;
        site.claim("web", json!({"loadBalancerName": "mine"})).await;
        site.bound("web", "mine").await;
        let _backend = site.backend(&site.namespace, "shop").await;
        site.ingress(&site.namespace, "shop", "shop.example", "web").await;
        assert_eq!(answers(mine, 80, "shop.example").await, "shop");
        // A claim whose status says that it has it.
        site.claim_in(&other, "forged", json!({"loadBalancerName": "mine"})).await;
        let status = json!({"status": {"phase": "Bound", "loadBalancerName": "mine"}});
        let call = bowline_testing::Call::new("PATCH", path(CLAIM, &other, "forged") + "/status")
            .body("application/merge-patch+json", status.to_string());
        site.cluster.http(call).await.expect(200);
        let _theirs = site.backend(&other, "shop").await;
        site.ingress(&other, "shop", "shop.example", "forged").await;
        let message = site.told(&other, "shop", "ClaimNotBound").await;
        assert!(message.contains("forged"), "{message}");
        // A host that belongs to another namespace, on one that both may use.
        for namespace in [&site.namespace, &other] {
            let mut ingress =
                objects::ingress("open", "web", &[("open.example", "/", "Prefix", "shop")]);
            ingress["metadata"]["annotations"] = json!({"bowline.dev/load-balancer": "edge"});
            let made = site.cluster.apply(namespace, &ingress).await;
            if *namespace == site.namespace {
                site.shows("Ingress", namespace, "open", &[vip]).await;
                site.younger_than(&made).await;
            }
        }
        site.told(&other, "open", "HostTaken").await;
        assert_eq!(answers(vip, 80, "open.example").await, "shop");
        assert_eq!(_theirs.requests(), 0, "nothing has come to the other one");
        // A claimRef that somebody forges for a claim that is not theirs is not theirs by that.
        let forged =
            json!({"spec": {"claimRef": {"namespace": other, "name": "forged", "uid": "no-such"}}});
        site.cluster.patch(LB, "", "edge", &forged).await;
        site.stands("edge", "Released").await;
        assert_eq!(answers(mine, 80, "shop.example").await, "shop");
    });
}
