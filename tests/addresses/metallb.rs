//! Moving from MetalLB: its pools and what announces them become ours, and Services keep the addresses that they have.

use crate::stage::{Site, play};
use bowline_api::advertisement::Advertisement;
use bowline_api::bgp_peer::BGPPeer;
use bowline_testing::{METALLB, eventually, objects, until};
use kube::Api;
use serde_json::json;

const POOL: &str = "\
apiVersion: metallb.io/v1beta1
kind: IPAddressPool
metadata: {name: first, namespace: metallb-system}
spec: {addresses: [192.0.2.0/28]}
";

#[test]
fn services_of_metallb_keep_their_addresses_and_others_get_free_ones() {
    play(async || {
        let mut site = Site::new(&[]).await;
        site.cluster.kubectl(&["apply", "-f", "-"], METALLB).ok();
        until("the kind is served", || site.cluster.kubectl(&["apply", "-f", "-"], POOL).success());
        // As MetalLB left them: without a class, two at one address.
        let metallbs = |name: &str, port| {
            let mut service = objects::service(name, "", &[(port, 8080)]);
            service["metadata"]["annotations"] = json!({"metallb.io/allow-shared-ip": "key"});
            service["spec"]["loadBalancerClass"] = json!(null);
            service
        };
        // The older first, of the same age by name: in this order both say the same.
        for (name, port) in [("mail", 25), ("web", 80)] {
            site.cluster.apply(&site.namespace, &metallbs(name, port)).await;
            site.spoil(name, "192.0.2.7").await;
        }
        let args = ["--default-class", "--import-metallb"];
        site.restart_with(&args, "rbac/import-metallb.yaml").await;
        site.records(&[("192.0.2.7", &["mail", "web"])]).await;
        let message = site.says("web", "bowline.dev/Programmed", "Assigned").await;
        assert_eq!(message, "192.0.2.7 of pool first");
        site.shows("mail", &["192.0.2.7"]).await;
        site.service("new", json!({})).await;
        site.shows("new", &["192.0.2.0"]).await;
        site.shows("web", &["192.0.2.7"]).await;
    });
}

const ANNOUNCED: &str = "\
apiVersion: metallb.io/v1beta2
kind: BGPPeer
metadata: {name: tor, namespace: metallb-system}
spec: {peerAddress: 198.51.100.1, peerASN: 64513, myASN: 64512, password: Sesame}
---
apiVersion: metallb.io/v1beta1
kind: BGPAdvertisement
metadata: {name: first, namespace: metallb-system}
spec: {ipAddressPools: [first], peers: [tor]}
";

#[test]
fn what_metallb_announces_is_taken_over_with_the_rights_of_the_import_and_the_password_is_told() {
    play(async || {
        let mut site = Site::new(&[]).await;
        site.cluster.kubectl(&["apply", "-f", "-"], METALLB).ok();
        let all = format!("{POOL}---\n{ANNOUNCED}");
        until("the kinds are served", || {
            site.cluster.kubectl(&["apply", "-f", "-"], &all).success()
        });
        let args = ["--default-class", "--import-metallb"];
        site.restart_with(&args, "rbac/import-metallb.yaml").await;
        let peers: Api<BGPPeer> = Api::all(site.cluster.client());
        let peer = eventually("the peer is there", || async {
            peers.get("tor").await.map_err(|error| error.to_string())
        })
        .await;
        let secret = json!({"name": "tor"});
        assert_eq!(json!(peer.spec.password_secret_ref), secret, "{peer:?}");
        assert_eq!(peer.spec.my_asn, 64512);
        let all: Api<Advertisement> = Api::all(site.cluster.client());
        let made = eventually("the advertisement is there", || async {
            all.get("first-bgp").await.map_err(|error| error.to_string())
        })
        .await;
        assert_eq!(made.spec.address_pools, ["first"]);
        assert_eq!(made.spec.bgp.map(|it| it.peers), Some(vec!["tor".to_owned()]));
        // The command that the controller prints.
        let said = site.controller.process.log();
        assert!(!said.contains("Sesame"), "{said}");
        let told =
            said.lines().find_map(|line| line.split_once("run  ")).map(|(_, command)| command);
        let (read, write) = told.and_then(|it| it.split_once(" | ")).expect("a command in the log");
        let words =
            |text: &str| text.split_whitespace().skip(1).map(str::to_owned).collect::<Vec<_>>();
        let run = |text: &str, input: &str| {
            let words = words(text);
            let words: Vec<_> = words.iter().map(String::as_str).collect();
            site.cluster.kubectl(&words, input).ok()
        };
        let password = run(read, "");
        assert_eq!(password, "Sesame");
        run(write, &password);
        let stored = [
            "get",
            "secret",
            "tor",
            "-n",
            "bowline-system",
            "-o",
            "jsonpath={.type} {.data.password}",
        ];
        assert_eq!(site.cluster.kubectl(&stored, "").ok(), "kubernetes.io/basic-auth U2VzYW1l");
    });
}
