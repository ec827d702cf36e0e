//! docs/claims.md runs as it is printed: on `bowline up`, and what is not about `up` on any cluster.

use crate::on_up::Up;
use crate::stage::{Site, play};
use bowline_testing::page;
use std::path::Path;
use std::process::Output;

const PAGE: &str = include_str!("../../docs/claims.md");
const PROGRAM: &str = env!("CARGO_BIN_EXE_bowline");

/// What was printed, if all went well; and these lines are in it.
fn said(output: &Output, expected: &[&str]) {
    let said = String::from_utf8_lossy(&output.stdout);
    let all = format!("{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}: {all}", output.status);
    for line in expected {
        assert!(said.contains(line), "{line:?} is not in:\n{all}");
    }
}

const CLAIM: [&str; 7] = [
    "loadbalancerclaim.bowline.dev/web condition met",
    "loadbalancerclaim.bowline.dev/huge condition met",
    "small: it has 1G network-bandwidth, and 40G is requested",
    "loadbalancer.bowline.dev/large condition met",
    r#"["bowline.dev/in-use"]"#,
    "loadbalancer.bowline.dev/large patched",
    "loadbalancer.bowline.dev \"small\" deleted",
];

#[test]
fn the_page_on_claims_runs_as_printed_on_up() {
    crate::on_up::play(async || {
        let up = Up::start();
        let env = [("KUBECONFIG", &*up.kubeconfig.display().to_string())];
        let run = |section: &str| {
            let script = page::typed(PAGE, section);
            page::run(&script, Path::new(PROGRAM), up.scratch.path(), &env)
        };
        said(&run("A claim, step by step"), &CLAIM);
        let class = ["loadbalancerclaim.bowline.dev/mine condition met", "<!DOCTYPE HTML>"];
        said(&run("A class, step by step"), &class);
    });
}

#[test]
fn the_page_on_claims_runs_as_printed_in_a_cluster() {
    play(async || {
        let site = Site::new().await;
        let kubeconfig = site.cluster.kubeconfig().display().to_string();
        let env = [("KUBECONFIG", &*kubeconfig)];
        let script = page::typed(PAGE, "A claim, step by step");
        let folder = site.cluster.scratch();
        said(&page::run(&script, Path::new(PROGRAM), &folder, &env), &CLAIM);
    });
}
