//! Label and field selectors: what parses prints to something that parses to the same.
#![no_main]
use bowline_apiserver::selector::{FieldSelector, LabelSelector};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(selector) = LabelSelector::parse(text) {
        let printed = selector.to_string();
        let again = LabelSelector::parse(&printed).expect("a printed selector parses");
        assert_eq!(again.to_string(), printed);
    }
    let _ = FieldSelector::parse(text);
});
