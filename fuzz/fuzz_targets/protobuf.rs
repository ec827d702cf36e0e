//! Request bodies in protobuf, with and without the envelope's magic.
#![no_main]
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = bowline_apiserver::proto::decode(data);
    let mut body = b"k8s\0".to_vec();
    body.extend_from_slice(data);
    let _ = bowline_apiserver::proto::decode(&body);
});
