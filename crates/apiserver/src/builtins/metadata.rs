//! The rules of `metadata`, which all kinds share. The write path calls them for every object, built-in
//! or custom, with the name rule of its kind. They do no I/O.

use super::fields::{Findings, entries, has, list, text, texts};
use crate::error::{FieldError, FieldErrorKind};
use crate::names::{self, NameRule};
use serde_json::{Value, json};
use std::collections::HashSet;

/// The most bytes of all annotations of an object.
const ANNOTATIONS_MAX: usize = 256 * 1024;

/// The most bytes of owners in the errors about a second controller.
const SHOWN_OWNERS_MAX: usize = 64 * 1024;

/// Finalizers that need no domain.
const STANDARD_FINALIZERS: &[&str] = &["kubernetes", "orphan", "foregroundDeletion"];

/// The errors of the metadata of a built-in object (`old` on update): those of a custom object and, for
/// historical reasons, one more.
pub fn validate_builtin_meta(
    object: &Value,
    old: Option<&Value>,
    name_rule: NameRule,
    namespaced: bool,
) -> Vec<FieldError> {
    let mut found = Findings::default();
    found.extend(validate_meta(object, old, name_rule, namespaced));
    for (i, name) in texts(&object["metadata"], "finalizers").into_iter().enumerate() {
        check_standard_finalizer(name, &format!("metadata.finalizers[{i}]"), &mut found);
    }
    found.done()
}

/// Checks that a finalizer of a built-in kind has a domain or is one of the standard ones.
pub(super) fn check_standard_finalizer(name: &str, field: &str, found: &mut Findings) {
    if !name.contains('/') && !STANDARD_FINALIZERS.contains(&name) {
        found.invalid(
            field,
            name,
            "name is neither a standard finalizer name nor is it fully qualified",
        );
    }
}

/// The errors of an object's metadata (`old` on update).
pub fn validate_meta(
    object: &Value,
    old: Option<&Value>,
    name_rule: NameRule,
    namespaced: bool,
) -> Vec<FieldError> {
    let mut found = Findings::default();
    let meta = &object["metadata"];
    match old {
        None => names_and_scope(meta, name_rule, namespaced, &mut found),
        Some(old) => unchanged(meta, &old["metadata"], &mut found),
    }
    check_labels(&meta["labels"], "metadata.labels", &mut found);
    annotations(meta, &mut found);
    owners(meta, &mut found);
    if old.is_none() {
        finalizers(meta, &mut found);
    }
    found.done()
}

fn names_and_scope(meta: &Value, rule: NameRule, namespaced: bool, found: &mut Findings) {
    let prefix = text(meta, "generateName");
    if !prefix.is_empty() {
        found.each("metadata.generateName", prefix, rule(prefix, true));
    }
    let name = text(meta, "name");
    if name.is_empty() {
        found.required("metadata.name", "name or generateName is required");
    } else {
        found.each("metadata.name", name, rule(name, false));
    }
    let namespace = text(meta, "namespace");
    match (namespaced, namespace.is_empty()) {
        (true, true) => found.required("metadata.namespace", ""),
        (true, false) => {
            found.each("metadata.namespace", namespace, names::is_dns1123_label(namespace));
        }
        (false, false) => found.forbidden("metadata.namespace", "not allowed on this type"),
        (false, true) => {}
    }
    found.not_negative("metadata.generation", &meta["generation"]);
}

fn unchanged(meta: &Value, old: &Value, found: &mut Findings) {
    if old["deletionTimestamp"].is_string() {
        let before: HashSet<&str> = texts(old, "finalizers").into_iter().collect();
        let mut new: Vec<&str> =
            texts(meta, "finalizers").into_iter().filter(|f| !before.contains(f)).collect();
        new.sort_unstable();
        new.dedup();
        if !new.is_empty() {
            let list = new.iter().map(|f| format!("{f:?}")).collect::<Vec<_>>().join(", ");
            found.forbidden(
                "metadata.finalizers",
                format!(
                    "no new finalizers can be added if the object is being deleted, found new finalizers \
                     []string{{{list}}}"
                ),
            );
        }
    }
    for field in [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        let absent = |value: &Value| value.is_null() || *value == "";
        if meta[field] != old[field] && !(absent(&meta[field]) && absent(&old[field])) {
            let shown = match &meta[field] {
                Value::Null if ["name", "namespace", "uid"].contains(&field) => json!(""),
                other => other.clone(),
            };
            found.invalid(format!("metadata.{field}"), shown, "field is immutable");
        }
    }
}

/// Validates keys and values of labels, or of a selector that is a map of labels.
pub(super) fn check_labels(labels: &Value, field: &str, found: &mut Findings) {
    for (key, value) in labels.as_object().into_iter().flatten() {
        found.each(field, key.as_str(), names::is_qualified_name(key));
        if let Some(value) = value.as_str() {
            found.each(field, value, names::is_label_value(value));
        }
    }
}

/// Validates a label selector with `matchLabels` and `matchExpressions`.
pub(super) fn check_selector(selector: &Value, field: &str, found: &mut Findings) {
    check_labels(&selector["matchLabels"], &format!("{field}.matchLabels"), found);
    for (i, requirement) in list(selector, "matchExpressions").iter().enumerate() {
        let at = format!("{field}.matchExpressions[{i}]");
        let values = texts(requirement, "values");
        match text(requirement, "operator") {
            "In" | "NotIn" if values.is_empty() => found.required(
                format!("{at}.values"),
                "must be specified when `operator` is 'In' or 'NotIn'",
            ),
            "Exists" | "DoesNotExist" if !values.is_empty() => found.forbidden(
                format!("{at}.values"),
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            ),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => {
                found.invalid(format!("{at}.operator"), other, "not a valid selector operator");
            }
        }
        let key = text(requirement, "key");
        found.each(&format!("{at}.key"), key, names::is_qualified_name(key));
        for (j, value) in values.into_iter().enumerate() {
            found.each(&format!("{at}.values[{j}]"), value, names::is_label_value(value));
        }
    }
}

fn annotations(meta: &Value, found: &mut Findings) {
    let field = "metadata.annotations";
    let mut size = 0;
    for (key, value) in entries(meta, "annotations") {
        found.each(field, key.as_str(), names::is_qualified_name(&key.to_lowercase()));
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > ANNOTATIONS_MAX {
        found.push(FieldError::too_long(field, ANNOTATIONS_MAX));
    }
}

fn owners(meta: &Value, found: &mut Findings) {
    let field = "metadata.ownerReferences";
    let mut controller: Option<String> = None;
    let mut shown = None;
    let mut told = 0;
    for owner in list(meta, "ownerReferences") {
        let version = text(owner, "apiVersion");
        // Valid: `v1` or `group/v1`. More slashes are invalid.
        let known = match version.split('/').collect::<Vec<_>>()[..] {
            [version] | [_, version] => !version.is_empty(),
            _ => false,
        };
        if !known {
            found.invalid(format!("{field}.apiVersion"), version, "version must not be empty");
        }
        for name in ["kind", "name", "uid"] {
            if text(owner, name).is_empty() {
                found.invalid(format!("{field}.{name}"), "", "must not be empty");
            }
        }
        if version == "v1" && text(owner, "kind") == "Event" {
            found.invalid(
                field,
                owner.clone(),
                "/v1, Kind=Event is disallowed from being an owner",
            );
        }
        if owner["controller"] == true {
            let this = format!("{}/{}", text(owner, "kind"), text(owner, "name"));
            let Some(first) = &controller else {
                controller = Some(this);
                continue;
            };
            // Each of these errors shows all owners. If there are many, the first few errors are
            // enough.
            let all = shown.get_or_insert_with(|| shown_owners(list(meta, "ownerReferences")));
            told += all.len();
            if told > all.len() && told > SHOWN_OWNERS_MAX {
                continue;
            }
            found.push(FieldError {
                kind: FieldErrorKind::Invalid,
                field: field.to_owned(),
                value: Some(all.clone()),
                detail: format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for \
                     {first} and {this}"
                ),
            });
        }
    }
}

/// Owners as kube-apiserver shows them, with their fields in its order.
fn shown_owners(owners: &[Value]) -> String {
    let fields = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];
    let owners = owners.iter().map(|owner| {
        let members = fields.iter().filter(|field| has(owner, field));
        let members = members.map(|field| format!("\"{field}\":{}", owner[*field]));
        format!("{{{}}}", members.collect::<Vec<_>>().join(","))
    });
    format!("[{}]", owners.collect::<Vec<_>>().join(","))
}

fn finalizers(meta: &Value, found: &mut Findings) {
    let field = "metadata.finalizers";
    let all = texts(meta, "finalizers");
    for name in &all {
        found.each(field, *name, names::is_qualified_name(name));
    }
    if all.contains(&"orphan") && all.contains(&"foregroundDeletion") {
        found.invalid(
            field,
            json!(all),
            "finalizer orphan and foregroundDeletion cannot be both set",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(meta: Value, old: Option<Value>, namespaced: bool) -> Vec<String> {
        let object = json!({"metadata": meta});
        let old = old.map(|meta| json!({"metadata": meta}));
        validate_meta(&object, old.as_ref(), names::name_is_subdomain, namespaced)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn a_new_object_needs_a_name_where_it_belongs() {
        assert_eq!(said(json!({"name": "a", "namespace": "b"}), None, true), Vec::<String>::new());
        assert_eq!(
            said(json!({}), None, true),
            [
                "metadata.name: Required value: name or generateName is required",
                "metadata.namespace: Required value"
            ]
        );
        assert_eq!(
            said(json!({"name": "a", "namespace": "b"}), None, false),
            ["metadata.namespace: Forbidden: not allowed on this type"]
        );
        assert_eq!(said(json!({"name": "A", "generateName": "Bad-"}), None, false).len(), 2);
        assert_eq!(said(json!("nonsense"), None, false).len(), 1);
    }

    #[test]
    fn labels_annotations_and_finalizers_are_qualified_names() {
        let mut meta = json!({"name": "a"});
        for (field, value, count) in [
            ("labels", json!({"a/b": "c", "x": ""}), 0),
            ("labels", json!({"-": "c d"}), 2),
            ("annotations", json!({"UPPER/x": "anything goes\n"}), 0),
            ("annotations", json!({"a/b/c": ""}), 1),
            ("annotations", json!({"a": "x".repeat(ANNOTATIONS_MAX)}), 1),
            ("finalizers", json!(["bowline.dev/cleanup", "orphan"]), 0),
            ("finalizers", json!(["a b"]), 1),
            ("finalizers", json!(["orphan", "foregroundDeletion"]), 1),
        ] {
            meta[field] = value.clone();
            assert_eq!(said(meta.clone(), None, false).len(), count, "{field}: {value}");
            meta[field] = json!(null);
        }
    }

    #[test]
    fn finalizers_of_built_in_kinds_have_a_domain_or_are_the_servers_own() {
        let object =
            json!({"metadata": {"name": "a", "finalizers": ["kubernetes", "a.b/c", "mine"]}});
        let said: Vec<String> =
            validate_builtin_meta(&object, None, names::name_is_subdomain, false)
                .iter()
                .map(ToString::to_string)
                .collect();
        assert_eq!(
            said,
            [
                "metadata.finalizers[2]: Invalid value: \"mine\": name is neither a standard finalizer name nor is it \
              fully qualified"
            ]
        );
    }

    #[test]
    fn owners_are_complete_and_one_of_them_controls() {
        let owner = |name: &str| json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": name, "uid": "u", "controller": true});
        assert_eq!(
            said(json!({"name": "a", "ownerReferences": [owner("x")]}), None, false),
            Vec::<String>::new()
        );
        let both =
            said(json!({"name": "a", "ownerReferences": [owner("x"), owner("y")]}), None, false);
        assert_eq!(both.len(), 1);
        assert!(
            both[0].ends_with(
                "Only one reference can have Controller set to true. Found \"true\" in references for Deployment/x \
                 and Deployment/y"
            ),
            "{both:?}"
        );
        assert_eq!(
            said(json!({"name": "a", "ownerReferences": [{}]}), None, false),
            [
                "metadata.ownerReferences.apiVersion: Invalid value: \"\": version must not be empty",
                "metadata.ownerReferences.kind: Invalid value: \"\": must not be empty",
                "metadata.ownerReferences.name: Invalid value: \"\": must not be empty",
                "metadata.ownerReferences.uid: Invalid value: \"\": must not be empty",
            ]
        );
    }

    #[test]
    fn many_controllers_are_refused_in_few_words() {
        let owner = |i| {
            json!({"apiVersion": "v1", "kind": "Pod", "name": format!("p{i}"), "uid": "u",
                   "controller": true})
        };
        let owners: Vec<Value> = (0..2_000).map(owner).collect();
        let found = said(json!({"name": "a", "ownerReferences": owners}), None, false);
        assert_eq!(found.len(), 1);
        let found = said(json!({"name": "a", "ownerReferences": owners[..3]}), None, false);
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn an_update_keeps_the_identity() {
        let old = json!({"name": "a", "uid": "1", "creationTimestamp": "2026-01-01T00:00:00Z"});
        assert_eq!(said(old.clone(), Some(old.clone()), false), Vec::<String>::new());
        assert_eq!(
            said(
                json!({"name": "a", "uid": "2", "creationTimestamp": "2026-01-01T00:00:00Z"}),
                Some(old.clone()),
                false
            ),
            ["metadata.uid: Invalid value: \"2\": field is immutable"]
        );
        let deleting = json!({"name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]});
        let mut more = deleting.clone();
        more["finalizers"] = json!(["a/b", "c/d"]);
        assert_eq!(
            said(more, Some(deleting), false),
            [
                "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found \
              new finalizers []string{\"c/d\"}"
            ]
        );
    }

    #[test]
    fn selectors_have_known_operators() {
        let mut found = Findings::default();
        check_selector(
            &json!({"matchExpressions": [
                {"key": "a", "operator": "In", "values": []}, {"key": "a", "operator": "Near"},
                {"key": "a", "operator": "Exists", "values": ["x"]}, {"key": "a", "operator": "NotIn", "values": ["b"]}]}),
            "s",
            &mut found,
        );
        let said: Vec<String> = found.done().iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            [
                "s.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
                "s.matchExpressions[1].operator: Invalid value: \"Near\": not a valid selector operator",
                "s.matchExpressions[2].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            ]
        );
    }
}
