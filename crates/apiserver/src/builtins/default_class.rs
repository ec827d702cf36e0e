//! The class of an Ingress that names none: the default IngressClass, as the admission plugin of a real server sets it. The
//! rules of Ingresses call it for a new one.

use crate::meta;
use serde_json::{Value, json};

/// The resource of IngressClasses in the store.
const CLASSES: &str = "ingressclasses.networking.k8s.io";
const DEFAULT: &str = "ingressclass.kubernetes.io/is-default-class";
/// The annotation that named a class before there was a field for it.
const OLDER: &str = "kubernetes.io/ingress.class";

/// Gives an Ingress without a class the default one, if there is one. `list` returns the objects of a resource.
pub(super) fn give(ingress: &mut Value, list: &dyn Fn(&str) -> Vec<Value>) {
    let named = ingress["metadata"]["annotations"].get(OLDER).is_some();
    if named || !ingress["spec"]["ingressClassName"].is_null() || !ingress["spec"].is_object() {
        return;
    }
    if let Some(name) = default_of(list(CLASSES).into_iter()) {
        ingress["spec"]["ingressClassName"] = json!(name);
    }
}

/// The default class: of several the newest, and of those made in the same second the first by name.
fn default_of(classes: impl Iterator<Item = Value>) -> Option<String> {
    let default = classes.filter(|it| it["metadata"]["annotations"][DEFAULT] == "true");
    let made = |it: &Value| meta::text(it, "creationTimestamp").to_owned();
    let newest =
        default.max_by(|a, b| made(a).cmp(&made(b)).then_with(|| meta::name(b).cmp(meta::name(a))));
    newest.map(|it| meta::name(&it).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ingress_that_names_a_class_in_either_way_keeps_it() {
        let list = |resource: &str| match resource {
            CLASSES => vec![json!({"metadata": {"name": "a", "annotations": {DEFAULT: "true"}}})],
            other => panic!("{other}"),
        };
        let class = |mut ingress: Value| {
            give(&mut ingress, &list);
            ingress["spec"]["ingressClassName"].clone()
        };
        assert_eq!(class(json!({"metadata": {}, "spec": {}})), "a");
        assert_eq!(class(json!({"metadata": {}, "spec": {"ingressClassName": "b"}})), "b");
        let older = json!({"metadata": {"annotations": {OLDER: "b"}}, "spec": {}});
        assert_eq!(class(older), Value::Null);
    }

    #[test]
    fn the_newest_default_class_counts_and_the_first_by_name_among_equals() {
        let class = |name: &str, made: &str, default: &str| {
            json!({"metadata": {
                "name": name, "creationTimestamp": made, "annotations": {DEFAULT: default},
            }})
        };
        let (old, new) = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z");
        let of = |all: &[Value]| default_of(all.iter().cloned());
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[class("a", new, "false")]), None);
        assert_eq!(of(&[class("a", new, "true"), class("b", old, "true")]).as_deref(), Some("a"));
        assert_eq!(of(&[class("b", new, "true"), class("a", new, "true")]).as_deref(), Some("a"));
    }
}
