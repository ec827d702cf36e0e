//! JSON type mismatches of built-in kinds. kube-apiserver refuses these while decoding, in the words of
//! Go's JSON decoder. Custom objects are validated by [`Schema::validate`] instead. It does no I/O; the
//! write path calls it.

use super::{Node, Schema, Type, child, indexed};
use serde_json::Value;
use std::fmt;

/// A value that cannot be decoded into its field.
#[derive(Clone, Debug, PartialEq)]
pub struct TypeError {
    /// The path with indexes, such as `spec.ports[0].port`.
    pub path: String,
    /// Why it cannot be decoded.
    pub why: Undecodable,
}

/// Why a value cannot be decoded.
#[derive(Clone, Debug, PartialEq)]
pub enum Undecodable {
    /// It has another JSON type.
    Mismatch {
        /// Go's name of the field: its struct and the path without indexes, such as
        /// `ServicePort.spec.ports.port`.
        field: String,
        /// The JSON type: `string`, `number`, `number 1.5`, `bool`, `array` or `object`.
        found: String,
        /// The field's Go type, such as `int32`.
        wanted: String,
    },
    /// A text that is not valid bytes or not a valid time, with Go's message.
    Text(String),
}

impl fmt::Display for TypeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.why {
            Undecodable::Mismatch { field, found, wanted } => {
                write!(
                    f,
                    "json: cannot unmarshal {found} into Go struct field {field} of type {wanted}"
                )
            }
            Undecodable::Text(words) => f.write_str(words),
        }
    }
}

impl Schema {
    /// The values of a wrong JSON type; `kind` is the kind of the object. The display of each is the
    /// message of kube-apiserver's decoder, which stops at the first.
    pub fn type_errors(&self, object: &Value, kind: &str) -> Vec<TypeError> {
        mismatches(self, object, kind)
    }
}

pub(super) fn mismatches(schema: &Schema, object: &Value, kind: &str) -> Vec<TypeError> {
    let mut errors = Vec::new();
    visit(schema, object, &Place { path: "", names: "", owner: kind }, &mut errors);
    errors
}

struct Place<'a> {
    path: &'a str,
    names: &'a str,
    owner: &'a str,
}

fn visit(schema: &Schema, value: &Value, place: &Place<'_>, errors: &mut Vec<TypeError>) {
    let node = schema.node();
    if let Some(found) = mismatch(node, value) {
        let field = format!("{}.{}", place.owner, place.names);
        let why = Undecodable::Mismatch { field, found, wanted: go_type(schema) };
        errors.push(TypeError { path: place.path.to_owned(), why });
        return;
    }
    match value {
        Value::Object(map) => {
            let own = node.definition.as_deref().and_then(|d| d.rsplit('.').next());
            let owner = own.filter(|_| !node.properties.is_empty()).unwrap_or(place.owner);
            for (name, value) in map {
                let Some(member) = schema.member(name) else { continue };
                let path = child(place.path, name);
                let names = if node.properties.contains_key(name) {
                    child(place.names, name)
                } else {
                    place.names.to_owned()
                };
                visit(&member, value, &Place { path: &path, names: &names, owner }, errors);
            }
        }
        Value::Array(list) => {
            let Some(items) = schema.items() else { return };
            for (i, value) in list.iter().enumerate() {
                let path = indexed(place.path, i);
                let place = Place { path: &path, names: place.names, owner: place.owner };
                visit(&items, value, &place, errors);
            }
        }
        Value::String(text) => {
            if let Some(words) = misspelt(node, text) {
                let why = Undecodable::Text(words);
                errors.push(TypeError { path: place.path.to_owned(), why });
            }
        }
        _ => {}
    }
}

/// Go's message for a text that is not valid bytes or not a valid time.
fn misspelt(node: &Node, text: &str) -> Option<String> {
    match (node.type_, node.format.as_str()) {
        (Some(Type::String), "byte") => base64_error(text),
        (Some(Type::String), "date-time") => time_error(node, text),
        _ => None,
    }
}

/// Go skips line breaks inside base64, and names the byte where it stopped.
fn base64_error(text: &str) -> Option<String> {
    let symbol = |b: u8| b.is_ascii_alphanumeric() || b == b'+' || b == b'/';
    let said = |at: usize| Some(format!("illegal base64 data at input byte {at}"));
    let kept: Vec<(usize, u8)> =
        text.bytes().enumerate().filter(|(_, b)| !matches!(b, b'\r' | b'\n')).collect();
    let spelt = kept.iter().take_while(|(_, b)| symbol(*b)).count();
    let padding = match spelt % 4 {
        0 => 0,
        2 => 2,
        3 => 1,
        _ => usize::MAX,
    };
    for (n, (at, byte)) in kept[spelt..].iter().enumerate() {
        if *byte != b'=' || n >= padding {
            return said(*at);
        }
    }
    match kept.len() - spelt {
        given if given == padding => None,
        0 => said(text.len() - spelt % 4),
        _ => said(text.len()),
    }
}

/// Go's message for an invalid time. A MicroTime needs six fractional digits; other times accept any
/// fraction.
fn time_error(node: &Node, text: &str) -> Option<String> {
    const PARTS: [&str; 11] = ["2006", "-", "01", "-", "02", "T", "15", ":", "04", ":", "05"];
    let micro = node.definition.as_deref().is_some_and(|name| name.ends_with(".MicroTime"));
    let fraction = if micro { ".000000" } else { "" };
    let layout = format!("2006-01-02T15:04:05{fraction}Z07:00");
    let mut rest = text;
    for part in PARTS.into_iter().chain(micro.then_some(fraction)) {
        let Some(next) = skip(rest, part) else {
            return Some(unlike(text, &layout, rest, part));
        };
        rest = next;
    }
    if !micro && let Some(digits) = rest.strip_prefix('.') {
        let next = digits.trim_start_matches(|c: char| c.is_ascii_digit());
        rest = if next.len() < digits.len() { next } else { rest };
    }
    let zone = skip(rest, "Z").or_else(|| skip(rest, "+00:00")).or_else(|| skip(rest, "-00:00"));
    match zone {
        None => Some(unlike(text, &layout, rest, "Z07:00")),
        Some("") => outside(text).map(|part| format!("parsing time {text:?}: {part} out of range")),
        Some(more) => Some(format!("parsing time {text:?}: extra text: {more:?}")),
    }
}

fn unlike(text: &str, layout: &str, rest: &str, part: &str) -> String {
    format!("parsing time {text:?} as {layout:?}: cannot parse {rest:?} as {part:?}")
}

/// Skips a part of a time layout: a digit matches any digit, another character itself.
fn skip<'a>(text: &'a str, part: &str) -> Option<&'a str> {
    let like = |(given, wanted): (u8, u8)| {
        if wanted.is_ascii_digit() { given.is_ascii_digit() } else { given == wanted }
    };
    let given = text.get(..part.len())?;
    given.bytes().zip(part.bytes()).all(like).then(|| &text[part.len()..])
}

/// The first part of a well-formed time that is out of range.
fn outside(text: &str) -> Option<&'static str> {
    let limits =
        [("month", 5, 1, 12), ("hour", 11, 0, 23), ("minute", 14, 0, 59), ("second", 17, 0, 59)];
    let wrong = limits.into_iter().find(|(_, at, least, most)| {
        let number = text.get(*at..at + 2).and_then(|digits| digits.parse::<u8>().ok());
        !number.is_some_and(|number| (*least..=*most).contains(&number))
    });
    match wrong {
        Some((part, ..)) => Some(part),
        None => text.parse::<jiff::Timestamp>().is_err().then_some("day"),
    }
}

fn mismatch(node: &Node, value: &Value) -> Option<String> {
    let fits = match (node.type_, value) {
        (_, Value::Null) => true,
        (None, Value::String(_) | Value::Number(_)) => true,
        (None, _) => !node.int_or_string,
        (Some(Type::Object), v) => v.is_object(),
        (Some(Type::Array), v) => v.is_array(),
        (Some(Type::String), v) => v.is_string(),
        (Some(Type::Boolean), v) => v.is_boolean(),
        (Some(Type::Number), v) => v.is_number(),
        (Some(Type::Integer), Value::Number(n)) => {
            let small = n.as_i64().is_some_and(|n| i32::try_from(n).is_ok());
            if n.is_i64() && (small || node.format != "int32") {
                return None;
            }
            return Some(format!("number {n}"));
        }
        (Some(Type::Integer), _) => false,
    };
    let found = match value {
        _ if fits => return None,
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) | Value::Null => "object",
    };
    Some(found.to_owned())
}

fn go_type(schema: &Schema) -> String {
    let node = schema.node();
    match (node.type_, node.format.as_str()) {
        (Some(Type::String), "byte") => "[]uint8".to_owned(),
        (Some(Type::String), _) => "string".to_owned(),
        (Some(Type::Boolean), _) => "bool".to_owned(),
        (Some(Type::Integer), "int32") => "int32".to_owned(),
        (Some(Type::Integer), _) => "int64".to_owned(),
        (Some(Type::Number), _) => "float64".to_owned(),
        (Some(Type::Array), _) => {
            let item = schema.items().map(|items| go_type(&items));
            format!("[]{}", item.unwrap_or_else(|| "interface {}".into()))
        }
        (Some(Type::Object), _) => match (&node.definition, node.additional) {
            (Some(name), _) => {
                let mut parts = name.rsplit('.');
                let (type_, package) = (parts.next(), parts.next());
                format!("{}.{}", package.unwrap_or_default(), type_.unwrap_or_default())
            }
            (None, Some(at)) => format!("map[string]{}", go_type(&schema.to(at))),
            (None, None) => "map[string]interface {}".to_owned(),
        },
        (None, _) => "intstr.IntOrString".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use crate::schema::compile;
    use serde_json::json;

    #[test]
    fn mismatches_read_as_gos_decoder_words_them() {
        use k8s_openapi::api::core::v1::Service;
        let root = schemars::schema_for!(Service).to_value();
        let schema = compile(&root, &|name| root["$defs"].get(name).cloned()).unwrap();
        let said = |object| -> Vec<String> {
            schema.type_errors(&object, "Service").iter().map(ToString::to_string).collect()
        };
        assert_eq!(
            said(json!({"spec": {"ports": [{"port": "80"}], "selector": {"a": 1}}})),
            [
                "json: cannot unmarshal string into Go struct field ServicePort.spec.ports.port of type \
                 int32",
                "json: cannot unmarshal number into Go struct field ServiceSpec.spec.selector of type \
                 string",
            ]
        );
        assert_eq!(
            said(json!({"spec": {"ports": "x", "publishNotReadyAddresses": "yes"}})),
            [
                "json: cannot unmarshal string into Go struct field ServiceSpec.spec.ports of type \
                 []v1.ServicePort",
                "json: cannot unmarshal string into Go struct field \
                 ServiceSpec.spec.publishNotReadyAddresses of type bool",
            ]
        );
        assert_eq!(
            said(json!({"metadata": {"labels": "x"}, "spec": {"ports": [{"port": 1.5}]}})),
            [
                "json: cannot unmarshal string into Go struct field ObjectMeta.metadata.labels of type \
                 map[string]string",
                "json: cannot unmarshal number 1.5 into Go struct field ServicePort.spec.ports.port of \
                 type int32",
            ]
        );
        assert_eq!(
            said(json!({"spec": {"ports": [{"targetPort": "a"}, {"targetPort": 1}]}})),
            [""; 0]
        );
    }

    #[test]
    fn text_that_spells_no_bytes_is_refused_where_it_goes_wrong() {
        for (text, expected) in [
            ("", None),
            ("aGk=", None),
            ("aG\nk=\n", None),
            ("aGkx", None),
            ("%%", Some(0)),
            ("aGk%", Some(3)),
            ("aGk=a", Some(4)),
            ("aGk", Some(0)),
            ("aG=", Some(3)),
            ("aGkxa", Some(4)),
        ] {
            let said = expected.map(|at| format!("illegal base64 data at input byte {at}"));
            assert_eq!(super::base64_error(text), said, "{text:?}");
        }
    }

    #[test]
    fn text_that_is_no_time_is_refused_where_it_goes_wrong() {
        let node = super::Node::default();
        let said = |text: &str| super::time_error(&node, text).unwrap_or_default();
        for good in ["2026-01-02T03:04:05Z", "2026-01-02T03:04:05.000001+01:00"] {
            assert_eq!(said(good), "");
        }
        let as_ = "as \"2006-01-02T15:04:05Z07:00\": cannot parse";
        for (text, why) in [
            ("yesterday", format!("{as_} \"yesterday\" as \"2006\"")),
            ("2026-01-02", format!("{as_} \"\" as \"T\"")),
            ("2026-01-02 03:04:05Z", format!("{as_} \" 03:04:05Z\" as \"T\"")),
            ("2026-01-02T03:04:05+01", format!("{as_} \"+01\" as \"Z07:00\"")),
        ] {
            assert_eq!(said(text), format!("parsing time {text:?} {why}"));
        }
        for (text, why) in [
            ("2026-13-02T03:04:05Z", "month out of range"),
            ("2026-02-30T03:04:05Z", "day out of range"),
            ("2026-02-03T24:04:05Z", "hour out of range"),
            ("2026-02-03T04:04:60Z", "second out of range"),
            ("2026-02-03T04:04:05Z[UTC]", "extra text: \"[UTC]\""),
        ] {
            assert_eq!(said(text), format!("parsing time {text:?}: {why}"));
        }
        let micro = super::Node {
            definition: Some("io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime".into()),
            ..node.clone()
        };
        let said = |text: &str| super::time_error(&micro, text).unwrap_or_default();
        assert_eq!(said("2026-01-02T03:04:05.000001Z"), "");
        assert!(said("2026-01-02T03:04:05Z").ends_with("cannot parse \"Z\" as \".000000\""));
    }
}
