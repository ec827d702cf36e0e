//! Matches recorded symbols with symbols of the present run. Symbols are numbered in order of
//! appearance: if the embedded server refuses a request on purpose, kube-apiserver has given one uid
//! more, and all later numbers differ by one. Only equality matters: each recorded symbol must
//! correspond to exactly one present symbol, and the reverse.

use serde_json::Value;
use std::collections::BTreeMap;

/// The present symbol of each recorded one, and the reverse.
#[derive(Default)]
pub(super) struct Correspondence {
    ours: BTreeMap<String, String>,
    recorded: BTreeMap<String, String>,
}

impl Correspondence {
    /// Replaces recorded symbols by the present ones, unless that contradicts an earlier match.
    pub(super) fn align(&mut self, recorded: &mut Value, actual: &Value) {
        match (recorded, actual) {
            (Value::Object(left), Value::Object(right)) => {
                for (key, value) in left {
                    if let Some(other) = right.get(key) {
                        self.align(value, other);
                    }
                }
            }
            (Value::Array(left), Value::Array(right)) => {
                for (value, other) in left.iter_mut().zip(right) {
                    self.align(value, other);
                }
            }
            (Value::String(left), Value::String(right))
                if class(left).is_some() && class(left) == class(right) =>
            {
                let ours = self.ours.entry(left.clone()).or_insert_with(|| right.clone());
                let theirs = self.recorded.entry(right.clone()).or_insert_with(|| left.clone());
                if ours == right && theirs == left {
                    left.clone_from(right);
                }
            }
            _ => {}
        }
    }
}

/// `uid` of `<uid-7>`. None: the text is not a numbered symbol.
fn class(text: &str) -> Option<&str> {
    let (class, number) = text.strip_prefix('<')?.strip_suffix('>')?.rsplit_once('-')?;
    number.parse::<u32>().ok().map(|_| class)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_may_be_off_but_what_was_equal_must_stay_equal() {
        let mut same = Correspondence::default();
        let mut first = json!(["<uid-2>", "<rv-1>"]);
        same.align(&mut first, &json!(["<uid-1>", "<rv-1>"]));
        assert_eq!(first, json!(["<uid-1>", "<rv-1>"]));
        // A new version was recorded and the old one came: this is a difference, not another numbering.
        let mut second = json!(["<uid-2>", "<rv-2>"]);
        same.align(&mut second, &json!(["<uid-1>", "<rv-1>"]));
        assert_eq!(second, json!(["<uid-1>", "<rv-2>"]));
    }
}
