//! Strategic merge patch: a merge patch that reads from the schema which lists are maps or sets, and
//! follows directives (`$patch`, `$retainKeys`, `$setElementOrder/…`, `$deleteFromPrimitiveList/…`).
//! `kubectl apply` and `kubectl edit` send only this format for built-in kinds.

use super::order::{self, Items};
use super::{does_not_apply, go_type, prune_nulls};
use crate::error::ApiError;
use crate::schema::Schema;
use serde_json::{Map, Value};
use std::collections::HashSet;

type Object = Map<String, Value>;

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ORDER: &str = "$setElementOrder";
const DELETE_FROM: &str = "$deleteFromPrimitiveList";

/// The object after the patch.
pub(super) fn apply(object: &Value, patch: &Value, schema: &Schema) -> Result<Value, ApiError> {
    let mut patched = object.as_object().cloned().unwrap_or_default();
    if let Value::Object(patch) = patch {
        merge_map(&mut patched, patch, Some(schema))?;
    }
    Ok(Value::Object(patched))
}

/// Merges the members of `patch` into `target`.
fn merge_map(target: &mut Object, patch: &Object, schema: Option<&Schema>) -> Result<(), ApiError> {
    if let Some(directive) = patch.get(PATCH) {
        match directive.as_str() {
            Some("replace") => {
                let mut members = patch.clone();
                members.remove(PATCH);
                *target = match fresh(Value::Object(members)) {
                    Some(Value::Object(members)) => members,
                    _ => Object::new(),
                };
            }
            Some("delete") => target.clear(),
            _ => return Err(unknown_directive(directive, patch)),
        }
        return Ok(());
    }
    if let Some(keys) = patch.get(RETAIN_KEYS) {
        retain_keys(target, patch, keys)?;
    }
    // A list with an order directive is merged together with its order, so its key is done then.
    let mut done = HashSet::new();
    for (key, value) in patch {
        if let Some(field) = directive_field(key, SET_ORDER, "setElementOrder list")?
            && merge_ordered(target, patch, field, value, schema)?
        {
            done.insert(field);
        }
    }
    for (key, value) in patch {
        if let Some(field) = directive_field(key, DELETE_FROM, "primitive list")? {
            delete_from(target, field, value)?;
        }
    }
    for (key, value) in patch {
        if !is_directive(key) && !done.contains(key.as_str()) {
            merge_member(target, key, value, schema)?;
        }
    }
    Ok(())
}

/// Merges one member that is not a directive.
fn merge_member(
    target: &mut Object,
    key: &str,
    patch: &Value,
    schema: Option<&Schema>,
) -> Result<(), ApiError> {
    if patch.is_null() {
        target.remove(key);
        return Ok(());
    }
    let member = schema.and_then(|schema| schema.member(key));
    match (target.get_mut(key), patch) {
        (Some(Value::Object(old)), Value::Object(new))
            if strategy(member.as_ref()) != "replace" =>
        {
            merge_map(old, new, member.as_ref())?;
        }
        (Some(Value::Array(old)), Value::Array(new)) if strategy(member.as_ref()) == "merge" => {
            *old = merge_list(std::mem::take(old), new, member.as_ref())?;
        }
        _ => match fresh(patch.clone()) {
            Some(value) => {
                target.insert(key.to_owned(), value);
            }
            None => {
                target.remove(key);
            }
        },
    }
    Ok(())
}

/// Merges a list with strategy merge: maps by key, scalars as a set.
fn merge_list(
    old: Vec<Value>,
    patch: &[Value],
    schema: Option<&Schema>,
) -> Result<Vec<Value>, ApiError> {
    if old.is_empty() && patch.is_empty() {
        return Ok(old);
    }
    let of_maps = element_type(&old, patch)? == "map[string]interface {}";
    let key = schema.and_then(|schema| schema.node().patch_merge_key.clone());
    let items = match (&key, of_maps) {
        (Some(key), true) => Items::Keyed(key),
        (None, false) => Items::Plain,
        (Some(_), false) => {
            let first = patch.iter().chain(&old).next().unwrap_or(&Value::Null);
            return Err(wrong_type("map[string]interface {}", first));
        }
        (None, true) => {
            return Err(failed("cannot merge lists without merge key for slice".to_owned()));
        }
    };
    let Items::Keyed(key) = items else {
        let mut seen = HashSet::new();
        let unique = |value: &&Value| seen.insert(value.to_string());
        let merged: Vec<Value> = old.iter().chain(patch).filter(unique).cloned().collect();
        return order::arrange(merged, patch, &old, items);
    };
    let (old, patch) = special_elements(old, patch, key)?;
    let merged = merge_by_key(old.clone(), &patch, key, schema)?;
    order::arrange(merged, &patch, &old, items)
}

/// Applies the elements of a patch list that have `$patch`. Returns the list without what they
/// delete, and the other elements.
fn special_elements(
    mut old: Vec<Value>,
    patch: &[Value],
    key: &str,
) -> Result<(Vec<Value>, Vec<Value>), ApiError> {
    let mut ordinary = Vec::with_capacity(patch.len());
    let mut deleted = HashSet::new();
    let mut replace = false;
    for element in patch {
        let Some(directive) = element.get(PATCH) else {
            ordinary.push(element.clone());
            continue;
        };
        match directive.as_str() {
            Some("delete") => {
                deleted.insert(order::key_of(element, Items::Keyed(key))?);
            }
            Some("replace") => replace = true,
            Some("merge") => {
                return Err(failed(
                    "merging lists cannot yet be specified in the patch".to_owned(),
                ));
            }
            _ => {
                let empty = Object::new();
                let map = element.as_object().unwrap_or(&empty);
                return Err(unknown_directive(directive, map));
            }
        }
    }
    if replace {
        return Ok((ordinary.into_iter().filter_map(fresh).collect(), Vec::new()));
    }
    // An old item without its key is refused later, when the list is sorted.
    old.retain(|item| {
        order::key_of(item, Items::Keyed(key)).map_or(true, |key| !deleted.contains(&key))
    });
    Ok((old, ordinary))
}

/// Merges each element into the first item with the same key, or appends it.
fn merge_by_key(
    mut list: Vec<Value>,
    patch: &[Value],
    key: &str,
    schema: Option<&Schema>,
) -> Result<Vec<Value>, ApiError> {
    let items = Items::Keyed(key);
    let schema = schema.and_then(Schema::items);
    let mut positions = order::positions(&list, items)?;
    for element in patch {
        let name = order::key_of(element, items)?;
        match (positions.get(&name), element) {
            (Some(&at), Value::Object(new)) => {
                if let Some(Value::Object(old)) = list.get_mut(at) {
                    merge_map(old, new, schema.as_ref())?;
                }
            }
            _ => {
                if let Some(element) = fresh(element.clone()) {
                    positions.insert(name, list.len());
                    list.push(element);
                }
            }
        }
    }
    Ok(list)
}

/// Merges the list `field` and sorts it as the patch requests. False: there is neither an old nor a
/// new list.
fn merge_ordered(
    target: &mut Object,
    patch: &Object,
    field: &str,
    wanted: &Value,
    schema: Option<&Schema>,
) -> Result<bool, ApiError> {
    let Value::Array(wanted) = wanted else {
        return Err(wrong_type("[]interface {}", wanted));
    };
    let list = |value: &Value| match value {
        Value::Array(list) => Ok(list.clone()),
        other => Err(wrong_type("[]interface {}", other)),
    };
    // kube-apiserver stores an empty list as absent.
    let old = target.get(field).map(list).transpose()?.filter(|list| !list.is_empty());
    let new = patch.get(field).map(list).transpose()?;
    let member = schema.and_then(|schema| schema.member(field));
    let merges = strategy(member.as_ref()) == "merge";
    let key = member.as_ref().and_then(|member| member.node().patch_merge_key.clone());
    let items = key.as_deref().map_or(Items::Plain, Items::Keyed);
    if let Some(new) = &new {
        order::check(new, wanted, items)?;
    }
    let (merged, before) = match (&old, &new) {
        (None, None) => return Ok(false),
        (Some(old), None) => (old.clone(), old.clone()),
        (Some(old), Some(new)) if merges => {
            let merged = merge_list(old.clone(), new, member.as_ref())?;
            let before = match items {
                Items::Keyed(key) => order_after_merge(old, new, key)?,
                Items::Plain => old.clone(),
            };
            (merged, before)
        }
        (_, Some(new)) => {
            let old = old.clone().unwrap_or_default();
            (new.iter().cloned().filter_map(fresh).collect(), old)
        }
    };
    element_type(old.as_deref().unwrap_or_default(), new.as_deref().unwrap_or_default())?;
    let arranged = order::arrange(merged, wanted, &before, items)?;
    target.insert(field.to_owned(), Value::Array(arranged));
    Ok(true)
}

/// The order that counts as the server's: the old items that stay, then at most as many added items
/// as the patch deletes. kube-apiserver does this by reusing the old list, and kubectl shows the effect.
fn order_after_merge(old: &[Value], patch: &[Value], key: &str) -> Result<Vec<Value>, ApiError> {
    if patch.iter().any(|element| element.get(PATCH).is_some_and(|d| d == "replace")) {
        return Ok(old.to_vec());
    }
    let (mut order, elements) = special_elements(old.to_vec(), patch, key)?;
    let known = order::positions(&order, Items::Keyed(key))?;
    let room = old.len() - order.len();
    let is_new = |element: &Value| {
        order::key_of(element, Items::Keyed(key)).is_ok_and(|key| !known.contains_key(&key))
    };
    order.extend(elements.into_iter().filter(is_new).take(room));
    Ok(order)
}

/// Removes scalars from a list.
fn delete_from(target: &mut Object, field: &str, unwanted: &Value) -> Result<(), ApiError> {
    if unwanted.is_null() {
        target.remove(field);
        return Ok(());
    }
    let (Some(Value::Array(list)), Value::Array(unwanted)) = (target.get_mut(field), unwanted)
    else {
        return Ok(());
    };
    if unwanted.iter().chain(&*list).any(|item| item.is_object() || item.is_array()) {
        return Err(ApiError::bad_request("invalid patch format of primitive list"));
    }
    let unwanted: HashSet<String> = unwanted.iter().map(Value::to_string).collect();
    list.retain(|item| !unwanted.contains(&item.to_string()));
    Ok(())
}

/// Removes all members that the directive does not name. It must name all that the patch sets.
fn retain_keys(target: &mut Object, patch: &Object, keys: &Value) -> Result<(), ApiError> {
    let bad = || ApiError::bad_request("invalid patch format of retainKeys");
    let keys: HashSet<&str> =
        keys.as_array().ok_or_else(bad)?.iter().filter_map(Value::as_str).collect();
    let named = |(key, value): (&String, &Value)| {
        value.is_null() || is_directive(key) || keys.contains(key.as_str())
    };
    if !patch.iter().all(named) {
        return Err(bad());
    }
    target.retain(|key, _| keys.contains(key.as_str()));
    Ok(())
}

/// A new value as it is stored: without directives and nulls. None: the value requests its own
/// deletion.
fn fresh(mut value: Value) -> Option<Value> {
    prune_nulls(&mut value);
    without_directives(value)
}

fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(map) if map.contains_key(PATCH) => None,
        Value::Object(map) => Some(
            map.into_iter()
                .filter(|(key, _)| !is_directive(key))
                .filter_map(|(key, value)| Some((key, without_directives(value)?)))
                .collect(),
        ),
        Value::Array(list) => Some(list.into_iter().filter_map(without_directives).collect()),
        scalar => Some(scalar),
    }
}

/// Whether a key is a directive, which is never stored.
fn is_directive(key: &str) -> bool {
    key == PATCH || key == RETAIN_KEYS || key.starts_with(SET_ORDER) || key.starts_with(DELETE_FROM)
}

/// The field of a key `$prefix/field`. None: the key is another one.
fn directive_field<'a>(
    key: &'a str,
    prefix: &str,
    what: &str,
) -> Result<Option<&'a str>, ApiError> {
    match key.strip_prefix(prefix) {
        None => Ok(None),
        Some(rest) => rest
            .strip_prefix('/')
            .map(Some)
            .ok_or_else(|| ApiError::bad_request(format!("invalid patch format of {what}"))),
    }
}

/// `merge`, `replace` or empty. `retainKeys` matters only to clients that create patches.
fn strategy(schema: Option<&Schema>) -> &str {
    let both = schema.and_then(|schema| schema.node().patch_strategy.as_deref());
    both.unwrap_or_default().split(',').find(|one| *one != "retainKeys").unwrap_or_default()
}

/// The common type of all items.
fn element_type(old: &[Value], new: &[Value]) -> Result<&'static str, ApiError> {
    let mut types = old.iter().chain(new).map(go_type);
    let Some(first) = types.next() else {
        return Err(failed("no elements in any of the given slices".to_owned()));
    };
    if first == "[]interface {}" {
        return Err(does_not_apply());
    }
    if types.any(|other| other != first) {
        let lists = [Value::Array(old.to_vec()), Value::Array(new.to_vec())];
        let lists = order::go_format(&Value::Array(lists.to_vec()));
        return Err(failed(format!("list element types are not identical: {lists}")));
    }
    Ok(first)
}

/// kube-apiserver has no code for these errors and answers 500 without a reason. Clients show the
/// message.
pub(super) fn failed(message: String) -> ApiError {
    ApiError::new(500, "", message)
}

pub(super) fn wrong_type(expected: &str, actual: &Value) -> ApiError {
    failed(format!("expected a {expected}, but received a {}", go_type(actual)))
}

fn unknown_directive(directive: &Value, map: &Object) -> ApiError {
    failed(format!(
        "unknown patch type: {} in map: {}",
        order::go_format(directive),
        order::go_format(&Value::Object(map.clone()))
    ))
}
