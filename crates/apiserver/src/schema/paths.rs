//! Reads field paths that definitions contain, such as a rule's `fieldPath` and a selectable field's
//! `jsonPath`, against a schema. Field paths in messages are plain strings and not read here. It does
//! no I/O.

use super::{Schema, child, keyed};

/// Reads a path such as `.spec.list['a.b']` against a schema. Returns the path in the form of field
/// paths, and the schema at its end. `brackets`: whether `['…']` is allowed.
pub(crate) fn field_path(
    path: &str,
    schema: &Schema,
    brackets: bool,
) -> Result<(String, Schema), String> {
    const NO_FIELD: &str = "does not refer to a valid field";
    let mut rest = path;
    let mut written = String::new();
    let mut at = schema.clone();
    while !rest.is_empty() {
        let name;
        if let Some(after) = rest.strip_prefix('[') {
            if !brackets {
                return Err("array notation is not allowed".into());
            }
            let inner = after.strip_prefix('\'').ok_or_else(|| {
                let token: &str = after.split(['.', '[', ']']).next().unwrap_or_default();
                format!("expected single quoted string but got {token}")
            })?;
            let end = quote_end(inner).ok_or("unexpected end of JSON path")?;
            name = unescape(&inner[..end])?;
            let after = &inner[end + 1..];
            rest = after.strip_prefix(']').ok_or_else(|| match after {
                "" => "unexpected end of JSON path".to_owned(),
                other => format!("expected ] but got {other}"),
            })?;
        } else if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[', ']']).unwrap_or(after.len());
            if after.is_empty() {
                return Err("unexpected end of JSON path".into());
            }
            name = after[..end].to_owned();
            rest = &after[end..];
        } else {
            let token = rest.split(['.', '[', ']']).next().unwrap_or_default();
            return Err(format!("expected [ or . but got: {token}"));
        }
        let node = at.node();
        if !node.properties.is_empty() {
            written = child(&written, &name);
            let next = *node.properties.get(&name).ok_or(NO_FIELD)?;
            at = at.to(next);
        } else {
            written = keyed(&written, &name);
            at = at.to(node.additional.ok_or(NO_FIELD)?);
        }
    }
    Ok((written, at))
}

fn quote_end(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    (0..bytes.len()).find(|&i| bytes[i] == b'\'' && (i == 0 || bytes[i - 1] != b'\\'))
}

fn unescape(text: &str) -> Result<String, String> {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        out.push(match chars.next() {
            Some('a') => '\u{7}',
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('v') => '\u{b}',
            Some(c @ ('\'' | '\\')) => c,
            other => {
                let other = other.map(String::from).unwrap_or_default();
                return Err(format!("invalid string literal: invalid escape char \\{other}"));
            }
        });
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_paths_follow_the_schema() {
        let schema = crate::schema::compile_crd(&serde_json::json!({
            "type": "object", "properties": {"spec": {"type": "object", "properties": {
                "a.b": {"type": "string"},
                "m": {"type": "object", "additionalProperties": {"type": "integer"}}}}}}))
        .unwrap();
        let said =
            |path: &str, brackets| field_path(path, &schema, brackets).map(|(written, _)| written);
        assert_eq!(said(".spec['a.b']", true).unwrap(), "spec.a.b");
        assert_eq!(said(".spec.m.k", true).unwrap(), "spec.m[k]");
        for (path, why) in [
            (".spec.nope", "does not refer to a valid field"),
            ("spec", "expected [ or . but got: spec"),
            (".", "unexpected end of JSON path"),
            (".spec[0]", "expected single quoted string but got 0"),
            (".spec['x", "unexpected end of JSON path"),
        ] {
            assert_eq!(said(path, true).unwrap_err(), why, "{path}");
        }
        assert_eq!(said(".spec['m']", false).unwrap_err(), "array notation is not allowed");
    }
}
