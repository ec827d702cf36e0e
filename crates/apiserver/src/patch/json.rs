//! JSON patch (RFC 6902) with limits, so that a small body causes neither a large object nor a long
//! computation. The operations are those of the json-patch crate.

use super::{does_not_apply, json_error, json_type};
use crate::decode::MAX_DEPTH;
use crate::error::ApiError;
use json_patch::jsonptr::Pointer;
use json_patch::{PatchOperation, patch_unsafe};
use serde_json::Value;

/// The most operations, as in kube-apiserver.
const MAX_OPERATIONS: usize = 10_000;
/// The most bytes that all `copy` operations of a patch may add, as in kube-apiserver.
const MAX_COPIED: usize = 3 * 1024 * 1024;
/// The most nodes visited and list items shifted by one patch. Millions take a second; shifting a list
/// of a million items ten thousand times takes too long.
const MAX_WORK: usize = 100_000_000;

/// Reads the operations. Operations that cannot run on any object are refused here.
pub(super) fn parse(body: &[u8]) -> Result<json_patch::Patch, ApiError> {
    let decoding = |text: String| ApiError::bad_request(format!("error decoding patch: {text}"));
    let operations = match serde_json::from_slice(body).map_err(|e| decoding(json_error(&e)))? {
        Value::Array(operations) => operations,
        other => {
            return Err(decoding(format!(
                "json: cannot unmarshal {} into Go value of type []handlers.jsonPatchOp",
                json_type(&other)
            )));
        }
    };
    if operations.len() > MAX_OPERATIONS {
        return Err(ApiError::new(
            413,
            "RequestEntityTooLarge",
            format!(
                "Request entity too large: The allowed maximum operations in a JSON patch is \
                 {MAX_OPERATIONS}, got {}",
                operations.len()
            ),
        ));
    }
    let read = |operation: Value| {
        let Value::Object(mut operation) = operation else {
            return Err(decoding(format!(
                "json: cannot unmarshal {} into Go value of type handlers.jsonPatchOp",
                json_type(&operation)
            )));
        };
        // kube-apiserver reads an absent value as null.
        operation.entry("value").or_insert(Value::Null);
        serde_json::from_value(Value::Object(operation)).map_err(|_| does_not_apply())
    };
    Ok(json_patch::Patch(operations.into_iter().map(read).collect::<Result<_, _>>()?))
}

/// Applies the operations in order to a copy of the object.
pub(super) fn apply(object: &Value, patch: &json_patch::Patch) -> Result<Value, ApiError> {
    let mut document = object.clone();
    let mut limits = Limits::default();
    for operation in patch.iter() {
        limits.admit(&document, operation)?;
        if absent_as_null(&document, operation) || replaced_absent(&mut document, operation) {
            continue;
        }
        patch_unsafe(&mut document, std::slice::from_ref(operation))
            .map_err(|_| does_not_apply())?;
    }
    Ok(document)
}

/// In a test, kube-apiserver reads an absent member as null.
fn absent_as_null(document: &Value, operation: &PatchOperation) -> bool {
    let PatchOperation::Test(test) = operation else { return false };
    test.value.is_null()
        && document.pointer(test.path.as_str()).is_none()
        && parent(document, &test.path).is_some_and(Value::is_object)
}

/// kube-apiserver adds an absent member that should be replaced.
fn replaced_absent(document: &mut Value, operation: &PatchOperation) -> bool {
    let PatchOperation::Replace(replace) = operation else { return false };
    let Some((parent, last)) = replace.path.split_back() else { return false };
    let Some(Value::Object(map)) = document.pointer_mut(parent.as_str()) else { return false };
    let name = last.decoded();
    if map.contains_key(name.as_ref()) {
        return false;
    }
    map.insert(name.into_owned(), replace.value.clone());
    true
}

/// What a patch has used so far.
#[derive(Default)]
struct Limits {
    copied: usize,
    work: usize,
}

impl Limits {
    /// Refuses an operation that would exceed a limit, before it runs.
    fn admit(&mut self, document: &Value, operation: &PatchOperation) -> Result<(), ApiError> {
        match operation {
            PatchOperation::Add(add) => {
                self.spend(shifted(document, &add.path))?;
                place(&add.path, &add.value)
            }
            PatchOperation::Replace(replace) => place(&replace.path, &replace.value),
            PatchOperation::Remove(remove) => self.spend(shifted(document, &remove.path)),
            PatchOperation::Move(moved) => {
                let source = document.pointer(moved.from.as_str()).ok_or_else(does_not_apply)?;
                let shifted = shifted(document, &moved.from) + shifted(document, &moved.path);
                self.spend(nodes(source) + shifted)?;
                place(&moved.path, source)
            }
            PatchOperation::Copy(copy) => {
                let source = document.pointer(copy.from.as_str()).ok_or_else(does_not_apply)?;
                self.copied += size(source);
                if self.copied > MAX_COPIED {
                    return Err(does_not_apply());
                }
                self.spend(shifted(document, &copy.path))?;
                place(&copy.path, source)
            }
            PatchOperation::Test(_) => Ok(()),
        }
    }

    fn spend(&mut self, work: usize) -> Result<(), ApiError> {
        self.work += work;
        if self.work > MAX_WORK {
            return Err(ApiError::new(
                413,
                "RequestEntityTooLarge",
                "Request entity too large: the JSON patch takes too long to apply",
            ));
        }
        Ok(())
    }
}

/// Refuses a value that would make the document too deep.
fn place(path: &Pointer, value: &Value) -> Result<(), ApiError> {
    if path.count() + depth(value) > MAX_DEPTH { Err(does_not_apply()) } else { Ok(()) }
}

/// The parent of the value to which the pointer points.
fn parent<'a>(document: &'a Value, path: &Pointer) -> Option<&'a Value> {
    document.pointer(path.split_back()?.0.as_str())
}

/// The most items that an insertion or removal at this place shifts.
fn shifted(document: &Value, path: &Pointer) -> usize {
    parent(document, path).and_then(Value::as_array).map_or(0, Vec::len)
}

/// The depth of nested containers.
fn depth(value: &Value) -> usize {
    match value {
        Value::Array(list) => 1 + list.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// The number of values.
fn nodes(value: &Value) -> usize {
    match value {
        Value::Array(list) => 1 + list.iter().map(nodes).sum::<usize>(),
        Value::Object(map) => 1 + map.values().map(nodes).sum::<usize>(),
        _ => 1,
    }
}

/// The approximate length as JSON.
fn size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) => 5,
        Value::Number(_) => 8,
        Value::String(text) => text.len() + 2,
        Value::Array(list) => 2 + list.iter().map(|item| size(item) + 1).sum::<usize>(),
        Value::Object(map) => {
            2 + map.iter().map(|(key, member)| key.len() + 4 + size(member)).sum::<usize>()
        }
    }
}
