//! Bowline's own namespace is deleted while controller and agents run outside of it: traffic goes on, and what was in
//! the namespace is made again. It is checked on the embedded API only: on a real one the roles of the tests have the rights
//! of accounts in that namespace.

use crate::stage::{Stage, http, leads_to, play_alone, serves, start_controller, tcp};
use bowline_testing::{Authority, Flavour, SYSTEM, eventually, objects};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};

const HOST: &str = "web.example";
const WHY: &str =
    "the accounts of the roles are in the namespace, so nothing has a right after its end";

#[test]
fn a_namespace_of_bowline_that_is_deleted_is_made_again_and_no_connection_is_lost() {
    play_alone(async |cluster| {
        if cluster.leaves_out(Flavour::Real, WHY) {
            return;
        }
        let mut controller = start_controller(&cluster, &[]).await;
        controller.ready().await;
        let stage = Stage::on(cluster).await;
        let (a, b) = (tcp("a").await, http("b").await);
        stage.service("plain", 5000, &[&a]).await;
        stage.behind("web", &[&b]).await;
        let authority = Authority::new();
        stage.apply(objects::tls_secret("web-tls", &authority.issue(&[HOST]))).await;
        let mut ingress = objects::ingress("web", &stage.lb, &[(HOST, "/", "Prefix", "web")]);
        ingress["spec"]["tls"] = json!([{"hosts": [HOST], "secretName": "web-tls"}]);
        stage.apply(ingress).await;
        let secure = stage.dial(443).tls(&authority.trusted(&[]), HOST);
        serves(&secure, HOST, "/", "b").await;
        leads_to(&stage.dial(5000), "a").await;

        let uid = async |kind: &str, name: &str| {
            let object = stage.cluster.read(kind, SYSTEM, name).await;
            let leaves = object["metadata"]["deletionTimestamp"].is_string();
            object["metadata"]["uid"].as_str().filter(|_| !leaves).map(str::to_owned)
        };
        let plan = format!("{}-0", stage.lb);
        let (agent, tls) =
            (format!("bowline-agent-{}", stage.lb), format!("bowline-tls-{}-0", stage.lb));
        let cookies = format!("bowline-cookies-{}", stage.lb);
        let all = [
            ("Namespace", SYSTEM),
            ("Plan", &*plan),
            ("Lease", &*agent),
            ("Lease", "bowline-controller"),
            ("Secret", &*tls),
            ("Secret", &*cookies),
        ];
        let mut before = Vec::new();
        for (kind, name) in all {
            before.push(
                eventually(&format!("{kind} {name}"), async || {
                    uid(kind, name).await.ok_or_else(|| "it is not there".to_owned())
                })
                .await,
            );
        }
        let stop = AtomicBool::new(false);
        let clients = async {
            let (mut asked, mut lost) = (0, Vec::new());
            while !stop.load(Ordering::Relaxed) {
                let plain = stage.dial(5000).line().await.map(|it| it.name);
                let web = secure.get(HOST, "/").await.and_then(|it| it.echo()).map(|it| it.name);
                lost.extend([plain, web].into_iter().filter_map(Result::err));
                asked += 1;
            }
            (asked, lost)
        };
        let accident = async {
            stage.cluster.delete("Namespace", "", SYSTEM).await;
            for ((kind, name), old) in all.into_iter().zip(&before) {
                eventually(&format!("{kind} {name} is made again"), async || {
                    let now = uid(kind, name).await;
                    if now.as_ref().is_some_and(|now| now != old) {
                        Ok(())
                    } else {
                        Err(format!("{now:?}"))
                    }
                })
                .await;
            }
            // What is decided now gets there, too.
            stage.service("after", 5001, &[&a]).await;
            leads_to(&stage.dial(5001), "a").await;
            stop.store(true, Ordering::Relaxed);
        };
        let ((asked, lost), ()) = tokio::join!(clients, accident);
        assert_eq!(lost, Vec::<String>::new(), "of {asked}");
        eventually("the load balancer is Running", || async {
            let lb = stage.cluster.read("LoadBalancer", "", &stage.lb).await;
            let running: &Value = &lb["status"]["phase"];
            if running == "Running" { Ok(()) } else { Err(lb["status"].to_string()) }
        })
        .await;
    });
}

#[test]
fn a_load_balancer_that_is_being_deleted_serves_on_when_bowlines_namespace_is_deleted() {
    play_alone(async |cluster| {
        if cluster.leaves_out(Flavour::Real, WHY) {
            return;
        }
        let mut leader = start_controller(&cluster, &[]).await;
        leader.ready().await;
        let stage = &Stage::on(cluster).await;
        let a = tcp("a").await;
        stage.service("web", 5000, &[&a]).await;
        leads_to(&stage.dial(5000), "a").await;
        stage.cluster.delete("LoadBalancer", "", &stage.lb).await;
        stage.told("Service", "web", "LoadBalancerDeleting").await;
        let plan = objects::path("Plan", SYSTEM, &format!("{}-0", stage.lb));
        let uid = async || {
            let (_, found) = stage.cluster.get(&plan).await;
            found["metadata"]["uid"].as_str().map(str::to_owned)
        };
        let before = uid().await.expect("a Plan");
        stage.cluster.delete("Namespace", "", SYSTEM).await;
        eventually("the Plan is made again", async || {
            stage.dial(5000).line().await.expect("it is served all the time");
            match uid().await {
                Some(now) if now != before => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
        leads_to(&stage.dial(5000), "a").await;
        // It goes when its consumer goes.
        stage.delete("Service", "web").await;
        eventually("the load balancer is gone", async || {
            let (status, found) =
                stage.cluster.get(&objects::path("LoadBalancer", "", &stage.lb)).await;
            if status == 404 { Ok(()) } else { Err(found.to_string()) }
        })
        .await;
    });
}
