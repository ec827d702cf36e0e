//! Request paths, query strings and JSON paths.
#![no_main]
use bowline_apiserver::http::{query::Query, target};
use bowline_apiserver::jsonpath::JsonPath;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = target::parse(text);
    let _ = Query::parse(text);
    if let Ok(path) = JsonPath::parse(text) {
        let object = serde_json::json!({"a": {"b": [1, {"c": "d"}]}, "status": {"x": null}});
        let _ = path.find(&object);
    }
});
