//! Patches of all three kinds against a Service: never a panic, never a directive in the result.
#![no_main]
use bowline_apiserver::builtins::definitions::enforced;
use bowline_apiserver::patch::Patch;
use bowline_apiserver::schema::{Schema, compile};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

static SERVICE: LazyLock<Schema> = LazyLock::new(|| {
    let root = enforced("io.k8s.api.core.v1.Service").expect("the definition of Service");
    compile(&root, &enforced).expect("it compiles")
});

fuzz_target!(|data: &[u8]| {
    let service = serde_json::json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "a", "labels": {"a": "b"}, "finalizers": ["x/y"]},
        "spec": {"selector": {"a": "b"}, "ports": [{"name": "http", "port": 80}, {"port": 81}]},
    });
    for media in [
        "application/json-patch+json",
        "application/merge-patch+json",
        "application/strategic-merge-patch+json",
    ] {
        if let Ok(patch) = Patch::parse(media, data) {
            let _ = patch.apply(&service, &SERVICE);
        }
    }
});
