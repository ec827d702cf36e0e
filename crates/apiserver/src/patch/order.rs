//! The order of merged lists: items of the patch come in its order, and other items keep their
//! relative place as well as possible. It takes linear time, by position tables. [`super::strategic`]
//! calls it.

use super::strategic::{failed, wrong_type};
use crate::error::ApiError;
use serde_json::Value;
use std::collections::HashMap;

/// How the items of a list are identified.
#[derive(Clone, Copy)]
pub(super) enum Items<'a> {
    /// Scalars, by their value.
    Plain,
    /// Maps, by this member.
    Keyed(&'a str),
}

/// The identity of an item, as JSON text.
pub(super) fn key_of(item: &Value, items: Items<'_>) -> Result<String, ApiError> {
    let key = match (items, item) {
        (Items::Plain, Value::Object(_) | Value::Array(_)) => {
            return Err(failed("cannot merge lists without merge key for slice".to_owned()));
        }
        (Items::Plain, scalar) => scalar,
        (Items::Keyed(key), Value::Object(map)) => map.get(key).ok_or_else(|| {
            failed(format!("map: {} does not contain declared merge key: {key}", go_format(item)))
        })?,
        (Items::Keyed(_), other) => return Err(wrong_type("map[string]interface {}", other)),
    };
    Ok(key.to_string())
}

/// The first position of each item.
pub(super) fn positions(
    list: &[Value],
    items: Items<'_>,
) -> Result<HashMap<String, usize>, ApiError> {
    let mut positions = HashMap::with_capacity(list.len());
    for (at, item) in list.iter().enumerate() {
        positions.entry(key_of(item, items)?).or_insert(at);
    }
    Ok(positions)
}

/// Sorts `merged`. Items in `wanted` follow its order, others follow `old`. An item of the server
/// stands before one of the patch only if it did so in `old`.
pub(super) fn arrange(
    merged: Vec<Value>,
    wanted: &[Value],
    old: &[Value],
    items: Items<'_>,
) -> Result<Vec<Value>, ApiError> {
    let wanted = positions(wanted, items)?;
    let old = positions(old, items)?;
    let size = merged.len();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for item in merged {
        let key = key_of(&item, items)?;
        let before = old.get(&key).copied();
        match wanted.get(&key) {
            Some(&at) => ours.push((at, before, item)),
            None => theirs.push((before.unwrap_or(usize::MAX), before, item)),
        }
    }
    ours.sort_by_key(|(at, ..)| *at);
    theirs.sort_by_key(|(at, ..)| *at);

    let mut result = Vec::with_capacity(size);
    let mut theirs = theirs.into_iter().peekable();
    for (_, place, item) in ours {
        while let (Some((_, Some(theirs_at), _)), Some(ours_at)) = (theirs.peek(), place)
            && *theirs_at < ours_at
        {
            result.extend(theirs.next().map(|(.., item)| item));
        }
        result.push(item);
    }
    result.extend(theirs.map(|(.., item)| item));
    Ok(result)
}

/// Refuses a patch list whose items are not all in `wanted` and in the same order. Items with a
/// directive are ignored.
pub(super) fn check(patch: &[Value], wanted: &[Value], items: Items<'_>) -> Result<(), ApiError> {
    if patch.is_empty() || wanted.is_empty() {
        return Ok(());
    }
    let differs = || {
        failed(format!(
            "The order in patch list:\n{}\n doesn't match $setElementOrder list:\n{}\n",
            go_format(&Value::Array(patch.to_vec())),
            go_format(&Value::Array(wanted.to_vec()))
        ))
    };
    let mut rest = wanted;
    for item in patch {
        match item.get("$patch") {
            Some(directive) if directive == "delete" => continue,
            // Only deletions may follow the last item in order.
            _ if rest.is_empty() => return Err(differs()),
            Some(_) => continue,
            None => {}
        }
        let key = key_of(item, items)?;
        loop {
            let (next, others) = rest.split_first().ok_or_else(differs)?;
            rest = others;
            if key_of(next, items)? == key {
                break;
            }
        }
    }
    Ok(())
}

/// A value in Go's `%v` format, as messages show it.
pub(super) fn go_format(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(list) => {
            format!("[{}]", list.iter().map(go_format).collect::<Vec<_>>().join(" "))
        }
        Value::Object(map) => {
            let mut members: Vec<_> = map.iter().collect();
            members.sort_by_key(|(key, _)| *key);
            let members =
                members.into_iter().map(|(key, value)| format!("{key}:{}", go_format(value)));
            format!("map[{}]", members.collect::<Vec<_>>().join(" "))
        }
        scalar => scalar.to_string(),
    }
}
