//! Starts the embedded cluster in memory on a free port. It runs on a thread with its own runtime,
//! because every test has another runtime. Only this file uses the cluster's Rust API.

use crate::cluster::{Flavour, Server, Stack};
use crate::janitor::Scratch;
use bowline_runtime::embedded::{self, EmbeddedOptions};
use std::sync::{Arc, mpsc};

/// Starts the embedded cluster and waits until it answers.
pub(crate) fn start(scratch: Arc<Scratch>, stack: Stack) -> Server {
    let kubeconfig = scratch.path().join("kubeconfig");
    let (ready, started) = mpsc::channel();
    let file = kubeconfig.clone();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap_or_else(|e| panic!("no runtime: {e}"));
        runtime.block_on(async move {
            let options =
                EmbeddedOptions { dual_stack: stack == Stack::Dual, ..EmbeddedOptions::default() };
            let cluster = embedded::start(options)
                .await
                .unwrap_or_else(|e| panic!("the embedded cluster does not start: {e}"));
            std::fs::write(&file, cluster.kubeconfig())
                .unwrap_or_else(|e| panic!("cannot write {}: {e}", file.display()));
            let _ = ready.send(cluster.credentials().read_only_token().to_owned());
            // Runs until the test binary ends.
            std::future::pending::<()>().await;
        });
    });
    let read_only_token =
        started.recv().unwrap_or_else(|_| panic!("the embedded cluster did not start"));
    Server {
        flavour: Flavour::Embedded,
        disposable: true,
        kubeconfig,
        read_only_token: Some(read_only_token),
        scratch,
        components: Vec::new(),
    }
}
