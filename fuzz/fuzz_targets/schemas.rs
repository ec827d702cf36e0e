//! Schemas of CustomResourceDefinitions, and objects held against those that are accepted.
#![no_main]
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let half = data.len() / 2;
    let (Ok(schema), Ok(mut object)) = (
        serde_json::from_slice::<serde_json::Value>(&data[..half]),
        serde_json::from_slice::<serde_json::Value>(&data[half..]),
    ) else {
        return;
    };
    if let Ok(schema) = bowline_apiserver::schema::compile_crd(&schema) {
        schema.prune(&mut object);
        schema.default(&mut object);
        let _ = schema.validate(&object);
    }
});
