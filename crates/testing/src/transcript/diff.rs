//! Compares two JSON values: one line for each difference.

use serde_json::Value;
use std::collections::BTreeSet;

/// The differences, each with its JSON pointer. Empty: the values are equal.
pub(super) fn lines(expected: &Value, actual: &Value) -> Vec<String> {
    let mut out = Vec::new();
    compare("", Some(expected), Some(actual), &mut out);
    out
}

fn compare(at: &str, expected: Option<&Value>, actual: Option<&Value>, out: &mut Vec<String>) {
    match (expected, actual) {
        (Some(Value::Object(left)), Some(Value::Object(right))) => {
            let keys: BTreeSet<_> = left.keys().chain(right.keys()).collect();
            for key in keys {
                let step = key.replace('~', "~0").replace('/', "~1");
                compare(&format!("{at}/{step}"), left.get(key), right.get(key), out);
            }
        }
        (Some(Value::Array(left)), Some(Value::Array(right))) => {
            for index in 0..left.len().max(right.len()) {
                compare(&format!("{at}/{index}"), left.get(index), right.get(index), out);
            }
        }
        (left, right) if left == right => {}
        (left, right) => {
            out.push(format!("{at}: expected {}, got {}", show(left), show(right)));
        }
    }
}

fn show(value: Option<&Value>) -> String {
    value.map_or_else(|| "nothing".to_owned(), Value::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_difference_is_one_line_with_its_pointer() {
        assert_eq!(
            lines(
                &json!({"same": 1, "a/b": [1, 2], "gone": "x"}),
                &json!({"same": 1, "a/b": [1, 3, 4], "new": null}),
            ),
            [
                "/a~1b/1: expected 2, got 3",
                "/a~1b/2: expected nothing, got 4",
                "/gone: expected \"x\", got nothing",
                "/new: expected nothing, got null",
            ]
        );
    }
}
