//! Addresses that cannot be had, or are taken away.

use crate::patient::{Wrong, all_tell, is_well};
use crate::stage::{
    Stage, TARGET, annotate, is_closed, leads_to, play, play_alone, start_controller, tcp,
};
use bowline_core::outcome::Reason;
use bowline_testing::{Bind, Dial, net, objects, unique};
use serde_json::{Value, json};
use std::net::IpAddr;
use std::time::Instant;

/// Makes an AddressPool of these addresses, or changes it.
async fn pool(stage: &Stage, name: &str, addresses: &[IpAddr]) {
    let addresses: Vec<_> = addresses.iter().map(|it| format!("{it}/32")).collect();
    let pool = json!({
        "apiVersion": "bowline.dev/v1alpha1", "kind": "AddressPool", "metadata": {"name": name},
        "spec": {"addresses": addresses, "autoAssign": false},
    });
    stage.cluster.owns("addresspool", name);
    stage.cluster.apply("", &pool).await;
}

/// A Service on the load balancer of the stage with an annotation.
fn service(stage: &Stage, name: &str, key: &str, value: &str) -> Value {
    let mut service = objects::service(name, &stage.lb, &[(5000, TARGET)]);
    annotate(&mut service, key, value);
    service
}

#[test]
fn a_service_that_gets_no_address_of_a_full_pool_is_told_and_gets_one_that_is_added() {
    play(async |stage| {
        let (a, b) = (tcp("a").await, tcp("b").await);
        let (one, two) = (net::vip4(), net::vip4());
        let full = format!("pool-{}", unique());
        pool(stage, &full, &[one]).await;
        let mut broken = Instant::now();
        for (name, backend) in [("first", &a), ("second", &b)] {
            broken = Instant::now();
            stage.apply(service(stage, name, "bowline.dev/address-pool", &full)).await;
            stage.served_by(name, &[backend]).await;
            if name == "first" {
                leads_to(&Dial::to(one, 5000), "a").await;
            }
        }
        is_well(stage, "service/first").await;
        let exhausted = Wrong {
            kind: "Service",
            name: "second",
            reason: Reason::PoolsExhausted,
            helps: "add addresses to a pool",
        };
        let told = all_tell(stage, exhausted, broken).await;
        assert!(told.contains(&full), "{told}");
        let condition = ("False", "PoolsExhausted");
        crate::patient::says(stage, "Service", "second", "bowline.dev/Programmed", Some(condition))
            .await;
        pool(stage, &full, &[one, two]).await;
        leads_to(&Dial::to(two, 5000), "b").await;
        leads_to(&Dial::to(one, 5000), "a").await;
        is_well(stage, "service/second").await;
    });
}

#[test]
fn a_service_is_told_that_the_pool_has_its_address_no_more() {
    play(async |stage| {
        let a = tcp("a").await;
        let (old, new) = (net::vip4(), net::vip4());
        let name = format!("pool-{}", unique());
        pool(stage, &name, &[old]).await;
        stage.apply(service(stage, "web", "bowline.dev/vip", &old.to_string())).await;
        stage.served_by("web", &[&a]).await;
        leads_to(&Dial::to(old, 5000), "a").await;
        is_well(stage, "service/web").await;
        pool(stage, &name, &[new]).await;
        let broken = Instant::now();
        let outside = Wrong {
            kind: "Service",
            name: "web",
            reason: Reason::NotInPool,
            helps: "ask for an address of a pool",
        };
        let told = all_tell(stage, outside, broken).await;
        assert!(told.contains(&old.to_string()), "{told}");
        is_closed(&Dial::to(old, 5000)).await;
        // What helps: ask for an address of a pool.
        stage.apply(service(stage, "web", "bowline.dev/vip", &new.to_string())).await;
        leads_to(&Dial::to(new, 5000), "a").await;
        is_well(stage, "service/web").await;
    });
}

#[test]
fn a_service_whose_dns_server_is_gone_is_told_and_served_at_the_address_that_it_has() {
    play_alone(async |cluster| {
        let mut bind = Bind::new();
        let server = bind.address().to_string();
        let args = ["--dns-server", &server, "--dns-min-ttl", "1"];
        let mut leader = start_controller(&cluster, &args).await;
        leader.ready().await;
        let stage = &Stage::on(cluster).await;
        let at = net::vip4();
        let (host, text) = ("web.example.test", at.to_string());
        bind.set(host, "A", 1, &[&text]);
        pool(stage, "global", &[at]).await;
        let a = tcp("a").await;
        stage.apply(service(stage, "web", "bowline.dev/assign-from-fqdn", host)).await;
        stage.served_by("web", &[&a]).await;
        leads_to(&Dial::to(at, 5000), "a").await;
        is_well(stage, "service/web").await;
        bind.stop();
        let broken = Instant::now();
        let failed = Wrong {
            kind: "Service",
            name: "web",
            reason: Reason::NameFailed,
            helps: "reach its DNS server",
        };
        let told = all_tell(stage, failed, broken).await;
        assert!(told.contains(&format!("still assigned: {at}")), "{told}");
        let condition = ("False", "NameFailed");
        crate::patient::says(stage, "Service", "web", "AddressFromDNS", Some(condition)).await;
        leads_to(&Dial::to(at, 5000), "a").await;
        // What helps: its DNS server can be reached.
        bind.start();
        is_well(stage, "service/web").await;
        leads_to(&Dial::to(at, 5000), "a").await;
    });
}
