//! The rules of Events. Events have two shapes (`v1` and `events.k8s.io/v1`) and one storage, in the
//! shape of `v1`. The write path calls the rules; they do no I/O.

use super::fields::{Findings, default, entries, has, int, omit_empty, text};
use crate::error::FieldError;
use crate::kind::Rules;
use crate::names;
use serde_json::{Value, json};

/// Fields with different names in `v1` and in `events.k8s.io/v1`. All others have the same name.
const RENAMED: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

/// Fields that an Event of `events.k8s.io/v1` keeps, by their names in `v1`.
const KEPT: &[&str] = &[
    "involvedObject",
    "reason",
    "message",
    "source",
    "firstTimestamp",
    "lastTimestamp",
    "count",
    "type",
    "eventTime",
    "action",
    "related",
    "reportingController",
    "reportingInstance",
];

/// The rules of Events in one of their shapes.
pub struct EventRules {
    /// Whether the shape is that of `events.k8s.io/v1`.
    pub new_shape: bool,
}

impl Rules for EventRules {
    fn has_generation(&self) -> bool {
        false
    }

    fn default(&self, object: &mut Value) {
        // kube-apiserver writes absent times as null.
        default(object, "eventTime", Value::Null);
        if self.new_shape {
            default(object, "deprecatedSource", json!({}));
            default(object, "deprecatedFirstTimestamp", Value::Null);
            default(object, "deprecatedLastTimestamp", Value::Null);
        } else {
            default(object, "source", json!({}));
            default(object, "firstTimestamp", Value::Null);
            default(object, "lastTimestamp", Value::Null);
            default(object, "reportingComponent", "");
            default(object, "reportingInstance", "");
        }
    }

    fn validate(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut found = Findings::default();
        if !self.new_shape {
            both_shapes(object, "reportingComponent", &mut found);
            return found.done();
        }
        let stored = |object: &Value| {
            let mut object = object.clone();
            rename(&mut object, true);
            object
        };
        let event = stored(object);
        both_shapes(&event, "reportingController", &mut found);
        match old.map(stored) {
            None => new_event(&event, &mut found),
            Some(old) => kept(&event, &old, &mut found),
        }
        found.done()
    }

    fn to_storage(&self, object: &mut Value) {
        if self.new_shape {
            rename(object, true);
        }
    }

    fn to_served(&self, object: &mut Value) {
        if self.new_shape {
            rename(object, false);
            omit_empty(object, &["reportingController", "reportingInstance"]);
        }
    }

    fn selectable_value(&self, object: &Value, field: &str) -> Option<String> {
        let component = text(&object["source"], "component");
        match field {
            "source" if component.is_empty() => Some(text(object, "reportingComponent").to_owned()),
            "source" => Some(component.to_owned()),
            _ => None,
        }
    }
}

/// Renames the fields from the new shape to the stored one, or back.
fn rename(object: &mut Value, to_storage: bool) {
    let Value::Object(map) = object else { return };
    for (stored, new) in RENAMED {
        let (from, to) = if to_storage { (new, stored) } else { (stored, new) };
        if let Some(value) = map.remove(*from) {
            map.insert((*to).to_owned(), value);
        }
    }
    let version = if to_storage { "v1" } else { "events.k8s.io/v1" };
    map.insert("apiVersion".into(), json!(version));
}

fn both_shapes(event: &Value, controller: &str, found: &mut Findings) {
    let namespace = text(&event["metadata"], "namespace");
    let involved = text(&event["involvedObject"], "namespace");
    let timed = has(event, "eventTime");
    let agrees = match (involved, timed) {
        ("", true) => namespace == "default" || namespace == "kube-system",
        ("", false) => namespace.is_empty() || namespace == "default",
        (_, true) => true,
        (involved, false) => involved == namespace,
    };
    if !agrees {
        found.invalid("involvedObject.namespace", involved, "does not match event.namespace");
    }
    if timed {
        let name = text(event, "reportingComponent");
        if name.is_empty() {
            found.required(controller, "");
        }
        found.each(controller, name, names::is_qualified_name(name));
        for (field, limit, needed) in [
            ("reportingInstance", 128, true),
            ("action", 128, true),
            ("reason", 128, true),
            ("message", 1024, false),
        ] {
            let given = text(event, field);
            if needed && given.is_empty() {
                found.required(field, "");
            }
            if given.len() > limit {
                found.invalid(field, "", format!("can have at most {limit} characters"));
            }
        }
    }
    found.each("namespace", namespace, names::is_dns1123_subdomain(namespace));
}

fn series(event: &Value, found: &mut Findings) {
    if !has(event, "series") {
        return;
    }
    if int(&event["series"], "count") < 2 {
        found.invalid("series.count", "", "should be at least 2");
    }
    if !has(&event["series"], "lastObservedTime") {
        found.required("series.lastObservedTime", "");
    }
}

fn new_event(event: &Value, found: &mut Findings) {
    series(event, found);
    if !has(event, "eventTime") {
        found.required("eventTime", "");
    }
    let kind = text(event, "type");
    if !["Normal", "Warning"].contains(&kind) {
        found.invalid("type", "", format!("has invalid value: {kind}"));
    }
    let unset = "needs to be unset";
    for field in ["firstTimestamp", "lastTimestamp"] {
        if has(event, field) {
            found.invalid(field, "", unset);
        }
    }
    if int(event, "count") != 0 {
        found.invalid("count", "", unset);
    }
    if entries(event, "source").any(|(_, value)| *value != "") {
        found.invalid("source", "", unset);
    }
}

fn kept(event: &Value, old: &Value, found: &mut Findings) {
    if event["series"] != old["series"] {
        series(event, found);
    }
    for field in KEPT {
        let name = if *field == "reportingController" { "reportingComponent" } else { field };
        found.immutable(field, &event[name], &old[name]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: EventRules = EventRules { new_shape: false };
    const NEW: EventRules = EventRules { new_shape: true };

    fn said(errors: Vec<FieldError>) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_event_is_one_thing_in_two_shapes() {
        let stored = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "shop"},
            "involvedObject": {"kind": "Service", "name": "web", "namespace": "shop"},
            "message": "hello", "reason": "Why", "type": "Normal", "count": 3,
            "source": {"component": "bowline"}, "reportingComponent": "bowline.dev/controller",
            "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:01Z",
        });
        let mut served = stored.clone();
        NEW.to_served(&mut served);
        assert_eq!(
            served,
            json!({
                "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e", "namespace": "shop"},
                "regarding": {"kind": "Service", "name": "web", "namespace": "shop"},
                "note": "hello", "reason": "Why", "type": "Normal", "deprecatedCount": 3,
                "deprecatedSource": {"component": "bowline"}, "reportingController": "bowline.dev/controller",
                "deprecatedFirstTimestamp": "2026-01-01T00:00:00Z", "deprecatedLastTimestamp": "2026-01-01T00:00:01Z",
            })
        );
        NEW.to_storage(&mut served);
        assert_eq!(served, stored);
        assert_eq!(OLD.selectable_value(&stored, "source"), Some("bowline".to_owned()));
    }

    #[test]
    fn times_that_are_not_there_are_written_out_in_both_shapes() {
        let mut stored = json!({"firstTimestamp": "2026-01-01T00:00:00Z"});
        OLD.default(&mut stored);
        assert_eq!(
            stored,
            json!({
                "eventTime": null, "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": null,
                "source": {}, "reportingComponent": "", "reportingInstance": "",
            })
        );
        let mut new = json!({"eventTime": "2026-01-01T00:00:00.000000Z"});
        NEW.default(&mut new);
        assert_eq!(
            new,
            json!({
                "eventTime": "2026-01-01T00:00:00.000000Z", "deprecatedFirstTimestamp": null,
                "deprecatedLastTimestamp": null, "deprecatedSource": {},
            })
        );
    }

    #[test]
    fn an_event_stands_in_the_namespace_of_its_object() {
        let event = |namespace: &str, involved: Value| {
            let object = json!({"metadata": {"namespace": namespace}, "involvedObject": {"namespace": involved}});
            said(OLD.validate(&object, None))
        };
        assert_eq!(event("shop", json!("shop")), Vec::<String>::new());
        assert_eq!(event("default", json!(null)), Vec::<String>::new());
        let wrong =
            "involvedObject.namespace: Invalid value: \"x\": does not match event.namespace";
        assert_eq!(event("shop", json!("x")), [wrong]);
        assert_eq!(event("shop", json!(null)).len(), 1);
    }

    #[test]
    fn new_events_are_complete() {
        let good = json!({
            "metadata": {"namespace": "shop"}, "regarding": {"namespace": "shop"}, "eventTime": "2026-01-01T00:00:00.000000Z",
            "reportingController": "bowline.dev/controller", "reportingInstance": "bowline-0", "action": "Bind",
            "reason": "Bound", "type": "Normal",
        });
        assert_eq!(said(NEW.validate(&good, None)), Vec::<String>::new());
        assert_eq!(
            said(NEW.validate(
                &json!({"metadata": {"namespace": "shop"}, "regarding": {"namespace": "shop"}}),
                None
            )),
            ["eventTime: Required value", "type: Invalid value: \"\": has invalid value: "]
        );
        let mut changed = good.clone();
        changed["note"] = json!("changed");
        assert_eq!(
            said(NEW.validate(&changed, Some(&good))),
            ["message: Invalid value: \"changed\": field is immutable"]
        );
        let mut long = good.clone();
        long["reason"] = json!("x".repeat(129));
        assert_eq!(
            said(NEW.validate(&long, None)),
            ["reason: Invalid value: \"\": can have at most 128 characters"]
        );
    }
}
