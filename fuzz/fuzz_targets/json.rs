//! Request bodies in JSON: never a panic, and what is read is what serde_json reads.
#![no_main]
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let ours = bowline_apiserver::decode::json(data).map(|decoded| decoded.value).ok();
    let theirs = serde_json::from_slice::<serde_json::Value>(data).ok();
    assert_eq!(ours, theirs);
});
