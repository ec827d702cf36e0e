//! Symbols are numbered in order of appearance. Where the embedded server refuses something on purpose,
//! a real one has given out a uid more, and all later numbers are off by one. What matters is that the
//! two agree on what is equal to what: each recorded symbol corresponds to one of ours and the reverse.

use serde_json::Value;
use std::collections::BTreeMap;

/// Which recorded symbol is which of ours.
#[derive(Default)]
pub(super) struct Correspondence {
    ours: BTreeMap<String, String>,
    recorded: BTreeMap<String, String>,
}

impl Correspondence {
    /// Rewrites recorded symbols to ours where that contradicts nothing that was seen before.
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

/// `uid` of `<uid-7>`; nothing for what is no numbered symbol.
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
        // A new version was recorded and the old one came: that is a difference, not a renumbering.
        let mut second = json!(["<uid-2>", "<rv-2>"]);
        same.align(&mut second, &json!(["<uid-1>", "<rv-1>"]));
        assert_eq!(second, json!(["<uid-1>", "<rv-2>"]));
    }
}
