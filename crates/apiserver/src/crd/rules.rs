//! The rules of the kind CustomResourceDefinition itself. The write path calls them; they do no
//! I/O.

use crate::error::FieldError;
use crate::kind::Rules;
use serde_json::{Value, json};

/// The rules of definitions. The server decides separately whether a definition is established.
pub struct DefinitionRules;

impl Rules for DefinitionRules {
    fn default(&self, object: &mut Value) {
        super::default(object);
        // kube-apiserver writes absent conditions as null.
        if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
            status.entry("conditions").or_insert(Value::Null);
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        let storage = super::storage_version(object);
        let stored = if storage.is_empty() { Value::Null } else { json!([storage]) };
        // No name is accepted yet: the server establishes the definition right after this write.
        let status = json!({
            "acceptedNames": {"kind": "", "plural": ""}, "storedVersions": stored,
        });
        if let Some(map) = object.as_object_mut() {
            map.insert("status".into(), status);
        }
    }

    fn validate(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        super::validate(object, old)
    }

    fn warnings(&self, object: &Value, old: Option<&Value>) -> Vec<String> {
        super::warnings(object, old)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{established, status, tests::good};
    use super::*;

    #[test]
    fn a_new_definition_has_a_status_that_accepts_nothing_yet() {
        let mut crd = good();
        crd["status"] = json!({"conditions": [{"type": "Established", "status": "True"}]});
        DefinitionRules.prepare_create(&mut crd);
        DefinitionRules.default(&mut crd);
        assert_eq!(
            crd["status"],
            json!({"acceptedNames": {"kind": "", "plural": ""}, "conditions": null, "storedVersions": ["v1"]})
        );
        assert!(!established(&crd));
        let fresh = status(&good(), &|_| None, jiff::Timestamp::UNIX_EPOCH);
        assert_eq!(status(&crd, &|_| None, jiff::Timestamp::UNIX_EPOCH), fresh);
    }
}
