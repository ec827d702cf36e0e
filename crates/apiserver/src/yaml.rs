//! YAML to and from plain values: request bodies, responses and manifest files. It reads what Kubernetes
//! reads (YAML 1.1 booleans and octal numbers, merge keys) within limits that keep a small document
//! small, and refuses equal keys. The HTTP shell and readers of manifests call it.

use crate::decode::MAX_DEPTH;
use serde_json::Value;
use serde_saphyr::options::{DuplicateKeyPolicy, NonFiniteFloatPolicy};
use serde_saphyr::{Error, Options, alias_limits, budget, options, ser_options};

/// The most nodes: enough for any body of 3 MiB.
const MAX_NODES: usize = 2_000_000;
/// The most bytes of all scalars, with repetitions by aliases.
const MAX_TEXT: usize = 16 * 1024 * 1024;
/// In an unoptimised build the parser needs about 24 KiB for each level, more than a worker thread's
/// stack has.
const STACK: usize = 16 * 1024 * 1024;

/// A value as YAML, in Kubernetes' block style.
pub fn to_yaml(value: &Value) -> Result<String, String> {
    let options = ser_options! { prefer_block_scalars: false };
    with_stack(|| serde_saphyr::to_string_with_options(value, options).map_err(|e| e.to_string()))
}

/// The single document of a body. An empty one is null.
pub fn from_yaml(bytes: &[u8]) -> Result<Value, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        format!(
            "error converting YAML to JSON: yaml: invalid UTF-8 after {} bytes",
            error.valid_up_to()
        )
    })?;
    let mut value = with_stack(|| {
        serde_saphyr::from_str_with_options(text, reading()).map_err(|error| describe(&error))
    })?;
    whole_numbers(&mut value);
    Ok(value)
}

/// The documents of a manifest file that are not empty.
pub fn documents(text: &str) -> Result<Vec<Value>, String> {
    let mut documents: Vec<Value> = with_stack(|| {
        serde_saphyr::from_multiple_with_options(text, reading()).map_err(|error| describe(&error))
    })?;
    documents.retain(|document| !document.is_null());
    documents.iter_mut().for_each(whole_numbers);
    Ok(documents)
}

fn reading() -> Options {
    options! {
        budget: budget! {
            max_depth: MAX_DEPTH,
            flow_nesting_limit: MAX_DEPTH,
            max_nodes: MAX_NODES,
            max_events: 2 * MAX_NODES,
            max_total_scalar_bytes: MAX_TEXT,
            max_aliases: 10_000,
        },
        alias_limits: alias_limits! {
            max_total_replayed_events: 50_000,
            max_replay_stack_depth: 16,
        },
        duplicate_keys: DuplicateKeyPolicy::Error,
        legacy_octal_numbers: true,
        non_finite_float_policy: NonFiniteFloatPolicy::Reject,
        with_snippet: false,
    }
}

/// Runs on a thread with a large stack. YAML is rare enough for that.
fn with_stack<T: Send>(work: impl FnOnce() -> Result<T, String> + Send) -> Result<T, String> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .stack_size(STACK)
            .spawn_scoped(scope, work)
            .map_err(|error| format!("cannot start a thread for YAML: {error}"))?;
        thread.join().unwrap_or_else(|_| Err("the YAML parser failed".to_owned()))
    })
}

fn describe(error: &Error) -> String {
    match error {
        Error::DuplicateMappingKey { key: Some(key), location } => format!(
            "error converting YAML to JSON: yaml: unmarshal errors:\n  line {}: key {key:?} already \
             set in map",
            location.line()
        ),
        other => format!("error converting YAML to JSON: yaml: {other}"),
    }
}

/// `1.0`, `1e3` and `08` are floats in YAML, but whole numbers in the JSON that Kubernetes makes of
/// them.
fn whole_numbers(value: &mut Value) {
    /// Up to this value a float represents every whole number exactly.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) => {
            if let Some(float) = number.as_f64().filter(|_| number.is_f64())
                && float.fract() == 0.0
                && float.abs() <= EXACT
            {
                #[allow(clippy::cast_possible_truncation)]
                let whole = float as i64;
                *value = whole.into();
            }
        }
        Value::Array(list) => list.iter_mut().for_each(whole_numbers),
        Value::Object(map) => map.values_mut().for_each(whole_numbers),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn read(text: &str) -> Result<Value, String> {
        from_yaml(text.as_bytes())
    }

    fn refused(text: &str) -> String {
        read(text).unwrap_err()
    }

    #[test]
    fn scalars_are_those_of_kubernetes() {
        for (text, expected) in [
            ("", Value::Null),
            ("~", Value::Null),
            ("null", Value::Null),
            ("yes", json!(true)),
            ("y", json!(true)),
            ("On", json!(true)),
            ("TRUE", json!(true)),
            ("no", json!(false)),
            ("off", json!(false)),
            ("'yes'", json!("yes")),
            ("5", json!(5)),
            ("-5", json!(-5)),
            ("0644", json!(420)),
            ("0x1f", json!(31)),
            ("1_000", json!(1000)),
            ("08", json!(8)),
            ("1e3", json!(1000)),
            ("1.0", json!(1)),
            ("1.5", json!(1.5)),
            ("100m", json!("100m")),
            ("2001-01-01", json!("2001-01-01")),
            ("2001-01-01T00:00:00Z", json!("2001-01-01T00:00:00Z")),
            ("10.0.0.1", json!("10.0.0.1")),
            ("12:30:45", json!("12:30:45")),
            ("1: a", json!({"1": "a"})),
            ("|\n  a\n  b\n", json!("a\nb\n")),
            ("a: &x {b: 1}\nc: {<<: *x, d: 2}", json!({"a": {"b": 1}, "c": {"b": 1, "d": 2}})),
            ("{\"a\": [1, {\"b\": null}]}", json!({"a": [1, {"b": null}]})),
        ] {
            assert_eq!(read(text), Ok(expected), "{text:?}");
        }
    }

    #[test]
    fn what_is_ambiguous_or_has_no_json_form_is_refused() {
        assert_eq!(
            refused("a: 1\nb: 2\na: 3\n"),
            "error converting YAML to JSON: yaml: unmarshal errors:\n  line 3: key \"a\" already set \
             in map"
        );
        for text in
            ["a: b\n--- c", ".nan", "a: .inf", "1e999", "? [a]\n: b", "a: *nowhere", "a: b: c"]
        {
            assert!(refused(text).starts_with("error converting YAML to JSON: yaml: "), "{text}");
        }
        assert_eq!(
            from_yaml(b"a: \xff"),
            Err("error converting YAML to JSON: yaml: invalid UTF-8 after 3 bytes".to_owned())
        );
    }

    #[test]
    fn manifests_are_split_and_empty_documents_skipped() {
        for (text, expected) in [
            ("", vec![]),
            ("---\n", vec![]),
            ("# nothing\n---\n# here\n", vec![]),
            ("---\n---\na: 1\n---\n", vec![json!({"a": 1})]),
            (
                "a: 1\n---\nb: 2.0\n...\n---\n- 3",
                vec![json!({"a": 1}), json!({"b": 2}), json!([3])],
            ),
        ] {
            assert_eq!(documents(text), Ok(expected), "{text:?}");
        }
        assert!(documents("a: 1\n---\na: 1\na: 2\n").is_err());
    }

    #[test]
    fn small_documents_cannot_become_large_ones() {
        let mut laughs = "a0: &a0 [lol,lol,lol,lol,lol,lol,lol,lol,lol]\n".to_owned();
        for i in 1..12 {
            let line = vec![format!("*a{}", i - 1); 9].join(",");
            laughs.push_str(&format!("a{i}: &a{i} [{line}]\n"));
        }
        let text = format!("a: &a {}\nb: [{}]", "x".repeat(1_000_000), vec!["*a"; 500].join(","));
        let members = (0..1_000).map(|i| format!("k{i}: v")).collect::<Vec<_>>().join(",");
        let merges = format!("a: &a {{{members}}}\nb: [{}]", vec!["{<<: *a}"; 3_000].join(","));
        for bomb in [laughs, text, merges] {
            assert!(read(&bomb).is_err());
            assert!(documents(&bomb).is_err());
        }
    }

    #[test]
    fn deep_documents_are_refused_and_never_overflow_the_stack() {
        let block: String = (0..2_000).map(|i| " ".repeat(i) + "a:\n").collect();
        let bombs = ["[".repeat(100_000), "{a: ".repeat(100_000), "- ".repeat(100_000), block];
        for bomb in bombs {
            assert!(refused(&bomb).starts_with("error converting YAML to JSON: "));
        }
        let deep = format!("{}1{}", "[".repeat(100), "]".repeat(100));
        assert!(read(&deep).is_ok());
    }

    #[test]
    fn values_are_written_as_kubectl_shows_them() {
        let value =
            json!({"a": [], "b": {}, "c": [{"x": 1, "y": [1, [2]]}], "d": null, "e": "0644"});
        assert_eq!(
            to_yaml(&value).unwrap(),
            "a: []\nb: {}\nc:\n- x: 1\n  \"y\":\n  - 1\n  - - 2\nd: null\ne: \"0644\"\n"
        );
    }

    fn value() -> impl Strategy<Value = Value> {
        let text = prop_oneof![
            any::<String>(),
            "[-~!&*#?|>%@`'\"{}\\[\\],:= ynoYNO0-9._x]{0,6}",
            prop_oneof![
                Just("yes"),
                Just("null"),
                Just("0644"),
                Just("1e3"),
                Just("<<"),
                Just("=")
            ]
            .prop_map(str::to_owned),
        ];
        let scalar = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            text.clone().prop_map(Value::from),
        ];
        scalar.prop_recursive(4, 24, 4, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(text.clone(), inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_reads_the_same(value in value()) {
            let text = to_yaml(&value).unwrap();
            prop_assert_eq!(read(&text), Ok(value), "{}", text);
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in any::<String>(), yaml in "[-a:&*<{}\\[\\],? \n'\"|>!#%]{0,40}") {
            for text in [text, yaml] {
                for error in [read(&text).err(), documents(&text).err()].into_iter().flatten() {
                    prop_assert!(!error.contains("parser failed"), "{error}");
                }
            }
        }
    }
}
