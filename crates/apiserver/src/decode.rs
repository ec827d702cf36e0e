//! Decodes request bodies into values. JSON is read here, because serde_json alone would silently keep
//! the last of duplicate fields; YAML and protobuf have their own modules. It checks syntax and size
//! only; the HTTP shell calls it.

use crate::error::ApiError;
use bytes::Bytes;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::fmt::{self, Write as _};

/// The deepest nesting of a body in any encoding, and of a patch's result. Clients read 128 levels;
/// lists, watches and tables add up to three.
pub const MAX_DEPTH: usize = 100;

/// The most bytes of the paths of all values of a body. Every check writes the path of the value at hand,
/// so a small body with one long name high up could keep each check busy for minutes. No normal body
/// comes near.
const MAX_PATHS: usize = 128 * 1024 * 1024;

/// A decoded body.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// The value. Of duplicate fields it has the last.
    pub value: Value,
    /// The paths of duplicate fields, such as `spec.type`.
    pub duplicates: Vec<String>,
    /// The JSON source, if the order of its fields may have to be reported.
    pub source: Option<Bytes>,
}

impl Decoded {
    /// A value that does not come from JSON.
    pub fn plain(value: Value) -> Self {
        Self { value, duplicates: Vec::new(), source: None }
    }
}

/// The encodings of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyType {
    /// `application/json`, also without a `Content-Type`.
    Json,
    /// `application/yaml`.
    Yaml,
    /// `application/vnd.kubernetes.protobuf`.
    Protobuf,
}

impl BodyType {
    /// Reads a `Content-Type`.
    pub fn parse(header: Option<&str>) -> Result<Self, ApiError> {
        let media = header.unwrap_or_default().split(';').next().unwrap_or_default().trim();
        match media.to_ascii_lowercase().as_str() {
            "" | "application/json" => Ok(Self::Json),
            "application/yaml" => Ok(Self::Yaml),
            "application/vnd.kubernetes.protobuf" => Ok(Self::Protobuf),
            _ => Err(ApiError::unsupported_media_type(
                "the body of the request was in an unknown format - accepted media types include: \
                 application/json, application/yaml, application/vnd.kubernetes.protobuf",
            )),
        }
    }
}

/// Decodes a body of this type, which should be an object of `kind`.
pub fn body(type_: BodyType, kind: &str, bytes: &Bytes) -> Result<Decoded, ApiError> {
    let read = match type_ {
        BodyType::Json => json(bytes)
            .map(|decoded| Decoded { source: Some(bytes.clone()), ..decoded })
            .map_err(|why| format!("couldn't get version/kind; json parse error: {why}")),
        BodyType::Yaml => crate::yaml::from_yaml(bytes).map(Decoded::plain),
        BodyType::Protobuf => {
            crate::proto::decode(bytes).map(Decoded::plain).map_err(|error| error.message)
        }
    };
    let read = read.and_then(|decoded| check(&decoded.value).map(|()| decoded));
    read.map_err(|why| {
        ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): {why} ({})",
            excerpt(bytes)
        ))
    })
}

/// The beginning of a body for a message: text, or hexadecimal if it is not text.
fn excerpt(bytes: &[u8]) -> String {
    const MOST: usize = 1024;
    if bytes.is_empty() {
        return "<empty>".to_owned();
    }
    let cut = &bytes[..bytes.len().min(MOST)];
    let more = if cut.len() < bytes.len() { " ..." } else { "" };
    match std::str::from_utf8(cut) {
        Ok(text) if text.starts_with('{') => format!("{text}{more}"),
        _ => cut.iter().map(|byte| format!("{byte:02x}")).chain([more.to_owned()]).collect(),
    }
}

/// Refuses a value that is too deep, or whose paths are too long for later checks.
pub fn check(value: &Value) -> Result<(), String> {
    let mut left = MAX_PATHS;
    measure(value, 0, 0, &mut left)
}

/// Measures a value at `depth` whose own path has `path` bytes.
fn measure(value: &Value, depth: usize, path: usize, left: &mut usize) -> Result<(), String> {
    *left = left.checked_sub(path).ok_or("the names of its fields are too long altogether")?;
    if matches!(value, Value::Array(_) | Value::Object(_)) && depth == MAX_DEPTH {
        return Err(format!("exceeded max depth of {MAX_DEPTH}"));
    }
    match value {
        // Room for an index such as `[1000000]`.
        Value::Array(list) => {
            list.iter().try_for_each(|item| measure(item, depth + 1, path + 9, left))
        }
        Value::Object(map) => map
            .iter()
            .try_for_each(|(key, member)| measure(member, depth + 1, path + key.len() + 1, left)),
        _ => Ok(()),
    }
}

/// The position of each path in a JSON body, counted in fields. Of duplicate fields it is the last.
pub fn places<'a>(bytes: &[u8], paths: impl Iterator<Item = &'a str>) -> HashMap<String, usize> {
    let places = paths.map(|path| (path.to_owned(), usize::MAX)).collect();
    let mut notes = Notes { places: Some(places), ..Notes::default() };
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    // What was read before an error has its order, too.
    let _ = Noting(&mut notes).deserialize(&mut reader);
    notes.places.unwrap_or_default()
}

/// Decodes JSON, and notes duplicate fields.
pub fn json(bytes: &[u8]) -> Result<Decoded, String> {
    let mut notes = Notes::default();
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = Noting(&mut notes).deserialize(&mut reader).map_err(|e| e.to_string())?;
    reader.end().map_err(|e| e.to_string())?;
    Ok(Decoded { value, duplicates: notes.duplicates, source: None })
}

/// The most duplicates that are noted: more of them are not an accident.
const MOST_DUPLICATES: usize = 100;
/// The most bytes of their paths. The first one is always noted.
const MOST_DUPLICATE_TEXT: usize = 64 * 1024;

/// What is noted while a value is read. The path grows and shrinks in place, so a step costs only its own
/// length.
#[derive(Default)]
struct Notes {
    path: String,
    duplicates: Vec<String>,
    duplicate_text: usize,
    places: Option<HashMap<String, usize>>,
    fields: usize,
}

impl Notes {
    fn duplicate(&mut self) {
        let text = self.duplicate_text + self.path.len();
        let room = self.duplicates.len() < MOST_DUPLICATES && text <= MOST_DUPLICATE_TEXT;
        if self.duplicates.is_empty() || room {
            self.duplicates.push(self.path.clone());
            self.duplicate_text = text;
        }
    }

    fn field(&mut self) {
        self.fields += 1;
        if let Some(place) = self.places.as_mut().and_then(|all| all.get_mut(&self.path)) {
            *place = self.fields;
        }
    }
}

/// Builds a value and notes the paths of duplicate fields.
struct Noting<'a>(&'a mut Notes);

impl<'de> DeserializeSeed<'de> for Noting<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Noting<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        serde_json::Number::from_f64(value)
            .map(Value::Number)
            .ok_or_else(|| E::custom("not a JSON number"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        let here = self.0.path.len();
        loop {
            let _ = write!(self.0.path, "[{}]", items.len());
            let item = access.next_element_seed(Noting(self.0))?;
            self.0.path.truncate(here);
            match item {
                Some(item) => items.push(item),
                None => return Ok(Value::Array(items)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        let here = self.0.path.len();
        while let Some(key) = access.next_key::<String>()? {
            if here > 0 {
                self.0.path.push('.');
            }
            self.0.path.push_str(&key);
            self.0.field();
            let value = access.next_value_seed(Noting(self.0)).map_err(A::Error::custom)?;
            if map.insert(key, value).is_some() {
                self.0.duplicate();
            }
            self.0.path.truncate(here);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_field_that_stands_twice_is_noted_and_the_last_one_counts() {
        let text = br#"{"spec":{"a":1,"a":2,"list":[{"b":1,"b":1}]}}"#;
        let decoded = json(text).unwrap();
        assert_eq!(decoded.value, json!({"spec": {"a": 2, "list": [{"b": 1}]}}));
        assert_eq!(decoded.duplicates, ["spec.a", "spec.list[0].b"]);
    }

    #[test]
    fn nonsense_is_an_error_and_never_a_panic() {
        for text in [&b""[..], b"{", b"{}x", b"\xff", b"[1,]", b"nul", &[b'['; 100_000]] {
            assert!(json(text).is_err(), "{text:?}");
        }
    }
    #[test]
    fn a_long_name_costs_its_length_once_and_not_once_for_every_value_below() {
        let list = vec!["1"; 700_000].join(",");
        let text = format!("{{\"{}\":[{list}]}}", "k".repeat(1_400_000));
        let decoded = json(text.as_bytes()).unwrap();
        assert!(decoded.duplicates.is_empty());
        // Checks of this value would write the name 700,000 times.
        let error = body(BodyType::Json, "ConfigMap", &Bytes::from(text)).unwrap_err();
        assert!(error.message.contains("the names of its fields are too long"), "{error}");
    }

    #[test]
    fn many_duplicates_below_a_long_name_are_noted_within_bounds() {
        let twice = vec!["\"a\":1,\"a\":1"; 10_000].join(",");
        let text = format!("{{\"{}\":{{{twice}}}}}", "k".repeat(1_000_000));
        let decoded = json(text.as_bytes()).unwrap();
        assert_eq!(decoded.duplicates.len(), 1);
        let text = format!("{{\"k\":{{{twice}}}}}");
        assert_eq!(json(text.as_bytes()).unwrap().duplicates.len(), MOST_DUPLICATES);
    }

    #[test]
    fn large_bodies_that_mean_something_are_read() {
        let list = vec!["{\"name\":\"a\",\"value\":1}"; 100_000].join(",");
        let text = Bytes::from(format!("{{\"spec\":{{\"template\":{{\"items\":[{list}]}}}}}}"));
        assert!(body(BodyType::Json, "Thing", &text).is_ok());
    }

    #[test]
    fn places_are_those_of_the_last_field_of_that_path() {
        let text = br#"{"a":1,"b":{"c":[{"d":1}]},"a":2,"e":3}"#;
        let places = places(text, ["a", "b.c[0].d", "nowhere"].into_iter());
        let place = |path: &str| places[path];
        assert_eq!((place("b.c[0].d"), place("a"), place("nowhere")), (4, 5, usize::MAX));
    }

    #[test]
    fn every_encoding_has_the_same_limit_of_depth() {
        let nested = |depth| Bytes::from("[".repeat(depth) + &"]".repeat(depth));
        for type_ in [BodyType::Json, BodyType::Yaml] {
            assert!(body(type_, "Thing", &nested(MAX_DEPTH)).is_ok(), "{type_:?}");
            let error = body(type_, "Thing", &nested(MAX_DEPTH + 1)).unwrap_err();
            assert_eq!(error.code, 400, "{type_:?}: {error}");
        }
        let error = body(BodyType::Json, "Thing", &nested(MAX_DEPTH + 1)).unwrap_err();
        assert!(error.message.contains("exceeded max depth of 100"), "{error}");
    }
}
