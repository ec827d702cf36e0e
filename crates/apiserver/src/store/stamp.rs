//! Objects as bytes: canonical JSON, encoded once, with the revision in `metadata.resourceVersion`.
//! Only the writer knows a write's revision, so the caller encodes with a hole and the writer fills
//! it while copying. It does no I/O.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::ops::Range;

/// Canonical JSON without its revision.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Unstamped {
    json: Vec<u8>,
    hole: Range<usize>,
}

impl Unstamped {
    /// Encodes `object`. The error says why it cannot have a revision.
    pub(super) fn encode(mut object: Value) -> Result<Self, String> {
        let metadata = match &mut object {
            Value::Object(map) => {
                map.entry("metadata").or_insert_with(|| Value::Object(Map::new()))
            }
            other => return Err(format!("not a JSON object: {other}")),
        };
        match metadata {
            Value::Object(map) => map.insert("resourceVersion".into(), Value::String("0".into())),
            other => return Err(format!("metadata is not a JSON object: {other}")),
        };
        // Maps are already sorted, unless a dependency turns on serde_json's `preserve_order`.
        object.sort_all_objects();
        let json = serde_json::to_vec(&object).map_err(|e| e.to_string())?;
        let hole = locate(&json).ok_or("the object cannot be read back")?;
        Ok(Self { json, hole })
    }

    /// The size of the object in bytes, within a few digits.
    pub(super) fn len(&self) -> usize {
        self.json.len()
    }

    /// The object's bytes at `revision`.
    pub(super) fn stamp(&self, revision: u64) -> Bytes {
        splice(&self.json, self.hole.clone(), revision)
    }
}

/// A stored object with another revision, otherwise unchanged byte for byte.
pub(super) fn restamp(stored: &[u8], revision: u64) -> Option<Bytes> {
    Some(splice(stored, locate(stored)?, revision))
}

/// The revision in a stored object. None: these bytes are not a stored object.
pub(super) fn revision_of(stored: &[u8]) -> Option<u64> {
    std::str::from_utf8(&stored[locate(stored)?]).ok()?.parse().ok()
}

/// `json` with `revision` in the hole, in an allocation of exactly this size.
fn splice(json: &[u8], hole: Range<usize>, revision: u64) -> Bytes {
    let digits = revision.to_string();
    let mut out = Vec::with_capacity(json.len() - hole.len() + digits.len());
    out.extend_from_slice(&json[..hole.start]);
    out.extend_from_slice(digits.as_bytes());
    out.extend_from_slice(&json[hole.end..]);
    out.into()
}

/// The range of the value of `metadata.resourceVersion`, without its quotes.
fn locate(json: &[u8]) -> Option<Range<usize>> {
    #[derive(Deserialize)]
    struct Object<'a> {
        #[serde(borrow)]
        metadata: Metadata<'a>,
    }
    #[derive(Deserialize)]
    struct Metadata<'a> {
        #[serde(borrow, rename = "resourceVersion")]
        resource_version: &'a str,
    }
    let text = serde_json::from_slice::<Object<'_>>(json).ok()?.metadata.resource_version;
    // Borrowed text is a part of `json`; its address gives its position.
    let start = text.as_ptr().addr().checked_sub(json.as_ptr().addr())?;
    Some(start..start + text.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn text(bytes: &[u8]) -> &str {
        std::str::from_utf8(bytes).unwrap()
    }

    #[test]
    fn the_revision_is_stamped_into_sorted_json() {
        let object =
            json!({"spec": {"b": 1, "a": 0.1}, "metadata": {"name": "x", "resourceVersion": "77"}});
        let stamped = Unstamped::encode(object).unwrap().stamp(1234);
        assert_eq!(
            text(&stamped),
            r#"{"metadata":{"name":"x","resourceVersion":"1234"},"spec":{"a":0.1,"b":1}}"#
        );
        assert_eq!(revision_of(&stamped), Some(1234));
    }

    #[test]
    fn an_object_without_metadata_gets_some() {
        let stamped = Unstamped::encode(json!({})).unwrap().stamp(2);
        assert_eq!(text(&stamped), r#"{"metadata":{"resourceVersion":"2"}}"#);
    }

    #[test]
    fn what_cannot_carry_a_revision_is_refused() {
        assert_eq!(Unstamped::encode(json!([])), Err("not a JSON object: []".into()));
        assert_eq!(
            Unstamped::encode(json!({"metadata": 3})),
            Err("metadata is not a JSON object: 3".into())
        );
    }

    #[test]
    fn only_the_objects_own_resource_version_is_stamped() {
        let object = json!({
            "a": {"metadata": {"resourceVersion": "5"}},
            "metadata": {
                "annotations": {"resourceVersion": "6", "q": "\"resourceVersion\":\"7\""},
                "name": "\u{fffd}\"\\",
            },
        });
        let first = Unstamped::encode(object.clone()).unwrap().stamp(9);
        let again = restamp(&first, 100).unwrap();
        let mut expected = object;
        expected["metadata"]["resourceVersion"] = json!("100");
        assert_eq!(serde_json::from_slice::<Value>(&again).unwrap(), expected);
        assert_eq!(first.len() + 2, again.len());
    }

    #[test]
    fn restamping_keeps_every_other_byte() {
        let stored = br#"{"f":1.7976931348623157e308,"metadata":{"resourceVersion":"9"},"z":0.30000000000000004}"#;
        assert_eq!(restamp(stored, 9).unwrap(), stored[..]);
        assert_eq!(restamp(b"{}", 9), None);
        assert_eq!(revision_of(b"\xff"), None);
    }
}
