//! Moving from MetalLB: its pools become ours, and Services keep the addresses that they have.

use crate::stage::{Site, play};
use bowline_testing::{METALLB, objects, until};
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
