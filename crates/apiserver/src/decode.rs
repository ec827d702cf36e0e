//! Request bodies into values. JSON is read with its duplicate fields noted (serde_json alone would let
//! the last one win in silence), YAML and protobuf through their own modules. Nothing is interpreted
//! here beyond the syntax.

use crate::error::ApiError;
use bytes::Bytes;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::fmt;

/// A body as it was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// The value; of a field that stands twice, the last.
    pub value: Value,
    /// Paths of fields that stand twice, such as `spec.type`.
    pub duplicates: Vec<String>,
    /// The JSON it came from, where the order of its fields may have to be told.
    pub source: Option<Bytes>,
}

impl Decoded {
    /// A value that was not read from JSON.
    pub fn plain(value: Value) -> Self {
        Self { value, duplicates: Vec::new(), source: None }
    }
}

/// The encodings a body may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyType {
    /// `application/json`, also assumed when nothing is said.
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

/// Reads a body of the given type, which should be an object of `kind`.
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
    read.map_err(|why| {
        ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): {why} ({})",
            excerpt(bytes)
        ))
    })
}

/// The beginning of a body as a message shows it: as text where it is text, else in hexadecimal.
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

/// The path of every field in the order in which they stand.
pub fn paths(bytes: &[u8]) -> Vec<String> {
    let (mut duplicates, mut order) = (Vec::new(), Vec::new());
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let seed = Noting { path: String::new(), duplicates: &mut duplicates, order: Some(&mut order) };
    // What is read up to an error is in order, too.
    let _ = seed.deserialize(&mut reader);
    order
}

/// Reads JSON and notes duplicate fields.
pub fn json(bytes: &[u8]) -> Result<Decoded, String> {
    let mut duplicates = Vec::new();
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let seed = Noting { path: String::new(), duplicates: &mut duplicates, order: None };
    let value = seed.deserialize(&mut reader).map_err(|e| e.to_string())?;
    reader.end().map_err(|e| e.to_string())?;
    Ok(Decoded { value, duplicates, source: None })
}

/// Builds a value while it notes the paths of duplicate fields.
struct Noting<'a> {
    path: String,
    duplicates: &'a mut Vec<String>,
    order: Option<&'a mut Vec<String>>,
}

/// More than this is no longer a slip; the rest is not worth remembering.
const MOST_DUPLICATES: usize = 100;

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

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut access: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        loop {
            let seed = Noting {
                path: format!("{}[{}]", self.path, items.len()),
                duplicates: &mut *self.duplicates,
                order: self.order.as_deref_mut(),
            };
            match access.next_element_seed(seed)? {
                Some(item) => items.push(item),
                None => return Ok(Value::Array(items)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            let path =
                if self.path.is_empty() { key.clone() } else { format!("{}.{key}", self.path) };
            if let Some(order) = self.order.as_deref_mut() {
                order.push(path.clone());
            }
            let value = access
                .next_value_seed(Noting {
                    path: path.clone(),
                    duplicates: &mut *self.duplicates,
                    order: self.order.as_deref_mut(),
                })
                .map_err(A::Error::custom)?;
            if map.insert(key, value).is_some() && self.duplicates.len() < MOST_DUPLICATES {
                self.duplicates.push(path);
            }
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
}
