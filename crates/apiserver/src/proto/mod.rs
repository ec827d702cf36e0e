//! Converts request bodies in Kubernetes protobuf into the JSON that the same client would have sent.
//! It reads the built-in kinds only and never writes protobuf: answers are always JSON. The HTTP shell
//! calls it before anything else reads a body.
//!
//! The result is Go's JSON of the object without meaningless parts: without nulls, and without empty
//! structs that are not pointers. A zero that Go writes (a pointer that is set, or a required field)
//! stays, as in `replicas: 0`. Unknown fields are skipped, as kube-apiserver does.

mod message;
mod table;
mod wire;

use crate::error::ApiError;
use serde_json::Value;
use wire::{Fault, Reader};

/// The media type of Kubernetes protobuf.
pub const CONTENT_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// The first four bytes of a body, before the envelope.
const MAGIC: &[u8] = b"k8s\0";

/// kube-apiserver's message if they are missing.
const NO_MAGIC: &str =
    "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]";

/// Whether a `Content-Type` is Kubernetes protobuf. Its parameters do not matter.
pub fn is_protobuf(content_type: &str) -> bool {
    let media_type = content_type.split(';').next().unwrap_or_default();
    media_type.trim().eq_ignore_ascii_case(CONTENT_TYPE)
}

/// The JSON value of a protobuf body: a built-in kind, DeleteOptions or a SelfSubjectAccessReview.
///
/// The caller limits the size of the body; this function limits the memory that it becomes.
pub fn decode(body: &[u8]) -> Result<Value, ApiError> {
    if body.is_empty() {
        return Err(ApiError::bad_request("empty data"));
    }
    let body = body.strip_prefix(MAGIC).ok_or_else(|| ApiError::bad_request(NO_MAGIC))?;
    if body.is_empty() {
        return Err(ApiError::bad_request("empty body"));
    }
    let envelope = Envelope::read(body).map_err(|fault| bad("runtime.Unknown", &fault))?;
    envelope.check()?;
    let table = table::table().map_err(ApiError::internal)?;
    let message = table.kind(envelope.api_version, envelope.kind).ok_or_else(|| {
        ApiError::bad_request(format!(
            "no kind {:?} is registered for version {:?} as protobuf; send it as JSON",
            envelope.kind, envelope.api_version
        ))
    })?;
    let mut object = message::read(table, message, envelope.raw)
        .map_err(|(place, fault)| bad(&place, &fault))?;
    object.insert("apiVersion".into(), envelope.api_version.into());
    object.insert("kind".into(), envelope.kind.into());
    Ok(Value::Object(object))
}

fn bad(place: &str, fault: &Fault) -> ApiError {
    ApiError::bad_request(format!("couldn't read protobuf: {place}: {fault}"))
}

/// `runtime.Unknown`: the encoded object and its kind.
#[derive(Default)]
struct Envelope<'a> {
    api_version: &'a str,
    kind: &'a str,
    raw: &'a [u8],
    content_encoding: &'a str,
    content_type: &'a str,
}

impl<'a> Envelope<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, Fault> {
        let mut envelope = Self::default();
        let mut fields = Reader::new(bytes);
        while let Some((number, value)) = fields.field()? {
            match number {
                1 => {
                    let mut type_meta = Reader::new(value.bytes()?);
                    while let Some((number, value)) = type_meta.field()? {
                        match number {
                            1 => envelope.api_version = value.text()?,
                            2 => envelope.kind = value.text()?,
                            _ => {}
                        }
                    }
                }
                2 => envelope.raw = value.bytes()?,
                3 => envelope.content_encoding = value.text()?,
                4 => envelope.content_type = value.text()?,
                _ => {}
            }
        }
        Ok(envelope)
    }

    fn check(&self) -> Result<(), ApiError> {
        for (value, name) in [(self.kind, "Kind"), (self.api_version, "apiVersion")] {
            if value.is_empty() {
                return Err(ApiError::bad_request(format!(
                    "Object '{name}' is missing in the protobuf envelope"
                )));
            }
        }
        // No client sends an encoded body. Reading it as a plain one would store a wrong object.
        if !self.content_encoding.is_empty() {
            return Err(ApiError::bad_request(format!(
                "the content encoding {:?} of the protobuf envelope is not supported",
                self.content_encoding
            )));
        }
        if !self.content_type.is_empty() && !is_protobuf(self.content_type) {
            return Err(ApiError::bad_request(format!(
                "the content type {:?} of the protobuf envelope is not supported",
                self.content_type
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
