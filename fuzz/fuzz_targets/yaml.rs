//! Request bodies and manifests in YAML: never a panic, never unbounded work.
#![no_main]
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = bowline_apiserver::yaml::from_yaml(data);
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = bowline_apiserver::yaml::documents(text);
    }
});
