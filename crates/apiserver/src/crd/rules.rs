//! The rules of the kind CustomResourceDefinition itself, for the write path.

use crate::error::FieldError;
use crate::kind::Rules;
use serde_json::Value;

/// What a definition must be like; what becomes of it is decided when it is established.
pub struct DefinitionRules;

impl Rules for DefinitionRules {
    fn default(&self, object: &mut Value) {
        super::default(object);
    }

    fn prepare_create(&self, object: &mut Value) {
        if let Some(map) = object.as_object_mut() {
            map.remove("status");
        }
    }

    fn validate(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        super::validate(object, old)
    }

    fn warnings(&self, object: &Value, old: Option<&Value>) -> Vec<String> {
        super::warnings(object, old)
    }
}
