//! `bowline controller --import-metallb`, and the pools that `bowline status --addresses` then shows.

use crate::bowline::{Bowline, PROGRAM, Start, said};
use bowline_api::AddressPool;
use bowline_testing::{METALLB, Scratch, until};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use std::path::Path;
use std::process::Command;

/// A pool of MetalLB, and its controller.
const POOL_AND_CONTROLLER: &str = "\
apiVersion: metallb.io/v1beta1
kind: IPAddressPool
metadata: {name: first, namespace: metallb-system}
spec: {addresses: [192.0.2.0/28]}
---
apiVersion: v1
kind: Pod
metadata: {name: controller-0, namespace: metallb-system, labels: {app: metallb, component: controller}}
spec: {containers: [{name: controller, image: quay.io/metallb/controller}]}
";

fn controller(server: &Bowline) -> Command {
    let mut command = Command::new(PROGRAM);
    let args = ["controller", "--import-metallb", "--admin", "127.0.0.1:0"];
    command.args(args).env("KUBECONFIG", &server.kubeconfig);
    command
}

#[tokio::test]
async fn a_controller_takes_pools_over_and_does_not_start_beside_that_of_metallb() {
    let scratch = Scratch::new();
    let file = scratch.path().join("metallb.yaml");
    std::fs::write(&file, format!("{METALLB}---\n{POOL_AND_CONTROLLER}"))
        .expect("write a manifest");
    let mut server = Start::new(&scratch).arg("-f").arg(&file.display().to_string()).ready();
    let client = server.client().await;
    let pools: Api<AddressPool> = Api::all(client.clone());

    let refused = controller(&server).output().expect("run bowline");
    assert_eq!(refused.status.code(), Some(1), "{}", said(&refused));
    let why =
        "--import-metallb: MetalLB's controller still runs as Pod metallb-system/controller-0";
    assert!(said(&refused).contains(why), "{}", said(&refused));
    assert!(pools.list(&ListParams::default()).await.expect("pools").items.is_empty());

    let pods: Api<Pod> = Api::namespaced(client, "metallb-system");
    let now = DeleteParams::default().grace_period(0);
    pods.delete("controller-0", &now).await.expect("the Pod goes");
    let kubeconfig = server.kubeconfig.display().to_string();
    let args = ["controller", "--import-metallb", "--admin", "127.0.0.1:0", "--kubeconfig"];
    let args: Vec<_> = args.into_iter().chain([&*kubeconfig]).map(str::to_owned).collect();
    let mut running = scratch.spawn("controller", Path::new(PROGRAM), &args);
    let shown = until("the pool is there", || {
        running.assert_alive();
        let mut look = Command::new(PROGRAM);
        look.args(["status", "--addresses"]).env("KUBECONFIG", &server.kubeconfig);
        let text = said(&look.output().expect("run bowline"));
        if text.contains("\nfirst ") { Ok(text) } else { Err(text) }
    });
    assert!(shown.starts_with("POOL "), "{shown}");
    running.signal("TERM");
    assert_eq!(running.wait(), Some(0), "{}", running.log());
    server.stop();
}
