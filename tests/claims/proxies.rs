//! What serves a load balancer that a class made in a cluster: the objects are there as they were rendered, are
//! mended, and go. Whoever runs Pods is played by the test; the agent in one of them is the real one.

use crate::stage::{CLAIM, LB, Site, message, play, reason};
use bowline_api::provisioned_objects::{Images, Made, Part, Wish, covers};
use bowline_api::{LoadBalancer, LoadBalancerClass};
use bowline_core::plan::Transport;
use bowline_testing::objects::{self, path};
use bowline_testing::{Backend, Call, Dial, Flavour, eventually, net};
use serde_json::{Value, json};

const OURS: &str = "bowline-system";

fn haproxy() -> Value {
    json!({"bareMetalLoadBalancer": {"type": "Haproxy"}, "replicas": 2})
}

impl Site {
    /// A claim of a class, and the load balancer that is made for it.
    async fn made(&self, claim: &str, class: &str) -> String {
        let made = self.claim(claim, json!({"className": class})).await;
        let name = format!("lbc-{}", made["metadata"]["uid"].as_str().expect("a uid"));
        self.bound(claim, &name).await;
        name
    }

    /// The kinds of which the cluster has objects for a load balancer.
    fn parts(&self) -> Vec<Part> {
        // The embedded API has neither PodDisruptionBudgets nor NetworkPolicies.
        let real = self.cluster.flavour() != Flavour::Embedded;
        let lacks = |part: &Part| !real && matches!(part, Part::Budget | Part::Fence);
        Part::ALL.into_iter().filter(|part| *part != Part::Lease && !lacks(part)).collect()
    }

    /// What a load balancer should be served by.
    async fn wish(&self, lb: &str, class: &str, ports: &[u16]) -> Wish {
        let object = self.cluster.read(LB, "", lb).await;
        let object: LoadBalancer = serde_json::from_value(object).expect("a LoadBalancer");
        let class = self.cluster.read("LoadBalancerClass", "", class).await;
        let class: LoadBalancerClass = serde_json::from_value(class).expect("a class");
        let made = Made::of(&object).expect("made by a class");
        let listeners = ports.iter().map(|port| (*port, Transport::Tcp)).collect();
        Wish::new(made, OURS, &class.spec, listeners, Images::default())
    }

    /// Waits until all parts are as they are rendered.
    async fn served(&self, wish: &Wish) {
        for part in self.parts() {
            let (namespace, name) = wish.made.place(part, OURS);
            let at = path(part.kind().1, &namespace, &name);
            let wanted = wish.object(part).expect("rendered");
            eventually(&format!("{at} is as rendered"), || async {
                let (code, found) = self.cluster.get(&at).await;
                match covers(&found, &wanted) {
                    true => Ok(()),
                    false => Err(format!("{code}: {found}\nwanted {wanted}")),
                }
            })
            .await;
        }
    }

    /// Plays who else writes into the status of an object.
    pub(crate) async fn play_status(&self, kind: &str, name: &str, status: Value) {
        let call = Call::new("PATCH", path(kind, OURS, name) + "/status")
            .body("application/merge-patch+json", json!({"status": status}).to_string());
        self.cluster.http(call).await.expect(200);
    }

    /// Plays who runs Pods: all copies of a proxy are ready, of what is wanted now.
    async fn play_pods(&self, name: &str) {
        let deployment = self.cluster.read("Deployment", OURS, name).await;
        let replicas = &deployment["spec"]["replicas"];
        let status = json!({
            "observedGeneration": deployment["metadata"]["generation"],
            "replicas": replicas, "updatedReplicas": replicas,
            "readyReplicas": replicas, "availableReplicas": replicas,
        });
        self.play_status("Deployment", name, status).await;
    }

    /// Waits until what serves a load balancer stands so; returns the message.
    async fn provisioned(&self, lb: &str, why: &str) -> String {
        self.until(LB, lb, &format!("is provisioned: {why}"), |it| {
            (reason(it, "Provisioned") == Some(why)).then(|| message(it, "Provisioned"))
        })
        .await
    }

    /// Waits until nothing is left of what served a load balancer.
    async fn nothing_left(&self, wish: &Wish) {
        for part in self.parts().into_iter().chain([Part::Lease]) {
            let (namespace, name) = wish.made.place(part, OURS);
            let at = path(part.kind().1, &namespace, &name);
            eventually(&format!("{at} is gone"), || async {
                match self.cluster.get(&at).await {
                    (404, _) => Ok(()),
                    (code, found) => Err(format!("{code}: {found}")),
                }
            })
            .await;
        }
    }
}

#[test]
fn what_serves_it_is_made_as_rendered_mended_when_edited_and_removed_with_the_claim() {
    play(async || {
        let site = Site::new().await;
        site.class("bronze", haproxy()).await;
        let lb = site.made("web", "bronze").await;
        let wish = site.wish(&lb, "bronze", &[]).await;
        site.served(&wish).await;
        assert_eq!(site.provisioned(&lb, "Progressing").await, "0 of 2 proxies are ready");
        site.play_pods(&lb).await;
        site.provisioned(&lb, "Ready").await;
        // Somebody edits one part and deletes another.
        let edit = json!({"spec": {"replicas": 5, "template": {"spec": {"hostNetwork": true}}}});
        site.cluster.patch("Deployment", OURS, &lb, &edit).await;
        site.cluster.delete("Service", OURS, &lb).await;
        site.served(&wish).await;
        // The class is changed.
        let edit = json!({"spec": {"replicas": 3}});
        site.cluster.patch("LoadBalancerClass", "", "bronze", &edit).await;
        let wish = site.wish(&lb, "bronze", &[]).await;
        site.served(&wish).await;
        // A class that is gone takes nothing with it.
        site.cluster.delete("LoadBalancerClass", "", "bronze").await;
        site.cluster.delete(CLAIM, &site.namespace, "web").await;
        site.gone(CLAIM, "web").await;
        site.gone(LB, &lb).await;
        site.nothing_left(&wish).await;
    });
}

#[test]
fn traffic_to_its_service_is_answered_by_the_agent_that_was_made_for_it() {
    play(async || {
        let site = Site::new().await;
        site.class("bronze", json!({"builtin": {}})).await;
        let lb = site.made("web", "bronze").await;
        let wish = site.wish(&lb, "bronze", &[]).await;
        site.served(&wish).await;
        // The cloud gives the Service an address; its kube-proxy would lead from there to a Pod.
        let point = json!([{"ip": "203.0.113.7"}]);
        site.play_status("Service", &lb, json!({"loadBalancer": {"ingress": point}})).await;
        site.until(LB, &lb, "has the address of its Service", |it| {
            (it["status"]["ingress"] == json!([{"ip": "203.0.113.7"}])).then_some(())
        })
        .await;
        let pod = net::pod4();
        let backend = Backend::http("one", pod, 8080).await;
        let mut service = objects::service("shop", "", &[(9000, 8080)]);
        service["metadata"]["annotations"] = json!({"bowline.dev/load-balancer-claim": "web"});
        site.cluster.apply(&site.namespace, &service).await;
        let member = ("", backend.at.port(), "TCP");
        let slice = objects::slice("shop", member, &[objects::Endpoint::ready(pod)]);
        site.cluster.apply(&site.namespace, &slice).await;
        let agent = site.made_agent(&lb, "127.0.0.1").await;
        site.served(&site.wish(&lb, "bronze", &[9000]).await).await;
        let name = eventually("the Service is answered", || async {
            let answer = Dial::to([127, 0, 0, 1].into(), 9000).get("shop", "/").await?;
            answer.echo().map(|echo| echo.name)
        })
        .await;
        assert_eq!(name, "one");
        site.until("Service", "shop", "shows the address", |it| {
            let shown = &it["status"]["loadBalancer"]["ingress"][0]["ip"];
            (shown == "203.0.113.7").then_some(())
        })
        .await;
        // Another cloud gives a name instead; then it takes that away, too.
        let named = json!([{"hostname": "edge.cloud.example"}]);
        for points in [named, Value::Null] {
            let status = json!({"loadBalancer": {"ingress": points}});
            site.play_status("Service", &lb, status).await;
            site.until(LB, &lb, "is reached as its Service is", |it| {
                (it["status"]["ingress"] == points).then_some(())
            })
            .await;
            site.until("Service", "shop", "shows that", |it| {
                (it["status"]["loadBalancer"]["ingress"] == points).then_some(())
            })
            .await;
            if points.is_array() {
                let answer = Dial::to([127, 0, 0, 1].into(), 9000).get("shop", "/").await;
                let answer = answer.expect("answered under the name, too");
                assert_eq!(answer.echo().expect("an echo").name, "one");
            }
        }
        // Its Pods go with their Deployment, which nobody here does.
        drop(agent);
        site.cluster.delete("Service", &site.namespace, "shop").await;
        site.cluster.delete(CLAIM, &site.namespace, "web").await;
        site.gone(LB, &lb).await;
        site.nothing_left(&wish).await;
    });
}

#[test]
fn who_moves_shows_the_host_name_that_serves_it_until_the_other_one_does() {
    play(async || {
        let site = Site::with(&["--address-grace", "1"]).await;
        site.class("bronze", json!({"builtin": {}})).await;
        let named = |claim: &str| json!([{"hostname": format!("{claim}.cloud.example")}]);
        let reached = async |claim: &str| {
            let lb = site.made(claim, "bronze").await;
            site.served(&site.wish(&lb, "bronze", &[]).await).await;
            let status = json!({"loadBalancer": {"ingress": named(claim)}});
            site.play_status("Service", &lb, status).await;
            site.until(LB, &lb, "has the name of its Service", |it| {
                (it["status"]["ingress"] == named(claim)).then_some(())
            })
            .await;
            lb
        };
        let (old, new) = (reached("old").await, reached("new").await);
        let mut service = objects::service("shop", "", &[(9000, 8080)]);
        service["metadata"]["annotations"] = json!({"bowline.dev/load-balancer-claim": "old"});
        site.cluster.apply(&site.namespace, &service).await;
        let _old = site.made_agent(&old, "127.0.0.1").await;
        let shows = async |claim: &str| {
            site.until("Service", "shop", &format!("shows {claim}"), |it| {
                (it["status"]["loadBalancer"]["ingress"] == named(claim)).then_some(())
            })
            .await;
        };
        shows("old").await;
        let moved =
            json!({"metadata": {"annotations": {"bowline.dev/load-balancer-claim": "new"}}});
        site.cluster.patch("Service", &site.namespace, "shop", &moved).await;
        // Nobody serves it there yet.
        let waits = site
            .until("Service", "shop", "waits for an agent", |it| {
                let waits = reason(it, "bowline.dev/Programmed") == Some("NoAgent");
                waits.then(|| it["status"]["loadBalancer"]["ingress"].clone())
            })
            .await;
        assert_eq!(waits, named("old"));
        let _new = site.made_agent(&new, "127.0.0.2").await;
        shows("new").await;
        eventually("the old one lets go of it", || async {
            let answer = Dial::to([127, 0, 0, 1].into(), 9000).get("shop", "/").await;
            answer.map_or(Ok(()), |_| Err("it answers".to_owned()))
        })
        .await;
        shows("new").await;
    });
}

#[test]
fn what_is_in_the_way_is_told_and_left_alone() {
    play(async || {
        let site = Site::new().await;
        let claim = site.claim("web", json!({"className": "bronze"})).await;
        let lb = format!("lbc-{}", claim["metadata"]["uid"].as_str().expect("a uid"));
        let mut theirs = objects::cluster_service(&lb, 80, 8080);
        theirs["metadata"]["labels"] = json!({"theirs": "true"});
        site.cluster.apply(OURS, &theirs).await;
        site.class("bronze", haproxy()).await;
        let expected = format!("Service {OURS}/{lb} exists and is not Bowline's: delete it");
        assert_eq!(site.provisioned(&lb, "Failed").await, expected);
        assert_eq!(site.told("default", &lb, "ProvisioningFailed").await, expected);
        site.cluster.delete(CLAIM, &site.namespace, "web").await;
        site.gone(LB, &lb).await;
        let left = site.cluster.read("Service", OURS, &lb).await;
        assert_eq!(left["metadata"]["labels"]["theirs"], "true", "{left}");
    });
}

#[test]
fn a_namespace_in_which_nothing_can_be_made_is_told() {
    play(async || {
        let site = Site::new().await;
        site.class("bronze", json!({"builtin": {}, "namespace": "nowhere"})).await;
        let lb = site.made("web", "bronze").await;
        let message = site.provisioned(&lb, "Failed").await;
        let remedy = match site.cluster.flavour() {
            Flavour::Embedded => "namespace nowhere does not exist; create it",
            _ => "allow it by provisioning.namespaces of the chart",
        };
        assert!(message.contains(remedy), "{message}");
    });
}

#[test]
fn a_controller_that_is_killed_leaves_nothing_behind() {
    play(async || {
        let mut site = Site::new().await;
        site.class("bronze", haproxy()).await;
        let mut all = Vec::new();
        for round in 0..4 {
            let made = site.claim(&format!("web-{round}"), json!({"className": "bronze"})).await;
            let lb = format!("lbc-{}", made["metadata"]["uid"].as_str().expect("a uid"));
            // Wherever it is: the first has hardly begun, the last may have finished.
            if round > 1 {
                site.until(LB, &lb, "is there", |it| it["metadata"]["uid"].as_str().map(|_| ()))
                    .await;
            }
            site.kill();
            site.revive().await;
            site.bound(&format!("web-{round}"), &lb).await;
            let wish = site.wish(&lb, "bronze", &[]).await;
            site.served(&wish).await;
            all.push((lb, wish));
        }
        for (round, (lb, wish)) in all.iter().enumerate() {
            site.cluster.delete(CLAIM, &site.namespace, &format!("web-{round}")).await;
            site.kill();
            site.revive().await;
            site.gone(LB, lb).await;
            site.nothing_left(wish).await;
        }
    });
}
