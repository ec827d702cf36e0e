//! A move from MetalLB to Bowline under traffic, as `docs/migrate-from-metallb.md` describes it. BIRD on each node plays
//! MetalLB's speaker: what a router sees of it is a session with the node's address that announces the same /32.

use crate::fabric::{Fabric, NODE_ASN, Node, ROUTER_ASN};
use crate::router::find;
use crate::stage::{Site, deploy, object, play};
use bowline_api::advertisement::Advertisement;
use bowline_testing::objects::{self, path};
use bowline_testing::traffic::{Clients, Session, serve};
use bowline_testing::{Call, Link, METALLB, Scratch, Service, eventually, until};
use kube::Api;
use serde_json::{Value, json};
use std::net::SocketAddr;

const VIP: &str = "203.0.113.80";

/// MetalLB's objects, as its user has them.
const THEIRS: &str = "\
apiVersion: metallb.io/v1beta1
kind: IPAddressPool
metadata: {name: first, namespace: metallb-system}
spec: {addresses: [203.0.113.80/32]}
---
apiVersion: metallb.io/v1beta1
kind: BGPAdvertisement
metadata: {name: first, namespace: metallb-system}
spec: {ipAddressPools: [first]}
---
apiVersion: metallb.io/v1beta2
kind: BGPPeer
metadata: {name: tor, namespace: metallb-system}
spec: {peerAddress: 10.0.99.1, peerASN: 64513, myASN: 64512, ebgpMultiHop: true}
";

/// MetalLB's speaker, played by BIRD.
fn their_speaker(scratch: &Scratch, node: &Node) -> Service {
    let (name, address, router) = (node.name, node.address(), node.router());
    let text = format!(
        "router id {address};\nlog stderr all;\nprotocol device {{}}\n\
         protocol static {{ ipv4; route {VIP}/32 unreachable; }}\n\
         protocol bgp tor {{\n  local {address} as {NODE_ASN};\n  neighbor {router} as {ROUTER_ASN};\n  \
         strict bind on;\n  connect delay time 1;\n  \
         ipv4 {{ import none; export all; next hop address {address}; }};\n}}\n"
    );
    let config = scratch.write(&format!("metallb-{name}.conf"), &text).display().to_string();
    let control = scratch.path().join(format!("metallb-{name}.ctl")).display().to_string();
    let args = ["-f", "-c", &config, "-s", &control].map(str::to_owned);
    node.machine.on(|| scratch.spawn(&format!("metallb-{name}"), &find("bird"), &args))
}

/// The peer of one node while both speakers run: from its second address, with routes that lead to its first one.
fn peer_of(node: &Node) -> Value {
    let spec = json!({
        "peerAddress": node.router(), "peerASN": ROUTER_ASN, "myASN": NODE_ASN, "connectTime": "1s",
        "sourceAddress": node.second(), "nextHop": node.address(),
        "nodeSelector": {"matchLabels": {"kubernetes.io/hostname": node.name}},
    });
    object("BGPPeer", &format!("tor-{}", node.name), spec)
}

#[test]
fn a_move_from_metallb_node_by_node_loses_no_request_and_no_connection() {
    play(async || {
        let fabric = Fabric::new(&["a", "b"]);
        let scratch = Scratch::new();
        // The cluster as MetalLB left it.
        let mut site = Site::bare().await;
        site.cluster.kubectl(&["apply", "-f", "-"], METALLB).ok();
        until("the kinds are served", || {
            site.cluster.kubectl(&["apply", "-f", "-"], THEIRS).success()
        });
        for node in &fabric.nodes {
            site.node(node.name).await;
        }
        let mut service = objects::service("web", "", &[(80, 8080)]);
        service["metadata"]["annotations"] = json!({});
        service["spec"]["loadBalancerClass"] = Value::Null;
        site.cluster.apply(&site.namespace, &service).await;
        let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": VIP}]}}});
        let call = Call::new("PATCH", path("Service", &site.namespace, "web") + "/status")
            .body("application/merge-patch+json", status.to_string());
        site.cluster.http(call).await.expect(200);
        site.endpoint("web", true).await;
        // Each node serves the address, as kube-proxy makes it, and MetalLB announces it.
        let mut theirs = Vec::new();
        for node in &fabric.nodes {
            node.machine.ip(&format!("addr add {VIP}/32 dev lo"));
            serve(&node.machine, VIP.parse().expect("an address"), 80, node.name);
            theirs.push(their_speaker(&scratch, node));
        }
        fabric.leads(VIP, &["a", "b"]).await;

        let to: SocketAddr = format!("{VIP}:80").parse().expect("an address");
        let routes = fabric.watch();
        let clients = Clients::start(&fabric.client, to, 2);
        let mut sessions: Vec<_> =
            (0..12).map(|_| Session::open(&fabric.client, to).expect("a connection")).collect();
        for name in ["a", "b"] {
            assert!(sessions.iter().any(|it| it.name == name), "no connection to {name}");
        }

        // Pools first: the controller, once with --import-metallb, then without.
        site.start_controller(&["--default-class", "--import-metallb"]).await;
        let made: Api<Advertisement> = Api::all(site.cluster.client());
        eventually("the advertisement is there", || async {
            made.get("first-bgp").await.map_err(|error| error.to_string())
        })
        .await;
        site.start_controller(&["--default-class"]).await;
        eventually("the address is recorded", || async {
            let found = site.cluster.read("Address", "", VIP).await;
            if found["spec"]["holders"][0]["name"] == "web" {
                Ok(())
            } else {
                Err(found.to_string())
            }
        })
        .await;
        // Then the announcements: Bowline's peers, and node by node Bowline's speaker on, MetalLB's off.
        site.cluster.delete("BGPPeer", "", "tor").await;
        for node in &fabric.nodes {
            site.cluster.apply("", &peer_of(node)).await;
        }
        let kubeconfig = site.cluster.speaker_kubeconfig(&deploy()).await;
        let mut ours = Vec::new();
        for (node, theirs) in fabric.nodes.iter().zip(&mut theirs) {
            let link = Link::on(&node.machine, &site.cluster, &kubeconfig);
            ours.push((site.speaker_on(&node.machine, node.name, &link.kubeconfig), link));
            fabric.learns(VIP, &node.second(), true).await;
            clients.go_on();
            theirs.signal("TERM");
            theirs.wait();
            fabric.learns(VIP, &node.address(), false).await;
            clients.go_on();
        }
        fabric.leads(VIP, &["a", "b"]).await;

        for session in &mut sessions {
            let name = session.name.clone();
            assert_eq!(session.ask(), Ok(name), "a connection that was open during the move");
        }
        let seen = clients.stop();
        assert_eq!(seen.failures, []);
        assert!(seen.answers.keys().eq(["a", "b"]), "{seen:?}");
        assert_eq!(routes.changes(VIP), Vec::<String>::new(), "the router's kernel saw nothing");
        println!("{} requests, none failed: {:?}", seen.total(), seen.answers);
        drop(ours);
    });
}
