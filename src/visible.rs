//! Makes foreign text safe for a terminal: characters that move the cursor, set a colour, begin a line or
//! change the writing direction are shown as escapes. Code that prints a name, a message or a path from a
//! tenant calls this; it changes nothing else.

use std::borrow::Cow;

/// One safe line. Printable characters stay as they are.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_plain(c) {
            out.push(c);
        } else {
            out.extend(c.escape_debug());
        }
    }
    Cow::Owned(out)
}

/// Equal JSON that is safe to show: the JSON writer escapes only what JSON requires.
pub(crate) fn visible_json(json: &str) -> String {
    use std::fmt::Write as _;
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if c == '\n' || is_plain(c) {
            out.push(c);
        } else {
            // Outside of strings JSON has none of these.
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        }
    }
    out
}

/// Whether a character is printable and has no other effect.
fn is_plain(c: char) -> bool {
    matches!(c, '"' | '\'' | '\\') || c.escape_debug().len() == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_shown_instead() {
        assert_eq!(visible("\u{1b}[31mred\nforged"), "\\u{1b}[31mred\\nforged");
        assert_eq!(visible("\u{9b}2J \u{202e}evil\u{7f}"), "\\u{9b}2J \\u{202e}evil\\u{7f}");
        let fine = r#"a "b" 'c' \d → é 漢 …"#;
        assert!(matches!(visible(fine), Cow::Borrowed(same) if same == fine));
    }

    #[test]
    fn json_keeps_its_meaning() {
        let value = serde_json::json!({"a": "\u{1b}\u{9b}\u{202e}\u{e0001}\n\"é"});
        let json = visible_json(&serde_json::to_string_pretty(&value).unwrap());
        assert_eq!(json, "{\n  \"a\": \"\\u001b\\u009b\\u202e\\udb40\\udc01\\n\\\"é\"\n}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap(), value);
    }
}
