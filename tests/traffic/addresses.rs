//! Which addresses a Service is served on, who may use a load balancer, and what the API shows of it.

use crate::stage::{TARGET, annotate, http, is_closed, leads_to, play, tcp};
use bowline_testing::objects::{self, Endpoint};
use bowline_testing::{Backend, eventually, net};
use serde_json::json;

#[test]
fn a_service_shows_its_address_and_that_a_proxy_is_behind_it() {
    play(async |stage| {
        let a = tcp("a").await;
        stage.service("web", 5000, &[&a]).await;
        leads_to(&stage.dial(5000), "a").await;
        let ingress = stage.has_addresses("Service", "web", &[stage.vip]).await;
        assert_eq!(ingress, json!([{"ip": stage.vip, "ipMode": "Proxy"}]));
        stage.apply(objects::service("web", &stage.lb, &[(5000, TARGET)])).await;
    });
}

#[test]
fn an_edited_status_is_put_right() {
    play(async |stage| {
        let a = tcp("a").await;
        stage.service("web", 5000, &[&a]).await;
        stage.has_addresses("Service", "web", &[stage.vip]).await;
        let path = objects::path("Service", &stage.namespace, "web") + "/status";
        let wrong = json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}});
        let call = bowline_testing::Call::new("PATCH", path)
            .body("application/merge-patch+json", wrong.to_string());
        stage.cluster.http(call).await.expect(200);
        stage.has_addresses("Service", "web", &[stage.vip]).await;
    });
}

#[test]
fn an_ipv6_service_is_served_over_ipv6_only() {
    play(async |stage| {
        let pod = net::pod6();
        let _a = Backend::tcp("a", pod, TARGET).await;
        let mut service = objects::service("six", &stage.lb, &[(5000, TARGET)]);
        service["spec"]["ipFamilies"] = json!(["IPv6"]);
        stage.apply(service).await;
        stage.endpoints("six", &[Endpoint::ready(pod)]).await;
        leads_to(&stage.dial6(5000), "a").await;
        is_closed(&stage.dial(5000)).await;
        stage.has_addresses("Service", "six", &[stage.vip6]).await;
    });
}

#[test]
fn a_dual_stack_service_is_served_over_both_families() {
    play(async |stage| {
        let (four, six) = (net::pod4(), net::pod6());
        let (_a, _b) =
            (Backend::tcp("a", four, TARGET).await, Backend::tcp("a", six, TARGET).await);
        let mut service = objects::service("both", &stage.lb, &[(5000, TARGET)]);
        service["spec"]["ipFamilyPolicy"] = json!("RequireDualStack");
        stage.apply(service).await;
        stage.endpoints("both", &[Endpoint::ready(four)]).await;
        stage.endpoints("both", &[Endpoint::ready(six)]).await;
        leads_to(&stage.dial(5000), "a").await;
        leads_to(&stage.dial6(5000), "a").await;
        stage.has_addresses("Service", "both", &[stage.vip, stage.vip6]).await;
    });
}

#[test]
fn datagrams_travel_over_ipv6_too() {
    play(async |stage| {
        let pod = net::pod6();
        let _a = Backend::udp("a", pod, 5353).await;
        let mut service = objects::udp_service("dns", &stage.lb, 53, 5353);
        service["spec"]["ipFamilies"] = json!(["IPv6"]);
        stage.apply(service).await;
        stage.apply(objects::slice("dns", ("", 5353, "UDP"), &[Endpoint::ready(pod)])).await;
        eventually("an answer over IPv6", || async {
            match stage.dial6(53).datagram("x").await?.as_str() {
                "a:x" => Ok(()),
                other => Err(other.to_owned()),
            }
        })
        .await;
    });
}

#[test]
fn a_service_that_asks_for_an_address_of_its_load_balancer_is_served_there_alone() {
    play(async |stage| {
        let second = net::vip4();
        let addresses = json!({"spec": {"addresses": [stage.vip, second, stage.vip6]}});
        stage.cluster.patch("LoadBalancer", "", &stage.lb, &addresses).await;
        let a = tcp("a").await;
        let mut service = objects::service("web", &stage.lb, &[(5000, TARGET)]);
        annotate(&mut service, "bowline.dev/vip", &second.to_string());
        stage.apply(service).await;
        stage.served_by("web", &[&a]).await;
        leads_to(&bowline_testing::Dial::to(second, 5000), "a").await;
        is_closed(&stage.dial(5000)).await;
        stage.has_addresses("Service", "web", &[second]).await;
        // So the port is still to be had on the other address.
        let b = tcp("b").await;
        let mut other = objects::service("other", &stage.lb, &[(5000, TARGET)]);
        annotate(&mut other, "bowline.dev/vip", &stage.vip.to_string());
        stage.apply(other).await;
        stage.served_by("other", &[&b]).await;
        leads_to(&stage.dial(5000), "b").await;
    });
}

#[test]
fn an_address_that_is_not_the_load_balancers_is_refused() {
    play(async |stage| {
        let a = tcp("a").await;
        let mut service = objects::service("web", &stage.lb, &[(5000, TARGET)]);
        annotate(&mut service, "bowline.dev/vip", "192.0.2.77");
        stage.apply(service).await;
        stage.served_by("web", &[&a]).await;
        let message = stage.told("Service", "web", "NotInPool").await;
        assert!(message.contains("192.0.2.77"), "{message}");
        is_closed(&stage.dial(5000)).await;
    });
}

#[test]
fn an_address_that_cannot_be_read_keeps_what_is_served() {
    play(async |stage| {
        let second = net::vip4();
        let addresses = json!({"spec": {"addresses": [stage.vip, second, stage.vip6]}});
        stage.cluster.patch("LoadBalancer", "", &stage.lb, &addresses).await;
        let (a, b) = (tcp("a").await, tcp("b").await);
        let mut service = objects::service("web", &stage.lb, &[(5000, TARGET)]);
        annotate(&mut service, "bowline.dev/vip", &second.to_string());
        stage.apply(service).await;
        stage.served_by("web", &[&a]).await;
        let dial = bowline_testing::Dial::to(second, 5000);
        leads_to(&dial, "a").await;
        stage.has_addresses("Service", "web", &[second]).await;
        let mut old = dial.line().await.expect("a connection");
        let typo = json!({"metadata": {"annotations": {"bowline.dev/vip": "203.0.113.l0"}}});
        stage.patch("Service", "web", typo).await;
        let message = stage.told("Service", "web", "BadValue").await;
        assert!(message.contains("203.0.113.l0"), "{message}");
        // Another change is live, so the one before it has had its effect, if any.
        stage.service("after", 5001, &[&b]).await;
        leads_to(&stage.dial(5001), "b").await;
        assert_eq!(dial.line().await.expect("a connection").name, "a");
        assert_eq!(old.ask("x").await.as_deref(), Ok("x"));
        is_closed(&stage.dial(5000)).await;
        stage.has_addresses("Service", "web", &[second]).await;
        // Its endpoints are still followed.
        stage.served_by("web", &[&b]).await;
        leads_to(&dial, "b").await;
    });
}

#[test]
fn when_a_load_balancer_moves_to_another_address_its_consumers_follow() {
    play(async |stage| {
        let (a, b) = (tcp("a").await, http("b").await);
        stage.service("web", 5000, &[&a]).await;
        stage.behind("inside", &[&b]).await;
        stage.ingress("web", &[("web.example", "/", "Prefix", "inside")]).await;
        stage.has_addresses("Service", "web", &[stage.vip]).await;
        stage.has_addresses("Ingress", "web", &[stage.vip, stage.vip6]).await;
        let (four, six) = (net::vip4(), net::vip6());
        let addresses = json!({"spec": {"addresses": [four, six]}});
        // While the agent sleeps nobody listens there, so no status may name them.
        stage.agent.process.signal("STOP");
        stage.cluster.patch("LoadBalancer", "", &stage.lb, &addresses).await;
        eventually("the load balancer is behind", || async {
            let lb = stage.cluster.read("LoadBalancer", "", &stage.lb).await;
            let status = &lb["status"];
            if status["phase"] == "Running" { Err(status.to_string()) } else { Ok(()) }
        })
        .await;
        // That somebody who came later has been written to means that what came before would be there.
        stage.service("after", 5001, &[&a]).await;
        eventually("the one after is told", || async {
            let status = stage.read("Service", "after").await["status"].clone();
            let mut told = status["conditions"].as_array().into_iter().flatten();
            let behind =
                told.any(|it| it["reason"] == "AgentBehind" || it["reason"] == "AgentSilent");
            if behind { Ok(()) } else { Err(status.to_string()) }
        })
        .await;
        for kind in ["Service", "Ingress"] {
            let status = stage.read(kind, "web").await["status"].to_string();
            for address in [four, six] {
                assert!(!status.contains(&address.to_string()), "{kind}: {status}");
            }
        }
        stage.agent.process.signal("CONT");
        stage.has_addresses("Service", "web", &[four]).await;
        stage.has_addresses("Ingress", "web", &[four, six]).await;
        // What the status says is so: there is nothing more to wait for.
        let dial = |address, port| bowline_testing::Dial::to(address, port);
        assert_eq!(dial(four, 5000).line().await.expect("a connection").name, "a");
        for address in [four, six] {
            let echo = dial(address, 80).get("web.example", "/").await.and_then(|it| it.echo());
            assert_eq!(echo.map(|it| it.name).as_deref(), Ok("b"));
        }
        is_closed(&stage.dial(5000)).await;
        stage.dial(80).tcp().await.expect_err("nobody listens at the old address");
    });
}

#[test]
fn a_load_balancer_can_be_used_from_the_namespaces_that_it_allows() {
    play(async |stage| {
        let a = tcp("a").await;
        let selector = json!({"from": "Selector", "selector": {"matchLabels": {"team": "web"}}});
        let allowed = json!({"spec": {"allowedNamespaces": selector}});
        stage.cluster.patch("LoadBalancer", "", &stage.lb, &allowed).await;
        stage.service("web", 5000, &[&a]).await;
        stage.told("Service", "web", "NotAllowed").await;
        is_closed(&stage.dial(5000)).await;
        let label = json!({"metadata": {"labels": {"team": "web"}}});
        stage.cluster.patch("Namespace", "", &stage.namespace, &label).await;
        leads_to(&stage.dial(5000), "a").await;
    });
}

#[test]
fn a_claimed_load_balancer_is_used_by_the_claim_from_its_namespace_alone() {
    play(async |stage| {
        let (a, b) = (tcp("a").await, tcp("b").await);
        let claim = json!({"spec": {"claimRef": {"namespace": stage.namespace, "name": "mine"}}});
        stage.cluster.patch("LoadBalancer", "", &stage.lb, &claim).await;
        let claim = json!({
            "apiVersion": "bowline.dev/v1alpha1", "kind": "LoadBalancerClaim",
            "metadata": {"name": "mine"}, "spec": {"loadBalancerName": stage.lb},
        });
        stage.cluster.apply(&stage.namespace, &claim).await;
        let mut service = objects::service("web", "", &[(5000, TARGET)]);
        service["metadata"]["annotations"] = json!({"bowline.dev/load-balancer-claim": "mine"});
        stage.apply(service).await;
        stage.served_by("web", &[&a]).await;
        leads_to(&stage.dial(5000), "a").await;
        let other = stage.cluster.namespace().await;
        let stranger = objects::service("web", &stage.lb, &[(5001, TARGET)]);
        stage.cluster.apply(&other, &stranger).await;
        let slice = objects::slice("web", ("", TARGET, "TCP"), &[Endpoint::ready(b.at.ip())]);
        stage.cluster.apply(&other, &slice).await;
        stage.told_in(&other, "Service", "web", "NotAllowed").await;
        is_closed(&stage.dial(5001)).await;
    });
}

#[test]
fn a_load_balancer_that_does_not_exist_is_named_in_the_refusal_until_it_does() {
    play(async |stage| {
        let a = tcp("a").await;
        let missing = format!("{}-missing", stage.lb);
        stage.apply(objects::service("web", &missing, &[(5000, TARGET)])).await;
        stage.served_by("web", &[&a]).await;
        let message = stage.told("Service", "web", "LoadBalancerNotFound").await;
        assert!(message.contains(&missing), "{message}");
        let there = json!({"metadata": {"annotations": {"bowline.dev/load-balancer": stage.lb}}});
        stage.patch("Service", "web", there).await;
        leads_to(&stage.dial(5000), "a").await;
    });
}

#[test]
fn a_load_balancer_is_running_while_its_agent_has_applied_its_plan() {
    play(async |stage| {
        let a = tcp("a").await;
        stage.service("web", 5000, &[&a]).await;
        leads_to(&stage.dial(5000), "a").await;
        eventually("Running", || async {
            let lb = stage.cluster.read("LoadBalancer", "", &stage.lb).await;
            let conditions = lb["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let programmed =
                conditions.iter().any(|it| it["type"] == "Programmed" && it["status"] == "True");
            let running = lb["status"]["phase"] == "Running" && programmed;
            if running { Ok(()) } else { Err(lb["status"].to_string()) }
        })
        .await;
    });
}

#[test]
fn a_port_that_another_program_has_is_reported_on_its_service_alone() {
    play(async |stage| {
        let (a, b) = (tcp("a").await, tcp("b").await);
        let _taken = tokio::net::TcpListener::bind((stage.vip, 5000)).await.expect("bind");
        stage.service("blocked", 5000, &[&a]).await;
        stage.service("free", 5001, &[&b]).await;
        leads_to(&stage.dial(5001), "b").await;
        stage.told("Service", "blocked", "BindFailed").await;
        stage.has_addresses("Service", "free", &[stage.vip]).await;
    });
}
