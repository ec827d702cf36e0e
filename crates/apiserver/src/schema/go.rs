//! Prints values as Go does, so that messages are exactly those of kube-apiserver: quoted strings,
//! numbers and RE2 patterns. The error messages of this folder use it; it knows nothing of schemas.

use regex::{Regex, RegexBuilder};
use serde_json::Value;

/// The largest compiled pattern, so that a schema cannot exhaust memory.
const PATTERN_LIMIT: usize = 1 << 20;

/// A value as field errors quote it: strings as `%q`, numbers and booleans as `%v`, the rest as JSON.
pub(crate) fn quote(value: &Value) -> String {
    match value {
        Value::String(text) => quote_text(text),
        Value::Number(n) if n.is_f64() => number(n.as_f64().unwrap_or_default()),
        Value::Array(_) | Value::Object(_) => json(value),
        other => other.to_string(),
    }
}

/// Compact JSON with Go's escapes for HTML.
pub(crate) fn json(value: &Value) -> String {
    let text = value.to_string();
    let text = text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    text.replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

/// `%q`.
pub(crate) fn quote_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            c if (c as u32) < 0x20 || c as u32 == 0x7f => {
                out.push_str(&format!("\\x{:02x}", c as u32))
            }
            c if c.is_control() => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// `%v` of a float64: the shortest form, with an exponent from 1e+06 upwards and below 1e-04.
pub(crate) fn number(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let scientific = format!("{value:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return value.to_string() };
    let Ok(exponent) = exponent.parse::<i32>() else { return value.to_string() };
    if (-4..6).contains(&exponent) {
        return value.to_string();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

/// Compiles a pattern with RE2's syntax and meaning.
pub(crate) fn pattern(text: &str) -> Result<Regex, String> {
    RegexBuilder::new(&translate(text)).size_limit(PATTERN_LIMIT).build().map_err(|error| {
        match error {
            regex::Error::CompiledTooBig(limit) => {
                format!("expression is larger than {limit} bytes when compiled")
            }
            other => format!("error parsing regexp: {}", last_line(&other.to_string())),
        }
    })
}

fn last_line(text: &str) -> &str {
    text.lines().last().unwrap_or(text).trim_start_matches("error: ")
}

/// In RE2, `\d`, `\w`, `\s` and `\b` are ASCII, and a class has neither nested classes nor set
/// operations. The regex crate would silently read these differently.
fn translate(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    let mut in_class = false;
    let mut class_start = false;
    while let Some(c) = chars.next() {
        let at_start = std::mem::take(&mut class_start);
        match c {
            '\\' => match chars.next() {
                Some('Q') if !in_class => quote_literal(&mut chars, &mut out),
                Some(e) => out.push_str(&escape(e, in_class)),
                None => out.push('\\'),
            },
            '[' if !in_class => {
                in_class = true;
                class_start = true;
                out.push('[');
                if chars.next_if_eq(&'^').is_some() {
                    out.push('^');
                }
            }
            '[' if chars.peek() == Some(&':') => {
                out.push('[');
                while let Some(c) = chars.next() {
                    out.push(c);
                    if c == ':' && chars.next_if_eq(&']').is_some() {
                        out.push(']');
                        break;
                    }
                }
            }
            '[' if in_class => out.push_str("\\["),
            ']' if in_class && at_start => out.push_str("\\]"),
            ']' if in_class => {
                in_class = false;
                out.push(']');
            }
            '&' | '~' | '-' if in_class && chars.peek() == Some(&c) => {
                chars.next();
                out.push(c);
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out
}

fn escape(c: char, in_class: bool) -> String {
    let set = match c {
        'd' => "0-9",
        'D' => "^0-9",
        'w' => "0-9A-Za-z_",
        'W' => "^0-9A-Za-z_",
        's' => "\\t\\n\\f\\r ",
        'S' => "^\\t\\n\\f\\r ",
        'b' | 'B' if !in_class => return format!("(?-u:\\{c})"),
        other => return format!("\\{other}"),
    };
    if in_class && !set.starts_with('^') { set.to_owned() } else { format!("[{set}]") }
}

fn quote_literal(chars: &mut std::iter::Peekable<std::str::Chars<'_>>, out: &mut String) {
    while let Some(c) = chars.next() {
        if c == '\\' && chars.next_if_eq(&'E').is_some() {
            return;
        }
        out.push_str(&regex::escape(c.encode_utf8(&mut [0; 4])));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_quoted_as_go_quotes_them() {
        assert_eq!(quote_text("a\"b\\c\n\u{1}\u{7f}é'"), r#""a\"b\\c\n\x01\x7fé'""#);
    }

    #[test]
    fn floats_print_as_go_prints_them() {
        for (value, text) in [
            (5.0, "5"),
            (0.1, "0.1"),
            (1e7, "1e+07"),
            (2000000.5, "2.0000005e+06"),
            (123456.5, "123456.5"),
            (1.5e-7, "1.5e-07"),
            (-2.5, "-2.5"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn patterns_mean_what_they_mean_to_re2() {
        for (pattern_text, text, matches) in [
            (r"^\d+$", "12", true),
            (r"^\d+$", "١٢", false),
            (r"^[\w.-]+$", "a_b.c-d", true),
            (r"^[\w]+$", "é", false),
            (r"^[a[bc]]$", "[]", true),
            (r"^[a[bc]]$", "b", false),
            (r"^[]a]$", "]", true),
            (r"^[+--]$", ",", true),
            (r"^[a&&b]$", "&", true),
            (r"^\Qa.b\E$", "a.b", true),
            (r"^\Qa.b\E$", "axb", false),
            (r"^[[:alpha:]]+$", "abc", true),
            (r"^[^\d]$", "x", true),
            (r"\bfoo\b", "a foo b", true),
        ] {
            let compiled = pattern(pattern_text).unwrap();
            assert_eq!(compiled.is_match(text), matches, "{pattern_text} on {text}");
        }
    }

    #[test]
    fn patterns_that_re2_lacks_or_that_are_huge_are_refused() {
        assert!(pattern("(").unwrap_err().starts_with("error parsing regexp: "));
        assert!(pattern("(?=a)").is_err());
        assert!(pattern(r"((a{1000}){1000})").unwrap_err().contains("larger than"));
    }
}
